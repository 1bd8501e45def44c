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
from experiments.tables import find

QUICK = {"sets": ("spoiled",)}
# Name, target and columns to exclude: ids and columns that the target was derived from.
CLASSES: dict[str, tuple[str, list[str]]] = {
    "adult_train": ("income", []),
    "credit_card_default": ("default_payment_next_month", ["ID"]),
    "breast_cancer_wisconsin_original": ("class", ["sample_code_number"]),
    "breast_cancer_2dshapley_train_clean": ("class", []),
    "breast_cancer_2dshapley_train_outliers": ("class", []),
    "wine": ("class", []),
    "lawschool": ("ugpagt3", ["ugpa"]),
    "electricity": ("class", []),
    "fried": ("binaryClass", ["target"]),
    "2dplanes": ("binaryClass", ["target"]),
    "pol": ("binaryClass", ["target"]),
    "musk": ("class", ["molecule_name", "conformation_name"]),
    "jannis_part": ("class", ["part"]),
    "gas_drift_part": ("class", []),
}
NUMBERS: dict[str, tuple[str, list[str]]] = {
    "lawschool": ("lsat", []),
    "electricity": ("nswprice", []),
    "fried": ("target", ["binaryClass"]),
    "2dplanes": ("target", ["binaryClass"]),
    "pol": ("target", ["binaryClass"]),
    "credit_card_default": ("BILL_AMT1", ["ID"]),
    "gas_drift_part": ("concentration", []),
}


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
    # By position, with new row ids, as after a read.
    parts = [
        (X.iloc[p].reset_index(drop=True), y.iloc[p].reset_index(drop=True)) for p in (one, other)
    ]
    return {"X": parts[0][0], "y": parts[0][1], "X_val": parts[1][0], "y_val": parts[1][1]}


def clean(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield cross-validation and held-out halves of all tables and of small samples."""
    for tables in (CLASSES, NUMBERS):
        for name, (target, drop) in tables.items():
            X, y = read(folder, name, target, drop)
            scoring = None if tables is CLASSES else "neg_mean_squared_error"
            yield f"{name} {target} cv", collect_warnings(X, y, scoring=scoring)
            for seed in range(3):
                yield (
                    f"{name} {target} half {seed}",
                    collect_warnings(**halves(X, y, seed), scoring=scoring),
                )
                some = np.random.default_rng(seed).permutation(len(y))[:150]
                part = X.iloc[some].reset_index(drop=True), y.iloc[some].reset_index(drop=True)
                yield f"{name} {target} 150 rows {seed}", collect_warnings(*part, scoring=scoring)
    X, y = read(folder, "adult_train", "income", [])
    X_val, y_val = read(folder, "adult_test", "income", [])
    yield "adult train and test", collect_warnings(X, y, X_val=X_val, y_val=y_val)
    part = {"columns": "fnlwgt"}
    yield (
        "adult without fnlwgt",
        collect_warnings(X.drop(**part), y, X_val=X_val.drop(**part), y_val=y_val),
    )


def spoil_tables(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield tables with one mistake each."""
    rng = np.random.default_rng(0)
    for name in ("wine", "adult_train", "breast_cancer_2dshapley_train_clean"):
        X, y = read(folder, name, *CLASSES[name])
        codes = pd.factorize(y)[0]
        yield f"{name}: target copied", collect_warnings(X.assign(again=y), y)
        yield (
            f"{name}: target as text",
            collect_warnings(X.assign(again=[f"class {c}" for c in codes]), y),
        )
        noisy = codes + rng.normal(0, 0.01, len(y))
        yield f"{name}: target and noise", collect_warnings(X.assign(again=noisy), y)
        recoded = np.array([7, -2, 30])[codes]
        yield f"{name}: target recoded", collect_warnings(X.assign(again=recoded), y)
        order = np.argsort(codes, kind="stable")
        ids = np.empty(len(y), dtype=int)
        ids[order] = np.arange(len(y))
        yield f"{name}: ids in the order of the target", collect_warnings(X.assign(number=ids), y)
        yield (
            f"{name}: whole table with its target",
            collect_warnings(X.assign(**{str(y.name): y}), y),
        )
        parts = halves(X, y, 0)
        n_both = max(len(y) // 20, 15)
        parts["X_val"] = pd.concat([parts["X_val"], parts["X"].head(n_both)], ignore_index=True)
        parts["y_val"] = pd.concat([parts["y_val"], parts["y"].head(n_both)], ignore_index=True)
        yield f"{name}: {n_both} rows in both", collect_warnings(**parts)
        yield f"{name}: validated on itself", collect_warnings(X, y, X_val=X, y_val=y)
    X, y = read(folder, "heart", "target", [])
    yield "heart: 302 different rows of 1,025, cv", collect_warnings(X, y)
    yield "heart: 302 different rows of 1,025, halves", collect_warnings(**halves(X, y, 0))
    X, y = read(folder, "musk", "class", [])
    yield "musk: names of molecules", collect_warnings(X, y)
    X, y = read(folder, "fried", "binaryClass", [])
    yield "fried: what the target was made from", collect_warnings(X, y)
    X, y = read(folder, "lawschool", "ugpagt3", [])
    yield "lawschool: what the target was made from", collect_warnings(X, y)


def run(data: Path, sets: tuple[str, ...] = ("clean", "spoiled")) -> Tables:
    """Return how many tables get a warning, and those that are wrong."""
    counts, wrong = [], []
    made = {"clean": clean, "spoiled": spoil_tables}
    for title in sets:
        checked = list(made[title](data))
        n_warned = sum(bool(sentences) for _, sentences in checked)
        counts.append({"tables": title, "get a warning": n_warned, "of": len(checked)})
        wrong += [
            {"table": what, "warnings": "; ".join(sentences) or "none"}
            for what, sentences in checked
            if bool(sentences) == (title == "clean")
        ]
    return {"tables with a warning": counts} | ({"wrong": wrong} if wrong else {})
