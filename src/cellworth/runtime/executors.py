"""Executor: the interface of all executors; Serial and Threads, which stay in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

from threadpoolctl import ThreadpoolController, threadpool_limits

from cellworth.counts import checked_count
from cellworth.runtime.workers import FuturePool, SerialPool, WorkerPool, attempt, cancel_thread_on


@runtime_checkable
class Executor(Protocol):
    """Starts workers for a task function."""

    def start(self, work: Callable[[Any], Any], title: str) -> AbstractContextManager[WorkerPool]:
        """Start workers that answer requests with ``work(request)``.

        Leaving the context cancels requests in flight.
        """
        ...


@dataclass(frozen=True)
class Serial:
    """One task after another, in this thread.

    Examples
    --------
    >>> from cellworth import KNNValuer, Runtime
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> KNNValuer(1, runtime=Runtime(Serial())).fit(X, y, X_val=X, y_val=y).valuation_.columns()
    column   value  validation error
        x0  0.3750            0.1172
        x1  0.1250            0.1172
    """

    @contextmanager
    def start(self, work: Callable[[Any], Any], title: str) -> Iterator[WorkerPool]:
        """Answer each request in this thread."""
        # One thread inside each task: sums that are split over threads round differently.
        with threadpool_limits(1):
            yield SerialPool(work)


@dataclass(frozen=True)
class Threads:
    """Several threads of this process; for games that release the GIL.

    Examples
    --------
    >>> from cellworth import KNNValuer, Runtime
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> one, two = (
    ...     KNNValuer(1, runtime=Runtime(executor)).fit(X, y, X_val=X, y_val=y).values_
    ...     for executor in (Serial(), Threads(2))
    ... )
    >>> bool((one == two).all())
    True
    """

    n_workers: int

    def __post_init__(self) -> None:
        """Check the number of workers."""
        checked_count(self.n_workers, "n_workers of Threads")

    @contextmanager
    def start(self, work: Callable[[Any], Any], title: str) -> Iterator[WorkerPool]:
        """Answer requests in threads; on exit, wait for those that are running."""
        cancelled = threading.Event()
        with threadpool_limits(1):
            pool = ThreadPoolExecutor(self.n_workers, title, partial(_begin_thread, cancelled))
            try:
                yield FuturePool(
                    lambda number, request: pool.submit(attempt, work, request),
                    Future.result,
                    lambda: self.n_workers,
                )
            finally:
                cancelled.set()
                pool.shutdown(wait=True, cancel_futures=True)


def _begin_thread(cancelled: threading.Event) -> None:
    cancel_thread_on(cancelled)
    # BLAS is limited per process, OpenMP per thread.
    ThreadpoolController().limit(limits=1, user_api="openmp")
