"""Tables of the benchmarks: five for time to accuracy, and others that chose no parameter."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn import datasets

from cellworth.data.datasets import table_folder

_BESIDE = Path(__file__).parents[2] / "shared" / "data"
# By environment, beside the checkout, or the user's cache.
FOLDER = table_folder(None if "CELLWORTH_DATA" in os.environ or not _BESIDE.is_dir() else _BESIDE)


class Data(NamedTuple):
    """A training table with labels, and queries with labels."""

    X: pd.DataFrame
    y: np.ndarray
    X_val: pd.DataFrame
    y_val: np.ndarray

    @property
    def encoded(self):
        """Return both tables as numbers, strings as codes."""
        both = pd.concat([self.X, self.X_val])
        for name in both.columns:
            if not pd.api.types.is_numeric_dtype(both[name]):
                both[name] = both[name].astype("category").cat.codes
        numbers = both.to_numpy(dtype=float)
        return numbers[: len(self.X)], numbers[len(self.X) :]


def load(name: str, folder: Path, n_train: int | None = None, n_queries: int | None = None) -> Data:
    """Load a table by its short name; the splits are fixed by a seed.

    Numbers of rows replace the usual ones; there may be fewer.
    """
    if name == "breast9":
        train = pd.read_csv(folder / "breast_cancer_2dshapley_train_clean.csv.gz")
        test = pd.read_csv(folder / "breast_cancer_2dshapley_test.csv.gz")
        columns = [c for c in train if c not in ("row", "class")]
        return Data(
            train[columns], train["class"].to_numpy(), test[columns], test["class"].to_numpy()
        )
    if name == "adult":
        train, test = (
            pd.read_csv(folder / f"adult_{side}.csv.gz").sample(size, random_state=0)
            for side, size in (("train", n_train or 2000), ("test", n_queries or 200))
        )
        return Data(
            train.drop(columns="income"), train["income"].to_numpy(),
            test.drop(columns="income"), test["income"].to_numpy(),
        )  # fmt: skip
    X, y, usual_train, usual_queries = _load_table(name, folder)
    n_train, n_queries = n_train or usual_train, n_queries or usual_queries
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:n_train], order[n_train : n_train + n_queries]
    X = X.reset_index(drop=True)
    return Data(X.iloc[train], y[train], X.iloc[test], y[test])


def _load_table(name, folder):
    if name in ("wine", "breast30", "digits"):
        loader, n_train, n_test = {
            "wine": (datasets.load_wine, 106, 72),
            "breast30": (datasets.load_breast_cancer, 341, 228),
            "digits": (datasets.load_digits, 400, 200),
        }[name]
        X, y = loader(return_X_y=True)
        return pd.DataFrame(X).add_prefix("x"), y, n_train, n_test
    if name == "correlated":
        return *_make_correlated(), 1000, 64
    file, target, dropped, n_train, n_test = {
        "credit": ("credit_card_default", "default_payment_next_month", ["ID"], 1000, 100),
        "heart": ("heart", "target", [], 300, 150),
        "lawschool": ("lawschool", "ugpagt3", ["ugpa"], 500, 100),
        "pol": ("pol", "binaryClass", ["target"], 400, 100),
        "jannis": ("jannis_part", "class", ["part"], 400, 100),
        "musk": ("musk", "class", ["molecule_name", "conformation_name"], 500, 100),
        # Numeric targets
        "fried": ("fried", "target", ["binaryClass"], 500, 100),
        "gas": ("gas_drift_part", "concentration", ["class", "batch"], 400, 100),
    }[name]
    table = pd.read_csv(folder / f"{file}.csv.gz").drop(columns=dropped)
    y = table.pop(target).to_numpy()
    return table, np.log(y) if name == "gas" else y, n_train, n_test


def _make_correlated():
    """Make 300 columns from 20 hidden ones; the first hidden ones decide the class."""
    rng = np.random.default_rng(0)
    hidden = rng.standard_normal((2000, 20))
    X = hidden @ rng.standard_normal((20, 300)) / 20**0.5 + rng.standard_normal((2000, 300))
    y = (hidden[:, :3].sum(axis=1) + rng.standard_normal(2000) > 0).astype(int)
    return pd.DataFrame(X).add_prefix("x"), y
