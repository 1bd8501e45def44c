"""Up to 1,000 shards on two processes: messages of the true size, without rows behind them.

    python benchmarks/shard_simulation.py                # 10, 100 and 1,000 shards of 1e6 rows
    python benchmarks/shard_simulation.py --table        # what runs of all sizes cost
    python benchmarks/shard_simulation.py --table --columns 10 100

Rounds run through the same code as real ones, on a Dask cluster of two processes. Shards make up
counts and lists of nearest rows instead of computing them; merging and resolving is real. Rounds
are short. Two sizes of them tell apart what a task costs and what a byte costs. Times of the driver
and of steps are those of processors.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cellworth import ShardedTable
from cellworth.knn import BinnedRanks
from cellworth.knn.binned import Near, Ranker, Summary, edge_positions, n_nearest, sample_positions
from cellworth.knn.exact import ShapleyChances
from cellworth.knn.knn_game import ShardedKNNGame
from cellworth.knn.tasks import TaskSchedule, WeightedQueries
from cellworth.runtime import Dask, MaxTasks, Serial
from cellworth.runtime.rounds import run_rounds
from cellworth.runtime.shard_algorithm import RoundResult
from cellworth.runtime.stopping import ShardSummary
from cellworth.runtime.workers import FuturePool
from cellworth.sampling import PermutationSampler, Shapley
from cellworth.sampling.moments import Tally
from cellworth.valuers.plan import SERIAL, plan_of_shards

ROWS_PER_SHARD = 10**6
N_NEIGHBORS = 5
N_ROUNDS = 3
STEPS = ("prepare", "count", "merge", "finalize")


def time_method(method):
    """Make a worker record how long a method takes."""

    @wraps(method)
    def record(*given):
        from distributed import get_worker

        began = time.thread_time()
        made = method(*given)
        worker = get_worker()
        worker.spent = getattr(worker, "spent", None) or Counter()
        worker.spent[method.__name__] += time.thread_time() - began
        return made

    return record


@dataclass(frozen=True)
class Messages:
    """ShardAlgorithm of shards without rows, whose messages have the size of real ones."""

    n_shards: int
    n_pairs: int

    @property
    def n_rows(self):
        return self.n_shards * ROWS_PER_SHARD

    def open(self, shard):
        return shard

    @time_method
    def prepare(self, number):
        return np.zeros((self.n_pairs, len(self._edges())), dtype=np.int32)

    @time_method
    def count(self, shard, prepared):
        rng = np.random.default_rng(shard)
        n_bins = prepared.shape[1] + 1
        listed = self._n_nearest() / self.n_shards
        counts = np.full((self.n_pairs, 2, n_bins), ROWS_PER_SHARD // (2 * n_bins), dtype=np.uint32)
        starts = np.concatenate([[0], np.cumsum(rng.poisson(listed, self.n_pairs))])
        rows = rng.integers(0, 2**33, int(starts[-1]))
        return Summary(counts, {shard: Near(rows, starts.astype(np.uint32))})

    @time_method
    def merge(self, one, other):
        return one.merge(other)

    @time_method
    def finalize(self, prepared, summary):
        # Only numeric targets need the queries.
        values = self._ranker().finalize(None, summary)
        return RoundResult(values.far, values.near, {"sum": values.sums.sum()})

    def initial_state(self, shard):
        return {"rounds": np.zeros(1)}

    def accumulate(self, shard, prepared, shared, part, state):
        return state

    def measure(self, state):
        return {}

    def summarize(self, reports, measures):
        return ShardSummary(Tally(), None)

    def write(self, shard, state, number, folder):
        return {}

    def _edges(self):
        return edge_positions(BinnedRanks(), self.n_rows, N_NEIGHBORS)

    def _n_nearest(self):
        return n_nearest(BinnedRanks(), self.n_rows, N_NEIGHBORS)

    def _ranker(self):
        counts, chances = np.array([self.n_rows]), ShapleyChances(N_NEIGHBORS)
        return Ranker(
            None, None, None, self._edges(), counts, self._n_nearest(), N_NEIGHBORS, chances
        )


def durations(client):
    """Return the seconds of each step since the cluster began."""
    spent = client.run(lambda dask_worker: dict(getattr(dask_worker, "spent", {}))).values()
    return [sum(each.get(name, 0.0) for each in spent) for name in STEPS]


class Submitted:
    """Count the tasks that the driver submits."""

    def __init__(self):
        self.n_tasks = 0
        submit = FuturePool.submit

        def count(pool, requests):
            self.n_tasks += len(requests)
            return submit(pool, requests)

        FuturePool.submit = count


def bytes_moved(client):
    """Bytes that workers have handed out since they began."""
    return sum(client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total).values())


def per_round(client, submitted, algorithm):
    """Of one round: seconds by the clock and of the driver, bytes, tasks, seconds of steps."""
    found = []
    for n_rounds in (1, 1 + N_ROUNDS):
        with tempfile.TemporaryDirectory() as folder:

            def counters():
                clocks = [time.perf_counter(), time.process_time(), bytes_moved(client)]
                return np.array([*clocks, submitted.n_tasks, *durations(client)])

            before = counters()
            run_rounds(
                algorithm,
                MaxTasks(n_rounds),
                executor=Dask(client),
                into=Path(folder) / "results",
                identity={},
            )
            found.append(counters() - before)
    return (found[1] - found[0]) / N_ROUNDS


def simulate(counts, sizes):
    """Print what rounds cost."""
    from distributed import Client, LocalCluster

    print("per round of few pairs, two workers; the scheduler lives in the driver's process")
    print(
        f"{'shards':>7}{'pairs':>6}{'tasks':>7}{'clock':>8}{'driver':>8}{'prepare':>9}"
        f"{'count':>8}{'merge':>8}{'finalize':>9}{'MB':>9}"
    )
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit=0,
            silence_logs=logging.ERROR,
        ) as processes,
        Client(processes) as client,
    ):  # fmt: skip
        submitted = Submitted()
        per_round(client, submitted, Messages(2, 2))
        for n_shards in counts:
            for n_pairs in sizes:
                counted = per_round(client, submitted, Messages(n_shards, n_pairs))
                clock, driver, moved, n_tasks = counted[:4]
                spent = dict(zip(STEPS, counted[4:], strict=True))
                print(
                    f"{n_shards:>7}{n_pairs:>6}{n_tasks:>7.0f}{clock:>8.2f}{driver:>8.2f}"
                    f"{spent['prepare']:>9.3f}{spent['count']:>8.2f}{spent['merge']:>8.2f}"
                    f"{spent['finalize']:>9.3f}{moved / 1e6:>9.2f}",
                    flush=True,
                )


def table_of(n_columns, folder):
    """Rows of plain numbers, in one shard."""
    n_rows, rng = max(2**22 // n_columns, 8192), np.random.default_rng(0)
    cells = {f"x{j}": rng.normal(size=n_rows).astype(np.float32) for j in range(n_columns)}
    label = np.where(cells["x0"] + rng.normal(size=n_rows) > 0, "yes", "no")
    path = Path(folder) / f"{n_columns}.parquet"
    pq.write_table(pa.table({**cells, "label": label}), path)
    return ShardedTable.from_files(path, target="label", shards=1)


def make_plan(table, n_rows, n_queries=1000):
    """Plan a run of n_rows; beyond ten million, scale the serial steps."""
    n_columns, most = table.shape[1], min(n_rows, 10**7)
    validation = table.take(range(n_queries))

    def game():
        return ShardedKNNGame.of(
            table, validation.drop_columns(["label"]), validation.column("label").to_pylist(),
            n_neighbors=N_NEIGHBORS, scoring=None, scale="robust", column_types=None, empty="prior",
            column_groups=None, executor=Serial(), show_progress=False,
        )  # fmt: skip

    def ask(game):
        queries = WeightedQueries.of((game.queries.columns,), game.query_labels, game.scoring)
        schedule = TaskSchedule(
            queries, (most, n_columns), sampler=PermutationSampler(1), column_semivalue=Shapley(),
            with_label=False, empty="prior", seed=0,
        )  # fmt: skip
        return schedule, 1

    n_shards = max(1, n_rows // ROWS_PER_SHARD)
    found = plan_of_shards(
        SimpleNamespace(shape=(n_rows, n_columns), n_shards=n_shards), game, ask,
        bins=BinnedRanks(), semivalue=Shapley(), executor=Serial(),
    )  # fmt: skip
    grown = len(sample_positions(n_rows)) / len(sample_positions(most))
    spent = found.core_seconds | {SERIAL: found.core_seconds[SERIAL] * grown}
    n_workers = min(n_shards, 100)
    return replace(
        found, core_seconds=spent, run_bytes=found.run_bytes * grown, n_workers=n_workers,
        base_bytes=found.base_bytes + found.run_bytes * (grown - 1),
        on_cluster=n_workers > 1,
    )  # fmt: skip


def print_table(columns):
    """Print what runs of all sizes cost, line by line."""
    with tempfile.TemporaryDirectory() as folder:
        for n_columns in columns:
            table = table_of(n_columns, folder)
            for power in range(4, 10):
                print(make_plan(table, 10**power), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="print what runs cost")
    parser.add_argument("--columns", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--shards", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--pairs", type=int, nargs=2, default=[4, 32])
    given = parser.parse_args()
    if given.table:
        print_table(given.columns)
        return
    simulate(given.shards, given.pairs)


if __name__ == "__main__":
    main()
