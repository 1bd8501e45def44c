"""Input files: read a file, a folder of files or stdin as a table and its labels, and check it."""

from __future__ import annotations

import datetime
import difflib
import os
import re
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Labels, Positions
from cellworth.data.column import is_bytes
from cellworth.data.file_search import SUFFIXES, find_files, names_many, split_suffixes
from cellworth.data.io import is_address, to_path, write_atomically
from cellworth.data.sharded_table import ShardedTable
from cellworth.data.table_files import (
    TextFormat,
    check_names,
    examine_files,
    name_problem,
    read_text,
)
from cellworth.data.tables import Table, label_array, series_array
from cellworth.data.text import NUMBER, preview
from cellworth.valuation.storage import read_parquet

_ARROW = (".arrow", ".feather", ".ipc")
_EXCEL = (".xlsx", ".xlsm")
_PANDAS_INDEX = "__index_level_0__"
# As Python writes it; eighteen characters fit into 64 bits.
_INTEGER = r"0|[1-9][0-9]{0,17}|-[1-9][0-9]{0,16}"
# A text column with at most this share of other entries was meant to hold numbers.
_SHARE_OF_TYPOS = 0.05
STDIN = "-"
# Text files are read as a whole when they are opened, so that is done once.
_opened: dict[tuple[str, str, str], ShardedTable] = {}


class TextOptions(TextFormat):
    """The format of text files, as options of the command line give it."""

    def setting(self, name: str) -> str:
        """Return the option of a parameter."""
        return f"--{name}"


@dataclass(frozen=True, eq=False)
class InputTable:
    """A table and its labels; None without a target, or for a table in shards, which holds them."""

    # A Table of Arrow columns with the user's row ids, or a ShardedTable.
    X: Any
    y: Any
    # X with the columns that only tell whose a row is, as it was delivered.
    delivered: Any

    def keep(self, rows: Positions) -> InputTable:
        """Return some rows, which are in memory, and their labels."""
        return InputTable(self.X.keep(rows), self.y[rows], self.delivered.keep(rows))


def read_input(
    address: str | Path,
    *,
    target: str | None = None,
    row_id: str | None = None,
    drop: Sequence[str] = (),
    keys: Sequence[str] = (),
    text: TextFormat | None = None,
    like: Any = None,
) -> InputTable:
    """Read a table, and separate labels and row ids from the other columns.

    The arguments are the options of the command line, and the columns that owners use as ``keys``.
    ``like`` is the Arrow schema of the training table, if these are validation rows: columns get
    its types, and columns of row ids and dropped ones may be absent. Row ids are read as text.
    """
    import pyarrow as pa

    check_roles(target, row_id, drop)
    how = text or TextOptions()
    like_text = [field.name for field in like or () if pa.types.is_string(field.type)]
    as_text = {*how.as_text, *like_text, *drop, row_id or target} - {target}
    path = os.fspath(address)
    table, kind = _read_files(path, target, replace(how, as_text=sorted(as_text)))
    y = None
    if target is not None:
        check_column(table.column_names, target, path, "--target")
        if kind == "csv":
            _warn_of_typos(table, target, path)
        y = read_column(table, target)
    X = _separate(table, path, kind, target=target, row_id=row_id, drop=drop, like=like)
    if like is None:
        for name in keys:
            check_column(X.names.tolist(), name, path, "the column of owners")
    kept = [i for i, name in enumerate(X.names.tolist()) if name not in keys]
    if not kept:
        raise ValueError(f"{path} has no column left to value besides those of owners; add one.")
    valued = X.select(np.array(kept)) if len(kept) < len(X.names) else X
    return InputTable(valued, y, X)


def _read_files(path: str, target: str | None, text: TextFormat) -> tuple[Any, str]:
    """Read one file, or all of a folder or pattern, as an Arrow table; return their kind, too."""
    if not names_many(path, {}):
        return read_table(path, text=text), _find_kind(path)
    if target is None:
        # A table in files needs a target, which becomes its last column.
        first = dict([*find_files(path, {}).items()][:1])
        ((_, schema),) = examine_files(first, text, {})
        *_, target = schema.names
    sharded = open_files(path, target, text)
    return sharded.take(np.arange(sharded.shape[0])), str(sharded.files[0].kind)


def _separate(
    table: Any,
    path: str,
    kind: str,
    *,
    target: str | None,
    row_id: str | None,
    drop: Sequence[str],
    like: Any,
) -> Table:
    """Return the columns that are neither labels nor row ids nor dropped, with the row ids."""
    names = table.column_names
    for name, option in [(row_id, "--id"), *((name, "--drop") for name in drop)]:
        if name is not None and like is None:
            check_column(names, name, path, option)
    ids = row_id if row_id in names else _PANDAS_INDEX if _PANDAS_INDEX in names else None
    rest = [name for name in names if name not in {target, ids, row_id, *drop}]
    if not rest:
        besides = "" if target is None else f" besides {target!r}"
        raise ValueError(f"{path} has no column{besides} left; drop fewer columns.")
    return Table(
        nw.from_native(_cast_columns(table.select(rest), like), eager_only=True),
        label_array(rest, what="column"),
        _read_row_ids(table, ids, path, written=kind in ("csv", "excel")),
    )


def open_files(address: str, target: str, text: TextFormat) -> ShardedTable:
    """Open a table in files; one that was opened before and is unchanged is used again."""
    found = list(find_files(address, {}))
    key = (address, target, repr(text))
    table = _opened.get(key)
    if table is not None and [file.address for file in table.files] == found:
        with suppress(ValueError):
            table.check_files_unchanged()
            return table
    _opened[key] = ShardedTable.from_files(address, target=target, text=text)
    return _opened[key]


def read_table(address: str | Path, *, text: TextFormat | None = None) -> Any:
    """Read one file as an Arrow table."""
    path, how = os.fspath(address), text or TextOptions()
    check_is_file(path)
    kind = _find_kind(path)
    table = read_text(path, how, {}) if kind in ("csv", "jsonl") else _read_binary(path, kind, how)
    check_names(table.column_names, path)
    if table.num_rows == 0:
        raise ValueError(f"{path} has no rows below its header; give a table with rows.")
    for field in table.schema:
        if is_bytes(field.type):
            raise ValueError(
                f"column {field.name!r} of {path} holds bytes that are not UTF-8 text; save the "
                "file as UTF-8."
            )
    return table


def keep_stdin(beside: Path) -> Path:
    """Write stdin to a file whose name begins with that of ``beside``, and return its path."""
    content: bytes = sys.stdin.buffer.read()
    if not content.strip():
        raise ValueError("stdin is empty; pipe a table into it as CSV, JSON lines or Parquet.")
    begins = {b"PAR1": ".parquet", b"\x1f\x8b": ".csv.gz", b"{": ".jsonl"}
    suffix = next((begins[one] for one in begins if content.lstrip().startswith(one)), ".csv")
    path = beside.with_name(f"{beside.name}.stdin{suffix}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path) as file:
        file.write(content)
    return path


def _find_kind(path: str) -> str:
    """Return the kind of a file by its suffix."""
    suffix, packed = split_suffixes(path)
    known = SUFFIXES | dict.fromkeys(_ARROW, "arrow") | dict.fromkeys(_EXCEL, "excel")
    kind = known.get(suffix)
    if kind is None or (packed and kind not in ("csv", "jsonl")):
        raise ValueError(
            f"{path} must end in .csv, .tsv or .jsonl (also with .gz, .bz2 or .zst), "
            ".parquet, .arrow, .feather or .xlsx; save it as one of these."
        )
    return kind


def _read_binary(path: str, kind: str, text: TextFormat) -> Any:
    with to_path(path, "table").open("rb") as file, name_problem(path):
        if kind == "excel":
            return _read_excel(file, path, text)
        if kind == "arrow":
            return _read_arrow(file)
        # Arrow reads local files itself.
        return read_parquet(file if is_address(path) else path)


def _read_arrow(file: Any) -> Any:
    import pyarrow as pa

    options = pa.ipc.IpcReadOptions(use_threads=False)
    try:
        return pa.ipc.open_file(file, options=options).read_all()
    except pa.ArrowInvalid:
        file.seek(0)
        return pa.ipc.open_stream(file, options=options).read_all()


def _read_excel(file: Any, path: str, text: TextFormat) -> Any:
    """Read a sheet whose first row has the names of columns."""
    import pyarrow as pa

    try:
        from openpyxl import load_workbook
    except ImportError as error:
        raise ImportError(
            f"{path} is read with openpyxl, which is not installed; pip install 'cellworth[excel]'."
        ) from error
    try:
        book = load_workbook(file, read_only=True, data_only=True)
    # openpyxl raises many types for a damaged or encrypted file.
    except Exception as error:
        raise OSError(
            "it is damaged, or protected by a password, or no .xlsx file at all"
        ) from error
    if len(book.sheetnames) > 1:
        listed = preview(book.sheetnames)
        raise OSError(f"it has the sheets {listed}; save the one that holds the table as CSV")
    rows = list(book[book.sheetnames[0]].iter_rows(values_only=True))
    names = [] if not rows else ["" if name is None else str(name) for name in rows[0]]
    while names and not names[-1]:
        names.pop()
    if not names:
        raise OSError("the sheet is empty")
    columns = {}
    for position, name in enumerate(names):
        cells = [row[position] if position < len(row) else None for row in rows[1:]]
        cells = [
            None if cell is None or str(cell) in ("", *text.missing) else cell for cell in cells
        ]
        columns[position] = _make_column(cells, as_text=name in text.as_text)
    filled = [i for i in range(len(rows) - 1) if any(columns[j][i].is_valid for j in columns)]
    return pa.table(list(columns.values()), names=names).take(pa.array(filled, "int64"))


def _make_column(cells: list[Any], *, as_text: bool) -> Any:
    """Return the cells of a sheet as an Arrow array of one type; others become text."""
    import pyarrow as pa

    found = {type(cell) for cell in cells if cell is not None}
    if found == {datetime.datetime}:
        is_day = all(cell is None or cell.time() == datetime.time() for cell in cells)
        return pa.array(cells, pa.timestamp("us")).cast(pa.date32() if is_day else "timestamp[us]")
    spans = datetime.date, datetime.timedelta
    plain = found <= {int, float} or found == {bool} or any(found == {span} for span in spans)
    if plain and not as_text:
        return pa.array(cells, pa.float64() if float in found else None)
    return pa.array([None if cell is None else str(cell) for cell in cells], pa.string())


def _warn_of_typos(table: Any, target: str, path: str) -> None:
    """Warn of single entries that turn a numeric target into text; of other columns fit warns."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = table.column(target)
    if not pa.types.is_string(column.type):
        return
    is_number = pc.match_substring_regex(column, rf"^\s*{NUMBER}\s*$")
    odd = pc.fill_null(pc.invert(is_number), fill_value=False)
    positions = np.flatnonzero(odd.to_numpy())
    n_known = len(column) - column.null_count
    if 0 < len(positions) <= max(1, _SHARE_OF_TYPOS * n_known) and n_known > 2 * len(positions):
        entry, more = column[int(positions[0])].as_py(), len(positions) - 1
        warnings.warn(
            f"column {target!r} of {path} is read as text, because row {positions[0]} (from 0) "
            f"holds {entry!r}{f' and {more} more are not numbers' if more else ''}; fix it, or if "
            f"it marks a missing value, give --missing {entry!r}.",
            stacklevel=2,
        )


def _read_row_ids(table: Any, name: str | None, path: str, *, written: bool) -> Labels:
    if name is None:
        return np.arange(table.num_rows)
    column = table.column(name)
    if column.null_count:
        raise ValueError(
            f"column {name!r} of {path}, which holds the row ids, has missing values; fill them, "
            "or leave out --id."
        )
    ids = column.to_pylist()
    if written and all(isinstance(one, str) and re.fullmatch(_INTEGER, one) for one in ids):
        ids = [int(one) for one in ids]
    return label_array(ids, what="row")


def read_column(table: Any, name: str) -> NDArray[Any]:
    """Return a column of an Arrow table as labels."""
    series = nw.from_native(table.select([name]), eager_only=True)[name]
    return series_array(series)


def _cast_columns(table: Any, like: Any) -> Any:
    """Cast columns to the types of the training table, if nothing is lost."""
    import pyarrow as pa

    if like is None:
        return table
    for position, field in enumerate(table.schema):
        if field.name in like.names and field.type != like.field(field.name).type:
            try:
                column = table.column(position).cast(like.field(field.name).type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                continue
            table = table.set_column(position, field.name, column)
    return table


def check_is_file(path: str) -> None:
    """Check that a local path is a regular file."""
    if is_address(path):
        return
    here = Path(path)
    if here.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give a file.")
    if not here.exists():
        raise FileNotFoundError(f"{path} does not exist; give the path of a table.")
    if not here.is_file():
        raise ValueError(f"{path} is a pipe or a device, which cannot be read twice; give a file.")


def check_column(names: Sequence[str], name: str, path: str, option: str) -> None:
    """Check that a column exists; suggest a similar name."""
    if name in names:
        return
    problem = f"{option} is {name!r}, which is not a column of {path}"
    if len(names) == 1:
        raise ValueError(
            f"{problem}; its only column is {names[0]!r}: if it holds several, give --delimiter."
        )
    lower = {one.lower(): one for one in names}
    alike = difflib.get_close_matches(name.lower(), lower, n=1)
    hint = f"; did you mean {lower[alike[0]]!r}?" if alike else "."
    raise ValueError(f"{problem}; its columns are {preview(list(names))}{hint}")


def check_roles(target: str | None, row_id: str | None, drop: Sequence[str]) -> None:
    """Check that the column of labels has no other role."""
    for given, option in (([row_id], "--id"), (drop, "--drop")):
        if target is not None and target in given:
            raise ValueError(f"--target and {option} both name {target!r}; give two columns.")
