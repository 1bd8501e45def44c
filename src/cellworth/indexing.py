"""Values looked up by label or by position, never by a guess between the two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.blocks import Axis, Blocks


@dataclass(frozen=True, eq=False)
class Lookup:
    """Square brackets that take a row and a column."""

    blocks: Blocks
    values: NDArray[np.float64]
    by_label: bool

    def __getitem__(self, key: Any) -> Any:
        """One value, or an array where a list or ``:`` is asked for."""
        if not isinstance(key, tuple) or len(key) != 2:
            raise KeyError(f"{key!r} is not a pair; give a row and a column, ':' for all of them.")
        if not self.by_label:
            return self.values[key]
        rows = _places(self.blocks.rows, key[0], "row")
        columns = _places(self.blocks.columns, key[1], "column")
        found = self.values[rows][..., columns]
        return found if found.ndim else float(found)


def _places(axis: Axis, key: Any, what: str) -> Any:
    if isinstance(key, slice):
        if key != slice(None):
            raise KeyError(f"loc takes a {what} label, a list of them or ':'; slices go to iloc.")
        return key
    if isinstance(key, list | range) or (hasattr(key, "__array__") and np.ndim(key) == 1):
        return np.array([axis.position(label, what=what) for label in key], dtype=np.intp)
    return axis.position(key, what=what)
