"""Layout: how the raw cells of a sharded table become arrays, decided once for all shards."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from cellworth.counts import Distance, Kind, Scale, Wholes
from cellworth.neighbours.columns import (
    CategoricalColumn,
    NumericColumn,
    categorical_column,
    coded_by,
    common_kind,
    comparable,
    listed,
    numeric_column,
    refuse_mixed_zones,
    time_zones,
)
from cellworth.neighbours.distances import Columns, Rulers, fine_rulers, stacked
from cellworth.neighbours.summaries import Categories, Numbers
from cellworth.problem import Problem
from cellworth.sharded.cells import Sort, sort_of
from cellworth.sharded.summaries import TableSummary, told_kinds
from cellworth.sharded.tables import ShardedTable
from cellworth.tables import LARGEST_EXACT, Table


class ColumnLayout(NamedTuple):
    """How one column is read.

    Parameters
    ----------
    name : str
    sort : {"floats", "times", "parsed", "codes", "gaps"}
        How its cells are read; "gaps" where no training row has a known one.
    first : int
        Microseconds that moments are counted from.
    values : list
        Categories in the order of their codes.
    """

    name: str
    sort: Sort | Literal["gaps"]
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
    labels: Wholes
    target: NDArray[Any]
    table: Table


@dataclass(frozen=True, eq=False)
class Layout:
    """How raw cells become arrays: the same for all shards, and small enough to travel.

    Parameters
    ----------
    rulers : Rulers
        What differences count, in the fine unit (:func:`fine_rulers`).
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

    rulers: Rulers
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
        X_val: Any,
        y_val: Any,
        *,
        kinds: Mapping[Any, Kind | Distance] | None = None,
        scale: Scale = "robust",
        classification: bool | None = None,
    ) -> tuple[Layout, Queries]:
        """Decide on a layout, and read the validation rows by it.

        Parameters
        ----------
        table : ShardedTable
        summary : TableSummary
            Of all its shards, with the same ``kinds``.
        X_val, y_val
            Validation rows and their labels, in memory.
        kinds, scale
            As in :meth:`cellworth.neighbours.distances.Distances.of`.
        classification : bool, default=None
            True for class labels, however many numbers they are; None to let them tell.
        """
        refuse_without_judges(X_val, y_val)
        told = told_kinds(kinds, table)
        if scale not in (*get_args(get_args(Scale)[0]), None):
            raise ValueError(f"scale is {scale!r}; give 'robust', 'std' or None.")
        missing = set(range(table.n_shards)) - summary.digests.keys()
        if missing:
            raise ValueError(f"the summary lacks shard {min(missing)}; merge those of all shards.")
        shown = _shown_labels(table, summary)
        problem, known_classes = _problem(table, list(shown), X_val, y_val, classification)
        asked = problem.folds[0].table
        read = [
            _laid_out(table, place, summary.columns[place], asked, told=told.get(name), scale=scale)
            for place, name in enumerate(table.names.tolist())
        ]
        columns = [column for column, _ in read]
        classes = [shown[label] for label in known_classes.tolist()]
        narrow = all(
            summary.columns[column.place].narrow  # type: ignore[union-attr]
            for column, layout in read
            if isinstance(column, NumericColumn) and layout.sort != "gaps"
        )
        layout = cls(
            fine_rulers(columns),
            tuple(lay for column, lay in read if isinstance(column, NumericColumn)),
            tuple(lay for column, lay in read if isinstance(column, CategoricalColumn)),
            classes,
            [summary.labels.counts[label] for label in classes],
            np.dtype(np.float32 if narrow else np.float64),
            table.target,
        )
        target = problem.folds[0].target
        labels = np.searchsorted(known_classes, target).astype(np.int64)
        queries = Queries(stacked(columns, 0, asked.shape[0]), labels, target, asked)
        return layout, queries

    def sha256(self) -> str:
        """Fingerprint of everything that decides what a shard's arrays hold."""
        return self._sha256

    @cached_property
    def _sha256(self) -> str:
        digest = hashlib.sha256()
        for part in self.rulers:
            digest.update(np.asarray(part).tobytes())
        parts = self.numeric, self.categorical, self.classes, self.class_counts, self.dtype.str
        digest.update(repr((*parts, self.target)).encode())
        return digest.hexdigest()


def refuse_without_judges(X_val: Any, y_val: Any) -> None:
    """Refuse a table in shards without validation rows, before any shard is read."""
    if X_val is None or y_val is None:
        raise ValueError(
            "a ShardedTable is judged by validation rows in memory; give X_val and y_val."
        )


def _shown_labels(table: ShardedTable, summary: TableSummary) -> dict[Any, Any]:
    """Labels as users call them, and as they are read: days are midnights there."""
    from pyarrow import types

    if summary.labels.gaps:
        raise ValueError(
            f"{summary.labels.gaps} rows have no label in {table.target!r}, the first of them "
            f"{table.where(summary.unlabelled or 0)}; drop the rows without a label."
        )
    labels = summary.labels.values
    if len(labels) < 2:
        raise ValueError(
            f"the target {table.target!r} holds one class only ({labels[0]!r}); rows can be judged "
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
    table: ShardedTable, labels: list[Any], X_val: Any, y_val: Any, classification: bool | None
) -> tuple[Problem, NDArray[Any]]:
    """Check labels and validation rows as for a table in memory, with a few rows of each class."""
    import pyarrow as pa

    # Three rows of each class, because as many classes as rows would look like a numeric target.
    nothing = pa.nulls(3 * len(labels))
    rows = pa.table(dict.fromkeys(table.names.tolist(), nothing))
    problem = Problem.of(
        rows, labels * 3, X_val, y_val, classification=classification, one_class_can_judge=True
    )
    if problem.classes is None:
        raise ValueError(
            f"the target {table.target!r} holds {len(labels)} different numbers such as "
            f"{labels[0]!r}, so that it is numeric, but rank bins are for class labels; group its "
            "numbers into classes, or pass scoring='neighbor_agreement' if they are classes."
        )
    return problem, problem.classes


def _laid_out(
    table: ShardedTable,
    place: int,
    summary: Numbers | Categories,
    asked: Table,
    *,
    told: Kind | None,
    scale: Scale,
) -> tuple[NumericColumn | CategoricalColumn, ColumnLayout]:
    name = table.names.tolist()[place]
    type_ = table.schema.field(name).type
    sort = sort_of(type_, told, name)
    own: Kind | None = "categorical" if sort == "codes" else "numeric"
    cells = asked.column(place)
    kind = told or common_kind(
        [asked.dtype(place)], [cells], name, beside=own if summary.count else None
    )
    if kind == "categorical":
        values = summary.values if isinstance(summary, Categories) else []
        counts = [summary.counts[v] for v in values] if isinstance(summary, Categories) else []
        codes = coded_by({value: i for i, value in enumerate(values)}, listed(cells, name))
        layout = ColumnLayout(name, "codes" if values else "gaps", 0, values)
        return categorical_column(place, [codes], counts), layout
    numbers = summary if isinstance(summary, Numbers) else Numbers.of(np.empty(0))
    _refuse_large(cells, type_, name)
    refuse_mixed_zones(_time_zones(type_) | time_zones(asked.dtype(place), cells), name)
    floats, _ = comparable([_stand_in(numbers, type_), cells], name)
    first = int(numbers.ends[0]) if numbers.whole else 0
    layout = ColumnLayout(name, sort if numbers.count else "gaps", first, [])
    return numeric_column(place, floats[1:], numbers, scale, name), layout


def _time_zones(type_: Any) -> set[bool]:
    from pyarrow import types

    return {type_.tz is not None} if types.is_timestamp(type_) else set()


def _stand_in(numbers: Numbers, type_: Any) -> NDArray[Any]:
    """Known cells that stand for all training rows where queries are compared with them."""
    from pyarrow import types

    if not numbers.count:
        return np.array([np.nan])
    if numbers.whole:
        unit = "m8[us]" if types.is_duration(type_) else "M8[us]"
        return np.array(numbers.ends, dtype=np.int64).view(unit)
    return np.array(numbers.ends, dtype=np.float64)


def _refuse_large(cells: NDArray[Any], type_: Any, name: str) -> None:
    from pyarrow import types

    if not types.is_integer(type_) or cells.dtype.kind not in "iu":
        return
    if max(-int(cells.min()), int(cells.max())) > LARGEST_EXACT:
        raise ValueError(
            f"column {name!r} of X_val holds whole numbers beyond 2**53, which are not exact as "
            "floats; leave the column out of both tables."
        )
