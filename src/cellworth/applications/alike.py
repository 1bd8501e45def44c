"""Columns that are alike: pairs that tell the same, whatever their units, names and gaps."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from cellworth.blocks import Mask, Positions

Floats = NDArray[np.float64]

# Columns that tell as much about each other are copies.
_MOST_ALIKE = 0.95
_LEAST_ROWS = 10
_FEW_LEVELS = 50


def alike_columns(
    numbers: Floats, known: Mask, categorical: Mask, columns: Positions
) -> Iterator[tuple[int, int, float]]:
    """Pairs among some columns that tell the same, with how much they do."""
    if len(numbers) < _LEAST_ROWS:
        return
    by_rank = _rank_correlations(numbers, known)
    comparable = _comparable(known)
    codes = [np.unique(column, return_inverse=True)[1].ravel() for column in numbers.T]
    for one, other in combinations(columns.tolist(), 2):
        if not comparable[one, other]:
            continue
        if categorical[[one, other]].any():
            both = known[:, one] & known[:, other]
            alike = _shared_information(codes[one][both], codes[other][both])
        else:
            alike = float(by_rank[one, other])
        if alike >= _MOST_ALIKE:
            yield one, other, alike


def _comparable(known: Mask) -> Mask:
    """Pairs of columns of which enough rows know both: half of those that know the emptier one."""
    counts = known.astype(np.float64)
    both = counts.T @ counts
    fewer = np.minimum.outer(np.diag(both), np.diag(both))
    return np.asarray((both >= _LEAST_ROWS) & (both >= fewer / 2))


def _rank_correlations(numbers: Floats, known: Mask) -> Floats:
    """Of each two columns, over the rows in which neither has a gap."""
    from scipy.stats import rankdata

    ranks = rankdata(np.where(known, numbers, np.nan), axis=0, nan_policy="omit")
    counts = np.maximum(known.sum(axis=0), 1)
    ranks = np.where(known, ranks - np.nansum(ranks, axis=0) / counts, 0.0)
    inside = known.astype(np.float64)
    both = np.maximum(inside.T @ inside, 1.0)
    # Means and sizes of a column's ranks over the rows in which the other has no gap either.
    sums = ranks.T @ inside
    squares = (ranks**2).T @ inside
    sizes = squares - sums**2 / both
    products = ranks.T @ ranks - sums * sums.T / both
    # A constant tells nothing; what rounding leaves of it is not a size.
    sizes = np.where(sizes > 1e-9 * squares, sizes, np.inf)
    found: Floats = np.abs(products) / np.sqrt(sizes * sizes.T)
    return found


def _shared_information(one: NDArray[np.intp], other: NDArray[np.intp]) -> float:
    """How much two columns of codes tell about each other: 1 where one is the other renamed."""
    from sklearn.metrics import normalized_mutual_info_score

    one, other = (np.unique(codes, return_inverse=True)[1].ravel() for codes in (one, other))
    levels = [int(codes.max()) + 1 for codes in (one, other)]
    # Two constants tell the same, and nothing; so do names that hardly any two rows share.
    if min(levels) == 1 or max(levels) > len(one) // 2:
        return 0.0
    if max(levels) <= _FEW_LEVELS:
        return float(normalized_mutual_info_score(one, other, average_method="max"))
    # Many levels share much information by chance; none are renamed one by one by chance.
    pairs = len(np.unique(one * levels[1] + other))
    return 1.0 if levels[0] == levels[1] == pairs else 0.0
