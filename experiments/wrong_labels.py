"""Measure the detection of wrong labels: values of rows and labels, cleanlab and a KNN vote.

    pip install cleanlab
    python experiments/wrong_labels.py --data ../shared/data

Flags: --seeds 5, --sets wine credit, --share 0.1.

A tenth of 200 rows gets the label of another class. Prints the mean AUROC over tables and seeds of
wrong rows against others. cleanlab (Northcutt, Jiang and Chuang, 2021) is given out-of-fold
probabilities of a logistic regression and of a random forest, as its documentation advises; the
vote is the share of the ten nearest other rows that have the row's label.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from cleanlab.rank import get_label_quality_scores
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict
from sklearn.neighbors import KNeighborsClassifier

import tables
from cellworth import KNNValuer, Runtime

SETS = ("breast original", "wine", "breast 30", "credit", "electricity")
N_NEIGHBORS = 10


def main() -> None:
    """Print one line per method."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--share", type=float, default=0.1)
    given = parser.parse_args()
    found = {
        name: [figures(name, seed, given.share, given.data) for seed in range(given.seeds)]
        for name in given.sets
    }
    print(
        f"{'AUROC of wrong labels':<48}" + "".join(f"{name:>17}" for name in found) + f"{'mean':>8}"
    )
    for method in METHODS:
        means = [np.mean([run[method] for run in runs]) for runs in found.values()]
        print(f"{method:<48}" + "".join(f"{m:>17.3f}" for m in means) + f"{np.mean(means):>8.3f}")


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
    "vote of the ten nearest rows": vote,
    "cleanlab, logistic regression": cleanlab_with(LogisticRegression(max_iter=1000)),
    "cleanlab, random forest": cleanlab_with(RandomForestClassifier(random_state=0)),
}

if __name__ == "__main__":
    main()
