"""Binned ranks: far rows are counted in bins, which can be merged over shards."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Codes, Floats, Integers, Positions, check_count
from cellworth.knn.distances import Columns, ColumnScales
from cellworth.knn.draws import DrawnCoalitions, QueryBatch
from cellworth.knn.exact import Chances, RadiusVotes, choose_chances, score_vote
from cellworth.sampling.passes import LARGEST, TARGET_BITS, UNITS
from cellworth.sampling.semivalues import Semivalue, inside_chances
from cellworth.sampling.statistics import NumberSummary

# Capacity for nearest rows, relative to the expected number; if it is too small, count repeats.
_CAPACITY = 3
_MIN_CAPACITY = 64
_SAMPLE_SHARE = 16
_MIN_SAMPLE, _MAX_SAMPLE = 1024, 32768
# Beyond 32 million rows, the sample has one row in this many. With a fixed sample, the number of
# nearest rows would grow with the table.
_LARGE_SHARE = 1024
# The nearest rows must include this many rows of the sample, to determine where they end.
_MIN_NEAREST_IN_SAMPLE = 8
_MARGIN = 50


@dataclass(frozen=True)
class TargetScale:
    """Steps of numeric targets, in which far rows have integers: sums are the same in any order.

    Targets are counted from the mean. A step is 2**-31 of their range, rounded up to a power of 2.
    """

    center: float  # Mean of the training rows
    step: float
    # Sums of the targets of all training rows and of their squares, in steps.
    total: float
    squares: float

    @classmethod
    def from_summary(cls, rows: NumberSummary, low: float, high: float) -> TargetScale:
        """Choose the step for training rows, and validation rows between these ends as well."""
        reach = max(rows.ends[1], high) - min(rows.ends[0], low)
        center, step = rows.mean(), math.ldexp(1.0, math.frexp(reach)[1] - TARGET_BITS)
        total, squares = rows.deviations(center)
        return cls(center, step, total / step, squares / step**2)

    @property
    def units(self) -> float:
        """Units of values: 1 / K is the most by which a row can change the squared error."""
        return UNITS / (2 * (self.step * 2.0**TARGET_BITS) ** 2)

    def count_steps(self, targets: Floats) -> Floats:
        """Return how many steps targets are above the mean."""
        return (targets - self.center) / self.step


def get_units(scale: TargetScale | None) -> float:
    """Return the fixed-point units of sums of values; classes have no scale."""
    return UNITS if scale is None else scale.units


@dataclass(frozen=True, eq=False)
class Shard:
    """Some or all rows of a table, sorted by class; with a numeric target they are one group."""

    rows: Columns
    starts: Integers  # (n_classes + 1,): first row of each class
    positions: Integers  # (n_rows,): position of each row in the table
    targets: Floats | None = None  # (n_rows,): numeric targets in steps of TargetScale

    @classmethod
    def by_class(cls, rows: Columns, labels: NDArray[Any], n_classes: int) -> Shard:
        """Sort the rows of a table by the codes of their classes."""
        positions, starts = sort_by_class(labels, n_classes)
        return cls(rows.take(positions), starts, positions)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.positions)


def sort_by_class(labels: NDArray[Any], n_classes: int) -> tuple[Integers, Integers]:
    """Return the positions of rows sorted by the codes of their classes, and each class's start."""
    positions = np.argsort(labels, kind="stable").astype(np.int64)
    starts = np.searchsorted(labels[positions], np.arange(n_classes + 1))
    return positions, starts.astype(np.int64)


@dataclass(frozen=True)
class BinnedRanks:
    """Rank the nearest rows exactly and count the others in bins of similar rank.

    Time is linear in the number of rows; use it above about 50,000 rows. The total and the sums of
    columns stay exact. Errors of single values are up to 1% of the values' standard deviation.
    Numeric targets of far rows are rounded to 2**-31 of their range.

    Parameters
    ----------
    nearest : int, default=1000
        Approximate number of rows that are ranked exactly.
    width : float, default=0.02
        Range of the ranks in one bin, relative to the rank.

    See Also
    --------
    cellworth.KNNValuer

    Examples
    --------
    >>> from cellworth.knn import BinnedRanks
    >>> BinnedRanks().n_bins(1_000_000)
    349
    """

    nearest: int = 1000
    width: float = 0.02

    def __post_init__(self) -> None:
        check_count(self.nearest, "nearest of BinnedRanks")
        number = isinstance(self.width, int | float | np.number)
        if not number or not 1e-3 <= self.width <= 1:
            raise ValueError(
                "width of BinnedRanks must be a number between 0.001 and 1, got "
                f"{self.width!r}; the default is 0.02."
            )

    def n_bins(self, n_rows: int) -> int:
        """Return the number of bins for the far rows of a table."""
        ratio = max(n_rows / self.nearest, 1.0)
        return max(math.ceil(math.log(ratio) / math.log1p(self.width)), 1)


def edge_positions(bins: BinnedRanks, n_rows: int, n_neighbors: int) -> Integers:
    """Return positions of bin edges in the sorted sample; the nearest rows precede the first."""
    n_sample = _sample_size(n_rows)
    nearest = n_nearest(bins, n_rows, n_neighbors)
    ranks = nearest * (1.0 + bins.width) ** np.arange(bins.n_bins(n_rows) + 1)
    # In a small table all rows but the farthest are among the nearest.
    ranks = ranks[ranks < n_rows] if nearest < n_rows else np.array([n_rows])
    positions = (ranks / n_rows * n_sample).astype(np.int64)
    return np.unique(np.clip(positions, 0, n_sample - 1))


def n_nearest(bins: BinnedRanks, n_rows: int, n_neighbors: int) -> int:
    """Return how many rows to rank exactly: at least as many as determine where they end.

    If these are most rows, all rows are ranked exactly: bins for the rest would save little.
    """
    in_sample = math.ceil(_MIN_NEAREST_IN_SAMPLE * n_rows / _sample_size(n_rows))
    nearest = max(bins.nearest, in_sample, 2 * n_neighbors + _MARGIN)
    return max(nearest, n_rows) if 2 * nearest > n_rows else nearest


@dataclass(frozen=True, eq=False)
class PreparedBatch:
    """The data of a round that all shards need.

    A match is a row with the query's label; all other rows are mismatches. With a numeric target,
    the value of a row is a quadratic function of its target: there are three coefficients instead
    of two values.
    """

    number: int  # Number of the round
    batch: QueryBatch
    drawn: DrawnCoalitions
    # (n_pairs, n_edges): edges of the bins as 32-bit distances; the nearest rows lie before
    # the first.
    ends: NDArray[np.int32]
    # (n_pairs,): distance of the nearest row of the sample, to which the edges are relative.
    origins: Floats
    nothing: Floats  # (n_queries, 2 or 3): values of mismatches and matches without columns
    bases: Floats  # (n_queries,): baseline: the part of the utility that the total leaves out

    def __sizeof__(self) -> int:
        # A cluster reads this to schedule work where most data are.
        return self.ends.nbytes + self.drawn.weights.nbytes


class QueryRecord(NamedTuple):
    """What a shard records of single queries: squares of values, and sums over some cells.

    Arrays of size 0 are not recorded.
    """

    strata: Integers  # (n_queries,): stratum of each query, or another line of sums to add it to
    # (n_queries,): squared weight of each query; the mean weight is 1. With 0 it has no squares.
    squared_weights: Floats
    # (n_strata, n_results + 1, n_rows): sums of squared weight times squared value, by cell and,
    # in the last line, by row.
    squares: Floats
    row_lines: Codes  # (n_rows,): line of each row
    codes: Codes  # (n_results, n_lines): code of each cell of a line
    # (n_queries, n_codes): sums over all cells of a code, in fixed point.
    sums: Integers

    @classmethod
    def by_draw(cls, n_queries: int, n_draws: int) -> QueryRecord:
        """Return a record that adds up values by draw, as if the draws were strata."""
        nothing = cls.nothing(n_queries * n_draws)
        return nothing._replace(strata=np.tile(np.arange(n_draws), n_queries))

    @classmethod
    def nothing(cls, n_queries: int) -> QueryRecord:
        """Return the record of a round that needs none."""
        no_codes = np.zeros((1, 0), dtype=np.int32)
        return cls(
            np.zeros(n_queries, dtype=np.int64),
            np.zeros(n_queries),
            np.zeros((1, 1, 0)),
            no_codes[0],
            no_codes,
            np.zeros((n_queries, 0), dtype=np.int64),
        )


class Near(NamedTuple):
    """The nearest rows of one shard, pair by pair in the order of its rows."""

    rows: NDArray[Any]  # For each row, twice its distance plus 1 for a match; later its value
    starts: NDArray[np.uint32]  # (n_pairs + 1,): first entry of each pair
    targets: Floats | None = None  # Numeric targets; ``rows`` are plain distances then


@dataclass(frozen=True, eq=False)
class Summary:
    """Ranks of the rows of some shards; values follow from the summary of all shards."""

    # (n_pairs, 2, n_bins): mismatches and matches by bin, without the nearest rows. With a numeric
    # target, (n_pairs, n_bins, 4): rows, and sums of rounded targets and of halves of squares.
    counts: NDArray[Any]
    near: dict[int, Near]  # The nearest rows by shard number
    # For a single shard, so that distances are computed once: step of each row, shape (n_pairs or
    # more, n_rows), and positions of the nearest rows, in the order of Near.
    kept: tuple[NDArray[np.uint16], Integers] | None = None

    def __sizeof__(self) -> int:
        # A cluster reads this to schedule work where most data are.
        return self.counts.nbytes + sum(each.rows.nbytes for each in self.near.values())

    def merge(self, other: Summary) -> Summary:
        """Add the counts and combine the lists of nearest rows."""
        return Summary(self.counts + other.counts, self.near | other.near)


# Values of rows for every pair:
# - of far rows, (n_pairs, 2, n_bins) of mismatches and matches by bin, or (n_pairs, n_bins, 3),
# - of the nearest rows by shard number,
# - their sum over all rows, and the utility of all rows, both (n_pairs,).
RankValues = tuple[Floats, dict[int, Near], Floats, Floats]


@dataclass(frozen=True, eq=False)
class Ranker:
    """Ranks the rows of a table in bins; it is the same for all rounds."""

    scales: ColumnScales
    players: Integers  # (n_columns,): player of each column, in the order of the scales
    sample: Columns  # Rows whose distances determine the edges of the bins
    class_counts: Integers  # (n_classes,): number of rows per class
    bins: BinnedRanks
    n_neighbors: int
    semivalue: Semivalue
    n_players: int  # All row players of the semivalue; the table may have only some of them
    target_scale: TargetScale | None = None  # For a numeric target; there is one class then
    radius: float | None = None  # If rows within it vote: bins are inside and outside

    @cached_property
    def within(self) -> RadiusVotes | None:
        """Values of rows within the radius, if there is one."""
        if self.radius is None:
            return None
        return RadiusVotes(self.scales.measure_radius(self.radius), self.semivalue, self.n_players)

    @cached_property
    def chances(self) -> Chances:
        """Probabilities by rank."""
        return choose_chances(self.semivalue, self.n_players, self.n_rows, self.n_neighbors)

    @property
    def n_nearest(self) -> int:
        """Number of rows that are ranked exactly."""
        return 0 if self.within else n_nearest(self.bins, self.n_rows, self.n_neighbors)

    @property
    def n_rows(self) -> int:
        """Number of rows of the table."""
        return int(self.class_counts.sum())

    @property
    def units(self) -> float:
        """Fixed-point units of the sums of values."""
        return get_units(self.target_scale)

    def prepare(
        self,
        number: int,
        batch: QueryBatch,
        drawn: DrawnCoalitions,
        *,
        empty: str,
        with_label: bool,
    ) -> PreparedBatch:
        """Find the bins of every pair, and the values without columns."""
        ends, origins = self._find_edges(batch, drawn)
        alone = np.array([self.without_columns(label) for label in batch.labels.tolist()])
        # Without rows, the prediction of a numeric target is the mean.
        without_rows = 0.0 if self.target_scale is None else -(batch.labels**2)
        if empty == "zero":
            alone = np.zeros_like(alone)
            joins_none = inside_chances(self.semivalue, self.n_players, self.n_rows - 1, 0)
            alone[:, 0] = float(joins_none) * without_rows
            without_rows = 0.0
        bases = np.where(with_label, without_rows, alone[:, -1])
        # Kernels are compiled for contiguous arrays.
        nothing = np.ascontiguousarray(alone[:, :-1])
        return PreparedBatch(number, batch, drawn, ends, origins, nothing, bases)

    def _find_edges(
        self, batch: QueryBatch, drawn: DrawnCoalitions
    ) -> tuple[NDArray[np.int32], Floats]:
        """Return the edges of the bins for every pair, from the sample, and their origins."""
        from cellworth.knn import binned_kernels as bin_kernels

        if self.within is not None:
            # The first bin has a distance of 0 from the origin or less: no row is before it.
            ends = np.zeros((batch.n_pairs, 1), dtype=np.int32)
            return ends, np.full(batch.n_pairs, self.within.limit + 1.0)
        n_sample = self.sample.numbers.shape[1]
        edges = edge_positions(self.bins, self.n_rows, self.n_neighbors)
        ends = np.empty((batch.n_pairs, len(edges)), dtype=np.int32)
        origins = np.empty(batch.n_pairs)
        for query in range(len(batch.labels)):
            pairs = slice(*batch.pair_starts[query : query + 2])
            ordinals = np.empty((pairs.stop - pairs.start, n_sample), dtype=np.float32)
            bin_kernels.sample_distances(
                self.sample, self.scales, self.players, batch, drawn.steps, query,
                origins[pairs], ordinals,
            )  # fmt: skip
            ends[pairs] = np.sort(ordinals.view(np.int32), axis=1)[:, edges]
        return ends, origins

    def count(
        self,
        number: int,
        shard: Shard,
        prepared: PreparedBatch,
        *,
        keep: NDArray[np.uint16] | None = None,
    ) -> Summary:
        """Count the rows of a shard by bin, and list the nearest of them.

        ``keep`` is for a table of one shard: an array with a line for each pair or more, in which
        steps of rows are kept, so that :meth:`accumulate` need not compute distances again.
        """
        from cellworth.knn import binned_kernels as bin_kernels

        batch, steps, ends = prepared.batch, prepared.drawn.steps, prepared.ends
        expected = math.ceil(self.n_nearest * shard.n_rows / self.n_rows)
        capacity = min(_CAPACITY * expected + _MIN_CAPACITY, shard.n_rows)
        is_class = self.target_scale is None
        # One bin after each edge, and one for the distance of the first edge alone.
        n_pairs, n_bins = len(ends), ends.shape[1] + 1
        shape, dtype = ((2, n_bins), np.uint32) if is_class else ((n_bins, 4), np.int64)
        others: tuple[type[Any], ...] = () if is_class else (np.float64,)
        if keep is not None:
            others = (np.int64,)
        while True:
            counts = np.zeros((n_pairs, *shape), dtype=dtype)
            near = tuple(np.empty((n_pairs, capacity), dtype=each) for each in (np.int64, *others))
            n_near = np.zeros(n_pairs, dtype=np.int64)
            bin_kernels.count(
                shard.rows, shard.starts, shard.targets, self.scales, self.players, batch, steps,
                (ends, prepared.origins), counts, near, n_near, keep,
            )  # fmt: skip
            if n_near.max() <= capacity:
                listed = [
                    np.concatenate([line[:n] for line, n in zip(lines, n_near, strict=True)])
                    for lines in near
                ]
                # 32 bits halve the bytes that are sent.
                starts = np.concatenate([[0], np.cumsum(n_near)]).astype(np.uint32)
                if keep is not None:
                    nearest = {number: Near(listed[0], starts)}
                    return Summary(counts, nearest, (keep, listed[1]))
                return Summary(counts, {number: Near(listed[0], starts, *listed[1:])})
            capacity = int(n_near.max())

    def finalize(self, batch: QueryBatch, summary: Summary) -> RankValues:
        """Compute the values of rows from the summary of all shards."""
        if self.within is not None:
            return _value_within(self.within, summary)
        n_pairs, is_class = len(summary.counts), self.target_scale is None
        all_counts = summary.counts.astype(np.int64)
        far = np.empty(all_counts.shape if is_class else (*all_counts.shape[:2], 3))
        sums, utilities = np.empty(n_pairs), np.empty(n_pairs)
        positions, starts = _pair_by_pair(summary.near)
        near = np.empty(starts[-1], dtype=np.int64)
        targets = np.empty(0 if is_class else len(near))
        for number, each in summary.near.items():
            near[positions(number)] = each.rows
            if each.targets is not None:
                targets[positions(number)] = each.targets
        values = np.empty(len(near))
        at = self.chances.at if is_class else self.chances.pairs_at
        head = at(np.arange(np.diff(starts).max() + 1))
        of_bins = all_counts.sum(axis=1) if is_class else all_counts[:, :, 0]
        begins = np.cumsum(of_bins, axis=1) + np.diff(starts)[:, None]
        ranks = np.column_stack([np.diff(starts), begins])
        at_bins = [each.reshape(ranks.shape) for each in at(ranks.ravel())]
        labels = None if is_class else np.repeat(batch.labels, np.diff(batch.pair_starts))
        for pair in range(n_pairs):
            mine = slice(*starts[pair : pair + 2])
            chances = head, tuple(each[pair] for each in at_bins)
            found = values[mine], far[pair]
            if labels is None:
                of_pair = self._value_pair(all_counts[pair], near[mine], chances, found)
            else:
                nearest = near[mine], targets[mine]
                of_pair = self._value_target_pair(
                    labels[pair], all_counts[pair], nearest, chances, found
                )
            sums[pair], utilities[pair] = of_pair
        split = {n: Near(values[positions(n)], each.starts) for n, each in summary.near.items()}
        return far, split, sums, utilities

    def _value_pair(
        self, counts: Integers, near: Integers, chances: Any, found: tuple[Floats, Floats]
    ) -> tuple[float, float]:
        """Compute the values of near and far rows for a pair; return their sum and the utility."""
        from cellworth.knn import binned_kernels as bin_kernels

        # Equal entries are at the same distance and both match or not, so their order is free.
        order = np.argsort(near)
        ordered, values = near[order], np.empty(len(order))
        bin_kernels.value_bins(counts, ordered, *chances, found[1], values)
        found[0][order] = values
        matches = bin_kernels.nearest_matches(counts, ordered, self.n_neighbors)
        return (counts * found[1]).sum() + values.sum(), matches / self.n_neighbors

    def _value_target_pair(
        self,
        label: float,
        counts: Integers,
        nearest: tuple[Integers, Floats],
        chances: Any,
        found: tuple[Floats, Floats],
    ) -> tuple[float, float]:
        """Value near and far rows of one pair for a numeric target; return sum and utility."""
        from cellworth.knn import binned_kernels as bin_kernels

        step = cast(TargetScale, self.target_scale).step
        order = np.argsort(nearest[0])
        if (np.diff(nearest[0][order]) == 0).any():
            # Sums over ties must not depend on their order; this takes longer.
            order = np.lexsort(nearest[::-1])
        near, targets = (each[order] for each in nearest)
        values, query = np.empty(len(order)), (label / step, self.n_neighbors)
        bin_kernels.value_target_bins(counts, near, targets, query, *chances, found[1], values)
        found[0][order] = values = values * step**2
        found[1][:] *= step**2
        error = bin_kernels.nearest_error(counts, near, targets, *query)
        return (_powers(counts) * found[1]).sum() + values.sum(), -error * step**2

    def multiplicities(self, label: int | float) -> NDArray[Any]:
        """Return by what to multiply the values without columns, to add them up over all rows."""
        if self.target_scale is not None:
            return np.array([self.n_rows, self.target_scale.total, self.target_scale.squares])
        code = int(label)
        matches = self.class_counts[code] if code < len(self.class_counts) else 0
        return np.array([self.n_rows - matches, matches])

    def without_columns(self, label: int | float) -> tuple[float, ...]:
        """Return the values of mismatches and matches if all rows tie, and the utility."""
        from cellworth.knn import binned_kernels as bin_kernels

        n_rows = self.n_rows
        if self.target_scale is not None:
            return self._target_without_columns(label, self.target_scale)
        matches = int(self.multiplicities(label)[1])
        if self.within is not None:
            inside = np.array([[n_rows - matches, matches]])
            return *_value_inside(self.within, inside)[0].tolist(), matches / n_rows
        single, running = self.chances.at(np.array([0, n_rows]))
        chances = float(single[0]), float(single[1]), float(running[0]), float(running[1])
        of_other, of_match, _ = bin_kernels.value_ties(0, n_rows, matches, chances, 0.0)
        utility = min(self.n_neighbors, n_rows) * matches / n_rows / self.n_neighbors
        return of_other, of_match, utility

    def _target_without_columns(self, label: float, scale: TargetScale) -> tuple[float, ...]:
        """Return the coefficients of the values if all rows tie, and the utility."""
        from cellworth.knn import binned_kernels as bin_kernels
        from cellworth.knn import kernels

        n_rows, k, asked = self.n_rows, self.n_neighbors, label / scale.step
        ends = (each.tolist() for each in self.chances.pairs_at(np.array([0, n_rows])))
        coefficients, _ = bin_kernels.value_target_ties(
            0, n_rows, (0.0, scale.total, scale.squares), (asked, k), *zip(*ends, strict=True),
            (0.0, 0.0, 0.0),
        )  # fmt: skip
        taken = min(k, n_rows)
        variance = kernels.variance_of_draw(taken, n_rows, scale.total, scale.squares)
        error = (taken * scale.total / (n_rows * k) - asked) ** 2 + variance / k**2
        return tuple(each * scale.step**2 for each in (*coefficients, -error))

    def accumulate(
        self,
        shard: Shard,
        prepared: PreparedBatch,
        far: Floats,
        near: Near,
        *,
        into: NDArray[np.int64],
        queries: tuple[int, int] | None = None,
        record: QueryRecord | None = None,
        kept: tuple[NDArray[np.uint16], Integers] | None = None,
    ) -> None:
        """Add the values of rows to the cells of a shard, in fixed point.

        ``far`` and ``near`` are those of RankValues. ``into`` has shape (n_results, n_rows), or
        (n_strata, n_results, n_rows) for sums by stratum. ``queries`` is the first one and one
        after the last; None means all. ``record`` is added to as well. ``kept`` is what the count
        kept, if it did.
        """
        from cellworth.knn import binned_kernels as bin_kernels

        batch, drawn = prepared.batch, prepared.drawn
        # The value of a row is at most the vote of one neighbor, or the only one within a radius.
        most = 1.0 if self.within else 1.0 / self.n_neighbors
        largest = np.abs(drawn.weights).max() * batch.weights.max() * most
        if largest >= LARGEST / 2:
            raise ValueError(
                f"weights of coalitions must be below {LARGEST / 2:.3g} votes for binned ranks, "
                f"got {largest:.3g}; use another sampler, or exact ranks."
            )
        some = queries or (0, len(batch.labels))
        weights = drawn.weights, drawn.nothing, batch.weights * self.units
        row_values = far, near.rows, near.starts, prepared.nothing
        seen = QueryRecord.nothing(len(batch.labels)) if record is None else record
        into = into[np.newaxis] if into.ndim == 2 else into
        bin_kernels.accumulate(
            shard.rows, shard.starts, shard.targets, self.scales, self.players, batch, drawn.steps,
            (prepared.ends, prepared.origins), some, weights, row_values, into, seen, kept,
        )  # fmt: skip


def _value_within(radius: RadiusVotes, summary: Summary) -> RankValues:
    """Compute the values of rows if those of the first bin vote."""
    inside = summary.counts[:, :, 0].astype(np.int64)
    far = np.zeros(summary.counts.shape)
    far[:, :, 0] = _value_inside(radius, inside)
    near = {n: Near(np.empty(0), each.starts) for n, each in summary.near.items()}
    utilities = inside[:, 1] / np.maximum(inside.sum(axis=1), 1)
    return far, near, (inside * far[:, :, 0]).sum(axis=1), utilities


def _value_inside(radius: RadiusVotes, inside: Integers) -> Floats:
    """Return the values of mismatches and matches from their numbers, shape (n_pairs, 2)."""
    kept, lost = radius.find_terms(inside.sum(axis=1))
    # A match has one other match less.
    return np.asarray(np.array([0.0, 1.0]) * (kept + lost) - lost * inside[:, 1:])


def _powers(sums: Integers) -> Floats:
    """Return the number of rows and the sums of targets and of their squares as floats."""
    squares = sums[..., 2] * 2.0**TARGET_BITS + sums[..., 3]
    return np.stack([sums[..., 0], sums[..., 1], squares], axis=-1)


def _pair_by_pair(near: dict[int, Near]) -> tuple[Callable[[int], Integers], Integers]:
    """Concatenate the shards' lists of nearest rows, pair by pair.

    Return a function from a shard's number to the positions of its rows, and each pair's start.
    """
    lengths: dict[int, Integers] = {
        n: np.diff(each.starts).astype(np.int64) for n, each in near.items()
    }
    starts = np.concatenate([[0], np.cumsum(sum(lengths.values()))])
    begins, begin = {}, starts[:-1]
    for number, length in lengths.items():
        begins[number] = begin
        begin = begin + length

    def positions(number: int) -> Integers:
        first, length = near[number].starts[:-1].astype(np.int64), lengths[number]
        return np.repeat(begins[number] - first, length) + np.arange(length.sum())

    return positions, starts


def sample_positions(n_rows: int) -> Positions:
    """Return the rows that determine the edges of bins: one from each of equal parts of the table.

    They depend on the number of rows alone, not on the shards.
    """
    n_sample = _sample_size(n_rows)
    within = np.random.Generator(np.random.Philox(1)).random(n_sample)
    begins = np.arange(n_sample + 1) * n_rows // n_sample
    return begins[:-1] + (within * np.diff(begins)).astype(np.int64)


def _sample_size(n_rows: int) -> int:
    most = max(_MAX_SAMPLE, n_rows // _LARGE_SHARE)
    return min(n_rows, max(min(n_rows // _SAMPLE_SHARE, most), _MIN_SAMPLE))


def count_votes_in_summary(ranker: Ranker, batch: QueryBatch, summary: Summary) -> Floats:
    """Return whether the vote of all rows is correct, for each query.

    Summaries count matches and mismatches, which suffices for two classes. The result is NaN for
    more classes and for a numeric target.
    """
    from cellworth.knn import binned_kernels as bin_kernels

    if ranker.target_scale is not None or len(ranker.class_counts) > 2:
        return np.full(len(batch.labels), np.nan)
    scores = np.empty(len(batch.labels))
    for query, pair in enumerate((batch.pair_starts[1:] - 1).tolist()):
        if ranker.within is not None:
            inside = summary.counts[pair, :, 0].astype(np.int64)
            scores[query] = score_vote(inside, np.zeros_like(inside), 0, 1)
            continue
        lists = (each.rows[slice(*each.starts[pair : pair + 2])] for each in summary.near.values())
        near = np.sort(np.concatenate(list(lists)))
        surely, tied = np.zeros((2, 2), dtype=np.int64)
        positions = bin_kernels.count_binned_votes(
            summary.counts[pair].astype(np.int64), near, ranker.n_neighbors, surely, tied
        )
        scores[query] = score_vote(surely, tied, positions, 1)
    return scores


def count_votes_in_rows(ranker: Ranker, batch: QueryBatch, shard: Shard) -> Floats:
    """Return whether the vote is correct, for each query, from a shard that has all rows.

    Unlike :func:`count_votes_in_summary`, it serves any number of classes.
    """
    from cellworth.knn import kernels

    rows, scales, n_rows = shard.rows, ranker.scales, shard.n_rows
    n_nearest = min(ranker.n_neighbors, n_rows)
    # One player has all columns.
    one_player, lines = np.zeros_like(ranker.players), np.empty((2, n_rows))
    scores = np.empty(len(batch.labels))
    for query, label in enumerate(batch.labels.tolist()):
        kernels.measure(rows, scales, one_player, batch, query, 0, n_rows, lines)
        distances = lines[0]
        farthest = np.partition(distances, n_nearest - 1)[n_nearest - 1]
        if ranker.within is not None:
            # All rows up to the limit vote, and none tie.
            farthest = ranker.within.limit + 0.5
            n_nearest = int((distances < farthest).sum())
        surely, tied = (
            np.diff(np.append(0, np.cumsum(among))[shard.starts])
            for among in (distances < farthest, distances == farthest)
        )
        scores[query] = score_vote(surely, tied, n_nearest - int(surely.sum()), label)
    return scores
