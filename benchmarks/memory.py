"""Peak memory of the process that folds: eight tasks in flight, each with a result of 200 MB.

    python benchmarks/memory.py --megabytes 200

Four workers, two requests for each. Tasks add Moments of random numbers; what is measured is the
resident memory of this process beyond what it had before, in units of the result, with a checkpoint
and without. At most 4 is wanted. Threads live in this process, and each holds a result of its own.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time

import numpy as np
import psutil
from distributed import Client

from cellworth import AfterTasks, Dask, DirectoryJournal, Processes, Serial, Threads
from cellworth.moments import Contribution, Moments, Tally
from cellworth.runtime import TaskPlanner, run

N_WORKERS, N_COLUMNS, N_TASKS = 4, 20, 16


class Peak(threading.Thread):
    """Looks at the memory of this process every few milliseconds."""

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
    """Run tasks of so large a result; return peak memory in units of it."""
    shape = n_bytes // (3 * 8 * N_COLUMNS), N_COLUMNS

    def work(task):
        seen = np.random.default_rng(task).random(shape)
        time.sleep(0.1)
        return Contribution(Moments.of(seen), Tally(1))

    with Peak() as peak:
        outcome = run(
            work,
            planner=TaskPlanner(Contribution),
            stop=AfterTasks(n_tasks),
            executor=executor,
            checkpoint=checkpoint,
            identity={"name": "memory"},
            tasks_per_round=8,
        )
    moments = outcome.contribution.moments
    return peak.extra / (moments.count.nbytes + moments.mean.nbytes + moments.spread.nbytes)


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
                written = times_the_result(executor, n_bytes, DirectoryJournal(folder))
            name = type(executor).__name__
            print(f"{name}: {plain:.1f} times the result, {written:.1f} with a checkpoint")


if __name__ == "__main__":
    main()
