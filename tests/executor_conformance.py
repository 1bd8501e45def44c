"""ExecutorConformance: tests that every executor passes."""

from __future__ import annotations

import functools
import os
import pickle
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from cellworth.runtime.engine import TaskPlanner, run
from cellworth.runtime.executors import Executor, Serial
from cellworth.runtime.stopping import MaxTasks
from cellworth.runtime.workers import (
    Failure,
    Interrupts,
    LazyAnswer,
    LostAnswer,
    Request,
    WorkerPool,
    as_lazy,
    leave_if_cancelled,
    map_unordered,
)
from cellworth.sampling.moments import Contribution, Moments, Tally, append_margins

_SECONDS_PER_WAIT = 0.2
# So long that leaving before its end is no matter of a busy machine.
_SECONDS_OF_LONG_TASK = 10.0
# An executor that loses an answer fails after this time.
_MAX_SECONDS = 36.0


class ExecutorConformance:
    """Tests of an executor: subclass it in a file that pytest collects, and return the executor.

    Workers must see the temporary files of this machine.
    """

    def executor(self) -> Executor:
        """Return the executor to test."""
        raise NotImplementedError("executor must return the executor to test.")

    def kill_a_worker(self, pid: int) -> bool:
        """Kill the worker process ``pid``; return False if workers are no other processes."""
        if pid == os.getpid():
            return False
        # Windows has one way to end another process, by any signal.
        os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))
        return True

    def get_answers(self, work: Callable[[Any], Any], requests: Iterable[Any]) -> dict[int, Any]:
        """Return the answer to each request, by number."""
        with self.executor().start(work, "conformance") as pool:
            return self.collect(pool, dict(enumerate(requests)))

    def collect(self, pool: WorkerPool, requests: dict[int, Any]) -> dict[int, Any]:
        """Submit numbered requests, never more than the capacity; return their answers."""
        pending, open_requests, found = list(requests.items()), dict[int, Any](), dict[int, Any]()
        deadline = time.monotonic() + _MAX_SECONDS
        while pending or open_requests:
            while pending and len(open_requests) < pool.capacity:
                number, request = pending.pop(0)
                pool.submit({number: request})
                open_requests[number] = request
            for number, answer in pool.wait_for_answers(_SECONDS_PER_WAIT):
                assert number not in found, f"request {number} is answered twice."
                assert number in open_requests, f"request {number} was never submitted."
                request = open_requests.pop(number)
                loaded = answer.load() if isinstance(answer, LazyAnswer) else answer
                if isinstance(loaded, LostAnswer):
                    pending.append((number, request))
                else:
                    found[number] = loaded
            assert time.monotonic() < deadline, f"requests {sorted(open_requests)} have no answer."
        return found

    def test_no_answer_comes_twice(self) -> None:
        """A request is answered once; later waits do not return it again."""
        seen = []
        with self.executor().start(_return_request, "conformance") as pool:
            for number in range(9):
                pool.submit({number: number})
                while number not in seen:
                    seen += [each for each, _ in pool.wait_for_answers(_SECONDS_PER_WAIT)]
        assert sorted(seen) == list(range(9)), f"answers came under the numbers {sorted(seen)}."

    def test_answers_come_under_the_numbers_of_their_requests(self) -> None:
        """Answers may come in any order, but with the right number."""

        def pause_unevenly(request: int) -> int:
            time.sleep(0.02 * (request % 3 == 0))
            return -request

        found = self.get_answers(pause_unevenly, range(31))
        wrong = [number for number in range(31) if found[number] != -number]
        assert not wrong, f"requests {wrong} got answers of other requests."

    def test_a_number_may_be_used_again_after_its_answer(self) -> None:
        """A driver submits a request again under its number if the answer was lost later."""
        with self.executor().start(_return_request, "conformance") as pool:
            assert self.collect(pool, {7: "first"}) == {7: "first"}
            assert self.collect(pool, {7: "second"}) == {7: "second"}

    def test_waiting_can_be_limited(self) -> None:
        """``wait_for_answers(seconds)`` returns nothing if no answer comes in time."""
        caller = os.getpid(), threading.get_ident()
        workers = self.get_answers(lambda _: (os.getpid(), threading.get_ident()), range(1))
        if workers[0] == caller:
            pytest.skip("this executor computes answers while it waits")
        with self.executor().start(_pause, "conformance") as pool:
            pool.submit({0: 0})
            # The answer would have come if the wait were not limited.
            assert pool.wait_for_answers(0.05) == []

    def test_an_error_comes_back_with_its_traceback(self) -> None:
        """What a task raises is the answer to this task only."""

        def fail_at_zero(request: int) -> int:
            return 1 // request

        found = self.get_answers(fail_at_zero, [0, 1])
        assert found[1] == 1
        assert isinstance(found[0], Failure)
        assert isinstance(found[0].error, ZeroDivisionError)
        assert "in fail_at_zero" in "".join(traceback.format_exception(found[0].error))

    def test_an_error_that_cannot_be_pickled_is_still_reported(self) -> None:
        """The message and the traceback arrive, if not the exception itself."""

        class OddError(Exception):
            def __init__(self, one: str, two: str) -> None:
                super().__init__(f"{one} and {two}")

        def fail_oddly(request: int) -> None:
            if request:
                raise ValueError("this and that", threading.Lock())
            raise OddError("this", "that")

        for answer in self.get_answers(fail_oddly, range(2)).values():
            assert isinstance(answer, Failure)
            assert "this and that" in str(answer.error)
            assert "in fail_oddly" in "".join(traceback.format_exception(answer.error))

    def test_arrays_of_the_task_function_can_be_written_to(self) -> None:
        """A model may change its input; no other worker sees half of a change."""
        table = np.arange(300_000.0)

        def work(request: int) -> float:
            table[0] += 1.0
            return float(table.sum())

        found = self.get_answers(work, range(2))
        assert set(found.values()) <= {np.arange(3e5).sum() + seen for seen in (1.0, 2.0)}

    def test_large_answers_arrive_unchanged(self) -> None:
        """Arrays of several MB come back to the bit."""
        found = self.get_answers(_make_large, range(4))
        for number in range(4):
            assert pickle.dumps(found[number]) == pickle.dumps(_make_large(number))

    def test_kept_answers_are_inputs_of_later_requests(self) -> None:
        """Workers exchange answers; an error is raised instead of being kept."""
        with self.executor().start(_add_up, "conformance") as pool:
            assert isinstance(pool.find_worker(1), str)
            first = [Request(number, locality=number, keep=True) for number in range(3)]
            kept = tuple(as_lazy(each) for _, each in map_unordered(pool, first, Interrupts()))
            second = [Request(100, kept, locality=1)]
            assert [total for _, total in map_unordered(pool, second, Interrupts())] == [103]
            try:
                list(map_unordered(pool, [Request("text", kept, keep=True)], Interrupts()))
            except TypeError:
                return
            raise AssertionError("a request that fails is kept like an answer.")

    def test_libraries_use_one_thread_inside_a_task(self) -> None:
        """Sums that are split over threads round differently."""

        def count(request: int) -> int:
            np.ones((2, 2)) @ np.ones((2, 2))
            return max((pool["num_threads"] for pool in threadpool_info()), default=1)

        assert set(self.get_answers(count, range(4)).values()) == {1}

    def test_it_can_be_used_again(self) -> None:
        """One executor serves several runs, each with its own task function."""
        executor = self.executor()
        for factor in (2, 3):
            with executor.start(functools.partial(_multiply, factor), "conformance") as pool:
                found = self.collect(pool, {number: number for number in range(5)})
            assert found == {number: factor * number for number in range(5)}

    def test_a_run_may_begin_within_another(self) -> None:
        """Two pools are open; leaving the inner one does not end the outer one."""
        executor = self.executor()
        with executor.start(functools.partial(_multiply, 2), "outer") as outer:
            assert self.collect(outer, {0: 4}) == {0: 8}
            with executor.start(functools.partial(_multiply, 3), "inner") as inner:
                assert self.collect(inner, {0: 4}) == {0: 12}
            assert self.collect(outer, {1: 5}) == {1: 10}

    def test_leaving_cancels_requests_that_have_not_begun(self) -> None:
        """After the context has ended, no further request begins."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)

            def leave_a_trace(request: int) -> int:
                (folder / str(request)).touch()
                time.sleep(0.2)
                return request

            with self.executor().start(leave_a_trace, "conformance") as pool:
                n_submitted = pool.capacity
                pool.submit({number: number for number in range(n_submitted)})
                while not pool.wait_for_answers(_SECONDS_PER_WAIT):
                    pass
            # One may have been on its way to a worker.
            time.sleep(0.2)
            n_begun = len(list(folder.iterdir()))
            time.sleep(0.5)
            assert len(list(folder.iterdir())) == n_begun <= n_submitted
        assert self.get_answers(_return_request, range(4)) == {t: t for t in range(4)}

    def test_leaving_does_not_wait_for_long_tasks(self) -> None:
        """A run that stops early ends at once."""
        with self.executor().start(_pause, "conformance") as pool:
            pool.submit({0: 0})
            time.sleep(0.2)
            began = time.monotonic()
        assert time.monotonic() - began < 0.75 * _SECONDS_OF_LONG_TASK

    def test_requests_of_a_killed_worker_are_answered(self) -> None:
        """Another worker takes over what a dead one was sent."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)

            def leave_a_trace(request: int) -> int:
                (folder / f"{request}-{os.getpid()}").touch()
                time.sleep(0.2)
                return request

            def kill_first() -> None:
                while not (begun := list(folder.iterdir())):
                    time.sleep(0.005)
                killed.append(self.kill_a_worker(int(begun[0].name.split("-")[1])))

            killed: list[bool] = []
            killer = threading.Thread(target=kill_first, daemon=True)
            killer.start()
            found = self.get_answers(leave_a_trace, range(4))
            killer.join()
            assert found == {number: number for number in range(4)}
            if not killed[0]:
                pytest.skip("this executor has no worker processes")
            assert len(list(folder.iterdir())) > 4, "the killed worker's request was not repeated."

    def test_a_signal_ends_the_wait_for_answers(self) -> None:
        """Ctrl-C is not held up by a task that takes long."""
        if os.name == "nt":
            pytest.skip("on Windows a process cannot send itself Ctrl-C")
        interrupts = Interrupts()
        timer = threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT))
        with self.executor().start(_pause, "conformance") as pool, interrupts.watch():
            pool.submit({0: 0})
            began = time.monotonic()
            timer.start()
            try:
                with interrupts.allow():
                    while time.monotonic() - began < _MAX_SECONDS:
                        pool.wait_for_answers()
            except KeyboardInterrupt:
                pass
            assert interrupts.received
            assert time.monotonic() - began < 0.75 * _SECONDS_OF_LONG_TASK

    def test_a_run_gives_the_same_bits_as_serial(self) -> None:
        """Contributions of 40 tasks are folded in order, whatever the workers do."""
        first, second = (_run_tasks(each) for each in (Serial(), self.executor()))
        assert first.tobytes() == second.tobytes()


def _return_request(request: Any) -> Any:
    return request


def _add_up(first: int, *others: int) -> int:
    return first + sum(others)


def _multiply(factor: int, request: int) -> int:
    return factor * request


def _pause(request: int) -> int:
    deadline = time.monotonic() + _SECONDS_OF_LONG_TASK
    while time.monotonic() < deadline:
        leave_if_cancelled()
        time.sleep(0.01)
    return request


def _make_large(request: int) -> dict[str, Any]:
    values = np.random.default_rng(request).normal(size=(500, 1000))
    return {"number": request, "values": values, "order": values.argsort(axis=0)}


def _run_tasks(executor: Executor) -> np.ndarray[Any, Any]:
    outcome = run(
        _contribute,
        stop=MaxTasks(40),
        planner=TaskPlanner(Contribution),
        executor=executor,
        checkpoint=None,
        identity={"name": "conformance"},
        tasks_per_round=8,
    )
    assert isinstance(outcome.contribution, Contribution)
    moments = outcome.contribution.moments
    return np.concatenate([moments.mean, moments.sum_sq])


def _contribute(task: int) -> Contribution:
    rng = np.random.default_rng(task)
    time.sleep(0.005 * (task % 3 == 0))
    product = rng.normal(size=(3, 200)) @ rng.normal(size=(200, 2))
    return Contribution(Moments.of(append_margins(product)), Tally(1))
