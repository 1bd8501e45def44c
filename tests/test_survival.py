"""Real processes and a real cluster: workers and drivers are killed, and the bits stay the same."""

import os
import signal
from contextlib import ExitStack

import pytest

import survivor
from cellworth import Runtime, load
from cellworth.runtime import (
    Dask,
    MaxTasks,
    Processes,
    Ray,
    Serial,
    Threads,
)
from killing import Driver, Killer, Log, kill_in_mid_task, still_there
from matrices import rarely

pytest.importorskip("distributed")
psutil = pytest.importorskip("psutil")

# Moments are hit, and seconds counted.
pytestmark = pytest.mark.slow

N_TASKS = 20
N_TASKS_OF_SIGNALLED_RUN = 60
# Dask takes up to five seconds to close a cluster whose workers were interrupted, too.
SECONDS_TO_LEAVE = 60.0


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """Digest and number of starts of a run in one go, without checkpoint."""
    known = {}

    def of(valuer, n_tasks):
        if (valuer, n_tasks) not in known:
            log = Log(tmp_path_factory.mktemp("uninterrupted") / "log")
            run = survivor.VALUERS[valuer]
            valuation = run(
                log.path, stop=MaxTasks(n_tasks), runtime=Runtime(executor=Serial()), seconds=0.0
            )
            known[valuer, n_tasks] = survivor.digest(valuation), log.n_starts
        return known[valuer, n_tasks]

    return of


@pytest.fixture
def executor(request):
    """Make an executor of a name and a number of workers.

    Clusters of Dask are not shared: it does not always replace workers that were killed. Ray does.
    """
    with ExitStack() as clusters:

        def of(name, n_workers):
            if name == "ray":
                request.getfixturevalue("ray_cluster")
                return Ray()
            if name == "dask":
                return Dask(clusters.enter_context(survivor.cluster(n_workers)))
            return IN_PLACE[name](n_workers)

        yield of


IN_PLACE = {"serial": lambda _: Serial(), "threads": Threads, "processes": Processes}


def resumed(valuer, folder, executor, n_tasks, **given):
    return survivor.VALUERS[valuer](
        folder / "log",
        stop=MaxTasks(n_tasks),
        runtime=Runtime(executor=executor, checkpoint=folder / "checkpoint"),
        **given,
    )


@pytest.fixture(scope="module")
def drive():
    """Begin a run in a process of its own; the next one wakes up in the meantime."""
    waiting = [Driver("survivor")]

    def begin(valuer, executor, n_workers, n_tasks, folder):
        waiting.append(Driver("survivor"))
        return waiting.pop(0).begin(
            folder, valuer=valuer, executor=executor, n_workers=n_workers, n_tasks=n_tasks
        )

    yield begin
    with waiting[0]:
        pass


VALUERS = ["knn", "monte carlo"]


@pytest.mark.parametrize(
    ("valuer", "name", "n_workers"),
    [
        ("knn", "processes", 2),
        *rarely(("monte carlo", "processes", 2), ("monte carlo", "processes", 1)),
        *rarely(("knn", "dask", 2), ("monte carlo", "dask", 2)),
        *rarely(("knn", "ray", 2), ("monte carlo", "ray", 2)),
    ],
)
def test_killed_workers_leave_no_trace(
    valuer, name, n_workers, *, executor, uninterrupted, tmp_path
):
    bits, n_starts = uninterrupted(valuer, N_TASKS)
    position = executor(name, n_workers)
    killer = Killer(Log(tmp_path / "log"), [n_starts // 6, n_starts // 2])
    killer.start()
    valuation = resumed(valuer, tmp_path, position, N_TASKS)
    killer.join(0)
    assert survivor.digest(valuation) == bits
    assert valuation.status == "estimated"
    assert len(set(killer.killed)) == 2
    assert os.getpid() not in killer.killed


@pytest.mark.nightly
@pytest.mark.parametrize("valuer", VALUERS)
def test_all_workers_of_a_cluster_may_die_at_once(valuer, executor, uninterrupted, tmp_path):
    bits, n_starts = uninterrupted(valuer, N_TASKS)
    position = executor("dask", 2)
    killer = Killer(Log(tmp_path / "log"), [n_starts // 3], n_victims=2)
    killer.start()
    # Long enough that both are often in the middle of something.
    seconds = 0.3 if valuer == "knn" else 0.01
    valuation = resumed(valuer, tmp_path, position, N_TASKS, seconds=seconds)
    assert survivor.digest(valuation) == bits
    assert len(set(killer.killed)) == 2


@pytest.mark.parametrize(
    ("valuer", "name", "n_workers"),
    [("knn", "serial", 1), *rarely(("monte carlo", "serial", 1), ("knn", "threads", 2))],
)
def test_a_killed_process_leaves_no_trace(
    valuer, name, n_workers, *, drive, uninterrupted, tmp_path
):
    bits, n_starts = uninterrupted(valuer, N_TASKS)
    killed = []
    for moment in (n_starts // 6, n_starts // 2):
        with drive(valuer, name, n_workers, N_TASKS, tmp_path) as driver:
            driver.wait_for_starts(moment)
            killed += kill_in_mid_task(driver.log, lambda: [driver.process.pid])
            assert driver.process.wait() == -signal.SIGKILL
    valuation = resumed(valuer, tmp_path, IN_PLACE[name](n_workers), N_TASKS)
    assert survivor.digest(valuation) == bits
    assert len(set(killed)) == 2
    # Else the last session did it all.
    assert Log(tmp_path / "log").n_starts < 2 * n_starts


PLACES = {"serial": 1, "threads": 2, "processes": 2, "dask": 2, "ray": 2}


SIGNALS = {
    "SIGINT": (signal.SIGINT, False, "knn"),
    "SIGTERM": (signal.SIGTERM, False, "monte carlo"),
    "Ctrl-C in a terminal": (signal.SIGINT, True, "monte carlo"),
}


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("processes", "Ctrl-C in a terminal"),
        *rarely(("threads", "SIGINT"), ("processes", "SIGINT"), ("ray", "SIGINT")),
        *rarely(("serial", "SIGTERM"), ("dask", "SIGTERM"), ("dask", "Ctrl-C in a terminal")),
    ],
)
def test_a_signal_ends_a_run_cleanly(name, sent, drive, uninterrupted, tmp_path):
    number, whole_group, valuer = SIGNALS[sent]
    bits, _ = uninterrupted(valuer, N_TASKS_OF_SIGNALLED_RUN)
    with drive(valuer, name, PLACES[name], N_TASKS_OF_SIGNALLED_RUN, tmp_path) as driver:
        driver.wait_for_starts(10 if valuer == "knn" else 200)
        if valuer == "knn":
            # A worker that loads kernels may be slower at its first task than the other at ten.
            driver.wait_for_end("0")
        family = driver.family()
        (os.killpg if whole_group else os.kill)(driver.process.pid, number)
        assert driver.process.wait(SECONDS_TO_LEAVE) == 0, driver.errors()
        assert not still_there(family, SECONDS_TO_LEAVE)
        assert driver.ended()["status"] == "interrupted"
    saved = load(tmp_path / "valuation")
    assert saved.status == "interrupted"
    assert survivor.digest(saved) == driver.ended()["digest"]
    whole = resumed(valuer, tmp_path, Threads(2), N_TASKS_OF_SIGNALLED_RUN)
    assert survivor.digest(whole) == bits
