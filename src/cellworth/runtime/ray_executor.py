"""Ray: run tasks on a Ray cluster whose nodes and workers may join, leave and die during a run."""

from __future__ import annotations

import functools
import math
import pickle
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np

from cellworth.runtime.executors import pickle_object
from cellworth.runtime.workers import (
    MAX_FAILURES_IN_A_ROW,
    ClusterPool,
    Failure,
    LazyAnswer,
    LostAnswer,
    WorkerPool,
    as_request,
    attempt_in_worker,
    make_lost_cluster_error,
)
from cellworth.sampling.moments import limit_threads


@dataclass(frozen=True)
class Ray:
    """The workers of a Ray cluster.

    Call ``ray.init()`` first: on one machine it starts a cluster, with ``address="auto"`` it
    connects to one. The table and the model are stored once on each node. Other workers take over
    the tasks of a killed worker or node, and nodes may join during a run. The package must be
    installed on all nodes.

    Parameters
    ----------
    memory : int, default=None
        Bytes of memory that Ray reserves for each task. If tasks need much memory, fewer of them
        then run at once on a node.

    See Also
    --------
    Dask, Processes

    Examples
    --------
    A cluster of two workers on this machine::

        import ray

        ray.init(num_cpus=2)
        KNNValuer(runtime=Runtime(Ray())).fit(X, y)

    >>> from cellworth import Runtime
    >>> from cellworth.runtime import Ray
    >>> Runtime(Ray(memory=2 * 2**30)).executor
    Ray(memory=2147483648)
    """

    memory: int | None = None

    def __post_init__(self) -> None:
        if self.memory is not None and not self.memory > 0:
            raise ValueError(
                f"memory of Ray must be a number of bytes or None, got {self.memory!r}; give 2**30 "
                "for 1 GiB per task."
            )

    @contextmanager
    def start(self, work: Callable[..., Any], title: str) -> Iterator[WorkerPool]:
        """Start answering requests on the cluster."""
        with closing(_RayPool(self, work, title)) as pool:
            yield pool


class _RayPool(ClusterPool):
    explanation = "no node of the cluster has the cores and the memory that a task needs"

    def __init__(self, executor: Ray, work: Callable[..., Any], title: str) -> None:
        super().__init__(
            lambda requests: ((number, self._submit(each)) for number, each in requests.items()),
            self._read_future,
        )
        self._ray = _import_ray()
        self._needs = {"CPU": 1, "memory": executor.memory or 0}
        self._options = {
            "name": title,
            "num_cpus": 1,
            "memory": executor.memory,
            # One policy for all executors: the pool sends lost requests again.
            "max_retries": 0,
        }
        self._run, self._job = f"cellworth-{uuid4().hex}", _get_job(self._ray)
        with self.explain_loss():
            from ray.experimental.internal_kv import _internal_kv_put

            # Workers look it up before they begin a request.
            _internal_kv_put(self._run, b"running")
            self._work = self._ray.put(_pack(work))

    def count_threads(self) -> dict[str, int]:
        """Return how many tasks each node can run at once."""
        nodes = {n["NodeID"]: n["Resources"] for n in self._ray.nodes() if n["Alive"]}
        needs = [(name, need) for name, need in self._needs.items() if need]
        counts = {
            node: min(math.floor(there.get(name, 0.0) / need) for name, need in needs)
            for node, there in nodes.items()
        }
        return {node: n for node, n in counts.items() if n}

    def _submit(self, request: Any) -> Any:
        asked = as_request(request)
        inputs = [
            _pack(given.load()) if given.handle is None else given.handle for given in asked.inputs
        ]
        options = self._options
        if asked.locality is not None and (node := self.find_worker(asked.locality)):
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            # Soft: if the node is gone or busy, another one gives the same answer.
            near = NodeAffinitySchedulingStrategy(node, soft=True)
            options = options | {"scheduling_strategy": near}
        with self.explain_loss():
            submit = _get_remote_function().options(**options).remote
            done, answer = submit(self._run, self._work, _pack(asked.content), *inputs)
        # The first object is small: it tells whether the answer is there.
        future = done.future()
        future.answer = answer
        return future

    def _read_future(self, request: Any, future: Any) -> Any:
        """Return the answer, which stays in the object store, a Failure or a LostAnswer."""
        problem = self._fetch(future.object_ref)
        if problem is None:
            # It stays in the object store of its node until it is folded.
            return LazyAnswer(functools.partial(self._load, future.answer), future.answer)
        # Ray logs an error that is never read.
        self._fetch(future.answer)
        exceptions = self._ray.exceptions
        n_ended = self.n_losses + 1
        is_outgrown = isinstance(problem.error, exceptions.OutOfMemoryError)
        if is_outgrown and n_ended > MAX_FAILURES_IN_A_ROW:
            return Failure(_explain_memory(problem.error, n_ended))
        if as_request(request).inputs and isinstance(problem.error, exceptions.ObjectLostError):
            return LostAnswer(problem.error, inputs_lost=True)
        return problem

    def _load(self, answer: Any) -> Any:
        packed = self._fetch(answer)
        return packed if isinstance(packed, LostAnswer | Failure) else _unpack(packed)

    def _fetch(self, reference: Any) -> Any:
        exceptions = self._ray.exceptions
        try:
            with self.explain_loss():
                return self._ray.get(reference)
        except (
            exceptions.WorkerCrashedError,
            exceptions.NodeDiedError,
            exceptions.OutOfMemoryError,
            exceptions.ObjectLostError,
            exceptions.TaskCancelledError,
        ) as error:
            return LostAnswer(error)
        except Exception as error:
            return Failure(error)

    def close(self) -> None:
        """Let workers skip the requests that wait; running ones are not waited for."""
        # Not by ray.cancel: a task that is cancelled while it starts aborts this process, in Ray
        # 2.60 too.
        if self._is_connected:
            from ray.experimental.internal_kv import _internal_kv_del

            _internal_kv_del(self._run)

    @property
    def _is_connected(self) -> bool:
        # Ray starts a new cluster of itself when it is called after ray.shutdown().
        return self._ray.is_initialized() and _get_job(self._ray) == self._job

    @contextmanager
    def explain_loss(self) -> Iterator[None]:
        if not self._is_connected:
            raise make_lost_cluster_error("ray.shutdown() was called")
        with super().explain_loss():
            yield

    def is_lost(self, error: Exception) -> bool:
        gone = (ConnectionError, self._ray.exceptions.LocalRayletDiedError)
        return isinstance(error, gone) or not self._is_connected


def _import_ray() -> Any:
    try:
        import ray.exceptions
    except ImportError as error:
        raise ImportError("Ray() needs ray; pip install 'cellworth[ray]'.") from error
    if not ray.is_initialized():
        raise ConnectionError(
            "Ray() needs a cluster, but this process is connected to none; call ray.init() or "
            'ray.init(address="auto") first.'
        )
    return ray


def _get_job(ray: Any) -> str:
    return str(ray.get_runtime_context().get_job_id())


def _explain_memory(error: BaseException, n_ended: int) -> MemoryError:
    first_line, _, _ = str(error).partition("\n")
    return MemoryError(
        f"Ray ended workers {n_ended} times because their node ran out of memory "
        f"({first_line}). Reserve memory for each task, as in Ray(memory=4 * 2**30), or use "
        "smaller shards; the first line of a long run has the memory they need."
    )


def _pack(obj: Any) -> tuple[bytes, list[Any]]:
    """Pickle an object; its arrays go to the object store without a copy."""
    head, arrays = pickle_object(obj)
    return head, [np.frombuffer(array.raw(), dtype=np.uint8) for array in arrays]


def _unpack(packed: tuple[bytes, list[Any]]) -> Any:
    """Return the object; arrays are copied, because those of the object store are read-only."""
    head, arrays = packed
    return pickle.loads(head, buffers=[bytearray(each) for each in arrays])  # noqa: S301 (ours)


@functools.cache
def _get_remote_function() -> Any:
    import ray

    return ray.remote(num_returns=2)(_answer)


# The task function of the run that this worker process serves.
_loaded: dict[str, Callable[..., Any]] = {}


def _answer(run: str, work: Any, content: Any, *inputs: Any) -> tuple[Failure | None, Any]:
    """Answer a request in a worker process; the task function is loaded once."""
    from ray.experimental.internal_kv import _internal_kv_exists

    if run not in _loaded:
        _loaded.clear()
        _loaded[run] = _unpack(work)
    function, given = _loaded[run], [_unpack(each) for each in inputs]
    if not _internal_kv_exists(run):
        return None, _pack(None)
    with limit_threads():
        answer = attempt_in_worker(lambda asked: function(asked, *given), _unpack(content))
    return answer if isinstance(answer, Failure) else None, _pack(answer)
