"""Scoring a model: the score and the contribution of each validation row to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats, Positions
from cellworth.data.problem import Fold
from cellworth.sampling.moments import LEAST_DEVIATIONS, Deviations, widening

# A utility has at most so many deviations. Rows beyond them share groups at random.
MOST_GROUPS = 256
# How often a scorer without a closed form is asked again, on validation rows drawn anew.
N_RESAMPLES = LEAST_DEVIATIONS
_TRIES = 100
_RESPONSES = ("predict", "predict_proba", "decision_function")


class Answers(Protocol):
    """A fitted model whose predictions of the validation rows are recorded."""

    classes_: NDArray[Any]

    def answer(self, name: str) -> NDArray[Any]:
        """Return what the method of this name says of all rows."""
        ...


# From a model and the true labels to one number per row: the score plus the row's influence on it.
# Their mean is the score, and their variance over the number of rows is that of the score.
RowScores = Callable[[Answers, NDArray[Any]], Floats]
_RATIOS: dict[str, Callable[[NDArray[Any], NDArray[Any]], tuple[Any, Any]]] = {
    "precision_score": lambda true, said: (true & said, said * 1.0),
    "recall_score": lambda true, said: (true & said, true * 1.0),
    "f1_score": lambda true, said: (2.0 * (true & said), true * 1.0 + said),
    "jaccard_score": lambda true, said: (true & said, (true | said) * 1.0),
}


def _accuracy(model: Answers, y: NDArray[Any]) -> Floats:
    return np.asarray(_classes(model) == y, dtype=np.float64)


def _balanced_accuracy(model: Answers, y: NDArray[Any]) -> Floats:
    right = _accuracy(model, y)
    codes, counts = np.unique(y, return_inverse=True, return_counts=True)[1:]
    recalls = np.bincount(codes, weights=right) / counts
    influence = (right - recalls[codes]) * len(y) / (len(counts) * counts[codes])
    return np.asarray(recalls.mean() + influence * _of_few(counts)[codes])


def _squared_error(model: Answers, y: NDArray[Any]) -> Floats:
    return np.asarray((_predicted(model) - y) ** 2, dtype=np.float64)


def _absolute_error(model: Answers, y: NDArray[Any]) -> Floats:
    return np.asarray(np.abs(_predicted(model) - y), dtype=np.float64)


def _root_of_squared_error(model: Answers, y: NDArray[Any]) -> Floats:
    squares = _squared_error(model, y)
    root = np.sqrt(squares.mean())
    return root + (squares - root**2) / (2 * root) if root > 0 else squares


def _r_squared(model: Answers, y: NDArray[Any]) -> Floats:
    return _share_explained(_squared_error(model, y), y)


def _explained_variance(model: Answers, y: NDArray[Any]) -> Floats:
    errors = _predicted(model) - y
    return _share_explained((errors - errors.mean()) ** 2, y)


def _log_loss(model: Answers, y: NDArray[Any]) -> Floats:
    chances = np.asarray(model.answer("predict_proba"))
    small = np.finfo(chances.dtype).eps
    own = np.clip(chances, small, 1 - small)[np.arange(len(y)), _codes(model, y)]
    return np.asarray(-np.log(own), dtype=np.float64)


def _brier(model: Answers, y: NDArray[Any]) -> Floats:
    chances = np.asarray(model.answer("predict_proba"), dtype=np.float64)
    codes = _codes(model, y)
    squares = (chances**2).sum(axis=1) + 1.0 - 2.0 * chances[np.arange(len(y)), codes]
    # Of two classes, scikit-learn counts one.
    return np.asarray(squares / 2.0 if chances.shape[1] == 2 else squares)


def _area_under_curve(model: Answers, y: NDArray[Any]) -> Floats:
    """Placement values: the share of the other class that a row is ranked rightly against."""
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


# What each score is computed from, and how.
_PLAIN: dict[str, tuple[str | tuple[str, ...], RowScores]] = {
    "accuracy_score": ("predict", _accuracy),
    "balanced_accuracy_score": ("predict", _balanced_accuracy),
    "mean_squared_error": ("predict", _squared_error),
    "mean_absolute_error": ("predict", _absolute_error),
    "root_mean_squared_error": ("predict", _root_of_squared_error),
    "r2_score": ("predict", _r_squared),
    "explained_variance_score": ("predict", _explained_variance),
    "log_loss": ("predict_proba", _log_loss),
    "brier_score_loss": ("predict_proba", _brier),
    "roc_auc_score": (("decision_function", "predict_proba"), _area_under_curve),
}


class Recorded:
    """A fitted model that predicts its validation rows once, and then answers for any of them.

    For all else, its type included, it is the fitted model.
    """

    def __init__(self, fitted: Any, X: Any) -> None:
        """Answer for the rows of X."""
        self._fitted = fitted
        self._answers: dict[str, NDArray[Any]] = {}
        self._whole: tuple[Recorded, Positions] | None = None
        self.X = X

    def on(self, rows: Positions, X: Any) -> Recorded:
        """Answer for some of the rows, which X holds."""
        some = Recorded(self._fitted, X)
        some._whole = self, rows
        return some

    def answer(self, name: str) -> NDArray[Any]:
        """What a method of the model says of all rows."""
        if name not in self._answers:
            if self._whole is None:
                found = np.asarray(getattr(self._fitted, name)(self.X))
            else:
                whole, rows = self._whole
                found = whole.answer(name)[rows]
            self._answers[name] = found
        return self._answers[name]

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Type of the model, for scorers that ask."""
        return type(self._fitted)

    def __getattr__(self, name: str) -> Any:
        """Look at the model; its predictions are recorded."""
        found = getattr(self._fitted, name)
        if name not in _RESPONSES:
            return found

        def respond(X: Any, *given: Any, **named: Any) -> Any:
            known = X is self.X and not given and not named
            return self.answer(name) if known else found(X, *given, **named)

        respond.__name__ = name
        return respond


class Judge:
    """Scores fitted models on the validation rows of all folds.

    Every utility gets a vector of deviations: the squared validation error of any weighted sum of
    utilities is the sum of squares of the same weighted sum of their deviations. Where the scorer
    is a mean over rows, or a smooth function of such means, a row's deviation is its influence
    divided by the number of rows, and rows share ``MOST_GROUPS`` groups at random. For other
    scorers, deviations are those of ``N_RESAMPLES`` bootstrap scores from their mean.

    Parameters
    ----------
    scorer : callable
        From a fitted model, X and y to a score.
    folds : tuple of Fold
    """

    def __init__(self, scorer: Any, folds: tuple[Fold, ...]) -> None:
        """Remember the rows; groups and resamples are drawn once, for all utilities alike."""
        self._scorer = scorer
        self._targets = [fold.target for fold in folds]
        self._rows = [
            np.arange(len(fold.target)) if fold.rows is None else fold.rows for fold in folds
        ]
        self._row_scores = row_scores(scorer)
        self._n_rows = len(np.unique(np.concatenate(self._rows)))
        sizes = [len(rows) for rows in self._rows]
        self._weights = np.concatenate([np.full(n, 1 / (n * len(sizes))) for n in sizes])

    @cached_property
    def _groups(self) -> Positions:
        """Group of each validation row, fold after fold."""
        return _dealt(np.concatenate(self._rows), np.random.default_rng(0))

    @property
    def _n_groups(self) -> int:
        return min(self._n_rows, MOST_GROUPS)

    @cached_property
    def _scale(self) -> float:
        """What makes 1.96 errors a 95 % interval, however few rows or draws there are."""
        if self._row_scores is None:
            return float(widening(N_RESAMPLES) / np.sqrt(N_RESAMPLES - 1.0))
        n = self._n_groups
        # Rows of a group cancel a little, as all deviations together add up to 0.
        return float(widening(n) * np.sqrt(n / max(n - 1, 1)))

    @cached_property
    def _resamples(self) -> list[list[Positions]]:
        """Rows of each fold, drawn anew."""
        return _resamples(self._rows, self._targets, np.random.default_rng(0))

    def score(self, fitted: Any, X: Any, fold: int) -> tuple[float, Floats]:
        """Score a model in one fold; return what tells of its spread, too.

        That is a score for each validation row, whose mean is the score, or one for each resample;
        NaN where it cannot be known.
        """
        y = self._targets[fold]
        model = Recorded(fitted, X)
        score = float(self._scorer(model, X, y))
        if self._row_scores is None:
            return score, self._resampled(model, X, fold)
        rows = self._row_scores(model, y)
        # A scorer that does something else than its name says has no closed form. Models that
        # predict in single precision are not that.
        if not math.isclose(rows.mean(), score, rel_tol=1e-4, abs_tol=1e-6):
            rows = np.full(len(y), np.nan)
        return score, rows

    def nothing(self, fold: int) -> Floats:
        """Spread of a utility that is 0, whatever the validation rows."""
        return np.zeros(N_RESAMPLES if self._row_scores is None else len(self._targets[fold]))

    def deviations(self, spreads: Sequence[Floats]) -> Deviations:
        """Deviations of the mean over folds, from what :meth:`score` told of each fold."""
        if self._row_scores is None:
            scores = np.mean(spreads, axis=0)
            return np.asarray((scores - scores.mean()) * self._scale, dtype=np.float32)
        scores = np.concatenate(spreads)
        centred = (scores - self._weights @ scores) * self._weights
        sums = np.bincount(self._groups, weights=centred, minlength=self._n_groups)
        return np.asarray(sums * self._scale, dtype=np.float32)

    def _resampled(self, model: Recorded, X: Any, fold: int) -> Floats:
        scores = np.full(N_RESAMPLES, np.nan)
        y = self._targets[fold]
        for position, resample in enumerate(self._resamples[fold]):
            some = model.on(resample, _taken(X, resample))
            # A scorer may be undefined on other rows: then nothing is known of its error.
            try:
                scores[position] = float(self._scorer(some, some.X, y[resample]))
            except Exception:
                return np.full(N_RESAMPLES, np.nan)
        return scores


def _dealt(rows: Positions, rng: np.random.Generator) -> Positions:
    """Group of each row; a row that several folds judge is in one group."""
    distinct, positions = np.unique(rows, return_inverse=True)
    groups = rng.permutation(len(distinct)) % MOST_GROUPS
    return np.asarray(groups[positions])


def _resamples(
    rows: Sequence[Positions], targets: Sequence[NDArray[Any]], rng: np.random.Generator
) -> list[list[Positions]]:
    """Rows of each fold as a bootstrap draws them, in which no class that a fold has is lost."""
    distinct = np.unique(np.concatenate(rows))
    drawn: list[list[Positions]] = [[] for _ in rows]
    for _ in range(N_RESAMPLES):
        for _ in range(_TRIES):
            counts = np.bincount(rng.integers(len(distinct), size=len(distinct)),
                                 minlength=len(distinct))  # fmt: skip
            parts = [
                np.repeat(np.arange(len(own)), counts[np.searchsorted(distinct, own)])
                for own in rows
            ]
            if all(map(_keeps_classes, targets, parts)):
                break
        for fold, part in zip(drawn, parts, strict=True):
            fold.append(part)
    return drawn


def _keeps_classes(target: NDArray[Any], rows: Positions) -> bool:
    # Numbers are no classes, but some of them must differ.
    n_needed = len(np.unique(target)) if target.dtype.kind != "f" else 2
    return len(np.unique(target[rows])) >= n_needed


def _taken(X: Any, rows: Positions) -> Any:
    """Rows of a table of any library."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return X.take(rows) if hasattr(X, "take") and not isinstance(X, np.ndarray) else X[rows]


def row_scores(scorer: Any) -> RowScores | None:
    """Return the row scores of a scorer of scikit-learn; None where it has no closed form.

    Scores that are means over rows have the rows' own scores. Ratios and roots of means have their
    influence functions (Hampel 1974), the area under the ROC curve has the placement values of
    DeLong, DeLong and Clarke-Pearson (1988).
    """
    function, sign = getattr(scorer, "_score_func", None), getattr(scorer, "_sign", None)
    settings = getattr(scorer, "_kwargs", None)
    # Only scikit-learn's own functions are known by name.
    if sign not in (1, -1) or settings is None or not _is_of_sklearn(function):
        return None
    read = _closed_form(str(getattr(function, "__name__", "")), settings, scorer)
    if read is None:
        return None
    return partial(_signed, read, float(sign))


def _is_of_sklearn(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).startswith("sklearn.")


def _signed(read: RowScores, sign: float, model: Answers, y: NDArray[Any]) -> Floats:
    return sign * read(model, y)


def _closed_form(name: str, settings: Mapping[str, Any], scorer: Any) -> RowScores | None:
    if name in _RATIOS and set(settings) <= {"average", "pos_label"}:
        average = settings.get("average", "binary")
        if average in ("binary", "macro", "micro"):
            return partial(_ratio, name, average, settings.get("pos_label", 1))
        return None
    response, read = _PLAIN.get(name, ("", None))
    # With other settings, or of other predictions, it is another score.
    same = not settings and getattr(scorer, "_response_method", None) == response
    return read if same else None


def _classes(model: Answers) -> NDArray[Any]:
    # CatBoost gives several classes as a column.
    return model.answer("predict").reshape(-1)


def _of_few(counts: NDArray[np.int64]) -> Floats:
    """What corrects the spread of a class for its few rows, beyond that of all rows."""
    n_rows = counts.sum()
    return np.asarray(np.sqrt(counts / np.maximum(counts - 1, 1) * (n_rows - 1) / n_rows))


def _predicted(model: Answers) -> Floats:
    return np.asarray(model.answer("predict"), dtype=np.float64).reshape(-1)


def _share_explained(left: Floats, y: NDArray[Any]) -> Floats:
    """1 - mean(left) / var(y), with the influence of rows on both."""
    squares = (y - y.mean()) ** 2
    level = squares.mean()
    if level == 0:
        return np.full(len(y), np.nan)
    share = left.mean() / level
    return np.asarray(1.0 - share - (left - share * squares) / level, dtype=np.float64)


def _codes(model: Answers, y: NDArray[Any]) -> NDArray[np.intp]:
    return np.searchsorted(np.asarray(model.classes_), y)


def _share_below(ranks: Floats, others: Floats) -> Floats:
    ordered = np.sort(others)
    below = np.searchsorted(ordered, ranks, "left") + np.searchsorted(ordered, ranks, "right")
    return below / (2.0 * len(others))


def _ratio(name: str, average: str, positive: Any, model: Answers, y: NDArray[Any]) -> Floats:
    """Precision, recall, F1 or Jaccard score: ratios of means over rows, class by class."""
    predicted = _classes(model)
    counted = _RATIOS[name]
    if average == "micro":
        hits, cases = (np.zeros(len(y)) for _ in range(2))
        for label in np.union1d(y, predicted):
            more_hits, more_cases = counted(y == label, predicted == label)
            hits += more_hits
            cases += more_cases
        return _ratio_of_means(hits, cases)
    labels = [positive] if average == "binary" else np.union1d(y, predicted).tolist()
    by_class = [_ratio_of_means(*counted(y == label, predicted == label)) for label in labels]
    mean: Floats = np.mean(by_class, axis=0)
    return mean


def _ratio_of_means(hits: Floats, cases: Floats) -> Floats:
    level = cases.mean()
    # Without cases the score is 0 by definition.
    if level == 0:
        return np.zeros(len(hits))
    ratio = hits.mean() / level
    return np.asarray(ratio + (hits - ratio * cases) / level, dtype=np.float64)
