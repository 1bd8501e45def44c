"""WorkerPool: the interface of started workers, and the parts that pools are made of.

Requests go in by number; answers come back as they are ready. A request is any object that the task
function takes, or a :class:`Request`, which also says where it should run and which earlier answers
it needs. :func:`attempt` answers both. The module also holds the rules that all pools share: how a
lost request is sent again, and how signals end a run.
"""

from __future__ import annotations

import ctypes
import logging
import math
import pickle
import queue
import signal
import threading
import time
import traceback
import warnings
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, ClassVar

import cloudpickle

Answers = list[tuple[int, Any]]
# Sends numbered requests to workers; returns their futures, with their numbers.
Send = Callable[[Mapping[int, Any]], Iterable[tuple[int, Any]]]
# Converts a request and its finished future to its answer.
Read = Callable[[Any, Any], Any]

# Requests in flight for each worker: one runs, one waits.
REQUESTS_PER_WORKER = 2
# More failures without success in between mean that the work itself kills the workers.
MAX_FAILURES_IN_A_ROW = 5

_DEFAULT_HANDLERS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}
# So many signals end a run at once.
_MAX_SIGNALS = 3

# A cluster may start without workers, and replaces dead ones after a moment.
SECONDS_WITHOUT_WORKERS = 10.0
_SECONDS_BETWEEN_COUNTS = 2.0
_SECONDS_BETWEEN_NOTICES = 60.0

_log = logging.getLogger(__name__)
_this_thread = threading.local()


@dataclass(frozen=True)
class Failure:
    """The exception that a request ended with instead of an answer."""

    error: BaseException


class LostWorkersError(RuntimeError):
    """Workers died again and again, so that the run gave up.

    The same call may succeed later, or with more memory or fewer workers; a checkpoint keeps
    finished tasks. Other errors that may pass are ``ConnectionError`` (the cluster is gone) and
    ``OSError`` with a number such as ``errno.ENOSPC`` (the disk is full).

    See Also
    --------
    Processes, Dask

    Examples
    --------
    >>> from cellworth import KNNValuer
    >>> from cellworth.runtime import LostWorkersError
    >>> X, y = [[0.0], [9.0]], [0, 1]
    >>> try:
    ...     valuer = KNNValuer(1).fit(X, y, X_val=X, y_val=y)
    ... except (LostWorkersError, ConnectionError):
    ...     print("try again later")
    """


@dataclass(frozen=True)
class LostAnswer:
    """A request whose worker died; it must be sent again.

    If its inputs are lost too, sending it again is useless.
    """

    error: BaseException | None
    inputs_lost: bool = False


@dataclass(frozen=True, eq=False)
class LazyAnswer:
    """An answer stored elsewhere to save memory; ``load`` may return a Failure or a LostAnswer.

    It may be an input of later requests. If workers are other processes, ``load`` is pickled, or
    the pool replaces it by something that workers can load. An answer that stays on a cluster has
    the ``handle`` by which the cluster knows it.
    """

    load: Callable[[], Any]
    handle: Any = None


@dataclass(frozen=True, eq=False)
class Request:
    """A request that says more than its content; the work is called with content and inputs.

    Parameters
    ----------
    content : object
        First argument of the task function.
    inputs : tuple of LazyAnswer
        Answers to earlier requests of the same pool, which become further arguments. Workers
        exchange them, if they can, and the driver does not load them.
    locality : int, default=None
        Requests with the same number use the same data. They should run on the same worker, which
        may have that data in memory; any other worker gives the same answer.
    keep : bool, default=False
        Whether the answer is an input of later requests. A pool with other processes returns a
        LazyAnswer for it and leaves the answer where it is.
    first : bool, default=False
        Whether others wait for it, so that it should not wait for requests sent before.
    """

    content: Any
    inputs: tuple[LazyAnswer, ...] = ()
    locality: int | None = None
    keep: bool = False
    first: bool = False


class RecoverableError(Exception):
    """Something was lost that can be computed again: read the checkpoint and resume."""


class WorkerPool(ABC):
    """Workers that have been started for one task function."""

    # Whether answers that are kept stay with workers, so that any number may be in flight.
    keeps_answers: ClassVar[bool] = False

    @property
    def capacity(self) -> int:
        """Requests that may be in flight, enough to keep all workers busy; it may change."""
        return 1

    @abstractmethod
    def forget(self) -> None:
        """Give up all requests in flight: their answers are not returned."""

    def find_worker(self, locality: int) -> str:
        """Return the worker or machine that requests with this locality are sent to.

        Kept answers of one worker are merged there, before they travel. It may change.
        """
        return ""

    @abstractmethod
    def submit(self, requests: Mapping[int, Any]) -> None:
        """Send numbered requests to the workers; a number is used again only after its answer."""

    @abstractmethod
    def wait_for_answers(self, seconds: float | None = None) -> Answers:
        """Wait for an answer, and return all that are ready, as pairs of a number and an answer.

        An answer is what the task function returned, a Failure if it raised, or a LazyAnswer. The
        list is empty if the time is up or a worker died. The pool itself sends the requests of a
        dead worker again.
        """


class SerialPool(WorkerPool):
    """A pool without workers: this thread computes an answer when one is asked for."""

    def __init__(self, work: Callable[..., Any]) -> None:
        self._work = work
        self._waiting: deque[tuple[int, Any]] = deque()

    def submit(self, requests: Mapping[int, Any]) -> None:
        """Queue requests."""
        self._waiting.extend(requests.items())

    def forget(self) -> None:
        """Empty the queue."""
        self._waiting.clear()

    def wait_for_answers(self, seconds: float | None = None) -> Answers:
        """Answer the first request, however long it takes."""
        number, request = self._waiting.popleft()
        return [(number, attempt(self._work, request))]


class FuturePool(WorkerPool):
    """A pool of workers that return futures; it sends requests of dead workers again.

    ``count`` returns the number of workers. What ``read`` returns is an answer, a Failure, a
    LazyAnswer or a LostAnswer.
    """

    def __init__(self, send: Send, read: Read, count: Callable[[], int]) -> None:
        self._send, self._read, self._count = send, read, count
        self._in_flight: dict[int, tuple[Any, Any]] = {}
        self._ready: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        # Losses without an answer in between.
        self.n_losses: int = 0

    @property
    def capacity(self) -> int:
        """Two requests for each worker, and at least two."""
        return REQUESTS_PER_WORKER * max(self._count(), 1)

    @property
    def in_flight(self) -> list[Any]:
        """Futures whose answers have not been returned."""
        return [future for _, future in self._in_flight.values()]

    def submit(self, requests: Mapping[int, Any]) -> None:
        """Send requests to the workers."""
        for number, future in self._send(requests):
            self._in_flight[number] = requests[number], future
            future.add_done_callback(lambda done, number=number: self._ready.put((number, done)))

    def forget(self) -> None:
        """Drop the futures in flight; a cluster does not begin tasks that are not wanted."""
        self._in_flight.clear()

    def wait_for_answers(self, seconds: float | None = None) -> Answers:
        """Wait for answers; return none if the time is up or a worker died."""
        answers: Answers = []
        lost: dict[int, Any] = {}
        error: BaseException | None = None
        for number, future in drain(self._ready, seconds):
            request, latest = self._in_flight.get(number, (None, None))
            # An older future was replaced when its request was sent again.
            if future is not latest:
                continue
            del self._in_flight[number]
            answer = self._read(request, future)
            if not isinstance(answer, LostAnswer):
                answers.append((number, answer))
                continue
            if answer.inputs_lost:
                raise RecoverableError(f"workers died ({answer.error})") from answer.error
            lost[number] = request
            error = answer.error
        if answers:
            self.n_losses = 0
        elif lost:
            self.n_losses += 1
        if self.n_losses > MAX_FAILURES_IN_A_ROW:
            raise LostWorkersError(
                f"workers died {self.n_losses} times in a row; the model may crash or "
                "need more memory than there is: give fewer workers, or try Serial() to see where."
            ) from error
        if lost:
            numbers = list(lost)
            fields = {"event": "lost_worker", "requests": numbers, "losses": self.n_losses}
            _log.warning("a worker died; requests %s are sent again", numbers, extra=fields)
            self.submit(lost)
        return answers


class ClusterPool(FuturePool):
    """A pool on a cluster: answers stay with workers, which may join, leave and die.

    It tells of workers that leave, and of a cluster without workers: after ten seconds and then
    every minute, as a warning and in the log.
    """

    keeps_answers = True
    explanation: ClassVar[str] = "the cluster has no workers"

    def __init__(self, send: Send, read: Read) -> None:
        super().__init__(send, read, lambda: sum(self.find_workers().values()))
        self._assignment, self._n_threads = Assignment(), dict[str, int]()
        self._counted = -math.inf
        self._none_since: float | None = None
        self._next_notice = 0.0

    @abstractmethod
    def count_threads(self) -> dict[str, int]:
        """Return how many requests each worker can run at once."""

    @abstractmethod
    def is_lost(self, error: Exception) -> bool:
        """Return whether an error means that the cluster is gone."""

    def find_workers(self) -> dict[str, int]:
        """Return the workers with their numbers of threads, counted every few seconds."""
        if time.monotonic() - self._counted >= _SECONDS_BETWEEN_COUNTS:
            with self.explain_loss():
                before, self._n_threads = self._n_threads, self.count_threads()
            self._counted = time.monotonic()
            n_left = len(self._n_threads)
            for gone in sorted(set(before) - set(self._n_threads)):
                fields = {"event": "lost_worker", "worker": gone, "workers": n_left}
                _log.warning("worker %s left; %d are there", gone, n_left, extra=fields)
            self._warn_without_workers()
        return self._n_threads

    def _warn_without_workers(self) -> None:
        if self._n_threads:
            self._none_since = None
            return
        now = self._counted
        if self._none_since is None:
            self._none_since, self._next_notice = now, now + SECONDS_WITHOUT_WORKERS
        if now >= self._next_notice:
            self._next_notice, seconds = now + _SECONDS_BETWEEN_NOTICES, now - self._none_since
            notice = (
                f"{self.explanation} (for {seconds:.0f} s); the run waits until some join; press "
                "Ctrl-C to end."
            )
            _log.warning(notice, extra={"event": "no_workers", "seconds": seconds})
            warnings.warn(notice, stacklevel=2)

    def find_worker(self, locality: int) -> str:
        """Return the worker that has the data of this locality, or will have it."""
        return self._assignment.find(locality, self.find_workers())

    def wait_for_answers(self, seconds: float | None = None) -> Answers:
        """Wait for answers; from time to time, look whether workers are there."""
        most = _SECONDS_BETWEEN_COUNTS
        answers = super().wait_for_answers(most if seconds is None else min(seconds, most))
        if not answers:
            self.find_workers()
        return answers

    @contextmanager
    def explain_loss(self) -> Iterator[None]:
        """Raise a ConnectionError with advice if the cluster is gone."""
        try:
            yield
        except Exception as error:
            if self.is_lost(error):
                raise make_lost_cluster_error(error) from error
            raise


class Assignment:
    """Assigns localities to workers, in proportion to their numbers of threads."""

    def __init__(self) -> None:
        self._workers: dict[int, str] = {}
        self._n_threads: dict[str, int] = {}
        self._n_assigned: Counter[str] = Counter()

    def find(self, locality: int, n_threads: dict[str, int]) -> str:
        """Return the worker for a locality; it stays the same, unless it is gone or has too many.

        Without any worker it is "".
        """
        if n_threads != self._n_threads:
            self._forget_surplus(n_threads)
        if not n_threads:
            return ""
        if locality not in self._workers:
            worker = min(n_threads, key=lambda name: (self._load(name), name))
            self._workers[locality] = worker
            self._n_assigned[worker] += 1
        return self._workers[locality]

    def _load(self, worker: str) -> float:
        return (self._n_assigned[worker] + 1) / self._n_threads[worker]

    def _forget_surplus(self, n_threads: dict[str, int]) -> None:
        before, total = self._workers, sum(n_threads.values())
        most = {worker: -(-len(before) * n // total) for worker, n in n_threads.items()}
        self._workers, self._n_threads, self._n_assigned = {}, dict(n_threads), Counter()
        for locality, worker in before.items():
            if self._n_assigned[worker] < most.get(worker, 0):
                self._workers[locality] = worker
                self._n_assigned[worker] += 1


def map_unordered(
    pool: WorkerPool, requests: Iterable[Any], interrupts: Interrupts
) -> Iterator[tuple[Any, Any]]:
    """Yield requests with their answers as they come; send lost requests again.

    No more requests are in flight than the pool can run, so that answers do not pile up, unless
    they stay with workers. If
    ``requests`` is a deque, more can be added while it runs. Answers that are kept are not loaded.
    Signals are allowed while it waits for answers.
    """
    pending = requests if isinstance(requests, deque) else deque(requests)
    in_flight: dict[int, Any] = {}
    numbers = count()
    try:
        while pending or in_flight:
            sent: dict[int, Any] = {}
            capacity = pool.capacity
            while pending and (
                len(in_flight) + len(sent) < capacity
                or (pool.keeps_answers and as_request(pending[0]).keep)
            ):
                sent[next(numbers)] = pending.popleft()
            pool.submit(sent)
            in_flight |= sent
            with interrupts.allow():
                # A list would hold its answers while the next ones come.
                done = iter(pool.wait_for_answers())
            for number, answer in done:
                request = in_flight.pop(number)
                is_stored = isinstance(answer, LazyAnswer) and not as_request(request).keep
                loaded = answer.load() if is_stored else answer
                if isinstance(loaded, LostAnswer):
                    pending.appendleft(request)
                else:
                    yield request, unwrap(loaded)
    except KeyboardInterrupt:
        # The pool answers other requests now.
        pool.forget()
        raise


def as_request(request: Any) -> Request:
    """Return a Request as it is, and any other object as the content of one."""
    return request if isinstance(request, Request) else Request(request)


def as_lazy(answer: Any) -> LazyAnswer:
    """Return an answer that can be the input of a request; those of this process are not lazy."""
    return answer if isinstance(answer, LazyAnswer) else LazyAnswer(partial(unwrap, answer))


def make_lost_cluster_error(reason: BaseException | str) -> ConnectionError:
    """Return the error for a cluster that is gone, with advice."""
    if isinstance(reason, BaseException):
        first_line, _, _ = str(reason).partition("\n")
        reason = f"{type(reason).__name__}: {first_line}"
    return ConnectionError(
        f"the cluster is gone ({reason}); start one and fit again: a checkpoint keeps finished "
        "tasks."
    )


class Cancelled(Exception):  # noqa: N818 (not an error)
    """Ends a task whose answer is no longer needed."""


def cancel_thread_on(cancelled: threading.Event) -> None:
    """Let an event end the tasks of this thread."""
    _this_thread.cancelled = cancelled


def leave_if_cancelled() -> None:
    """Raise Cancelled in a thread whose run is over; processes are terminated instead."""
    cancelled = getattr(_this_thread, "cancelled", None)
    if cancelled is not None and cancelled.is_set():
        raise Cancelled


def attempt(work: Callable[..., Any], request: Any) -> Any:
    """Return the answer to a request, or the Failure that it ended with."""
    try:
        asked = as_request(request)
        return work(asked.content, *(unwrap(given.load()) for given in asked.inputs))
    except Exception as error:
        return Failure(error)


def unwrap(answer: Any) -> Any:
    """Return an answer; raise the exception of a Failure."""
    if isinstance(answer, Failure):
        raise answer.error
    return answer


def attempt_in_worker(work: Callable[..., Any], request: Any) -> Any:
    """Attempt a request for another process; a Failure can be pickled and has its traceback."""
    answer = attempt(work, request)
    if not isinstance(answer, Failure):
        return answer
    error = answer.error
    trace = "".join(traceback.format_exception(error))
    try:
        error.add_note(trace)
        pickle.loads(cloudpickle.dumps(answer))  # noqa: S301 (made a moment ago)
    # Some exceptions cannot be pickled, or not be unpickled.
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
        error.add_note(trace)
    return Failure(error)


def drain(ready: queue.SimpleQueue[Any], seconds: float | None) -> list[Any]:
    """Wait for one item and return all that are queued; none if the time is up."""
    try:
        found = [ready.get(timeout=seconds)]
    except queue.Empty:
        return []
    while not ready.empty():
        found.append(ready.get_nowait())
    return found


class Interrupts:
    """Hold back Ctrl-C and SIGTERM while a run folds or writes; let them end it while it waits.

    Handlers that the program installed itself are left alone. Outside the main thread nothing is
    held back, because Python delivers signals to the main thread only.
    """

    def __init__(self) -> None:
        self._signals: list[int] = []
        self._raised = self._allowed = False
        self._n_ignored = 0

    @property
    def received(self) -> bool:
        """Whether a signal has arrived."""
        return bool(self._signals)

    def ignore_next(self) -> None:
        """Ignore the first signal from now on, because the run is about to end."""
        self._n_ignored = max(len(self._signals), 1)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Handle signals while a run is active."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers = _DEFAULT_HANDLERS.items()
        ours = [number for number, default in handlers if signal.getsignal(number) == default]
        for number in ours:
            signal.signal(number, self._handle)
        try:
            yield
        finally:
            for number in ours:
                signal.signal(number, _DEFAULT_HANDLERS[number])
            if self._is_pending and not self._raised:
                # It arrived after the last point at which the run could be ended.
                signal.raise_signal(self._signals[-1])

    @contextmanager
    def allow(self) -> Iterator[None]:
        """Let a signal, also an earlier one, raise KeyboardInterrupt in here."""
        self._allowed = True
        try:
            if self._is_pending:
                self._raise()
            yield
        finally:
            self._allowed = False

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal has arrived."""
        with self.allow():
            pass

    def _handle(self, number: int, frame: Any) -> None:
        self._signals.append(number)
        if (self._allowed and self._is_pending) or len(self._signals) >= _MAX_SIGNALS:
            self._raise()

    @property
    def _is_pending(self) -> bool:
        return len(self._signals) > self._n_ignored

    def _raise(self) -> None:
        self._raised = True
        raise KeyboardInterrupt


def release_memory() -> None:
    """Return freed memory to the operating system, if the C library can.

    Otherwise a pass over many small batches leaves about 100 MB in the allocator, which the large
    shards of the next pass cannot use.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, TypeError, AttributeError):
        # Only glibc has it.
        return
    trim(0)
