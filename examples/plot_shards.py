"""
Value a table that does not fit into memory
===========================================

``ShardedKNNValuer`` reads a table from files, one shard at a time, and writes the values to files.
Here the table is small, so that the result can be compared with ``KNNValuer``.
"""

import tempfile
from pathlib import Path

import numpy as np
from matplotlib import pyplot

from cellworth import KNNValuer, Runtime, ShardedKNNValuer, ShardedTable
from cellworth.data import load_adult
from cellworth.sampling import QuadratureSampler

people, income = load_adult("train", backend="pandas")
people = people.drop(columns="fnlwgt")
X_val, y_val = people[-50:], income[-50:]

# %%
# Four files of 1,000 people each.

folder = Path(tempfile.mkdtemp())
for part in range(4):
    rows = slice(1000 * part, 1000 * (part + 1))
    people[rows].assign(income=income[rows]).to_parquet(folder / f"part-{part}.parquet")
table = ShardedTable.from_files(folder, target="income")
print(table)

# %%
# Sums, lists and single cells are read from the files of values when they are asked for.

settings = {"n_neighbors": 5, "sampler": QuadratureSampler(52), "n_passes": 2, "random_state": 0}
valuer = ShardedKNNValuer(**settings, runtime=Runtime(progress=False))
sharded = valuer.fit(table, X_val=X_val, y_val=y_val).valuation_
print(sharded.columns().highest(5))
print(sharded.lowest(3))

# %%
# The same in memory. Rows far away are counted in bins over shards, so values differ slightly.

in_memory = KNNValuer(**settings, runtime=Runtime(progress=False)).fit(
    people[:4000], income[:4000], X_val=X_val, y_val=y_val
)
ax = pyplot.subplots(figsize=(4.6, 4.2), layout="constrained")[1]
ax.axline((0, 0), slope=1, color="0.6", linewidth=1)
ax.plot(in_memory.values_.ravel(), sharded.values.ravel(), ".", markersize=2, alpha=0.5)
ax.set(xlabel="value of a cell, table in memory", ylabel="value of a cell, table in shards")
print(f"correlation {np.corrcoef(in_memory.values_.ravel(), sharded.values.ravel())[0, 1]:.4f}")
