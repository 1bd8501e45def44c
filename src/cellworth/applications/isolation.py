"""How far a number is from all other numbers of its column: what nothing else comes near to."""

from __future__ import annotations

import numpy as np

from cellworth.applications.features import Column
from cellworth.neighbours.columns import Floats, quantile_spread

# Spreads to the nearest other number from which on a number stands apart, and what that weighs:
# a number ten times as far as this is as suspicious as if 1,000 times fewer were as rare.
APART = 4.0
WEIGHT = 3.0
# Spreads beyond which far is simply far.
FARTHEST = 1e12
# Beyond these, distances in other units differ.
_DIGITS = 9


def isolation(column: Column) -> Floats:
    """Distance of each number from the nearest other one, in spreads of the column.

    0 for categories and gaps, for a number that occurs twice, and where quantiles tell no spread.
    """
    away = np.zeros(len(column.levels))
    if column.numbers is None or column.known.sum() < 2:
        return away
    numbers = at_most_one(column.numbers[column.known])
    spread = quantile_spread(numbers)
    if spread > 0:
        nearest = np.minimum(_nearest(numbers), FARTHEST * spread)
        away[column.known] = np.round(nearest / spread, _DIGITS)
    return away


def isolation_terms(away: Floats) -> Floats:
    """What isolation adds to suspicion: 0 for all but numbers that stand apart."""
    terms: Floats = WEIGHT * np.log(np.maximum(away / APART, 1.0))
    return terms


def at_most_one(numbers: Floats) -> Floats:
    """Scale numbers by a power of two, which leaves all digits alone, so that squares have an end.

    Numbers as large as they get would be endless when squared.
    """
    return np.ldexp(numbers, -int(np.frexp(np.abs(numbers).max())[1]))


def _nearest(numbers: Floats) -> Floats:
    order = np.argsort(numbers, kind="stable")
    steps = np.diff(numbers[order])
    nearest = np.empty(len(numbers))
    nearest[order] = np.minimum(np.append(np.inf, steps), np.append(steps, np.inf))
    return nearest
