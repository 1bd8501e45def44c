"""Where tasks run: here, in threads or in processes; the answer is the same everywhere."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor as Pool
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypeVar, runtime_checkable

from joblib.externals.loky import get_reusable_executor
from threadpoolctl import ThreadpoolController, threadpool_limits

from cellworth.counts import checked_count

Result = TypeVar("Result")
Results = Generator[Result, None, None]
Flying = deque[Future[list[Any]]]

# Batches in flight per worker: one runs, one waits.
_AHEAD = 2
_SECONDS_TO_TAKE = 1.0
_ONE_THREAD = {
    f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMBA")
}


@runtime_checkable
class Executor(Protocol):
    """Runs numbered tasks and hands back their results in the order of the numbers."""

    def run(self, work: Callable[[int], Result], tasks: Iterable[int]) -> Results[Result]:
        """Call ``work`` once per task, a few tasks ahead of what is taken.

        There may be no end to the tasks. An error of a task is raised in its turn, so that it
        does not matter which later tasks were begun. Closing the iterator cancels what is left.
        """
        ...


@dataclass(frozen=True)
class Serial:
    """One task after the other, in this thread."""

    def run(self, work: Callable[[int], Result], tasks: Iterable[int]) -> Results[Result]:
        """Run the tasks in order."""
        # One thread inside a task, everywhere: sums split over threads round differently.
        with threadpool_limits(1):
            for task in tasks:
                yield work(task)


@dataclass(frozen=True)
class Threads:
    """Several threads of this process; for games that release the interpreter's lock."""

    n_workers: int

    def __post_init__(self) -> None:
        """Refuse a pool without workers."""
        checked_count(self.n_workers, "n_workers of Threads")

    def run(self, work: Callable[[int], Result], tasks: Iterable[int]) -> Results[Result]:
        """Run the tasks in threads; wait for those that are running when the rest is cancelled."""
        # BLAS is limited for the process, OpenMP in each thread: that is where its limit lives.
        pin = partial(ThreadpoolController().limit, limits=1, user_api="openmp")
        with threadpool_limits(1):
            pool = ThreadPoolExecutor(self.n_workers, initializer=pin)
            try:
                yield from _in_order(pool, work, tasks, deque(maxlen=_AHEAD * self.n_workers))
            finally:
                pool.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True)
class Processes:
    """Several processes (joblib's loky); for models in Python.

    They stay alive for the next run, unless a run stops before its tasks are used up: then they
    are ended at once.

    Parameters
    ----------
    n_workers : int
    batch_size : int, default=1
        Tasks sent to a process at a time; more spares traffic when tasks are very short.
    """

    n_workers: int
    batch_size: int = 1

    def __post_init__(self) -> None:
        """Refuse a pool without workers."""
        checked_count(self.n_workers, "n_workers of Processes")
        checked_count(self.batch_size, "batch_size of Processes")

    def run(self, work: Callable[[int], Result], tasks: Iterable[int]) -> Results[Result]:
        """Run the tasks in processes."""
        pool = get_reusable_executor(self.n_workers, env=_ONE_THREAD)
        flying: Flying = deque(maxlen=_AHEAD * self.n_workers)
        try:
            yield from _in_order(pool, work, tasks, flying, self.batch_size)
        finally:
            if not all(future.done() for future in flying):
                _wait_until_taken(flying)
                pool.shutdown(wait=True, kill_workers=True)


@dataclass(frozen=True)
class _Failure:
    error: Exception


def _in_order(
    pool: Pool,
    work: Callable[[int], Result],
    tasks: Iterable[int],
    flying: Flying,
    batch_size: int = 1,
) -> Results[Result]:
    numbers = iter(tasks)
    batches: Iterator[list[int]] = iter(lambda: list(islice(numbers, batch_size)), [])
    while True:
        free = (flying.maxlen or 0) - len(flying)
        flying.extend(pool.submit(_attempt, work, batch) for batch in islice(batches, free))
        if not flying:
            return
        for result in flying.popleft().result():
            if isinstance(result, _Failure):
                raise result.error
            yield result


def _attempt(work: Callable[[int], Result], tasks: list[int]) -> list[Result | _Failure]:
    """Do a batch of tasks up to the first that fails."""
    results: list[Result | _Failure] = []
    for task in tasks:
        try:
            results.append(work(task))
        except Exception as error:
            results.append(_Failure(error))
            break
    return results


def _wait_until_taken(flying: Flying) -> None:
    """Give loky the moment that it needs to hand out tasks: killed before, it trips over them."""
    deadline = time.monotonic() + _SECONDS_TO_TAKE
    while time.monotonic() < deadline and not all(f.running() or f.done() for f in flying):
        time.sleep(0.001)
