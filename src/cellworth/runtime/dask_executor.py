"""Dask: run tasks on a cluster whose workers may join, leave and die during a run."""

from __future__ import annotations

import pickle
import re
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from weakref import WeakSet

import cloudpickle

from cellworth.runtime.workers import (
    Answers,
    ClusterPool,
    Failure,
    LazyAnswer,
    LostAnswer,
    Request,
    WorkerPool,
    as_request,
    attempt_in_worker,
    make_lost_cluster_error,
    unwrap,
)
from cellworth.sampling.moments import limit_threads

if TYPE_CHECKING:
    from distributed import Client
else:
    # Type hints can be evaluated at run time without Dask.
    Client = Any

# The scheduler warns of larger messages.
_BYTES_PER_MESSAGE = 8 * 2**20
_SECONDS_BETWEEN_CHECKS = 10.0
_SECONDS_TO_FETCH = 60.0
# How often Dask sends a task to another worker, by its default settings.
_MAX_DEATHS = 4
# Priority of tasks that others wait for.
_FIRST = 1_000_000
_ADVICE = (
    "Give workers more memory (memory_limit=) or fewer threads each, or use smaller shards; the "
    "first line of a long run has the memory they need."
)
# Dask's event for a worker that was restarted because it exceeded its memory limit.
_RESTARTED = "worker-restart-memory"


class Dask:
    """The workers of a Dask cluster.

    The table and the model are sent once to each worker, as a Dask task that the scheduler can
    repeat, so they survive the death of a worker. Other workers take over the tasks of a killed
    worker, and workers may join during a run.

    Parameters
    ----------
    client : distributed.Client
        Connected to a cluster; on one machine ``Client(n_workers=2, threads_per_worker=1)``.

    See Also
    --------
    Ray, Processes

    Examples
    --------
    >>> from distributed import Client
    >>> from cellworth import KNNValuer, Runtime
    >>> from cellworth.runtime import Dask
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> with Client(processes=False, n_workers=1, dashboard_address=":0") as client:
    ...     valuer = KNNValuer(1, runtime=Runtime(Dask(client))).fit(X, y, X_val=X, y_val=y)
    >>> valuer.valuation_.columns()
    column   value  validation_se
        x0  0.3750         0.1172
        x1  0.1250         0.1172
    """

    def __init__(self, client: Client) -> None:
        if not hasattr(client, "submit") or not hasattr(client, "nthreads"):
            raise TypeError(
                f"client must be a distributed.Client, got {client!r}; on one machine use "
                "Client(n_workers=2, threads_per_worker=1)."
            )
        self.client = client

    @contextmanager
    def start(self, work: Callable[..., Any], title: str) -> Iterator[WorkerPool]:
        """Start answering requests on the cluster."""
        with closing(_DaskPool(self.client, work, title)) as pool:
            yield pool

    def __repr__(self) -> str:
        return f"Dask({self.client!r})"


class _DaskPool(ClusterPool):
    """A pool that checks, while it waits, whether workers have the memory to answer."""

    def __init__(self, client: Any, work: Callable[..., Any], title: str) -> None:
        super().__init__(self._send_alike, self._read_future)
        self._client = client
        run = uuid4().hex
        # The dashboard groups tasks by the words before the numbers.
        name = re.sub(r"\W+", "_", title).lower()
        self._keys = (f"{name}-{run}-{number}" for number in count())
        with self.explain_loss():
            chunks, self._work, n_bytes = send_object(client, work, run)
            self._memory = WorkerMemory(client, n_bytes)
        # Futures may be held by the traceback of an error, so they must be released by name.
        self._made: WeakSet[Any] = WeakSet([*chunks, self._work])

    def count_threads(self) -> dict[str, int]:
        return dict(self._client.nthreads())

    def is_lost(self, error: Exception) -> bool:
        # The type of the error depends on the version of Dask.
        return isinstance(error, OSError) or self._client.status != "running"

    def wait_for_answers(self, seconds: float | None = None) -> Answers:
        answers = super().wait_for_answers(seconds)
        with self.explain_loss():
            self._memory.check(waiting=not answers)
        return answers

    def _send_alike(self, requests: Mapping[int, Any]) -> Iterator[tuple[int, Any]]:
        """Send requests that differ only in their content together; yield numbers and futures."""
        alike: dict[Any, dict[int, Request]] = {}
        for number, request in requests.items():
            asked = as_request(request)
            worker = "" if asked.locality is None else self.find_worker(asked.locality)
            alike.setdefault((worker, asked.keep, asked.first, asked.inputs), {})[number] = asked
        for (worker, keep, first, inputs), group in alike.items():
            where = {"workers": [worker], "allow_other_workers": True} if worker else {}
            given = {
                f"input{index:03d}": each.load() if each.handle is None else each.handle
                for index, each in enumerate(inputs)
            }
            with self.explain_loss():
                futures = self._client.map(
                    _answer_and_keep if keep else _answer,
                    [request.content for request in group.values()],
                    work=self._work,
                    key=[next(self._keys) for _ in group],
                    # Earlier requests first, because they are folded first.
                    priority=_FIRST if first else -min(group),
                    pure=False,
                    **where,
                    **given,
                )
            self._made.update(futures)
            yield from zip(group, futures, strict=True)

    def _read_future(self, request: Any, future: Any) -> Any:
        # An answer stays on its worker until it is folded; if the worker dies, the cluster computes
        # it again.
        load = partial(self._fetch, future)
        if future.status == "finished":
            return LazyAnswer(load, future)
        answer, inputs = load(), as_request(request).inputs
        states = {given.handle.status for given in inputs if given.handle is not None}
        # The cluster will not compute an input of such a state again.
        if isinstance(answer, LostAnswer) and states & {"error", "cancelled", "lost"}:
            return replace(answer, inputs_lost=True)
        return answer

    def _fetch(self, future: Any) -> Any:
        """Return the answer of a future, a LostAnswer or a Failure."""
        from distributed import KilledWorker

        try:
            return self._wait_for_result(future)
        # The scheduler gives up on requests whose workers died several times.
        except (KilledWorker, CancelledError) as error:
            if self._client.status != "running":
                return Failure(make_lost_cluster_error(error))
            outgrown = None
            if isinstance(error, KilledWorker):
                with self.explain_loss():
                    outgrown = self._memory.explain_deaths(
                        error.allowed_failures + 1, error.last_worker.memory_limit
                    )
            return LostAnswer(error) if outgrown is None else Failure(outgrown)
        except Exception as error:
            return Failure(error)

    def _wait_for_result(self, future: Any) -> Any:
        """Wait for the result of a future, unless its worker keeps dying while it sends it."""
        seconds = _SECONDS_TO_FETCH
        while True:
            try:
                return future.result(timeout=seconds)
            except TimeoutError:
                with self.explain_loss():
                    outgrown = self._memory.explain_deaths(_MAX_DEATHS)
                    if outgrown is not None:
                        raise outgrown from None
                    self._memory.check(waiting=True)
                # A transfer that timed out starts from the beginning, so allow more time.
                seconds *= 2

    def close(self) -> None:
        """Release everything: pending tasks are dropped, running ones are not waited for."""
        # Not cancelled: Dask fails on cancelled tasks that only other tasks depend on.
        if self._client.status == "running":
            for future in list(self._made):
                future.release()


class WorkerMemory:
    """Memory of workers: Dask pauses and restarts those that come near their limit.

    ``n_bytes`` is the size of the object that was sent to each worker.
    """

    def __init__(self, client: Any, n_bytes: int) -> None:
        self._client, self._n_bytes = client, n_bytes
        # Restarts before this run do not count.
        self._n_before = len(self._get_restarts())
        self._checked, self._n_checks_stuck = time.monotonic(), 0

    def explain_deaths(self, n_deaths: int, limit: int = 0) -> MemoryError | None:
        """Return a MemoryError if Dask restarted workers because of their memory limit."""
        ended = self._get_restarts()[self._n_before :]
        # The event of the last one may not have arrived yet.
        if len(ended) < max(n_deaths - 1, 1):
            return None
        from dask.utils import format_bytes

        reached = format_bytes(max(event["rss"] for _, event in ended))
        limit = limit or max((worker["memory_limit"] for worker in self._workers()), default=0)
        return MemoryError(
            f"Dask restarted workers {len(ended)} times because they exceeded their memory limit "
            f"of {format_bytes(limit)}: a worker needs more than {reached} "
            f"({format_bytes(self._n_bytes)} were sent to it). {_ADVICE}"
        )

    def check(self, *, waiting: bool) -> None:
        """Check every few seconds of waiting whether any worker can start a task."""
        if not waiting:
            self._checked, self._n_checks_stuck = time.monotonic(), 0
        if time.monotonic() - self._checked < _SECONDS_BETWEEN_CHECKS:
            return
        workers = self._workers()
        self._checked = time.monotonic()
        stuck = bool(workers) and all(map(_is_stuck, workers))
        self._n_checks_stuck = self._n_checks_stuck + 1 if stuck else 0
        # Twice, because the status of workers is some moments old.
        if self._n_checks_stuck > 1:
            raise self._explain_paused(workers)

    def _explain_paused(self, workers: list[dict[str, Any]]) -> MemoryError:
        from dask.utils import format_bytes

        most = max(workers, key=lambda worker: worker["metrics"]["memory"] / worker["memory_limit"])
        return MemoryError(
            f"no worker can start a task, because all are near their memory limit: one uses "
            f"{format_bytes(most['metrics']['memory'])} of {format_bytes(most['memory_limit'])} "
            f"and needs more ({format_bytes(self._n_bytes)} were sent to it). {_ADVICE}"
        )

    def _workers(self) -> list[dict[str, Any]]:
        return list(self._client.sync(self._client.scheduler.identity)["workers"].values())

    def _get_restarts(self) -> list[Any]:
        return list(self._client.get_events(_RESTARTED))


def _is_stuck(worker: dict[str, Any]) -> bool:
    """Return whether a worker is paused and has no running task that could free memory."""
    executing = worker["metrics"].get("task_counts", {}).get("executing", 0)
    return worker["status"] == "paused" and not executing


def send_object(client: Any, thing: Any, run: str) -> tuple[list[Any], Any, int]:
    """Send an object in chunks, as Dask tasks that are repeated if their worker dies.

    Returns the futures of the chunks, the future of the object, and its size in bytes.
    """
    content = cloudpickle.dumps(thing, protocol=5)
    chunks = [
        client.submit(
            bytes,
            content[start : start + _BYTES_PER_MESSAGE],
            key=f"table-{run}-{start}",
            pure=False,
        )
        for start in range(0, len(content), _BYTES_PER_MESSAGE)
    ]
    return chunks, client.submit(_unpickle, chunks, key=f"work-{run}", pure=False), len(content)


def _unpickle(chunks: list[bytes]) -> Any:
    return pickle.loads(b"".join(chunks))  # noqa: S301 (sent by the client a moment ago)


def _answer(content: Any, *, work: Callable[..., Any], **inputs: Any) -> Any:
    with limit_threads():
        return attempt_in_worker(lambda given: work(given, *inputs.values()), content)


def _answer_and_keep(content: Any, *, work: Callable[..., Any], **inputs: Any) -> Any:
    # Raised, so that tasks that need the answer are not started.
    return unwrap(_answer(content, work=work, **inputs))
