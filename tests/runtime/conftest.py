"""What toys over shards must give."""

from functools import cache, partial

import pytest

import toy_shards
from cellworth.runtime import rounds

N_ROWS = 1000


@pytest.fixture(scope="session")
def truth():
    """What a thousand rows get after so many rounds."""
    return cache(partial(toy_shards.truth, N_ROWS))


@pytest.fixture
def stored(monkeypatch):
    """States are written after each round, as if rounds were large and took minutes."""
    monkeypatch.setattr(rounds, "MAX_WAITING_BYTES", 0)
    monkeypatch.setattr(rounds, "_SECONDS_BETWEEN_STATES", -1.0)
