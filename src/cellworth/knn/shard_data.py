"""Shards as arrays: prepared once, memory-mapped, grouped by class."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import MISSING, ColumnTypes, Integers
from cellworth.data.arrow import NO_TIME, READERS, Coder
from cellworth.data.io import read_manifest, write_atomically
from cellworth.data.sharded_table import ShardedTable
from cellworth.knn.binned import Shard
from cellworth.knn.distances import Columns
from cellworth.knn.shard_layout import ColumnLayout, Layout, TableSummary, summarize_shard
from cellworth.runtime.executors import Executor
from cellworth.runtime.shard_algorithm import check_folder
from cellworth.runtime.stopping import make_progress_bar
from cellworth.runtime.workers import Interrupts, map_unordered, release_memory

_FORMAT = "cellworth shard"
_VERSION = 1
_MANIFEST = "manifest.json"
_ARRAYS = ("numbers", "categories", "starts", "places")


class StoredShard(Shard):
    """A Shard that is kept in files: numbers are float32 where nothing is lost by it.

    Within a class, rows keep their order.
    """

    def save(self, folder: Path, *, of: str = "", durable: bool = True) -> None:
        """Write arrays, then a manifest that describes them and says ``of`` what they are."""
        folder.mkdir(parents=True, exist_ok=True)
        files, meant = {}, set()
        for name, array in zip(_ARRAYS, self._arrays(), strict=True):
            # Named by what it holds: another process that prepares the same shard writes the same
            # files, and others stand beside them until the manifest says which are meant.
            own = f"{name}-{_sha256(array)[:12]}.npy"
            with write_atomically(folder / own, durable=durable) as file:
                np.save(file, array)
            files[name] = [own, array.dtype.str, list(array.shape)]
            meant.add(folder / own)
        plain = {"format": _FORMAT, "version": _VERSION, "of": of, "arrays": files}
        with write_atomically(folder / _MANIFEST, durable=durable) as file:
            file.write(json.dumps(plain).encode())
        for stale in {*folder.glob("*.npy")} - meant:
            stale.unlink(missing_ok=True)

    @classmethod
    def open(cls, folder: Path, *, of: str = "") -> StoredShard:
        """Map the files of a shard into memory; what is torn, or ``of`` another, is refused."""
        manifest = read_manifest(folder / _MANIFEST, _FORMAT, _VERSION)
        if manifest["of"] != of:
            raise ValueError(
                f"{folder} holds the shard of another table or layout; give another folder."
            )
        numbers, categories, starts, positions = (
            _map_array(folder, *manifest["arrays"][name]) for name in _ARRAYS
        )
        coded = np.empty((0, numbers.shape[1]), dtype=np.int32)
        return cls(Columns(numbers, categories, coded), starts, positions)

    def _arrays(self) -> tuple[NDArray[Any], ...]:
        return self.rows.numbers, self.rows.categories, self.starts, self.positions


def read_shard(table: ShardedTable, shard: int, layout: Layout) -> StoredShard:
    """Read one shard from Parquet, batch by batch, into arrays of its size."""
    starts, order, arrival = _by_class(table, shard, layout)
    n_rows = len(order)
    numbers = np.empty((len(layout.numeric), n_rows), dtype=layout.dtype)
    categories = np.empty((len(layout.categorical), n_rows), dtype=np.int32)
    fillers = [
        *(
            _Filler(column, line, np.nan)
            for column, line in zip(layout.numeric, numbers, strict=True)
        ),
        *(
            _Filler(column, line, MISSING)
            for column, line in zip(layout.categorical, categories, strict=True)
        ),
    ]
    done = 0
    for batch in table.batches(shard, [filler.name for filler in fillers]):
        to = arrival[done : done + len(batch[0])]
        for filler, cells in zip(fillers, batch, strict=True):
            filler.fill(cells, to)
        done += len(to)
    coded = np.empty((0, n_rows), dtype=np.int32)
    positions = order + table.rows(shard).start
    return StoredShard(Columns(numbers, categories, coded), starts, positions)


def take_rows(rows: StoredShard, ids: Integers) -> tuple[Columns, Integers]:
    """Rows that a shard holds of those with these numbers: float64 numbers, and which they are.

    They come in the order of their numbers.
    """
    found = []
    for first, end in zip(rows.starts[:-1].tolist(), rows.starts[1:].tolist(), strict=True):
        # Within a class, numbers of rows ascend.
        own = rows.positions[first:end]
        position = np.searchsorted(own, ids)
        inside = position < len(own)
        position, asked = position[inside], np.asarray(ids)[inside]
        found.append(first + position[own[position] == asked])
    where = np.concatenate(found)
    where = where[np.argsort(rows.positions[where], kind="stable")]
    part = rows.rows.take(where)
    return part._replace(numbers=part.numbers.astype(np.float64)), rows.positions[where]


class _Filler:
    """Fills one line of an array with the cells of a column, as a layout says."""

    def __init__(self, column: ColumnLayout, line: NDArray[Any], missing: float) -> None:
        self.name = column.name
        self._column, self._line, self._missing = column, line, missing
        self._coder = Coder({value: i for i, value in enumerate(column.values)})

    def fill(self, cells: Any, to: Integers) -> None:
        column = self._column
        if column.sort == "missing":
            self._line[to] = self._missing
        elif column.sort == "codes":
            self._line[to] = self._coder.read(cells, self.name)[0]
        else:
            read = READERS[column.sort](cells, self.name)
            if column.sort == "times":
                since = (read - column.first).astype(np.float64)
                read = np.where(read == NO_TIME, np.nan, since)
            self._line[to] = read


def _by_class(
    table: ShardedTable, shard: int, layout: Layout
) -> tuple[Integers, Integers, Integers]:
    """First row of each class, rows in the order of classes, and where each row goes."""
    coder = Coder({label: i for i, label in enumerate(layout.classes)})
    codes = [
        coder.read(cells, layout.target)[0] for (cells,) in table.batches(shard, [layout.target])
    ]
    labels = np.concatenate(codes)
    counts = np.bincount(labels, minlength=len(layout.classes))
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    order = np.argsort(labels, kind="stable").astype(np.int64)
    arrival = np.empty_like(order)
    arrival[order] = np.arange(len(order))
    return starts, order, arrival


def _sha256(array: NDArray[Any]) -> str:
    digest = hashlib.sha256(f"{array.dtype.str} {array.shape}".encode())
    digest.update(np.ascontiguousarray(array).data if array.size else b"")
    return digest.hexdigest()


def _map_array(folder: Path, name: str, dtype: str, shape: list[int]) -> NDArray[Any]:
    path = folder / Path(name).name
    try:
        # Copy on write: nothing is written, but kernels need not be compiled for frozen arrays.
        array: NDArray[Any] = np.load(path, mmap_mode="c" if 0 not in shape else None)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{path} is torn or gone ({error}); prepare the shard again.") from error
    if array.dtype.str != dtype or list(array.shape) != shape:
        raise ValueError(f"{path} is not what its manifest describes; prepare the shard again.")
    return np.asarray(array)


def summarize_table(
    table: ShardedTable,
    column_types: ColumnTypes | None,
    executor: Executor,
    *,
    show_progress: bool,
) -> TableSummary:
    """Summary of all shards, in one pass."""
    work = partial(summarize_shard, table, column_types=column_types)
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
        Where shards are written when they are first opened; later openings map it. Those
        of each layout and table have a folder of their own in it. It must be there.
    durable : bool
        Whether they shall outlive a machine that stops.
    """

    table: ShardedTable
    layout: Layout
    folder: Path
    durable: bool = True

    def open(self, number: int) -> StoredShard:
        """Rows of a shard, memory-mapped."""
        check_folder(self.folder)
        folder = self.folder / self._sha256[:12] / f"{number:06d}"
        of = f"{self._sha256} {number}"
        try:
            return StoredShard.open(folder, of=of)
        except (OSError, ValueError, KeyError, TypeError):
            read_shard(self.table, number, self.layout).save(folder, of=of, durable=self.durable)
            return StoredShard.open(folder, of=of)

    def sample(self, ids: Integers, executor: Executor, *, show_progress: bool) -> Columns:
        """Rows with these numbers, in this order; all shards are opened for it."""
        work = partial(_take_sample, self, ids)
        each = _each_shard(self.table, work, executor, "rows", show_progress)
        found = [columns for _, columns in sorted(each, key=lambda pair: pair[0])]
        return Columns(*(np.concatenate(parts, axis=1) for parts in zip(*found, strict=True)))

    @cached_property
    def _sha256(self) -> str:
        both = f"{self.layout.sha256()} {self.table.footers_sha256()}"
        return hashlib.sha256(both.encode()).hexdigest()


def _take_sample(prepared: PreparedShards, ids: Integers, number: int) -> Columns:
    rows = prepared.table.rows(number)
    own = ids[np.searchsorted(ids, rows.start) : np.searchsorted(ids, rows.stop)]
    return take_rows(prepared.open(number), own)[0]


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
