"""Parquet files at an address: which they are, what their footers say, and batches of columns."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from cellworth.files import is_address

if TYPE_CHECKING:
    import pyarrow as pa

Address = str | os.PathLike[str]
Options = Mapping[str, Any]

_SUFFIX = ".parquet"
# Rows that are decoded together: enough to be fast, few enough to be small.
_BATCH = 2**16
_TAIL = 8


@dataclass(frozen=True)
class ParquetFile:
    """One file, as its footer describes it.

    Parameters
    ----------
    address : str
    group_rows : tuple of int
        Rows of each row group.
    footer : str
        Fingerprint of the footer, which tells where everything in the file is, and of its size.
    """

    address: str
    group_rows: tuple[int, ...]
    footer: str

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(self.group_rows)


def find_files(address: Address | Sequence[Address], options: Options) -> list[str]:
    """Addresses of all Parquet files that are meant, in order."""
    found = [file for each in _listed(address) for file in _found(os.fspath(each), options)]
    if not found:
        raise ValueError("address is an empty list; give at least one Parquet file or folder.")
    if len(set(found)) < len(found):
        twice = next(file for file in found if found.count(file) > 1)
        raise ValueError(f"{twice} is named twice; give every file once.")
    return found


def read_footer(address: str, options: Options) -> tuple[ParquetFile, pa.Schema]:
    """Read what a file says of itself, and none of its cells."""
    with _bytes_of(address, options) as file, _parquet(file, address) as parquet:
        metadata = parquet.metadata
        rows = tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
        return ParquetFile(address, rows, _footer_sha256(file)), parquet.schema_arrow


def batches(
    file: ParquetFile, groups: range, names: list[str], options: Options, coded: list[str]
) -> Iterator[list[pa.Array]]:
    """Columns of some row groups, a batch of rows after the other.

    Text of the columns ``coded`` comes as a dictionary, which spares making text of each cell.
    """
    with ExitStack() as stack:
        seen = stack.enter_context(_bytes_of(file.address, options))
        _refuse_other_footer(file, seen)
        # Arrow reads local files itself, without holding up the interpreter.
        source: Any = seen if is_address(file.address) else file.address
        parquet = stack.enter_context(_parquet(source, file.address, coded))
        parts = parquet.iter_batches(
            batch_size=_BATCH, row_groups=list(groups), columns=names, use_threads=False
        )
        for part in _sound(parts, file.address):
            yield [part.column(name) for name in names]


def _sound(parts: Iterator[Any], address: str) -> Iterator[Any]:
    """Batches as they come; a damaged page is refused with the name of its file."""
    import pyarrow as pa

    while True:
        try:
            part = next(parts, None)
        except (pa.ArrowInvalid, OSError) as error:
            if getattr(error, "errno", None) is not None:
                # It is the disk or the network that failed.
                raise
            raise ValueError(
                f"{address} is damaged ({' '.join(str(error).split())}); write it again, or leave "
                "it out."
            ) from error
        if part is None:
            return
        yield part


def refuse_changed(file: ParquetFile, options: Options) -> None:
    """Refuse a file whose footer is not the one it had."""
    with _bytes_of(file.address, options) as seen:
        _refuse_other_footer(file, seen)


def _refuse_other_footer(file: ParquetFile, seen: BinaryIO) -> None:
    if _footer_sha256(seen) != file.footer:
        raise ValueError(f"{file.address} was changed since this table was made; make it anew.")


def _parquet(source: Any, address: str, coded: Sequence[str] = ()) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(source, pre_buffer=False, read_dictionary=list(coded))
    except pa.ArrowInvalid as error:
        raise ValueError(
            f"{address} cannot be read as Parquet ({error}); write it again, or leave it out."
        ) from error


@contextmanager
def _bytes_of(address: str, options: Options) -> Iterator[BinaryIO]:
    if is_address(address):
        system, path = _remote(address, options)
        with system.open(path, "rb") as file:
            yield file
    else:
        with Path(address).open("rb") as file:
            yield file


def _footer_sha256(file: BinaryIO) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - _TAIL, 0))
    length = int.from_bytes(file.read(4), "little")
    # A file that was cut off tells no length.
    file.seek(max(size - _TAIL - length, 0))
    return hashlib.sha256(size.to_bytes(8, "little") + file.read(length)).hexdigest()


def _remote(address: str, options: Options) -> tuple[Any, str]:
    if "://" not in address:
        raise ValueError(
            f"{address} has one slash of two, as pathlib leaves an address; give it as text."
        )
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise ImportError(
            f"{address} is read with fsspec, which is not installed; pip install "
            "'cellworth[remote]'."
        ) from error
    try:
        return cast("tuple[Any, str]", url_to_fs(address, **options))
    except ValueError as error:
        raise ValueError(
            f"{address} cannot be opened with fsspec ({error}); give another address."
        ) from error


def _listed(address: Any) -> list[Address]:
    if isinstance(address, str | os.PathLike):
        return [address]
    # A table would be read as the list of its columns.
    if isinstance(address, Mapping) or hasattr(address, "columns"):
        listed: list[Any] = [None]
    else:
        listed = list(address) if isinstance(address, Iterable) else [address]
    for each in listed:
        if not isinstance(each, str | os.PathLike):
            raise TypeError(
                f"address is of type {type(address).__name__}; give the path of a Parquet file or "
                "of a folder, or a flat list of such paths."
            )
    return listed


def _found(address: str, options: Options) -> list[str]:
    if not is_address(address):
        # Whoever reads it may stand in another folder.
        return _found_here(Path(address).absolute())
    system, path = _remote(address, options)
    if system.isdir(path):
        below = [found[len(path) :] for found in system.find(path)]
        return [system.unstrip_protocol(path + name) for name in _chosen(below, address)]
    if not system.exists(path):
        raise FileNotFoundError(f"there is no file or folder {address}; give another address.")
    return [address]


def _found_here(path: Path) -> list[str]:
    if path.is_dir():
        below = [found.relative_to(path).as_posix() for found in path.rglob(f"*{_SUFFIX}")]
        return [str(path / name) for name in _chosen(below, str(path))]
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}; give another address.")
    return [str(path)]


def _chosen(below: list[str], folder: str) -> list[str]:
    """Parquet files of a folder, sorted by path; hidden ones are left out."""
    files = [
        name
        for name in below
        if name.endswith(_SUFFIX)
        and not any(part.startswith(".") for part in PurePosixPath(name).parts)
    ]
    if not files:
        raise FileNotFoundError(f"{folder} holds no *{_SUFFIX} file; give another folder.")
    for name in files:
        if any("=" in part for part in PurePosixPath(name).parts[:-1]):
            raise ValueError(
                f"{folder} is cut by the values of columns ({name}), which are not in its files; "
                "write these columns into the files, or give a list of files to do without."
            )
    return sorted(files, key=lambda name: PurePosixPath(name).parts)
