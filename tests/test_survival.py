"""Real processes and a real cluster: workers and drivers are killed, and the bits stay the same."""

import os
import signal
import time
from contextlib import ExitStack
from itertools import cycle, islice, product

import numpy as np
import pytest

import survivor
from cellworth import Runtime, load
from cellworth.runtime import (
    Dask,
    MaxSeconds,
    MaxTasks,
    Processes,
    Ray,
    Serial,
    TargetStandardError,
    Threads,
)
from cellworth.runtime.workers import REQUESTS_PER_WORKER
from killing import Driver, Killer, Log, kill_in_mid_task, still_there
from matrices import rarely

pytest.importorskip("distributed")
psutil = pytest.importorskip("psutil")

# Moments are hit, and seconds counted.
pytestmark = pytest.mark.slow

N_TASKS = 20
N_TASKS_OF_LONG_RUN = 160
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


@pytest.fixture(scope="module")
def one_worker():
    with survivor.cluster(1) as client:
        yield client


@pytest.fixture(scope="module")
def two_workers():
    with survivor.cluster(2) as client:
        yield client


@pytest.fixture
def executor(request):
    """Make an executor of a name and a number of workers.

    Clusters are shared, but not those whose workers are killed: Dask does not always succeed in
    replacing them. Ray does.
    """
    with ExitStack() as clusters:

        def of(name, n_workers, shared=True):
            if name == "ray":
                request.getfixturevalue("ray_cluster")
                return Ray()
            if name != "dask":
                return IN_PLACE[name](n_workers)
            if not shared:
                return Dask(clusters.enter_context(survivor.cluster(n_workers)))
            return Dask(request.getfixturevalue("one_worker" if n_workers == 1 else "two_workers"))

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
nightly = pytest.mark.nightly
ONE_OFTEN = ["knn", *rarely("monte carlo")]


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(("serial", 1, 0), marks=nightly),
        pytest.param(("threads", 1, 0), marks=nightly),
        pytest.param(("threads", 2, 0), marks=nightly),
        pytest.param(("processes", 1, 0), marks=nightly),
        pytest.param(("processes", 2, 0), marks=nightly),
        pytest.param(("dask", 1, 0), marks=nightly),
        pytest.param(("dask", 2, 0), marks=nightly),
        pytest.param(("processes", 1, 2), marks=nightly),
        ("processes", 2, 2),
        pytest.param(("dask", 1, 2), marks=nightly),
        pytest.param(("dask", 2, 2), marks=nightly),
        pytest.param(("ray", 2, 0), marks=nightly),
        pytest.param(("ray", 2, 2), marks=nightly),
    ],
    ids=str,
)
@pytest.mark.parametrize("valuer", VALUERS)
def test_killed_workers_leave_no_trace(valuer, cell, executor, uninterrupted, tmp_path):
    name, n_workers, n_kills = cell
    bits, n_starts = uninterrupted(valuer, N_TASKS)
    position = executor(name, n_workers, shared=n_kills == 0)
    killer = Killer(Log(tmp_path / "log"), [n_starts // 6, n_starts // 2][:n_kills])
    killer.start()
    valuation = resumed(valuer, tmp_path, position, N_TASKS)
    killer.join(0)
    assert survivor.digest(valuation) == bits
    assert valuation.status == "estimated"
    assert len(set(killer.killed)) == n_kills
    assert os.getpid() not in killer.killed


@pytest.mark.parametrize("valuer", ONE_OFTEN)
def test_all_workers_of_a_cluster_may_die_at_once(valuer, executor, uninterrupted, tmp_path):
    bits, n_starts = uninterrupted(valuer, N_TASKS)
    position = executor("dask", 2, shared=False)
    killer = Killer(Log(tmp_path / "log"), [n_starts // 3], n_victims=2)
    killer.start()
    # Long enough that both are often in the middle of something.
    seconds = 0.3 if valuer == "knn" else 0.01
    valuation = resumed(valuer, tmp_path, position, N_TASKS, seconds=seconds)
    assert survivor.digest(valuation) == bits
    assert len(set(killer.killed)) == 2


@pytest.mark.parametrize(
    "cell",
    [
        ("serial", 1),
        pytest.param(("threads", 1), marks=nightly),
        pytest.param(("threads", 2), marks=nightly),
    ],
    ids=str,
)
@pytest.mark.parametrize("valuer", ONE_OFTEN)
def test_a_killed_process_leaves_no_trace(valuer, cell, drive, uninterrupted, tmp_path):
    bits, n_starts = uninterrupted(valuer, N_TASKS)
    killed = []
    for moment in (n_starts // 6, n_starts // 2):
        with drive(valuer, *cell, N_TASKS, tmp_path) as driver:
            driver.wait_for_starts(moment)
            killed += kill_in_mid_task(driver.log, lambda: [driver.process.pid])
            assert driver.process.wait() == -signal.SIGKILL
    name, n_workers = cell
    valuation = resumed(valuer, tmp_path, IN_PLACE[name](n_workers), N_TASKS)
    assert survivor.digest(valuation) == bits
    assert len(set(killed)) == 2
    # Else the last session did it all.
    assert Log(tmp_path / "log").n_starts < 2 * n_starts


PLACES = {"serial": 1, "threads": 2, "processes": 2, "dask": 2, "ray": 2}


def most_lost(valuer, name):
    """Starts that a kill of the driver may cost.

    What was sent to a pool and has not come back is lost: its capacity, REQUESTS_PER_WORKER
    requests for each worker (workers of a killed driver may still begin what waits for them),
    and one request for Serial. So are answers that wait to share a file with the next one: a
    survivor's journal waits as long as its last file took, a few milliseconds, which is less
    than a request takes, so that there is at most one of each worker.
    A request is a task, or at most the fits of one grid; then each session looks at the whole
    table anew. Utilities of the other corners need no fit.
    """
    n_workers = PLACES[name]
    capacity = 1 if name == "serial" else REQUESTS_PER_WORKER * n_workers
    n_requests = capacity + n_workers
    return n_requests if valuer == "knn" else n_requests * survivor.MAX_FITS_PER_REQUEST + 1


@nightly
@pytest.mark.parametrize("n_kills", [5, 10])
@pytest.mark.parametrize("valuer", VALUERS)
def test_kills_cost_no_more_than_what_was_in_flight(
    valuer, n_kills, drive, uninterrupted, tmp_path
):
    n_tasks = N_TASKS_OF_LONG_RUN
    bits, n_starts = uninterrupted(valuer, n_tasks)
    scale = 1 if valuer == "knn" else survivor.MAX_FITS_PER_REQUEST
    rng = np.random.default_rng(17)
    log = Log(tmp_path / "log")
    # Not Ray: agents of its node outlive a driver that started the node and was killed.
    names = list(islice(cycle(each for each in PLACES if each != "ray"), n_kills))
    lost_if_nothing_were_kept = 0
    for name in names:
        before = log.n_starts
        with drive(valuer, name, PLACES[name], n_tasks, tmp_path) as driver:
            driver.wait_for_starts(before + rng.integers(6, 15) * scale)
            time.sleep(rng.uniform(0.0, 0.1))
            family = driver.family()
            driver.process.kill()
            assert driver.process.wait() == -signal.SIGKILL, driver.errors()
            assert not still_there(family, SECONDS_TO_LEAVE)
        lost_if_nothing_were_kept += log.n_starts - before
    assert survivor.digest(resumed(valuer, tmp_path, Threads(2), n_tasks)) == bits
    allowed = sum(most_lost(valuer, name) for name in names)
    assert log.n_starts <= n_starts + allowed
    # The bound has teeth: sessions that begin anew each time would be beyond it.
    assert lost_if_nothing_were_kept > allowed


SIGNALS = {
    "SIGINT": (signal.SIGINT, False, "knn"),
    "SIGTERM": (signal.SIGTERM, False, "monte carlo"),
    "Ctrl-C in a terminal": (signal.SIGINT, True, "monte carlo"),
}


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("threads", "SIGINT"),
        ("serial", "SIGTERM"),
        ("processes", "Ctrl-C in a terminal"),
        *rarely(*product(["serial", "processes", "dask", "ray"], ["SIGINT"])),
        *rarely(*product(["processes", "dask"], ["SIGTERM"])),
        *rarely(*product(["threads", "dask", "ray"], ["Ctrl-C in a terminal"])),
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


RULES = {
    "MaxTasks": MaxTasks(7),
    "MaxSeconds": MaxSeconds(1.0),
    # Errors are believed after ten sweeps.
    "TargetStandardError": TargetStandardError(100.0),
}
SECONDS_TO_SETTLE = 0.1


@pytest.mark.filterwarnings("ignore:the run was")
@pytest.mark.parametrize(
    ("name", "rule"),
    [
        *product(["serial"], RULES),
        ("processes", "MaxTasks"),
        *rarely(("threads", "TargetStandardError"), ("processes", "MaxSeconds")),
        *rarely(*product(["threads", "dask", "ray"], ["MaxTasks", "MaxSeconds"])),
    ],
)
def test_nothing_begins_after_a_rule_has_ended_a_run(name, rule, executor, tmp_path):
    log = Log(tmp_path / "log")
    position = executor(name, PLACES[name])
    valuation = survivor.knn(
        log.path,
        stop=RULES[rule],
        cv=2,
        seconds=0.15,
        runtime=Runtime(executor=position, checkpoint=tmp_path / "checkpoint"),
    )
    ended = time.time()
    # What runs on a cluster cannot be ended, and ends; what waits there is cancelled.
    time.sleep(0.6)
    assert log.latest_start < ended + SECONDS_TO_SETTLE
    n_done = valuation.provenance.sessions[0].tasks
    assert n_done <= log.n_starts
    if rule == "MaxTasks":
        assert log.n_starts == n_done == 7
