"""Compare a run over shards with a bare loop over its files, in CPU time of one thread.

The bare loop is the least that any run must do: one thread reads the files with Arrow once, and for
each pair of a query and a coalition adds up distances and counts the rows in a histogram of even
steps. It ranks nothing, and values no cell. Both take turns, and the least time of each counts.
What a billion rows cost is computed from the time of the run, from the bytes of files and of the
result, and from what workers send to the driver.
"""

from __future__ import annotations

import math
import pickle
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numba import njit

from cellworth import Runtime, ShardedKNNValuer, ShardedTable
from cellworth.knn.binned import sample_positions
from cellworth.knn.shard_layout import summarize_shards
from cellworth.runtime import Serial
from cellworth.sampling import PermutationSampler
from experiments import mixture
from experiments.frame import Tables, log
from experiments.overhead import cpu_seconds

QUICK = {"rows": 2000, "queries": (2,), "rounds": 1}


@njit(error_model="numpy")
def count_pairs(rows, asked, orders, counts):
    """Count the rows of a batch by distance, for each query and prefix of its orders."""
    (numbers, codes, labels), (asked_numbers, asked_codes, asked_labels) = rows, asked
    n_numbers, width = numbers.shape[0], 2048
    block, line = np.empty((n_numbers + codes.shape[0], width)), np.empty(width)
    for first in range(0, labels.shape[0], width):
        n_rows = min(width, labels.shape[0] - first)
        for query in range(asked_labels.shape[0]):
            for j in range(n_numbers):
                for i in range(n_rows):
                    away = numbers[j, first + i] - asked_numbers[query, j]
                    block[j, i] = 2.0 if np.isnan(away) else min(away * away, 8.0)
            for j in range(codes.shape[0]):
                for i in range(n_rows):
                    same = codes[j, first + i] == asked_codes[query, j]
                    block[n_numbers + j, i] = 0.0 if same else 2.0
            pair = 0
            for order in range(orders.shape[1]):
                line[:] = 0.0
                for column in orders[query, order]:
                    own = counts[query, pair]
                    for i in range(n_rows):
                        line[i] += block[column, i]
                        match = labels[first + i] == asked_labels[query]
                        own[int(match), min(int(line[i] * 4.0), own.shape[1] - 1)] += 1
                    pair += 1


def as_numbers(columns):
    return np.array([np.asarray(column.cast("float64")) for column in columns])


def as_codes(columns):
    return np.array([np.asarray(column.indices.fill_null(-1)) for column in columns])


def count_files(folder, asked, asked_labels, n_coalitions):
    """Return the CPU seconds of one thread that counts all rows for as many pairs as the run."""
    began = cpu_seconds()
    n_columns, rng = len(asked), np.random.default_rng(0)
    texts = [f"text{j}" for j in range(mixture.N_TEXTS)]
    shape = len(asked_labels), n_coalitions // n_columns
    orders = rng.permuted(np.tile(np.arange(n_columns), (*shape, 1)), axis=2)
    counts = np.zeros((shape[0], n_coalitions, 2, 350), dtype=np.int64)
    for path in sorted(folder.glob("*.parquet")):
        file = pq.ParquetFile(path, read_dictionary=[*texts, "label"])
        for *columns, labels in (batch.columns for batch in file.iter_batches(use_threads=False)):
            dictionaries = [column.dictionary.cast("string") for column in (*columns[-4:], labels)]
            rows = as_numbers(columns[:-4]), as_codes(columns[-4:]), as_codes([labels])[0]
            wanted = [
                np.asarray(pc.index_in(cells, own).fill_null(-2))
                for cells, own in zip((*asked[-4:], asked_labels), dictionaries, strict=True)
            ]
            queries = as_numbers(asked[:-4]).T, np.array(wanted[:-1]).T, wanted[-1]
            count_pairs(rows, queries, orders, counts)
    return cpu_seconds() - began


def compare_shards(n_rows, n_queries, rounds):
    """Return times of a run over shards and of the bare loop, and what a billion rows cost."""
    X_val, y_val = mixture.queries(n_queries)
    settings = {"sampler": PermutationSampler(1), "n_passes": 1, "random_state": 0}
    runtime = Runtime(executor=Serial(), progress=False)
    bare, in_shards = [], []
    with tempfile.TemporaryDirectory() as home:
        for size in (2000, *[n_rows] * rounds):
            folder = Path(home) / str(size)
            if not folder.exists():
                mixture.write(folder, size, 2)
            began = cpu_seconds()
            table = ShardedTable.from_files(folder, target="label")
            valuer = ShardedKNNValuer(10, runtime=runtime, **settings)
            valuer.fit(table, X_val=X_val, y_val=y_val, n_validation=None)
            in_shards.append(cpu_seconds() - began)
            n_pairs = valuer.valuation_.provenance.tally.utilities
            asked = X_val.combine_chunks().columns, pa.array(y_val)
            bare.append(count_files(folder, *asked, n_pairs // n_queries))
        of_summary = len(pickle.dumps(summarize_shards(table, 0, 1, None)))
        files = sum(file.stat().st_size for file in folder.glob("*"))
    # In the first round, kernels are compiled.
    run_best, bare_best = min(in_shards[1:]), min(bare[1:])
    of_pair, n_cells = 1e9 / n_rows / n_pairs, math.prod(table.shape)
    values = Path(str(valuer.valuation_.moments.folder))
    result = sum(file.stat().st_size for file in values.rglob("*") if file.is_file())
    measured = {
        "rows": n_rows,
        "queries": n_queries,
        "run, ns per row and coalition": run_best * of_pair,
        "bare loop, ns": bare_best * of_pair,
        "ratio": run_best / bare_best,
    }
    hours = measured["run, ns per row and coalition"] * n_pairs / 3600
    n_columns = table.shape[1]
    # At most 128 summaries and one row in 1,024, in floats of 64 bits.
    to_driver = 128 * of_summary + len(sample_positions(10**9)) * n_columns * 8
    computed = {
        "queries": n_queries,
        "coalitions per query": n_pairs // n_queries,
        "CPU hours": hours,
        "hours on 100 workers": hours / 100,
        "files, GB": files / n_cells * n_columns,
        "result, GB": result / n_cells * n_columns,
        "to the driver, GB": to_driver / 1e9,
    }
    return measured, computed


def run(rows: int = 200_000, queries: tuple[int, ...] = (16, 100), rounds: int = 2) -> Tables:
    """Return times of runs and of the bare loop, and what a billion rows cost."""
    measured, computed = [], []
    for n_queries in queries:
        of_run, of_billion = compare_shards(rows, n_queries, rounds)
        measured.append(of_run)
        computed.append(of_billion)
        log(of_run, of_billion)
    return {"in one thread": measured, "a billion rows of 20 columns, computed": computed}
