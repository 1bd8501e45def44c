"""Up to 1,000 shards on two processes: messages of the true size, without rows behind them.

    python benchmarks/shard_simulation.py                # 10, 100 and 1,000 shards of 1e6 rows
    python benchmarks/shard_simulation.py --table        # what runs cost, as Markdown
    python benchmarks/shard_simulation.py --table --columns 10 100

Rounds run through the same code as real ones, on a Dask cluster of two processes. Shards make up
counts and lists of nearest rows instead of computing them; merging and resolving is real. Rounds
are short. Two sizes of them tell apart what a task costs and what a byte costs, from which follows
what a full round costs the scheduler, the tree and the worker that resolves, in comparison with the
passes over the rows that all workers make at the same time. Times of the driver and of steps are
those of processors.
"""

from __future__ import annotations

import argparse
import logging
import math
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cellworth import Dask, Permutations, RankBins, Shapley, ShardedTable
from cellworth.games.knn import query_weights
from cellworth.neighbours.bins import edge_places, n_nearest, sample_places
from cellworth.neighbours.chances import ShapleyChances
from cellworth.neighbours.rounds import Near, Ranker, Summary
from cellworth.runtime import dask_rounds
from cellworth.runtime.dask_rounds import FAN_IN
from cellworth.runtime.rounds import run_rounds
from cellworth.runtime.shard_algorithm import Resolved
from cellworth.valuers.questions import Judges, Questions
from cellworth.valuers.shard_plans import ShardPlan, told_bytes, told_hours
from cellworth.valuers.shard_trials import Trial

ROWS_PER_SHARD = 10**6
N_NEIGHBORS = 5
N_ROUNDS = 3
STEPS = ("prepare", "look", "merge", "resolve")
# What a machine of a cluster sends in a second: ten gigabits.
BYTES_PER_SECOND = 1.25e9


def timed(method):
    """Have a worker note how long a method takes."""

    @wraps(method)
    def noted(*given):
        from distributed import get_worker

        began = time.thread_time()
        made = method(*given)
        worker = get_worker()
        worker.spent = getattr(worker, "spent", None) or Counter()
        worker.spent[method.__name__] += time.thread_time() - began
        return made

    return noted


@dataclass(frozen=True)
class Messages:
    """Phases of shards without rows: what they send is as large as that of real ones."""

    n_shards: int
    n_pairs: int

    @property
    def n_rows(self):
        return self.n_shards * ROWS_PER_SHARD

    def open(self, shard):
        return shard

    @timed
    def prepare(self, number):
        return np.zeros((self.n_pairs, len(self._edges())), dtype=np.int32)

    @timed
    def look(self, shard, prepared):
        rng = np.random.default_rng(shard)
        n_bins = prepared.shape[1] + 1
        listed = self._n_nearest() / self.n_shards
        counts = np.full((self.n_pairs, 2, n_bins), ROWS_PER_SHARD // (2 * n_bins), dtype=np.uint32)
        starts = np.concatenate([[0], np.cumsum(rng.poisson(listed, self.n_pairs))])
        rows = rng.integers(0, 2**33, int(starts[-1]))
        return Summary(counts, {shard: Near(rows, starts.astype(np.uint32))})

    @timed
    def merge(self, one, other):
        return one.merge(other)

    @timed
    def resolve(self, prepared, summary):
        worths = self._ranker().resolve(summary)
        return Resolved(worths.far, worths.near, {"sum": worths.sums.sum()})

    def blank(self, shard):
        return {"rounds": np.zeros(1)}

    def settle(self, shard, prepared, shared, part, state):
        return state

    def publish(self, shard, state, number, folder):
        return {}

    def _edges(self):
        return edge_places(RankBins(), self.n_rows, N_NEIGHBORS)

    def _n_nearest(self):
        return n_nearest(RankBins(), self.n_rows, N_NEIGHBORS)

    def _ranker(self):
        counts, chances = np.array([self.n_rows]), ShapleyChances(N_NEIGHBORS)
        return Ranker(
            None, None, None, self._edges(), counts, self._n_nearest(), N_NEIGHBORS, chances
        )


def durations(client):
    """Seconds that steps took since the cluster began."""
    spent = client.run(lambda dask_worker: dict(getattr(dask_worker, "spent", {}))).values()
    return [sum(each.get(name, 0.0) for each in spent) for name in STEPS]


class Submitted:
    """Counts tasks that the driver submits."""

    def __init__(self):
        self.n_tasks = 0
        one, many = dask_rounds.Sender.one, dask_rounds.Sender.for_shards

        def counted_one(tasks, *given):
            self.n_tasks += 1
            return one(tasks, *given)

        def counted_many(tasks, *given, **named):
            self.n_tasks += len(given[-1])
            return many(tasks, *given, **named)

        dask_rounds.Sender.one, dask_rounds.Sender.for_shards = counted_one, counted_many


def bytes_moved(client):
    """Bytes that workers have handed out since they began."""
    return sum(client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total).values())


def per_round(client, submitted, phases):
    """Of one round: seconds by the clock and of the driver, bytes, tasks, seconds of steps."""
    found = []
    for n_rounds in (1, 1 + N_ROUNDS):
        with tempfile.TemporaryDirectory() as folder:

            def counters():
                clocks = [time.perf_counter(), time.process_time(), bytes_moved(client)]
                return np.array([*clocks, submitted.n_tasks, *durations(client)])

            before = counters()
            run_rounds(
                phases, n_rounds, executor=Dask(client), into=Path(folder) / "results", identity={}
            )
            found.append(counters() - before)
    return (found[1] - found[0]) / N_ROUNDS


def simulate(counts, sizes):
    """Print what rounds cost; return it by number of shards and of pairs."""
    from distributed import Client, LocalCluster

    print("per round of few pairs, two workers; the scheduler lives in the driver's process")
    print(
        f"{'shards':>7}{'pairs':>6}{'tasks':>7}{'clock':>8}{'driver':>8}{'prepare':>9}"
        f"{'look':>8}{'merge':>8}{'resolve':>9}{'MB':>9}"
    )
    found = {}
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
                found[n_shards, n_pairs] = counted
                clock, driver, moved, n_tasks = counted[:4]
                spent = dict(zip(STEPS, counted[4:], strict=True))
                print(
                    f"{n_shards:>7}{n_pairs:>6}{n_tasks:>7.0f}{clock:>8.2f}{driver:>8.2f}"
                    f"{spent['prepare']:>9.3f}{spent['look']:>8.2f}{spent['merge']:>8.2f}"
                    f"{spent['resolve']:>9.3f}{moved / 1e6:>9.2f}",
                    flush=True,
                )
    return found


def conclude(found, counts, sizes, rates):
    """Print what a full round costs whom, with a worker for every shard."""
    (small, large), n_columns, n_queries = sizes, 100, 1000
    print(f"\na full round of {n_columns} columns, a worker for every shard; seconds")
    print(
        f"{'shards':>7}{'pairs':>7}{'passes':>8}{'driver':>8}{'tree':>8}{'prepare':>9}"
        f"{'resolve':>9}{'home sends':>11}  slowest beside the passes, of their time"
    )
    for n_shards in counts:
        messages = Messages(n_shards, 1)
        questions = asked(messages.n_rows, n_columns, n_queries)
        n_pairs = -(-n_queries // len(questions.parts)) * n_columns
        one, many = found[n_shards, small], found[n_shards, large]
        slope = (many - one) / (large - small)
        merged = 4 + STEPS.index("merge")
        # With a worker for every shard, the last merge of each level is waited for.
        bytes_counts = 8 * (len(messages._edges()) + 1) * n_pairs
        listed = 8 * messages._n_nearest() * n_pairs
        levels = math.ceil(math.log(max(n_shards, 2), FAN_IN))
        adds = levels * (FAN_IN - 1)
        tree = adds * slope[merged] / max(n_shards - 1, 1) * n_pairs
        tree += (adds * bytes_counts + listed) / BYTES_PER_SECOND
        scaled = len(sample_places(messages.n_rows)) / len(sample_places(10**7))
        spent = {
            "driver": float(one[1]),
            "tree": float(tree),
            # Three rounds at a time, each at a worker of its own.
            "prepare": n_pairs * rates.prepare * max(scaled, 1.0) / 3,
            "resolve": float(slope[4 + STEPS.index("resolve")]) * n_pairs / 3,
            "home sends": (2 * bytes_counts * min(n_shards, 10) + listed) / BYTES_PER_SECOND / 3,
        }
        passes = n_pairs * ROWS_PER_SHARD * (rates.look + rates.settle)
        worst = max(spent, key=lambda name: spent[name])
        print(
            f"{n_shards:>7}{n_pairs:>7}{passes:>8.1f}{spent['driver']:>8.2f}{spent['tree']:>8.2f}"
            f"{spent['prepare']:>9.2f}{spent['resolve']:>9.2f}{spent['home sends']:>11.2f}"
            f"  {worst} {spent[worst] / passes:.0%}"
        )


def asked(n_rows, n_columns, n_queries):
    """Questions of one order of the columns each."""
    labels = [np.zeros(n_queries)]
    judges = Judges((None,), labels, query_weights(labels, "neighbor_agreement"))
    return _questions(judges, n_rows, n_columns)


def _questions(judges, n_rows, n_columns):
    return Questions(
        judges, (n_rows, n_columns), design=Permutations(1), column_semivalue=Shapley(),
        with_label=False, empty="prior", seed=0,
    )  # fmt: skip


def trial_of(n_columns, folder, n_queries=1000):
    """A trial on rows of plain numbers, as plan() makes it."""
    n_rows = max(2**22 // n_columns, 8192)
    rng = np.random.default_rng(0)

    def rows(n):
        return {f"x{j}": rng.normal(size=n).astype(np.float32) for j in range(n_columns)}

    cells = rows(n_rows)
    label = np.where(cells["x0"] + rng.normal(size=n_rows) > 0, "yes", "no")
    path = Path(folder) / f"{n_columns}.parquet"
    pq.write_table(pa.table({**cells, "label": label}), path)
    table = ShardedTable.from_parquet(path, target="label", shards=1)
    return Trial(
        table, pa.table(rows(n_queries)), rng.choice(["yes", "no"], n_queries).tolist(),
        kinds=None, scale="robust", classification=True,
    )  # fmt: skip


def planned(trial, rates, n_rows, n_columns, n_queries=1000):
    """A plan as plan() makes it, for so many rows; what a sample costs grows with it."""
    judges = trial.judges("neighbor_agreement")
    questions = _questions(judges, n_rows, n_columns)
    n_shards = max(1, n_rows // ROWS_PER_SHARD)
    return ShardPlan(
        (n_rows, n_columns), n_columns, n_shards=n_shards, n_workers=min(n_shards, 100),
        n_queries=n_queries, n_coalitions=n_columns, sweeps=1,
        pairs_per_round=-(-n_queries // len(questions.parts)) * n_columns,
        n_neighbors=N_NEIGHBORS, bins=RankBins(), rates=rates,
        cell_bytes=trial.layout.dtype.itemsize, n_designs=len(questions.drawn(0)),
        summary_bytes=trial.summary_bytes,
    )  # fmt: skip


def rates_at(trial, n_rows, n_columns):
    """Rates for so many rows: measured up to ten million, the sample scaled beyond."""
    most = min(n_rows, 10**7)
    questions = _questions(trial.judges("neighbor_agreement"), most, n_columns)
    rates = trial.rates(questions, RankBins(), N_NEIGHBORS)
    grown = len(sample_places(n_rows)) / len(sample_places(most))
    listed = n_nearest(RankBins(), n_rows, N_NEIGHBORS) / n_nearest(RankBins(), most, N_NEIGHBORS)
    return replace(rates, prepare=rates.prepare * grown, resolve=rates.resolve * listed)


def print_table(columns):
    """Print what runs of all sizes cost, as Markdown."""
    print(
        "| rows | columns | shards | workers | core time | time | network | through the driver ",
        end="",
    )
    print("| memory per worker | disk | mostly |")
    print("|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|:--|")
    with tempfile.TemporaryDirectory() as folder:
        for n_columns in columns:
            trial = trial_of(n_columns, folder)
            for power in range(4, 10):
                n_rows = 10**power
                plan = planned(trial, rates_at(trial, n_rows, n_columns), n_rows, n_columns)
                network = told_bytes(plan.network_bytes) if plan.n_workers > 1 else "none"
                cells = [
                    f"10^{power}", f"{n_columns:,}", f"{plan.n_shards:,}", str(plan.n_workers),
                    told_hours(plan.core_hours), told_hours(plan.hours), network,
                    told_bytes(sum(plan.driver_bytes.values())),
                    told_bytes(plan.memory_per_worker), told_bytes(plan.disk_bytes),
                    plan.bottleneck,
                ]  # fmt: skip
                print(f"| {' | '.join(cells)} |", flush=True)


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
    found = simulate(given.shards, given.pairs)
    with tempfile.TemporaryDirectory() as folder:
        trial = trial_of(100, folder)
        conclude(found, given.shards, given.pairs, rates_at(trial, 10**7, 100))


if __name__ == "__main__":
    main()
