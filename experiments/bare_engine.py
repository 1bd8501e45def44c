"""Compare ranking with a bare engine: float32 distances, added up and sorted by NumPy.

    python -m experiments bare_engine

Exact ranking is timed on Gaussian numbers and on the Census, binned ranks on 1 million rows x 20.
Queries run one by one, on all prefixes of a random order of the columns, in one thread. All are
timed in turns, and the least CPU time of several repetitions counts. Then values by bins are
compared with those by exact ranking.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from threadpoolctl import threadpool_limits

from cellworth import KNNValuer, Runtime
from cellworth.knn import BinnedRanks, KNNGame
from cellworth.knn.exact import Query, SortedRows
from cellworth.knn.memory_tasks import QueryTasks
from cellworth.knn.tasks import TaskSchedule, WeightedQueries
from cellworth.sampling import PermutationSampler, Shapley
from experiments.frame import Row, Tables, log
from experiments.tables import find

QUICK = {"rows": (2000,), "rounds": 2, "many": 20_000, "queries": 5}
N_QUERIES = 10


class BareEngine:
    """An engine that adds up float32 distances by column and sorts every prefix."""

    def __init__(self, rows):
        self.rows = np.ascontiguousarray(rows.T, dtype=np.float32)
        self.lines = np.empty(self.rows.shape, dtype=np.float32)
        self.difference = np.empty(self.rows.shape[1], dtype=np.float32)

    def rank(self, query, order):
        before = np.float32(0.0)
        for position, column in enumerate(order):
            np.subtract(self.rows[column], query[column], out=self.difference)
            np.multiply(self.difference, self.difference, out=self.difference)
            before = np.add(before, self.difference, out=self.lines[position])
        self.lines.sort(axis=1)


def read_census(data):
    return [pd.read_csv(find(f"adult_{side}", data)) for side in ("train", "test")]


def tables(data, lengths):
    """Yield names, rows and queries: Gaussian numbers, and the raw Census."""
    train, test = read_census(data)
    for n_rows in lengths:
        rng = np.random.default_rng(0)
        labels = rng.integers(0, 2, n_rows + N_QUERIES)
        numbers = rng.normal(size=(n_rows + N_QUERIES, 14))
        yield "Gaussian", numbers[:n_rows], labels[:n_rows], numbers[n_rows:], labels[n_rows:]
        rows, batch = train.sample(n_rows, random_state=0), test.sample(N_QUERIES, random_state=0)
        yield (
            "Census", rows.drop(columns="income"), rows["income"].to_numpy(),
            batch.drop(columns="income"), np.array(["<=50K", ">50K"] * (N_QUERIES // 2)),
        )  # fmt: skip


def encode_tables(X, X_val):
    """Return both tables as numbers of unit variance, strings as codes."""
    both = pd.concat([pd.DataFrame(X), pd.DataFrame(X_val)])
    for name in both.columns:
        if not pd.api.types.is_numeric_dtype(both[name]):
            both[name] = both[name].astype("category").cat.codes
    numbers = (both / both.std()).to_numpy(dtype=np.float32)
    return numbers[: len(X)], numbers[len(X) :]


def query_tasks(game, ranking=None):
    queries = WeightedQueries.weigh(game.distances.queries, game.query_labels, game.scoring)
    schedule = TaskSchedule(
        queries, (len(game.labels), game.shape[1]), sampler=PermutationSampler(1),
        column_semivalue=Shapley(), with_label=False, empty=game.empty, seed=0,
    )  # fmt: skip
    return QueryTasks(game, schedule, Shapley(), ranking)


class Ranked:
    """Exact ranking of single queries."""

    def __init__(self, game):
        tasks = query_tasks(game)
        self.game, self.training = game, tasks._training(0)
        (self.plan,) = tasks._batch_coalitions(0)
        self.ranked = SortedRows(self.training, [self.plan])
        self.cells = np.zeros((game.shape[1], len(game.labels)))
        self.tasks, self.known = tasks, {}

    def rank(self, position, order):
        columns, label = self.game.distances.queries[0], self.game.query_labels[0][position]
        query = Query.from_row(columns, position, float(label))
        nothing, _ = self.tasks._without_columns(self.training, query, self.known)
        keys = self.ranked.add(
            query,
            self.plan,
            order=order,
            query_weight=1.0,
            nothing=nothing,
            into=self.cells,
        )
        self.training.utility(keys, query)
        self.training.score_vote(keys, query)


class Binned:
    """Binned ranking of single queries."""

    def __init__(self, game, ranking):
        tasks = query_tasks(game, ranking)
        self.ranker, self.shard = tasks._ranker(0)
        self.schedule, self.task = tasks.schedule, replace(tasks(0), n_draws=1)
        self.cells = np.zeros((game.shape[1], len(game.labels)), dtype=np.int64)
        self.kept = np.empty(self.cells.shape, dtype=np.uint16)

    def rank(self, position, order):
        piece = 0, np.array([position])
        prepared = self.schedule.prepare(piece, self.task, iter([order]), self.ranker)
        summary = self.ranker.count(0, self.shard, prepared, keep=self.kept)
        far, near, _, _ = self.ranker.finalize(prepared.batch, summary)
        self.ranker.accumulate(
            self.shard, prepared, far, near[0], into=self.cells, kept=summary.kept
        )


def compare(X, y, X_val, y_val, rankings, *, rounds):
    """Return the least nanoseconds per row and coalition of rankings and of the bare engine."""
    game = KNNGame(X, y, X_val, y_val, n_neighbors=10)
    ours = [Binned(game, r) if r else Ranked(game) for r in rankings]
    numbers, batch = encode_tables(X, X_val)
    bare = BareEngine(numbers)
    order = np.random.default_rng(0).permutation(game.shape[1])
    seconds = np.full((len(ours) + 1, len(y_val)), np.inf)
    for _ in range(rounds):
        for position in range(len(y_val)):
            for k, engine in enumerate([*ours, bare]):
                began = time.thread_time()
                engine.rank(batch[position] if engine is bare else position, order)
                seconds[k, position] = min(seconds[k, position], time.thread_time() - began)
    return seconds.mean(axis=1) / numbers.size * 1e9


def make_mixture(n_rows):
    """Return rows x 20: floats, integers and a few categories, and four queries."""
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(n_rows + 4, 20))
    numbers[:, 12:16] = np.round(2 * numbers[:, 12:16])
    numbers[:, 16:] = np.round(numbers[:, 16:])
    labels = (numbers[:, 0] + rng.normal(size=len(numbers)) > 0).astype(int)
    labels[-2:] = 0, 1
    return numbers[:-4], labels[:-4], numbers[-4:], labels[-4:]


def compare_bins(name, X, y, X_val, y_val):
    """Compare the values of binned and exact ranking."""
    settings = {"sampler": PermutationSampler(1), "n_passes": 1, "random_state": 0}
    exact, binned = (
        KNNValuer(10, ranking=ranking, runtime=Runtime(progress=False), **settings)
        .fit(X, y, X_val=X_val, y_val=y_val)
        .valuation_
        for ranking in (None, BinnedRanks())
    )
    one, other = exact.values.ravel(), binned.values.ravel()
    n_lowest = len(one) // 100
    lowest = [set(np.argsort(values)[:n_lowest]) for values in (one, other)]
    return {
        "table": name,
        "relative RMS error, %": 100 * np.sqrt(np.mean((one - other) ** 2)) / one.std(),
        "Spearman correlation": f"{spearmanr(one, other)[0]:.5f}",
        "lowest 1% in common, %": 100 * len(lowest[0] & lowest[1]) / n_lowest,
        "difference of totals": f"{abs(exact.total - binned.total):.0e}",
    }


def agreement(data, n_queries):
    """Return a row for the whole Census and for a numeric target."""
    train, test = read_census(data)
    test = test.sample(n_queries, random_state=0)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30_000 + n_queries, 5))
    y = X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=len(X))
    return [
        compare_bins(
            "Census, 32,561 x 14", train.drop(columns="income"), train["income"],
            test.drop(columns="income"), test["income"],
        ),
        compare_bins(
            "numeric target, 30,000 x 5", X[:30_000], y[:30_000], X[30_000:], y[30_000:]
        ),
    ]  # fmt: skip


def run(
    data: Path,
    *,
    rows: tuple[int, ...] = (2000, 7143, 32561),
    rounds: int = 5,
    many: int = 1_000_000,
    queries: int = 100,
) -> Tables:
    """Return times as multiples of the bare engine's, and the errors of bins."""
    lines: list[Row] = []
    with threadpool_limits(1):
        for name, *given in tables(data, rows):
            ours, bare = compare(*given, [None], rounds=rounds)
            lines.append({"table": f"{name} {len(given[1]):,} x 14", "ranking": "exact",
                          "times the bare engine": ours / bare})  # fmt: skip
            log(lines[-1])
        *ours, bare = compare(*make_mixture(many), [None, BinnedRanks()], rounds=min(rounds, 3))
        for ranking, each in zip(("exact", "BinnedRanks()"), ours, strict=True):
            lines.append({"table": f"mixture {many:,} x 20", "ranking": ranking,
                          "times the bare engine": each / bare})  # fmt: skip
            log(lines[-1])
        return {"CPU time": lines, "values by bins": agreement(data, queries)}
