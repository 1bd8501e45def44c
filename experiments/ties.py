"""Count ties, and compute totals of the authors' breast-cancer table and of a raw column.

    python -m experiments ties

Ties are broken by the order of rows, and rows are shuffled: values that depend on the order move.
The column relationship of the Census is valued as one player, and as the sum of one-hot columns.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from cellworth import KNNValuer, Runtime
from cellworth.knn import KNNGame
from experiments.baselines import LeverageSampler
from experiments.frame import Row, Tables, log
from experiments.paper_outliers import read_clean, read_values
from experiments.tables import find

QUICK = {"orders": 1, "queries": 10, "rows": 300}
K = 10


class Given(NamedTuple):
    """Training rows and validation rows."""

    X: pd.DataFrame
    y: np.ndarray
    X_val: pd.DataFrame
    y_val: np.ndarray


def fit(given: Given, **settings: Any) -> Any:
    valuer = KNNValuer(K, random_state=0, runtime=Runtime(progress=False), **settings)
    return valuer.fit(given.X, given.y, X_val=given.X_val, y_val=given.y_val).valuation_


def read_breast(data: Path) -> Given:
    """Return the authors' split, before cells were altered."""
    case = read_clean(data)
    return Given(pd.DataFrame(case.X), case.y, pd.DataFrame(case.X_val), case.y_val)


def read_census(data: Path, n_rows: int, n_queries: int) -> Given:
    """Return some people of the Census, and others to validate on."""
    train, test = (
        pd.read_csv(find(f"adult_{side}", data)).sample(size, random_state=0)
        for side, size in (("train", n_rows), ("test", n_queries))
    )
    y, y_val = (part.pop("income").to_numpy() for part in (train, test))
    return Given(train, y, test, y_val)


def count_ties(name: str, given: Given, n_orders: int) -> Row:
    """Count tied rows, and measure how values move if the order of rows breaks ties."""
    game = KNNGame(given.X, given.y, given.X_val, given.y_val, n_neighbors=K)
    n_rows, n_columns = game.shape
    rng = np.random.default_rng(0)
    shuffled = rng.permutation(n_rows)
    orders = [rng.permutation(n_columns) for _ in range(n_orders)]
    cells, shares = np.zeros((2, n_columns, n_rows)), []
    for query, label in enumerate(game.query_labels[0]):
        distances, match = game.distances.measure(0, query), game.labels == label
        on_all_columns = distances.sum(axis=0)
        shares.append(np.isin(on_all_columns, find_repeated(on_all_columns)).mean())
        for order in orders:
            sums = np.cumsum(distances[order], axis=0)
            for position, line in enumerate(sums):
                for k, rows in enumerate((np.arange(n_rows), shuffled)):
                    values = first_come(line[rows], match[rows])
                    cells[k, order[position], rows] += values
                    if position + 1 < n_columns:
                        cells[k, order[position + 1], rows] -= values
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


def find_repeated(line: np.ndarray) -> np.ndarray:
    distances, counts = np.unique(line, return_counts=True)
    return distances[counts > 1]


def first_come(distances: np.ndarray, match: np.ndarray) -> np.ndarray:
    """Return Shapley values of rows for one query, ties ranked by row order."""
    order = np.argsort(distances, kind="stable")
    ranks = np.arange(1, len(order))
    steps = -np.diff(match[order].astype(float)) * np.minimum(K, ranks) / (K * ranks)
    last = match[order[-1]] / max(K, len(order))
    values = np.empty(len(order))
    values[order] = np.append(np.cumsum(steps[::-1])[::-1], 0.0) + last
    return values


def compute_totals(given: Given) -> list[Row]:
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


def compare_published(given: Given, values: np.ndarray) -> Row:
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


def compare_encodings(given: Given, column: str) -> list[Row]:
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
    breast, census = read_breast(data), read_census(data, rows, queries)
    found = [count_ties("breast cancer", breast, orders), count_ties("Census", census, orders)]
    log("ties")
    return {
        "ties": found,
        "totals": compute_totals(breast),
        "published values": [compare_published(breast, read_values(data, "clean"))],
        "encodings": compare_encodings(census, "relationship"),
    }
