"""Values that lie in files are read within little memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cellworth.moments import Tally
from cellworth.provenance import Provenance, Session
from cellworth.sharded_valuation import finish
from cellworth.value_files import write_values
from in_shards import SHAPLEY

N_ROWS, N_COLUMNS, N_SHARDS = 2_000_000, 20, 8
MOST_MEGABYTES = 240

READER = """
import json, resource, sys
# Without threads' stacks, which count too.
resource.setrlimit(resource.RLIMIT_AS, (10**9, 10**9))
import pyarrow.parquet
from cellworth import Owners, Policy, load, report, split_revenue

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024

before = peak()
valuation = load(sys.argv[1])

class Table:
    shape, names = valuation.shape, valuation.column_labels.tolist()
    def sha256(self):
        return ""

n = valuation.shape[0]
owners = Owners(Table()).assign("ann", rows=slice(0, n // 3))
owners = owners.assign("bob", rows=slice(n // 3, n), columns=["c0", "c7"])
payout = split_revenue(
    valuation, owners, amount="1000.00", policy=Policy(gate="off")
)
lowest = valuation.lowest(100)
told = report.summarize(valuation, None, cells=False)
print(json.dumps({
    "lowest": lowest.values.tolist(),
    "places": [lowest.labels["row"].tolist(), lowest.labels["column"].tolist()],
    "columns": valuation.columns().values.tolist(),
    "signs": list(valuation.signs()),
    "worth": payout.values.tolist(),
    "text": repr(valuation),
    "n_visited": told["figures"]["n_visited"],
    "megabytes": peak() - before,
}))
"""


def shard(number):
    """Mean and spread of the rows of a shard."""
    n_rows = N_ROWS // N_SHARDS
    rng = np.random.default_rng(number)
    shape = n_rows, N_COLUMNS
    return rng.normal(1.0, 2.0, size=shape) / N_ROWS, rng.random(shape) / N_ROWS**2


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_forty_million_values_are_read_within_less_than_they_take(tmp_path):
    entries, sums = [], np.zeros(N_COLUMNS + 1)
    for number in range(N_SHARDS):
        mean, spread = shard(number)
        figures = mean, spread, mean.sum(axis=1), spread.sum(axis=1)
        entries.append(write_values(tmp_path, number, number * len(mean), *figures))
        sums += np.append(mean.sum(axis=0), mean.sum())
    finish(
        tmp_path,
        entries,
        shape=(N_ROWS, N_COLUMNS),
        column_labels=[f"c{j}" for j in range(N_COLUMNS)],
        count=3,
        columns=(sums, np.full(len(sums), 1e-6)),
        expected_total=sums[-1],
        empty="prior",
        status="estimated",
        provenance=Provenance.now(SHAPLEY, {"name": "KNNValuer"}, Session(0, 3), Tally(1), 1.0),
    )
    quiet = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    told = json.loads(
        subprocess.run(  # noqa: S603 (our own words)
            [sys.executable, "-c", READER, str(tmp_path)],
            check=True, capture_output=True, text=True, env=quiet,
        ).stdout
    )  # fmt: skip
    values = np.concatenate([shard(number)[0] for number in range(N_SHARDS)])
    order = np.argsort(values.ravel(), kind="stable")[:100]
    rows, columns = np.divmod(order, N_COLUMNS)
    assert told["lowest"] == values.ravel()[order].tolist()
    assert told["places"] == [rows.tolist(), [f"c{j}" for j in columns]]
    assert told["columns"] == sums[:-1].tolist()
    assert sum(told["signs"]) == values.size
    assert told["signs"][0] > told["signs"][1]
    third = N_ROWS // 3
    worth = [values[:third].sum(), values[third:, [0, 7]].sum()]
    np.testing.assert_allclose(told["worth"], worth, rtol=1e-9)
    assert told["n_visited"] == values.size
    assert "Valuation of 2,000,000 x 20 blocks" in told["text"]

    assert told["megabytes"] < MOST_MEGABYTES
