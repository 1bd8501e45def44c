"""Where tasks run: here, in threads or in processes; the answer is the same everywhere."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
from joblib import Parallel, delayed, parallel_config
from threadpoolctl import ThreadpoolController, threadpool_limits

Result = TypeVar("Result")

# Tasks in flight per worker: one runs, one waits.
_TASKS_AHEAD = 2


@runtime_checkable
class Executor(Protocol):
    """Runs numbered tasks and hands back each result with its number, in any order."""

    def run(
        self, work: Callable[[int], Result], tasks: Iterable[int]
    ) -> Generator[tuple[int, Result], None, None]:
        """Call ``work`` once per task number, few of them ahead of what is taken.

        There may be no end to the numbers, which can be gone through more than once. Closing the
        iterator cancels what is left.
        """
        ...


@dataclass(frozen=True)
class Serial:
    """One task after the other, in this thread."""

    def run(
        self, work: Callable[[int], Result], tasks: Iterable[int]
    ) -> Generator[tuple[int, Result], None, None]:
        """Run the tasks in order."""
        # One thread inside a task, everywhere: sums split over threads round differently.
        with threadpool_limits(1):
            for task in tasks:
                yield task, work(task)


@dataclass(frozen=True)
class Threads:
    """Several threads of this process; for games that release the interpreter's lock."""

    n_workers: int

    def __post_init__(self) -> None:
        """Refuse a pool without workers."""
        _require_workers("n_workers of Threads", self.n_workers)

    def run(
        self, work: Callable[[int], Result], tasks: Iterable[int]
    ) -> Generator[tuple[int, Result], None, None]:
        """Run the tasks in threads; wait for those that are running when the rest is cancelled."""
        # BLAS is limited for the process, OpenMP in each thread: that is where its limit lives.
        pin = partial(ThreadpoolController().limit, limits=1, user_api="openmp")
        with threadpool_limits(1):
            pool = ThreadPoolExecutor(self.n_workers, initializer=pin)
            try:
                yield from _as_completed(pool, work, tasks, _TASKS_AHEAD * self.n_workers)
            finally:
                pool.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True)
class Processes:
    """Several processes (loky) that stay alive between runs; for models in Python.

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
        _require_workers("n_workers of Processes", self.n_workers)
        _require_workers("batch_size of Processes", self.batch_size)

    def run(
        self, work: Callable[[int], Result], tasks: Iterable[int]
    ) -> Generator[tuple[int, Result], None, None]:
        """Run the tasks in processes."""
        with parallel_config("loky", n_jobs=self.n_workers, inner_max_num_threads=1):
            pool = Parallel(return_as="generator", batch_size=self.batch_size)
            results = pool(delayed(work)(task) for task in tasks)
            try:
                yield from zip(tasks, results, strict=False)
            finally:
                with warnings.catch_warnings():
                    # A run that stops early leaves results unused, and joblib would warn of it.
                    warnings.simplefilter("ignore", UserWarning)
                    results.close()


def _as_completed(
    pool: ThreadPoolExecutor, work: Callable[[int], Result], tasks: Iterable[int], ahead: int
) -> Generator[tuple[int, Result], None, None]:
    numbers = iter(tasks)
    running = {pool.submit(work, task): task for task in islice(numbers, ahead)}
    while running:
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            yield running.pop(future), future.result()
        running |= {pool.submit(work, task): task for task in islice(numbers, len(done))}


def _require_workers(what: str, number: int) -> None:
    whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
    if not whole or number < 1:
        raise ValueError(f"{what} is {number!r}; give a whole number of at least 1.")
