"""The tasks of KNNValuer: parts of a pass over all queries, and what each adds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cellworth.blocks import Positions
from cellworth.designs import generator
from cellworth.execution import leave_if_cancelled
from cellworth.games import KNNGame
from cellworth.moments import Tally, with_margins
from cellworth.neighbours.bins import COALITIONS_AT_ONCE, BinnedRows, RankBins, n_nearest
from cellworth.neighbours.chances import RankChances
from cellworth.neighbours.sorting import SortedRows, coalitions_at_once
from cellworth.neighbours.training import Plan, Query, Training
from cellworth.owners import Holdings
from cellworth.semivalues import Semivalue, inside_chances
from cellworth.subsets import AllSubsets, Coalitions, SubsetDesign
from cellworth.sweeps import Spread, Sweeps

Floats = NDArray[np.float64]
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
_KEPT = 8


@dataclass(frozen=True, eq=False)
class Part:
    """Queries of one fold that are handled together, and whether they are looked at singly."""

    fold: int
    queries: Positions
    observed: bool


@dataclass(frozen=True, eq=False)
class Task:
    """A part of one sweep."""

    number: int
    sweep: int
    part: Part


class QueryTasks:
    """Task t is a part of a pass over all queries; every pass draws its coalitions anew.

    Parameters
    ----------
    game : KNNGame
    design : SubsetDesign
        Coalitions of columns for each query.
    row_semivalue, column_semivalue : Semivalue
    with_label : bool
        Whether the label column plays.
    ranking : RankBins or None
        How far rows are ranked; None: exactly.
    seed : int or None
        None where nothing is drawn.
    holdings : Holdings or None
        Whose sums are watched.
    """

    def __init__(
        self,
        *,
        game: KNNGame,
        design: SubsetDesign,
        row_semivalue: Semivalue,
        column_semivalue: Semivalue,
        with_label: bool,
        ranking: RankBins | None,
        seed: int | None,
        holdings: Holdings | None = None,
    ) -> None:
        self.game = game
        self.design = design
        self.row_semivalue = row_semivalue
        self.column_semivalue = column_semivalue
        self.with_label = with_label
        self.ranking = ranking
        self.seed = seed
        self.holdings = holdings
        # All subsets are the same for every query and every sweep.
        self.draws = not isinstance(design, AllSubsets)
        self.n_queries = game.n_queries
        self.n_results = game.shape[1] + with_label
        self.parts = self._cut()
        self._trainings: dict[int, Training] = {}
        self._owned: dict[int, _Owned] = {}
        self._draws: dict[int, list[tuple[Plan, Floats]]] = {}

    def __call__(self, number: int) -> Task:
        """Name task number t."""
        sweep, place = divmod(number, len(self.parts))
        return Task(number, sweep, self.parts[place])

    def contribution(self, task: Task) -> Sweeps:
        """Value all cells for the queries of a task."""
        game, part = self.game, task.part
        training = _kept(self._trainings, part.fold, self._training)
        plans = _kept(self._draws, task.sweep, self._drawn)
        rows = np.flatnonzero(game.problem.folds[part.fold].may_train)
        cells = np.zeros((self.n_results, len(rows)))
        ranked = self._ranked(training, max(plan.most_at_once for plan, _ in plans))
        owned = None
        if self.holdings is not None:
            owned = _kept(self._owned, part.fold, partial(self._owned_in, self.holdings))
        watch = None
        if part.observed and task.sweep == 0:
            watch = _Watch(cells.shape, game.blocks.rows.codes[rows], game.shape[0], owned)
        without_columns = self._without_columns(training)
        weight = total = utility = 0.0
        for order, place in zip(self._orders(task), part.queries.tolist(), strict=True):
            leave_if_cancelled()
            counts = float(game.query_weights[part.fold][place])
            label = float(game.query_labels[part.fold][place])
            query = Query.of(game.distances.queries[part.fold], training.rulers, place, label)
            plan, weights = plans[place % len(plans)]
            if self.draws:
                weights = weights[:, np.argsort(order)]
            nothing, base = without_columns(query)
            into = cells if watch is None else watch.cleared()
            whole = ranked.add(
                query,
                plan,
                order=order,
                weights=weights,
                count=counts if watch is None else 1.0,
                nothing=nothing,
                into=into,
            )
            if watch is not None:
                cells += counts * into
                watch.note((counts * self.n_queries) ** 2)
            total += counts * (whole - base)
            utility += counts * whole
            weight += counts
        n_ranked = sum(len(plans[p % len(plans)][0].coalitions.members) for p in part.queries)
        seen = Sweeps(
            parts_per_sweep=len(self.parts),
            parts=1,
            sums=with_margins(self._by_row_player(cells, rows)),
            weight=weight,
            total=total,
            whole=utility,
            spread=None if watch is None else watch.spread(len(part.queries)),
            tally=Tally(utilities=n_ranked, new=n_ranked),
        )
        if owned is None:
            return seen
        spread = None if watch is None else watch.owned_spread(len(part.queries))
        return replace(seen, owned=replace(seen, sums=owned.sums(cells), spread=spread))

    def _cut(self) -> list[Part]:
        """Cut the queries into parts, in an order of their own: an early stop is a fair sample."""
        n_rows, n_coalitions = len(self.game.labels), self.design.n_coalitions(self.n_results)
        size = max(
            _RANKED_PER_TASK // (n_rows * n_coalitions),
            -(-_LEAST_PER_COLUMN * self.n_results // n_coalitions),
            -(-self.n_queries // _MOST_PARTS),
        )
        rng = np.random.Generator(np.random.Philox(0))
        parts = []
        for fold, labels in enumerate(self.game.query_labels):
            n_parts = -(-len(labels) // size)
            for queries in np.array_split(rng.permutation(len(labels)), n_parts):
                parts.append((fold, np.sort(queries)))
        mixed = [parts[place] for place in rng.permutation(len(parts))]
        before = np.cumsum([0] + [len(queries) for _, queries in mixed])
        return [
            Part(fold, queries, bool(first < _OBSERVED))
            for (fold, queries), first in zip(mixed, before, strict=False)
        ]

    def _training(self, fold: int) -> Training:
        game = self.game
        may_train = game.problem.folds[fold].may_train
        rows = np.flatnonzero(may_train)
        rulers = game.distances.rulers
        return Training(
            game.distances.rows if may_train.all() else game.distances.rows.take(rows),
            rulers,
            game.blocks.columns.codes[rulers.places].astype(np.int64),
            game.labels[rows],
            game.is_class,
            game.n_neighbors,
            RankChances.of(self.row_semivalue, len(game.labels), len(rows), game.n_neighbors),
        )

    def _owned_in(self, holdings: Holdings, fold: int) -> _Owned:
        rows = np.flatnonzero(self.game.problem.folds[fold].may_train)
        return _Owned.of(holdings, self.game.blocks.rows.codes[rows])

    def _ranked(self, training: Training, n_lines: int) -> SortedRows | BinnedRows:
        n_rows, bins = training.n_rows, self.ranking
        # Bins are for the rows beyond the nearest; a small fold may have none.
        if bins is None or 2 * n_nearest(bins, n_rows, training.n_neighbors) > n_rows:
            return SortedRows(training, n_lines)
        return BinnedRows(training, n_lines, bins)

    def _drawn(self, sweep: int) -> list[tuple[Plan, Floats]]:
        """Designs of a sweep, ready to be ranked on, each with the weights of its coalitions."""
        n_draws = min(max(self.n_queries // _QUERIES_PER_DRAW, 1), _MOST_DRAWS)
        at_once = coalitions_at_once(len(self.game.labels))
        if self.ranking is not None:
            at_once = COALITIONS_AT_ONCE
        drawn = []
        for place in range(n_draws if self.draws else 1):
            rng = generator(self.seed or 0, sweep, place)
            coalitions = self.design.draw(self.n_results, self.column_semivalue, rng)
            if self.with_label:
                coalitions = coalitions.with_last_player()
            drawn.append((Plan.of(coalitions, at_once), self._weights(coalitions)))
        return drawn

    def _weights(self, coalitions: Coalitions) -> Floats:
        """Weights of coalitions and, in the last line, of what no column is worth."""
        # Where no columns are worth 0, all others are worth more by a constant, which the last
        # line adds; see _without_columns.
        zero = self.game.empty == "zero"
        last = coalitions.weights.sum(axis=0) if zero else coalitions.nothing
        return np.vstack([coalitions.weights, last])

    def _orders(self, task: Task) -> Iterator[NDArray[np.int64]]:
        """Which column stands for each name in a design, query by query."""
        rng = generator(self.seed or 0, task.number)
        n_columns = self.game.shape[1]
        order = np.arange(self.n_results)
        for _ in task.part.queries:
            if self.draws:
                order[:n_columns] = rng.permutation(n_columns)
            yield order

    def _without_columns(self, training: Training) -> Callable[[Query], tuple[Floats, float]]:
        """Values of rows that the last line of weights counts, and what the total leaves out."""
        if self.game.empty == "prior":
            known: dict[float, tuple[Floats, float]] = {}

            def prior(query: Query) -> tuple[Floats, float]:
                values, utility = _kept(
                    known, query.label, lambda _: training.without_columns(query)
                )
                if not self.with_label:
                    return values, utility
                return values, 0.0 if training.is_class else -(query.label**2)

            return prior
        nobody = float(
            inside_chances(self.row_semivalue, len(self.game.labels), training.n_rows - 1, 0)
        )

        def zero(query: Query) -> tuple[Floats, float]:
            # The closed form has a numeric target met by the mean where there are no rows.
            level = 0.0 if training.is_class else -nobody * query.label**2
            return np.full(training.n_rows, level), 0.0

        return zero

    def _by_row_player(self, cells: Floats, rows: Positions) -> Floats:
        values = np.zeros((self.game.shape[0], self.n_results))
        axis = self.game.blocks.rows
        if axis.grouped:
            np.add.at(values, axis.codes[rows], cells.T)
        else:
            values[axis.codes[rows]] = cells.T
        return values


@dataclass(frozen=True, eq=False)
class _Owned:
    """Who holds each cell of some rows: a code by column and row, and what each code shares."""

    codes: NDArray[np.int32]
    shares: Floats

    @classmethod
    def of(cls, holdings: Holdings, players: Positions) -> _Owned:
        claims = holdings.claims
        codes = holdings.lines[holdings.row_lines[players]]
        return cls(codes.T.ravel(), claims / np.maximum(claims.sum(axis=1, keepdims=True), 1))

    def sums(self, cells: Floats) -> Floats:
        by_code = np.bincount(self.codes, weights=cells.ravel(), minlength=len(self.shares))
        added: Floats = by_code @ self.shares
        return added


class _Watch:
    """Looks at the values of single queries, for how they differ."""

    def __init__(
        self,
        shape: tuple[int, int],
        players: Positions,
        n_players: int,
        owned: _Owned | None = None,
    ) -> None:
        self._values = np.empty(shape)
        self._players = players
        whole = shape[0] + 1, n_players + 1
        self._seen, self._first, self._second = (np.zeros(whole) for _ in range(3))
        self._counts = 0.0
        self._owned = owned
        n_owners = 0 if owned is None else owned.shares.shape[1]
        self._owned_first, self._owned_second = np.zeros(n_owners), np.zeros(n_owners)

    def cleared(self) -> Floats:
        self._values[:] = 0.0
        return self._values

    def note(self, squared_count: float) -> None:
        from cellworth.neighbours import kernels

        kernels.observe(
            self._values, self._players, squared_count, self._seen, self._first, self._second
        )
        self._counts += squared_count
        if self._owned is not None:
            sums = self._owned.sums(self._values)
            self._owned_first += squared_count * sums
            self._owned_second += squared_count * sums**2

    def spread(self, n_queries: int) -> Spread:
        return Spread(n_queries, self._counts, self._first.T.copy(), self._second.T.copy())

    def owned_spread(self, n_queries: int) -> Spread:
        return Spread(n_queries, self._counts, self._owned_first, self._owned_second)


def _kept(cache: dict[Any, Made], key: Any, make: Callable[[Any], Made]) -> Made:
    """Make a thing once for all tasks that need it at about the same time."""
    found = cache.get(key)
    if found is None:
        found = make(key)
        cache[key] = found
        for oldest in list(cache)[:-_KEPT]:
            cache.pop(oldest, None)
    return found
