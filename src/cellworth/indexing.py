"""Values looked up by label or by position, never by a guess between the two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cellworth.blocks import Axis, Blocks


class Cut(Protocol):
    """An array of values, or what can be cut as one."""

    def __getitem__(self, key: Any, /) -> Any:
        """Cut as NumPy does."""
        ...


@dataclass(frozen=True, eq=False)
class Lookup:
    """Square brackets that take a row and a column."""

    blocks: Blocks
    values: Cut
    by_label: bool

    def __getitem__(self, key: Any) -> Any:
        """One value, or an array where a list or ``:`` is asked for."""
        if not isinstance(key, tuple) or len(key) != 2:
            raise KeyError(f"{key!r} is not a pair; give a row and a column, ':' for all of them.")
        if not self.by_label:
            return self.values[key]
        rows = _places(self.blocks.rows, key[0], "row")
        columns = _places(self.blocks.columns, key[1], "column")
        if isinstance(rows, np.ndarray) and isinstance(columns, np.ndarray):
            # Each of these rows with each of these columns, not pairs of them.
            rows = rows[:, np.newaxis]
        found = self.values[rows, columns]
        return found if found.ndim else float(found)


def _places(axis: Axis, key: Any, what: str) -> Any:
    if isinstance(key, slice):
        if key != slice(None):
            raise KeyError(f"loc takes a {what} label, a list of them or ':'; slices go to iloc.")
        return key
    if isinstance(key, list | range) or (hasattr(key, "__array__") and np.ndim(key) == 1):
        return np.array([axis.position(label, what=what) for label in key], dtype=np.intp)
    return axis.position(key, what=what)


def narrowed(key: Any, length: int) -> tuple[NDArray[np.intp], Any]:
    """Positions along one side that a key asks for, and the key to use on these alone.

    Positions are sorted and differ; cut to them, an array answers the new key as the whole one
    would have answered the old.
    """
    if key is Ellipsis:
        key = slice(None)
    if isinstance(key, slice):
        places = np.arange(*key.indices(length))
        return (
            (places, slice(None))
            if len(places) < 2 or places[0] < places[1]
            else (places[::-1], slice(None, None, -1))
        )
    array = np.asarray(key)
    if array.dtype.kind == "b":
        if array.shape != (length,):
            raise IndexError(f"the mask has shape {array.shape}; give one of length {length}.")
        array = np.flatnonzero(array)
    elif array.size == 0:
        array = array.astype(np.intp)
    if array.dtype.kind not in "iu":
        raise IndexError(f"{key!r} is no position; give whole numbers, a mask or a slice.")
    outside = array[(array < -length) | (array >= length)]
    if outside.size:
        raise IndexError(f"position {outside.flat[0]} is outside of 0 to {length - 1}.")
    array = np.where(array < 0, array + length, array).astype(np.intp)
    places, back = np.unique(array, return_inverse=True)
    return places, int(back.item()) if array.ndim == 0 else back.reshape(array.shape)
