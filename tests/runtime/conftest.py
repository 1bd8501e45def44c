"""What toys over shards must give."""

from functools import cache, partial

import pytest

import toy_shards

N_ROWS = 1000


@pytest.fixture(scope="session")
def truth():
    """What a thousand rows get after so many rounds."""
    return cache(partial(toy_shards.truth, N_ROWS))
