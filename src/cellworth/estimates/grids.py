"""What grids of utilities tell: second differences at every block, with or without centring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from cellworth.counts import Floats
from cellworth.designs import Grids, Joins
from cellworth.moments import Moments, Sums, with_margins, without_margins


def plain_moments(
    tasks: Sequence[Grids], utilities: Sequence[Floats], sums: Sums = with_margins
) -> Moments:
    """Moments of the second differences, one observation a task."""
    looks = zip(tasks, utilities, strict=True)
    return Moments.of_all([sums(_differences(*look)) for look in looks])


def centred_moments(tasks: Sequence[Grids], utilities: Sequence[Floats]) -> Moments:
    """Moments of second differences from which the mean at the same sizes is taken.

    A function of the two sizes alone gives every block the same value, and so nothing is lost when
    one is taken from all utilities. The best one is their mean at each pair of sizes. It comes from
    all tasks but the one that it is taken from, which makes every observation unbiased. One task
    alone has no others, and stays as it is.
    """
    looks = list(zip(tasks, utilities, strict=True))
    if len(looks) == 1:
        return plain_moments(tasks, utilities)
    steps = _second_differences(np.array([_tables(*look) for look in looks]), axis=2)
    levels = steps.mean(axis=1)
    everyone = levels.mean(axis=0)
    equal = np.broadcast_to(everyone.mean(axis=(0, 1)), everyone.shape)
    others = everyone - (levels - everyone) / (len(looks) - 1)
    seen = Moments.of_all(
        [
            with_margins(equal + _differences(*look, less=steps_of_others))
            for look, steps_of_others in zip(looks, others, strict=True)
        ]
    )
    return replace(seen, spread=seen.spread + _spread_of_levels(steps - everyone))


def _spread_of_levels(residuals: Floats) -> Floats:
    """What the chance in the means by size adds to the spread, for blocks, sums and the total.

    Blocks do not visit all places equally often, and where they visit one too often, the error of
    the mean there does not cancel. That is of second order, and felt only where hardly any other
    chance is left, as with three rows in pairs of opposite orders.
    """
    n_rows, n_columns = residuals.shape[2:4]
    spread = np.empty((n_rows + 1, n_columns + 1, *residuals.shape[4:]))
    spread[:-1, :-1] = np.mean(residuals**2, axis=(0, 1, 2, 3))
    spread[:-1, -1] = np.mean(residuals.sum(axis=3) ** 2, axis=(0, 1, 2))
    spread[-1, :-1] = np.mean(residuals.sum(axis=2) ** 2, axis=(0, 1, 2))
    spread[-1, -1] = 0.0
    return spread


def join_moments(tasks: Sequence[Joins], utilities: Sequence[Floats]) -> Moments:
    """Moments of second differences for everyone who joined; others were not seen."""
    seen = (Moments.of(_join_differences(*look)) for look in zip(tasks, utilities, strict=True))
    return reduce(Moments.merge, seen)


def _tables(task: Grids, utilities: Floats) -> Floats:
    """Utilities of a task by grid, length of the row prefix and length of the column prefix."""
    first = task.grids[0]
    shape = (len(task.grids), len(first.row_order) + 1, len(first.column_order) + 1)
    return utilities.reshape(*shape, *utilities.shape[1:])


def _differences(task: Grids, utilities: Floats, less: Floats | float = 0.0) -> Floats:
    """Second differences at the blocks, in the mean over the grids of a task."""
    steps = _second_differences(_tables(task, utilities), axis=1) - less
    blocks = np.empty_like(steps)
    for block, step, grid in zip(blocks, steps, task.grids, strict=True):
        block[np.ix_(grid.row_order, grid.column_order)] = step
    mean: Floats = blocks.mean(axis=0)
    return mean


def _second_differences(tables: Floats, axis: int) -> Floats:
    """Differences along the axis of row prefixes and the next one, that of column prefixes."""
    differences: Floats = np.diff(np.diff(tables, axis=axis), axis=axis + 1)
    return differences


def _join_differences(joins: Joins, utilities: Floats) -> Floats:
    rows, columns = np.flatnonzero(~joins.rows), np.flatnonzero(~joins.columns)
    others = utilities.shape[1:]
    table = utilities.reshape(len(rows) + 1, len(columns) + 1, *others)
    blocks = np.full((len(joins.rows), len(joins.columns), *others), np.nan)
    blocks[np.ix_(rows, columns)] = table[1:, 1:] - table[1:, :1] - table[:1, 1:] + table[0, 0]
    return without_margins(blocks)
