"""ColumnLevels: the distinct contents of a column, and which rows have them."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cellworth.data.arguments import MISSING, Codes, Floats, Integers, Mask, Positions
from cellworth.data.blocks import find_missing, is_missing
from cellworth.data.tables import Table
from cellworth.valuation.column_info import is_missing_mark

SHARE_OF_NUMBERS = 0.9
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
    as_text : bool
        Whether the numbers are stored as strings.
    """

    name: str
    kind: Kind
    codes: Codes
    levels: NDArray[Any]
    counts: Integers
    strays: Mapping[str, Positions] = field(default_factory=dict)
    as_text: bool = False

    @classmethod
    def of(cls, name: str, cells: NDArray[Any]) -> ColumnLevels:
        """Read the cells of a column; strings are numbers if nearly all of them are."""
        numbers = _as_numbers(cells)
        if numbers is None:
            text = cls._make(name, "text", *_encode_strings(cells))
            return text._read_numbers() or text
        return cls._from_numbers(name, "date" if _is_date(cells) else "number", numbers)

    @classmethod
    def _from_numbers(cls, name: str, kind: Kind, numbers: Floats) -> ColumnLevels:
        # Infinite numbers cannot be compared with others.
        known = np.isfinite(numbers)
        levels, inverse = np.unique(numbers[known], return_inverse=True)
        codes = np.full(len(numbers), MISSING, dtype=np.int32)
        codes[known] = inverse.reshape(-1)
        return cls._make(name, kind, codes, levels)

    def _read_numbers(self) -> ColumnLevels | None:
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
        return replace(found, strays=strays, as_text=True)

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

    @cached_property
    def strings(self) -> list[str]:
        """The levels of a column of text."""
        return list(self.levels.tolist())

    def rows_of(self, levels: Iterable[int] | Mask) -> Positions:
        """Return the rows that have one of these levels, in ascending order."""
        chosen = np.asarray(levels if isinstance(levels, np.ndarray) else list(levels))
        if chosen.dtype == bool:
            chosen = np.flatnonzero(chosen)
        if len(chosen) == 0:
            return np.zeros(0, dtype=np.intp)
        order, starts = self._rows
        parts = [order[starts[level] : starts[level + 1]] for level in chosen.tolist()]
        return np.sort(np.concatenate(parts))

    @cached_property
    def missing_rows(self) -> Positions:
        """The rows whose cell is missing."""
        return np.flatnonzero(self.codes == MISSING)

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


def read_levels(table: Table) -> list[ColumnLevels]:
    """Read all columns of a table."""
    return [
        ColumnLevels.of(str(name), table.column(position))
        for position, name in enumerate(table.names.tolist())
    ]


def _is_date(cells: NDArray[Any]) -> bool:
    if cells.dtype.kind == "M":
        return True
    first = next((cell for cell in cells.tolist() if not is_missing(cell)), None)
    return cells.dtype.kind == "O" and isinstance(first, datetime.date)


def _as_numbers(cells: NDArray[Any]) -> Floats | None:
    """Return cells as floats, dates and durations as seconds; None if they are no numbers."""
    if cells.dtype.kind in "iuf":
        return cells.astype(np.float64)
    if cells.dtype.kind in "mM":
        seconds = cells.astype(f"{cells.dtype.kind}8[us]").astype(np.int64) / 1e6
        return np.where(np.isnat(cells), np.nan, seconds)
    if cells.dtype.kind != "O":
        return None
    listed = cells.tolist()
    if not _is_quantity(next((cell for cell in listed if not is_missing(cell)), "")):
        return None
    missing = find_missing(cells)
    if not all(_is_quantity(cell) for cell in cells[~missing].tolist()):
        return None
    return np.array(
        [np.nan if m else _to_float(cell) for cell, m in zip(listed, missing.tolist(), strict=True)]
    )


def _is_quantity(cell: Any) -> bool:
    if isinstance(cell, bool | np.bool_ | str):
        return False
    return isinstance(cell, datetime.date | datetime.timedelta) or hasattr(cell, "__float__")


def _to_float(cell: Any) -> float:
    if isinstance(cell, datetime.timedelta):
        return cell.total_seconds()
    if isinstance(cell, datetime.datetime):
        return cell.timestamp()
    if isinstance(cell, datetime.date):
        return (cell - datetime.date(1970, 1, 1)).total_seconds()
    return float(cell)


def _encode_strings(cells: NDArray[Any]) -> tuple[Codes, NDArray[Any]]:
    """Return codes and levels of cells as strings, levels in alphabetical order."""
    encoded = _read_strings(cells).dictionary_encode()
    found = encoded.dictionary.to_pylist()
    codes = encoded.indices.fill_null(MISSING).to_numpy(zero_copy_only=False).astype(np.int32)
    order = sorted(range(len(found)), key=found.__getitem__)
    ranks = np.full(len(found) + 1, MISSING, dtype=np.int32)
    ranks[order] = np.arange(len(found), dtype=np.int32)
    return ranks[codes], np.array([found[code] for code in order], dtype=object)


def _read_strings(cells: NDArray[Any]) -> pa.Array:
    """Return cells as strings; null is missing."""
    try:
        found = pa.array(cells, from_pandas=True)
    except pa.ArrowException:
        found = None
    if isinstance(found, pa.StringArray):
        return found
    # Other types, or several.
    texts = [None if is_missing(cell) else str(cell) for cell in cells.tolist()]
    return pa.array(texts, type=pa.large_string())


def _parse_plain(text: str) -> float:
    """Return the number that a string is, without unit or separators; NaN if it is none."""
    try:
        number = float(text)
    except ValueError:
        return np.nan
    return number if np.isfinite(number) and "_" not in text else np.nan
