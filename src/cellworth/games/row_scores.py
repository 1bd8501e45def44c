"""Row scores: what single validation rows add to a score, for scorers that have a closed form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cellworth.counts import Floats


class Answers(Protocol):
    """A fitted model whose predictions of the validation rows are recorded."""

    classes_: NDArray[Any]

    def answer(self, name: str) -> NDArray[Any]:
        """Return what the method of this name says of all rows."""
        ...


# From a model and the true labels to one number per row: the score plus the row's influence on it.
# Their mean is the score, and their variance over the number of rows is that of the score.
RowScores = Callable[[Answers, NDArray[Any]], Floats]


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


def _accuracy(model: Answers, y: NDArray[Any]) -> Floats:
    return np.asarray(_classes(model) == y, dtype=np.float64)


def _classes(model: Answers) -> NDArray[Any]:
    # CatBoost gives several classes as a column.
    return model.answer("predict").reshape(-1)


def _balanced_accuracy(model: Answers, y: NDArray[Any]) -> Floats:
    right = _accuracy(model, y)
    codes, counts = np.unique(y, return_inverse=True, return_counts=True)[1:]
    recalls = np.bincount(codes, weights=right) / counts
    influence = (right - recalls[codes]) * len(y) / (len(counts) * counts[codes])
    return np.asarray(recalls.mean() + influence * _of_few(counts)[codes])


def _of_few(counts: NDArray[np.int64]) -> Floats:
    """What corrects the spread of a class for its few rows, beyond that of all rows."""
    n_rows = counts.sum()
    return np.asarray(np.sqrt(counts / np.maximum(counts - 1, 1) * (n_rows - 1) / n_rows))


def _squared_error(model: Answers, y: NDArray[Any]) -> Floats:
    return np.asarray((_predicted(model) - y) ** 2, dtype=np.float64)


def _absolute_error(model: Answers, y: NDArray[Any]) -> Floats:
    return np.asarray(np.abs(_predicted(model) - y), dtype=np.float64)


def _predicted(model: Answers) -> Floats:
    return np.asarray(model.answer("predict"), dtype=np.float64).reshape(-1)


def _root_of_squared_error(model: Answers, y: NDArray[Any]) -> Floats:
    squares = _squared_error(model, y)
    root = np.sqrt(squares.mean())
    return root + (squares - root**2) / (2 * root) if root > 0 else squares


def _r_squared(model: Answers, y: NDArray[Any]) -> Floats:
    return _share_explained(_squared_error(model, y), y)


def _explained_variance(model: Answers, y: NDArray[Any]) -> Floats:
    errors = _predicted(model) - y
    return _share_explained((errors - errors.mean()) ** 2, y)


def _share_explained(left: Floats, y: NDArray[Any]) -> Floats:
    """1 - mean(left) / var(y), with the influence of rows on both."""
    squares = (y - y.mean()) ** 2
    level = squares.mean()
    if level == 0:
        return np.full(len(y), np.nan)
    share = left.mean() / level
    return np.asarray(1.0 - share - (left - share * squares) / level, dtype=np.float64)


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


def _codes(model: Answers, y: NDArray[Any]) -> NDArray[np.intp]:
    return np.searchsorted(np.asarray(model.classes_), y)


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


_RATIOS: dict[str, Callable[[NDArray[Any], NDArray[Any]], tuple[Any, Any]]] = {
    "precision_score": lambda true, said: (true & said, said * 1.0),
    "recall_score": lambda true, said: (true & said, true * 1.0),
    "f1_score": lambda true, said: (2.0 * (true & said), true * 1.0 + said),
    "jaccard_score": lambda true, said: (true & said, (true | said) * 1.0),
}
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
