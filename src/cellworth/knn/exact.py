"""Exact values: training rows sorted by distance on every coalition, and the weights of ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dgemm

from cellworth.data.arguments import Codes, Floats, Integers
from cellworth.knn.distances import Columns, ColumnScales
from cellworth.sampling.column_samplers import Coalitions
from cellworth.sampling.semivalues import Semivalue, Shapley, inside_chances

# Base of each coalition, first entry of each in the toggles, toggles; see kernels.fill_keys.
Steps = tuple[Integers, Integers, Integers]
# Keys that are sorted together; about what the cache of a core holds.
_KEYS_AT_ONCE = 2**18
_LEAST_AT_ONCE = 16
# Ranks up to here are in a table.
_HEAD = 65_536


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
        # Exactly K of the rows in front are in: a row that joins in front then pushes this one out.
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

    def at(self, ranks: Integers) -> tuple[Floats, Floats]:
        """Return ``single`` and ``running`` at these ranks."""
        return self.single[ranks], self.running[ranks]


class Query(NamedTuple):
    """One validation row.

    Parameters
    ----------
    numbers, categories : arrays
        Its cells, as in Columns.
    lines : array
        Where the distances to its cells begin, for columns that have tables.
    label : float
        Code of its class, or its target minus the mean target of all training rows.
    """

    numbers: Floats
    categories: Codes
    lines: Integers
    label: float

    @classmethod
    def of(cls, columns: Columns, scales: ColumnScales, position: int, label: float) -> Query:
        """Pick one row of a query table."""
        lines = scales.starts + columns.coded[:, position] * scales.widths
        numbers = np.ascontiguousarray(columns.numbers[:, position])
        return cls(numbers, np.ascontiguousarray(columns.categories[:, position]), lines, label)


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Rows that may be learned from.

    Parameters
    ----------
    rows : Columns
    scales : Rulers
    players : array of shape (n_columns,)
        Player that each column belongs to, in the order of the rulers.
    labels : array of shape (n_rows,)
        Codes of classes, or targets minus their mean.
    is_class : bool
    n_neighbors : int
    chances : RankChances
    """

    rows: Columns
    scales: ColumnScales
    players: Integers
    labels: Floats
    is_class: bool
    n_neighbors: int
    chances: RankChances

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.labels)

    @property
    def shift(self) -> int:
        """Bits of a sort key that hold the row, and whether its label matches."""
        return self.n_rows.bit_length() + self.is_class

    @cached_property
    def _shifted_positions(self) -> Integers:
        return np.arange(self.n_rows, dtype=np.int64) << self.is_class

    def payload(self, query: Query) -> Integers:
        """What the sort keys carry besides the distance."""
        positions = self._shifted_positions
        return positions | (self.labels == query.label) if self.is_class else positions

    def row_values(self, keys: Integers, query: Query, out: Floats) -> None:
        """Write the value of every row into ``out``, from sorted keys, line by line."""
        from cellworth.knn import kernels

        chances = self.chances
        if self.is_class:
            kernels.class_values(keys, self.shift, chances.single, chances.running, out)
        else:
            tables = (chances.single, chances.running, chances.pair, chances.pushed)
            kernels.target_values(
                keys, self.shift, self.labels, query.label, self.n_neighbors, tables, out
            )

    def utility(self, keys: Integers, query: Query) -> float:
        """Utility of all rows, from one line of sorted keys."""
        from cellworth.knn import kernels

        if self.is_class:
            matches = kernels.nearest_matches(keys, self.shift, self.n_neighbors)
            return float(matches) / self.n_neighbors
        return -float(
            kernels.nearest_error(keys, self.shift, self.labels, query.label, self.n_neighbors)
        )

    def without_columns(self, query: Query) -> tuple[Floats, float]:
        """Values of rows and utility of all rows where no column tells them apart."""
        keys = self.payload(query)
        values = np.empty((1, self.n_rows))
        self.row_values(keys[None, :], query, values)
        return values[0], self.utility(keys, query)


def vote_sorted_rows(training: TrainingRows, keys: Integers, query: Query) -> float:
    """Chance that the vote is right, from one line of sorted keys."""
    from cellworth.knn import kernels as vote_kernels

    right = int(query.label)
    surely, tied = np.zeros((2, max(int(training.labels.max()), right) + 1), dtype=np.int64)
    positions = vote_kernels.count_sorted_votes(
        keys, training.shift, training.labels, training.n_neighbors, surely, tied
    )
    return chance_of_right_vote(surely, tied, positions, right)


def chance_of_right_vote(surely: Integers, tied: Integers, positions: int, right: int) -> float:
    """Chance that a class gets most votes; classes with equally many win equally often.

    Parameters
    ----------
    surely, tied : arrays of shape (n_classes,)
        Rows that are surely among the nearest, and rows that compete for the places left.
    positions : int
        How many of the tied rows vote; all of them, or any.
    right : int
        The class.
    """
    if tied.sum() == positions:
        votes = surely + tied
        best = votes == votes.max()
        return float(best[right]) / int(best.sum())
    return _chance(surely.tobytes(), tied.tobytes(), positions, right)


@lru_cache(maxsize=4096)
def _chance(surely: bytes, tied: bytes, positions: int, right: int) -> float:
    # Where many rows tie, many queries see the same counts.
    from cellworth.knn import kernels as vote_kernels

    counts = (np.frombuffer(each, dtype=np.int64) for each in (surely, tied))
    return float(vote_kernels.right_chance(*counts, positions, right))


@dataclass(frozen=True, eq=False)
class CoalitionBatches:
    """Coalitions in the order and the form in which a query is ranked on them.

    Parameters
    ----------
    coalitions : Coalitions
    batches : tuple
        Slices of the coalitions that are ranked together, each with its steps for the kernel.
    """

    coalitions: Coalitions
    batches: tuple[tuple[slice, Steps], ...]

    @property
    def most_at_once(self) -> int:
        """Coalitions in the largest batch."""
        return max(len(steps[0]) for _, steps in self.batches)

    @classmethod
    def of(cls, coalitions: Coalitions, at_once: int) -> CoalitionBatches:
        """Cut coalitions into batches of this many."""
        starts = range(0, len(coalitions.members), at_once)
        parts = [slice(start, start + at_once) for start in starts]
        return cls(
            coalitions, tuple((part, find_steps(coalitions.members[part])) for part in parts)
        )


def find_steps(members: NDArray[np.bool_]) -> Steps:
    """Shortest ways to each coalition: from nothing, from the one before, or from everything."""
    before = np.vstack([members[:1], members[:-1]])
    sources = np.stack([np.zeros_like(members), before, np.ones_like(members)])
    lengths = (sources != members).sum(axis=2)
    lengths[1, 0] = members.shape[1] + 1
    bases = lengths.argmin(axis=0)
    changed = sources[bases, np.arange(len(members))] != members
    coalition, player = np.nonzero(changed)
    toggles = np.where(members[coalition, player], player, ~player)
    firsts = np.concatenate([[0], np.cumsum(changed.sum(axis=1))])
    return bases.astype(np.int64), firsts.astype(np.int64), toggles.astype(np.int64)


def coalitions_at_once(n_rows: int) -> int:
    """How many coalitions are ranked together."""
    return max(_KEYS_AT_ONCE // n_rows, _LEAST_AT_ONCE)


class SortedRows:
    """Values the rows for one query after the other, in buffers of its own."""

    def __init__(self, training: TrainingRows, n_lines: int) -> None:
        self._training = training
        self._keys = np.empty((n_lines, training.n_rows), dtype=np.int64)
        # One line more: what rows are worth without any column.
        self._values = np.empty((n_lines + 1, training.n_rows))

    def add(
        self,
        query: Query,
        plan: CoalitionBatches,
        *,
        order: Integers,
        weights: Floats,
        count: float,
        nothing: Floats,
        into: Floats,
    ) -> tuple[float, float]:
        """Add the values of all cells for one query; return what the whole table does for it.

        That is its utility, and the chance that its majority vote is right (NaN for a numeric
        target).

        Parameters
        ----------
        query : Query
        plan : CoalitionBatches
        order : array of shape (n_players,)
            Player that stands for each name in the plan.
        weights : array of shape (n_coalitions + 1, n_results)
            What each coalition counts for each result; the last line is for ``nothing``.
        count : float
            What the query counts.
        nothing : array of shape (n_rows,)
            Values of rows that the last line of weights counts.
        into : array of shape (n_results, n_rows)
            Added to.
        """
        from cellworth.knn import kernels

        training, full_utility, vote = self._training, 0.0, math.nan
        payload = training.payload(query)
        for part, steps in plan.batches:
            n_lines = len(steps[0])
            keys, values = self._keys[:n_lines], self._values[: n_lines + 1]
            kernels.fill_keys(
                training.rows, query[:3], training.scales, training.players, order, steps,
                payload, training.shift, keys,
            )  # fmt: skip
            keys.sort(axis=1)
            training.row_values(keys, query, values[:-1])
            counts = weights[part]
            if part is plan.batches[-1][0]:
                full_utility = training.utility(keys[-1], query)
                if training.is_class:
                    vote = vote_sorted_rows(training, keys[-1], query)
                values[-1] = nothing
                counts = weights[part.start :]
            dgemm(count, values[: len(counts)].T, counts, beta=1.0, c=into.T, overwrite_c=1)
        return full_utility, vote


class Chances(Protocol):
    """Chances of single rows, at any ranks."""

    def at(self, ranks: Integers) -> tuple[Floats, Floats]:
        """Return ``single`` and ``running`` at these ranks."""
        ...


def choose_chances(semivalue: Semivalue, n_players: int, n_rows: int, n_neighbors: int) -> Chances:
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

    def at(self, ranks: Integers) -> tuple[Floats, Floats]:
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
def _posts(last: int, first: int, begin: float) -> tuple[Integers, Floats]:
    """Ranks a sixteenth apart, from a first one on, and sums up to each."""
    posts, sums = [first], [begin]
    while posts[-1] + posts[-1] // 16 <= last:
        posts.append(posts[-1] + posts[-1] // 16)
        sums.append(sums[-1] + float(_harmonic_step(*map(np.array, posts[-2:]))))
    return np.array(posts), np.array(sums)


def _harmonic_step(begin: Integers, end: Integers) -> Floats:
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


def _from_the_end(last: float, drops: Floats) -> Floats:
    """Add up falls from the last rank to the first: all terms are positive, nothing cancels."""
    rises = np.append(drops[1:], last)
    sums: Floats = np.cumsum(rises[::-1])[::-1]
    return sums
