"""Measure what a model gains if the rows with the most doubtful labels are removed.

    python -m experiments label_removal

Flags: --seeds 10, --name adult, --rows 2000, --share 0.2.

A share of the labels of the training rows gets another class. Each method then removes as many rows
as are wrong, except for the findings of the audit. The likelihood is the probability of the given
label by five-fold cross-validation; cleanlab (Northcutt, Jiang and Chuang, 2021) ranks by it by
default, and by its difference from the mean of the class if it is adjusted. No method sees a true
label. Reports the AUC on 10,000 held-out rows, and differences from
the table as it is with 95% intervals over seeds (Student's): by their true labels, and by labels of
which the same share is wrong. Each seed draws the rows and the wrong labels anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.base import clone
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from cellworth import KNNValuer, Runtime, audit
from experiments.baselines import LeverageSampler
from experiments.frame import Tables, log
from experiments.tables import Table, draw_samples, load

QUICK = {"seeds": range(1), "rows": 200, "methods": ("nothing", "random rows")}
N_HELD_OUT = 10_000
_TEXT = make_column_selector(dtype_exclude="number")
_CODES = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)


def with_codes(model: Any) -> Any:
    return make_pipeline(make_column_transformer((_CODES, _TEXT), remainder="passthrough"), model)


BOOSTING = with_codes(HistGradientBoostingClassifier(random_state=0))
FOREST = with_codes(RandomForestClassifier(random_state=0))
LOGISTIC = make_pipeline(
    make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), _TEXT), remainder=StandardScaler()
    ),
    LogisticRegression(max_iter=2000),
)
MODELS = {"boosted trees": BOOSTING, "logistic regression": LOGISTIC}


def find_lowest(score: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """Return a method that finds the rows of lowest score."""
    return lambda X, y, wrong, seed: np.argsort(score(X, y, seed), kind="stable")[: wrong.sum()]


def value_labels(scoring: str | None) -> Callable[..., np.ndarray]:
    def compute_values(X: pd.DataFrame, y: np.ndarray, seed: int) -> np.ndarray:
        valuer = KNNValuer(
            10, scoring=scoring, sampler=LeverageSampler(), n_passes=1, random_state=seed,
            runtime=Runtime(progress=False),
        )  # fmt: skip
        valuer.fit(X, y, value_labels=True, n_validation=None)
        return valuer.valuation_.values[:, -1]

    return compute_values


def predict_labels(model: Any, *, adjusted: bool = False) -> Callable[..., np.ndarray]:
    """Return the probability that a model trained on other rows gives to each label."""

    def measure_likelihood(X: pd.DataFrame, y: np.ndarray, seed: int) -> np.ndarray:
        chances = cross_val_predict(clone(model), X, y, cv=5, method="predict_proba")
        classes, codes = np.unique(y, return_inverse=True)
        if adjusted:
            means = [chances[codes == code, code].mean() for code in range(len(classes))]
            chances = chances - means
        return chances[np.arange(len(y)), codes]

    return measure_likelihood


def audit_labels(X: pd.DataFrame, y: np.ndarray, wrong: np.ndarray, seed: int) -> np.ndarray:
    found = [finding.rows for finding in audit(X, y) if finding.kind == "wrong label"]
    return np.concatenate([*found, np.zeros(0, dtype=int)])


METHODS: dict[str, Callable[..., np.ndarray]] = {
    "nothing": lambda X, y, wrong, seed: np.zeros(0, dtype=int),
    "random rows": find_lowest(lambda X, y, seed: np.random.default_rng(seed).random(len(y))),
    "value of the label": find_lowest(value_labels(None)),
    "value of the label, balanced": find_lowest(value_labels("balanced_neighbor_agreement")),
    "likelihood, boosted trees": find_lowest(predict_labels(BOOSTING)),
    "likelihood, boosted trees, adjusted": find_lowest(predict_labels(BOOSTING, adjusted=True)),
    "likelihood, random forest": find_lowest(predict_labels(FOREST)),
    "likelihood, random forest, adjusted": find_lowest(predict_labels(FOREST, adjusted=True)),
    "wrong labels of the audit": audit_labels,
    "all wrong labels": lambda X, y, wrong, seed: np.flatnonzero(wrong),
}


def run(
    data: Path,
    *,
    seeds: range = range(10),
    name: str = "adult",
    rows: int = 2000,
    share: float = 0.2,
    methods: tuple[str, ...] = tuple(METHODS),
) -> Tables:
    """Return the AUC and its gain for each model and method."""
    table = load(name, data)
    figures = []
    for seed in seeds:
        train, test = draw_samples(table, rows, N_HELD_OUT, seed=seed)
        figures += measure(train, test, share, seed, methods)
        log(seed)
    return report(pd.DataFrame(figures))


def flip(y: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Give a share of the labels the other one of two classes."""
    classes = np.unique(y)
    chosen = rng.permutation(len(y)) < round(share * len(y))
    return np.where(chosen, classes[1 - np.searchsorted(classes, y)], y)


def measure(
    train: Table, test: Table, share: float, seed: int, methods: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Return the AUC of each model on the rows that each method leaves."""
    rng = np.random.default_rng(seed)
    y, tested = flip(train.y, share, rng), flip(test.y, share, rng)
    wrong = y != train.y
    figures = []
    for method in methods:
        began = time.perf_counter()
        rows = METHODS[method](train.X, y, wrong, seed)
        common = {"removed": method, "seed": seed, "seconds": time.perf_counter() - began}
        common |= {"rows": len(rows), "wrong, %": 100 * wrong[rows].mean() if len(rows) else np.nan}
        left = np.setdiff1d(np.arange(len(y)), rows)
        for name, model in MODELS.items():
            fitted = clone(model).fit(train.X.iloc[left], y[left])
            chances = fitted.predict_proba(test.X)[:, 1]
            areas = {
                of: roc_auc_score(labels == fitted.classes_[1], chances)
                for of, labels in (("AUC", test.y), ("AUC by wrong labels", tested))
            }
            figures.append(common | {"model": name} | areas)
    return figures


def report(figures: pd.DataFrame) -> Tables:
    """Return means over seeds, and differences from removing nothing, by model."""
    return {str(model): list(compare(part)) for model, part in figures.groupby("model", sort=False)}


def compare(part: pd.DataFrame) -> Iterator[dict[str, Any]]:
    by = part.pivot(index="seed", columns="removed")
    for method in part["removed"].unique():
        line = {"removed": method}
        line |= {name: by[name, method].mean() for name in ("rows", "wrong, %", "AUC")}
        for name in ("AUC", "AUC by wrong labels"):
            gain = by[name, method] - by[name, "nothing"]
            line[f"{name}, gain"] = gain.mean()
            line[f"{name}, 95% +-"] = stats.t.ppf(0.975, len(gain) - 1) * gain.sem()
        yield line | {"seconds": by["seconds", method].mean()}
