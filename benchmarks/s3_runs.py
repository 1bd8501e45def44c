"""Value 2 million rows on a local S3 server, kill the driver twice, and compare with a local run.

    python benchmarks/s3_runs.py FOLDER --rows 2000000 --queries 8

The table is the jittered Census of census_shards.py, 11 mixed columns of it. Table, checkpoint and
values are on a server of moto in a process of its own. The driver is killed with SIGKILL at a third
and at two thirds of its states of shards, and resumed. The script prints seconds and hashes.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd

import benchmark_data
from census_shards import write

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from object_store import s3_server

COLUMNS = [
    "age", "workclass", "fnlwgt", "education", "marital_status", "occupation", "relationship",
    "sex", "capital_gain", "hours_per_week", "native_country",
]  # fmt: skip
N_PASSES = 3


def drive(table, checkpoint, data, n_queries):
    """Value the table; print seconds and a hash of all values and errors."""
    from cellworth import Runtime, ShardedKNNValuer, ShardedTable
    from cellworth.sampling import PermutationSampler

    test = pd.read_csv(data / "adult_test.csv.gz").sample(n_queries, random_state=0)
    began = time.perf_counter()
    rows = ShardedTable.from_files(table, target="income", columns=COLUMNS, shards=16)
    valuer = ShardedKNNValuer(
        sampler=PermutationSampler(1), n_passes=N_PASSES, random_state=0,
        runtime=Runtime(checkpoint=checkpoint, progress=False),
    )  # fmt: skip
    valuation = valuer.fit(rows, X_val=test[COLUMNS], y_val=test["income"]).valuation_
    seconds = time.perf_counter() - began
    digest = hashlib.sha256()
    for chunk in valuation.iter_rows():
        digest.update(chunk.values.tobytes())
        digest.update(chunk.sampling_se.tobytes())
    print(f"{seconds:.0f} s, sha256 {digest.hexdigest()}", flush=True)


def begin(options, table, checkpoint):
    """Start a driver in a process of its own."""
    command = [
        sys.executable, "-W", "ignore", __file__, str(options.folder), "--data", str(options.data),
        "--queries", str(options.queries), "--drive", table, checkpoint,
    ]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603


def end(name, driver):
    """Wait for a driver; return its hash."""
    said = driver.communicate()[0].strip()
    print(f"{name}: {said or f'exit code {driver.returncode}'}", flush=True)
    return said.rpartition(" ")[2]


def count_rounds(store):
    """Return how many states of shards were written so far."""
    store.invalidate_cache()
    found = store.glob("bucket/run/run/shard-*.npz")
    return sum({name[-27:-13]: int(name[-12:-4]) for name in sorted(found)}.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--data", type=Path, default=benchmark_data.FOLDER, help="folder of the CSV files"
    )
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--queries", type=int, default=8)
    parser.add_argument("--drive", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive:
        drive(*options.drive, options.data, options.queries)
        return
    folder = options.folder / f"census-{options.rows}"
    if not (folder / "done").exists():
        write(folder, pd.read_csv(options.data / "adult_train.csv.gz"), options.rows)
        (folder / "done").touch()

    import s3fs

    local = options.folder / f"run-{time.time_ns()}"
    hashes = {end("local, never killed", begin(options, str(folder), str(local)))}
    with s3_server() as (environment, settings):
        os.environ.update(environment)
        store = s3fs.S3FileSystem(**settings)
        for path in folder.glob("*.parquet"):
            store.put_file(str(path), f"bucket/table/{path.name}")
        for share in (1 / 3, 2 / 3):
            driver = begin(options, "s3://bucket/table", "s3://bucket/run")
            while count_rounds(store) < share * 16 * N_PASSES and driver.poll() is None:
                time.sleep(0.2)
            driver.send_signal(signal.SIGKILL)
            end(f"S3, killed after {count_rounds(store)} of {16 * N_PASSES} states", driver)
        hashes.add(end("S3, resumed", begin(options, "s3://bucket/table", "s3://bucket/run")))
        hashes.add(end("S3, loaded", begin(options, "s3://bucket/table", "s3://bucket/run")))
        size = sum(store.sizes(store.find("bucket"))) / 1e6
    print(f"{len(hashes)} hash; {size:.0f} MB in the bucket")


if __name__ == "__main__":
    main()
