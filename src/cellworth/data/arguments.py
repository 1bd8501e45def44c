"""Array types that every file shares, and checks of plain arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Positions = NDArray[np.intp]
Mask = NDArray[np.bool_]
Labels = NDArray[Any]
# Categories of a column by number, and the code of a missing value.
Codes = NDArray[np.int32]
MISSING = -1
# How a column is measured: its type or a squared distance of the user's, and the unit of numbers.
Kind = Literal["numeric", "categorical"]
Distance = Callable[[Any, Any], float]
Scale = Literal["robust", "std"] | None


def is_integer(number: Any) -> bool:
    """Tell whether this is a whole number; True and False are none."""
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def check_count(number: Any, called: str) -> int:
    """Return a whole number of at least 1, or refuse it with a sentence."""
    if not is_integer(number) or number < 1:
        raise ValueError(f"{called} is {number!r}; give a whole number of at least 1.")
    return int(number)
