"""Twins: rows of one owner that are, or nearly are, rows of another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.blocks import Mask, Positions

Floats = NDArray[np.float64]

# Rows are twins where every number is within this share of its column's spread, and all else equal.
_NEAR = 0.02
# Share of twins, beyond what chance brings, that is worth a word.
_MOST_TWINS = 0.01
# How many standard errors chance may bring.
_WIDE = 4.0


def most_copied(sides: Mapping[str, Side]) -> tuple[str, str, float, float] | None:
    """Who has more rows of the other than chance brings, and how many; None if neither has.

    Either may have copied, and who copies every row twice is told by the other's rows alone.
    """
    found = []
    for copier, source in permutations(sides):
        share, usual = _share_of_twins(sides[copier], sides[source])
        n_rows = (len(sides[name]) for name in (copier, source))
        if share > usual + _by_chance(usual, *n_rows):
            found.append((copier, source, share, usual))
    return max(found, key=lambda one: one[2] - one[3], default=None)


@dataclass(frozen=True, eq=False)
class Side:
    """Rows of one owner, those that are alike only once, and which of them have a twin at home."""

    points: Floats
    counts: Positions
    tree: Any
    has_twin: Mask

    @classmethod
    def of(cls, rows: Floats) -> Side:
        """Look for twins among rows."""
        from scipy.spatial import KDTree

        points, counts = np.unique(rows, axis=0, return_counts=True)
        tree = KDTree(points)
        apart = tree.query(points, k=[2], p=np.inf, distance_upper_bound=_NEAR)[0].ravel()
        return cls(points, counts, tree, np.asarray((counts > 1) | np.isfinite(apart)))

    def __len__(self) -> int:
        """Count the rows."""
        return int(self.counts.sum())


class Sides:
    """Sides of pairs of owners, each made once."""

    def __init__(self, cells: Callable[[Positions, Positions], Floats]) -> None:
        """Remember how cells of some rows and columns are had, as numbers."""
        self._cells = cells
        self._made: dict[tuple[bytes, bytes], Side] = {}

    def of(self, rows: Positions, columns: Positions) -> Side:
        """Rows of one owner, in the columns that are compared."""
        key = rows.tobytes(), columns.tobytes()
        if key not in self._made:
            self._made[key] = Side.of(self._cells(rows, columns))
        return self._made[key]


def _share_of_twins(copier: Side, source: Side) -> tuple[float, float]:
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


def _by_chance(usual: float, n_copier: int, n_source: int) -> float:
    """How much more than usual is still nothing to speak of."""
    # Of few rows even none may mean that some are usual.
    likely = (usual * n_source + 1.0) / (n_source + 2.0)
    # Rows that are alike fare alike: of n rows only about half as many tell of chance.
    error = np.sqrt(likely * (1.0 - likely) * (2.0 / n_copier + 2.0 / n_source))
    return max(_MOST_TWINS, _WIDE * float(error))
