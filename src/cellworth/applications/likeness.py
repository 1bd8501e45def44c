"""What rows like a cell's row have in its place: the nearest rows with the same label."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cellworth.applications.features import Column, Features, Levels
from cellworth.applications.unlikely import DIGITS, Evidence
from cellworth.blocks import Positions
from cellworth.neighbours.columns import Floats

N_NEIGHBOURS = 10
NOBODY = -1
_MOST_DISTANCES = 2**22


def typical_rows(evidence: Evidence, rows: Positions, columns: Positions) -> Positions:
    """For each of some cells, a row whose cell in this column is typical of rows like its own.

    Rows like it are the ten nearest with the same label, by all other columns; more where several
    are equally near. Typical is their most frequent level, or the middle one of their numbers.
    NOBODY where no other row has the label.
    """
    found = np.full(len(rows), NOBODY, dtype=np.intp)
    for place, distances in _distances(evidence, rows, columns):
        near = _nearest(distances)
        if len(near):
            column = evidence.columns[columns[place]]
            # Of rows that are equally near, the content decides and not the place in the table.
            order = np.lexsort((column.levels[near], distances[near]))
            found[place] = _typical(column, near[order])
    return found


def _distances(
    evidence: Evidence, rows: Positions, columns: Positions
) -> Iterator[tuple[int, Floats]]:
    """Squared distances of all rows from the row of each cell; infinite for other labels."""
    at_once = max(_MOST_DISTANCES // len(evidence.groups), 1)
    for start in range(0, len(rows), at_once):
        cells = slice(start, start + at_once)
        distances = _squared(evidence.features, rows[cells], columns[cells])
        for place, (row, squares) in enumerate(zip(rows[cells], distances, strict=True), start):
            squares[evidence.groups != evidence.groups[row]] = np.inf
            squares[row] = np.inf
            yield place, squares


def _squared(features: Features, rows: Positions, columns: Positions) -> Floats:
    asked = features.rows(rows)
    counts = np.ones(asked.shape)
    # The label is the same anyhow, or nearly so; its features and the constant come last.
    counts[:, features.own[-1].start :] = 0.0
    for line, column in zip(counts, columns, strict=True):
        line[features.own[column]] = 0.0
    distances = np.empty((len(rows), features.n_rows))
    for strip, others in features.strips():
        squares = counts @ (others**2).T - 2.0 * (counts * asked) @ others.T
        distances[:, strip] = squares + (counts * asked**2).sum(axis=1)[:, None]
    return np.round(distances, DIGITS)


def _nearest(distances: Floats) -> Positions:
    candidates = np.flatnonzero(np.isfinite(distances))
    if len(candidates) <= N_NEIGHBOURS:
        return candidates
    reach = np.partition(distances[candidates], N_NEIGHBOURS - 1)[N_NEIGHBOURS - 1]
    return np.flatnonzero(distances <= reach)


def _typical(column: Column, near: Positions) -> int:
    """Choose one of the rows that stand in order of distance."""
    row = near[_most_frequent(column.levels[near])]
    if column.numbers is None or np.isnan(column.numbers[row]):
        return int(row)
    known = near[column.known[near]]
    ascending = known[np.argsort(column.numbers[known], kind="stable")]
    return int(ascending[(len(ascending) - 1) // 2])


def _most_frequent(levels: Levels) -> int:
    """First place of the most frequent level; among equally frequent ones, of the first to come."""
    counts = np.bincount(levels)[levels]
    return int(np.argmax(counts))
