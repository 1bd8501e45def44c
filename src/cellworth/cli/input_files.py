"""Input files: read a CSV, TSV, Parquet or Arrow file as a table and its labels, and check it."""

from __future__ import annotations

import difflib
import hashlib
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Labels
from cellworth.data.blocks import is_missing, label_array, some
from cellworth.data.tables import LARGEST_EXACT, Table, series_array
from cellworth.valuation.storage import read_parquet

_DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_PARQUET = (".parquet", ".pq")
_ARROW = (".arrow", ".feather", ".ipc")
_PANDAS_INDEX = "__index_level_0__"
_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_DIGITS_KEPT = 18
# A text column with at most this share of other entries was meant to hold numbers.
_SHARE_OF_TYPOS = 0.05
_GZIP = b"\x1f\x8b"
_N_BYTES_CHECKED = 65_536
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
# This scoring makes every numeric target a regression target.
_REGRESSION = "neg_mean_squared_error"


@dataclass(frozen=True, eq=False)
class InputTable:
    """A table of Arrow columns with the user's row ids, and its labels."""

    X: Table
    y: NDArray[Any]

    def sample(self, n_rows: int, seed: int) -> InputTable:
        """Return this many random rows, in the order of the file."""
        n_all = len(self.y)
        if n_rows > n_all:
            raise ValueError(f"--val-rows is {n_rows}, but the validation file has {n_all} rows.")
        positions = np.sort(np.random.default_rng(seed).permutation(n_all)[:n_rows])
        frame = self.X.take(positions, np.arange(len(self.X.names)))
        data = nw.from_native(frame, eager_only=True)
        return InputTable(Table(data, self.X.names, self.X.row_ids[positions]), self.y[positions])


def read_input(
    path: Path,
    *,
    target: str,
    row_id: str | None = None,
    drop: Sequence[str] = (),
    missing: Sequence[str] = (),
    categorical: Sequence[str] = (),
    like: InputTable | None = None,
) -> InputTable:
    """Read a file, and separate labels and row ids from the other columns.

    The arguments are the options of the command line. ``like`` is the training table, if this is
    the validation file: columns get its types, and columns of row ids and dropped ones may be
    absent.
    """
    check_roles(target, row_id, drop)
    names_of_rows = () if row_id is None else (row_id,)
    as_text = {*_list_text_columns(like), *categorical, *names_of_rows, *drop} - {target}
    # For other columns, fit itself warns.
    checked = None if like is not None else (target,)
    table = read_table(path, missing=missing, as_text=sorted(as_text), checked=checked)
    optional = like is not None
    check_column(table.column_names, target, path, "--target")
    for name, option in [(row_id, "--id"), *((name, "--drop") for name in drop)]:
        if name is not None and not optional:
            check_column(table.column_names, name, path, option)
    names = table.column_names
    ids = row_id if row_id in names else _PANDAS_INDEX if _PANDAS_INDEX in names else None
    rest = [name for name in names if name not in {target, ids, row_id, *drop}]
    if not rest:
        raise ValueError(f"{path} has no column besides {target!r} to value; drop fewer columns.")
    X = Table(
        nw.from_native(_cast_columns(table.select(rest), like), eager_only=True),
        label_array(rest, what="column"),
        _read_row_ids(table, ids, path),
    )
    y = _read_column(table, target)
    check_no_missing_labels(y, target, path)
    return InputTable(X, y)


def read_table(
    path: Path,
    *,
    missing: Sequence[str] = (),
    as_text: Sequence[str] = (),
    checked: Sequence[str] | None = None,
) -> Any:
    """Read a file as an Arrow table; warn of typos among the numbers of ``checked`` columns."""
    check_is_file(path)
    kind = _find_suffix(path)
    if kind in _DELIMITERS:
        check_is_text(path)
    try:
        if kind in _PARQUET:
            table = read_parquet(path)
        elif kind in _ARROW:
            table = _read_arrow(path)
        else:
            table = _read_text(path, _DELIMITERS[kind], missing, as_text)
    except (ValueError, OSError, EOFError) as error:
        reason = format_read_error(error)
        raise ValueError(f"{path} cannot be read ({reason}); fix it, or save it again.") from error
    _check_names(read_column_names(table, path), path)
    if table.num_rows == 0:
        raise ValueError(f"{path} has no rows below its header; give a table with rows.")
    _check_no_bytes(table, path)
    if kind in _DELIMITERS:
        names = table.column_names if checked is None else checked
        _warn_of_typos(table, path, sorted(set(names) - set(as_text)))
        _warn_of_lost_digits(table, path, missing)
    return table


def hash_file(path: Path) -> str:
    """Return the sha256 of a file."""
    check_is_file(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _find_suffix(path: Path) -> str:
    """Return the suffix of a file name, without that of compression."""
    endings = [ending.lower() for ending in path.suffixes]
    if endings and endings[-1] == ".gz":
        endings = endings[:-1] if len(endings) > 1 and endings[-2] in _DELIMITERS else []
    known = (*_DELIMITERS, *_PARQUET, *_ARROW)
    if not endings or endings[-1] not in known:
        raise ValueError(
            f"{path} must end in .csv, .tsv (also with .gz), .parquet, .arrow or .feather."
        )
    return endings[-1]


def _read_text(
    path: Path,
    delimiter: str,
    missing: Sequence[str],
    as_text: Sequence[str],
    only: Sequence[str] | None = None,
) -> Any:
    import pyarrow as pa
    import pyarrow.csv as pc

    convert = pc.ConvertOptions(
        null_values=["", *missing],
        strings_can_be_null=True,
        column_types=dict.fromkeys(as_text, pa.string()),
        include_columns=only,
    )
    parse = pc.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    # As in storage.read_parquet; without threads, errors name their line.
    read = pc.ReadOptions(use_threads=False)
    with pa.input_stream(str(path)) as stream:
        return pc.read_csv(stream, read, parse, convert)


def _read_arrow(path: Path) -> Any:
    import pyarrow as pa

    options = pa.ipc.IpcReadOptions(use_threads=False)
    with pa.memory_map(str(path)) as source:
        try:
            return pa.ipc.open_file(source, options=options).read_all()
        except pa.ArrowInvalid:
            source.seek(0)
            return pa.ipc.open_stream(source, options=options).read_all()


def _check_names(names: list[str], path: Path) -> None:
    if "" in names:
        raise ValueError(
            f"{path} has no name for column {names.index('') + 1}; give each column a name in the "
            "first line."
        )
    twice = [name for position, name in enumerate(names) if name in names[:position]]
    if twice:
        raise ValueError(f"{path} has two columns called {twice[0]!r}; rename one of them.")


def _check_no_bytes(table: Any, path: Path) -> None:
    import pyarrow as pa

    for field in table.schema:
        kind = field.type
        is_fixed = pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind)
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or is_fixed:
            raise ValueError(
                f"column {field.name!r} of {path} holds bytes that are not UTF-8 text; save the "
                "file as UTF-8."
            )


def _warn_of_typos(table: Any, path: Path, checked: Sequence[str]) -> None:
    """Warn of single entries that turn a numeric column into text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for field in table.schema:
        if not pa.types.is_string(field.type) or field.name not in checked:
            continue
        column = table.column(field.name)
        odd = pc.fill_null(pc.invert(pc.match_substring_regex(column, _NUMBER)), fill_value=False)
        positions = np.flatnonzero(odd.to_numpy())
        n_known = len(column) - column.null_count
        if 0 < len(positions) <= max(1, _SHARE_OF_TYPOS * n_known) and n_known > 2 * len(positions):
            entry, more = column[int(positions[0])].as_py(), len(positions) - 1
            warnings.warn(
                f"column {field.name!r} of {path} is read as text, because row {positions[0]} "
                f"(from 0) holds {entry!r}{f' and {more} more are not numbers' if more else ''}; "
                f"fix it, or if it marks a missing value, give --missing {entry!r}.",
                stacklevel=2,
            )


def _warn_of_lost_digits(table: Any, path: Path, missing: Sequence[str]) -> None:
    """Warn of columns of integers that lost digits because they do not fit into 64 bits."""
    import pyarrow as pa
    import pyarrow.compute as pc

    large = [
        field.name
        for field in table.schema
        if pa.types.is_float64(field.type)
        and (pc.max(pc.abs(table.column(field.name))).as_py() or 0) > LARGEST_EXACT
    ]
    if not large:
        return
    written = _read_text(path, _DELIMITERS[_find_suffix(path)], missing, large, only=large)
    for name in large:
        is_integer = pc.match_substring_regex(written.column(name), r"^\s*[+-]?\d+\s*$")
        if pc.all(is_integer).as_py():
            warnings.warn(
                f"column {name!r} of {path} holds integers with too many digits, so different ones "
                f"may become equal; if they are categories, give --categorical {name} (or --id, or "
                "--drop).",
                stacklevel=2,
            )


def _read_row_ids(table: Any, name: str | None, path: Path) -> Labels:
    if name is None:
        return np.arange(table.num_rows)
    column = table.column(name)
    if column.null_count:
        raise ValueError(
            f"column {name!r} of {path}, which holds the row ids, has missing values; fill them, "
            "or leave out --id."
        )
    ids = column.to_pylist()
    return label_array(
        _convert_to_integers(ids) if _find_suffix(path) in _DELIMITERS else ids, what="row"
    )


def _convert_to_integers(ids: list[Any]) -> list[Any]:
    """Return ids as integers, if all are written as such and nothing is lost."""
    if all(isinstance(one, str) and _is_integer(one) for one in ids):
        return [int(one) for one in ids]
    return ids


def _is_integer(text: str) -> bool:
    # Eighteen digits fit into 64 bits. Python would also read digits of other scripts.
    plain = text.isascii() and text.removeprefix("-").isdigit() and len(text) <= _DIGITS_KEPT
    return plain and str(int(text)) == text


def _read_column(table: Any, name: str) -> NDArray[Any]:
    series = nw.from_native(table.select([name]), eager_only=True)[name]
    return series_array(series)


def _list_text_columns(like: InputTable | None) -> list[str]:
    if like is None:
        return []
    return [name for name, kind in like.X.types.items() if kind == "String"]


def _cast_columns(table: Any, like: InputTable | None) -> Any:
    """Cast columns to the types of the training table, if nothing is lost."""
    import pyarrow as pa

    if like is None:
        return table
    wanted = like.X.native.schema
    for position, field in enumerate(table.schema):
        if field.name in wanted.names and field.type != wanted.field(field.name).type:
            try:
                column = table.column(position).cast(wanted.field(field.name).type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                continue
            table = table.set_column(position, field.name, column)
    return table


def check_is_file(path: Path) -> None:
    """Check that a path is a regular file."""
    if path.is_dir():
        raise IsADirectoryError(
            f"{path} is a folder; give a file: CSV, TSV, Parquet or Arrow, or value a folder of "
            "Parquet files in Python, as ShardedTable.from_files(folder, target=...)."
        )
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; give the path of a table.")
    if not path.is_file():
        raise ValueError(f"{path} is a pipe or a device, which cannot be read twice; give a file.")


def check_is_text(path: Path) -> None:
    """Check that a text file does not begin like a binary one."""
    if path.suffix.lower() == ".gz":
        return
    with path.open("rb") as file:
        begin = file.read(_N_BYTES_CHECKED)
    if begin.startswith(_GZIP):
        raise ValueError(f"{path} is compressed by gzip; rename it to {path.name}.gz.")
    if b"\0" in begin:
        raise ValueError(f"{path} is not UTF-8 text; save it as UTF-8.")


def read_column_names(table: Any, path: Path) -> list[str]:
    """Return the column names; raise ValueError unless they are UTF-8."""
    try:
        names: list[str] = table.column_names
    except UnicodeDecodeError as error:
        raise ValueError(
            f"the first line of {path} is not UTF-8 text; save the file as UTF-8."
        ) from error
    return names


def format_read_error(error: Exception) -> str:
    """Return the message of a reader, without unreadable bytes."""
    message = " ".join(str(error).split()).rstrip(".")
    if not message.isprintable() or "\N{REPLACEMENT CHARACTER}" in message:
        message = re.sub(r"(got \d+): .*", r"\1", message)
    return message


def check_column(names: Sequence[str], name: str, path: Path, option: str) -> None:
    """Check that a column exists; suggest a similar name."""
    if name in names:
        return
    problem = f"{option} is {name!r}, which is not a column of {path}"
    separator = next((one for one in _SEPARATORS if one in names[0]), None)
    if len(names) == 1 and separator is not None:
        raise ValueError(
            f"{problem}; the only column is {names[0]!r}: is it separated by "
            f"{_SEPARATORS[separator]}? Save it with commas, or as .tsv with tabs."
        )
    lower = {one.lower(): one for one in names}
    alike = difflib.get_close_matches(name.lower(), lower, n=1)
    hint = f"; did you mean {lower[alike[0]]!r}?" if alike else "."
    raise ValueError(f"{problem}; its columns are {some(list(names))}{hint}")


def check_roles(target: str, row_id: str | None, drop: Sequence[str]) -> None:
    """Check that the column of labels has no other role."""
    for given, option in (([row_id], "--id"), (drop, "--drop")):
        if target in given:
            raise ValueError(f"--target and {option} both name {target!r}; give two columns.")


def check_no_missing_labels(y: NDArray[Any], target: str, path: Path) -> None:
    """Check that every row has a label."""
    missing = [position for position, label in enumerate(y.tolist()) if is_missing(label)]
    if missing:
        raise ValueError(
            f"column {target!r} of {path} has no label in {len(missing)} of {len(y)} rows, the "
            f"first of them row {missing[0]} (from 0); fill them in, or remove these rows."
        )


def check_label_varies(y: NDArray[Any], target: str, path: str) -> None:
    """Check that a numeric target has more than one value."""
    if y.dtype.kind in "iuf" and len(np.unique(y)) == 1:
        raise ValueError(
            f"column {target!r} of {path} holds {y[0].item()!r} in every row, so a model "
            "cannot learn; give another --target."
        )


def check_same_columns(
    names: Sequence[str], val_names: Sequence[str], path: str, left_out: str | None
) -> None:
    """Check that the validation file has the columns of the table."""
    lacking = [name for name in names if name not in val_names and name != left_out]
    if lacking:
        raise ValueError(f"{path} lacks the columns {some(lacking)} that the table has; add them.")
    more = [name for name in val_names if name not in names and name != left_out]
    if more:
        raise ValueError(
            f"{path} has the columns {some(more)} that the table lacks; remove them, or give "
            "--drop for each."
        )


def check_class_sizes(y: NDArray[Any], target: str, folds: int, scoring: str | None) -> None:
    """Check that at least one class has as many rows as there are folds."""
    found, counts = np.unique(y, return_counts=True)
    if scoring == _REGRESSION or counts.max() >= folds or folds > len(y):
        return
    hint = "give --val, or a smaller --cv."
    if y.dtype.kind in "iuf":
        hint = f"for a numeric target give --scoring {_REGRESSION}, else --val or a smaller --cv."
    raise ValueError(
        f"the labels in {target!r} are treated as {len(found)} classes, none of which has the "
        f"{folds} rows that --cv {folds} needs; {hint}"
    )
