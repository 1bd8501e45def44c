"""Tasks of a table in memory: all rows are ranked at once, sorted or in bins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats, Mask, Positions
from cellworth.data.holdings import Holdings
from cellworth.knn.binned import (
    BinnedRanks,
    QueryRecord,
    Ranker,
    Shard,
    count_votes_in_rows,
    count_votes_in_summary,
    get_units,
    sample_positions,
)
from cellworth.knn.exact import (
    RadiusVotes,
    RankChances,
    SortedRows,
    TrainingRows,
    find_voter_terms,
)
from cellworth.knn.knn_game import KNNGame
from cellworth.knn.tasks import (
    FoldQueries,
    Orders,
    Task,
    TaskSchedule,
    count_queries,
    get_or_make,
    sum_queries,
)
from cellworth.runtime.workers import leave_if_cancelled
from cellworth.sampling.moments import Tally, append_pairs
from cellworth.sampling.passes import PassSums, QueryTotals, QueryVariance, as_floats
from cellworth.sampling.semivalues import Semivalue, inside_chances

# Rows times coalitions of some queries in bins of which two bytes are kept.
_MAX_KEPT = 2**25
# Values of cells, shape (n_draws, n_results, n_rows), and totals of queries.
_Valued = tuple[NDArray[Any], QueryTotals]
# From values of cells to sums by owner.
SumByOwner = Callable[[Floats], Floats]


@dataclass(frozen=True, eq=False)
class QueryTasks:
    """Computes the values of all cells for the queries of a task, in memory."""

    game: KNNGame
    schedule: TaskSchedule
    row_semivalue: Semivalue
    ranking: BinnedRanks | None  # None: all rows are ranked exactly
    holdings: Holdings | None = None  # Owners whose sums are computed
    # Kept by fold.
    _trainings: dict[int, TrainingRows] = field(default_factory=dict, init=False)
    _rankers: dict[int, tuple[Ranker, Shard]] = field(default_factory=dict, init=False)

    def __call__(self, number: int) -> Task:
        """Return task number t."""
        return self.schedule(number)

    def contribution(self, task: Task) -> PassSums:
        """Compute the values of all cells for the queries of a task."""
        schedule, recorder = self.schedule, None
        n_owners = 0 if self.holdings is None else len(self.holdings.names)
        if task.records:
            recorder = QueryRecorder(
                schedule.n_results, self.game.shape[0], schedule.queries.n_strata, n_owners,
                grouped=self.game.blocks.rows.grouped,
            )  # fmt: skip
        # Values of binned ranks are in fixed point.
        dtype: type[Any] = float if self.ranking is None else np.int64
        # Also of rows, columns, and the total; append_margins would copy all.
        sums = np.zeros((task.n_draws, self.game.shape[0] + 1, schedule.n_results + 1), dtype)
        owned_sums, added = np.zeros((task.n_draws, n_owners)), []
        orders = schedule.orders(task)
        for piece in task.part:
            by_draw, of_piece = self._value_queries(piece, task, orders, recorder)
            players = self._row_players(piece[0])
            for draw, cells in enumerate(by_draw):
                if self.game.blocks.rows.grouped:
                    np.add.at(sums[draw, :-1, :-1], players, cells.T)
                else:
                    sums[draw, players, :-1] += cells.T
                if self.holdings is not None:
                    sum_cells = make_sum_by_owner(self.holdings, players)
                    owned_sums[draw] += sum_cells(as_floats(cells, self._units))
            added.append(of_piece)
            # As large as the sums.
            del by_draw, cells
        n_ranked = schedule.n_ranked(task)
        sums[:, :-1, -1] = sums[:, :-1, :-1].sum(axis=2)
        sums[:, -1] = sums[:, :-1].sum(axis=1)
        seen = PassSums(
            parts_per_pass=len(schedule.parts),
            parts=1,
            n_queries=count_queries(task.part),
            sums=sums.sum(axis=0),
            totals=reduce(QueryTotals.merge, added),
            # Zeros if there is one draw.
            draws=schedule.draw_variance(task, as_floats(sums[0] - sums[-1], self._units)),
            query_variance=None if recorder is None else recorder.variance(),
            # Over shards, only whole passes count: milestones would need copies of all values.
            milestones=schedule.milestones if self.ranking is None else (),
            tally=Tally(utilities=n_ranked, new=n_ranked),
            units=self._units,
        )
        if self.holdings is None:
            return seen
        owned_sums = append_pairs(owned_sums)
        owned = replace(
            seen,
            sums=owned_sums.sum(axis=0),
            draws=schedule.draw_variance(task, owned_sums[0] - owned_sums[-1]),
            query_variance=None if recorder is None else recorder.owner_variance(),
        )
        return replace(seen, owned=owned)

    def never_valued(self, n_tasks: int) -> Mask:
        """Return the row players that only queries of later tasks can value."""
        done = self.schedule.parts[:n_tasks]
        folds_done = {fold for part in done for fold, _ in part}
        valued, later = np.zeros((2, self.game.shape[0]), dtype=bool)
        for fold in range(len(self.game.problem.folds)):
            found = valued if fold in folds_done else later
            found[self._row_players(fold)] = True
        return later & ~valued

    def _row_players(self, fold: int) -> NDArray[Any]:
        """Return the row player of each training row of a fold."""
        return self.game.blocks.rows.codes[self.game.problem.folds[fold].may_train]

    def _value_queries(
        self, piece: FoldQueries, task: Task, orders: Orders, recorder: QueryRecorder | None
    ) -> _Valued:
        """Return the values of the fold's training cells, and the totals of its queries."""
        value = self._value_sorted if self.ranking is None else self._value_binned
        if recorder is None:
            return value(piece, task, orders, None)
        players = self._row_players(piece[0])
        if self.ranking is not None:
            # In the order in which bins have the rows.
            players = players[get_or_make(self._rankers, piece[0], self._ranker)[1].positions]
        owned = None if self.holdings is None else make_sum_by_owner(self.holdings, players)
        with recorder.buffers_for_fold(players, owned):
            return value(piece, task, orders, recorder)

    def _value_sorted(
        self, piece: FoldQueries, task: Task, orders: Orders, recorder: QueryRecorder | None
    ) -> _Valued:
        """Rank all rows exactly, by sorting."""
        from cellworth.knn import kernels

        schedule, (fold, asked), n_draws = self.schedule, piece, task.n_draws
        strata, weights = schedule.queries.strata[fold], schedule.queries.weights[fold]
        training = get_or_make(self._trainings, fold, self._training)
        drawn = schedule.draw_coalitions(task.pass_number)
        batch = schedule.list_queries(piece, task, orders, is_class=training.is_class)
        draw = schedule.choose_draw(task)
        ranked, shares = SortedRows(training, drawn, draw), drawn.nothing[draw]
        known: dict[float, tuple[Floats, float]] = {}
        by_draw = np.zeros((n_draws, schedule.n_results, training.n_rows))
        labels, totals = batch.labels.tolist(), np.empty((4, len(batch.labels)))
        for first in range(0, len(labels), ranked.n_queries):
            leave_if_cancelled()
            end = min(first + ranked.n_queries, len(labels))
            cells, utilities, votes = ranked.value(batch, first, end)
            totals[1, first:end], totals[3, first:end] = utilities, votes
            for entry in range(first, end):
                nothing, totals[2, entry] = self._without_columns(training, labels[entry], known)
                (at, draw), weight = divmod(entry, n_draws), float(batch.weights[entry])
                own = cells[entry - first], shares, nothing, batch.orders[entry]
                # The first draw of a query is recorded.
                if recorder is None or draw:
                    kernels.add_cells(weight, *own, by_draw[draw])
                    continue
                kernels.add_cells(1.0, *own, recorder.values)
                kernels.add_scaled(weight, recorder.values, by_draw[0])
                squared = float(weights[asked[at]] * schedule.queries.n_queries) ** 2
                recorder.add_values(squared, int(strata[asked[at]]))
        totals[0] = batch.weights
        return by_draw, sum_queries(*totals)

    def _value_binned(
        self, piece: FoldQueries, task: Task, orders: Orders, recorder: QueryRecorder | None
    ) -> _Valued:
        """Rank rows in bins, as a single shard."""
        from cellworth.knn import binned_kernels as bin_kernels

        schedule, (fold, asked) = self.schedule, piece
        strata, weights = schedule.queries.strata[fold], schedule.queries.weights[fold]
        ranker, shard = get_or_make(self._rankers, fold, self._ranker)
        drawn = schedule.draw_coalitions(task.pass_number)
        # Some queries at a time, so that what is kept of them takes little memory.
        n_pairs = int(np.diff(drawn.steps.starts).max()) * task.n_draws
        at_once, keep = len(asked), None
        if ranker.target_scale is None and n_pairs * shard.n_rows <= _MAX_KEPT:
            at_once = min(_MAX_KEPT // (n_pairs * shard.n_rows), at_once)
            keep = np.empty((at_once * n_pairs, shard.n_rows), dtype=np.uint16)
        grouped = np.zeros((task.n_draws, schedule.n_results, shard.n_rows), dtype=np.int64)
        alone = np.zeros_like(grouped[0])
        totals = []
        for start in range(0, len(asked), at_once):
            positions = asked[start : start + at_once]
            prepared = schedule.prepare((fold, positions), task, orders, ranker)
            batch = prepared.batch
            leave_if_cancelled()
            summary = ranker.count(0, shard, prepared, keep=keep)
            far, near, _, utilities = ranker.finalize(batch, summary)
            accumulate = partial(
                ranker.accumulate,
                shard, prepared, far, near[0], kept=summary.kept,
            )  # fmt: skip
            if recorder is None:
                accumulate(into=grouped, record=QueryRecord.by_draw(len(positions), task.n_draws))
            else:
                for entry in range(len(batch.labels)):
                    leave_if_cancelled()
                    at, draw = divmod(entry, task.n_draws)
                    # The first draw of a query is recorded.
                    into = grouped[draw] if draw else alone
                    accumulate(into=into, queries=(entry, entry + 1))
                    if draw == 0:
                        units = float(batch.weights[entry]) * ranker.units
                        bin_kernels.take_units(alone, units, grouped[0], recorder.values)
                        squared = (weights[positions[at]] * schedule.queries.n_queries) ** 2
                        recorder.add_values(float(squared), int(strata[positions[at]]))
            if len(ranker.class_counts) > 2:
                votes = count_votes_in_rows(ranker, batch, shard)
            else:
                votes = count_votes_in_summary(ranker, batch, summary)
            totals.append((batch.weights, batch.of_full_table(utilities), prepared.bases, votes))
        by_draw = np.empty_like(grouped)
        by_draw[..., shard.positions] = grouped
        return by_draw, sum_queries(*map(np.concatenate, zip(*totals, strict=True)))

    def _training(self, fold: int) -> TrainingRows:
        game = self.game
        may_train = game.problem.folds[fold].may_train
        rows = np.flatnonzero(may_train)
        scales = game.distances.scales
        sizes = len(game.labels), len(rows), game.n_neighbors
        counts_voters = game.is_class and game.agreement.divisor == "n_voters"
        return TrainingRows(
            game.distances.rows if may_train.all() else game.distances.rows.take(rows),
            scales,
            game.blocks.columns.codes[scales.positions].astype(np.int64),
            game.labels_in(fold),
            game.is_class,
            game.n_neighbors,
            RankChances.from_semivalue(self.row_semivalue, *sizes),
            None if game.gains is None else game.gains[:, rows],
            find_voter_terms(self.row_semivalue, *sizes) if counts_voters else None,
            None
            if game.limit is None
            else RadiusVotes(game.limit, self.row_semivalue, len(game.labels)),
            game.class_targets(fold),
            None if game.agreement.weights is None else game.weigh,
        )

    def _ranker(self, fold: int) -> tuple[Ranker, Shard]:
        game = self.game
        positions = np.flatnonzero(game.problem.folds[fold].may_train)
        rows, scales = game.distances.rows.take(positions), game.distances.scales
        target_scale = game.target_scales[fold]
        if target_scale is None:
            shard = Shard.by_class(rows, game.labels_in(fold), int(game.labels.max()) + 1)
        else:
            targets, n_rows = target_scale.count_steps(game.labels[positions]), len(positions)
            shard = Shard(rows, np.array([0, n_rows]), np.arange(n_rows), targets)
        ranker = Ranker(
            scales,
            game.blocks.columns.codes[scales.positions].astype(np.int64),
            rows.take(sample_positions(len(positions))),
            np.diff(shard.starts),
            cast(BinnedRanks, self.ranking),
            game.n_neighbors,
            self.row_semivalue,
            len(game.labels),
            target_scale,
            game.agreement.radius,
        )
        return ranker, shard

    @property
    def _units(self) -> float:
        """Fixed-point units of sums of values, the same for all folds."""
        return get_units(self.game.target_scales[0])

    def _without_columns(
        self, training: TrainingRows, label: float, known: dict[float, tuple[Floats, float]]
    ) -> tuple[Floats, float]:
        """Return the values of rows without columns, and the baseline; ``known`` is a cache."""
        if self.game.empty == "prior":
            values, utility = get_or_make(known, label, training.without_columns)
            if self.schedule.with_label:
                utility = training.utility_of_nothing(label)
            return values, utility
        # In the closed form, the prediction for a numeric target without rows is the mean.
        level = training.utility_of_nothing(label)
        if level:
            n_others = training.n_rows - 1
            level *= float(inside_chances(self.row_semivalue, len(self.game.labels), n_others, 0))
        return np.full(training.n_rows, level), 0.0


def make_sum_by_owner(holdings: Holdings, players: Positions) -> SumByOwner:
    """Return the function that adds up values of shape (n_columns, n_rows) by owner.

    Its rows belong to these row players.
    """
    codes = holdings.lines[holdings.row_lines[players]].T.ravel()
    shares = holdings.shares

    def sum_cells(cells: Floats) -> Floats:
        by_code = np.bincount(codes, weights=cells.ravel(), minlength=len(shares))
        return np.asarray(by_code @ shares)

    return sum_cells


class QueryRecorder:
    """Records the values of single queries, for the variance within strata.

    ``n_results`` is the number of column players, ``n_players`` that of row players. ``grouped``
    says whether a row player may have several rows.
    """

    def __init__(
        self, n_results: int, n_players: int, n_strata: int, n_owners: int = 0, *, grouped: bool
    ) -> None:
        self._shape = n_strata, n_results + 1, n_players + 1
        # Players with several rows have sums; rows of different ones are squared as they are.
        self._grouped = grouped
        self._first, self._second = np.zeros((2, *self._shape))
        self._owned_first, self._owned_second = np.zeros(
            (2, n_strata, len(append_pairs(np.zeros(n_owners))))
        )
        self._n_queries, self._counts = np.zeros(n_strata, dtype=np.int64), np.zeros(n_strata)

    @contextmanager
    def buffers_for_fold(self, players: Positions, owned: SumByOwner | None) -> Iterator[None]:
        """Allocate the buffers of one fold, whose rows belong to these row players.

        One query's values go to ``values``, and then to the sums by :meth:`add_values`.
        """
        from cellworth.knn import kernels

        n_strata, n_lines, n_ends = self._shape
        self.values: Floats = np.zeros((n_lines - 1, len(players)))
        self._players, self._owned = players, owned
        self._seen = np.zeros((n_lines - 1, n_ends - 1)) if self._grouped else self.values
        n_seen = self._seen.shape[1]
        self._totals = np.empty(n_seen)
        self._sums = np.zeros((2, n_strata, n_lines, n_seen + 1))
        yield
        where = np.append(np.arange(n_seen) if self._grouped else players, n_ends - 1)
        for stratum in range(n_strata):
            kernels.add_by_player(self._sums[0, stratum], where, self._first[stratum])
            kernels.add_by_player(self._sums[1, stratum], where, self._second[stratum])
        del self.values, self._seen, self._sums

    def add_values(self, squared_weight: float, stratum: int) -> None:
        """Add the values in that array to the sums of a stratum, and set them to 0."""
        from cellworth.knn import kernels

        self._n_queries[stratum] += 1
        self._counts[stratum] += squared_weight
        if self._owned is not None:
            sums = append_pairs(self._owned(self.values))
            self._owned_first[stratum] += squared_weight * sums
            self._owned_second[stratum] += squared_weight * sums**2
        if self._grouped:
            kernels.add_by_player(self.values, self._players, self._seen)
            self.values[:] = 0.0
        kernels.observe(self._seen, squared_weight, self._totals, *self._sums[:, stratum])

    def variance(self) -> QueryVariance:
        """Return the sums over all recorded queries."""
        first, second = (sums.swapaxes(1, 2) for sums in (self._first, self._second))
        return QueryVariance(self._n_queries.copy(), self._counts.copy(), first, second)

    def owner_variance(self) -> QueryVariance:
        """Return the sums of the owners' values."""
        return QueryVariance(self._n_queries, self._counts, self._owned_first, self._owned_second)
