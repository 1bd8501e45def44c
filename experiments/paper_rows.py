"""Rows of nearly the same value: how alike the values of their cells are.

    python -m experiments paper_rows

Flags: --seeds 5 (of the tables other than the authors'), --sets heart wine credit, --rows 200.

A pair of rows has nearly the same value if they differ by at most 1% of the standard deviation of
row values. Rows with the same cells are left out. Values are exact or sampled 2D-KNN values,
K = 10. The authors' table is that of paper_outliers.py, clean, with raw distances.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cellworth import KNNValuer, Runtime
from experiments.frame import Row, Tables, log, means
from experiments.paper_outliers import N_NEIGHBORS, exact_values, read_clean, read_values
from experiments.tables import draw_samples, load

QUICK = {"seeds": range(1), "sets": ("wine",), "rows": 60}
CLOSE = 0.01
ALIKE, UNRELATED = 0.9, 0.1
N_VALIDATION = 100
AUTHORS = "the authors', exact"


def run(
    data: Path,
    seeds: range = range(5),
    sets: tuple[str, ...] = ("heart", "wine", "credit"),
    rows: int = 200,
) -> Tables:
    """Return how alike the cells of close rows are, and an example of each kind."""
    clean = read_clean(data)
    exact = exact_values(clean)
    lines = [
        {"table": AUTHORS} | describe_pairs(clean.X, exact),
        {"table": "the authors', published"} | describe_pairs(clean.X, read_values(data, "clean")),
    ]
    for name in sets:
        for seed in seeds:
            lines.append({"table": name} | describe_pairs(*value_table(data, name, rows, seed)))
        log(name)
    return {"pairs of rows": means(lines, ["table"]), "examples": examples(clean.X, exact)}


def value_table(data: Path, name: str, n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a table and its cell values."""
    table = load(name, data)
    train, validation = draw_samples(
        table, min(n_rows, 2 * len(table.y) // 3), N_VALIDATION, seed=seed
    )
    valuer = KNNValuer(N_NEIGHBORS, n_passes=3, random_state=seed, runtime=Runtime(progress=False))
    valuer.fit(train.X, train.y, X_val=validation.X, y_val=validation.y)
    return train.X.to_numpy(dtype=float), valuer.values_


def close_pairs(X: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of different rows of nearly the same value, and how alike their cells."""
    totals = values.sum(axis=1)
    apart = np.abs(totals[:, np.newaxis] - totals) <= CLOSE * totals.std()
    same = (X[:, np.newaxis] == X).all(axis=2)
    pairs = np.argwhere(np.triu(apart & ~same, 1))
    centered = values - values.mean(axis=1, keepdims=True)
    unit = centered / np.linalg.norm(centered, axis=1, keepdims=True)
    return pairs, np.einsum("pj,pj->p", unit[pairs[:, 0]], unit[pairs[:, 1]])


def describe_pairs(X: np.ndarray, values: np.ndarray) -> Row:
    """Return the correlation of the cells of close rows: median, and shares of both kinds."""
    pairs, alike = close_pairs(X, values)
    return {
        "pairs": len(pairs),
        "correlation, median": float(np.median(alike)),
        f"above {ALIKE}": float((alike > ALIKE).mean()),
        f"below {UNRELATED}": float((alike < UNRELATED).mean()),
    }


def examples(X: np.ndarray, values: np.ndarray) -> list[Row]:
    """Return the cells of the pair that is most alike, and of the one that is least related.

    Only rows of a value above the median: others have cells near zero.
    """
    pairs, alike = close_pairs(X, values)
    totals = values.sum(axis=1)
    high = (totals[pairs] > np.median(totals)).all(axis=1)
    pairs, alike = pairs[high], alike[high]
    chosen = {"alike": np.argmax(alike), "unrelated": np.argmin(np.abs(alike))}
    return [
        {"pair": kind, "row": int(row), "correlation": float(alike[at])}
        | {"row value": float(totals[row])}
        | {f"column {j + 1}": f"{value:.1e}" for j, value in enumerate(values[row])}
        for kind, at in chosen.items()
        for row in pairs[at]
    ]


def draw(tables: dict[str, Any]) -> Any:
    """Draw the cells of both pairs."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(7, 2.6), sharey=True, layout="constrained")
    for ax, kind in zip(axes, ("alike", "unrelated"), strict=True):
        for shift, line in enumerate(row for row in tables["examples"] if row["pair"] == kind):
            cells = [float(cell) for name, cell in line.items() if name.startswith("column")]
            at = np.arange(len(cells)) + 0.4 * shift
            ax.bar(at, cells, 0.4, label=f"row {line['row']}, value {line['row value']:.5f}")
        ax.set_title(f"cells {kind}: correlation {line['correlation']:.2f}", fontsize=9)
        ax.set_xlabel("column")
        ax.legend(fontsize=7)
    axes[0].set_ylabel("cell value")
    return figure
