"""Trials of runs over shards: some rows and some queries tell what all of them would cost."""

from __future__ import annotations

import pickle
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from cellworth.neighbours.bins import RankBins, edge_places, n_nearest, sample_places
from cellworth.neighbours.chances import chances_at_ranks
from cellworth.neighbours.columns import Distance, Kind, Scale
from cellworth.neighbours.rounds import Near, Prepared, Ranker, Summary
from cellworth.runtime import Dask, Executor, Threads
from cellworth.semivalues import Shapley
from cellworth.sharded.layouts import Layout, Queries
from cellworth.sharded.shards import ShardRows, load
from cellworth.sharded.summaries import summarise
from cellworth.sharded.tables import ShardedTable
from cellworth.value_files import write_values
from cellworth.valuers.questions import Judges, Questions, Task
from cellworth.valuers.shard_plans import Rates

Made = TypeVar("Made")

_TRIAL_ROWS = 65_536
_TRIAL_PAIRS = 64
_TRIAL_SECONDS = 0.5


def trial_part(table: ShardedTable) -> ShardedTable:
    """Some of the first rows of a table, as a table of one shard."""
    (place, groups), *_ = table.shards[0]
    n_rows = np.cumsum([table.files[place].group_rows[group] for group in groups])
    n_groups = int(np.searchsorted(n_rows, _TRIAL_ROWS)) + 1
    part = range(groups.start, min(groups.start + n_groups, groups.stop))
    return replace(table, shards=(((place, part),),))


def n_workers_of(executor: Executor) -> int:
    """Threads of all workers of an executor."""
    if isinstance(executor, Dask):
        return max(int(sum(executor.client.nthreads().values())), 1)
    return int(executor.n_workers) if isinstance(executor, Threads) else 1


class Trial:
    """Times every step of a run on some rows of a table.

    Parameters
    ----------
    table : ShardedTable
        Some rows of the table.
    X_val, y_val
        Validation rows.
    kinds, scale
        As the run has them.
    """

    def __init__(
        self,
        table: ShardedTable,
        X_val: Any,
        y_val: Any,
        *,
        kinds: Mapping[Any, Kind | Distance] | None,
        scale: Scale,
        classification: bool | None,
    ) -> None:
        self._table, self._seconds = table, dict.fromkeys(Rates.__dataclass_fields__, 0.0)
        with threadpool_limits(1), tempfile.TemporaryDirectory() as folder:
            # The first time loads kernels, or compiles them.
            summarise(table, 0, kinds)
            summary = self._timed("read", summarise, table, 0, kinds)
            self.summary_bytes = len(pickle.dumps(summary, protocol=5)) / table.shape[0]
            self.layout: Layout
            self.queries: Queries
            self.layout, self.queries = Layout.of(
                table, summary, X_val, y_val, kinds=kinds, scale=scale,
                classification=classification,
            )  # fmt: skip
            rows = self._timed("read", load, table, 0, self.layout)
            self._timed("read", rows.save, Path(folder) / "rows")
            self.shard = ShardRows.open(Path(folder) / "rows")

    def judges(self, scoring: str) -> Judges:
        """The validation rows."""
        labels = [self.queries.labels.astype(np.float64)]
        return Judges.of((self.queries.columns,), labels, scoring)

    def rates(self, questions: Questions, bins: RankBins, n_neighbors: int) -> Rates:
        """Seconds of all steps, for a run over as many rows as the questions are about."""
        ranker = self._ranker(questions, bins, n_neighbors)
        n_pairs = 0
        with threadpool_limits(1):
            self._round(questions, ranker, 1)
            self._seconds = {**self._seconds, **dict.fromkeys(_OF_ROUNDS, 0.0)}
            began = time.perf_counter()
            while time.perf_counter() - began < _TRIAL_SECONDS or not n_pairs:
                n_pairs += self._round(questions, ranker, _TRIAL_PAIRS)
            self._publish(questions.n_results)
        n_rows, n_cells = self.shard.n_rows, self.shard.n_rows * len(self._table.names)
        each = {"read": n_cells, "publish": n_rows * questions.n_results}
        each |= dict.fromkeys(("look", "settle"), n_pairs * n_rows)
        each |= dict.fromkeys(("prepare", "resolve"), n_pairs)
        return Rates(**{name: self._seconds[name] / each[name] for name in each})

    def _ranker(self, questions: Questions, bins: RankBins, n_neighbors: int) -> Ranker:
        n_rows, rulers = questions.n_rows, self.layout.rulers
        drawn = np.random.default_rng(0).integers(0, self.shard.n_rows, len(sample_places(n_rows)))
        sample = self.shard.rows.take(drawn)
        return Ranker(
            rulers,
            np.minimum(np.arange(len(rulers.places)), questions.n_columns - 1),
            sample._replace(numbers=sample.numbers.astype(np.float64)),
            edge_places(bins, n_rows, n_neighbors),
            np.array(self.layout.class_counts, dtype=np.int64),
            n_nearest(bins, n_rows, n_neighbors),
            n_neighbors,
            chances_at_ranks(Shapley(), n_rows, n_rows, n_neighbors),
        )

    def _round(self, questions: Questions, ranker: Ranker, n_pairs: int) -> int:
        """One round of few queries; how many pairs it had."""
        task, n_coalitions = questions(0), questions.n_coalitions
        task = replace(task, part=task.part.first(max(n_pairs // n_coalitions, 1)))
        prepared: Prepared = self._timed("prepare", _prepared, questions, task, ranker)
        summary: Summary = self._timed("look", ranker.look, 0, self.shard, prepared)
        worths = ranker.resolve(summary)
        self._timed("resolve", ranker.resolve, _of_all_rows(summary, ranker.n_nearest))
        into = np.zeros((questions.n_results, self.shard.n_rows), dtype=np.int64)
        self._timed(
            "settle", ranker.settle, self.shard, prepared, worths.far, worths.near[0], into=into
        )
        return prepared.asked.n_pairs

    def _publish(self, n_results: int) -> None:
        values = np.random.default_rng(0).normal(size=(self.shard.n_rows, n_results))
        with tempfile.TemporaryDirectory() as folder:
            self._timed("publish", write_values, folder, 0, 0, values, None, values[:, 0], None)

    def _timed(self, step: str, function: Callable[..., Made], *given: Any, **named: Any) -> Made:
        # Files may be waited for; the rest is a core's own time, whoever else is on the machine.
        clock = time.thread_time if step in _OF_ROUNDS else time.perf_counter
        began = clock()
        made = function(*given, **named)
        self._seconds[step] += clock() - began
        return made


_OF_ROUNDS = ("prepare", "look", "resolve", "settle")


def _prepared(questions: Questions, task: Task, ranker: Ranker) -> Prepared:
    return questions.prepared(task.part.pieces[0], task.sweep, questions.orders(task), ranker)


def _of_all_rows(summary: Summary, n_near: int) -> Summary:
    """A summary with as many nearest rows as that of the whole table has."""
    n_pairs = len(summary.counts)
    rows = np.random.default_rng(0).integers(0, 2**40, n_pairs * n_near)
    starts = np.arange(0, (n_pairs + 1) * n_near, n_near, dtype=np.uint32)
    return Summary(summary.counts, {0: Near(rows, starts)})
