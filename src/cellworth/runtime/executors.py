"""Executors: where tasks run.

To add an executor, write a class with the one method of :class:`Executor`:

1. ``start(work, title)`` is a context manager. It starts workers and yields a
   :class:`~cellworth.runtime.workers.WorkerPool` (``capacity``, ``submit``, ``wait_for_answers``,
   ``forget``). If your workers return futures, yield a ``FuturePool``: it needs a function that
   sends requests, one that reads a finished future, and one that counts workers. It sends lost
   requests again.
2. In another process, call ``attempt_in_worker(work, request)``, with ``threadpool_limits(1)`` or
   one thread per library: otherwise sums round differently.
   Rounds over shards send :class:`~cellworth.runtime.workers.Request` objects. Without further
   code their inputs travel with them. To keep them on workers, return a LazyAnswer for requests
   with ``keep``, replace ``inputs`` by what a worker can load, and respect ``locality``.
3. Test it: subclass ``ExecutorConformance`` of tests/executor_conformance.py in
   tests/runtime/test_executors.py. It also joins tests/test_resume.py and tests/test_survival.py,
   which compare bits and kill workers.
4. Export it in ``runtime/__init__.py``, and add it to the examples of ``Runtime``.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import pickle
import shutil
import signal
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from uuid import uuid4

import cloudpickle
from joblib.externals.loky import ProcessPoolExecutor
from joblib.externals.loky.process_executor import ShutdownExecutorError

from cellworth.data.arguments import WithoutParameters, check_count
from cellworth.runtime.workers import (
    Failure,
    FuturePool,
    LazyAnswer,
    LostAnswer,
    SerialPool,
    WorkerPool,
    attempt,
    attempt_in_worker,
    cancel_thread_on,
)
from cellworth.sampling.moments import limit_threads

_SECONDS_TO_START = 1.0
_SECONDS_BETWEEN_CHECKS = 1.0
_SECONDS_TO_LIVE_IDLE = 60.0
_ONE_THREAD = {
    f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMBA")
}
_DEAD = (BrokenProcessPool, ShutdownExecutorError)
_ALIGNED = 64
_LARGE = 2**20


@runtime_checkable
class Executor(Protocol):
    """Starts workers for a task function."""

    def start(self, work: Callable[..., Any], title: str) -> AbstractContextManager[WorkerPool]:
        """Start workers that answer requests with ``attempt(work, request)``.

        Leaving the context cancels requests in flight.
        """


class Serial(WithoutParameters):
    """One task after another, in this thread.

    See Also
    --------
    Threads, Processes

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
        with limit_threads():
            yield SerialPool(work)


@dataclass(frozen=True)
class _Workers:
    """Base of executors with a number of workers."""

    n_workers: int

    def __post_init__(self) -> None:
        check_count(self.n_workers, f"n_workers of {type(self).__name__}")


class Threads(_Workers):
    """Several threads of this process; for games that release the GIL.

    Parameters
    ----------
    n_workers : int
        Number of threads.

    See Also
    --------
    Serial, Processes

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

    @contextmanager
    def start(self, work: Callable[..., Any], title: str) -> Iterator[WorkerPool]:
        """Answer requests in threads; on exit, wait for those that are running."""
        cancelled = threading.Event()
        with limit_threads():
            pool = ThreadPoolExecutor(self.n_workers, title, partial(_begin_thread, cancelled))
            try:
                yield FuturePool(
                    lambda requests: (
                        (number, pool.submit(attempt, work, request))
                        for number, request in requests.items()
                    ),
                    lambda request, future: future.result(),
                    lambda: self.n_workers,
                )
            finally:
                cancelled.set()
                pool.shutdown(wait=True, cancel_futures=True)


def _begin_thread(cancelled: threading.Event) -> None:
    cancel_thread_on(cancelled)
    # BLAS is limited per process, OpenMP per thread.
    limit_threads("openmp")


class Processes(_Workers):
    """Several processes (joblib's loky); for models in Python.

    Workers stay alive for a minute, for the next run. If a run stops before its tasks are used up,
    they are ended at once. A killed worker is replaced, and its task is computed again. Within a
    ``multiprocessing.Pool`` no processes can be started: tasks run serially, with a warning.

    Parameters
    ----------
    n_workers : int
        Number of processes.

    See Also
    --------
    Threads, Dask

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from cellworth.runtime import MaxUtilities, Processes
    >>> from cellworth import ModelValuer, Runtime
    >>> model, budget = DecisionTreeClassifier(random_state=0), MaxUtilities(2000)
    >>> ModelValuer(model, stop=budget, runtime=Runtime(Processes(2))).runtime.executor
    Processes(n_workers=2)
    """

    @contextmanager
    def start(self, work: Callable[..., Any], title: str) -> Iterator[WorkerPool]:
        """Start answering requests in processes, or serially if none can be started."""
        if multiprocessing.current_process().daemon:
            warnings.warn(
                f"{self!r} cannot start processes within a daemonic process such as a worker of "
                "multiprocessing.Pool; tasks run serially, with the same values.",
                stacklevel=2,
            )
            with limit_threads():
                yield SerialPool(work)
            return
        # loky warns in its own thread, which would die if warnings are errors. A worker that leaves
        # is replaced, and no request is lost.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs were given")
        with write_shared_pickle(work) as shared:
            processes = _LokyPool(shared, self.n_workers)
            pool = FuturePool(processes.send, _read, lambda: self.n_workers)
            try:
                yield pool
            finally:
                processes.close(pool.in_flight)


# One pool for each number of workers waits for the next run; loky ends workers that stay idle.
# joblib's own pool is left to joblib: sharing it breaks where one of the two replaces it.
_waiting: dict[int, ProcessPoolExecutor] = {}

if hasattr(os, "register_at_fork"):
    # A forked process has no thread that would serve the pools of its parent.
    os.register_at_fork(after_in_child=_waiting.clear)


class _LokyPool:
    """loky's pool of processes; replaced when the death of a worker has broken it."""

    def __init__(self, shared: SharedPickle, n_workers: int) -> None:
        self._pickle, self._n_workers = shared, n_workers
        self._pool = _waiting.pop(n_workers, None) or self._new()

    def send(self, requests: Mapping[int, Any]) -> Iterator[tuple[int, Any]]:
        return ((number, self._submit(request)) for number, request in requests.items())

    def close(self, in_flight: list[Future[Any]]) -> None:
        if all(future.done() for future in in_flight):
            if _waiting.setdefault(self._n_workers, self._pool) is not self._pool:
                # A run within this one has left its pool.
                self._pool.shutdown(wait=True)
            return
        _wait_until_started(in_flight)
        self._pool.shutdown(wait=True, kill_workers=True)

    def _submit(self, request: Any) -> Any:
        try:
            return self._pool.submit(_answer, self._pickle, request)
        except _DEAD:
            self._pool = self._new()
            return self._pool.submit(_answer, self._pickle, request)

    def _new(self) -> Any:
        return ProcessPoolExecutor(
            self._n_workers,
            timeout=_SECONDS_TO_LIVE_IDLE,
            env=_ONE_THREAD,
            initializer=_begin_process,
            initargs=(os.getpid(),),
        )


def _read(request: Any, future: Future[Any]) -> Any:
    error = future.exception()
    if error is None:
        answer = future.result()
        if not isinstance(answer, SharedPickle):
            return answer
        stored = LazyAnswer(answer.load)
        weakref.finalize(stored, _remove, answer.path)
        return stored
    # loky fails all requests when one worker dies.
    return LostAnswer(error) if isinstance(error, _DEAD) else Failure(error)


def _remove(path: Path) -> None:
    # Windows deletes no mapped file; the folder goes after the run.
    with suppress(PermissionError):
        path.unlink(missing_ok=True)


def _wait_until_started(in_flight: list[Future[Any]]) -> None:
    """Wait until loky has handed out its tasks: it fails if it is killed before."""
    deadline = time.monotonic() + _SECONDS_TO_START
    while time.monotonic() < deadline and not all(f.running() or f.done() for f in in_flight):
        time.sleep(0.001)


_loaded: dict[SharedPickle, Callable[..., Any]] = {}


def _answer(shared: SharedPickle, request: Any) -> Any:
    """Answer a request in a worker process; the task function is loaded once."""
    if shared not in _loaded:
        _loaded.clear()
        _loaded[shared] = shared.load()
    return share_if_large(attempt_in_worker(_loaded[shared], request), shared)


def _begin_process(parent: int) -> None:
    # Ctrl-C reaches all processes of the group; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The id is passed in, because the parent may have died by now.
    threading.Thread(target=_leave_with_parent, args=(parent,), daemon=True).start()


def _leave_with_parent(parent: int) -> None:
    """Exit once the parent process has died."""
    while os.getppid() == parent:
        time.sleep(_SECONDS_BETWEEN_CHECKS)
    for shared in list(_loaded):
        shutil.rmtree(shared.path.parent, ignore_errors=True)
    os._exit(1)


@dataclass(frozen=True)
class SharedPickle:
    """A pickled object in a file that processes of this machine map into memory.

    The file is in a folder that only this user can read, and is deleted after the run. ``head`` and
    ``buffers`` are the first and last bytes of the object and of its arrays.
    """

    path: Path
    head: tuple[int, int]
    buffers: tuple[tuple[int, int], ...]

    def load(self) -> Any:
        """Return the object; its arrays are mapped from the file, which all processes share."""
        with self.path.open("rb") as file:
            # Copy on write: if a model changes its input, other processes do not see it.
            content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        arrays = [content[begin:end] for begin, end in self.buffers]
        return pickle.loads(content[slice(*self.head)], buffers=arrays)  # noqa: S301 (we wrote it)


@contextmanager
def write_shared_pickle(work: Callable[..., Any]) -> Iterator[SharedPickle]:
    """Pickle the task function to a temporary file."""
    folder = Path(tempfile.mkdtemp(prefix="cellworth-"))
    try:
        yield _write_pickle(*pickle_object(work), folder / "work")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def share_if_large(answer: Any, beside: SharedPickle) -> Any:
    """Write an answer with large arrays to a file, so that the driver need not hold it."""
    head, arrays = pickle_object(answer)
    if sum(array.raw().nbytes for array in arrays) < _LARGE:
        return answer
    return _write_pickle(head, arrays, beside.path.with_name(uuid4().hex))


def pickle_object(obj: Any) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """Pickle an object; its arrays are not copied."""
    arrays: list[pickle.PickleBuffer] = []
    # cloudpickle also handles what a user defines in a notebook.
    return cloudpickle.dumps(obj, protocol=5, buffer_callback=arrays.append), arrays


def _write_pickle(head: bytes, arrays: list[pickle.PickleBuffer], path: Path) -> SharedPickle:
    contents: list[Any] = [head, *(array.raw() for array in arrays)]
    spans = []
    with path.open("xb") as file:
        for content in contents:
            file.write(b"\0" * (-file.tell() % _ALIGNED))
            begin = file.tell()
            file.write(content)
            spans.append((begin, file.tell()))
    return SharedPickle(path, spans[0], tuple(spans[1:]))
