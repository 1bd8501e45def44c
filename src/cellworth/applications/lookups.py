"""Lookups: models that have answered for all held-out rows once and are asked for some again."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if

from cellworth.blocks import Positions

Floats = NDArray[np.float64]

# Where each method's answers are kept.
_KEPT = {
    "predict": "_predicted",
    "predict_proba": "_probabilities",
    "decision_function": "_decisions",
}


class Keep:
    """A scorer that keeps what it is asked to score."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __call__(self, fitted: Any, X: Any, y: Any) -> float:
        """Keep a fitted model with the rows that it is to predict; score nothing yet."""
        kind = ClassLookup if hasattr(fitted, "classes_") else NumberLookup
        self.seen.append(kind(fitted, X))
        return 0.0


class Lookup(BaseEstimator):  # type: ignore[misc]
    """A fitted model that knows the held-out rows: asked for some of them, it looks answers up."""

    def __init__(self, fitted: Any, X: Any) -> None:
        self.fitted = fitted
        self.X = X

    def answer(self, name: str) -> NDArray[Any]:
        """What the method of this name says of all held-out rows."""
        known: NDArray[Any] = getattr(self, _KEPT[name])
        return known

    def predict(self, rows: Positions) -> NDArray[Any]:
        """Predictions for rows that are given by position."""
        return self._predicted[rows[:, 0]]

    @cached_property
    def _predicted(self) -> NDArray[Any]:
        return np.asarray(self.fitted.predict(self.X))


class NumberLookup(RegressorMixin, Lookup):  # type: ignore[misc]
    """Of a regressor."""


class ClassLookup(ClassifierMixin, Lookup):  # type: ignore[misc]
    """Of a classifier, with what it says besides the class."""

    @property
    def classes_(self) -> NDArray[Any]:
        """Classes in the order of probabilities."""
        return np.asarray(self.fitted.classes_)

    @available_if(lambda self: hasattr(self.fitted, "predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, rows: Positions) -> Floats:
        """Probabilities for rows that are given by position."""
        return self._probabilities[rows[:, 0]]

    @available_if(lambda self: hasattr(self.fitted, "decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, rows: Positions) -> Floats:
        """Decisions for rows that are given by position."""
        return self._decisions[rows[:, 0]]

    @cached_property
    def _probabilities(self) -> Floats:
        return np.asarray(self.fitted.predict_proba(self.X))

    @cached_property
    def _decisions(self) -> Floats:
        return np.asarray(self.fitted.decision_function(self.X))
