"""Processes of this machine: tasks of a worker that dies go to another one."""

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

from cellworth.counts import checked_count
from cellworth.runtime.workers import (
    Failure,
    FuturePool,
    LazyAnswer,
    LostAnswer,
    SerialPool,
    WorkerPool,
    attempt_in_worker,
)

_SECONDS_TO_TAKE = 1.0
_SECONDS_BETWEEN_LOOKS_AT_PARENT = 1.0
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

    They stay alive for a minute, for the next run, unless a run stops before its tasks are used up:
    then they are ended at once. A worker that is killed is replaced, and what it was doing is done
    again. Where none can be started, as within a ``multiprocessing.Pool``, a warning says so, and
    tasks run one after the other.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from cellworth import AfterUtilities, MonteCarloValuer, Runtime
    >>> model, budget = DecisionTreeClassifier(random_state=0), AfterUtilities(2000)
    >>> MonteCarloValuer(model, stop=budget, runtime=Runtime(Processes(2))).runtime.executor
    Processes(n_workers=2)
    """

    n_workers: int

    def __post_init__(self) -> None:
        """Refuse a pool without workers."""
        checked_count(self.n_workers, "n_workers of Processes")

    @contextmanager
    def start(self, work: Callable[[Any], Any], title: str) -> Iterator[WorkerPool]:
        """Answer requests in processes, or one after the other where none can be started."""
        if multiprocessing.current_process().daemon:
            warnings.warn(
                f"{self!r} cannot start processes within a daemonic one, such as those of "
                "multiprocessing.Pool; tasks run one after the other here, with the same values.",
                stacklevel=2,
            )
            with threadpool_limits(1):
                yield SerialPool(work)
            return
        # loky says so in a thread of its own, which would die of it where warnings are errors. A
        # worker that leaves is replaced; nothing is lost.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs were given")
        with write_shared_pickle(work) as parcel:
            processes = _Pool(parcel, self.n_workers)
            pool = FuturePool(processes.send, _read, lambda: self.n_workers)
            try:
                yield pool
            finally:
                processes.close(pool.flying)


# One pool for each number of workers waits for the next run; loky ends workers that stay idle.
# joblib's own pool is left to joblib: sharing it breaks where one of the two replaces it.
_waiting: dict[int, ProcessPoolExecutor] = {}

if hasattr(os, "register_at_fork"):
    # A forked process has no thread that would serve the pools of its parent.
    os.register_at_fork(after_in_child=_waiting.clear)


class _Pool:
    """loky's pool of processes, or the next one where a worker's death has broken it."""

    def __init__(self, parcel: SharedPickle, n_workers: int) -> None:
        self._parcel, self._n_workers = parcel, n_workers
        self._pool = _waiting.pop(n_workers, None) or self._new()

    def send(self, number: int, request: Any) -> Future[Any]:
        try:
            return self._sent(request)
        except _DEAD:
            self._pool = self._new()
            return self._sent(request)

    def close(self, flying: list[Future[Any]]) -> None:
        if all(future.done() for future in flying):
            if _waiting.setdefault(self._n_workers, self._pool) is not self._pool:
                # A run within another one has left a pool before.
                self._pool.shutdown(wait=True)
            return
        _wait_until_taken(flying)
        self._pool.shutdown(wait=True, kill_workers=True)

    def _sent(self, request: Any) -> Future[Any]:
        future: Future[Any] = self._pool.submit(_answer, self._parcel, request)
        return future

    def _new(self) -> Any:
        return ProcessPoolExecutor(
            self._n_workers,
            timeout=_SECONDS_TO_LIVE_IDLE,
            env=_ONE_THREAD,
            initializer=_begin_process,
            initargs=(os.getpid(),),
        )


def _read(future: Future[Any]) -> Any:
    error = future.exception()
    if error is None:
        answer = future.result()
        return LazyAnswer(answer.taken) if isinstance(answer, SharedPickle) else answer
    # loky gives up on all requests when one worker dies.
    return LostAnswer(error) if isinstance(error, _DEAD) else Failure(error)


def _wait_until_taken(flying: list[Future[Any]]) -> None:
    """Give loky the moment that it needs to hand out tasks: killed before, it trips over them."""
    deadline = time.monotonic() + _SECONDS_TO_TAKE
    while time.monotonic() < deadline and not all(f.running() or f.done() for f in flying):
        time.sleep(0.001)


_opened: dict[SharedPickle, Callable[[Any], Any]] = {}


def _answer(parcel: SharedPickle, request: Any) -> Any:
    """What a process does; it opens the work once."""
    if parcel not in _opened:
        _opened.clear()
        _opened[parcel] = parcel.opened()
    return share_if_large(attempt_in_worker(_opened[parcel], request), parcel)


def _begin_process(parent: int) -> None:
    # Ctrl-C reaches the whole group; what it means is for the parent to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whose number is told, and not asked for: it may be gone by now.
    threading.Thread(target=_leave_with_parent, args=(parent,), daemon=True).start()


def _leave_with_parent(parent: int) -> None:
    """End a process whose parent was killed: nobody waits for its answers."""
    while os.getppid() == parent:
        time.sleep(_SECONDS_BETWEEN_LOOKS_AT_PARENT)
    for parcel in list(_opened):
        shutil.rmtree(parcel.path.parent, ignore_errors=True)
    os._exit(1)


@dataclass(frozen=True)
class SharedPickle:
    """Where an object lies, for processes of this machine.

    Parameters
    ----------
    path : Path
        A file in a folder that only this user may read, made for one run and gone after it.
    head : tuple of int
        Where in it the pickle_object object begins and ends.
    buffers : tuple of pairs of int
        Where its arrays begin and end.
    """

    path: Path
    head: tuple[int, int]
    buffers: tuple[tuple[int, int], ...]

    def opened(self) -> Any:
        """Return the object; its arrays stay in the file, which all processes share."""
        with self.path.open("rb") as file:
            # Copy on write: a model may change its input, and only its own process sees that.
            content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        arrays = [content[begin:end] for begin, end in self.buffers]
        return pickle.loads(content[slice(*self.head)], buffers=arrays)  # noqa: S301 (we wrote it)

    def taken(self) -> Any:
        """Return the object and remove the file; its arrays live as long as they are used."""
        thing = self.opened()
        self.path.unlink()
        return thing


@contextmanager
def write_shared_pickle(work: Callable[[Any], Any]) -> Iterator[SharedPickle]:
    """Write a piece of work to a file of its own for as long as it is needed."""
    folder = Path(tempfile.mkdtemp(prefix="cellworth-"))
    try:
        yield _write_pickle(*pickle_object(work), folder / "work")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def share_if_large(answer: Any, beside: SharedPickle) -> Any:
    """Put an answer with large arrays into a file: its reader need not hold it in memory."""
    head, arrays = pickle_object(answer)
    if sum(array.raw().nbytes for array in arrays) < _LARGE:
        return answer
    return _write_pickle(head, arrays, beside.path.with_name(uuid4().hex))


def pickle_object(thing: Any) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """Pickle an object; its arrays are not copied."""
    arrays: list[pickle.PickleBuffer] = []
    # What a user defines in a notebook travels as well.
    return cloudpickle.dumps(thing, protocol=5, buffer_callback=arrays.append), arrays


def _write_pickle(head: bytes, arrays: list[pickle.PickleBuffer], path: Path) -> SharedPickle:
    contents: list[Any] = [head, *(array.raw() for array in arrays)]
    places = []
    with path.open("xb") as file:
        for content in contents:
            file.write(b"\0" * (-file.tell() % _ALIGNED))
            begin = file.tell()
            file.write(content)
            places.append((begin, file.tell()))
    return SharedPickle(path, places[0], tuple(places[1:]))
