"""Measure sorts and CPU seconds to the error of the paper's 500 shared permutations.

    python benchmarks/time_to_accuracy.py breast9 wine breast30 credit adult

The ground truth is enumeration if the number of columns allows it, else a long run. The target is
the variance of one permutation shared by all queries, divided by 500. For each sampler the number
of coalitions per query is found at which the mean squared error over 20 repetitions meets the
target; then one fit with it is timed against one permutation of benchmarks/paper.py, in one thread,
interleaved, best of several. A fit draws coalitions twice for each of up to 500 queries, to know
its own error; sorts are the mean over queries of both. The last column is nanoseconds per row,
column and query of the permutation. If the numbers of coalitions of a draw are known, --coalitions
skips the search, which takes most of the time:

    python benchmarks/time_to_accuracy.py --coalitions 50 36 81 breast9
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import benchmark_data
import paper
from cellworth import KNNValuer, Runtime
from cellworth.runtime import Serial
from cellworth.sampling import (
    ExhaustiveSampler,
    LeverageSampler,
    PermutationSampler,
    QuadratureSampler,
)

PAPER_PERMUTATIONS = 500
PAPER_QUERIES = 20
K = 10


class SharedOrder:
    """One order of the columns for all queries: the paper's sampler, for its variance."""

    def __init__(self, order):
        self.order = order

    def n_coalitions(self, n_players, semivalue=None):
        return n_players

    def draw(self, n_players, semivalue, rng):
        drawn = PermutationSampler(1).draw(n_players, semivalue, rng)
        first = drawn.members.sum(axis=0)
        position = np.empty(n_players, dtype=int)
        position[np.argsort(-first)] = self.order
        return type(drawn)(
            drawn.members[:, np.argsort(position)],
            drawn.weights[:, np.argsort(position)],
            drawn.nothing[np.argsort(position)],
        )


def fit(given, sampler, seed=0):
    valuer = KNNValuer(
        K,
        sampler=sampler,
        n_passes=1,
        random_state=seed,
        runtime=Runtime(executor=Serial(), progress=False),
    )
    return valuer.fit(given.X, given.y, X_val=given.X_val, y_val=given.y_val).valuation_


def values(given, sampler, seed=0):
    return fit(given, sampler, seed).values


def permutations(n_coalitions, n_columns):
    return PermutationSampler(max(round(n_coalitions / n_columns), 1))


def estimate_shared_variance(given, n_orders):
    """Return the mean over cells of the variance of one shared permutation."""
    from cellworth.knn.tasks import TaskSchedule

    relabel = TaskSchedule.orders

    def same_for_all(self, task):
        return iter([np.arange(self.n_results)] * (task.part.n_queries * task.n_draws))

    TaskSchedule.orders = same_for_all
    try:
        rng = np.random.default_rng(1)
        orders = [rng.permutation(given.X.shape[1]) for _ in range(n_orders)]
        seen = np.array([values(given, SharedOrder(order)) for order in orders])
    finally:
        TaskSchedule.orders = relabel
    return seen.var(axis=0, ddof=1).mean()


def truth(given):
    n_columns = given.X.shape[1]
    if n_columns <= 14:
        return values(given, ExhaustiveSampler()), 0.0
    runs = [values(given, LeverageSampler(150 * n_columns), seed) for seed in range(100, 108)]
    return np.mean(runs, axis=0), np.var(runs, axis=0, ddof=1).mean() / len(runs)


def mean_squared_error(given, sampler, exact, repetitions):
    seen = np.array([values(given, sampler, seed) for seed in range(repetitions)])
    error = ((seen - exact) ** 2).mean()
    # Subtract the variance of the mean: the rest does not shrink with more queries.
    bias = ((seen.mean(axis=0) - exact) ** 2).mean() - seen.var(axis=0, ddof=1).mean() / repetitions
    return error, max(bias, 0.0)


def coalitions_needed(given, make, exact, *, noise, target, repetitions):
    """Return the number of coalitions whose error meets the target, within a few percent."""
    # The error is about a power of the number of coalitions: follow it in logarithms.
    points = []
    count = 3 * given.X.shape[1]
    for _ in range(8):
        error = mean_squared_error(given, make(count), exact, repetitions)[0] - noise
        points.append((np.log(count), np.log(error / target)))
        if 0.97 < error / target <= 1.0:
            break
        near = sorted(points, key=lambda point: abs(point[1]))[:2]
        slope = -1.1
        if len(near) == 2 and near[0][0] != near[1][0]:
            slope = min((near[0][1] - near[1][1]) / (near[0][0] - near[1][0]), -0.5)
        count = round(np.exp(near[0][0] - (near[0][1] + 0.015) / slope))
        if count in [round(np.exp(known)) for known, _ in points]:
            break
    return round(np.exp(min(known for known, error in points if error <= 0.02)))


def time_in_turns(ours, theirs, at_least=10.0):
    """Return the best CPU seconds of each, in turns, seven times and for some seconds at least."""
    best, spent, turns = [np.inf, np.inf], 0.0, 0
    while turns < 7 or spent < at_least:
        for position, what in enumerate((ours, theirs)):
            began = time.process_time()
            what()
            seconds = time.process_time() - began
            best[position], spent = min(best[position], seconds), spent + seconds
        turns += 1
    return best


def paper_part(given):
    """Return one permutation of the paper for some queries: each costs the same."""
    X, X_val = given.encoded
    order = np.random.default_rng(0).permutation(X.shape[1])
    few = slice(PAPER_QUERIES)
    return lambda: paper.one_permutation(
        X, given.y, X_val[few], given.y_val[few], n_neighbors=K, order=order
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, default=benchmark_data.FOLDER, help="folder of the CSV files"
    )
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument(
        "--coalitions",
        type=int,
        nargs=3,
        help="of LeverageSampler, QuadratureSampler and PermutationSampler, per draw",
    )
    parser.add_argument("names", nargs="+")
    options = parser.parse_args()
    print(f"{'table':<10} {'sampler':<34} {'sorts':>10} {'of':>6} {'MSE/target':>10} "
          f"{'bias':>5} {'seconds':>8} {'paper':>9} {'faster':>7} {'ns':>5}")  # fmt: skip
    for name in options.names:
        given = benchmark_data.load(name, options.data)
        n_columns = given.X.shape[1]
        exact, noise = truth(given)
        target = estimate_shared_variance(given, 100) / PAPER_PERMUTATIONS
        makers = [
            LeverageSampler,
            QuadratureSampler,
            lambda count, n_columns=n_columns: permutations(count, n_columns),
        ]
        counts = options.coalitions or [
            coalitions_needed(
                given, make, exact, noise=noise, target=target, repetitions=options.repetitions
            )
            for make in makers
        ]
        samplers = [make(count) for make, count in zip(makers, counts, strict=True)]
        for sampler in samplers + [ExhaustiveSampler()] * (n_columns <= 13):
            error, bias = 0.0, 0.0
            if not isinstance(sampler, ExhaustiveSampler):
                error, bias = mean_squared_error(given, sampler, exact, options.repetitions)
            count = fit(given, sampler).provenance.tally.utilities / len(given.y_val)
            ours, theirs = time_in_turns(
                lambda sampler=sampler, given=given: values(given, sampler), paper_part(given)
            )
            per_cell = theirs / (PAPER_QUERIES * given.X.size) * 1e9
            theirs *= PAPER_PERMUTATIONS * len(given.y_val) / PAPER_QUERIES
            fewer = PAPER_PERMUTATIONS * n_columns / count
            met = (error - noise) / target
            print(
                f"{name:<10} {sampler!s:<34} {count:>10.0f} 1/{fewer:<4.0f} {met:>10.2f} "
                f"{bias / target:>5.2f} {ours:>8.3f} {theirs:>9.1f} {theirs / ours:>7.0f} "
                f"{per_cell:>5.0f}",
                flush=True,
            )


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
