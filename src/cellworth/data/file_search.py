"""Find the files of a table: in a folder, by a pattern or a list, here or in a store."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from glob import glob
from pathlib import Path, PurePosixPath
from typing import Any, Literal
from urllib.parse import unquote

from cellworth.data.io import AnyPath, Options, RemotePath, to_path

Address = str | os.PathLike[str]
Kind = Literal["parquet", "csv", "jsonl"]
DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
SUFFIXES: dict[str, Kind] = {
    **dict.fromkeys((".parquet", ".parq", ".pq"), "parquet"),
    **dict.fromkeys(DELIMITERS, "csv"),
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonl"),
}
COMPRESSIONS = (".gz", ".bz2", ".zst")
# What tells tables with a log of their own, by a file below their folder.
_LAKES = {
    r"_delta_log/": "Delta Lake",
    r"metadata/[^/]*\.metadata\.json$": "Iceberg",
    r"\.hoodie/": "Hudi",
}


def find_files(
    address: Address | Sequence[Address], options: Options, root: Address | None = None
) -> dict[str, dict[str, str]]:
    """Return all files of a table, in order, with the columns in their paths (``year=2024``)."""
    is_list = isinstance(address, Sequence) and not isinstance(address, str)
    listed: Any = address if is_list else [address]
    found: dict[str, dict[str, str]] = {}
    for file, keys in (pair for each in listed for pair in _find_at(each, options, root)):
        if file in found:
            raise ValueError(f"{file} is listed twice; give every file once.")
        found[file] = keys
    if not found:
        raise ValueError("address must name at least one file or folder, got none.")
    first, *others = found
    for file in others:
        if find_kind(file) != find_kind(first):
            raise ValueError(
                f"all files must be of one kind, got {first} and {file}; give a pattern that fits "
                f"one kind, such as '*{''.join(split_suffixes(first))}'."
            )
        if odd := sorted(found[file].keys() ^ found[first].keys()):
            has, lacks = (file, first) if odd[0] in found[file] else (first, file)
            raise ValueError(
                f"all paths must have the same keys, got {odd[0]}= in {has}, but not in {lacks}; "
                "move the file, or give other files."
            )
    return found


def find_kind(address: str) -> Kind:
    """Return the kind of a file by its suffix; without a known one it is Parquet."""
    return SUFFIXES.get(split_suffixes(address)[0], "parquet")


def split_suffixes(address: str) -> tuple[str, str]:
    """Return the suffix of the kind of a file, and that of its compression, if any."""
    path = PurePosixPath(address.lower())
    packed = path.suffix if path.suffix in COMPRESSIONS else ""
    return PurePosixPath(path.stem if packed else path.name).suffix, packed


def names_many(address: str, options: Options) -> bool:
    """Tell whether an address is a folder or a pattern, and not one file."""
    path = to_path(address, "address", options)
    return path.is_dir() or (any(mark in str(path) for mark in "*?[") and not path.exists())


def _find_at(
    address: Address, options: Options, root: Address | None
) -> Iterator[tuple[str, dict[str, str]]]:
    # The reading process may have another working directory.
    path = to_path(address, "address", options).absolute()
    base, files = _list_files(path, os.fspath(address))
    if root is not None:
        base = to_path(root, "root", options).absolute().as_posix()
    for file in sorted(files, key=lambda file: PurePosixPath(file).parts):
        if not file.startswith(f"{base}/") and base:
            raise ValueError(f"root must be a folder above {file}, got {root}; give another one.")
        folders = PurePosixPath(file[len(base) :]).parts[:-1]
        pairs = [part.partition("=") for part in folders if "=" in part]
        yield file, {unquote(key): unquote(cell) for key, _, cell in pairs}


def _list_files(path: AnyPath, address: str) -> tuple[str, list[str]]:
    """Return the folder below which paths have keys, and the files."""
    pattern = path.as_posix()
    if path.is_dir():
        below = _list_below(path)
        if not below:
            raise FileNotFoundError(
                f"{address} holds no .parquet, .csv or .jsonl file; give another folder, or a "
                "pattern such as 'folder/part-*'."
            )
        return pattern, below
    if path.exists():
        return pattern.rpartition("/")[0], [pattern]
    if not any(mark in pattern for mark in "*?["):
        raise FileNotFoundError(f"there is no file or folder {address}; give another address.")
    plain = re.split(r"[*?\[]", pattern)[0].rpartition("/")[0]
    if isinstance(path, RemotePath):
        hits: Sequence[tuple[AnyPath, bool]] = path.glob()
    else:
        matches = [Path(hit) for hit in glob(pattern, recursive=True)]  # noqa: PTH207 (hidden files)
        hits = [(hit, hit.is_file()) for hit in matches]
    shown = [(hit, is_file) for hit, is_file in hits if not _is_hidden(hit.as_posix(), plain)]
    files = [hit.as_posix() for hit, is_file in shown if is_file]
    # A pattern may name folders only, such as year=*.
    files = files or [file for hit, _ in shown for file in _list_below(hit)]
    if not files:
        raise FileNotFoundError(f"no file fits the pattern {address}; give another pattern.")
    return plain, files


def _list_below(folder: AnyPath) -> list[str]:
    """Return the files below a folder with a known suffix, without hidden ones."""
    base = folder.as_posix()
    if isinstance(folder, RemotePath):
        found = folder.find()
    else:
        found = [path.as_posix() for path in folder.rglob("*") if path.is_file()]
    for file in found:
        signs = [sign for sign in _LAKES if re.match(sign, file[len(base) + 1 :])]
        if signs:
            lake = _LAKES[signs[0]]
            raise ValueError(
                f"{base} is a table of {lake}, whose log says which of its files count; list "
                f"them with a reader of {lake}, and give the list with root=."
            )
    known = [file for file in found if split_suffixes(file)[0] in SUFFIXES]
    return [file for file in known if not _is_hidden(file, base)]


def _is_hidden(file: str, folder: str) -> bool:
    """Tell whether a part of the path begins with a dot or, as in Spark, an underscore."""
    parts = PurePosixPath(file[len(folder) :].lstrip("/")).parts
    return any(part[0] == "." or (part[0] == "_" and "=" not in part) for part in parts)
