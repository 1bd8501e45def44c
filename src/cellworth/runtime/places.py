"""Where tasks run when a valuer is not told: as joblib is configured, else as suits the work."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

import joblib
from joblib.parallel import get_active_backend

from cellworth.runtime.executors import Executor, Serial, Threads
from cellworth.runtime.processes import Processes, pickle_object

# Starting processes takes a second or two; shorter work is done by the time they are there.
_SECONDS_WORTH_PROCESSES = 10.0


def choose_thread_executor() -> Executor:
    """For work that releases the interpreter's lock: threads on all cores."""
    return _configured() or Threads(joblib.cpu_count())


def choose_process_executor(work: Callable[[Any], Any], seconds: float) -> Executor:
    """For models: processes on all cores, where there is enough to do for them."""
    configured = _configured()
    if configured is not None:
        return configured
    alone = joblib.cpu_count() == 1 or multiprocessing.current_process().name != "MainProcess"
    if alone or seconds < _SECONDS_WORTH_PROCESSES or not _can_pickle(work):
        return Serial()
    return Processes(joblib.cpu_count())


def _configured() -> Executor | None:
    """What ``joblib.parallel_config`` asks for; None where it asks for nothing."""
    backend, n_jobs = get_active_backend()
    kind = type(backend).__name__
    if kind == "LokyBackend" and n_jobs is None:
        return None
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
            "give executor=Dask(client)."
        )
    n_workers = joblib.cpu_count() if n_jobs is None else backend.effective_n_jobs(n_jobs)
    return Serial() if n_workers == 1 else executors[kind](n_workers)


def _can_pickle(work: Callable[[Any], Any]) -> bool:
    try:
        pickle_object(work)
    # Anything can go wrong where a user's object is asked for all that it holds.
    except Exception:
        return False
    return True
