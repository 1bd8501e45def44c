"""Measure the overhead of the runtime: CPU time of runs with a checkpoint against plain loops.

The work is kernel calls (KNNValuer) or fits of a model (ModelValuer). The bare version makes
the same calls in plain loops, one per core: threads for kernels, forked processes for models. It
writes and folds nothing. The others are complete fits with a checkpoint. All take turns, and the
least CPU time of each counts: that of this process and of all processes that it started, workers
and schedulers included. Time in which a worker waits for work does not count. Processes and
clusters are started before, of Dask and Ray, too.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import threading
import warnings
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import psutil
from sklearn.datasets import make_classification
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

from cellworth import KNNValuer, ModelValuer, Runtime
from cellworth.runtime import Dask, MaxTasks, Processes, Ray, Threads
from cellworth.sampling.samplers import PermutationTasks
from cellworth.valuers.utilities import pack_coalitions
from experiments.baselines import LeverageSampler
from experiments.frame import Row, Tables, log

QUICK = {"seconds": 0.2, "rounds": 1, "clusters": 0}
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


def start_clusters(stack):
    """Return executors on a local Dask cluster and a local Ray cluster, which the stack ends."""
    import ray
    from distributed import Client

    local = {"threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": 0}
    client = stack.enter_context(Client(n_workers=N_CORES, **local))
    ray.init(address="local", num_cpus=N_CORES, include_dashboard=False, log_to_driver=False)
    stack.callback(ray.shutdown)
    return {"Dask, two workers": Dask(client), "Ray, two workers": Ray()}


def run(seconds: float = 2.0, rounds: int = 2, clusters: int = 1) -> Tables:
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
    return {"CPU time, times that of plain loops": list(found.values())}
