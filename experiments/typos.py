"""Digit-reversed ages in the census table: how many cells to inspect until 12 of 15 are found.

    python experiments/typos.py --data ../shared/data

Flags: --seeds 5, --rows 3000 (of the small table; the large one has all 32,561 rows).

In 15 random rows the age is reversed: 17 becomes 71, 18 becomes 81, 19 becomes 91, and vice versa.
All cells of the table are ranked. The small table omits fnlwgt, a census weight, which says nothing
about the person.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd

import tables
from cellworth.diagnostics import anomaly_scores
from detection import class_z, ecod

REVERSED = {17: 71, 71: 17, 18: 81, 81: 18, 19: 91, 91: 19}
N_TYPOS = 15
N_FOUND = 12


def with_typos(X: pd.DataFrame, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Reverse 15 ages; return the table and a mask of the wrong cells."""
    can_be = np.flatnonzero(X["age"].isin(REVERSED))
    rows = np.random.default_rng(seed).choice(can_be, N_TYPOS, replace=False)
    ages = X["age"].to_numpy(copy=True)
    ages[rows] = [REVERSED[age] for age in ages[rows].tolist()]
    wrong = np.zeros(X.shape, dtype=bool)
    wrong[rows, X.columns.get_loc("age")] = True
    return X.assign(age=ages), wrong


def count_inspected(score: np.ndarray, wrong: np.ndarray) -> int:
    """Return the cells to inspect, highest score first, ties included, to find 12 typos."""
    last = np.sort(score[wrong])[::-1][N_FOUND - 1]
    return int((score >= last).sum())


def small_table(folder: Path, n_rows: int, seed: int) -> tables.Table:
    """Draw some rows, without fnlwgt."""
    (part,) = tables.draw_samples(tables.load("adult", folder), n_rows, seed=seed)
    return tables.Table(part.X.drop(columns="fnlwgt"), part.y)


def detectors(X: pd.DataFrame, y: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Return the scores of each detector; the simple ones use numeric columns only."""
    numeric = np.array([pd.api.types.is_numeric_dtype(kind) for kind in X.dtypes])
    numbers = X.loc[:, numeric].to_numpy(dtype=float)
    simple = {"class-conditional |z|": class_z(numbers, y), "ECOD per column": ecod(numbers)}
    scores = {"anomaly score (suspect_cells)": anomaly_scores(X, y)}
    for name, score in simple.items():
        scores[name] = np.zeros(X.shape)
        scores[name][:, numeric] = score
    return scores | {"random": np.random.default_rng(seed).random(X.shape)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=3000)
    given = parser.parse_args()
    everyone = tables.load("adult", given.data)
    sizes = {
        "small": lambda seed: small_table(given.data, given.rows, seed),
        "all rows": lambda _: everyone,
    }
    for size, table in sizes.items():
        _print_size(size, [table(seed) for seed in range(given.seeds)])


def _print_size(size: str, samples: list[tables.Table]) -> None:
    found: dict[str, list[int]] = {}
    for seed, table in enumerate(samples):
        X, wrong = with_typos(table.X, seed)
        for name, score in detectors(X, table.y, seed).items():
            found.setdefault(name, []).append(count_inspected(score, wrong))
    start = time.perf_counter()
    anomaly_scores(X, table.y)
    seconds = time.perf_counter() - start
    print(f"{size}: {wrong.size:,} cells; anomaly scores of all of them takes {seconds:.1f} s")
    print(f"{'cells count_inspected to find 12 of 15':34}{'mean':>10}   each seed")
    for name, counts in found.items():
        print(f"{name:34}{np.mean(counts):10,.0f}   {', '.join(f'{n:,}' for n in counts)}")


if __name__ == "__main__":
    main()
