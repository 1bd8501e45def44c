"""Digit-reversed ages in the census table: how many cells to inspect until 12 of 15 are found.

    python -m experiments typos

Flags: --seeds 5, --rows 3000 (of the small table; the large one has all 32,561 rows),
--all-rows 0 (without the large one), --trees 300 (of 2D-OOB).

In 15 random rows the age is reversed: 17 becomes 71, 18 becomes 81, 19 becomes 91, and vice versa.
All cells of the table are ranked. The small table omits fnlwgt, a census weight, which says nothing
about the person; only there are values computed: 2D-KNN (K = 10, 200 validation rows), the row
values that are its sums, and 2D-OOB. 1-D values by flattening would take 39,000 fits per order.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cellworth import KNNValuer, OutOfBagValuer, Runtime
from cellworth.findings import anomaly_scores
from experiments import tables
from experiments.cell_scores import class_z, ecod, standardize_values
from experiments.frame import Tables, log, means

QUICK = {"seeds": range(1), "rows": 300, "all_rows": 0, "trees": 5}
REVERSED = {17: 71, 71: 17, 18: 81, 81: 18, 19: 91, 91: 19}
N_TYPOS = 15
N_FOUND = 12
N_NEIGHBORS = 10
N_VALIDATION = 200


def with_typos(X: pd.DataFrame, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Reverse 15 ages; return the table and a mask of the wrong cells."""
    can_be = np.flatnonzero(X["age"].isin(REVERSED))
    rows = np.random.default_rng(seed).choice(can_be, N_TYPOS, replace=False)
    ages = X["age"].to_numpy(copy=True)
    ages[rows] = [REVERSED[age] for age in ages[rows].tolist()]
    wrong = np.zeros(X.shape, dtype=bool)
    wrong[rows, X.columns.get_loc("age")] = True
    return X.assign(age=ages), wrong


def count_inspected(score: np.ndarray, wrong: np.ndarray) -> int:
    """Return the cells to inspect, highest score first, ties included, to find 12 typos."""
    last = np.sort(score[wrong])[::-1][N_FOUND - 1]
    return int((score >= last).sum())


def small_table(folder: Path, n_rows: int, seed: int) -> list[tables.Table]:
    """Draw some rows and validation rows, without fnlwgt."""
    parts = tables.draw_samples(tables.load("adult", folder), n_rows, N_VALIDATION, seed=seed)
    return [tables.Table(part.X.drop(columns="fnlwgt"), part.y) for part in parts]


def value_scores(
    X: pd.DataFrame, y: np.ndarray, validation: tables.Table, n_trees: int, seed: int
) -> dict[str, np.ndarray]:
    """Return low values as high scores."""
    quiet = Runtime(progress=False)
    knn = KNNValuer(N_NEIGHBORS, n_passes=1, random_state=seed, runtime=quiet)
    values = knn.fit(X, y, X_val=validation.X, y_val=validation.y).values_
    trees = OutOfBagValuer(n_trees=n_trees, random_state=seed, runtime=quiet).fit(X, y)
    return {
        "2D-KNN values": -values,
        "the same, normalised": -standardize_values(values, y),
        "row values of 2D-KNN": -np.broadcast_to(values.sum(axis=1, keepdims=True), X.shape),
        f"2D-OOB, {n_trees} trees": -trees.values_,
    }


def detectors(X: pd.DataFrame, y: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Return the scores of each detector; the simple ones use numeric columns only."""
    numeric = np.array([pd.api.types.is_numeric_dtype(kind) for kind in X.dtypes])
    numbers = X.loc[:, numeric].to_numpy(dtype=float)
    simple = {"class-conditional |z|": class_z(numbers, y), "ECOD per column": ecod(numbers)}
    scores = {"anomaly score": anomaly_scores(X, y)}
    for name, score in simple.items():
        scores[name] = np.zeros(X.shape)
        scores[name][:, numeric] = score
    return scores | {"random": np.random.default_rng(seed).random(X.shape)}


def run(
    data: Path,
    seeds: range = range(5),
    rows: int = 3000,
    all_rows: int = 1,
    trees: int = 300,
) -> Tables:
    """Return the cells to inspect by detector; all_rows=0 leaves out the whole table."""
    everyone = tables.load("adult", data)
    found, seconds = [], []
    for size in ("small", "all rows")[: 1 + all_rows]:
        for seed in seeds:
            sample, *validation = small_table(data, rows, seed) if size == "small" else [everyone]
            X, wrong = with_typos(sample.X, seed)
            scores = detectors(X, sample.y, seed)
            for each in validation:
                scores |= value_scores(X, sample.y, each, trees, seed)
            found += [
                {"table": size, "cells": wrong.size, "detector": name}
                | {"cells to inspect": count_inspected(score, wrong)}
                for name, score in scores.items()
            ]
            log(size, seed)
        start = time.perf_counter()
        anomaly_scores(X, sample.y)
        seconds.append({"table": size, "seconds of anomaly scores": time.perf_counter() - start})
    return {
        "cells to inspect to find 12 of 15": means(found, ["table", "cells", "detector"]),
        "seconds": seconds,
    }


def draw(result: dict[str, Any]) -> Any:
    """Draw the cells to inspect in the small table."""
    import matplotlib.pyplot as plt

    rows = [row for row in result["cells to inspect to find 12 of 15"] if row["table"] == "small"]
    rows.sort(key=lambda row: -row["cells to inspect"]["mean"])
    figure, ax = plt.subplots(figsize=(6, 2.6), layout="constrained")
    ax.barh(
        [row["detector"] for row in rows],
        [row["cells to inspect"]["mean"] for row in rows],
        xerr=[row["cells to inspect"]["se"] or 0 for row in rows],
    )
    ax.set_xscale("log")
    ax.axvline(1800, color="0.4", linewidth=0.8, linestyle="--")
    ax.set_xlabel(f"cells to inspect, of {rows[0]['cells']:,}; dashed: the paper's 1,800")
    return figure
