"""Compare default fits of KNNValuer with the paper's algorithm: its authors' loop, and NumPy.

All are in ``paper.py``. In small tables, a default fit evaluates all column subsets, and has no
sampling error. It is compared with 500 permutations, the paper's number, whose error is given, and
there is another fit with the sampler that larger tables have. Where a fit samples, the others get
as many permutations as have its error. Columns are standardized,
so that nothing is scaled again (``scale=None``); K is 10, as in the paper; all else is default.

Estimates of all three are unbiased, so a mean squared error is the variance between runs: of
several seeds, or of one permutation divided by their number. Times are of one thread, in turns,
least CPU time of several. Fits run as a whole; permutations are timed for some queries, and
multiplied: each costs the same.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from cellworth import KNNValuer, Runtime
from cellworth.runtime import Serial
from cellworth.sampling import QuadratureSampler
from experiments import paper, tables
from experiments.frame import Row, Tables, log, spend

QUICK = {"sets": ("wine 106 x 13",), "repetitions": 2, "orders": 10}
PAPER_PERMUTATIONS = 500
# Queries of the loop and permutations of NumPy that are timed.
FEW = 10
N_NEIGHBORS = 10
# Training and validation rows of each table.
SIZES = {
    "breast original 241 x 9": (241, 242),
    "wine 106 x 13": (106, 72),
    "breast 30 341 x 30": (341, 228),
    "credit 1,000 x 23": (1000, 300),
    "adult 1,000 x 14": (1000, 300),
}


def read(name: str, folder: Path) -> tuple[np.ndarray, ...]:
    """Return training rows, labels, queries and their labels."""
    kind = name.rpartition(" x ")[0].rpartition(" ")[0]
    table = tables.load(kind, folder).numbers()
    train, val = tables.draw_samples(table, *SIZES[name], seed=0)
    return train.X.to_numpy(), train.y, val.X.to_numpy(), val.y


def fit(given: tuple[np.ndarray, ...], seed: int, *, samples: bool = False) -> Any:
    X, y, X_val, y_val = given
    chosen = {"sampler": QuadratureSampler(24 * X.shape[1]), "n_passes": 1} if samples else {}
    runtime = Runtime(executor=Serial(), progress=False)
    valuer = KNNValuer(N_NEIGHBORS, scale=None, random_state=seed, runtime=runtime, **chosen)
    return valuer.fit(X, y, X_val=X_val, y_val=y_val).valuation_


def variance_of_a_permutation(given: tuple[np.ndarray, ...], orders: list[np.ndarray]) -> float:
    """Return the mean over cells; no columns are worth what they are to KNNValuer."""
    _, y, _, y_val = given
    nothing = paper.values_of_ties(y, y_val, n_neighbors=N_NEIGHBORS)
    found = paper.many_permutations(*given, n_neighbors=N_NEIGHBORS, orders=orders, nothing=nothing)
    return float(found.var(axis=0, ddof=1).mean())


def compare(
    name: str, folder: Path, *, repetitions: int, n_orders: int, samples: bool = False
) -> list[tuple[Row, Row]]:
    """Return the costs of a fit and of permutations, and their errors; of two fits if exact."""
    X, y, X_val, y_val = given = read(name, folder)
    rng = np.random.default_rng(0)
    orders = [rng.permutation(X.shape[1]) for _ in range(n_orders)]
    settings = {"n_neighbors": N_NEIGHBORS}
    fits, seconds = [], []
    for seed in range(repetitions):
        found, of_fit = spend(lambda s=seed: fit(given, s, samples=samples))
        _, of_loop = spend(
            lambda: paper.one_permutation(
                X, y, X_val[:FEW], y_val[:FEW], order=orders[0], **settings
            )
        )
        _, of_numpy = spend(
            lambda: paper.many_permutations(*given, orders=orders[:FEW], **settings)
        )
        fits.append(found)
        seconds.append((of_fit, of_loop * len(y_val) / FEW, of_numpy / FEW))
    ours, loop, numpy = np.min(seconds, axis=0)
    values = np.array([each.values for each in fits])
    variance = values.mean(axis=0).var()
    error = float(values.var(axis=0, ddof=1).mean())
    of_order = variance_of_a_permutation(given, orders)
    exact = error < 1e-20
    called = f"{name}, sampled" if samples else name
    needed = PAPER_PERMUTATIONS if exact else of_order / error
    sampling, validation = (
        np.square(e).mean() for e in (fits[0].sampling_se, fits[0].validation_se)
    )
    cost = {
        "table": called,
        "validation rows": len(y_val),
        "CPU seconds": ours,
        "error, %": 100 * np.sqrt(error / variance),
        "sampling error / validation error": np.sqrt(sampling / validation),
    }
    beside = {
        "table": called,
        "error of the fit, %": cost["error, %"],
        "permutations": round(needed),
        "their error, %": 100 * np.sqrt(of_order / needed / variance),
        "authors' loop, times": round(needed * loop / ours),
        "NumPy, times": round(needed * numpy / ours, 1),
    }
    log(cost, beside)
    if not exact:
        return [(cost, beside)]
    settings = {"repetitions": repetitions, "n_orders": n_orders, "samples": True}
    return [(cost, beside), *compare(name, folder, **settings)]


def run(
    data: Path, *, sets: tuple[str, ...] = tuple(SIZES), repetitions: int = 5, orders: int = 60
) -> Tables:
    """Return costs and errors of default fits, and how much longer permutations take."""
    with threadpool_limits(1):
        found = [compare(name, data, repetitions=repetitions, n_orders=orders) for name in sets]
    costs, beside = zip(*chain.from_iterable(found), strict=True)
    return {"default fits": list(costs), "beside permutations": list(beside)}
