"""What happens to a model when cells of its training table are taken away, by value or at random.

    python experiments/removal.py --data ../shared/data
    python experiments/removal.py --data ../shared/data --seeds 1 --sets wine

Six tables, each split into training rows, validation rows that value their cells, and test rows
that nobody touches. Removed cells become random draws from the cells of their column that are kept.
Points of score on the test rows, in the mean over 5, 10 and 20 % of cells removed: minus that of as
many cells at random. Then the same with the mean in their place, which tells on the labels.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from cellworth import KNNValuer, LeverageSubsets, Valuation, removal_curve
from tables import Table, drawn, load

SETS = ("breast original", "wine", "breast 30", "heart", "credit", "adult")
MOST_ROWS = 1000
SHARES = (0.05, 0.1, 0.2)
MODELS = {
    "tree": DecisionTreeClassifier(random_state=0),
    "logistic": LogisticRegression(max_iter=2000),
    "neighbours": KNeighborsClassifier(),
}


class Split(NamedTuple):
    """Training rows with the values of their cells, and test rows."""

    train: Table
    test: Table
    values: Valuation


def main() -> None:
    args = arguments()
    began = time.perf_counter()
    gains = []
    for name in args.sets:
        for seed in range(args.seeds):
            split = valued(load(name, args.data), seed)
            gains += [{"set": name, "seed": seed} | gain for gain in curves(split, seed)]
        print(f"{name} done, {time.perf_counter() - began:.0f} s", file=sys.stderr)
    report(pd.DataFrame(gains))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the tables")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    return parser.parse_args()


def valued(table: Table, seed: int) -> Split:
    """Split into halves and quarters, and value the cells of the first half by the second part."""
    n_rows = min(len(table.y), MOST_ROWS)
    parts = n_rows // 2, n_rows // 4, n_rows - n_rows // 2 - n_rows // 4
    train, judges, test = drawn(table, *parts, seed=seed)
    valuer = KNNValuer(
        scoring="balanced_accuracy", design=LeverageSubsets(), sweeps=3, random_state=seed,
        progress=False,
    )  # fmt: skip
    valuer.fit(train.X, train.y, X_val=judges.X, y_val=judges.y)
    return Split(train, test, valuer.valuation_)


def curves(split: Split, seed: int) -> list[dict[str, object]]:
    """Points of score gained over random removal, by model, order, refill and score."""
    wanted = [
        (name, order, "draw", scoring)
        for name in MODELS
        for order in ("highest", "lowest")
        for scoring in ("balanced_accuracy", "roc_auc_ovr")
    ]
    wanted += [("tree", order, "mean", "balanced_accuracy") for order in ("highest", "lowest")]
    return [
        {"model": name, "order": order, "refill": refill, "scoring": scoring}
        | {"points": 100 * gained(split, encoded(MODELS[name], split.train), seed, order, refill, scoring)}
        for name, order, refill, scoring in wanted
    ]


def gained(split: Split, model: Pipeline, seed: int, order: str, refill: str, scoring: str) -> float:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="refill='mean' leaves")
        curve = removal_curve(
            split.values, model, split.train.X, split.train.y, X_test=split.test.X,
            y_test=split.test.y, order=order, shares=SHARES, refill=refill, scoring=scoring,
            n_seeds=1, random_state=seed,
        )  # fmt: skip
    return curve.difference().mean


def encoded(model: object, train: Table) -> Pipeline:
    """Numbers scaled, text one-hot."""
    text = make_column_selector(dtype_include=[object, "string", "category"])(train.X)
    numbers = [name for name in train.X.columns if name not in text]
    parts = [("numbers", StandardScaler(), numbers)]
    if text:
        parts.append(("text", OneHotEncoder(handle_unknown="ignore", sparse_output=False), text))
    return make_pipeline(ColumnTransformer(parts), model)


def report(gains: pd.DataFrame) -> None:
    """Means over sets and seeds, with the standard error over all of them; then set by set."""
    by = ["refill", "scoring", "order", "model"]
    print(gains.groupby(by, sort=False).points.agg(["mean", "sem"]).round(2).to_string())
    print()
    print(gains.pivot_table(index=by, columns="set", values="points", sort=False).round(1).to_string())


if __name__ == "__main__":
    main()
