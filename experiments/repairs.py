"""Measure whether it helps to repair the cells of lowest value: by hand, or by a rule.

    python experiments/repairs.py --data ../shared/data
    python experiments/repairs.py --data ../shared/data --seeds 1 --sets wine

Six tables, five seeds, split as in removal.py. Some cells of the training rows get
the value of the same column in a row of another class. As many cells as are wrong, those of lowest
value, are then checked. A person restores the wrong ones; a rule changes all of them. The figures
are points of score on untouched test rows, against the table with the wrong cells, mean over a
tree, a logistic regression and nearest neighbors. The last table has balanced accuracy with 5% of
wrong cells, by table.
"""

from __future__ import annotations

import sys
import time
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import get_scorer

from cellworth.diagnostics import detection_curve, repair_cells
from removal import MODELS, SCORES, Split, arguments, encode_columns, split_rows, value_split
from tables import Table, load

SHARES = (0.02, 0.05, 0.15)


def main() -> None:
    args = arguments(__doc__)
    began = time.perf_counter()
    figures: list[dict[str, Any]] = []
    for name in args.sets:
        table = load(name, args.data)
        for seed, share in product(range(args.seeds), SHARES):
            figures += [{"set": name} | figure for figure in measure_repairs(table, share, seed)]
        print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr)
    report(pd.DataFrame(figures))


def measure_repairs(table: Table, share: float, seed: int) -> list[dict[str, Any]]:
    """Return the points gained by each way to repair the cells of lowest value, by score."""
    train, validation, test = split_rows(table, seed)
    wrong, spoilt = with_wrong_cells(train, share, seed)
    split = value_split(Table(spoilt, train.y), validation, test, seed)
    values = split.values.values
    looked_at = np.zeros(values.size, dtype=bool)
    looked_at[np.argsort(values.ravel(), kind="stable")[: wrong.sum()]] = True
    looked_at = looked_at.reshape(values.shape)
    tables = {
        "by hand": spoilt.where(~(looked_at & wrong), train.X),
        "neighbors": repair_cells(spoilt, looked_at, how="neighbors"),
        "draw": repair_cells(spoilt, looked_at, how="draw", random_state=seed),
        "all true again": train.X,
    }
    before = scores(split, spoilt)
    gained = {way: scores(split, X) - before for way, X in tables.items()}
    common = {
        "wrong cells": share,
        "found, %": 100 * (looked_at & wrong).sum() / wrong.sum(),
        "area, %": 100 * detection_curve(split.values, wrong).area,
    }
    return [
        {"score": score, **common} | {way: 100 * gain[position] for way, gain in gained.items()}
        for position, score in enumerate(SCORES)
    ]


def with_wrong_cells(train: Table, share: float, seed: int) -> tuple[np.ndarray, pd.DataFrame]:
    """Give some cells the value of a row of another class; return the mask and the table."""
    rng = np.random.default_rng(seed)
    shape = train.X.shape
    chosen = rng.permutation(train.X.size) < round(share * train.X.size)
    others = np.array([rng.choice(np.flatnonzero(train.y != label)) for label in train.y])
    spoilt = train.X.where(~chosen.reshape(shape), train.X.iloc[others].set_axis(train.X.index))
    return (spoilt != train.X).to_numpy(), spoilt


def scores(split: Split, X: pd.DataFrame) -> np.ndarray:
    """Return the scores on the test rows, mean over models."""
    models = [encode_columns(model, split.train).fit(X, split.train.y) for model in MODELS.values()]
    return np.mean(
        [
            [get_scorer(name)(model, split.test.X, split.test.y) for name in SCORES.values()]
            for model in models
        ],
        axis=0,
    )


def report(figures: pd.DataFrame) -> None:
    # Runs on one table are similar; only tables are independent.
    sets = figures.groupby(["score", "wrong cells", "set"], sort=False).mean()
    by = sets.groupby(level=["score", "wrong cells"], sort=False)
    print(by.mean().round(1).to_string())
    print("\nstandard errors of the means of sets")
    print(by.sem().round(1).to_string())
    print()
    part = figures[(figures.score == "balanced accuracy") & (figures["wrong cells"] == 0.05)]
    ways = part.drop(columns=["score", "wrong cells"])
    print(ways.groupby("set", sort=False).mean().round(1).to_string())


if __name__ == "__main__":
    main()
