"""Executors, without any game: all pass the conformance kit, and each has habits of its own."""

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from operator import neg

import joblib
import pytest

from cellworth.runtime import (
    Dask,
    Processes,
    Ray,
    Serial,
    Threads,
    executors,
    workers,
)
from cellworth.runtime.run_settings import choose_process_executor, choose_thread_executor
from cellworth.runtime.workers import Cancelled, leave_if_cancelled
from executor_conformance import ExecutorConformance


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    with distributed.Client(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit=0
    ) as client:
        yield client


class TestSerial(ExecutorConformance):
    def executor(self):
        return Serial()


class TestThreads(ExecutorConformance):
    def executor(self):
        return Threads(2)


@pytest.mark.slow
class TestProcesses(ExecutorConformance):
    def executor(self):
        return Processes(2)


@pytest.mark.slow
class TestDask(ExecutorConformance):
    @pytest.fixture(autouse=True)
    def _connect(self, client):
        self.client = client

    def executor(self):
        return Dask(self.client)


@pytest.mark.nightly
@pytest.mark.usefixtures("ray_cluster")
class TestRay(ExecutorConformance):
    def executor(self):
        return Ray()


def answers(executor, work, requests):
    """All answers by number."""
    kit = ExecutorConformance()
    kit.executor = lambda: executor
    return kit.get_answers(work, requests)


@pytest.mark.slow
def test_work_that_always_kills_its_worker_ends_in_an_error():
    def die(task):
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(RuntimeError, match="workers died 6 times in a row"):
        answers(Processes(1), die, range(1))


def test_threads_really_run_at_the_same_time():
    meeting = threading.Barrier(2, timeout=10)
    assert len(answers(Threads(2), lambda task: meeting.wait(), range(2))) == 2


def test_a_long_task_in_a_thread_can_leave_early():
    left, steps = [], []

    def long(task):
        try:
            for step in range(1000):
                leave_if_cancelled()
                steps.append(step)
                time.sleep(0.01)
        except Cancelled:
            left.append(task)
            raise

    with Threads(2).start(long, "long") as pool:
        pool.submit({0: 0})
        assert pool.wait_for_answers(0.1) == []
    assert left == [0]
    assert len(steps) < 200


@pytest.mark.slow
def test_processes_live_on_after_a_run_that_used_up_its_tasks():
    first = set(answers(Processes(1), lambda task: os.getpid(), range(3)).values())
    assert len(first) == 1
    assert os.getpid() not in first
    assert set(answers(Processes(1), lambda task: os.getpid(), range(3)).values()) == first


def test_a_cluster_without_workers_is_told_until_one_joins(monkeypatch, caplog):
    monkeypatch.setattr(workers, "SECONDS_WITHOUT_WORKERS", 0.1)
    monkeypatch.setattr(workers, "_SECONDS_BETWEEN_NOTICES", 0.3)
    monkeypatch.setattr(workers, "_SECONDS_BETWEEN_COUNTS", 0.05)
    distributed = pytest.importorskip("distributed")
    with (
        distributed.Client(processes=False, n_workers=0, dashboard_address=":0") as client,
        Dask(client).start(str, "nobody") as pool,
    ):
        assert pool.capacity == 2
        pool.submit({0: 5})
        with pytest.warns(
            UserWarning, match=r"no workers \(for \d s\); the run waits until"
        ) as told:
            assert not any(pool.wait_for_answers(0.1) for _ in range(10))
        lines = [record for record in caplog.records if vars(record).get("event") == "no_workers"]
        assert len(lines) == len(told) >= 2
        monkeypatch.setattr(workers, "SECONDS_WITHOUT_WORKERS", 60.0)
        client.cluster.scale(1)
        deadline = time.monotonic() + 60
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            while not (found := pool.wait_for_answers(1)) and time.monotonic() < deadline:
                pass
        assert [answer.load() for _, answer in found] == ["5"]
        # Workers are counted when the capacity is asked for, unless they were a moment ago.
        time.sleep(0.1)
        assert pool.capacity == 2 * sum(client.nthreads().values()) > 0
        client.cluster.scale(0)
        while client.nthreads() and time.monotonic() < deadline:
            pass
        time.sleep(0.1)
        assert pool.capacity == 2
    (left,) = [record for record in caplog.records if vars(record).get("event") == "lost_worker"]
    assert left.workers == 0


def test_dask_refuses_what_is_no_client():
    with pytest.raises(TypeError, match=r"client must be a distributed\.Client, got 'tcp"):
        Dask("tcp://127.0.0.1:8786")


SLOW = 100.0


def test_models_run_in_processes_where_that_pays(monkeypatch):
    monkeypatch.setattr(joblib, "cpu_count", lambda: 3)
    assert choose_process_executor(abs, SLOW) == Processes(3)
    assert choose_process_executor(abs, 1.0) == Serial()
    # A lock cannot travel.
    lock = threading.Lock()
    assert choose_process_executor(lambda task: lock, SLOW) == Serial()
    assert choose_thread_executor() == Threads(3)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"backend": "threading", "n_jobs": 3}, Threads(3)),
        ({"backend": "loky", "n_jobs": 3}, Processes(3)),
        ({"n_jobs": 2}, Processes(2)),
        ({"backend": "loky", "n_jobs": 1}, Serial()),
        ({"backend": "sequential"}, Serial()),
    ],
)
def test_joblib_configuration_is_honoured(config, expected):
    with joblib.parallel_config(**config):
        assert choose_thread_executor() == choose_process_executor(abs, 1.0) == expected


def test_other_backends_of_joblib_are_refused():
    with (
        joblib.parallel_config(backend="multiprocessing", n_jobs=2),
        pytest.raises(
            ValueError,
            match=r"MultiprocessingBackend.* give runtime=Runtime\(executor=Dask\(client\)\)",
        ),
    ):
        choose_thread_executor()


def negated_in_processes(numbers):
    """Answers, and what was warned of."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = answers(Processes(2), neg, numbers)
    return found, [str(each.message) for each in told]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_within_a_pool_of_forked_processes_tasks_run_one_after_the_other():
    # The pool that waits here for the next run is not theirs.
    assert answers(Processes(2), neg, range(3)) == {0: 0, 1: -1, 2: -2}
    with warnings.catch_warnings():
        # Python warns of forks beside threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        pool = multiprocessing.get_context("fork").Pool(1)
    with pool:
        found, told = pool.apply(negated_in_processes, (range(3),))
    assert found == {0: 0, 1: -1, 2: -2}
    assert len(told) == 1
    assert "cannot start processes within a daemonic process" in told[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_process_does_not_take_the_pool_of_its_parent():
    answers(Processes(2), neg, range(1))
    assert executors._waiting
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.write(write, str(len(executors._waiting)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"0"
    os.close(read)
    os.close(write)
    assert executors._waiting


@pytest.mark.slow
def test_a_cluster_that_is_gone_is_told_of_in_one_sentence():
    distributed = pytest.importorskip("distributed")
    client = distributed.Client(
        n_workers=1, threads_per_worker=1, dashboard_address=":0", memory_limit=0
    )

    def work_until_it_is_gone():
        with Dask(client).start(abs, "gone") as pool:
            client.close()
            pool.submit({0: 0})
            while not pool.wait_for_answers(30):
                pass

    try:
        with pytest.raises(ConnectionError, match=r"the cluster is gone .* fit again"):
            work_until_it_is_gone()
    finally:
        client.cluster.close()


LEFT = """
import os, signal, tempfile, time
from cellworth.runtime import Processes
from pathlib import Path

with Processes(1).start(lambda task: task, "left") as pool:
    pool.submit({0: 0})
    while not pool.wait_for_answers(30):
        pass
    print(*Path(tempfile.gettempdir()).iterdir(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.nightly
def test_a_killed_process_leaves_no_table_behind(tmp_path):
    done = subprocess.run(  # noqa: S603 (this interpreter, our own script)
        [sys.executable, "-c", LEFT],
        capture_output=True, text=True, timeout=60, check=False,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert "cellworth-" in done.stdout
    deadline = time.monotonic() + 10
    while any(tmp_path.glob("cellworth-*")) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(tmp_path.glob("cellworth-*"))


RAY = """
import sys, time, warnings
import ray
from ray.cluster_utils import Cluster
from cellworth.runtime import Ray, workers

def collect(pool, request):
    pool.submit({0: request})
    while not (found := pool.wait_for_answers(5)):
        pass
    return found[0][1]

def start_a_cluster(**settings):
    node = {"num_cpus": 0, "include_dashboard": False, "_system_config": settings}
    return Cluster(initialize_head=True, connect=True, head_node_args=node)

def find_no_worker(cluster):
    # A node that joins answers what waits for it.
    with Ray().start(abs, "nap") as pool:
        pool.submit({0: -7})
        while not seen:
            assert pool.wait_for_answers(0.2) == []
        cluster.add_node(num_cpus=1)
        while not (found := pool.wait_for_answers(5)):
            pass
        print(found[0][1].load(), len(seen), seen[0].message)

def lose_the_cluster():
    with Ray().start(abs, "gone") as pool:
        pool.submit({0: -7})
        ray.shutdown()
        try:
            # It looks every few seconds.
            for _ in range(5):
                pool.wait_for_answers()
        except ConnectionError as error:
            print(error)
    try:
        with Ray().start(abs, "gone"):
            pass
    except ConnectionError as error:
        print(error)

def outgrow(cluster):
    # Any use of memory is too much.
    cluster.add_node(num_cpus=1)
    with Ray().start(time.sleep, "eat") as pool:
        print(collect(pool, 60.0).error, flush=True)
    ray.shutdown()

with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always", UserWarning)
    workers.SECONDS_WITHOUT_WORKERS = 0.5
    if sys.argv[1] == "outgrown":
        outgrow(start_a_cluster(memory_usage_threshold=0.001, memory_monitor_refresh_ms=50))
    else:
        find_no_worker(start_a_cluster())
        lose_the_cluster()
"""


def lines_of_ray(script, *given):
    pytest.importorskip("ray")
    done = subprocess.run(  # noqa: S603 (this interpreter, our own script)
        [sys.executable, "-c", script, *given],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.nightly
def test_ray_tells_of_missing_workers_and_of_a_lost_cluster():
    printed = lines_of_ray(RAY, "alone")
    assert re.search(r"^7 1 no node .* has the cores and the memory", printed, re.MULTILINE)
    assert re.search(r"^the cluster is gone .* fit again", printed, re.MULTILINE)
    assert re.search(r"^Ray\(\) needs a cluster, .* call ray\.init", printed, re.MULTILINE)


@pytest.mark.nightly
def test_ray_tells_of_workers_that_outgrow_their_node():
    printed = lines_of_ray(RAY, "outgrown")
    assert re.search(
        r"^Ray ended workers 6 times .* low on memory.* Reserve", printed, re.MULTILINE
    )


def test_ray_refuses_tasks_that_need_nothing():
    with pytest.raises(ValueError, match="memory of Ray must"):
        Ray(memory=-1)
