"""Compute the figures of docs/explanation/baselines.md: the detection of altered cells.

python benchmarks/altered_cells.py
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score
from sklearn.tree import DecisionTreeClassifier

import benchmark_data
from cellworth import KNNValuer, LeaveOneOutValuer, OutOfBagValuer, Runtime
from cellworth.runtime import MaxTasks, Serial
from cellworth.valuers import FlattenedValuer, RandomValuer

SEEDS = range(5)
TREES = [
    {},
    {"distance": False},
    {"n_trees": 3000},
    {"max_features": None},
    {"column_share": 0.25},
    {"column_share": 0.75},
    {"contrast": True},
    {"distance": False, "contrast": True},
]


class Altered(NamedTuple):
    """The 2D-Shapley authors' training table, its altered cells, and their test rows."""

    X: np.ndarray
    y: np.ndarray
    altered: np.ndarray
    X_val: np.ndarray
    y_val: np.ndarray


def load(folder: Path) -> Altered:
    train, test = (
        pd.read_csv(folder / f"breast_cancer_2dshapley_{side}.csv.gz").drop(columns="row")
        for side in ("train_outliers", "test")
    )
    cells = pd.read_csv(folder / "breast_cancer_2dshapley_outlier_cells.csv.gz")
    y, y_val = (table.pop("class").to_numpy() for table in (train, test))
    altered = np.zeros(train.shape, dtype=bool)
    altered[cells["row"], cells["column"]] = True
    return Altered(train.to_numpy(float), y, altered, test.to_numpy(float), y_val)


def found(given: Altered, values: np.ndarray) -> float:
    """Return the area under the curve for "low value = altered cell"."""
    return float(roc_auc_score(given.altered.ravel(), -values.ravel()))


def report(called, given, valuers, **validation):
    areas, seconds = [], []
    for valuer in valuers:
        began = time.process_time()
        values = valuer.fit(given.X, given.y, **validation).values_
        seconds.append(time.process_time() - began)
        areas.append(found(given, values))
    each = " ".join(f"{area:.3f}" for area in areas)
    print(f"{called:<40} {each}  mean {np.mean(areas):.3f}, {np.mean(seconds):.2f} s each")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=benchmark_data.FOLDER)
    given = load(parser.parse_args().data)
    # Run in this process, because its time is printed.
    quiet = {"runtime": Runtime(Serial(), progress=False)}
    for settings in TREES:
        valuers = [OutOfBagValuer(random_state=seed, **quiet, **settings) for seed in SEEDS]
        report(f"OutOfBagValuer({settings})", given, valuers)
    report("RandomValuer", given, [RandomValuer(random_state=seed) for seed in SEEDS])
    validation = {"X_val": given.X_val, "y_val": given.y_val}
    tree = DecisionTreeClassifier()
    report("LeaveOneOutValuer(tree)", given, [LeaveOneOutValuer(tree, **quiet)], **validation)
    orders = [FlattenedValuer(tree, stop=MaxTasks(1), random_state=seed, **quiet) for seed in SEEDS]
    report("FlattenedValuer(tree), 1 task", given, orders, **validation)
    report("KNNValuer(), for comparison", given, [KNNValuer(10, **quiet)], **validation)


if __name__ == "__main__":
    main()
