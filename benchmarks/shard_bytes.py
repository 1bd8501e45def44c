"""Count the bytes that a sharded run sends, and compare them with its plan.

    python benchmarks/shard_bytes.py              # 200,000 rows in 8 and 16 shards, 4 processes
    python benchmarks/shard_bytes.py --rows 50000 --queries 64

Bytes are counted where workers hand out what they hold, message by message, as they are written
to the socket; and in the driver's process, where the scheduler lives, by what it writes to workers.
"""

from __future__ import annotations

import argparse
import logging
import re
import tempfile
from collections import Counter
from pathlib import Path

from cellworth import Runtime, ShardedKNNValuer, ShardedTable
from cellworth.runtime import Dask
from cellworth.sampling import LeverageSampler, PermutationSampler
from mixture import queries, write

# Name of a task -> what it sends.
CONTENTS = {
    "prepare": "bins",
    "visit": "summaries",
    "merge": "summaries",
    # By bin for all shards, of the nearest rows for the shards of a worker.
    "get_part": "values",
    "get_portion": "values",
    "finalize": "all values at once",
    "work": "run",
    "table": "run",
    "write": "reports",
    "columns": "columns",
    "rows": "sample",
}


def install(dask_worker):
    """Make a worker record what it sends, and to whom."""
    from distributed.protocol.serialize import serialize
    from distributed.utils import nbytes

    handed, hand_out = [], dask_worker.handlers["get_data"]

    async def recorded(comm, keys, who=None, serializers=None):
        held = {key: dask_worker.data[key] for key in keys if key in dask_worker.data}
        answer = await hand_out(comm, keys=keys, who=who, serializers=serializers)
        if not isinstance(answer, dict):
            for key, thing in held.items():
                _, frames = serialize(thing, serializers=("dask", "pickle"))
                handed.append((key, who, sum(map(nbytes, frames))))
        return answer

    dask_worker.handlers["get_data"] = recorded
    dask_worker.handed = handed


def take_record(dask_worker):
    """Return and clear a worker's record: sizes of what it sent, and compressed bytes."""
    found, sockets = list(dask_worker.handed), list(dask_worker.transfer_outgoing_log)
    dask_worker.handed.clear()
    dask_worker.transfer_outgoing_log.clear()
    return found, sum(entry["compressed"] for entry in sockets)


class Counting:
    """Counter of the bytes that a run on a cluster sends, by type."""

    def __init__(self, client):
        self._client = client
        client.run(install)

    def __call__(self, run):
        """Return bytes between workers and to the driver by content, and bytes on sockets."""
        self._client.run(take_record)
        with DriverBytes() as driver:
            run()
        found = self._client.run(take_record)
        between, to_driver = Counter(), Counter()
        for things, _ in found.values():
            for key, who, size in things:
                kind = CONTENTS.get(re.match(r"[a-z_]+", key)[0], key)
                (between if who in found else to_driver)[kind] += size
        sockets = sum(written for _, written in found.values())
        return between, to_driver, sockets, driver.written


class DriverBytes:
    """Count what the driver's process writes to sockets, by connection."""

    def __enter__(self):
        from distributed.comm.tcp import TCP

        self.written, self._write = Counter(), TCP.write
        counter = self

        async def write(comm, message, *given, **named):
            size = await counter._write(comm, message, *given, **named)
            name = getattr(comm, "name", None) or "other"
            counter.written[re.sub(r"[^A-Za-z>-].*", "", str(name).replace(" ", "-"))] += size
            return size

        TCP.write = write
        return self

    def __exit__(self, *_):
        from distributed.comm.tcp import TCP

        TCP.write = self._write


def count_bytes(client, counting, table, n_queries, **settings):
    """Plan a run, execute it, and count its bytes."""
    X_val, y_val = queries(n_queries)
    settings = {"n_passes": 2, "random_state": 0, **settings}
    valuer = ShardedKNNValuer(runtime=Runtime(Dask(client), progress=False), **settings)
    plan = valuer.plan(table, X_val=X_val, y_val=y_val)
    return plan, counting(lambda: valuer.fit(table, X_val=X_val, y_val=y_val))


def compare(client, counting, table, n_queries, sampler):
    """Print planned and counted bytes."""
    plan, found = count_bytes(client, counting, table, n_queries, sampler=sampler)
    between, to_driver, sockets, driver = found
    n_rounds = plan.n_rounds
    print(
        f"\n{table.shape[0]:,} x {table.shape[1]} in {table.n_shards} shards, {sampler!r}, ", end=""
    )
    print(f"{n_queries} queries, {n_rounds} rounds, {plan.n_workers} workers")
    print(f"{'MB':<32}{'planned':>10}{'count_bytes':>10}{'ratio':>8}")
    line("between workers", plan.network_bytes, sum(between.values()))
    for kind in between:
        line(f"  {kind}", 0.0, between[kind])
    line("to the driver", plan.driver_bytes, sum(to_driver.values()))
    for kind in to_driver:
        line(f"  {kind}", 0.0, to_driver[kind])
    both = sum(between.values()) + sum(to_driver.values())
    line("workers' sockets", both, sockets)
    for name, size in driver.most_common(4):
        line(f"driver writes: {name[:16]}", 0.0, size)


def line(name, planned, size):
    ratio = f"{size / planned:>8.3f}" if planned else ""
    print(f"{name:<32}{planned / 1e6:>10.3f}{size / 1e6:>10.3f}{ratio}", flush=True)


def main():
    import dask
    from distributed import Client, LocalCluster

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--queries", type=int, default=256)
    parser.add_argument("--stealing", action="store_true", help="let idle workers take shards")
    asked = parser.parse_args()
    dask.config.set({"distributed.admin.low-level-log-length": 100_000})
    # A plan is of shards that stay where they are. Where workers are not alike, those with nothing
    # to do take some, whose summaries then travel once more.
    dask.config.set({"distributed.scheduler.work-stealing": asked.stealing})
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(
            n_workers=asked.workers,
            threads_per_worker=1,
            dashboard_address=":0",
            memory_limit=0,
            silence_logs=logging.ERROR,
        ) as cluster,
        Client(cluster) as client,
    ):
        write(Path(folder) / "rows", asked.rows, 16, rows_per_group=6250)
        counting = Counting(client)
        for sampler in (PermutationSampler(1), LeverageSampler(64)):
            for n_shards in (8, 16):
                table = ShardedTable.from_files(
                    Path(folder) / "rows", target="label", shards=n_shards
                )
                compare(client, counting, table, asked.queries, sampler)


if __name__ == "__main__":
    main()
