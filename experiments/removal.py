"""Measure a model as cells of its training table are removed, by value or at random.

    python experiments/removal.py --data ../shared/data
    python experiments/removal.py --data ../shared/data --seeds 1 --sets wine

Six tables, five seeds. Each table is split into training rows (a half), validation rows (a quarter)
and untouched test rows (a quarter).

First table: score on the test rows minus that of removing as many cells at random, in points, mean
over 5%, 10% and 20% of cells removed. A removed cell becomes a random draw from the cells of its
column that are kept, or (last two lines) their mean, as in the 2D-Shapley paper.

Second table: cross-validation on a table without its lowest 20% of cells.
"""

from __future__ import annotations

import argparse
import sys
import time
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
from tables import Table, draw_samples, load

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


def main() -> None:
    args = arguments(__doc__)
    began = time.perf_counter()
    improvements: list[dict[str, Any]] = []
    leaks: list[dict[str, Any]] = []
    for name in args.sets:
        table = load(name, args.data)
        for seed in range(args.seeds):
            split = value_split(*split_rows(table, seed), seed)
            improvements += [{"set": name} | gain for gain in all_improvements(split, seed)]
            leaks += [{"set": name} | leak for leak in all_leaks(split, seed)]
        print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr)
    print(against_random(pd.DataFrame(improvements)).to_string())
    print()
    print(pd.DataFrame(leaks).drop(columns="set").groupby("fill", sort=False).mean().round(3))


def arguments(about: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about.split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the tables")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    return parser.parse_args()


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


def against_random(improvements: pd.DataFrame) -> pd.DataFrame:
    """Return the mean of each table, and the mean of these with its standard error.

    Runs on one table are similar; only tables are independent.
    """
    sets = improvements.pivot_table(
        "points", ["fill", "score", "order", "model"], "set", sort=False
    )
    both = [sets.mean(axis=1).rename("mean"), sets.sem(axis=1).rename("error")]
    return pd.concat([*both, sets], axis=1).round(1)


if __name__ == "__main__":
    main()
