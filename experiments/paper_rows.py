"""Rows of nearly the same value: how alike the values of their cells are.

A pair of rows has nearly the same value if they differ by at most 1% of the standard deviation of
row values. Rows with the same cells are left out. Values are exact or sampled 2D-KNN values,
K = 10. The authors' table is that of paper_outliers.py, clean, with raw distances.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cellworth import KNNValuer, Runtime
from experiments.frame import Row, Tables, log, means
from experiments.paper_outliers import N_NEIGHBORS, exact_values, read_clean, read_values
from experiments.tables import draw_samples, load

QUICK = {"seeds": range(1), "sets": ("wine",), "rows": 60}
CLOSE = 0.01
ALIKE, UNRELATED = 0.9, 0.1
N_VALIDATION = 100


def run(
    data: Path,
    seeds: range = range(5),
    sets: tuple[str, ...] = ("heart", "wine", "credit"),
    rows: int = 200,
) -> Tables:
    """Return how alike the cells of close rows are."""
    clean = read_clean(data)
    lines = [
        {"table": "the authors', exact"} | describe_pairs(clean.X, exact_values(clean)),
        {"table": "the authors', published"} | describe_pairs(clean.X, read_values(data, "clean")),
    ]
    for name in sets:
        for seed in seeds:
            lines.append({"table": name} | describe_pairs(*value_table(data, name, rows, seed)))
        log(name)
    return {"pairs of rows": means(lines, ["table"])}


def value_table(data: Path, name: str, n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a table and its cell values."""
    table = load(name, data)
    train, validation = draw_samples(
        table, min(n_rows, 2 * len(table.y) // 3), N_VALIDATION, seed=seed
    )
    valuer = KNNValuer(N_NEIGHBORS, n_passes=3, random_state=seed, runtime=Runtime(progress=False))
    valuer.fit(train.X, train.y, X_val=validation.X, y_val=validation.y)
    return train.X.to_numpy(dtype=float), valuer.values_


def describe_pairs(X: np.ndarray, values: np.ndarray) -> Row:
    """Return how many different rows have nearly the same value, and how alike their cells are."""
    totals = values.sum(axis=1)
    close = np.abs(totals[:, np.newaxis] - totals) <= CLOSE * totals.std()
    same = (X[:, np.newaxis] == X).all(axis=2)
    some, others = np.nonzero(np.triu(close & ~same, 1))
    alike = np.corrcoef(values)[some, others]
    return {
        "pairs": len(alike),
        "correlation, median": float(np.median(alike)),
        f"above {ALIKE}": float((alike > ALIKE).mean()),
        f"below {UNRELATED}": float((alike < UNRELATED).mean()),
    }
