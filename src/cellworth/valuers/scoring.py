"""What stands beside the score of a valuation: plain accuracy or R squared, and a simple guess."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.counts import Floats
from cellworth.games.knn import query_weights
from cellworth.problem import Problem
from cellworth.scores import Scores
from cellworth.sweeps import Sweeps
from cellworth.valuers.questions import Questions

Counts = NDArray[np.int64]


def scores_of_queries(
    questions: Questions,
    scoring: str,
    *,
    targets: Sequence[Floats],
    class_counts: Sequence[Counts] | None,
    n_tasks: int,
    seen: Sweeps,
) -> Scores:
    """Scores of the queries that a run over nearest neighbours has asked.

    Parameters
    ----------
    questions : Questions
    scoring : str
    targets : sequence of arrays
        Codes of classes or targets of all queries, by fold.
    class_counts : sequence of arrays of shape (n_classes,) or None
        Training rows of each class, by fold; None for a numeric target.
    n_tasks : int
        How many tasks were done.
    seen : Sweeps
        What they added.
    """
    judges = questions.judges
    asked = [
        (piece.fold, piece.queries) for part in questions.parts[:n_tasks] for piece in part.pieces
    ]
    labels = [targets[fold][queries] for fold, queries in asked]
    told: dict[str, Any] = {
        "scoring": scoring,
        "n_validation_rows": sum(map(len, labels)),
        "n_planned_rows": judges.n_queries,
        "n_folds": len(judges.labels),
    }
    if class_counts is None:
        figures = _of_squared_error(seen.score, float(np.var(np.concatenate(labels))))
        return Scores(n_classes=None, **told, **figures)
    weights = [judges.weights[fold][queries] for fold, queries in asked]
    counts = [class_counts[fold] for fold, _ in asked]
    return Scores(
        n_classes=len(class_counts[0]),
        **told,
        accuracy=seen.accuracy,
        majority=_majority(counts, labels, weights),
    )


def scores_of_game(game: Any, score: float) -> Scores | None:
    """Scores of a game whose model is judged on validation rows; None of other games."""
    problem, scoring = getattr(game, "problem", None), getattr(game, "scoring", None)
    if not isinstance(problem, Problem) or not isinstance(scoring, str) or not problem.folds:
        return None
    n_rows = sum(len(fold.target) for fold in problem.folds)
    told: dict[str, Any] = {
        "scoring": scoring,
        "n_validation_rows": n_rows,
        "n_planned_rows": n_rows,
        "n_folds": len(problem.folds),
    }
    if problem.classes is not None:
        majority = _majority_of_folds(problem, problem.classes, "balanced" in scoring)
        accuracy = score if scoring in ("accuracy", "balanced_accuracy") else math.nan
        return Scores(n_classes=len(problem.classes), **told, accuracy=accuracy, majority=majority)
    figures: dict[str, Any] = {"r2": score} if scoring == "r2" else {}
    if scoring == "neg_mean_squared_error":
        figures = _of_squared_error(score, _variance(problem))
    return Scores(n_classes=None, **told, **figures)


def _of_squared_error(score: float, variance: float) -> dict[str, Any]:
    """R squared and root mean squared error, of minus a mean squared error."""
    r2 = 1.0 + score / variance if variance > 0 else math.nan
    return {"r2": r2, "rmse": math.nan if math.isnan(score) else math.sqrt(max(-score, 0.0))}


def _majority(
    class_counts: Sequence[Counts], labels: Sequence[Floats], weights: Sequence[Floats]
) -> float:
    """How often the most frequent class is right, or any of those that tie; part by part."""
    right = 0.0
    for counts, asked, count in zip(class_counts, labels, weights, strict=True):
        best = np.flatnonzero(counts == counts.max())
        right += float(count @ np.isin(asked, best)) / len(best)
    return right / float(sum(count.sum() for count in weights))


def _majority_of_folds(problem: Problem, classes: NDArray[Any], balanced: bool) -> float:
    """The same for a model, whose score is the mean over folds."""
    codes = np.searchsorted(classes, problem.target)
    counts = [np.bincount(codes[fold.may_train], minlength=len(classes)) for fold in problem.folds]
    labels = [np.searchsorted(classes, fold.target).astype(np.float64) for fold in problem.folds]
    how = "balanced_neighbor_agreement" if balanced else "neighbor_agreement"
    return _majority(counts, labels, [query_weights([each], how)[0] for each in labels])


def _variance(problem: Problem) -> float:
    """Mean squared distance of validation targets to their mean, each fold counted the same."""
    mean = float(np.mean(np.concatenate([fold.target for fold in problem.folds])))
    return float(np.mean([np.mean((fold.target - mean) ** 2) for fold in problem.folds]))
