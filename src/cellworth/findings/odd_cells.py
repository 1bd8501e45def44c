"""Anomaly scores of single cells, without those that checks have found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats, Mask
from cellworth.findings.anomaly import Evidence
from cellworth.findings.features import FeatureColumn, Features, find_ties
from cellworth.findings.levels import ColumnLevels


def score_odd_cells(
    columns: list[FeatureColumn],
    target: NDArray[Any] | None,
    classes: NDArray[Any] | None,
    *,
    found: Mask,
    left_out: Sequence[int] = (),
) -> tuple[Floats, Features]:
    """Return how little cells fit their row and label, and features of the columns and the label.

    Every table has cells with the highest scores: they are where to look, and no findings.
    """
    evidence = Evidence(columns, target, classes)
    tails = np.stack([_count_as_extreme(column) for column in columns], axis=1)
    scores: Floats = evidence.scores + np.log(len(tails) / tails)
    scores[found] = 0.0
    scores[:, list(left_out)] = 0.0
    return scores, evidence.features


def read_without(column: ColumnLevels, found: Mask) -> FeatureColumn:
    """Return a column in which the cells that other checks have found are missing."""
    if column.kind == "text":
        return FeatureColumn.from_levels(np.where(found, -1, column.codes))
    return FeatureColumn.from_numbers(np.where(found, np.nan, column.numbers))


def _count_as_extreme(column: FeatureColumn) -> Floats:
    """Count the cells of a column that are as extreme: as large, as small, or as rare a level."""
    counts = column.counts[column.levels].astype(np.float64)
    if column.numbers is None:
        return counts
    first, end = find_ties(column.numbers[column.order])
    counts[column.order] = np.minimum(end, len(end) - first)
    return counts
