"""Columns of a table as numbers or levels, and as the features of a regression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

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
    """Features of all columns for a regression.

    Numbers are their uniform scores (and, if ``squared``, their squares), with one more feature if
    some are missing. Categories have one feature per frequent level. The constant comes last.
    """

    # Shape (n_rows, n_features). Sparse, because of all levels of a column a row has one.
    matrix: sparse.csr_array
    # Positions of each column's features.
    own: list[slice]

    @classmethod
    def of(cls, columns: Sequence[FeatureColumn]) -> Features:
        """Make features of columns."""
        fewest = _compute_min_rows(columns)
        n_rows, width = len(columns[0].levels), 0
        cells: list[Floats] = []
        features: list[Levels] = []
        own = []
        for column in columns:
            start = width
            for numbers in _list_numbers(column):
                cells.append(numbers)
                features.append(np.full(n_rows, width))
                width += 1
            marks, n_marks = _mark_levels(column, fewest)
            cells.append((marks >= 0).astype(np.float64))
            features.append(np.where(marks >= 0, width + marks, 0))
            width += n_marks
            own.append(slice(start, width))
        cells.append(np.ones(n_rows))
        features.append(np.full(n_rows, width))
        # Every row has as many entries as any other; those without a level are 0.
        ends = np.arange(0, n_rows * len(cells) + 1, len(cells))
        entries = np.stack(cells, axis=1).ravel(), np.stack(features, axis=1).ravel()
        return cls(sparse.csr_array((*entries, ends), shape=(n_rows, width + 1)), own)

    @cached_property
    def gram(self) -> Floats:
        """Sums of the products of features over all rows."""
        return self.sum_products(slice(None))

    def sum_products(self, rows: slice | Mask) -> Floats:
        """Sum the products of features over some rows."""
        some = self.matrix[rows]
        products: Floats = (some.T @ some).toarray()
        return products


def _list_numbers(column: FeatureColumn) -> list[Floats]:
    if column.numbers is None:
        return []
    scores = compute_uniform_scores(column)
    return [scores, scores**2 - 1.0] if column.squared else [scores]


def _mark_levels(column: FeatureColumn, fewest: int) -> tuple[Levels, int]:
    """Return which feature each cell's level is, -1 for none, and how many there are.

    Levels with fewer rows have none. Of numbers, a missing one is a level.
    """
    if column.numbers is not None:
        return column.levels - 1, int(column.levels.any())
    frequent = column.counts >= fewest
    return np.where(frequent, np.cumsum(frequent) - 1, -1)[column.levels], int(frequent.sum())


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
