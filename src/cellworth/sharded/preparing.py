"""Preparing: passes over all shards before the first round, by whoever works on shards."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from pathlib import Path
from typing import Any

import numpy as np

from cellworth.counts import Distance, Kind, Wholes
from cellworth.neighbours.distances import Columns
from cellworth.runtime.executors import Executor
from cellworth.runtime.progress import make_progress_bar
from cellworth.runtime.shard_algorithm import check_folder
from cellworth.runtime.workers import Interrupts, map_unordered, release_memory
from cellworth.sharded.layouts import Layout
from cellworth.sharded.shards import ShardRows, load, sampled
from cellworth.sharded.summaries import TableSummary, summarise
from cellworth.sharded.tables import ShardedTable


def summary_of(
    table: ShardedTable,
    kinds: Mapping[Any, Kind | Distance] | None,
    executor: Executor,
    *,
    show_progress: bool,
) -> TableSummary:
    """Summary of all shards, in one pass."""
    work = partial(summarise, table, kinds=kinds)
    each = _each_shard(table, work, executor, "columns", show_progress)
    merged: TableSummary = reduce(TableSummary.merge, (summary for _, summary in each))
    return merged


@dataclass(frozen=True, eq=False)
class PreparedShards:
    """Shards of a table as kernels read them, kept in a folder.

    Parameters
    ----------
    table : ShardedTable
    layout : Layout
    folder : path
        Where shards are written when they are first opened; whoever opens one later maps it. Those
        of each layout and table have a folder of their own in it. It must be there.
    durable : bool
        Whether they shall outlive a machine that stops.
    """

    table: ShardedTable
    layout: Layout
    folder: Path
    durable: bool = True

    def open(self, number: int) -> ShardRows:
        """Rows of a shard, memory-mapped."""
        check_folder(self.folder)
        folder = self.folder / self._sha256[:12] / f"{number:06d}"
        of = f"{self._sha256} {number}"
        try:
            return ShardRows.open(folder, of=of)
        except (OSError, ValueError, KeyError, TypeError):
            load(self.table, number, self.layout).save(folder, of=of, durable=self.durable)
            return ShardRows.open(folder, of=of)

    def sample(self, ids: Wholes, executor: Executor, *, show_progress: bool) -> Columns:
        """Rows with these numbers, in this order; all shards are opened for it."""
        work = partial(_sampled, self, ids)
        each = _each_shard(self.table, work, executor, "rows", show_progress)
        found = [columns for _, columns in sorted(each, key=lambda pair: pair[0])]
        return Columns(*(np.concatenate(parts, axis=1) for parts in zip(*found, strict=True)))

    @cached_property
    def _sha256(self) -> str:
        both = f"{self.layout.sha256()} {self.table.footers_sha256()}"
        return hashlib.sha256(both.encode()).hexdigest()


def _sampled(prepared: PreparedShards, ids: Wholes, number: int) -> Columns:
    rows = prepared.table.rows(number)
    own = ids[np.searchsorted(ids, rows.start) : np.searchsorted(ids, rows.stop)]
    return sampled(prepared.open(number), own)[0]


def _each_shard(
    table: ShardedTable,
    work: Callable[[int], Any],
    executor: Executor,
    title: str,
    show_progress: bool,
) -> Iterator[tuple[int, Any]]:
    """Numbers of shards and what was made of each, as they come."""
    interrupts = Interrupts()
    with (
        interrupts.watch(),
        closing(make_progress_bar(title, table.n_shards, shown=show_progress)) as bar,
        executor.start(work, title) as pool,
    ):
        for number, answer in map_unordered(pool, range(table.n_shards), interrupts):
            bar.update(1)
            yield number, answer
    release_memory()
