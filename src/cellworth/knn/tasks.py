"""Tasks: which validation rows are evaluated on which coalitions in task t."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats, Positions
from cellworth.data.holdings import Holdings
from cellworth.knn.binned import DrawnCoalitions, PreparedBatch, QueryBatch, Ranker
from cellworth.knn.distances import Columns, ColumnScales
from cellworth.knn.exact import Query
from cellworth.knn.knn_game import query_weights, stratify_queries
from cellworth.sampling.column_samplers import Coalitions, ColumnSampler, ExhaustiveSampler
from cellworth.sampling.passes import QueryVariance
from cellworth.sampling.samplers import generator
from cellworth.sampling.semivalues import Semivalue

Made = TypeVar("Made")
# Rows times coalitions that a task ranks: about a quarter of a second.
_RANKED_PER_TASK = 2**24
# What a task hands back is as large as the table, and may be written to disk; this many coalitions
# per column make it worth it (about a second for four megabytes).
_LEAST_PER_COLUMN = 128
# Shards leave what their tasks hand back in a folder until all are there.
_MOST_PARTS = 240
# A design serves many queries, each with the columns under other names.
_QUERIES_PER_DRAW = 64
_MOST_DRAWS = 16
# Queries that tell the error of the choice of queries: more would cost time and tell no more.
_OBSERVED = 1000
# Things that are made once for several tasks; folds take turns, so that all of them are used at a
# time, and those of most splitters are no more than this.
_KEPT = 16
# With up to so many folds, a part has queries of each.
_FOLDS_PER_PART = 10


@dataclass(frozen=True, eq=False)
class FoldQueries:
    """Queries of one fold that are handled together."""

    fold: int
    queries: Positions


@dataclass(frozen=True, eq=False)
class Part:
    """Queries that are handled together, fold by fold, and whether they are looked at singly."""

    pieces: tuple[FoldQueries, ...]
    observed: bool

    @property
    def n_queries(self) -> int:
        """Queries of all folds together."""
        return sum(len(piece.queries) for piece in self.pieces)

    def first(self, n_queries: int) -> Part:
        """At most so many of its queries."""
        pieces, left = [], n_queries
        for piece in self.pieces:
            if left > 0:
                pieces.append(FoldQueries(piece.fold, piece.queries[:left]))
                left -= len(piece.queries)
        return Part(tuple(pieces), self.observed)


@dataclass(frozen=True, eq=False)
class Task:
    """A part of one pass."""

    number: int
    pass_number: int
    part: Part


@dataclass(frozen=True, eq=False)
class WeightedQueries:
    """The queries of a run, fold by fold.

    Parameters
    ----------
    cells : tuple of Columns
    labels : list of arrays
        Codes of classes, or targets minus the mean target of the training rows.
    weights : list of arrays
        What each query counts; all of them together count 1.
    strata : list of arrays
        Stratum of each query; all have a share of their own in the score.
    """

    cells: tuple[Columns, ...]
    labels: list[Floats]
    weights: list[Floats]
    strata: list[Positions]

    @classmethod
    def of(cls, cells: tuple[Columns, ...], labels: list[Floats], scoring: str) -> Self:
        """Queries, weighed as a score has it."""
        return cls(cells, labels, query_weights(labels, scoring), stratify_queries(labels, scoring))

    @property
    def n_queries(self) -> int:
        """Queries of all folds together."""
        return sum(map(len, self.labels))

    @property
    def n_strata(self) -> int:
        """Strata of all folds together."""
        return 1 + max(int(strata.max(initial=0)) for strata in self.strata)

    def query(self, scales: ColumnScales, fold: int, position: int) -> Query:
        """Pick one."""
        return Query.of(self.cells[fold], scales, position, float(self.labels[fold][position]))


class TaskSchedule:
    """Task t is a part of a pass over all queries; every pass draws its coalitions anew.

    Parameters
    ----------
    queries : WeightedQueries
    shape : tuple of int
        Training rows, and players among the columns.
    sampler : ColumnSampler
        Coalitions of columns for each query.
    column_semivalue : Semivalue
    with_label : bool
        Whether the label column plays.
    empty : {"prior", "zero"}
        What no columns are worth.
    seed : int or None
        None where nothing is drawn.
    """

    def __init__(
        self,
        queries: WeightedQueries,
        shape: tuple[int, int],
        *,
        sampler: ColumnSampler,
        column_semivalue: Semivalue,
        with_label: bool,
        empty: str,
        seed: int | None,
    ) -> None:
        self.queries = queries
        self.n_rows: int = shape[0]
        self.n_columns: int = shape[1]
        self.sampler = sampler
        self.column_semivalue = column_semivalue
        self.with_label = with_label
        self.empty = empty
        self.seed = seed
        # All subsets are the same for every query and every pass.
        self.draws: bool = not isinstance(sampler, ExhaustiveSampler)
        self.n_results: int = self.n_columns + with_label
        self.parts: list[Part] = self._cut()
        self._drawn: dict[int, list[tuple[Coalitions, Floats]]] = {}
        self._designs: dict[int, DrawnCoalitions] = {}

    def __call__(self, number: int) -> Task:
        """Name task number t."""
        pass_number, position = divmod(number, len(self.parts))
        return Task(number, pass_number, self.parts[position])

    def draw(self, pass_number: int) -> list[tuple[Coalitions, Floats]]:
        """Return the coalitions of a pass, with weights; the last weight is of no columns.

        Query number q is ranked on number q modulo their number.
        """
        return get_or_make(self._drawn, pass_number, self._draw)

    def draw_coalitions(self, pass_number: int) -> DrawnCoalitions:
        """The same, one after the other, for ranking by bins."""
        return get_or_make(
            self._designs,
            pass_number,
            lambda pass_number: DrawnCoalitions.of(self.draw(pass_number)),
        )

    @property
    def n_coalitions(self) -> int:
        """How many coalitions a query is ranked on, about."""
        return self.sampler.n_coalitions(self.n_results, self.column_semivalue)

    def orders(self, task: Task) -> Iterator[NDArray[np.int64]]:
        """Which column stands for each name in a design, query by query, piece after piece."""
        rng = generator(self.seed or 0, task.number)
        order = np.arange(self.n_results)
        for _ in range(task.part.n_queries):
            if self.draws:
                order[: self.n_columns] = rng.permutation(self.n_columns)
            yield order

    def prepare(
        self,
        piece: FoldQueries,
        pass_number: int,
        orders: Iterator[NDArray[np.int64]],
        ranker: Ranker,
    ) -> PreparedBatch:
        """Queries of a piece, ready for ranking by bins."""
        draw_coalitions, positions = self.draw_coalitions(pass_number), piece.queries.tolist()
        batch = QueryBatch.of(
            [self.queries.query(ranker.scales, piece.fold, position) for position in positions],
            [order.copy() for order in islice(orders, len(positions))],
            [position % len(draw_coalitions.nothing) for position in positions],
            [float(self.queries.weights[piece.fold][position]) for position in positions],
            draw_coalitions,
        )
        return ranker.prepare(batch, draw_coalitions, empty=self.empty, with_label=self.with_label)

    def n_ranked(self, task: Task) -> int:
        """Coalitions that the queries of a task are ranked on, all together."""
        drawn = self.draw(task.pass_number)
        return sum(
            len(drawn[position % len(drawn)][0].members)
            for piece in task.part.pieces
            for position in piece.queries.tolist()
        )

    def _cut(self) -> list[Part]:
        """Cut the queries into parts, in an order in which an early stop is a fair sample."""
        n_coalitions = self.n_coalitions
        size = max(
            _RANKED_PER_TASK // (self.n_rows * n_coalitions),
            -(-_LEAST_PER_COLUMN * self.n_results // n_coalitions),
            -(-self.queries.n_queries // _MOST_PARTS),
            min(len(self.queries.labels), _FOLDS_PER_PART),
        )
        folds, positions = order_fairly(self.queries.strata)
        starts = np.linspace(0, len(positions), -(-len(positions) // size) + 1).astype(np.intp)
        return [
            Part(_pieces(folds[start:end], positions[start:end]), bool(start < _OBSERVED))
            for start, end in pairwise(starts.tolist())
        ]

    def _draw(self, pass_number: int) -> list[tuple[Coalitions, Floats]]:
        n_draws = min(max(self.queries.n_queries // _QUERIES_PER_DRAW, 1), _MOST_DRAWS)
        drawn = []
        for position in range(n_draws if self.draws else 1):
            rng = generator(self.seed or 0, pass_number, position)
            coalitions = self.sampler.draw(self.n_results, self.column_semivalue, rng)
            if self.with_label:
                coalitions = coalitions.with_last_player()
            # Where no columns are worth 0, all others are worth more by a constant, which the last
            # line adds.
            last = coalitions.weights.sum(axis=0) if self.empty == "zero" else coalitions.nothing
            drawn.append((coalitions, np.vstack([coalitions.weights, last])))
        return drawn


def order_fairly(strata: list[Positions]) -> tuple[Positions, Positions]:
    """Fold and place of all queries, in an order of which every beginning is a fair sample.

    Strata have in every beginning the shares that they have among all queries, up to one query
    each, and within a stratum folds have. Otherwise the order is random.
    """
    rng = np.random.Generator(np.random.Philox(0))
    n_folds = len(strata)
    folds = np.repeat(np.arange(n_folds), [len(some) for some in strata])
    positions = np.concatenate([np.arange(len(some)) for some in strata])
    moments = np.empty(len(positions))
    of_query = np.concatenate(strata)
    for stratum in np.unique(of_query):
        mine = np.flatnonzero(of_query == stratum)
        sizes, turns = np.bincount(folds[mine], minlength=n_folds), rng.permutation(n_folds)
        when = [
            (rng.permutation(size) + (turn + 0.5) / n_folds) / max(size, 1)
            for size, turn in zip(sizes.tolist(), turns.tolist(), strict=True)
        ]
        in_turn = np.argsort(np.argsort(np.concatenate(when), kind="stable"))
        moments[mine] = (in_turn + 0.5) / len(mine)
    order = np.argsort(moments, kind="stable")
    return folds[order], positions[order]


def _pieces(folds: Positions, positions: Positions) -> tuple[FoldQueries, ...]:
    return tuple(
        FoldQueries(fold, np.sort(positions[folds == fold])) for fold in np.unique(folds).tolist()
    )


class QueryTotals(NamedTuple):
    """What some queries count together, and what the whole table is worth to them.

    Parameters
    ----------
    weight : float
    total : float
        The part of it that cells earn.
    utility : float
    right : float
        How often the majority vote of the whole table is right; NaN where that is not known.
    """

    weight: float
    total: float
    utility: float
    right: float

    @classmethod
    def combine(cls, several: Iterable[QueryTotals]) -> QueryTotals:
        """All together, in their order."""
        return cls(*map(sum, zip(*several, strict=True)))


def sum_queries(
    counts: Iterable[float],
    utilities: Iterable[float],
    bases: Iterable[float],
    votes: Iterable[float],
) -> QueryTotals:
    """Add up what queries count, in their order."""
    weight = total = utility = right = 0.0
    for count, everyone, base, vote in zip(counts, utilities, bases, votes, strict=True):
        weight += float(count)
        total += float(count) * (float(everyone) - float(base))
        utility += float(count) * float(everyone)
        right += float(count) * float(vote)
    return QueryTotals(weight, total, utility, right)


def get_or_make(cache: dict[Any, Made], key: Any, make: Callable[[Any], Made]) -> Made:
    """Make a thing once for all tasks that need it at about the same time."""
    found = cache.get(key)
    if found is None:
        found = make(key)
        cache[key] = found
        for oldest in list(cache)[:-_KEPT]:
            cache.pop(oldest, None)
    return found


@dataclass(frozen=True, eq=False)
class OwnerCodes:
    """Who holds each cell of some rows: a code by column and row, and what each code shares."""

    codes: NDArray[np.int32]
    shares: Floats

    @classmethod
    def of(cls, holdings: Holdings, players: Positions) -> OwnerCodes:
        """Codes of the cells of rows that belong to these players."""
        claims = holdings.claims
        codes = holdings.lines[holdings.row_lines[players]]
        return cls(codes.T.ravel(), claims / np.maximum(claims.sum(axis=1, keepdims=True), 1))

    def sums(self, cells: Floats) -> Floats:
        """Add up values, shape (n_columns, n_rows), by owner."""
        by_code = np.bincount(self.codes, weights=cells.ravel(), minlength=len(self.shares))
        added: Floats = by_code @ self.shares
        return added


class QueryRecorder:
    """Looks at the values of single queries, for how they differ within strata.

    Parameters
    ----------
    n_results : int
        Columns that have values.
    n_players : int
        Players among the rows.
    n_strata : int
    n_owners : int, default=0
    """

    def __init__(self, n_results: int, n_players: int, n_strata: int, n_owners: int = 0) -> None:
        shape = n_results + 1, n_players + 1
        self._seen = np.zeros(shape)
        self._first, self._second = (np.zeros((n_strata, *shape)) for _ in range(2))
        self._owned_first, self._owned_second = (np.zeros((n_strata, n_owners)) for _ in range(2))
        self._n_queries, self._counts = np.zeros(n_strata, dtype=np.int64), np.zeros(n_strata)

    def start_fold(self, players: Positions, owned: OwnerCodes | None = None) -> None:
        """Be ready for values of rows that belong to these players."""
        self._values = np.empty((len(self._seen) - 1, len(players)))
        self._players, self._owned = players, owned

    def clear_values(self) -> Floats:
        """Room for the values of the next query."""
        self._values[:] = 0.0
        return self._values

    def add_values(self, squared_count: float, stratum: int) -> None:
        """Take in what the room holds."""
        from cellworth.knn import kernels

        kernels.observe(
            self._values, self._players, squared_count, self._seen, self._first[stratum],
            self._second[stratum],
        )  # fmt: skip
        self._n_queries[stratum] += 1
        self._counts[stratum] += squared_count
        if self._owned is not None:
            sums = self._owned.sums(self._values)
            self._owned_first[stratum] += squared_count * sums
            self._owned_second[stratum] += squared_count * sums**2

    def variance(self) -> QueryVariance:
        """Sums over the queries that were noted."""
        first, second = (sums.swapaxes(1, 2).copy() for sums in (self._first, self._second))
        return QueryVariance(self._n_queries, self._counts, first, second)

    def owner_variance(self) -> QueryVariance:
        """The same for what owners hold."""
        return QueryVariance(self._n_queries, self._counts, self._owned_first, self._owned_second)
