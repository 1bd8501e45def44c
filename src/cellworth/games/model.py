"""ModelGame: the utility of a coalition is the score of a model trained on it."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier, is_regressor
from sklearn.metrics import get_scorer

from cellworth.data.arguments import (
    CrossValidation,
    Floats,
    Mask,
    Model,
    Positions,
    Scoring,
    check_count,
)
from cellworth.data.blocks import Blocks, Groups
from cellworth.data.equal_rows import column_sha256
from cellworth.data.io import describe
from cellworth.data.problem import GroupedFolds, Problem, check_weights
from cellworth.data.tables import Table, TableLike, VectorLike
from cellworth.data.text import preview
from cellworth.games.fitting import (
    AllClasses,
    ConstantClassifier,
    ConstantRegressor,
    clone_unfitted,
    draws_from_torch,
    estimators_of,
    for_columns,
    set_seeds,
    torch_seed,
    weight_name,
)
from cellworth.games.game import (
    EmptyPolicy,
    FailedUtility,
    check_empty_policy,
    describe_model,
    one_line,
)
from cellworth.games.scoring import ValidationScorer
from cellworth.sampling.moments import DetailedUtility

ErrorPolicy = Literal["fallback", "raise"]
# Validation cells that are cached, for the sets of columns used last.
_MAX_CELLS_AT_HAND = 2**23


class FoldScore(NamedTuple):
    """Score in one fold, its samples over validation rows, and the message if it failed."""

    score: float
    samples: Floats
    message: str | None = None


# What a set of columns needs for any rows: one model per repeat (none if the model gets no column),
# and one table per fold.
_View = tuple[list[Any], list[Any]]


class ModelGame:
    """Game whose utility is the score of a model trained on the coalition.

    Parameters
    ----------
    model : classifier or regressor
        Any scikit-learn estimator or Pipeline; cloned for every fit.
    X, y : training table and labels
    X_val, y_val : validation table and labels
        Without them, each utility is the mean score over the folds of a cross-validation. Each
        fold is scored by a model trained on the coalition's rows outside it.
    scoring : str or callable, default=None
        A scikit-learn scoring name or scorer; None means accuracy or R squared.
    cv : int, splitter or iterable of (train, validation) positions, default=5
        Used without validation rows: each fold serves once as the validation set for the remaining
        rows.
    row_groups, column_groups
        One label per row (column), or a mapping from labels to ids, as in ``ModelValuer.fit``.
    empty : {"prior", "zero"}, default="prior"
        Utility of a coalition without columns or without rows. "prior": without columns, the score
        of a constant predictor fitted to the labels of its rows; without rows, the score of one
        that knows only the classes (for regression, only the mean target). "zero": 0.
    error : {"fallback", "raise"}, default="fallback"
        What to do if the model fails on a coalition: use the constant predictor and count the
        failure, or raise an error that names the rows and columns.
    sample_weight : array-like of shape (n_rows,), default=None
        Weight of each training row, passed to the model's ``fit`` (in a Pipeline, to that of the
        last step). Rows of weight 0 are left out.

    See Also
    --------
    cellworth.value_game, cellworth.knn.KNNGame

    Notes
    -----
    Every utility is the score of one fit, or the mean over those of :meth:`with_repeats`.
    Repeat r = 0, 1, ... sets every seed (``random_state``, ``random_seed``, ``seed``) that is None
    to r, and every integer seed s to s + r. PyTorch's generator is seeded with r for models with
    PyTorch parts. All coalitions share these seeds, so that a utility is a function of its
    coalition, and shared noise cancels in differences.

    The utility of rows of a single class is the score of the constant predictor. A fit or a score
    that fails, or a score of NaN, gets the same fallback as a
    :class:`~cellworth.games.FailedUtility`;
    valuers count these and warn.

    Columns that the model names (in a ColumnTransformer, as categorical features, in settings per
    column) are restricted to those of the coalition. A model that has no columns left is replaced
    by the constant predictor.

    A classifier that rejects the labels (XGBoost: strings, or classes 0 and 2 without 1) is fitted
    again on codes 0, 1, ... of all classes, and then on codes of the classes that occur. Scorers
    always get the user's labels and a probability for each class.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from cellworth.games import ModelGame
    >>> X, y = [[0.0, 5.0], [1.0, 4.0], [2.0, 5.0], [3.0, 4.0]], [0, 0, 1, 1]
    >>> game = ModelGame(DecisionTreeClassifier(), X, y, X_val=X, y_val=y)
    >>> game.value(np.array([True, True, True, True]), np.array([True, False]))
    1.0
    >>> game.value(np.array([True, True, True, True]), np.array([False, False]))
    0.5
    """

    def __init__(
        self,
        model: Model,
        X: TableLike,
        y: VectorLike | None,
        X_val: TableLike | None = None,
        y_val: VectorLike | None = None,
        *,
        scoring: Scoring | None = None,
        cv: CrossValidation | GroupedFolds = 5,
        row_groups: Groups = None,
        column_groups: Groups = None,
        empty: EmptyPolicy = "prior",
        error: ErrorPolicy = "fallback",
        sample_weight: VectorLike | None = None,
    ) -> None:
        classification = check_model(model)
        self.problem: Problem = Problem.from_data(
            X, y, X_val, y_val, classification=classification, cv=cv,
            row_groups=row_groups, column_groups=column_groups,
        )  # fmt: skip
        self.blocks: Blocks = self.problem.blocks
        self.empty = check_empty_policy(empty)
        if error not in get_args(ErrorPolicy):
            raise ValueError(
                "error must be 'fallback' (a failed fit is replaced by a constant predictor) or "
                f"'raise', got {error!r}."
            )
        self.error = error
        self._models = (set_seeds(model, 0),)
        self._first_repeat = 0
        self._draws_from_torch = draws_from_torch(model)
        self._scoring = scoring
        self.scoring: str = scoring_name(scoring, classification)
        self._codes = _encode_labels(self.problem)
        self._scorer = check_scorer(scoring, classification)
        self._weights: NDArray[np.float64] | None = None
        if sample_weight is not None:
            self._weights = check_weights(sample_weight, self.problem.table)
            name = weight_name(model)
            if name is None:
                raise ValueError(
                    f"sample_weight was given, but {type(model).__name__}.fit does not take it "
                    "(nor does the model inside); leave it out or use a model that weights rows."
                )
            self._weight_name = name
        self._views: OrderedDict[bytes, _View] = OrderedDict()
        n_cells = sum(math.prod(fold.table.shape) for fold in self.problem.folds)
        self._most_views = max(1, _MAX_CELLS_AT_HAND // n_cells)
        self._validation = ValidationScorer(self._scorer, self.problem.folds)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of row players and of column players."""
        return self.blocks.shape

    def problem_spec(self) -> dict[str, Any]:
        """Return everything that determines the values of this game."""
        problem_spec = {
            "game": "ModelGame",
            **describe_model(self._models[0]),
            "scoring": describe(self._scoring),
            "empty": self.empty,
            **self.problem.problem_spec(),
        }
        # Left out at their defaults, so that the specs of such runs stay the same.
        if len(self._models) > 1:
            problem_spec["n_repeats"] = len(self._models)
        if self._weights is not None:
            problem_spec["sample_weight_sha256"] = column_sha256(self._weights).hex()
        return problem_spec

    def parts(self) -> list[Any]:
        """Return the objects whose code determines the utilities: game, estimators, scorer."""
        scorer = [self._scorer, getattr(self._scorer, "_score_func", None)]
        return [self, *estimators_of(self._models[0]), *scorer]

    def value(self, rows: Mask, columns: Mask) -> float:
        """Return the score of the model trained on these rows and columns, mean over the folds.

        It is a :class:`~cellworth.sampling.DetailedUtility` or a FailedUtility.
        """
        return self.mean_utility(partial(self.fold_score, rows=rows, columns=columns))

    def fold_score(self, number: int, rows: Mask, columns: Mask) -> FoldScore:
        """Return the score in one fold, with its samples over validation rows."""
        may_train = rows[self.blocks.rows.codes] & self.problem.folds[number].may_train
        if self._weights is not None:
            # A row of weight 0 must not add its class either.
            may_train &= self._weights > 0
        positions = self.blocks.columns.positions(columns)
        return self._score(number, np.flatnonzero(may_train), positions)

    def mean_utility(self, score: Callable[[int], FoldScore]) -> float:
        """Return the mean score over the folds; it is a FailedUtility if a fold failed."""
        parts = [score(fold) for fold in range(len(self.problem.folds))]
        mean = sum(part.score for part in parts) / len(parts)
        message = next((part.message for part in parts if part.message is not None), None)
        deviations = self._validation.deviations([part.samples for part in parts])
        if message is None:
            return DetailedUtility(mean, deviations)
        return FailedUtility(mean, message, deviations)

    def no_utility(self) -> float:
        """Return a utility of 0 with zero deviations."""
        return self.mean_utility(self._no_score)

    def _no_score(self, number: int) -> FoldScore:
        return FoldScore(0.0, self._validation.zero_samples(number))

    def on(self, table: Table, target: NDArray[Any] | None = None) -> ModelGame:
        """Return the same game on another table of the same rows and columns, or other labels."""
        game = copy(self)
        game.problem = replace(self.problem, table=table)
        game._views = self._views
        if target is not None:
            game.problem = replace(game.problem, target=target)
            game._codes = _encode_labels(game.problem)
        return game

    def with_repeats(self, n_repeats: int) -> ModelGame:
        """Return the same game whose utility is the mean score of fits with different seeds.

        More fits reduce the noise of models that draw random numbers.
        """
        game, repeats = copy(self), range(check_count(n_repeats, "n_repeats"))
        game._models = tuple(set_seeds(self._models[0], repeat) for repeat in repeats)
        return game

    def with_seeds(self, repeat: int) -> ModelGame:
        """Return the same game with seeds that start at this repeat."""
        game = copy(self)
        game._models = tuple(set_seeds(model, repeat) for model in self._models)
        game._first_repeat = self._first_repeat + repeat
        return game

    def __getstate__(self) -> dict[str, Any]:
        """Copy and pickle without the views."""
        return {**vars(self), "_views": OrderedDict()}

    def _score(self, number: int, train: Positions, positions: Positions) -> FoldScore:
        view = self._view(positions) if len(train) and len(positions) else None
        is_empty = view is None or not view[0]
        if is_empty and self.empty == "zero":
            return self._no_score(number)
        if view is None or is_empty or self._n_classes(train) == 1:
            return self._constant_score(number, train)
        try:
            found, failure = self._score_trained(number, train, positions, view), None
            if math.isfinite(found.score):
                return found
            message = f"the score is {found.score}"
        # The user's model can raise anything; a failed fit must not end the run.
        except Exception as error:
            failure, message = error, one_line(error)
        if self.error == "raise":
            rows, columns = self.problem.table.row_ids[train], self.problem.table.names[positions]
            raise RuntimeError(
                f"the model failed on {len(rows)} rows ({preview(rows)}) and {len(columns)} "
                f"columns ({preview(columns)}): {message}. Fix it, or pass error='fallback' to use "
                "a constant predictor instead."
            ) from failure
        return self._constant_score(number, train)._replace(message=message)

    def _view(self, positions: Positions) -> _View:
        """Return a view, from those that were used last if possible.

        Threads share them: each step is atomic, and a view that two threads make is the same.
        """
        key = positions.tobytes()
        view = self._views.pop(key, None) or self._new_view(positions)
        self._views[key] = view
        if len(self._views) > self._most_views:
            self._views.popitem(last=False)
        return view

    def _new_view(self, positions: Positions) -> _View:
        table = self.problem.table
        kept = np.zeros(len(table.names), dtype=bool)
        kept[positions] = True
        models = [
            for_columns(model, table.names, kept, lambda: table.select(positions).native)
            for model in self._models
        ]
        tables = [
            fold.table.take(np.arange(len(fold.target)), positions) for fold in self.problem.folds
        ]
        return [] if models[0] is None else models, tables

    def _score_trained(
        self, number: int, train: Positions, positions: Positions, view: _View
    ) -> FoldScore:
        scores, (models, tables) = [], view
        for repeat, model in enumerate(models):
            fitted = self._fit(model, repeat, self.problem.table.take(train, positions), train)
            with self._drawing(repeat):
                scores.append(self._validation.score(fitted, _own(tables[number]), number))
        return _mean_score(scores)

    def _drawing(self, repeat: int) -> AbstractContextManager[None]:
        return torch_seed(self._first_repeat + repeat) if self._draws_from_torch else nullcontext()

    def _fit(self, model: Any, repeat: int, X: Any, train: Positions) -> Any:
        """Fit the model to the labels, or to the first coding of them that it accepts."""
        weights = {} if self._weights is None else {self._weight_name: self._weights[train]}
        refusal: Exception | None = None
        for y, labels in self._codings(train):
            try:
                with self._drawing(repeat):
                    fitted = clone_unfitted(model).fit(X, y, **weights)
            except Exception as error:
                refusal = error
                continue
            classes = self.problem.classes
            if classes is None or (labels is None and self._n_classes(train) == len(classes)):
                return fitted
            return AllClasses(fitted, classes, labels)
        assert refusal is not None  # noqa: S101 (there is at least one coding)
        raise refusal

    def _codings(self, train: Positions) -> Iterator[tuple[NDArray[Any], NDArray[Any] | None]]:
        """Targets to try: the user's, then codes of all classes, then of those that occur."""
        yield self.problem.target[train], None
        classes, codes = self.problem.classes, self._codes
        if classes is None or codes is None:
            return
        if classes.dtype.kind not in "iu" or not np.array_equal(classes, np.arange(len(classes))):
            yield codes[train], classes
        present, compact = np.unique(codes[train], return_inverse=True)
        if present[-1] != len(present) - 1:
            yield compact, classes[present]

    def _n_classes(self, train: Positions) -> int:
        return 0 if self._codes is None else len(np.unique(self._codes[train]))

    def _constant_score(self, number: int, train: Positions) -> FoldScore:
        fold, failure = self.problem.folds[number], None
        X, constants = fold.table.native, self._constants(train)
        try:
            found = _mean_score([self._validation.score(each, X, number) for each in constants])
            if math.isfinite(found.score):
                return found
            said = f"gives {found.score}"
        except Exception as error:
            failure, said = error, f"fails ({one_line(error)})"
        raise ValueError(
            f"scoring={self._scoring!r} {said} for a constant prediction on {len(fold.target)} "
            "validation rows; give more of them (larger folds), a scikit-learn scoring name, or a "
            "function scorer(model, X, y) -> float that uses predictions only."
        ) from failure

    def _constants(self, train: Positions) -> list[Any]:
        """Return the constant predictors that fit these rows best; several if classes tie.

        The mean score over tied classes does not depend on the names of the classes.
        """
        classes, target = self.problem.classes, self.problem.target
        known = train if len(train) or classes is not None else np.arange(len(target))
        weights = None if self._weights is None else self._weights[known]
        if classes is None or self._codes is None:
            return [ConstantRegressor(float(np.average(target[known], weights=weights)))]
        counts = np.bincount(self._codes[train], weights, minlength=len(classes))
        shares = counts / counts.sum() if len(train) else np.full(len(classes), 1 / len(classes))
        best = classes[shares == shares.max()]
        return [ConstantClassifier(classes, shares, label) for label in best]


def _encode_labels(problem: Problem) -> NDArray[np.intp] | None:
    return None if problem.classes is None else np.searchsorted(problem.classes, problem.target)


def _mean_score(scores: Sequence[tuple[float, Floats]]) -> FoldScore:
    by_repeat, samples = zip(*scores, strict=True)
    return FoldScore(sum(by_repeat) / len(by_repeat), np.mean(samples, axis=0))


def _own(table: Any) -> Any:
    """Copy a shared table, unless its type is immutable."""
    # Keep the memory order of an array: sums along the other axis may round differently.
    order = {"order": "K"} if isinstance(table, np.ndarray) else {}
    return table.copy(**order) if hasattr(table, "copy") else table


def check_model(model: Any) -> bool:
    """Check that a model can be trained and scored; return whether it is a classifier."""
    if isinstance(model, type):
        raise TypeError(
            f"model must be an instance, got the class {model.__name__}; give {model.__name__}()."
        )
    if not (hasattr(model, "fit") and hasattr(model, "get_params")):
        raise TypeError(
            "model must be a scikit-learn classifier or regressor, such as "
            f"DecisionTreeClassifier(), got {model!r}."
        )
    if not (is_classifier(model) or is_regressor(model)):
        raise TypeError(
            f"model must be a classifier or a regressor, got {type(model).__name__}; end a "
            "Pipeline with one of these."
        )
    return bool(is_classifier(model))


def check_scorer(scoring: Any, classification: bool) -> Any:
    """Return a scikit-learn scorer by name; None means accuracy or R squared."""
    if callable(scoring):
        return scoring
    try:
        return get_scorer(scoring_name(scoring, classification))
    except (ValueError, TypeError) as error:
        raise ValueError(
            "scoring must be a scorer or a name from sklearn.metrics.get_scorer_names(), got "
            f"{scoring!r}."
        ) from error


def scoring_name(scoring: Any, classification: bool) -> str:
    """Return the scikit-learn name of a score, or the name of its function."""
    if scoring is None:
        return "accuracy" if classification else "r2"
    if isinstance(scoring, str):
        return scoring
    function = getattr(scoring, "_score_func", scoring)
    return str(getattr(function, "__name__", type(function).__name__))
