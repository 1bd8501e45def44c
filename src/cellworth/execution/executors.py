"""Where tasks run: here, in threads or in processes; the answer is the same everywhere."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from joblib import Parallel, delayed, parallel_config
from threadpoolctl import ThreadpoolController, threadpool_limits

Result = TypeVar("Result")


@runtime_checkable
class Executor(Protocol):
    """Runs numbered tasks and hands back each result with its number, in any order."""

    def run(
        self, work: Callable[[int], Result], tasks: Iterable[int]
    ) -> Generator[tuple[int, Result], None, None]:
        """Call ``work`` once per task number. Closing the iterator cancels what is left."""
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
        _require_workers("Threads", self.n_workers)

    def run(
        self, work: Callable[[int], Result], tasks: Iterable[int]
    ) -> Generator[tuple[int, Result], None, None]:
        """Run the tasks in threads."""
        with threadpool_limits(1), parallel_config("threading", n_jobs=self.n_workers):
            yield from _joblib(_Pinned(work, ThreadpoolController()), tasks)


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
        _require_workers("Processes", self.n_workers)
        _require_workers("Processes batch_size", self.batch_size)

    def run(
        self, work: Callable[[int], Result], tasks: Iterable[int]
    ) -> Generator[tuple[int, Result], None, None]:
        """Run the tasks in processes."""
        with parallel_config("loky", n_jobs=self.n_workers, inner_max_num_threads=1):
            yield from _joblib(work, tasks, self.batch_size)


def _joblib(
    work: Callable[[int], Result], tasks: Iterable[int], batch_size: int = 1
) -> Generator[tuple[int, Result], None, None]:
    numbers = list(tasks)
    pool = Parallel(return_as="generator", batch_size=batch_size)
    results = pool(delayed(work)(task) for task in numbers)
    try:
        yield from zip(numbers, results, strict=True)
    finally:
        with warnings.catch_warnings():
            # A run that stops early leaves results unused, and joblib would warn of it.
            warnings.simplefilter("ignore", UserWarning)
            results.close()


@dataclass(frozen=True)
class _Pinned(Generic[Result]):
    """Work that sets OpenMP to one thread in whichever thread it runs: the limit is per thread."""

    work: Callable[[int], Result]
    controller: ThreadpoolController

    def __call__(self, task: int) -> Result:
        self.controller.limit(limits=1, user_api="openmp")
        return self.work(task)


def _require_workers(what: str, number: int) -> None:
    whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
    if not whole or number < 1:
        raise ValueError(f"{what} is {number!r}; give a whole number of at least 1.")
