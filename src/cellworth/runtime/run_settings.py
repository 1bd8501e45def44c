"""Runtime: where and how a run is executed, and the executor of a run that names none."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import joblib
from joblib.parallel import get_active_backend

from cellworth.data.arguments import is_integer
from cellworth.runtime.checkpoint import DirectoryCheckpoint
from cellworth.runtime.executors import Executor, Processes, Serial, Threads, pickle_object
from cellworth.runtime.forecast import Forecast
from cellworth.runtime.progress import Progress

# Starting processes takes a second or two; shorter runs finish sooner without them.
_MIN_SECONDS_FOR_PROCESSES = 10.0


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
    checkpoint : path or DirectoryCheckpoint, default=None
        Folder in which the run is recorded, or the address of one in an object store, such as
        ``"s3://bucket/run1"``. The next ``fit`` resumes a run that was killed or stopped by its
        budget. For a :class:`~cellworth.ShardedTable` it is a folder that all workers share, and
        it also holds the result.
    progress : bool, default=True
        Whether runs longer than two seconds show a progress bar. Without a terminal or notebook, a
        line goes to stderr every 30 seconds instead, unless a log handler gets it.
    on_round : callable, default=None
        Called with a :class:`~cellworth.runtime.Progress` after every round, for trackers.
    on_start : callable, default=None
        Called with a forecast before the first task: ``str(forecast)`` says what the run does and
        about how long it takes, ``forecast.utilities`` and ``forecast.seconds`` are numbers. An
        exception that it raises ends the run before any work.

    See Also
    --------
    cellworth.runtime.Processes
    cellworth.runtime.DirectoryCheckpoint

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
    checkpoint: str | os.PathLike[str] | DirectoryCheckpoint | None = None
    progress: bool = True
    on_round: Callable[[Progress], object] | None = None
    on_start: Callable[[Forecast], object] | None = None

    def __post_init__(self) -> None:
        _check_is_a(
            self.executor,
            Executor,
            "executor",
            "Serial(), Threads(2), Processes(2), Dask(client) or Ray()",
        )
        folder = (str, os.PathLike, DirectoryCheckpoint)
        _check_is_a(self.checkpoint, folder, "checkpoint", 'a folder such as "run1/"')
        if not isinstance(self.progress, bool):
            raise TypeError(f"progress must be True or False, got {self.progress!r}.")
        for name, argument in (("on_round", "Progress"), ("on_start", "Forecast")):
            given = getattr(self, name)
            if given is not None and not callable(given):
                raise TypeError(f"{name} must be a function of a {argument}, got {given!r}.")

    def announce(self, forecast: Forecast) -> None:
        """Call ``on_start``, which may end the run."""
        if self.on_start is not None:
            self.on_start(forecast)

    def open_checkpoint(self) -> DirectoryCheckpoint | None:
        """Return the checkpoint as an object; a path stands for a DirectoryCheckpoint."""
        if isinstance(self.checkpoint, str | os.PathLike):
            return DirectoryCheckpoint(self.checkpoint)
        return self.checkpoint

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return itself: copies of a valuer, as by scikit-learn's clone, run in the same place."""
        return self


def _check_is_a(given: Any, kind: Any, name: str, examples: str) -> None:
    if given is not None and (isinstance(given, type) or not isinstance(given, kind)):
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


def count_cores(executor: Executor) -> int:
    """Return the number of cores of this machine that an executor uses."""
    return executor.n_workers if isinstance(executor, Threads | Processes) else 1


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
    if alone or seconds < _MIN_SECONDS_FOR_PROCESSES or not _can_pickle(work):
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
    return _make_executor(executors[kind], n_jobs)


def _can_pickle(work: Callable[..., Any]) -> bool:
    try:
        pickle_object(work)
    # Pickling runs code of the user's objects, which may raise anything.
    except Exception:
        return False
    return True
