"""Matrices of which a push runs a part."""

import pytest


def rarely(*cases):
    """Mark the rest of a matrix, a tuple or a single argument each; it runs nightly."""
    given = (case if isinstance(case, tuple) else (case,) for case in cases)
    return [pytest.param(*case, marks=pytest.mark.nightly) for case in given]
