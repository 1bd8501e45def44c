"""Removal of cells in the order of their values, on five tables of the 2D-Shapley paper.

    python -m experiments paper_removal

Flags: --seeds 30, --sets wine heart, --rows 24 (training rows), --orders 500 (of 2D-MC and 1-D, as
in the paper), --keep FOLDER (parts that are finished, so that a run can go on).

The training table is small, because one permutation takes as many fits as the table has cells.
Values are computed with validation rows: by 2D-MC with an empty coalition worth nothing (as in the
paper) and worth the most frequent label, by 2D-KNN (K = 5), by 1-D Shapley values of single cells
("flattened"), and by 2D leave-one-out. The model is an unpruned tree, its score the accuracy, mean
of 10 fits. Random removal is the mean of 20 orders. Three protocols:

paper       a removed cell becomes the mean of the cells left in its column; scores are those on the
            same rows that the values were computed with
test, mean  the same, scores on rows that were not used
test, draw  a removed cell becomes a draw from the cells left in its column
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from cellworth import KNNValuer, Runtime
from experiments.frame import Row, Tables, compute_part, log, means
from experiments.tables import Table, draw_samples, load
from experiments.tree_games import (
    Rows,
    flat_values,
    leave_one_out_values,
    permutation_values,
    score,
)

QUICK = {"seeds": range(1), "sets": ("wine",), "rows": 12, "orders": 4}
SETS = ("adult", "credit", "breast original", "heart", "wine")
MAX_SCORED = 200
N_NEIGHBORS = 5
N_FITS = 10
N_RANDOM = 20
SHARES = np.arange(0.0, 0.61, 0.025)
_SUMMARY = slice(2, 9)  # 5% to 20%
PROTOCOLS = ("paper", "test, mean", "test, draw")
LOWEST, HIGHEST = "lowest first", "highest first"
RANDOM = "random"


class Split(NamedTuple):
    """Training rows, validation rows for values, and test rows."""

    train: Rows
    validation: Rows
    test: Rows


def run(
    data: Path,
    *,
    seeds: range = range(30),
    sets: tuple[str, ...] = SETS,
    rows: int = 24,
    orders: int = 500,
    keep: str = "",
) -> Tables:
    """Return the points against random removal and against no removal, and all curves."""
    curves: list[Row] = []
    halves: list[Row] = []
    for name in sets:
        table = load(name, data)
        if name == "adult":  # a census weight, which the authors' program omits, too
            table = Table(table.X.drop(columns="fnlwgt"), table.y)
        for seed in seeds:
            compute = partial(measure, table, seed, rows, orders)
            part = compute_part(keep, f"paper_removal, {(name, seed, rows, orders)}", compute)
            agreement, *found = part["rows"]
            halves.append({"table": name} | agreement)
            curves += [{"table": name, "seed": seed} | curve for curve in found]
            log(name, seed)
    every = pd.DataFrame(curves)
    return {
        "points against random removal": against_random(every),
        "points against no removal": against_nothing(every),
        "agreement of two halves of the orders": means(halves, ["table"]),
        "curves": mean_curves(every),
    }


def measure(table: Table, seed: int, n_rows: int, n_orders: int) -> list[Row]:
    """Return how well two halves of the orders agree, and after that the curves of a draw."""
    split = draw_split(table, n_rows, seed)
    found = dict(draws(split, n_orders, seed))
    values = {key: each.mean(axis=0) for key, each in found.items()} | others(split)
    return [{key: agree(each) for key, each in found.items()}, *all_curves(split, values, seed)]


def draw_split(table: Table, n_rows: int, seed: int) -> Split:
    """Draw training rows, and as many validation rows as test rows."""
    coded = Table(table.numbers().X, np.unique(table.y, return_inverse=True)[1])
    n_scored = min(MAX_SCORED, (len(table.y) - n_rows) // 2)
    parts = draw_samples(coded, n_rows, n_scored, n_scored, seed=seed)
    return Split(*(Rows(part.X.to_numpy(), part.y) for part in parts))


def draws(split: Split, n_orders: int, seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the values of each order, of the methods that draw orders."""
    train, validation, _ = split
    zero, prior = permutation_values(train, validation, n_orders, seed)
    yield from (("2D-MC, empty 0", zero), ("2D-MC", prior))
    yield "1-D, flattened", flat_values(train, validation, n_orders, seed)


def others(split: Split) -> dict[str, np.ndarray]:
    """Return the values of the methods without orders."""
    (X, y), (X_val, y_val), _ = split
    knn = KNNValuer(N_NEIGHBORS, scale="std", random_state=0, runtime=Runtime(progress=False))
    varied = np.ptp(X, axis=0) > 0
    values = np.zeros(X.shape)
    knn.fit(X[:, varied], y, X_val=X_val[:, varied], y_val=y_val)
    values[:, varied] = knn.values_
    return {"2D-KNN": values, "2D-LOO": leave_one_out_values(split.train, split.validation, N_FITS)}


def agree(values: np.ndarray) -> float:
    """Return the correlation of the values of two halves of the orders."""
    halves = (values[::2].mean(axis=0).ravel(), values[1::2].mean(axis=0).ravel())
    return float(np.corrcoef(*halves)[0, 1])


def all_curves(split: Split, values: dict[str, np.ndarray], seed: int) -> Iterator[Row]:
    """Yield the scores of all methods, in both orders and under all protocols."""
    rng = np.random.default_rng(seed)
    rankings = {name: by_value(each, rng) for name, each in values.items()}
    at_random = [rng.permutation(split.train.X.size) for _ in range(N_RANDOM)]
    for protocol in PROTOCOLS:
        for name, ranked in rankings.items():
            for order, each in ((LOWEST, ranked), (HIGHEST, ranked[::-1])):
                found = curve(split, each, protocol, rng, N_FITS)
                yield {"protocol": protocol, "method": name, "order": order, "scores": found}
        curves = [curve(split, each, protocol, rng, 1) for each in at_random]
        found = np.mean(curves, axis=0).tolist()
        for order in (LOWEST, HIGHEST):
            yield {"protocol": protocol, "method": RANDOM, "order": order, "scores": found}


def by_value(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the cells from the lowest value up, ties at random."""
    return np.lexsort((rng.random(values.size), values.ravel()))


def curve(
    split: Split, ranked: np.ndarray, protocol: str, rng: np.random.Generator, n_fits: int
) -> list[float]:
    """Return the accuracy after each share of cells was removed."""
    scored = split.validation if protocol == "paper" else split.test
    found = []
    for share in SHARES:
        removed = np.zeros(ranked.size, dtype=bool)
        removed[ranked[: round(share * ranked.size)]] = True
        mask = removed.reshape(split.train.X.shape)
        X = fill(split.train.X, mask, rng if protocol == "test, draw" else None)
        found.append(score(Rows(X, split.train.y), scored, n_fits)[0])
    return found


def fill(X: np.ndarray, removed: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
    """Return the table with removed cells filled from the others of their column."""
    filled = X.copy()
    for j, gone in enumerate(removed.T):
        left = X[~gone, j] if not gone.all() else X[:, j]
        filled[gone, j] = left.mean() if rng is None else rng.choice(left, gone.sum())
    return filled


def over_summary(scores: list[float]) -> float:
    """Return the mean over 5% to 20% of cells removed, in points."""
    return 100 * float(np.mean(scores[_SUMMARY]))


def against_random(curves: pd.DataFrame) -> list[Row]:
    """Return the difference from random removal, mean over tables and for each table."""
    by = ["protocol", "order", "table", "seed"]
    base = {
        tuple(row[key] for key in by): over_summary(row["scores"])
        for row in curves[curves["method"] == RANDOM].to_dict("records")
    }
    lines = [
        {key: row[key] for key in ("protocol", "order", "method", "table")}
        | {"points": over_summary(row["scores"]) - base[tuple(row[key] for key in by)]}
        for row in curves[curves["method"] != RANDOM].to_dict("records")
    ]
    return list_tables(lines)


def against_nothing(curves: pd.DataFrame) -> list[Row]:
    """Return the difference from the score of the whole table, lowest cells removed."""
    lines = [
        {key: row[key] for key in ("protocol", "order", "method", "table")}
        | {"points": over_summary(row["scores"]) - 100 * row["scores"][0]}
        for row in curves[curves["order"] == LOWEST].to_dict("records")
    ]
    return list_tables(lines)


def list_tables(lines: list[Row]) -> list[Row]:
    """Return a row per method with the mean over tables and the mean of each."""
    by = ["protocol", "order", "method"]
    rows, of_tables = means(lines, by, "table"), means(lines, [*by, "table"])
    for row in rows:
        same = [each for each in of_tables if all(each[key] == row[key] for key in by)]
        row |= {each["table"]: each["points"] for each in same}
    return rows


def mean_curves(curves: pd.DataFrame) -> list[Row]:
    """Return each curve as a string of per mille, mean over seeds."""
    by = ["protocol", "table", "order", "method"]
    return [
        dict(zip(by, key, strict=True))
        | {
            "accuracy, per mille": " ".join(
                f"{1000 * x:.0f}" for x in np.mean(part["scores"].tolist(), axis=0)
            )
        }
        for key, part in curves.groupby(by, sort=False)
    ]


def draw(tables: dict[str, Any]) -> Any:
    """Draw the curves of all tables, lowest and highest first, scored on test rows."""
    import matplotlib.pyplot as plt

    lines = [row for row in tables["curves"] if row["protocol"] == "test, mean"]
    names = list(dict.fromkeys(row["table"] for row in lines))
    methods = list(dict.fromkeys(row["method"] for row in lines))
    figure, axes = plt.subplots(
        2, len(names), figsize=(1.7 * len(names) + 0.5, 3.4), sharex=True, squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for row in lines:
        ax = axes[int(row["order"] == HIGHEST), names.index(row["table"])]
        accuracy = [int(x) / 1000 for x in row["accuracy, per mille"].split()]
        color = "0.6" if row["method"] == RANDOM else f"C{methods.index(row['method'])}"
        ax.plot(SHARES, accuracy, color=color, linewidth=1, label=row["method"])
        ax.tick_params(labelsize=6)
    for ax, name in zip(axes[0], names, strict=True):
        ax.set_title(name, fontsize=8)
    for ax, order in zip(axes[:, 0], (LOWEST, HIGHEST), strict=True):
        ax.set_ylabel(f"accuracy, {order}", fontsize=8)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(methods), fontsize=7)
    figure.supxlabel("share of cells removed", fontsize=8)
    return figure
