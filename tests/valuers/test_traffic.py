"""Bytes that a run over shards reads, writes and sends: what is needed, once, and as forecast."""

import os
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import survivor
from cellworth import Runtime, ShardedKNNValuer, ShardedTable
from cellworth.runtime import Ray, Threads
from cellworth.sampling import PermutationSampler
from matrices import rarely
from traffic import counting

pytestmark = pytest.mark.slow

N_ROWS, N_COLUMNS, N_SHARDS, N_QUERIES = 80_000, 10, 16, 8


def draw(n_rows, seed):
    numbers = np.random.default_rng(seed).normal(size=(n_rows, N_COLUMNS)).astype("f4")
    return pa.table({f"x{j}": column for j, column in enumerate(numbers.T)}), numbers[:, 0] > 0


def write(folder, n_rows):
    folder.mkdir()
    for shard in range(N_SHARDS):
        X, y = draw(n_rows // N_SHARDS, shard)
        pq.write_table(X.append_column("y", pa.array(y)), folder / f"{shard:02d}.parquet")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("table") / "rows", N_ROWS)


def fit(folder, executor, on_start, checkpoint=None):
    X_val, y_val = draw(N_QUERIES, 99)
    runtime = Runtime(executor, checkpoint=checkpoint, on_start=on_start, progress=False)
    settings = {"sampler": PermutationSampler(1), "n_passes": 1, "random_state": 0}
    table = ShardedTable.from_files(folder, target="y")
    return ShardedKNNValuer(runtime=runtime, **settings).fit(table, X_val=X_val, y_val=y_val)


def read_bytes(forecast):
    """Return the numbers of bytes that a forecast names."""
    words = re.findall(r"([\d.,]+) (MB|GB) (read|written|sent|of memory)", forecast.size)
    units = {"MB": 1e6, "GB": 1e9}
    return {what: float(number.replace(",", "")) * units[unit] for number, unit, what in words}


def count(folder, executor, checkpoint=None):
    """Return what a run counted, by step, and its forecast in bytes."""
    found = []
    # Kernels and libraries are loaded by the first, also by workers.
    for _ in range(2):
        with counting(executor) as steps:
            fit(folder, executor, found.append, checkpoint)
        checkpoint = checkpoint and Path(f"{checkpoint}-again")
    return steps, read_bytes(found[-1])


@pytest.fixture
def executor(request):
    if request.param == "threads":
        return nullcontext(Threads(2))
    if request.param == "dask":
        return survivor.executor("dask", 2)
    request.getfixturevalue("ray_cluster")
    return nullcontext(Ray())


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("executor", ["threads", "dask", *rarely("ray")], indirect=True)
def test_a_run_moves_as_many_bytes_as_it_says(executor, checkpoint, folder, tmp_path):
    with executor as position:
        steps, said = count(folder, position, tmp_path / "run" if checkpoint else None)
    assert set(said) == {"read", "written", "sent", "of memory"}
    del said["of memory"]
    counted = steps["rows"] + steps["PermutationSampler(orders=1)"]
    for what, n_bytes in said.items():
        assert counted[what] == pytest.approx(n_bytes, rel=0.15), what
    size = sum(path.stat().st_size for path in folder.iterdir())
    values = N_ROWS * (N_COLUMNS + 1) * 3 * 8
    assert steps["columns"]["read"] == pytest.approx(size, rel=0.3)
    # Nothing is written but the result and, with a checkpoint, results of rounds.
    assert steps["columns"]["written"] + steps["rows"]["written"] < 1e5
    assert counted["written"] < values * (1.25 if checkpoint else 1.02)


# A process values a table for the first time, then a larger one within the memory that it says.
LIMITED = """
import resource, sys
from pathlib import Path
import psutil
import test_traffic as traffic
from cellworth.runtime import Serial

folder, n_rows, share = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
traffic.write(folder / "small", 4000)
traffic.write(folder / "rows", n_rows)
found = []
traffic.fit(folder / "small", Serial(), found.append)
before = psutil.Process().memory_info()

def limit(forecast):
    # Address space that is reserved by now and not used does not count.
    most = int(before.vms - before.rss + share * traffic.read_bytes(forecast)["of memory"])
    resource.setrlimit(resource.RLIMIT_AS, (most, most))

traffic.fit(folder / "rows", Serial(), limit)
"""


@pytest.mark.parametrize("share", [1.0, 0.75])
def test_a_run_keeps_to_the_memory_that_it_says(share, tmp_path):
    paths = [str(Path(__file__).parent), str(Path(survivor.__file__).parent)]
    done = subprocess.run(  # noqa: S603 (ours)
        [sys.executable, "-c", LIMITED, str(tmp_path), "1600000", str(share)],
        # Arrow's own allocator and those of threads reserve much address space.
        env=os.environ
        | {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
        | {"PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])},
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode == 0) == (share == 1.0), done.stderr
    assert share == 1.0 or re.search("MemoryError|allocat", done.stderr)
