"""Distances between rows as integers that add up over columns."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import MISSING, Codes, ColumnTypes, Floats, Integers, Scale
from cellworth.data.tables import Table
from cellworth.knn.columns import (
    FARTHEST,
    CategoricalColumn,
    CodedColumn,
    NumericColumn,
    check_column_types,
    read_column,
)

AnyColumn = NumericColumn | CategoricalColumn | CodedColumn
# Keys of 64 bits hold a sign, a distance, a row and whether its label matches.
_BITS = 62
_FINEST = 40
# Floats hold sums of distances below this exactly, with two bits to spare.
_FINE_BITS = 51


class Columns(NamedTuple):
    """Columns of some rows, as kernels read them; missing is NaN in numbers and -1 in codes.

    Parameters
    ----------
    numbers : array of shape (n_numeric, n_rows)
    categories : array of shape (n_categorical, n_rows)
        Which category each row has.
    coded : array of shape (n_coded, n_rows)
        Which distinct value each row has, in columns whose distance the user gave.
    """

    numbers: Floats
    categories: Codes
    coded: Codes

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """How many columns there are of each sort, and rows."""
        return tuple(part.shape for part in self)

    def take(self, rows: NDArray[Any]) -> Columns:
        """Keep these rows, in this order."""
        return Columns(
            np.ascontiguousarray(self.numbers[:, rows]),
            np.ascontiguousarray(self.categories[:, rows]),
            np.ascontiguousarray(self.coded[:, rows]),
        )


class ColumnScales(NamedTuple):
    """Integer weights of differences, column by column.

    Parameters
    ----------
    number_weights, number_gaps : arrays of shape (n_numeric,)
        What a squared difference of 1 counts, and what a missing value counts.
    farthest : float
        What no numeric column exceeds.
    category_weights, category_gaps : arrays of shape (n_categorical,)
        What a mismatch counts, and what a missing value counts.
    tables : array
        Distances of coded columns, one table after the other: a line per distinct value of a
        query (the last one: missing), an entry per distinct value of a row (the last one: missing).
    starts, widths : arrays of shape (n_coded,)
        Where a column's table begins, and how long its lines are.
    positions : array of shape (n_columns,)
        Position in the user's table of numeric, categorical and coded columns, in this order.
    """

    number_weights: Floats
    number_missing: Floats
    farthest: float
    category_weights: Integers
    category_missing: Integers
    tables: Integers
    starts: Integers
    widths: Integers
    positions: Integers

    def where(self, position: int) -> tuple[Literal["numbers", "categories", "coded"], int]:
        """In which part of :class:`Columns` a column of the user's table stands, and where."""
        at = int(np.flatnonzero(self.positions == position)[0])
        n_numeric, n_categorical = len(self.number_weights), len(self.category_weights)
        if at < n_numeric:
            return "numbers", at
        if at < n_numeric + n_categorical:
            return "categories", at - n_numeric
        return "coded", at - n_numeric - n_categorical

    def scale(self, at: int) -> float:
        """What differences of a numeric column are divided by; 0 where they count nothing."""
        weight = float(self.number_weights[at]) / self._unit
        return weight**-0.5 if weight > 0 else 0.0

    def mismatch(self, at: int) -> float:
        """What two different categories count."""
        return float(self.category_weights[at]) / self._unit

    @property
    def _unit(self) -> float:
        return self.farthest / FARTHEST


@dataclass(frozen=True, eq=False)
class Distances:
    """Distances between the rows of a training table and the rows of query tables.

    Parameters
    ----------
    rows : Columns
    queries : tuple of Columns
        One for each query table.
    scales : Rulers
        In a unit in which distances of all columns, a row and whether its label matches fit into
        one number of 64 bits.
    fine : Rulers
        The same in a finer unit, which does not depend on the number of rows.
    """

    rows: Columns
    queries: tuple[Columns, ...]
    scales: ColumnScales
    fine: ColumnScales

    @classmethod
    def of(
        cls,
        table: Table,
        queries: Sequence[Table],
        *,
        scale: Scale = "robust",
        column_types: ColumnTypes | None = None,
    ) -> Distances:
        """Read the columns of all tables and scale them by the training rows.

        Parameters
        ----------
        table : Table
            Training rows.
        queries : sequence of Table
            Tables with the same columns.
        scale : {"robust", "std"} or None
            What a numeric column is divided by: its interquartile range (as a multiple of a
            normal distribution's), its standard deviation, or nothing.
        column_types : mapping
            Kind of a column ("numeric" or "categorical") where the guess is wrong, or a function
            of two cells that returns their squared distance.
        """
        column_types = check_column_types(column_types, table.names)
        if scale not in (*get_args(get_args(Scale)[0]), None):
            raise ValueError(f"scale is {scale!r}; give 'robust', 'std' or None.")
        columns = [
            read_column(position, [table, *queries], column_types.get(name), scale)
            for position, name in enumerate(table.names.tolist())
        ]
        bits = _BITS - 1 - table.shape[0].bit_length()
        largest = sum(column.largest for column in columns)
        unit = 2.0 ** min(math.floor(math.log2(2.0**bits / max(largest, 1.0))), _FINEST)
        rows, *asked = (
            stack_columns(columns, side, other.shape[0])
            for side, other in enumerate([table, *queries])
        )
        return cls(rows, tuple(asked), _rulers(columns, unit), fine_scales(columns))

    def sha256(self) -> str:
        """Return a hash of the column types, scales, missing values and given distances."""
        digest = hashlib.sha256()
        for part in (*self.scales, *self.rows.shapes):
            digest.update(np.asarray(part).tobytes())
        return digest.hexdigest()

    def measure(self, fold: int, query: int) -> Integers:
        """Distances of all rows to one query, shape (n_columns, n_rows): the plain definition."""
        scales, rows, asked = self.scales, self.rows, self.queries[fold]
        lines = []
        for j, cells in enumerate(rows.numbers):
            difference = cells - asked.numbers[j, query]
            weighed = np.floor(difference * difference * scales.number_weights[j] + 0.5)
            weighed = np.minimum(weighed, scales.farthest)
            lines.append(np.where(np.isnan(weighed), scales.number_missing[j], weighed))
        for j, cells in enumerate(rows.categories):
            other = asked.categories[j, query]
            line = np.where(cells == other, 0, scales.category_weights[j])
            missing = (cells == MISSING) | (other == MISSING)
            lines.append(np.where(missing, scales.category_missing[j], line))
        for j, cells in enumerate(rows.coded):
            table = scales.tables[scales.starts[j] :]
            lines.append(table[asked.coded[j, query] * scales.widths[j] + cells])
        measured = np.empty((len(scales.positions), rows.numbers.shape[1]), dtype=np.int64)
        measured[scales.positions] = np.array(lines).astype(np.int64)
        return measured


def stack_columns(columns: Sequence[AnyColumn], side: int, length: int) -> Columns:
    """Cells of one side of all columns, as kernels read them."""

    def together(sort: type[AnyColumn], dtype: Any) -> NDArray[Any]:
        cells = [column.cells[side] for column in columns if isinstance(column, sort)]
        return np.array(cells, dtype=dtype).reshape(len(cells), length)

    return Columns(
        together(NumericColumn, np.float64),
        together(CategoricalColumn, np.int32),
        together(CodedColumn, np.int32),
    )


def fine_scales(columns: Sequence[AnyColumn]) -> ColumnScales:
    """Rulers in the finest unit in which all columns together stay below 2**51."""
    largest = sum(column.largest for column in columns)
    unit = 2.0**_FINEST
    # Each column is rounded, by at most a half.
    while largest * unit + len(columns) / 2 >= 2.0**_FINE_BITS:
        unit /= 2
    return _rulers(columns, unit)


def _rulers(columns: Sequence[AnyColumn], unit: float) -> ColumnScales:
    numeric = [column for column in columns if isinstance(column, NumericColumn)]
    categorical = [column for column in columns if isinstance(column, CategoricalColumn)]
    coded = [column for column in columns if isinstance(column, CodedColumn)]

    def to_integers(amounts: list[float]) -> Integers:
        return np.rint(np.array(amounts, dtype=np.float64) * unit).astype(np.int64)

    tables = [np.rint(column.table * unit).astype(np.int64) for column in coded]
    lengths = np.array([table.size for table in tables], dtype=np.int64)
    positions = [column.position for group in (numeric, categorical, coded) for column in group]
    return ColumnScales(
        np.array([column.weight * unit for column in numeric], dtype=np.float64),
        to_integers([column.missing for column in numeric]).astype(np.float64),
        float(np.rint(FARTHEST * unit)),
        to_integers([column.weight for column in categorical]),
        to_integers([column.missing for column in categorical]),
        np.concatenate([table.ravel() for table in tables] or [np.empty(0, dtype=np.int64)]),
        np.cumsum(lengths) - lengths,
        np.array([table.shape[1] for table in tables], dtype=np.int64),
        np.array(positions, dtype=np.int64),
    )
