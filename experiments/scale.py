"""Measure CPU time and memory of nearest-neighbor values by rows, in memory and in shards.

In memory: a synthetic table of 20 columns, the default sampler, one pass. In shards: the mixture of
``mixture.py``, written to a temporary folder, one order of the columns for each query, one thread.
Every measurement is a process of its own. Memory is the peak of that process during the fit, beyond
the peak before it, when the table in memory and the compiled kernels were loaded. Then values by
bins are compared with those by exact ranking.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from cellworth import KNNValuer, Runtime, ShardedKNNValuer, ShardedTable
from cellworth.knn import BinnedRanks
from cellworth.runtime import Serial
from cellworth.sampling import PermutationSampler
from experiments import mixture
from experiments.frame import ROOT, Row, Tables, log
from experiments.tables import load

QUICK = {"rows": (1000,), "sharded_rows": (2000,), "sharded_queries": 2, "binned_queries": 5}
N_COLUMNS, N_QUERIES, COALITIONS_PER_COLUMN = 20, 20, 8
ROWS_PER_SHARD = 250_000


def make_table(n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a table, half floats and half small integers; the label depends on two columns."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, N_COLUMNS))
    X[:, N_COLUMNS // 2 :] = X[:, N_COLUMNS // 2 :].round()
    return X, (X[:, 0] + X[:, -1] + rng.normal(size=n_rows) > 0).astype(int)


def in_memory(n_rows: int) -> Row:
    """Value a table in memory, on all cores."""
    valuer = KNNValuer(n_passes=1, random_state=0, runtime=Runtime(progress=False))
    X_val, y_val = make_table(N_QUERIES, 1)
    valuer.fit(*make_table(1000, 2), X_val=X_val, y_val=y_val)  # kernels are compiled
    X, y = make_table(n_rows, 0)
    before, began = megabytes(), time.process_time()
    valuer.fit(X, y, X_val=X_val, y_val=y_val)
    return describe(valuer.valuation_, N_QUERIES, time.process_time() - began, before)


def in_shards(n_rows: int, n_queries: int, folder: str, limit: float = 0.0) -> Row:
    """Value the mixture in shards, in one thread; the limit is of the address space, in GB."""
    if limit:
        resource.setrlimit(resource.RLIMIT_AS, (int(limit * 2**30),) * 2)
    X_val, y_val = mixture.queries(n_queries)
    settings = {"sampler": PermutationSampler(1), "n_passes": 1, "random_state": 0}
    valuer = ShardedKNNValuer(10, runtime=Runtime(executor=Serial(), progress=False), **settings)
    for path in (Path(folder) / "small", Path(folder) / "rows"):  # kernels are compiled
        n_shards = max(round(n_rows / ROWS_PER_SHARD), 1) if path.name == "rows" else 1
        table = ShardedTable.from_files(path, target="label", shards=n_shards)
        before, began = megabytes(), time.process_time()
        valuation = valuer.fit(table, X_val=X_val, y_val=y_val).valuation_
    seconds = time.process_time() - began
    residual = float(abs(valuation.efficiency_residual))
    found = describe(valuation, n_queries, seconds, before)
    return {"rows": n_rows, "shards": table.n_shards, "residual": residual} | found


def describe(valuation: Any, n_queries: int, seconds: float, before: float) -> Row:
    n_rows, n_coalitions = valuation.shape[0], valuation.provenance.tally.utilities
    return {
        "rows": n_rows,
        "queries": n_queries,
        "coalitions per query": round(n_coalitions / n_queries),
        "CPU seconds": seconds,
        "ns per row and coalition": 1e9 * seconds / n_rows / n_coalitions,
        "MB": round(megabytes() - before),
    }


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(function: str, *given: object) -> Row:
    """Call a function of this file in a process of its own."""
    code = f"import json; from experiments import scale; print(json.dumps(scale.{function}{given}))"
    done = subprocess.run(  # noqa: S603 (this very file)
        [sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        # Arrow's own allocator reserves gigabytes of address space.
        env=os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system"},
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure_shards(n_rows: int, n_queries: int, limit: float = 0.0) -> Row:
    """Write the mixture and value it in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        mixture.write(Path(folder) / "small", 2000, 1)
        mixture.write(Path(folder) / "rows", n_rows, 16, rows_per_group=max(n_rows // 64, 100))
        return measure("in_shards", n_rows, n_queries, folder, limit)


def compare_bins(name: str, X: Any, y: Any, X_val: Any, y_val: Any) -> Row:
    """Compare the values of binned and exact ranking."""
    settings = {"sampler": PermutationSampler(1), "n_passes": 1, "random_state": 0}
    exact, binned = (
        KNNValuer(10, ranking=ranking, runtime=Runtime(progress=False), **settings)
        .fit(X, y, X_val=X_val, y_val=y_val)
        .valuation_
        for ranking in (None, BinnedRanks())
    )
    one, other = exact.values.ravel(), binned.values.ravel()
    n_lowest = len(one) // 100
    lowest = [set(np.argsort(values)[:n_lowest]) for values in (one, other)]
    return {
        "table": name,
        "relative RMS error, %": 100 * np.sqrt(np.mean((one - other) ** 2)) / one.std(),
        "Spearman correlation": f"{spearmanr(one, other)[0]:.5f}",
        "lowest 1% in common, %": 100 * len(lowest[0] & lowest[1]) / n_lowest,
        "difference of totals": f"{abs(exact.total - binned.total):.0e}",
    }


def compare_all_bins(data: Path, n_queries: int) -> list[Row]:
    """Return a row for the Census and for a numeric target."""
    table = load("adult", data)
    known = table.part(np.arange(n_queries, len(table.y)))
    asked = table.part(np.arange(n_queries))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30_000 + n_queries, 5))
    y = X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=len(X))
    numbers = X[n_queries:], y[n_queries:], X[:n_queries], y[:n_queries]
    return [
        compare_bins(f"Census, {len(known.y):,} x 14", *known, *asked),
        compare_bins("numeric target, 30,000 x 5", *numbers),
    ]


def run(
    data: Path,
    *,
    rows: tuple[int, ...] = (10_000, 100_000),
    sharded_rows: tuple[int, ...] = (100_000, 300_000, 1_000_000),
    sharded_queries: int = 16,
    binned_queries: int = 100,
) -> Tables:
    """Return a row per number of rows."""
    held, shards = [], []
    for n_rows in rows:
        held.append(measure("in_memory", n_rows))
        log(held[-1])
    for n_rows in sharded_rows:
        found = measure_shards(n_rows, sharded_queries)
        shards.append({key: found[key] for key in found if key != "residual"})
        log(shards[-1])
    logs = [np.log([row[key] for row in shards]) for key in ("rows", "CPU seconds")]
    slope = float(np.polyfit(*logs, 1)[0]) if len(shards) > 1 else None
    return {
        "in memory": held,
        "in shards": shards,
        "growth": [{"held": "shards", "exponent": slope}],
        "values by bins": compare_all_bins(data, binned_queries),
    }
