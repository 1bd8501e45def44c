"""Files of a table: find them, examine each once, and read their rows in batches."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import hashlib
import io
import lzma
import os
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from glob import glob
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple
from urllib.parse import unquote

import numpy as np

from cellworth.data.arrow import cast_cells, decode_type
from cellworth.data.io import Options, is_address, open_filesystem

if TYPE_CHECKING:
    import pyarrow as pa

Address = str | os.PathLike[str]
Kind = Literal["parquet", "csv", "jsonl"]
DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
SUFFIXES: dict[str, Kind] = {
    **dict.fromkeys((".parquet", ".parq", ".pq"), "parquet"),
    **dict.fromkeys(DELIMITERS, "csv"),
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonl"),
}
COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst", ".zip")
# Rows that are decoded together: enough to be fast, few enough to be small.
_BATCH = 2**16
# Bytes of text that are parsed together; they are to a text file what row groups are to Parquet.
_PIECE = 2**24
_TAIL = 8
_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_NULL_KEY = "__HIVE_DEFAULT_PARTITION__"
_NEWLINE, _RETURN, _QUOTE = b'\n\r"'
# What tells tables with a log of their own, by a file below their folder.
_LAKES = {
    r"_delta_log/": "Delta Lake",
    r"metadata/[^/]*\.metadata\.json$": "Iceberg",
    r"\.hoodie/": "Hudi",
}
_DAMAGED = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, gzip.BadGzipFile)


@dataclass(frozen=True)
class TextFormat:
    """How CSV and TSV files are written; of JSON lines, only the encoding.

    Parameters
    ----------
    delimiter : str, default=None
        Character between cells; None means a tab in ``.tsv`` and ``.tab`` files, else a comma.
    encoding : str, default="utf-8"
        Encoding of the text, as Python names it.
    decimal : str, default="."
        Character before the decimals of a number.
    missing : sequence of str, default=()
        What marks a missing cell, besides an empty one.
    as_text : sequence of str, default=()
        Columns that are read as strings, even if all cells look like numbers.

    See Also
    --------
    cellworth.ShardedTable

    Examples
    --------
    >>> from cellworth.data import TextFormat
    >>> TextFormat(delimiter=";", decimal=",").delimiter
    ';'
    """

    delimiter: str | None = None
    encoding: str = "utf-8"
    decimal: str = "."
    missing: Sequence[str] = ()
    as_text: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("delimiter", "decimal"):
            given = getattr(self, name)
            if given is not None and (not isinstance(given, str) or len(given.encode()) != 1):
                raise ValueError(
                    f"{name} must be one ASCII character, got {given!r}; give one such as ';'."
                )
        if self.delimiter == self.decimal:
            raise ValueError(
                f"delimiter and decimal must differ, got {self.decimal!r} for both; give the one "
                "between cells as the delimiter."
            )
        try:
            codecs.lookup(self.encoding)
        except LookupError as error:
            raise ValueError(
                f"encoding must be one that Python knows, got {self.encoding!r}; give one such as "
                "utf-8, latin-1 or utf-16."
            ) from error


@dataclass(frozen=True)
class TableFile:
    """One file of a table, as it was first examined."""

    address: str
    kind: Kind
    # Rows of each row group, or of each piece of a text file.
    group_rows: tuple[int, ...]
    # Of Parquet, the hash of the footer, which describes the content, and of the size; of a text
    # file, the hash of the text.
    digest: str
    # Columns in the file; of JSON lines, in its first piece.
    names: tuple[str, ...] = ()
    # Columns in the path of the file, with their cell.
    keys: tuple[tuple[str, Any], ...] = ()
    # The rest is of text files: their format, where pieces end, and size and time of the last
    # change, or what the store has in their place.
    text: TextFormat = TextFormat()
    ends: tuple[int, ...] = ()
    stamp: str = ""

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(self.group_rows)

    def check_unchanged(self, options: Options) -> None:
        """Raise ValueError if the file was changed since it was first examined."""
        if self.kind == "parquet":
            with open_bytes(self.address, options) as file:
                same = _hash_footer(file) == self.digest
        else:
            # Another time may be that of a copy: then the text decides.
            same = _read_stamp(self.address, options) == self.stamp
            same = same or _hash_text(self, options) == self.digest
        if not same:
            raise ValueError(
                f"{self.address} was changed since this ShardedTable was created; create it again."
            )


class ExaminedFile(NamedTuple):
    """A file with the types of its columns: one of Parquet, several of pieces of text."""

    file: TableFile
    types: dict[str, list[pa.DataType]]


class FoundFile(NamedTuple):
    """A file that was found, with the columns in its path, such as ``year=2024``."""

    address: str
    keys: dict[str, str]


def find_files(
    address: Address | Sequence[Address], options: Options, root: Address | None = None
) -> list[FoundFile]:
    """Return all files of a table, in order; they must be of one kind."""
    listed = [os.fspath(each) for each in _list_addresses(address)]
    found = [file for each in listed for file in _find_at(each, options, root)]
    if not found:
        raise ValueError("address must name at least one file or folder, got none.")
    addresses = [file.address for file in found]
    if len(set(addresses)) < len(addresses):
        twice = next(one for one in addresses if addresses.count(one) > 1)
        raise ValueError(f"{twice} is listed twice; give every file once.")
    by_kind = {find_kind(one): one for one in reversed(addresses)}
    if len(by_kind) > 1:
        one, other, *_ = reversed(by_kind.values())
        raise ValueError(
            f"all files must be of one kind, got {one} and {other}; give a pattern that fits one "
            f"kind, such as '*{''.join(_split_suffixes(one))}'."
        )
    for file in found:
        if file.keys.keys() != found[0].keys.keys():
            both = [one.keys.keys() for one in (file, found[0])]
            key = min(both[0] ^ both[1])
            has, lacks = (file, found[0]) if key in both[0] else (found[0], file)
            raise ValueError(
                f"all paths must have the same keys, got {key}= in {has.address}, but not in "
                f"{lacks.address}; move the file, or give other files."
            )
    return found


def find_kind(address: str) -> Kind:
    """Return the kind of a file by its suffix; without a known one it is Parquet."""
    return SUFFIXES.get(_split_suffixes(address)[0], "parquet")


def _split_suffixes(address: str) -> tuple[str, str]:
    """Return the suffix of the kind of a file, and that of its compression, if any."""
    path = PurePosixPath(address.lower())
    packed = path.suffix if path.suffix in COMPRESSIONS else ""
    return PurePosixPath(path.stem if packed else path.name).suffix, packed


def names_many(address: str, options: Options) -> bool:
    """Tell whether an address is a folder or a pattern, and not one file."""
    system, path = _open_system(address, options)
    with _name_remote_errors(address):
        if system.isdir(path):
            return True
        return any(mark in path for mark in "*?[") and not system.exists(path)


def _list_addresses(address: Any) -> list[Address]:
    if isinstance(address, str | os.PathLike):
        return [address]
    # Iterating over a table would yield its columns.
    if isinstance(address, Mapping) or hasattr(address, "columns"):
        listed: list[Any] = [None]
    else:
        listed = list(address) if isinstance(address, Iterable) else [address]
    for each in listed:
        if not isinstance(each, str | os.PathLike):
            raise TypeError(
                "address must be the path of a file or folder, or a flat list of such paths, got "
                f"{type(address).__name__}."
            )
    return listed


class _LocalFiles:
    """The local file system, with the methods of fsspec that are used here."""

    exists, isdir = staticmethod(os.path.exists), staticmethod(os.path.isdir)

    def find(self, path: str) -> list[str]:
        return [found.as_posix() for found in Path(path).rglob("*") if found.is_file()]

    def glob(self, pattern: str, *, detail: bool) -> dict[str, dict[str, str]]:
        hits = glob(pattern, recursive=detail)  # noqa: PTH207 (Path.glob skips no hidden files)
        return {hit: {"type": "directory" if Path(hit).is_dir() else "file"} for hit in hits}

    def unstrip_protocol(self, path: str) -> str:
        return str(Path(path))


def _find_at(address: str, options: Options, root: Address | None) -> list[FoundFile]:
    system, path = _open_system(address, options)
    with _name_remote_errors(address):
        base, files = _list_files(system, path.rstrip("/") or path, address)
    if root is not None:
        base = _open_system(os.fspath(root), options)[1].rstrip("/")
    found = []
    for file in files:
        if not file.startswith(f"{base}/") and base:
            raise ValueError(f"root must be a folder above {file}, got {root}; give another one.")
        folders = PurePosixPath(file[len(base) :]).parts[:-1]
        pairs = [part.partition("=") for part in folders if "=" in part]
        keys = {unquote(key): unquote(cell) for key, _, cell in pairs}
        is_given = is_address(address) and file == path
        found.append(FoundFile(address if is_given else system.unstrip_protocol(file), keys))
    return found


def _list_files(system: Any, path: str, address: str) -> tuple[str, list[str]]:
    """Return the folder below which paths have keys, and the files."""
    if not system.exists(path) and any(mark in path for mark in "*?["):
        plain = re.split(r"[*?\[]", path)[0].rpartition("/")[0]
        hits = system.glob(path, detail=True)
        shown = [hit for hit in hits if not _is_hidden(hit, plain)]
        files = [hit for hit in shown if hits[hit]["type"] == "file"]
        # A pattern may name folders only, such as year=*.
        folders = [] if files else sorted(shown)
        files += [f"{each}/{name}" for each in folders for name in _list_below(system, each)]
        if not files:
            raise FileNotFoundError(f"no file fits the pattern {address}; give another pattern.")
        return plain, sorted(files, key=lambda file: PurePosixPath(file).parts)
    if system.isdir(path):
        below = _list_below(system, path)
        if not below:
            raise FileNotFoundError(
                f"{address} holds no .parquet, .csv or .jsonl file; give another folder, or a "
                "pattern such as 'folder/part-*'."
            )
        return path, [f"{path}/{name}" for name in below]
    if not system.exists(path):
        raise FileNotFoundError(f"there is no file or folder {address}; give another address.")
    return path.rpartition("/")[0], [path]


def _list_below(system: Any, folder: str) -> list[str]:
    """Return the files of a folder with a known suffix, sorted by path, without hidden ones."""
    below = [found[len(folder) + 1 :] for found in system.find(folder)]
    for name in below:
        lake = next((lake for sign, lake in _LAKES.items() if re.match(sign, name)), None)
        if lake is not None:
            raise ValueError(
                f"{folder} is a table of {lake}, whose log says which of its files count; list "
                f"them with a reader of {lake}, and give the list with root=."
            )
    files = [name for name in below if _split_suffixes(name)[0] in SUFFIXES]
    shown = [name for name in files if not _is_hidden(f"{folder}/{name}", folder)]
    return sorted(shown, key=lambda name: PurePosixPath(name).parts)


def _is_hidden(file: str, folder: str) -> bool:
    """Tell whether a part of the path begins with a dot or, as in Spark, an underscore."""
    parts = PurePosixPath(file[len(folder) :].lstrip("/")).parts
    return any(part[0] == "." or (part[0] == "_" and "=" not in part) for part in parts)


def examine_files(
    found: Sequence[FoundFile], text: TextFormat, options: Options
) -> list[ExaminedFile]:
    """Read the footers of Parquet files, and the whole of text files; no cells are kept."""
    examined = [
        _examine_parquet(each.address, options)
        if find_kind(each.address) == "parquet"
        else _examine_text(each.address, text, options)
        for each in found
    ]
    for name in found[0].keys:
        cells = _read_keys(name, [each.keys[name] for each in found])
        for number, (file, types) in enumerate(examined):
            # Cells in the file are preferred to the key in its path.
            if name not in types:
                keys = (*file.keys, (name, cells[number].as_py()))
                examined[number] = ExaminedFile(
                    replace(file, keys=keys), types | {name: [cells.type]}
                )
    return examined


def _read_keys(name: str, texts: list[str]) -> pa.Array:
    """Read the texts in paths as the cells of a CSV file are read."""
    import pyarrow.csv as pc

    written = io.StringIO()
    # A second column keeps lines with an empty cell.
    lines = [(name, "y"), *(("" if text == _NULL_KEY else text, "") for text in texts)]
    csv.writer(written).writerows(lines)
    parse = pc.ParseOptions(newlines_in_values=True)
    convert = pc.ConvertOptions(null_values=[""], strings_can_be_null=True)
    table = pc.read_csv(
        io.BytesIO(written.getvalue().encode()), parse_options=parse, convert_options=convert
    )
    return table.column(0).combine_chunks()


def read_batches(
    file: TableFile, groups: range, schema: pa.Schema, options: Options, coded: Sequence[str] = ()
) -> Iterator[list[pa.Array]]:
    """Yield the columns of some row groups in batches of rows, cast to the types of a schema.

    A column that is neither in the file nor in its path is missing. Strings of the columns
    ``coded`` are read as dictionaries from Parquet, which is faster.
    """
    import pyarrow as pa

    file.check_unchanged(options)
    keys = dict(file.keys)
    stored = pa.schema([field for field in schema if field.name not in keys])
    if file.kind == "parquet":
        there = [name for name in stored.names if name in file.names]
        parts = _read_parquet(file, groups, there, options, [n for n in there if n in coded])
    else:
        parts = _read_text(file, groups, stored, options)
    for part in parts:
        cells = []
        for field in schema:
            if field.name in part.schema.names:
                cells.append(cast_cells(part.column(field.name), field, file.address))
            else:
                cell = pa.scalar(keys.get(field.name), decode_type(field.type))
                cells.append(pa.repeat(cell, part.num_rows))
        yield cells


# Parquet.


def _examine_parquet(address: str, options: Options) -> ExaminedFile:
    with open_bytes(address, options) as file, _open_parquet(file, address) as parquet:
        metadata = parquet.metadata
        rows = tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
        schema = parquet.schema_arrow
        for name in schema.names:
            if schema.names.count(name) > 1:
                raise ValueError(f"column names must be unique, got {name!r} twice in {address}.")
        types = {field.name: [field.type] for field in schema}
        names = tuple(schema.names)
        return ExaminedFile(
            TableFile(address, "parquet", rows, _hash_footer(file), names=names), types
        )


def _read_parquet(
    file: TableFile, groups: range, names: list[str], options: Options, coded: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    with ExitStack() as stack:
        # Arrow reads local files itself, without holding the GIL.
        source: Any = file.address
        if is_address(file.address):
            source = stack.enter_context(open_bytes(file.address, options))
        parquet = stack.enter_context(_open_parquet(source, file.address, coded))
        parts = parquet.iter_batches(
            batch_size=_BATCH, row_groups=list(groups), columns=names, use_threads=False
        )
        yield from _iter_checked(parts, file.address)


def _iter_checked(parts: Iterator[Any], address: str) -> Iterator[Any]:
    """Yield the batches; raise ValueError with the file's name for a damaged page."""
    import pyarrow as pa

    while True:
        try:
            part = next(parts, None)
        except (pa.ArrowInvalid, OSError) as error:
            if getattr(error, "errno", None) is not None:
                # The disk or the network failed, not the file.
                raise
            raise ValueError(
                f"{address} is damaged ({' '.join(str(error).split())}); write it again, or leave "
                "it out."
            ) from error
        if part is None:
            return
        yield part


def _open_parquet(source: Any, address: str, coded: Sequence[str] = ()) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(source, pre_buffer=False, read_dictionary=list(coded))
    except pa.ArrowInvalid as error:
        raise ValueError(
            f"{address} cannot be read as Parquet ({error}); write it again, or leave it out."
        ) from error


def _hash_footer(file: BinaryIO) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - _TAIL, 0))
    length = int.from_bytes(file.read(4), "little")
    # A truncated file has no valid length.
    file.seek(max(size - _TAIL - length, 0))
    return hashlib.sha256(size.to_bytes(8, "little") + file.read(length)).hexdigest()


# CSV and JSON lines.


def _examine_text(address: str, text: TextFormat, options: Options) -> ExaminedFile:
    kind, stamp = find_kind(address), _read_stamp(address, options)
    digest = hashlib.sha256()
    file = TableFile(address, kind, (), "", text=text, stamp=stamp)
    types: dict[str, list[pa.DataType]] = {}
    with _open_text(address, text, options) as stream:
        for piece in _cut_into_pieces(stream, file):
            digest.update(piece)
            table = _parse(file, piece, len(file.ends))
            for field in table.schema:
                seen = types.setdefault(field.name, [])
                seen += [field.type] if field.type not in seen else []
            end = (file.ends[-1] if file.ends else 0) + len(piece)
            file = replace(
                file,
                names=file.names or tuple(table.column_names),
                ends=(*file.ends, end),
                group_rows=(*file.group_rows, table.num_rows),
            )
    if not file.ends:
        raise ValueError(f"{address} must hold a table, got an empty file; give another file.")
    return ExaminedFile(replace(file, digest=digest.hexdigest()), types)


def _read_text(
    file: TableFile, groups: range, schema: pa.Schema, options: Options
) -> Iterator[pa.RecordBatch]:
    starts = (0, *file.ends)
    with _open_text(file.address, file.text, options) as stream:
        stream.skip(starts[groups.start])
        for number in groups:
            piece = stream.read(starts[number + 1] - starts[number])
            table = _parse(file, piece, number, schema)
            yield from table.combine_chunks().to_batches(max_chunksize=_BATCH)


def read_text_at_once(address: str, text: TextFormat, options: Options) -> pa.Table:
    """Read a CSV or JSONL file at once."""
    file = TableFile(address, find_kind(address), (), "", text=text)
    with _open_text(address, text, options) as stream:
        blocks = []
        while block := stream.read(_PIECE):
            _check_is_text(block, file)
            blocks.append(block)
    return _parse(file, b"".join(blocks), 0)


def can_read_as(file: TableFile, name: str, type_: pa.DataType, options: Options) -> bool:
    """Tell whether all cells of a column of a CSV file can be read as a type."""
    import pyarrow as pa

    if name not in file.names:
        return True
    schema = pa.schema([(name, type_)])
    try:
        for _ in _read_text(file, range(len(file.ends)), schema, options):
            pass
    except ValueError:
        return False
    return True


def _cut_into_pieces(stream: _TextStream, file: TableFile) -> Iterator[bytes]:
    """Yield pieces of whole records."""
    waiting = b""
    is_csv, can_cut = file.kind == "csv", True
    while block := stream.read(_PIECE):
        waiting += block
        _check_is_text(block, file)
        end = _find_last_end(waiting, _get_delimiter(file)) if is_csv else waiting.rfind(b"\n") + 1
        # A quote inside a plain cell makes ends uncertain, so the rest is one piece.
        can_cut = can_cut and end is not None
        # Empty lines alone are no piece: Arrow skips them.
        if can_cut and end and waiting[:end].strip():
            yield waiting[:end]
            waiting = waiting[end:]
    if waiting.strip():
        yield waiting


def _check_is_text(block: bytes, file: TableFile) -> None:
    if block.startswith(_GZIP):
        raise ValueError(
            f"{file.address} must be text, got a file compressed by gzip; rename it to end in .gz."
        )
    if b"\0" in block:
        raise ValueError(
            f"{file.address} must be {file.text.encoding} text, got null bytes; name its "
            "encoding, such as utf-16."
        )


def _find_last_end(text: bytes, delimiter: str) -> int | None:
    """Return where the last whole record of CSV ends; None if a plain cell has a quote."""
    cells = np.frombuffer(text, dtype=np.uint8)
    quotes = np.flatnonzero(cells == _QUOTE)
    opening = quotes[::2]
    before = cells[opening[opening > 0] - 1]
    if not np.isin(before, [_NEWLINE, _RETURN, _QUOTE, ord(delimiter)]).all():
        return None
    newlines = np.flatnonzero(cells == _NEWLINE)
    outside = newlines[np.searchsorted(quotes, newlines) % 2 == 0]
    return int(outside[-1]) + 1 if len(outside) else 0


def _get_delimiter(file: TableFile) -> str:
    return file.text.delimiter or DELIMITERS.get(_split_suffixes(file.address)[0], ",")


def _parse(file: TableFile, piece: bytes, number: int, schema: pa.Schema | None = None) -> pa.Table:
    """Parse one piece: with inferred types, or only the columns of a schema."""
    import pyarrow as pa

    parse = _parse_csv if file.kind == "csv" else _parse_json
    try:
        table = parse(file, piece, number == 0, schema)
        table.schema.names  # noqa: B018 (names that are not UTF-8 raise an error)
    except UnicodeDecodeError as error:
        raise _make_encoding_error(file, str(error)) from error
    except pa.ArrowInvalid as error:
        before = sum(file.group_rows[:number]) + (number > 0 and file.kind == "csv")
        raise ValueError(
            f"{file.address} cannot be read ({format_read_error(error, before)}); fix it, or save "
            "it again."
        ) from error
    for field in table.schema:
        if pa.types.is_binary(field.type):
            raise _make_encoding_error(file, f"in column {field.name!r}")
    return table


def _make_encoding_error(file: TableFile, where: str) -> ValueError:
    return ValueError(
        f"{file.address} must be {file.text.encoding} text, got other bytes ({where}); name its "
        "encoding, such as latin-1."
    )


def format_read_error(error: Exception, rows_before: int = 0) -> str:
    """Return the message of a reader on one line, with rows counted from the begin of the file."""
    message = " ".join(str(error).split()).rstrip(".")
    if not message.isprintable() or "\N{REPLACEMENT CHARACTER}" in message:
        message = re.sub(r"(got \d+): .*", r"\1", message)
    return re.sub(
        r"(?<=[Rr]ow )(#?)(\d+)", lambda found: f"{found[1]}{int(found[2]) + rows_before}", message
    )


def _parse_csv(file: TableFile, piece: bytes, first: bool, schema: pa.Schema | None) -> pa.Table:
    import pyarrow as pa
    import pyarrow.csv as pc

    text = file.text
    types = dict.fromkeys(text.as_text, pa.string())
    only: list[str] = []
    if schema is not None:
        there = set(file.names)
        types = {field.name: field.type for field in schema if field.name in there}
        # Without a column, the number of rows would not be known.
        only = list(types) or [file.names[0]]
    read = pc.ReadOptions(
        column_names=None if first else file.names, use_threads=False, block_size=len(piece) + 1
    )
    parse = pc.ParseOptions(delimiter=_get_delimiter(file), newlines_in_values=True)
    convert = pc.ConvertOptions(
        null_values=["", *text.missing],
        strings_can_be_null=True,
        column_types=types,
        include_columns=only,
        decimal_point=text.decimal,
    )
    return pc.read_csv(pa.BufferReader(piece), read, parse, convert)


def _parse_json(file: TableFile, piece: bytes, _first: bool, schema: pa.Schema | None) -> pa.Table:
    import pyarrow as pa
    import pyarrow.json as pj

    # Without a column, the number of rows would not be known.
    others = "ignore" if schema else "infer"
    parse = pj.ParseOptions(explicit_schema=schema or None, unexpected_field_behavior=others)
    read = pj.ReadOptions(use_threads=False, block_size=len(piece) + 1)
    return pj.read_json(pa.BufferReader(piece), read, parse)


class _TextStream:
    """The text of a file in UTF-8, decompressed and without a byte order mark."""

    def __init__(self, raw: Any, address: str, *, seekable: bool) -> None:
        self._raw, self._address, self._seekable = raw, address, seekable
        self._waiting = b""
        begin = self.read(len(_BOM))
        self._begin = len(_BOM) if begin == _BOM else 0
        self._waiting = b"" if self._begin else begin

    def read(self, n_bytes: int) -> bytes:
        """Return this many bytes; fewer at the end."""
        parts, self._waiting = [self._waiting], b""
        missing = n_bytes - len(parts[0])
        with _name_damage(self._address):
            while missing > 0 and (part := self._raw.read(missing)):
                parts.append(part)
                missing -= len(part)
        return b"".join(parts)

    def skip(self, n_bytes: int) -> None:
        """Skip this many bytes from the begin."""
        if self._seekable:
            self._raw.seek(self._begin + n_bytes)
            self._waiting = b""
            return
        while n_bytes > 0:
            n_bytes -= len(self.read(min(n_bytes, _PIECE))) or n_bytes


@contextmanager
def _open_text(address: str, text: TextFormat, options: Options) -> Iterator[_TextStream]:
    import pyarrow as pa

    packed = _split_suffixes(address)[1]
    encoding = codecs.lookup(text.encoding).name
    with ExitStack() as stack:
        raw: Any = stack.enter_context(open_bytes(address, options))
        with _name_damage(address):
            if packed:
                raw = stack.enter_context(_decompress(raw, packed, address))
            if encoding != "utf-8":
                source = raw if isinstance(raw, pa.NativeFile) else pa.PythonFile(raw, mode="r")
                raw = pa.transcoding_input_stream(source, encoding, "utf-8")
        yield _TextStream(raw, address, seekable=not packed and encoding == "utf-8")


def _decompress(raw: Any, packed: str, address: str) -> Any:
    import pyarrow as pa

    if packed == ".zst":
        return pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd")
    if packed != ".zip":
        openers: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
        return openers[packed](raw)
    archive = zipfile.ZipFile(raw)
    names = [name for name in archive.namelist() if not name.endswith("/")]
    if len(names) != 1:
        raise ValueError(f"{address} must hold one file, got {len(names)}; unpack it.")
    return archive.open(names[0])


@contextmanager
def _name_damage(address: str) -> Iterator[None]:
    """Raise ValueError with the name of the file for damaged or encrypted content."""
    try:
        yield
    except UnicodeError as error:
        raise ValueError(
            f"{address} is not in the given encoding ({error}); name another one, such as latin-1."
        ) from error
    except (*_DAMAGED, RuntimeError, NotImplementedError, OSError) as error:
        if getattr(error, "errno", None) is not None:
            raise
        raise ValueError(
            f"{address} cannot be decompressed ({error}); unpack it, or compress it again."
        ) from error


def _hash_text(file: TableFile, options: Options) -> str:
    digest = hashlib.sha256()
    with _open_text(file.address, file.text, options) as stream:
        for piece in _cut_into_pieces(stream, file):
            digest.update(piece)
    return digest.hexdigest()


# Local files, and files elsewhere through fsspec.


@contextmanager
def open_bytes(address: str, options: Options) -> Iterator[BinaryIO]:
    """Open a file, here or elsewhere."""
    with ExitStack() as stack:
        if is_address(address):
            system, path = _open_system(address, options)
            with _name_remote_errors(address):
                if not system.exists(path):
                    raise FileNotFoundError(f"there is no file {address}; give another address.")
                file = stack.enter_context(system.open(path, "rb"))
        else:
            file = stack.enter_context(Path(address).open("rb"))
        yield file


def _read_stamp(address: str, options: Options) -> str:
    """Return size and time of the last change, or what a store has in their place."""
    if not is_address(address):
        about = Path(address).stat()
        return f"{about.st_size} {about.st_mtime_ns}"
    system, path = _open_system(address, options)
    with _name_remote_errors(address):
        system.invalidate_cache()
        return str(system.checksum(path))


def _open_system(address: str, options: Options) -> tuple[Any, str]:
    """Return the file system of an address, and the path in it."""
    if not is_address(address):
        # The reading process may have another working directory.
        return _LocalFiles(), Path(address).absolute().as_posix()
    return open_filesystem(address, options)


@contextmanager
def _name_remote_errors(address: str) -> Iterator[None]:
    """Raise an error of a store, such as missing credentials, with the address."""
    try:
        yield
    except (ValueError, FileNotFoundError):
        raise
    except Exception as error:
        if not is_address(address):
            raise
        name = type(error).__name__
        reason = " ".join(str(error).split()).rstrip(".") or name
        if isinstance(error, ConnectionError | TimeoutError) or re.search("Connect|Timeout", name):
            raise ConnectionError(
                f"{address} cannot be reached ({reason}); check the network, and try again."
            ) from error
        raise PermissionError(
            f"{address} cannot be read ({reason}); check the address and your credentials."
        ) from error
