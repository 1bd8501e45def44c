"""Values that lie in files are read within little memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cellworth.data import Blocks
from cellworth.data.blocks import Axis, NumberedAxis
from cellworth.sampling import Moments
from cellworth.sampling.moments import Tally
from cellworth.valuation.provenance import Provenance, Session
from cellworth.valuation.sharded_valuation import ShardedValuation, StoredMoments
from cellworth.valuation.storage import GROUP_ROWS, ValueFile, write_groups
from in_shards import SHAPLEY

N_ROWS, N_COLUMNS, N_SHARDS = 2_000_000, 20, 8
MAX_MEGABYTES = 240

READER = """
import json, resource, sys
# Without threads' stacks, which count too.
resource.setrlimit(resource.RLIMIT_AS, (10**9, 10**9))
import pyarrow.parquet
from cellworth import Owners, load, report
from cellworth.data.tables import AbsentTable
from cellworth.payouts import Policy, split_revenue

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
owners = Owners(AbsentTable(Table())).assign("ann", rows=slice(0, n // 3))
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
    "signs": list(valuation.sign_counts()),
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


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_forty_million_values_are_read_within_less_than_they_take(tmp_path):
    files, sums = [], np.zeros(N_COLUMNS + 1)
    for number in range(N_SHARDS):
        mean, spread = shard(number)
        figures = {"mean": mean, "row_mean": mean.sum(axis=1)}
        figures |= {"sum_sq": spread, "row_sum_sq": spread.sum(axis=1)}
        groups = (
            {name: figure[start : start + GROUP_ROWS] for name, figure in figures.items()}
            for start in range(0, len(mean), GROUP_ROWS)
        )
        entry = write_groups(tmp_path, number, number * len(mean), groups)
        files.append(ValueFile.from_plain(entry))
        sums += np.append(mean.sum(axis=0), mean.sum())
    columns = Axis.from_ids([f"c{j}" for j in range(N_COLUMNS)], what="column")
    moments = Moments(np.full(len(sums), 3), sums, np.full(len(sums), 1e-6))
    ShardedValuation(
        Blocks(NumberedAxis(N_ROWS), columns),
        StoredMoments(tmp_path, files, moments),
        expected_total=sums[-1],
        empty="prior",
        status="estimated",
        provenance=Provenance.now(SHAPLEY, {"name": "KNNValuer"}, Session(0, 3), Tally(1), 1.0),
    ).save(tmp_path)
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
    negative, _, positive, _ = told["signs"]
    assert 0 < negative < positive
    third = N_ROWS // 3
    worth = [values[:third].sum(), values[third:, [0, 7]].sum()]
    np.testing.assert_allclose(told["worth"], worth, rtol=1e-9)
    assert told["n_visited"] == values.size
    assert "Valuation of 2,000,000 x 20 blocks" in told["text"]

    assert told["megabytes"] < MAX_MEGABYTES
