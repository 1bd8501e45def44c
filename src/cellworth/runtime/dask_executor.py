"""A Dask cluster: any number of machines, which may come, go and die while a run goes on."""

from __future__ import annotations

import pickle
import re
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import uuid4

import cloudpickle
from threadpoolctl import threadpool_limits

from cellworth.runtime.workers import (
    Answers,
    Failure,
    FuturePool,
    LazyAnswer,
    LostAnswer,
    WorkerPool,
    attempt_in_worker,
)

# The scheduler warns of larger messages.
_BYTES_PER_MESSAGE = 8 * 2**20
_SECONDS_BETWEEN_COUNTS = 2.0
_SECONDS_BETWEEN_LOOKS = 10.0
_LOOKS_AT_NONE = 6
_SECONDS_TO_FETCH = 60.0
# So often Dask sends a task to another worker, unless it is configured otherwise.
_MOST_DEATHS = 4
_WAY_OUT = (
    "Give workers more memory (memory_limit=) or fewer threads each, or cut the table into smaller "
    "shards, of which plan() tells the memory."
)
# What nannies call it when they end a worker that has outgrown its limit.
_OUTGROWN = "worker-restart-memory"


class Dask:
    """The workers of a Dask cluster.

    The table and the model travel once to each worker, as a task that the scheduler can repeat:
    they do not die with the worker that holds them. What a killed worker was doing is done by
    others, and workers may join while a run goes on.

    Parameters
    ----------
    client : distributed.Client
        Connected to a cluster; on one machine ``Client(n_workers=2, threads_per_worker=1)``.

    Examples
    --------
    >>> from distributed import Client
    >>> from cellworth import KNNValuer, Runtime
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> with Client(processes=False, n_workers=1, dashboard_address=None) as client:
    ...     valuer = KNNValuer(1, runtime=Runtime(Dask(client))).fit(X, y, X_val=X, y_val=y)
    >>> valuer.valuation_.columns()
    column   value  validation error
        x0  0.3750            0.1172
        x1  0.1250            0.1172
    """

    def __init__(self, client: Any) -> None:
        """Refuse what is no client."""
        if not hasattr(client, "submit") or not hasattr(client, "nthreads"):
            raise TypeError(
                f"Dask takes a distributed.Client, not {client!r}; on one machine give "
                "Client(n_workers=2, threads_per_worker=1)."
            )
        self.client = client

    @contextmanager
    def start(self, work: Callable[[Any], Any], title: str) -> Iterator[WorkerPool]:
        """Answer requests on the cluster."""
        cluster = _Cluster(self.client, work, title)
        pool = _DaskPool(cluster)
        try:
            yield pool
        finally:
            cluster.close(pool.flying)

    def __repr__(self) -> str:
        """Return the way to make it."""
        return f"Dask({self.client!r})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Dask:
        """Stay one cluster: a cloned valuer uses the same."""
        return self


class _Cluster:
    def __init__(self, client: Any, work: Callable[[Any], Any], title: str) -> None:
        self._client = client
        # What the dashboard shows: tasks are grouped by the words before the numbers.
        self._name = re.sub(r"\W+", "_", title)
        self._run = uuid4().hex
        self._n_sent = 0
        self._counted, self._n_threads = -_SECONDS_BETWEEN_COUNTS, 0
        self._parts, self._work, n_bytes = sent(client, work, self._run)
        self.memory = Memory(client, n_bytes)

    def n_threads(self) -> int:
        """Threads of all workers, counted now and then."""
        if time.monotonic() - self._counted >= _SECONDS_BETWEEN_COUNTS:
            with explain_lost_cluster(self._client):
                self._n_threads = sum(self._client.nthreads().values())
            self._counted = time.monotonic()
        return self._n_threads

    def send(self, number: int, request: Any) -> Any:
        self._n_sent += 1
        with explain_lost_cluster(self._client):
            return self._client.submit(
                _answer,
                self._work,
                request,
                key=f"{self._name}-{self._run}-{self._n_sent}",
                # Earlier requests first: they are folded first.
                priority=-number,
                pure=False,
            )

    def close(self, flying: list[Any]) -> None:
        if self._client.status == "running":
            self._client.cancel([*flying, self._work, *self._parts], force=True)


class _DaskPool(FuturePool):
    """A pool that sees, while no answer comes, whether one can come at all."""

    def __init__(self, cluster: _Cluster) -> None:
        super().__init__(cluster.send, partial(_read, cluster.memory), cluster.n_threads)
        self._memory = cluster.memory

    def completed(self, seconds: float | None = None) -> Answers:
        most = _SECONDS_BETWEEN_LOOKS
        answers = super().completed(most if seconds is None else min(seconds, most))
        self._memory.check(waiting=not answers)
        return answers


class Memory:
    """The memory of workers, which Dask limits: it pauses and ends those that come near the limit.

    Parameters
    ----------
    client : distributed.Client
    n_bytes : int
        What was sent to each worker.
    """

    def __init__(self, client: Any, n_bytes: int) -> None:
        """Begin when a run does: what happened before is not its doing."""
        self._client, self._n_bytes = client, n_bytes
        self._n_before = len(self._ended())
        self._looked, self._n_looks_in_vain, self._n_looks_at_none = time.monotonic(), 0, 0

    def outgrown(self, n_deaths: int, limit: int = 0) -> MemoryError | None:
        """Why workers died so many times, if Dask ended them because of their memory limit."""
        ended = self._ended()[self._n_before :]
        # The last one may still have to be heard of.
        if len(ended) < max(n_deaths - 1, 1):
            return None
        from dask.utils import format_bytes

        reached = format_bytes(max(event["rss"] for _, event in ended))
        limit = limit or max((worker["memory_limit"] for worker in self._workers()), default=0)
        return MemoryError(
            f"workers outgrew their memory limit of {format_bytes(limit)} and were ended by Dask "
            f"{len(ended)} times: a worker needs more than the {reached} that it had reached "
            f"({format_bytes(self._n_bytes)} were sent to it). {_WAY_OUT}"
        )

    def check(self, *, waiting: bool) -> None:
        """See, now and then while a run waits, whether there are workers that may begin a task."""
        if not waiting:
            self._looked, self._n_looks_in_vain = time.monotonic(), 0
        if time.monotonic() - self._looked < _SECONDS_BETWEEN_LOOKS:
            return
        workers = self._workers()
        self._looked = time.monotonic()
        self._n_looks_at_none = self._n_looks_at_none + 1 if not workers else 0
        # ShardRunner that died take a while to be replaced.
        if self._n_looks_at_none == _LOOKS_AT_NONE:
            warnings.warn(
                "the cluster has no workers; the run waits until some join, and Ctrl-C ends it.",
                stacklevel=2,
            )
        stuck = bool(workers) and all(map(_is_stuck, workers))
        self._n_looks_in_vain = self._n_looks_in_vain + 1 if stuck else 0
        # Twice, for what workers tell of themselves is some moments old.
        if self._n_looks_in_vain > 1:
            raise self._paused(workers)

    def _paused(self, workers: list[dict[str, Any]]) -> MemoryError:
        from dask.utils import format_bytes

        most = max(workers, key=lambda worker: worker["metrics"]["memory"] / worker["memory_limit"])
        return MemoryError(
            f"Dask lets no worker begin a task, because all are near their memory limit: one uses "
            f"{format_bytes(most['metrics']['memory'])} of {format_bytes(most['memory_limit'])} "
            f"and needs more ({format_bytes(self._n_bytes)} were sent to it). {_WAY_OUT}"
        )

    def _workers(self) -> list[dict[str, Any]]:
        with explain_lost_cluster(self._client):
            return list(self._client.sync(self._client.scheduler.identity)["workers"].values())

    def _ended(self) -> list[Any]:
        with explain_lost_cluster(self._client):
            return list(self._client.get_events(_OUTGROWN))


def _is_stuck(worker: dict[str, Any]) -> bool:
    """Tell a worker that may begin nothing before its memory shrinks, and has nothing to end."""
    executing = worker["metrics"].get("task_counts", {}).get("executing", 0)
    return worker["status"] == "paused" and not executing


def sent(client: Any, thing: Any, run: str) -> tuple[list[Any], Any, int]:
    """Send a thing in parts, as tasks that the scheduler repeats if their worker dies.

    Returns the futures of the parts, that of the thing, and its size in bytes.
    """
    content = cloudpickle.dumps(thing, protocol=5)
    parts = [
        client.submit(
            bytes,
            content[start : start + _BYTES_PER_MESSAGE],
            key=f"table-{run}-{start}",
            pure=False,
        )
        for start in range(0, len(content), _BYTES_PER_MESSAGE)
    ]
    return parts, client.submit(_opened, parts, key=f"work-{run}", pure=False), len(content)


def _read(memory: Memory, future: Any) -> Any:
    # An answer stays with its worker until its turn comes; should the worker die, the cluster
    # computes it again.
    read = partial(fetch_answer, future, memory)
    return LazyAnswer(read) if future.status == "finished" else read()


def fetch_answer(future: Any, memory: Memory) -> Any:
    """Answer of a future, LostAnswer with its workers, or a Failure."""
    from distributed import KilledWorker

    try:
        return _wait_for_result(future, memory)
    # The scheduler loses patience with requests whose workers died several times.
    except (KilledWorker, CancelledError) as error:
        if future.client.status != "running":
            return Failure(_gone(error))
        outgrown = None
        if isinstance(error, KilledWorker):
            outgrown = memory.outgrown(error.allowed_failures + 1, error.last_worker.memory_limit)
        return LostAnswer(error) if outgrown is None else Failure(outgrown)
    except Exception as error:
        return Failure(error)


def _wait_for_result(future: Any, memory: Memory) -> Any:
    """Result of a future, unless its worker dies of handing it out, again and again."""
    seconds = _SECONDS_TO_FETCH
    while True:
        try:
            return future.result(timeout=seconds)
        except TimeoutError:
            outgrown = memory.outgrown(_MOST_DEATHS)
            if outgrown is not None:
                raise outgrown from None
            memory.check(waiting=True)
            # Each time it is fetched from the beginning, which may take long.
            seconds *= 2


@contextmanager
def explain_lost_cluster(client: Any) -> Iterator[None]:
    """Say what it means for the run if the cluster is gone."""
    try:
        yield
    except Exception as error:
        # Versions of Dask have different names for it.
        if isinstance(error, OSError) or client.status != "running":
            raise _gone(error) from error
        raise


def _gone(error: BaseException) -> ConnectionError:
    told, _, _ = str(error).partition("\n")
    return ConnectionError(
        f"the cluster is gone ({type(error).__name__}: {told}); start one and fit again: a "
        "checkpoint keeps what was done."
    )


def _opened(parts: list[bytes]) -> Any:
    return pickle.loads(b"".join(parts))  # noqa: S301 (sent by the client a moment ago)


def _answer(work: Callable[[Any], Any], request: Any) -> Any:
    with threadpool_limits(1):
        return attempt_in_worker(work, request)
