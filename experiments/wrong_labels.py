"""Measure the detection of wrong labels: label_scores, values, cleanlab, a vote of neighbors.

    pip install cleanlab

The first six tables chose nothing in it.
A tenth of 200 rows gets the label of another class. Reports the mean AUROC over tables and seeds of
wrong rows against others. cleanlab (Northcutt, Jiang and Chuang, 2021) is given out-of-fold
probabilities of a logistic regression and of a random forest, as its documentation advises; the
vote is the share of the ten nearest other rows that have the row's label.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from cleanlab.rank import get_label_quality_scores
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict
from sklearn.neighbors import KNeighborsClassifier

from cellworth import KNNValuer, Runtime
from cellworth.findings import label_scores
from experiments import tables
from experiments.frame import Tables, means

QUICK = {"seeds": range(1), "sets": ("wine",)}
SETS = (
    "heart", "lawschool", "pol", "fried", "2dplanes", "spam7",
    "credit", "electricity", "adult", "jannis",
)  # fmt: skip
N_NEIGHBORS = 10


def run(
    data: Path, seeds: range = range(2), sets: tuple[str, ...] = SETS, share: float = 0.1
) -> Tables:
    """Return the AUROC of each method, over tables and by table."""
    found = [
        {"set": name, "method": method, "AUROC": area}
        for name in sets
        for seed in seeds
        for method, area in figures(name, seed, share, data).items()
    ]
    of_sets = pd.DataFrame(found).groupby(["method", "set"], sort=False)["AUROC"].mean()
    ahead = [
        {"method": method, "set": name, "AUROC": of_sets["label_scores", name] - area}
        for (method, name), area in of_sets.items()
        if method != "label_scores"
    ]
    return {
        "AUROC, mean over tables": means(found, ["method"], "set"),
        "lead of label_scores, table by table": means(ahead, ["method"]),
    }


def figures(name: str, seed: int, share: float, folder: Path) -> dict[str, float]:
    """Return the AUROC of each method on one table with wrong labels."""
    table = tables.load(name, folder).numbers()
    # Some tables have fewer than 200 training rows.
    n_rows = min(200, 2 * len(table.y) // 3)
    train, queries = tables.draw_samples(table, n_rows, 100, seed=seed)
    rng = np.random.default_rng(seed)
    X, classes = train.X.to_numpy(), np.unique(train.y, return_inverse=True)[1]
    wrong = rng.permutation(len(X)) < round(share * len(X))
    others = rng.integers(1, classes.max() + 1, len(X))
    y = np.where(wrong, (classes + others) % (classes.max() + 1), classes)
    y_val = np.searchsorted(np.unique(train.y), queries.y)
    return {
        method: float(roc_auc_score(wrong, -score(X, y, queries.X.to_numpy(), y_val)))
        for method, score in METHODS.items()
    }


def make_score(*, of_labels: bool, folds: bool) -> Callable[..., np.ndarray]:
    """Return values of rows or labels, validated on clean rows or on folds of the altered table."""

    def compute_values(
        X: np.ndarray, y: np.ndarray, X_val: np.ndarray, y_val: np.ndarray
    ) -> np.ndarray:
        validation = {} if folds else {"X_val": X_val, "y_val": y_val}
        valuer = KNNValuer(N_NEIGHBORS, random_state=0, runtime=Runtime(progress=False))
        valuation = valuer.fit(X, y, **validation, value_labels=of_labels).valuation_
        return valuation.values[:, -1] if of_labels else valuation.rows().values

    return compute_values


def vote(X: np.ndarray, y: np.ndarray, *_: np.ndarray) -> np.ndarray:
    near = KNeighborsClassifier(N_NEIGHBORS + 1).fit(X, y).kneighbors(X, return_distance=False)
    return (y[near[:, 1:]] == y[:, None]).mean(axis=1)


def score_labels(X: np.ndarray, y: np.ndarray, *_: np.ndarray) -> np.ndarray:
    return -label_scores(X, y)


def cleanlab_with(model: object) -> Callable[..., np.ndarray]:
    def quality(X: np.ndarray, y: np.ndarray, *_: np.ndarray) -> np.ndarray:
        chances = cross_val_predict(model, X, y, cv=5, method="predict_proba")
        return get_label_quality_scores(y, chances)

    return quality


METHODS = {
    "value of the row, 100 clean validation rows": make_score(of_labels=False, folds=False),
    "value of the row, five folds": make_score(of_labels=False, folds=True),
    "value of the label, 100 clean validation rows": make_score(of_labels=True, folds=False),
    "value of the label, five folds": make_score(of_labels=True, folds=True),
    "label_scores": score_labels,
    "vote of the ten nearest rows": vote,
    "cleanlab, logistic regression": cleanlab_with(LogisticRegression(max_iter=1000)),
    "cleanlab, random forest": cleanlab_with(RandomForestClassifier(random_state=0)),
}
