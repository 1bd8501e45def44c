"""Measure how many fits TargetPrecision needs, and whether sampling errors are then small enough.

    python -m experiments target_precision    # some minutes

Four games of 36 or 42 blocks have exact values. Some runs of each end after 50 fits per block, and
by TargetPrecision() alone. Errors are printed as shares of the validation error of the exact
values, all as root mean squares over blocks.
"""

from __future__ import annotations

import warnings
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from cellworth import ExactValuer, MonteCarloValuer, Runtime
from cellworth.runtime import MaxTasks, MaxUtilities, MemoryCache, TargetPrecision
from experiments.frame import Row, Tables, log, means
from experiments.tables import find

LOGISTIC = make_pipeline(StandardScaler(), LogisticRegression())
BOOSTING = HistGradientBoostingClassifier(max_iter=15, random_state=0)
GAMES = ("wine, tree", "wine, logistic", "breast cancer, logistic", "census, boosting")
QUICK = {"seeds": range(1), "games": ("wine, tree",)}
# A limit on tasks, because one on utilities may cover all coalitions, which gives exact values.
# All games have 36 or 42 blocks.
STOPS = {
    "50 fits per block": MaxUtilities(2000),
    "TargetPrecision()": TargetPrecision() | MaxTasks(1000),
}


def read_adult(folder: Path) -> tuple[Any, Any]:
    """Return 2,000 people with codes in place of texts, and whether they earn more than 50K."""
    table = pd.read_csv(find("adult_train", folder), nrows=2000)
    y = (table.pop("income").str.strip() == ">50K").to_numpy().astype(int)
    columns = [
        table[name] if pd.api.types.is_numeric_dtype(table[name]) else pd.factorize(table[name])[0]
        for name in table
    ]
    return np.column_stack(columns).astype(float), y


def divide(X: Any, y: Any, shape: tuple[int, int], n_train: int | None = None) -> dict[str, Any]:
    """Return training rows in random groups, columns in random groups, and validation rows."""
    X, X_val, y, y_val = train_test_split(X, y, test_size=0.4, stratify=y, random_state=0)
    X, y, rng = X[:n_train], y[:n_train], np.random.default_rng(0)
    row_groups, column_groups = (
        rng.permutation(np.arange(n) % n_groups) for n, n_groups in zip(X.shape, shape, strict=True)
    )
    groups = {"row_groups": row_groups, "column_groups": column_groups}
    return {"X": X, "y": y, "X_val": X_val, "y_val": y_val, **groups}


def root_mean_square(errors: Any) -> float:
    """Return the root of the mean square."""
    return float(np.sqrt(np.mean(np.square(errors))))


def measure(model: Any, data: dict[str, Any], name: str, seeds: range) -> list[Row]:
    """Return fits and errors of all runs on one game."""
    runtime = Runtime(cache=MemoryCache(), progress=False)
    exact = ExactValuer(model, runtime=runtime).fit(**data).valuation_
    validation = root_mean_square(exact.validation_se)
    found = []
    for stop, seed in product(STOPS, seeds):
        valuer = MonteCarloValuer(model, stop=STOPS[stop], random_state=seed, runtime=runtime)
        valuation = valuer.fit(**data).valuation_
        raw = valuation.moments.mean[:-1, :-1]
        covered = np.abs(valuation.values - exact.values) <= 1.96 * valuation.sampling_se
        found.append({
            "game": name, "stop": stop, "fits per block": valuation.provenance.tally.new / raw.size,
            "error": root_mean_square(raw - exact.values) / validation,
            "error, shrunk": root_mean_square(valuation.values - exact.values) / validation,
            "coverage": covered.mean(),
        })  # fmt: skip
    log(name)
    return means(found, ["game", "stop"])


def run(data: Path, seeds: range = range(4), games: tuple[str, ...] = GAMES) -> Tables:
    """Measure all games."""
    # Many small coalitions have columns without variance.
    warnings.simplefilter("ignore")
    wine, cancer = load_wine(return_X_y=True), load_breast_cancer(return_X_y=True)
    made = {
        "wine, tree": (DecisionTreeClassifier(random_state=0), divide(*wine, (6, 7))),
        "wine, logistic": (LOGISTIC, divide(*wine, (6, 7))),
        "breast cancer, logistic": (LOGISTIC, divide(*cancer, (6, 7))),
        "census, boosting": (BOOSTING, divide(*read_adult(data), (6, 6), n_train=400)),
    }
    return {"fits and errors": [row for name in games for row in measure(*made[name], name, seeds)]}
