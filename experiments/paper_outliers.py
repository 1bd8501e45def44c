"""The outliers of the 2D-Shapley paper: where its values put them, and its published values again.

The authors' breast-cancer table has 43 altered cells among 241 x 9. Cells are inspected from the
lowest value up, among all rows or those of one class; the paper plots the benign ones. Then their
scripts are transcribed: K = 10, raw distances, 1,000 orders of the columns from
``numpy.random.seed(0 ... 999)``, the first column of an order gets nothing, and the sort decides
the order of rows at the same distance. Then other shares of the clean table's cells are altered, as
error A of detection.py and as the authors did: the normal density of the cell's class is below 5%
at all 43 altered cells of their file, that of the whole column at 14. Last, exact values of other
settings are compared with the usual ones: how alike they are, and how many outliers they find if 2%
of the cells are altered as in the authors' file.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from cellworth import KNNValuer, OutOfBagValuer, Runtime
from cellworth.findings import anomaly_scores
from cellworth.sampling import Banzhaf, Beta, LeaveOneOut
from experiments.detection import FIRST, Case, authors_case, inspect, rare, share_found
from experiments.frame import Mean, Row, Tables, log, means
from experiments.paper import value_ranks
from experiments.tree_games import Rows, flat_values

QUICK = {"seeds": range(1), "trees": 5, "shares": (0.02,), "orders": 20, "flat_orders": 1}
N_NEIGHBORS = 10
BENIGN, MALIGNANT = 2, 4
N_INSPECTED = 200
LOW_DENSITY = 0.05
N_SEEDS_OF_SETTINGS = 3
# Setting, choice, options of the valuer.
SETTINGS: list[tuple[str, str, dict[str, Any]]] = [
    ("usual", "K = 10, all 242 rows, Shapley, empty 0", {}),
    *(("K", str(k), {"n_neighbors": k}) for k in (1, 5, 20, 50)),
    *(("validation rows", str(n), {}) for n in (10, 30, 100)),
    ("semivalue", "Banzhaf", {"semivalue": Banzhaf()}),
    ("semivalue", "Beta(4, 1)", {"semivalue": Beta(4, 1)}),
    ("semivalue", "leave one out", {"semivalue": LeaveOneOut()}),
    ("empty", "prior", {"empty": "prior"}),
]


def run(
    data: Path,
    *,
    seeds: range = range(20),
    trees: int = 200,
    shares: tuple[float, ...] = (0.01, 0.02, 0.05, 0.10, 0.15),
    orders: int = 1000,
    flat_orders: int = 500,
    parts: tuple[str, ...] = ("authors", "shares", "settings"),
) -> Tables:
    """Return the shares of outliers found, the reproduction of values, and the ablations."""
    spoiled, clean = authors_case(data), read_clean(data)
    published = {name: read_values(data, name) for name in ("outliers", "clean")}
    found: Tables = {}
    if "authors" in parts:
        found["outliers found in the first cells"] = locate(
            spoiled, published["outliers"], trees, flat_orders
        )
        found["published values"] = [
            row
            for name, case in (("outliers", spoiled), ("clean", clean))
            for row in reproduce(name, case, published[name], orders, seeds)
        ]
    if "shares" in parts:
        found["other shares of outliers"] = ablate(clean, shares, seeds)
    if "settings" in parts:
        found["settings"] = compare_settings(clean, seeds[:N_SEEDS_OF_SETTINGS])
    return found


def read_clean(data: Path) -> Case:
    """Return the table before cells were altered."""
    given = authors_case(data)
    train = pd.read_csv(data / "breast_cancer_2dshapley_train_clean.csv.gz")
    return given._replace(X=train.drop(columns=["row", "class"]).to_numpy(dtype=float))


def read_values(data: Path, name: str) -> np.ndarray:
    file = data / f"breast_cancer_2dshapley_values_{name}.csv.gz"
    return pd.read_csv(file).drop(columns="row").to_numpy()


def exact_values(given: Case, **options: Any) -> np.ndarray:
    """Return the values of the paper's definition: all subsets of columns, ties averaged."""
    settings = {"n_neighbors": N_NEIGHBORS, "scale": None, "empty": "zero"} | options
    valuer = KNNValuer(**settings, runtime=Runtime(progress=False))
    return valuer.fit(given.X, given.y, X_val=given.X_val, y_val=given.y_val).values_


def find_shares(given: Case, score: np.ndarray) -> list[Row]:
    """Return the share of altered cells among the first, for all rows and for each class.

    "all after" is the share of cells that are inspected until the last altered one is found.
    """
    parts = {"all": given.y != 0, "benign": given.y == BENIGN, "malignant": given.y == MALIGNANT}
    lines = []
    for name, rows in parts.items():
        wrong, part = given.wrong[rows], score[rows]
        firsts = {f"{share:.0%}": share for share in FIRST}
        firsts[f"{N_INSPECTED} cells"] = N_INSPECTED / wrong.size
        lines.append(
            {"rows": name, "outliers": int(wrong.sum())}
            | {f"first {said}": share_found(wrong, part, share) for said, share in firsts.items()}
            | {"all after": find_last(wrong, part)}
        )
    return lines


def find_last(wrong: np.ndarray, score: np.ndarray) -> float:
    """Return the share of cells down to the last wrong one, NaN if none is wrong."""
    if not wrong.any():
        return np.nan
    return float((np.flatnonzero(inspect(wrong, score))[-1] + 1) / wrong.size)


def locate(given: Case, published: np.ndarray, n_trees: int, n_orders: int) -> list[Row]:
    quiet = Runtime(progress=False)
    trees = OutOfBagValuer(n_trees=n_trees, random_state=0, runtime=quiet).fit(given.X, given.y)
    exact = exact_values(given)
    codes = (given.y == MALIGNANT).astype(int), (given.y_val == MALIGNANT).astype(int)
    flat = flat_values(Rows(given.X, codes[0]), Rows(given.X_val, codes[1]), n_orders, seed=0)
    scores = {
        "published values": -published,
        "exact 2D-KNN values": -exact,
        "row values of these": -np.broadcast_to(exact.sum(axis=1, keepdims=True), exact.shape),
        f"1-D, flattened, {n_orders} orders": -flat.mean(axis=0),
        f"2D-OOB, {n_trees} trees": -trees.values_,
        "anomaly score": anomaly_scores(given.X, given.y),
    }
    log("outliers located")
    return [
        {"ranking": name} | line for name, score in scores.items()
        for line in find_shares(given, score)
    ]  # fmt: skip


def ablate(clean: Case, shares: tuple[float, ...], seeds: range) -> list[Row]:
    """Return the shares found by exact values if other shares of cells are altered."""
    lines = []
    for share in shares:
        for seed in seeds:
            X, wrong = rare(clean.X, clean.y, np.random.default_rng(seed), share)
            ways = {
                "error A": clean._replace(X=X, wrong=wrong),
                "as the authors": plant(clean, np.random.default_rng(seed), share),
            }
            for way, given in ways.items():
                every, benign, _ = find_shares(given, -exact_values(given))
                lines += [
                    {"altered": f"{share:.0%}", "how": way} | line for line in (every, benign)
                ]
        log("altered", share)
    return means(lines, ["altered", "how", "rows"])


def plant(clean: Case, rng: np.random.Generator, share: float) -> Case:
    """Alter cells as the authors' file has it: integers of low density in their class."""
    X, wrong = clean.X.copy(), np.zeros(clean.X.shape, dtype=bool)
    for cell in rng.permutation(X.size):
        if wrong.sum() >= round(share * X.size):
            break
        row, column = divmod(int(cell), X.shape[1])
        alike = clean.X[clean.y == clean.y[row], column]
        numbers = np.arange(clean.X[:, column].min(), clean.X[:, column].max() + 1)
        low = norm.pdf(numbers, alike.mean(), alike.std(ddof=1)) < LOW_DENSITY
        others = numbers[low & (numbers != X[row, column])]
        if len(others):
            X[row, column], wrong[row, column] = rng.choice(others), True
    return clean._replace(X=X, wrong=wrong)


def compare_settings(clean: Case, seeds: range) -> list[Row]:
    """Compare exact values of other settings with those of the usual ones."""
    usual = exact_values(clean)
    lines = []
    for (setting, choice, options), seed in product(SETTINGS, seeds):
        spoiled = plant(clean, np.random.default_rng(seed), 0.02)
        if setting == "validation rows":
            some = np.random.default_rng(seed).permutation(len(clean.y_val))[: int(choice)]
            clean_part, spoiled = (
                case._replace(X_val=case.X_val[some], y_val=case.y_val[some])
                for case in (clean, spoiled)
            )
            values = exact_values(clean_part)
        elif seed == seeds[0]:
            values = exact_values(clean, **options)
        of_spoiled = exact_values(spoiled, **options)
        lines.append(
            {"setting": setting, "choice": choice}
            | {"correlation": float(np.corrcoef(values.ravel(), usual.ravel())[0, 1])}
            | {"lowest 5% in common": overlap(values, usual)}
            | {"found in the first 5%": share_found(spoiled.wrong, -of_spoiled, 0.05)}
        )
    log("settings")
    return means(lines, ["setting", "choice"])


def reproduce(
    name: str, given: Case, published: np.ndarray, n_orders: int, seeds: range
) -> list[Row]:
    """Compare the published values with transcriptions that differ in the order of ties."""
    ties: dict[str, list[Any]] = {
        "introsort": [sort_like_the_authors],
        "stable": [lambda distances: np.argsort(distances, axis=1, kind="stable")],
        "random": [random_ties(seed) for seed in seeds],
    }
    rows = []
    for tie, sorts in ties.items():
        found = [transcribe(given, sort, n_orders) for sort in sorts]
        alike = Mean.of(float(np.corrcoef(v.ravel(), published.ravel())[0, 1]) for v in found)
        apart = max(float(np.abs(v - published).max()) for v in found)
        lowest = Mean.of(overlap(v, published) for v in found)
        rows.append(
            {"file": name, "ties": tie, "correlation": alike, "largest difference": f"{apart:.1e}"}
            | {"lowest 5% in common": lowest}
        )
    largest = f"{np.abs(published).max():.1e}"
    log(name, "transcribed; the largest published value is", largest)
    return rows


def overlap(values: np.ndarray, published: np.ndarray) -> float:
    """Return the share of the lowest 5% of cells that two rankings have in common."""
    n_cells = round(0.05 * values.size)
    lowest = [set(np.argsort(v, axis=None, kind="stable")[:n_cells]) for v in (values, published)]
    return len(lowest[0] & lowest[1]) / n_cells


def random_ties(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return lambda distances: np.lexsort((rng.random(distances.shape), distances), axis=1)


def transcribe(given: Case, sort: Any, n_orders: int) -> np.ndarray:
    """Return the values of the authors' scripts.

    The values of rows depend on the set of columns alone, because distances are integers:
    each of the 511 sets is sorted once.
    """
    n_columns = given.X.shape[1]
    squares = np.square(given.X[np.newaxis] - given.X_val[:, np.newaxis])
    match = (given.y == given.y_val[:, np.newaxis]).astype(float)
    known: dict[frozenset[int], np.ndarray] = {}

    def value_rows(columns: frozenset[int]) -> np.ndarray:
        if columns not in known:
            distances = squares[:, :, sorted(columns)].sum(axis=2)
            known[columns] = value_ranks(sort(distances), match, N_NEIGHBORS)
        return known[columns]

    sums, counts = np.zeros(given.X.shape), np.zeros(n_columns)
    for seed in range(n_orders):
        # Theirs, not ours: the orders have to be the same.
        order = np.random.RandomState(seed).permutation(n_columns).tolist()
        for position in range(1, n_columns):
            before = frozenset(order[:position])
            sums[:, order[position]] += value_rows(before | {order[position]}) - value_rows(before)
            counts[order[position]] += 1
    return sums / np.maximum(counts, 1)


def sort_like_the_authors(distances: np.ndarray) -> np.ndarray:
    """Return the rows nearest first; the authors sort them farthest first.

    Ties are in the order of numpy's scalar argsort. Vector instructions, where a processor has
    them, order ties otherwise; there are none for long doubles.
    """
    return np.argsort(-distances.astype(np.longdouble), axis=1)[:, ::-1]
