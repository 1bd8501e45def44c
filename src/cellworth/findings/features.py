"""Columns of a table as numbers or levels, and as the features of a regression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cellworth.data.arguments import (
    MISSING,
    ColumnTypes,
    Floats,
    Mask,
    Positions,
)
from cellworth.data.tables import Table
from cellworth.findings.levels import ColumnLevels
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
    columns = []
    for position, name in enumerate(table.names.tolist()):
        measured = read_column(position, [table], named.get(name), "robust")
        if measured.kind == "numbers":
            columns.append(FeatureColumn.from_numbers(measured.cells[0]))
            continue
        codes, names = table.read(position, "categorical").levels
        # Missing comes last.
        columns.append(FeatureColumn.from_levels(np.where(codes == MISSING, len(names), codes)))
    return columns


def read_without(column: ColumnLevels, found: Mask) -> FeatureColumn:
    """Return a column in which the cells that other checks have found are missing."""
    if column.kind == "text":
        return FeatureColumn.from_levels(np.where(found, -1, column.codes))
    return FeatureColumn.from_numbers(np.where(found, np.nan, column.numbers))


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


def count_as_extreme(column: FeatureColumn) -> Floats:
    """Count the cells of a column that are as extreme: as large, as small, or as rare a level."""
    counts = column.counts[column.levels].astype(np.float64)
    if column.numbers is not None:
        first, end = find_ties(column.numbers[column.order])
        counts[column.order] = np.minimum(end, len(end) - first)
    return counts


class Features:
    """Features of all columns for a regression; the constant comes last."""

    def __init__(self, columns: Sequence[FeatureColumn]) -> None:
        # How many rows a level needs to be a feature, so that there are not too many.
        counts = np.concatenate([[0], *(c.counts for c in columns if c.numbers is None)])
        left_out = np.sort(counts)[::-1][MAX_LEVELS:].max(initial=0)
        fewest = max(MIN_ROWS_OF_A_LEVEL, int(left_out) + 1)
        parts = [_make_features(column, fewest) for column in columns]
        ends = np.cumsum([part.shape[1] for part in parts]).tolist()
        # Positions of each column's features.
        self.own: list[slice[int, int]] = [slice(*each) for each in pairwise([0, *ends])]
        constant = sparse.csr_array(np.ones((parts[0].shape[0], 1)))
        # Shape (n_rows, n_features). Sparse, because of all levels of a column a row has one.
        self.matrix: sparse.csr_array = sparse.hstack([*parts, constant], format="csr")

    @cached_property
    def gram(self) -> Floats:
        """Sums of the products of features over all rows."""
        return self.sum_products(slice(None))

    def sum_products(self, rows: slice | Mask) -> Floats:
        """Sum the products of features over some rows."""
        some = self.matrix[rows]
        products: Floats = (some.T @ some).toarray()
        return products


def _make_features(column: FeatureColumn, fewest: int) -> sparse.csr_array:
    """Return the features of a column: levels with enough rows, or the uniform scores of numbers.

    Numbers also have the squares of these, if ``squared``, and one feature more if some are
    missing.
    """
    if column.numbers is None:
        frequent = column.counts >= fewest
        rows = np.flatnonzero(frequent[column.levels])
        features = (np.cumsum(frequent) - 1)[column.levels[rows]]
        shape = len(column.levels), int(frequent.sum())
        return sparse.csr_array((np.ones(len(rows)), (rows, features)), shape=shape)
    scores = compute_uniform_scores(column)
    found = [scores, scores**2 - 1.0] if column.squared else [scores]
    if column.levels.any():
        found.append(column.levels.astype(np.float64))
    return sparse.csr_array(np.stack(found, axis=1))
