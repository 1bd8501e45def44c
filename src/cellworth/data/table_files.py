"""Files of a table: examine each once, and read their rows in batches."""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from cellworth.data.arrow import cast_cells
from cellworth.data.column import is_text
from cellworth.data.file_search import DELIMITERS, Kind, find_kind, split_suffixes
from cellworth.data.io import Options, check_memory, get_stamp, hash_file, is_address, to_path
from cellworth.data.text import NUMBER

if TYPE_CHECKING:
    import pyarrow as pa

# Rows that are decoded together: enough to be fast, few enough to be small.
_BATCH = 2**16
# Bytes of CSV that are parsed together; they are to a text file what row groups are to Parquet.
_BLOCK = 2**24
# Bytes from which the delimiter and the decimal mark are found.
_SAMPLE = 2**18
_TAIL = 8
# Files that are asked for at once: a store takes its time to answer, but answers many.
_FILES_AT_ONCE = 32
_GZIP = b"\x1f\x8b"
# What Arrow calls the compressions.
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_NULL_KEY = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class TextFormat:
    """How CSV and TSV files are written; of JSON lines, only the encoding.

    Parameters
    ----------
    delimiter : str, default=None
        Character between cells; None means a comma, semicolon, tab or bar, found from the file.
    encoding : str, default="utf-8"
        Encoding of the text, as Python names it. UTF-16 with a byte order mark is found from the
        file.
    decimal : str, default=None
        Character before the decimals of a number; None means a point or comma, found from the
        file. A column with grouped digits, as in ``1.234,5``, is one of strings.
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
    decimal: str | None = None
    missing: Sequence[str] = ()
    as_text: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("delimiter", "decimal"):
            given = getattr(self, name)
            if given is not None and (not isinstance(given, str) or len(given.encode()) != 1):
                raise ValueError(
                    f"{name} must be one ASCII character, got {given!r}; give one such as ';'."
                )
        if self.delimiter is not None and self.delimiter == self.decimal:
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

    def setting(self, name: str) -> str:
        """Return how messages call a parameter."""
        return f"{name}="


@dataclass(frozen=True)
class TableFile:
    """One file of a table, as it was first examined."""

    address: str
    kind: Kind
    # Rows of each row group, or of each block of a CSV file; JSON lines are one group.
    group_rows: tuple[int, ...]
    # Of Parquet, the hash of the footer, which describes the content, and of the size; of a text
    # file, the hash of the file.
    digest: str
    # Columns in the file.
    names: tuple[str, ...] = ()
    # Columns in the path of the file, with their cell.
    keys: tuple[tuple[str, Any], ...] = ()
    # Size and time of the last change, or what the store has in their place.
    stamp: str = ""
    text: TextFormat = TextFormat()  # Of text files

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(self.group_rows)

    def check_unchanged(self, options: Options) -> None:
        """Raise ValueError if the file was changed since it was first examined."""
        path = to_path(self.address, "address", options)
        # Another time may be that of a copy: then the content decides.
        if get_stamp(path) != self.stamp:
            with path.open("rb") as file:
                self.check_digest(file)

    def check_digest(self, opened: BinaryIO) -> bytes:
        """Raise ValueError if the content was changed; return the footer of a Parquet file."""
        footer, digest = _read_digest(opened, self.kind)
        if digest != self.digest:
            raise ValueError(
                f"{self.address} was changed since this ShardedTable was created; create it again."
            )
        return footer


def examine_files(
    found: Mapping[str, Mapping[str, str]], text: TextFormat, options: Options
) -> list[tuple[TableFile, pa.Schema]]:
    """Return files with the types of their columns, and of those in their paths.

    Of Parquet files only the footer is read; of text files all is, but no cell is kept.
    """
    import pyarrow as pa

    if find_kind(next(iter(found))) == "parquet":
        examined = map_files(_examine_parquet, found, options)
    else:
        # One after the other: a JSONL file is held in memory.
        examined = [_examine_text(address, text, options) for address in found]
    for name in next(iter(found.values())):
        texts = [None if keys[name] == _NULL_KEY else keys[name] for keys in found.values()]
        cells = pa.array(texts, pa.string())
        # Integers if all are, else strings.
        with suppress(pa.ArrowInvalid):
            cells = cells.cast(pa.int64())
        for number, (file, schema) in enumerate(examined):
            # Cells in the file are preferred to the key in its path.
            if name not in schema.names:
                keys = (*file.keys, (name, cells[number].as_py()))
                both = schema.append(pa.field(name, cells.type))
                examined[number] = replace(file, keys=keys), both
    return examined


def map_files(work: Callable[..., Any], files: Iterable[Any], options: Options) -> list[Any]:
    """Call a function for each file; many wait for their store at the same time."""
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        return list(pool.map(lambda file: work(file, options), files))


def check_names(names: Sequence[str], address: str) -> None:
    """Check that each column has a name of its own."""
    for position, name in enumerate(names):
        if not name:
            raise ValueError(
                f"{address} has no name for column {position + 1}; give each column a name in the "
                "first line."
            )
        if name in names[:position]:
            raise ValueError(f"{address} has two columns called {name!r}; rename one of them.")


def read_batches(
    file: TableFile, groups: range, schema: pa.Schema, options: Options
) -> Iterator[list[pa.Array]]:
    """Yield the columns of some row groups in batches of rows, cast to the types of a schema.

    A column that is neither in the file nor in its path is missing. Strings are read as
    dictionaries from Parquet, which is faster.
    """
    import pyarrow as pa

    keys = dict(file.keys)
    stored = pa.schema([field for field in schema if field.name not in keys])
    if file.kind == "parquet":
        there = [name for name in stored.names if name in file.names]
        texts = [name for name in there if is_text(schema.field(name).type)]
        parts = _read_parquet(file, groups, there, options, texts)
    else:
        file.check_unchanged(options)
        parts = _read_text(file, groups, stored, options)
    for part in parts:
        cells = []
        for field in schema:
            if field.name in part.schema.names:
                cells.append(cast_cells(part.column(field.name), field, file.address))
            else:
                cell = pa.scalar(keys.get(field.name), field.type)
                cells.append(pa.repeat(cell, part.num_rows))
        yield cells


# Parquet.


def _examine_parquet(address: str, options: Options) -> tuple[TableFile, pa.Schema]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = to_path(address, "address", options)
    stamp = get_stamp(path)
    with path.open("rb") as file, name_problem(address):
        footer, digest = _read_digest(file, "parquet")
        metadata = pq.read_metadata(pa.BufferReader(footer))
    schema = metadata.schema.to_arrow_schema()
    rows = tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
    check_names(schema.names, address)
    return TableFile(address, "parquet", rows, digest, tuple(schema.names), stamp=stamp), schema


def _read_parquet(
    file: TableFile, groups: range, names: list[str], options: Options, coded: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with ExitStack() as stack:
        source: Any = stack.enter_context(to_path(file.address, "address", options).open("rb"))
        # The footer is read once, to see that it is the one that was examined.
        metadata = pq.read_metadata(pa.BufferReader(file.check_digest(source)))
        if not is_address(file.address):
            # Arrow reads local files itself, without holding the GIL.
            source = file.address
        stack.enter_context(name_problem(file.address))
        settings: Any = {"pre_buffer": False, "read_dictionary": list(coded)}
        parquet = stack.enter_context(pq.ParquetFile(source, metadata=metadata, **settings))
        yield from parquet.iter_batches(_BATCH, list(groups), names, use_threads=False)


def _read_digest(file: BinaryIO, kind: Kind) -> tuple[bytes, str]:
    """Return the footer of a Parquet file, and the hash of it and the size; else of all bytes."""
    if kind != "parquet":
        return b"", hashlib.file_digest(cast("Any", file), "sha256").hexdigest()
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - _TAIL, 0))
    length = int.from_bytes(file.read(4), "little")
    # A truncated file has no valid length.
    file.seek(max(size - _TAIL - length, 0))
    footer = file.read(length + _TAIL)
    return footer, hashlib.sha256(size.to_bytes(8, "little") + footer[:length]).hexdigest()


# CSV and JSON lines.


def _examine_text(address: str, text: TextFormat, options: Options) -> tuple[TableFile, pa.Schema]:
    text, path = _find_format(address, text, options), to_path(address, "address", options)
    kind, stamp, digest = find_kind(address), get_stamp(path), hash_file(path)
    file = TableFile(address, kind, (), digest, text=text, stamp=stamp)
    if kind == "jsonl":
        table = _read_json(file, None, options)
        schema, rows = table.schema, [table.num_rows]
    else:
        try:
            schema, rows = _scan_csv(file, None, options)
        except ValueError:
            # Arrow finds the types in the first block, and a later one may hold other cells.
            schema, rows = _scan_csv(file, _read_csv(file, options).schema, options)
    return replace(file, names=tuple(schema.names), group_rows=tuple(rows)), schema


def _scan_csv(
    file: TableFile, schema: pa.Schema | None, options: Options
) -> tuple[pa.Schema, list[int]]:
    """Return the types of columns, and the rows of each block."""
    with _open_csv(file, schema, options) as reader:
        return _drop_nameless(reader.schema, file), [block.num_rows for block in reader]


def read_text(address: str, text: TextFormat, options: Options) -> pa.Table:
    """Read a CSV or JSONL file at once."""
    text, kind = _find_format(address, text, options), find_kind(address)
    file = TableFile(address, kind, (), "", text=text)
    _check_size(file, options)
    return _read_json(file, None, options) if kind == "jsonl" else _read_csv(file, options)


def _check_size(file: TableFile, options: Options) -> None:
    """Check that the cells of a text file fit into memory, before any is kept.

    A small compressed file may hold much, and Arrow may end the process when memory does.
    """
    # Each cell of JSON has its name.
    between = (file.text.delimiter or ":").encode()
    n_bytes = 0
    with _open_text(file.address, file.text, options) as source:
        while part := source.read(_BLOCK):
            # A number has 8 bytes.
            n_bytes += max(len(part), 8 * (part.count(between) + part.count(b"\n")))
            check_memory(n_bytes)


def _read_csv(file: TableFile, options: Options) -> pa.Table:
    import pyarrow.csv as pc

    with _open_text(file.address, file.text, options) as source:
        table = pc.read_csv(source, *_make_csv_options(file, None))
        return table.select(_drop_nameless(table.schema, file).names)


def _read_text(
    file: TableFile, groups: range, schema: pa.Schema, options: Options
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    if file.kind == "jsonl":
        yield from _read_json(file, schema, options).to_batches(max_chunksize=_BATCH)
        return
    with _open_csv(file, schema, options) as reader:
        for block in itertools.islice(reader, groups.start, groups.stop):
            yield from pa.Table.from_batches([block]).to_batches(max_chunksize=_BATCH)


@contextmanager
def _open_csv(file: TableFile, schema: pa.Schema | None, options: Options) -> Iterator[Any]:
    """Open a reader of the blocks of a file, with inferred types, or the columns of a schema."""
    import pyarrow.csv as pc

    with _open_text(file.address, file.text, options) as source:
        yield pc.open_csv(source, *_make_csv_options(file, schema))


def _make_csv_options(file: TableFile, schema: pa.Schema | None) -> tuple[Any, Any, Any]:
    import pyarrow as pa
    import pyarrow.csv as pc

    text, types, only = file.text, dict.fromkeys(file.text.as_text, pa.string()), []
    if schema is not None:
        there = file.names or schema.names
        types = {field.name: field.type for field in schema if field.name in there}
        # Without a column, the number of rows would not be known.
        only = list(types) or [file.names[0]]
    return (
        pc.ReadOptions(use_threads=False, block_size=_BLOCK),
        pc.ParseOptions(delimiter=text.delimiter, newlines_in_values=True),
        pc.ConvertOptions(
            null_values=["", *text.missing],
            strings_can_be_null=True,
            column_types=types,
            include_columns=only,
            decimal_point=text.decimal,
        ),
    )


def _read_json(file: TableFile, schema: pa.Schema | None, options: Options) -> pa.Table:
    import pyarrow as pa
    import pyarrow.json as pj

    with _open_text(file.address, file.text, options) as source:
        content = source.read().removeprefix(codecs.BOM_UTF8)
        # Without a column, the number of rows would not be known.
        others = "ignore" if schema else "infer"
        parse = pj.ParseOptions(explicit_schema=schema or None, unexpected_field_behavior=others)
        read = pj.ReadOptions(use_threads=False, block_size=len(content) + 1)
        return pj.read_json(pa.BufferReader(content), read, parse)


def _drop_nameless(schema: pa.Schema, file: TableFile) -> pa.Schema:
    """Check names and text; drop the empty column behind a delimiter at the end of each line."""
    import pyarrow as pa

    if schema.names[-1] == "" and pa.types.is_null(schema.types[-1]):
        schema = schema.remove(len(schema) - 1)
    check_names(schema.names, file.address)
    for field in schema:
        if pa.types.is_binary(field.type):
            raise _make_encoding_error(file.address, file.text, f"in column {field.name!r}")
    return schema


def _find_format(address: str, text: TextFormat, options: Options) -> TextFormat:
    """Find the encoding, the delimiter and the decimal mark of a text file from its beginning."""
    with _open_text(address, text, options, decoded=False) as source:
        begin = source.read(_SAMPLE)
    if begin.startswith(_GZIP):
        raise ValueError(
            f"{address} must be text, got a file compressed by gzip; rename it to end in .gz."
        )
    if begin.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and text.encoding == "utf-8":
        text = replace(text, encoding="utf-16")
    sample = begin.decode(text.encoding, errors="replace").removeprefix("\ufeff")
    if not sample.strip():
        raise ValueError(f"{address} must hold a table, got an empty file; give another file.")
    if "\0" in sample:
        raise ValueError(
            f"{address} must be {text.encoding} text, got null bytes; give "
            f"{text.setting('encoding')}, such as utf-16."
        )
    if find_kind(address) == "csv":
        # The last line may be cut off.
        complete = sample if len(begin) < _SAMPLE else sample.rpartition("\n")[0]
        usual = DELIMITERS[split_suffixes(address)[0]]
        delimiter = text.delimiter or _find_delimiter(complete, usual)
        header, *rows = _split_lines(complete, delimiter) or [[]]
        _check_header(header, address)
        decimal = text.decimal or _find_decimal(rows, delimiter, address, text)
        text = replace(text, delimiter=delimiter, decimal=decimal)
    return text


def _split_lines(sample: str, delimiter: str) -> list[list[str]]:
    lines = csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter)
    return [line for line in lines if line]


def _find_delimiter(sample: str, usual: str) -> str:
    """Return the delimiter by which most lines have as many cells as the header, and several."""

    def rate(delimiter: str) -> tuple[bool, float, int]:
        header, *rows = _split_lines(sample, delimiter) or [[]]
        alike = sum(len(row) == len(header) for row in rows) / max(len(rows), 1)
        return len(header) > 1, alike, len(header)

    # Of equals, max takes the first.
    return max([usual, ",", ";", "\t", "|"], key=rate)


def _find_decimal(rows: list[list[str]], delimiter: str, address: str, text: TextFormat) -> str:
    """Return the decimal mark of most numbers that have one."""
    cells = [cell.strip() for row in rows for cell in row]
    points = [c for c in cells if re.fullmatch(r"[+-]?(\d+|\d{1,3}(,\d{3})+)\.\d+", c)]
    commas = [c for c in cells if re.fullmatch(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+", c)]
    if delimiter == "," or len(points) >= len(commas):
        return "."
    if not points and all(re.fullmatch(r"[+-]?[1-9]\d{0,2},\d{3}", cell) for cell in commas):
        raise ValueError(
            f"{address} holds {commas[0]!r}, which is a decimal or a grouped number; give "
            f"{text.setting('decimal')} as ',' or '.'."
        )
    return ","


def _check_header(names: list[str], address: str) -> None:
    """Check that the first line holds no numbers but counts such as 0, 1, 2 or years."""
    numbers = [name.strip() for name in names if re.fullmatch(NUMBER, name.strip())]
    if not numbers:
        return
    counts = all(name.isdigit() for name in numbers) and (
        numbers == sorted(set(numbers), key=int)
        if len(numbers) > 1
        else numbers[0] in {"0", "1"} or len(numbers[0]) == 4
    )
    if not counts:
        raise ValueError(
            f"{address} seems to have no header, because its first line holds {numbers[0]!r}; "
            "put the names of the columns into the first line."
        )


@contextmanager
def name_problem(address: str, text: TextFormat | None = None) -> Iterator[None]:
    """Raise ValueError with the name of a file, and what may be set, if it cannot be read."""
    import pyarrow as pa

    try:
        yield
    except MemoryError as error:
        raise MemoryError(
            f"{address} does not fit into memory ({format_read_error(error) or 'it is full'}); "
            "give fewer of its rows, or value it in shards."
        ) from error
    except (pa.ArrowInvalid, UnicodeError, OSError, EOFError) as error:
        if getattr(error, "errno", None) is not None:
            # The disk or the network failed, not the file.
            raise
        reason = format_read_error(error)
        if text is not None and (isinstance(error, UnicodeError) or "UTF8" in reason):
            raise _make_encoding_error(address, text, reason) from error
        advice = "fix it, or write it again"
        if text is not None and find_kind(address) == "csv":
            settings = [text.setting(name) for name in ("delimiter", "decimal", "encoding")]
            advice = f"fix it, or give another {settings[0]}, {settings[1]} or {settings[2]}"
        raise ValueError(f"{address} cannot be read ({reason}); {advice}.") from error


def _make_encoding_error(address: str, text: TextFormat, where: str) -> ValueError:
    return ValueError(
        f"{address} must be {text.encoding} text, got other bytes ({where}); give "
        f"{text.setting('encoding')}, such as latin-1."
    )


def format_read_error(error: Exception) -> str:
    """Return the message of a reader on one line."""
    message = " ".join(str(error).split()).rstrip(".")
    if not message.isprintable() or "\N{REPLACEMENT CHARACTER}" in message:
        message = re.sub(r"(got \d+): .*", r"\1", message)
    return message


@contextmanager
def _open_text(
    address: str, text: TextFormat, options: Options, *, decoded: bool = True
) -> Iterator[Any]:
    """Open the text of a file, decompressed, and in UTF-8."""
    import pyarrow as pa

    packed = split_suffixes(address)[1]
    encoding = codecs.lookup(text.encoding).name
    with to_path(address, "address", options).open("rb") as raw, name_problem(address, text):
        source = pa.PythonFile(raw, mode="r")
        if packed:
            source = pa.CompressedInputStream(source, _CODECS[packed])
        if decoded and encoding != "utf-8":
            source = pa.transcoding_input_stream(source, encoding, "utf-8")
        yield source
