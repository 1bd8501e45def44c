"""Layout of a sharded table: column types, scales and codes that all shards share."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import ColumnType, ColumnTypes, Floats, Integers, Scale
from cellworth.data.arrow import NO_TIME, READERS, Coder, Encoding, choose_encoding
from cellworth.data.problem import Problem
from cellworth.data.sharded_table import ShardedTable
from cellworth.data.tables import MAX_EXACT, Table, TableLike, VectorLike
from cellworth.knn.binned import TargetScale
from cellworth.knn.columns import (
    CategoricalColumn,
    NumericColumn,
    categorical_column,
    check_column_types,
    check_scale,
    check_time_zones,
    encode_cells,
    find_time_zones,
    infer_column_type,
    list_cells,
    numeric_column,
    to_comparable_floats,
)
from cellworth.knn.distances import Columns, ColumnScales, fine_scales, stack_columns
from cellworth.sampling.statistics import AT_ONCE, CategorySummary, NumberSummary

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_CATEGORIES = 10**6
_NO_CATEGORIES = "so that it names rows rather than describing them; leave it out with columns=."
_MAX_LABELS = 2**16
_NO_LABELS = "which are too many classes; group them into fewer, or give a target of numbers."


class ColumnLayout(NamedTuple):
    """How one column is read."""

    name: str
    # Encoding of the cells; "missing" if all training rows are missing.
    sort: Encoding | Literal["missing"]
    first: int  # Microseconds of the first timestamp, to which others are relative
    values: list[Any]  # Categories in the order of their codes


class Queries(NamedTuple):
    """Validation rows."""

    columns: Columns  # Cells as arrays for kernels
    # (n_queries,): codes of classes, or targets minus the mean target of the training rows
    labels: Integers | Floats
    target: NDArray[Any]  # (n_queries,): labels as given
    table: Table  # Raw cells, with columns in the order of the sharded table


@dataclass(frozen=True, eq=False)
class TableSummary:
    """Mergeable summary of some shards of a table."""

    columns: tuple[NumberSummary | CategorySummary, ...]  # One for each column of the table
    # Numbers if there are too many of them to be classes.
    labels: CategorySummary | NumberSummary
    unlabelled: int | None  # Position of the first row without a label
    digests: dict[int, str]  # Hash of each shard's cells, by shard number

    def merge(self, other: TableSummary) -> TableSummary:
        """Return the summary of the shards of both; no shard may be in both."""
        rows = [row for row in (self.unlabelled, other.unlabelled) if row is not None]
        return TableSummary(
            tuple(map(_merge_columns, self.columns, other.columns)),
            _merge_labels(self.labels, other.labels),
            min(rows, default=None),
            self.digests | other.digests,
        )

    def sha256(self, table: ShardedTable) -> str:
        """Return a hash of the names, types and cells of a table.

        It depends on how rows are divided into shards, but not on compression and row groups of
        the files. Equal numbers such as 1 and 1.0 have the same hash.
        """
        digest = hashlib.sha256()
        for name, type_ in zip(table.schema.names, table.schema.types, strict=True):
            digest.update(f"{name}\0{type_}\0".encode())
        for shard in sorted(self.digests):
            digest.update(f"{shard}:{self.digests[shard]};".encode())
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Layout:
    """How raw cells are converted to arrays: the same for all shards, and small enough to send."""

    scales: ColumnScales  # In the fine unit (:func:`fine_scales`)
    # Columns in the order of the scales.
    numeric: tuple[ColumnLayout, ...]
    categorical: tuple[ColumnLayout, ...]
    classes: list[Any]  # Sorted class labels; none for a numeric target
    class_counts: list[int]  # Number of training rows per class, or of all for a numeric target
    dtype: np.dtype[Any]  # float32 if all numbers of training rows are exact in it, else float64
    target: str
    target_scale: TargetScale | None = None  # For a numeric target

    @property
    def n_rows(self) -> int:
        """Number of training rows in all shards."""
        return sum(self.class_counts)

    @classmethod
    def from_summary(
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
        """Determine the layout, and read the validation rows with it.

        The summary is of all shards, with the same ``column_types``. ``classification`` says
        whether labels are classes; None decides by the labels, as for a table in memory.
        """
        import pyarrow as pa

        types = check_sharded_types(column_types, table)
        check_scale(scale)
        stored_labels = _read_labels(table, summary, classification)
        # Labels and validation rows are checked as for a table in memory, with three rows per
        # class: with one, the target would look numeric.
        empty = pa.table(dict.fromkeys(table.names.tolist(), pa.nulls(3 * len(stored_labels))))
        problem = Problem.from_data(
            empty, 3 * list(stored_labels), X_val, y_val, classification=classification,
            allow_one_class=True,
        )  # fmt: skip
        rows = problem.folds[0].table
        read = [
            _lay_out(table, position, summary.columns[position], rows, types.get(name), scale=scale)
            for position, name in enumerate(table.names.tolist())
        ]
        columns = [column for column, _ in read]
        classes, counts, target_scale = _read_target(summary.labels, stored_labels, problem)
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
            counts,
            np.dtype(np.float32 if narrow else np.float64),
            table.target,
            target_scale,
        )
        target = problem.folds[0].target
        labels: Integers | Floats = target
        if target_scale is not None:
            labels = target - target_scale.center
        elif problem.classes is not None:
            labels = np.searchsorted(problem.classes, target).astype(np.int64)
        return layout, Queries(stack_columns(columns, 0, rows.shape[0]), labels, target, rows)

    def sha256(self) -> str:
        """Return a hash of everything that determines a shard's arrays."""
        digest = hashlib.sha256()
        for field in self.scales:
            digest.update(np.asarray(field).tobytes())
        others = self.numeric, self.categorical, self.classes, self.class_counts, self.dtype.str
        digest.update(repr((*others, self.target)).encode())
        digest.update(repr(self.target_scale).encode() if self.target_scale else b"")
        return digest.hexdigest()


def _read_labels(
    table: ShardedTable, summary: TableSummary, classification: bool | None
) -> dict[Any, Any]:
    """Return the labels as users write them, with their stored form: dates become timestamps.

    Of too many numbers, these are the smallest and the largest.
    """
    from pyarrow import types

    if summary.labels.n_missing:
        raise ValueError(
            f"all rows must have a label in {table.target!r}, got {summary.labels.n_missing} "
            f"without, the first of them {table.where(summary.unlabelled or 0)}; drop these rows."
        )
    if isinstance(summary.labels, NumberSummary):
        if classification:
            raise ValueError(
                f"the target {table.target!r} has more than {_MAX_LABELS} different labels, "
                f"{_NO_LABELS}"
            )
        return {number: number for number in summary.labels.ends}
    labels = summary.labels.values
    number = labels[0] if isinstance(labels[0], int | float) else 0
    if any(isinstance(label, float) and math.isinf(label) for label in labels):
        raise ValueError(f"the target {table.target!r} must be finite, got infinity; drop its row.")
    if len(labels) < 2 and (classification is False or (number % 1 and classification is None)):
        raise ValueError(
            f"the target {table.target!r} must vary, got {labels[0]!r} in every row; give another."
        )
    if len(labels) < 2:
        raise ValueError(
            f"the target {table.target!r} must have at least two classes, got only {labels[0]!r}; "
            "add rows of another class."
        )
    for label in labels:
        if isinstance(label, str) and label.endswith("\0"):
            raise ValueError(
                f"labels of the target {table.target!r} must not end with a null character, got "
                f"{label!r}; NumPy would drop it, so remove it."
            )
    is_day = types.is_date(table.schema.field(table.target).type)
    return {label.date() if is_day else label: label for label in labels}


def _read_target(
    labels: CategorySummary | NumberSummary, stored: dict[Any, Any], problem: Problem
) -> tuple[list[Any], list[int], TargetScale | None]:
    """Return the classes and their sizes, or the number of all rows and the scale of a target."""
    if problem.classes is None:
        numbers, target = _as_numbers(labels), problem.folds[0].target
        scale = TargetScale.from_summary(numbers, float(target.min()), float(target.max()))
        return [], [numbers.count], scale
    classes = [stored[label] for label in problem.classes.tolist()]
    return classes, [cast(CategorySummary, labels).counts[label] for label in classes], None


def _lay_out(
    table: ShardedTable,
    position: int,
    summary: NumberSummary | CategorySummary,
    queries: Table,
    column_type: ColumnType | None,
    *,
    scale: Scale,
) -> tuple[NumericColumn | CategoricalColumn, ColumnLayout]:
    from pyarrow import types

    name = table.names.tolist()[position]
    type_ = table.schema.field(name).type
    sort = choose_encoding(type_, column_type, name)
    own: ColumnType | None = "categorical" if sort == "codes" else "numeric"
    cells = queries.column(position)
    kind = column_type or infer_column_type(
        [queries.dtype(position)], [cells], name, beside=own if summary.count else None
    )
    if kind == "categorical":
        counts = summary.counts if isinstance(summary, CategorySummary) else {}
        values = summary.values if isinstance(summary, CategorySummary) else []
        codes = encode_cells({value: i for i, value in enumerate(values)}, list_cells(cells, name))
        layout = ColumnLayout(name, "codes" if values else "missing", 0, values)
        return categorical_column(position, [codes], [counts[value] for value in values]), layout
    numbers = (
        summary if isinstance(summary, NumberSummary) else NumberSummary.from_cells(np.empty(0))
    )
    _check_size(cells, type_, name)
    zones = {type_.tz is not None} if types.is_timestamp(type_) else set()
    check_time_zones(zones | find_time_zones(queries.dtype(position), cells), name)
    floats, _ = to_comparable_floats([_training_ends(numbers, type_), cells], name)
    first = int(numbers.ends[0]) if numbers.integral else 0
    layout = ColumnLayout(name, sort if numbers.count else "missing", first, [])
    return numeric_column(position, floats[1:], numbers, scale, name), layout


def _training_ends(numbers: NumberSummary, type_: Any) -> NDArray[Any]:
    """Return the smallest and largest number of the training rows, to compare queries with."""
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
    if max(-int(cells.min()), int(cells.max())) > MAX_EXACT:
        raise ValueError(
            f"integers of column {name!r} in X_val must be within 2**53, to be exact as floats; "
            "leave the column out of both tables."
        )


def summarize_shard(
    table: ShardedTable, shard: int, column_types: ColumnTypes | None = None
) -> TableSummary:
    """Summarize the columns of one shard, read once in batches."""
    import pyarrow.types as pt

    column_type = check_sharded_types(column_types, table)
    types = dict(zip(table.schema.names, table.schema.types, strict=True))
    names = table.names.tolist()
    encodings = [choose_encoding(types[name], column_type.get(name), name) for name in names]
    columns = [
        _CategorySummarizer(name, _MAX_CATEGORIES, _NO_CATEGORIES)
        if encoding == "codes"
        else _NumberSummarizer(name, encoding)
        for name, encoding in zip(names, encodings, strict=True)
    ]
    of = types[table.target]
    is_number = pt.is_integer(of) or pt.is_floating(of) or pt.is_decimal(of)
    most = table.shape[0] if is_number else _MAX_LABELS
    labels: Any = _CategorySummarizer(table.target, most, _NO_LABELS)
    unlabelled = None
    first = table.rows(shard).start
    for *cells, targets in table.batches(shard, [*names, table.target]):
        for column, array in zip(columns, cells, strict=True):
            column.add(array, first)
        if labels is not None:
            missing = labels.add(targets, first)
            unlabelled = missing if unlabelled is None else unlabelled
            labels = None if labels.n_distinct > _MAX_LABELS else labels
        first += len(targets)
    if labels is None:
        labels, unlabelled = _summarize_target(table, shard)
    digest = hashlib.sha256("".join(c.digest() for c in (*columns, labels)).encode())
    return TableSummary(
        tuple(column.summary() for column in columns),
        labels.summary(),
        unlabelled,
        {shard: digest.hexdigest()},
    )


def _summarize_target(table: ShardedTable, shard: int) -> tuple[_NumberSummarizer, int | None]:
    """Summarize numbers that are too many to be counted; return the first missing one as well."""
    labels = _NumberSummarizer(table.target, choose_target_encoding(table))
    first, unlabelled = table.rows(shard).start, None
    for (cells,) in table.batches(shard, [table.target]):
        missing = np.flatnonzero(np.isnan(labels.add(cells, first)))
        if len(missing) and unlabelled is None:
            unlabelled = first + int(missing[0])
        first += len(cells)
    return labels, unlabelled


def choose_target_encoding(table: ShardedTable) -> Encoding:
    """Choose how to read a numeric target."""
    return choose_encoding(table.schema.field(table.target).type, "numeric", table.target)


def check_sharded_types(
    column_types: ColumnTypes | None, table: ShardedTable
) -> dict[Any, ColumnType]:
    """Check the column types of a sharded table, which cannot have distance functions."""
    column_type = check_column_types(column_types, table.names)
    for name, kind in column_type.items():
        if callable(kind):
            raise ValueError(
                f"column_types of column {name!r} must be 'numeric' or 'categorical' for a "
                "ShardedTable, got a function, which would need all distinct cells in memory."
            )
    return cast("dict[Any, ColumnType]", column_type)


class _NumberSummarizer:
    def __init__(self, name: str, sort: Encoding) -> None:
        self._name, self._read, self._integral = name, READERS[sort], sort == "times"
        self._digest = hashlib.sha256(sort.encode())
        nothing = np.empty(0, dtype=np.int64 if self._integral else np.float64)
        self._summary, self._waiting = NumberSummary.from_cells(nothing), [nothing]

    def add(self, array: pa.Array, _first: int) -> NDArray[Any]:
        """Add cells; return them as numbers."""
        cells = known = self._read(array, self._name)
        if self._integral:
            known = cells[cells != NO_TIME]
            n_missing = self._summary.n_missing + len(cells) - len(known)
            self._summary = replace(self._summary, n_missing=n_missing)
        else:
            # Equal numbers must have equal bytes: -0.0 becomes 0.0, and all NaN become the same.
            cells += 0.0
            cells[np.isnan(cells)] = np.nan
        self._digest.update(_plain(cells))
        self._waiting.append(known)
        if sum(map(len, self._waiting)) >= AT_ONCE:
            self.summary()
        return cells

    def digest(self) -> str:
        return self._digest.hexdigest()

    def summary(self) -> NumberSummary:
        waiting, self._waiting = np.concatenate(self._waiting), self._waiting[:1]
        self._summary = self._summary.merge(NumberSummary.from_cells(waiting))
        return self._summary


class _CategorySummarizer:
    def __init__(self, name: str, most: int, advice: str) -> None:
        self._name, self._coder = name, Coder({}, most, advice)
        self._counts = np.zeros(1, dtype=np.int64)
        self._firsts: list[int] = []
        self._digest = hashlib.sha256(b"codes")

    def add(self, array: pa.Array, first: int) -> int | None:
        """Count cells; return the position of the first missing value, if any."""
        codes, new = self._coder.read(array, self._name)
        self._firsts += (first + new).tolist()
        # The first entry counts missing values, whose code is -1.
        counts = np.bincount(codes + 1, minlength=len(self._coder.codes) + 1)
        counts[: len(self._counts)] += self._counts
        self._counts = counts
        self._digest.update(_plain(codes))
        missing = np.flatnonzero(codes < 0)
        return first + int(missing[0]) if len(missing) else None

    @property
    def n_distinct(self) -> int:
        """Number of different cells."""
        return len(self._coder.codes)

    def digest(self) -> str:
        values = self._digest.copy()
        for value in self._coder.codes:
            # The length distinguishes ("ab", "c") from ("a", "bc").
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
    both = cast(CategorySummary, one).merge(cast(CategorySummary, other))
    if len(both.counts) > _MAX_CATEGORIES:
        raise ValueError(
            f"a column has more than {_MAX_CATEGORIES} different cells such as "
            f"{next(iter(both.counts))!r}, {_NO_CATEGORIES}"
        )
    return both


def _merge_labels(
    one: CategorySummary | NumberSummary, other: CategorySummary | NumberSummary
) -> CategorySummary | NumberSummary:
    if isinstance(one, CategorySummary) and isinstance(other, CategorySummary):
        both = one.merge(other)
        are_numbers = isinstance(next(iter(both.counts), None), int | float | Decimal)
        if len(both.counts) <= _MAX_LABELS or not are_numbers:
            return both
    return _as_numbers(one).merge(_as_numbers(other))


def _as_numbers(labels: CategorySummary | NumberSummary) -> NumberSummary:
    if isinstance(labels, NumberSummary):
        return labels
    return NumberSummary.from_counts(labels.counts, labels.n_missing)


def _plain(cells: NDArray[Any]) -> bytes:
    return cells.astype(cells.dtype.newbyteorder("<"), copy=False).tobytes()
