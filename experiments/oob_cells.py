"""Repeat the cell experiments of 2D-OOB: detection and correction of outlier cells.

The protocol is that of Sun, Shen and Kwon (2024), on nine of their twelve tables: 40% of rows get
outliers in 40% of their columns. Each tree sees a quarter, half or three quarters of the columns;
the value has its distance term or not. KNN values have 100 clean validation rows. First table:
AUROC and average precision of wrong cells. Second table: cells are corrected in the order of each
method, and a logistic regression is trained again: how much more accurate it is, in points, on 500
clean rows that no method saw. Means over tables, of means over seeds, with standard errors over
tables. Third table: AUROC of 2D-OOB, KNN values and the anomaly score by table.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

from cellworth import OutOfBagValuer, Runtime
from cellworth.findings import anomaly_scores
from cellworth.runtime import Serial
from experiments import tables
from experiments.cell_scores import class_z
from experiments.detection import Case, far_out, figures, knn_values
from experiments.frame import Row, Tables, compute_part, log, means

QUICK = {"seeds": range(1), "sets": ("2dplanes",), "trees": 20, "rows": 60}
SETS = (
    *("credit", "electricity", "fried", "pol", "2dplanes", "lawschool"),
    *("jannis", "gas drift", "musk"),
)
SHARES = (0.25, 0.5, 0.75)
CORRECTED = (0.04, 0.08, 0.16)
N_QUERIES, N_TEST = 100, 500
N_NEIGHBORS = 10
MANY_COLUMNS = 50
BY_TABLE = ("2D-OOB, 50% of columns", f"KNN value, K = {N_NEIGHBORS}", "anomaly score")


def run(
    data: Path,
    *,
    seeds: range = range(30),
    wide_seeds: int = 3,
    sets: tuple[str, ...] = SETS,
    rows: int = 1000,
    trees: int = 1000,
    keep: str = "",
) -> Tables:
    """Return how well cells are found, and the accuracy after some of them are corrected."""
    loaded = {name: tables.load(name, data).numbers() for name in sets}
    found: list[Row] = []
    wide = [name for name in sets if loaded[name].X.shape[1] > MANY_COLUMNS]
    narrow = [name for name in sets if name not in wide]
    for seed, name in [*product(range(wide_seeds), wide), *product(seeds, narrow)]:
        compute = partial(measure, loaded[name], seed, rows, trees)
        part = compute_part(keep, f"oob_cells, {(name, seed, rows, trees)}", compute)
        found += [{"table": name} | row for row in part["rows"]]
        log(name, seed)
    every = pd.DataFrame(found)
    by_table = every.pivot_table("AUROC", "table", "method", sort=False)
    detection = ["AUROC", "AP"]
    return {
        "wrong cells": means(every[["table", "method", *detection]], ["method"], "table"),
        "points gained": means(every.drop(columns=detection), ["method"], "table"),
        "AUROC by table": by_table[list(BY_TABLE)].reset_index().to_dict("records"),
    }


def measure(table: tables.Table, seed: int, n_rows: int, n_trees: int) -> list[Row]:
    """Return the figures of all methods on one sample of a table."""
    parts = tables.draw_samples(table, n_rows, N_QUERIES, N_TEST, seed=seed)
    varied = (parts[0].X.nunique() > 1).to_numpy()
    clean, X_val, X_test = (part.X.to_numpy()[:, varied] for part in parts)
    y, y_val, y_test = (part.y for part in parts)
    X, wrong = far_out(clean, y, np.random.default_rng([seed, 0]))

    def train(cells: np.ndarray) -> float:
        return LogisticRegression(max_iter=1000).fit(cells, y).score(X_test, y_test)

    found, before = [], train(X)
    for method, score in compute_scores(Case(X, y, wrong, X_val, y_val), n_trees, seed).items():
        area, precision = figures(wrong, score)
        row = {"method": method, "AUROC": area, "AP": precision}
        order = np.argsort(-score, axis=None, kind="stable")
        for share in CORRECTED:
            corrected = correct(X, clean, order[: round(share * X.size)])
            row[f"{share:.0%} of cells"] = 100 * (train(corrected) - before)
        found.append(row)
    return found


def compute_scores(given: Case, n_trees: int, seed: int) -> dict[str, np.ndarray]:
    """Return the scores of each method; high means wrong."""
    X, y = given.X, given.y
    scores = {}
    for share, distance in product(SHARES, (True, False)):
        valuer = OutOfBagValuer(
            n_trees=n_trees,
            column_share=share,
            distance=distance,
            random_state=seed,
            runtime=Runtime(Serial(), progress=False),
        )
        values = valuer.fit(X, y).values_
        name = f"2D-OOB, {share:.0%} of columns{'' if distance else ', without distance'}"
        scores[name] = -np.where(np.isnan(values), np.nanmax(values), values)
    return scores | {
        f"KNN value, K = {N_NEIGHBORS}": -knn_values(given, N_NEIGHBORS, seed),
        "anomaly score": anomaly_scores(X, y),
        "class-conditional |z|": class_z(X, y),
        "random": np.random.default_rng(seed).random(X.shape),
    }


def correct(X: np.ndarray, clean: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return a table with some cells as they were."""
    table = X.copy()
    table.flat[first] = clean.flat[first]
    return table
