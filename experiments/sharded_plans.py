"""Plan sharded runs of up to a billion rows: computed from steps that are timed on few rows.

    python -m experiments sharded_plans

Columns are plain numbers, shards have 1 million rows, and there are at most 100 workers of one
thread each. Every query has one order of the columns.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cellworth import ShardedTable
from cellworth.knn import BinnedRanks
from cellworth.knn.binned import sample_positions
from cellworth.knn.knn_game import ShardedKNNGame
from cellworth.knn.tasks import TaskSchedule, WeightedQueries
from cellworth.runtime import Serial
from cellworth.sampling import PermutationSampler, Shapley
from cellworth.valuers.plan import SERIAL, plan_of_shards
from experiments.frame import Row, Tables, log

QUICK = {"columns": (10,), "powers": (4,), "queries": 20}
ROWS_PER_SHARD = 10**6
N_NEIGHBORS = 5


def run(
    *,
    columns: tuple[int, ...] = (10, 100),
    powers: tuple[int, ...] = (5, 7, 9),
    queries: int = 1000,
) -> Tables:
    """Return what runs of all sizes cost."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for n_columns in columns:
            table = write_table(n_columns, folder)
            for power in powers:
                rows.append(describe(power, n_columns, make_plan(table, 10**power, queries)))
                log(rows[-1])
    return {"plans": rows}


def write_table(n_columns: int, folder: str) -> ShardedTable:
    """Rows of plain numbers, in one shard."""
    n_rows, rng = max(2**22 // n_columns, 8192), np.random.default_rng(0)
    cells = {f"x{j}": rng.normal(size=n_rows).astype(np.float32) for j in range(n_columns)}
    label = np.where(cells["x0"] + rng.normal(size=n_rows) > 0, "yes", "no")
    path = Path(folder) / f"{n_columns}.parquet"
    pq.write_table(pa.table({**cells, "label": label}), path)
    return ShardedTable.from_files(path, target="label", shards=1)


def make_plan(table: ShardedTable, n_rows: int, n_queries: int) -> Any:
    """Plan a run of n_rows; beyond ten million, scale the serial steps."""
    n_columns, most = table.shape[1], min(n_rows, 10**7)
    validation = table.take(range(n_queries))

    def game():
        return ShardedKNNGame.of(
            table, validation.drop_columns(["label"]), validation.column("label").to_pylist(),
            n_neighbors=N_NEIGHBORS, scoring=None, scale="robust", column_types=None, empty="prior",
            column_groups=None, executor=Serial(), show_progress=False,
        )  # fmt: skip

    def ask(game):
        queries = WeightedQueries.weigh((game.queries.columns,), game.query_labels, game.scoring)
        schedule = TaskSchedule(
            queries, (most, n_columns), sampler=PermutationSampler(1), column_semivalue=Shapley(),
            with_label=False, empty="prior", seed=0,
        )  # fmt: skip
        return schedule, 1

    n_shards = max(1, n_rows // ROWS_PER_SHARD)
    found = plan_of_shards(
        SimpleNamespace(shape=(n_rows, n_columns), n_shards=n_shards), game, ask,
        bins=BinnedRanks(), semivalue=Shapley(), executor=Serial(),
    )  # fmt: skip
    grown = len(sample_positions(n_rows)) / len(sample_positions(most))
    spent = found.core_seconds | {SERIAL: found.core_seconds[SERIAL] * grown}
    n_workers = min(n_shards, 100)
    return replace(
        found, core_seconds=spent, run_bytes=found.run_bytes * grown, n_workers=n_workers,
        base_bytes=found.base_bytes + found.run_bytes * (grown - 1),
        on_cluster=n_workers > 1,
    )  # fmt: skip


def describe(power: int, n_columns: int, plan: Any) -> Row:
    """Return the figures of a plan."""
    row = {"rows": f"10^{power}", "columns": n_columns, "shards": plan.n_shards}
    row |= {
        "workers": plan.n_workers,
        "core-minutes": 60 * plan.core_hours,
        "minutes": 60 * plan.hours,
    }
    return row | {
        "GB sent": plan.network_bytes / 1e9 if plan.on_cluster else None,
        "through the driver": plan.driver_bytes / 1e9 if plan.on_cluster else None,
        "GB per worker": plan.memory_per_worker / 1e9,
        "GB of disk": plan.disk_bytes / 1e9,
    }
