"""Check how often the 95% intervals of amounts contain the amounts of a large validation set.

600 rows and 9 columns of Adult belong to six owners; half of the labels of one of them are
shuffled. Small sets of validation rows are drawn from a pool. The truth is the amounts for the
whole pool and the same training rows. Nearest-neighbor values are means over validation rows, so
the owners' sums of each row of the pool are computed once. Per policy: the share of intervals that
contain the truth, the lowest and the highest share of a single owner, and the mean width of the
intervals in money. Sets by which nothing is split, because the total is within noise, are left out.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd

from cellworth import KNNValuer, Owners, Runtime
from cellworth.knn.memory_tasks import QueryRecorder
from cellworth.payouts import Policy
from cellworth.payouts.allocation import simulate_quotas
from cellworth.runtime import Serial
from cellworth.sampling.moments import WIDTH_95, append_pairs, draw_errors, widening
from experiments.frame import Row, Tables, log
from experiments.tables import Table, draw_samples, load

QUICK = {"seeds": range(1), "draws": 3, "validation": 40, "pool": 60}
COLUMNS = ["age", "workclass", "education", "marital_status", "occupation", "relationship",
           "race", "sex", "hours_per_week"]  # fmt: skip
# Amounts under "carry" are those under "floor".
POLICIES = {"signed": Policy(negative="signed"), "floor": Policy()}
AMOUNT = 100_000.0


def share_out(X: pd.DataFrame) -> Owners:
    """Return owners of rows and owners of columns."""
    owners = Owners(X)
    for number, name in enumerate(("north", "east", "south", "west")):
        rows = slice(150 * number, 150 * (number + 1))
        owners = owners.assign(name, rows=rows, columns=COLUMNS[:6])
    return owners.assign("census", columns=COLUMNS[6:8]).assign("clock", columns=COLUMNS[8:])


def spoil_labels(train: Table, rng: np.random.Generator) -> Table:
    """Shuffle half of the labels of the last quarter of the rows."""
    y = train.y.copy()
    y[450:] = np.where(rng.random(150) < 0.5, y[450:], rng.permutation(y[450:]))
    return Table(train.X, y)


def sum_by_row(
    train: Table, pool: Table, owners: Owners, n_neighbors: int, n_passes: int | None = None
) -> np.ndarray:
    """Return the owners' sums for each validation row, shape (n_rows, n_owners)."""
    lines, add_values = [], QueryRecorder.add_values

    def record(self, squared_weight: float, stratum: int) -> None:
        lines.append(self._owned(self.values))
        add_values(self, squared_weight, stratum)

    runtime = Runtime(progress=False, executor=Serial())
    valuer = KNNValuer(n_neighbors, random_state=0, n_passes=n_passes, runtime=runtime)
    with patch.object(QueryRecorder, "add_values", record), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = valuer.fit(train.X, train.y, X_val=pool.X, y_val=pool.y, owners=owners)
    np.testing.assert_allclose(np.mean(lines, axis=0), fitted.valuation_.owners().values)
    return np.array(lines)


class ValueSimulator:
    """Values of owners that validation rows allow, with their errors: 1,000 draws."""

    def __init__(self, n_owners: int, n_rows: int, rng: np.random.Generator) -> None:
        """Draw normal numbers, the same for all validation rows."""
        half = rng.standard_normal((500, n_owners + 1))
        self._normals = np.concatenate([half, -half])
        self.scale = float(widening(n_rows)) / np.sqrt(n_rows)

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Return draws for the owners' sums of these rows, shape (1,000, n_owners)."""
        errors = append_pairs(rows).std(axis=0, ddof=1) * self.scale
        return rows.mean(axis=0) + draw_errors(errors, rows.shape[1], self._normals)


def compare_intervals(
    policy: Policy, values: np.ndarray, pool: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return which owners' intervals hold the amounts of the pool, and how wide they are."""
    (true,) = simulate_quotas(policy, AMOUNT, pool.mean(axis=0)[np.newaxis])
    amounts = simulate_quotas(policy, AMOUNT, values)
    low, high = np.quantile(amounts, [0.025, 0.975], axis=0)
    return (low <= true + 0.01) & (true <= high + 0.01), high - low


def cover(
    pool: np.ndarray, names: list[str], n_draws: int, n_rows: int, rng: np.random.Generator
) -> pd.DataFrame:
    """Return one line per draw, policy and owner."""
    simulate, lines = ValueSimulator(len(names), n_rows, rng), []
    for _ in range(n_draws):
        rows = pool[rng.choice(len(pool), n_rows, replace=False)]
        total = rows.sum(axis=1)
        if total.mean() > WIDTH_95 * simulate.scale * total.std(ddof=1):
            values = simulate(rows)
            for name, policy in POLICIES.items():
                inside, width = compare_intervals(policy, values, pool)
                figures = {"owner": names, "inside": inside, "width": width}
                lines.append(pd.DataFrame(figures).assign(policy=name))
    return pd.concat(lines)


def run(
    data: Path,
    *,
    seeds: range = range(2),
    draws: int = 500,
    validation: int = 200,
    pool: int = 3000,
    neighbors: int = 5,
) -> Tables:
    """Return the share of intervals that contain the truth, by policy."""
    table = load("adult", data)
    table, found = Table(table.X[COLUMNS], table.y), []
    for seed in seeds:
        train, people = draw_samples(table, 600, pool, seed=seed)
        train = spoil_labels(train, np.random.default_rng(seed))
        owners = share_out(train.X)
        sums = sum_by_row(train, people, owners, neighbors)
        rng = np.random.default_rng(seed)
        found.append(cover(sums, list(owners.names), draws, validation, rng).assign(seed=seed))
        log(seed)
    return {"coverage": report(pd.concat(found))}


def report(found: pd.DataFrame) -> list[Row]:
    by_owner = found.groupby(["policy", "seed", "owner"], sort=False).mean(numeric_only=True)
    rows = []
    for policy, part in by_owner.groupby("policy", sort=False):
        inside = part["inside"]
        row = {"policy": policy, "truth inside": inside.mean(), "lowest of an owner": inside.min()}
        rows.append(row | {"highest": inside.max(), "mean width": part["width"].mean()})
    return rows
