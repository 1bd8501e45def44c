"""Layout of a sharded table: column types, scales and codes that all shards share."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import ColumnType, ColumnTypes, Floats, Integers, Mask, Scale
from cellworth.data.column import NO_TIME, Coder, Column, find_kind_of_type, object_array
from cellworth.data.equal_rows import encode_value
from cellworth.data.problem import Problem
from cellworth.data.sharded_table import ShardedTable
from cellworth.data.tables import Table, TableLike, VectorLike
from cellworth.knn.binned import TargetScale
from cellworth.knn.distances import (
    Columns,
    ColumnScales,
    ScaledColumn,
    check_column_types,
    check_scale,
    make_scales,
    scale_column,
    stack_columns,
)
from cellworth.sampling.statistics import (
    AT_ONCE,
    MAX_EXACT,
    CategorySummary,
    NumberSummary,
    limit_keys,
)

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_CATEGORIES = 10**6
_NO_CATEGORIES = "so that it names rows rather than describing them; leave it out with columns=."
_MAX_LABELS = 2**16
_NO_LABELS = "which are too many classes; group them into fewer, or give a target of numbers."


AnySummary = NumberSummary | CategorySummary
# How a column is held: as floats, as microseconds, or as codes.
Encoding = Literal["floats", "times", "codes"]


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

    columns: tuple[AnySummary, ...]  # One for each column of the table
    labels: AnySummary
    unlabelled: int | None  # Position of the first row without a label
    digests: dict[int, str]  # Hash of each shard's cells, by shard number

    def merge(self, other: TableSummary) -> TableSummary:
        """Return the summary of the shards of both; no shard may be in both."""
        rows = [row for row in (self.unlabelled, other.unlabelled) if row is not None]
        return TableSummary(
            tuple(
                _merge_summaries(one, two, _MAX_CATEGORIES, _NO_CATEGORIES)
                for one, two in zip(self.columns, other.columns, strict=True)
            ),
            _merge_summaries(self.labels, other.labels, _MAX_LABELS, _NO_LABELS),
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

    scales: ColumnScales
    # Columns in the order of the scales.
    numeric: tuple[ColumnLayout, ...]
    categorical: tuple[ColumnLayout, ...]
    classes: list[Any]  # Sorted class labels; none for a numeric target
    class_counts: list[int]  # Number of training rows per class, or of all for a numeric target
    dtype: np.dtype[Any]  # float32 if all numbers of training rows are exact in it, else float64
    target: str
    target_scale: TargetScale | None = None  # For a numeric target

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

        types = check_column_types(column_types, table.names)
        check_scale(scale)
        stored_labels = _read_labels(table, summary, classification)
        if not count_labels(table, summary):
            classification = False
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
        classes, counts, target_scale = _read_target(table, summary, stored_labels, problem)
        narrow = all(
            summary.columns[column.position].narrow  # type: ignore[union-attr]
            for column, layout in read
            if column.kind == "numbers" and layout.sort != "missing"
        )
        layout = cls(
            make_scales(columns),
            tuple(lay for column, lay in read if column.kind == "numbers"),
            tuple(lay for column, lay in read if column.kind == "categories"),
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
        return layout, Queries(stack_columns(columns, 1), labels, target, rows)

    def sha256(self) -> str:
        """Return a hash of everything that determines a shard's arrays."""
        digest = hashlib.sha256()
        for field in self.scales:
            digest.update(np.asarray(field).tobytes())
        others = self.numeric, self.categorical, self.classes, self.class_counts, self.dtype.str
        digest.update(repr((*others, self.target)).encode())
        digest.update(repr(self.target_scale).encode() if self.target_scale else b"")
        return digest.hexdigest()


def count_labels(table: ShardedTable, summary: TableSummary) -> dict[Any, int]:
    """Return how many rows have each label; nothing if there are too many numbers to count."""
    from pyarrow import types

    labels, type_ = summary.labels, table.schema.field(table.target).type
    if isinstance(labels, CategorySummary):
        return labels.counts
    of_type = bool if types.is_boolean(type_) else int if types.is_integer(type_) else float
    return {of_type(number): count for number, count in labels.distinct.items()}


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
    labels = list(count_labels(table, summary))
    if isinstance(summary.labels, NumberSummary) and not labels:
        if classification:
            raise ValueError(
                f"the target {table.target!r} has more than {MAX_EXACT} different labels, "
                f"{_NO_LABELS}"
            )
        labels = list(summary.labels.ends)
    if len(labels) < 2:
        raise ValueError(
            f"the target {table.target!r} must have at least two different labels, got only "
            f"{labels[0]!r}; add rows with another label."
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
    table: ShardedTable, summary: TableSummary, stored: dict[Any, Any], problem: Problem
) -> tuple[list[Any], list[int], TargetScale | None]:
    """Return the classes and their sizes, or the number of all rows and the scale of a target."""
    if problem.classes is None:
        numbers, target = summary.labels, problem.folds[0].target
        if not isinstance(numbers, NumberSummary):
            raise ValueError(
                f"the target {table.target!r} must be a column of numbers for a squared error, got "
                f"{table.schema.field(table.target).type}; convert it to numbers."
            )
        scale = TargetScale.from_summary(numbers, float(target.min()), float(target.max()))
        return [], [numbers.count], scale
    classes = [stored[label] for label in problem.classes.tolist()]
    counts = count_labels(table, summary)
    return classes, [counts[label] for label in classes], None


def _lay_out(
    table: ShardedTable,
    position: int,
    summary: AnySummary,
    queries: Table,
    column_type: ColumnType | None,
    *,
    scale: Scale,
) -> tuple[ScaledColumn, ColumnLayout]:
    name = table.names.tolist()[position]
    asked = queries.read(position, column_type)
    rows = _read_training_ends(name, summary, table.schema.field(name).type, column_type)
    column = scale_column(position, [rows, asked], scale, summary)
    if rows.kind == "number":
        # Integers that are exact here alone could not be compared with those of shards.
        asked.read_part()
    layout = ColumnLayout(
        name,
        find_encoding(rows) if summary.count else "missing",
        int(summary.ends[0]) if isinstance(summary, NumberSummary) and summary.integral else 0,
        summary.values if isinstance(summary, CategorySummary) else [],
    )
    return column, layout


def _read_training_ends(
    name: str,
    summary: AnySummary,
    type_: pa.DataType,
    column_type: ColumnType | None,
) -> Column:
    """Return a column of the ends, or of the categories, of the training rows."""
    import pyarrow as pa

    cells: Any = pa.nulls(1)
    if summary.count == 0:
        return Column(name, cells, cells.type, column_type)
    if isinstance(summary, CategorySummary):
        cells = object_array(summary.values)
    elif summary.integral:
        unit = "m8[us]" if pa.types.is_duration(type_) else "M8[us]"
        cells = np.array(summary.ends, dtype=np.int64).view(unit)
    else:
        cells = np.array(summary.ends, dtype=np.float64)
    return Column(name, cells, type_, column_type)


def summarize_shard(
    table: ShardedTable, shard: int, column_types: ColumnTypes | None = None
) -> TableSummary:
    """Summarize the columns of one shard, read once in batches."""
    column_type = check_column_types(column_types, table.names)
    types = dict(zip(table.schema.names, table.schema.types, strict=True))
    names, type_ = table.names.tolist(), types[table.target]
    are_numbers = find_kind_of_type(type_) in ("number", "boolean")
    target = Column(table.target, (), type_, "numeric" if are_numbers else "categorical")
    columns = [Column(name, (), types[name], column_type.get(name)) for name in names]
    limits = limit_keys(table.shape[0]), _MAX_CATEGORIES, _NO_CATEGORIES
    summarizers = [_make_summarizer(column, *limits) for column in columns]
    # Labels are counted in a table of any size: they may be classes.
    summarizers.append(_make_summarizer(target, MAX_EXACT, _MAX_LABELS, _NO_LABELS))
    unlabelled, first = None, table.rows(shard).start
    for batch in table.batches(shard, [*names, table.target]):
        missing = [each.add(cells, first) for each, cells in zip(summarizers, batch, strict=True)]
        unlabelled = missing[-1] if unlabelled is None else unlabelled
        first += len(batch[-1])
    digest = hashlib.sha256("".join(each.digest() for each in summarizers).encode())
    *found, labels = (each.summary() for each in summarizers)
    return TableSummary(tuple(found), labels, unlabelled, {shard: digest.hexdigest()})


def summarize_shards(
    table: ShardedTable, first: int, step: int, column_types: ColumnTypes | None
) -> TableSummary:
    """Summarize some shards from the first on, so that one summary is sent and not several."""
    shards = range(first, min(first + step, table.n_shards))
    each = (summarize_shard(table, shard, column_types) for shard in shards)
    return reduce(TableSummary.merge, each)


def find_encoding(column: Column) -> Encoding:
    """Return how shards hold a column."""
    column.check_comparable()
    if column.is_time:
        return "times"
    return "floats" if column.is_quantity else "codes"


def _make_summarizer(column: Column, most_keys: int, most: int, advice: str) -> _Summarizer:
    if find_encoding(column) != "codes":
        return _NumberSummarizer(column, most_keys)
    return _CategorySummarizer(column, most, advice)


class _NumberSummarizer:
    def __init__(self, column: Column, most: int) -> None:
        self._column, self._integral, self._most = column, column.is_time, most
        self._digest = hashlib.sha256(find_encoding(column).encode())
        nothing = np.empty(0, dtype=np.int64 if self._integral else np.float64)
        self._summary, self._waiting = NumberSummary.from_cells(nothing, most), [nothing]

    def add(self, array: pa.Array, first: int) -> int | None:
        """Add cells; return the position of the first missing one, if any."""
        cells = replace(self._column, cells=array).read_part()
        missing = cells == NO_TIME if self._integral else np.isnan(cells)
        if not self._integral:
            # Equal numbers must have equal bytes: -0.0 becomes 0.0, and all NaN become the same.
            cells += 0.0
            cells[missing] = np.nan
        self._digest.update(_plain(cells))
        self._waiting.append(cells)
        if sum(map(len, self._waiting)) >= AT_ONCE:
            self.summary()
        return _find_first(missing, first)

    def digest(self) -> str:
        return self._digest.hexdigest()

    def summary(self) -> NumberSummary:
        waiting, self._waiting = np.concatenate(self._waiting), self._waiting[:1]
        self._summary = self._summary.merge(NumberSummary.from_cells(waiting, self._most))
        return self._summary


class _CategorySummarizer:
    def __init__(self, column: Column, most: int, advice: str) -> None:
        self._column, self._coder = column, Coder({}, most, advice)
        self._counts = np.zeros(1, dtype=np.int64)
        self._firsts: list[int] = []
        self._digest = hashlib.sha256(b"codes")

    def add(self, array: pa.Array, first: int) -> int | None:
        """Add cells; return the position of the first missing one, if any."""
        codes, new = self._coder.read(replace(self._column, cells=array))
        self._firsts += (first + new).tolist()
        # The first entry counts missing values, whose code is -1.
        counts = np.bincount(codes + 1, minlength=len(self._coder.codes) + 1)
        counts[: len(self._counts)] += self._counts
        self._counts = counts
        self._digest.update(_plain(codes))
        return _find_first(codes < 0, first)

    def digest(self) -> str:
        values = self._digest.copy()
        for value in self._coder.codes:
            values.update(encode_value(value))
        return values.hexdigest()

    def summary(self) -> CategorySummary:
        n_missing, *counts = self._counts.tolist()
        values = list(self._coder.codes)
        return CategorySummary(
            dict(zip(values, counts, strict=True)),
            dict(zip(values, self._firsts, strict=True)),
            n_missing,
        )


_Summarizer = _NumberSummarizer | _CategorySummarizer


def _find_first(marked: Mask, first: int) -> int | None:
    return first + int(marked.argmax()) if marked.any() else None


def _merge_summaries(one: AnySummary, other: AnySummary, most: int, advice: str) -> AnySummary:
    both: AnySummary = one.merge(cast(Any, other))
    if isinstance(both, CategorySummary) and len(both.counts) > most:
        raise ValueError(
            f"a column has more than {most} different cells such as "
            f"{next(iter(both.counts))!r}, {advice}"
        )
    return both


def _plain(cells: NDArray[Any]) -> bytes:
    return cells.astype(cells.dtype.newbyteorder("<"), copy=False).tobytes()
