"""Digit-reversed ages in the census table: how many cells to inspect until 12 of 15 are found.

    python -m experiments typos

Flags: --seeds 5, --rows 3000 (of the small table; the large one has all 32,561 rows),
--all-rows 0 (without the large one).

In 15 random rows the age is reversed: 17 becomes 71, 18 becomes 81, 19 becomes 91, and vice versa.
All cells of the table are ranked. The small table omits fnlwgt, a census weight, which says nothing
about the person.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pandas as pd

from cellworth.diagnostics import anomaly_scores
from experiments import tables
from experiments.cell_scores import class_z, ecod
from experiments.frame import Tables, log, means

QUICK = {"seeds": range(1), "rows": 1000, "all_rows": 0}
REVERSED = {17: 71, 71: 17, 18: 81, 81: 18, 19: 91, 91: 19}
N_TYPOS = 15
N_FOUND = 12


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


def small_table(folder: Path, n_rows: int, seed: int) -> tables.Table:
    """Draw some rows, without fnlwgt."""
    (part,) = tables.draw_samples(tables.load("adult", folder), n_rows, seed=seed)
    return tables.Table(part.X.drop(columns="fnlwgt"), part.y)


def detectors(X: pd.DataFrame, y: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Return the scores of each detector; the simple ones use numeric columns only."""
    numeric = np.array([pd.api.types.is_numeric_dtype(kind) for kind in X.dtypes])
    numbers = X.loc[:, numeric].to_numpy(dtype=float)
    simple = {"class-conditional |z|": class_z(numbers, y), "ECOD per column": ecod(numbers)}
    scores = {"anomaly score (suspect_cells)": anomaly_scores(X, y)}
    for name, score in simple.items():
        scores[name] = np.zeros(X.shape)
        scores[name][:, numeric] = score
    return scores | {"random": np.random.default_rng(seed).random(X.shape)}


def run(data: Path, seeds: range = range(5), rows: int = 3000, all_rows: int = 1) -> Tables:
    """Return the cells to inspect by detector; all_rows=0 leaves out the whole table."""
    everyone = tables.load("adult", data)
    sizes = {"small": lambda seed: small_table(data, rows, seed)}
    if all_rows:
        sizes["all rows"] = lambda _: everyone
    found, seconds = [], []
    for size, table in sizes.items():
        for seed in seeds:
            sample = table(seed)
            X, wrong = with_typos(sample.X, seed)
            found += [
                {"table": size, "cells": wrong.size, "detector": name}
                | {"cells to inspect": count_inspected(score, wrong)}
                for name, score in detectors(X, sample.y, seed).items()
            ]
        start = time.perf_counter()
        anomaly_scores(X, sample.y)
        seconds.append({"table": size, "seconds of anomaly scores": time.perf_counter() - start})
        log(size)
    return {
        "cells to inspect to find 12 of 15": means(found, ["table", "cells", "detector"]),
        "seconds": seconds,
    }
