"""Blocks of the credit table: whether a block of high value also trains a good model.

    python -m experiments paper_blocks

Flags: --seeds 12 (splits), --rows 600 (of the table that is cut into blocks), --cuts 4 (row groups,
and column groups).

Each split draws training rows, 500 validation rows for the values and 2,000 test rows for the
scores, permutes rows and columns, and cuts them at random places into blocks. The score of a block
is that of a tree trained on its rows and columns alone, mean of 10 fits. Two values of a block: the
sum of its cells (2D-KNN, K = 10), and the exact value in the game of blocks, with the same tree.
Rank correlations are those within a split, mean and standard error over splits; the partial one
holds the number of cells constant.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from sklearn.tree import DecisionTreeClassifier

from cellworth import ExactValuer, KNNValuer, Runtime
from cellworth.games import ModelGame
from experiments.frame import Row, Tables, log, means
from experiments.tables import Table, draw_samples, load

QUICK = {"seeds": range(1), "rows": 120, "cuts": 2}
SCORINGS = {"accuracy": "neighbor_agreement", "balanced_accuracy": "balanced_neighbor_agreement"}
N_FITS = 10
N_NEIGHBORS = 10
N_VALIDATION, N_TEST = 500, 2000
QUIET = Runtime(progress=False)
VALUES = ("exact block value", "sum of cell values (2D-KNN)")


class Split(NamedTuple):
    """Training rows cut into blocks; validation rows for values, test rows for scores."""

    train: Table
    validation: Table
    test: Table
    row_groups: np.ndarray
    column_groups: np.ndarray


def run(data: Path, seeds: range = range(12), rows: int = 600, cuts: int = 4) -> Tables:
    """Return rank correlations of block values and sizes with block scores, and all blocks."""
    table = load("credit", data)
    blocks: list[Row] = []
    for seed in seeds:
        split = draw_split(table, rows, cuts, seed)
        for scoring in SCORINGS:
            blocks += [{"split": seed, "score": scoring} | each for each in measure(split, scoring)]
        log("split", seed)
    found = pd.DataFrame(blocks)
    return {"rank correlation with the score": correlate(found), "blocks": blocks}


def draw_split(table: Table, n_rows: int, cuts: int, seed: int) -> Split:
    """Draw rows, and cut rows and columns at random places."""
    train, validation, test = draw_samples(table, n_rows, N_VALIDATION, N_TEST, seed=seed)
    rng = np.random.default_rng(seed)
    # Every row group can hold both classes, and every column group has a column.
    row_groups, column_groups = (
        rng.permutation(cut(n, cuts, least, rng))
        for n, least in ((n_rows, n_rows // (5 * cuts)), (train.X.shape[1], 1))
    )
    return Split(train, validation, test, row_groups, column_groups)


def cut(n: int, n_parts: int, least: int, rng: np.random.Generator) -> np.ndarray:
    """Return the part of each of n places; parts have random sizes, none below the least."""
    spare = n - n_parts * least
    ends = np.sort(rng.integers(0, spare + 1, n_parts - 1))
    sizes = np.diff(np.concatenate([[0], ends, [spare]])) + least
    return np.repeat(np.arange(n_parts), sizes)


def measure(split: Split, scoring: str) -> list[Row]:
    """Return value, score and size of each block."""
    train, validation, test, row_groups, column_groups = split
    groups: dict[str, Any] = {"row_groups": row_groups, "column_groups": column_groups}
    tree = DecisionTreeClassifier()
    exact = ExactValuer(tree, scoring=scoring, n_repeats=N_FITS, runtime=QUIET)
    exact.fit(train.X, train.y, X_val=validation.X, y_val=validation.y, **groups)
    cells = KNNValuer(
        N_NEIGHBORS, scoring=SCORINGS[scoring], n_passes=2, random_state=0, runtime=QUIET
    ).fit(train.X, train.y, X_val=validation.X, y_val=validation.y)
    game = ModelGame(
        tree, train.X, train.y, X_val=test.X, y_val=test.y, scoring=scoring, **groups
    ).with_repeats(N_FITS)
    lines = []
    for i, j in np.ndindex(exact.values_.shape):
        block = np.ix_(row_groups == i, column_groups == j)
        lines.append(
            {
                VALUES[0]: float(exact.values_[i, j]),
                VALUES[1]: float(cells.values_[block].sum()),
                "number of cells": cells.values_[block].size,
                "number of rows": int((row_groups == i).sum()),
                "number of columns": int((column_groups == j).sum()),
                "score of the block": game.value(*(np.arange(n) == k for n, k in zip(
                    exact.values_.shape, (i, j), strict=True))),
            }
        )  # fmt: skip
    return lines


def correlate(blocks: pd.DataFrame) -> list[Row]:
    """Return the rank correlation of each value and size with the score, over splits."""
    sizes = ("number of cells", "number of rows", "number of columns")
    lines = []
    for (scoring, _), part in blocks.groupby(["score", "split"], sort=False):
        ranks = part.rank(numeric_only=True)
        for name in (*VALUES, *sizes):
            plain, partial = correlations(ranks, name)
            line = {"score": scoring, "of": name, "correlation": plain}
            lines.append(line | ({} if name in sizes else {"given the number of cells": partial}))
    return means(lines, ["score", "of"])


def correlations(ranks: pd.DataFrame, name: str) -> tuple[float, float]:
    """Return the rank correlation with the score, and the partial one given the size."""
    score, size = ranks["score of the block"], ranks["number of cells"]
    value = ranks[name]
    plain, of_value, of_score = (
        float(spearmanr(a, b).statistic) for a, b in ((value, score), (value, size), (score, size))
    )
    left = np.sqrt((1 - of_value**2) * (1 - of_score**2))
    return plain, (plain - of_value * of_score) / left if left > 0 else np.nan


def draw(tables: dict[str, Any]) -> Any:
    """Draw the values of blocks over their scores, one shade per split."""
    import matplotlib.pyplot as plt

    blocks = pd.DataFrame(tables["blocks"])
    figure, axes = plt.subplots(2, 2, figsize=(7, 5), sharex="row", layout="constrained")
    for line, scoring in zip(axes, SCORINGS, strict=True):
        part = blocks[blocks["score"] == scoring]
        for ax, name in zip(line, VALUES, strict=True):
            ax.scatter(part["score of the block"], part[name], c=part["split"], s=9, cmap="viridis")
            ax.axhline(0, color="0.8", zorder=0, linewidth=0.8)
            ax.set_xlabel(f"{scoring.replace('_', ' ')} of the block's model")
            ax.set_ylabel(name)
    return figure
