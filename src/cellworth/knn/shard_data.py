"""Shards as arrays for kernels: read from the files of the table, sorted by class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import MISSING, ColumnTypes, Floats, Integers
from cellworth.data.column import NO_TIME, Coder, Column
from cellworth.data.sharded_table import ShardedTable
from cellworth.knn.binned import Shard, sort_by_class
from cellworth.knn.distances import Columns
from cellworth.knn.shard_layout import (
    ColumnLayout,
    Layout,
    TableSummary,
    summarize_shards,
)
from cellworth.runtime.executors import Executor
from cellworth.runtime.progress import ProgressReporter
from cellworth.runtime.workers import Interrupts, map_unordered, release_memory

# Summaries of columns that the driver merges: workers merge those of several shards before.
_MAX_SUMMARIES = 128


def read_shard(table: ShardedTable, shard: int, layout: Layout) -> Shard:
    """Read one shard in batches; numbers are float32 if that is exact.

    Rows of a class keep their order.
    """
    targets = _read_targets(table, shard, layout)
    if targets is None:
        starts, order, arrival = _sort_by_class(table, shard, layout)
    else:
        starts, order = np.array([0, len(targets)]), np.arange(len(targets))
        arrival = order
    n_rows = len(order)
    numbers = np.empty((len(layout.numeric), n_rows), dtype=layout.dtype)
    categories = np.empty((len(layout.categorical), n_rows), dtype=np.int32)
    names = [column.name for column in (*layout.numeric, *layout.categorical)]
    fillers = [
        _make_filler(column, line, missing, table.schema.field(column.name).type)
        for columns, lines, missing in (
            (layout.numeric, numbers, np.nan),
            (layout.categorical, categories, MISSING),
        )
        for column, line in zip(columns, lines, strict=True)
    ]
    done = 0
    for batch in table.batches(shard, names):
        positions = arrival[done : done + len(batch[0])]
        for fill, cells in zip(fillers, batch, strict=True):
            fill(cells, positions)
        done += len(positions)
    columns, first = Columns(numbers, categories), table.rows(shard).start
    return Shard(columns, starts, order + first, targets)


def take_rows(shard: Shard, ids: Integers) -> Columns:
    """Return the rows of a shard at these positions of the table, in this order."""
    found = np.flatnonzero(np.isin(shard.positions, ids))
    found = found[np.argsort(shard.positions[found], kind="stable")]
    return shard.rows.take(found)


def _make_filler(
    column: ColumnLayout, line: NDArray[Any], missing: float, type_: Any
) -> Callable[[Any, Integers], None]:
    """Return a function that writes cells of a column to positions of a line."""
    coder = Coder({value: i for i, value in enumerate(column.values)})

    def fill(cells: Any, positions: Integers) -> None:
        part = Column(column.name, cells, type_, "numeric")
        if column.sort == "missing":
            line[positions] = missing
        elif column.sort == "codes":
            line[positions] = coder.read(part)[0]
        else:
            read = part.read_part()
            if column.sort == "times":
                since = (read - column.first).astype(np.float64)
                read = np.where(read == NO_TIME, np.nan, since)
            line[positions] = read

    return fill


def _read_targets(table: ShardedTable, shard: int, layout: Layout) -> Floats | None:
    """Return a numeric target in steps; None for classes."""
    if layout.target_scale is None:
        return None
    target = Column(layout.target, (), table.schema.field(layout.target).type, "numeric")
    batches = table.batches(shard, [layout.target])
    parts = [replace(target, cells=cells).read_part() for (cells,) in batches]
    return layout.target_scale.count_steps(np.concatenate(parts))


def _sort_by_class(
    table: ShardedTable, shard: int, layout: Layout
) -> tuple[Integers, Integers, Integers]:
    """Return the first row of each class, the rows sorted by class, and each row's new position."""
    coder = Coder({label: i for i, label in enumerate(layout.classes)})
    batches = table.batches(shard, [layout.target])
    parts = [coder.read(Column(layout.target, cells))[0] for (cells,) in batches]
    labels = np.concatenate(parts)
    order, starts = sort_by_class(labels, len(layout.classes))
    arrival = np.empty_like(order)
    arrival[order] = np.arange(len(order))
    return starts, order, arrival


def summarize_table(
    table: ShardedTable,
    column_types: ColumnTypes | None,
    executor: Executor,
    *,
    show_progress: bool,
) -> TableSummary:
    """Summarize all shards, each read once."""
    shards = range(0, table.n_shards, -(-table.n_shards // _MAX_SUMMARIES))
    work = partial(summarize_shards, table, step=shards.step, column_types=column_types)
    each = _each_shard(shards, work, executor, "columns", show_progress)
    merged: TableSummary = reduce(TableSummary.merge, (summary for _, summary in each))
    return merged


def sample_shards(
    table: ShardedTable, layout: Layout, ids: Integers, executor: Executor, *, show_progress: bool
) -> Columns:
    """Return the rows at these sorted positions; this reads all shards."""
    work = partial(_take_sample, table, layout, ids)
    each = _each_shard(range(table.n_shards), work, executor, "rows", show_progress)
    found = [columns for _, columns in sorted(each, key=lambda pair: pair[0])]
    numbers, categories = (np.concatenate(part, axis=1) for part in zip(*found, strict=True))
    return Columns(numbers.astype(np.float64), categories)


def _take_sample(table: ShardedTable, layout: Layout, ids: Integers, number: int) -> Columns:
    rows = table.rows(number)
    own = ids[np.searchsorted(ids, rows.start) : np.searchsorted(ids, rows.stop)]
    return take_rows(read_shard(table, number, layout), own)


def _each_shard(
    shards: range,
    work: Callable[[int], Any],
    executor: Executor,
    title: str,
    show_progress: bool,
) -> Iterator[tuple[int, Any]]:
    """Yield the number and the result of each shard, or of the first of some, as they are done."""
    interrupts = Interrupts()
    with (
        interrupts.watch(),
        ProgressReporter(
            f"preparing {title}",
            shown=show_progress,
            n_tasks=len(shards),
            describe=lambda progress: (
                f"{min(progress.tasks * shards.step, shards.stop)} of {shards.stop} shards"
            ),
            where={"executor": executor},
        ) as reporter,
        executor.start(work, title) as pool,
    ):
        for number, answer in map_unordered(pool, shards, interrupts):
            reporter.advance()
            yield number, answer
    release_memory()
