"""Count the warnings of data checks on real tables: none on clean ones, some on flawed ones."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cellworth import DataWarning, KNNValuer
from experiments.frame import Tables
from experiments.tables import FILES, find

QUICK = {"sets": ("spoiled",)}
# File, target and columns that the target was derived from; ids are always excluded.
CLASSES = {
    **{file: (target, dropped) for file, target, dropped in FILES.values() if file != "heart"},
    "breast_cancer_2dshapley_train_clean": ("class", []),
    "breast_cancer_2dshapley_train_outliers": ("class", []),
    "wine": ("class", []),
    "gas_drift_part": ("class", []),
}
NUMBERS = {
    "lawschool": ("lsat", []),
    "electricity": ("nswprice", []),
    "fried": ("target", ["binaryClass"]),
    "2dplanes": ("target", ["binaryClass"]),
    "pol": ("target", ["binaryClass"]),
    "credit_card_default": ("BILL_AMT1", ["ID"]),
    "gas_drift_part": ("concentration", []),
}
Case = tuple[str, dict[str, Any]]


def read(folder: Path, name: str, target: str, drop: list[str]) -> tuple[pd.DataFrame, pd.Series]:
    """Return the table without excluded columns, and the labels."""
    table = pd.read_csv(find(name, folder))
    left = [column for column in drop if column in table]
    return table.drop(columns=[target, *left]), table[target]


def collect_warnings(X: Any, y: Any, **given: Any) -> list[str]:
    """Return the warnings that a fit would give."""
    valuer = KNNValuer(scoring=given.pop("scoring", None))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        valuer._inspect_columns(valuer._make_game(X, y, **given))
    return [str(one.message) for one in caught if one.category is DataWarning]


def halves(X: pd.DataFrame, y: pd.Series, seed: int) -> dict[str, Any]:
    """Return arguments of fit: a random half for training and one for validation."""
    order = np.random.default_rng(seed).permutation(len(y))
    one, other = order[: len(y) // 2], order[len(y) // 2 :]
    return some_rows(X, y, one) | {f"{key}_val": x for key, x in some_rows(X, y, other).items()}


def some_rows(X: pd.DataFrame, y: pd.Series, rows: np.ndarray) -> dict[str, Any]:
    """Return rows with new row ids, as after a read."""
    return {key: each.iloc[rows].reset_index(drop=True) for key, each in (("X", X), ("y", y))}


def clean(folder: Path) -> Iterator[Case]:
    """Yield cross-validation and held-out halves of all tables and of small samples."""
    for tables in (CLASSES, NUMBERS):
        for name, (target, drop) in tables.items():
            X, y = read(folder, name, target, drop)
            scored = {"scoring": None if tables is CLASSES else "neg_mean_squared_error"}
            yield f"{name} {target} cv", {"X": X, "y": y} | scored
            for seed in range(3):
                yield f"{name} {target} half {seed}", halves(X, y, seed) | scored
                some = np.random.default_rng(seed).permutation(len(y))[:150]
                yield f"{name} {target} 150 rows {seed}", some_rows(X, y, some) | scored
    (X, y), (X_val, y_val) = (read(folder, f"adult_{s}", "income", []) for s in ("train", "test"))
    yield "adult train and test", {"X": X, "y": y, "X_val": X_val, "y_val": y_val}
    X, X_val = (part.drop(columns="fnlwgt") for part in (X, X_val))
    yield "adult without fnlwgt", {"X": X, "y": y, "X_val": X_val, "y_val": y_val}


def spoil_tables(folder: Path) -> Iterator[Case]:
    """Yield tables with one mistake each."""
    rng = np.random.default_rng(0)
    for name in ("wine", "adult_train", "breast_cancer_2dshapley_train_clean"):
        X, y = read(folder, name, *CLASSES[name])
        codes = pd.factorize(y)[0]
        ids = np.empty(len(y), dtype=int)
        ids[np.argsort(codes, kind="stable")] = np.arange(len(y))
        added = {
            "target copied": {"again": y},
            "target as text": {"again": [f"class {code}" for code in codes]},
            "target and noise": {"again": codes + rng.normal(0, 0.01, len(y))},
            "target recoded": {"again": np.array([7, -2, 30])[codes]},
            "ids in the order of the target": {"number": ids},
            "whole table with its target": {str(y.name): y},
        }
        for mistake, column in added.items():
            yield f"{name}: {mistake}", {"X": X.assign(**column), "y": y}
        parts = halves(X, y, 0)
        n_both = max(len(y) // 20, 15)
        for key in ("X", "y"):
            both = [parts[f"{key}_val"], parts[key].head(n_both)]
            parts[f"{key}_val"] = pd.concat(both, ignore_index=True)
        yield f"{name}: {n_both} rows in both", parts
        yield f"{name}: validated on itself", {"X": X, "y": y, "X_val": X, "y_val": y}
    X, y = read(folder, "heart", "target", [])
    yield "heart: 302 different rows of 1,025, cv", {"X": X, "y": y}
    yield "heart: 302 different rows of 1,025, halves", halves(X, y, 0)
    for name, target, hint in (
        ("musk", "class", "names of molecules"),
        ("fried", "binaryClass", "what the target was made from"),
        ("lawschool", "ugpagt3", "what the target was made from"),
    ):
        X, y = read(folder, name, target, [])
        yield f"{name}: {hint}", {"X": X, "y": y}


def run(data: Path, sets: tuple[str, ...] = ("clean", "spoiled")) -> Tables:
    """Return how many tables get a warning, and those that are wrong."""
    counts, wrong = [], []
    made = {"clean": clean, "spoiled": spoil_tables}
    for title in sets:
        checked = [(what, collect_warnings(**given)) for what, given in made[title](data)]
        n_warned = sum(bool(sentences) for _, sentences in checked)
        counts.append({"tables": title, "get a warning": n_warned, "of": len(checked)})
        wrong += [
            {"table": what, "warnings": "; ".join(sentences) or "none"}
            for what, sentences in checked
            if bool(sentences) == (title == "clean")
        ]
    return {"tables with a warning": counts} | ({"wrong": wrong} if wrong else {})
