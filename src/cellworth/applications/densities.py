"""How common a cell is among the rows with its label, itself not counted."""

from __future__ import annotations

import numpy as np

from cellworth.applications.features import Column, Levels
from cellworth.applications.isolation import at_most_one
from cellworth.neighbours.columns import Floats

# What the whole column weighs beside the rows of the same label, counted in rows.
PRIOR_ROWS = 0.1
# Wider than what suits the shape of a density best: the question is what lies far out.
WIDTH = 2.0
# No class is taken to be narrower than this part of its column.
_NARROWEST = 0.05
_NORMAL_QUARTILES = 1.349
# Powers of e beyond this overflow.
_REACH = 500.0


def log_densities(column: Column, groups: Levels) -> Floats:
    """Logarithm of how common each cell is in its group of rows, leaving the cell out.

    The share of its level, or for numbers a density in units of the column's spread, times the
    share of cells that are no gap. The density of the whole column counts a little too, so that
    small groups know what is possible.
    """
    density = _shares(column.levels, groups)
    if column.numbers is not None and column.known.any():
        known = column.known
        density[known] *= _kernel_densities(column.numbers[known], groups[known])
    return np.log(density)


def _shares(levels: Levels, groups: Levels) -> Floats:
    n_rows, n_levels = len(levels), int(levels.max()) + 1
    # One more row, spread over all levels: a level that occurs once is rare, not impossible.
    overall = (np.bincount(levels)[levels] - 1 + 1 / n_levels) / n_rows
    pairs = np.unique(groups * n_levels + levels, return_inverse=True, return_counts=True)
    alike = pairs[2][pairs[1].reshape(-1)] - 1
    others = np.bincount(groups)[groups] - 1
    shares: Floats = (alike + PRIOR_ROWS * overall) / (others + PRIOR_ROWS)
    return shares


def _kernel_densities(numbers: Floats, groups: Levels) -> Floats:
    if numbers.min() == numbers.max():
        return np.ones(len(numbers))
    numbers = _centred(at_most_one(numbers))
    spread = float(np.std(numbers)) or 1.0
    overall = _sums_of_others(numbers, spread) / max(len(numbers) - 1, 1)
    # What is farther from everything than numbers can tell is still not impossible.
    overall = np.maximum(overall, np.finfo(float).tiny)
    density = np.empty(len(numbers))
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        alike = _sums_of_others(numbers[rows], spread)
        density[rows] = (alike + PRIOR_ROWS * overall[rows]) / (len(rows) - 1 + PRIOR_ROWS)
    return density


def _centred(numbers: Floats) -> Floats:
    """Numbers less the one in their middle: a large offset would take digits off all sums.

    Moments in seconds since 1970 that lie microseconds apart are alike in their first ten digits.
    """
    middle = len(numbers) // 2
    centred: Floats = numbers - np.partition(numbers, middle)[middle]
    return centred


def _sums_of_others(numbers: Floats, spread: float) -> Floats:
    """Sum of the other numbers' kernels at each number, in units of the column's spread.

    The kernel is exp(-distance / width): it reaches far, and its sums follow from sorted numbers.
    """
    width = bandwidth(numbers, spread)
    order = np.argsort(numbers, kind="stable")
    steps = numbers[order] / width
    sums = np.empty(len(numbers))
    sums[order] = _sums_below(steps) + _sums_below(-steps[::-1])[::-1]
    return sums * spread / (2.0 * width)


def bandwidth(numbers: Floats, spread: float) -> float:
    """Width of the kernel: Silverman's rule, times WIDTH."""
    low, high = np.percentile(numbers, (25, 75)).tolist()
    own = float(np.std(numbers))
    narrow = min(own, (high - low) / _NORMAL_QUARTILES) if high > low else own
    return float(WIDTH * max(narrow, _NARROWEST * spread) * len(numbers) ** -0.2)


def _sums_below(ascending: Floats) -> Floats:
    """Sum over all earlier entries of exp(-distance)."""
    sums = np.empty(len(ascending))
    start, carried = 0, 0.0
    while start < len(ascending):
        end = int(np.searchsorted(ascending, ascending[start] + _REACH, side="right"))
        powers = np.exp(ascending[start:end] - ascending[start])
        running = carried + np.concatenate([[0.0], np.cumsum(powers)])
        sums[start:end] = running[:-1] / powers
        if end < len(ascending):
            carried = running[-1] * np.exp(ascending[start] - ascending[end])
        start = end
    return sums
