"""Plans of runs over shards: their arithmetic, and what real runs need in comparison."""

import re
import time
from collections import Counter
from itertools import chain

import pytest

from cellworth import Runtime, ShardedKNNValuer, ShardedTable
from cellworth.knn import BinnedRanks
from cellworth.runtime import Dask, Serial, Threads
from cellworth.sampling import PermutationSampler
from cellworth.valuers.plan import SERIAL, ShardPlan
from experiments import mixture

N_ROWS, N_QUERIES = 8000, 256


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixture, "CHUNK", 20_000)
        yield mixture.write(tmp_path_factory.mktemp("rows"), N_ROWS, 8, rows_per_group=500)


@pytest.fixture(scope="module")
def judges():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixture, "CHUNK", 20_000)
        X_val, y_val = mixture.queries(N_QUERIES)
    return {"X_val": X_val, "y_val": y_val}


def table(folder, n_shards=8):
    return ShardedTable.from_files(folder, target="label", shards=n_shards)


def valuer(**settings):
    settings = {
        "sampler": PermutationSampler(1),
        "n_passes": 2,
        "runtime": Runtime(executor=Serial()),
        **settings,
    }
    return ShardedKNNValuer(5, ranking=BinnedRanks(100), random_state=0, **settings)


def plan(**settings):
    settings = {
        "n_shards": 100, "n_workers": 10, "n_queries": 1000, "n_coalitions": 50, "n_passes": 2,
        "n_rounds": 16, "core_seconds": {"passes over the rows": 7e4, SERIAL: 50.0},
        "pair_bytes": 1e4, "near_bytes": 0.0, "run_bytes": 1e7, "summary_bytes": 1e6,
        "row_bytes": 800, "base_bytes": 5e8, "disk_bytes": 1e11, "on_cluster": True, **settings,
    }  # fmt: skip
    return ShardPlan((10**8, 50), **settings)


def test_what_one_worker_does_for_a_round_becomes_the_bottleneck_of_many():
    assert plan().bottleneck == "passes over the rows"
    many = plan(n_shards=100_000, n_workers=100_000)
    assert many.bottleneck == SERIAL
    assert many.hours < plan().hours


def test_one_process_sends_nothing_and_each_further_worker_gets_every_message_once():
    assert plan(n_workers=1).network_bytes == plan(on_cluster=False).network_bytes == 0
    assert plan(n_workers=3).network_bytes == 2 * plan(n_workers=2).network_bytes
    assert plan(n_workers=2).network_bytes == 10**5 * 1e4 + 2 * 1e7


def test_more_workers_are_faster_and_need_more_network():
    few, many = plan(), plan().with_workers(100)
    assert many.hours < few.hours
    assert many.network_bytes > few.network_bytes
    more = plan().with_workers(500)
    assert more.n_shards == 500
    assert few.memory_per_worker - more.memory_per_worker == (10**6 - 2 * 10**5) * 800


def test_it_is_told_line_by_line():
    told = repr(plan())
    for part in (
        "100,000,000 x 50 in 100 shards",
        "16 rounds",
        "19.5 h of one core",
        "1.95 h",
        "9.18 GB between workers, 120 MB through the driver",
        "1.3 GB per worker",
        "100 GB",
    ):
        assert part in told


@pytest.mark.slow
@pytest.mark.parametrize("sweeps", [1, 2])
def test_rounds_and_files_are_as_planned(folder, judges, tmp_path, sweeps):
    two = Runtime(executor=Threads(2))
    found = valuer(n_passes=sweeps, runtime=two).plan(table(folder), **judges)
    assert (found.shape, found.n_shards, found.n_workers) == ((N_ROWS, 20), 8, 2)
    fitted = valuer(n_passes=sweeps, runtime=Runtime(checkpoint=tmp_path / "run"))
    provenance = fitted.fit(table(folder), **judges).valuation_.provenance
    assert found.n_rounds == provenance.sessions[0].tasks
    assert found.n_pairs == provenance.tally.utilities
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert size == pytest.approx(found.disk_bytes, rel=0.2)


def test_a_plan_needs_validation_rows(folder):
    with pytest.raises(ValueError, match="X_val"):
        valuer().plan(table(folder), X_val=None, y_val=None)


@pytest.mark.alone
@pytest.mark.slow
def test_core_seconds_are_right_within_a_factor_of_three(folder, judges):
    began = time.process_time()
    found = valuer(n_passes=6).plan(table(folder), **judges)
    assert time.process_time() - began < 20
    valuer().fit(table(folder), **judges)
    began = time.process_time()
    valuer(n_passes=6).fit(table(folder), **judges)
    spent = time.process_time() - began
    assert 1 / 3 < spent / (3600 * found.core_hours) < 3


# Name of a task -> what it sends.
CONTENTS = {
    "prepare": "bins", "visit": "summaries", "merge": "summaries", "get_part": "values",
    "get_portion": "values", "finalize": "all values at once", "work": "run", "table": "run",
    "write": "reports", "columns": "columns", "rows": "sample",
}  # fmt: skip


def make_recorder():
    # Workers do not have this module: a function within another one travels whole.
    def record_sent(dask_worker):
        """Make a worker record what it sends, and to whom."""
        from distributed.protocol.serialize import serialize
        from distributed.utils import nbytes

        dask_worker.sent, hand_out = [], dask_worker.handlers["get_data"]

        async def recorded(comm, keys, who=None, serializers=None):
            held = {key: dask_worker.data[key] for key in keys if key in dask_worker.data}
            answer = await hand_out(comm, keys=keys, who=who, serializers=serializers)
            if not isinstance(answer, dict):
                for key, thing in held.items():
                    _, frames = serialize(thing, serializers=("dask", "pickle"))
                    dask_worker.sent.append((key, who, sum(map(nbytes, frames))))
            return answer

        dask_worker.handlers["get_data"] = recorded

    return record_sent


@pytest.mark.alone
@pytest.mark.slow
def test_bytes_between_workers_are_as_planned(folder, judges):
    dask, distributed = (pytest.importorskip(name) for name in ("dask", "distributed"))
    config = {"distributed.scheduler.work-stealing": False}
    with (
        dask.config.set(config),
        distributed.LocalCluster(
            n_workers=3, threads_per_worker=1, dashboard_address=":0", memory_limit=0
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        run = ShardedKNNValuer(
            sampler=PermutationSampler(1), n_passes=2, random_state=0,
            runtime=Runtime(Dask(client), progress=False),
        )  # fmt: skip
        found = run.plan(table(folder), **judges)
        client.run(make_recorder())
        run.fit(table(folder), **judges)
        sent = client.run(lambda dask_worker: dask_worker.sent)
    between, to_driver = Counter(), Counter()
    for key, who, size in chain.from_iterable(sent.values()):
        contents = CONTENTS.get(re.match(r"[a-z_]+", key)[0], key)
        (between if who in sent else to_driver)[contents] += size
    assert sum(between.values()) == pytest.approx(found.network_bytes, rel=0.15)
    # Neither rows nor states, nor all values at once.
    assert set(between) <= {"bins", "summaries", "values", "run"}
    assert sum(to_driver.values()) < found.driver_bytes * 1.2
