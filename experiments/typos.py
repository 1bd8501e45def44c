"""Digit-reversed ages in the census table: how many cells to inspect until 12 of 15 are found.

In 15 random rows the age is reversed: 17 becomes 71, 18 becomes 81, 19 becomes 91, and vice versa.
All cells of the table are ranked. Tables of some rows omit fnlwgt, a census weight, which says
nothing about the person; only there are values computed: 2D-KNN (K = 10, 200 validation rows), the
row values that are its sums, and 2D-OOB. The smallest table also has the paper's 1-D values, of
cells as players ("flattened"), with a tree: an order takes as many fits as there are cells.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from cellworth import KNNValuer, OutOfBagValuer, Runtime
from cellworth.findings import anomaly_scores
from experiments import tables
from experiments.cell_scores import class_z, ecod, standardize_values
from experiments.frame import Tables, log, means
from experiments.tree_games import Rows, flat_values

QUICK = {"seeds": range(1), "rows": (300,), "trees": 5, "flat_orders": 1}
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


def draw_table(everyone: tables.Table, n_rows: int, seed: int) -> list[tables.Table]:
    """Return all rows, or some without fnlwgt and validation rows."""
    if n_rows >= len(everyone.y):
        return [everyone]
    parts = tables.draw_samples(everyone, n_rows, N_VALIDATION, seed=seed)
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


def flat_scores(
    X: pd.DataFrame, y: np.ndarray, validation: tables.Table, n_orders: int, seed: int
) -> dict[str, np.ndarray]:
    """Return the ranks of 1-D values, lowest last; most cells of few orders are worth 0."""
    codes = np.unique([*y, *validation.y], return_inverse=True)[1]
    both = tables.Table(pd.concat([X, validation.X]), codes).numbers()
    cells = both.X.reindex(columns=X.columns, fill_value=0.0).to_numpy()
    train, scored = Rows(cells[: len(y)], codes[: len(y)]), Rows(cells[len(y) :], codes[len(y) :])
    values = flat_values(train, scored, n_orders, seed).mean(axis=0).ravel()
    lowest_first = np.lexsort((np.random.default_rng(seed).random(X.size), values))
    ranks = np.empty(X.size)
    ranks[lowest_first] = np.arange(X.size)
    return {f"1-D, flattened, {n_orders} orders": -ranks.reshape(X.shape)}


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
    *,
    seeds: range = range(5),
    rows: tuple[int, ...] = (600, 3000, 32_561),
    trees: int = 200,
    flat_orders: int = 2,
) -> Tables:
    """Return the cells to inspect by detector; the 1-D values are those of the first table."""
    everyone = tables.load("adult", data)
    found = []
    for n_rows, seed in product(rows, seeds):
        size = "small" if n_rows < len(everyone.y) else "all rows"
        sample, *validation = draw_table(everyone, n_rows, seed)
        X, wrong = with_typos(sample.X, seed)
        scores = detectors(X, sample.y, seed)
        for each in validation:
            scores |= value_scores(X, sample.y, each, trees, seed)
            if n_rows == rows[0]:
                scores |= flat_scores(X, sample.y, each, flat_orders, seed)
        found += [
            {"table": size, "cells": wrong.size, "detector": name}
            | {"cells to inspect": count_inspected(score, wrong)}
            for name, score in scores.items()
        ]
        log(n_rows, seed)
    return {"cells to inspect to find 12 of 15": means(found, ["table", "cells", "detector"])}
