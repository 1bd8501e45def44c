"""ShardedTable: a table in Parquet files that is read shard by shard and never held as a whole."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from cellworth.blocks import label_array, some
from cellworth.counts import Labels, checked_count, is_whole
from cellworth.sharded.cells import refuse_no_labels
from cellworth.sharded.reading import (
    Address,
    ParquetFile,
    batches,
    find_files,
    read_footer,
    refuse_changed,
)

if TYPE_CHECKING:
    import pyarrow as pa

# Rows from which a file is cut into several shards, where its row groups allow it.
_MOST_ROWS = 2**20
# Rows are counted in 32 bits.
_TOO_MANY_ROWS = 2**32


@dataclass(frozen=True, eq=False, repr=False)
class ShardedTable:
    """A table in Parquet files, cut into shards of rows; made by ``from_parquet``.

    ``KNNValuer().fit(table, X_val=..., y_val=...)`` values it; its target must hold classes. It
    knows where its cells are and holds none of them, so that it is small and can be sent to other
    machines, which read their shards themselves. Rows are numbered from 0 in the order of files and
    of rows in them. However it is cut into shards, its values are the same.

    Parameters
    ----------
    files : tuple of ParquetFile
    schema : pyarrow.Schema
        Names and types of the columns, the target last.
    shards : tuple
        For each shard, the row groups that it has in each of its files: pairs of the position of a
        file and a range.
    storage_options : dict
        What is handed to fsspec, such as keys.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import pyarrow as pa, pyarrow.parquet as pq
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for part in range(3):
    ...     rows = pa.table({"age": [20 + part, 30], "town": ["Ulm", None], "rich": [True, False]})
    ...     pq.write_table(rows, folder / f"{part}.parquet")
    >>> table = ShardedTable.from_parquet(folder, target="rich")
    >>> table
    <ShardedTable: 6 rows x 2 columns and the target 'rich', in 3 files, 3 shards>
    >>> table.names.tolist()
    ['age', 'town']
    >>> from cellworth import KNNValuer
    >>> judges = {"X_val": pa.table({"age": [21], "town": ["Ulm"]}), "y_val": [True]}
    >>> KNNValuer(n_neighbors=1).fit(table, **judges).valuation_.shape
    (6, 2)
    """

    files: tuple[ParquetFile, ...]
    schema: pa.Schema
    shards: tuple[tuple[tuple[int, range], ...], ...]
    storage_options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_parquet(
        cls,
        address: Address | Sequence[Address],
        *,
        target: str,
        columns: Sequence[str] | None = None,
        shards: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> ShardedTable:
        """Find files and read their footers, none of their cells.

        Parameters
        ----------
        address : path, or list of paths
            A file, or a folder with all ``*.parquet`` files in it and below it, sorted by path. An
            address such as ``s3://...`` is read with fsspec (``pip install 'cellworth[remote]'``).
        target : str
            The column that holds the class labels.
        columns : list of str, default=None
            Columns that play, in this order; all but the target where it is None.
        shards : int, default=None
            Into how many shards the row groups of all files are dealt, in order, each of about the
            same number of rows. None makes a shard of every file; a file of more than 1,048,576
            rows is cut into as few shards of at most so many rows as its row groups allow.
        storage_options : mapping, default=None
            What fsspec needs to open the address, such as keys.
        """
        options = dict(storage_options or {})
        read = [read_footer(found, options) for found in find_files(address, options)]
        files = tuple(file for file, _ in read)
        schema = _common_schema(read, target, columns)
        n_rows = sum(file.n_rows for file in files)
        if n_rows >= _TOO_MANY_ROWS:
            raise ValueError(
                f"the files hold {n_rows} rows, but fewer than {_TOO_MANY_ROWS} can be valued at a "
                "time; give some of the files."
            )
        if not n_rows:
            raise ValueError(f"{files[0].address} and all other files hold no row; give others.")
        dealt = (
            _by_file(files) if shards is None else _dealt(files, checked_count(shards, "shards"))
        )
        return cls(files, schema, dealt, options)

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
        """Numbers of a shard's rows in the whole table."""
        if not is_whole(shard) or not 0 <= shard < self.n_shards:
            raise IndexError(
                f"shard is {shard!r}; give one of the {self.n_shards} shards, from 0 to "
                f"{self.n_shards - 1}."
            )
        return range(int(self._starts[shard]), int(self._starts[shard + 1]))

    def batches(self, shard: int, names: Sequence[str]) -> Iterator[list[Any]]:
        """Columns of a shard as Arrow arrays, a batch of some 65,536 rows after the other."""
        from pyarrow import types

        kinds = {name: self.schema.field(name).type for name in names}
        coded = [n for n, t in kinds.items() if types.is_string(t) or types.is_large_string(t)]
        for place, groups in self.shards[shard]:
            file = self.files[place]
            yield from batches(file, groups, list(names), self.storage_options, coded)

    def where(self, row: int) -> str:
        """File and position in it of a row, for a sentence."""
        _checked_places([row], self.shape[0])
        for file in self.files:
            if row < file.n_rows:
                break
            row -= file.n_rows
        return f"row {row} of {file.address}"

    def take(self, rows: Any) -> Any:
        """Read some rows, in the order in which they are named, with the target as last column.

        Only the row groups that hold them are read, one after the other.

        Parameters
        ----------
        rows : list or array of whole numbers
            Positions in the whole table, from 0; such as those that a Valuation's lists name.

        Returns
        -------
        pyarrow.Table

        Examples
        --------
        >>> import pathlib, tempfile
        >>> import pyarrow as pa, pyarrow.parquet as pq
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> for part in range(3):
        ...     rows = pa.table({"age": [20 + part, 30], "rich": [True, False]})
        ...     pq.write_table(rows, folder / f"{part}.parquet")
        >>> table = ShardedTable.from_parquet(folder, target="rich")
        >>> table.take([4, 1]).to_pydict()
        {'age': [22, 30], 'rich': [True, False]}

        Rows of the lowest cells of a valuation:

        >>> from cellworth import KNNValuer
        >>> judges = {"X_val": pa.table({"age": [21]}), "y_val": [True]}
        >>> valuation = KNNValuer(n_neighbors=1).fit(table, **judges).valuation_
        >>> table.take(valuation.lowest(2).labels["row"]).num_rows
        2
        """
        import pyarrow as pa

        places = _checked_places(rows, self.shape[0])
        order = np.argsort(places, kind="stable")
        parts = [_decoded(self.schema).empty_table(), *self._taken(places[order])]
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_tables(parts).take(back)

    def _taken(self, places: Labels) -> Iterator[pa.Table]:
        """Rows at sorted positions, row group by row group."""
        first = 0
        for file in self.files:
            for group, n_rows in enumerate(file.group_rows):
                begin, end = np.searchsorted(places, [first, first + n_rows])
                if begin < end:
                    yield from self._of_group(file, group, places[begin:end] - first)
                first += n_rows

    def _of_group(self, file: ParquetFile, group: int, places: Labels) -> Iterator[pa.Table]:
        """Rows at sorted positions of one row group, batch by batch."""
        import pyarrow as pa

        schema, first = _decoded(self.schema), 0
        groups = range(group, group + 1)
        for part in batches(file, groups, schema.names, self.storage_options, []):
            begin, end = np.searchsorted(places, [first, first + len(part[0])])
            if begin < end:
                here = pa.table(part, names=schema.names).take(places[begin:end] - first)
                yield here.cast(schema)
            first += len(part[0])

    def footers_sha256(self) -> str:
        """Fingerprint of all footers and of how rows are cut; other files have another one."""
        digest = hashlib.sha256(repr(self.shards).encode())
        for name, type_ in zip(self.schema.names, self.schema.types, strict=True):
            digest.update(f"{name}\0{type_}\0".encode())
        for file in self.files:
            digest.update(file.footer.encode())
        return digest.hexdigest()

    def refuse_changed_files(self) -> None:
        """Read all footers anew, and refuse files that are not those of before."""
        for file in self.files:
            refuse_changed(file, self.storage_options)

    @cached_property
    def _starts(self) -> Labels:
        lengths = [
            sum(self.files[place].group_rows[i] for place, groups in shard for i in groups)
            for shard in self.shards
        ]
        return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)

    def __repr__(self) -> str:
        n_rows, n_columns = self.shape
        return (
            f"<ShardedTable: {n_rows} rows x {n_columns} columns and the target {self.target!r}, "
            f"in {len(self.files)} files, {self.n_shards} shards>"
        )


def _checked_places(rows: Any, n_rows: int) -> Labels:
    """Positions of rows; others than those of the table are refused."""
    places = np.asarray(rows)
    if places.shape == (0,):
        return places.astype(np.int64)
    if places.ndim != 1 or places.dtype.kind not in "iu":
        raise TypeError(f"rows is {rows!r}; give a list of whole numbers, the positions of rows.")
    outside = places[(places < 0) | (places >= n_rows)]
    if len(outside):
        raise IndexError(
            f"row {outside[0]} is none of the table's {n_rows:,} rows; give positions from 0 to "
            f"{n_rows - 1}."
        )
    return places.astype(np.int64)


def _decoded(schema: pa.Schema) -> pa.Schema:
    """The same with plain columns in place of dictionaries, which differ from file to file."""
    import pyarrow as pa
    from pyarrow import types

    return pa.schema(
        [
            (name, type_.value_type if types.is_dictionary(type_) else type_)
            for name, type_ in zip(schema.names, schema.types, strict=True)
        ]
    )


def _common_schema(
    read: list[tuple[ParquetFile, pa.Schema]], target: str, columns: Sequence[str] | None
) -> pa.Schema:
    import pyarrow as pa

    (first, schema), *others = read
    wanted = _wanted(schema.names, first.address, target, columns)
    types = {name: schema.field(name).type for name in wanted}
    for file, other in others:
        for name in wanted:
            if name not in other.names:
                raise ValueError(
                    f"{file.address} lacks the column {name!r} that {first.address} has; give all "
                    "files the same columns, or choose some with columns=."
                )
            types[name] = _agreed(types[name], other.field(name).type, name, file.address)
        extra = set(other.names) - set(schema.names)
        if columns is None and extra:
            raise ValueError(
                f"{file.address} has the column {min(extra)!r} that {first.address} lacks; give "
                "all files the same columns, or choose some with columns=."
            )
    refuse_no_labels(types[target], target)
    return pa.schema([(name, types[name]) for name in wanted])


def _wanted(
    names: list[str], address: str, target: str, columns: Sequence[str] | None
) -> list[str]:
    if isinstance(columns, str):
        raise TypeError(f"columns is the text {columns!r}; give a list of names.")
    chosen = [name for name in names if name != target] if columns is None else list(columns)
    for called, name in [("target", target), *(("columns", name) for name in chosen)]:
        if name not in names:
            raise ValueError(
                f"{called} names {name!r}, which is no column of {address}; its columns are "
                f"{some(names)}."
            )
    wanted = [*chosen, target]
    for name in wanted:
        if names.count(name) > 1 or wanted.count(name) > 1:
            raise ValueError(
                f"the column {name!r} is there, or asked for, twice; each column must have a name "
                "of its own, and the target is none of the columns."
            )
    if not chosen:
        raise ValueError(f"{address} has no column besides the target {target!r}; give others.")
    return wanted


def _agreed(one: pa.DataType, other: pa.DataType, name: str, address: str) -> pa.DataType:
    """Type of a column in all files; one that holds gaps alone goes with any."""
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


def _by_file(files: Sequence[ParquetFile]) -> tuple[tuple[tuple[int, range], ...], ...]:
    """Make a shard of every file that has rows, and several of a long one."""
    shards = []
    for place, file in enumerate(files):
        start, length = 0, 0
        for group, n_rows in enumerate(file.group_rows):
            if length and length + n_rows > _MOST_ROWS:
                shards.append(((place, range(start, group)),))
                start, length = group, 0
            length += n_rows
        if length:
            shards.append(((place, range(start, len(file.group_rows))),))
    return tuple(shards)


def _dealt(
    files: Sequence[ParquetFile], n_shards: int
) -> tuple[tuple[tuple[int, range], ...], ...]:
    """Deal row groups, in order, into shards of about the same number of rows."""
    groups = [
        (place, group, n_rows)
        for place, file in enumerate(files)
        for group, n_rows in enumerate(file.group_rows)
        if n_rows
    ]
    if len(groups) < n_shards:
        raise ValueError(
            f"shards is {n_shards}, but the files have {len(groups)} row groups, which are not "
            "cut; ask for fewer shards, or write smaller row groups."
        )
    # A group goes where its middle is, but no shard may be left without one.
    ends = np.cumsum([n_rows for *_, n_rows in groups])
    middles = ends - np.array([n_rows for *_, n_rows in groups]) / 2
    dealt = np.floor(middles / ends[-1] * n_shards).astype(int).tolist()
    shards: list[list[tuple[int, int]]] = [[] for _ in range(n_shards)]
    shard = 0
    for left, (wish, (place, group, _)) in enumerate(zip(dealt, groups, strict=True)):
        most = shard + 1 if shards[shard] else shard
        least = n_shards - (len(groups) - left)
        shard = max(min(wish, most), least, shard)
        shards[shard].append((place, group))
    return tuple(_ranges(shard) for shard in shards)


def _ranges(groups: list[tuple[int, int]]) -> tuple[tuple[int, range], ...]:
    """Row groups of one shard, file by file."""
    places = dict.fromkeys(place for place, _ in groups)
    return tuple(
        (place, range(own[0], own[-1] + 1))
        for place in places
        for own in [[group for other, group in groups if other == place]]
    )
