"""Storage: a valuation as a folder of Parquet and JSON files; value files of shards."""

from __future__ import annotations

import hashlib
import io
import itertools
import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats
from cellworth.data.blocks import Axis, Blocks
from cellworth.data.io import (
    AnyPath,
    check_memory,
    get_size,
    hash_file,
    read_hashed,
    write_atomically,
    write_hashed,
)
from cellworth.data.table_files import format_read_error
from cellworth.data.tables import label_array
from cellworth.sampling.moments import Moments

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "cellworth valuation"
VERSION = 2
_MANIFEST = "manifest.json"
_MOMENTS = ("count", "mean", "sum_sq")
_VALIDATION = "validation_se"
GROUP_ROWS = 65_536


def write_tables(path: AnyPath, tables: Mapping[str, pa.Table]) -> dict[str, dict[str, Any]]:
    """Write small tables; return their entries in the manifest."""
    import pyarrow.parquet as pq

    files = {}
    for name, table in tables.items():
        sink = io.BytesIO()
        pq.write_table(table, sink, compression="zstd")
        content = sink.getvalue()
        digest = hashlib.sha256(content).hexdigest()
        # The hash in the name lets new files coexist with old ones. The manifest is replaced last,
        # in one step, and names the valid ones.
        files[name] = {"file": f"{name}-{digest[:12]}.parquet", "sha256": digest}
        with write_atomically(path / files[name]["file"]) as file:
            file.write(content)
    return files


def replace_manifest(path: AnyPath, content: Mapping[str, Any], before: set[str]) -> None:
    """Write the manifest, then delete the files of the earlier result."""
    write_hashed(path / _MANIFEST, FORMAT, VERSION, content)
    for stale in before - {entry["file"] for entry in content["files"].values()}:
        (path / stale).unlink(missing_ok=True)


def read_folder(path: AnyPath) -> tuple[dict[str, Any], dict[str, pa.Table], list[ValueFile]]:
    """Return the manifest, the tables, and the files of values that are not read yet.

    Raise an error if any file is missing, damaged or was changed.
    """
    manifest = read_valuation_manifest(path)
    try:
        tables = _read_tables(path, manifest)
    except FileNotFoundError:
        # Another process may have saved a new result since; its manifest names the new files.
        newer = read_valuation_manifest(path)
        if newer == manifest:
            raise
        manifest, tables = newer, _read_tables(path, newer)
    files = [
        ValueFile.from_plain(entry) for entry in manifest["files"].values() if "n_bytes" in entry
    ]
    for file in files:
        file.check_size(path)
    return manifest, tables, files


def read_parquet(source: Any) -> pa.Table:
    """Read a Parquet file, by path or from memory."""
    import pyarrow.parquet as pq

    # Threads of Arrow abort a process that ends soon after (1 in 3 with pyarrow 16, 1 in 50 with
    # 26), and read_table cannot do without them.
    with pq.ParquetFile(source) as file:
        # A small file may repeat a cell without an end.
        check_memory(file.metadata.num_rows * file.metadata.num_columns)
        return file.read(use_threads=False)


def _read_tables(path: AnyPath, manifest: Mapping[str, Any]) -> dict[str, pa.Table]:
    import pyarrow as pa

    tables = {}
    for name, entry in manifest["files"].items():
        if not _is_inside(entry["file"]) or not (path / entry["file"]).is_file():
            raise FileNotFoundError(
                f"{path} lacks the file {entry['file']!r} that its manifest names."
            )
        if "n_bytes" not in entry:
            content = (path / entry["file"]).read_bytes()
            _check_hash(hashlib.sha256(content).hexdigest(), entry["sha256"], path / entry["file"])
            tables[name] = read_parquet(pa.BufferReader(content))
    return tables


def _check_hash(found: str, saved: str, path: AnyPath) -> None:
    if found != saved:
        raise ValueError(
            f"{path} is not the file that was saved (its sha256 differs); restore it from a copy."
        )


def read_valuation_manifest(path: AnyPath) -> dict[str, Any]:
    """Read the manifest of a folder that a Valuation was saved to."""
    if not (path / _MANIFEST).is_file():
        raise FileNotFoundError(
            f"{path} holds no {_MANIFEST}; give the folder that a Valuation was saved to."
        )
    return read_hashed(path / _MANIFEST, FORMAT, VERSION)


def _is_inside(name: Any) -> bool:
    # A manifest is untrusted: it must not name files outside its own folder.
    return isinstance(name, str) and Path(name).name == name and name.endswith(".parquet")


def files_to_replace(path: AnyPath) -> set[str]:
    """Return the files of an earlier result in this folder; raise if the manifest is not ours."""
    if not (path / _MANIFEST).exists():
        return set()
    try:
        files = read_valuation_manifest(path)["files"].values()
        return {entry["file"] for entry in files if _is_inside(entry["file"])}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileExistsError(
            f"{path} has a {_MANIFEST} that is damaged or not of a Valuation; give another folder."
        ) from error


def cell_tables(blocks: Blocks, moments: Moments, validation: Floats | None) -> dict[str, pa.Table]:
    """Return tables of the rows with their cells and sums, and those of the columns."""
    import pyarrow as pa

    row_parts = {"row": pa.array(blocks.rows.labels)}
    for name, array in _name_figures(moments, validation).items():
        # The last row holds the sums of columns and, at its end, the total.
        cells = pa.array(np.ascontiguousarray(array[:-1, :-1]).ravel())
        row_parts[name] = pa.FixedSizeListArray.from_arrays(cells, len(blocks.columns))
        row_parts[f"row_{name}"] = pa.array(array[:-1, -1])
    sums = Moments(moments.count[-1], moments.mean[-1], moments.sum_sq[-1])
    of_columns = column_tables(blocks.columns, sums, None if validation is None else validation[-1])
    tables = {"rows": pa.table(row_parts), **of_columns}
    if blocks.rows.grouped:
        tables["row_groups"] = _members(blocks.rows, "row")
    return tables


def column_tables(columns: Axis, sums: Moments, validation: Floats | None) -> dict[str, pa.Table]:
    """Return tables of the columns with their sums, of the total (the last), and of groups."""
    import pyarrow as pa

    figures = _name_figures(sums, validation)
    labels = {"column": pa.array(columns.labels)}
    parts = labels | {name: pa.array(array[:-1]) for name, array in figures.items()}
    tables = {
        "columns": pa.table(parts),
        "total": pa.table({name: [array[-1]] for name, array in figures.items()}),
    }
    if columns.grouped:
        tables["column_groups"] = _members(columns, "column")
    return tables


def _name_figures(moments: Moments, validation: Floats | None) -> dict[str, NDArray[Any]]:
    figures = {name: getattr(moments, name) for name in _MOMENTS}
    return figures if validation is None else figures | {_VALIDATION: validation}


def _members(axis: Axis, side: str) -> pa.Table:
    import pyarrow as pa

    return pa.table({side: pa.array(axis.ids), "group": pa.array(axis.codes)})


def read_cells(tables: Mapping[str, pa.Table]) -> tuple[Blocks, Moments, Floats | None]:
    """Return what :func:`cell_tables` was given."""
    columns, sums, sums_validation = read_columns(tables)
    rows, width = tables["rows"], len(columns)

    def join(name: str, of_columns: NDArray[Any]) -> NDArray[Any]:
        cells = rows[name].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        of_rows = np.column_stack([cells.reshape(-1, width), rows[f"row_{name}"].to_numpy()])
        return np.vstack([of_rows, of_columns])

    moments = Moments(*(join(name, getattr(sums, name)) for name in _MOMENTS))
    validation = None if sums_validation is None else join(_VALIDATION, sums_validation)
    return Blocks(_axis(tables, "row"), columns), moments, validation


def read_columns(tables: Mapping[str, pa.Table]) -> tuple[Axis, Moments, Floats | None]:
    """Return the columns with their sums, and the total at the end."""
    columns, total = tables["columns"], tables["total"]
    figures = {
        name: np.append(columns[name].to_numpy(), total[name].to_numpy())
        for name in columns.column_names[1:]
    }
    return (
        _axis(tables, "column"),
        Moments(*(figures[name] for name in _MOMENTS)),
        figures.get(_VALIDATION),
    )


def _axis(tables: Mapping[str, pa.Table], side: str) -> Axis:
    labels = tables[f"{side}s"][side].to_numpy()
    members = tables.get(f"{side}_groups")
    if members is None:
        return Axis.from_groups(label_array(labels, what=side), what=side)
    return Axis(labels, members[side].to_numpy(), members["group"].to_numpy().astype(np.intp))


def write_groups(
    folder: AnyPath,
    number: int,
    first_row: int,
    groups: Iterable[Mapping[str, Floats]],
    *,
    durable: bool = True,
) -> dict[str, Any]:
    """Write row groups to one Parquet file; readers see the complete file or none.

    A group of about GROUP_ROWS rows has ``mean`` and ``sum_sq`` of cells, float64 of shape (n_rows,
    n_columns): the mean of the observations and the sum of squared deviations from it. ``row_mean``
    and ``row_sum_sq`` of shape (n_rows,) are those of the row sums. After one observation there is
    no sum_sq. ``validation_se`` and ``row_validation_se`` are left out if they are not known.
    ``durable`` files survive a crash of the machine. Return the fields of the ValueFile.
    """
    folder.mkdir(parents=True, exist_ok=True)
    entry: dict[str, Any] = {}
    with write_atomically(
        folder / f"values-{number:05d}", durable=durable, named=lambda: str(entry["file"])
    ) as file:
        entry |= _write_parquet(file.name, groups)
        digest = hash_file(Path(file.name))
        n_bytes = Path(file.name).stat().st_size
        entry |= {"file": f"values-{number:05d}-{digest[:12]}.parquet"}
    return {**entry, "sha256": digest, "n_bytes": n_bytes, "first_row": int(first_row)}


def name_columns(part: str, columns: Sequence[int]) -> list[str]:
    """Return the names of the Parquet columns that hold one statistic; row sums have one."""
    return [part] if part.startswith("row") else [f"{part}_{column}" for column in columns]


def name_all_columns(n_columns: int, with_sum_sq: bool, with_validation: bool) -> list[str]:
    """Return the names of all Parquet columns of a file, in order."""
    parts = ["mean"] + ["sum_sq"] * with_sum_sq + [_VALIDATION] * with_validation
    every = [side + part for part in parts for side in ("", "row_")]
    return [name for part in every for name in name_columns(part, range(n_columns))]


def _write_parquet(path: str, groups: Iterable[Mapping[str, Floats]]) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rest = iter(groups)
    first = next(rest)
    n_columns, with_sum_sq = first["mean"].shape[1], "sum_sq" in first
    with_validation = _VALIDATION in first
    names = name_all_columns(n_columns, with_sum_sq, with_validation)
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
            arrays = [
                array
                for part in ("mean", "sum_sq", _VALIDATION)
                if part in group
                for array in (*group[part].T, group[f"row_{part}"])
            ]
            writer.write_table(pa.table(arrays, schema=schema))
    return {
        "n_columns": n_columns,
        "with_sum_sq": with_sum_sq,
        "with_validation": with_validation,
        "groups": {name: [one[name] for one in statistics] for name in statistics[0]},
    }


def _summarize(group: Mapping[str, Floats]) -> dict[str, float]:
    """Compute the statistics of a row group for the manifest."""
    mean, row_mean, nothing = group["mean"], group["row_mean"], np.zeros(1)
    sum_sq, row_sum_sq = group.get("sum_sq", nothing), group.get("row_sum_sq", nothing)
    found = {
        "lowest": mean.min(),
        "highest": mean.max(),
        "row_lowest": row_mean.min(),
        "row_highest": row_mean.max(),
        "largest_sum_sq": sum_sq.max(),
        "largest_row_sum_sq": row_sum_sq.max(),
        "largest_validation_se": group.get(_VALIDATION, nothing).max(),
    }
    # A NaN in any array shows in these.
    if not all(map(math.isfinite, found.values())):
        raise ValueError("some values are not finite; every cell of a shard must have a value.")
    return {"n_rows": len(mean)} | {name: float(number) for name, number in found.items()}


@dataclass(frozen=True)
class ValueFile:
    """The manifest entry of a file that holds the values of some consecutive rows.

    ``groups`` has lists with one entry per row group: ``n_rows``; ``lowest`` and ``highest`` value
    of a cell, ``row_lowest`` and ``row_highest`` row sum; ``largest_sum_sq`` of a cell,
    ``largest_row_sum_sq`` of a row, ``largest_validation_se`` of a cell.
    """

    file: str
    sha256: str
    n_bytes: int
    first_row: int
    n_columns: int
    with_sum_sq: bool
    with_validation: bool
    groups: Mapping[str, list[float]]

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> ValueFile:
        """Read an entry of a manifest, or of a run, which has also sums of its shard."""
        return cls(**{field.name: plain[field.name] for field in fields(cls)})

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(sum(self.groups["n_rows"]))

    def read(
        self, folder: AnyPath, group: int, parts: Sequence[str], columns: Sequence[int]
    ) -> pa.Table:
        """Read some statistics of some columns of one row group.

        Check size and schema of the file and the checksums of the pages read; :meth:`check` checks
        the hash of the file.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.check_size(folder)
        path = folder / self.file
        names = [name for part in parts for name in name_columns(part, columns)]
        try:
            # Arrow opens local files itself, which is faster.
            source = path if isinstance(path, Path) else path.open("rb")
            with pq.ParquetFile(source, page_checksum_verification=True) as file:
                found, n_rows = file.metadata, self.groups["n_rows"]
                rows = [found.row_group(number).num_rows for number in range(found.num_row_groups)]
                all_names = name_all_columns(self.n_columns, self.with_sum_sq, self.with_validation)
                if rows != n_rows or file.schema_arrow.names != all_names:
                    raise OSError("it has other rows or columns than its manifest says")
                # Threads of Arrow can abort a process that ends soon after.
                table = file.read_row_group(group, columns=names, use_threads=False)
                if table.num_rows != n_rows[group]:
                    raise OSError(f"row group {group} has {table.num_rows} rows")
                return table
        except (pa.ArrowException, OSError, ValueError) as error:
            reason = format_read_error(error)
            raise ValueError(f"cannot read {path} ({reason}); restore it from a copy.") from error

    def copy(self, folder: AnyPath, to: AnyPath) -> None:
        """Copy the file to another folder and check the copy."""
        self.check_size(folder)
        with write_atomically(to / self.file) as copy, (folder / self.file).open("rb") as file:
            shutil.copyfileobj(file, copy)
            copy.flush()
            _check_hash(hash_file(Path(copy.name)), self.sha256, folder / self.file)

    def check(self, folder: AnyPath) -> None:
        """Raise if the hash of the file is not the one that was saved."""
        self.check_size(folder)
        _check_hash(hash_file(folder / self.file), self.sha256, folder / self.file)

    def check_size(self, folder: AnyPath) -> None:
        """Raise if the file is missing or has another size, without reading it."""
        path = folder / self.file
        if not path.is_file():
            raise FileNotFoundError(
                f"{folder} lacks the file {self.file!r} that its manifest names: the folder was "
                "removed, or holds a later result of its checkpoint; value the table again, and "
                "save a valuation elsewhere, valuation.save(folder), before its run resumes."
            )
        if get_size(path) != self.n_bytes:
            raise ValueError(
                f"{path} has {get_size(path)} bytes, but {self.n_bytes} were saved; restore "
                "it from a copy."
            )


def to_array(table: pa.Table, part: str, columns: Sequence[int]) -> Floats:
    """Return one statistic of a table that :meth:`ValueFile.read` read, row by row in memory."""
    if part.startswith("row"):
        return np.asarray(table[part])
    found = np.empty((table.num_rows, len(columns)))
    for column, name in zip(found.T, name_columns(part, columns), strict=True):
        column[:] = table[name]
    return found
