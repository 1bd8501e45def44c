"""Rows of a long table as stretches of positions, of which a few say what many rows share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.blocks import Mask

Codes = NDArray[np.int32]
Ends = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Stretches:
    """Some of n rows: all that lie between the two ends of a stretch.

    Parameters
    ----------
    n_rows : int
        Of the whole table.
    ends : array of shape (n_stretches, 2)
        First row of each, and the first behind it; sorted, and apart from each other.
    """

    n_rows: int
    ends: Ends

    @classmethod
    def between(cls, start: int, end: int, n_rows: int) -> Stretches:
        """One stretch, or none."""
        return cls(n_rows, np.array([(start, end)] if start < end else []).reshape(-1, 2))

    @classmethod
    def of_mask(cls, mask: Mask) -> Stretches:
        """Where a mask is True."""
        ends = np.flatnonzero(np.diff(np.pad(mask, 1).astype(np.int8))).reshape(-1, 2)
        return cls(len(mask), ends)

    @classmethod
    def of_places(cls, places: Iterable[int], n_rows: int) -> Stretches:
        """These rows."""
        rows = np.unique(np.fromiter(places, dtype=np.int64))
        begins = np.flatnonzero(np.diff(rows, prepend=-2) > 1)
        ends = np.flatnonzero(np.diff(rows, append=n_rows + 1) > 1)
        return cls(n_rows, np.column_stack([rows[begins], rows[ends] + 1]))

    def __getitem__(self, key: Any) -> Mask:
        """Whether each of some rows is among these; the key is what a mask would take."""
        rows, *more = key if isinstance(key, tuple) else (key,)
        before = np.searchsorted(self.ends.ravel(), rows, side="right")
        return np.asarray(before % 2 == 1)[(..., *more)]

    def all(self) -> bool:
        """Whether these are all rows."""
        return np.array_equal(self.ends, [[0, self.n_rows]])

    def any(self) -> bool:
        """Whether there is one at all."""
        return len(self.ends) > 0

    def first_common(self, other: Stretches) -> int | None:
        """First row that is among these and among the others; None if there is none."""
        begins = np.concatenate([self.ends[:, 0], other.ends[:, 0]])
        both = begins[self[begins] & other[begins]]
        return int(both.min()) if len(both) else None


@dataclass(frozen=True, eq=False)
class Runs:
    """One code for each row, where many rows that lie together have the same.

    Parameters
    ----------
    ends : array of shape (n_runs,)
        First row behind each run.
    codes : array of shape (n_runs,)
    """

    ends: Ends
    codes: Codes

    def __len__(self) -> int:
        """Count the rows."""
        return int(self.ends[-1])

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Codes:
        """Codes of a stretch of rows, or of single ones."""
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(len(self))
            return np.repeat(self.codes, _lengths(np.clip(self.ends, start, stop), start))
        return self.codes[np.searchsorted(self.ends, rows, side="right")]

    @property
    def lengths(self) -> Ends:
        """How many rows each run has."""
        return _lengths(self.ends, 0)


def _lengths(ends: Ends, start: int) -> Ends:
    lengths: Ends = ends - np.append(start, ends[:-1])
    return lengths
