"""Compare the time of column samplers with that of the paper's 500 permutations, at equal error.

    python -m experiments time_to_accuracy

The ground truth is enumeration, or a long run if there are more than 13 columns. The mean squared
error of the paper's 500 permutations is the variance of one that all queries share, divided by 500.
A fit with a number of coalitions that has about this error is timed against one permutation of
``paper.py``, in one thread, in turns, least CPU time of several. What is left of a difference in
error is measured, and the ratio of times divided by it. A fit draws coalitions twice for each of up
to 500 queries, to know its own error; sorts are those of both draws.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from threadpoolctl import threadpool_limits

from cellworth import KNNValuer, Runtime
from cellworth.knn.tasks import TaskSchedule, count_queries
from cellworth.runtime import Serial
from cellworth.sampling import ExhaustiveSampler, PermutationSampler, QuadratureSampler
from experiments import paper, tables
from experiments.baselines import LeverageSampler
from experiments.frame import Row, Tables, log
from experiments.paper_outliers import read_clean

QUICK = {"sets": ("wine 106 x 13",), "repetitions": 2, "orders": 10, "turns": 1}
PAPER_PERMUTATIONS = 500
PAPER_QUERIES = 20
N_NEIGHBORS = 10
# Coalitions per draw at which both draws of a fit together have about the error of the paper.
SAMPLERS = {
    "breast 241 x 9": (QuadratureSampler(36), LeverageSampler(50)),
    "wine 106 x 13": (QuadratureSampler(145), LeverageSampler(185)),
    "breast 341 x 30": (QuadratureSampler(147), LeverageSampler(318)),
}


class Given(NamedTuple):
    """Training rows and queries."""

    X: np.ndarray
    y: np.ndarray
    X_val: np.ndarray
    y_val: np.ndarray


class SharedOrder:
    """One order of the columns for all queries: the paper's sampler, for its variance."""

    def __init__(self, order: np.ndarray) -> None:
        self.order = order

    def n_coalitions(self, n_players: int, semivalue: Any = None) -> int:
        return n_players

    def draw(self, n_players: int, semivalue: Any, rng: np.random.Generator) -> Any:
        drawn = PermutationSampler(1).draw(n_players, semivalue, rng)
        position = np.empty(n_players, dtype=int)
        position[np.argsort(-drawn.members.sum(axis=0))] = self.order
        names = np.argsort(position)
        return type(drawn)(drawn.members[:, names], drawn.weights[:, names], drawn.nothing[names])


def read(name: str, folder: Path) -> Given:
    """Return a table by its name: the authors' split, or a random one."""
    if name == "breast 241 x 9":
        case = read_clean(folder)
        return Given(case.X, case.y, case.X_val, case.y_val)
    kind, *sizes = ("wine", 106, 72) if name.startswith("wine") else ("breast 30", 341, 228)
    train, val = tables.draw_samples(tables.load(kind, folder), *sizes, seed=0)
    return Given(train.X.to_numpy(), train.y, val.X.to_numpy(), val.y)


def fit(given: Given, sampler: Any, seed: int = 0) -> Any:
    runtime = Runtime(executor=Serial(), progress=False)
    settings = {"sampler": sampler, "n_passes": 1, "random_state": seed, "runtime": runtime}
    valuer = KNNValuer(N_NEIGHBORS, **settings)
    return valuer.fit(given.X, given.y, X_val=given.X_val, y_val=given.y_val).valuation_


@contextmanager
def same_names_for_all() -> Iterator[None]:
    """Let all queries see the columns in the same order."""

    def orders(self: Any, task: Any) -> Any:
        return iter([np.arange(self.n_results)] * (count_queries(task.part) * task.n_draws))

    with patch.object(TaskSchedule, "orders", orders):
        yield


def estimate_shared_variance(given: Given, n_orders: int) -> float:
    """Return the mean over cells of the variance of one shared permutation."""
    rng = np.random.default_rng(1)
    orders = [rng.permutation(given.X.shape[1]) for _ in range(n_orders)]
    with same_names_for_all():
        seen = np.array([fit(given, SharedOrder(order)).values for order in orders])
    return float(seen.var(axis=0, ddof=1).mean())


def truth(given: Given) -> tuple[np.ndarray, float]:
    """Return the values, and the mean squared error that they still have."""
    n_columns = given.X.shape[1]
    if n_columns <= 13:
        return fit(given, ExhaustiveSampler()).values, 0.0
    runs = [fit(given, LeverageSampler(60 * n_columns), seed).values for seed in range(100, 104)]
    return np.mean(runs, axis=0), float(np.var(runs, axis=0, ddof=1).mean() / len(runs))


def mean_squared_error(given: Given, sampler: Any, exact: np.ndarray, repetitions: int) -> float:
    seen = np.array([fit(given, sampler, seed).values for seed in range(repetitions)])
    return float(((seen - exact) ** 2).mean())


def time_in_turns(pieces: list[Callable[[], object]], turns: int) -> list[float]:
    """Return the least CPU seconds of each."""
    best = [np.inf for _ in pieces]
    for _ in range(turns):
        for position, piece in enumerate(pieces):
            began = time.process_time()
            piece()
            best[position] = min(best[position], time.process_time() - began)
    return best


def run_permutation(given: Given) -> None:
    """Run one permutation of the paper for some queries: each costs the same."""
    few, order = slice(PAPER_QUERIES), np.random.default_rng(0).permutation(given.X.shape[1])
    asked = given.X_val[few], given.y_val[few]
    paper.one_permutation(given.X, given.y, *asked, n_neighbors=N_NEIGHBORS, order=order)


def compare(name: str, folder: Path, *, repetitions: int, orders: int, turns: int) -> list[Row]:
    """Return a row per sampler."""
    given = read(name, folder)
    exact, noise = truth(given)
    target = estimate_shared_variance(given, orders) / PAPER_PERMUTATIONS
    rows = []
    for sampler in SAMPLERS[name]:
        met = (mean_squared_error(given, sampler, exact, repetitions) - noise) / target
        pieces = [lambda s=sampler: fit(given, s), lambda: run_permutation(given)]
        ours, theirs = time_in_turns(pieces, turns)
        theirs *= PAPER_PERMUTATIONS * len(given.y_val) / PAPER_QUERIES
        n_sorts = fit(given, sampler).provenance.tally.utilities / len(given.y_val)
        rows.append({
            "table": name, "sampler": type(sampler).__name__,
            "sorts per query": round(n_sorts),
            "of the paper": PAPER_PERMUTATIONS * given.X.shape[1],
            "squared error / theirs": met, "times faster": round(theirs / ours / met),
        })  # fmt: skip
        log(name, rows[-1])
    return rows


def run(
    data: Path,
    *,
    sets: tuple[str, ...] = tuple(SAMPLERS),
    repetitions: int = 10,
    orders: int = 40,
    turns: int = 7,
) -> Tables:
    """Return how much faster each sampler has the error of the paper's permutations."""
    given = {"repetitions": repetitions, "orders": orders, "turns": turns}
    with threadpool_limits(1):
        rows = [row for name in sets for row in compare(name, data, **given)]
    return {"time for equal error": rows}
