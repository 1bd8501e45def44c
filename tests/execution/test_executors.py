import threading

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
def test_every_result_comes_back_once_with_its_number(executor, square):
    assert isinstance(executor, Executor)
    assert dict(executor.run(square, range(3, 14))) == {t: t * t for t in range(3, 14)}


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
def test_no_tasks_give_no_results(executor, square):
    assert list(executor.run(square, range(0))) == []


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
def test_libraries_use_one_thread_inside_a_task(executor, library_threads):
    assert {threads for _, threads in executor.run(library_threads, range(4))} == {1}


def test_threads_really_run_at_the_same_time():
    meeting = threading.Barrier(2, timeout=10)
    assert len(list(Threads(2).run(lambda task: meeting.wait(), range(2)))) == 2


def test_processes_take_functions_that_plain_pickle_refuses():
    offset = 5
    assert dict(Processes(2).run(lambda task: task + offset, range(3))) == {0: 5, 1: 6, 2: 7}


@pytest.mark.parametrize("executor", [Threads(2), Processes(2)], ids=repr)
def test_closing_the_results_cancels_what_is_left(executor, square):
    results = executor.run(square, range(100))
    next(results)
    results.close()
    assert len(list(executor.run(square, range(4)))) == 4


def teardown_module():
    get_reusable_executor().shutdown(wait=True)
