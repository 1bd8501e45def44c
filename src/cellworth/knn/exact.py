"""Exact ranks: training rows sorted by distance on every coalition, and values by rank."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dgemm

from cellworth.data.arguments import Codes, Floats, Integers
from cellworth.knn.distances import Columns, ColumnScales
from cellworth.sampling.column_samplers import Coalitions
from cellworth.sampling.semivalues import Semivalue, Shapley, inside_chances

# Bases, first entries and toggles of coalitions; see kernels.fill_keys.
StepArrays = tuple[Integers, Integers, Integers]
# Keys that are sorted together: about the size of a core's cache.
_KEYS_AT_ONCE = 2**18
_LEAST_AT_ONCE = 16
# Sums up to this rank are tabulated.
_HEAD = 65_536


@dataclass(frozen=True, eq=False)
class RankChances:
    """Probabilities by rank; arrays of shape (n_rows + 1,) whose entry 0 is not used."""

    # Probability that the r-th nearest row is among the K nearest of its coalition, over K.
    single: Floats
    running: Floats  # Sums of ``single`` over ranks 1..r
    # Probability that a given nearer row is in the coalition, too, and both are among the K
    # nearest, over K**2.
    pair: Floats
    # Decrease of ``pair`` from the previous rank: the probability that a row that joins in front
    # pushes out the farther of two.
    pushed: Floats

    @classmethod
    def of(cls, semivalue: Semivalue, n_players: int, n_rows: int, n_neighbors: int) -> RankChances:
        """Compute the probabilities for n_rows training rows among n_players row players."""
        ranks = np.arange(n_rows + 1)
        # If K rows in front are in the coalition, one more in front pushes this row out.
        full = inside_chances(semivalue, n_players, np.maximum(ranks - 1, 0), n_neighbors)
        drop = np.zeros(n_rows + 1)
        drop[2:] = full[2:] / ranks[1:-1]
        pushed = np.zeros(n_rows + 1)
        pushed[3:] = drop[3:] * (n_neighbors - 1) / (n_neighbors * ranks[1:-2])
        fewer = np.arange(min(n_neighbors, n_rows))
        at_end = inside_chances(semivalue, n_players, n_rows - 1, fewer)
        last_single = float(at_end.sum()) / n_neighbors
        # If k of the n - 1 others are in, a given one of them is in with probability k / (n - 1).
        last_pair = float(at_end @ fewer) / max(n_rows - 1, 1) / n_neighbors**2
        single, pair = _from_the_end(last_single, drop), _from_the_end(last_pair, pushed)
        running = np.concatenate([[0.0], np.cumsum(single[1:])])
        return cls(single, running, pair, pushed)

    def at(self, ranks: Integers) -> tuple[Floats, Floats]:
        """Return ``single`` and ``running`` at these ranks."""
        return self.single[ranks], self.running[ranks]

    def pairs_at(self, ranks: Integers) -> tuple[Floats, ...]:
        """Return ``single``, ``running``, ``pair`` and running sums of ``pair``, at these ranks.

        The sums are over ``pair`` and over ``pair`` times the number of nearer rows. Only their
        differences count, so they may start anywhere.
        """
        pairs, fronts = self._pair_sums
        return *self.at(ranks), self.pair[ranks], pairs[ranks], fronts[ranks]

    @cached_property
    def _pair_sums(self) -> tuple[Floats, Floats]:
        fronts = self.pair * (np.arange(len(self.pair)) - 1)
        return -_from_the_end(0.0, self.pair), -_from_the_end(0.0, fronts)


class Query(NamedTuple):
    """One validation row."""

    # Cells as in Columns.
    numbers: Floats
    categories: Codes
    lines: Integers  # Start of the distances to its cells in the tables of coded columns
    label: float  # Code of its class, or its target minus the mean target of all training rows

    @classmethod
    def of(cls, columns: Columns, scales: ColumnScales, position: int, label: float) -> Query:
        """Return one row of a query table."""
        lines = scales.starts + columns.coded[:, position] * scales.widths
        numbers = np.ascontiguousarray(columns.numbers[:, position])
        return cls(numbers, np.ascontiguousarray(columns.categories[:, position]), lines, label)


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Training rows of one fold."""

    rows: Columns
    scales: ColumnScales
    players: Integers  # (n_columns,): player of each column, in the order of the scales
    labels: Floats  # (n_rows,): codes of classes, or targets minus their mean
    is_class: bool
    n_neighbors: int
    chances: RankChances

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.labels)

    @property
    def shift(self) -> int:
        """Number of low bits in a sort key: the row's position, and whether its label matches."""
        return self.n_rows.bit_length() + self.is_class

    @cached_property
    def _shifted_positions(self) -> Integers:
        return np.arange(self.n_rows, dtype=np.int64) << self.is_class

    def payload(self, query: Query) -> Integers:
        """Return the low bits of the sort keys."""
        positions = self._shifted_positions
        return positions | (self.labels == query.label) if self.is_class else positions

    def row_values(self, keys: Integers, query: Query, out: Floats) -> None:
        """Compute the value of every row from sorted keys, one line per coalition."""
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
        """Compute the utility of all rows from one line of sorted keys."""
        from cellworth.knn import kernels

        if self.is_class:
            matches = kernels.nearest_matches(keys, self.shift, self.n_neighbors)
            return float(matches) / self.n_neighbors
        return -float(
            kernels.nearest_error(keys, self.shift, self.labels, query.label, self.n_neighbors)
        )

    def without_columns(self, query: Query) -> tuple[Floats, float]:
        """Return the values of rows, and their utility, without columns: all rows tie."""
        keys = self.payload(query)
        values = np.empty((1, self.n_rows))
        self.row_values(keys[None, :], query, values)
        return values[0], self.utility(keys, query)


def vote_sorted_rows(training: TrainingRows, keys: Integers, query: Query) -> float:
    """Return the probability that the vote is correct, from one line of sorted keys."""
    from cellworth.knn import kernels

    right = int(query.label)
    surely, tied = np.zeros((2, max(int(training.labels.max()), right) + 1), dtype=np.int64)
    positions = kernels.count_sorted_votes(
        keys, training.shift, training.labels, training.n_neighbors, surely, tied
    )
    return chance_of_right_vote(surely, tied, positions, right)


def chance_of_right_vote(surely: Integers, tied: Integers, positions: int, right: int) -> float:
    """Return the probability that class ``right`` wins the vote; equal classes share the win.

    ``surely`` counts the rows that certainly vote, by class, and ``tied`` those of which
    ``positions`` random ones vote.
    """
    if tied.sum() == positions:
        votes = surely + tied
        best = votes == votes.max()
        return float(best[right]) / int(best.sum())
    return _chance(surely.tobytes(), tied.tobytes(), positions, right)


@lru_cache(maxsize=4096)
def _chance(surely: bytes, tied: bytes, positions: int, right: int) -> float:
    # Cached: if many rows tie, many queries have the same counts.
    from cellworth.knn import kernels

    counts = (np.frombuffer(each, dtype=np.int64) for each in (surely, tied))
    return float(kernels.right_chance(*counts, positions, right))


@dataclass(frozen=True, eq=False)
class CoalitionBatches:
    """Coalitions in batches that are ranked together."""

    coalitions: Coalitions
    # Slices of the coalitions, each with its steps for the kernel.
    batches: tuple[tuple[slice, StepArrays], ...]

    @property
    def most_at_once(self) -> int:
        """Number of coalitions in the largest batch."""
        return max(len(steps[0]) for _, steps in self.batches)

    @classmethod
    def of(cls, coalitions: Coalitions, at_once: int) -> CoalitionBatches:
        """Divide coalitions into batches of ``at_once``."""
        members = coalitions.members
        batches = (slice(i, i + at_once) for i in range(0, len(members), at_once))
        return cls(coalitions, tuple((batch, find_steps(members[batch])) for batch in batches))


def find_steps(members: NDArray[np.bool_]) -> StepArrays:
    """Return the fewest steps to each coalition from nothing, the previous one, or everything."""
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
    """Return how many coalitions to rank together."""
    return max(_KEYS_AT_ONCE // n_rows, _LEAST_AT_ONCE)


class SortedRows:
    """Computes values for one query after the other, with its own buffers."""

    def __init__(self, training: TrainingRows, n_lines: int) -> None:
        self._training = training
        self._keys = np.empty((n_lines, training.n_rows), dtype=np.int64)
        # The last line is for the values without columns.
        self._values = np.empty((n_lines + 1, training.n_rows))

    def add(
        self,
        query: Query,
        plan: CoalitionBatches,
        *,
        order: Integers,
        weights: Floats,
        query_weight: float,
        nothing: Floats,
        into: Floats,
    ) -> tuple[float, float]:
        """Add the values of all cells for one query; return the utility and vote of the full table.

        The vote is the probability that the majority vote is correct; NaN for a numeric target.

        ``order`` is the column player at each position of the plan's coalitions. ``weights`` has
        shape (n_coalitions + 1, n_results); its last line is for ``nothing``, the values of rows
        without columns. ``into`` has shape (n_results, n_rows).
        """
        from cellworth.knn import kernels

        training, full_utility, vote = self._training, 0.0, math.nan
        payload = training.payload(query)
        for batch, steps in plan.batches:
            n_lines = len(steps[0])
            keys, values = self._keys[:n_lines], self._values[: n_lines + 1]
            kernels.fill_keys(
                training.rows, query[:3], training.scales, training.players, order, steps,
                payload, training.shift, keys,
            )  # fmt: skip
            keys.sort(axis=1)
            training.row_values(keys, query, values[:-1])
            batch_weights = weights[batch]
            if batch is plan.batches[-1][0]:
                full_utility = training.utility(keys[-1], query)
                if training.is_class:
                    vote = vote_sorted_rows(training, keys[-1], query)
                values[-1] = nothing
                batch_weights = weights[batch.start :]
            dgemm(
                query_weight, values[: len(batch_weights)].T, batch_weights,
                beta=1.0, c=into.T, overwrite_c=1,
            )  # fmt: skip
        return full_utility, vote


def choose_chances(semivalue: Semivalue, n_players: int, n_rows: int, n_neighbors: int) -> Chances:
    """Return probabilities by rank for n_rows training rows among n_players row players."""
    if isinstance(semivalue, Shapley):
        return ShapleyChances(n_neighbors)
    return RankChances.of(semivalue, n_players, n_rows, n_neighbors)


@dataclass(frozen=True, eq=False)
class ShapleyChances:
    """Probabilities by rank for Shapley values, without a table of all ranks.

    A row at rank r is among the K nearest of a random coalition with probability min(1, K / r).
    Sums of these are harmonic numbers. Beyond the tabulated ranks, a series computes them with
    additions, multiplications and divisions alone: a logarithm may differ in its last bit between
    machines.
    """

    n_neighbors: int

    def at(self, ranks: Integers) -> tuple[Floats, Floats]:
        """Return ``single`` and ``running`` at these ranks."""
        single = 1.0 / np.maximum(ranks, self.n_neighbors)
        near = np.minimum(ranks, len(self._head) - 1)
        running = self._head[near]
        far = np.flatnonzero(ranks > near)
        if len(far):
            nodes, sums = _nodes(int(ranks.max()), len(self._head) - 1, float(self._head[-1]))
            before = np.searchsorted(nodes, ranks[far], side="right") - 1
            running[far] = sums[before] + _harmonic_step(nodes[before], ranks[far])
        return single, running

    def pairs_at(self, ranks: Integers) -> tuple[Floats, ...]:
        """Return ``single``, ``running``, ``pair`` and running sums of ``pair``, at these ranks.

        With c = (K - 1) / 2K, ``pair`` is c / r(r - 1) beyond rank K, which adds up to -c / r.
        """
        single, running = self.at(ranks)
        k, last = self.n_neighbors, np.maximum(ranks, self.n_neighbors + 1)
        share = (k - 1) / (2 * k)
        # The same for all ranks up to K, where every row is among the nearest.
        first = 0.5 / k**2 if k > 1 else 0.0
        pair = np.where(ranks > k, share / (last * (last - 1.0)), first)
        pairs = np.where(ranks > k, -share / last, (ranks - k) * first - share / k)
        beyond = first * k * (k - 1) / 2 + share * (running - self._head[k])
        fronts = np.where(ranks > k, beyond, first * ranks * (ranks - 1) / 2)
        return single, running, pair, pairs, fronts

    @cached_property
    def _head(self) -> Floats:
        ranks = np.arange(1, max(_HEAD, self.n_neighbors) + 1)
        return np.concatenate([[0.0], np.cumsum(1.0 / np.maximum(ranks, self.n_neighbors))])


Chances = RankChances | ShapleyChances


@lru_cache(maxsize=8)
def _nodes(last: int, first: int, begin: float) -> tuple[Integers, Floats]:
    """Return ranks that grow by a sixteenth each, and the sums up to them."""
    nodes, sums = [first], [begin]
    while nodes[-1] + nodes[-1] // 16 <= last:
        nodes.append(nodes[-1] + nodes[-1] // 16)
        sums.append(sums[-1] + float(_harmonic_step(*map(np.array, nodes[-2:]))))
    return np.array(nodes), np.array(sums)


def _harmonic_step(begin: Integers, end: Integers) -> Floats:
    """Return 1 / (begin + 1) + ... + 1 / end, for a large begin and end <= begin * 17 / 16."""
    ratio = (end - begin) / (end + begin)
    square = ratio * ratio
    # log(end / begin) is twice the inverse hyperbolic tangent of the ratio.
    series = np.zeros(ratio.shape)
    for power in (13, 11, 9, 7, 5, 3, 1):
        series = series * square + 1.0 / power
    low, high = 1.0 / begin, 1.0 / end
    logarithm = 2.0 * ratio * series
    return np.asarray(logarithm + (high - low) / 2.0 - (high - low) * (high + low) / 12.0)


def _from_the_end(last: float, drops: Floats) -> Floats:
    """Add up drops from the last rank to the first; all terms are positive, so none cancel."""
    return np.asarray(np.cumsum(np.append(drops[1:], last)[::-1])[::-1])
