"""ShardedTable: a table in Parquet files, described by their footers and read in batches."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np
from numpy.typing import ArrayLike

from cellworth.data.arguments import Labels, check_count, is_integer
from cellworth.data.arrow import check_has_labels
from cellworth.data.blocks import label_array, some
from cellworth.data.io import is_address

if TYPE_CHECKING:
    import pyarrow as pa

# Rows from which a file is cut into several shards, where its row groups allow it.
_MOST_ROWS = 2**20
# Rows are counted in 32 bits.
_TOO_MANY_ROWS = 2**32
Address = str | os.PathLike[str]
Options = Mapping[str, Any]
_SUFFIX = ".parquet"
# Rows that are decoded together: enough to be fast, few enough to be small.
_BATCH = 2**16
_TAIL = 8


@dataclass(frozen=True)
class ParquetFile:
    """One Parquet file, as described by its footer."""

    address: str
    # Rows of each row group.
    group_rows: tuple[int, ...]
    # Hash of the footer, which describes the content of the file, and of its size.
    footer: str

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(self.group_rows)


@dataclass(frozen=True, eq=False, repr=False)
class ShardedTable:
    """A table in Parquet files, divided into shards of rows; made by ``from_files``.

    ``ShardedKNNValuer().fit(table, X_val=..., y_val=...)`` values it; its target must hold classes.
    The object holds no cells: it is small, and workers on other machines read their shards
    themselves. Rows are numbered from 0, file by file. Values do not depend on the division into
    shards.

    Parameters
    ----------
    files : tuple of ParquetFile
    schema : pyarrow.Schema
        Names and types of the columns, the target last.
    shards : tuple
        For each shard, pairs of the position of a file and a range of its row groups.
    storage_options : dict
        Options of fsspec, such as keys.

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

    files: tuple[ParquetFile, ...]
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
        storage_options: Mapping[str, Any] | None = None,
    ) -> ShardedTable:
        """Find files and read their footers, but none of their cells.

        Parameters
        ----------
        address : path, or list of paths
            A file, or a folder, which stands for all ``*.parquet`` files below it, sorted by path.
            An address such as ``s3://...`` needs fsspec (``pip install 'cellworth[remote]'``).
        target : str
            Name of the column of class labels.
        columns : list of str, default=None
            Columns that are valued, in this order; None means all but the target.
        shards : int, default=None
            Number of shards. Row groups of all files are assigned in order, to shards of about the
            same number of rows. None means one shard per file; a file of more than 1,048,576 rows
            is divided into shards of at most that many rows, as far as its row groups allow.
        storage_options : mapping, default=None
            Options of fsspec to open the address, such as keys.
        """
        options = dict(storage_options or {})
        read = [read_footer(found, options) for found in find_files(address, options)]
        files = tuple(file for file, _ in read)
        schema = _find_common_schema(read, target, columns)
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
        if shards is None:
            return cls(files, schema, _make_shards_by_file(files), options)
        return cls(files, schema, _deal_groups(files, check_count(shards, "shards")), options)

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

    def batches(self, shard: int, names: Sequence[str]) -> Iterator[list[Any]]:
        """Yield the columns of a shard as Arrow arrays, in batches of about 65,536 rows."""
        from pyarrow import types

        column_types = {name: self.schema.field(name).type for name in names}
        coded = [
            n for n, t in column_types.items() if types.is_string(t) or types.is_large_string(t)
        ]
        for position, groups in self.shards[shard]:
            file = self.files[position]
            yield from batches(file, groups, list(names), self.storage_options, coded)

    def where(self, row: int) -> str:
        """Return the file of a row and its position there, for messages."""
        _check_row_positions([row], self.shape[0])
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

        positions = _check_row_positions(rows, self.shape[0])
        order = np.argsort(positions, kind="stable")
        nothing = _decode_dictionaries(self.schema).empty_table()
        found = pa.concat_tables([nothing, *self._read_positions(positions[order])])
        return found.take(np.argsort(order, kind="stable"))

    def _read_positions(self, positions: Labels) -> Iterator[pa.Table]:
        """Yield the rows at sorted positions, row group by row group."""
        first = 0
        for file in self.files:
            for group, n_rows in enumerate(file.group_rows):
                begin, end = np.searchsorted(positions, [first, first + n_rows])
                if begin < end:
                    yield from self._read_group(file, group, positions[begin:end] - first)
                first += n_rows

    def _read_group(self, file: ParquetFile, group: int, positions: Labels) -> Iterator[pa.Table]:
        """Yield the rows at sorted positions of one row group, batch by batch."""
        import pyarrow as pa

        schema, first = _decode_dictionaries(self.schema), 0
        groups = range(group, group + 1)
        for part in batches(file, groups, schema.names, self.storage_options, []):
            begin, end = np.searchsorted(positions, [first, first + len(part[0])])
            if begin < end:
                here = pa.table(part, names=schema.names).take(positions[begin:end] - first)
                yield here.cast(schema)
            first += len(part[0])

    def files_sha256(self) -> str:
        """Return the hash of all footers and of the division into shards."""
        digest = hashlib.sha256(repr(self.shards).encode())
        for name, type_ in zip(self.schema.names, self.schema.types, strict=True):
            digest.update(f"{name}\0{type_}\0".encode())
        for file in self.files:
            digest.update(file.footer.encode())
        return digest.hexdigest()

    def check_files_unchanged(self) -> None:
        """Read all footers again, and raise ValueError if a file was changed."""
        for file in self.files:
            with _open_bytes(file.address, self.storage_options) as seen:
                _check_footer(file, seen)

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


def _check_row_positions(rows: Any, n_rows: int) -> Labels:
    """Return positions of rows; check that the table has them."""
    positions = np.asarray(rows)
    if positions.shape == (0,):
        return positions.astype(np.int64)
    if positions.ndim != 1 or positions.dtype.kind not in "iu":
        raise TypeError(f"rows must be a list of integers, the positions of rows, got {rows!r}.")
    outside = positions[(positions < 0) | (positions >= n_rows)]
    if len(outside):
        raise IndexError(f"rows must be positions from 0 to {n_rows - 1}, got {outside[0]}.")
    return positions.astype(np.int64)


def _decode_dictionaries(schema: pa.Schema) -> pa.Schema:
    """Replace dictionary types by plain types; dictionaries differ between files."""
    import pyarrow as pa
    from pyarrow import types

    plain = (type_.value_type if types.is_dictionary(type_) else type_ for type_ in schema.types)
    return pa.schema(list(zip(schema.names, plain, strict=True)))


def _find_common_schema(
    read: list[tuple[ParquetFile, pa.Schema]], target: str, columns: Sequence[str] | None
) -> pa.Schema:
    import pyarrow as pa

    (first, schema), *others = read
    wanted = _choose_columns(schema.names, first.address, target, columns)
    types = {name: schema.field(name).type for name in wanted}
    for file, other in others:
        for name in wanted:
            if name not in other.names:
                raise ValueError(
                    f"{file.address} lacks the column {name!r} that {first.address} has; give all "
                    "files the same columns, or choose some with columns=."
                )
            types[name] = _find_common_type(types[name], other.field(name).type, name, file.address)
        extra = set(other.names) - set(schema.names)
        if columns is None and extra:
            raise ValueError(
                f"{file.address} has the column {min(extra)!r} that {first.address} lacks; give "
                "all files the same columns, or choose some with columns=."
            )
    check_has_labels(types[target], target)
    return pa.schema([(name, types[name]) for name in wanted])


def _choose_columns(
    names: list[str], address: str, target: str, columns: Sequence[str] | None
) -> list[str]:
    if isinstance(columns, str):
        raise TypeError(f"columns must be a list of names, got the string {columns!r}.")
    chosen = [name for name in names if name != target] if columns is None else list(columns)
    for called, name in [("target", target), *(("columns", name) for name in chosen)]:
        if name not in names:
            raise ValueError(
                f"{called} must name columns of {address}, got {name!r}; its columns are "
                f"{some(names)}."
            )
    wanted = [*chosen, target]
    for name in wanted:
        if names.count(name) > 1 or wanted.count(name) > 1:
            raise ValueError(
                f"column names must be unique, and the target not among columns, got {name!r} "
                "twice."
            )
    if not chosen:
        raise ValueError(
            f"{address} has no column besides the target {target!r}; give other files."
        )
    return wanted


def _find_common_type(one: pa.DataType, other: pa.DataType, name: str, address: str) -> pa.DataType:
    """Return the type of a column in both files; an all-null column fits any type."""
    from pyarrow import types

    if types.is_null(one) or types.is_null(other):
        return other if types.is_null(one) else one
    both_coded = types.is_dictionary(one) and types.is_dictionary(other)
    if one != other and not (both_coded and one.value_type == other.value_type):
        raise ValueError(
            f"{address} holds {other} in column {name!r}, but files before it hold {one}; write "
            "all files with the same types."
        )
    return one


def _make_shards_by_file(files: Sequence[ParquetFile]) -> tuple[tuple[tuple[int, range], ...], ...]:
    """Return one shard per file that has rows, and several for a long file."""
    shards = []
    for position, file in enumerate(files):
        start, length = 0, 0
        for group, n_rows in enumerate(file.group_rows):
            if length and length + n_rows > _MOST_ROWS:
                shards.append(((position, range(start, group)),))
                start, length = group, 0
            length += n_rows
        if length:
            shards.append(((position, range(start, len(file.group_rows))),))
    return tuple(shards)


def _deal_groups(
    files: Sequence[ParquetFile], n_shards: int
) -> tuple[tuple[tuple[int, range], ...], ...]:
    """Assign row groups, in order, to shards of about the same number of rows."""
    groups = [
        (position, group, n_rows)
        for position, file in enumerate(files)
        for group, n_rows in enumerate(file.group_rows)
        if n_rows
    ]
    if len(groups) < n_shards:
        raise ValueError(
            f"shards must be at most {len(groups)}, the number of row groups, got {n_shards}; give "
            "fewer shards, or write smaller row groups."
        )
    # A group belongs to the shard of its middle row, but no shard may be empty.
    ends = np.cumsum([n_rows for *_, n_rows in groups])
    middles = ends - np.array([n_rows for *_, n_rows in groups]) / 2
    dealt = np.floor(middles / ends[-1] * n_shards).astype(int).tolist()
    shards: list[list[tuple[int, int]]] = [[] for _ in range(n_shards)]
    shard = 0
    for left, (wish, (position, group, _)) in enumerate(zip(dealt, groups, strict=True)):
        most = shard + 1 if shards[shard] else shard
        least = n_shards - (len(groups) - left)
        shard = max(min(wish, most), least, shard)
        shards[shard].append((position, group))
    return tuple(_make_ranges(shard) for shard in shards)


def _make_ranges(groups: list[tuple[int, int]]) -> tuple[tuple[int, range], ...]:
    """Return the row groups of one shard, file by file."""
    ranges: dict[int, range] = {}
    for position, group in groups:
        ranges[position] = range(ranges.get(position, range(group, 0)).start, group + 1)
    return tuple(ranges.items())


def find_files(address: Address | Sequence[Address], options: Options) -> list[str]:
    """Return the addresses of all Parquet files, in order."""
    listed = [os.fspath(each) for each in _list_addresses(address)]
    found = [file for each in listed for file in _find_at(each, options)]
    if not found:
        raise ValueError("address must name at least one Parquet file or folder, got none.")
    if len(set(found)) < len(found):
        twice = next(file for file in found if found.count(file) > 1)
        raise ValueError(f"{twice} is listed twice; give every file once.")
    return found


def read_footer(address: str, options: Options) -> tuple[ParquetFile, pa.Schema]:
    """Read the footer of a file, and none of its cells."""
    with _open_bytes(address, options) as file, _open_parquet(file, address) as parquet:
        metadata = parquet.metadata
        rows = tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
        return ParquetFile(address, rows, _hash_footer(file)), parquet.schema_arrow


def batches(
    file: ParquetFile, groups: range, names: list[str], options: Options, coded: list[str]
) -> Iterator[list[pa.Array]]:
    """Yield the columns of some row groups in batches of rows.

    Strings of the columns ``coded`` are read as dictionaries, which is faster.
    """
    with ExitStack() as stack:
        seen = stack.enter_context(_open_bytes(file.address, options))
        _check_footer(file, seen)
        # Arrow reads local files itself, without holding the GIL.
        source: Any = seen if is_address(file.address) else file.address
        parquet = stack.enter_context(_open_parquet(source, file.address, coded))
        parts = parquet.iter_batches(
            batch_size=_BATCH, row_groups=list(groups), columns=names, use_threads=False
        )
        for part in _iter_checked(parts, file.address):
            yield [part.column(name) for name in names]


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


def _check_footer(file: ParquetFile, seen: BinaryIO) -> None:
    if _hash_footer(seen) != file.footer:
        raise ValueError(
            f"{file.address} was changed since this ShardedTable was created; create it again."
        )


def _open_parquet(source: Any, address: str, coded: Sequence[str] = ()) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(source, pre_buffer=False, read_dictionary=list(coded))
    except pa.ArrowInvalid as error:
        raise ValueError(
            f"{address} cannot be read as Parquet ({error}); write it again, or leave it out."
        ) from error


@contextmanager
def _open_bytes(address: str, options: Options) -> Iterator[BinaryIO]:
    system, path = _open_remote(address, options) if is_address(address) else (None, address)
    with Path(path).open("rb") if system is None else system.open(path, "rb") as file:
        yield file


def _hash_footer(file: BinaryIO) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - _TAIL, 0))
    length = int.from_bytes(file.read(4), "little")
    # A truncated file has no valid length.
    file.seek(max(size - _TAIL - length, 0))
    return hashlib.sha256(size.to_bytes(8, "little") + file.read(length)).hexdigest()


def _open_remote(address: str, options: Options) -> tuple[Any, str]:
    if "://" not in address:
        raise ValueError(
            f"{address} has lost a slash, as in a pathlib.Path; give the address as a string."
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
                "address must be the path of a Parquet file or folder, or a flat list of such "
                f"paths, got {type(address).__name__}."
            )
    return listed


def _find_at(address: str, options: Options) -> list[str]:
    if not is_address(address):
        # The reading process may have another working directory.
        return _find_local(Path(address).absolute())
    system, path = _open_remote(address, options)
    if system.isdir(path):
        below = [found[len(path) :] for found in system.find(path)]
        return [system.unstrip_protocol(path + name) for name in _choose_files(below, address)]
    if not system.exists(path):
        raise FileNotFoundError(f"there is no file or folder {address}; give another address.")
    return [address]


def _find_local(path: Path) -> list[str]:
    if path.is_dir():
        below = [found.relative_to(path).as_posix() for found in path.rglob(f"*{_SUFFIX}")]
        return [str(path / name) for name in _choose_files(below, str(path))]
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}; give another address.")
    return [str(path)]


def _choose_files(below: list[str], folder: str) -> list[str]:
    """Return the Parquet files of a folder, sorted by path, without hidden ones."""
    files = [name for name in below if name.endswith(_SUFFIX) and "/." not in f"/{name}"]
    if not files:
        raise FileNotFoundError(f"{folder} holds no *{_SUFFIX} file; give another folder.")
    for name in files:
        if any("=" in part for part in PurePosixPath(name).parts[:-1]):
            raise ValueError(
                f"{folder} is partitioned by columns ({name}) that are not in its files; write "
                "these columns into the files, or give a list of files to leave them out."
            )
    return sorted(files, key=lambda name: PurePosixPath(name).parts)
