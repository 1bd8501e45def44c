"""How often compare_models gives a verdict, with and without an effect.

    python -m experiments verdicts --repeats 5 --only real

Five tables, three models, balanced accuracy on held-out rows. In changes without an effect, before
and after are two draws of the same kind, so neither can be better:

- 23 cells or 5% of all cells hold one draw from their column before, another one after;
- 23 cells before and after differ by a thousandth of their column's standard deviation;
- a column of pure noise holds new noise in every row.

In real changes, wrong cells get their true values back:

- 5% or 16% of all cells had the value of a row of another class;
- 5% of the rows, or a single one, had a decimal point slip in the most predictive column.

It first tests the rule alone, on normal numbers: splits share part of their noise; the rest
averages out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from cellworth.findings import compare_models
from cellworth.findings.held_out import compute_half_width, estimate_training_variance
from experiments.frame import Tables, log
from experiments.tables import Table, draw_samples, load

QUICK = {"seeds": range(1), "sets": ("wine",), "repeats": 2, "only": "real"}
# Training and held-out rows of each table.
SIZES = {
    "adult": (500, 1500),
    "credit": (500, 1500),
    "electricity": (500, 1500),
    "breast 30": (280, 289),
    "wine": (89, 89),
}
MODELS = {
    "LightGBM": LGBMClassifier(n_estimators=30, n_jobs=1, verbose=-1, random_state=0),
    "HistGradientBoosting": HistGradientBoostingClassifier(max_iter=20, random_state=0),
    "logistic regression": LogisticRegression(max_iter=300),
}
FEW = 23


class Change(NamedTuple):
    """A table before and after, and held-out rows."""

    before: np.ndarray
    after: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def run(
    data: Path,
    *,
    seeds: range = range(4),
    sets: tuple[str, ...] = tuple(SIZES),
    repeats: int = 10,
    only: str = "",
) -> Tables:
    """Return false verdicts of the rule, and verdicts with and without an effect."""
    found = {"the rule alone": of_the_rule().reset_index().to_dict("records")}
    for title, changes in {"no effect": NULL, "real": REAL}.items():
        if only in title:
            each = pd.DataFrame(verdicts(data, seeds, sets, repeats, changes))
            found |= {f"{title}, {by}": rows for by, rows in report(each).items()}
    return found


def of_the_rule(n_runs: int = 4_000) -> pd.DataFrame:
    """Return false verdicts in %, by the share of common noise and by splits."""
    rng = np.random.default_rng(0)
    shares = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)
    found = {}
    for n_splits in (5, 10, 20):
        found[f"{n_splits} splits"] = [
            100 * np.mean([false_verdict(share, n_splits, rng) for _ in range(n_runs)])
            for share in shares
        ]
    named = pd.Index(shares, name="shared part of the noise")
    return pd.DataFrame(found, index=named).round(1)


def false_verdict(shared: float, n_splits: int, rng: np.random.Generator) -> bool:
    """Return whether the interval of differences around 0 excludes 0."""
    common = np.sqrt(shared) * rng.normal()
    contrast = np.sqrt(shared) * rng.normal(size=n_splits)
    own = np.sqrt(1 - shared) * rng.normal(size=(2, n_splits))
    mean, half = common + own[0], contrast + own[1]
    differences = np.column_stack([mean + half, mean - half])
    return bool(
        abs(differences.mean()) > compute_half_width([estimate_training_variance(differences)])
    )


def verdicts(
    data: Path, seeds: range, sets: tuple[str, ...], repeats: int, changes: dict[str, Kind]
) -> list[dict[str, Any]]:
    found = []
    for name, seed in product(sets, seeds):
        train, test = draw_samples(load(name, data).numbers(), *SIZES[name], seed=seed)
        for kind, model in product(changes, MODELS):
            # The same change for every model.
            change = changes[kind](train, test, np.random.default_rng([seed, *kind.encode()]))
            compared = compare(MODELS[model], change, repeats, seed)
            found.append(
                {"change": kind, "model": model, "set": name}
                | {"verdict": compared.verdict, "points": 100 * compared.change}
                | {"once": 100 * (compared.on_all_rows[1] - compared.on_all_rows[0])}
            )
        log(name, seed)
    return found


def compare(model: Any, change: Change, n_repeats: int, seed: int) -> Any:
    with warnings.catch_warnings():
        # Some rows of these tables repeat others.
        warnings.filterwarnings("ignore", message=".* rows of X_test are rows of X")
        return compare_models(
            model, change.before, change.y, X_repaired=change.after, X_test=change.X_test,
            y_test=change.y_test, scoring="balanced_accuracy", n_repeats=n_repeats,
            random_state=seed, progress=False,
        )  # fmt: skip


def redraw(n_cells: int | None) -> Kind:
    """Return two tables with different draws in some cells."""

    def change(train: Table, test: Table, rng: np.random.Generator) -> Change:
        X = train.X.to_numpy()
        rows, columns = some_cells(X, n_cells or round(0.05 * X.size), rng)
        before, after = X.copy(), X.copy()
        for side in (before, after):
            side[rows, columns] = X[rng.integers(len(X), size=len(rows)), columns]
        return Change(before, after, train.y, test.X.to_numpy(), test.y)

    return change


def nudge(train: Table, test: Table, rng: np.random.Generator) -> Change:
    """Return two tables that differ from the true one by a thousandth in a few cells."""
    X = train.X.to_numpy()
    cells = some_cells(X, FEW, rng)
    before, after = X.copy(), X.copy()
    for side in (before, after):
        side[cells] += 1e-3 * rng.normal(size=FEW)
    return Change(before, after, train.y, test.X.to_numpy(), test.y)


def other_noise(train: Table, test: Table, rng: np.random.Generator) -> Change:
    """Return two tables with different noise in a column of noise."""
    before, after, X_test = (
        np.column_stack([X, rng.normal(size=len(X))]) for X in (train.X, train.X, test.X)
    )
    return Change(before, after, train.y, X_test, test.y)


def restore(share: float) -> Kind:
    """Restore cells that had the value of a row of another class."""

    def change(train: Table, test: Table, rng: np.random.Generator) -> Change:
        X, y = train.X.to_numpy(), train.y
        rows, columns = some_cells(X, round(share * X.size), rng)
        others = [rng.choice(np.flatnonzero(y != y[row])) for row in rows]
        wrong = X.copy()
        wrong[rows, columns] = X[others, columns]
        return Change(wrong, X, y, test.X.to_numpy(), test.y)

    return change


def slips(share: float | None) -> Kind:
    """Restore numbers of the most predictive column that were ten times too large."""

    def change(train: Table, test: Table, rng: np.random.Generator) -> Change:
        X, y = train.X.to_numpy(), train.y
        last = y == np.unique(y)[-1]
        column = int(np.argmax([abs(np.corrcoef(cells, last)[0, 1]) for cells in X.T]))
        rows = rng.choice(len(X), 1 if share is None else round(share * len(X)), replace=False)
        low = X[:, column].min()
        wrong = X.copy()
        wrong[rows, column] = low + 10 * (X[rows, column] - low)
        if share is None:
            # One cell is a large number for sure, and more than one point too far.
            wrong[rows, column] = low + 1000 * np.ptp(X[:, column])
        return Change(wrong, X, y, test.X.to_numpy(), test.y)

    return change


def some_cells(X: np.ndarray, n_cells: int, rng: np.random.Generator) -> tuple[Any, ...]:
    return np.unravel_index(rng.choice(X.size, n_cells, replace=False), X.shape)


Kind = Callable[[Table, Table, np.random.Generator], Change]
NULL: dict[str, Kind] = {
    "23 cells redrawn": redraw(FEW),
    "5% of cells redrawn": redraw(None),
    "23 cells nudged": nudge,
    "other noise": other_noise,
}
REAL: dict[str, Kind] = {
    "5% of cells": restore(0.05),
    "16% of cells": restore(0.16),
    "slips in 5% of rows": slips(0.05),
    "one slip": slips(None),
}


def report(found: pd.DataFrame) -> dict[str, list[dict[str, Any]]]:
    groups = {"by change": ["change"], "by model": ["model"], "by table": ["set"]}
    tables = {title: rates(found.groupby(by, sort=False)) for title, by in groups.items()}
    return {title: rows.reset_index().to_dict("records") for title, rows in tables.items()}


def rates(groups: Any) -> pd.DataFrame:
    """Return verdicts in % of comparisons, their standard errors, and differences in points."""
    columns = {"comparisons": groups.size()}
    for verdict in ("helped", "hurt"):
        share = groups["verdict"].agg(lambda each, said=verdict: np.mean(each == said))
        columns |= {f"{verdict}, %": 100 * share}
        columns |= {f"{verdict}, error": 100 * np.sqrt(share * (1 - share) / groups.size())}
    columns |= {"points": groups["points"].mean(), "root of mean square": root(groups["points"])}
    columns |= {"of one training": root(groups["once"])}
    return pd.DataFrame(columns).round(1)


def root(points: Any) -> pd.Series:
    return points.agg(lambda each: np.sqrt(np.mean(np.square(each))))
