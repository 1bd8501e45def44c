"""Values of some consecutive rows in one Parquet file, written once, whole or not at all."""

from __future__ import annotations

import hashlib
import itertools
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from cellworth.files import local_path, written_atomically

if TYPE_CHECKING:
    import pyarrow as pa

Floats = NDArray[np.float64]

GROUP_ROWS = 65_536


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
    *,
    durable: bool = True,
) -> dict[str, Any]:
    """Write what :func:`write_values` writes, as it comes: groups of GROUP_ROWS rows each.

    A file that is not ``durable`` need not outlive a machine that stops.
    """
    path = local_path(folder, "folder")
    path.mkdir(parents=True, exist_ok=True)
    told, digest = _Told(), hashlib.sha256()
    with written_atomically(
        path / f"values-{number:05d}",
        durable=durable,
        named=lambda: _file_name(number, digest.hexdigest()),
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


def names_of(part: str, columns: Sequence[int]) -> list[str]:
    """What a file calls the columns of one figure; a row's sum has one."""
    return [part] if part.startswith("row") else [f"{part}_{place}" for place in columns]


def all_names(n_columns: int, with_spread: bool) -> list[str]:
    """What a file calls all its columns, in their order."""
    parts = ("mean", "row_mean", "spread", "row_spread")[: 4 if with_spread else 2]
    return [name for part in parts for name in names_of(part, range(n_columns))]


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
        if self.shape[0] % GROUP_ROWS or not 0 < len(mean) <= GROUP_ROWS:
            raise ValueError(f"a group has {len(mean)} rows; all but the last have {GROUP_ROWS}.")
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
    names = all_names(first["mean"].shape[1], "spread" in first)
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
