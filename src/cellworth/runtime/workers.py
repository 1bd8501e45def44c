"""Crews: workers that are at it; requests go in by number, answers come back as they are ready."""

from __future__ import annotations

import ctypes
import gc
import logging
import pickle
import queue
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import cloudpickle

Answers = list[tuple[int, Any]]
# Requests in flight for each worker: one runs, one waits.
REQUESTS_PER_WORKER = 2
# Losses without any answer in between: then it is the work that kills the workers.
_MOST_LOSSES_IN_A_ROW = 5
_log = logging.getLogger(__name__)
_here = threading.local()
_USUAL: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}
# Someone who presses again and again wants out at any price.
_PATIENCE = 3


@dataclass(frozen=True)
class Failure:
    """What a request ended with instead of an answer."""

    error: BaseException


@dataclass(frozen=True)
class LostAnswer:
    """A request whose worker died; it must be sent again."""

    error: BaseException | None


@dataclass(frozen=True)
class LazyAnswer:
    """An answer that is kept elsewhere until its turn comes: memory need not hold it.

    Parameters
    ----------
    load : callable
        Returns the answer, a Failure, or LostAnswer.
    """

    load: Callable[[], Any]


class WorkerPool(Protocol):
    """ShardRunner that are at it."""

    @property
    def capacity(self) -> int:
        """Requests that may be in flight at a time: enough that no worker waits; it may change."""
        ...

    def submit(self, number: int, request: Any) -> None:
        """Hand a request to the workers."""
        ...

    def completed(self, seconds: float | None = None) -> Answers:
        """Wait for an answer, a Failure or something that is there LazyAnswer; return all of them.

        There may be none, because so many seconds are over or a worker died.
        """
        ...


class SerialPool:
    """A pool of one: this thread, which answers when answers are asked for.

    Parameters
    ----------
    work : callable
    """

    capacity = 1

    def __init__(self, work: Callable[[Any], Any]) -> None:
        """Begin with nothing to do."""
        self._work = work
        self._waiting: deque[tuple[int, Any]] = deque()

    def submit(self, number: int, request: Any) -> None:
        """Put a request behind the others."""
        self._waiting.append((number, request))

    def completed(self, seconds: float | None = None) -> Answers:
        """Answer the first request, however long it takes."""
        number, request = self._waiting.popleft()
        return [(number, attempt(self._work, request))]


class FuturePool:
    """A pool whose pool works with futures; what is lost with a worker is sent again.

    Parameters
    ----------
    send : callable
        From number and request to a future of its answer.
    read : callable
        From a future that is done to an answer, a Failure, a LazyAnswer or a LostAnswer.
    count : callable
        How many workers there are.
    """

    def __init__(
        self,
        send: Callable[[int, Any], Any],
        read: Callable[[Any], Any],
        count: Callable[[], int],
    ) -> None:
        """Begin with nothing in flight."""
        self._send, self._read, self._count = send, read, count
        self._flying: dict[int, tuple[Any, Any]] = {}
        self._ready: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._losses = 0

    @property
    def capacity(self) -> int:
        """Two for each worker, and at least for one."""
        return REQUESTS_PER_WORKER * max(self._count(), 1)

    @property
    def flying(self) -> list[Any]:
        """Futures whose answers have not been taken."""
        return [future for _, future in self._flying.values()]

    def submit(self, number: int, request: Any) -> None:
        """Hand a request to the workers."""
        future = self._send(number, request)
        self._flying[number] = request, future
        future.add_done_callback(lambda done: self._ready.put((number, done)))

    def completed(self, seconds: float | None = None) -> Answers:
        """Wait for an answer; there may be none in time, or because a worker died."""
        answers: Answers = []
        lost: list[tuple[int, Any, LostAnswer]] = []
        for number, future in taken(self._ready, seconds):
            request, latest = self._flying.get(number, (None, None))
            # Else it has been sent again in the meantime.
            if future is latest:
                del self._flying[number]
                answer = self._read(future)
                if isinstance(answer, LostAnswer):
                    lost.append((number, request, answer))
                else:
                    answers.append((number, answer))
        self._losses = 0 if answers else self._losses + bool(lost)
        if self._losses > _MOST_LOSSES_IN_A_ROW:
            raise RuntimeError(
                f"workers died {self._losses} times in a row; the model may crash or need more "
                "memory than there is: give fewer workers, or try Serial() to see where."
            ) from lost[0][2].error
        if lost:
            _log.warning("a worker died; requests %s are sent again", [n for n, _, _ in lost])
        for number, request, _ in lost:
            self.submit(number, request)
        return answers


class Cancelled(Exception):  # noqa: N818 (nothing went wrong)
    """Ends a task whose answer nobody waits for any more."""


def cancel_thread_on(cancelled: threading.Event) -> None:
    """Let tasks of this thread be ended by an event."""
    _here.cancelled = cancelled


def leave_if_cancelled() -> None:
    """End a long task in a thread once the run is over; processes are ended from outside."""
    cancelled = getattr(_here, "cancelled", None)
    if cancelled is not None and cancelled.is_set():
        raise Cancelled


def attempt(work: Callable[[Any], Any], request: Any) -> Any:
    """Answer a request, be it with what went wrong."""
    try:
        return work(request)
    except Exception as error:
        return Failure(error)


def unwrap(answer: Any) -> Any:
    """Return an answer; raise what a request ended with instead."""
    if isinstance(answer, Failure):
        raise answer.error
    return answer


def attempt_in_worker(work: Callable[[Any], Any], request: Any) -> Any:
    """Answer a request for another process; what went wrong arrives with its traceback."""
    answer = attempt(work, request)
    if not isinstance(answer, Failure):
        return answer
    error = answer.error
    told = "".join(traceback.format_exception(error))
    try:
        error.add_note(told)
        pickle.loads(cloudpickle.dumps(answer))  # noqa: S301 (made a moment ago)
    # Not every exception can be taken apart and put together again.
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
        error.add_note(told)
    return Failure(error)


def taken(ready: queue.SimpleQueue[Any], seconds: float | None) -> list[Any]:
    """Wait for one and take all that are there; none if the time is up."""
    try:
        found = [ready.get(timeout=seconds)]
    except queue.Empty:
        return []
    while not ready.empty():
        found.append(ready.get_nowait())
    return found


@dataclass(frozen=True)
class Hands:
    """Has requests answered side by side; no more are sent than can be, so that none pile up.

    Parameters
    ----------
    pool : WorkerPool
    interrupts : Interrupts
        Signals are let in while answers are waited for.
    """

    pool: WorkerPool
    interrupts: Interrupts

    def each(self, requests: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        """Places of requests and their answers, as they come; what is lost is asked for again."""
        coming, flying = enumerate(requests), dict[int, Any]()
        while True:
            while len(flying) < self.pool.capacity:
                place, request = next(coming, (None, None))
                if place is None:
                    break
                self._send(place, request, flying)
            if not flying:
                return
            with self.interrupts.allow():
                done = self.pool.completed()
            for place, answer in done:
                request = flying.pop(place)
                here = answer.load() if isinstance(answer, LazyAnswer) else answer
                if isinstance(here, LostAnswer):
                    self._send(place, request, flying)
                else:
                    yield place, unwrap(here)

    def one(self, request: Any) -> Any:
        """Return the answer to a single request."""
        ((_, answer),) = self.each([request])
        return answer

    def _send(self, place: int, request: Any, flying: dict[int, Any]) -> None:
        self.pool.submit(place, request)
        flying[place] = request


class Interrupts:
    """Signals to end a run, held back until it can be ended.

    Handlers that a program has put in place of the usual ones are left alone, and outside the main
    thread there are none: there, Ctrl-C comes as it does without us.
    """

    def __init__(self) -> None:
        """Begin without a signal."""
        self._came: list[int] = []
        self._raised = False
        self._allowed = False
        self._n_spared = 0

    @property
    def received(self) -> bool:
        """Whether there was a signal."""
        return bool(self._came)

    def ignore_next(self) -> None:
        """From now on the first signal changes nothing, because the end is near; the next does."""
        self._n_spared = max(len(self._came), 1)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Take the signals for as long as a run goes on."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        ours = [number for number, usual in _USUAL.items() if signal.getsignal(number) == usual]
        for number in ours:
            signal.signal(number, self._note)
        try:
            yield
        finally:
            for number in ours:
                signal.signal(number, _USUAL[number])
            if self._is_pressing and not self._raised:
                # It came after the last moment at which the run could be ended.
                signal.raise_signal(self._came[-1])

    @contextmanager
    def allow(self) -> Iterator[None]:
        """Let a signal, also one that came before, raise KeyboardInterrupt in here."""
        self._allowed = True
        try:
            if self._is_pressing:
                self._raise()
            yield
        finally:
            self._allowed = False

    def check(self) -> None:
        """Let a signal that came before raise KeyboardInterrupt."""
        with self.allow():
            pass

    def _note(self, number: int, frame: Any) -> None:
        self._came.append(number)
        if (self._allowed and self._is_pressing) or len(self._came) >= _PATIENCE:
            self._raise()

    @property
    def _is_pressing(self) -> bool:
        return len(self._came) > self._n_spared

    def _raise(self) -> None:
        self._raised = True
        raise KeyboardInterrupt


def release_memory() -> None:
    """Give freed memory back, where the C library can be asked to.

    It keeps what was freed for the next need, and a pass over many small batches leaves a hundred
    megabytes behind that the shards of the next pass, which are large, never use.
    """
    gc.collect()
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, TypeError, AttributeError):
        # Other systems do not have it, or no library without a name.
        return
    trim(0)
