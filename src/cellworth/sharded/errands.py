"""What workers of a cluster are asked to do; everything they need beside comes as an argument."""

from __future__ import annotations

import socket
from functools import reduce
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from cellworth.packing import Plain
from cellworth.sharded.benches import Bench, Settlement
from cellworth.sharded.phases import Resolved


def prepare(bench: Bench, number: int) -> Any:
    """What every shard needs to know of a round."""
    bench.states.require_folder()
    with threadpool_limits(1):
        return bench.phases.prepare(number)


def look(shard: int, bench: Bench, *, number: int, prepared: Any) -> Any:
    """Summary of a shard."""
    bench.states.require_folder()
    bench.keep(number, prepared)
    with threadpool_limits(1):
        return bench.look(shard, prepared)


def merge(bench: Bench, *summaries: Any) -> Any:
    """Several summaries as one."""
    return reduce(bench.phases.merge, summaries)


def resolve(bench: Bench, number: int, summary: Any) -> Resolved:
    """What all shards together know of a round."""
    with threadpool_limits(1):
        # Not from Dask, which may have thrown it away since the look and would fetch it again.
        return bench.phases.resolve(bench.prepared(number), summary)


def told(resolved: Resolved) -> Plain:
    """What goes to the driver."""
    return resolved.told


def shared(resolved: Resolved) -> Any:
    """What goes to every shard."""
    return resolved.shared


def portion(resolved: Resolved, shards: list[int]) -> dict[int, Any]:
    """What goes to some shards, which one worker works on."""
    return {shard: resolved.parts[shard] for shard in shards if shard in resolved.parts}


def settle(
    shard: int,
    bench: Bench,
    *,
    number: int,
    shared: Any,
    portion: dict[int, Any],
    complete: int,
) -> None:
    """Have a shard settle a round."""
    with threadpool_limits(1):
        prepared = bench.prepared(number)
        settlement = Settlement(number, prepared, shared, portion.get(shard), complete)
        bench.settle(shard, settlement)


def publish(shard: int, bench: Bench, *, rounds: int, into: Path) -> dict[str, Any]:
    """Write the result of a shard."""
    bench.states.require_folder()
    if not into.is_dir():
        raise FileNotFoundError(
            f"{socket.gethostname()} does not see the folder {into} of the results; give one that "
            "all workers of the cluster share."
        )
    return bench.publish(shard, rounds, into)
