import os
import threading
import time

import numpy as np
import pytest
from joblib.externals.loky import get_reusable_executor
from threadpoolctl import threadpool_info

from cellworth import Processes, Serial, Threads
from cellworth.execution import Executor

EXECUTORS = [Serial(), Threads(2), Processes(2), Processes(2, batch_size=3)]


@pytest.fixture
def square():
    # A function inside a function travels by value: processes need not import the tests.
    return lambda task: task * task


@pytest.fixture
def library_threads():
    def count(task):
        np.ones((2, 2)) @ np.ones((2, 2))
        return max((pool["num_threads"] for pool in threadpool_info()), default=1)

    return count


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
def test_every_result_comes_back_once_and_in_order(executor, square):
    assert isinstance(executor, Executor)
    assert list(executor.run(square, range(3, 14))) == [t * t for t in range(3, 14)]


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
def test_no_tasks_give_no_results(executor, square):
    assert list(executor.run(square, range(0))) == []


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
def test_libraries_use_one_thread_inside_a_task(executor, library_threads):
    assert set(executor.run(library_threads, range(4))) == {1}


def test_threads_really_run_at_the_same_time():
    meeting = threading.Barrier(2, timeout=10)
    assert len(list(Threads(2).run(lambda task: meeting.wait(), range(2)))) == 2


def test_processes_take_functions_that_plain_pickle_refuses():
    offset = 5
    assert list(Processes(2).run(lambda task: task + offset, range(3))) == [5, 6, 7]


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
def test_an_endless_run_works_a_few_tasks_ahead_and_stops_when_closed(executor, tmp_path):
    def leave_a_trace(task):
        (tmp_path / str(task)).touch()
        return task

    results = executor.run(leave_a_trace, range(2**62))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    time.sleep(0.5)
    begun = len(list(tmp_path.iterdir()))
    assert begun <= 3 + 4 * getattr(executor, "batch_size", 1)
    results.close()
    time.sleep(0.3)
    assert len(list(tmp_path.iterdir())) == begun
    assert list(executor.run(leave_a_trace, range(4))) == [0, 1, 2, 3]


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
def test_an_error_is_raised_in_its_turn(executor):
    def fail_at_two(task):
        if task == 2:
            raise ZeroDivisionError("task 2")
        time.sleep(0.1 if task < 2 else 0.0)
        return task

    results = executor.run(fail_at_two, range(10))
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ZeroDivisionError, match="task 2"):
        next(results)


def test_processes_live_on_after_a_run_that_used_up_its_tasks():
    def process(task):
        return os.getpid()

    first = set(Processes(1).run(process, range(3)))
    assert len(first) == 1
    assert os.getpid() not in first
    assert set(Processes(1).run(process, range(3))) == first


def teardown_module():
    get_reusable_executor().shutdown(wait=True)
