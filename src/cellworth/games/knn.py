"""KNNGame: the K-nearest-neighbour utility by its definition, slow and plainly right."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.blocks import Groups, Mask
from cellworth.games.base import EmptyPolicy, checked_policy
from cellworth.problem import Fold, Problem


class KNNGame:
    """How well the nearest rows' labels match the validation labels.

    For one validation row the utility of rows S seen through columns F is the number of label
    matches among the min(K, size of S) nearest rows, divided by K; the game's utility is the mean
    over all validation rows. Rows at equal distance share the places that are left, which is the
    mean over all orders of the ties. Distances are squared Euclidean on the cells as given.

    Parameters
    ----------
    X, y, X_val, y_val
        Numeric tables and class labels; without a validation set each fold of a
        cross-validation is judged by the rows outside it.
    n_neighbors : int, default=5
    row_groups, column_groups
        As in :meth:`cellworth.Blocks.cut`.
    empty : {"prior", "zero"}, default="prior"
        With no columns all rows tie ("prior"), or the utility is 0 ("zero"). With no rows nothing
        matches, and it is 0 either way.
    cv : int or splitter, default=5
        Used when there is no validation set.

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
        row_groups: Groups | str = None,
        column_groups: Groups = None,
        empty: EmptyPolicy = "prior",
        cv: Any = 5,
    ) -> None:
        """Check the data and keep it as numbers."""
        if not isinstance(n_neighbors, int | np.integer) or n_neighbors < 1:
            raise ValueError(f"n_neighbors is {n_neighbors!r}; give a whole number of at least 1.")
        self.problem = Problem.of(
            X, y, X_val, y_val, classification=True,
            row_groups=row_groups, column_groups=column_groups, cv=cv,
        )  # fmt: skip
        self.n_neighbors = int(n_neighbors)
        self.empty = checked_policy(empty)
        self.blocks = self.problem.blocks
        self._cells = _complete(self.problem.table.numbers(called="X"), "X")
        self._queries = [
            _complete(fold.table.numbers(called="X_val"), "X_val") for fold in self.problem.folds
        ]

    @property
    def shape(self) -> tuple[int, int]:
        """Number of players among the rows and among the columns."""
        return self.blocks.shape

    def question(self) -> dict[str, Any]:
        """What decides the values of this game."""
        return {
            "game": "KNNGame",
            "n_neighbors": self.n_neighbors,
            "empty": self.empty,
            **self.problem.question(),
        }

    def value(self, rows: Mask, columns: Mask) -> float:
        """Mean share of matches over all validation rows."""
        places = self.blocks.columns.positions(columns)
        if len(places) == 0 and self.empty == "zero":
            return 0.0
        matches = [
            self._matches(fold, queries, rows, places)
            for fold, queries in zip(self.problem.folds, self._queries, strict=True)
        ]
        return float(np.concatenate(matches).mean()) / self.n_neighbors

    def _matches(
        self, fold: Fold, queries: NDArray[np.float64], rows: Mask, places: NDArray[np.intp]
    ) -> NDArray[np.float64]:
        train = np.flatnonzero(rows[self.blocks.rows.codes] & fold.may_train)
        labels = self.problem.target[train]
        cells = self._cells[np.ix_(train, places)]
        return np.array(
            [
                expected_matches(
                    ((cells - query[places]) ** 2).sum(axis=1), labels == label, self.n_neighbors
                )
                for query, label in zip(queries, fold.target, strict=True)
            ]
        )


def expected_matches(distances: NDArray[np.float64], match: Mask, n_neighbors: int) -> float:
    """Matches among the nearest rows, in the mean over all orders of tied rows."""
    n_nearest = min(n_neighbors, len(distances))
    if n_nearest == 0:
        return 0.0
    farthest = np.sort(distances)[n_nearest - 1]
    nearer, tied = distances < farthest, distances == farthest
    places_left = n_nearest - int(nearer.sum())
    return float(match[nearer].sum() + match[tied].mean() * places_left)


def _complete(cells: NDArray[np.float64], called: str) -> NDArray[np.float64]:
    if not np.isfinite(cells).all():
        raise ValueError(
            f"{called} has missing or infinite cells, for which KNNGame has no distance; "
            "fill them first."
        )
    return cells
