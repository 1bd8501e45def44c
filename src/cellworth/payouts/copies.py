"""Copies: rows and columns of one owner that are, or nearly are, those of another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.counts import Floats, Mask, Positions

# Rows are twins where every number is within this share of its column's spread, and all else equal.
_NEAR = 0.02
# Share of twins, beyond what chance brings, that is worth a word.
_MOST_TWINS = 0.01
# How many standard errors chance may bring.
_WIDE = 4.0
# Columns that tell as much about each other are copies.
_MOST_ALIKE = 0.95
_LEAST_ROWS = 10
_FEW_LEVELS = 50


def find_copied_rows(sides: Mapping[str, OwnerRows]) -> tuple[str, str, float, float] | None:
    """Who has more rows of the other than chance brings, and how many; None if neither has.

    Either may have copied, and who copies every row twice is told by the other's rows alone.
    """
    found = []
    for copier, source in permutations(sides):
        share, usual = _compute_share_of_twins(sides[copier], sides[source])
        n_rows = (len(sides[name]) for name in (copier, source))
        if share > usual + _estimate_chance(usual, *n_rows):
            found.append((copier, source, share, usual))
    return max(found, key=lambda one: one[2] - one[3], default=None)


@dataclass(frozen=True, eq=False)
class OwnerRows:
    """Rows of one owner, those that are alike only once, and which of them have a twin at home."""

    points: Floats
    counts: Positions
    tree: Any
    has_twin: Mask

    @classmethod
    def of(cls, rows: Floats) -> OwnerRows:
        """Look for twins among rows."""
        from scipy.spatial import KDTree

        points, counts = np.unique(rows, axis=0, return_counts=True)
        tree = KDTree(points)
        apart = tree.query(points, k=[2], p=np.inf, distance_upper_bound=_NEAR)[0].ravel()
        return cls(points, counts, tree, np.asarray((counts > 1) | np.isfinite(apart)))

    def __len__(self) -> int:
        """Count the rows."""
        return int(self.counts.sum())


class OwnerRowsCache:
    """Sides of pairs of owners, each made once."""

    def __init__(self, cells: Callable[[Positions, Positions], Floats]) -> None:
        """Remember how cells of some rows and columns are had, as numbers."""
        self._cells = cells
        self._made: dict[tuple[bytes, bytes], OwnerRows] = {}

    def of(self, rows: Positions, columns: Positions) -> OwnerRows:
        """Rows of one owner, in the columns that are compared."""
        key = rows.tobytes(), columns.tobytes()
        if key not in self._made:
            self._made[key] = OwnerRows.of(self._cells(rows, columns))
        return self._made[key]


def _compute_share_of_twins(copier: OwnerRows, source: OwnerRows) -> tuple[float, float]:
    """Share of rows that have a twin with the source, and how many would have one by chance.

    Where the source's own rows are crowded, twins come by chance: as often as with these rows
    themselves, or with those of them that are the copier's twins, if these are more crowded.
    """
    apart, nearest = source.tree.query(copier.points, p=np.inf, distance_upper_bound=_NEAR)
    found = np.isfinite(apart)
    crowded = np.append(source.has_twin, False)[nearest]
    nearby = np.average(crowded, weights=copier.counts)
    at_home = np.average(source.has_twin, weights=source.counts)
    return float(np.average(found, weights=copier.counts)), float(max(nearby, at_home))


def _estimate_chance(usual: float, n_copier: int, n_source: int) -> float:
    """How much more than usual is still nothing to speak of."""
    # Of few rows even none may mean that some are usual.
    likely = (usual * n_source + 1.0) / (n_source + 2.0)
    # Rows that are alike fare alike: of n rows only about half as many tell of chance.
    error = np.sqrt(likely * (1.0 - likely) * (2.0 / n_copier + 2.0 / n_source))
    return max(_MOST_TWINS, _WIDE * float(error))


def find_copied_columns(
    numbers: Floats, known: Mask, categorical: Mask, columns: Positions
) -> Iterator[tuple[int, int, float]]:
    """Pairs among some columns that tell the same, with how much they do."""
    if len(numbers) < _LEAST_ROWS:
        return
    by_rank = _correlate_ranks(numbers, known)
    comparable = _find_comparable(known)
    codes = [np.unique(column, return_inverse=True)[1].ravel() for column in numbers.T]
    for one, other in combinations(columns.tolist(), 2):
        if not comparable[one, other]:
            continue
        if categorical[[one, other]].any():
            both = known[:, one] & known[:, other]
            alike = _compute_shared_information(codes[one][both], codes[other][both])
        else:
            alike = float(by_rank[one, other])
        if alike >= _MOST_ALIKE:
            yield one, other, alike


def _find_comparable(known: Mask) -> Mask:
    """Pairs of columns of which enough rows know both: half of those that know the emptier one."""
    counts = known.astype(np.float64)
    both = counts.T @ counts
    fewer = np.minimum.outer(np.diag(both), np.diag(both))
    return np.asarray((both >= _LEAST_ROWS) & (both >= fewer / 2))


def _correlate_ranks(numbers: Floats, known: Mask) -> Floats:
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


def _compute_shared_information(one: NDArray[np.intp], other: NDArray[np.intp]) -> float:
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
