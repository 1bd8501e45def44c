"""Compare the shares of owners in games of blocks and in sums of cells.

python experiments/per_head.py --data ../shared/data

Three owners of 120, 60 and 60 rows; then the first appears under two names, or the third has only
copies of rows of the first. Shares of the value in the game of blocks (a model trained
on every coalition of owners) and in that of cells (sums of nearest-neighbor values), in points,
mean over seeds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cellworth import ExactValuer, KNNValuer, Runtime
from tables import Table, draw_samples, load

SETS = ["breast original", "breast 30", "electricity", "fried"]
HONEST = np.repeat(["A", "B", "C"], [120, 60, 60])
SPLIT = np.repeat(["A", "A again", "B", "C"], [60, 60, 60, 60])


def shares_of_blocks(train: Table, val: Table, owners: np.ndarray) -> pd.Series:
    """Return the shares of owners whose rows join a coalition together."""
    model = make_pipeline(StandardScaler(), KNeighborsClassifier(5))
    columns = dict.fromkeys(train.X.columns, "all")
    valuer = ExactValuer(model, scoring="balanced_accuracy", runtime=Runtime(progress=False)).fit(
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


def report(folder: Path, sets: list[str], seeds: int) -> pd.DataFrame:
    lines = []
    for name in sets:
        table = load(name, folder).numbers()
        for seed in range(seeds):
            train, val = draw_samples(table, 240, 200, seed=seed)
            for game, shares in (("blocks", shares_of_blocks), ("cells", shares_of_cells)):
                honest = shares(train, val, HONEST)
                apart = shares(train, val, SPLIT)
                copies = shares(copy_rows(train), val, HONEST)
                lines.append(
                    {
                        "game": game,
                        **honest.to_dict(),
                        "A under two names": apart["A"] + apart["A again"],
                        "C with copies of A": copies["C"],
                    }
                )
    return pd.DataFrame(lines).groupby("game").mean().round(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    print(report(given.data, given.sets, given.seeds).to_string())


if __name__ == "__main__":
    main()
