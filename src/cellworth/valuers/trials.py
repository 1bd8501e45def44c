"""Trials: the cost of a run, measured on a few queries and, of a sharded table, on some rows."""

from __future__ import annotations

import math
import pickle
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from cellworth.games.sharded_knn import ShardedKNNGame
from cellworth.neighbours.bins import RankBins, sample_places
from cellworth.neighbours.rounds import Near, Ranker, Shard, Summary
from cellworth.runtime import Dask, Executor, StoppingRule, Threads
from cellworth.semivalues import Semivalue
from cellworth.sharded.preparing import PreparedShards
from cellworth.sharded.summaries import summarise
from cellworth.sharded.tables import ShardedTable
from cellworth.value_files import write_groups
from cellworth.valuers.plans import SERIAL, Plan, ShardPlan
from cellworth.valuers.queries import QueryTasks
from cellworth.valuers.questions import Questions

Made = TypeVar("Made")

_TRIAL_SECONDS = 0.5
_TRIAL_ROWS = 65_536
_TRIAL_PAIRS = 64
# Bytes of a process with all libraries, and of a pair while its rows are ranked.
_PROCESS = 400e6
_PAIR = 8192


def plan_of_sweeps(tasks: QueryTasks, sweeps: int | None, stop: StoppingRule | None) -> Plan:
    """Plan a run of some sweeps, or until a rule is met; some queries are valued for it."""
    n_coalitions = tasks.questions.n_coalitions
    per_sweep = tasks.questions.judges.n_queries * n_coalitions
    most = math.inf if stop is None else min(
        stop.most_utilities, stop.most_tasks * per_sweep / len(tasks.questions.parts)
    )  # fmt: skip
    return Plan(
        type(tasks.questions.design).__name__,
        tasks.game.shape,
        min(most, math.inf if sweeps is None else sweeps * per_sweep),
        per_sweep / len(tasks.questions.parts),
        seconds_per_query(tasks) / n_coalitions,
        math.inf if stop is None else stop.most_seconds,
    )


def seconds_per_query(tasks: QueryTasks) -> float:
    """Time of one query, from ever more of them, until that takes half a second."""
    # The last part is watched for errors only if all are.
    task = tasks(len(tasks.questions.parts) - 1)
    most = task.part.n_queries
    n_queries, seconds = 1, 0.0
    with threadpool_limits(1):
        # The first compiles, sorts columns and draws coalitions, once for all.
        tasks.contribution(replace(task, part=task.part.first(1)))
        while True:
            trial = replace(task, part=task.part.first(n_queries))
            began = time.perf_counter()
            tasks.contribution(trial)
            seconds = time.perf_counter() - began
            if n_queries >= most or seconds > _TRIAL_SECONDS:
                return seconds / min(n_queries, most)
            n_queries *= 4


def first_rows(table: ShardedTable) -> ShardedTable:
    """Return some of the first rows of a table, as a table of one shard."""
    (file, groups), *_ = table.shards[0]
    n_rows = np.cumsum([table.files[file].group_rows[group] for group in groups])
    n_groups = int(np.searchsorted(n_rows, _TRIAL_ROWS)) + 1
    part = range(groups.start, min(groups.start + n_groups, groups.stop))
    return replace(table, shards=(((file, part),),))


def plan_of_shards(
    table: ShardedTable,
    make_game: Callable[[], ShardedKNNGame],
    ask: Callable[[ShardedKNNGame], tuple[Questions, int]],
    *,
    bins: RankBins,
    semivalue: Semivalue,
    executor: Executor,
) -> ShardPlan:
    """Time a few pairs on the game of the first rows, and scale them to all pairs and rows."""
    with threadpool_limits(1), tempfile.TemporaryDirectory() as folder:
        # The first call loads kernels, or compiles them.
        make_game()
        game, gathering = _timed(time.perf_counter, make_game)
        shards = PreparedShards(game.table, game.layout, Path(folder), durable=False)
        shard, opening = _timed(time.perf_counter, shards.open, 0)
        questions, sweeps = ask(game)
        n_results, judges = questions.n_results, questions.judges
        values = np.random.default_rng(0).normal(size=(shard.n_rows, n_results))
        groups = [{"mean": values, "row_mean": values[:, 0]}]
        _, writing = _timed(time.perf_counter, write_groups, folder, 0, 0, groups)
        ranker = _ranker(game, shard, questions.n_rows, bins, semivalue)
        passes, serial, pair_bytes, near_bytes = _time_rounds(questions, ranker, shard)
    n_rows, n_columns = table.shape
    n_pairs, n_parts = judges.n_queries * questions.n_coalitions, len(questions.parts)
    # Sums of a sweep; with several sweeps their means and variances as well.
    n_figures = 1 if sweeps == 1 else 3
    cells, figures = n_columns * game.layout.dtype.itemsize, n_results * 8 * n_figures
    run_bytes = (ranker.sample.numbers.shape[1] + judges.n_queries) * n_columns * 8
    return ShardPlan(
        table.shape,
        n_shards=table.n_shards,
        n_workers=_n_workers(executor),
        n_queries=judges.n_queries,
        n_coalitions=questions.n_coalitions,
        sweeps=sweeps,
        n_rounds=sweeps * n_parts,
        core_seconds={
            "reading": n_rows * (gathering + opening) / shard.n_rows,
            "passes over the rows": sweeps * n_pairs * n_rows * passes,
            SERIAL: sweeps * n_pairs * serial,
            "writing": n_rows * writing / shard.n_rows,
        },
        pair_bytes=pair_bytes,
        near_bytes=near_bytes,
        run_bytes=run_bytes,
        summary_bytes=_n_bytes(summarise(game.table, 0, game.kinds)),
        row_bytes=cells + figures + 8,
        base_bytes=_PROCESS + n_pairs / n_parts * (_PAIR + pair_bytes) + run_bytes,
        disk_bytes=n_rows * (cells + 2 * figures + 8 * (n_results + 1) * min(n_figures, 2)),
        on_cluster=isinstance(executor, Dask),
    )


def _n_workers(executor: Executor) -> int:
    """Threads of all workers of an executor."""
    if isinstance(executor, Dask):
        return max(int(sum(executor.client.nthreads().values())), 1)
    return int(executor.n_workers) if isinstance(executor, Threads) else 1


def _ranker(
    game: ShardedKNNGame, shard: Shard, n_rows: int, bins: RankBins, semivalue: Semivalue
) -> Ranker:
    """Rank as in the whole table, with a sample of these rows."""
    drawn = np.random.default_rng(0).integers(0, shard.n_rows, len(sample_places(n_rows)))
    counts = np.array(game.layout.class_counts, dtype=np.int64)
    counts = counts * n_rows // counts.sum()
    counts[0] += n_rows - counts.sum()
    rulers = game.layout.rulers
    return Ranker.of(
        rulers, game.columns.codes[rulers.places].astype(np.int64), shard.rows.take(drawn), counts,
        bins=bins, n_neighbors=game.n_neighbors, semivalue=semivalue, n_players=n_rows,
    )  # fmt: skip


def _time_rounds(questions: Questions, ranker: Ranker, shard: Shard) -> tuple[float, ...]:
    """Return seconds of a pair for each row, seconds for all rows together, and bytes."""
    # The first round loads kernels, or compiles them.
    _time_round(questions, ranker, shard, 1)
    rounds: list[tuple[float, ...]] = []
    began = time.perf_counter()
    while time.perf_counter() - began < _TRIAL_SECONDS or not rounds:
        rounds.append(_time_round(questions, ranker, shard, _TRIAL_PAIRS))
    n_pairs, passes, *others = np.sum(rounds, axis=0)
    return passes / (n_pairs * shard.n_rows), *(other / n_pairs for other in others)


def _time_round(
    questions: Questions, ranker: Ranker, shard: Shard, n_pairs: int
) -> tuple[float, ...]:
    """Return pairs of one round of few queries, seconds of its two parts, and bytes of messages."""
    # Of this thread alone: other processes may keep the machine busy.
    task, clock = questions(0), time.thread_time
    part = task.part.first(max(n_pairs // questions.n_coalitions, 1))
    orders = questions.orders(replace(task, part=part))
    prepared, preparing = _timed(
        clock, questions.prepared, part.pieces[0], task.sweep, orders, ranker
    )
    summary, looking = _timed(clock, ranker.look, 0, shard, prepared)
    worths = ranker.resolve(summary)
    everyone = _of_all_rows(summary, ranker.n_nearest)
    resolved, resolving = _timed(clock, ranker.resolve, everyone)
    into = np.zeros((questions.n_results, shard.n_rows), dtype=np.int64)
    _, settling = _timed(
        clock, ranker.settle, shard, prepared, worths.far, worths.near[0], into=into
    )
    sent = prepared.asked, prepared.ends, prepared.origins, summary.counts, worths.far
    return (
        prepared.asked.n_pairs, looking + settling, preparing + resolving, _n_bytes(sent),
        _n_bytes((everyone.near, resolved.near)),
    )  # fmt: skip


def _of_all_rows(summary: Summary, n_near: int) -> Summary:
    """A summary that lists as many nearest rows as that of the whole table."""
    n_pairs = len(summary.counts)
    rows = np.random.default_rng(0).integers(0, 2**40, n_pairs * n_near)
    starts = np.arange(0, (n_pairs + 1) * n_near, n_near, dtype=np.uint32)
    return Summary(summary.counts, {0: Near(rows, starts)})


def _timed(
    clock: Callable[[], float], function: Callable[..., Made], *given: Any, **named: Any
) -> tuple[Made, float]:
    began = clock()
    made = function(*given, **named)
    return made, clock() - began


def _n_bytes(thing: Any) -> int:
    return len(pickle.dumps(thing, protocol=5))
