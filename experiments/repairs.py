"""Measure whether it helps to repair the cells of lowest value: by hand, or by a rule.

Tables and splits are those of ``removal.py``. Some cells of the training rows get the value of the
same column in a row of another class. As many cells as are wrong, those of lowest value, are then
checked. A person restores the wrong ones; a rule changes all of them. The figures are points of
balanced accuracy on untouched test rows, against the table with the wrong cells, mean over a tree,
a logistic regression and nearest neighbors, with standard errors over tables.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from cellworth.data.tables import Table as RawTable
from cellworth.knn.distances import Distances
from experiments.detection import figures
from experiments.frame import Row, Tables, means
from experiments.removal import (
    MODELS,
    Split,
    measure_all,
    remove_cells,
    split_rows,
    value_split,
)
from experiments.tables import HELD_OUT, Table, load

QUICK = {"seeds": range(1), "sets": ("wine",)}
SHARES = (0.02, 0.05, 0.15)
N_NEIGHBORS = 10


def run(
    data: Path,
    seeds: range = range(5),
    sets: tuple[str, ...] = HELD_OUT,
    rows: int = 200,
    keep: str = "",
) -> Tables:
    """Return the points gained, over tables and by table."""
    loaded = {name: load(name, data).numbers() for name in sets}
    found = measure_all("repairs", measure_repairs, loaded, seeds=seeds, rows=rows, keep=keep)
    return {"points gained": means(found, ["wrong cells"], "table")}


def measure_repairs(name: str, table: Table, seed: int, n_rows: int) -> list[Row]:
    """Return the points gained by each way to repair the cells of lowest value."""
    split = split_rows(table, seed, n_rows)
    return [{"table": name} | measure_share(share, *split, seed) for share in SHARES]


def measure_share(share: float, train: Table, validation: Table, test: Table, seed: int) -> Row:
    """Return the points gained if this share of cells is wrong."""
    wrong, spoilt = with_wrong_cells(train, share, seed)
    split = value_split(Table(spoilt, train.y), validation, test, seed)
    values = split.values
    looked_at = np.zeros(values.size, dtype=bool)
    looked_at[np.argsort(values.ravel(), kind="stable")[: wrong.sum()]] = True
    looked_at = looked_at.reshape(values.shape)
    tables = {
        "by hand": spoilt.where(~(looked_at & wrong), train.X),
        "neighbors": fill_from_neighbors(spoilt, looked_at),
        "draw": remove_cells(spoilt, looked_at, "draw", seed),
        "all true again": train.X,
    }
    before = score(split, spoilt)
    return {
        "wrong cells": f"{share:.0%}",
        "found, %": 100 * (looked_at & wrong).sum() / wrong.sum(),
        "area, %": 100 * figures(wrong, -values)[0],
    } | {way: 100 * (score(split, X) - before) for way, X in tables.items()}


def with_wrong_cells(train: Table, share: float, seed: int) -> tuple[np.ndarray, pd.DataFrame]:
    """Give some cells the value of a row of another class; return the mask and the table."""
    rng = np.random.default_rng(seed)
    shape = train.X.shape
    chosen = rng.permutation(train.X.size) < round(share * train.X.size)
    others = np.array([rng.choice(np.flatnonzero(train.y != label)) for label in train.y])
    spoilt = train.X.where(~chosen.reshape(shape), train.X.iloc[others].set_axis(train.X.index))
    return (spoilt != train.X).to_numpy(), spoilt


def fill_from_neighbors(X: pd.DataFrame, mask: np.ndarray) -> pd.DataFrame:
    """Fill numbers with the median of the ten nearest rows by the other columns.

    The filled cells count as missing for distances, and no other cell is filled with them.
    """
    cleared = X.mask(mask)
    asked = np.flatnonzero(mask.any(axis=1))
    table, queries = (
        RawTable.from_data(part, called="X") for part in (cleared, cleared.iloc[asked])
    )
    distances = Distances.from_tables(table, [queries])
    cells = X.to_numpy().copy()
    for query, row in enumerate(asked):
        by_column = distances.measure(0, query)
        for position in np.flatnonzero(mask[row]):
            rows = np.flatnonzero(~mask[:, position])
            away = (by_column.sum(axis=0) - by_column[position])[rows]
            near = away <= np.sort(away)[:N_NEIGHBORS][-1]
            rows, away = rows[near], away[near]
            # Of equal numbers, the nearer first; of two middle numbers, the one of the nearer row.
            order = np.lexsort((away, X.to_numpy()[rows, position]))
            middle = order[[(len(order) - 1) // 2, len(order) // 2]]
            cells[row, position] = X.to_numpy()[rows[middle[np.argmin(away[middle])]], position]
    return pd.DataFrame(cells, X.index, X.columns)


def score(split: Split, X: pd.DataFrame) -> float:
    """Return the balanced accuracy on the test rows, mean over models."""
    return float(np.mean([split.score(model, X) for model in MODELS]))
