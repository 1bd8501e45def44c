"""Distances between rows: integers that add up over columns."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import MISSING, Codes, ColumnTypes, Floats, Integers, Scale
from cellworth.data.column import Column
from cellworth.data.tables import Table
from cellworth.knn.columns import (
    FARTHEST,
    ScaledColumn,
    check_column_types,
    check_scale,
    read_column,
)
from cellworth.valuation.column_info import ReadAs, distance_in_words, name_kind

# A 64-bit key has a sign, a distance, a row and whether its label matches.
_BITS = 62
_FINEST = 40
# Floats represent sums of distances below 2**51 exactly, with two bits to spare.
_FINE_BITS = 51


class Columns(NamedTuple):
    """Columns of some rows as arrays for kernels; missing values are NaN or code -1."""

    numbers: Floats  # (n_numeric, n_rows)
    categories: Codes  # (n_categorical, n_rows): codes of categories

    def take(self, rows: NDArray[Any]) -> Columns:
        """Keep these rows, in this order."""
        arrays: Any = (np.ascontiguousarray(array[:, rows]) for array in self)
        return Columns(*arrays)


class ColumnScales(NamedTuple):
    """Distances of each column, in integer units."""

    # (n_numeric,): distance of a squared difference of 1, and of a missing value.
    number_weights: Floats
    number_missing: Floats
    farthest: float  # Largest distance in a numeric column
    # (n_categorical,): distance of a mismatch, and of a missing value.
    category_weights: Integers
    category_missing: Integers
    # (n_columns,): positions of numeric and categorical columns, in this order, in the user's table
    positions: Integers

    def where(self, position: int) -> tuple[Literal["numbers", "categories"], int]:
        """Return the field of :class:`Columns` for a column of the user's table, and its index."""
        at, n_numeric = int(np.flatnonzero(self.positions == position)[0]), len(self.number_weights)
        return ("numbers", at) if at < n_numeric else ("categories", at - n_numeric)

    def scale(self, at: int) -> float:
        """Return the divisor of differences in a numeric column; 0 if it has no weight."""
        weight = float(self.number_weights[at]) / self.unit
        return weight**-0.5 if weight > 0 else 0.0

    def mismatch(self, at: int) -> float:
        """Return the distance of two different categories."""
        return float(self.category_weights[at]) / self.unit

    def describe(self, position: int, column: Column) -> tuple[ReadAs, str]:
        """Return what a column of the user's table is read as, and the distance of two cells."""
        part, at = self.where(position)
        if part == "categories":
            return "category", f"0 or {self.mismatch(at):.3g}"
        read_as = name_kind(column) if column.is_time else "number"
        return read_as, distance_in_words(self.scale(at), read_as)

    @property
    def unit(self) -> float:
        """Integer that stands for a distance of 1."""
        return self.farthest / FARTHEST

    def measure_radius(self, radius: float) -> int:
        """Return the largest distance within a radius."""
        return round(radius**2 * self.unit)


@dataclass(frozen=True, eq=False)
class Distances:
    """Distances between the rows of a training table and the rows of query tables."""

    rows: Columns
    queries: tuple[Columns, ...]  # One for each query table
    # Their unit is such that 64 bits hold the distance over all columns, a row and whether its
    # label matches.
    scales: ColumnScales
    fine: ColumnScales  # The same in a finer unit that does not depend on the number of rows

    @classmethod
    def from_tables(
        cls,
        table: Table,
        queries: Sequence[Table],
        *,
        scale: Scale = "robust",
        column_types: ColumnTypes | None = None,
    ) -> Distances:
        """Read the columns of all tables and scale them by the training rows in ``table``.

        ``scale`` is the divisor of numeric columns: the interquartile range (relative to that of
        the standard normal distribution), the standard deviation, or None. ``column_types`` has
        the type of a column if the guess is wrong.
        """
        column_types = check_column_types(column_types, table.names)
        check_scale(scale)
        columns = [
            read_column(position, [table, *queries], column_types.get(name), scale)
            for position, name in enumerate(table.names.tolist())
        ]
        bits = _BITS - 1 - table.shape[0].bit_length()
        largest = sum(column.largest for column in columns)
        unit = 2.0 ** min(math.floor(math.log2(2.0**bits / max(largest, 1.0))), _FINEST)
        rows, *others = (
            stack_columns(columns, side, other.shape[0])
            for side, other in enumerate([table, *queries])
        )
        return cls(rows, tuple(others), _make_scales(columns, unit), fine_scales(columns))

    def sha256(self) -> str:
        """Return a hash of the column types, scales, missing values and given distances."""
        digest = hashlib.sha256()
        for field in (*self.scales, *(array.shape for array in self.rows)):
            digest.update(np.asarray(field).tobytes())
        return digest.hexdigest()

    def measure(self, fold: int, query: int) -> Integers:
        """Return the distances of all rows to one query, shape (n_columns, n_rows).

        This is the plain definition; kernels compute the same faster.
        """
        scales, rows, queries = self.scales, self.rows, self.queries[fold]
        lines = []
        for j, cells in enumerate(rows.numbers):
            difference = cells - queries.numbers[j, query]
            distance = np.floor(difference * difference * scales.number_weights[j] + 0.5)
            distance = np.minimum(distance, scales.farthest)
            lines.append(np.where(np.isnan(distance), scales.number_missing[j], distance))
        for j, cells in enumerate(rows.categories):
            other = queries.categories[j, query]
            distance = np.where(cells == other, 0, scales.category_weights[j])
            missing = (cells == MISSING) | (other == MISSING)
            lines.append(np.where(missing, scales.category_missing[j], distance))
        distances = np.empty((len(scales.positions), rows.numbers.shape[1]), dtype=np.int64)
        distances[scales.positions] = np.array(lines).astype(np.int64)
        return distances


def stack_columns(columns: Sequence[ScaledColumn], side: int, length: int) -> Columns:
    """Return the cells of one table (side 0: training rows) as arrays for kernels."""

    def stack(kind: str, dtype: Any) -> NDArray[Any]:
        cells = [column.cells[side] for column in columns if column.kind == kind]
        return np.array(cells, dtype=dtype).reshape(len(cells), length)

    return Columns(stack("numbers", np.float64), stack("categories", np.int32))


def fine_scales(columns: Sequence[ScaledColumn]) -> ColumnScales:
    """Return scales in the finest unit in which distances over all columns stay below 2**51."""
    largest = sum(column.largest for column in columns)
    unit = 2.0**_FINEST
    # Rounding adds at most 1/2 per column.
    while largest * unit + len(columns) / 2 >= 2.0**_FINE_BITS:
        unit /= 2
    return _make_scales(columns, unit)


def _make_scales(columns: Sequence[ScaledColumn], unit: float) -> ColumnScales:
    numeric = [column for column in columns if column.kind == "numbers"]
    categorical = [column for column in columns if column.kind == "categories"]

    def to_integers(amounts: list[float]) -> Integers:
        return np.rint(np.array(amounts, dtype=np.float64) * unit).astype(np.int64)

    return ColumnScales(
        np.array([column.weight * unit for column in numeric], dtype=np.float64),
        to_integers([column.missing for column in numeric]).astype(np.float64),
        float(np.rint(FARTHEST * unit)),
        to_integers([column.weight for column in categorical]),
        to_integers([column.missing for column in categorical]),
        np.array([column.position for column in (*numeric, *categorical)], dtype=np.int64),
    )
