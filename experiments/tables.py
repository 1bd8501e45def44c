"""Tables of the experiments, read from a local folder or downloaded, and their feature columns."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn import datasets
from sklearn.model_selection import train_test_split

from cellworth.data import fetch_adult, fetch_table

# File, target, columns that are not features.
_FILES = {
    "breast original": ("breast_cancer_wisconsin_original", "class", ["sample_code_number"]),
    "credit": ("credit_card_default", "default_payment_next_month", ["ID"]),
    "electricity": ("electricity", "class", []),
    "heart": ("heart", "target", []),
    "adult": ("adult_train", "income", []),
    "lawschool": ("lawschool", "ugpagt3", ["ugpa"]),
    "pol": ("pol", "binaryClass", ["target"]),
    "fried": ("fried", "binaryClass", ["target"]),
    "2dplanes": ("2dplanes", "binaryClass", ["target"]),
    "jannis": ("jannis_part", "class", ["part"]),
}


class Table(NamedTuple):
    """A table of features and its labels."""

    X: pd.DataFrame
    y: np.ndarray

    def part(self, rows: np.ndarray) -> Table:
        """Return these rows with new row numbers."""
        return Table(self.X.iloc[rows].reset_index(drop=True), self.y[rows])

    def numbers(self) -> Table:
        """Return all columns standardized, strings as codes, without constants."""
        coded = self.X.apply(
            lambda c: c if pd.api.types.is_numeric_dtype(c) else c.astype("category").cat.codes
        )
        varied = coded.loc[:, coded.nunique() > 1].astype(float)
        return Table((varied - varied.mean()) / varied.std(ddof=0), self.y)


def load(name: str, folder: Path) -> Table:
    """Load a table without rows with missing values and repeated rows (heart)."""
    if name == "breast 30":
        X, y = datasets.load_breast_cancer(return_X_y=True, as_frame=True)
        return Table(X, y.to_numpy())
    if name == "wine":
        X, y = datasets.load_wine(return_X_y=True, as_frame=True)
        return Table(X.rename(columns=lambda column: column.replace("/", "_")), y.to_numpy())
    file, target, dropped = _FILES[name]
    table = pd.read_csv(find(file, folder)).drop(columns=dropped).dropna()
    if name == "heart":
        table = table.drop_duplicates()
    table = table.reset_index(drop=True)
    y = table.pop(target).to_numpy()
    return Table(table, y)


def find(file: str, folder: Path) -> Path:
    """Return the path of a table in a folder; one with a public home is downloaded if missing."""
    path = folder / f"{file}.csv.gz"
    if path.exists():
        return path
    if file.startswith("adult_"):
        return fetch_adult(file.removeprefix("adult_"), folder=folder)
    return fetch_table(file, folder=folder)


def draw_samples(table: Table, *sizes: int, seed: int) -> list[Table]:
    """Draw disjoint random samples of these sizes, stratified by class."""
    rows, parts = np.arange(len(table.y)), []
    for size in sizes:
        if len(rows) > size:
            part, rows = train_test_split(
                rows, train_size=size, stratify=table.y[rows], random_state=seed
            )
        else:
            part, rows = rows, rows[:0]
        parts.append(table.part(part))
    return parts
