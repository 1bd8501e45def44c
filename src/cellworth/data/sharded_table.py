"""ShardedTable: a table in many files, divided into shards of rows that are read in batches."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from cellworth.data.arguments import Labels, Positions, check_columns, check_count, is_integer
from cellworth.data.arrow import find_common_type
from cellworth.data.column import find_kind_of_type
from cellworth.data.file_search import Address, find_files
from cellworth.data.table_files import TableFile, TextFormat, examine_files, map_files, read_batches
from cellworth.data.tables import Table, TableLike, label_array
from cellworth.data.text import preview

if TYPE_CHECKING:
    import pyarrow as pa

# Rows after which a file is cut into several shards, where its row groups allow it.
_MAX_ROWS = 2**20
# Rows are counted in 32 bits.
_TOO_MANY_ROWS = 2**32
# JSON has no dates: Arrow reads strings as timestamps if all of them can be.
_JSON_STRINGS = {"string", "timestamp[s]"}


@dataclass(frozen=True, eq=False, repr=False)
class ShardedTable:
    """A table in Parquet, CSV or JSONL files, divided into shards; made by ``from_files``.

    ``ShardedKNNValuer().fit(table, X_val=..., y_val=...)`` values it; its target holds classes or
    numbers. The object holds no cells: it is small, and workers on other machines read their shards
    themselves. Rows are numbered from 0, file by file. Values do not depend on the division into
    shards.

    Parameters
    ----------
    files : tuple of TableFile
    schema : pyarrow.Schema
        Names and types of the columns, the target last.
    shards : tuple
        For each shard, pairs of the position of a file and a range of its row groups.
    storage_options : dict
        Options of fsspec, such as keys.

    See Also
    --------
    ShardedKNNValuer, cellworth.data.TextFormat

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import pyarrow as pa, pyarrow.parquet as pq
    >>> from cellworth import ShardedKNNValuer, ShardedTable
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for part in range(3):
    ...     rows = pa.table({"age": [20 + part, 30], "town": ["Ulm", None], "rich": [True, False]})
    ...     pq.write_table(rows, folder / f"{part}.parquet")
    >>> table = ShardedTable.from_files(folder, target="rich")
    >>> table
    <ShardedTable: 6 rows x 2 columns and the target 'rich', in 3 files, 3 shards>
    >>> table.names.tolist(), table.take([4, 1])["age"].to_pylist()
    (['age', 'town'], [22, 30])
    >>> validation = {"X_val": pa.table({"age": [21], "town": ["Ulm"]}), "y_val": [True]}
    >>> valuation = ShardedKNNValuer(n_neighbors=1).fit(table, **validation).valuation_
    >>> table.take(valuation.lowest(2).labels["row"]).num_rows
    2
    """

    files: tuple[TableFile, ...]
    schema: pa.Schema
    shards: tuple[tuple[tuple[int, range], ...], ...]
    storage_options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_files(
        cls,
        address: Address | Sequence[Address],
        *,
        target: str,
        columns: Sequence[str] | None = None,
        shards: int | None = None,
        root: Address | None = None,
        text: TextFormat | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> ShardedTable:
        """Find files, and read names and types of their columns.

        Of Parquet files, only footers are read. Text files are read once, because their types
        depend on all cells.

        The columns are those of all files, in order of appearance. A file may lack a column other
        than the target: its cells are missing values there, with a warning. Types may differ if
        one can hold the cells of all files: integers and floats of any width, strings and
        dictionaries, dates and timestamps of any unit, decimals. A cell that would be changed by
        the cast raises ValueError when it is read. Of CSV files, other types become strings.

        Parameters
        ----------
        address : path, or list of paths
            A file; a folder, which stands for all Parquet, CSV or JSONL files below it, sorted by
            path; or a pattern such as ``"data/*.parquet"`` or ``"data/**/part-*"``. Suffixes are
            ``.parquet``, ``.parq``, ``.pq``, ``.csv``, ``.tsv``, ``.tab``, ``.jsonl`` and
            ``.ndjson``; text files may be compressed (``.gz``, ``.bz2``, ``.zst``). An
            address such as ``s3://...`` needs fsspec (``pip install 'cellworth[remote]'``).
        target : str
            Name of the column of labels: classes or numbers.
        columns : list of str, default=None
            Columns that are valued, in this order; None means all but the target.
        shards : int, default=None
            Number of shards. Row groups of all files are assigned in order, to shards of about the
            same number of rows; there are at most as many shards as row groups. None means one
            shard per file; a file of more than 1,048,576 rows is divided into shards of about that
            many rows, as far as its row groups allow. The row groups of a CSV file are blocks of
            about 16 MB; a JSONL file is one row group.
        root : path, default=None
            Folder below which names of folders such as ``year=2024`` are columns, integers
            or else strings. None means the folder itself, or the part of a pattern before its first
            wildcard; of a file, its own folder.
        text : TextFormat, default=None
            Delimiter, encoding and the like of text files.
        storage_options : mapping, default=None
            Options of fsspec to open the address, such as keys.
        """
        options = dict(storage_options or {})
        examined = examine_files(find_files(address, options, root), text or TextFormat(), options)
        files = tuple(file for file, _ in examined)
        schema = _find_common_schema(examined, target, columns)
        n_rows = sum(file.n_rows for file in files)
        if n_rows >= _TOO_MANY_ROWS:
            raise ValueError(
                f"the files must hold fewer than {_TOO_MANY_ROWS} rows, got {n_rows}; give some of "
                "the files."
            )
        if not n_rows:
            raise ValueError(
                f"{files[0].address} and all other files hold no rows; give other files."
            )
        n_shards = None if shards is None else check_count(shards, "shards")
        return cls(files, schema, _divide(files, n_rows, n_shards), options)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns, without the target."""
        return int(self._starts[-1]), len(self.schema) - 1

    @cached_property
    def names(self) -> Labels:
        """Names of the columns, without the target."""
        return label_array(self.schema.names[:-1], what="column")

    @property
    def target(self) -> str:
        """Name of the column that holds the labels."""
        return str(self.schema.names[-1])

    @property
    def n_shards(self) -> int:
        """Number of shards."""
        return len(self.shards)

    def rows(self, shard: int) -> range:
        """Return the positions of a shard's rows in the whole table."""
        if not is_integer(shard) or not 0 <= shard < self.n_shards:
            raise IndexError(
                f"shard must be an integer from 0 to {self.n_shards - 1}, got {shard!r}."
            )
        return range(int(self._starts[shard]), int(self._starts[shard + 1]))

    @property
    def row_ids(self) -> Labels:
        """Positions of all rows, made on access."""
        return np.arange(self.shape[0])

    def find_rows(self, ids: ArrayLike, *, called: str) -> Positions:
        """Return positions that are given in place of ids."""
        rows, n_rows = np.asarray(ids), self.shape[0]
        if rows.ndim != 1 or (len(rows) and rows.dtype.kind not in "iu"):
            raise ValueError(
                f"{called} must be positions for a sharded table, such as [0, 5], got {rows!r}."
            )
        if len(outside := rows[(rows < 0) | (rows >= n_rows)]):
            raise ValueError(
                f"{called} must be positions from 0 to {n_rows - 1}, got {outside[0]}."
            )
        return rows.astype(np.intp)

    def sha256(self) -> str:
        """Return nothing: the cells are hashed shard by shard, when they are valued."""
        return ""

    def batches(self, shard: int, names: Sequence[str]) -> Iterator[list[Any]]:
        """Yield the columns of a shard as Arrow arrays, in batches of about 65,536 rows."""
        import pyarrow as pa

        schema = pa.schema([self.schema.field(name) for name in names])
        for position, groups in self.shards[shard]:
            file = self.files[position]
            yield from read_batches(file, groups, schema, self.storage_options)

    def column(self, name: str) -> Labels:
        """Read one column of all rows, such as the owner of each row, as NumPy has it.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> import pyarrow as pa, pyarrow.parquet as pq
        >>> from cellworth import ShardedTable
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "rows.parquet"
        >>> pq.write_table(pa.table({"age": [20, 30], "bank": ["A", "B"], "rich": [0, 1]}), file)
        >>> table = ShardedTable.from_files(file, target="rich")
        >>> table.column("bank") == "B"
        array([False,  True])
        >>> table.drop("bank").names.tolist()
        ['age']
        """
        import pyarrow as pa

        check_columns([name], self.names.tolist(), called="name", of="the table")
        only = replace(self, schema=pa.schema([self.schema.field(name)]))
        parts = pa.concat_tables(only._read_positions(np.arange(self.shape[0])))
        return np.asarray(parts.column(0).to_numpy())

    def drop(self, *names: str) -> ShardedTable:
        """Return the table without some columns, such as one that names the owner of each row."""
        import pyarrow as pa

        check_columns(names, self.names.tolist(), called="names", of="the table")
        schema = pa.schema([field for field in self.schema if field.name not in names])
        if len(schema) == 1:
            raise ValueError(
                f"names must leave a column besides the target, got {preview(names)}; keep one."
            )
        return replace(self, schema=schema)

    def where(self, row: int) -> str:
        """Return the file of a row and its position there, for messages."""
        self.find_rows([row], called="rows")
        for file in self.files:
            if row < file.n_rows:
                break
            row -= file.n_rows
        return f"row {row} of {file.address}"

    def take(self, rows: ArrayLike) -> Any:
        """Read some rows, in the given order, with the target as the last column.

        Only the row groups that hold them are read.

        Parameters
        ----------
        rows : list or array of int
            Positions in the whole table, such as the row labels of a Valuation.

        Returns
        -------
        pyarrow.Table
        """
        import pyarrow as pa

        positions = self.find_rows(rows, called="rows")
        order = np.argsort(positions, kind="stable")
        found = self.schema.empty_table(), *self._read_positions(positions[order])
        return pa.concat_tables(found).take(np.argsort(order, kind="stable"))

    def _read_positions(self, positions: Labels) -> Iterator[pa.Table]:
        """Yield the rows at sorted positions, row group by row group."""
        import pyarrow as pa

        schema, first = self.schema, 0
        for file in self.files:
            for group, n_rows in enumerate(file.group_rows):
                begin, end = np.searchsorted(positions, [first, first + n_rows])
                if begin < end:
                    groups = range(group, group + 1)
                    parts = read_batches(file, groups, schema, self.storage_options)
                    tables = [pa.table(part, names=schema.names).cast(schema) for part in parts]
                    yield pa.concat_tables(tables).take(positions[begin:end] - first)
                first += n_rows

    def files_sha256(self) -> str:
        """Return the hash of all files, as they were found, and of the division into shards."""
        digest = hashlib.sha256(repr(self.shards).encode())
        for name, type_ in zip(self.schema.names, self.schema.types, strict=True):
            digest.update(f"{name}\0{type_}\0".encode())
        for file in self.files:
            digest.update(f"{file.digest}{file.keys or ''}".encode())
        return digest.hexdigest()

    def check_files_unchanged(self) -> None:
        """Raise ValueError if a file was changed.

        Size and time of the last change are compared, and if these differ, what describes the
        content: of Parquet the footer, of a text file its hash.
        """
        map_files(TableFile.check_unchanged, self.files, self.storage_options)

    @cached_property
    def _starts(self) -> Labels:
        lengths = [
            sum(self.files[position].group_rows[i] for position, groups in shard for i in groups)
            for shard in self.shards
        ]
        return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)

    def __repr__(self) -> str:
        n_rows, n_columns = self.shape
        return (
            f"<ShardedTable: {n_rows} rows x {n_columns} columns and the target {self.target!r}, "
            f"in {len(self.files)} files, {self.n_shards} shards>"
        )


def as_table(X: TableLike | ShardedTable) -> Table | ShardedTable:
    """Return a table in shards as it is, and read one in memory."""
    return X if isinstance(X, ShardedTable) else Table.from_data(X, called="X")


def _find_common_schema(
    examined: list[tuple[TableFile, pa.Schema]], target: str, columns: Sequence[str] | None
) -> pa.Schema:
    """Return the columns of all files in order of appearance, with types that fit all."""
    import pyarrow as pa

    names = list(dict.fromkeys(name for _, schema in examined for name in schema.names))
    first, _ = examined[0]
    wanted = _choose_columns(names, first.address, target, columns)
    types = {}
    for name in reversed(wanted):
        _report_lacking(examined, name, is_target=name == target)
        types[name] = _find_type(examined, name)
    if find_kind_of_type(types[target]) == "other":
        raise TypeError(
            f"the target {target!r} must hold strings, numbers, booleans or dates as labels, got "
            f"{types[target]}; give another target, or convert it."
        )
    return pa.schema([(name, types[name]) for name in wanted])


def _report_lacking(
    examined: list[tuple[TableFile, pa.Schema]], name: str, *, is_target: bool
) -> None:
    """Warn of files that lack a column, because a misspelled name looks the same."""
    lacking = [file.address for file, schema in examined if name not in schema.names]
    if lacking and is_target:
        raise ValueError(
            f"all files must have the target {name!r}, got {lacking[0]} without it; add the "
            "column, or leave the file out."
        )
    if lacking:
        warnings.warn(
            f"{len(lacking)} of {len(examined)} files lack the column {name!r}, such as "
            f"{lacking[0]}; its cells there are read as missing values.",
            stacklevel=4,
        )


def _find_type(examined: list[tuple[TableFile, pa.Schema]], name: str) -> pa.DataType:
    import pyarrow as pa

    common = pa.null()
    for file, schema in examined:
        type_ = schema.field(name).type if name in schema.names else pa.null()
        both = find_common_type(common, type_)
        # Text tells nothing of types, and JSON has no dates: they are strings that look like one.
        is_json = file.kind == "jsonl" and {str(common), str(type_)} == _JSON_STRINGS
        if both is None and not is_json and file.kind != "csv":
            raise ValueError(
                f"{file.address} holds {type_} in column {name!r}, but files before it "
                f"hold {common}; write all files with the same types."
            )
        common = pa.string() if both is None else both
    return common


def _choose_columns(
    names: list[str], address: str, target: str, columns: Sequence[str] | None
) -> list[str]:
    if isinstance(columns, str):
        raise TypeError(f"columns must be a list of names, got the string {columns!r}.")
    chosen = [name for name in names if name != target] if columns is None else list(columns)
    wanted = [*chosen, target]
    check_columns([target], names, called="target", of=address)
    check_columns(chosen, names, called="columns", of=address)
    for name in wanted:
        if wanted.count(name) > 1:
            raise ValueError(
                f"columns must be unique, and the target not among them, got {name!r} twice."
            )
    if not chosen:
        raise ValueError(
            f"{address} has no column besides the target {target!r}; give other files."
        )
    return wanted


def _divide(
    files: Sequence[TableFile], n_rows: int, n_shards: int | None
) -> tuple[tuple[tuple[int, range], ...], ...]:
    """Assign row groups, in order, to shards; without a number, each file has its own."""
    shards: dict[Any, dict[int, range]] = {}
    start = 0
    for position, file in enumerate(files):
        start_of_file = start
        for group, length in enumerate(file.group_rows):
            if length:
                # A group belongs to the shard of its middle row.
                middle = start + length // 2
                of_file = position, (middle - start_of_file) // _MAX_ROWS
                key = of_file if n_shards is None else middle * n_shards // n_rows
                groups = shards.setdefault(key, {})
                groups[position] = range(groups.get(position, range(group, 0)).start, group + 1)
            start += length
    return tuple(tuple(groups.items()) for groups in shards.values())
