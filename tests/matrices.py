"""Matrices of which .ci/run runs a part."""

import pytest


def rarely(*cases):
    """Mark the rest of a matrix, a tuple or a single argument each; it runs with "long"."""
    given = (case if isinstance(case, tuple) else (case,) for case in cases)
    return [pytest.param(*case, marks=pytest.mark.long) for case in given]
