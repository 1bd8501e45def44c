"""Executors: where tasks run, the default choice, and Runtime, which bundles all of it.

To add an executor, write a class with the one method of :class:`~cellworth.runtime.Executor`:

1. ``start(work, title)`` is a context manager. It starts workers and yields a
   :class:`~cellworth.runtime.workers.WorkerPool` (``capacity``, ``submit``, ``wait_for_answers``).
   If your workers return futures, yield a ``FuturePool``: it needs a function that sends a request,
   one that reads a finished future, and one that counts workers. It sends lost requests again.
2. In another process, call ``attempt_in_worker(work, request)``, with ``threadpool_limits(1)`` or
   one thread per library: otherwise sums round differently.
   Rounds over shards send :class:`~cellworth.runtime.workers.Request` objects. Without further
   code their inputs travel with them. To keep them on workers, return a LazyAnswer for requests
   with ``keep``, replace ``inputs`` by what a worker can load, and respect ``locality``.
3. Test it: subclass :class:`~cellworth.runtime.conformance.ExecutorConformance` in a file that
   pytest collects. An executor of this package also joins tests/runtime/test_executors.py,
   tests/test_resume.py and tests/test_survival.py, which compare bits and kill workers.
4. Export it in ``runtime/__init__.py``, and add it to the examples of ``Runtime``.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, Self, runtime_checkable

import joblib
from joblib.parallel import get_active_backend
from threadpoolctl import ThreadpoolController, threadpool_limits

from cellworth.data.arguments import check_count, is_integer
from cellworth.runtime.cache import Cache
from cellworth.runtime.checkpoint import Checkpoint, DirectoryCheckpoint
from cellworth.runtime.processes import Processes, pickle_object
from cellworth.runtime.stopping import Progress
from cellworth.runtime.workers import FuturePool, SerialPool, WorkerPool, attempt, cancel_thread_on

# Starting processes takes a second or two; shorter runs finish sooner without them.
_LEAST_SECONDS_FOR_PROCESSES = 10.0


@runtime_checkable
class Executor(Protocol):
    """Starts workers for a task function."""

    def start(self, work: Callable[..., Any], title: str) -> AbstractContextManager[WorkerPool]:
        """Start workers that answer requests with ``work(request)``, by :func:`attempt`.

        Leaving the context cancels requests in flight.
        """


@dataclass(frozen=True)
class Serial:
    """One task after another, in this thread.

    Examples
    --------
    >>> from cellworth import KNNValuer, Runtime
    >>> from cellworth.runtime import Serial
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> KNNValuer(1, runtime=Runtime(Serial())).fit(X, y, X_val=X, y_val=y).valuation_.columns()
    column   value  validation_se
        x0  0.3750         0.1172
        x1  0.1250         0.1172
    """

    @contextmanager
    def start(self, work: Callable[..., Any], title: str) -> Iterator[WorkerPool]:
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
    >>> from cellworth.runtime import Serial, Threads
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
        check_count(self.n_workers, "n_workers of Threads")

    @contextmanager
    def start(self, work: Callable[..., Any], title: str) -> Iterator[WorkerPool]:
        """Answer requests in threads; on exit, wait for those that are running."""
        cancelled = threading.Event()
        with threadpool_limits(1):
            pool = ThreadPoolExecutor(self.n_workers, title, partial(_begin_thread, cancelled))
            try:
                yield FuturePool(
                    lambda number, request: pool.submit(attempt, work, request),
                    lambda request, future: future.result(),
                    lambda: self.n_workers,
                )
            finally:
                cancelled.set()
                pool.shutdown(wait=True, cancel_futures=True)


def _begin_thread(cancelled: threading.Event) -> None:
    cancel_thread_on(cancelled)
    # BLAS is limited per process, OpenMP per thread.
    ThreadpoolController().limit(limits=1, user_api="openmp")


@dataclass(frozen=True)
class Runtime:
    """Where and how a run is executed. The values do not depend on it, to the bit.

    Parameters
    ----------
    executor : Executor, default=None
        Where tasks run: ``Serial()``, ``Threads(n)``, ``Processes(n)``, ``Dask(client)`` or
        ``Ray()``. None means what ``joblib.parallel_config`` says. Without such a configuration,
        KNN valuers use threads on all cores, and valuers that train models use processes if the
        run takes more than some seconds.
    checkpoint : path or Checkpoint, default=None
        Folder in which the run is recorded. The next ``fit`` resumes a run that was killed or
        stopped by its budget. For a :class:`~cellworth.ShardedTable` it is a folder that all
        workers share,
        and it also holds the prepared rows and the result.
    partition : tuple of int, default=None
        ``(i, n)``: do part i (0 to n - 1) of the run's tasks and leave it in the checkpoint.
    cache : Cache, default=None
        Utilities of earlier runs: ``MemoryCache()`` or ``FileCache(path)``. Utilities in the cache
        are not computed again, and new ones are added. KNN and out-of-bag valuers do not use it.
    progress : bool, default=True
        Whether runs longer than two seconds show a progress bar. Without a terminal or notebook, a
        line goes to stderr every 30 seconds instead, unless a log handler gets it.
    on_round : callable, default=None
        Called with a :class:`~cellworth.runtime.Progress` after every round, for trackers.

    Examples
    --------
    >>> from cellworth import KNNValuer, Runtime
    >>> from cellworth.runtime import Threads
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> quiet = Runtime(executor=Threads(2), progress=False)
    >>> KNNValuer(1, runtime=quiet).fit(X, y, X_val=X, y_val=y).valuation_.shape
    (4, 2)
    """

    executor: Executor | None = None
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None
    partition: tuple[int, int] | None = None
    cache: Cache | None = None
    progress: bool = True
    on_round: Callable[[Progress], object] | None = None

    def __post_init__(self) -> None:
        _check_is_a(
            self.executor,
            Executor,
            "executor",
            "Serial(), Threads(2), Processes(2), Dask(client) or Ray()",
        )
        if not isinstance(self.checkpoint, str | os.PathLike):
            _check_is_a(self.checkpoint, Checkpoint, "checkpoint", 'a folder such as "run1/"')
        _check_is_a(self.cache, Cache, "cache", "MemoryCache() or FileCache(path)")
        if not isinstance(self.progress, bool):
            raise TypeError(f"progress must be True or False, got {self.progress!r}.")
        if self.on_round is not None and not callable(self.on_round):
            raise TypeError(f"on_round must be a function of a Progress, got {self.on_round!r}.")
        if self.partition is not None:
            self._check_partition(self.partition)

    def _check_partition(self, partition: Any) -> None:
        is_pair = isinstance(partition, tuple | list) and len(partition) == 2
        if not is_pair or not all(map(is_integer, partition)):
            raise TypeError(
                f"partition must be (i, n), got {partition!r}; give (0, 10) for the first of ten."
            )
        index, n_parts = partition
        if not 0 <= index < n_parts:
            raise ValueError(
                f"partition must be (i, n) with i from 0 to n - 1, got {(index, n_parts)}; give "
                "(0, 10) for the first of ten."
            )
        if not isinstance(self.checkpoint, str | os.PathLike | DirectoryCheckpoint):
            raise ValueError("partition needs a folder for its results; give one as checkpoint.")
        if self.cache is not None:
            raise ValueError(
                "cache must be None with partition; utilities go to the checkpoint, where the "
                "other parts find them."
            )

    def open_checkpoint(self) -> Checkpoint | None:
        """Return the checkpoint as an object; a path stands for a DirectoryCheckpoint."""
        if isinstance(self.checkpoint, str | os.PathLike):
            return DirectoryCheckpoint(self.checkpoint)
        return self.checkpoint

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return itself: copies of a valuer, as by scikit-learn's clone, run in the same place."""
        return self


def _check_is_a(given: Any, protocol: type, name: str, examples: str) -> None:
    if given is not None and (isinstance(given, type) or not isinstance(given, protocol)):
        raise TypeError(f"{name} must be {examples}, got {given!r}.")


def check_runtime(runtime: Any, n_jobs: Any = None) -> Runtime:
    """Return the runtime, or the default one; check that n_jobs goes with it."""
    if runtime is not None and not isinstance(runtime, Runtime):
        raise TypeError(f"runtime must be Runtime(...) or None, got {runtime!r}.")
    if n_jobs is not None and (not is_integer(n_jobs) or n_jobs == 0):
        raise ValueError(
            f"n_jobs must be a number of workers, -1 for all cores, or None, got {n_jobs!r}."
        )
    if n_jobs is not None and runtime is not None and runtime.executor is not None:
        raise ValueError(
            f"n_jobs={n_jobs} and runtime.executor={runtime.executor!r} both say how many workers "
            "there are; give one of them."
        )
    return runtime or Runtime()


def choose_thread_executor(n_jobs: int | None = None) -> Executor:
    """Return the executor for work that releases the interpreter's lock: by default, threads."""
    return _get_configured(n_jobs) or _make_executor(Threads, n_jobs)


def choose_process_executor(
    work: Callable[..., Any], seconds: float, n_jobs: int | None = None
) -> Executor:
    """Return the executor for training models: by default, processes if the run is long enough."""
    configured = _get_configured(n_jobs)
    if configured is not None:
        return configured
    if n_jobs is not None:
        return _make_executor(Processes, n_jobs)
    alone = joblib.cpu_count() == 1 or multiprocessing.current_process().name != "MainProcess"
    if alone or seconds < _LEAST_SECONDS_FOR_PROCESSES or not _can_pickle(work):
        return Serial()
    return Processes(joblib.cpu_count())


def _make_executor(executor: Callable[[int], Executor], n_jobs: int | None) -> Executor:
    n_workers = joblib.cpu_count() if n_jobs is None else joblib.effective_n_jobs(n_jobs)
    return Serial() if n_jobs is not None and n_workers == 1 else executor(n_workers)


def _get_configured(n_jobs: int | None) -> Executor | None:
    """Return what ``joblib.parallel_config`` asks for, or None if it asks for nothing."""
    backend, n_configured = get_active_backend()
    kind = type(backend).__name__
    if kind == "LokyBackend" and n_configured is None:
        return None
    n_jobs = n_configured if n_jobs is None else n_jobs
    if kind == "SequentialBackend":
        return Serial()
    executors: dict[str, Callable[[int], Executor]] = {
        "ThreadingBackend": Threads,
        "LokyBackend": Processes,
    }
    if kind not in executors:
        raise ValueError(
            f"joblib is configured for {kind}, which can neither send the tasks of a dead worker "
            "to another one nor bound what is in flight; use the threading or loky backend, or "
            "give runtime=Runtime(executor=Dask(client))."
        )
    n_workers = joblib.cpu_count() if n_jobs is None else backend.effective_n_jobs(n_jobs)
    return Serial() if n_workers == 1 else executors[kind](n_workers)


def _can_pickle(work: Callable[..., Any]) -> bool:
    try:
        pickle_object(work)
    # Pickling runs code of the user's objects, which may raise anything.
    except Exception:
        return False
    return True
