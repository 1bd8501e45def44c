"""What rounds over shards cost beside the work itself: algorithm that do nothing, on any executor.

    python benchmarks/shard_rounds.py            # this machine, and a cluster of 2
    python benchmarks/shard_rounds.py 4          # a cluster of 4 processes

Prints seconds per round and shard, tasks per round, and what travels between workers; once with
a worker's summaries merged in a tree, once all of them at a time.
"""

import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from cellworth.runtime import Dask, MaxTasks, Processes, Serial, Threads, rounds
from cellworth.runtime.rounds import run_rounds
from cellworth.runtime.shard_algorithm import RoundResult
from cellworth.runtime.stopping import ShardSummary
from cellworth.sampling.moments import Tally

N_ROUNDS = 3


@dataclass(frozen=True)
class Empty:
    """ShardAlgorithm that do nothing, with summaries and states of so many bytes."""

    n_shards: int
    summary_bytes: int = 8
    state_bytes: int = 8

    def open(self, shard):
        return shard

    def prepare(self, number):
        return number

    def count(self, rows, prepared):
        return np.ones(self.summary_bytes // 8, np.int64)

    def merge(self, one, other):
        return one + other

    def finalize(self, prepared, summary):
        return RoundResult(summary[:1], {}, {"sum": summary[:1]})

    def initial_state(self, rows):
        return {"sums": np.zeros(self.state_bytes // 8, np.int64)}

    def accumulate(self, rows, prepared, shared, part, state):
        state["sums"] += shared[0]
        return state

    def measure(self, state):
        return {}

    def summarize(self, reports, measures):
        return ShardSummary(Tally(), None)

    def write(self, rows, state, shard, folder):
        return {}


def per_round(algorithm, executor, counters, checkpoint=False):
    """What counters count in a round, without what a run costs once."""
    counted = []
    for n_rounds in (1, 1 + N_ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            before = [counter() for counter in counters]
            run_rounds(
                algorithm,
                MaxTasks(n_rounds),
                executor=executor,
                into=Path(folder) / "results",
                identity={},
                checkpoint=Path(folder) / "checkpoint" if checkpoint else None,
            )
            counted.append([counter() for counter in counters])
            counted[-1] = np.subtract(counted[-1], before)
    return (counted[1] - counted[0]) / N_ROUNDS


def bytes_moved(client):
    """Bytes that workers have handed out since they began: to each other, and to the driver."""
    return sum(client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total).values())


def tasks_done(client):
    """Tasks that the cluster has done since it began."""
    return client.run_on_scheduler(
        lambda dask_scheduler: sum(
            prefix.state_counts["memory"] for prefix in dask_scheduler.task_prefixes.values()
        )
    )


def worker_seconds(client):
    """Processor time of all workers."""
    return sum(client.run(time.process_time).values())


def here():
    print("executor    checkpoint  shards  ms per round and shard")
    for executor in (Serial(), Threads(2), Processes(2)):
        for checkpoint in (False, True):
            for n_shards in (16, 100, 1000):
                algorithm = Empty(n_shards)
                (seconds,) = per_round(algorithm, executor, [time.perf_counter], checkpoint)
                name = type(executor).__name__
                print(
                    f"{name:<12}{checkpoint!s:<12}{n_shards:>6}{1000 * seconds / n_shards:>12.2f}"
                )


def there(n_workers):
    from distributed import Client, LocalCluster

    print("per round, on a cluster; the scheduler lives in the driver's process")
    print("merging  shards  summary  seconds  CPU s of driver  of workers  tasks  MB moved")
    with (
        LocalCluster(
            n_workers=n_workers, threads_per_worker=1, dashboard_address=":0", memory_limit=0
        ) as processes,
        Client(processes) as client,
    ):
        counters = [
            time.perf_counter,
            time.process_time,
            partial(worker_seconds, client),
            partial(tasks_done, client),
            partial(bytes_moved, client),
        ]
        # Workers import what they need.
        per_round(Empty(16), Dask(client), counters)
        for name, fan_in in (("tree", 8), ("flat", 10**9)):
            rounds.FAN_IN = fan_in
            for n_shards, summary_bytes in ((16, 8), (100, 8), (1000, 8), (100, 2**20)):
                seconds, driver, workers, n_tasks, moved = per_round(
                    Empty(n_shards, summary_bytes), Dask(client), counters
                )
                print(
                    f"{name:<8}{n_shards:>7}{summary_bytes:>9}{seconds:>9.2f}{driver:>17.2f}"
                    f"{workers:>12.2f}{n_tasks:>7.0f}{moved / 1e6:>10.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    here()
    there(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
