"""Rows of a long table as intervals of positions, whose number does not grow with the table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.counts import Codes, Mask

Ends = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Stretches:
    """A set of rows, as intervals; it is indexed like a mask.

    Parameters
    ----------
    n_rows : int
        Number of rows of the whole table.
    ends : array of shape (n_stretches, 2)
        First row of each interval, and the first row behind it; sorted, and not adjacent.
    """

    n_rows: int
    ends: Ends

    @classmethod
    def from_range(cls, start: int, end: int, n_rows: int) -> Stretches:
        """Return one interval, or none if it is empty."""
        return cls(n_rows, np.array([(start, end)] if start < end else []).reshape(-1, 2))

    @classmethod
    def from_positions(cls, positions: Iterable[int], n_rows: int) -> Stretches:
        """Return the rows at these positions, in any order."""
        rows = np.unique(np.fromiter(positions, dtype=np.int64))
        begins = np.flatnonzero(np.diff(rows, prepend=-2) > 1)
        ends = np.flatnonzero(np.diff(rows, append=n_rows + 1) > 1)
        return cls(n_rows, np.column_stack([rows[begins], rows[ends] + 1]))

    def __getitem__(self, key: Any) -> Mask:
        """Return whether each of some rows is in the set; the key is what a mask would take."""
        rows, *more = key if isinstance(key, tuple) else (key,)
        before = np.searchsorted(self.ends.ravel(), rows, side="right")
        return np.asarray(before % 2 == 1)[(..., *more)]

    def all(self) -> bool:
        """Return whether the set holds all rows."""
        return np.array_equal(self.ends, [[0, self.n_rows]])

    def any(self) -> bool:
        """Return whether the set holds a row."""
        return len(self.ends) > 0

    def first_common(self, other: Stretches) -> int | None:
        """Return the first row that both sets hold; None if there is none."""
        begins = np.concatenate([self.ends[:, 0], other.ends[:, 0]])
        both = begins[self[begins] & other[begins]]
        return int(both.min()) if len(both) else None


@dataclass(frozen=True, eq=False)
class Runs:
    """One code per row, stored once for each run of equal codes.

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
        """Return the codes of a range of rows, or of single rows."""
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(len(self))
            ends: Ends = np.clip(self.ends, start, stop)
            return np.repeat(self.codes, np.diff(ends, prepend=start))
        return self.codes[np.searchsorted(self.ends, rows, side="right")]

    @property
    def lengths(self) -> Ends:
        """Number of rows of each run."""
        return np.diff(self.ends, prepend=0)
