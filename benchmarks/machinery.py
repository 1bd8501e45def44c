"""Measure the overhead of the runtime: runs with a checkpoint against plain loops.

    python benchmarks/machinery.py --seconds 30 --rounds 3

The work is kernel calls (KNNValuer) or fits of a model (MonteCarloValuer). The bare version makes
the same calls in plain loops, one per core: threads for kernels, forked processes for models. It
writes and folds nothing. The others are complete fits with a checkpoint. All take turns, and the
best repetition of each counts. Processes and clusters are started before. The goals are at most
1.10 (threads), 1.25 (processes), 1.35 (Dask) and 1.40 (Ray).
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import threading
import time
import warnings
from dataclasses import dataclass

import numpy as np
import ray
from distributed import Client
from sklearn.datasets import make_classification
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

from cellworth import KNNValuer, MonteCarloValuer, Runtime
from cellworth.runtime import Dask, MaxTasks, Processes, Ray, Serial, Threads
from cellworth.sampling import LeverageSampler
from cellworth.sampling.samplers import PermutationTasks
from cellworth.valuers.utilities import coalition_bytes
from cellworth.valuers.valuer import FitData

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

    def valuer(self, executor=None, checkpoint=None):
        return KNNValuer(
            sampler=LeverageSampler(64),
            n_passes=1,
            random_state=0,
            runtime=Runtime(executor, checkpoint, progress=False),
        )

    def data(self):
        return table(10_000, 14, self.n_queries)

    def bare(self):
        """Return the seconds of two threads that call the kernels."""
        valuer = self.valuer()
        game = valuer._game(FitData(**self.data()))
        settings = valuer._settings()
        effort = valuer._effort(game, settings, with_label=False, n_validation=None)
        tasks = valuer._tasks(game, settings, effort, with_label=False)
        tasks.contribution(tasks(0))
        numbers = range(len(tasks.schedule.parts))

        def loop(start):
            for number in numbers[start::N_CORES]:
                tasks.contribution(tasks(number))

        # As in tasks: multithreaded libraries would compete for the cores.
        with threadpool_limits(1):
            return seconds_of(
                [threading.Thread(target=loop, args=(start,)) for start in range(N_CORES)]
            )


@dataclass
class Fits:
    """Fits of a decision tree: more and more orders of rows and columns."""

    n_tasks: int = 8

    def grow(self, factor):
        self.n_tasks = max(int(self.n_tasks * factor), 1)

    def valuer(self, executor=None, checkpoint=None):
        model = DecisionTreeClassifier(max_depth=6, random_state=0)
        return MonteCarloValuer(
            model,
            stop=MaxTasks(self.n_tasks),
            random_state=0,
            runtime=Runtime(executor, checkpoint, progress=False),
        )

    def data(self):
        groups = {"row_groups": np.arange(1000) % 10, "column_groups": np.arange(14) % 7}
        return table(1000, 14, 500) | groups

    def bare(self):
        """Return the seconds of two processes that train on each coalition once."""
        game = self.valuer()._game(FitData(**self.data()))
        sampler = PermutationTasks((10, 7), 0, antithetic=True)
        pairs = [pair for number in range(self.n_tasks) for pair in sampler(number)]
        distinct = list({coalition_bytes(*pair): pair for pair in pairs}.values())

        def loop(start):
            with threadpool_limits(1):
                for rows, columns in distinct[start::N_CORES]:
                    game.value(rows, columns)

        fork = multiprocessing.get_context("fork")
        return seconds_of([fork.Process(target=loop, args=(start,)) for start in range(N_CORES)])


def seconds_of(workers):
    began = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return time.perf_counter() - began


def seconds_of_fit(job, executor):
    data = job.data()
    with tempfile.TemporaryDirectory() as folder:
        valuer = job.valuer(executor, folder)
        began = time.perf_counter()
        valuer.fit(**data)
        return time.perf_counter() - began


def best_seconds(job, executors, seconds, rounds):
    """Return the best time of the bare loops and of each executor, timed in turns."""
    for _ in range(2):
        job.grow(seconds / job.bare())
    bare, best = np.inf, [np.inf for _ in executors]
    for _ in range(rounds):
        bare = min(bare, job.bare())
        best = [min(b, seconds_of_fit(job, e)) for b, e in zip(best, executors, strict=True)]
    return bare, best


def report(name, job, executors, seconds, rounds):
    bare, best = best_seconds(job, executors.values(), seconds, rounds)
    print(f"{name}: bare loops on {N_CORES} cores {bare:.1f} s")
    for label, took in zip(executors, best, strict=True):
        print(f"    {label}: {took:.1f} s, {took / bare:.2f} times")


def main():
    # Runs are short; their values do not matter here.
    warnings.filterwarnings("ignore", "all differences between blocks are within noise")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="work for each core")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with Client(
        n_workers=N_CORES, threads_per_worker=1, dashboard_address=":0", memory_limit=0
    ) as client:
        ray.init(address="local", num_cpus=N_CORES, include_dashboard=False, log_to_driver=False)
        elsewhere = {
            "Processes(2)": Processes(2),
            "Dask, 2 workers": Dask(client),
            "Ray, 2 workers": Ray(),
        }
        small = Fits(n_tasks=1)
        for executor in elsewhere.values():
            seconds_of_fit(small, executor)
        KNNValuer(n_neighbors=1, runtime=Runtime(executor=Serial())).fit(**table(50, 14, 10))
        report(
            "kernel calls", Neighbours(), {"Threads(2)": Threads(2), **elsewhere},
            arguments.seconds, arguments.rounds,
        )  # fmt: skip
        report("fits", Fits(), elsewhere, arguments.seconds, arguments.rounds)


if __name__ == "__main__":
    main()
