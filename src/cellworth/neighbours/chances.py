"""What a row at each rank counts: the chances behind the closed form of the game.

A row that joins a coalition counts if it is among its K nearest, and pushes out whoever was the
K-th. Both chances depend on the rank alone; docs/explanation/nearest-neighbors.md derives them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np

from cellworth.counts import Floats, Wholes
from cellworth.semivalues import Semivalue, Shapley, inside_chances

# Ranks up to here are in a table.
_HEAD = 65_536


class Chances(Protocol):
    """Chances of single rows, at any ranks."""

    def at(self, ranks: Wholes) -> tuple[Floats, Floats]:
        """Return ``single`` and ``running`` at these ranks."""
        ...


def chances_at_ranks(
    semivalue: Semivalue, n_players: int, n_rows: int, n_neighbors: int
) -> Chances:
    """Chances for the n_rows that may train, among n_players in all, for looking up some ranks."""
    if isinstance(semivalue, Shapley):
        return ShapleyChances(n_neighbors)
    return RankChances.of(semivalue, n_players, n_rows, n_neighbors)


@dataclass(frozen=True, eq=False)
class ShapleyChances:
    """Chances under Shapley weights, which need no table as long as the table of rows.

    A row at rank r is among the K nearest of a coalition in random order with chance min(1, K / r).
    Sums of these are harmonic numbers. Far ones are had from others nearby by a series that adds,
    multiplies and divides alone: a logarithm may differ in its last bit from machine to machine.

    Parameters
    ----------
    n_neighbors : int
    """

    n_neighbors: int

    def at(self, ranks: Wholes) -> tuple[Floats, Floats]:
        """Return ``single`` and ``running`` at these ranks."""
        single = 1.0 / np.maximum(ranks, self.n_neighbors)
        near = np.minimum(ranks, len(self._head) - 1)
        running = self._head[near]
        far = np.flatnonzero(ranks > near)
        if len(far):
            posts, sums = _posts(int(ranks.max()), len(self._head) - 1, float(self._head[-1]))
            before = np.searchsorted(posts, ranks[far], side="right") - 1
            running[far] = sums[before] + _harmonic_step(posts[before], ranks[far])
        return single, running

    @cached_property
    def _head(self) -> Floats:
        ranks = np.arange(1, max(_HEAD, self.n_neighbors) + 1)
        return np.concatenate([[0.0], np.cumsum(1.0 / np.maximum(ranks, self.n_neighbors))])


@lru_cache(maxsize=8)
def _posts(last: int, first: int, begin: float) -> tuple[Wholes, Floats]:
    """Ranks a sixteenth apart, from a first one on, and sums up to each."""
    posts, sums = [first], [begin]
    while posts[-1] + posts[-1] // 16 <= last:
        posts.append(posts[-1] + posts[-1] // 16)
        sums.append(sums[-1] + float(_harmonic_step(*map(np.array, posts[-2:]))))
    return np.array(posts), np.array(sums)


def _harmonic_step(begin: Wholes, end: Wholes) -> Floats:
    """1 / (begin + 1) + ... + 1 / end, for ends at most a sixteenth beyond a large begin."""
    ratio = (end - begin) / (end + begin)
    square = ratio * ratio
    # log(end / begin) is twice the inverse hyperbolic tangent of the ratio.
    series = np.zeros(ratio.shape)
    for power in (13, 11, 9, 7, 5, 3, 1):
        series = series * square + 1.0 / power
    low, high = 1.0 / begin, 1.0 / end
    logarithm = 2.0 * ratio * series
    step: Floats = logarithm + (high - low) / 2.0 - (high - low) * (high + low) / 12.0
    return step


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

    def at(self, ranks: Wholes) -> tuple[Floats, Floats]:
        """Return ``single`` and ``running`` at these ranks."""
        return self.single[ranks], self.running[ranks]


def _from_the_end(last: float, drops: Floats) -> Floats:
    """Add up falls from the last rank to the first: all terms are positive, nothing cancels."""
    rises = np.append(drops[1:], last)
    sums: Floats = np.cumsum(rises[::-1])[::-1]
    return sums
