"""Tasks: which queries (validation rows) are evaluated on which column coalitions in task t."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from itertools import accumulate, islice, pairwise
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats, Positions
from cellworth.knn.binned import PreparedBatch, Ranker
from cellworth.knn.distances import Columns
from cellworth.knn.draws import DrawnCoalitions, QueryBatch
from cellworth.knn.knn_game import AGREEMENT, BALANCED, query_weights, stratify_queries
from cellworth.sampling.column_samplers import Coalitions, ColumnSampler, ExhaustiveSampler
from cellworth.sampling.passes import DrawVariance, QueryTotals, QueryVariance
from cellworth.sampling.samplers import generator
from cellworth.sampling.semivalues import Semivalue

Made = TypeVar("Made")
# A fold, and positions of queries in it.
FoldQueries = tuple[int, Positions]
# For each query, the column player at each position of its draw.
Orders = Iterator[NDArray[np.int64]]
# Rows times coalitions that a task ranks: about a quarter of a second.
_RANKED_PER_TASK = 2**24
# A task's result is as large as the table and may be written to disk. It takes this many
# coalitions per column to be worth it (about a second for four megabytes).
_MIN_PER_COLUMN = 128
# Results of all tasks on shards wait in a folder, so their number is limited.
_MAX_PARTS = 240
_MIN_PARTS = 12
# Queries share draws of coalitions, each with its own permutation of the columns.
_QUERIES_PER_DRAW = 64
_MAX_DRAWS = 16
# Queries from which validation errors are estimated. A cell may owe its value to few queries, so
# that errors from a small share of them would often be too small.
_MAX_OBSERVED = 10_000
# Queries that are drawn twice in each pass; others have one draw.
DRAWN_TWICE: int = 128
# With more strata, validation errors of single cells of shards would take too much memory.
_MAX_KEPT_STRATA = 4
# Most objects that a cache keeps. Tasks alternate between folds, and most splitters have fewer.
_KEPT = 16
# With at most this many folds, every part has queries of each.
_FOLDS_PER_PART = 10


# Part of a pass: queries by fold.
Part = list[FoldQueries]


@dataclass(frozen=True, eq=False)
class Task:
    """A task: one part of the queries in one pass."""

    number: int
    pass_number: int
    part: Part
    n_draws: int  # Draws of coalitions for each query: 1 or 2
    records: bool  # Whether the values of single queries are recorded


@dataclass(frozen=True, eq=False)
class WeightedQueries:
    """The queries of a run by fold: all validation rows, or some that were drawn."""

    cells: tuple[Columns, ...]
    labels: list[Floats]  # Codes of classes, or targets minus the mean target of the training rows
    # Weight of each query; they add up to 1 over all folds. Rows that were not drawn have 0.
    weights: list[Floats]
    strata: list[Positions]  # Stratum of each query; each stratum has a fixed share in the score
    # Folds and positions of the queries, ordered so that every beginning is representative.
    order: tuple[Positions, Positions]

    @classmethod
    def weigh(
        cls,
        cells: tuple[Columns, ...],
        labels: list[Floats],
        scoring: str,
        n_drawn: int | None = None,
        *,
        groups: list[Floats] | None = None,
    ) -> Self:
        """Compute the weights and strata that a score implies, and draw queries.

        The draw depends on the numbers of rows by class and fold alone. If the score gives each
        class a fixed share, small classes are drawn in full before large ones. Groups of queries
        take the part of classes if they are given.
        """
        groups = groups or labels
        # Classes alternate even if the score gives them no fixed share.
        in_turns = BALANCED if scoring == AGREEMENT else scoring
        folds, positions = order_fairly(stratify_queries(groups, in_turns))
        if n_drawn is not None and n_drawn < len(folds):
            drawn = np.arange(n_drawn)
            if scoring == BALANCED:
                offsets = np.cumsum([0, *map(len, labels)])
                drawn = _draw_evenly(np.concatenate(groups)[offsets[folds] + positions], n_drawn)
            folds, positions = folds[drawn], positions[drawn]
        kept = [np.sort(positions[folds == fold]) for fold in range(len(labels))]
        some = query_weights([own[at] for own, at in zip(groups, kept, strict=True)], scoring)
        weights = [np.zeros(len(own)) for own in labels]
        for own, at, drawn_weights in zip(weights, kept, some, strict=True):
            own[at] = drawn_weights
        strata = stratify_queries(groups, scoring)
        return cls(cells, labels, weights, strata, (folds, positions))

    @property
    def n_queries(self) -> int:
        """Number of queries in all folds."""
        return len(self.order[0])

    @property
    def n_given(self) -> int:
        """Number of validation rows from which the queries were drawn."""
        return sum(map(len, self.labels))

    @property
    def n_strata(self) -> int:
        """Number of strata."""
        return 1 + max(int(strata.max(initial=0)) for strata in self.strata)


@dataclass(frozen=True, eq=False)
class TaskSchedule:
    """Schedule of tasks: task t is a part of a pass, and every pass draws new coalitions.

    In a pass, the first queries have two independent draws of coalitions, whose difference shows
    the sampling error.
    """

    queries: WeightedQueries
    shape: tuple[int, int]  # Training rows and column players
    _: KW_ONLY
    sampler: ColumnSampler
    column_semivalue: Semivalue
    with_label: bool  # Whether the label column is a player
    empty: str  # "prior" or "zero": the utility without columns
    seed: int | None  # None if nothing is drawn
    _draws: dict[int, list[tuple[Coalitions, Floats]]] = field(default_factory=dict, init=False)
    _concatenated: dict[int, DrawnCoalitions] = field(default_factory=dict, init=False)

    def __call__(self, number: int) -> Task:
        """Return task number t."""
        pass_number, position = divmod(number, len(self.parts))
        n_draws = 2 if self.draws and position < self._n_drawn_twice else 1
        records = position < self.n_observed_parts and pass_number == 0
        return Task(number, pass_number, self.parts[position], n_draws, records)

    @property
    def draws(self) -> bool:
        """Whether passes draw: an exhaustive sampler lists the same coalitions for every query."""
        return not isinstance(self.sampler, ExhaustiveSampler)

    @property
    def n_results(self) -> int:
        """Number of column players, with the label column if it is one."""
        return self.shape[1] + self.with_label

    @cached_property
    def milestones(self) -> tuple[int, ...]:
        """Numbers of parts at which an unfinished pass counts: after quarters of the queries."""
        n_parts, n_queries = len(self.parts), self.queries.n_queries
        if not self.draws or n_parts < _MIN_PARTS:
            return ()
        n_done = np.cumsum(list(map(count_queries, self.parts)))
        found = np.searchsorted(4 * n_done, n_queries * np.array([1, 2, 3])) + 1
        return tuple(int(each) for each in found if each < n_parts)

    @cached_property
    def _n_drawn_twice(self) -> int:
        """Number of first parts of a pass whose queries are drawn twice."""
        return self._count_parts_before(DRAWN_TWICE)

    def _count_parts_before(self, most: int) -> int:
        """Return how many parts begin before a pass has had so many queries."""
        before = accumulate(map(count_queries, self.parts), initial=0)
        return sum(n < most for n in islice(before, len(self.parts)))

    def draw(self, pass_number: int) -> list[tuple[Coalitions, Floats]]:
        """Return the draws of a pass: coalitions and their weights.

        The last line of the weights is for the empty coalition. The queries of a task share one
        draw, each with its own order of the columns.
        """
        return get_or_make(self._draws, pass_number, self._draw)

    def draw_coalitions(self, pass_number: int) -> DrawnCoalitions:
        """Return the concatenated draws of a pass."""
        return get_or_make(
            self._concatenated,
            pass_number,
            lambda number: DrawnCoalitions.concatenate(self.draw(number)),
        )

    @property
    def n_coalitions(self) -> int:
        """Approximate number of coalitions of a pass, a mean over queries."""
        n_queries = self.queries.n_queries
        n_twice = sum(map(count_queries, self.parts[: self._n_drawn_twice]))
        n_draws = n_queries + n_twice * self.draws
        n_coalitions = self.sampler.n_coalitions(self.n_results, self.column_semivalue)
        return -(-n_draws * n_coalitions // n_queries)

    def orders(self, task: Task) -> Orders:
        """Yield for each query and draw the column player at each position of the draw."""
        rng = generator(self.seed or 0, task.number)
        order = np.arange(self.n_results)
        for _ in range(count_queries(task.part) * task.n_draws):
            if self.draws:
                order[: self.shape[1]] = rng.permutation(self.shape[1])
            yield order

    def list_queries(
        self, piece: FoldQueries, task: Task, orders: Orders, *, is_class: bool
    ) -> QueryBatch:
        """List the queries of one fold; both draws of a query are adjacent."""
        (fold, queries), starts = piece, self.draw_coalitions(task.pass_number).steps.starts
        positions = np.repeat(queries, task.n_draws).astype(np.int64)
        cells = self.queries.cells[fold].take(positions)
        labels = self.queries.labels[fold][positions]
        draws = np.full(len(positions), self.choose_draw(task))
        # Kernels are compiled for contiguous arrays.
        return QueryBatch(
            np.ascontiguousarray(cells.numbers.T),
            np.ascontiguousarray(cells.categories.T),
            labels.astype(np.int64) if is_class else labels,
            np.array([order.copy() for order in islice(orders, len(positions))], dtype=np.int64),
            draws,
            np.concatenate([[0], np.cumsum(np.diff(starts)[draws])]),
            self.queries.weights[fold][positions] / task.n_draws,
        )

    def choose_draw(self, task: Task) -> int:
        """Return the number of the draw of coalitions that a task's queries have."""
        return task.number % len(self.draw(task.pass_number))

    def prepare(
        self, piece: FoldQueries, task: Task, orders: Orders, ranker: Ranker
    ) -> PreparedBatch:
        """Prepare the queries of one fold for binned ranks."""
        batch = self.list_queries(piece, task, orders, is_class=ranker.target_scale is None)
        drawn = self.draw_coalitions(task.pass_number)
        return ranker.prepare(
            task.number, batch, drawn, empty=self.empty, with_label=self.with_label
        )

    def n_ranked(self, task: Task) -> int:
        """Return the number of coalitions of all queries of a task."""
        coalitions, _ = self.draw(task.pass_number)[self.choose_draw(task)]
        return task.n_draws * count_queries(task.part) * len(coalitions.members)

    @cached_property
    def n_observed_parts(self) -> int:
        """Number of first parts of the first pass whose single values validation errors use."""
        return self._count_parts_before(_MAX_OBSERVED)

    @property
    def n_kept_strata(self) -> int:
        """Number of strata for which shards keep squares of cells; 0 if there are too many."""
        n_strata = self.queries.n_strata
        return n_strata if n_strata <= _MAX_KEPT_STRATA else 0

    def weights(self, part: Part) -> Floats:
        """Return the weights of the queries of a part."""
        return np.concatenate([self.queries.weights[fold][asked] for fold, asked in part])

    def square_weights(self, piece: FoldQueries) -> Floats:
        """Return the squared weights of queries, whose mean weight is 1."""
        fold, queries = piece
        weights: Floats = self.queries.weights[fold][queries]
        return (weights * self.queries.n_queries) ** 2

    def count_observed(self, n_tasks: int) -> tuple[NDArray[np.int64], Floats]:
        """Return the numbers and summed squared weights of observed queries, by stratum."""
        n_queries, counts = (np.zeros(self.queries.n_strata, dtype=t) for t in (np.int64, float))
        for part in self.parts[: min(n_tasks, self.n_observed_parts)]:
            for fold, queries in part:
                strata = self.queries.strata[fold][queries]
                np.add.at(n_queries, strata, 1)
                np.add.at(counts, strata, self.square_weights((fold, queries)))
        return n_queries, counts

    def variance(self, parts: Iterable[Part], values: Floats) -> QueryVariance:
        """Return sums of the values of single queries by stratum; values have a line per query."""
        pieces = [piece for part in parts for piece in part]
        strata = np.concatenate([self.queries.strata[fold][asked] for fold, asked in pieces])
        # One line per stratum, with the squared weights of its queries.
        member = (np.arange(self.queries.n_strata)[:, np.newaxis] == strata).astype(np.float64)
        squared = member * np.concatenate([self.square_weights(piece) for piece in pieces])
        return QueryVariance(
            member.sum(axis=1).astype(np.int64),
            squared.sum(axis=1),
            np.tensordot(squared, values, axes=1),
            np.tensordot(squared, values**2, axes=1),
        )

    def draw_variance(self, task: Task, difference: Floats) -> DrawVariance:
        """Return what a task tells of sampling errors, by the difference between its two draws."""
        squared = float((self.weights(task.part) ** 2).sum())
        if not self.draws:
            # Another draw would be the same.
            return DrawVariance(1, np.zeros(()), squared, 0.0)
        if task.n_draws == 1:
            return DrawVariance(0, np.zeros(()), 0.0, squared)
        return DrawVariance(1, difference**2, squared, 0.0)

    @cached_property
    def parts(self) -> list[Part]:
        """Parts of a pass, ordered so that the first ones are representative."""
        n_coalitions = self.sampler.n_coalitions(self.n_results, self.column_semivalue)
        size = max(
            _RANKED_PER_TASK // (self.shape[0] * n_coalitions),
            -(-_MIN_PER_COLUMN * self.n_results // n_coalitions),
            -(-self.queries.n_queries // _MAX_PARTS),
            min(len(self.queries.labels), _FOLDS_PER_PART),
        )
        folds, positions = self.queries.order
        starts, n_queries = [0], len(positions)
        if self.draws:
            size = min(size, -(-n_queries // _MIN_PARTS))
            # Sampling errors come from differences between two draws, summed over parts.
            n_twice = min(DRAWN_TWICE, n_queries)
            starts = _divide(0, n_twice, max(-(-n_twice // size), min(_MIN_PARTS, n_twice)))
        n_left = n_queries - starts[-1]
        starts += _divide(starts[-1], n_queries, -(-n_left // size))[1:]
        parts = []
        for start, end in pairwise(starts):
            asked, own = positions[start:end], folds[start:end]
            parts.append([(fold, np.sort(asked[own == fold])) for fold in np.unique(own).tolist()])
        return parts

    def _draw(self, pass_number: int) -> list[tuple[Coalitions, Floats]]:
        n_draws = min(max(self.queries.n_queries // _QUERIES_PER_DRAW, 1), _MAX_DRAWS)
        drawn = []
        for position in range(n_draws if self.draws else 1):
            rng = generator(self.seed or 0, pass_number, position)
            coalitions = self.sampler.draw(self.n_results, self.column_semivalue, rng)
            if self.with_label:
                coalitions = coalitions.with_last_player()
            # If the utility without columns is set to 0, all others rise by a constant, which the
            # last line adds.
            last = coalitions.weights.sum(axis=0) if self.empty == "zero" else coalitions.nothing
            drawn.append((coalitions, np.vstack([coalitions.weights, last])))
        return drawn


def count_queries(part: Part) -> int:
    """Return the number of queries of a part in all folds."""
    return sum(len(queries) for _, queries in part)


def order_fairly(strata: list[Positions]) -> tuple[Positions, Positions]:
    """Return folds and positions of all queries, ordered so that every beginning is representative.

    In every beginning, strata have the same shares as among all queries, up to one query each; so
    do folds within a stratum. Otherwise the order is random.
    """
    rng = np.random.Generator(np.random.Philox(0))
    n_folds = len(strata)
    folds = np.repeat(np.arange(n_folds), [len(some) for some in strata])
    positions = np.concatenate([np.arange(len(some)) for some in strata])
    times = np.empty(len(positions))
    stratum_codes = np.concatenate(strata)
    for stratum in np.unique(stratum_codes):
        mine = np.flatnonzero(stratum_codes == stratum)
        sizes, turns = np.bincount(folds[mine], minlength=n_folds), rng.permutation(n_folds)
        fold_times = [
            (rng.permutation(size) + (turn + 0.5) / n_folds) / max(size, 1)
            for size, turn in zip(sizes.tolist(), turns.tolist(), strict=True)
        ]
        ranks = np.argsort(np.argsort(np.concatenate(fold_times), kind="stable"))
        times[mine] = (ranks + 0.5) / len(mine)
    order = np.argsort(times, kind="stable")
    return folds[order], positions[order]


def _divide(start: int, end: int, n_parts: int) -> list[int]:
    """Return the ends of parts of about equal size."""
    return [int(each) for each in np.linspace(start, end, n_parts + 1)]


def _draw_evenly(labels: Floats, n_drawn: int) -> Positions:
    """Return the positions of the first queries of each class, equally many where possible."""
    turns = np.empty(len(labels), dtype=np.intp)
    for label in np.unique(labels):
        mine = np.flatnonzero(labels == label)
        turns[mine] = np.arange(len(mine))
    return np.sort(np.argsort(turns, kind="stable")[:n_drawn])


def sum_queries(
    weights: Iterable[float],
    utilities: Iterable[float],
    bases: Iterable[float],
    votes: Iterable[float],
) -> QueryTotals:
    """Add up queries in their order."""
    weight = total = utility = right = 0.0
    for each, full, base, vote in zip(weights, utilities, bases, votes, strict=True):
        weight += float(each)
        total += float(each) * (float(full) - float(base))
        utility += float(each) * float(full)
        right += float(each) * float(vote)
    return QueryTotals(weight, total, utility, right)


def get_or_make(cache: dict[Any, Made], key: Any, make: Callable[[Any], Made]) -> Made:
    """Return the cached object of a key, or make it; the oldest objects are dropped."""
    found = cache.get(key)
    if found is None:
        found = make(key)
        cache[key] = found
        for oldest in list(cache)[:-_KEPT]:
            cache.pop(oldest, None)
    return found
