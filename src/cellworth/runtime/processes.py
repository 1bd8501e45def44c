"""Processes: an executor of worker processes, which share one pickle of the task function."""

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
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import cloudpickle
from joblib.externals.loky import ProcessPoolExecutor
from joblib.externals.loky.process_executor import ShutdownExecutorError
from threadpoolctl import threadpool_limits

from cellworth.data.arguments import check_count
from cellworth.runtime.workers import (
    Failure,
    FuturePool,
    LazyAnswer,
    LostAnswer,
    Request,
    SerialPool,
    WorkerPool,
    attempt_in_worker,
)

_SECONDS_TO_START = 1.0
_SECONDS_BETWEEN_CHECKS = 1.0
_SECONDS_TO_LIVE_IDLE = 60.0
_ONE_THREAD = {
    f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMBA")
}
_DEAD = (BrokenProcessPool, ShutdownExecutorError)
_ALIGNED = 64
_LARGE = 2**20


@dataclass(frozen=True)
class Processes:
    """Several processes (joblib's loky); for models in Python.

    Workers stay alive for a minute, for the next run. If a run stops before its tasks are used up,
    they are ended at once. A killed worker is replaced, and its task is computed again. Within a
    ``multiprocessing.Pool`` no processes can be started: tasks run serially, with a warning.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from cellworth.runtime import MaxUtilities, Processes
    >>> from cellworth import MonteCarloValuer, Runtime
    >>> model, budget = DecisionTreeClassifier(random_state=0), MaxUtilities(2000)
    >>> MonteCarloValuer(model, stop=budget, runtime=Runtime(Processes(2))).runtime.executor
    Processes(n_workers=2)
    """

    n_workers: int

    def __post_init__(self) -> None:
        check_count(self.n_workers, "n_workers of Processes")

    @contextmanager
    def start(self, work: Callable[..., Any], title: str) -> Iterator[WorkerPool]:
        """Start answering requests in processes, or serially if none can be started."""
        if multiprocessing.current_process().daemon:
            warnings.warn(
                f"{self!r} cannot start processes within a daemonic process such as a worker of "
                "multiprocessing.Pool; tasks run serially, with the same values.",
                stacklevel=2,
            )
            with threadpool_limits(1):
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

    def send(self, number: int, request: Any) -> Future[Any]:
        try:
            return self._submit(request)
        except _DEAD:
            self._pool = self._new()
            return self._submit(request)

    def close(self, in_flight: list[Future[Any]]) -> None:
        if all(future.done() for future in in_flight):
            if _waiting.setdefault(self._n_workers, self._pool) is not self._pool:
                # A run within this one has left its pool.
                self._pool.shutdown(wait=True)
            return
        _wait_until_started(in_flight)
        self._pool.shutdown(wait=True, kill_workers=True)

    def _submit(self, request: Any) -> Future[Any]:
        future: Future[Any] = self._pool.submit(_answer, self._pickle, request)
        return future

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
        if not (isinstance(request, Request) and request.keep):
            return LazyAnswer(answer.load_and_remove)
        kept = LazyAnswer(answer.load)
        weakref.finalize(kept, answer.path.unlink, missing_ok=True)
        return kept
    # loky fails all requests when one worker dies.
    return LostAnswer(error) if isinstance(error, _DEAD) else Failure(error)


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

    def load_and_remove(self) -> Any:
        """Return the object and delete the file; its arrays stay valid while they are used."""
        obj = self.load()
        self.path.unlink()
        return obj


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
