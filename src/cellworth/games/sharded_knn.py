"""ShardedKNNGame: the K-nearest-neighbour game on a table in shards, as far as valuers ask it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.blocks import Axis, Groups
from cellworth.counts import checked_count
from cellworth.execution import Executor
from cellworth.games.base import EmptyPolicy, checked_policy
from cellworth.games.knn import (
    KNNScoring,
    wants_classes,
    warn_of_too_many_neighbors,
)
from cellworth.neighbours.columns import Distance, Kind, Scale
from cellworth.provenance import described
from cellworth.sharded.layouts import Layout, Queries
from cellworth.sharded.preparing import summary_of
from cellworth.sharded.tables import ShardedTable
from cellworth.tables import column_sha256

Floats = NDArray[np.float64]


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
