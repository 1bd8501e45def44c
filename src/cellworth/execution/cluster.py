"""A Dask cluster: any number of machines, which may come, go and die while a run goes on."""

from __future__ import annotations

import pickle
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import uuid4

import cloudpickle
from threadpoolctl import threadpool_limits

from cellworth.execution.crews import Crew, Failure, FutureCrew, Later, Lost, portable

# The scheduler warns of larger messages.
_BYTES_PER_MESSAGE = 8 * 2**20
_SECONDS_BETWEEN_COUNTS = 2.0


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
    >>> from cellworth import KNNValuer
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> with Client(processes=False, n_workers=1, dashboard_address=None) as client:
    ...     valuer = KNNValuer(1, executor=Dask(client)).fit(X, y, X_val=X, y_val=y)
    >>> valuer.valuation_.columns()
    column   value  validation error
        x0  0.3750            0.0722
        x1  0.1250            0.0722
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
    def start(self, work: Callable[[Any], Any], title: str) -> Iterator[Crew]:
        """Answer requests on the cluster."""
        cluster = _Cluster(self.client, work, title)
        crew = FutureCrew(cluster.send, _read, cluster.n_threads)
        try:
            yield crew
        finally:
            cluster.close(crew.flying)

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
        self._parts, self._work = sent(client, work, self._run)

    def n_threads(self) -> int:
        """Threads of all workers, counted now and then."""
        if time.monotonic() - self._counted >= _SECONDS_BETWEEN_COUNTS:
            with lost_cluster_explained(self._client):
                self._n_threads = sum(self._client.nthreads().values())
            self._counted = time.monotonic()
        return self._n_threads

    def send(self, number: int, request: Any) -> Any:
        self._n_sent += 1
        with lost_cluster_explained(self._client):
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


def sent(client: Any, thing: Any, run: str) -> tuple[list[Any], Any]:
    """Send a thing in parts, as tasks that the scheduler repeats if their worker dies.

    Returns the futures of the parts, and that of the thing.
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
    return parts, client.submit(_opened, parts, key=f"work-{run}", pure=False)


def _read(future: Any) -> Any:
    # An answer stays with its worker until its turn comes; should the worker die, the cluster
    # computes it again.
    return Later(partial(gathered, future)) if future.status == "finished" else gathered(future)


def gathered(future: Any) -> Any:
    """Answer of a future, Lost with its workers, or a Failure."""
    from distributed import KilledWorker

    try:
        return future.result()
    # The scheduler loses patience with requests whose workers died several times.
    except (KilledWorker, CancelledError) as error:
        if future.client.status != "running":
            return Failure(_gone(error))
        return Lost(error)
    except Exception as error:
        return Failure(error)


@contextmanager
def lost_cluster_explained(client: Any) -> Iterator[None]:
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
        return portable(work, request)
