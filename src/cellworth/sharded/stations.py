"""Which worker of a cluster works on which shards: evenly, and they stay where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

Thing = TypeVar("Thing")

# Summaries that are merged at a time.
FAN_IN = 8


def assigned(
    n_shards: int, n_threads: Mapping[str, int], before: Mapping[int, str]
) -> dict[int, str]:
    """Give every shard a worker; it keeps the one it had, unless that is gone or has too many.

    Parameters
    ----------
    n_shards : int
    n_threads : mapping
        From the addresses of workers to their threads: who has twice as many gets twice as many.
    before : mapping
        From shards to workers, as it was.
    """
    room = _shares(n_shards, n_threads)
    stays: dict[int, str] = {}
    for shard, worker in before.items():
        if room.get(worker, 0) > 0:
            stays[shard] = worker
            room[worker] -= 1
    free = (worker for worker in room for _ in range(room[worker]))
    return {shard: stays.get(shard) or next(free) for shard in range(n_shards)}


def _shares(n_shards: int, n_threads: Mapping[str, int]) -> dict[str, int]:
    """How many shards each worker gets; they differ by one where workers are alike."""
    total, seen, shares = sum(n_threads.values()), 0, {}
    for worker in sorted(n_threads):
        first = seen * n_shards // total
        seen += n_threads[worker]
        shares[worker] = seen * n_shards // total - first
    return shares


def stations(workers: Mapping[int, str]) -> dict[str, list[int]]:
    """From workers to their shards."""
    found: dict[str, list[int]] = {}
    for shard, worker in workers.items():
        found.setdefault(worker, []).append(shard)
    return found


def in_groups(things: Sequence[Thing], size: int) -> list[list[Thing]]:
    """Cut a list into parts of at most so many, alike in size."""
    n_groups = -(-len(things) // size)
    bounds = [place * len(things) // n_groups for place in range(n_groups + 1)]
    return [list(things[a:b]) for a, b in pairwise(bounds)]
