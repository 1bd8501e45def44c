"""Measure the total error of values, and how often intervals cover, at equal CPU time.

    python benchmarks/equal_time.py adult credit digits

A run gets all validation rows in a random order, and ends when its CPU seconds (in one thread,
set-up not counted) are spent. Its values are compared with a long run over the same validation
rows, which is kept in a file. Errors thus come from the validation rows that it did not reach and
from the sampling of coalitions. The error of the long run itself, estimated from its passes, is
subtracted. To compare with another version of the package, run this program on both.

Columns: share of the validation rows that were reached, number of draws of coalitions that errors
use, mean squared error over cells, relative to the first method and its standard error over
repetitions, share of the long run's error, and shares of the cells whose intervals (value plus or
minus 1.96 errors) cover the long run: total error, and sampling error alone. The rows that a run
reached are some of those of the long run, so its validation variance is multiplied by the share of
rows that it did not reach.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import benchmark_data
from cellworth import KNNValuer, Runtime
from cellworth.runtime import MaxSeconds, Serial
from cellworth.sampling import LeverageSampler, PermutationSampler, QuadratureSampler

SIZES = {"adult": (32_561, 16_281), "credit": (1000, 10_000), "digits": (898, 899)}
METHODS = {"default": None, "1 order": PermutationSampler(1), "Leverage 8m": LeverageSampler()}
# Sampler and number of passes of the long runs
LONG_RUNS = {
    "adult": (PermutationSampler(2), 2),
    "credit": (QuadratureSampler(4 * 23), 4),
    "digits": (QuadratureSampler(4 * 64), 16),
}


def fit(given, **settings):
    """Return the valuation of a run in one thread."""
    valuer = KNNValuer(runtime=Runtime(executor=Serial(), progress=False), **settings)
    with warnings.catch_warnings():
        # A run that ends within its first pass warns of it.
        warnings.simplefilter("ignore")
        valuer.fit(given.X, given.y, X_val=given.X_val, y_val=given.y_val)
    return valuer.valuation_


def long_run(name, given, file):
    """Return values and their variances; compute them once."""
    if not file.exists():
        sampler, n_passes = LONG_RUNS[name]
        passes = [
            fit(given, sampler=sampler, n_passes=1, random_state=1000 + seed).values
            for seed in range(n_passes)
        ]
        variance = np.var(passes, axis=0, ddof=1) / len(passes)
        np.savez(file, values=np.mean(passes, axis=0), variance=variance)
    with np.load(file) as kept:
        return kept["values"], kept["variance"]


def shuffle_queries(given, seed):
    """Return the same data with the validation rows in a random order."""
    order = np.random.default_rng(seed).permutation(len(given.y_val))
    return given._replace(X_val=given.X_val.iloc[order], y_val=given.y_val[order])


def count_covered(values, errors, known):
    """Return the share of cells whose interval covers the truth; NaN if errors are not known.

    Intervals are widened by the error of the truth. Columns that change no distance have values and
    errors of 0 in orders, but not in fits.
    """
    truth, variance = known
    if np.isnan(errors).all():
        return np.nan
    return (np.abs(values - truth) <= 1.96 * np.sqrt(errors**2 + variance)).mean()


def measure(given, sampler, seconds, seed, known):
    """Return share of validation rows, draws, mean squared error and two coverages of one run."""
    found = fit(
        shuffle_queries(given, seed), sampler=sampler, stop=MaxSeconds(seconds), random_state=seed
    )
    sampling, share = found.sampling_se, found.scores.n_validation_rows / len(given.y_val)
    total = np.hypot(np.nan_to_num(sampling), found.validation_se * (1 - share) ** 0.5)
    return (
        share,
        found.counts.max(),
        ((found.values - known[0]) ** 2).mean(),
        count_covered(found.values, total, known),
        count_covered(found.values, sampling, known),
    )


def compare(name, given, options):
    """Print one line per method and budget."""
    known = long_run(name, given, options.folder / f"long_run_{name}.npz")
    noise = known[1].mean()
    for seconds in options.seconds:
        runs = {each: [] for each in options.methods}
        for seed in range(options.seeds):
            for each, seen in runs.items():
                seen.append(measure(given, METHODS[each], seconds, seed, known))
        first = None
        for each, seen in runs.items():
            share, draws, error, total, sampling = np.mean(seen, axis=0)
            deviation = np.std([one[2] for one in seen], ddof=1) / len(seen) ** 0.5
            first = first or error - noise
            print(
                f"{name:<7} {seconds:>5g} s {each:<12} {share:>6.3f} {draws:>6.1f} "
                f"{error - noise:>10.3e} {(error - noise) / first:>7.3f} {deviation / first:>6.3f} "
                f"{noise / error:>6.2f} {total:>6.3f} {sampling:>6.3f}",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, default=benchmark_data.FOLDER, help="folder of the CSV files"
    )
    parser.add_argument("--folder", type=Path, default=Path(), help="where long runs are kept")
    parser.add_argument("--seconds", type=float, nargs="+", default=[10, 30, 100])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=["default"], choices=list(METHODS))
    parser.add_argument("names", nargs="+", choices=list(SIZES))
    options = parser.parse_args()
    # Runs end by CPU time: the machine may have other work.
    time.perf_counter = time.process_time
    print(f"{'table':<7} {'budget':>7} {'method':<12} {'rows':>6} {'draws':>6} {'MSE':>10} "
          f"{'ratio':>7} {'error':>6} {'noise':>6} {'total':>6} {'samp.':>6}")  # fmt: skip
    for name in options.names:
        compare(name, benchmark_data.load(name, options.data, *SIZES[name]), options)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
