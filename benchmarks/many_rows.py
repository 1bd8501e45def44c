"""Measure time and memory by rows: a synthetic table of 20 columns, 20 queries, one pass.

    python benchmarks/many_rows.py --rows 10000 100000 1000000

Each size runs in its own process, on all cores, with the default sampler (160 coalitions per
query). Memory is the peak of that process beyond the table.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

import numpy as np

N_COLUMNS, N_QUERIES, COALITIONS_PER_COLUMN = 20, 20, 8


def table(n_rows, seed):
    """Return a table, half floats and half small integers; the label depends on two columns."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, N_COLUMNS))
    X[:, N_COLUMNS // 2 :] = X[:, N_COLUMNS // 2 :].round()
    return X, (X[:, 0] + X[:, -1] + rng.normal(size=n_rows) > 0).astype(int)


def megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(n_rows):
    from cellworth import KNNValuer, Runtime

    valuer = KNNValuer(n_passes=1, random_state=0, runtime=Runtime(progress=False))
    X_val, y_val = table(N_QUERIES, 1)
    valuer.fit(*table(1000, 2), X_val=X_val, y_val=y_val)  # kernels are compiled
    X, y = table(n_rows, 0)
    before, start = megabytes(), time.perf_counter()
    valuer.fit(X, y, X_val=X_val, y_val=y_val)
    seconds = time.perf_counter() - start
    ranked = n_rows * N_QUERIES * COALITIONS_PER_COLUMN * N_COLUMNS
    print(
        f"{n_rows:>10,} rows: {seconds:6.1f} s, {1e9 * seconds / ranked:5.1f} ns per row and "
        f"coalition, {megabytes() - before:6.0f} MB"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        measure(asked.one)
    else:
        for size in asked.rows:
            command = [sys.executable, __file__, "--one", str(size)]
            subprocess.run(command, check=True)  # noqa: S603 (this very file)
