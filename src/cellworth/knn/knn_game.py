"""KNNGame: the utility of nearest neighbors, for tables in memory and in shards."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import (
    ColumnTypes,
    Distance,
    Floats,
    Integers,
    Kind,
    Mask,
    Positions,
    Scale,
    check_count,
)
from cellworth.data.blocks import Axis, Blocks, Groups
from cellworth.data.io import describe
from cellworth.data.problem import Problem
from cellworth.data.sharded_table import ShardedTable
from cellworth.data.statistics import CategorySummary
from cellworth.data.tables import Table, column_sha256
from cellworth.games.game import EmptyPolicy, check_empty_policy
from cellworth.knn.distances import ColumnScales, Distances
from cellworth.knn.shard_data import summarize_table
from cellworth.knn.shard_layout import Layout, Queries, TableSummary
from cellworth.runtime.executors import Executor
from cellworth.valuation.column_info import (
    ColumnInfo,
    ColumnTable,
    ReadAs,
    distance_in_words,
    notes_on_size,
    notes_on_values,
)

KNNScoring = Literal["neighbor_agreement", "balanced_neighbor_agreement", "neg_mean_squared_error"]
# What scikit-learn calls the share of right predictions, which this game does not score by.
_INSTEAD = {"accuracy": "neighbor_agreement", "balanced_accuracy": "balanced_neighbor_agreement"}
# How values differ between validation rows is noted for all cells, once for each stratum.
_MOST_STRATA = 8
# Rows that are looked at before a run: the first of some shards.
_LOOKED_AT_SHARDS = 8
_LOOKED_AT_ROWS = 500


class KNNGame:
    """How well the labels of the nearest rows tell the validation labels.

    For one validation row with a class label, the utility of rows S seen through columns F is the
    number of label matches among the min(K, size of S) nearest rows, divided by K as in Jia et al.
    (2019), not by min(K, size of S) as in Wang and Jia (2023). For one with a numeric target it is
    minus the squared error of the mean over K places, filled with the targets of the nearest rows
    and, where there are fewer than K, with the mean target of all rows that may be learned from.
    The game's utility is a weighted mean over all validation rows. Rows at equal distance share the
    places that are left, which is the mean over all orders of the ties.

    Parameters
    ----------
    X, y, X_val, y_val
        Tables and labels. Numbers with a fraction, or more than 50 different numbers, are a numeric
        target, all else are classes; ``scoring`` settles it. Without a validation set each fold of
        a cross-validation serves once as the validation set for the remaining rows.
    n_neighbors : int, default=5
    scoring : str, default=None
        "neighbor_agreement" (mean share of the K nearest rows that have the right label; None for
        classes), "balanced_neighbor_agreement" (every class of validation rows counts the same) or
        "neg_mean_squared_error" (None for numeric targets).
    scale : {"robust", "std"} or None, default="robust"
        What numeric columns are divided by: interquartile range, standard deviation, nothing.
    column_types : mapping, default=None
        Kind of a column, "numeric" or "categorical", where the guess from its type is wrong; or a
        function of two cells that returns their squared distance.
    cv : int, splitter or iterable of (train, validation) positions, default=5
        Used without validation rows: each fold serves once as the validation set for the remaining
        rows.
    row_groups, column_groups
        As in :meth:`~cellworth.data.Blocks.cut`.
    empty : {"prior", "zero"}, default="prior"
        With no columns all rows tie, so that any K of them vote ("prior"), or the utility is 0
        ("zero"). With no rows nothing matches, and a numeric target is met by the mean ("prior") or
        the utility is 0 ("zero").

    References
    ----------
    Jia, Dao, Wang, Hubis, Gürel, Li, Zhang, Spanos and Song (2019), Efficient Task-Specific Data
    Valuation for Nearest Neighbor Algorithms, Proceedings of the VLDB Endowment.

    Wang and Jia (2023), A Note on "Efficient Task-Specific Data Valuation for Nearest Neighbor
    Algorithms", arXiv:2304.04258.

    Examples
    --------
    >>> from cellworth.knn import KNNGame
    >>> game = KNNGame([[0.0], [1.0]], ["a", "b"], [[0.1], [0.8]], ["a", "b"], n_neighbors=1)
    >>> everything = np.array([True, True]), np.array([True])
    >>> game.value(*everything)
    1.0
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        X_val: Any = None,
        y_val: Any = None,
        *,
        n_neighbors: int = 5,
        scoring: KNNScoring | None = None,
        scale: Scale = "robust",
        column_types: ColumnTypes | None = None,
        cv: Any = 5,
        row_groups: Groups | str = None,
        column_groups: Groups = None,
        empty: EmptyPolicy = "prior",
    ) -> None:
        self.problem: Problem = Problem.from_data(
            X, y, X_val, y_val, classification=wants_classes(scoring), row_groups=row_groups,
            column_groups=column_groups, cv=cv, allow_one_class=True,
        )  # fmt: skip
        self.n_neighbors: int = check_count(n_neighbors, "n_neighbors")
        self.scoring = scoring or (
            "neighbor_agreement" if self.is_class else "neg_mean_squared_error"
        )
        self.empty = check_empty_policy(empty)
        self.blocks: Blocks = self.problem.blocks
        self.distances: Distances = Distances.of(
            self.problem.table,
            [fold.table for fold in self.problem.folds],
            scale=scale,
            column_types=column_types,
        )
        self.scale = scale
        self.column_types: dict[Hashable, Kind | Distance] = dict(column_types or {})
        self._warn_of_too_many_neighbors()

    @property
    def is_class(self) -> bool:
        """Whether labels are classes."""
        return self.problem.classes is not None

    @property
    def shape(self) -> tuple[int, int]:
        """Number of players among the rows and among the columns."""
        return self.blocks.shape

    def problem_spec(self) -> dict[str, Any]:
        """What decides the values of this game."""
        return {
            "game": "KNNGame",
            "n_neighbors": self.n_neighbors,
            "scoring": self.scoring,
            "scale": self.scale,
            "column_types": {str(name): describe(kind) for name, kind in self.column_types.items()},
            "distances_sha256": self.distances.sha256(),
            "empty": self.empty,
            **self.problem.problem_spec(),
        }

    @cached_property
    def labels(self) -> Floats:
        """Codes of the training rows' classes, or their targets."""
        return self._read_coded(self.problem.target)

    def labels_in(self, fold: int) -> Floats:
        """Labels of the rows that may be learned from in a fold; targets are minus their mean."""
        labels = self.labels[self.problem.folds[fold].may_train]
        return labels if self.is_class else labels - self._means[fold]

    @cached_property
    def query_labels(self) -> list[Floats]:
        """Codes or targets of the validation rows, fold by fold, minus the same means."""
        labels = [self._read_coded(fold.target) for fold in self.problem.folds]
        if self.is_class:
            return labels
        return [some - mean for some, mean in zip(labels, self._means, strict=True)]

    @cached_property
    def _means(self) -> list[float]:
        """Return the mean target of the training rows, without validation rows."""
        return [float(np.mean(self.labels[fold.may_train])) for fold in self.problem.folds]

    @property
    def n_queries(self) -> int:
        """Number of validation rows, of all folds together."""
        return sum(map(len, self.query_labels))

    @cached_property
    def query_weights(self) -> list[Floats]:
        """What each validation row counts; all of them together count 1."""
        return query_weights(self.query_labels, self.scoring)

    def value(self, rows: Mask, columns: Mask) -> float:
        """Weighted mean of the utility over all validation rows."""
        positions = self.blocks.columns.positions(columns)
        if len(positions) == 0 and self.empty == "zero":
            return 0.0
        total = 0.0
        joined = rows[self.blocks.rows.codes]
        for fold, weights in enumerate(self.query_weights):
            may_train = self.problem.folds[fold].may_train
            train, labels = np.flatnonzero(joined & may_train), self.labels_in(fold)
            labels = labels[joined[may_train]]
            for query, weight in enumerate(weights):
                distances = self.distances.measure(fold, query)[positions][:, train].sum(axis=0)
                asked = self.query_labels[fold][query]
                total += float(weight) * self._utility(distances, labels, asked)
        return total

    def _utility(self, distances: Integers, labels: Floats, asked: float) -> float:
        if len(labels) == 0:
            return 0.0 if self.is_class or self.empty == "zero" else -(float(asked) ** 2)
        if self.is_class:
            return (
                compute_expected_matches(distances, labels == asked, self.n_neighbors)
                / self.n_neighbors
            )
        return -compute_expected_error(distances, labels, asked, self.n_neighbors)

    def _read_coded(self, target: NDArray[Any]) -> Floats:
        classes = self.problem.classes
        if classes is not None:
            return np.searchsorted(classes, target).astype(np.float64)
        return target

    def _warn_of_too_many_neighbors(self) -> None:
        n_rows = max(int(fold.may_train.sum()) for fold in self.problem.folds)
        if self.is_class:
            warn_too_many_neighbors(self.n_neighbors, n_rows)


def warn_too_many_neighbors(n_neighbors: int, n_rows: int) -> None:
    """Warn where every row is among the nearest."""
    if n_neighbors >= n_rows:
        warnings.warn(
            f"n_neighbors is {n_neighbors}, but no more than {n_rows} rows can be near: all of "
            "them vote always, so that no column can matter.",
            stacklevel=2,
        )


def query_weights(labels: list[Floats], scoring: str) -> list[Floats]:
    """What each validation row counts, fold by fold; all of them together count 1."""
    ends = np.cumsum([len(some) for some in labels])
    everyone = np.concatenate(labels)
    weights = np.full(len(everyone), 1.0 / len(everyone))
    if scoring == "balanced_neighbor_agreement":
        _, position, count = np.unique(everyone, return_inverse=True, return_counts=True)
        weights = 1.0 / (len(count) * count[position])
    return np.split(weights, ends[:-1])


def stratify_queries(labels: list[Floats], scoring: str) -> list[Positions]:
    """Stratum of each validation row, fold by fold: its class where every class counts the same.

    Of many classes the rarest share one stratum: every stratum is noted for all cells.
    """
    ends = np.cumsum([len(some) for some in labels])
    strata = np.zeros(ends[-1], dtype=np.intp)
    if scoring == "balanced_neighbor_agreement":
        _, position, count = np.unique(
            np.concatenate(labels), return_inverse=True, return_counts=True
        )
        by_size = np.argsort(np.argsort(-count, kind="stable"))
        strata = np.minimum(by_size, _MOST_STRATA - 1)[position]
    return np.split(strata, ends[:-1])


def compute_expected_matches(distances: NDArray[Any], match: Mask, n_neighbors: int) -> float:
    """Matches among the nearest rows, in the mean over all orders of tied rows."""
    nearer, tied, n_left = _nearest(distances, n_neighbors)
    return float(match[nearer].sum() + match[tied].mean() * n_left)


def compute_expected_error(
    distances: NDArray[Any], targets: Floats, asked: float, n_neighbors: int
) -> float:
    """Squared error of the nearest rows' sum over K, in the mean over all orders of tied rows."""
    nearer, tied, n_left = _nearest(distances, n_neighbors)
    mean = targets[nearer].sum() + n_left * targets[tied].mean()
    n_tied = int(tied.sum())
    # The variance of a sum of some of the tied, drawn without replacement.
    shrink = (n_tied - n_left) / max(n_tied - 1, 1)
    variance = n_left * float(np.var(targets[tied])) * shrink
    return float((mean / n_neighbors - asked) ** 2 + variance / n_neighbors**2)


def _nearest(distances: NDArray[Any], n_neighbors: int) -> tuple[Mask, Mask, int]:
    """Rows that are surely among the nearest, rows that tie for the rest, and how many places."""
    n_nearest = min(n_neighbors, len(distances))
    farthest = np.sort(distances)[n_nearest - 1]
    nearer, tied = distances < farthest, distances == farthest
    return nearer, tied, n_nearest - int(nearer.sum())


def wants_classes(scoring: Any) -> bool | None:
    """Whether a scoring asks for class labels; None where labels are to tell."""
    if scoring is None:
        return None
    return check_scoring(scoring) != "neg_mean_squared_error"


def check_scoring(scoring: Any, called: str = "scoring") -> KNNScoring:
    """Refuse all but the names of this game's scores."""
    if scoring in get_args(KNNScoring):
        return cast(KNNScoring, scoring)
    if isinstance(scoring, str) and scoring in _INSTEAD:
        raise ValueError(
            f"{called} is {scoring!r}, but nearest neighbours are scored by the share of the K "
            f"nearest rows that have the right label; give {_INSTEAD[scoring]!r}."
        )
    choices = ", ".join(map(repr, get_args(KNNScoring)))
    raise ValueError(f"{called} is {scoring!r}; give one of {choices}, or leave it out.")


@dataclass(frozen=True, eq=False)
class ShardedKNNGame:
    """What :class:`~cellworth.knn.KNNGame` is for a table in memory; it holds no training rows.

    Parameters
    ----------
    table : ShardedTable
    layout : Layout
    queries : Queries
    columns : Axis
        Players among the columns.
    n_neighbors : int
    scoring, scale, column_types, empty
        As in KNNGame.
    sha256 : str
        Hash of the table's cells.
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
    column_types: dict[Any, Kind | Distance]
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
        column_types: ColumnTypes | None,
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
        n_neighbors = check_count(n_neighbors, "n_neighbors")
        warn_too_many_neighbors(n_neighbors, table.shape[0])
        columns = Axis.from_groups(table.names, column_groups, what="column")
        summary = summarize_table(table, column_types, executor, show_progress=show_progress)
        layout, queries = Layout.of(
            table,
            summary,
            X_val,
            y_val,
            column_types=column_types,
            scale=scale,
            classification=classes,
        )
        return cls(
            table, layout, queries, columns, n_neighbors, scoring or "neighbor_agreement",
            scale, dict(column_types or {}), check_empty_policy(empty), summary.sha256(table),
            column_table(layout.scales, table, summary),
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

    def problem_spec(self) -> dict[str, Any]:
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
            "column_types": {str(name): describe(kind) for name, kind in self.column_types.items()},
            "distances_sha256": self.layout.sha256(),
            "empty": self.empty,
            "data_sha256": {
                "table": self.sha256,
                "validation": validation.hexdigest(),
                "columns": groups.hexdigest(),
            },
            "validation": "held out",
        }


def sample_rows(table: ShardedTable) -> Problem:
    """Some rows of a table in shards, from its beginning to its end, to look at in memory."""
    step = -(-table.n_shards // _LOOKED_AT_SHARDS)
    shards = [table.rows(shard) for shard in range(0, table.n_shards, step)]
    rows = table.take([row for own in shards for row in own[:_LOOKED_AT_ROWS]])
    target = np.array(rows.column(table.target).to_pylist())
    cells = Table.from_data(rows.drop_columns([table.target]), called="X")
    # One class is enough here, where the first rows of a shard may be all of one.
    return Problem(cells, target, np.unique(target), (), Blocks.from_shape(cells.shape))


def column_table(scales: ColumnScales, table: ShardedTable, summary: TableSummary) -> ColumnTable:
    """What columns of a table in shards were taken for, as far as their summaries tell."""
    return ColumnTable(
        tuple(_info(scales, table, summary, position) for position in range(len(table.names)))
    )


def _info(
    scales: ColumnScales, table: ShardedTable, summary: TableSummary, position: int
) -> ColumnInfo:
    from pyarrow import types

    name, own = str(table.names.tolist()[position]), summary.columns[position]
    type_ = table.schema.field(name).type
    part, at = scales.where(position)
    notes: tuple[str, ...] = ()
    if isinstance(own, CategorySummary):
        distinct, at_least = len(own.counts), False
        named = types.is_dictionary(type_)
        notes = notes_on_values(list(own.counts), list(own.counts.values()), named=named)
        integral = not notes
    else:
        # Of very many numbers the last bits are dropped, so that some are counted as one.
        distinct, at_least, integral = len(own.keys), own.shift > 0, types.is_integer(type_)
    read_as: ReadAs = "category" if part == "categories" else _quantity(type_)
    distance = (
        f"0 or {scales.mismatch(at):.3g}"
        if part == "categories"
        else distance_in_words(scales.scale(at), read_as)
    )
    size = notes_on_size(distinct, own.count, own.n_missing, integral=integral, at_least=at_least)
    return ColumnInfo(name, read_as, own.n_missing, distinct, at_least, distance, (*size, *notes))


def _quantity(type_: Any) -> ReadAs:
    from pyarrow import types

    if types.is_date(type_) or types.is_timestamp(type_):
        return "date"
    return "duration" if types.is_duration(type_) else "number"
