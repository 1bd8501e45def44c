"""Tasks of a sharded table: rounds over shards, whose rows are ranked in bins."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from operator import add
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Codes, Floats, Positions
from cellworth.data.holdings import Runs
from cellworth.data.io import AnyPath, Plain
from cellworth.data.sharded_table import ShardedTable
from cellworth.knn.binned import (
    Near,
    PreparedBatch,
    QueryRecord,
    Ranker,
    Shard,
    Summary,
    count_votes_in_summary,
)
from cellworth.knn.shard_data import read_shard
from cellworth.knn.shard_layout import Layout
from cellworth.knn.tasks import (
    Task,
    TaskSchedule,
    count_queries,
    sum_queries,
)
from cellworth.runtime.checkpoint import ShardState
from cellworth.runtime.progress import BlockErrors, ShardSummary
from cellworth.runtime.shard_algorithm import RoundResult
from cellworth.sampling.moments import Tally, append_margins, widening
from cellworth.sampling.passes import (
    DrawVariance,
    Passes,
    PassSums,
    QueryTotals,
    QueryVariance,
    as_floats,
)
from cellworth.valuation.storage import GROUP_ROWS, write_groups

# Sums by code and query that are kept: the driver holds those of all shards.
_MAX_QUERY_SUMS = 2**24


class NumberedShard(NamedTuple):
    """Rows of one shard, its number, and the codes of its cells if sums by code are wanted."""

    number: int
    shard: Shard
    codes: CellCodes | None

    @property
    def nbytes(self) -> int:
        """Size of all arrays."""
        shard, codes = self.shard, self.codes
        arrays = [*shard.rows, shard.starts, shard.positions, shard.targets]
        arrays += [] if codes is None else [codes.row_lines[:], codes.lines, codes.names]
        return sum(array.nbytes for array in arrays if array is not None)


@dataclass(frozen=True, eq=False)
class KNNShardAlgorithm:
    """Values of cells computed on shards, round by round.

    It implements :class:`cellworth.runtime.shard_algorithm.ShardAlgorithm`. A shard's state has
    fixed-point sums of the unfinished pass and squared differences between its draws, and for
    observed queries sums by stratum and squares of values. Of finished passes it has the means and
    sampling variances of cells and rows, and the sums of columns. ``codes`` asks for sums over
    cells with the same code, by pass and, for observed queries, by query.
    """

    table: ShardedTable
    layout: Layout
    ranker: Ranker
    schedule: TaskSchedule
    codes: CellCodes | None = None
    # Whether results must survive a crash of the machine, and not only killed processes.
    durable: bool = True

    @property
    def n_shards(self) -> int:
        """Number of shards."""
        return self.table.n_shards

    def open(self, shard: int) -> NumberedShard:
        """Read the rows of a shard."""
        rows = read_shard(self.table, shard, self.layout)
        return NumberedShard(shard, rows, self.codes and self.codes.take(rows.positions))

    def prepare(self, number: int) -> PreparedBatch:
        """Return the queries of a round and the edges of the bins."""
        task = self.schedule(number)
        # Validation rows are one fold.
        (piece,) = task.part
        orders = self.schedule.orders(task)
        return self.schedule.prepare(piece, task, orders, self.ranker)

    def count(self, rows: NumberedShard, prepared: PreparedBatch) -> Summary:
        """Count a shard's rows by bin, and list its nearest rows."""
        return self.ranker.count(rows.number, rows.shard, prepared)

    def merge(self, one: Summary, other: Summary) -> Summary:
        """Merge two summaries."""
        return one.merge(other)

    def finalize(self, prepared: PreparedBatch, summary: Summary) -> RoundResult:
        """Compute the values of rows from the summary of all shards, and the round's report."""
        batch, task = prepared.batch, self.schedule(prepared.number)
        far, near, row_sums, utilities = self.ranker.finalize(batch, summary)
        votes = count_votes_in_summary(self.ranker, batch, summary)
        of_full_table = batch.of_full_table(utilities)
        totals = sum_queries(batch.weights, of_full_table, prepared.bases, votes)
        sums = _column_sums(prepared, row_sums, self.ranker)[:: task.n_draws]
        # Of the column sums over queries.
        variance = self.schedule.variance([task.part], sums)
        n_ranked = {"n_ranked": self.schedule.n_ranked(task)}
        report = vars(totals) | n_ranked | vars(variance)
        return RoundResult(far, {n: _as_plain(each) for n, each in near.items()}, report)

    def initial_state(self, rows: NumberedShard) -> ShardState:
        """Return the state before the first round."""
        return {"rounds": np.array([0])}

    def accumulate(
        self,
        rows: NumberedShard,
        prepared: PreparedBatch,
        shared: Floats,
        part: Plain,
        state: ShardState,
    ) -> ShardState:
        """Add a round to the sums of a shard; the last round of a pass closes the pass."""
        task = self.schedule(prepared.number)
        n_strata = max(self.schedule.n_kept_strata, 1) if task.records else 1
        shape = self.schedule.n_results, rows.shard.n_rows
        sums = np.zeros((n_strata * task.n_draws, *shape), dtype=np.int64)
        record = self._record(rows, task, state)
        self.ranker.accumulate(rows.shard, prepared, shared, Near(**part), into=sums, record=record)
        if record.sums.size:
            # In units of a query with one draw.
            _append(state, "query_sums", record.sums[:: task.n_draws] * task.n_draws)
        if record.squares.size and "first" not in state:
            state["first"] = np.zeros((n_strata, *shape), dtype=np.int64)
        self._add_draws(rows, sums.reshape(task.n_draws, n_strata, *shape), state, task.records)
        state["rounds"] = state["rounds"] + 1
        n_rounds = int(state["rounds"][0])
        if n_rounds == self.schedule.n_observed_parts:
            self._close_observed(state)
        if n_rounds % len(self.schedule.parts) == 0:
            self._close_pass(rows, state)
        return state

    def _add_draws(
        self, rows: NumberedShard, by_draw: NDArray[np.int64], state: ShardState, records: bool
    ) -> None:
        """Add values of shape (n_draws, n_strata, n_results, n_rows), and differences of draws."""
        from cellworth.knn import binned_kernels as bin_kernels

        n_draws, _, n_results, n_rows = by_draw.shape
        if "sums" not in state:
            state["sums"] = np.zeros((n_results + 1, n_rows), dtype=np.int64)
            if n_draws > 1:
                state["draw_squares"] = np.zeros((n_results + 1, n_rows))
        first = state["first"] if records and "first" in state else by_draw[0, :, :, :0]
        squares = state["draw_squares"] if n_draws > 1 else np.zeros((0, 0))
        bin_kernels.add_draws(by_draw, first, state["sums"], squares, self.ranker.units)
        # The kernel leaves the difference of two draws.
        difference = by_draw[0, 0] if n_draws > 1 else np.zeros_like(by_draw[0, 0])
        _append(state, "column_differences", difference.sum(axis=1))
        if rows.codes is not None:
            _append(state, "code_differences", rows.codes.sums(difference))

    def _record(self, rows: NumberedShard, task: Task, state: ShardState) -> QueryRecord:
        """Return what is to be recorded of the queries of a task; add its arrays to the state."""
        schedule, shard = self.schedule, rows.shard
        ((fold, queries),) = task.part
        record = QueryRecord.by_draw(len(queries), task.n_draws)
        if not task.records:
            return record
        if schedule.n_kept_strata:
            shape = schedule.n_kept_strata, schedule.n_results + 1, shard.n_rows
            if "squares" not in state:
                state["squares"] = np.zeros(shape)
            strata = np.repeat(schedule.queries.strata[fold][queries], task.n_draws)
            # The first draw of a query is recorded.
            squared = np.zeros((len(queries), task.n_draws))
            squared[:, 0] = schedule.square_weights((fold, queries))
            record = record._replace(
                strata=strata + schedule.n_kept_strata * record.strata,
                squared_weights=squared.ravel(),
                squares=state["squares"],
            )
        return _with_codes(record, rows.codes) if self.observes_codes and rows.codes else record

    @property
    def observes_codes(self) -> bool:
        """Whether sums by code and query are kept; they would be too large for many codes."""
        n_queries = sum(map(count_queries, self.schedule.parts[: self.schedule.n_observed_parts]))
        return self.codes is not None and len(self.codes.names) * n_queries <= _MAX_QUERY_SUMS

    def write(
        self, rows: NumberedShard, state: ShardState, shard: int, folder: AnyPath
    ) -> dict[str, Any]:
        """Write values and errors in the order of rows; return sums of cells in fixed point."""
        if "values" not in state:
            # The first pass was interrupted: values are means over the queries so far.
            self._close_pass(rows, state)
        for name in ("sums", "draw_squares"):
            # A later, unfinished pass does not count.
            state.pop(name, None)
        entry = write_groups(
            folder,
            shard,
            self.table.rows(shard).start,
            self._groups(rows.shard, state),
            durable=self.durable,
        )
        names = ("column_sums", "column_differences")
        return entry | {name: state[name] for name in names} | _sums_by_code(rows, state)

    def _groups(self, shard: Shard, state: ShardState) -> Iterator[dict[str, Floats]]:
        """Yield statistics of a shard's rows in the table's order, some rows at a time."""
        order = np.argsort(shard.positions, kind="stable")
        for start in range(0, shard.n_rows, GROUP_ROWS):
            passes = self._passes(state, order[start : start + GROUP_ROWS])
            moments, errors = passes.moments, passes.validation_se()
            group = {"mean": moments.mean, "sum_sq": moments.sum_sq}
            if errors is not None:
                group["validation_se"] = errors
            yield {name: figure[:-1].T for name, figure in group.items()} | {
                f"row_{name}": figure[-1].T for name, figure in group.items()
            }

    def _passes(self, state: ShardState, some: Any = slice(None)) -> Passes:
        """Return the finished passes of some rows; the last line has the sums of rows."""
        n_passes, n_parts = len(state["column_sums"]), len(self.schedule.parts)
        n_rounds = min(int(state["rounds"][0]), n_passes * n_parts)
        variance = None
        if "deviations" in state:
            n_queries, counts = self.schedule.count_observed(min(n_rounds, n_parts))
            deviations = state["deviations"][..., some]
            alone = (n_queries == 1)[:, np.newaxis, np.newaxis]
            variance = QueryVariance(
                n_queries, counts, np.where(alone, deviations, 0.0), deviations
            )
        drawn = self._draws_of(range(n_rounds), np.zeros(()))
        return Passes(
            n_passes=n_passes,
            n_parts=drawn.n_parts,
            n_queries=sum(map(count_queries, self.schedule.parts[:n_rounds])),
            values=state["values"][..., some],
            variance=state["variance"][..., some],
            of_draw=drawn.of_draw,
            query_variance=variance,
        )

    def _draws_of(self, rounds: range, squares: Floats) -> DrawVariance:
        """Return what some rounds tell of sampling errors, by squared differences of draws."""
        each = (self.schedule.draw_variance(self.schedule(n), np.zeros(())) for n in rounds)
        return replace(reduce(DrawVariance.merge, each), squares=squares)

    def measure(self, state: ShardState) -> dict[str, Any]:
        """Return sums over the cells of a shard for stopping rules, after whole passes."""
        if "values" not in state:
            return {"count": 0}
        passes, means = self._passes(state), state["values"][:-1]
        squares = (passes.variance / passes.n_passes**2)[:-1]
        return {
            "count": passes.n_parts + 1,
            "n": means.size,
            "largest": math.sqrt(float(squares.max())),
            "squares": float(squares.sum()),
            "validation": passes.mean_square_validation_se(means.shape) * means.size,
        }

    def summarize(
        self, reports: Sequence[dict[str, Any]], measures: Sequence[dict[str, Any]] | None
    ) -> ShardSummary:
        """Count the coalitions that rounds ranked, and combine the measures of shards."""
        n_ranked = sum(report["n_ranked"] for report in reports)
        tally = Tally(utilities=n_ranked, new=n_ranked)
        if not measures or not measures[0]["count"]:
            return tally, None
        count, n_cells = measures[0]["count"], sum(each["n"] for each in measures)
        errors = BlockErrors(
            count,
            max(each["largest"] for each in measures) * float(widening(count)),
            sum(each["squares"] for each in measures) / n_cells,
            sum(each["validation"] for each in measures) / n_cells,
        )
        return tally, errors

    def weight(self, n_rounds: int) -> float:
        """Return the sum of query weights in the last pass, after n_rounds rounds."""
        total, n_parts = 0.0, len(self.schedule.parts)
        for number in range((n_rounds - 1) // n_parts * n_parts, n_rounds):
            task = self.schedule(number)
            # Draw by draw, as in memory: float addition is not associative.
            by_draw = np.repeat(self.schedule.weights(task.part), task.n_draws) / task.n_draws
            total += reduce(add, by_draw.tolist(), 0.0)
        return total

    def _close_observed(self, state: ShardState) -> None:
        """Turn squares of observed values into squared deviations, and add up strata.

        For a stratum with a single query, its value is kept instead, times its squared weight.
        """
        if "squares" not in state:
            return
        sums, deviations = state.pop("first"), state.pop("squares")
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

    def _close_pass(self, rows: NumberedShard, state: ShardState) -> None:
        """Add a pass to the finished ones, as PassSums does."""
        self._close_observed(state)
        sums, n_rounds = state.pop("sums"), int(state["rounds"][0])
        if rows.codes is not None:
            _append(state, "code_sums", rows.codes.sums(sums[:-1]))
        before = self._passes(state) if "values" in state else None
        _append(state, "column_sums", sums[:-1].sum(axis=1))
        n_parts = len(self.schedule.parts)
        rounds = range((n_rounds - 1) // n_parts * n_parts, n_rounds)
        variance = state.pop("draw_squares", None)
        variance = np.zeros(sums.shape) if variance is None else variance
        drawn, weight = self._draws_of(rounds, variance), self.weight(n_rounds)
        values = sums.view(np.float64)
        # In place and line by line, because a shard's values take most of the memory.
        for line, units in enumerate(sums):
            seen = PassSums(
                parts_per_pass=n_parts,
                parts=len(rounds),
                n_queries=0,
                sums=units,
                totals=QueryTotals(weight, 0.0),
                draws=replace(drawn, squares=variance[line]),
                units=self.ranker.units,
            ).latest
            if before is not None:
                earlier = before.values[line], before.variance[line]
                seen = replace(before, values=earlier[0], variance=earlier[1]).merge(seen)
            values[line], variance[line] = seen.values, seen.variance
        state |= {"values": values, "variance": variance}


class KNNGroupAlgorithm(KNNShardAlgorithm):
    """Sums of cells by code alone, for groups of rows; states hold no values of single cells."""

    def initial_state(self, rows: NumberedShard) -> ShardState:
        """Return the state before the first round."""
        return {"rounds": np.array([0]), "codes": cast(CellCodes, rows.codes).names}

    def accumulate(
        self,
        rows: NumberedShard,
        prepared: PreparedBatch,
        shared: Floats,
        part: Plain,
        state: ShardState,
    ) -> ShardState:
        """Add a round to the sums by code; the last round of a pass closes the pass."""
        task, batch = self.schedule(prepared.number), prepared.batch
        record = _with_codes(QueryRecord.nothing(len(batch.labels)), cast(CellCodes, rows.codes))
        no_cells = np.zeros((1, self.schedule.n_results, 0), dtype=np.int64)
        self.ranker.accumulate(
            rows.shard, prepared, shared, Near(**part), into=no_cells, record=record
        )
        by_draw = record.sums.reshape(-1, task.n_draws, record.sums.shape[1])
        if task.records and self.observes_codes:
            _append(state, "query_sums", by_draw[:, 0] * task.n_draws)
        sums = by_draw.sum(axis=0)
        _append(state, "code_differences", sums[0] - sums[-1])
        state["sums"] = state.get("sums", 0) + sums.sum(axis=0)
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
        names = ("codes", *_SUMS_BY_CODE)
        return {n: state[n] for n in names if n in state} if "code_sums" in state else {}

    def summarize(
        self, reports: Sequence[dict[str, Any]], measures: Sequence[dict[str, Any]] | None
    ) -> ShardSummary:
        """Count the coalitions that rounds ranked, and compute the errors of groups."""
        tally, _ = super().summarize(reports, None)
        if self.codes is None or not measures or not measures[0]:
            return tally, None
        n_results = self.schedule.n_results
        seen = fold_by_code(
            measures,
            reports,
            lambda sums: append_margins(sums.reshape(-1, n_results)),
            schedule=self.schedule,
            n_codes=len(self.codes.names),
            units=self.ranker.units,
        )
        return tally, BlockErrors.of(seen.moments, seen.latest.mean_square_validation_se())


@dataclass(frozen=True, eq=False)
class CellCodes:
    """Codes of the cells of a table or a shard: cells with the same code are added up."""

    row_lines: Codes | Runs  # Line of each row
    lines: Codes  # (n_lines, n_results): position of each cell's code in ``names``
    names: NDArray[np.int64]  # The codes

    def take(self, rows: Positions) -> CellCodes:
        """Return the codes of some rows, without codes that these do not have."""
        used, row_lines = np.unique(self.row_lines[rows], return_inverse=True)
        codes, lines = np.unique(self.lines[used], return_inverse=True)
        return CellCodes(
            row_lines.astype(np.int32),
            lines.reshape(len(used), -1).astype(np.int32),
            self.names[codes],
        )

    def sums(self, cells: NDArray[np.int64]) -> NDArray[np.int64]:
        """Add up values of shape (n_results, n_rows) by code."""
        found = np.zeros(len(self.names), dtype=np.int64)
        for line, codes in zip(cells, self.lines.T, strict=True):
            np.add.at(found, codes[self.row_lines[:]], line)
        return found


# What the states of shards hold by code: sums of each pass, differences between the draws of each
# round, and sums of single queries.
_SUMS_BY_CODE = ("code_sums", "code_differences", "query_sums")


def fold_by_code(
    entries: Sequence[Mapping[str, Any]],
    reports: Sequence[Mapping[str, Any]],
    regroup: Callable[[Any], Any],
    *,
    schedule: TaskSchedule,
    n_codes: int,
    units: float,
) -> PassSums:
    """Fold all rounds as a run in memory does, for sums over the cells of all shards with one code.

    ``entries`` have the sums of each shard, in fixed point, and ``reports`` describe the rounds.
    ``regroup`` is applied to each line of sums: one per pass, round or observed query.
    """
    found = {}
    for name in _SUMS_BY_CODE:
        n_lines = len(entries[0].get(name, ()))
        found[name] = np.zeros((n_lines, n_codes), dtype=np.int64)
        for entry in entries if n_lines else ():
            found[name][:, entry["codes"]] += entry[name]
    values = as_floats(found["query_sums"], units)
    weights = np.concatenate([schedule.weights(part) for part in schedule.parts])
    found["query_sums"] = values / weights[: len(values), np.newaxis]
    passes, differences, queries = (
        np.array([regroup(one) for one in found[name]]) for name in _SUMS_BY_CODE
    )
    parts, n_left = [], len(queries)
    for part in schedule.parts:
        if n_left > 0:
            parts.append(part)
            n_left -= count_queries(part)
    variance = schedule.variance(parts, queries) if parts else None
    return fold_rounds(
        schedule,
        reports,
        passes=passes,
        differences=differences,
        variances=[variance],
        units=units,
    )


def fold_rounds(
    schedule: TaskSchedule,
    reports: Sequence[Mapping[str, Any]],
    *,
    passes: NDArray[Any],
    differences: NDArray[Any],
    variances: Sequence[QueryVariance | None],
    units: float,
) -> PassSums:
    """Fold rounds over shards as a run in memory folds its tasks.

    ``passes`` are the sums of passes, ``differences`` those between the draws of a round, and
    ``variances`` those between the queries of the first rounds.
    """
    n_parts, rounds = len(schedule.parts), []
    for number, report in enumerate(reports):
        ends = (number + 1) % n_parts == 0 or number + 1 == len(reports)
        ends = ends and number // n_parts < len(passes)
        difference = as_floats(differences[number], units)
        added = PassSums(
            parts_per_pass=n_parts,
            parts=1,
            n_queries=int(report["n_queries"].sum()),
            # The sums of a whole pass are added with its last round.
            sums=passes[number // n_parts] if ends else np.zeros_like(passes[0]),
            totals=QueryTotals(*(report[each.name] for each in fields(QueryTotals))),
            draws=schedule.draw_variance(schedule(number), difference),
            query_variance=variances[number] if number < len(variances) else None,
            tally=Tally(utilities=report["n_ranked"], new=report["n_ranked"]),
            units=units,
        )
        rounds.append(added)
    return reduce(PassSums.merge, rounds).close_pass()


def _as_plain(near: Near) -> Plain:
    return {name: array for name, array in near._asdict().items() if array is not None}


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
    found: dict[str, Any] = {n: state[n] for n in _SUMS_BY_CODE if n in state}
    return found if rows.codes is None else found | {"codes": rows.codes.names}


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
