"""What stands in a file: CSV, TSV, Parquet or Arrow, as the table and labels that are valued."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from cellworth.blocks import Labels, label_array
from cellworth.cli.faults import (
    column_names,
    refuse_gaps,
    refuse_no_file,
    refuse_no_text,
    refuse_two_roles,
    require_column,
    told_of,
)
from cellworth.storage import read_parquet
from cellworth.tables import LARGEST_EXACT, Table, series_array

_DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_PARQUET = (".parquet", ".pq")
_ARROW = (".arrow", ".feather", ".ipc")
_PANDAS_INDEX = "__index_level_0__"
_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_DIGITS_KEPT = 18
# A column of text in which so few entries are no numbers was meant to hold numbers.
_SHARE_OF_TYPOS = 0.05


@dataclass(frozen=True, eq=False)
class Delivery:
    """A table and its labels.

    Parameters
    ----------
    X : Table
        Arrow columns, with the user's row ids.
    y : array of shape (n_rows,)
    """

    X: Table
    y: NDArray[Any]

    def drawn(self, n_rows: int, seed: int) -> Delivery:
        """Take so many rows at random, in the file's order."""
        n_all = len(self.y)
        if n_rows > n_all:
            raise ValueError(f"--val-rows is {n_rows}, but the validation file has {n_all} rows.")
        places = np.sort(np.random.default_rng(seed).permutation(n_all)[:n_rows])
        frame = self.X.take(places, np.arange(len(self.X.names)))
        data = nw.from_native(frame, eager_only=True)
        return Delivery(Table(data, self.X.names, self.X.row_ids[places]), self.y[places])


def read_delivery(
    path: Path,
    *,
    target: str,
    row_id: str | None = None,
    drop: Sequence[str] = (),
    missing: Sequence[str] = (),
    categorical: Sequence[str] = (),
    like: Delivery | None = None,
) -> Delivery:
    """Read a file and take labels and row ids out of its columns.

    Parameters
    ----------
    path : path
    target : str
        Column of the labels.
    row_id : str or None
        Column that names the rows; None: 0, 1, 2, ...
    drop : sequence of str
        Columns that do not play.
    missing : sequence of str
        What stands for a gap in a text file, besides an empty field.
    categorical : sequence of str
        Columns of names: in a text file they are what is written there, zeros in front and all.
    like : Delivery or None
        The training table, where this is the validation file: columns get its types, and columns
        that name rows or are dropped need not be there.
    """
    refuse_two_roles(target, row_id, drop)
    names_of_rows = () if row_id is None else (row_id,)
    as_text = {*_text_columns(like), *categorical, *names_of_rows, *drop} - {target}
    # Of columns that play, a fit warns itself.
    checked = None if like is not None else (target,)
    table = read_table(path, missing=missing, as_text=sorted(as_text), checked=checked)
    optional = like is not None
    require_column(table.column_names, target, path, "--target")
    for name, option in [(row_id, "--id"), *((name, "--drop") for name in drop)]:
        if name is not None and not optional:
            require_column(table.column_names, name, path, option)
    names = table.column_names
    ids = row_id if row_id in names else _PANDAS_INDEX if _PANDAS_INDEX in names else None
    rest = [name for name in names if name not in {target, ids, row_id, *drop}]
    if not rest:
        raise ValueError(f"{path} has no columns besides {target!r} to be valued; drop fewer.")
    X = Table(
        nw.from_native(_typed(table.select(rest), like), eager_only=True),
        label_array(rest, what="column"),
        _row_ids(table, ids, path),
    )
    y = _column(table, target)
    refuse_gaps(y, target, path)
    return Delivery(X, y)


def read_table(
    path: Path,
    *,
    missing: Sequence[str] = (),
    as_text: Sequence[str] = (),
    checked: Sequence[str] | None = None,
) -> Any:
    """Read a file as an Arrow table; what is wrong with it is one sentence.

    ``checked`` are the columns whose numbers may be spoiled by a typo; None: all of them.
    """
    refuse_no_file(path)
    kind = _kind(path)
    if kind in _DELIMITERS:
        refuse_no_text(path)
    try:
        if kind in _PARQUET:
            table = read_parquet(path)
        elif kind in _ARROW:
            table = _read_arrow(path)
        else:
            table = _read_text(path, _DELIMITERS[kind], missing, as_text)
    except (ValueError, OSError, EOFError) as error:
        told = told_of(error)
        raise ValueError(f"{path} cannot be read ({told}); mend it, or save it anew.") from error
    _refuse_names(column_names(table, path), path)
    if table.num_rows == 0:
        raise ValueError(f"{path} has no rows below its header; give a table with rows.")
    _refuse_bytes(table, path)
    if kind in _DELIMITERS:
        names = table.column_names if checked is None else checked
        _warn_of_typos(table, path, sorted(set(names) - set(as_text)))
        _warn_of_lost_digits(table, path, missing)
    return table


def file_sha256(path: Path) -> str:
    """Fingerprint of a file as it lies on disk."""
    refuse_no_file(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _kind(path: Path) -> str:
    """Ending of a file's name, without that of compression."""
    endings = [ending.lower() for ending in path.suffixes]
    if endings and endings[-1] == ".gz":
        endings = endings[:-1] if len(endings) > 1 and endings[-2] in _DELIMITERS else []
    known = (*_DELIMITERS, *_PARQUET, *_ARROW)
    if not endings or endings[-1] not in known:
        raise ValueError(
            f"{path} has no ending that tells its format; give .csv, .tsv (also with .gz), "
            ".parquet, .arrow or .feather."
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
    # See storage.read_parquet; and without threads a mistake is told with its line.
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


def _refuse_names(names: list[str], path: Path) -> None:
    if "" in names:
        raise ValueError(
            f"{path} has no name for column {names.index('') + 1}; give each column a name in the "
            "first line."
        )
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise ValueError(f"{path} has two columns called {twice[0]!r}; rename one of them.")


def _refuse_bytes(table: Any, path: Path) -> None:
    import pyarrow as pa

    for field in table.schema:
        kind = field.type
        is_fixed = pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind)
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or is_fixed:
            raise ValueError(
                f"column {field.name!r} of {path} holds bytes that are no UTF-8 text; save the "
                "file as UTF-8."
            )


def _warn_of_typos(table: Any, path: Path, checked: Sequence[str]) -> None:
    """Name the entries that make text of a column of numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for field in table.schema:
        if not pa.types.is_string(field.type) or field.name not in checked:
            continue
        column = table.column(field.name)
        odd = pc.fill_null(pc.invert(pc.match_substring_regex(column, _NUMBER)), fill_value=False)
        places = np.flatnonzero(odd.to_numpy())
        n_known = len(column) - column.null_count
        if 0 < len(places) <= max(1, _SHARE_OF_TYPOS * n_known) and n_known > 2 * len(places):
            entry, more = column[int(places[0])].as_py(), len(places) - 1
            warnings.warn(
                f"column {field.name!r} of {path} is read as text, because row {places[0]} (from "
                f"0) holds {entry!r}{f' and {more} more are no numbers' if more else ''}; mend it, "
                f"or if it means a gap, give --missing {entry!r}.",
                stacklevel=2,
            )


def _warn_of_lost_digits(table: Any, path: Path, missing: Sequence[str]) -> None:
    """Name columns of whole numbers that are too long for 64 bits and lost their last digits."""
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
    written = _read_text(path, _DELIMITERS[_kind(path)], missing, large, only=large)
    for name in large:
        whole = pc.match_substring_regex(written.column(name), r"^\s*[+-]?\d+\s*$")
        if pc.all(whole).as_py():
            warnings.warn(
                f"column {name!r} of {path} holds whole numbers of more digits than are kept, so "
                f"that different ones may become the same; if they are names, give --categorical "
                f"{name} (or --id, or --drop).",
                stacklevel=2,
            )


def _row_ids(table: Any, name: str | None, path: Path) -> Labels:
    if name is None:
        return np.arange(table.num_rows)
    column = table.column(name)
    if column.null_count:
        raise ValueError(
            f"column {name!r} of {path}, which names the rows, has gaps; fill them, or leave out "
            "--id."
        )
    ids = column.to_pylist()
    return label_array(_whole_numbers(ids) if _kind(path) in _DELIMITERS else ids, what="row")


def _whole_numbers(ids: list[Any]) -> list[Any]:
    """Ids as whole numbers, if all are written as such and nothing is lost by it."""
    if all(isinstance(one, str) and _is_whole_number(one) for one in ids):
        return [int(one) for one in ids]
    return ids


def _is_whole_number(text: str) -> bool:
    # Eighteen digits fit into 64 bits; Python itself reads far more, and signs of other scripts.
    plain = text.isascii() and text.removeprefix("-").isdigit() and len(text) <= _DIGITS_KEPT
    return plain and str(int(text)) == text


def _column(table: Any, name: str) -> NDArray[Any]:
    series = nw.from_native(table.select([name]), eager_only=True)[name]
    return series_array(series)


def _text_columns(like: Delivery | None) -> list[str]:
    if like is None:
        return []
    return [name for name, kind in like.X.types.items() if kind == "String"]


def _typed(table: Any, like: Delivery | None) -> Any:
    """Give columns the types of the training table, where nothing is lost by it."""
    import pyarrow as pa

    if like is None:
        return table
    wanted = like.X.native.schema
    for place, field in enumerate(table.schema):
        if field.name in wanted.names and field.type != wanted.field(field.name).type:
            try:
                column = table.column(place).cast(wanted.field(field.name).type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                continue
            table = table.set_column(place, field.name, column)
    return table
