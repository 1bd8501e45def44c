"""A mixture of four clusters, written as Parquet files.

Twenty columns: twelve of float32, four of small integers, four of strings; two of them with 3%
missing values. The target is "low" or "high". Rows are drawn in chunks of 500,000; a chunk depends
only on the seed and its number.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

CHUNK = 500_000
ROWS_PER_GROUP = 62_500
N_CLUSTERS = 4
N_NUMBERS, N_COUNTS, N_TEXTS = 12, 4, 4
MISSING_SHARE = 0.03
LEVELS = (3, 6, 12, 40)


def clusters(seed):
    """Return the centers of clusters and the distributions of their labels and levels."""
    rng = np.random.default_rng([seed, 2**31])
    return {
        "centres": rng.normal(size=(N_CLUSTERS, N_NUMBERS)),
        "rates": rng.uniform(1, 6, size=(N_CLUSTERS, N_COUNTS)),
        "levels": [rng.dirichlet(np.ones(n), size=N_CLUSTERS) for n in LEVELS],
        "high": np.array([0.1, 0.35, 0.6, 0.9]),
    }


def chunk(seed, number, n_rows=CHUNK):
    """Return rows of one chunk as an Arrow table; fewer rows are the first ones."""
    rng = np.random.default_rng([seed, number])
    world = clusters(seed)
    cluster = rng.integers(0, N_CLUSTERS, CHUNK)
    columns = {}
    for j in range(N_NUMBERS):
        numbers = rng.standard_normal(CHUNK, dtype=np.float32)
        numbers += world["centres"][:, j].astype(np.float32)[cluster]
        columns[f"number{j}"] = numbers
    for j in range(N_COUNTS):
        columns[f"count{j}"] = rng.poisson(world["rates"][:, j][cluster]).astype(np.int32)
    for j, shares in enumerate(world["levels"]):
        ends = np.cumsum(shares, axis=1)
        codes = (rng.random(CHUNK)[:, None] > ends[cluster][:, :-1]).sum(axis=1).astype(np.int32)
        names = pa.array([f"level {level}" for level in range(LEVELS[j])])
        columns[f"text{j}"] = pa.DictionaryArray.from_arrays(codes, names).cast("string")
    for name in ("number0", "text0"):
        mask = pa.array(rng.random(CHUNK) < MISSING_SHARE)
        cells = pa.array(columns[name])
        columns[name] = pc.if_else(mask, pa.scalar(None, cells.type), cells)
    high = rng.random(CHUNK) < world["high"][cluster]
    columns["label"] = pa.DictionaryArray.from_arrays(
        high.astype(np.int32), pa.array(["low", "high"])
    ).cast("string")
    return pa.table(columns).slice(0, n_rows)


def write(folder, n_rows, n_files, seed=0, rows_per_group=ROWS_PER_GROUP):
    """Write the first rows of the mixture into this many files; return the folder."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    ends = np.linspace(0, n_rows, n_files + 1).round().astype(int).tolist()
    held, rows = None, None
    for k, (start, end) in enumerate(pairwise(ends)):
        path = folder / f"part-{k:05d}.parquet"
        with pq.ParquetWriter(path, chunk(seed, 0, 0).schema, compression="zstd") as writer:
            for first in range(start, end, rows_per_group):
                last = min(first + rows_per_group, end)
                pieces = []
                for number in range(first // CHUNK, (last - 1) // CHUNK + 1):
                    if number != held:
                        held, rows = number, chunk(seed, number)
                    low, high = max(first - number * CHUNK, 0), min(last - number * CHUNK, CHUNK)
                    pieces.append(rows.slice(low, high - low))
                writer.write_table(pa.concat_tables(pieces).combine_chunks())
    return folder


def queries(n_queries, seed=0):
    """Return validation rows and labels, from a chunk beyond all tables."""
    rows = chunk(seed, 2**30, n_queries)
    return rows.drop_columns("label"), rows["label"].to_pylist()
