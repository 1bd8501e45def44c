"""Computation of tasks: in memory, and as an algorithm over shards."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats, Mask
from cellworth.data.holdings import Holdings
from cellworth.data.io import AnyPath, add_prefix, remove_prefix
from cellworth.knn.binned import (
    BinnedRanks,
    Near,
    PreparedBatch,
    QueryRecord,
    Ranker,
    Shard,
    Summary,
    count_votes_in_rows,
    count_votes_in_summary,
    get_units,
    sample_positions,
)
from cellworth.knn.exact import (
    CoalitionBatches,
    Query,
    RankChances,
    SortedRows,
    TrainingRows,
    coalitions_at_once,
)
from cellworth.knn.knn_game import KNNGame
from cellworth.knn.shard_data import PreparedShards
from cellworth.knn.tasks import (
    CellCodes,
    FoldQueries,
    Orders,
    OwnerCodes,
    QueryRecorder,
    QueryTotals,
    Task,
    TaskSchedule,
    WeightedQueries,
    add_by_code,
    get_or_make,
    sum_queries,
)
from cellworth.runtime.checkpoint import ShardState
from cellworth.runtime.shard_algorithm import RoundResult
from cellworth.runtime.stopping import BlockErrors, ShardSummary
from cellworth.runtime.workers import leave_if_cancelled
from cellworth.sampling.column_samplers import ColumnSampler
from cellworth.sampling.moments import Moments, Tally, append_margins, widening
from cellworth.sampling.passes import PassSums, QueryVariance, as_floats
from cellworth.sampling.semivalues import Semivalue, inside_chances
from cellworth.valuation.storage import GROUP_ROWS, write_groups

# Sums by code and query that are kept: the driver holds those of all shards.
_MOST_QUERY_SUMS = 2**24
# Values of cells, shape (n_results, n_rows), and totals of queries.
_Valued = tuple[NDArray[Any], QueryTotals]


class QueryTasks:
    """Computes the values of all cells for the queries of a task, in memory.

    ``with_label`` makes the label column a player. Without ``ranking`` all rows are ranked exactly.
    The seed is None if nothing is drawn. Sums are computed for the owners in ``holdings``.
    """

    def __init__(
        self,
        *,
        game: KNNGame,
        sampler: ColumnSampler,
        row_semivalue: Semivalue,
        column_semivalue: Semivalue,
        with_label: bool,
        ranking: BinnedRanks | None,
        seed: int | None,
        holdings: Holdings | None = None,
    ) -> None:
        self.game = game
        self.schedule: TaskSchedule = TaskSchedule(
            WeightedQueries.of(game.distances.queries, game.query_labels, game.scoring),
            (len(game.labels), game.shape[1]),
            sampler=sampler,
            column_semivalue=column_semivalue,
            with_label=with_label,
            empty=game.empty,
            seed=seed,
        )
        self.row_semivalue = row_semivalue
        self.ranking = ranking
        self.holdings = holdings
        self._plans: dict[int, list[tuple[CoalitionBatches, Floats]]] = {}
        self._trainings: dict[int, TrainingRows] = {}
        self._rankers: dict[int, tuple[Ranker, Shard]] = {}
        self._owned: dict[int, OwnerCodes] = {}

    def __call__(self, number: int) -> Task:
        """Return task number t."""
        return self.schedule(number)

    def contribution(self, task: Task) -> PassSums:
        """Compute the values of all cells for the queries of a task."""
        schedule, recorder = self.schedule, None
        n_owners = 0 if self.holdings is None else len(self.holdings.names)
        if task.part.observed and task.pass_number == 0:
            n_strata = schedule.queries.n_strata
            recorder = QueryRecorder(schedule.n_results, self.game.shape[0], n_strata, n_owners)
        # Values of binned ranks are in fixed point.
        dtype: type[Any] = float if self.ranking is None else np.int64
        sums = np.zeros((self.game.shape[0], schedule.n_results), dtype=dtype)
        owned_sums, added = np.zeros(n_owners), []
        orders = schedule.orders(task)
        for piece in task.part.pieces:
            cells, of_piece = self._value_queries(piece, task.pass_number, orders, recorder)
            if self.game.blocks.rows.grouped:
                np.add.at(sums, self._row_players(piece.fold), cells.T)
            else:
                sums[self._row_players(piece.fold)] += cells.T
            if owner_codes := self._get_owner_codes(piece.fold):
                owned_sums += owner_codes.sums(as_floats(cells, self._units))
            added.append(of_piece)
        n_ranked = schedule.n_ranked(task)
        seen = PassSums(
            parts_per_pass=len(schedule.parts),
            parts=1,
            n_queries=task.part.n_queries,
            sums=append_margins(sums),
            **QueryTotals.combine(added)._asdict(),
            query_variance=None if recorder is None else recorder.variance(),
            tally=Tally(utilities=n_ranked, new=n_ranked),
            units=self._units,
        )
        if self.holdings is None:
            return seen
        variance = None if recorder is None else recorder.owner_variance()
        return replace(seen, owned=replace(seen, sums=owned_sums, query_variance=variance))

    def never_valued(self, n_tasks: int) -> Mask:
        """Return the row players that only queries of later tasks can value."""
        done = self.schedule.parts[:n_tasks]
        folds_done = {piece.fold for part in done for piece in part.pieces}
        players = self._players_in(range(len(self.game.problem.folds)))
        return players & ~self._players_in(folds_done)

    def _players_in(self, folds: Iterable[int]) -> Mask:
        """Return the row players with a training row in one of these folds."""
        found = np.zeros(self.game.shape[0], dtype=bool)
        for fold in folds:
            found[self._row_players(fold)] = True
        return found

    def _row_players(self, fold: int) -> NDArray[Any]:
        """Return the row player of each training row of a fold."""
        return self.game.blocks.rows.codes[self.game.problem.folds[fold].may_train]

    def _value_queries(
        self, piece: FoldQueries, pass_number: int, orders: Orders, recorder: QueryRecorder | None
    ) -> _Valued:
        """Return the values of the fold's training cells, and the totals of its queries."""
        if recorder is not None:
            recorder.start_fold(self._row_players(piece.fold), self._get_owner_codes(piece.fold))
        if self.ranking is None:
            return self._value_sorted(piece, pass_number, orders, recorder)
        return self._value_binned(piece, pass_number, orders, recorder)

    def _value_sorted(
        self, piece: FoldQueries, pass_number: int, orders: Orders, recorder: QueryRecorder | None
    ) -> _Valued:
        """Rank all rows exactly, by sorting."""
        schedule, queries = self.schedule, self.schedule.queries
        training = get_or_make(self._trainings, piece.fold, self._training)
        plans = get_or_make(self._plans, pass_number, self._batch_coalitions)
        ranked = SortedRows(training, max(plan.most_at_once for plan, _ in plans))
        without_columns = self._without_columns(training)
        cells = np.zeros((schedule.n_results, training.n_rows))
        totals = []
        # zip stops at the end of the queries, before it takes an order of the next fold.
        for position, order in zip(piece.queries.tolist(), orders, strict=False):
            leave_if_cancelled()
            query_weight = float(queries.weights[piece.fold][position])
            query = queries.query(training.scales, piece.fold, position)
            plan, weights = plans[position % len(plans)]
            if schedule.draws:
                weights = weights[:, np.argsort(order)]
            nothing, base = without_columns(query)
            into = cells if recorder is None else recorder.clear_values()
            utility, vote = ranked.add(
                query,
                plan,
                order=order,
                weights=weights,
                query_weight=query_weight if recorder is None else 1.0,
                nothing=nothing,
                into=into,
            )
            if recorder is not None:
                cells += query_weight * into
                squared = (query_weight * queries.n_queries) ** 2
                recorder.add_values(squared, int(queries.strata[piece.fold][position]))
            totals.append((query_weight, utility, base, vote))
        return cells, sum_queries(*zip(*totals, strict=True))

    def _value_binned(
        self, piece: FoldQueries, pass_number: int, orders: Orders, recorder: QueryRecorder | None
    ) -> _Valued:
        """Rank rows in bins, as a single shard."""
        schedule, queries = self.schedule, self.schedule.queries
        ranker, shard = get_or_make(self._rankers, piece.fold, self._ranker)
        prepared = schedule.prepare(piece, pass_number, orders, ranker)
        batch = prepared.batch
        leave_if_cancelled()
        summary = ranker.count(0, shard, prepared)
        row_values = ranker.finalize(batch, summary)
        grouped = np.zeros((schedule.n_results, shard.n_rows), dtype=np.int64)
        n_queries = len(batch.labels)
        steps = [(0, n_queries)] if recorder is None else [(q, q + 1) for q in range(n_queries)]
        for some in steps:
            leave_if_cancelled()
            into = grouped if recorder is None else np.zeros_like(grouped)
            ranker.accumulate(
                shard, prepared, row_values.far, row_values.near[0], into=into, queries=some
            )
            if recorder is not None:
                grouped += into
                weight = float(batch.weights[some[0]])
                recorder.clear_values()[:, shard.positions] = into / (weight * ranker.units)
                stratum = queries.strata[piece.fold][piece.queries[some[0]]]
                recorder.add_values((weight * queries.n_queries) ** 2, int(stratum))
        cells = np.empty_like(grouped)
        cells[:, shard.positions] = grouped
        votes = count_votes_in_summary(ranker, batch, summary)
        if votes is None:
            votes = count_votes_in_rows(ranker, batch, shard)
        return cells, sum_queries(
            batch.weights, row_values.of_full_table(batch), prepared.bases, votes
        )

    def _batch_coalitions(self, pass_number: int) -> list[tuple[CoalitionBatches, Floats]]:
        """Return the draws of a pass in batches for sorting, with their weights."""
        at_once = coalitions_at_once(len(self.game.labels))
        return [
            (CoalitionBatches.of(coalitions, at_once), weights)
            for coalitions, weights in self.schedule.draw(pass_number)
        ]

    def _training(self, fold: int) -> TrainingRows:
        game = self.game
        may_train = game.problem.folds[fold].may_train
        rows = np.flatnonzero(may_train)
        scales = game.distances.scales
        return TrainingRows(
            game.distances.rows if may_train.all() else game.distances.rows.take(rows),
            scales,
            game.blocks.columns.codes[scales.positions].astype(np.int64),
            game.labels_in(fold),
            game.is_class,
            game.n_neighbors,
            RankChances.of(self.row_semivalue, len(game.labels), len(rows), game.n_neighbors),
        )

    def _ranker(self, fold: int) -> tuple[Ranker, Shard]:
        game = self.game
        positions = np.flatnonzero(game.problem.folds[fold].may_train)
        rows, scales = game.distances.rows.take(positions), game.distances.fine
        target_scale = game.target_scales[fold]
        if target_scale is None:
            shard = Shard.of(rows, game.labels_in(fold), int(game.labels.max()) + 1)
        else:
            shard = Shard.of_targets(rows, target_scale.count_steps(game.labels[positions]))
        ranker = Ranker.of(
            scales,
            game.blocks.columns.codes[scales.positions].astype(np.int64),
            rows.take(sample_positions(len(positions))),
            np.diff(shard.starts),
            target_scale,
            bins=cast(BinnedRanks, self.ranking),
            n_neighbors=game.n_neighbors,
            semivalue=self.row_semivalue,
            n_players=len(game.labels),
        )
        return ranker, shard

    @property
    def _units(self) -> float:
        """Fixed-point units of sums of values, the same for all folds."""
        return get_units(self.game.target_scales[0])

    def _get_owner_codes(self, fold: int) -> OwnerCodes | None:
        holdings = self.holdings
        if holdings is None:
            return None
        return get_or_make(
            self._owned, fold, lambda fold: OwnerCodes.of(holdings, self._row_players(fold))
        )

    def _without_columns(self, training: TrainingRows) -> Callable[[Query], tuple[Floats, float]]:
        """Return a function of a query: values of rows without columns, and the baseline."""
        if self.game.empty == "prior":
            known: dict[float, tuple[Floats, float]] = {}

            def prior(query: Query) -> tuple[Floats, float]:
                values, utility = get_or_make(
                    known, query.label, lambda _: training.without_columns(query)
                )
                if not self.schedule.with_label:
                    return values, utility
                return values, 0.0 if training.is_class else -(query.label**2)

            return prior
        chance_of_empty = float(
            inside_chances(self.row_semivalue, len(self.game.labels), training.n_rows - 1, 0)
        )

        def zero(query: Query) -> tuple[Floats, float]:
            # In the closed form, the prediction for a numeric target without rows is the mean.
            level = 0.0 if training.is_class else -chance_of_empty * query.label**2
            return np.full(training.n_rows, level), 0.0

        return zero


class NumberedShard(NamedTuple):
    """Rows of one shard, its number, and the codes of its cells if sums by code are wanted."""

    number: int
    shard: Shard
    codes: CellCodes | None


class NumberedRound(NamedTuple):
    """A prepared round, and its number."""

    number: int
    prepared: PreparedBatch


@dataclass(frozen=True, eq=False)
class KNNShardAlgorithm:
    """Values of cells computed on shards, round by round.

    It implements :class:`cellworth.runtime.shard_algorithm.ShardAlgorithm`. A shard's state has
    fixed-point sums of the unfinished pass, by stratum of the queries while these are observed, and
    squares of the observed values. Of finished passes it has the means and sums of squared
    deviations of cells and rows, and the sums of columns. ``codes`` asks for sums over cells with
    the same code, by pass and, for observed queries, by query.
    """

    shards: PreparedShards
    ranker: Ranker
    schedule: TaskSchedule
    codes: CellCodes | None = None

    @property
    def n_shards(self) -> int:
        """Number of shards."""
        return self.shards.table.n_shards

    def open(self, shard: int) -> NumberedShard:
        """Memory-map the rows of a shard."""
        rows = self.shards.open(shard)
        return NumberedShard(shard, rows, self.codes and self.codes.take(rows.positions))

    def prepare(self, number: int) -> NumberedRound:
        """Return the queries of a round and the edges of the bins."""
        task = self.schedule(number)
        # Validation rows are one fold.
        (piece,) = task.part.pieces
        orders = self.schedule.orders(task)
        return NumberedRound(
            number, self.schedule.prepare(piece, task.pass_number, orders, self.ranker)
        )

    def count(self, rows: NumberedShard, prepared: NumberedRound) -> Summary:
        """Count a shard's rows by bin, and list its nearest rows."""
        return self.ranker.count(rows.number, rows.shard, prepared.prepared)

    def merge(self, one: Summary, other: Summary) -> Summary:
        """Merge two summaries."""
        return one.merge(other)

    def finalize(self, prepared: NumberedRound, summary: Summary) -> RoundResult:
        """Compute the values of rows from the summary of all shards, and the round's report."""
        row_values = self.ranker.finalize(prepared.prepared.batch, summary)
        votes = count_votes_in_summary(self.ranker, prepared.prepared.batch, summary)
        report = self._report(self.schedule(prepared.number), prepared.prepared, row_values, votes)
        return RoundResult(row_values.far, row_values.near, report)

    def pack_result(self, result: RoundResult) -> dict[str, Any]:
        """Convert a result to plain data."""
        plain = {"shared": result.shared} | add_prefix("report", result.report)
        for number, near in result.per_shard.items():
            plain |= {f"rows{number}": near.rows, f"starts{number}": near.starts}
        return plain

    def unpack_result(self, plain: dict[str, Any]) -> RoundResult:
        """Convert plain data back to a result."""
        numbers = [int(name[4:]) for name in plain if name.startswith("rows")]
        near = {n: Near(plain[f"rows{n}"], plain[f"starts{n}"]) for n in numbers}
        return RoundResult(plain["shared"], near, remove_prefix("report", plain))

    def initial_state(self, rows: NumberedShard) -> ShardState:
        """Return the state before the first round."""
        return {"rounds": np.array([0])}

    def accumulate(
        self,
        rows: NumberedShard,
        prepared: NumberedRound,
        shared: Floats,
        part: Near,
        state: ShardState,
    ) -> ShardState:
        """Add a round to the sums of a shard; the last round of a pass closes the pass."""
        task = self.schedule(prepared.number)
        record = self._record(rows, task, state)
        self.ranker.accumulate(
            rows.shard, prepared.prepared, shared, part, into=state["sums"], record=record
        )
        if record is not None and record.sums.size:
            _append(state, "query_sums", record.sums)
        state["rounds"] = state["rounds"] + 1
        n_rounds = int(state["rounds"][0])
        if n_rounds == self.schedule.n_observed_parts:
            self._close_observed(state)
        if n_rounds % len(self.schedule.parts) == 0:
            self._close_pass(rows, state)
        return state

    def _record(self, rows: NumberedShard, task: Task, state: ShardState) -> QueryRecord | None:
        """Return what is to be recorded of the queries of a task; add its arrays to the state."""
        schedule, shard = self.schedule, rows.shard
        observed = task.pass_number == 0 and task.part.observed
        n_kept = schedule.n_kept_strata if observed else 0
        shape = max(n_kept, 1), schedule.n_results, shard.n_rows
        if "sums" not in state:
            state["sums"] = np.zeros(shape, dtype=np.int64)
        with_codes = observed and self.observes_codes
        if not n_kept and not with_codes:
            return None
        (piece,) = task.part.pieces
        record = QueryRecord.nothing(len(piece.queries))
        if n_kept:
            if "squares" not in state:
                state["squares"] = np.zeros((n_kept, shape[1] + 1, shape[2]))
            record = record._replace(
                strata=schedule.queries.strata[piece.fold][piece.queries].astype(np.int64),
                squared_weights=schedule.square_weights(piece),
                squares=state["squares"],
            )
        return _with_codes(record, rows.codes) if with_codes and rows.codes else record

    @property
    def observes_codes(self) -> bool:
        """Whether sums by code and query are kept; they would be too large for many codes."""
        n_queries = sum(part.n_queries for part in self.schedule.parts if part.observed)
        return self.codes is not None and len(self.codes.names) * n_queries <= _MOST_QUERY_SUMS

    def write(
        self, rows: NumberedShard, state: ShardState, shard: int, folder: AnyPath
    ) -> dict[str, Any]:
        """Write values and errors in the order of rows; return sums of cells in fixed point."""
        if "mean" not in state:
            # The first pass was interrupted: values are means over the queries so far.
            self._close_pass(rows, state)
        elif "sums" in state:
            # A later, unfinished pass does not count.
            del state["sums"]
        entry = write_groups(
            folder,
            shard,
            self.shards.table.rows(shard).start,
            self._groups(rows.shard, state),
            durable=self.shards.durable,
        )
        return entry | {"column_sums": state["column_sums"]} | _sums_by_code(rows, state)

    def _groups(self, shard: Shard, state: ShardState) -> Iterator[dict[str, Floats]]:
        """Yield statistics of a shard's rows in the table's order, some rows at a time."""
        order = np.argsort(shard.positions, kind="stable")
        figures = [n for n in ("mean", "sum_sq", "row_mean", "row_sum_sq") if n in state]
        for start in range(0, shard.n_rows, GROUP_ROWS):
            some = order[start : start + GROUP_ROWS]
            group: dict[str, Floats] = {name: state[name][..., some] for name in figures}
            errors = self._validation_se(group, state, some) if "deviations" in state else None
            if errors is not None:
                group |= {"validation_se": errors[:-1], "row_validation_se": errors[-1]}
            yield {name: figure.T for name, figure in group.items()}

    def _validation_se(
        self, group: Mapping[str, Floats], state: ShardState, some: NDArray[np.intp]
    ) -> Floats | None:
        """Return the validation errors of some rows, and of their cells."""
        n_rounds, n_passes = int(state["rounds"][0]), len(state["column_sums"])
        mean = np.vstack([group["mean"], group["row_mean"]])
        sum_sq = np.zeros_like(mean)
        if "sum_sq" in group:
            sum_sq = np.vstack([group["sum_sq"], group["row_sum_sq"]])
        n_queries, counts = self.schedule.count_observed(n_rounds)
        deviations = state["deviations"][..., some]
        alone = (n_queries == 1)[:, np.newaxis, np.newaxis]
        seen = QueryVariance(n_queries, counts, np.where(alone, deviations, 0.0), deviations)
        done = self.schedule.parts[: min(n_rounds, len(self.schedule.parts))]
        n_estimated = sum(part.n_queries for part in done)
        return seen.standard_errors(
            Moments(np.full(mean.shape, n_passes), mean, sum_sq), n_estimated
        )

    def measure(self, state: ShardState) -> dict[str, Any]:
        """Return sums over the cells of a shard for stopping rules, after whole passes."""
        if "mean" not in state:
            return {"count": 0}
        count, means = len(state["column_sums"]), state["mean"]
        center = float(means.mean())
        # Line by line, because a shard's values take most of the memory.
        deviations = sum(float(np.sum((line - center) ** 2)) for line in means)
        found = {"count": count, "n": means.size, "mean": center, "deviations": deviations}
        if count < 2:
            return found
        squares = [line / (count * (count - 1.0)) for line in state["sum_sq"]]
        largest = math.sqrt(max(float(line.max()) for line in squares))
        return found | {"largest": largest, "squares": sum(float(line.sum()) for line in squares)}

    def summarize(
        self, reports: Sequence[dict[str, Any]], measures: Sequence[dict[str, Any]] | None
    ) -> ShardSummary:
        """Count the coalitions that rounds ranked, and combine the measures of shards."""
        n_ranked = sum(report["n_ranked"] for report in reports)
        tally = Tally(utilities=n_ranked, new=n_ranked)
        if not measures or not measures[0]["count"]:
            return ShardSummary(tally, None)
        count, n_cells = measures[0]["count"], sum(each["n"] for each in measures)
        center = sum(each["n"] * each["mean"] for each in measures) / n_cells
        deviations = sum(
            each["deviations"] + each["n"] * (each["mean"] - center) ** 2 for each in measures
        )
        largest, mean_square = math.inf, math.nan
        if count > 1:
            largest = max(each["largest"] for each in measures) * float(widening(count))
            mean_square = sum(each["squares"] for each in measures) / n_cells
        errors = BlockErrors(count, largest, mean_square, deviations / n_cells)
        return ShardSummary(tally, errors)

    def weight(self, n_rounds: int) -> float:
        """Return the sum of query weights in the last pass, after n_rounds rounds."""
        n_parts = len(self.schedule.parts)
        first = (n_rounds - 1) // n_parts * n_parts
        return reduce(add, (self._weight(self.schedule(n)) for n in range(first, n_rounds)))

    def _weight(self, task: Task) -> float:
        (piece,) = task.part.pieces
        weights = self.schedule.queries.weights[piece.fold]
        return reduce(add, (float(weights[position]) for position in piece.queries), 0.0)

    def _close_observed(self, state: ShardState) -> None:
        """Turn squares of observed values into squared deviations, and add up strata.

        For a stratum with a single query, its value is kept instead, times its squared weight.
        """
        if "squares" not in state:
            return
        sums, deviations = state["sums"], state.pop("squares")
        n_queries, counts = self.schedule.count_observed(int(state["rounds"][0]))
        # In place and line by line, because a shard's values take most of the memory.
        for own, cells, n_seen, count in zip(
            deviations, sums, n_queries.tolist(), counts, strict=True
        ):
            if n_seen == 0:
                continue
            # Queries of a stratum have the same weight, and counts are squared weights.
            weight = math.sqrt(count / n_seen) / self.schedule.queries.n_queries
            for line, units in zip(own, itertools.chain(cells, [cells.sum(axis=0)]), strict=True):
                first = as_floats(units, self.ranker.units) / weight * (count / n_seen)
                line[:] = first if n_seen == 1 else line - first * first / count
        state["deviations"] = deviations
        state["sums"] = sums if len(sums) == 1 else sums.sum(axis=0, keepdims=True)

    def _close_pass(self, rows: NumberedShard, state: ShardState) -> None:
        self._close_observed(state)
        (sums,), weight = state.pop("sums"), self.weight(int(state["rounds"][0]))
        units = self.ranker.units
        if rows.codes is not None:
            _append(state, "code_sums", rows.codes.sums(sums))
        of_columns, of_rows = sums.sum(axis=1), as_floats(sums.sum(axis=0), units) / weight
        before = state.get("column_sums", np.empty((0, len(sums)), dtype=np.int64))
        state["column_sums"] = np.vstack([before, of_columns])
        # In place and line by line, because a shard's values take most of the memory.
        seen = sums.view(np.float64)
        for line, in_units in zip(seen, sums, strict=True):
            line[:] = as_floats(in_units, units) / weight
        if "mean" not in state:
            state |= {"mean": seen, "row_mean": of_rows}
            return
        if "sum_sq" not in state:
            state |= {"sum_sq": np.zeros_like(seen), "row_sum_sq": np.zeros_like(of_rows)}
        count = len(before)
        for mean, sum_sq, line in zip(state["mean"], state["sum_sq"], seen, strict=True):
            _observe(count, mean, sum_sq, line)
        _observe(count, state["row_mean"], state["row_sum_sq"], of_rows)

    def _report(
        self, task: Task, prepared: PreparedBatch, row_values: Any, votes: Floats | None
    ) -> dict[str, Any]:
        """Return a round's totals, and its sums for the variance of column sums over queries."""
        batch = prepared.batch
        if votes is None:
            votes = np.full(len(batch.labels), np.nan)
        added = sum_queries(batch.weights, row_values.of_full_table(batch), prepared.bases, votes)
        sums = _column_sums(prepared, row_values.sums, self.ranker)
        variance = self.schedule.variance([task.part], sums)
        return {**added._asdict(), "n_ranked": self.schedule.n_ranked(task), **vars(variance)}


class KNNGroupAlgorithm(KNNShardAlgorithm):
    """Sums of cells by code alone, for groups of rows; states hold no values of single cells."""

    def initial_state(self, rows: NumberedShard) -> ShardState:
        """Return the state before the first round."""
        return {"rounds": np.array([0]), "codes": cast(CellCodes, rows.codes).names}

    def accumulate(
        self,
        rows: NumberedShard,
        prepared: NumberedRound,
        shared: Floats,
        part: Near,
        state: ShardState,
    ) -> ShardState:
        """Add a round to the sums by code; the last round of a pass closes the pass."""
        task, batch = self.schedule(prepared.number), prepared.prepared.batch
        record = _with_codes(QueryRecord.nothing(len(batch.labels)), cast(CellCodes, rows.codes))
        no_cells = np.zeros((1, self.schedule.n_results, 0), dtype=np.int64)
        self.ranker.accumulate(
            rows.shard, prepared.prepared, shared, part, into=no_cells, record=record
        )
        if task.pass_number == 0 and task.part.observed and self.observes_codes:
            _append(state, "query_sums", record.sums)
        state["sums"] = state.get("sums", 0) + record.sums.sum(axis=0)
        state["rounds"] = state["rounds"] + 1
        if int(state["rounds"][0]) % len(self.schedule.parts) == 0:
            _append(state, "code_sums", state.pop("sums"))
        return state

    def write(
        self, rows: NumberedShard, state: ShardState, shard: int, folder: AnyPath
    ) -> dict[str, Any]:
        """Return the sums by code; there is nothing to write."""
        if "code_sums" not in state:
            _append(state, "code_sums", state.pop("sums"))
        return _sums_by_code(rows, state)

    def measure(self, state: ShardState) -> dict[str, Any]:
        """Return the sums by code of finished passes."""
        names = ("codes", "code_sums")
        return {name: state[name] for name in names} if "code_sums" in state else {}

    def summarize(
        self, reports: Sequence[dict[str, Any]], measures: Sequence[dict[str, Any]] | None
    ) -> ShardSummary:
        """Count the coalitions that rounds ranked, and compute the errors of groups."""
        tally = super().summarize(reports, None).tally
        if self.codes is None or not measures or not measures[0]:
            return ShardSummary(tally, None)
        sums = add_by_code(measures, "code_sums", len(self.codes.names))
        weight, n_results = self.weight(len(self.schedule.parts)), self.schedule.n_results
        floats = as_floats(sums, self.ranker.units)
        passes = [append_margins(one.reshape(-1, n_results)) / weight for one in floats]
        return ShardSummary(tally, BlockErrors.of(Moments.of_all(passes)))


def _with_codes(record: QueryRecord, codes: CellCodes) -> QueryRecord:
    """Add arrays for sums by code to a record."""
    sums = np.zeros((len(record.strata), len(codes.names)), dtype=np.int64)
    lines = np.ascontiguousarray(codes.lines.T)
    return record._replace(row_lines=codes.row_lines[:], codes=lines, sums=sums)


def _append(state: ShardState, name: str, lines: NDArray[np.int64]) -> None:
    """Append one or more lines to an array of a state."""
    state[name] = np.vstack([state[name], lines]) if name in state else np.atleast_2d(lines)


def _sums_by_code(rows: NumberedShard, state: ShardState) -> dict[str, Any]:
    """Return the sums of a shard by code, if there are any."""
    found: dict[str, Any] = {n: state[n] for n in ("code_sums", "query_sums") if n in state}
    return found if rows.codes is None else found | {"codes": rows.codes.names}


def _observe(count: int, mean: Floats, sum_sq: Floats, seen: Floats) -> None:
    """Add one observation to the Moments of ``count`` others, in place."""
    before = Moments(np.full(len(mean), count, dtype=np.int64), mean, sum_sq)
    after = before.merge(Moments.of(seen))
    mean[:], sum_sq[:] = after.mean, after.sum_sq


def _column_sums(prepared: PreparedBatch, sums: Floats, ranker: Ranker) -> Floats:
    """Return the column sums and the total of each query, without the query weights."""
    batch, drawn = prepared.batch, prepared.drawn
    found = np.empty((len(batch.labels), drawn.weights.shape[1] + 1))
    for query, (label, draw) in enumerate(zip(batch.labels, batch.draws, strict=True)):
        pairs = slice(*batch.pair_starts[query : query + 2])
        coalitions = slice(*drawn.steps.starts[draw : draw + 2])
        alone = prepared.nothing[query] @ ranker.multiplicities(label)
        by_position = sums[pairs] @ drawn.weights[coalitions] + alone * drawn.nothing[draw]
        found[query, batch.orders[query]] = by_position
        found[query, -1] = by_position.sum()
    return found
