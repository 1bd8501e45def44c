"""What a row at each rank counts: the chances behind the closed form of the game.

A row that joins a coalition counts if it is among its K nearest, and pushes out whoever was the
K-th. Both chances depend on the rank alone; docs/explanation/neighbours.md derives the formulas.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cellworth.semivalues import Semivalue, inside_chances

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RankChances:
    """Chances by rank; entry r belongs to the r-th nearest row, entry 0 is not used.

    Parameters
    ----------
    single : array of shape (n_rows + 1,)
        Chance that a row at this rank is among the K nearest of the coalition that it joins,
        divided by K.
    running : array of shape (n_rows + 1,)
        Sums of ``single`` over ranks 1..r.
    pair : array of shape (n_rows + 1,)
        Chance that a given nearer row is in the coalition too and both are among the K nearest,
        divided by the square of K.
    pushed : array of shape (n_rows + 1,)
        By how much ``pair`` falls from the rank before: the chance that a row joining in front
        pushes out the farther of two.
    """

    single: Floats
    running: Floats
    pair: Floats
    pushed: Floats

    @classmethod
    def of(cls, semivalue: Semivalue, n_players: int, n_rows: int, n_neighbors: int) -> RankChances:
        """Chances for the n_rows that may train, among n_players in all."""
        ranks = np.arange(n_rows + 1)
        # Exactly K of the rows in front are in: whoever joins in front then pushes this one out.
        full = inside_chances(semivalue, n_players, np.maximum(ranks - 1, 0), n_neighbors)
        drop = np.zeros(n_rows + 1)
        drop[2:] = full[2:] / ranks[1:-1]
        pushed = np.zeros(n_rows + 1)
        pushed[3:] = drop[3:] * (n_neighbors - 1) / (n_neighbors * ranks[1:-2])
        fewer = np.arange(min(n_neighbors, n_rows))
        at_end = inside_chances(semivalue, n_players, n_rows - 1, fewer)
        last_single = float(at_end.sum()) / n_neighbors
        # With k of the n - 1 others in, a given one of them is in with chance k / (n - 1).
        last_pair = float(at_end @ fewer) / max(n_rows - 1, 1) / n_neighbors**2
        single, pair = _from_the_end(last_single, drop), _from_the_end(last_pair, pushed)
        running = np.concatenate([[0.0], np.cumsum(single[1:])])
        return cls(single, running, pair, pushed)


def _from_the_end(last: float, drops: Floats) -> Floats:
    """Add up falls from the last rank to the first: all terms are positive, nothing cancels."""
    rises = np.append(drops[1:], last)
    sums: Floats = np.cumsum(rises[::-1])[::-1]
    return sums
