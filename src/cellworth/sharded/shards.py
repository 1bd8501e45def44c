"""ShardRows: the rows of one shard as kernels read them, from Parquet or from prepared files."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.counts import GAP, Wholes
from cellworth.files import read_manifest, written_atomically
from cellworth.neighbours.distances import Columns
from cellworth.neighbours.rounds import Shard
from cellworth.sharded.cells import NO_TIME, READERS, Coder
from cellworth.sharded.layouts import ColumnLayout, Layout
from cellworth.sharded.tables import ShardedTable

_FORMAT = "cellworth shard"
_VERSION = 1
_MANIFEST = "manifest.json"
_ARRAYS = ("numbers", "categories", "starts", "places")


class ShardRows(Shard):
    """A Shard that is kept in files: numbers are float32 where nothing is lost by it.

    Within a class, rows keep their order.
    """

    def save(self, folder: Path, *, of: str = "", durable: bool = True) -> None:
        """Write arrays, then a manifest that describes them and says ``of`` what they are."""
        folder.mkdir(parents=True, exist_ok=True)
        described, meant = {}, set()
        for name, array in zip(_ARRAYS, self._arrays(), strict=True):
            # Named by what it holds: whoever prepares the same shard meanwhile writes the same
            # files, and others stand beside them until the manifest says which are meant.
            own = f"{name}-{_sha256(array)[:12]}.npy"
            with written_atomically(folder / own, durable=durable) as file:
                np.save(file, array)
            described[name] = [own, array.dtype.str, list(array.shape)]
            meant.add(folder / own)
        plain = {"format": _FORMAT, "version": _VERSION, "of": of, "arrays": described}
        with written_atomically(folder / _MANIFEST, durable=durable) as file:
            file.write(json.dumps(plain).encode())
        for stale in {*folder.glob("*.npy")} - meant:
            stale.unlink(missing_ok=True)

    @classmethod
    def open(cls, folder: Path, *, of: str = "") -> ShardRows:
        """Map the files of a shard into memory; what is torn, or ``of`` another, is refused."""
        manifest = read_manifest(folder / _MANIFEST, _FORMAT, _VERSION)
        if manifest["of"] != of:
            raise ValueError(
                f"{folder} holds the shard of another table or layout; give another folder."
            )
        numbers, categories, starts, places = (
            _mapped(folder, *manifest["arrays"][name]) for name in _ARRAYS
        )
        coded = np.empty((0, numbers.shape[1]), dtype=np.int32)
        return cls(Columns(numbers, categories, coded), starts, places)

    def _arrays(self) -> tuple[NDArray[Any], ...]:
        return self.rows.numbers, self.rows.categories, self.starts, self.places


def load(table: ShardedTable, shard: int, layout: Layout) -> ShardRows:
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
            _Filler(column, line, GAP)
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
    places = order + table.rows(shard).start
    return ShardRows(Columns(numbers, categories, coded), starts, places)


def sampled(rows: ShardRows, ids: Wholes) -> tuple[Columns, Wholes]:
    """Rows that a shard holds of those with these numbers: float64 numbers, and which they are.

    They come in the order of their numbers.
    """
    found = []
    for first, end in zip(rows.starts[:-1].tolist(), rows.starts[1:].tolist(), strict=True):
        # Within a class, numbers of rows ascend.
        own = rows.places[first:end]
        place = np.searchsorted(own, ids)
        inside = place < len(own)
        place, asked = place[inside], np.asarray(ids)[inside]
        found.append(first + place[own[place] == asked])
    where = np.concatenate(found)
    where = where[np.argsort(rows.places[where], kind="stable")]
    part = rows.rows.take(where)
    return part._replace(numbers=part.numbers.astype(np.float64)), rows.places[where]


class _Filler:
    """Fills one line of an array with the cells of a column, as a layout says."""

    def __init__(self, column: ColumnLayout, line: NDArray[Any], gap: float) -> None:
        self.name = column.name
        self._column, self._line, self._gap = column, line, gap
        self._coder = Coder({value: i for i, value in enumerate(column.values)})

    def fill(self, cells: Any, to: Wholes) -> None:
        column = self._column
        if column.sort == "gaps":
            self._line[to] = self._gap
        elif column.sort == "codes":
            self._line[to] = self._coder.read(cells, self.name)[0]
        else:
            read = READERS[column.sort](cells, self.name)
            if column.sort == "times":
                since = (read - column.first).astype(np.float64)
                read = np.where(read == NO_TIME, np.nan, since)
            self._line[to] = read


def _by_class(table: ShardedTable, shard: int, layout: Layout) -> tuple[Wholes, Wholes, Wholes]:
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


def _mapped(folder: Path, name: str, dtype: str, shape: list[int]) -> NDArray[Any]:
    path = folder / Path(name).name
    try:
        # Copy on write: nothing is written, but kernels need not be compiled for frozen arrays.
        array: NDArray[Any] = np.load(path, mmap_mode="c" if 0 not in shape else None)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{path} is torn or gone ({error}); prepare the shard again.") from error
    if array.dtype.str != dtype or list(array.shape) != shape:
        raise ValueError(f"{path} is not what its manifest describes; prepare the shard again.")
    return np.asarray(array)
