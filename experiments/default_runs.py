"""Measure how long default runs of KNNValuer take, and how large their errors are.

    python -m experiments default_runs

Flags: --sets wine digits. The time is that of ``fit``, on all cores, after the kernels were
compiled. The last column is the root mean square of sampling errors over that of validation errors.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits, make_classification, make_regression

from cellworth import KNNValuer, Runtime
from experiments import tables
from experiments.frame import Tables, log

QUICK = {"sets": ("wine",)}
SETS = (
    "wine",
    "census 1,000 x 14",
    "digits",
    "census 10,000 x 14",
    "census 32,561 x 14",
    "synthetic 300,000 x 15",
    "synthetic 1,000 x 500",
    "numeric target 10,000 x 14",
)


def load(name: str, folder: Path) -> tables.Table:
    """Return a table by its name and size."""
    if name == "digits":
        X, y = load_digits(return_X_y=True)
    elif name == "wine":
        return tables.load(name, folder)
    else:
        kind, _, size = name.rpartition(" x ")[0].rpartition(" ")
        n_rows, n_columns = int(size.replace(",", "")), int(name.rpartition(" ")[2])
        if kind == "census":
            return tables.load("adult", folder).part(np.arange(n_rows))
        make = make_classification if kind == "synthetic" else make_regression
        X, y = make(n_samples=n_rows, n_features=n_columns, random_state=0)
    return tables.Table(pd.DataFrame(X), y)


def run(data: Path, sets: tuple[str, ...] = SETS) -> Tables:
    """Return seconds, validation rows and errors of each table."""
    warm = load("wine", data)
    KNNValuer(runtime=Runtime(progress=False)).fit(warm.X, warm.y)
    lines = []
    for name in sets:
        table = load(name, data)
        began = time.perf_counter()
        found = KNNValuer(random_state=0, runtime=Runtime(progress=False)).fit(table.X, table.y)
        seconds = time.perf_counter() - began
        sampling, validation = (
            float(np.sqrt(np.nanmean(np.square(error))))
            for error in (found.valuation_.sampling_se, found.valuation_.validation_se)
        )
        lines.append({"table": name, "seconds": seconds, "errors": sampling / validation})
        log(name)
    return {"default runs": lines}
