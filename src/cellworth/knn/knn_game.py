"""KNNGame: the game of nearest neighbors, for tables in memory and for sharded tables."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import (
    ColumnType,
    ColumnTypes,
    CrossValidation,
    Distance,
    Floats,
    Integers,
    Mask,
    Positions,
    Scale,
    check_count,
)
from cellworth.data.blocks import Axis, Blocks, Groups
from cellworth.data.io import describe
from cellworth.data.problem import GroupedFolds, Problem
from cellworth.data.sharded_table import ShardedTable
from cellworth.data.tables import Table, TableLike, VectorLike, column_sha256
from cellworth.games.game import EmptyPolicy, check_empty_policy
from cellworth.knn.binned import TargetScale
from cellworth.knn.distances import ColumnScales, Distances
from cellworth.knn.shard_data import summarize_table
from cellworth.knn.shard_layout import Layout, Queries, TableSummary
from cellworth.runtime.executors import Executor
from cellworth.sampling.statistics import CategorySummary, NumberSummary
from cellworth.valuation.column_info import (
    ColumnInfo,
    ColumnTable,
    ReadAs,
    distance_in_words,
    notes_on_size,
    notes_on_values,
)

KNNScoring = Literal["neighbor_agreement", "balanced_neighbor_agreement", "neg_mean_squared_error"]
# Scores of scikit-learn's names, which this game does not have, and those it has.
_INSTEAD = {"accuracy": "neighbor_agreement", "balanced_accuracy": "balanced_neighbor_agreement"}
# Each stratum needs an array of the size of the table.
_MOST_STRATA = 8
# Size of the sample of a sharded table: the first rows of some shards.
_SAMPLED_SHARDS = 8
_SAMPLED_ROWS = 500


class KNNGame:
    """Game whose utility is how well the nearest rows predict the validation labels.

    Consider one validation row, training rows S and columns F. For a class label the utility is the
    number of matching labels among the min(K, size of S) nearest rows, divided by K as in Jia et
    al. (2019), not by min(K, size of S) as in Wang and Jia (2023). For a numeric target it is minus
    the squared error of the mean of K targets: those of the nearest rows and, if there are fewer
    than K, the mean target of all training rows for the others.

    The game's utility is a weighted mean over all validation rows. If rows tie at the K-th
    distance, the utility is the mean over all of their orders.

    Parameters
    ----------
    X, y, X_val, y_val
        Tables and labels. Labels are a numeric target if they have fractions or more than 50
        different numbers, and classes otherwise; ``scoring`` overrides this.
    n_neighbors : int, default=5
    scoring : str, default=None
        "neighbor_agreement": mean share of the K nearest rows with the correct label; the default
        for classes. "balanced_neighbor_agreement": the same with equal weights of all classes of
        validation rows. "neg_mean_squared_error": the default for numeric targets.
    scale : {"robust", "std"} or None, default="robust"
        Divisor of numeric columns: interquartile range, standard deviation, or none.
    column_types : mapping, default=None
        Type of a column, "numeric" or "categorical", if the guess from its data type is wrong; or a
        function of two cells that returns their squared distance.
    cv : int, splitter or iterable of (train, validation) positions, default=5
        Used without validation rows: each fold serves once as the validation set for the remaining
        rows.
    row_groups, column_groups
        As in :meth:`~cellworth.data.Blocks.cut`.
    empty : {"prior", "zero"}, default="prior"
        With "prior", all rows tie if there are no columns, so K random rows vote. If there are no
        rows, no label matches, and the prediction of a numeric target is the mean. With "zero", the
        utility is 0 in both cases.

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
        X: TableLike,
        y: VectorLike | None,
        X_val: TableLike | None = None,
        y_val: VectorLike | None = None,
        *,
        n_neighbors: int = 5,
        scoring: KNNScoring | None = None,
        scale: Scale = "robust",
        column_types: ColumnTypes | None = None,
        cv: CrossValidation | GroupedFolds = 5,
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
        self.column_types: dict[Hashable, ColumnType | Distance] = dict(column_types or {})
        self._warn_of_too_many_neighbors()

    @property
    def is_class(self) -> bool:
        """Whether labels are classes."""
        return self.problem.classes is not None

    @property
    def shape(self) -> tuple[int, int]:
        """Number of row players and of column players."""
        return self.blocks.shape

    def problem_spec(self) -> dict[str, Any]:
        """Return everything that determines the values of this game."""
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
        """Return the labels of a fold's training rows; numeric targets are centered."""
        labels = self.labels[self.problem.folds[fold].may_train]
        return labels if self.is_class else labels - self._means[fold]

    @cached_property
    def query_labels(self) -> list[Floats]:
        """Codes of the validation rows' classes by fold, or targets minus the same means."""
        labels = [self._read_coded(fold.target) for fold in self.problem.folds]
        if self.is_class:
            return labels
        return [some - mean for some, mean in zip(labels, self._means, strict=True)]

    @cached_property
    def _means(self) -> list[float]:
        """Mean target of each fold's training rows, the same for any order of them."""
        trained = (self.labels[fold.may_train] for fold in self.problem.folds)
        return [math.fsum(labels) / len(labels) for labels in trained]

    @cached_property
    def target_scales(self) -> list[TargetScale | None]:
        """Steps of each fold's targets in bins; None for classes."""
        if self.is_class:
            return [None] * len(self.problem.folds)
        every = np.concatenate([self.labels, *(fold.target for fold in self.problem.folds)])
        low, high = float(every.min()), float(every.max())
        return [
            TargetScale.of(NumberSummary.from_cells(self.labels[fold.may_train]), low, high)
            for fold in self.problem.folds
        ]

    @property
    def n_queries(self) -> int:
        """Number of validation rows in all folds."""
        return sum(map(len, self.query_labels))

    @cached_property
    def query_weights(self) -> list[Floats]:
        """Weight of each validation row; all weights add up to 1."""
        return query_weights(self.query_labels, self.scoring)

    def value(self, rows: Mask, columns: Mask) -> float:
        """Return the weighted mean of the utility over all validation rows."""
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
                label = self.query_labels[fold][query]
                total += float(weight) * self._utility(distances, labels, label)
        return total

    def _utility(self, distances: Integers, labels: Floats, label: float) -> float:
        k = self.n_neighbors
        if len(labels) == 0:
            return 0.0 if self.is_class or self.empty == "zero" else -(float(label) ** 2)
        if self.is_class:
            return compute_expected_matches(distances, labels == label, k) / k
        return -compute_expected_error(distances, labels, label, k)

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
    """Warn if every row is among the nearest."""
    if n_neighbors >= n_rows:
        warnings.warn(
            f"n_neighbors should be less than the number of training rows, {n_rows}, got "
            f"{n_neighbors}; all rows always vote, so columns have no effect.",
            stacklevel=2,
        )


def query_weights(labels: list[Floats], scoring: str) -> list[Floats]:
    """Return the weight of each validation row by fold; all weights add up to 1."""
    ends = np.cumsum([len(some) for some in labels])
    weights = np.full(ends[-1], 1.0 / ends[-1])
    if scoring == "balanced_neighbor_agreement":
        together = np.concatenate(labels)
        _, position, count = np.unique(together, return_inverse=True, return_counts=True)
        weights = 1.0 / (len(count) * count[position])
    return np.split(weights, ends[:-1])


def stratify_queries(labels: list[Floats], scoring: str) -> list[Positions]:
    """Return the stratum of each validation row by fold: its class if the score is balanced.

    If there are many classes, the rarest share one stratum.
    """
    ends = np.cumsum([len(some) for some in labels])
    strata = np.zeros(ends[-1], dtype=np.intp)
    if scoring == "balanced_neighbor_agreement":
        together = np.concatenate(labels)
        _, position, count = np.unique(together, return_inverse=True, return_counts=True)
        by_size = np.argsort(np.argsort(-count, kind="stable"))
        strata = np.minimum(by_size, _MOST_STRATA - 1)[position]
    return np.split(strata, ends[:-1])


def compute_expected_matches(distances: NDArray[Any], match: Mask, n_neighbors: int) -> float:
    """Return the number of matches among the nearest rows, as a mean over all orders of ties."""
    nearer, tied, n_left = _nearest(distances, n_neighbors)
    return float(match[nearer].sum() + match[tied].mean() * n_left)


def compute_expected_error(
    distances: NDArray[Any], targets: Floats, target: float, n_neighbors: int
) -> float:
    """Return the squared error of the nearest rows' sum over K, averaged over orders of ties."""
    nearer, tied, n_left = _nearest(distances, n_neighbors)
    mean = targets[nearer].sum() + n_left * targets[tied].mean()
    n_tied = int(tied.sum())
    # Variance of a sum of n_left tied targets, drawn without replacement.
    correction = (n_tied - n_left) / max(n_tied - 1, 1)
    variance = n_left * float(np.var(targets[tied])) * correction
    return float((mean / n_neighbors - target) ** 2 + variance / n_neighbors**2)


def _nearest(distances: NDArray[Any], n_neighbors: int) -> tuple[Mask, Mask, int]:
    """Return the rows that certainly vote, the rows that tie, and how many of these vote."""
    n_nearest = min(n_neighbors, len(distances))
    farthest = np.sort(distances)[n_nearest - 1]
    nearer, tied = distances < farthest, distances == farthest
    return nearer, tied, n_nearest - int(nearer.sum())


def wants_classes(scoring: Any) -> bool | None:
    """Return whether a score needs class labels; None if the labels decide."""
    if scoring is None:
        return None
    return check_scoring(scoring) != "neg_mean_squared_error"


def check_scoring(scoring: Any, called: str = "scoring") -> KNNScoring:
    """Check the name of a score."""
    if scoring in get_args(KNNScoring):
        return cast(KNNScoring, scoring)
    if isinstance(scoring, str) and scoring in _INSTEAD:
        raise ValueError(
            f"{called} must be the share of the K nearest rows with the correct label, got "
            f"{scoring!r}; use {_INSTEAD[scoring]!r}."
        )
    choices = ", ".join(map(repr, get_args(KNNScoring)))
    raise ValueError(f"{called} must be one of {choices}, got {scoring!r}; or leave it out.")


@dataclass(frozen=True, eq=False)
class ShardedKNNGame:
    """The game of nearest neighbors for a sharded table; it holds no training rows.

    Parameters are those of :class:`~cellworth.knn.KNNGame`.
    """

    table: ShardedTable
    layout: Layout
    queries: Queries
    columns: Axis  # Column players
    n_neighbors: int
    scoring: str
    scale: Scale
    column_types: dict[Any, ColumnType | Distance]
    empty: EmptyPolicy
    sha256: str  # Hash of the table's cells
    column_info: ColumnTable
    label_counts: dict[Any, int]  # Rows by label; empty if there are too many numbers

    @property
    def class_counts(self) -> Integers | None:
        """Number of rows per class; None for a numeric target."""
        counts = np.array(self.layout.class_counts, dtype=np.int64)
        return counts if self.layout.target_scale is None else None

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
        """Check the parameters, and summarize the columns in one pass over the shards."""
        classes = wants_classes(scoring)
        n_neighbors = check_count(n_neighbors, "n_neighbors")
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
        is_class = layout.target_scale is None
        if is_class:
            warn_too_many_neighbors(n_neighbors, table.shape[0])
        scoring = scoring or ("neighbor_agreement" if is_class else "neg_mean_squared_error")
        counts = summary.labels.counts if isinstance(summary.labels, CategorySummary) else {}
        return cls(
            table, layout, queries, columns, n_neighbors, scoring,
            scale, dict(column_types or {}), check_empty_policy(empty), summary.sha256(table),
            column_table(layout.scales, table, summary), counts,
        )  # fmt: skip

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of column players."""
        return self.table.shape[0], len(self.columns)

    @property
    def n_queries(self) -> int:
        """Number of validation rows."""
        return len(self.queries.labels)

    @property
    def query_labels(self) -> list[Floats]:
        """Codes of the validation rows' classes, or centered targets, in one fold."""
        return [self.queries.labels.astype(np.float64)]

    def problem_spec(self) -> dict[str, Any]:
        """Return everything that determines the values of this game."""
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


def sample_rows(table: ShardedTable, *, is_class: bool) -> Problem:
    """Read the first rows of some shards, distributed over the table, into memory."""
    step = -(-table.n_shards // _SAMPLED_SHARDS)
    shards = [table.rows(shard) for shard in range(0, table.n_shards, step)]
    rows = table.take([row for own in shards for row in own[:_SAMPLED_ROWS]])
    target = np.array(rows.column(table.target).to_pylist())
    cells = Table.from_data(rows.drop_columns([table.target]), called="X")
    if not is_class:
        target = target.astype(np.float64)
    # All sampled rows may be of one class.
    classes = np.unique(target) if is_class else None
    return Problem(cells, target, classes, (), Blocks.from_shape(cells.shape))


def column_table(scales: ColumnScales, table: ShardedTable, summary: TableSummary) -> ColumnTable:
    """Describe how the columns of a sharded table are read, from their summaries."""
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
        # Summaries of very many numbers drop low bits, so some numbers are counted as one.
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
