"""Measure the variance of the column samplers, in units of that between queries.

With q queries, c coalitions each and p passes, the variance of a value is (v_q + v_c / (c p)) / q,
where v_q is the variance between queries. All samplers are unbiased, so this is the whole error.
Figures are v_c / (c v_q), both the mean over cells.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cellworth import KNNValuer, Runtime
from cellworth.runtime import Serial
from cellworth.sampling import PermutationSampler, QuadratureSampler
from experiments import tables
from experiments.baselines import LeverageSampler
from experiments.frame import Tables, log

QUICK = {"sets": ("wine",), "seeds": range(2)}


def list_samplers(n_columns: int) -> dict[str, Any]:
    """Return the samplers by name; the last has the least error and serves to estimate v_q."""
    return {
        "PermutationSampler(1), c = m": PermutationSampler(1),
        "PermutationSampler(2), c = 2 m": PermutationSampler(2),
        "PermutationSampler(4), c = 4 m": PermutationSampler(4),
        "LeverageSampler, c = 3 m": LeverageSampler(3 * n_columns),
        "LeverageSampler, c = 8 m": LeverageSampler(8 * n_columns),
        "QuadratureSampler, c = 2 m": QuadratureSampler(2 * n_columns),
        "QuadratureSampler, c = 4 m": QuadratureSampler(4 * n_columns),
        "QuadratureSampler, c = 8 m": QuadratureSampler(8 * n_columns),
        "QuadratureSampler, c = 24 m": QuadratureSampler(24 * n_columns),
    }


def compare(train: tables.Table, val: tables.Table, seeds: range) -> dict[str, float]:
    """Return the variance of one draw of each sampler in units of v_q."""
    sampling, between = {}, 0.0
    for name, sampler in list_samplers(train.X.shape[1]).items():
        runtime = Runtime(executor=Serial(), progress=False)
        valuer = KNNValuer(sampler=sampler, n_passes=1, runtime=runtime)
        given = {"X": train.X, "y": train.y, "X_val": val.X, "y_val": val.y}
        runs = [valuer.set_params(random_state=seed).fit(**given).valuation_ for seed in seeds]
        # A pass draws coalitions twice for each query.
        sampling[name] = 2 * np.var([each.values for each in runs], axis=0, ddof=1).mean()
        between = np.mean([(each.validation_se**2).mean() for each in runs])
    return {name: float(each / between) for name, each in sampling.items()}


def run(
    data: Path,
    *,
    seeds: range = range(6),
    sets: tuple[str, ...] = ("wine", "adult", "credit", "pol", "fried"),
    rows: int = 300,
    queries: int = 100,
) -> Tables:
    """Return a row per sampler, a column per table."""
    found: dict[str, dict[str, Any]] = {}
    for name in sets:
        table = tables.load(name, data)
        n_rows = min(rows, len(table.y) - queries)
        train, val = tables.draw_samples(table, n_rows, queries, seed=0)
        for sampler, share in compare(train, val, seeds).items():
            row = found.setdefault(sampler, {"sampler": sampler})
            row[f"{name}, m = {train.X.shape[1]}"] = share
        log(name)
    return {"variance of a draw": list(found.values())}
