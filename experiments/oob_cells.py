"""Repeat the cell experiments of 2D-OOB: detection and correction of outlier cells.

    python -m experiments oob_cells

Flags: --seeds 3, --sets credit electricity fried pol 2dplanes, --rows 300, --trees 300.

The protocol is that of Sun, Shen and Kwon (2024) at a smaller size (they have 1,000 rows and trees,
30 runs, twelve tables): 40% of rows get outliers in 40% of their columns. Each tree sees a quarter,
half or three quarters of the columns; the value has its distance term or not. First table: AUROC of
wrong cells. Second table: cells are corrected in the order of each method, and a logistic
regression is trained again: its accuracy on 500 clean rows that no method saw. Means over tables,
of means over seeds, with standard errors over tables.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from cellworth import OutOfBagValuer, Runtime
from cellworth.diagnostics import anomaly_scores
from experiments import tables
from experiments.cell_scores import class_z
from experiments.detection import far_out
from experiments.frame import Tables, log, means

QUICK = {"seeds": range(1), "sets": ("2dplanes",), "trees": 20, "rows": 60}
SETS = ("credit", "electricity", "fried", "pol", "2dplanes")
SHARES = (0.25, 0.5, 0.75)
CORRECTED = (0.0, 0.04, 0.08, 0.16)
N_TEST = 500


def run(
    data: Path,
    seeds: range = range(3),
    sets: tuple[str, ...] = SETS,
    rows: int = 300,
    trees: int = 300,
) -> Tables:
    """Return how well cells are found, and the accuracy after some of them are corrected."""
    found, corrected = [], []
    for name, seed in product(sets, seeds):
        table = tables.load(name, data).numbers()
        train, test = tables.draw_samples(table, rows, N_TEST, seed=seed)
        varied = (train.X.nunique() > 1).to_numpy()
        clean, X_test = train.X.to_numpy()[:, varied], test.X.to_numpy()[:, varied]
        X, wrong = far_out(clean, train.y, np.random.default_rng([seed, 0]))
        for method, score in compute_scores(X, train.y, trees, seed).items():
            area = float(roc_auc_score(wrong.ravel(), score.ravel()))
            common = {"method": method, "set": name}
            found.append(common | {"AUROC": area})
            order = np.argsort(-score, axis=None, kind="stable")
            accuracies = {}
            for share in CORRECTED:
                table = correct(X, clean, order[: round(share * X.size)])
                model = LogisticRegression(max_iter=1000).fit(table, train.y)
                accuracies[f"{share:.0%} of cells"] = float(model.score(X_test, test.y))
            corrected.append(common | accuracies)
        log(name, seed)
    return {
        "AUROC of wrong cells": means(found, ["method"], "set"),
        "accuracy after correction": means(corrected, ["method"], "set"),
    }


def compute_scores(X: np.ndarray, y: np.ndarray, trees: int, seed: int) -> dict[str, np.ndarray]:
    """Return the scores of each method; high means wrong."""
    scores = {}
    for share, distance in product(SHARES, (True, False)):
        valuer = OutOfBagValuer(
            n_trees=trees,
            column_share=share,
            distance=distance,
            random_state=seed,
            runtime=Runtime(progress=False),
        )
        values = valuer.fit(X, y).values_
        name = f"2D-OOB, {share:.0%} of columns{'' if distance else ', without distance'}"
        scores[name] = -np.where(np.isnan(values), np.nanmax(values), values)
    return scores | {
        "anomaly score (suspect_cells)": anomaly_scores(X, y),
        "class-conditional |z|": class_z(X, y),
        "random": np.random.default_rng(seed).random(X.shape),
    }


def correct(X: np.ndarray, clean: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return a table with some cells as they were."""
    table = X.copy()
    table.flat[first] = clean.flat[first]
    return table
