"""Write the values of some consecutive rows to one Parquet file, atomically."""

from __future__ import annotations

import hashlib
import itertools
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cellworth.counts import Floats
from cellworth.files import local_path, written_atomically

if TYPE_CHECKING:
    import pyarrow as pa


GROUP_ROWS = 65_536


def write_groups(
    folder: str | os.PathLike[str],
    number: int,
    first_row: int,
    groups: Iterable[Mapping[str, Floats]],
    *,
    durable: bool = True,
) -> dict[str, Any]:
    """Write row groups to one Parquet file; readers see the complete file or none.

    Parameters
    ----------
    folder : path
        Created if it does not exist.
    number : int
        Number of the shard; part of the file name, with the first digits of the hash.
    first_row : int
        Position of the first of these rows in the whole table.
    groups : iterable of mappings
        One per row group, of about GROUP_ROWS rows. ``mean`` and ``spread`` of cells are float64
        of shape (n_rows, n_columns): the mean of the observations and the sum of squared
        deviations from it. ``row_mean`` and ``row_spread`` of shape (n_rows,) are those of the row
        sums. After one observation there is no spread.
    durable : bool, default=True
        Whether the file must survive a crash of the machine.

    Returns
    -------
    dict
        The manifest entry of the file, for :class:`cellworth.stored_values.ValueFile`.
    """
    path = local_path(folder, "folder")
    path.mkdir(parents=True, exist_ok=True)
    entry: dict[str, Any] = {}
    with written_atomically(
        path / f"values-{number:05d}", durable=durable, named=lambda: str(entry["file"])
    ) as file:
        entry |= _write_parquet(file.name, groups)
        digest = hash_file(file.name)
        n_bytes = Path(file.name).stat().st_size
        entry |= {"file": f"values-{number:05d}-{digest[:12]}.parquet"}
    return {**entry, "sha256": digest, "n_bytes": n_bytes, "first_row": int(first_row)}


def hash_file(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def name_columns(part: str, columns: Sequence[int]) -> list[str]:
    """Return the names of the Parquet columns that hold one statistic; row sums have one."""
    return [part] if part.startswith("row") else [f"{part}_{column}" for column in columns]


def name_all_columns(n_columns: int, with_spread: bool) -> list[str]:
    """Return the names of all Parquet columns of a file, in order."""
    parts = ("mean", "row_mean", "spread", "row_spread")[: 4 if with_spread else 2]
    return [name for part in parts for name in name_columns(part, range(n_columns))]


def _write_parquet(path: str, groups: Iterable[Mapping[str, Floats]]) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rest = iter(groups)
    first = next(rest)
    n_columns, with_spread = first["mean"].shape[1], "spread" in first
    names = name_all_columns(n_columns, with_spread)
    schema = pa.schema([pa.field(name, pa.float64(), nullable=False) for name in names])
    statistics = []
    # Most digits of values are noise: zstd saved 4% and took a quarter of the speed.
    with pq.ParquetWriter(
        path,
        schema,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,
    ) as writer:
        for group in itertools.chain([first], rest):
            statistics.append(_summarize(group))
            writer.write_table(pa.table(list(_arrow_columns(group)), schema=schema))
    return {
        "n_columns": n_columns,
        "with_spread": with_spread,
        "groups": {name: [one[name] for one in statistics] for name in statistics[0]},
    }


def _summarize(group: Mapping[str, Floats]) -> dict[str, float]:
    """Compute what a manifest says of a row group."""
    mean, row_mean, nothing = group["mean"], group["row_mean"], np.zeros(1)
    spread, row_spread = group.get("spread", nothing), group.get("row_spread", nothing)
    found = {
        "lowest": mean.min(),
        "highest": mean.max(),
        "row_lowest": row_mean.min(),
        "row_highest": row_mean.max(),
        "squares": np.einsum("ij,ij->", mean, mean),
        "spreads": spread.sum(),
        "largest_spread": spread.max(),
        "largest_row_spread": row_spread.max(),
    }
    # A NaN in any array shows in these.
    if not all(map(math.isfinite, found.values())):
        raise ValueError("some values are not finite; every cell of a shard must have a value.")
    return {"n_rows": len(mean)} | {name: float(number) for name, number in found.items()}


def _arrow_columns(group: Mapping[str, Floats]) -> Iterator[pa.Array]:
    import pyarrow as pa

    for part in ("mean", "spread"):
        if part in group:
            yield from (pa.array(column) for column in group[part].T)
            yield pa.array(group[f"row_{part}"])
