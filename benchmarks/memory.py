"""Measure peak memory of the main process: eight tasks in flight, results of 200 MB.

    python benchmarks/memory.py --megabytes 200

There are four workers with two tasks each. Tasks add Moments of random numbers. The figure is the
additional resident memory of this process, in units of the result, with a checkpoint and without.
The goal is at most 4. Threads live in this process, and each holds its own result.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time

import numpy as np
import psutil
from distributed import Client

from cellworth.runtime import (
    Dask,
    DirectoryCheckpoint,
    MaxTasks,
    Processes,
    Serial,
    Threads,
)
from cellworth.runtime.engine import TaskPlanner, run
from cellworth.sampling import Moments
from cellworth.sampling.moments import Contribution, Tally

N_WORKERS, N_COLUMNS, N_TASKS = 4, 20, 16


class Peak(threading.Thread):
    """Sampler of the memory of this process, every few milliseconds."""

    def __init__(self):
        super().__init__(daemon=True)
        self._process = psutil.Process()
        self._before = self._process.memory_info().rss
        self._ended = threading.Event()
        self.extra = 0

    def run(self):
        while not self._ended.wait(0.003):
            self.extra = max(self.extra, self._process.memory_info().rss - self._before)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self._ended.set()
        self.join()


def times_the_result(executor, n_bytes, checkpoint=None, n_tasks=N_TASKS):
    """Run tasks with results of this size; return peak memory in units of it."""
    shape = n_bytes // (3 * 8 * N_COLUMNS), N_COLUMNS

    def work(task):
        seen = np.random.default_rng(task).random(shape)
        time.sleep(0.1)
        return Contribution(Moments.of(seen), Tally(1))

    with Peak() as peak:
        outcome = run(
            work,
            planner=TaskPlanner(Contribution),
            stop=MaxTasks(n_tasks),
            executor=executor,
            checkpoint=checkpoint,
            identity={"name": "memory"},
            tasks_per_round=8,
        )
    moments = outcome.contribution.moments
    return peak.extra / (moments.count.nbytes + moments.mean.nbytes + moments.sum_sq.nbytes)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=float, default=200.0)
    n_bytes = int(parser.parse_args().megabytes * 1e6)
    with Client(
        n_workers=N_WORKERS, threads_per_worker=1, dashboard_address=":0", memory_limit=0
    ) as client:
        for executor in (Serial(), Processes(N_WORKERS), Dask(client), Threads(N_WORKERS)):
            plain = times_the_result(executor, n_bytes)
            with tempfile.TemporaryDirectory() as folder:
                written = times_the_result(executor, n_bytes, DirectoryCheckpoint(folder))
            name = type(executor).__name__
            print(f"{name}: {plain:.1f} times the result, {written:.1f} with a checkpoint")


if __name__ == "__main__":
    main()
