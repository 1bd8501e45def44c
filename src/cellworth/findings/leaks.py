"""Columns that alone predict the target, or are the target, and rows that are sorted by it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import MISSING, Floats, Integers, Positions
from cellworth.findings.finding import NO_ROWS, Action, Finding
from cellworth.findings.levels import ColumnLevels, draw_rows, hash_rows

# At most and at least this many rows decide whether a column alone predicts the target.
_MAX_ROWS, _MIN_ROWS = 5000, 50
_MIN_OTHERS = 20
# Largest error of a leaking column, as a share of the error of the best constant guess.
_MISSED = 0.02
_MISSED_BY_NAME = 0.2
# Smallest share of the variance of ranks that a leaking column explains.
_EXPLAINED = 0.995
# Rows that are sorted by label change it at most so often.
_CHANGES_PER_CLASS = 20


def find_leaks(
    columns: Sequence[ColumnLevels], target: NDArray[Any], *, of_classes: bool,
    target_name: str | None = None,
) -> Iterator[Finding]:  # fmt: skip
    """Yield columns that are the target, or that alone predict it on up to 5,000 distinct rows."""
    if len(target) < _MIN_ROWS:
        return
    rows = _draw_distinct_rows(columns)
    labels, codes = np.unique(target[rows], return_inverse=True)
    if len(labels) < 2 or len(rows) < _MIN_ROWS:
        return
    guess = 1 - float(np.bincount(codes).max()) / len(codes) if of_classes else 1.0
    for column in columns:
        if of_classes:
            missed = _measure_missed_labels(column, rows, codes)
            enough = guess * len(rows) >= _MIN_OTHERS
            is_leak = enough and missed <= _MISSED * guess
            what = (
                f"alone predicts {1 - missed:.1%} of the labels; the most frequent label would be "
                f"right for {1 - guess:.1%}"
            )
        else:
            missed = _measure_missed_variance(column, rows, codes)
            is_leak = missed <= 1 - _EXPLAINED
            what = f"alone explains {1 - missed:.1%} of the variance of the target's ranks"
        # A column named like y need not equal it: y may be computed from it and from others.
        is_named = column.name == target_name and missed <= _MISSED_BY_NAME * guess
        action = "drop it if it is known only once the label is"
        if is_named or (is_leak and _is_target(column, target, of_classes=of_classes)):
            what = "is named like the target" if is_named else "is the target up to recoding"
            action = "drop it, or the target predicts itself"
        if is_named or is_leak:
            yield Finding(
                "leak", (column.name,), NO_ROWS, f"{column.name} {what}.",
                Action("drop columns", text=action), 0.2,
            )  # fmt: skip


def _draw_distinct_rows(columns: Sequence[ColumnLevels]) -> Positions:
    rows = draw_rows(columns[0].n_rows, _MAX_ROWS)
    # Any column would predict the label of a copied row.
    return rows[np.unique(hash_rows(columns)[rows], return_index=True)[1]]


def _predict_from_others(column: ColumnLevels, rows: Positions, heights: Floats) -> Floats:
    """Predict each row by the mean of other rows with the same cell, or else the nearest number.

    ``heights`` has shape (n_rows, n_heights). A category of a single row is predicted by all rows.
    """
    codes, n_levels = column.codes[rows], len(column.levels)
    # The distinct cells, a missing one last.
    cells, groups = np.unique(np.where(codes == MISSING, n_levels, codes), return_inverse=True)
    sums = np.stack([np.bincount(groups, own) for own in heights.T], axis=1)
    sizes = np.bincount(groups)
    alone = sizes[groups] == 1
    predicted: Floats = (sums[groups] - heights) / np.maximum(sizes[groups] - 1, 1)[:, None]
    if column.kind == "text":
        predicted[alone] = heights.mean(axis=0)
    else:
        # A missing value is far from all.
        steps = np.nan_to_num(np.diff(np.append(column.levels, np.nan)[cells]), nan=np.inf)
        is_left = np.append(np.inf, steps) <= np.append(steps, np.inf)
        nearest = (np.arange(len(cells)) + np.where(is_left, -1, 1)).clip(0, len(cells) - 1)
        near = nearest[groups[alone]]
        predicted[alone] = sums[near] / sizes[near, None]
    return predicted


def _measure_missed_labels(column: ColumnLevels, rows: Positions, codes: Integers) -> float:
    """Return the share of rows whose label is not the most frequent one of rows like it."""
    predicted = _predict_from_others(column, rows, np.eye(int(codes.max()) + 1)[codes])
    every = np.arange(len(rows))
    right = predicted[every, codes]
    predicted[every, codes] = -1.0
    return float(np.mean(right <= predicted.max(axis=1)))


def _measure_missed_variance(column: ColumnLevels, rows: Positions, codes: Integers) -> float:
    """Return the share of the variance of ranks that rows with like cells do not explain."""
    counts = np.bincount(codes)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[codes]
    predicted = _predict_from_others(column, rows, ranks[:, None])[:, 0]
    return float(np.mean((predicted - ranks) ** 2) / np.var(ranks))


def _is_target(column: ColumnLevels, target: NDArray[Any], *, of_classes: bool) -> bool:
    """Return whether a column equals the target up to recoding, on all rows."""
    labels, codes = np.unique(target, return_inverse=True)
    if column.n_known < column.n_rows or len(column.levels) != len(labels):
        return False
    firsts = np.full(len(labels), MISSING)
    firsts[column.codes] = codes
    agrees = np.array_equal(firsts[column.codes], codes)
    one_to_one = agrees and len(np.unique(firsts)) == len(labels)
    # Any column of distinct numbers is one to one with a numeric target: it must be monotone, too.
    steps = np.diff(firsts)
    return one_to_one and bool(of_classes or (steps > 0).all() or (steps < 0).all())


def find_sorted_rows(target: NDArray[Any]) -> Iterator[Finding]:
    """Yield that the rows follow the classes of the target."""
    labels = np.unique(target, return_inverse=True)[1]
    if len(labels) < _MIN_ROWS:
        return
    n_classes = int(labels.max()) + 1
    changes = int(np.sum(labels[1:] != labels[:-1]))
    chance = 1.0 - float(np.sum((np.bincount(labels) / len(labels)) ** 2))
    if changes < min(0.2 * chance * len(labels), _CHANGES_PER_CLASS * n_classes):
        times = "once" if changes == 1 else f"{changes:,} times"
        yield Finding(
            "sorted rows", (), NO_ROWS,
            f"the rows are sorted by label: it changes {times} in {len(labels):,} rows.",
            Action("check", text="shuffle before you split, and keep no row number as a column"),
            0.05,
        )  # fmt: skip
