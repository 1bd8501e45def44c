"""Measure the overhead of the runtime: CPU time of runs with a checkpoint against plain loops.

The work is kernel calls (KNNValuer) or fits of a model (ModelValuer). The bare version makes
the same calls in plain loops, one per core: threads for kernels, forked processes for models. It
writes and folds nothing. The others are complete fits with a checkpoint. All take turns, and the
least CPU time of each counts: that of this process and of all processes that it started, workers
and schedulers included. Time in which a worker waits for work does not count. Processes and
clusters are started before, of Dask and Ray, too.

A run over shards is compared with the least that any run must do: one thread reads the files with
Arrow once, and for each pair of a query and a coalition adds up distances and counts the rows in a
histogram of even steps. It ranks nothing, and values no cell. What a billion rows cost is computed
from this time, from the bytes of files and of the result, and from what workers send to the driver.
"""

from __future__ import annotations

import math
import multiprocessing
import pickle
import tempfile
import threading
import warnings
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numba import njit
from sklearn.datasets import make_classification
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

from cellworth import KNNValuer, ModelValuer, Runtime, ShardedKNNValuer, ShardedTable
from cellworth.knn.binned import sample_positions
from cellworth.knn.shard_layout import summarize_shards
from cellworth.runtime import Dask, MaxTasks, Processes, Ray, Serial, Threads
from cellworth.sampling import PermutationSampler
from cellworth.sampling.samplers import PermutationTasks
from cellworth.valuers.utilities import pack_coalitions
from experiments import mixture
from experiments.baselines import LeverageSampler
from experiments.frame import Row, Tables, log

QUICK = {
    "seconds": 0.2, "rounds": 1, "clusters": 0, "sharded_rows": 2000, "sharded_queries": (2,)
}  # fmt: skip
N_CORES = 2


def table(n_rows, n_columns, n_queries):
    X, y = make_classification(n_rows + n_queries, n_columns, n_informative=6, random_state=0)
    return {
        "X": X[:n_rows], "y": y[:n_rows], "X_val": X[n_rows:], "y_val": y[n_rows:]
    }  # fmt: skip


@dataclass
class Neighbours:
    """Kernel calls: one pass over more and more queries."""

    n_queries: int = 200

    def grow(self, factor):
        self.n_queries = int(self.n_queries * factor)

    def valuer(self, **runtime):
        runtime = Runtime(**runtime, progress=False)
        return KNNValuer(sampler=LeverageSampler(64), n_passes=1, random_state=0, runtime=runtime)

    def data(self):
        return table(10_000, 14, self.n_queries)

    def bare(self):
        """Return the CPU seconds of two threads that call the kernels."""
        run = self.valuer()._prepare(**self.data(), n_validation=None)
        tasks = run.tasks
        tasks.contribution(tasks(0))
        numbers = range(len(run.schedule.parts))

        def loop(start):
            for number in numbers[start::N_CORES]:
                tasks.contribution(tasks(number))

        # As in tasks: multithreaded libraries would compete for the cores.
        with threadpool_limits(1):
            return spend(threading.Thread, loop)


@dataclass
class Fits:
    """Fits of a decision tree: more and more orders of rows and columns."""

    n_tasks: int = 8

    def grow(self, factor):
        self.n_tasks = max(int(self.n_tasks * factor), 1)

    def valuer(self, **runtime):
        model = DecisionTreeClassifier(max_depth=6, random_state=0)
        runtime = Runtime(**runtime, progress=False)
        return ModelValuer(model, stop=MaxTasks(self.n_tasks), random_state=0, runtime=runtime)

    def data(self):
        groups = {"row_groups": np.arange(1000) % 10, "column_groups": np.arange(14) % 7}
        return table(1000, 14, 500) | groups

    def bare(self):
        """Return the CPU seconds of two processes that train on each coalition once."""
        game = self.valuer()._make_game(**self.data())
        sampler = PermutationTasks((10, 7), 0)
        pairs = [pair for number in range(self.n_tasks) for pair in sampler(number)]
        distinct = list(dict(zip(pack_coalitions(pairs), pairs, strict=True)).values())

        def loop(start):
            with threadpool_limits(1):
                for rows, columns in distinct[start::N_CORES]:
                    game.value(rows, columns)

        return spend(multiprocessing.get_context("fork").Process, loop)


def cpu_seconds():
    """Return the CPU time of this process and of all that it started."""
    this = psutil.Process()
    total = 0.0
    for process in [this, *this.children(recursive=True)]:
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            # It ended just now, and its parent counts it.
            continue
    return total


def spend(start_worker, loop):
    """Return the CPU seconds of one worker per core."""
    began = cpu_seconds()
    workers = [start_worker(target=loop, args=(start,)) for start in range(N_CORES)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return cpu_seconds() - began


def spend_on_fit(job, executor):
    data = job.data()
    with tempfile.TemporaryDirectory() as folder:
        valuer = job.valuer(executor=executor, checkpoint=folder)
        began = cpu_seconds()
        valuer.fit(**data)
        return cpu_seconds() - began


def compare(job, executors, seconds, rounds):
    """Return the least CPU time of each executor over that of the bare loops, timed in turns."""
    for _ in range(2):
        job.grow(seconds / job.bare())
    bare, best = np.inf, dict.fromkeys(executors, np.inf)
    for _ in range(rounds):
        bare = min(bare, job.bare())
        best = {n: min(best[n], spend_on_fit(job, e)) for n, e in executors.items()}
    return {name: each / bare for name, each in best.items()}


@njit(error_model="numpy")
def count_pairs(rows, asked, orders, counts):
    """Count the rows of a batch by distance, for each query and prefix of its orders."""
    (numbers, codes, labels), (asked_numbers, asked_codes, asked_labels) = rows, asked
    n_numbers, width = numbers.shape[0], 2048
    block, line = np.empty((n_numbers + codes.shape[0], width)), np.empty(width)
    for first in range(0, labels.shape[0], width):
        n_rows = min(width, labels.shape[0] - first)
        for query in range(asked_labels.shape[0]):
            for j in range(n_numbers):
                for i in range(n_rows):
                    away = numbers[j, first + i] - asked_numbers[query, j]
                    block[j, i] = 2.0 if np.isnan(away) else min(away * away, 8.0)
            for j in range(codes.shape[0]):
                for i in range(n_rows):
                    same = codes[j, first + i] == asked_codes[query, j]
                    block[n_numbers + j, i] = 0.0 if same else 2.0
            pair = 0
            for order in range(orders.shape[1]):
                line[:] = 0.0
                for column in orders[query, order]:
                    own = counts[query, pair]
                    for i in range(n_rows):
                        line[i] += block[column, i]
                        match = labels[first + i] == asked_labels[query]
                        own[int(match), min(int(line[i] * 4.0), own.shape[1] - 1)] += 1
                    pair += 1


def as_numbers(columns):
    return np.array([np.asarray(column.cast("float64")) for column in columns])


def as_codes(columns):
    return np.array([np.asarray(column.indices.fill_null(-1)) for column in columns])


def count_files(folder, asked, asked_labels, n_coalitions):
    """Return the CPU seconds of one thread that counts all rows for as many pairs as the run."""
    began = cpu_seconds()
    n_columns, rng = len(asked), np.random.default_rng(0)
    texts = [f"text{j}" for j in range(mixture.N_TEXTS)]
    shape = len(asked_labels), n_coalitions // n_columns
    orders = rng.permuted(np.tile(np.arange(n_columns), (*shape, 1)), axis=2)
    counts = np.zeros((shape[0], n_coalitions, 2, 350), dtype=np.int64)
    for path in sorted(folder.glob("*.parquet")):
        file = pq.ParquetFile(path, read_dictionary=[*texts, "label"])
        for *columns, labels in (batch.columns for batch in file.iter_batches(use_threads=False)):
            dictionaries = [column.dictionary.cast("string") for column in (*columns[-4:], labels)]
            rows = as_numbers(columns[:-4]), as_codes(columns[-4:]), as_codes([labels])[0]
            wanted = [
                np.asarray(pc.index_in(cells, own).fill_null(-2))
                for cells, own in zip((*asked[-4:], asked_labels), dictionaries, strict=True)
            ]
            queries = as_numbers(asked[:-4]).T, np.array(wanted[:-1]).T, wanted[-1]
            count_pairs(rows, queries, orders, counts)
    return cpu_seconds() - began


def compare_shards(n_rows, n_queries, rounds):
    """Return times of a run over shards and of the bare loop, and what a billion rows cost."""
    X_val, y_val = mixture.queries(n_queries)
    settings = {"sampler": PermutationSampler(1), "n_passes": 1, "random_state": 0}
    runtime = Runtime(executor=Serial(), progress=False)
    bare, whole = [], []
    with tempfile.TemporaryDirectory() as home:
        for size in (2000, *[n_rows] * rounds):
            folder = Path(home) / str(size)
            if not folder.exists():
                mixture.write(folder, size, 2)
            began = cpu_seconds()
            table = ShardedTable.from_files(folder, target="label")
            valuer = ShardedKNNValuer(10, runtime=runtime, **settings)
            valuer.fit(table, X_val=X_val, y_val=y_val, n_validation=None)
            whole.append(cpu_seconds() - began)
            n_pairs = valuer.valuation_.provenance.tally.utilities
            asked = X_val.combine_chunks().columns, pa.array(y_val)
            bare.append(count_files(folder, *asked, n_pairs // n_queries))
        of_summary = len(pickle.dumps(summarize_shards(table, 0, 1, None)))
        files = sum(file.stat().st_size for file in folder.glob("*"))
    # In the first round, kernels are compiled.
    whole_best, bare_best = min(whole[1:]), min(bare[1:])
    of_pair, n_cells = 1e9 / n_rows / n_pairs, math.prod(table.shape)
    values = Path(str(valuer.valuation_.moments.folder))
    result = sum(file.stat().st_size for file in values.rglob("*") if file.is_file())
    measured = {
        "rows": n_rows,
        "queries": n_queries,
        "run, ns per row and coalition": whole_best * of_pair,
        "bare loop, ns": bare_best * of_pair,
        "ratio": whole_best / bare_best,
    }
    hours = measured["run, ns per row and coalition"] * n_pairs / 3600
    n_columns = table.shape[1]
    # At most 128 summaries and one row in 1,024, in floats of 64 bits.
    to_driver = 128 * of_summary + len(sample_positions(10**9)) * n_columns * 8
    computed = {
        "queries": n_queries,
        "coalitions per query": n_pairs // n_queries,
        "CPU hours": hours,
        "hours on 100 workers": hours / 100,
        "files, GB": files / n_cells * n_columns,
        "result, GB": result / n_cells * n_columns,
        "to the driver, GB": to_driver / 1e9,
    }
    return measured, computed


def start_clusters(stack):
    """Return executors on a local Dask cluster and a local Ray cluster, which the stack ends."""
    import ray
    from distributed import Client

    local = {"threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": 0}
    client = stack.enter_context(Client(n_workers=N_CORES, **local))
    ray.init(address="local", num_cpus=N_CORES, include_dashboard=False, log_to_driver=False)
    stack.callback(ray.shutdown)
    return {"Dask, two workers": Dask(client), "Ray, two workers": Ray()}


def run(
    seconds: float = 2.0,
    rounds: int = 2,
    clusters: int = 1,
    sharded_rows: int = 200_000,
    sharded_queries: tuple[int, ...] = (16, 100),
) -> Tables:
    """Return CPU times as multiples of the plain loops'."""
    # Runs are short; their values do not matter here.
    warnings.filterwarnings("ignore", "all differences between blocks are within noise")
    with ExitStack() as stack:
        elsewhere = {"Processes(2)": Processes(2), **(start_clusters(stack) if clusters else {})}
        for executor in elsewhere.values():
            spend_on_fit(Fits(n_tasks=1), executor)
        jobs = {
            "kernel calls (KNNValuer)": (Neighbours(), {"Threads(2)": Threads(2), **elsewhere}),
            "fits of a tree (ModelValuer)": (Fits(), elsewhere),
        }
        found: dict[str, Row] = {}
        for title, (job, executors) in jobs.items():
            for name, ratio in compare(job, executors, seconds, rounds).items():
                found.setdefault(name, {"executor": name})[title] = ratio
                log(title, name, ratio)
    shards, billions = [], []
    for n_queries in sharded_queries:
        measured, computed = compare_shards(sharded_rows, n_queries, rounds)
        shards.append(measured)
        billions.append(computed)
        log(measured, computed)
    return {
        "CPU time, times that of plain loops": list(found.values()),
        "runs over shards, in one thread": shards,
        "a billion rows of 20 columns, computed": billions,
    }
