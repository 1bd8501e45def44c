"""Rounds over shards on real clusters: workers and drivers are killed, the bits stay the same."""

import pickle
import signal
import time
from collections import Counter
from contextlib import ExitStack, nullcontext

import numpy as np
import pytest

import survivor
import toy_shards
from cellworth.runtime import (
    Dask,
    Ray,
    Serial,
    Threads,
    dask_executor,
    rounds,
    shard_algorithm,
    workers,
)
from cellworth.runtime.shard_algorithm import ShardCache
from killing import Driver, Killer, Log, kill_in_mid_task, still_there
from matrices import rarely
from toy_shards import Broken, Deadly, Elsewhere, Outgrown, Toy

distributed = pytest.importorskip("distributed")
dask = pytest.importorskip("dask")

N_ROWS, N_ROUNDS, N_SHARDS = 1000, 5, 6
SECONDS = 0.05
# Dask takes up to five seconds to close a cluster whose workers were interrupted, too.
SECONDS_TO_LEAVE = 10.0


@pytest.fixture(scope="module")
def cluster():
    """Make clients of clusters of so many workers, which are shared: nobody kills these."""
    clients = {}
    with ExitStack() as stack:

        def of(n_workers):
            if n_workers not in clients:
                clients[n_workers] = stack.enter_context(survivor.cluster(n_workers))
            return clients[n_workers]

        yield of


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_shards", "n_workers"),
    [(4, 2), *rarely((1, 1), (7, 1), (16, 2))],
)
def test_any_sharding_gives_what_a_plain_loop_gives(n_shards, n_workers, cluster, truth, tmp_path):
    executor = Dask(cluster(n_workers))
    finished, got = toy_shards.run(Toy(n_shards), N_ROUNDS, executor, tmp_path)
    assert np.array_equal(got, truth(N_ROUNDS))
    assert [told["round"] for told in finished.reports] == list(range(N_ROUNDS))
    assert [entry["shard"] for entry in finished.entries] == list(range(n_shards))


@pytest.mark.slow
@pytest.mark.usefixtures("stored")
def test_a_run_goes_on_elsewhere_and_does_nothing_twice(cluster, truth, tmp_path):
    log = Log(tmp_path / "log")
    toy, folder = Toy(N_SHARDS, log=str(log.path)), tmp_path / "checkpoint"
    executors = [Dask(cluster(2)), Threads(2), Dask(cluster(2)), Serial()]
    for n_rounds, executor in enumerate(executors, start=1):
        _, got = toy_shards.run(toy, n_rounds, executor, tmp_path, folder)
        assert np.array_equal(got, truth(n_rounds))
    assert log.n_starts_of("accumulate") == log.n_starts_of("count") == N_SHARDS * len(executors)


@pytest.mark.slow
def test_rows_stay_with_their_workers(cluster, tmp_path):
    log = Log(tmp_path / "log")
    toy = Toy(N_SHARDS, log=str(log.path), seconds=0.01)
    toy_shards.run(toy, N_ROUNDS, Dask(cluster(2)), tmp_path)
    # An idle worker may take a shard over; then it has opened it as well.
    opened = Counter((pid, name) for what, pid, name, _ in log.lines() if what == "start")
    opened = {each: n for each, n in opened.items() if each[1].startswith("open")}
    assert N_SHARDS <= len(opened) <= 2 * N_SHARDS


def test_a_bench_that_comes_again_is_the_one_that_came_before(monkeypatch):
    monkeypatch.setattr(shard_algorithm, "_SECONDS_TO_KEEP", 0.05)
    sent = pickle.dumps(ShardCache(Toy(2), None))
    first = pickle.loads(sent)  # noqa: S301 (made a line before)
    with first.hold(1):
        time.sleep(0.3)
        assert pickle.loads(sent) is first  # noqa: S301
    deadline = time.monotonic() + 10
    while shard_algorithm._held and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not shard_algorithm._held
    assert pickle.loads(sent) is not first  # noqa: S301


@pytest.mark.slow
def test_an_error_of_a_worker_arrives(cluster, truth, tmp_path):
    folder = tmp_path / "checkpoint"
    with pytest.raises(ZeroDivisionError, match="nothing to divide by"):
        toy_shards.run(Broken(N_SHARDS), N_ROUNDS, Dask(cluster(2)), tmp_path, folder)
    _, got = toy_shards.run(Toy(N_SHARDS), N_ROUNDS, Dask(cluster(2)), tmp_path, folder)
    assert np.array_equal(got, truth(N_ROUNDS))


@pytest.mark.slow
def test_a_worker_that_does_not_see_the_folder_says_so(cluster, tmp_path):
    folder = tmp_path / "checkpoint"
    toy = Elsewhere(N_SHARDS, hidden=str(folder))
    with pytest.raises(FileNotFoundError, match="that all workers of the cluster share"):
        toy_shards.run(toy, 1, Dask(cluster(2)), tmp_path, folder)


@pytest.fixture
def started(request):
    """Start an executor by name; the Ray cluster is shared, because a process has only one."""

    def start(name):
        if name != "ray":
            return survivor.executor(name, 2)
        request.getfixturevalue("ray_cluster")
        return nullcontext(Ray())

    return start


@pytest.mark.slow
@pytest.mark.parametrize(
    ("executor", "doing"),
    [
        ("processes", "accumulate"),
        *rarely(("dask", "count"), ("dask", "accumulate")),
        *rarely(("ray", "count"), ("ray", "accumulate")),
    ],
)
def test_killed_workers_leave_no_trace(executor, doing, started, truth, tmp_path):
    log = Log(tmp_path / "log")
    toy = Toy(N_SHARDS, log=str(log.path), seconds=SECONDS)
    killer = Killer(log, [1, 2 * N_SHARDS], doing=doing)
    with started(executor) as position:
        killer.start()
        _, got = toy_shards.run(toy, N_ROUNDS, position, tmp_path)
        killer.join(0)
    assert np.array_equal(got, truth(N_ROUNDS))
    assert len(set(killer.killed)) == 2
    # A kill cuts off few shards at a time. The death of one process ends all of a pool.
    assert log.n_starts_of("accumulate") <= N_ROUNDS * (N_SHARDS + 2 * 4)
    # It costs the rounds whose results the worker had.
    assert log.n_starts_of("count") <= 3 * N_ROUNDS * N_SHARDS


@pytest.fixture
def impatient():
    """A cluster that gives up on a task when its worker dies."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        survivor.cluster(1) as client,
    ):
        yield client


@pytest.mark.nightly
def test_what_dask_gives_up_on_is_sent_again(impatient, truth, tmp_path):
    toy = Deadly(N_SHARDS, log=str(tmp_path / "log"), n_kills=2)
    _, got = toy_shards.run(toy, N_ROUNDS, Dask(impatient), tmp_path)
    assert np.array_equal(got, truth(N_ROUNDS))


@pytest.mark.nightly
def test_work_that_always_kills_its_worker_is_given_up(impatient, monkeypatch, tmp_path):
    for module in (workers, rounds):
        monkeypatch.setattr(module, "MAX_FAILURES_IN_A_ROW", 1)
    toy = Deadly(N_SHARDS, log=str(tmp_path / "log"), n_kills=1000)
    with pytest.raises(RuntimeError, match=r"workers died 2 times in a row|done in 2 attempts"):
        toy_shards.run(toy, N_ROUNDS, Dask(impatient), tmp_path)


@pytest.mark.nightly
def test_shards_that_outgrow_the_workers_memory_end_the_run(impatient, tmp_path):
    toy = Outgrown(N_SHARDS, log=str(tmp_path / "log"), n_kills=1000)
    with pytest.raises(
        MemoryError, match=r"exceeded their memory limit of .* needs more than 5.00 kiB"
    ):
        toy_shards.run(toy, N_ROUNDS, Dask(impatient), tmp_path)


@pytest.mark.slow
def test_workers_of_shards_that_may_not_begin_end_the_run(monkeypatch, tmp_path):
    monkeypatch.setattr(dask_executor, "_SECONDS_BETWEEN_CHECKS", 0.3)
    monkeypatch.setattr(workers, "_SECONDS_BETWEEN_COUNTS", 0.3)
    with (
        distributed.Client(
            processes=False, n_workers=1, dashboard_address=":0", memory_limit="20 MiB"
        ) as client,
        pytest.raises(MemoryError, match="near their memory limit"),
    ):
        toy_shards.run(Toy(N_SHARDS), N_ROUNDS, Dask(client), tmp_path)


def driven(folder, executor):
    asked = {"n_shards": N_SHARDS, "n_rounds": N_ROUNDS, "seconds": SECONDS}
    return Driver("toy_shards").begin(folder, executor=executor, n_workers=2, **asked)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("executor", "then", "doing"),
    [
        ("serial", "threads", "count"),
        *rarely(("threads", "dask", "accumulate"), ("dask", "serial", "count")),
        *rarely(("processes", "ray", "accumulate"), ("ray", "processes", "count")),
    ],
)
def test_a_killed_driver_leaves_no_trace(executor, then, doing, *, started, truth, tmp_path):
    log = Log(tmp_path / "log")
    with driven(tmp_path, executor) as driver:
        driver.wait_for_starts(2 * N_SHARDS, doing=doing)
        family = driver.family()
        if executor in ("processes", "dask", "ray"):
            # Tasks are in other processes.
            driver.process.kill()
        else:
            kill_in_mid_task(log, lambda: [driver.process.pid], doing=doing)
        assert driver.process.wait() == -signal.SIGKILL, driver.errors()
        # Agents of a Ray node outlive a driver that started the node and was killed.
        assert executor == "ray" or not still_there(family, SECONDS_TO_LEAVE)
    toy = Toy(N_SHARDS, log=str(log.path))
    with started(then) as position:
        _, got = toy_shards.run(toy, N_ROUNDS, position, tmp_path, tmp_path / "checkpoint")
    assert np.array_equal(got, truth(N_ROUNDS))
    # At most what was in flight is settled again: one shard for each worker.
    assert log.n_starts_of("accumulate") <= N_ROUNDS * N_SHARDS + 2


def bytes_moved(client):
    """Bytes that workers handed out: to each other, and to the driver."""
    return sum(client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total).values())


@pytest.mark.nightly
def test_rows_and_states_do_not_travel(cluster, tmp_path):
    toy, client = Toy(12, weight=2**20), cluster(2)
    before = bytes_moved(client)
    toy_shards.run(toy, N_ROUNDS, Dask(client), tmp_path)
    moved = bytes_moved(client) - before
    # All of it is less than the rows or the state of one shard.
    assert 0 < moved < 2**20
