"""Compare what copied rows and shell names gain under three semivalues and two policies.

python -m experiments semivalue_clones

600 rows of Adult belong to four owners of 150 rows each; half of the labels of the fourth are drawn
at random. The first owner hands in its rows three times, under new ids. Then the fourth moves the
rows that lose value to a second name. Amounts out of 100,000, medians over seeds; the last column
has the number of seeds whose values can be split, before and after copying.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from cellworth import KNNValuer, Owners, Runtime
from cellworth.payouts import Policy, split_revenue
from cellworth.sampling import Banzhaf, LeaveOneOut, Shapley
from experiments.frame import Tables
from experiments.tables import Table, draw_samples, load

QUICK = {"seeds": range(1)}
COLUMNS = ["age", "workclass", "education", "marital_status", "occupation", "hours_per_week"]
SEMIVALUES = {"Shapley": Shapley(), "Banzhaf": Banzhaf(), "leave one out": LeaveOneOut()}
AMOUNT = 100_000


def value(train: Table, val: Table, semivalue, n_neighbors: int):
    valuer = KNNValuer(
        n_neighbors, semivalue=(semivalue, Shapley()), random_state=0,
        runtime=Runtime(progress=False),
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return valuer.fit(train.X, train.y, X_val=val.X, y_val=val.y).valuation_


def pay(valuation, X: pd.DataFrame, whose: np.ndarray, negative: str) -> dict[str, float]:
    owners = Owners(X)
    for name in dict.fromkeys(whose.tolist()):
        owners = owners.assign(name, rows=whose == name)
    policy = Policy(negative=negative, gate="off", duplicates="pay")
    try:
        payout = split_revenue(valuation, owners, amount=AMOUNT, policy=policy)
    except ValueError:
        # No value is above 0, or the total is not.
        return {}
    return dict(zip(payout.owners, map(float, payout.amounts), strict=True))


def attack(table: Table, seed: int, n_neighbors: int) -> list[dict[str, object]]:
    train, val = draw_samples(table, 600, 300, seed=seed)
    rng = np.random.default_rng(seed)
    y = train.y.copy()
    y[450:] = np.where(rng.random(150) < 0.5, rng.permutation(y[450:]), y[450:])
    train = Table(train.X, y)
    whose = np.repeat(["first", "second", "third", "fourth"], 150)
    times = np.concatenate([np.arange(600), np.tile(np.arange(150), 2)])
    lines: list[dict[str, object]] = []
    for name, semivalue in SEMIVALUES.items():
        valuation = value(train, val, semivalue, n_neighbors)
        cloned = value(train.part(times), val, semivalue, n_neighbors)
        bad = (valuation.rows().values < 0) & (whose == "fourth")
        for negative in ("floor", "signed"):
            honest = pay(valuation, train.X, whose, negative)
            copied = pay(cloned, train.part(times).X, whose[times], negative)
            shells = pay(valuation, train.X, np.where(bad, "shell", whose), negative)
            lines.append({
                "row semivalue": name, "negative": negative, "once": honest.get("first"),
                "three times": copied.get("first"), "honest": honest.get("fourth"),
                "with a shell": shells.get("fourth", np.nan) + shells.get("shell", np.nan),
            })  # fmt: skip
    return lines


def run(data: Path, seeds: range = range(5), neighbors: int = 5) -> Tables:
    """Return medians of amounts, and how many seeds could be split."""
    table = load("adult", data)
    table = Table(table.X[COLUMNS], table.y)
    lines = [line for seed in seeds for line in attack(table, seed, neighbors)]
    by = pd.DataFrame(lines).groupby(["row semivalue", "negative"], sort=False)
    rows, known = by.median(numeric_only=True).reset_index(), by.count()
    rows["could be split"] = [
        f"{a}, {b} of {len(seeds)}"
        for a, b in zip(known["once"], known["three times"], strict=True)
    ]
    return {"amounts": rows.to_dict("records")}
