"""What scorers see: constant predictors, and models that answer in the user's own labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if

from cellworth.counts import Floats


class ConstantClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Predicts one class, with the class shares as probabilities."""

    def __init__(self, classes: NDArray[Any], shares: Floats, prediction: Any) -> None:
        self.classes_ = classes
        self.shares = shares
        self.prediction = prediction

    def predict(self, X: Any) -> NDArray[Any]:
        """The same class for every row."""
        return np.full(len(X), self.prediction)

    def predict_proba(self, X: Any) -> Floats:
        """The same shares for every row."""
        return np.tile(self.shares, (len(X), 1))

    def decision_function(self, X: Any) -> Floats:
        """Shares as scores; that of the second class where there are two."""
        shares = self.predict_proba(X)
        return shares[:, 1] if len(self.classes_) == 2 else shares


class ConstantRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Predicts one number."""

    def __init__(self, prediction: float) -> None:
        self.prediction = prediction

    def predict(self, X: Any) -> Floats:
        """The same number for every row."""
        return np.full(len(X), self.prediction)


class AllClasses(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A fitted classifier that answers for all classes, under the names that the user gave.

    Parameters
    ----------
    model : fitted classifier
    classes : array of shape (n_classes,)
        All classes of the game, sorted.
    labels : array or None
        The class behind each code 0, 1, ... that the model was trained on; None where it was
        trained on the user's labels.

    Notes
    -----
    Classes that the model never saw get probability 0, and a decision below all others.
    """

    def __init__(self, model: Any, classes: NDArray[Any], labels: NDArray[Any] | None) -> None:
        self.model = model
        self.classes_ = classes
        self.labels = labels

    def predict(self, X: Any) -> NDArray[Any]:
        """Classes as the user calls them."""
        return self._named(np.asarray(self.model.predict(X)))

    @available_if(lambda self: hasattr(self.model, "predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """Probabilities, one column per class of the game."""
        known = np.asarray(self.model.predict_proba(X))
        # In the model's precision: a scorer checks that rows add up to one by it.
        probabilities = np.zeros((len(known), len(self.classes_)), dtype=known.dtype)
        probabilities[:, self._places(known.shape[1])] = known
        return probabilities

    @available_if(lambda self: hasattr(self.model, "decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Floats:
        """Scores, one column per class of the game; one column in all where there are two."""
        known = np.asarray(self.model.decision_function(X))
        if len(self.classes_) == 2:
            return known
        if known.ndim == 1:
            known = np.column_stack([-known, known])
        scores = np.repeat(known.min(axis=1, keepdims=True) - 1.0, len(self.classes_), axis=1)
        scores[:, self._places(known.shape[1])] = known
        return scores

    def _named(self, answers: NDArray[Any]) -> NDArray[Any]:
        # CatBoost gives several classes as a column.
        flat = answers.reshape(len(answers))
        return flat if self.labels is None else self.labels[flat.astype(np.intp)]

    def _places(self, n_columns: int) -> NDArray[np.intp]:
        """Where among all classes the columns of the model's answers belong."""
        own = self._named(np.asarray(self.model.classes_))
        if n_columns == len(own):
            return np.searchsorted(self.classes_, own)
        # A network has a unit per class, whether or not it met the class: unit j stands for code j.
        by_code = np.arange(n_columns) if self.labels is None else self.labels
        if n_columns == len(self.classes_) and np.array_equal(by_code, self.classes_):
            return np.arange(n_columns)
        raise ValueError(
            f"the model met {len(own)} of {len(self.classes_)} classes but answers with "
            f"{n_columns} columns; give labels as whole numbers 0, 1, ..., one per column."
        )
