"""Seconds to value 1,000 to 100,000 cells of the census table: 2D-MC, 2D-KNN and KNNValuer.

2D-MC takes a fit per cell and permutation. Timed are 40 fits of scikit-learn's tree on prefixes of
random sizes, multiplied by cells and permutations. 2D-KNN is the authors' algorithm
(paper.py): one permutation is timed for three validation rows, and multiplied. KNNValuer runs as a
whole, with its defaults. All on one core.

Values have converged when the sampling variance is 5% of the variance of values between cells. The
number of permutations this takes follows from the variance between permutations, at the smallest
size; two halves of them tell how much of the variance between cells is real.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from sklearn.tree import DecisionTreeClassifier

from cellworth import KNNValuer, Runtime
from experiments import paper
from experiments.frame import Row, Tables, log, means, spend
from experiments.tables import Table, draw_samples, load
from experiments.tree_games import Rows, permutation_values

QUICK = {"seeds": range(1), "cells": (500,), "orders": 10, "validation": 50}
N_NEIGHBORS = 10
PAPER_ORDERS = 500
CONVERGED = 0.05
N_FITS = 40
N_QUERIES = 3


def run(
    data: Path,
    *,
    seeds: range = range(3),
    cells: tuple[int, ...] = (1000, 5000, 10_000, 20_000, 50_000, 100_000),
    orders: int = 150,
    validation: int = 200,
) -> Tables:
    """Return seconds by number of cells, and the permutations that convergence takes."""
    everyone = load("adult", data)
    table = Table(everyone.X.drop(columns="fnlwgt"), everyone.y).numbers()
    table = Table(table.X, np.unique(table.y, return_inverse=True)[1])
    found: list[Row] = []
    for seed in seeds:
        found += count_orders(*split_rows(table, cells[0], validation, seed), orders)
        log("permutations", seed)
    needed = means(found, ["method", "permutations run"])
    lines = []
    for n_cells in cells:
        train, scored = split_rows(table, n_cells, validation, seeds.start)
        lines.append({"cells": n_cells, "rows": len(train.y)} | time_methods(train, scored))
        log(n_cells, "cells")
    return {
        "seconds": lines,
        "permutations until convergence": needed,
        "seconds until convergence": until_convergence(lines, needed),
    }


def split_rows(table: Table, n_cells: int, n_validation: int, seed: int) -> tuple[Rows, Rows]:
    """Draw training and validation rows."""
    parts = draw_samples(table, round(n_cells / table.X.shape[1]), n_validation, seed=seed)
    train, scored = (Rows(part.X.to_numpy(), part.y) for part in parts)
    return train, scored


def count_orders(train: Rows, scored: Rows, n_orders: int) -> list[Row]:
    """Return how many permutations each method takes until its values have converged."""
    zero, prior = permutation_values(train, scored, n_orders, seed=0)
    found = {
        "2D-MC, empty 0": zero,
        "2D-MC": prior,
        "2D-KNN, permutations shared by all validation rows": value_shared_orders(
            train, scored, n_orders
        ),
    }
    return [{"method": name} | describe_noise(values) for name, values in found.items()]


def describe_noise(values: np.ndarray) -> Row:
    """Return the real variance between cells, that of one permutation, and what follows."""
    halves = values[::2].mean(axis=0).ravel(), values[1::2].mean(axis=0).ravel()
    real = float(np.cov(*halves)[0, 1])
    noise = float(values.var(axis=0, ddof=1).mean())
    known = real > 0
    return {
        "permutations run": len(values),
        "agreement of halves": float(np.corrcoef(*halves)[0, 1]),
        "agreement of halves of 500": real / (real + noise / 250) if known else np.nan,
        "until converged": noise / (CONVERGED * real) if known else np.nan,
    }


def value_shared_orders(train: Rows, scored: Rows, n_orders: int) -> np.ndarray:
    """Return the values of 2D-KNN along random orders of the columns, order by order."""
    n_columns = train.X.shape[1]
    orders = [np.random.default_rng(task).permutation(n_columns) for task in range(n_orders)]
    return paper.many_permutations(*train, *scored, n_neighbors=N_NEIGHBORS, orders=orders)


def time_methods(train: Rows, scored: Rows) -> Row:
    """Return seconds of 500 permutations of both methods of the paper, and of KNNValuer."""
    fit = time_fit(train, scored)
    few = scored.X[:N_QUERIES], scored.y[:N_QUERIES]
    settings = {"n_neighbors": N_NEIGHBORS, "order": np.arange(train.X.shape[1])}
    _, seconds = spend(lambda: paper.one_permutation(*train, *few, **settings))
    order = seconds * len(scored.y) / N_QUERIES
    of_mc, of_knn = PAPER_ORDERS * train.X.size * fit, PAPER_ORDERS * order
    ours, noise = time_valuer(train, scored)
    return {
        "2D-MC, 500 permutations": of_mc,
        "2D-KNN, 500 permutations": of_knn,
        "ratio": of_mc / of_knn,
        "KNNValuer": ours,
        "its sampling variance": noise,
    }


def time_fit(train: Rows, scored: Rows) -> float:
    """Return the seconds of a fit and a score of scikit-learn's tree, mean over prefixes."""
    rng = np.random.default_rng(0)
    X, X_val = train.X.astype(np.float32), scored.X.astype(np.float32)
    n, m = X.shape
    start = time.process_time()
    for _ in range(N_FITS):
        rows = rng.permutation(n)[: rng.integers(1, n + 1)]
        columns = rng.permutation(m)[: rng.integers(1, m + 1)]
        tree = DecisionTreeClassifier().fit(X[np.ix_(rows, columns)], train.y[rows])
        (tree.predict(X_val[:, columns]) == scored.y).mean()
    return (time.process_time() - start) / N_FITS


def time_valuer(train: Rows, scored: Rows) -> tuple[float, float]:
    """Return the seconds of a default run, and its share of sampling variance."""
    valuer = KNNValuer(
        N_NEIGHBORS, scale=None, n_jobs=1, random_state=0, runtime=Runtime(progress=False)
    )
    _, seconds = spend(lambda: valuer.fit(*train, X_val=scored.X, y_val=scored.y))
    errors = valuer.valuation_.sampling_se
    return seconds, float(np.square(errors).mean() / valuer.values_.var())


def until_convergence(lines: list[Row], needed: list[Row]) -> list[Row]:
    """Return the seconds of each method with the permutations that it needs, or more passes."""
    counts = {row["method"]: row["until converged"].mean for row in needed}
    columns = {
        "2D-MC": "2D-MC, 500 permutations",
        "2D-KNN, permutations shared by all validation rows": "2D-KNN, 500 permutations",
    }
    return [
        {"cells": line["cells"]}
        | {name: counts[name] / PAPER_ORDERS * line[column] for name, column in columns.items()}
        | {"KNNValuer": line["KNNValuer"] * max(1, line["its sampling variance"] / CONVERGED)}
        for line in lines
    ]
