"""Measure a model as cells of its training table are removed, by value or at random.

    python -m experiments removal
    python -m experiments removal --seeds 1 --sets wine

Six tables, five seeds. Each table is split into training rows (a half), validation rows (a quarter)
and untouched test rows (a quarter).

First table: score on the test rows minus that of removing as many cells at random, in points, mean
over 5%, 10% and 20% of cells removed. A removed cell becomes a random draw from the cells of its
column that are kept, or (last two lines) their mean, as in the 2D-Shapley paper.

Second table: cross-validation on a table without its lowest 20% of cells.
"""

from __future__ import annotations

import warnings
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from cellworth import KNNValuer, Runtime, Valuation
from cellworth.diagnostics import removal_curve, repair_cells
from cellworth.sampling import LeverageSampler
from experiments.frame import Tables, log, means
from experiments.tables import Table, draw_samples, load

QUICK = {"seeds": range(1), "sets": ("wine",)}
SETS = ("breast original", "wine", "breast 30", "heart", "credit", "adult")
MOST_ROWS = 1000
SHARES = (0.05, 0.1, 0.2)
LEAKING_SHARE = 0.2
N_DRAWS = 2
MODELS = {
    "tree": DecisionTreeClassifier(random_state=0),
    "logistic": LogisticRegression(max_iter=2000),
    "neighbours": KNeighborsClassifier(),
}
ORDERS = ("highest", "lowest")
SCORES = {"balanced accuracy": "balanced_accuracy", "AUC": "roc_auc_ovr"}


class Split(NamedTuple):
    """Training rows with the values of their cells, and test rows."""

    train: Table
    test: Table
    values: Valuation


def run(data: Path, seeds: range = range(5), sets: tuple[str, ...] = SETS) -> Tables:
    """Return the differences from random removal, and what cross-validation says."""
    improvements: list[dict[str, Any]] = []
    leaks: list[dict[str, Any]] = []
    for name in sets:
        table = load(name, data)
        for seed in seeds:
            split = value_split(*split_rows(table, seed), seed)
            improvements += [{"set": name} | gain for gain in all_improvements(split, seed)]
            leaks += [{"set": name} | leak for leak in all_leaks(split, seed)]
        log(name)
    return {
        "points against random removal": against_random(improvements),
        "lowest 20% replaced": means(leaks, ["fill"], "set"),
    }


def split_rows(table: Table, seed: int) -> list[Table]:
    """Return training, validation and test rows."""
    n_rows = min(len(table.y), MOST_ROWS)
    half, quarter = n_rows // 2, n_rows // 4
    return draw_samples(table, half, quarter, n_rows - half - quarter, seed=seed)


def value_split(train: Table, validation: Table, test: Table, seed: int) -> Split:
    """Return the values of the training cells; all classes of validation rows count the same."""
    valuer = KNNValuer(
        scoring="balanced_neighbor_agreement", sampler=LeverageSampler(), n_passes=3,
        random_state=seed, runtime=Runtime(progress=False),
    )  # fmt: skip
    valuer.fit(train.X, train.y, X_val=validation.X, y_val=validation.y)
    return Split(train, test, valuer.valuation_)


def all_improvements(split: Split, seed: int) -> list[dict[str, Any]]:
    asked = [("draw", *rest) for rest in product(SCORES, ORDERS, MODELS)]
    asked += [("mean", "balanced accuracy", order, "tree") for order in ORDERS]
    return [
        {"fill": fill, "score": score, "order": order, "model": model}
        | {"points": 100 * gain(split, model, seed, order=order, fill=fill, score=score)}
        for fill, score, order, model in asked
    ]


def gain(split: Split, model: str, seed: int, **asked: Any) -> float:
    """Return the score minus that of random removal, mean over shares and draws."""
    score = asked.pop("score")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="fill='mean' leaves")
        # Breast original repeats rows, so some are on both sides of any split.
        warnings.filterwarnings("ignore", message=".* rows of X_test are rows of X")
        curve = removal_curve(
            encode_columns(MODELS[model], split.train), split.train.X, split.train.y,
            ranking=split.values, X_test=split.test.X, y_test=split.test.y, shares=SHARES,
            scoring=SCORES[score], n_repeats=N_DRAWS, random_state=seed, **asked,
        )  # fmt: skip
    return float(curve.difference().mean)


def encode_columns(model: Any, train: Table) -> Pipeline:
    """Scale numbers and one-hot encode strings."""
    text = make_column_selector(dtype_include=[object, "string"])(train.X)
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    columns = make_column_transformer((encoder, text), remainder=StandardScaler())
    return make_pipeline(columns, model)


def all_leaks(split: Split, seed: int) -> list[dict[str, Any]]:
    """Return scores of a tree by cross-validation and on test rows, and of the mask alone."""
    values = split.values.values
    mask = values <= np.quantile(values, LEAKING_SHARE)
    tables = {
        "nothing removed": split.train.X,
        "mean": fill_with_means(split.train.X, mask),
        "draw": repair_cells(split.train.X, mask, how="draw", random_state=seed),
    }
    y, scorer = split.train.y, get_scorer("balanced_accuracy")
    mask_auc = cross_val_score(LogisticRegression(), mask, y, scoring="roc_auc_ovr").mean()
    leaks = []
    for fill, X in tables.items():
        tree = encode_columns(MODELS["tree"], split.train)
        by_itself = cross_val_score(tree, X, y, scoring="balanced_accuracy").mean()
        on_test = scorer(tree.fit(X, y), split.test.X, split.test.y)
        scores = {"cross-validation": by_itself, "test rows": on_test}
        leaks.append({"fill": fill} | scores | {"AUC of the mask": mask_auc})
    return leaks


def fill_with_means(X: pd.DataFrame, mask: np.ndarray) -> pd.DataFrame:
    """Replace removed cells by the mean or the most frequent of the others."""
    kept = X.mask(mask)
    means = {
        name: column.mean() if pd.api.types.is_numeric_dtype(column) else column.mode().iloc[0]
        for name, column in kept.items()
    }
    return kept.fillna(means)


def against_random(improvements: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the mean over tables, and that of each table."""
    by = ["fill", "score", "order", "model"]
    rows = means(improvements, by, "set")
    sets = means(improvements, [*by, "set"])
    for row in rows:
        same = [each for each in sets if all(each[key] == row[key] for key in by)]
        row |= {each["set"]: each["points"].mean for each in same}
    return rows
