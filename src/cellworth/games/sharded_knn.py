"""ShardedKNNGame: the K-nearest-neighbour game on a table in shards, as far as valuers ask it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cellworth.blocks import Axis, Blocks, Groups
from cellworth.column_info import ColumnInfo, ColumnTable, TakenFor
from cellworth.counts import Distance, Floats, Kind, Scale, checked_count
from cellworth.games.base import EmptyPolicy, checked_policy
from cellworth.games.knn import (
    KNNScoring,
    wants_classes,
    warn_of_too_many_neighbors,
)
from cellworth.inputs import distance_in_words, notes_on_size, notes_on_values
from cellworth.neighbours.distances import Rulers
from cellworth.neighbours.summaries import Categories
from cellworth.problem import Problem
from cellworth.provenance import described
from cellworth.runtime import Executor
from cellworth.sharded.layouts import Layout, Queries
from cellworth.sharded.preparing import summary_of
from cellworth.sharded.summaries import TableSummary
from cellworth.sharded.tables import ShardedTable
from cellworth.tables import Table, column_sha256

# Rows that are looked at before a run: the first of some shards.
_LOOKED_AT_SHARDS = 8
_LOOKED_AT_ROWS = 500


@dataclass(frozen=True, eq=False)
class ShardedKNNGame:
    """What :class:`KNNGame` is for a table in memory; it holds no rows to learn from.

    Parameters
    ----------
    table : ShardedTable
    layout : Layout
    queries : Queries
    columns : Axis
        Players among the columns.
    n_neighbors : int
    scoring, scale, kinds, empty
        As in KNNGame.
    sha256 : str
        Fingerprint of the table's cells.
    column_info : ColumnTable
        What each column was taken for.
    """

    table: ShardedTable
    layout: Layout
    queries: Queries
    columns: Axis
    n_neighbors: int
    scoring: str
    scale: Scale
    kinds: dict[Any, Kind | Distance]
    empty: EmptyPolicy
    sha256: str
    column_info: ColumnTable

    @classmethod
    def of(
        cls,
        table: ShardedTable,
        X_val: Any,
        y_val: Any,
        *,
        n_neighbors: int,
        scoring: KNNScoring | None,
        scale: Scale,
        kinds: Mapping[Any, Kind | Distance] | None,
        empty: EmptyPolicy,
        column_groups: Groups,
        executor: Executor,
        show_progress: bool,
    ) -> ShardedKNNGame:
        """Check what was given, and gather the statistics of columns in one pass."""
        classes = wants_classes(scoring)
        if classes is False:
            raise ValueError(
                f"scoring is {scoring!r}, but sharded tables are ranked by bins, which are for "
                "class labels; give 'neighbor_agreement' or "
                "'balanced_neighbor_agreement'."
            )
        n_neighbors = checked_count(n_neighbors, "n_neighbors")
        warn_of_too_many_neighbors(n_neighbors, table.shape[0])
        columns = Axis.of_groups(table.names, column_groups, what="column")
        summary = summary_of(table, kinds, executor, show_progress=show_progress)
        layout, queries = Layout.of(
            table, summary, X_val, y_val, kinds=kinds, scale=scale, classification=classes
        )
        return cls(
            table, layout, queries, columns, n_neighbors, scoring or "neighbor_agreement",
            scale, dict(kinds or {}), checked_policy(empty), summary.sha256(table),
            column_table(layout.rulers, table, summary),
        )  # fmt: skip

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and players among the columns."""
        return self.table.shape[0], len(self.columns)

    @property
    def n_queries(self) -> int:
        """Number of validation rows."""
        return len(self.queries.labels)

    @property
    def query_labels(self) -> list[Floats]:
        """Codes of the validation rows' classes, in one fold."""
        return [self.queries.labels.astype(np.float64)]

    def question(self) -> dict[str, Any]:
        """What decides the values of this game."""
        queries = self.queries
        validation = hashlib.sha256(queries.table.sha256().encode())
        validation.update(column_sha256(queries.target))
        groups = hashlib.sha256(self.columns.codes.astype("<i8").tobytes())
        return {
            "game": "ShardedKNNGame",
            "n_neighbors": self.n_neighbors,
            "scoring": self.scoring,
            "scale": self.scale,
            "kinds": {str(name): described(kind) for name, kind in self.kinds.items()},
            "distances_sha256": self.layout.sha256(),
            "empty": self.empty,
            "data_sha256": {
                "table": self.sha256,
                "validation": validation.hexdigest(),
                "columns": groups.hexdigest(),
            },
            "validation": "held out",
        }


def some_rows(table: ShardedTable) -> Problem:
    """Some rows of a table in shards, from its beginning to its end, to look at in memory."""
    step = -(-table.n_shards // _LOOKED_AT_SHARDS)
    shards = [table.rows(shard) for shard in range(0, table.n_shards, step)]
    rows = table.take([row for own in shards for row in own[:_LOOKED_AT_ROWS]])
    target = np.array(rows.column(table.target).to_pylist())
    cells = Table.of(rows.drop_columns([table.target]), called="X")
    # One class is enough here, where the first rows of a shard may be all of one.
    return Problem(cells, target, np.unique(target), (), Blocks.of_shape(cells.shape))


def column_table(rulers: Rulers, table: ShardedTable, summary: TableSummary) -> ColumnTable:
    """What columns of a table in shards were taken for, as far as their summaries tell."""
    return ColumnTable(
        tuple(_info(rulers, table, summary, place) for place in range(len(table.names)))
    )


def _info(rulers: Rulers, table: ShardedTable, summary: TableSummary, place: int) -> ColumnInfo:
    from pyarrow import types

    name, own = str(table.names.tolist()[place]), summary.columns[place]
    type_ = table.schema.field(name).type
    part, at = rulers.where(place)
    notes: tuple[str, ...] = ()
    if isinstance(own, Categories):
        distinct, at_least = len(own.counts), False
        named = types.is_dictionary(type_)
        notes = notes_on_values(list(own.counts), list(own.counts.values()), named=named)
        whole = not notes
    else:
        # Of very many numbers the last bits are dropped, so that some are counted as one.
        distinct, at_least, whole = len(own.keys), own.shift > 0, types.is_integer(type_)
    taken_for: TakenFor = "category" if part == "categories" else _quantity(type_)
    distance = (
        f"0 or {rulers.mismatch(at):.3g}"
        if part == "categories"
        else distance_in_words(rulers.spread(at), taken_for)
    )
    size = notes_on_size(distinct, own.count, own.gaps, whole=whole, at_least=at_least)
    return ColumnInfo(name, taken_for, own.gaps, distinct, at_least, distance, (*size, *notes))


def _quantity(type_: Any) -> TakenFor:
    from pyarrow import types

    if types.is_date(type_) or types.is_timestamp(type_):
        return "date"
    return "duration" if types.is_duration(type_) else "number"
