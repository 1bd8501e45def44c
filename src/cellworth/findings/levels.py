"""ColumnLevels: the distinct contents of a column, and which rows have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import MISSING, Codes, Floats, Integers, Mask, Positions
from cellworth.data.column import MAX_EXACT, Column, find_largest
from cellworth.data.equal_rows import hash_floats, hash_values, mix_bits
from cellworth.data.tables import Table

SHARE_OF_NUMBERS = 0.9
# What people write for a missing value.
_MISSING_MARKS = {"", "?", "-", "--", ".", "n/a", "na", "nan", "null", "#n/a", "<na>", "(null)"}
Kind = Literal["number", "date", "text"]


@dataclass(frozen=True, eq=False)
class ColumnLevels:
    """Distinct contents of a column: numbers in ascending order, or strings.

    Parameters
    ----------
    name : str
    kind : {"number", "date", "text"}
        Dates are numbers of seconds since 1970. Booleans and mixed contents are text.
    codes : array of shape (n_rows,)
        Level of each row; -1 for a missing value.
    levels : array of shape (n_levels,)
        Floats, or strings.
    counts : array of shape (n_levels,)
        Number of rows of each level.
    strays : mapping of str to array
        Strings among numbers, and their rows, which are missing in ``codes``.
    """

    name: str
    kind: Kind
    codes: Codes
    levels: NDArray[Any]
    counts: Integers
    strays: Mapping[str, Positions] = field(default_factory=dict)
    # The levels, if floats are not exact.
    integers: NDArray[Any] | None = None

    @classmethod
    def of(cls, column: Column, *, parse: bool = True) -> ColumnLevels:
        """Read a column; strings are parsed if nearly all of them are numbers."""
        name = str(column.name)
        if column.is_quantity or (column.kind == "missing" and column.cells.dtype.kind in "fMm"):
            # Times in seconds.
            numbers = column.floats / 1e6 if column.is_time else column.numbers
            return cls._from_numbers(name, "date" if column.kind == "date" else "number", numbers)
        codes, names = column.levels
        text = cls._make(name, "text", codes, np.array(names, dtype=object))
        # Categories that are numbers were made categories by the user.
        has_text = any(isinstance(value, str) for value in column.distinct[0])
        return (parse and has_text and text.read_numbers()) or text

    @classmethod
    def _from_numbers(cls, name: str, kind: Kind, numbers: NDArray[Any]) -> ColumnLevels:
        # Infinite numbers cannot be compared with others.
        known = np.isfinite(numbers)
        exact, inverse = np.unique(numbers[known], return_inverse=True)
        codes = np.full(len(numbers), MISSING, dtype=np.int32)
        codes[known] = inverse.reshape(-1)
        found = cls._make(name, kind, codes, exact.astype(np.float64))
        # Integers that are the same float are different levels.
        return found if find_largest(exact) <= MAX_EXACT else replace(found, integers=exact)

    def read_numbers(self) -> ColumnLevels | None:
        """Return the numbers of a column of strings; None if these are not nearly all numbers."""
        marks = np.array([is_missing_mark(level) for level in self.strings], dtype=bool)
        numbers = np.array([_parse_plain(level) for level in self.strings], dtype=np.float64)
        strange = np.isnan(numbers) & ~marks
        n_numbers = int(self.counts[~np.isnan(numbers)].sum())
        if n_numbers < SHARE_OF_NUMBERS * max(n_numbers + int(self.counts[strange].sum()), 1):
            return None
        found = self._from_numbers(self.name, "number", np.append(numbers, np.nan)[self.codes])
        odd = np.flatnonzero(np.isnan(numbers)).tolist()
        strays = {self.levels[level]: self.rows_of([level]) for level in odd}
        return replace(found, strays=strays)

    @classmethod
    def _make(cls, name: str, kind: Kind, codes: Codes, levels: NDArray[Any]) -> ColumnLevels:
        counts = np.bincount(codes[codes >= 0], minlength=len(levels)).astype(np.int64)
        return cls(name, kind, codes, levels, counts)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.codes)

    @property
    def n_known(self) -> int:
        """Number of rows whose cell is not missing."""
        return int(self.counts.sum())

    def find_known(self) -> Mask:
        """Return which cells hold something: no missing value, and no mark of one."""
        empty = [is_missing_mark(text) for text in self.strings] or [False] * len(self.levels)
        return ~np.append(np.array(empty, dtype=bool), True)[self.codes]

    @cached_property
    def strings(self) -> list[str]:
        """The levels of a column of text; none of others."""
        return list(self.levels.tolist()) if self.kind == "text" else []

    def rows_of(self, levels: Iterable[int]) -> Positions:
        """Return the rows that have one of these levels, in ascending order."""
        order, starts = self._rows
        parts = [order[starts[level] : starts[level + 1]] for level in levels]
        return np.sort(np.concatenate([order[:0], *parts]))

    @cached_property
    def level_hashes(self) -> NDArray[np.uint64]:
        """A number for each level and, last, for a missing value; equal in any table."""
        if self.kind == "text" or self.integers is not None:
            levels = self.strings if self.integers is None else self.integers.tolist()
            return hash_values([*levels, None])
        return hash_floats(np.append(self.levels, np.nan))

    @cached_property
    def _rows(self) -> tuple[Positions, Integers]:
        """Rows sorted by level, and the first position of each level."""
        order = np.argsort(self.codes, kind="stable")
        n_missing = len(self.codes) - self.n_known
        return order, n_missing + np.concatenate([[0], np.cumsum(self.counts)])

    @property
    def numbers(self) -> Floats:
        """The number of each row, NaN if missing; for numbers and dates."""
        return np.append(self.levels, np.nan)[self.codes]


def read_levels(table: Table, *, parse: bool = True) -> list[ColumnLevels]:
    """Read all columns of a table; strings are parsed if nearly all of them are numbers."""
    return [
        ColumnLevels.of(table.read(position), parse=parse) for position in range(table.shape[1])
    ]


def draw_rows(n_rows: int, n_drawn: int) -> Positions:
    """Return rows in ascending order: all of them, or so many that are drawn."""
    if n_rows <= n_drawn:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(0).choice(n_rows, n_drawn, replace=False))


def hash_rows(columns: Sequence[ColumnLevels]) -> NDArray[np.uint64]:
    """Return a number for each row, equal for rows with equal contents: a sum over its cells."""
    found = np.zeros(columns[0].n_rows, dtype=np.uint64)
    for position, column in enumerate(columns):
        found += mix_bits(column.level_hashes, position)[column.codes]
    return found


def _parse_plain(text: str) -> float:
    """Return the number that a string is, without unit or separators; NaN if it is none."""
    try:
        number = float(text)
    except ValueError:
        return np.nan
    return number if np.isfinite(number) and "_" not in text else np.nan


def is_missing_mark(cell: Any) -> bool:
    """Return whether a cell is a string that people write for a missing value."""
    return isinstance(cell, str) and cell.strip().lower() in _MISSING_MARKS
