"""Columns of a table as numbers or levels, and as the features of a regression."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import (
    MISSING,
    ColumnType,
    ColumnTypes,
    Floats,
    Mask,
    Positions,
)
from cellworth.data.tables import Table
from cellworth.knn.distances import check_column_types, read_column

Levels = NDArray[np.intp]
# A level with fewer rows cannot predict a row that is left out.
MIN_ROWS_OF_A_LEVEL = 5
# All columns together; the cost of a regression grows with its square.
MAX_LEVELS = 300
_ROWS_AT_ONCE = 16_384


@dataclass(frozen=True, eq=False)
class FeatureColumn:
    """One column: levels of a category, or numbers."""

    # Code of each cell's level; missing is a level too. For numbers it is 0, or 1 if missing.
    levels: Levels
    # The numbers, NaN if missing; None for categories.
    numbers: Floats | None = None
    # Whether the square is a feature too.
    squared: bool = False

    @classmethod
    def from_numbers(cls, numbers: Floats, *, squared: bool = False) -> FeatureColumn:
        """Make a column of numbers; NaN is missing."""
        return cls(np.isnan(numbers).astype(np.intp), numbers, squared)

    @classmethod
    def from_levels(cls, codes: NDArray[Any]) -> FeatureColumn:
        """Make a column from integer codes of levels."""
        return cls(np.unique(codes, return_inverse=True)[1].reshape(-1))

    @property
    def known(self) -> Mask:
        """Mask of cells that are not missing; all cells of a categorical column."""
        return np.ones(len(self.levels), dtype=bool) if self.numbers is None else self.levels == 0

    @property
    def counts(self) -> Levels:
        """Number of rows of each level."""
        return np.bincount(self.levels)

    @cached_property
    def order(self) -> Positions:
        """Rows with a number, in ascending order of it; empty for categories."""
        if self.numbers is None:
            return np.zeros(0, dtype=np.intp)
        # NaN is last.
        return np.argsort(self.numbers, kind="stable")[: int(self.known.sum())]


def read_columns(table: Table, column_types: ColumnTypes | None) -> list[FeatureColumn]:
    """Read all columns of a table."""
    named = check_column_types(column_types, table.names)
    return [
        _read_column(table, position, named.get(name))
        for position, name in enumerate(table.names.tolist())
    ]


def read_labels(target: NDArray[Any], classes: NDArray[Any] | None) -> FeatureColumn:
    """Read labels as one more column; the square of a numeric target is a feature too."""
    if classes is None:
        return FeatureColumn.from_numbers(target, squared=True)
    return FeatureColumn.from_levels(np.searchsorted(classes, target))


def compute_uniform_scores(column: FeatureColumn) -> Floats:
    """Return mean ranks of numbers, scaled to mean 0 and variance 1; 0 if missing."""
    scores = np.zeros(len(column.levels))
    if column.numbers is not None:
        first, end = find_ties(column.numbers[column.order])
        ranks = (first + end) / 2
        scores[column.order] = np.sqrt(3.0) * (2.0 * ranks / max(len(ranks), 1) - 1.0)
    return scores


def find_ties(ascending: Floats) -> tuple[Positions, Positions]:
    """Return for each number the first position of those equal to it, and the one after them."""
    starts = np.flatnonzero(np.append(True, ascending[1:] != ascending[:-1])[: len(ascending)])
    sizes = np.diff(np.append(starts, len(ascending)))
    return np.repeat(starts, sizes), np.repeat(starts + sizes, sizes)


@dataclass(frozen=True, eq=False)
class Features:
    """Features of all columns for a regression, computed for some rows at a time.

    Numbers are their uniform scores (and, if ``squared``, their squares), with one more feature if
    some are missing. Categories have one feature per frequent level. The constant comes last.
    """

    parts: list[ColumnFeatures]
    # Positions of each column's features.
    own: list[slice]

    @classmethod
    def of(cls, columns: Sequence[FeatureColumn]) -> Features:
        """Make features of columns."""
        fewest = _compute_min_rows(columns)
        parts = [ColumnFeatures.of(column, fewest) for column in columns]
        ends = np.cumsum([part.width for part in parts]).tolist()
        return cls(parts, [slice(end - p.width, end) for end, p in zip(ends, parts, strict=True)])

    def __len__(self) -> int:
        return int(self.own[-1].stop) + 1

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.parts[0].marks.size

    @cached_property
    def gram(self) -> Floats:
        """Sums of the products of features over all rows."""
        return self.sum_products(strip for _, strip in self.iter_rows())

    def sum_products(self, parts: Iterable[Floats]) -> Floats:
        """Sum the products of features over some rows."""
        gram = np.zeros((len(self), len(self)))
        for strip in parts:
            gram += strip.T @ strip
        return gram

    def iter_rows(self) -> Iterator[tuple[slice, Floats]]:
        """Yield the features of all rows, some rows at a time."""
        for start in range(0, self.n_rows, _ROWS_AT_ONCE):
            rows = slice(start, min(start + _ROWS_AT_ONCE, self.n_rows))
            yield rows, self.rows(rows)

    def iter_some(self, some: Positions) -> Iterator[tuple[Positions, Floats]]:
        """Yield the features of some rows, a part of them at a time."""
        for start in range(0, len(some), _ROWS_AT_ONCE):
            rows = some[start : start + _ROWS_AT_ONCE]
            yield rows, self.rows(rows)

    def rows(self, rows: slice | Positions) -> Floats:
        """Return the features of some rows, shape (n_some, n_features)."""
        array = np.zeros((len(self.parts[0].marks[rows]), len(self)))
        for part, own in zip(self.parts, self.own, strict=True):
            part.write(array[:, own], rows)
        array[:, -1] = 1.0
        return array


@dataclass(frozen=True, eq=False)
class ColumnFeatures:
    """Features of one column: numbers, then indicators of which at most one is 1."""

    # Shape (n_rows, n_numbers).
    numbers: Floats
    # Which of the indicators is 1, -1 for none; shape (n_rows,).
    marks: Levels
    n_marks: int

    @classmethod
    def of(cls, column: FeatureColumn, fewest: int) -> ColumnFeatures:
        """Make features of a column; levels with fewer rows than this have none."""
        if column.numbers is None:
            frequent = column.counts >= fewest
            marks = np.where(frequent, np.cumsum(frequent) - 1, -1)[column.levels]
            return cls(np.zeros((len(marks), 0)), marks, int(frequent.sum()))
        scores = compute_uniform_scores(column)
        numbers = np.stack([scores, scores**2 - 1.0] if column.squared else [scores], axis=1)
        return cls(numbers, column.levels - 1, int(column.levels.any()))

    @property
    def width(self) -> int:
        """Number of features."""
        return int(self.numbers.shape[1]) + self.n_marks

    def write(self, out: Floats, rows: slice | Positions) -> None:
        """Write the features of some rows into an array of zeros."""
        n_numbers = self.numbers.shape[1]
        out[:, :n_numbers] = self.numbers[rows]
        marks = self.marks[rows]
        marked = np.flatnonzero(marks >= 0)
        out[marked, n_numbers + marks[marked]] = 1.0


def _read_column(table: Table, position: int, kind: ColumnType | None) -> FeatureColumn:
    measured = read_column(position, [table], kind, "robust")
    if measured.kind == "numbers":
        return FeatureColumn.from_numbers(measured.cells[0])
    codes, names = table.read(position, "categorical").levels
    # Missing comes last.
    return FeatureColumn.from_levels(np.where(codes == MISSING, len(names), codes))


def _compute_min_rows(columns: Sequence[FeatureColumn]) -> int:
    """Return how many rows a level needs to be a feature, so that there are not too many."""
    counts = np.concatenate([[0], *(c.counts for c in columns if c.numbers is None)])
    descending = np.sort(counts)[::-1]
    left_out = int(descending[MAX_LEVELS]) if len(descending) > MAX_LEVELS else 0
    return max(MIN_ROWS_OF_A_LEVEL, left_out + 1)
