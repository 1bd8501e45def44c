"""Ray: run tasks on a Ray cluster whose nodes and workers may join, leave and die during a run."""

from __future__ import annotations

import functools
import math
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
from threadpoolctl import threadpool_limits

from cellworth.runtime.executors import pickle_object
from cellworth.runtime.workers import (
    Answers,
    Assignment,
    Failure,
    FuturePool,
    LazyAnswer,
    LostAnswer,
    WorkerPool,
    WorkerWatch,
    as_request,
    attempt_in_worker,
    make_lost_cluster_error,
)

_SECONDS_BETWEEN_COUNTS = 2.0
_SECONDS_BETWEEN_CHECKS = 10.0
# So many workers ended for lack of memory, without an answer in between, end the run.
_MOST_OUTGROWN = 3


@dataclass(frozen=True)
class Ray:
    """The workers of a Ray cluster.

    Call ``ray.init()`` first: on one machine it starts a cluster, with ``address="auto"`` it
    connects to one. The table and the model are stored once on each node. Other workers take over
    the tasks of a killed worker or node, and nodes may join during a run. The package must be
    installed on all nodes.

    Parameters
    ----------
    num_cpus : float, default=1.0
        Cores that Ray reserves for each task.
    memory : int, default=None
        Bytes of memory that Ray reserves for each task. If tasks need much memory, fewer of them
        then run at once on a node.

    Examples
    --------
    A cluster of two workers on this machine::

        import ray

        ray.init(num_cpus=2)
        KNNValuer(runtime=Runtime(Ray())).fit(X, y)

    >>> from cellworth import Runtime
    >>> from cellworth.runtime import Ray
    >>> Runtime(Ray(memory=2 * 2**30)).executor
    Ray(num_cpus=1.0, memory=2147483648)
    """

    num_cpus: float = 1.0
    memory: int | None = None

    def __post_init__(self) -> None:
        if not self.num_cpus > 0:
            raise ValueError(f"num_cpus of Ray must be positive, got {self.num_cpus!r}; give 1.")
        if self.memory is not None and not self.memory > 0:
            raise ValueError(
                f"memory of Ray must be a number of bytes or None, got {self.memory!r}; give 2**30 "
                "for 1 GiB per task."
            )

    @contextmanager
    def start(self, work: Callable[..., Any], title: str) -> Iterator[WorkerPool]:
        """Start answering requests on the cluster."""
        tasks = _RayTasks(self, work, title)
        pool = _RayPool(tasks)
        try:
            yield pool
        finally:
            tasks.close()


@dataclass(frozen=True)
class _RayTask:
    """A future: ``done`` is a small object that tells whether the answer is there."""

    done: Any
    answer: Any
    callbacks: list[Callable[[Any], None]]

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self.callbacks.append(callback)


@dataclass(frozen=True, eq=False)
class _RayAnswer(LazyAnswer):
    """An answer that stays in the object store of its node until it is folded."""

    reference: Any


class _RayTasks:
    def __init__(self, executor: Ray, work: Callable[..., Any], title: str) -> None:
        self._ray = _import_ray()
        self._needs = {"CPU": executor.num_cpus, "memory": executor.memory or 0}
        self._options = {
            "name": title,
            "num_cpus": executor.num_cpus,
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
        self._counted, self._n_workers = -_SECONDS_BETWEEN_COUNTS, dict[str, int]()
        self._assignment, self._n_outgrown = Assignment(), 0
        self._watch = WorkerWatch(
            "no node of the cluster has the cores and the memory that a task needs"
        )

    def count_workers(self) -> dict[str, int]:
        """Return how many tasks each node can run at once, counted every few seconds."""
        if time.monotonic() - self._counted >= _SECONDS_BETWEEN_COUNTS:
            with self.explain_loss():
                nodes = [node for node in self._ray.nodes() if node["Alive"]]
            counts = {node["NodeID"]: self._count_tasks(node["Resources"]) for node in nodes}
            self._n_workers = {node: n for node, n in counts.items() if n}
            self._counted = time.monotonic()
            self._watch.see(self._n_workers)
        return self._n_workers

    def _count_tasks(self, resources: dict[str, float]) -> int:
        needs = [(name, need) for name, need in self._needs.items() if need]
        return min(math.floor(resources.get(name, 0.0) / need) for name, need in needs)

    def find_worker(self, locality: int) -> str:
        return self._assignment.find(locality, self.count_workers())

    def send(self, number: int, request: Any) -> _RayTask:
        asked = as_request(request)
        inputs = [
            given.reference if isinstance(given, _RayAnswer) else _pack(given.load())
            for given in asked.inputs
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
        return _RayTask(done, answer, [])

    def wait(self, tasks: list[_RayTask], seconds: float) -> None:
        """Wait until a task has ended; call the callbacks of all that have."""
        pending = {task.done: task for task in tasks}
        with self.explain_loss():
            ended, _ = self._ray.wait(list(pending), timeout=seconds)
            if ended:
                ended, _ = self._ray.wait(list(pending), num_returns=len(pending), timeout=0)
        for each in ended:
            for callback in pending[each].callbacks:
                callback(pending[each])

    def read(self, request: Any, task: _RayTask) -> Any:
        """Return the answer, which stays in the object store, a Failure or a LostAnswer."""
        problem = self._fetch(task.done)
        if problem is None:
            self._n_outgrown = 0
            return _RayAnswer(functools.partial(self._load, task.answer), task.answer)
        # Ray logs an error that is never read.
        self._fetch(task.answer)
        exceptions = self._ray.exceptions
        if isinstance(problem.error, exceptions.OutOfMemoryError):
            self._n_outgrown += 1
            if self._n_outgrown > _MOST_OUTGROWN:
                return Failure(_explain_memory(problem.error))
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
        """Raise a ConnectionError with advice if the cluster is gone."""
        if not self._is_connected:
            raise make_lost_cluster_error("ray.shutdown() was called")
        try:
            yield
        except Exception as error:
            gone = (ConnectionError, self._ray.exceptions.LocalRayletDiedError)
            if isinstance(error, gone) or not self._is_connected:
                raise make_lost_cluster_error(error) from error
            raise


class _RayPool(FuturePool):
    """A pool that checks, while it waits, whether any worker can answer."""

    keeps_answers = True

    def __init__(self, tasks: _RayTasks) -> None:
        super().__init__(tasks.send, tasks.read, lambda: sum(tasks.count_workers().values()))
        self._tasks = tasks

    def find_worker(self, locality: int) -> str:
        return self._tasks.find_worker(locality)

    def wait_for_answers(self, seconds: float | None = None) -> Answers:
        most = _SECONDS_BETWEEN_CHECKS
        if self.in_flight:
            self._tasks.wait(self.in_flight, most if seconds is None else min(seconds, most))
        answers = super().wait_for_answers(0)
        if not answers:
            self._tasks.count_workers()
        return answers


def _import_ray() -> Any:
    try:
        import ray
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


def _explain_memory(error: BaseException) -> MemoryError:
    first_line, _, _ = str(error).partition("\n")
    return MemoryError(
        f"Ray ended workers {_MOST_OUTGROWN + 1} times because their node ran out of memory "
        f"({first_line}). Reserve memory for each task, as in Ray(memory=4 * 2**30), or use "
        "smaller shards; plan() reports the memory they need."
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
    with threadpool_limits(1):
        answer = attempt_in_worker(lambda asked: function(asked, *given), _unpack(content))
    return answer if isinstance(answer, Failure) else None, _pack(answer)
