"""Sums in whole numbers: the order in which they are added cannot matter, nor who adds them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Values of a table add up to a few at most; 64 bits hold up to 8, and what overflows on the way
# comes back.
UNITS = 2.0**60
LARGEST = 2.0**63 / UNITS


def as_floats(sums: NDArray[Any]) -> NDArray[np.float64]:
    """Sums as floats, be they counted in units or floats already."""
    floats: NDArray[np.float64] = sums / UNITS if sums.dtype.kind == "i" else sums
    return floats
