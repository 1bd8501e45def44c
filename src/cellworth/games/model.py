"""ModelGame: the score of a scikit-learn model trained on a coalition of blocks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
    clone,
    is_classifier,
    is_regressor,
)
from sklearn.metrics import get_scorer
from sklearn.utils.metaestimators import available_if

from cellworth.blocks import Groups, Mask
from cellworth.games.base import EmptyPolicy, FailedUtility, checked_policy
from cellworth.problem import Fold, Problem
from cellworth.provenance import described

Floats = NDArray[np.float64]


class ModelGame:
    """Utility of a coalition: train the model on its blocks, score it on the validation rows.

    Parameters
    ----------
    model : classifier or regressor
        Any scikit-learn estimator or Pipeline; cloned for every fit.
    X, y : table and labels to learn from
    X_val, y_val : table and labels to be judged on
        Without them each utility is the mean over the folds of a cross-validation: in each fold
        the coalition's rows outside it are learned from, so no row is judged on itself.
    scoring : str or callable, default=None
        A scikit-learn scoring name or scorer; None means accuracy or R squared.
    empty : {"prior", "zero"}, default="prior"
        What a coalition without columns or without rows is worth. "prior": without columns the
        score of a constant predictor fitted to the labels of its rows; without rows the score of
        one that knows only the classes (for regression: only the mean target). "zero": 0.
    row_groups, column_groups
        As in :meth:`cellworth.Blocks.cut`; ``row_groups`` may also name a column of X, which then
        does not play.
    cv : int or splitter, default=5
        Used when there is no validation set.
    groups : array-like, default=None
        Rows that a splitter keeps together.

    Notes
    -----
    Every ``random_state`` of the model that is None is set to 0, so that a utility is a function
    of its coalition.

    Rows of a single class teach a classifier nothing but that class: their utility is the score
    of the constant predictor, whether or not the model would accept them. A fit that raises and a
    score that raises or is NaN get the same stand-in as a :class:`cellworth.FailedUtility`, which
    valuers count and warn of.

    A ColumnTransformer that lists columns by name fails on every coalition that lacks one of them:
    let it choose columns by type or pattern (``make_column_selector``).

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X, y = [[0.0, 5.0], [1.0, 4.0], [2.0, 5.0], [3.0, 4.0]], [0, 0, 1, 1]
    >>> game = ModelGame(DecisionTreeClassifier(), X, y, X_val=X, y_val=y)
    >>> game.value(np.array([True, True, True, True]), np.array([True, False]))
    1.0
    >>> game.value(np.array([True, True, True, True]), np.array([False, False]))
    0.5
    """

    def __init__(
        self,
        model: Any,
        X: Any,
        y: Any,
        X_val: Any = None,
        y_val: Any = None,
        *,
        scoring: Any = None,
        empty: EmptyPolicy = "prior",
        row_groups: Groups | str = None,
        column_groups: Groups = None,
        cv: Any = 5,
        groups: Any = None,
    ) -> None:
        """Check model and data."""
        classification = checked_model(model)
        self.problem = Problem.of(
            X, y, X_val, y_val, classification=classification,
            row_groups=row_groups, column_groups=column_groups, cv=cv, groups=groups,
        )  # fmt: skip
        self.blocks = self.problem.blocks
        self.empty = checked_policy(empty)
        self._model = _seeded(model)
        self._scoring = scoring
        classes = self.problem.classes
        self._codes = None if classes is None else np.searchsorted(classes, self.problem.target)
        self._scorer = _scorer(scoring, classification)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of players among the rows and among the columns."""
        return self.blocks.shape

    def question(self) -> dict[str, Any]:
        """What decides the values of this game."""
        settings = self._model.get_params(deep=True)
        return {
            "game": "ModelGame",
            "model": f"{type(self._model).__module__}.{type(self._model).__qualname__}",
            "model_parameters": {name: described(settings[name]) for name in sorted(settings)},
            "scoring": described(self._scoring),
            "empty": self.empty,
            **self.problem.question(),
        }

    def value(self, rows: Mask, columns: Mask) -> float:
        """Score of the model trained on these rows and columns, mean over the folds."""
        scores = [self._score(fold, rows, columns) for fold in self.problem.folds]
        mean = sum(scores) / len(scores)
        failed = next((score for score in scores if isinstance(score, FailedUtility)), None)
        return mean if failed is None else FailedUtility(mean, failed.message)

    def _score(self, fold: Fold, rows: Mask, columns: Mask) -> float:
        train = np.flatnonzero(rows[self.blocks.rows.codes] & fold.may_train)
        places = self.blocks.columns.positions(columns)
        nothing = len(train) == 0 or len(places) == 0
        if nothing and self.empty == "zero":
            return 0.0
        if nothing or self._n_classes(train) == 1:
            return self._constant_score(fold, train)
        try:
            score = self._trained_score(fold, train, places)
            message = f"the score is {score}"
        # Any error of the user's model must end in the ledger, not end the run.
        except Exception as error:
            score, message = math.nan, _one_line(error)
        if math.isfinite(score):
            return score
        return FailedUtility(self._constant_score(fold, train), message)

    def _n_classes(self, train: NDArray[np.intp]) -> int | None:
        return None if self._codes is None else len(np.unique(self._codes[train]))

    def _trained_score(
        self, fold: Fold, train: NDArray[np.intp], places: NDArray[np.intp]
    ) -> float:
        X, y = self.problem.table.take(train, places), self.problem.target[train]
        model = clone(self._model).fit(X, y)
        classes = self.problem.classes
        if classes is not None and self._n_classes(train) != len(classes):
            model = _AllClasses(model, classes)
        every_row = np.arange(len(fold.target))
        return float(self._scorer(model, fold.table.take(every_row, places), fold.target))

    def _constant_score(self, fold: Fold, train: NDArray[np.intp]) -> float:
        try:
            scores = [
                float(self._scorer(constant, fold.table.native, fold.target))
                for constant in self._constants(train)
            ]
        except Exception as error:
            raise ValueError(
                f"scoring={self._scoring!r} cannot judge a constant prediction "
                f"({_one_line(error)}); give a scikit-learn scoring name or a function "
                "scorer(model, X, y) -> float that uses predictions only."
            ) from error
        if not np.isfinite(scores).all():
            raise ValueError(
                f"scoring={self._scoring!r} gives {scores[0]} for a constant prediction on "
                f"{len(fold.target)} validation rows; give more validation rows (larger folds) or "
                "another scoring."
            )
        return float(np.mean(scores))

    def _constants(self, train: NDArray[np.intp]) -> list[Any]:
        """Constant predictors that fit these rows best; several where classes tie.

        Classes that are equally frequent have the same claim to be the prediction: the mean over
        them does not depend on how the classes are called.
        """
        classes, target = self.problem.classes, self.problem.target
        if classes is None or self._codes is None:
            return [_ConstantRegressor(float((target[train] if len(train) else target).mean()))]
        counts = np.bincount(self._codes[train], minlength=len(classes))
        shares = counts / len(train) if len(train) else np.full(len(classes), 1 / len(classes))
        best = classes[shares == shares.max()]
        return [_ConstantClassifier(classes, shares, label) for label in best]


def checked_model(model: Any) -> bool:
    """Refuse what cannot be trained and scored; tell whether it is a classifier."""
    if isinstance(model, type):
        raise TypeError(
            f"model is the class {model.__name__}; give an instance: {model.__name__}()."
        )
    if not (hasattr(model, "fit") and hasattr(model, "get_params")):
        raise TypeError(
            f"model is {model!r}; give a scikit-learn classifier or regressor, "
            "such as DecisionTreeClassifier()."
        )
    if not (is_classifier(model) or is_regressor(model)):
        raise TypeError(
            f"model {type(model).__name__} is neither a classifier nor a regressor; "
            "its utility would have no meaning. End a Pipeline with one of these."
        )
    return bool(is_classifier(model))


def _seeded(model: Any) -> Any:
    """Copy a model and set every random_state that was left open, in splitters of it too."""
    copy = clone(model)
    settings = copy.get_params(deep=True)
    names = [
        name
        for name, setting in settings.items()
        if name.split("__")[-1] == "random_state" and setting is None
    ]
    for setting in settings.values():
        if hasattr(setting, "split") and getattr(setting, "random_state", 0) is None:
            setting.random_state = 0
    return copy.set_params(**dict.fromkeys(names, 0))


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _scorer(scoring: Any, classification: bool) -> Any:
    if scoring is None:
        return get_scorer("accuracy" if classification else "r2")
    if callable(scoring):
        return scoring
    try:
        return get_scorer(scoring)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"scoring is {scoring!r}; give a name from sklearn.metrics.get_scorer_names() "
            "or a scorer."
        ) from error


class _ConstantClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Predicts one class, with the class shares as probabilities."""

    def __init__(self, classes: NDArray[Any], shares: Floats, prediction: Any) -> None:
        self.classes_ = classes
        self.shares = shares
        self.prediction = prediction

    def predict(self, X: Any) -> NDArray[Any]:
        return np.full(len(X), self.prediction)

    def predict_proba(self, X: Any) -> Floats:
        return np.tile(self.shares, (len(X), 1))

    def decision_function(self, X: Any) -> Floats:
        shares = self.predict_proba(X)
        return shares[:, 1] if len(self.classes_) == 2 else shares


class _ConstantRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Predicts one number."""

    def __init__(self, prediction: float) -> None:
        self.prediction = prediction

    def predict(self, X: Any) -> Floats:
        return np.full(len(X), self.prediction)


class _AllClasses(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that missed some classes, with probability 0 for these."""

    def __init__(self, model: Any, classes: NDArray[Any]) -> None:
        self.model = model
        self.classes_ = classes

    def predict(self, X: Any) -> NDArray[Any]:
        predictions: NDArray[Any] = self.model.predict(X)
        return predictions

    @available_if(lambda self: hasattr(self.model, "predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        probabilities = np.zeros((len(X), len(self.classes_)))
        known = np.searchsorted(self.classes_, self.model.classes_)
        probabilities[:, known] = self.model.predict_proba(X)
        return probabilities
