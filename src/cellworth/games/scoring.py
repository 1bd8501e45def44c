"""Scoring a model: the score and the contribution of each validation row to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats, Positions
from cellworth.data.problem import Fold
from cellworth.sampling.moments import MIN_DEVIATIONS, Deviations, widening

# Most deviations of a utility; with more rows, rows share groups at random.
MAX_GROUPS = 256
# Number of bootstrap resamples for scorers without a closed form.
N_RESAMPLES = MIN_DEVIATIONS
_TRIES = 100
_RESPONSES = ("predict", "predict_proba", "decision_function")


class Recorded:
    """A fitted model that records its predictions for the validation rows.

    In all other respects, including its type, it behaves as the fitted model.
    """

    def __init__(
        self, fitted: Any, X: Any, all_rows: tuple[Recorded, Positions] | None = None
    ) -> None:
        self._fit = fitted
        self._answers: dict[str, NDArray[Any]] = {}
        self._all_rows = all_rows
        self.X = X

    def on(self, rows: Positions, X: Any) -> Recorded:
        """Return the recorded model for some of the rows, which X holds."""
        return Recorded(self._fit, X, (self, rows))

    def answer(self, name: str) -> NDArray[Any]:
        """Return the predictions of a method for all rows."""
        if name not in self._answers:
            if self._all_rows is None:
                found = np.asarray(getattr(self._fit, name)(self.X))
            else:
                all_rows, rows = self._all_rows
                found = all_rows.answer(name)[rows]
            self._answers[name] = found
        return self._answers[name]

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Type of the model, for scorers that check it."""
        return type(self._fit)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the model; predictions are recorded."""
        found = getattr(self._fit, name)
        if name not in _RESPONSES:
            return found

        def respond(X: Any, *given: Any, **named: Any) -> Any:
            known = X is self.X and not given and not named
            return self.answer(name) if known else found(X, *given, **named)

        respond.__name__ = name
        return respond


# Maps a model and the true labels to one number per row: the score plus the row's influence on it.
# Their mean is the score, and their variance over the number of rows is the score's variance.
RowScores = Callable[[Recorded, NDArray[Any]], Floats]
_RATIOS: dict[str, Callable[[NDArray[Any], NDArray[Any]], tuple[Any, Any]]] = {
    "precision_score": lambda true, said: (true & said, said * 1.0),
    "recall_score": lambda true, said: (true & said, true * 1.0),
    "f1_score": lambda true, said: (2.0 * (true & said), true * 1.0 + said),
    "jaccard_score": lambda true, said: (true & said, (true | said) * 1.0),
}


def _accuracy(model: Recorded, y: NDArray[Any]) -> Floats:
    return np.asarray(_classes(model) == y, dtype=np.float64)


def _accuracy_by_class(model: Recorded, y: NDArray[Any]) -> Floats:
    right = _accuracy(model, y)
    codes, counts = np.unique(y, return_inverse=True, return_counts=True)[1:]
    recalls = np.bincount(codes, weights=right) / counts
    influence = (right - recalls[codes]) * len(y) / (len(counts) * counts[codes])
    return np.asarray(recalls.mean() + influence * _of_few(counts)[codes])


def _errors_squared(model: Recorded, y: NDArray[Any]) -> Floats:
    return np.asarray((_predict_numbers(model) - y) ** 2, dtype=np.float64)


def _errors_absolute(model: Recorded, y: NDArray[Any]) -> Floats:
    return np.asarray(np.abs(_predict_numbers(model) - y), dtype=np.float64)


def _root_of_squared_error(model: Recorded, y: NDArray[Any]) -> Floats:
    squares = _errors_squared(model, y)
    root = np.sqrt(squares.mean())
    return root + (squares - root**2) / (2 * root) if root > 0 else squares


def _r_squared(model: Recorded, y: NDArray[Any]) -> Floats:
    return _share_explained(_errors_squared(model, y), y)


def _variance_explained(model: Recorded, y: NDArray[Any]) -> Floats:
    errors = _predict_numbers(model) - y
    return _share_explained((errors - errors.mean()) ** 2, y)


def _log_loss(model: Recorded, y: NDArray[Any]) -> Floats:
    chances = np.asarray(model.answer("predict_proba"))
    small = np.finfo(chances.dtype).eps
    own = np.clip(chances, small, 1 - small)[np.arange(len(y)), _codes(model, y)]
    return np.asarray(-np.log(own), dtype=np.float64)


def _brier(model: Recorded, y: NDArray[Any]) -> Floats:
    chances = np.asarray(model.answer("predict_proba"), dtype=np.float64)
    codes = _codes(model, y)
    squares = (chances**2).sum(axis=1) + 1.0 - 2.0 * chances[np.arange(len(y)), codes]
    # For two classes, scikit-learn counts only one.
    return np.asarray(squares / 2.0 if chances.shape[1] == 2 else squares)


def _area_under_curve(model: Recorded, y: NDArray[Any]) -> Floats:
    """Return placement values: the share of the other class that a row is ranked correctly to."""
    classes = np.asarray(model.classes_)
    if len(classes) != 2:
        return np.full(len(y), np.nan)
    if hasattr(model, "decision_function"):
        ranks = np.asarray(model.answer("decision_function"), dtype=np.float64)
    else:
        ranks = np.asarray(model.answer("predict_proba"), dtype=np.float64)[:, 1]
    positive = y == classes[1]
    own = np.empty(len(y))
    own[positive] = _share_below(ranks[positive], ranks[~positive])
    own[~positive] = 1.0 - _share_below(ranks[~positive], ranks[positive])
    counts = np.array([np.count_nonzero(~positive), np.count_nonzero(positive)])
    area = own[positive].mean()
    codes = positive.astype(np.intp)
    influence = (own - area) * len(y) / counts[codes] * _of_few(counts)[codes]
    return np.asarray(area + influence, dtype=np.float64)


# Predictions that each score is computed from, and its row scores.
_PLAIN: dict[str, tuple[str | tuple[str, ...], RowScores]] = {
    "accuracy_score": ("predict", _accuracy),
    "balanced_accuracy_score": ("predict", _accuracy_by_class),
    "mean_squared_error": ("predict", _errors_squared),
    "mean_absolute_error": ("predict", _errors_absolute),
    "root_mean_squared_error": ("predict", _root_of_squared_error),
    "r2_score": ("predict", _r_squared),
    "explained_variance_score": ("predict", _variance_explained),
    "log_loss": ("predict_proba", _log_loss),
    "brier_score_loss": ("predict_proba", _brier),
    "roc_auc_score": (("decision_function", "predict_proba"), _area_under_curve),
}


class ValidationScorer:
    """Score fitted models on the validation rows of all folds.

    Every utility gets a vector of deviations. The squared validation error of a weighted sum of
    utilities is the sum of squares of the weighted sum of their deviations. If the scorer is a
    mean over rows, or a smooth function of such means, the deviation of a row is its influence
    divided by the number of rows; rows are assigned to ``MAX_GROUPS`` groups at random. For other
    scorers, deviations are those of ``N_RESAMPLES`` bootstrap scores from their mean.

    Parameters
    ----------
    scorer : callable
        Maps a fitted model, X and y to a score.
    folds : tuple of Fold
    """

    def __init__(self, scorer: Any, folds: tuple[Fold, ...]) -> None:
        """Keep the rows; groups and resamples are drawn once and shared by all utilities."""
        self._scorer = scorer
        self._targets = [fold.target for fold in folds]
        self._rows = [
            np.arange(len(fold.target)) if fold.rows is None else fold.rows for fold in folds
        ]
        self._row_scores = row_scores(scorer)
        # Distinct validation rows, and the position among them of each row, fold after fold.
        self._distinct, self._positions = np.unique(np.concatenate(self._rows), return_inverse=True)
        sizes = [len(rows) for rows in self._rows]
        self._weights = np.concatenate([np.full(n, 1 / (n * len(sizes))) for n in sizes])

    @cached_property
    def _groups(self) -> Positions:
        """Group of each validation row, fold after fold; a row has the same in all folds."""
        groups = np.random.default_rng(0).permutation(len(self._distinct)) % MAX_GROUPS
        return np.asarray(groups[self._positions])

    @cached_property
    def _scale(self) -> float:
        """Factor that makes 1.96 errors a 95% interval for few rows or resamples."""
        if self._row_scores is None:
            return float(widening(N_RESAMPLES) / np.sqrt(N_RESAMPLES - 1.0))
        n = min(len(self._distinct), MAX_GROUPS)
        # Deviations of a group partly cancel, because all deviations add up to 0.
        return float(widening(n) * np.sqrt(n / max(n - 1, 1)))

    @cached_property
    def _resamples(self) -> list[list[Positions]]:
        """Bootstrap resamples of the rows of each fold, which keep all its classes."""
        rng, n_rows = np.random.default_rng(0), len(self._distinct)
        drawn: list[list[Positions]] = [[] for _ in self._rows]
        for _ in range(N_RESAMPLES):
            for _ in range(_TRIES):
                counts = np.bincount(rng.integers(n_rows, size=n_rows), minlength=n_rows)
                parts = [
                    np.repeat(np.arange(len(own)), counts[np.searchsorted(self._distinct, own)])
                    for own in self._rows
                ]
                if all(map(_keeps_classes, self._targets, parts)):
                    break
            for fold, part in zip(drawn, parts, strict=True):
                fold.append(part)
        return drawn

    def score(self, fitted: Any, X: Any, fold: int) -> tuple[float, Floats]:
        """Return the score of a model in one fold, and its samples.

        Samples are one score for each validation row, whose mean is the score, or one for each
        resample; NaN if unknown.
        """
        y = self._targets[fold]
        model = Recorded(fitted, X)
        score = float(self._scorer(model, X, y))
        if self._row_scores is None:
            return score, self._score_resamples(model, X, fold)
        rows = self._row_scores(model, y)
        # If the mean differs, the scorer computes something else and has no closed form. The
        # tolerance allows for models that predict in single precision.
        if not math.isclose(rows.mean(), score, rel_tol=1e-4, abs_tol=1e-6):
            rows = np.full(len(y), np.nan)
        return score, rows

    def zero_samples(self, fold: int) -> Floats:
        """Return the samples of a utility that is 0."""
        return np.zeros(N_RESAMPLES if self._row_scores is None else len(self._targets[fold]))

    def deviations(self, samples_by_fold: Sequence[Floats]) -> Deviations:
        """Return the deviations of the mean over folds, from the samples of each fold."""
        if self._row_scores is None:
            scores = np.mean(samples_by_fold, axis=0)
            return np.asarray((scores - scores.mean()) * self._scale, dtype=np.float32)
        scores = np.concatenate(samples_by_fold)
        centered = (scores - self._weights @ scores) * self._weights
        sums = np.bincount(self._groups, weights=centered)
        return np.asarray(sums * self._scale, dtype=np.float32)

    def _score_resamples(self, model: Recorded, X: Any, fold: int) -> Floats:
        scores = np.full(N_RESAMPLES, np.nan)
        y = self._targets[fold]
        for position, resample in enumerate(self._resamples[fold]):
            some = model.on(resample, _take_rows(X, resample))
            # A scorer may be undefined on a resample: then its error is unknown.
            try:
                scores[position] = float(self._scorer(some, some.X, y[resample]))
            except Exception:
                return np.full(N_RESAMPLES, np.nan)
        return scores


def _keeps_classes(target: NDArray[Any], rows: Positions) -> bool:
    # A numeric target must have at least two distinct values.
    n_needed = len(np.unique(target)) if target.dtype.kind != "f" else 2
    return len(np.unique(target[rows])) >= n_needed


def _take_rows(X: Any, rows: Positions) -> Any:
    """Return rows of a table of any library."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return X.take(rows) if hasattr(X, "take") and not isinstance(X, np.ndarray) else X[rows]


def row_scores(scorer: Any) -> RowScores | None:
    """Return the row scores of a scikit-learn scorer; None if it has no closed form.

    For means over rows, these are the scores of the rows; for ratios and roots of means, their
    influence functions (Hampel 1974); for the area under the ROC curve, the placement values of
    DeLong, DeLong and Clarke-Pearson (1988).
    """
    function, sign = getattr(scorer, "_score_func", None), getattr(scorer, "_sign", None)
    settings = getattr(scorer, "_kwargs", None)
    # Only scikit-learn's own functions are identified by name.
    is_known = str(getattr(function, "__module__", "")).startswith("sklearn.")
    if sign not in (1, -1) or settings is None or not is_known:
        return None
    name = str(getattr(function, "__name__", ""))
    response, read = _PLAIN.get(name, ("", None))
    average, known = settings.get("average", "binary"), set(settings) <= {"average", "pos_label"}
    if name in _RATIOS and known and average in ("binary", "macro", "micro"):
        read = partial(_ratio, name, average, settings.get("pos_label", 1))
    # With other settings or other predictions it is another score.
    elif settings or getattr(scorer, "_response_method", None) != response:
        return None
    return None if read is None else partial(_apply_sign, read, float(sign))


def _apply_sign(read: RowScores, sign: float, model: Recorded, y: NDArray[Any]) -> Floats:
    return sign * read(model, y)


def _classes(model: Recorded) -> NDArray[Any]:
    # CatBoost returns multiclass predictions as a column.
    return model.answer("predict").reshape(-1)


def _of_few(counts: NDArray[np.int64]) -> Floats:
    """Return the small-sample correction of each class, relative to that of all rows."""
    n_rows = counts.sum()
    return np.asarray(np.sqrt(counts / np.maximum(counts - 1, 1) * (n_rows - 1) / n_rows))


def _predict_numbers(model: Recorded) -> Floats:
    return np.asarray(model.answer("predict"), dtype=np.float64).reshape(-1)


def _share_explained(left: Floats, y: NDArray[Any]) -> Floats:
    """Return 1 - mean(left) / var(y), with the influence of rows on both."""
    squares = (y - y.mean()) ** 2
    level = squares.mean()
    if level == 0:
        return np.full(len(y), np.nan)
    share = left.mean() / level
    return np.asarray(1.0 - share - (left - share * squares) / level, dtype=np.float64)


def _codes(model: Recorded, y: NDArray[Any]) -> NDArray[np.intp]:
    return np.searchsorted(np.asarray(model.classes_), y)


def _share_below(ranks: Floats, others: Floats) -> Floats:
    ordered = np.sort(others)
    below = np.searchsorted(ordered, ranks, "left") + np.searchsorted(ordered, ranks, "right")
    return below / (2.0 * len(others))


def _ratio(name: str, average: str, positive: Any, model: Recorded, y: NDArray[Any]) -> Floats:
    """Return row scores of precision, recall, F1 or Jaccard: ratios of means over rows."""
    predicted = _classes(model)
    labels = [positive] if average == "binary" else np.union1d(y, predicted).tolist()
    counts = np.array([_RATIOS[name](y == label, predicted == label) for label in labels], float)
    if average == "micro":
        return _ratio_of_means(*counts.sum(axis=0))
    return np.asarray(np.mean([_ratio_of_means(*own) for own in counts], axis=0))


def _ratio_of_means(hits: Floats, cases: Floats) -> Floats:
    level = cases.mean()
    # Without cases the score is 0 by definition.
    if level == 0:
        return np.zeros(len(hits))
    ratio = hits.mean() / level
    return np.asarray(ratio + (hits - ratio * cases) / level, dtype=np.float64)
