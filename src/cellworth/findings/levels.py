"""ColumnLevels: the distinct contents of a column, and which rows have them."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cellworth.data.arguments import MISSING, Codes, Floats, Integers, Mask, Positions
from cellworth.data.blocks import find_missing, is_missing
from cellworth.data.tables import Table
from cellworth.valuation.column_info import is_missing_mark, quantity_of

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
    def of(cls, name: str, cells: NDArray[Any], *, parse: bool = True) -> ColumnLevels:
        """Read the cells of a column; strings are parsed if nearly all of them are numbers."""
        numbers = _as_numbers(cells)
        if numbers is None:
            text = cls._make(name, "text", *_encode_strings(cells))
            return (parse and text.read_numbers()) or text
        kind: Kind = "date" if quantity_of(cells) == "date" else "number"
        return cls._from_numbers(name, kind, numbers)

    @classmethod
    def _from_numbers(cls, name: str, kind: Kind, numbers: Floats) -> ColumnLevels:
        # Infinite numbers cannot be compared with others.
        known = np.isfinite(numbers)
        levels, inverse = np.unique(numbers[known], return_inverse=True)
        codes = np.full(len(numbers), MISSING, dtype=np.int32)
        codes[known] = inverse.reshape(-1)
        return cls._make(name, kind, codes, levels)

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
    def level_hashes(self) -> NDArray[np.uint64]:
        """A number for each level and, last, for a missing value; equal in any table."""
        if self.kind == "text":
            return np.array([*map(_hash_text, self.strings), 1], dtype=np.uint64)
        return np.append((self.levels + 0.0).view(np.uint64), np.uint64(1))

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
        ColumnLevels.of(str(name), table.column(position), parse=parse)
        for position, name in enumerate(table.names.tolist())
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
        found += hash_cells(column, position)
    return found


def hash_cells(column: ColumnLevels, position: int) -> NDArray[np.uint64]:
    """Return a number for each cell of the column at a position."""
    return mix_bits(column.level_hashes, position)[column.codes]


def mix_bits(cells: NDArray[np.uint64], position: int) -> NDArray[np.uint64]:
    """Return hashes of the cells of a column; their sum over columns is a hash of the row."""
    mixed = cells + np.uint64((position + 1) * 0x9E3779B97F4A7C15 % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)), dtype=np.uint64)


def _hash_text(text: str) -> int:
    """Return 64 bits that depend on the text alone."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


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
