"""One Parquet file with the values of some consecutive rows: written once, read group by group."""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from cellworth.files import written_atomically

if TYPE_CHECKING:
    import pyarrow as pa

Floats = NDArray[np.float64]

GROUP_ROWS = 65_536

_NAME = re.compile(r"values-\d{5,}-[0-9a-f]{12}\.parquet")
_BYTES_AT_ONCE = 2**20
# So many rows of a transposed group stay in a processor's cache.
_ROWS_TURNED_AT_ONCE = 1024
_COLUMNS_AT_ONCE = 16


@dataclass(frozen=True)
class Extent:
    """Lowest and highest figure of each group of rows.

    Parameters
    ----------
    lowest, highest : tuples of float, one per group
    """

    lowest: tuple[float, ...]
    highest: tuple[float, ...]


@dataclass(frozen=True)
class ValueFile:
    """What a manifest says of a file with the values of some rows.

    Parameters
    ----------
    file, sha256, n_bytes : str, str, int
        Its name, its fingerprint and its size.
    first_row, n_rows, n_columns : int
        Which rows it holds, and how many values each of them has.
    group_rows : int
        Rows that are read at once; the last group may have fewer.
    with_spread : bool
        Whether it tells how observations differ; one observation does not.
    cells, rows : Extent
        Of values of cells, and of sums of rows.
    squares, spreads, largest_spread, largest_row_spread : float
        Sum of squared values and of spreads, and the largest spread of a cell and of a row's sum.
    """

    file: str
    sha256: str
    n_bytes: int
    first_row: int
    n_rows: int
    n_columns: int
    group_rows: int
    with_spread: bool
    cells: Extent
    rows: Extent
    squares: float
    spreads: float
    largest_spread: float
    largest_row_spread: float

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> ValueFile:
        """Read what :func:`write_values` gave; a manifest may come from anyone."""
        given = {entry.name: plain[entry.name] for entry in fields(cls)}
        for name in ("cells", "rows"):
            ends = {end: tuple(map(float, given[name][end])) for end in ("lowest", "highest")}
            given[name] = Extent(**ends)
        found = cls(**given)
        # It must not reach beyond its own folder.
        if not isinstance(found.file, str) or not _NAME.fullmatch(found.file):
            raise ValueError(f"{found.file!r} is no name of a file of values")
        sizes = (found.first_row, found.n_rows - 1, found.n_columns - 1, found.group_rows - 1)
        if not all(isinstance(size, int) and size >= 0 for size in sizes):
            raise ValueError(f"{found.file!r} has rows or columns that cannot be")
        if any(
            len(ends) != found.n_groups
            for part in (found.cells, found.rows)
            for ends in (part.lowest, part.highest)
        ):
            raise ValueError(f"{found.file!r} has {found.n_groups} groups of rows, but others told")
        return found

    @property
    def end(self) -> int:
        """First row behind the last one."""
        return self.first_row + self.n_rows

    @property
    def n_groups(self) -> int:
        """Groups of rows that are read at once."""
        return -(-self.n_rows // self.group_rows)

    def extent(self, part: str) -> Extent:
        """Lowest and highest means, of cells or of rows."""
        return self.rows if part.startswith("row") else self.cells

    def group(self, number: int) -> slice:
        """Rows of one group, by position in the whole table."""
        start = self.first_row + number * self.group_rows
        return slice(start, min(start + self.group_rows, self.end))

    def groups_of(self, first: int, end: int) -> range:
        """Groups that hold rows of this stretch of the whole table."""
        first, end = max(first, self.first_row), min(end, self.end)
        if first >= end:
            return range(0)
        last = (end - 1 - self.first_row) // self.group_rows
        return range((first - self.first_row) // self.group_rows, last + 1)

    def check(self, folder: Path) -> None:
        """Read the file from end to end and refuse one that is not what was written."""
        self._stream(folder, lambda content: None)

    def copy(self, folder: Path, to: Path) -> None:
        """Copy the file to another folder, checked on the way."""
        with written_atomically(to / self.file) as file:
            self._stream(folder, file.write)

    def to_plain(self) -> dict[str, Any]:
        """Plain numbers and text, as :func:`write_values` gave them."""
        return asdict(self)

    def _stream(self, folder: Path, to: Callable[[bytes], Any]) -> None:
        self.refuse_other_size(folder)
        digest = hashlib.sha256()
        with (folder / self.file).open("rb") as file:
            while content := file.read(_BYTES_AT_ONCE):
                digest.update(content)
                to(content)
        if digest.hexdigest() != self.sha256:
            raise ValueError(
                f"{folder / self.file} is not the file that was saved (its sha256 differs); "
                "restore it from a copy."
            )

    def read(
        self,
        folder: Path,
        parts: Sequence[str],
        groups: Sequence[int],
        columns: Sequence[int] | None = None,
    ) -> Iterator[tuple[slice, dict[str, Floats]]]:
        """Rows of each of these groups, and the figures that are asked for.

        Size and shape of the file and the check sums of what is read are looked at, not the
        fingerprint of the whole; see :meth:`check`.

        Parameters
        ----------
        folder : path
        parts : sequence of {"mean", "spread", "row_mean", "row_spread"}
            No spreads unless the file has them.
        groups : sequence of int
        columns : sequence of int, default=None
            Which columns, by position; None means all of them.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.refuse_other_size(folder)
        places = range(self.n_columns) if columns is None else columns
        names = {part: _names(part, places) for part in parts}
        try:
            with pq.ParquetFile(folder / self.file, page_checksum_verification=True) as file:
                self._refuse_other_content(file)
                for number in groups:
                    yield (
                        self.group(number),
                        {part: _read(file, number, listed) for part, listed in names.items()},
                    )
        except (pa.ArrowException, OSError) as error:
            raise ValueError(
                f"{folder / self.file} cannot be read ({error}); restore it from a copy."
            ) from error

    def refuse_other_size(self, folder: Path) -> None:
        """Refuse a file that is not there, or has another size; a look at the folder is enough."""
        path = folder / self.file
        if not path.is_file():
            raise FileNotFoundError(
                f"{folder} lacks the file {self.file!r} that its manifest names."
            )
        if path.stat().st_size != self.n_bytes:
            raise ValueError(
                f"{path} has {path.stat().st_size} bytes, but {self.n_bytes} were saved; restore "
                "it from a copy."
            )

    def _refuse_other_content(self, file: Any) -> None:
        found = file.metadata
        rows = [found.row_group(number).num_rows for number in range(found.num_row_groups)]
        told = [self.group(number) for number in range(self.n_groups)]
        names = _all_names(self.n_columns, self.with_spread)
        if rows != [group.stop - group.start for group in told] or file.schema_arrow.names != names:
            raise ValueError(
                f"{self.file} holds other rows or columns than its manifest says; restore both "
                "from a copy."
            )


def write_values(  # noqa: PLR0917 (four figures, in the order of a Moments)
    folder: str | os.PathLike[str],
    number: int,
    first_row: int,
    mean: Floats,
    spread: Floats | None,
    row_mean: Floats,
    row_spread: Floats | None,
) -> dict[str, Any]:
    """Write the values of some consecutive rows to one Parquet file, which is there whole or not.

    Parameters
    ----------
    folder : path
        Made if it is not there.
    number : int
        Of the shard; it is in the name of the file, with the beginning of the fingerprint.
    first_row : int
        Position of the first of these rows in the whole table.
    mean, spread : arrays of shape (n_rows, n_columns)
        Mean of the observations of each cell, and sum of squared deviations from it; None for the
        latter after one observation.
    row_mean, row_spread : arrays of shape (n_rows,)
        The same for the sums of rows, which were observed as such.

    Returns
    -------
    dict
        What a manifest says of the file, in plain numbers and text; for
        :func:`cellworth.sharded_valuation.finish`.
    """
    given = {"mean": mean, "row_mean": row_mean, "spread": spread, "row_spread": row_spread}
    figures = _checked(number, first_row, given)
    groups = (
        {name: part[start : start + GROUP_ROWS] for name, part in figures.items()}
        for start in range(0, len(mean), GROUP_ROWS)
    )
    return write_groups(folder, number, first_row, groups)


def write_groups(
    folder: str | os.PathLike[str],
    number: int,
    first_row: int,
    groups: Iterable[Mapping[str, Floats]],
) -> dict[str, Any]:
    """Write what :func:`write_values` writes, as it comes: groups of GROUP_ROWS rows each."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    told, digest = _Told(), hashlib.sha256()
    with written_atomically(
        path / f"values-{number:05d}", named=lambda: _file_name(number, digest.hexdigest())
    ) as file:
        _write_parquet(_Hashed(file, digest), told.noted(groups))
        n_bytes = file.tell()
    sha256 = digest.hexdigest()
    return {
        "file": _file_name(number, sha256),
        "sha256": sha256,
        "n_bytes": n_bytes,
        "first_row": int(first_row),
        "group_rows": GROUP_ROWS,
        **told.to_plain(),
    }


def _checked(number: int, first_row: int, given: Mapping[str, Floats | None]) -> dict[str, Floats]:
    figures = {name: part for name, part in given.items() if part is not None}
    if len(figures) == 3:
        raise ValueError(f"shard {number} has a spread of cells or of rows only; give both.")
    mean = figures["mean"]
    for name, part in figures.items():
        wanted = mean.shape[:1] if name.startswith("row") else mean.shape
        if mean.ndim != 2 or mean.size == 0 or part.shape != wanted or part.dtype != np.float64:
            raise ValueError(
                f"{name} of shard {number} is an array of {part.dtype} of shape {part.shape}; "
                "give float64, one entry per cell or per row, and at least one."
            )
    if first_row < 0:
        raise ValueError(f"shard {number} begins at row {first_row}; give a position from 0 on.")
    return figures


@dataclass
class _Told:
    """What is told of values, group by group."""

    shape: tuple[int, int] = (0, 0)
    cells: list[tuple[float, float]] = field(default_factory=list)
    rows: list[tuple[float, float]] = field(default_factory=list)
    squares: list[float] = field(default_factory=list)
    spreads: list[float] = field(default_factory=list)
    largest: list[tuple[float, float]] = field(default_factory=list)

    def noted(self, groups: Iterable[Mapping[str, Floats]]) -> Iterator[Mapping[str, Floats]]:
        """Let groups through and note what is to be told of them."""
        for group in groups:
            self._add(group)
            yield group

    def to_plain(self) -> dict[str, Any]:
        """Plain numbers, for a manifest."""
        largest, of_rows = (max(each) for each in zip((0.0, 0.0), *self.largest, strict=True))
        return {
            "n_rows": self.shape[0],
            "n_columns": self.shape[1],
            "with_spread": bool(self.spreads),
            "cells": _plain_extent(self.cells),
            "rows": _plain_extent(self.rows),
            "squares": math.fsum(self.squares),
            "spreads": math.fsum(self.spreads),
            "largest_spread": largest,
            "largest_row_spread": of_rows,
        }

    def _add(self, group: Mapping[str, Floats]) -> None:
        mean, row_mean, spread = group["mean"], group["row_mean"], group.get("spread")
        self.shape = self.shape[0] + len(mean), mean.shape[1]
        self.cells.append((float(mean.min()), float(mean.max())))
        self.rows.append((float(row_mean.min()), float(row_mean.max())))
        self.squares.append(float(np.einsum("ij,ij->", mean, mean)))
        if spread is not None:
            self.spreads.append(float(spread.sum()))
            self.largest.append((float(spread.max()), float(group["row_spread"].max())))
        # A gap in any figure shows in these.
        seen = (*self.cells[-1], *self.rows[-1], *self.spreads[-1:], *sum(self.largest[-1:], ()))
        if not all(map(math.isfinite, seen)):
            raise ValueError("some values are not finite; every cell of a shard must be known.")


def _plain_extent(ends: list[tuple[float, float]]) -> dict[str, list[float]]:
    return {"lowest": [low for low, _ in ends], "highest": [high for _, high in ends]}


class _Hashed:
    """A file that is hashed while it is written."""

    closed = False

    def __init__(self, file: BinaryIO, digest: Any) -> None:
        self._file, self._digest = file, digest

    def write(self, content: Any) -> int:
        self._digest.update(content)
        return self._file.write(content)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        # The file itself is still to be synced and named.
        self.closed = True


def _write_parquet(sink: _Hashed, groups: Iterator[Mapping[str, Floats]]) -> None:
    import pyarrow.parquet as pq

    first = next(groups)
    names = _all_names(first["mean"].shape[1], "spread" in first)
    # Of neighbours' values most digits are noise: zstd saved 4 % and took a quarter of the speed.
    with pq.ParquetWriter(
        sink,
        _schema(names),
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,
    ) as writer:
        for group in itertools.chain([first], groups):
            writer.write_table(_as_table(group, names))


def _file_name(number: int, sha256: str) -> str:
    return f"values-{number:05d}-{sha256[:12]}.parquet"


def _names(part: str, columns: Sequence[int]) -> list[str]:
    return [part] if part.startswith("row") else [f"{part}_{place}" for place in columns]


def _all_names(n_columns: int, with_spread: bool) -> list[str]:
    parts = ("mean", "row_mean", "spread", "row_spread")[: 4 if with_spread else 2]
    return [name for part in parts for name in _names(part, range(n_columns))]


def _schema(names: list[str]) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([pa.field(name, pa.float64(), nullable=False) for name in names])


def _as_table(group: Mapping[str, Floats], names: list[str]) -> pa.Table:
    import pyarrow as pa

    columns: list[Any] = []
    for name in ("mean", "spread"):
        if name in group:
            columns += [pa.array(column) for column in group[name].T]
            columns.append(pa.array(group[f"row_{name}"]))
    return pa.table(columns, schema=_schema(names))


def _read(file: Any, number: int, names: list[str]) -> Floats:
    """Columns of one group, as one array that lies in memory row by row; one of sums as it is."""
    n_rows = file.metadata.row_group(number).num_rows
    turned = np.empty((n_rows, len(names)))
    for first in range(0, len(names), _COLUMNS_AT_ONCE):
        some = names[first : first + _COLUMNS_AT_ONCE]
        # Threads of Arrow can abort a process that ends soon after.
        table = file.read_row_group(number, columns=some, use_threads=False)
        _turn([table[name].to_numpy() for name in some], turned[:, first : first + len(some)])
    return turned[:, 0] if names[0].startswith("row") else turned


def _turn(columns: list[Floats], turned: Floats) -> None:
    for start in range(0, len(turned), _ROWS_TURNED_AT_ONCE):
        some = slice(start, start + _ROWS_TURNED_AT_ONCE)
        for place, column in enumerate(columns):
            turned[some, place] = column[some]
