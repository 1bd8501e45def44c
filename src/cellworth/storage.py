"""Results on disk: Parquet files and a manifest.json, written whole or not at all."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cellworth.blocks import Axis, Blocks
from cellworth.counts import Floats
from cellworth.files import local_path, read_manifest, written_atomically
from cellworth.moments import Moments

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "cellworth valuation"
VERSION = 1

_MANIFEST = "manifest.json"
_MOMENTS = ("count", "mean", "spread")
_VALIDATION = "validation_error"
_MISFITS = (KeyError, IndexError, ValueError, TypeError, AttributeError, OSError)


def write_folder(
    folder: str | os.PathLike[str],
    manifest: Mapping[str, Any],
    blocks: Blocks,
    moments: Moments,
    validation: Floats | None = None,
) -> None:
    """Write tables, then the manifest that names them; a reader sees the old or the new whole.

    Parameters
    ----------
    folder : path
        Made if it is not there. A result that it holds already is replaced.
    manifest : mapping
        Anything that can be written as JSON.
    blocks, moments
        What was valued, and the figures with their margins.
    validation : array of the same shape, or None
        Errors from the choice of validation rows, with their margins.
    """
    path = made_folder(folder)
    before = files_to_replace(path)
    files = write_tables(path, _to_tables(blocks, _figures(moments, validation)))
    replace_manifest(path, manifest, files, before)


def made_folder(folder: str | os.PathLike[str]) -> Path:
    """Make a folder if it is not there; a file in its place is refused."""
    path = local_path(folder, "folder")
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"{path} is a file; give the name of a folder.")
    path.mkdir(parents=True, exist_ok=True)
    return path


def write_tables(path: Path, tables: Mapping[str, pa.Table]) -> dict[str, dict[str, Any]]:
    """Write small tables; returns what a manifest says of their files."""
    import pyarrow.parquet as pq

    files = {}
    for name, table in tables.items():
        sink = io.BytesIO()
        pq.write_table(table, sink, compression="zstd")
        content = sink.getvalue()
        digest = hashlib.sha256(content).hexdigest()
        # The hash in the name lets the new files stand beside the old ones until the manifest,
        # replaced last and in one step, says which are meant.
        files[name] = {"file": f"{name}-{digest[:12]}.parquet", "sha256": digest}
        with written_atomically(path / files[name]["file"]) as file:
            file.write(content)
    return files


def replace_manifest(
    path: Path,
    manifest: Mapping[str, Any],
    files: Mapping[str, Mapping[str, Any]],
    before: set[str],
) -> None:
    """Write the manifest, then remove files of the result that stood here before."""
    plain = {"format": FORMAT, "version": VERSION, **manifest, "files": files}
    with written_atomically(path / _MANIFEST) as file:
        file.write(json.dumps(plain, indent=1).encode())
    for stale in before - {entry["file"] for entry in files.values()}:
        (path / stale).unlink(missing_ok=True)


def read_folder(
    folder: str | os.PathLike[str],
) -> tuple[dict[str, Any], Blocks, Moments, Floats | None]:
    """Read what :func:`write_folder` wrote; anything torn or changed is refused."""
    path = local_path(folder, "folder")
    manifest = read_whole_manifest(path)
    try:
        contents = _read_files(path, manifest)
    except FileNotFoundError:
        # Another process may have saved a new result since; its manifest names the new files.
        newer = read_whole_manifest(path)
        if newer == manifest:
            raise
        manifest, contents = newer, _read_files(path, newer)
    try:
        return manifest, *_from_tables(_parsed(contents))
    except _MISFITS as error:
        raise _misfit(path, error) from error


def read_column_tables(
    path: Path, manifest: dict[str, Any], names: Iterable[str]
) -> tuple[Axis, Moments, Floats | None]:
    """Read columns and the sums over each of them and over all, without any rows."""
    files = {name: entry for name, entry in manifest["files"].items() if name in names}
    contents = _read_files(path, {"files": files})
    try:
        tables = _parsed(contents)
        figures = _column_figures(tables)
        validation = figures.pop(_VALIDATION, None)
        return _axis(tables, "column"), Moments(**figures), validation
    except _MISFITS as error:
        raise _misfit(path, error) from error


def _parsed(contents: Mapping[str, bytes]) -> dict[str, pa.Table]:
    import pyarrow as pa

    return {name: read_parquet(pa.BufferReader(contents[name])) for name in contents}


def _misfit(path: Path, error: Exception) -> ValueError:
    return ValueError(
        f"the tables in {path} do not fit together ({error!r}); restore them from a copy."
    )


def read_parquet(source: Any) -> pa.Table:
    """Read a Parquet file, by path or from memory."""
    import pyarrow.parquet as pq

    # Threads of Arrow abort a process that ends soon after (1 in 3 with pyarrow 16, 1 in 50 with
    # 26), and read_table cannot do without them.
    with pq.ParquetFile(source) as file:
        return file.read(use_threads=False)


def _read_files(path: Path, manifest: dict[str, Any]) -> dict[str, bytes]:
    contents = {}
    for name, entry in manifest["files"].items():
        contents[name] = _read_file(path, entry["file"])
        if hashlib.sha256(contents[name]).hexdigest() != entry["sha256"]:
            raise ValueError(
                f"{path / entry['file']} is not the file that was saved (its sha256 differs); "
                "restore it from a copy."
            )
    return contents


def read_whole_manifest(path: Path) -> dict[str, Any]:
    """Read the manifest of a folder that a Valuation was saved to."""
    if not (path / _MANIFEST).is_file():
        raise FileNotFoundError(
            f"{path} holds no {_MANIFEST}; give the folder that a Valuation was saved to."
        )
    manifest = read_manifest(path / _MANIFEST, FORMAT, VERSION)
    files = manifest.get("files")
    if not isinstance(files, dict) or not all(map(_names_a_file, files.values())):
        raise ValueError(
            f"{path / _MANIFEST} does not say which files belong to it; restore it from a copy."
        )
    return manifest


def _names_a_file(entry: Any) -> bool:
    return isinstance(entry, dict) and {"file", "sha256"} <= set(entry)


def _is_inside(name: Any) -> bool:
    # A manifest may come from anyone: it must not reach beyond its own folder.
    return isinstance(name, str) and Path(name).name == name and name.endswith(".parquet")


def _read_file(path: Path, name: Any) -> bytes:
    if not _is_inside(name) or not (path / name).is_file():
        raise FileNotFoundError(f"{path} lacks the file {name!r} that its manifest names.")
    content: bytes = (path / name).read_bytes()
    return content


def files_to_replace(path: Path) -> set[str]:
    """Name the files of a result that stands here; anything else in the way is refused."""
    if not (path / _MANIFEST).exists():
        return set()
    try:
        files = read_whole_manifest(path)["files"].values()
    except ValueError as error:
        raise FileExistsError(
            f"{path} holds a {_MANIFEST} that is none of ours or damaged; give another folder."
        ) from error
    return {entry["file"] for entry in files if _is_inside(entry["file"])}


def _figures(moments: Moments, validation: Floats | None) -> dict[str, NDArray[Any]]:
    figures = {name: getattr(moments, name) for name in _MOMENTS}
    return figures if validation is None else figures | {_VALIDATION: validation}


def _to_tables(blocks: Blocks, figures: dict[str, NDArray[Any]]) -> dict[str, pa.Table]:
    import pyarrow as pa

    width = len(blocks.columns)
    row_parts = {"row": pa.array(blocks.rows.labels)}
    for name, array in figures.items():
        # The last line holds the sums of columns and, at its end, that of everything.
        cells = pa.array(np.ascontiguousarray(array[:-1, :-1]).ravel())
        row_parts[name] = pa.FixedSizeListArray.from_arrays(cells, width)
        row_parts[f"row_{name}"] = pa.array(array[:-1, -1])
    sums = {name: array[-1] for name, array in figures.items()}
    tables = {"rows": pa.table(row_parts), **column_tables(blocks.columns, sums)}
    if blocks.rows.grouped:
        tables["row_groups"] = _members(blocks.rows, "row")
    return tables


def column_tables(columns: Axis, sums: Mapping[str, NDArray[Any]]) -> dict[str, pa.Table]:
    """Tables of columns, of sums over each and over all, and of the columns' groups.

    Parameters
    ----------
    columns : Axis
    sums : mapping of str to array of shape (n_columns + 1,)
        Figures of each column, and of everything at their end.
    """
    import pyarrow as pa

    labels = {"column": pa.array(columns.labels)}
    parts = labels | {name: pa.array(array[:-1]) for name, array in sums.items()}
    tables = {
        "columns": pa.table(parts),
        "total": pa.table({name: [array[-1]] for name, array in sums.items()}),
    }
    if columns.grouped:
        tables["column_groups"] = _members(columns, "column")
    return tables


def _members(axis: Axis, side: str) -> pa.Table:
    import pyarrow as pa

    return pa.table({side: pa.array(axis.ids), "group": pa.array(axis.codes)})


def _from_tables(tables: dict[str, pa.Table]) -> tuple[Blocks, Moments, Floats | None]:
    rows, figures = tables["rows"], {}
    for name, sums in _column_figures(tables).items():
        cells = rows[name].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        array = np.empty((rows.num_rows + 1, len(sums)), dtype=cells.dtype)
        array[:-1, :-1] = cells.reshape(rows.num_rows, len(sums) - 1)
        array[:-1, -1] = rows[f"row_{name}"].to_numpy()
        array[-1] = sums
        figures[name] = array
    blocks = Blocks(*(_axis(tables, side) for side in ("row", "column")))
    validation = figures.pop(_VALIDATION, None)
    return blocks, Moments(**figures), validation


def _column_figures(tables: dict[str, pa.Table]) -> dict[str, NDArray[Any]]:
    """Sums of columns, and of everything at their end."""
    columns, total = tables["columns"], tables["total"]
    known = _MOMENTS + ((_VALIDATION,) if _VALIDATION in columns.column_names else ())
    return {name: np.append(columns[name].to_numpy(), total[name].to_numpy()[:1]) for name in known}


def _axis(tables: dict[str, pa.Table], side: str) -> Axis:
    labels = tables[f"{side}s"][side].to_numpy()
    members = tables.get(f"{side}_groups")
    if members is None:
        return Axis.of_singles(labels, what=side)
    codes = members["group"].to_numpy().astype(np.intp)
    if not np.array_equal(np.unique(codes), np.arange(len(labels))):
        raise ValueError(f"{side} groups and their members do not match")
    return Axis(labels, members[side].to_numpy(), codes)
