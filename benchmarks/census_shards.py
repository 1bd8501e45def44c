"""Value the Census, repeated and jittered to 10 million rows with raw strings, end to end.

    python benchmarks/census_shards.py FOLDER --rows 10000000 --queries 64

Parquet files are written to FOLDER unless they exist, which is not timed. The time is that of the
two lines a user writes. Every copy of a row gets other numbers: ages and hours move by up to two,
weights and gains by some percent; strings, missing values and labels stay.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import benchmark_data

ROWS_PER_GROUP = 62_500


def jitter(rows, rng):
    """Return a copy of some rows with other numbers."""
    rows = rows.copy()
    for name, width in (("age", 2), ("hours_per_week", 2)):
        rows[name] += rng.integers(-width, width + 1, len(rows))
    for name in ("fnlwgt", "capital_gain", "capital_loss"):
        factors = rng.normal(1.0, 0.03, len(rows))
        rows[name] = (rows[name] * factors).round().astype("int64")
    return rows


def write(folder, train, n_rows, n_files=16, seed=0):
    """Write rows of jittered copies in sequence."""
    folder.mkdir(parents=True, exist_ok=True)
    rng, done = np.random.default_rng(seed), 0
    schema = pa.Schema.from_pandas(train, preserve_index=False)
    for number in range(n_files):
        end = n_rows * (number + 1) // n_files
        with pq.ParquetWriter(folder / f"part-{number:03d}.parquet", schema) as writer:
            while done < end:
                size = min(ROWS_PER_GROUP, end - done)
                positions = np.arange(done, done + size) % len(train)
                rows = jitter(train.iloc[positions], rng)
                writer.write_table(pa.Table.from_pandas(rows, schema, preserve_index=False))
                done += size


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--data", type=Path, default=benchmark_data.FOLDER, help="folder of the CSV files"
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--queries", type=int, default=64)
    options = parser.parse_args()
    train, test = (pd.read_csv(options.data / f"adult_{s}.csv.gz") for s in ("train", "test"))
    test = test.sample(options.queries, random_state=0)
    X_val, y_val = test.drop(columns="income"), test["income"]
    folder = options.folder / f"census-{options.rows}"
    if not (folder / "done").exists():
        write(folder, train, options.rows)
        (folder / "done").touch()

    from cellworth import ShardedKNNValuer, ShardedTable

    began = time.perf_counter()
    table = ShardedTable.from_files(folder, target="income")
    valuation = (
        ShardedKNNValuer(n_passes=1, random_state=0).fit(table, X_val=X_val, y_val=y_val).valuation_
    )
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(table)
    print(valuation)
    print(valuation.columns().highest(14))
    print(f"two lines: {seconds:.0f} s, peak {peak:.0f} MB")


if __name__ == "__main__":
    main()
