"""Count ties, and compute totals of the authors' breast-cancer table and of a raw column.

Ties are broken by the order of rows, and rows are shuffled: values that depend on the order move.
The column relationship of the Census is valued as one player, and as the sum of one-hot columns.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cellworth import KNNValuer, Runtime
from cellworth.knn import KNNGame
from experiments.baselines import LeverageSampler
from experiments.detection import Case
from experiments.frame import Row, Tables, log
from experiments.paper import value_order
from experiments.paper_outliers import read_clean, read_values
from experiments.tables import find

QUICK = {"orders": 1, "queries": 10, "rows": 300}
K = 10


def fit(given: Case, **settings: Any) -> Any:
    valuer = KNNValuer(K, random_state=0, runtime=Runtime(progress=False), **settings)
    return valuer.fit(given.X, given.y, X_val=given.X_val, y_val=given.y_val).valuation_


def read_census(data: Path, n_rows: int, n_queries: int) -> Case:
    """Return some people of the Census, and others to validate on."""
    train, test = (
        pd.read_csv(find(f"adult_{side}", data)).sample(size, random_state=0)
        for side, size in (("train", n_rows), ("test", n_queries))
    )
    y, y_val = (part.pop("income").to_numpy() for part in (train, test))
    return Case(train, y, np.zeros(train.shape, dtype=bool), test, y_val)


def count_ties(name: str, given: Case, n_orders: int) -> Row:
    """Count tied rows, and measure how values move if the order of rows breaks ties."""
    game = KNNGame(given.X, given.y, given.X_val, given.y_val, n_neighbors=K)
    n_rows, n_columns = game.shape
    rng = np.random.default_rng(0)
    shuffled = rng.permutation(n_rows)
    orders = [rng.permutation(n_columns) for _ in range(n_orders)]
    labels = game.query_labels[0][:, np.newaxis]
    match = (game.labels == labels).astype(float)
    distances = np.stack([game.distances.measure(0, each) for each in range(len(labels))], axis=1)
    shares = [pd.Series(line).duplicated(keep=False).mean() for line in distances.sum(axis=0)]
    cells = np.zeros((2, n_rows, n_columns))
    for order in orders:
        ways = {"order": order, "n_neighbors": K, "kind": "stable"}
        cells[0] += value_order(distances, match, **ways)
        cells[1, shuffled] += value_order(distances[:, :, shuffled], match[:, shuffled], **ways)
    moved = np.sqrt(np.mean((cells[0] - cells[1]) ** 2) / np.mean(cells[0] ** 2))
    settings = {"sampler": LeverageSampler(), "n_passes": 1}
    again = fit(given._replace(X=given.X.iloc[shuffled], y=given.y[shuffled]), **settings)
    change = np.abs(fit(given, **settings).values[shuffled] - again.values).max()
    return {
        "table": f"{name}, {n_rows:,} x {n_columns}",
        "rows that tie on all columns, %": round(100 * np.mean(shares)),
        "change if rows are shuffled, ties by row order, %": round(100 * moved),
        "largest change of KNNValuer": f"{change:.0e}" if change else "0",
    }


def compute_totals(given: Case) -> list[Row]:
    """Return what all values add up to, by convention of empty coalitions."""
    shuffled = given._replace(y=np.random.default_rng(0).permutation(given.y))
    return [
        {
            "empty": empty,
            "total": fit(given, empty=empty).total,
            "with shuffled labels": fit(shuffled, empty=empty).total,
        }
        for empty in ("prior", "zero")
    ]


def compare_published(given: Case, values: np.ndarray) -> Row:
    """Compare the sum of the authors' values with the score, and the values of equal rows."""
    # Their distances use raw numbers, and the empty coalition has utility 0.
    score = fit(given, scale=None, empty="zero").total
    rows = given.X.assign(label=given.y).reset_index(drop=True)
    equal = rows.groupby(list(rows.columns)).indices.values()
    apart = max(np.ptp(values[positions], axis=0).max() for positions in equal)
    return {
        "values": "published", "sum": values.sum(), "score to be shared": score,
        "equal rows apart": f"{apart:.1e}", "largest": f"{np.abs(values).max():.1e}",
    }  # fmt: skip


def compare_encodings(given: Case, column: str) -> list[Row]:
    """Return the share of a column in the total: raw, and as the sum of its one-hot columns."""
    settings = {"sampler": LeverageSampler(), "n_passes": 4, "scale": "std"}
    both = pd.get_dummies(pd.concat([given.X, given.X_val]), columns=[column], dtype=float)
    hot = given._replace(X=both.iloc[: len(given.X)], X_val=both.iloc[len(given.X) :])
    found = []
    for encoding, table in (("raw", given), ("one-hot", hot)):
        valuation = fit(table, **settings)
        mine = [name == column or name.startswith(f"{column}_") for name in table.X]
        share = round(100 * valuation.columns().values[mine].sum() / valuation.total)
        found.append({"encoding": encoding, "columns": sum(mine), "share of the total, %": share})
    return found


def run(data: Path, *, orders: int = 5, queries: int = 50, rows: int = 2000) -> Tables:
    """Return ties, totals, and what is known of the published values."""
    clean, census = read_clean(data), read_census(data, rows, queries)
    breast = clean._replace(X=pd.DataFrame(clean.X), X_val=pd.DataFrame(clean.X_val))
    found = [count_ties("breast cancer", breast, orders), count_ties("Census", census, orders)]
    log("ties")
    return {
        "ties": found,
        "totals": compute_totals(breast),
        "published values": [compare_published(breast, read_values(data, "clean"))],
        "encodings": compare_encodings(census, "relationship"),
    }
