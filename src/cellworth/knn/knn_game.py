"""KNNGame: the game of nearest neighbors, for tables in memory and for sharded tables."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import (
    ColumnType,
    ColumnTypes,
    CrossValidation,
    Floats,
    Integers,
    Mask,
    Positions,
    Scale,
    check_count,
)
from cellworth.data.blocks import Axis, Blocks, Groups
from cellworth.data.column import Column, is_missing
from cellworth.data.equal_rows import column_sha256
from cellworth.data.io import describe
from cellworth.data.problem import GroupedFolds, Problem
from cellworth.data.sharded_table import ShardedTable
from cellworth.data.tables import Table, TableLike, VectorLike
from cellworth.data.text import preview
from cellworth.games.game import EmptyPolicy, check_empty_policy
from cellworth.knn.binned import TargetScale
from cellworth.knn.distances import ColumnScales, Distances
from cellworth.knn.exact import find_targets
from cellworth.knn.shard_data import summarize_table
from cellworth.knn.shard_layout import Layout, Queries, TableSummary, count_labels
from cellworth.runtime.executors import Executor
from cellworth.sampling.statistics import CategorySummary, NumberSummary
from cellworth.valuation.column_info import (
    ColumnInfo,
    ColumnTable,
    find_notes,
)

KNNScoring = Literal[
    "neighbor_agreement",
    "balanced_neighbor_agreement",
    "neg_brier_score",
    "neg_mean_squared_error",
]
Divisor = Literal["n_neighbors", "n_voters"]
AGREEMENT, BALANCED = "neighbor_agreement", "balanced_neighbor_agreement"
BRIER = "neg_brier_score"
# Scores of scikit-learn's names, which this game does not have, and those it has.
_INSTEAD = {"accuracy": AGREEMENT, "balanced_accuracy": BALANCED}
# Each stratum needs an array of the size of the table.
_MAX_STRATA = 8
# Size of the sample of a sharded table: the first rows of some shards.
_SAMPLED_SHARDS = 8
_SAMPLED_ROWS = 500


@dataclass(frozen=True)
class NeighborAgreement:
    """Score of nearest neighbors for class labels: what the votes of the K nearest rows earn.

    Parameters
    ----------
    balanced : bool or str, default=False
        Whether all classes of validation rows have equal weights. The name of a column of X gives
        equal weights to the groups of validation rows that its contents define.
    gains : mapping or table of shape (n_rows, n_classes), default=None
        ``{(vote, label): gain}``: what a vote for one class earns for a validation row with a
        label. Other pairs earn 0. None means that a vote for the right label earns 1. Negative
        gains are costs; gains of right votes are class weights. A table has what the vote of each
        training row earns for each class, in the order of ``np.unique(y)``: with the probabilities
        of classes, rows have soft labels.
    divisor : {"n_neighbors", "n_voters"}, default="n_neighbors"
        What the sum of gains is divided by: K, as in Jia et al. (2019), or the number of rows that
        vote, min(K, size of S), as in Wang and Jia (2023). With fewer than K rows, all vote on any
        columns. So the divisor changes no value of a cell, except with ``empty="zero"`` and for
        labels (``value_labels=True``).
    radius : float, default=None
        If given, all rows within this distance vote, instead of the K nearest, and gains are
        divided by their number; without any, the utility is 0. A distance is the root of the sum
        of squared differences over the columns of a coalition, each in units of its scale. With
        ``balanced`` alone, it also serves ``ShardedKNNValuer``.

    weights : function, default=None
        Weights of votes by distance, as in scikit-learn: a function of an array of distances that
        returns an array of weights. A vote earns its weight times its gain; the divisor is the same
        as without weights. Without columns, all distances are 0.

    See Also
    --------
    cellworth.KNNValuer, KNNGame

    References
    ----------
    Wang, Zhu, Wang, Jia and Mittal (2023), Threshold KNN-Shapley: A Linear-Time and
    Privacy-Friendly Approach to Data Valuation, NeurIPS.

    Examples
    --------
    A missed "ill" costs twice what a right vote earns:

    >>> from cellworth import KNNValuer
    >>> from cellworth.knn import NeighborAgreement
    >>> gains = {("ill", "ill"): 1, ("well", "well"): 1, ("well", "ill"): -2}
    >>> X, y = [[0.0], [1.0], [8.0], [9.0]], ["ill", "ill", "well", "well"]
    >>> valuer = KNNValuer(1, scoring=NeighborAgreement(gains=gains))
    >>> valuation = valuer.fit(X, y, X_val=[[0.2], [7.0]], y_val=["ill", "well"]).valuation_
    >>> round(valuation.score, 3), round(valuation.baseline, 3)
    (1.0, 0.0)

    Both groups of a column have the same weight in the score, however many validation rows each
    has:

    >>> by_group = NeighborAgreement(balanced="x1")
    >>> valuer = KNNValuer(1, scoring=by_group)
    >>> X_val = [[0.2, 0], [0.3, 0], [0.4, 0], [7.0, 1]]
    >>> X = [[0.0, 0], [1.0, 1], [8.0, 0], [9.0, 1]]
    >>> valuer.fit(X, y, X_val=X_val, y_val=["ill", "ill", "ill", "ill"]).valuation_.score
    0.5

    Divided by the number of voters, a wrong label among the nearest rows lowers the score of few
    rows, so that it has a negative value:

    >>> X, query = [[0.0], [1.0], [8.0], [9.0]], {"X_val": [[0.2]], "y_val": ["ill"]}
    >>> by_voters = KNNValuer(3, scoring=NeighborAgreement(divisor="n_voters"), empty="zero")
    >>> by_voters.fit(X, y, **query).valuation_.values.ravel().round(3).tolist()
    [0.472, 0.472, -0.139, -0.139]

    Near rows count more:

    >>> weighted = NeighborAgreement(weights=lambda distances: 1 / (1 + distances))
    >>> valuer = KNNValuer(2, scoring=weighted, scale=None, empty="zero")
    >>> valuer.fit(X, y, **query).valuation_.values.ravel().round(3).tolist()
    [0.417, 0.278, 0.0, 0.0]

    Only rows within a distance vote, here the first two:

    >>> near = KNNValuer(scoring=NeighborAgreement(radius=1.0), scale=None, empty="zero")
    >>> near.fit(X, y, **query).valuation_.values.ravel().round(3).tolist()
    [0.5, 0.5, 0.0, 0.0]
    """

    balanced: bool | str = False
    gains: Mapping[tuple[Any, Any], float] | TableLike | None = None
    divisor: Divisor = "n_neighbors"
    radius: float | None = None
    weights: Callable[[Floats], Floats] | None = None

    def __post_init__(self) -> None:
        """Check the parameters."""
        if not isinstance(self.balanced, bool | str):
            raise TypeError(
                f"balanced must be True, False or the name of a column, got {self.balanced!r}."
            )
        if self.divisor not in get_args(Divisor):
            choices = " or ".join(map(repr, get_args(Divisor)))
            raise ValueError(f"divisor must be {choices}, got {self.divisor!r}.")
        if self.radius is not None and not 0 <= self.radius < math.inf:
            raise ValueError(f"radius must be a finite number from 0, got {self.radius!r}.")
        if self.weights is not None and not callable(self.weights):
            raise TypeError(f"weights must be a function of distances, got {self.weights!r}.")

    @property
    def fits_bins(self) -> bool:
        """Whether the score follows from counts of right and wrong labels in bins."""
        divides = self.radius is None and self.divisor == "n_voters"
        return self.gains is None and self.weights is None and not divides

    @property
    def name(self) -> str:
        """Name of the score."""
        name = AGREEMENT if self.gains is None and self.weights is None else "neighbor_gain"
        return f"balanced_{name}" if self.balanced else name

    def tabulate_gains(self, classes: NDArray[Any], votes: NDArray[Any]) -> Floats:
        """Return what rows with these codes of labels earn, shape (n_classes, n_rows)."""
        if self.gains is not None and not isinstance(self.gains, Mapping):
            return _check_row_gains(self.gains, classes, len(votes)).T.copy()
        codes = {label: code for code, label in enumerate(classes.tolist())}
        table = np.eye(len(codes)) if self.gains is None else np.zeros((len(codes), len(codes)))
        for pair, gain in {} if self.gains is None else _check_gains(self.gains).items():
            for label in pair:
                if label not in codes:
                    raise ValueError(f"gains have the label {label!r}, which is not in y.")
            table[codes[pair[1]], codes[pair[0]]] = gain
        return table[:, votes.astype(np.int64)]


def _check_row_gains(gains: Any, classes: NDArray[Any], n_rows: int) -> Floats:
    columns, shape = list(getattr(gains, "columns", classes)), (n_rows, len(classes))
    if columns != classes.tolist():
        raise ValueError(f"gains must have the columns {preview(classes)}, got {preview(columns)}.")
    try:
        table = np.array(gains, dtype=np.float64)
    except (TypeError, ValueError):
        table = np.empty(0)
    if table.shape != shape:
        raise ValueError(
            "gains must be {(vote, label): number} or numbers of shape "
            f"(n_rows, n_classes) = {shape}, got {repr(gains)[:80]}."
        )
    if not np.isfinite(table).all():
        raise ValueError("gains must be finite numbers, got NaN or infinity.")
    return table


def _check_gains(gains: Mapping[Any, Any]) -> dict[tuple[Any, Any], float]:
    form = "gains must be {(vote, label): number}"
    if not gains:
        raise TypeError(f"{form}, got {gains!r}.")
    for pair, gain in gains.items():
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ValueError(f"{form}, got the key {pair!r}.")
        if not np.isscalar(gain) or isinstance(gain, str) or not np.isfinite(gain):
            raise ValueError(f"{form}, got {gain!r} for {pair!r}; give a finite number.")
    return {pair: float(gain) for pair, gain in gains.items()}


class KNNGame:
    """Game whose utility is how well the nearest rows predict the validation labels.

    Consider one validation row, training rows S and columns F. For a class label the utility is the
    number of matching labels among the min(K, size of S) nearest rows, divided by K as in Jia et
    al. (2019); ``NeighborAgreement`` has other gains and divisors. For a numeric target it is minus
    the squared error of the mean of K targets: those of the nearest rows and, if there are fewer
    than K, the mean target of all training rows for the others. The Brier score is the sum of these
    errors over classes, whose targets are 0 or 1; with two classes it is the error of one.

    The game's utility is a weighted mean over all validation rows. If rows tie at the K-th
    distance, the utility is the mean over all of their orders.

    Parameters
    ----------
    X, y, X_val, y_val
        Tables and labels. Labels are a numeric target if they have fractions or more than 50
        different numbers, and classes otherwise; ``scoring`` overrides this.
    n_neighbors : int, default=5
    scoring : str or NeighborAgreement, default=None
        "neighbor_agreement": mean share of the K nearest rows with the correct label; the default
        for classes. "balanced_neighbor_agreement": the same with equal weights of all classes of
        validation rows. "neg_brier_score": minus the squared error of the shares of classes, as
        scikit-learn defines it. "neg_mean_squared_error": the default for numeric targets.
        ``NeighborAgreement(gains=..., divisor=...)``: gains of votes instead of matches.
    scale : {"robust", "std"} or None, default="robust"
        Divisor of numeric columns: interquartile range, standard deviation, or none.
    column_types : mapping, default=None
        Type of a column, "numeric" or "categorical", if the guess from its data type is wrong.
    cv : int, splitter or iterable of (train, validation) positions, default=5
        Used without validation rows: each fold serves once as the validation set for the remaining
        rows.
    row_groups, column_groups
        One label per row (column), or a mapping from labels to ids, as in ``KNNValuer.fit``.
    empty : {"prior", "zero"}, default="prior"
        With "prior", all rows tie if there are no columns, so K random rows vote. If there are no
        rows, no label matches, and the prediction of a numeric target is the mean. With "zero", the
        utility is 0 in both cases.

    See Also
    --------
    cellworth.KNNValuer, cellworth.games.ModelGame

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
        scoring: KNNScoring | NeighborAgreement | None = None,
        scale: Scale = "robust",
        column_types: ColumnTypes | None = None,
        cv: CrossValidation | GroupedFolds = 5,
        row_groups: Groups = None,
        column_groups: Groups = None,
        empty: EmptyPolicy = "prior",
    ) -> None:
        self.problem: Problem = Problem.from_data(
            X, y, X_val, y_val, classification=wants_classes(scoring), row_groups=row_groups,
            column_groups=column_groups, cv=cv, allow_one_class=True,
        )  # fmt: skip
        self.n_neighbors: int = check_count(n_neighbors, "n_neighbors")
        self.agreement: NeighborAgreement = read_agreement(scoring)
        self.scoring: str = BALANCED if self.agreement.balanced else AGREEMENT
        if scoring == BRIER or not self.is_class:
            self.scoring = BRIER if self.is_class else "neg_mean_squared_error"
        self.empty = check_empty_policy(empty)
        self.blocks: Blocks = self.problem.blocks
        tables = [fold.table for fold in self.problem.folds]
        self.distances: Distances = Distances.from_tables(
            self.problem.table, tables, scale=scale, column_types=column_types
        )
        self.scale = scale
        self.column_types: dict[Hashable, ColumnType] = dict(column_types or {})
        if self.is_class and self.agreement.radius is None:
            n_rows = max(int(fold.may_train.sum()) for fold in self.problem.folds)
            warn_too_many_neighbors(self.n_neighbors, n_rows)

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
            **self._gains_spec(),
            **self.problem.problem_spec(),
        }

    def _gains_spec(self) -> dict[str, Any]:
        """Return what differs from the plain score."""
        agreement, spec = self.agreement, dict[str, Any]()
        if isinstance(agreement.gains, Mapping):
            classes = cast(NDArray[Any], self.problem.classes)
            spec["gains"] = agreement.tabulate_gains(classes, np.arange(len(classes))).T.tolist()
        elif agreement.gains is not None:
            spec["gains_sha256"] = column_sha256(cast(Floats, self.gains).ravel()).hex()
        if agreement.weights is not None:
            spec["weights"] = describe(agreement.weights)
        if isinstance(agreement.balanced, str):
            spec["balanced"] = agreement.balanced
        if agreement.radius is not None:
            spec |= {"n_neighbors": None, "radius": float(agreement.radius)}
        elif agreement.divisor != "n_neighbors":
            spec["divisor"] = agreement.divisor
        return spec

    @property
    def score_name(self) -> str:
        """Name of the score, also for gains."""
        return self.agreement.name if self.has_votes else self.scoring

    @property
    def limit(self) -> int | None:
        """Largest distance of a row that votes, in integer units; None for the K nearest rows."""
        radius = self.agreement.radius
        return None if radius is None else self.distances.scales.measure_radius(radius)

    def count_votes(self, n_rows: int) -> int:
        """Return the divisor of the gains of n_rows rows."""
        if self.agreement.divisor == "n_voters":
            return min(self.n_neighbors, n_rows)
        return self.n_neighbors

    @property
    def has_votes(self) -> bool:
        """Whether votes count, instead of a squared error."""
        return self.n_targets == 0

    @property
    def n_targets(self) -> int:
        """Number of targets whose squared errors count."""
        classes = self.problem.classes
        if classes is None or self.scoring != BRIER:
            return int(classes is None)
        # With two classes, both errors are the same.
        return len(classes) if len(classes) > 2 else 1

    @property
    def fits_bins(self) -> bool:
        """Whether rows may be ranked in bins."""
        return self.agreement.fits_bins and self.scoring != BRIER

    @cached_property
    def gains(self) -> Floats | None:
        """What the votes of rows (columns) earn for labels (lines); None for plain matches."""
        classes, agreement = self.problem.classes, self.agreement
        plain = agreement.fits_bins and agreement.radius is None
        return None if classes is None or plain else agreement.tabulate_gains(classes, self.labels)

    def find_gains(self, rows: Positions, asked: Floats) -> NDArray[Any]:
        """Return what votes of training rows earn for labels, shape (n_asked, n_rows)."""
        if self.gains is None:
            return np.asarray(self.labels[rows] == asked[:, np.newaxis])
        return self.gains[asked.astype(np.int64)][:, rows]

    def weigh(self, distances: Integers | Floats) -> Floats:
        """Return the weights of votes at these distances, in integer units."""
        weights = cast(Callable[[Floats], Any], self.agreement.weights)
        lengths = np.sqrt(distances / self.distances.scales.unit)
        with np.errstate(all="ignore"):
            found = np.asarray(weights(lengths), dtype=np.float64)
        if found.shape != distances.shape or not np.isfinite(found).all():
            raise ValueError(
                "weights must return a finite number for every distance from 0, got "
                f"{repr(found)[:80]}."
            )
        return found

    def class_targets(self, fold: int) -> Floats | None:
        """Return the targets of classes for the Brier score, less the means of a fold's rows.

        There is a line per target, and a column per class.
        """
        if self.problem.classes is None or self.has_votes:
            return None
        one_hot = np.eye(len(self.problem.classes))[-self.n_targets :]
        codes = self.labels_in(fold).astype(np.int64)
        return np.asarray(one_hot - one_hot[:, codes].mean(axis=1, keepdims=True))

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
            TargetScale.from_summary(
                NumberSummary.from_cells(self.labels[fold.may_train]), low, high
            )
            for fold in self.problem.folds
        ]

    @property
    def n_queries(self) -> int:
        """Number of validation rows in all folds."""
        return sum(map(len, self.query_labels))

    @cached_property
    def query_weights(self) -> list[Floats]:
        """Weight of each validation row; all weights add up to 1."""
        return query_weights(self.query_groups, self.scoring)

    @cached_property
    def query_groups(self) -> list[Floats]:
        """Groups of validation rows by fold, of equal weight if the score is balanced: classes."""
        name = self.agreement.balanced
        if not isinstance(name, str):
            return self.query_labels
        names = list(map(str, self.problem.table.names.tolist()))
        if name not in names:
            raise ValueError(
                f"balanced={name!r} must be the name of a column of X: {preview(names)}."
            )
        cells = [fold.table.column(names.index(name)).tolist() for fold in self.problem.folds]
        groups = ["" if is_missing(cell) else f"{cell}." for own in cells for cell in own]
        codes = np.unique(groups, return_inverse=True)[1].astype(np.float64)
        return np.split(codes, np.cumsum([len(own) for own in cells])[:-1])

    def value(self, rows: Mask, columns: Mask) -> float:
        """Return the weighted mean of the utility over all validation rows."""
        positions = self.blocks.columns.positions(columns)
        if len(positions) == 0 and self.empty == "zero":
            return 0.0
        total = 0.0
        joined = rows[self.blocks.rows.codes]
        for fold, weights in enumerate(self.query_weights):
            may_train = self.problem.folds[fold].may_train
            train = np.flatnonzero(joined & may_train)
            asked, labels = self.query_labels[fold], self.labels_in(fold)[joined[may_train]]
            class_targets = self.class_targets(fold)
            targets, targets_asked = (find_targets(s, class_targets) for s in (labels, asked))
            for query, weight in enumerate(weights.tolist()):
                if len(train) == 0 and (self.has_votes or self.empty == "zero"):
                    continue
                distances = self.distances.measure(fold, query)[positions][:, train].sum(axis=0)
                if self.has_votes:
                    gains = self.find_gains(train, asked[query : query + 1])[0]
                    total += weight * self._score_votes(distances, gains)
                else:
                    errors = zip(targets, targets_asked[:, query].tolist(), strict=True)
                    total -= weight * sum(
                        compute_expected_error(distances, *error, self.n_neighbors)
                        for error in errors
                    )
        return total

    def _score_votes(self, distances: Integers, gains: NDArray[Any]) -> float:
        gains = gains if self.agreement.weights is None else self.weigh(distances) * gains
        if self.limit is not None:
            near = distances <= self.limit
            return float(gains[near].mean()) if near.any() else 0.0
        earned = compute_expected_matches(distances, gains, self.n_neighbors)
        return earned / self.count_votes(len(gains))

    def _read_coded(self, target: NDArray[Any]) -> Floats:
        classes = self.problem.classes
        return target if classes is None else np.searchsorted(classes, target).astype(np.float64)


def warn_too_many_neighbors(n_neighbors: int, n_rows: int) -> None:
    """Warn if every row is among the nearest."""
    if n_neighbors >= n_rows:
        warnings.warn(
            f"n_neighbors should be less than the number of training rows, {n_rows}, got "
            f"{n_neighbors}; all rows always vote, so columns have no effect.",
            stacklevel=2,
        )


def query_weights(labels: list[Floats], scoring: str) -> list[Floats]:
    """Return the weight of each validation row by fold; all weights add up to 1.

    Labels are classes or other groups.
    """
    together, ends = np.concatenate(labels), np.cumsum([len(own) for own in labels])
    weights = np.full(len(together), 1.0 / len(together))
    if scoring == BALANCED:
        _, position, count = np.unique(together, return_inverse=True, return_counts=True)
        weights = 1.0 / (len(count) * count[position])
    return np.split(weights, ends[:-1])


def stratify_queries(labels: list[Floats], scoring: str) -> list[Positions]:
    """Return the stratum of each validation row by fold: its class if the score is balanced.

    If there are many classes, the rarest share one stratum.
    """
    together, ends = np.concatenate(labels), np.cumsum([len(own) for own in labels])
    strata = np.zeros(len(together), dtype=np.intp)
    if scoring == BALANCED:
        _, position, count = np.unique(together, return_inverse=True, return_counts=True)
        by_size = np.argsort(np.argsort(-count, kind="stable"))
        strata = np.minimum(by_size, _MAX_STRATA - 1)[position]
    return np.split(strata, ends[:-1])


def compute_expected_matches(
    distances: NDArray[Any], match: NDArray[Any], n_neighbors: int
) -> float:
    """Return the sum of matches of the nearest rows, as a mean over all orders of ties."""
    nearer, tied, n_left = _nearest(distances, n_neighbors)
    return float(match[nearer].sum() + match[tied].mean() * n_left)


def compute_expected_error(
    distances: NDArray[Any], targets: Floats, target: float, n_neighbors: int
) -> float:
    """Return the squared error of the nearest rows' sum over K, averaged over orders of ties."""
    if len(targets) == 0:
        return target**2
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
    return (
        isinstance(scoring, NeighborAgreement) or check_scoring(scoring) != "neg_mean_squared_error"
    )


def read_agreement(scoring: KNNScoring | NeighborAgreement | None) -> NeighborAgreement:
    """Return the agreement that a score names; squared errors take no part of it."""
    if isinstance(scoring, NeighborAgreement):
        return scoring
    return NeighborAgreement(balanced=scoring == BALANCED)


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
    column_types: dict[Any, ColumnType]
    empty: EmptyPolicy
    sha256: str  # Hash of the table's cells
    column_info: ColumnTable
    label_counts: dict[Any, int]  # Rows by label; empty if there are too many numbers
    radius: float | None = None  # If rows within a distance vote, instead of the nearest

    @property
    def class_counts(self) -> Integers | None:
        """Number of rows per class; None for a numeric target."""
        counts = np.array(self.layout.class_counts, dtype=np.int64)
        return counts if self.layout.target_scale is None else None

    @classmethod
    def from_table(
        cls,
        table: ShardedTable,
        X_val: Any,
        y_val: Any,
        *,
        n_neighbors: int,
        scoring: KNNScoring | NeighborAgreement | None,
        scale: Scale,
        column_types: ColumnTypes | None,
        empty: EmptyPolicy,
        column_groups: Groups,
        executor: Executor,
        show_progress: bool,
    ) -> ShardedKNNGame:
        """Check the parameters, and summarize the columns in one pass over the shards."""
        classes, agreement = wants_classes(scoring), read_agreement(scoring)
        if scoring == BRIER or not agreement.fits_bins or isinstance(agreement.balanced, str):
            raise ValueError(
                f"scoring of a sharded table must be {AGREEMENT!r}, {BALANCED!r}, "
                "'neg_mean_squared_error' or NeighborAgreement with a radius alone, got "
                f"{scoring!r}; the Brier score, gains, weights, divisors and groups are for tables "
                "in memory."
            )
        n_neighbors = check_count(n_neighbors, "n_neighbors")
        columns = Axis.from_groups(table.names, column_groups, what="column")
        summary = summarize_table(table, column_types, executor, show_progress=show_progress)
        layout, queries = Layout.from_summary(
            table, summary, X_val, y_val,
            column_types=column_types, scale=scale, classification=classes,
        )  # fmt: skip
        is_class = layout.target_scale is None
        if is_class and agreement.radius is None:
            warn_too_many_neighbors(n_neighbors, table.shape[0])
        name = BALANCED if agreement.balanced else AGREEMENT
        return cls(
            table, layout, queries, columns, n_neighbors,
            name if is_class else "neg_mean_squared_error",
            scale, dict(column_types or {}), check_empty_policy(empty), summary.sha256(table),
            describe_columns(layout.scales, table, summary), count_labels(table, summary),
            agreement.radius,
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
        votes = {"n_neighbors": self.n_neighbors}
        return {
            "game": "ShardedKNNGame",
            **(votes if self.radius is None else {"n_neighbors": None, "radius": self.radius}),
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


def describe_columns(
    scales: ColumnScales, table: ShardedTable, summary: TableSummary
) -> ColumnTable:
    """Describe how the columns of a sharded table are read, from their summaries."""
    from pyarrow import types

    lines = []
    for position, (name, own) in enumerate(
        zip(map(str, table.names.tolist()), summary.columns, strict=True)
    ):
        type_ = table.schema.field(name).type
        if isinstance(own, CategorySummary):
            distinct, at_least, integral = len(own.counts), False, True
        else:
            # Summaries of very many numbers drop low bits, so some numbers are counted as one.
            distinct, at_least, integral = len(own.keys), own.shift > 0, types.is_integer(type_)
        read_as, distance = scales.describe(position, Column(name, (), type_))
        notes = find_notes(distinct, own.count, own.n_missing, integral=integral, at_least=at_least)
        lines.append(ColumnInfo(name, read_as, own.n_missing, distinct, at_least, distance, notes))
    return ColumnTable(tuple(lines))
