"""Judge: scores a fitted model, and tells how far other validation rows would move the score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.certainty import widening
from cellworth.counts import Floats, Positions
from cellworth.estimates.looks import LEAST_DEVIATIONS
from cellworth.games.row_scores import row_scores
from cellworth.moments import Deviations
from cellworth.problem import Fold

# A utility has at most so many deviations. Rows beyond them share groups at random.
MOST_GROUPS = 256
# How often a scorer without a closed form is asked again, on validation rows drawn anew.
N_RESAMPLES = LEAST_DEVIATIONS

_TRIES = 100
_RESPONSES = ("predict", "predict_proba", "decision_function")


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
        for place, resample in enumerate(self._resamples[fold]):
            some = model.on(resample, _taken(X, resample))
            # A scorer may be undefined on other rows: then nothing is known of its error.
            try:
                scores[place] = float(self._scorer(some, some.X, y[resample]))
            except Exception:
                return np.full(N_RESAMPLES, np.nan)
        return scores


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


def _dealt(rows: Positions, rng: np.random.Generator) -> Positions:
    """Group of each row; a row that several folds judge is in one group."""
    distinct, places = np.unique(rows, return_inverse=True)
    groups = rng.permutation(len(distinct)) % MOST_GROUPS
    return np.asarray(groups[places])


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
