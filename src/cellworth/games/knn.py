"""KNNGame: the K-nearest-neighbour utility by its definition, slow and plainly right."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from cellworth.blocks import Groups
from cellworth.counts import Distance, Floats, Kind, Mask, Positions, Scale, Wholes, checked_count
from cellworth.games.base import EmptyPolicy, checked_policy
from cellworth.neighbours.distances import Distances
from cellworth.problem import Problem
from cellworth.provenance import described

KNNScoring = Literal["neighbor_agreement", "balanced_neighbor_agreement", "neg_mean_squared_error"]
# What scikit-learn calls the share of right predictions, which this game does not score by.
_INSTEAD = {
    "accuracy": "neighbor_agreement",
    "balanced_accuracy": "balanced_neighbor_agreement",
}
# How values differ between validation rows is noted for all cells, once for each stratum.
_MOST_STRATA = 8


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
    kinds : mapping, default=None
        Kind of a column, "numeric" or "categorical", where the guess from its type is wrong; or a
        function of two cells that returns their squared distance.
    row_groups, column_groups
        As in :meth:`cellworth.Blocks.cut`.
    empty : {"prior", "zero"}, default="prior"
        With no columns all rows tie, so that any K of them vote ("prior"), or the utility is 0
        ("zero"). With no rows nothing matches, and a numeric target is met by the mean ("prior") or
        the utility is 0 ("zero").
    cv : int or splitter, default=5
        Used when there is no validation set: each fold serves once as the validation set for the
        remaining rows.
    groups : array-like, default=None
        Rows that a splitter keeps together.

    References
    ----------
    Jia, Dao, Wang, Hubis, Gürel, Li, Zhang, Spanos and Song (2019), Efficient Task-Specific Data
    Valuation for Nearest Neighbor Algorithms, Proceedings of the VLDB Endowment.

    Wang and Jia (2023), A Note on "Efficient Task-Specific Data Valuation for Nearest Neighbor
    Algorithms", arXiv:2304.04258.

    Examples
    --------
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
        kinds: Mapping[Any, Kind | Distance] | None = None,
        row_groups: Groups | str = None,
        column_groups: Groups = None,
        empty: EmptyPolicy = "prior",
        cv: Any = 5,
        groups: Any = None,
    ) -> None:
        """Check the data and measure columns."""
        self.problem = Problem.of(
            X, y, X_val, y_val, classification=wants_classes(scoring), row_groups=row_groups,
            column_groups=column_groups, cv=cv, groups=groups, one_class_can_judge=True,
        )  # fmt: skip
        self.n_neighbors = checked_count(n_neighbors, "n_neighbors")
        self.scoring = scoring or (
            "neighbor_agreement" if self.is_class else "neg_mean_squared_error"
        )
        self.empty = checked_policy(empty)
        self.blocks = self.problem.blocks
        self.distances = Distances.of(
            self.problem.table,
            [fold.table for fold in self.problem.folds],
            scale=scale,
            kinds=kinds,
        )
        self.scale, self.kinds = scale, dict(kinds or {})
        self._warn_of_too_many_neighbors()

    @property
    def is_class(self) -> bool:
        """Whether labels are classes."""
        return self.problem.classes is not None

    @property
    def shape(self) -> tuple[int, int]:
        """Number of players among the rows and among the columns."""
        return self.blocks.shape

    def question(self) -> dict[str, Any]:
        """What decides the values of this game."""
        return {
            "game": "KNNGame",
            "n_neighbors": self.n_neighbors,
            "scoring": self.scoring,
            "scale": self.scale,
            "kinds": {str(name): described(kind) for name, kind in self.kinds.items()},
            "distances_sha256": self.distances.sha256(),
            "empty": self.empty,
            **self.problem.question(),
        }

    @cached_property
    def labels(self) -> Floats:
        """Codes of the training rows' classes, or their targets."""
        return self._coded(self.problem.target)

    def labels_in(self, fold: int) -> Floats:
        """Labels of the rows that may be learned from in a fold; targets are minus their mean."""
        labels = self.labels[self.problem.folds[fold].may_train]
        return labels if self.is_class else labels - self._means[fold]

    @cached_property
    def query_labels(self) -> list[Floats]:
        """Codes or targets of the validation rows, fold by fold, minus the same means."""
        labels = [self._coded(fold.target) for fold in self.problem.folds]
        if self.is_class:
            return labels
        return [some - mean for some, mean in zip(labels, self._means, strict=True)]

    @cached_property
    def _means(self) -> list[float]:
        """Mean target of the rows that may be learned from: judged rows must not leak into it."""
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
        places = self.blocks.columns.positions(columns)
        if len(places) == 0 and self.empty == "zero":
            return 0.0
        total = 0.0
        joined = rows[self.blocks.rows.codes]
        for fold, weights in enumerate(self.query_weights):
            may_train = self.problem.folds[fold].may_train
            train, labels = np.flatnonzero(joined & may_train), self.labels_in(fold)
            labels = labels[joined[may_train]]
            for query, weight in enumerate(weights):
                distances = self.distances.measured(fold, query)[places][:, train].sum(axis=0)
                asked = self.query_labels[fold][query]
                total += float(weight) * self._utility(distances, labels, asked)
        return total

    def _utility(self, distances: Wholes, labels: Floats, asked: float) -> float:
        if len(labels) == 0:
            return 0.0 if self.is_class or self.empty == "zero" else -(float(asked) ** 2)
        if self.is_class:
            return expected_matches(distances, labels == asked, self.n_neighbors) / self.n_neighbors
        return -expected_error(distances, labels, asked, self.n_neighbors)

    def _coded(self, target: NDArray[Any]) -> Floats:
        classes = self.problem.classes
        if classes is not None:
            return np.searchsorted(classes, target).astype(np.float64)
        return target

    def _warn_of_too_many_neighbors(self) -> None:
        n_rows = max(int(fold.may_train.sum()) for fold in self.problem.folds)
        if self.is_class:
            warn_of_too_many_neighbors(self.n_neighbors, n_rows)


def warn_of_too_many_neighbors(n_neighbors: int, n_rows: int) -> None:
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
        _, place, count = np.unique(everyone, return_inverse=True, return_counts=True)
        weights = 1.0 / (len(count) * count[place])
    return np.split(weights, ends[:-1])


def query_strata(labels: list[Floats], scoring: str) -> list[Positions]:
    """Stratum of each validation row, fold by fold: its class where every class counts the same.

    Of many classes the rarest share one stratum: every stratum is noted for all cells.
    """
    ends = np.cumsum([len(some) for some in labels])
    strata = np.zeros(ends[-1], dtype=np.intp)
    if scoring == "balanced_neighbor_agreement":
        _, place, count = np.unique(np.concatenate(labels), return_inverse=True, return_counts=True)
        by_size = np.argsort(np.argsort(-count, kind="stable"))
        strata = np.minimum(by_size, _MOST_STRATA - 1)[place]
    return np.split(strata, ends[:-1])


def expected_matches(distances: NDArray[Any], match: Mask, n_neighbors: int) -> float:
    """Matches among the nearest rows, in the mean over all orders of tied rows."""
    nearer, tied, places_left = _nearest(distances, n_neighbors)
    return float(match[nearer].sum() + match[tied].mean() * places_left)


def expected_error(
    distances: NDArray[Any], targets: Floats, asked: float, n_neighbors: int
) -> float:
    """Squared error of the nearest rows' sum over K, in the mean over all orders of tied rows."""
    nearer, tied, places_left = _nearest(distances, n_neighbors)
    mean = targets[nearer].sum() + places_left * targets[tied].mean()
    n_tied = int(tied.sum())
    # The variance of a sum of some of the tied, drawn without replacement.
    shrink = (n_tied - places_left) / max(n_tied - 1, 1)
    variance = places_left * float(np.var(targets[tied])) * shrink
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
    return checked_scoring(scoring) != "neg_mean_squared_error"


def checked_scoring(scoring: Any, called: str = "scoring") -> KNNScoring:
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
