"""Shards as arrays on disk: prepared once, memory-mapped, sorted by class."""

from __future__ import annotations

import atexit
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial, reduce
from pathlib import Path
from tokenize import TokenError
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import MISSING, ColumnTypes, Floats, Integers
from cellworth.data.column import NO_TIME, Coder, Column
from cellworth.data.io import (
    check_regular,
    get_stamp,
    read_array,
    read_manifest,
    write_atomically,
)
from cellworth.data.sharded_table import ShardedTable
from cellworth.knn.binned import Shard, sort_by_class
from cellworth.knn.distances import Columns
from cellworth.knn.shard_layout import (
    ColumnLayout,
    Layout,
    TableSummary,
    summarize_shards,
)
from cellworth.runtime.checkpoint import check_folder
from cellworth.runtime.executors import Executor
from cellworth.runtime.progress import ProgressReporter
from cellworth.runtime.workers import Interrupts, map_unordered, release_memory

_FORMAT = "cellworth shard"
_VERSION = 1
_MANIFEST = "manifest.json"
# Summaries of columns that the driver merges: workers merge those of several shards before.
_MAX_SUMMARIES = 128
# Files that this process has written or compared with their hash, each with size and time.
_verified: set[tuple[Path, str]] = set()


class StoredShard(Shard):
    """A Shard in files; numbers are float32 if that is exact. Rows keep their order in a class."""

    def save(self, folder: Path, *, of: str = "", durable: bool = True) -> None:
        """Write arrays, then a manifest; ``of`` identifies the table, the layout and the shard."""
        folder.mkdir(parents=True, exist_ok=True)
        files, current = {}, set()
        for name, array in self._arrays().items():
            # Names contain a hash. A process that prepares the same shard writes the same files,
            # and other files do no harm until the manifest names the current ones.
            digest = _sha256(array)
            filename = f"{name}-{digest[:12]}.npy"
            with write_atomically(folder / filename, durable=durable) as file:
                np.save(file, array)
            files[name] = [filename, list(array.shape), digest]
            current.add(folder / filename)
            _verified.add((folder / filename, get_stamp(folder / filename)))
        plain = {"format": _FORMAT, "version": _VERSION, "of": of, "arrays": files}
        with write_atomically(folder / _MANIFEST, durable=durable) as file:
            file.write(json.dumps(plain).encode())
        for stale in {*folder.glob("*.npy")} - current:
            stale.unlink(missing_ok=True)

    @classmethod
    def open(cls, folder: Path, *, of: str = "") -> StoredShard:
        """Memory-map the files of a shard; incomplete files or another ``of`` are an error."""
        manifest = read_manifest(folder / _MANIFEST, _FORMAT, _VERSION)
        if manifest["of"] != of:
            raise ValueError(
                f"{folder} must have a shard of this table and layout, got one of another; "
                "use another folder."
            )
        found = {name: _map_array(folder, *of) for name, of in manifest["arrays"].items()}
        return cls(Columns(found.pop("numbers"), found.pop("categories")), **found)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = {
            "numbers": self.rows.numbers,
            "categories": self.rows.categories,
            "starts": self.starts,
            "positions": self.positions,
        }
        return arrays if self.targets is None else arrays | {"targets": self.targets}


def read_shard(table: ShardedTable, shard: int, layout: Layout) -> StoredShard:
    """Read one shard from Parquet in batches."""
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
    return StoredShard(columns, starts, order + first, targets)


def take_rows(shard: StoredShard, ids: Integers) -> Columns:
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


def _sha256(array: NDArray[Any]) -> str:
    digest = hashlib.sha256(f"{array.dtype.str} {array.shape}".encode())
    digest.update(np.ascontiguousarray(array).data if array.size else b"")
    return digest.hexdigest()


def _map_array(folder: Path, name: str, shape: list[int], digest: str) -> NDArray[Any]:
    path = folder / Path(name).name
    check_regular(path)
    # Copy-on-write: kernels need not be compiled for read-only arrays, too.
    mode: Literal["c"] | None = "c" if 0 not in shape else None
    array = read_array(partial(np.load, path, mmap_mode=mode))
    seen = path, get_stamp(path)
    # Once in a process: a shard that leaves the cache is opened often.
    if seen not in _verified and _sha256(array) != digest:
        raise ValueError(f"{path} does not match its manifest; prepare the shard again.")
    _verified.add(seen)
    return np.asarray(array)


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


@dataclass(frozen=True, eq=False)
class PreparedShards:
    """Shards of a table as arrays for kernels, in a folder."""

    table: ShardedTable
    layout: Layout
    # An existing folder. Shards are written when they are first opened, and memory-mapped later.
    # Each table and layout has its own subfolder.
    folder: Path
    # Whether files are synchronized to disk, to survive a crash of the machine.
    durable: bool = True
    # Whether each machine has a temporary folder of its own, which ends with the process.
    is_scratch: bool = False

    def open(self, number: int) -> StoredShard:
        """Memory-map the rows of a shard; prepare it first if necessary."""
        if self.is_scratch:
            _make_scratch(self.folder)
        else:
            check_folder(self.folder)
        folder = self.folder / self._sha256[:12] / f"{number:06d}"
        of = f"{self._sha256} {number}"
        try:
            return StoredShard.open(folder, of=of)
        # A damaged header of an array is no Python.
        except (OSError, EOFError, ValueError, KeyError, TypeError, SyntaxError, TokenError):
            read_shard(self.table, number, self.layout).save(folder, of=of, durable=self.durable)
            return StoredShard.open(folder, of=of)

    def sample(self, ids: Integers, executor: Executor, *, show_progress: bool) -> Columns:
        """Return the rows at these sorted positions; this opens all shards."""
        work = partial(_take_sample, self, ids)
        each = _each_shard(range(self.table.n_shards), work, executor, "rows", show_progress)
        found = [columns for _, columns in sorted(each, key=lambda pair: pair[0])]
        numbers, categories = (np.concatenate(part, axis=1) for part in zip(*found, strict=True))
        return Columns(numbers.astype(np.float64), categories)

    @cached_property
    def _sha256(self) -> str:
        both = f"{self.layout.sha256()} {self.table.files_sha256()}"
        return hashlib.sha256(both.encode()).hexdigest()


@cache
def _make_scratch(folder: Path) -> None:
    """Make a temporary folder, once in a process; it is deleted when the process ends."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)


def _take_sample(prepared: PreparedShards, ids: Integers, number: int) -> Columns:
    rows = prepared.table.rows(number)
    own = ids[np.searchsorted(ids, rows.start) : np.searchsorted(ids, rows.stop)]
    return take_rows(prepared.open(number), own)


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
