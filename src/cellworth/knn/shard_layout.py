"""Layout of a sharded table: column types, scales and codes that all shards share."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, get_args

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import ColumnTypes, Integers, Kind, Scale
from cellworth.data.arrow import NO_TIME, READERS, Coder, Encoding, choose_encoding
from cellworth.data.problem import Problem
from cellworth.data.sharded_table import ShardedTable
from cellworth.data.statistics import CategorySummary, NumberSummarizer, NumberSummary
from cellworth.data.tables import LARGEST_EXACT, Table, TableLike, VectorLike
from cellworth.knn.columns import (
    CategoricalColumn,
    NumericColumn,
    categorical_column,
    check_column_types,
    check_time_zones,
    encode_cells,
    find_time_zones,
    infer_column_type,
    list_cells,
    numeric_column,
    to_comparable_floats,
)
from cellworth.knn.distances import Columns, ColumnScales, fine_scales, stack_columns

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_CATEGORIES = 10**6
_NO_CATEGORIES = "so that it names rows rather than describing them; leave it out with columns=."
_MOST_LABELS = 2**16
_NO_LABELS = "but rank bins are for class labels; group its cells into classes."


class ColumnLayout(NamedTuple):
    """How one column is read.

    Parameters
    ----------
    name : str
    sort : {"floats", "times", "parsed", "codes", "missing"}
        How its cells are read; "missing" where no training row has a known one.
    first : int
        Microseconds that moments are counted from.
    values : list
        Categories in the order of their codes.
    """

    name: str
    sort: Encoding | Literal["missing"]
    first: int
    values: list[Any]


class Queries(NamedTuple):
    """Validation rows as kernels read them.

    Parameters
    ----------
    columns : Columns
    labels : array of shape (n_queries,)
        Codes of their classes.
    target : array of shape (n_queries,)
        Their labels as they were given.
    table : Table
        Their raw cells, columns in the order of the sharded table.
    """

    columns: Columns
    labels: Integers
    target: NDArray[Any]
    table: Table


@dataclass(frozen=True, eq=False)
class TableSummary:
    """Summary of some shards of a table; those of all shards merge into that of the table.

    Parameters
    ----------
    columns : tuple of Numbers or Categories
        One for each column of the table.
    labels : Categories
        Labels of the rows.
    unlabelled : int or None
        Number of the first row without a label.
    digests : dict
        Hash of the cells of each shard, by its number.
    """

    columns: tuple[NumberSummary | CategorySummary, ...]
    labels: CategorySummary
    unlabelled: int | None
    digests: dict[int, str]

    def merge(self, other: TableSummary) -> TableSummary:
        """Summary of the shards of both; none may be in both."""
        twice = self.digests.keys() & other.digests.keys()
        if twice:
            raise ValueError(f"shard {min(twice)} is in both summaries; merge each shard once.")
        rows = [row for row in (self.unlabelled, other.unlabelled) if row is not None]
        return TableSummary(
            tuple(map(_merge_columns, self.columns, other.columns)),
            self.labels.merge(other.labels),
            min(rows, default=None),
            self.digests | other.digests,
        )

    def sha256(self, table: ShardedTable) -> str:
        """Hash of names, types and cells of a table.

        It depends on how rows are cut into shards, and not on how files are compressed or cut into
        row groups. Numbers are what they are worth: 1 and 1.0 are the same.
        """
        digest = hashlib.sha256()
        for name, type_ in zip(table.schema.names, table.schema.types, strict=True):
            digest.update(f"{name}\0{type_}\0".encode())
        for shard in sorted(self.digests):
            digest.update(f"{shard}:{self.digests[shard]};".encode())
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Layout:
    """How raw cells become arrays: the same for all shards, and small enough to travel.

    Parameters
    ----------
    scales : Rulers
        What differences count, in the fine unit (:func:`fine_scales`).
    numeric, categorical : tuple of ColumnLayout
        Columns in the order of the rulers.
    classes : list
        Class labels in sorted order.
    class_counts : list of int
        Training rows of each class.
    dtype : numpy.dtype
        float32 if all numbers of training rows survive it, else float64.
    target : str
    """

    scales: ColumnScales
    numeric: tuple[ColumnLayout, ...]
    categorical: tuple[ColumnLayout, ...]
    classes: list[Any]
    class_counts: list[int]
    dtype: np.dtype[Any]
    target: str

    @property
    def n_rows(self) -> int:
        """Number of training rows, of all shards together."""
        return sum(self.class_counts)

    @classmethod
    def of(
        cls,
        table: ShardedTable,
        summary: TableSummary,
        X_val: TableLike,
        y_val: VectorLike,
        *,
        column_types: ColumnTypes | None = None,
        scale: Scale = "robust",
        classification: bool | None = None,
    ) -> tuple[Layout, Queries]:
        """Decide on a layout, and read the validation rows by it.

        Parameters
        ----------
        table : ShardedTable
        summary : TableSummary
            Of all its shards, with the same ``column_types``.
        X_val, y_val
            Validation rows and their labels, in memory.
        column_types, scale
            As in :meth:`cellworth.neighbours.distances.Distances.of`.
        classification : bool, default=None
            True for class labels, however many numbers they are; None to let them tell.
        """
        check_validation_rows(X_val, y_val)
        column_type = check_sharded_types(column_types, table)
        if scale not in (*get_args(get_args(Scale)[0]), None):
            raise ValueError(f"scale is {scale!r}; give 'robust', 'std' or None.")
        missing = set(range(table.n_shards)) - summary.digests.keys()
        if missing:
            raise ValueError(f"the summary lacks shard {min(missing)}; merge those of all shards.")
        shown = _read_labels(table, summary)
        problem, known_classes = _problem(table, list(shown), X_val, y_val, classification)
        asked = problem.folds[0].table
        read = [
            _lay_out(
                table,
                position,
                summary.columns[position],
                asked,
                column_type=column_type.get(name),
                scale=scale,
            )
            for position, name in enumerate(table.names.tolist())
        ]
        columns = [column for column, _ in read]
        classes = [shown[label] for label in known_classes.tolist()]
        narrow = all(
            summary.columns[column.position].narrow  # type: ignore[union-attr]
            for column, layout in read
            if isinstance(column, NumericColumn) and layout.sort != "missing"
        )
        layout = cls(
            fine_scales(columns),
            tuple(lay for column, lay in read if isinstance(column, NumericColumn)),
            tuple(lay for column, lay in read if isinstance(column, CategoricalColumn)),
            classes,
            [summary.labels.counts[label] for label in classes],
            np.dtype(np.float32 if narrow else np.float64),
            table.target,
        )
        target = problem.folds[0].target
        labels = np.searchsorted(known_classes, target).astype(np.int64)
        queries = Queries(stack_columns(columns, 0, asked.shape[0]), labels, target, asked)
        return layout, queries

    def sha256(self) -> str:
        """Hash of everything that decides what a shard's arrays hold."""
        return self._sha256

    @cached_property
    def _sha256(self) -> str:
        digest = hashlib.sha256()
        for part in self.scales:
            digest.update(np.asarray(part).tobytes())
        parts = self.numeric, self.categorical, self.classes, self.class_counts, self.dtype.str
        digest.update(repr((*parts, self.target)).encode())
        return digest.hexdigest()


def check_validation_rows(X_val: TableLike, y_val: VectorLike) -> None:
    """Refuse a table in shards without validation rows, before any shard is read."""
    if X_val is None or y_val is None:
        raise ValueError(
            "a ShardedTable is scored on validation rows in memory; give X_val and y_val."
        )


def _read_labels(table: ShardedTable, summary: TableSummary) -> dict[Any, Any]:
    """Labels as users call them, and as they are read: days are midnights there."""
    from pyarrow import types

    if summary.labels.n_missing:
        raise ValueError(
            f"{summary.labels.n_missing} rows have no label in {table.target!r}, the first of them "
            f"{table.where(summary.unlabelled or 0)}; drop the rows without a label."
        )
    labels = summary.labels.values
    if len(labels) < 2:
        raise ValueError(
            f"the target {table.target!r} holds one class only ({labels[0]!r}); rows can be scored "
            "only where at least two classes occur."
        )
    for label in labels:
        if isinstance(label, str) and label.endswith("\0"):
            raise ValueError(
                f"the target {table.target!r} holds {label!r}, but NumPy drops zero characters at "
                "the end of text; take them off."
            )
    is_day = types.is_date(table.schema.field(table.target).type)
    return {label.date() if is_day else label: label for label in labels}


def _problem(
    table: ShardedTable,
    labels: list[Any],
    X_val: TableLike,
    y_val: VectorLike,
    classification: bool | None,
) -> tuple[Problem, NDArray[Any]]:
    """Check labels and validation rows as for a table in memory, with a few rows of each class."""
    import pyarrow as pa

    # Three rows of each class, because as many classes as rows would look like a numeric target.
    nothing = pa.nulls(3 * len(labels))
    rows = pa.table(dict.fromkeys(table.names.tolist(), nothing))
    problem = Problem.from_data(
        rows, labels * 3, X_val, y_val, classification=classification, allow_one_class=True
    )
    if problem.classes is None:
        raise ValueError(
            f"the target {table.target!r} holds {len(labels)} different numbers such as "
            f"{labels[0]!r}, so that it is numeric, but rank bins are for class labels; group its "
            "numbers into classes, or pass scoring='neighbor_agreement' if they are classes."
        )
    return problem, problem.classes


def _lay_out(
    table: ShardedTable,
    position: int,
    summary: NumberSummary | CategorySummary,
    asked: Table,
    *,
    column_type: Kind | None,
    scale: Scale,
) -> tuple[NumericColumn | CategoricalColumn, ColumnLayout]:
    name = table.names.tolist()[position]
    type_ = table.schema.field(name).type
    sort = choose_encoding(type_, column_type, name)
    own: Kind | None = "categorical" if sort == "codes" else "numeric"
    cells = asked.column(position)
    kind = column_type or infer_column_type(
        [asked.dtype(position)], [cells], name, beside=own if summary.count else None
    )
    if kind == "categorical":
        values = summary.values if isinstance(summary, CategorySummary) else []
        counts = [summary.counts[v] for v in values] if isinstance(summary, CategorySummary) else []
        codes = encode_cells({value: i for i, value in enumerate(values)}, list_cells(cells, name))
        layout = ColumnLayout(name, "codes" if values else "missing", 0, values)
        return categorical_column(position, [codes], counts), layout
    numbers = (
        summary if isinstance(summary, NumberSummary) else NumberSummary.from_cells(np.empty(0))
    )
    _check_size(cells, type_, name)
    check_time_zones(_time_zones(type_) | find_time_zones(asked.dtype(position), cells), name)
    floats, _ = to_comparable_floats([_training_ends(numbers, type_), cells], name)
    first = int(numbers.ends[0]) if numbers.integral else 0
    layout = ColumnLayout(name, sort if numbers.count else "missing", first, [])
    return numeric_column(position, floats[1:], numbers, scale, name), layout


def _time_zones(type_: Any) -> set[bool]:
    from pyarrow import types

    return {type_.tz is not None} if types.is_timestamp(type_) else set()


def _training_ends(numbers: NumberSummary, type_: Any) -> NDArray[Any]:
    """Known cells that stand for all training rows where queries are compared with them."""
    from pyarrow import types

    if not numbers.count:
        return np.array([np.nan])
    if numbers.integral:
        unit = "m8[us]" if types.is_duration(type_) else "M8[us]"
        return np.array(numbers.ends, dtype=np.int64).view(unit)
    return np.array(numbers.ends, dtype=np.float64)


def _check_size(cells: NDArray[Any], type_: Any, name: str) -> None:
    from pyarrow import types

    if not types.is_integer(type_) or cells.dtype.kind not in "iu":
        return
    if max(-int(cells.min()), int(cells.max())) > LARGEST_EXACT:
        raise ValueError(
            f"column {name!r} of X_val holds integers beyond 2**53, which are not exact as "
            "floats; leave the column out of both tables."
        )


def summarize_shard(
    table: ShardedTable, shard: int, column_types: ColumnTypes | None = None
) -> TableSummary:
    """Read one shard once, batch by batch."""
    column_type = check_sharded_types(column_types, table)
    types = dict(zip(table.schema.names, table.schema.types, strict=True))
    names = table.names.tolist()
    columns = [
        _make_summarizer(name, choose_encoding(types[name], column_type.get(name), name))
        for name in names
    ]
    labels = _CategorySummarizer(table.target, _MOST_LABELS, _NO_LABELS)
    unlabelled = None
    first = table.rows(shard).start
    for *cells, targets in table.batches(shard, [*names, table.target]):
        for column, array in zip(columns, cells, strict=True):
            column.add(array, first)
        missing = labels.add(targets, first)
        unlabelled = missing if unlabelled is None else unlabelled
        first += len(targets)
    digest = hashlib.sha256("".join(c.digest() for c in (*columns, labels)).encode())
    return TableSummary(
        tuple(column.summary() for column in columns),
        labels.summary(),
        unlabelled,
        {shard: digest.hexdigest()},
    )


def check_sharded_types(column_types: ColumnTypes | None, table: ShardedTable) -> dict[Any, Kind]:
    """Kinds that the user gives; a distance of one's own is refused."""
    column_type = check_column_types(column_types, table.names)
    for name, kind in column_type.items():
        if callable(kind):
            raise ValueError(
                f"column_types has a function for column {name!r}, which would need the distances "
                "of all its cells at once; for a ShardedTable give 'numeric' or 'categorical'."
            )
    return cast("dict[Any, Kind]", column_type)


class _NumberSummarizer:
    def __init__(self, name: str, sort: Encoding) -> None:
        self._name, self._read = name, READERS[sort]
        self._integral = sort == "times"
        self._gathering = NumberSummarizer(integral=self._integral)
        self._digest = hashlib.sha256(sort.encode())

    def add(self, array: pa.Array, _first: int) -> None:
        cells = self._read(array, self._name)
        if self._integral:
            known = cells[cells != NO_TIME]
            self._gathering.add_missing(len(cells) - len(known))
        else:
            # Adding 0.0 turns -0.0 into 0.0; every NaN becomes the same one.
            cells += 0.0
            cells[np.isnan(cells)] = np.nan
            known = cells
        self._gathering.add(known)
        self._digest.update(_plain(cells))

    def digest(self) -> str:
        return self._digest.hexdigest()

    def summary(self) -> NumberSummary:
        return self._gathering.summary()


class _CategorySummarizer:
    def __init__(self, name: str, most: int, advice: str) -> None:
        self._name, self._coder = name, Coder({}, most, advice)
        self._counts = np.zeros(1, dtype=np.int64)
        self._firsts: list[int] = []
        self._digest = hashlib.sha256(b"codes")

    def add(self, array: pa.Array, first: int) -> int | None:
        """Count cells; return the position of the first missing one."""
        codes, new = self._coder.read(array, self._name)
        self._firsts += (first + new).tolist()
        # The first entry counts missing values, whose code is -1.
        counts = np.bincount(codes + 1, minlength=len(self._coder.codes) + 1)
        counts[: len(self._counts)] += self._counts
        gapless = counts[0] == self._counts[0]
        self._counts = counts
        self._digest.update(_plain(codes))
        return None if gapless else first + int(np.flatnonzero(codes < 0)[0])

    def digest(self) -> str:
        values = self._digest.copy()
        for value in self._coder.codes:
            # The length in front keeps ("ab", "c") apart from ("a", "bc").
            text = repr(value).encode()
            values.update(len(text).to_bytes(8, "little") + text)
        return values.hexdigest()

    def summary(self) -> CategorySummary:
        n_missing, *counts = self._counts.tolist()
        values = list(self._coder.codes)
        return CategorySummary(
            dict(zip(values, counts, strict=True)),
            dict(zip(values, self._firsts, strict=True)),
            n_missing,
        )


def _merge_columns(
    one: NumberSummary | CategorySummary, other: NumberSummary | CategorySummary
) -> NumberSummary | CategorySummary:
    if isinstance(one, NumberSummary) and isinstance(other, NumberSummary):
        return one.merge(other)
    if isinstance(one, CategorySummary) and isinstance(other, CategorySummary):
        both = one.merge(other)
        if len(both.counts) > _MOST_CATEGORIES:
            raise ValueError(
                f"a column has more than {_MOST_CATEGORIES} different cells such as "
                f"{next(iter(both.counts))!r}, {_NO_CATEGORIES}"
            )
        return both
    raise ValueError(
        "the summaries are of columns of different kinds; give both the same column_types."
    )


def _make_summarizer(name: str, sort: Encoding) -> _NumberSummarizer | _CategorySummarizer:
    if sort == "codes":
        return _CategorySummarizer(name, _MOST_CATEGORIES, _NO_CATEGORIES)
    return _NumberSummarizer(name, sort)


def _plain(cells: NDArray[Any]) -> bytes:
    return cells.astype(cells.dtype.newbyteorder("<"), copy=False).tobytes()
