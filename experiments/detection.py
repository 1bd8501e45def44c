r"""Measure the detection of wrong cells: anomaly scores, values and baselines, three error types.

KNN values and 2D-OOB, which take long, are computed for the first seeds only (--slow).

The protocol of 2D-OOB at its own size:

    python -m experiments detection --errors B --rows 1000 --seeds 3 \
        --sets credit electricity lawschool pol fried 2dplanes

The tables chose nothing in the library (``tables.py``). Reports AUROC and average precision, mean
over tables of means over seeds, with standard errors over tables; then the lead of the anomaly
score over each other method, from the differences on each table; on how many tables it leads, with
sign tests; AUROC by table; then the results on the outlier file of the authors of 2D-Shapley. There
are three error types:

A  2% of cells get a value of the column's range that is rare for their class: its density, under
   a normal distribution with the class's mean and standard deviation, is below 5%.
B  40% of rows, 40% of columns in each (the protocol of 2D-OOB, Sun, Shen and Kwon 2024): a
   standard normal draw whose two-sided tail probability in the class is at most 1%.
S  2% of cells get the value of the same column in a row of another class.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri
from scipy.stats import norm
from sklearn.metrics import average_precision_score, roc_auc_score

from cellworth import KNNValuer, OutOfBagValuer, Runtime
from cellworth.findings import anomaly_scores
from cellworth.runtime import Serial
from experiments import tables
from experiments.baselines import LeverageSampler
from experiments.cell_scores import class_z, copod, ddc, ecod, standardize_values
from experiments.frame import Row, Tables, compute_part, log, means, sign_tests

QUICK = {"seeds": range(1), "sets": ("wine",), "trees": 20, "rows": 60, "errors": ("A",)}
FIGURES = ("AUROC", "AP")
SHARE = 0.02
FIRST = (0.01, 0.02, 0.05, 0.10)
_TAIL = 2.5758  # both tails beyond it hold 1% of a normal distribution
_FEW_VALUES = 30


class Case(NamedTuple):
    """A table with wrong cells, and clean validation rows."""

    X: np.ndarray
    y: np.ndarray
    wrong: np.ndarray
    X_val: np.ndarray
    y_val: np.ndarray


def case(name: str, error: str, seed: int, folder: Path, n_rows: int = 200) -> Case:
    """Draw some rows and 100 queries of a numeric table and alter cells."""
    table = _load_numbers(name, folder)
    n_rows = min(n_rows, 2 * len(table.y) // 3)
    train, queries = tables.draw_samples(table, n_rows, 100, seed=seed)
    varied = (train.X.nunique() > 1).to_numpy()
    X, X_val = (part.X.to_numpy()[:, varied] for part in (train, queries))
    rng = np.random.default_rng([seed, ord(error), crc32(name.encode())])
    spoiled, wrong = {"A": rare, "B": far_out, "S": swap_cells}[error](X, train.y, rng)
    return Case(spoiled, train.y, wrong, X_val, queries.y)


@cache
def _load_numbers(name: str, folder: Path) -> tables.Table:
    return tables.load(name, folder).numbers()


def rare(
    X: np.ndarray, y: np.ndarray, rng: np.random.Generator, share: float = SHARE
) -> tuple[np.ndarray, np.ndarray]:
    """Error A."""

    def choices(row: int, column: int) -> np.ndarray:
        cells = X[:, column]
        values = np.unique(cells)
        if len(values) > _FEW_VALUES:
            values = rng.uniform(cells.min(), cells.max(), 200)
        alike = cells[y == y[row]]
        return values[norm.pdf((values - alike.mean()) / max(alike.std(), 1e-9)) < 0.05]

    return _replace_cells(X, choices, rng, share)


def swap_cells(
    X: np.ndarray, y: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Error S."""
    return _replace_cells(X, lambda row, column: X[y != y[row], column], rng, SHARE)


def far_out(
    X: np.ndarray, y: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Error B."""
    n_rows, n_columns = X.shape
    spoiled, wrong = X.copy(), np.zeros(X.shape, dtype=bool)
    for row in rng.choice(n_rows, int(0.4 * n_rows), replace=False):
        alike = X[y == y[row]]
        for column in rng.choice(n_columns, max(int(0.4 * n_columns), 1), replace=False):
            middle, reach = alike[:, column].mean(), _TAIL * alike[:, column].std()
            below, above = ndtr(middle - reach), ndtr(-middle - reach)
            position = rng.uniform(0, below + above)
            value = ndtri(position) if position < below else -ndtri(position - below)
            if np.isfinite(value):
                spoiled[row, column], wrong[row, column] = value, True
    return spoiled, wrong


def _replace_cells(
    X: np.ndarray,
    choices: Callable[[int, int], np.ndarray],
    rng: np.random.Generator,
    share: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Replace a share of cells by one of these choices, skipping cells without another choice."""
    spoiled, wrong = X.copy(), np.zeros(X.shape, dtype=bool)
    for cell in rng.permutation(X.size):
        if wrong.sum() >= round(share * X.size):
            break
        row, column = divmod(int(cell), X.shape[1])
        others = choices(row, column)
        others = others[others != X[row, column]]
        if len(others):
            spoiled[row, column], wrong[row, column] = rng.choice(others), True
    return spoiled, wrong


def scores(given: Case, values: tuple[int, int] | None, seed: int) -> dict[str, np.ndarray]:
    """Return the scores of each detector; high means anomalous.

    Values are those of 2D-OOB and of KNN, with these numbers of trees and neighbors, if given.
    """
    X, y = given.X, given.y
    return {
        "anomaly score": anomaly_scores(X, y),
        **(value_scores(given, *values, seed) if values else {}),
        "class-conditional |z|": class_z(X, y),
        "ECOD per column": ecod(X),
        "COPOD per column": copod(X),
        "DDC": ddc(X),
        "random": np.random.default_rng([seed, crc32(X.tobytes())]).random(X.shape),
    }


def value_scores(given: Case, n_trees: int, n_neighbors: int, seed: int) -> dict[str, np.ndarray]:
    """Return scores by values of cells."""
    knn = knn_values(given, n_neighbors, seed)
    quiet = Runtime(Serial(), progress=False)
    trees = OutOfBagValuer(n_trees=n_trees, distance=True, random_state=seed, runtime=quiet)
    return {
        f"KNN value, K = {n_neighbors}, normalized": -standardize_values(knn, given.y),
        f"KNN value, K = {n_neighbors}": -knn,
        f"2D-OOB, {n_trees} trees": -trees.fit(given.X, given.y).values_,
    }


def knn_values(given: Case, n_neighbors: int, seed: int) -> np.ndarray:
    """Return values of cells by nearest neighbors, from clean validation rows."""
    valuer = KNNValuer(
        n_neighbors,
        # As precise as all coalitions of columns, and five times as fast.
        sampler=LeverageSampler(),
        n_passes=1,
        random_state=seed,
        runtime=Runtime(Serial(), progress=False),
    )
    return valuer.fit(given.X, given.y, X_val=given.X_val, y_val=given.y_val).values_


def figures(wrong: np.ndarray, score: np.ndarray) -> tuple[float, float]:
    """Return AUROC and average precision, NaN if no cell could be altered."""
    if not wrong.any():
        return np.nan, np.nan
    known = np.where(np.isnan(score), np.nanmin(score), score).ravel()
    return roc_auc_score(wrong.ravel(), known), average_precision_score(wrong.ravel(), known)


def inspect(wrong: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Return which cells are wrong, highest score first; ties keep the order of the table."""
    return wrong.ravel()[np.argsort(-score, axis=None, kind="stable")]


def share_found(wrong: np.ndarray, score: np.ndarray, share: float) -> float:
    """Return the share of wrong cells found first."""
    first = inspect(wrong, score)[: round(share * score.size)]
    return float(first.sum() / wrong.sum())


def authors_case(folder: Path) -> Case:
    """Read the breast-cancer table of the authors of 2D-Shapley, with their 43 outlier cells."""
    parts = [
        pd.read_csv(folder / f"breast_cancer_2dshapley_{part}.csv.gz")
        for part in ("train_outliers", "test", "outlier_cells")
    ]
    (X, y), (X_val, y_val) = (
        (part.drop(columns=["row", "class"]).to_numpy(dtype=float), part["class"].to_numpy())
        for part in parts[:2]
    )
    wrong = np.zeros(X.shape, dtype=bool)
    wrong[parts[2]["row"], parts[2]["column"]] = True
    return Case(X, y, wrong, X_val, y_val)


def run(
    data: Path,
    *,
    seeds: range = range(30),
    sets: tuple[str, ...] = tables.HELD_OUT,
    trees: int = 200,
    slow: int = 3,
    neighbors: int = 10,
    rows: int = 100,
    errors: tuple[str, ...] = ("A", "B", "S"),
    keep: str = "",
) -> Tables:
    """Return the figures of each detector, the lead of the first one, and the authors' outliers."""
    found: list[Row] = []
    for position, seed in enumerate(seeds):
        for name, error in product(sets, errors):
            values = (trees, neighbors) if position < slow else None
            spoil = partial(case, name, error, seed, data, rows)
            compute = partial(measure, spoil, values, seed)
            settings = (name, error, seed, rows, *(values or (0, 0)))
            part = compute_part(keep, f"detection, {settings}", compute)
            found += [{"table": name, "error": error, "seed": seed} | row for row in part["rows"]]
        log(seed)
    result = summarize(found)
    # Their file was published pickled, and not every folder has it.
    if (data / "breast_cancer_2dshapley_outlier_cells.csv.gz").exists():
        compute = partial(measure, partial(authors_case, data), (trees, neighbors), 0, FIRST)
        part = compute_part(keep, f"detection, the authors', {(trees, neighbors)}", compute)
        result["the authors' outliers"] = part["rows"]
    return result


def measure(
    spoil: Callable[[], Case],
    values: tuple[int, int] | None,
    seed: int,
    first: tuple[float, ...] = (),
) -> list[Row]:
    """Return AUROC, average precision and shares found first of all detectors."""
    spoiled = spoil()
    return [
        {"detector": detector}
        | dict(zip(FIGURES, figures(spoiled.wrong, score), strict=True))
        | {f"first {share:.0%}": share_found(spoiled.wrong, score, share) for share in first}
        for detector, score in scores(spoiled, values, seed).items()
    ]


def summarize(found: list[Row]) -> Tables:
    """Return the mean over tables of each detector, and comparisons of the first with the others.

    Comparisons are on the same tables with the same errors, so some detectors may have fewer seeds.
    """
    every = pd.DataFrame(found).melt(["detector", "table", "error", "seed"], var_name="figure")
    every["column"] = every.error + ", " + every.figure
    columns = [f"{error}, {figure}" for error in every.error.unique() for figure in FIGURES]
    cases = every.pivot(index=["table", "seed"], columns=["detector", "column"], values="value")
    first, *others = every.detector.unique()
    of_tables = cases.groupby(level="table", sort=False).mean()

    def rows_of(detectors: list[str], *, lead: bool) -> pd.DataFrame:
        part = {
            each: (cases[first] - cases[each]).groupby(level="table", sort=False).mean()[columns]
            if lead
            else of_tables[each][columns]
            for each in detectors
        }
        return pd.concat(part, names=["detector", "table"])

    lead = rows_of(others, lead=True)
    won = sign_tests(lead[columns]).reset_index()
    # One seed of a table says little of that table.
    seeds = {each: cases[each].count().max() for each in (first, *others)}
    rivals = [each for each in others if seeds[each] == seeds[first]]
    by_table = []
    for name, line in of_tables.iterrows():
        row: Row = {"table": name}
        for column in columns[:: len(FIGURES)]:
            best = line.xs(column, level="column")[rivals].idxmax()
            row |= {column: line[first, column], f"best other on {column}": line[best, column]}
            row[f"which on {column}"] = best
        by_table.append(row)
    return {
        "mean over tables": means(
            rows_of([first, *others], lead=False).reset_index(), ["detector"]
        ),
        "lead of the anomaly score, table by table": means(lead.reset_index(), ["detector"]),
        "tables on which the anomaly score leads": won.to_dict("records"),
        "AUROC by table": by_table,
    }
