"""Measure the CPU time of default runs of KNNValuer, and how large their errors are.

    python -m experiments default_runs

Flags: --sets "digits 1,797 x 64" "synthetic 300,000 x 15". The CPU time is that of ``fit``, over
all cores, after the kernels were compiled. The last column is the root mean square of sampling
errors over that of validation errors.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits, make_classification

from cellworth import KNNValuer, Runtime
from experiments import tables
from experiments.frame import Tables, log

QUICK = {"sets": ("wine 178 x 13",)}
SETS = ("wine 178 x 13", "census 1,000 x 14", "census 3,000 x 14")


def load(name: str, folder: Path) -> tables.Table:
    """Return a table by its name and size."""
    kind, _, size = name.rpartition(" x ")[0].rpartition(" ")
    n_rows, n_columns = int(size.replace(",", "")), int(name.rpartition(" ")[2])
    if kind == "wine":
        return tables.load(kind, folder)
    if kind == "census":
        return tables.load("adult", folder).part(np.arange(n_rows))
    if kind == "digits":
        X, y = load_digits(return_X_y=True)
    else:
        X, y = make_classification(n_samples=n_rows, n_features=n_columns, random_state=0)
    return tables.Table(pd.DataFrame(X), y)


def run(data: Path, sets: tuple[str, ...] = SETS) -> Tables:
    """Return CPU seconds, validation rows and errors of each table."""
    warm = tables.load("wine", data)
    KNNValuer(runtime=Runtime(progress=False)).fit(warm.X, warm.y)
    lines = []
    for name in sets:
        table = load(name, data)
        began = time.process_time()
        found = KNNValuer(random_state=0, runtime=Runtime(progress=False)).fit(table.X, table.y)
        seconds = time.process_time() - began
        sampling, validation = (
            float(np.sqrt(np.nanmean(np.square(error))))
            for error in (found.valuation_.sampling_se, found.valuation_.validation_se)
        )
        used = f"{found.valuation_.scores.n_validation_rows:,} of {len(table.y):,}"
        lines.append({"table": name, "validation rows used": used, "CPU seconds": seconds})
        lines[-1]["sampling error / validation error"] = sampling / validation
        log(name)
    return {"default runs": lines}
