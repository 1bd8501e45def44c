"""Value the whole Census: 32,561 x 14 raw cells, 16,281 queries, 14 coalitions, two threads.

    python benchmarks/census.py

Before and after the run a bare engine (which only adds up and sorts float32 distances) ranks the
same queries on the same two threads. Memory is the peak of the process beyond the imports.
"""

from __future__ import annotations

import argparse
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

import benchmark_data
from bare_engine import BareEngine, encode_tables
from cellworth import KNNValuer, Runtime
from cellworth.knn import kernels
from cellworth.runtime import Threads
from cellworth.sampling import PermutationSampler

N_THREADS = 2


def peak_megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def bare_seconds(numbers, asked):
    """Return the time of the bare engine for all queries, in two threads."""

    def rank(positions):
        engine, rng = BareEngine(numbers), np.random.default_rng(0)
        for position in positions:
            engine.rank(asked[position], rng.permutation(numbers.shape[1]))

    began = time.perf_counter()
    with ThreadPoolExecutor(N_THREADS) as pool:
        list(pool.map(rank, np.array_split(np.arange(len(asked)), 8 * N_THREADS)))
    return time.perf_counter() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, default=benchmark_data.FOLDER, help="folder of the CSV files"
    )
    parser.add_argument("--queries", type=int, default=16281)
    options = parser.parse_args()
    train, test = (pd.read_csv(options.data / f"adult_{side}.csv.gz") for side in ("train", "test"))
    test = test.sample(options.queries, random_state=0)
    X, X_val = train.drop(columns="income"), test.drop(columns="income")
    before = peak_megabytes()
    valuer = KNNValuer(
        10,
        sampler=PermutationSampler(1),
        n_passes=1,
        random_state=0,
        runtime=Runtime(executor=Threads(N_THREADS)),
    )
    began = time.perf_counter()
    valuer.fit(X, train["income"], X_val=X_val, y_val=test["income"])
    seconds = time.perf_counter() - began
    memory = peak_megabytes() - before
    print(valuer.valuation_)
    print(valuer.valuation_.columns())
    bare = bare_seconds(*encode_tables(X, X_val))
    print(
        f"{len(X):,} x 14, {options.queries:,} queries: {seconds:.0f} s, bare {bare:.0f} s, ratio "
        f"{seconds / bare:.2f}; {memory:.0f} MB above the imports ({kernels.__name__} included)"
    )


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
