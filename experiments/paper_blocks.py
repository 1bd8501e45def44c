"""Blocks of the credit table: whether a block of high value also trains a good model.

Each split draws training rows, 500 validation rows for the values and 2,000 test rows for the
scores, permutes rows and columns, and cuts them at random places into blocks. The score of a block
is that of a tree trained on its rows and columns alone, mean of 10 fits. Two values of a block: the
sum of its cells (2D-KNN, K = 10), and the exact value in the game of blocks, with the same tree,
mean of 3 fits. Rank correlations are those within a split, mean and standard error over splits; the
partial one holds the number of cells constant.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from cellworth import KNNValuer, Runtime, value_game
from cellworth.games import TableGame
from experiments.frame import Row, Tables, log, means
from experiments.tables import Table, draw_samples, load
from experiments.tree_games import Rows, score

QUICK = {"seeds": range(1), "rows": 120, "cuts": 2}
SCORINGS = {"accuracy": "neighbor_agreement", "balanced_accuracy": "balanced_neighbor_agreement"}
N_FITS = 10
N_FITS_OF_A_UTILITY = 3
N_NEIGHBORS = 10
N_VALIDATION, N_TEST = 500, 2000
QUIET = Runtime(progress=False)
VALUES = ("exact block value", "sum of cell values (2D-KNN)")


class Split(NamedTuple):
    """Training rows cut into blocks; validation rows for values, test rows for scores."""

    train: Rows
    validation: Rows
    test: Rows
    row_groups: np.ndarray
    column_groups: np.ndarray


def run(data: Path, seeds: range = range(12), rows: int = 400, cuts: int = 4) -> Tables:
    """Return rank correlations of block values and sizes with block scores."""
    table = load("credit", data)
    blocks: list[Row] = []
    for seed in seeds:
        split = draw_split(table, rows, cuts, seed)
        blocks += [{"split": seed} | each for each in measure(split)]
        log("split", seed)
    return {"rank correlation with the score": correlate(pd.DataFrame(blocks))}


def draw_split(table: Table, n_rows: int, cuts: int, seed: int) -> Split:
    """Draw rows, and cut rows and columns at random places."""
    train, validation, test = draw_samples(table, n_rows, N_VALIDATION, N_TEST, seed=seed)
    rng = np.random.default_rng(seed)
    # Every row group can hold both classes, and every column group has a column.
    row_groups, column_groups = (
        rng.permutation(cut(n, cuts, least, rng))
        for n, least in ((n_rows, n_rows // (5 * cuts)), (train.X.shape[1], 1))
    )
    parts = (Rows(part.X.to_numpy(dtype=float), part.y) for part in (train, validation, test))
    return Split(*parts, row_groups, column_groups)


def cut(n: int, n_parts: int, least: int, rng: np.random.Generator) -> np.ndarray:
    """Return the part of each of n places; parts have random sizes, none below the least."""
    spare = n - n_parts * least
    ends = np.sort(rng.integers(0, spare + 1, n_parts - 1))
    sizes = np.diff(np.concatenate([[0], ends, [spare]])) + least
    return np.repeat(np.arange(n_parts), sizes)


def measure(split: Split) -> list[Row]:
    """Return value, score and size of each block, for both scores."""
    train, validation, test, row_groups, column_groups = split
    cuts = row_groups.max() + 1
    utilities = tabulate(split, cuts)
    lines = []
    for k, (scoring, of_neighbors) in enumerate(SCORINGS.items()):
        exact = value_game(TableGame(utilities[k]), estimator="exact", runtime=QUIET).values
        cells = KNNValuer(
            N_NEIGHBORS, scoring=of_neighbors, n_passes=2, random_state=0, runtime=QUIET
        ).fit(*train, X_val=validation.X, y_val=validation.y)
        for i, j in np.ndindex(cuts, cuts):
            rows, columns = row_groups == i, column_groups == j
            block = cells.values_[np.ix_(rows, columns)]
            lines.append(
                {
                    "score": scoring,
                    VALUES[0]: float(exact[i, j]),
                    VALUES[1]: float(block.sum()),
                    "number of cells": block.size,
                    "number of rows": int(rows.sum()),
                    "number of columns": int(columns.sum()),
                    "score of the block": score_part(train, test, rows, columns, N_FITS)[k],
                }
            )
    return lines


def tabulate(split: Split, cuts: int) -> np.ndarray:
    """Return accuracy and balanced accuracy of all coalitions of groups; 0 without rows."""
    utilities = np.zeros((2, 1 << cuts, 1 << cuts))
    for s, f in product(range(1, 1 << cuts), range(1 << cuts)):
        rows, columns = (s >> split.row_groups) & 1 == 1, (f >> split.column_groups) & 1 == 1
        utilities[:, s, f] = score_part(
            split.train, split.validation, rows, columns, N_FITS_OF_A_UTILITY
        )
    return utilities


def score_part(
    train: Rows, scored: Rows, rows: np.ndarray, columns: np.ndarray, n_fits: int
) -> tuple[float, float]:
    """Return the scores of a tree trained on some rows and columns."""
    part = Rows(train.X[np.ix_(rows, columns)], train.y[rows])
    return score(part, Rows(scored.X[:, columns], scored.y), n_fits)


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
