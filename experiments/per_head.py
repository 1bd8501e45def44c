"""Compare the shares of owners in games of blocks and in sums of cells.

python -m experiments per_head

Three owners of 120, 60 and 60 rows; then the first appears under two names, or the third has only
copies of rows of the first. Shares of the value in the game of blocks (a model trained
on every coalition of owners) and in that of cells (sums of nearest-neighbor values), in points,
mean over seeds.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cellworth import KNNValuer, ModelValuer, Runtime
from experiments.frame import Tables, log, means
from experiments.tables import Table, draw_samples, load

QUICK = {"seeds": range(1), "sets": ("breast original",)}
SETS = ("breast original", "breast 30", "electricity", "fried")
HONEST = np.repeat(["A", "B", "C"], [120, 60, 60])
SPLIT = np.repeat(["A", "A again", "B", "C"], [60, 60, 60, 60])


def shares_of_blocks(train: Table, val: Table, owners: np.ndarray) -> pd.Series:
    """Return the shares of owners whose rows join a coalition together."""
    model = make_pipeline(StandardScaler(), KNeighborsClassifier(5))
    columns = dict.fromkeys(train.X.columns, "all")
    settings = {"scoring": "balanced_accuracy", "runtime": Runtime(progress=False)}
    valuer = ModelValuer(model, estimator="exact", **settings).fit(
        train.X, train.y, X_val=val.X, y_val=val.y, row_groups=owners,
        column_groups={"all": list(columns)},
    )  # fmt: skip
    return _shares(valuer.valuation_)


def shares_of_cells(train: Table, val: Table, owners: np.ndarray) -> pd.Series:
    """Return the shares of owners whose cells are valued one by one."""
    valuer = KNNValuer(
        5,
        scoring="balanced_neighbor_agreement",
        random_state=0,
        n_passes=1,
        runtime=Runtime(progress=False),
    ).fit(train.X, train.y, X_val=val.X, y_val=val.y, row_groups=owners)
    return _shares(valuer.valuation_)


def _shares(valuation) -> pd.Series:
    rows = valuation.rows()
    return 100 * pd.Series(rows.values, rows.labels["row"]) / rows.values.sum()


def copy_rows(train: Table) -> Table:
    """Replace the last owner's rows by copies of the first owner's first rows."""
    X, y = train.X.copy(), train.y.copy()
    X.iloc[180:], y[180:] = X.iloc[:60].to_numpy(), y[:60]
    return Table(X, y)


def run(data: Path, seeds: range = range(5), sets: tuple[str, ...] = SETS) -> Tables:
    """Return shares by game, mean over tables."""
    lines = []
    for name in sets:
        table = load(name, data).numbers()
        for seed in seeds:
            train, val = draw_samples(table, 240, 200, seed=seed)
            for game, shares in (("blocks", shares_of_blocks), ("cells", shares_of_cells)):
                apart = shares(train, val, SPLIT)
                attacks = {
                    "A under two names": apart["A"] + apart["A again"],
                    "C with copies of A": shares(copy_rows(train), val, HONEST)["C"],
                }
                honest = shares(train, val, HONEST).to_dict()
                lines.append({"game": game, "set": name} | honest | attacks)
        log(name)
    return {"shares in points": means(lines, ["game"], "set")}
