"""Measure variance and CPU time of the column samplers, relative to one random order.

    python benchmarks/samplers.py adult credit heart pol jannis musk

With q queries, c coalitions each and p passes, the variance of a value is (v_q + v_c / (c p)) / q,
where v_q is the variance between queries. All samplers are unbiased, so this is the whole error.
Columns, each a mean over cells: v_c / (c v_q), v_c / v_q, and CPU microseconds of a query in passes
after the first, draws included. Then CPU time of a single pass for an equal total error, and of
passes until the sampling variance is below v_q / 4, both relative to one order. "order, then
reverse" are two passes of one order each, of which the second reverses the first.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import benchmark_data
from cellworth import KNNValuer, Runtime
from cellworth.runtime import Serial
from cellworth.sampling import LeverageSampler, PermutationSampler, QuadratureSampler


def fit(given, sampler, seed, n_passes=1):
    """Return the valuation and the CPU seconds of the fit."""
    runtime = Runtime(executor=Serial(), progress=False)
    valuer = KNNValuer(sampler=sampler, n_passes=n_passes, random_state=seed, runtime=runtime)
    began = time.process_time()
    valuer.fit(given.X, given.y, X_val=given.X_val, y_val=given.y_val)
    return valuer.valuation_, time.process_time() - began


def measure(given, sampler, seeds, more_passes):
    """Return the variance of one draw, v_q, and CPU seconds of one query and draw."""
    ones, seconds = zip(*(fit(given, sampler, seed) for seed in range(seeds)), strict=True)
    longer = min(fit(given, sampler, seed, 1 + more_passes)[1] for seed in range(2))
    n_queries = len(given.y_val)
    # A pass draws coalitions twice for each query.
    sampling = 2 * n_queries * np.var([one.values for one in ones], axis=0, ddof=1).mean()
    between = n_queries * np.mean([(one.validation_se**2).mean() for one in ones])
    return sampling, between, (longer - min(seconds)) / (2 * more_passes * n_queries)


def samplers_of(n_columns):
    """Return the samplers by name; the first has the least error and serves to estimate v_q."""
    return {
        "Leverage 8m": LeverageSampler(8 * n_columns),
        "1 order": PermutationSampler(1),
        "2 orders": PermutationSampler(2),
        "4 orders": PermutationSampler(4),
        **{f"Quadrature {k}m": QuadratureSampler(k * n_columns) for k in (2, 3, 4, 6, 8)},
        "Leverage 3m": LeverageSampler(3 * n_columns),
    }


def compare(name, given, options):
    """Print one line per sampler."""
    n_columns = given.X.shape[1]
    lines = {}
    fit(given, PermutationSampler(1), 0)  # Compile or load the kernels
    for each, sampler in samplers_of(n_columns).items():
        sampling, between, seconds = measure(given, sampler, options.seeds, options.more_passes)
        if not lines:
            v_q = between
        lines[each] = sampling / v_q, seconds, sampler.n_coalitions(n_columns)
    one, both = lines["1 order"], lines["2 orders"]
    lines["order, then reverse"] = both[0], 2 * one[1], 2 * one[2]
    for each, (share, seconds, count) in lines.items():
        single = (1 + share) * seconds / ((1 + one[0]) * one[1])
        until = share * seconds / (one[0] * one[1])
        print(
            f"{name:<12} {given.X.shape[0]:>5} x {n_columns:<3} {each:<20} {count:>5} "
            f"{share:>7.3f} {share * count:>7.1f} {seconds * 1e6:>9.1f} {single:>6.2f} "
            f"{until:>6.2f}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, default=benchmark_data.FOLDER, help="folder of the CSV files"
    )
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--more-passes", type=int, default=4, help="passes that are timed")
    parser.add_argument("--rows", type=int, help="number of training rows")
    parser.add_argument("--queries", type=int, help="number of validation rows")
    parser.add_argument("names", nargs="+")
    options = parser.parse_args()
    print(f"{'table':<12} {'rows x columns':<11} {'sampler':<20} {'c':>5} {'v_c/c':>7} {'v_c':>7} "
          f"{'us':>9} {'single':>6} {'passes':>6}")  # fmt: skip
    for name in options.names:
        given = benchmark_data.load(name, options.data, options.rows, options.queries)
        compare(name, given, options)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
