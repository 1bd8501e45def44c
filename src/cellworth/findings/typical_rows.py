"""Rows similar to that of a cell, what they have in its place, and what is unusual about it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cellworth.data.arguments import Floats, Positions
from cellworth.findings.anomaly import DIGITS, Evidence
from cellworth.findings.features import FeatureColumn, Features

N_NEIGHBORS = 10
NO_ROW = -1
# Cells whose distances from other rows are computed together.
_CELLS_AT_ONCE = 256


def find_typical_rows(evidence: Evidence, rows: Positions, columns: Positions) -> Positions:
    """Find, for each of some cells, a row whose cell is typical of similar rows; else NO_ROW.

    Similar rows are the ten nearest with the same label by all other columns, and all that are as
    near. Typical is their most frequent level, or the median of their numbers.
    """
    found = np.full(len(rows), NO_ROW, dtype=np.intp)
    for start in range(0, len(rows), _CELLS_AT_ONCE):
        cells = slice(start, start + _CELLS_AT_ONCE)
        nearest = _find_nearest(evidence, rows[cells], columns[cells])
        for position, (near, distances) in enumerate(nearest, start):
            if len(near):
                column = evidence.columns[columns[position]]
                # Among equally near rows, the content decides and not the row number.
                order = np.lexsort((column.levels[near], distances))
                found[position] = _choose_typical(column, near[order])
    return found


def _find_nearest(
    evidence: Evidence, rows: Positions, columns: Positions
) -> list[tuple[Positions, Floats]]:
    """Return the nearest rows of each cell, all that are as near, and their distances."""
    found = [(np.zeros(0, dtype=np.intp), np.zeros(0)) for _ in rows]
    reach = np.full(len(rows), np.inf)
    for strip, distances in _iter_distances(evidence.features, rows, columns):
        groups = evidence.groups[strip]
        for cell, (row, line) in enumerate(zip(rows.tolist(), distances, strict=True)):
            near = np.flatnonzero((line <= reach[cell]) & (groups == evidence.groups[row]))
            near = near[near + strip.start != row]
            if len(near):
                both = np.append(found[cell][0], near + strip.start)
                found[cell], reach[cell] = _keep_nearest(
                    both, np.append(found[cell][1], line[near])
                )
    return found


def _keep_nearest(rows: Positions, distances: Floats) -> tuple[tuple[Positions, Floats], float]:
    """Return the nearest rows with their distances, and how far others may be."""
    if len(rows) < N_NEIGHBORS:
        return (rows, distances), np.inf
    reach = np.partition(distances, N_NEIGHBORS - 1)[N_NEIGHBORS - 1]
    near = distances <= reach
    return (rows[near], distances[near]), float(reach)


def _iter_distances(
    features: Features, rows: Positions, columns: Positions
) -> Iterator[tuple[slice, Floats]]:
    """Yield squared distances of cells from all rows, some rows at a time."""
    asked = features.rows(rows)
    counts = np.ones(asked.shape)
    # The label is the same, or similar; its features and the constant come last.
    counts[:, features.own[-1].start :] = 0.0
    for line, column in zip(counts, columns, strict=True):
        line[features.own[column]] = 0.0
    for strip, others in features.iter_rows():
        squares = counts @ (others**2).T - 2.0 * (counts * asked) @ others.T
        yield strip, np.round(squares + (counts * asked**2).sum(axis=1)[:, None], DIGITS)


def _choose_typical(column: FeatureColumn, near: Positions) -> int:
    """Choose a row with the typical content; ``near`` is in order of distance."""
    levels = column.levels[near]
    # Of equally frequent levels, the nearest.
    row = near[np.argmax(np.bincount(levels)[levels])]
    if column.numbers is None or np.isnan(column.numbers[row]):
        return int(row)
    known = near[column.known[near]]
    ascending = known[np.argsort(column.numbers[known], kind="stable")]
    return int(ascending[(len(ascending) - 1) // 2])


def name_evidence(as_rare: int, as_misfit: int, n_cells: int, times_rarer: float) -> str:
    """Say what is most unusual about a cell: one of two counts, or a ratio of densities."""
    lowest = min(as_rare, as_misfit)
    if times_rarer > n_cells / lowest:
        return f"{times_rarer:,.0f} times rarer in similar rows than in its column"
    if as_rare == lowest:
        return f"{'the' if lowest == 1 else f'among the {lowest:,}'} rarest of {n_cells:,}"
    if lowest == 1:
        return f"it fits its row worse than the other {n_cells - 1:,}"
    return f"among the {lowest:,} of {n_cells:,} that fit their rows worst"
