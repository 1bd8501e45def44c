"""A real S3 server in a process of its own, and runs that tests start beside it and kill."""

import hashlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

BUCKET = "bucket"
SECONDS_TO_START = 60


@contextmanager
def s3_server():
    """Start a server on a free port; yield the environment that leads clients to it."""
    import s3fs

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(  # noqa: S603 (fixed arguments)
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait_for(address, server)
        environment = {
            "AWS_ENDPOINT_URL": address,
            "AWS_ACCESS_KEY_ID": "someone",
            "AWS_SECRET_ACCESS_KEY": "a-secret-key",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        options = {
            "key": environment["AWS_ACCESS_KEY_ID"],
            "secret": environment["AWS_SECRET_ACCESS_KEY"],
            "endpoint_url": address,
        }
        s3fs.S3FileSystem(**options).mkdir(BUCKET)
        yield environment, options
    finally:
        server.kill()
        server.wait()


def _wait_for(address, server):
    end = time.monotonic() + SECONDS_TO_START
    while True:
        try:
            with urllib.request.urlopen(f"{address}/moto-api/"):  # noqa: S310 (an http address)
                return
        except (urllib.error.URLError, ConnectionError):
            if server.poll() is not None or time.monotonic() > end:
                raise
            time.sleep(0.05)


def data_in_memory(n_rows=120, n_columns=4):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, n_columns))
    return {"X": X, "y": (X.sum(axis=1) > 0).astype(int), "cv": 2}


def write_shards(filesystem, folder, n_rows=600, n_shards=3):
    """Write a small table with numbers, text and gaps."""
    rng = np.random.default_rng(1)
    for number in range(n_shards):
        age = rng.normal(40, 9, n_rows // n_shards)
        more = {f"n{i}": rng.normal(size=len(age)) for i in range(6)}
        table = pa.table({
            "age": pa.array(age, mask=rng.random(len(age)) < 0.05),
            "town": rng.choice(["here", "there", "nowhere"], len(age)),
            **more,
            "y": (age + rng.normal(0, 3, len(age)) > 40).astype(int),
        })  # fmt: skip
        with filesystem.open(f"{folder}/{number}.parquet", "wb") as file:
            pq.write_table(table, file, row_group_size=150)


def digest(valuation):
    """Hash values and errors of all cells and sums."""
    moments = valuation.moments
    parts = (np.ascontiguousarray(part) for part in (moments.mean, moments.sum_sq))
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


def run_in_memory(checkpoint, n_passes):
    """Value a small table in many tasks."""
    from cellworth import KNNValuer, Runtime
    from cellworth.runtime import Threads
    from cellworth.sampling import PermutationSampler

    valuer = KNNValuer(
        3, sampler=PermutationSampler(1), n_passes=n_passes, random_state=0,
        runtime=Runtime(executor=Threads(2), checkpoint=checkpoint, progress=False),
    )  # fmt: skip
    return valuer.fit(**data_in_memory()).valuation_


def run_over_shards(table, checkpoint, n_passes, executor=None):
    """Value a small sharded table in many rounds."""
    from cellworth import Runtime, ShardedKNNValuer, ShardedTable
    from cellworth.runtime import Threads
    from cellworth.sampling import PermutationSampler

    runtime = Runtime(executor=executor or Threads(2), checkpoint=checkpoint, progress=False)
    valuer = ShardedKNNValuer(
        3, sampler=PermutationSampler(1), n_passes=n_passes, random_state=0, runtime=runtime
    )
    val = {"age": [35.0, 45.0, None, 50.0], "town": ["here", "there", "here", "nowhere"]}
    val |= {f"n{i}": [0.5, -0.5, 0.1 * i, 0.0] for i in range(6)}
    rows = ShardedTable.from_files(table, target="y")
    return valuer.fit(rows, X_val=pa.table(val), y_val=[0, 1, 0, 1]).valuation_


def storm(run, addresses, n_passes, n_kills, seconds):
    """Start a run again and again, kill it after a random time, and let the last one end.

    The runs are forks of a process that has imported and compiled everything, so that they are
    killed at work. Return the hashes of runs that ended, the last one included.
    """
    import fsspec

    # The parent must not open the store: that does not survive a fork.
    with tempfile.TemporaryDirectory() as folder:
        write_shards(fsspec.filesystem("file"), folder)
        run(*[folder][: len(addresses) - 1], None, 1)
    moments, hashes, n_killed = random.Random(0), [], 0  # noqa: S311 (no secret)
    while True:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            found = digest(run(*addresses[:-1], f"{addresses[-1]}/{len(hashes)}", n_passes))
            os.write(writing, found.encode())
            os._exit(0)
        os.close(writing)
        if n_killed < n_kills:
            time.sleep(moments.uniform(0, seconds))
            os.kill(child, signal.SIGKILL)
        with os.fdopen(reading) as file:
            found = file.read()
        os.waitpid(child, 0)
        if found:
            hashes.append(found)
        if n_killed == n_kills and found:
            return hashes
        n_killed += not found


if __name__ == "__main__":
    kind, n_passes, n_kills, seconds, *addresses = sys.argv[1:]
    run = {"memory": run_in_memory, "shards": run_over_shards}[kind]
    if int(n_kills):
        hashes = storm(run, addresses, int(n_passes), int(n_kills), float(seconds))
    else:
        hashes = [digest(run(*addresses, int(n_passes)))]
    sys.stdout.write("\n".join(hashes))
