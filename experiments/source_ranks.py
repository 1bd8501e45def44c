"""Test whether ranks of sources are known: six sources of census rows, three validation samples.

    python -m experiments source_ranks

Reports rank, value and standard error of each source for each sample of 400 rows, and the range of
ranks that the 95% interval allows: sources with overlapping intervals may swap ranks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.tree import DecisionTreeClassifier

from cellworth import ModelValuer, Runtime
from cellworth.runtime import Serial
from cellworth.sampling.moments import WIDTH_95
from experiments.frame import Mean, Tables
from experiments.tables import find

QUICK = {"samples": 1}
COLUMNS = ["age", "education_num", "capital_gain", "capital_loss", "hours_per_week"]
N_SOURCES, PER_SOURCE, N_VALIDATION = 6, 100, 400


def census(folder: Path) -> tuple[Any, Any]:
    """Return numbers and labels of the census table."""
    table = pd.read_csv(find("adult_train", folder))
    return table[COLUMNS].to_numpy(float), table[table.columns[-1]].to_numpy()


def ranks(low: Any, high: Any) -> tuple[Any, Any]:
    """Return the best and worst rank that each interval allows."""
    best = 1 + (low[None, :] > high[:, None]).sum(axis=1)
    worst = len(low) - (high[None, :] < low[:, None]).sum(axis=1)
    return best, worst


def run(data: Path, samples: int = 3) -> Tables:
    """Value the sources on each sample."""
    X, y = census(data)
    order = np.random.default_rng(0).permutation(len(y))
    train, rest = np.split(order, [N_SOURCES * PER_SOURCE])
    sources = np.arange(len(train)) % N_SOURCES
    model = DecisionTreeClassifier(max_depth=6, random_state=0)
    found = []
    for sample in range(samples):
        validation = rest[sample * N_VALIDATION : (sample + 1) * N_VALIDATION]
        runtime = Runtime(executor=Serial(), progress=False)
        valuer = ModelValuer(model, estimator="exact", runtime=runtime).fit(
            X[train], y[train], X_val=X[validation], y_val=y[validation], row_groups=sources,
            column_groups=["all"] * len(COLUMNS),
        )  # fmt: skip
        rows = valuer.valuation_.rows()
        half = WIDTH_95 * rows.validation_se
        best, worst = ranks(rows.values - half, rows.values + half)
        position = 1 + np.argsort(np.argsort(-rows.values))
        found += [
            {"sample": sample + 1, "source": source, "rank": position[source]}
            | {"value": Mean(rows.values[source], rows.validation_se[source], N_VALIDATION)}
            | {"best rank": best[source], "worst rank": worst[source]}
            for source in range(N_SOURCES)
        ]
    return {"sources": found}
