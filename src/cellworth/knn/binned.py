"""Binned values: ranks counted in bins, which merge over shards."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Codes, Floats, Integers, Positions, check_count
from cellworth.knn.distances import Columns, ColumnScales
from cellworth.knn.exact import Chances, Query, chance_of_right_vote, choose_chances, find_steps
from cellworth.sampling.column_samplers import Coalitions
from cellworth.sampling.passes import LARGEST, UNITS
from cellworth.sampling.semivalues import Semivalue

# Room for more of the nearest than a shard should hold; should it not do, there is a second pass.
_ROOM = 3
_LEAST_ROOM = 64
_SAMPLE_SHARE = 16
_LEAST_SAMPLE, _MOST_SAMPLE = 1024, 32768
# Of more than 32 million rows, one in this many: else ever more rows would count as nearest.
_LARGE_SHARE = 1024
# So many rows of the sample must be among the nearest, to tell where these end.
_LEAST_NEAREST_IN_SAMPLE = 8
_MARGIN = 50


class Steps(NamedTuple):
    """Ways from coalition to coalition, of all designs one after the other.

    Parameters
    ----------
    starts : array of shape (n_designs + 1,)
        First coalition of each design.
    bases, firsts, toggles : arrays
        As in kernels.fill_keys.
    """

    starts: Integers
    bases: Integers
    firsts: Integers
    toggles: Integers


@dataclass(frozen=True, eq=False)
class DrawnCoalitions:
    """Coalitions of all designs of a pass, one after the other, and what they count.

    Parameters
    ----------
    steps : Steps
    weights : array of shape (n_coalitions of all, n_results)
    nothing : array of shape (n_designs, n_results)
        What the values without any column count.
    """

    steps: Steps
    weights: Floats
    nothing: Floats

    @classmethod
    def of(cls, drawn: Sequence[tuple[Coalitions, Floats]]) -> DrawnCoalitions:
        """Put designs together; their weights have a last line for what no column is worth."""
        members = [coalitions.members for coalitions, _ in drawn]
        parts = [find_steps(each) for each in members]
        bases, toggles = (np.concatenate([part[k] for part in parts]) for k in (0, 2))
        lengths = np.concatenate([np.diff(part[1]) for part in parts])
        starts = np.cumsum([0] + [len(each) for each in members])
        firsts = np.concatenate([[0], np.cumsum(lengths)])
        weights = np.vstack([weights[:-1] for _, weights in drawn])
        nothing = np.array([weights[-1] for _, weights in drawn])
        return cls(Steps(starts, bases, firsts, toggles), weights, nothing)


class QueryBatch(NamedTuple):
    """Queries of a round; a pair is one of them with one of its coalitions.

    Parameters
    ----------
    numbers, categories, lines : arrays of shape (n_queries, n_columns of the kind)
        Cells of the queries, and where distances to them begin in tables; as in Query.
    labels : array of shape (n_queries,)
        Codes of classes.
    orders : array of shape (n_queries, n_results)
        Player that stands for each name in a design.
    draws : array of shape (n_queries,)
        Which of the designs each query is ranked on.
    pair_starts : array of shape (n_queries + 1,)
        First pair of each query.
    weights : array of shape (n_queries,)
        Weight of each query.
    """

    numbers: Floats
    categories: Codes
    lines: Integers
    labels: Integers
    orders: Integers
    draws: Integers
    pair_starts: Integers
    weights: Floats

    @classmethod
    def of(
        cls,
        queries: Sequence[Query],
        orders: Sequence[Integers],
        draws: Sequence[int],
        weights: Sequence[float],
        draw_coalitions: DrawnCoalitions,
    ) -> QueryBatch:
        """Put queries together."""
        lengths = np.diff(draw_coalitions.steps.starts)[list(draws)]
        return cls(
            np.array([query.numbers for query in queries]),
            np.array([query.categories for query in queries]),
            np.array([query.lines for query in queries]),
            np.array([query.label for query in queries]).astype(np.int64),
            np.array(orders, dtype=np.int64),
            np.array(draws, dtype=np.int64),
            np.concatenate([[0], np.cumsum(lengths)]),
            np.array(weights, dtype=np.float64),
        )

    @property
    def n_pairs(self) -> int:
        """Pairs of all queries."""
        return int(self.pair_starts[-1])


@dataclass(frozen=True, eq=False)
class Shard:
    """Rows of a table, or all of them, grouped by class.

    Parameters
    ----------
    rows : Columns
    starts : array of shape (n_classes + 1,)
        Where the rows of each class begin.
    positions : array of shape (n_rows,)
        Where each row stands in the whole table.
    """

    rows: Columns
    starts: Integers
    positions: Integers

    @classmethod
    def of(cls, rows: Columns, labels: NDArray[Any], n_classes: int) -> Shard:
        """Group all rows of a table by the codes of their classes."""
        positions = np.argsort(labels, kind="stable").astype(np.int64)
        starts = np.searchsorted(labels[positions], np.arange(n_classes + 1))
        return cls(rows.take(positions), starts.astype(np.int64), positions)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.positions)


@dataclass(frozen=True)
class BinnedRanks:
    """Rank the nearest rows exactly and count the others in bins of like rank.

    Time grows with the number of rows, not faster; worth it above some 50,000 rows. The total and
    the sums of columns stay exact; single values are off by up to a percent of their spread. For
    class labels.

    Parameters
    ----------
    nearest : int, default=1000
        Rows that are ranked exactly, about.
    width : float, default=0.02
        How far ranks in one bin are apart, relative to the rank.

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
                f"width of BinnedRanks is {self.width!r}; give a number between 0.001 and 1."
            )

    def n_bins(self, n_rows: int) -> int:
        """How many bins the far ones of so many rows fall into."""
        ratio = max(n_rows / self.nearest, 1.0)
        return max(math.ceil(math.log(ratio) / math.log1p(self.width)), 1)


def edge_positions(bins: BinnedRanks, n_rows: int, n_neighbors: int) -> Integers:
    """Places in the sorted sample at which bins begin; the nearest rows end at the first."""
    n_sample = _sample_size(n_rows)
    nearest = n_nearest(bins, n_rows, n_neighbors)
    ranks = nearest * (1.0 + bins.width) ** np.arange(bins.n_bins(n_rows) + 1)
    # Of a small table all rows but the farthest are among the nearest.
    ranks = ranks[ranks < n_rows] if nearest < n_rows else np.array([n_rows])
    positions = (ranks / n_rows * n_sample).astype(np.int64)
    distinct: NDArray[np.int64] = np.unique(np.clip(positions, 0, n_sample - 1))
    return distinct


def n_nearest(bins: BinnedRanks, n_rows: int, n_neighbors: int) -> int:
    """How many rows are to be ranked exactly: as asked, but enough to find where they end.

    Where these are most rows, all are: bins for the few others would save little.
    """
    in_sample = math.ceil(_LEAST_NEAREST_IN_SAMPLE * n_rows / _sample_size(n_rows))
    nearest = max(bins.nearest, in_sample, 2 * n_neighbors + _MARGIN)
    return max(nearest, n_rows) if 2 * nearest > n_rows else nearest


@dataclass(frozen=True, eq=False)
class PreparedBatch:
    """What shards must know of a round.

    Parameters
    ----------
    batch : Asked
    draw_coalitions : Designs
    ends : array of shape (n_pairs, n_edges)
        Distances, as ordered by 32 bits, at which the nearest rows end and bins begin.
    origins : array of shape (n_pairs,)
        Distance of the nearest row of the sample, from which these are counted.
    nothing : array of shape (n_queries, 2)
        What other rows and matches are worth where no column plays.
    bases : array of shape (n_queries,)
        What the total leaves out.
    """

    batch: QueryBatch
    draw_coalitions: DrawnCoalitions
    ends: NDArray[np.int32]
    origins: Floats
    nothing: Floats
    bases: Floats

    def __sizeof__(self) -> int:
        """Bytes of its arrays: a cluster asks, to keep work where most of it is."""
        return self.ends.nbytes + self.draw_coalitions.weights.nbytes


class Near(NamedTuple):
    """The nearest rows of one shard, pair by pair in the order of its rows.

    Parameters
    ----------
    rows : array
        Of each: twice the distance plus 1 for a match, or what it is worth.
    starts : array of shape (n_pairs + 1,)
        Where each pair begins.
    """

    rows: NDArray[Any]
    starts: NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class Summary:
    """What some shards tell about ranks; the summary of all of them tells what rows are worth.

    Parameters
    ----------
    counts : array of shape (n_pairs, 2, n_bins)
        Other rows and matches, by bin; the nearest are not counted.
    near : dict
        The nearest rows by number of the shard.
    """

    counts: NDArray[np.uint32]
    near: dict[int, Near]

    def __sizeof__(self) -> int:
        """Bytes of its arrays: a cluster asks, to keep work where most of it is."""
        return self.counts.nbytes + sum(rows.nbytes for rows, _ in self.near.values())

    def merge(self, other: Summary) -> Summary:
        """Summary of the shards of both: counts add up, lists stand side by side."""
        return Summary(self.counts + other.counts, self.near | other.near)


@dataclass(frozen=True, eq=False)
class RankValues:
    """What rows are worth for every pair.

    Parameters
    ----------
    far : array of shape (n_pairs, 2, n_bins)
        Of other rows and of matches, by bin.
    near : dict
        Of the nearest rows, by number of the shard.
    sums : array of shape (n_pairs,)
        Of all rows together.
    utilities : array of shape (n_pairs,)
        Utility of all rows.
    """

    far: Floats
    near: dict[int, Near]
    sums: Floats
    utilities: Floats

    def of_full_table(self, batch: QueryBatch) -> Floats:
        """Utility of the whole table for each query: the last coalition is everyone."""
        return self.utilities[batch.pair_starts[1:] - 1]


@dataclass(frozen=True, eq=False)
class Ranker:
    """What does not change from round to round: the whole table, as far as ranks go.

    Parameters
    ----------
    scales : Rulers
    players : array of shape (n_columns,)
        Player that each column belongs to, in the order of the rulers.
    sample : Columns
        Rows whose distances tell where bins begin.
    edge_positions : array
        Places in the sorted sample at which bins begin.
    class_counts : array of shape (n_classes,)
        Rows of each class.
    n_nearest, n_neighbors : int
    chances : Chances
    """

    scales: ColumnScales
    players: Integers
    sample: Columns
    edge_positions: Integers
    class_counts: Integers
    n_nearest: int
    n_neighbors: int
    chances: Chances

    @classmethod
    def of(
        cls,
        scales: ColumnScales,
        players: Integers,
        sample: Columns,
        class_counts: Integers,
        *,
        bins: BinnedRanks,
        n_neighbors: int,
        semivalue: Semivalue,
        n_players: int,
    ) -> Ranker:
        """Rank the rows of a table by bins, from the rows at its sample_places.

        Of ``n_players`` rows under ``semivalue``, those of the table may train.
        """
        n_rows = int(class_counts.sum())
        return cls(
            scales,
            players,
            sample._replace(numbers=sample.numbers.astype(np.float64, copy=False)),
            edge_positions(bins, n_rows, n_neighbors),
            class_counts,
            n_nearest(bins, n_rows, n_neighbors),
            n_neighbors,
            choose_chances(semivalue, n_players, n_rows, n_neighbors),
        )

    @property
    def n_rows(self) -> int:
        """Rows of the whole table."""
        return int(self.class_counts.sum())

    def prepare(
        self, batch: QueryBatch, draw_coalitions: DrawnCoalitions, *, empty: str, with_label: bool
    ) -> PreparedBatch:
        """Find where bins begin: an edge per place of the sample, for every pair."""
        from cellworth.knn import binned_kernels as bin_kernels

        n_sample = self.sample.numbers.shape[1]
        ends = np.empty((batch.n_pairs, len(self.edge_positions)), dtype=np.int32)
        origins = np.empty(batch.n_pairs)
        for query in range(len(batch.labels)):
            pairs = slice(*batch.pair_starts[query : query + 2])
            ordinals = np.empty((pairs.stop - pairs.start, n_sample), dtype=np.float32)
            bin_kernels.sample_distances(
                self.sample, self.scales, self.players, batch, draw_coalitions.steps, query,
                origins[pairs], ordinals,
            )  # fmt: skip
            ordered = np.sort(ordinals.view(np.int32), axis=1)
            ends[pairs] = ordered[:, self.edge_positions]
        alone = np.array([self.without_columns(label) for label in batch.labels.tolist()])
        if empty == "zero":
            alone = np.zeros_like(alone)
        bases = np.where(with_label, 0.0, alone[:, 2])
        # Kernels are compiled for contiguous arrays, however many queries there are.
        nothing = np.ascontiguousarray(alone[:, :2])
        return PreparedBatch(batch, draw_coalitions, ends, origins, nothing, bases)

    def count(self, number: int, shard: Shard, prepared: PreparedBatch) -> Summary:
        """Count the rows of a shard by bin, and list the nearest of them."""
        from cellworth.knn import binned_kernels as bin_kernels

        batch, draw_coalitions, ends = prepared.batch, prepared.draw_coalitions, prepared.ends
        expected = math.ceil(self.n_nearest * shard.n_rows / self.n_rows)
        room = min(_ROOM * expected + _LEAST_ROOM, shard.n_rows)
        while True:
            # A bin from each edge on, and one for the distance of the first edge alone.
            counts = np.zeros((len(ends), 2, ends.shape[1] + 1), dtype=np.uint32)
            near = np.empty((len(ends), room), dtype=np.int64)
            n_near = np.zeros(len(ends), dtype=np.int64)
            bin_kernels.count(
                shard.rows, shard.starts, self.scales, self.players, batch, draw_coalitions.steps,
                (ends, prepared.origins), counts, near, n_near,
            )  # fmt: skip
            if n_near.max() <= room:
                listed = [line[:n] for line, n in zip(near, n_near, strict=True)]
                return Summary(counts, {number: Near(np.concatenate(listed), _starts(n_near))})
            room = int(n_near.max())

    def finalize(self, summary: Summary) -> RankValues:
        """Tell what rows are worth, from the summary of all of them."""
        from cellworth.knn import binned_kernels as bin_kernels

        n_pairs = len(summary.counts)
        far, sums, utilities = np.empty(summary.counts.shape), np.empty(n_pairs), np.empty(n_pairs)
        positions, starts = _pair_by_pair(summary.near)
        near = np.empty(starts[-1], dtype=np.int64)
        for number, each in summary.near.items():
            near[positions(number)] = each.rows
        values = np.empty(len(near))
        head = self.chances.at(np.arange(np.diff(starts).max() + 1))
        all_counts = summary.counts.astype(np.int64)
        begins = np.cumsum(all_counts.sum(axis=1), axis=1) + np.diff(starts)[:, None]
        ranks = np.column_stack([np.diff(starts), begins])
        single, running = (each.reshape(ranks.shape) for each in self.chances.at(ranks.ravel()))
        for pair in range(n_pairs):
            counts = all_counts[pair]
            mine = slice(*starts[pair : pair + 2])
            # Rows that tie match alike or not at all: it does not matter which comes first.
            order = np.argsort(near[mine])
            ordered, sorted_values = near[mine][order], np.empty(len(order))
            bin_kernels.value_bins(
                counts, ordered, head, (single[pair], running[pair]), far[pair], sorted_values
            )
            sums[pair] = (counts * far[pair]).sum() + sorted_values.sum()
            utilities[pair] = bin_kernels.nearest_matches(counts, ordered, self.n_neighbors)
            values[mine][order] = sorted_values
        split = {n: Near(values[positions(n)], each.starts) for n, each in summary.near.items()}
        return RankValues(far, split, sums, utilities / self.n_neighbors)

    def without_columns(self, label: int) -> tuple[float, float, float]:
        """Values of other rows and of matches where all rows tie, and the utility of all rows."""
        from cellworth.knn import binned_kernels as bin_kernels

        n_rows = self.n_rows
        matches = int(self.class_counts[label]) if 0 <= label < len(self.class_counts) else 0
        single, running = self.chances.at(np.array([0, n_rows]))
        chances = float(single[0]), float(single[1]), float(running[0]), float(running[1])
        of_other, of_match, _ = bin_kernels.value_ties(0, n_rows, matches, chances, 0.0)
        utility = min(self.n_neighbors, n_rows) * matches / n_rows / self.n_neighbors
        return of_other, of_match, utility

    def accumulate(
        self,
        shard: Shard,
        prepared: PreparedBatch,
        far: Floats,
        near: Near,
        *,
        into: NDArray[np.int64],
        queries: tuple[int, int] | None = None,
    ) -> None:
        """Add what rows are worth to the cells of a shard, in units.

        Parameters
        ----------
        shard, prepared
            As in count.
        far : array of shape (n_pairs, 2, n_bins)
            What other rows and matches are worth, by bin.
        near : Near
            What the nearest rows of this shard are worth.
        into : array of shape (n_results, n_rows of the shard)
            Added to.
        queries : tuple of int or None
            First and one after the last; None: all.
        """
        from cellworth.knn import binned_kernels as bin_kernels

        batch, draw_coalitions = prepared.batch, prepared.draw_coalitions
        # No row is worth more than the vote of one neighbour.
        largest = np.abs(draw_coalitions.weights).max() * batch.weights.max() / self.n_neighbors
        if largest >= LARGEST / 2:
            raise ValueError(
                f"coalitions count up to {largest:.3g} votes in this design, more than sums in "
                "integers hold; use another design, or rank exactly."
            )
        some = queries or (0, len(batch.labels))
        counted = draw_coalitions.weights, draw_coalitions.nothing, batch.weights * UNITS
        bin_kernels.accumulate(
            shard.rows, shard.starts, self.scales, self.players, batch, draw_coalitions.steps,
            (prepared.ends, prepared.origins), some, counted, (far, *near, prepared.nothing), into,
        )  # fmt: skip


def _starts(lengths: Integers) -> NDArray[np.uint32]:
    # They travel: half the bytes are enough.
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.uint32)


def _pair_by_pair(near: dict[int, Near]) -> tuple[Callable[[int], Integers], Integers]:
    """Where each shard's lists stand when all lists of a pair stand together, shard by shard.

    Returns where the rows of a shard go, and where each pair begins.
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
    """Rows whose distances tell where bins begin: one from each of equal parts of the table.

    They depend on the number of rows alone, however the table is cut into shards.
    """
    n_sample = _sample_size(n_rows)
    within = np.random.Generator(np.random.Philox(1)).random(n_sample)
    begins = np.arange(n_sample + 1) * n_rows // n_sample
    return begins[:-1] + (within * np.diff(begins)).astype(np.int64)


def _sample_size(n_rows: int) -> int:
    most = max(_MOST_SAMPLE, n_rows // _LARGE_SHARE)
    return min(n_rows, max(min(n_rows // _SAMPLE_SHARE, most), _LEAST_SAMPLE))


def count_votes_in_summary(ranker: Ranker, batch: QueryBatch, summary: Summary) -> Floats | None:
    """Chance for each query that the vote of all rows is right, from what shards have counted.

    Shards count matches and other rows, which tells the vote of two classes; of more it is None.
    """
    from cellworth.knn import kernels as vote_kernels

    if len(ranker.class_counts) > 2:
        return None
    chances = np.empty(len(batch.labels))
    for query, pair in enumerate((batch.pair_starts[1:] - 1).tolist()):
        lists = (each.rows[slice(*each.starts[pair : pair + 2])] for each in summary.near.values())
        near = np.sort(np.concatenate(list(lists)))
        surely, tied = np.zeros((2, 2), dtype=np.int64)
        positions = vote_kernels.count_binned_votes(
            summary.counts[pair].astype(np.int64), near, ranker.n_neighbors, surely, tied
        )
        chances[query] = chance_of_right_vote(surely, tied, positions, 1)
    return chances


def count_votes_in_rows(ranker: Ranker, batch: QueryBatch, shard: Shard) -> Floats:
    """Chance for each query that the vote of all rows is right, where one shard holds them all."""
    from cellworth.knn import kernels

    scales, n_rows = ranker.scales, shard.n_rows
    one_player = np.zeros(len(scales.positions), dtype=np.int64)
    no_payload = np.zeros(n_rows, dtype=np.int64)
    n_nearest = min(ranker.n_neighbors, n_rows)
    steps = find_steps(np.ones((1, 1), dtype=bool))
    distances = np.empty((1, n_rows), dtype=np.int64)
    chances = np.empty(len(batch.labels))
    for query, label in enumerate(batch.labels.tolist()):
        cells = batch.numbers[query], batch.categories[query], batch.lines[query]
        kernels.fill_keys(
            shard.rows, cells, scales, one_player, one_player[:1], steps, no_payload, 0, distances
        )
        farthest = np.partition(distances[0], n_nearest - 1)[n_nearest - 1]
        surely, tied = (
            np.diff(np.append(0, np.cumsum(among))[shard.starts])
            for among in (distances[0] < farthest, distances[0] == farthest)
        )
        chances[query] = chance_of_right_vote(surely, tied, n_nearest - int(surely.sum()), label)
    return chances
