"""Counts that users give: a whole number, or one sentence."""

from __future__ import annotations

from typing import Any

import numpy as np


def is_whole(number: Any) -> bool:
    """Tell whether this is a whole number; True and False are none."""
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def checked_count(number: Any, called: str) -> int:
    """Return a whole number of at least 1, or refuse it with a sentence."""
    if not is_whole(number) or number < 1:
        raise ValueError(f"{called} is {number!r}; give a whole number of at least 1.")
    return int(number)
