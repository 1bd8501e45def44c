"""Measure whether it helps to repair the cells of lowest value: by hand, or by a rule.

    python -m experiments repairs
    python -m experiments repairs --seeds 1 --sets wine

Six tables, five seeds, split as in removal.py. Some cells of the training rows get
the value of the same column in a row of another class. As many cells as are wrong, those of lowest
value, are then checked. A person restores the wrong ones; a rule changes all of them. The figures
are points of score on untouched test rows, against the table with the wrong cells, mean over a
tree, a logistic regression and nearest neighbors. The last table has balanced accuracy with 5% of
wrong cells, by table.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import get_scorer

from cellworth.diagnostics import detection_curve, repair_cells
from experiments.frame import Tables, log, means
from experiments.removal import MODELS, SCORES, SETS, Split, encode_columns, split_rows, value_split
from experiments.tables import Table, load

QUICK = {"seeds": range(1), "sets": ("wine",)}
SHARES = (0.02, 0.05, 0.15)


def run(data: Path, seeds: range = range(5), sets: tuple[str, ...] = SETS) -> Tables:
    """Return the points gained, over tables and by table."""
    figures: list[dict[str, Any]] = []
    for name in sets:
        table = load(name, data)
        for seed, share in product(seeds, SHARES):
            figures += [{"set": name} | figure for figure in measure_repairs(table, share, seed)]
        log(name)
    shown = [
        {key: each for key, each in figure.items() if key not in ("score", "wrong cells")}
        for figure in figures
        if figure["score"] == "balanced accuracy" and figure["wrong cells"] == 0.05
    ]
    return {
        "points gained": means(figures, ["score", "wrong cells"], "set"),
        "balanced accuracy, 5% of wrong cells": means(shown, ["set"]),
    }


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
