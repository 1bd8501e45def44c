"""The task loop: run tasks by number, fold their results in order, stop between tasks.

A round is a fixed number of tasks; stopping rules are checked, and states written, at its end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, is_dataclass
from typing import Any, ClassVar, Protocol, Self

from cellworth.data.io import Plain, n_bytes, pack, unpack
from cellworth.runtime.checkpoint import DirectoryCheckpoint, Loader
from cellworth.runtime.executors import Executor
from cellworth.runtime.forecast import Forecast
from cellworth.runtime.progress import (
    PROGRESS,
    CheckpointLog,
    Progress,
    ProgressReporter,
    RateLimiter,
    count_tasks,
)
from cellworth.runtime.stopping import StoppingRule
from cellworth.runtime.workers import (
    REQUESTS_PER_WORKER,
    Failure,
    Interrupts,
    LazyAnswer,
    LostAnswer,
    WorkerPool,
    unwrap,
)
from cellworth.sampling.moments import Addition

# A state is written at the end of a round, and during a round after this many seconds, unless
# writing would take more than this share of the time.
_SECONDS_BETWEEN_STATES = 10.0
_SHARE_OF_TIME = 0.05
# Requests ahead of the next one to fold, for each that may be in flight: a slow request does not
# block the others, but their answers take memory.
_UNFOLDED = 4
_HEAVY_BYTES = 16 * 2**20
_SECONDS_TO_FLUSH = 1.0
_ENDLESS = 2**62


def load_later(load: Loader, unpack_answer: Callable[[Plain], Any]) -> LazyAnswer:
    """Return a LazyAnswer that is read from a checkpoint; lost if it is no longer readable."""

    def read() -> Any:
        content = load()
        return LostAnswer(None) if content is None else unpack_answer(content)

    return LazyAnswer(read)


class Planner(Protocol):
    """Turns task numbers into requests for workers, and answers into contributions.

    It lives in the driver process. It knows the results of earlier tasks, so that a task requests
    only what is missing, and it may split a task into several requests.
    """

    # Whether workers check deadlines themselves, so that the engine need not.
    keeps_deadlines: ClassVar[bool]

    def resume(self, state: Plain | None, answers: Iterable[tuple[int, Loader]]) -> Addition | None:
        """Load the results of earlier sessions: folded tasks, and answers to other tasks."""

    def make_requests(self, task: int) -> Iterable[tuple[Any, Any]] | None:
        """Return the requests of a task; None ends the run before it.

        Each comes with its answer, which may be a LazyAnswer, or None if a worker is needed.
        """

    def add_answer(self, request: Any, answer: Any) -> Addition | None:
        """Add an answer; return the contribution of the task that it completes, or None."""

    def pack_state(self, contribution: Any) -> Plain:
        """Convert the folded contributions to plain data for the checkpoint."""

    def pack_answer(self, request: Any, answer: Any) -> tuple[int, Plain]:
        """Convert an answer to plain data for the checkpoint; return its task too."""

    def unpack_answer(self, content: Plain) -> Any:
        """Convert plain data of a checkpoint back to an answer."""


def answer_task(draw: Callable[[int], Any], answer: Callable[[Any], Any], number: int) -> Any:
    """Draw the task of this number and answer it; partial(answer_task, draw, answer) is work."""
    return answer(draw(number))


class TaskPlanner:
    """The simplest planner: one request for each task.

    Contributions are dataclasses. If answers are of another ``answer_type``, ``to_contribution``
    converts them.
    """

    keeps_deadlines: ClassVar[bool] = False

    def __init__(
        self,
        contribution_type: type[Any],
        answer_type: type[Any] | None = None,
        to_contribution: Callable[[Any], Any] | None = None,
    ) -> None:
        self._contribution_type = contribution_type
        self._answer_type = answer_type or contribution_type
        self._to_contribution = to_contribution
        self._stored: dict[int, Loader] = {}

    def resume(self, state: Plain | None, answers: Iterable[tuple[int, Loader]]) -> Any:
        """Remember how to load answers; they are read when they are folded."""
        self._stored = dict(answers)
        return None if state is None else unpack(self._contribution_type, state)

    def make_requests(self, task: int) -> Iterable[tuple[int, Any]]:
        """Request a task, unless its answer is stored."""
        load = self._stored.pop(task, None)
        return [(task, None if load is None else load_later(load, self.unpack_answer))]

    def add_answer(self, request: int, answer: Any) -> Any:
        """Return the contribution of a task."""
        return answer if self._to_contribution is None else self._to_contribution(answer)

    def pack_state(self, contribution: Any) -> Plain:
        """Convert the folded contributions to plain data."""
        return pack(contribution)

    def pack_answer(self, request: int, answer: Any) -> tuple[int, Plain]:
        """Convert an answer to plain data."""
        return request, pack(answer)

    def unpack_answer(self, content: Plain) -> Any:
        """Convert plain data back to an answer."""
        return unpack(self._answer_type, content)


class CheckpointWriter:
    """Read a checkpoint at the start of a session and write to it until the end."""

    def __init__(
        self, checkpoint: DirectoryCheckpoint | None, planner: Planner, identity: Mapping[str, Any]
    ) -> None:
        self._checkpoint, self._planner = checkpoint, planner
        self.seconds_before: float = 0.0
        self.latest: Progress = Progress(0, 0.0, None)
        if checkpoint is not None:
            checkpoint.open(identity)
            state = checkpoint.read_state()
            n_tasks, self.seconds_before, content = state or (0, 0.0, None)
            self.latest = Progress(n_tasks, 0.0, planner.resume(content, checkpoint.answers()))
        # Numbers only: the state itself may be large and is not needed again.
        self._tasks_written, self._seconds_written = self.latest.tasks, 0.0
        self._limiter, self._log = RateLimiter(_SHARE_OF_TIME), CheckpointLog()

    @property
    def writes_answers(self) -> bool:
        """Whether there is a checkpoint."""
        return self._checkpoint is not None

    def write_answer(self, request: Any, answer: Any) -> Any:
        """Write an answer; return it, or a LazyAnswer that reads it back."""
        if self._checkpoint is None or isinstance(answer, Failure | LostAnswer):
            return answer
        load = self._checkpoint.write_answer(*self._planner.pack_answer(request, answer))
        return answer if load is None else load_later(load, self._planner.unpack_answer)

    def flush(self) -> None:
        """Write all pending answers to disk."""
        if self._checkpoint is not None:
            self._checkpoint.flush()

    def record(self, progress: Progress, round_ends: bool) -> None:
        """Remember the progress, and write a state when one is due."""
        self.latest = progress
        old = progress.seconds - self._seconds_written >= _SECONDS_BETWEEN_STATES
        if (round_ends or old) and self._limiter.due:
            self._write()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self._checkpoint is None:
            return
        try:
            self._write()
            self._checkpoint.flush()
        except OSError:
            # If the disk is full, the first error is the clearest.
            if error is None:
                raise

    def _write(self) -> None:
        latest = self.latest
        written = latest.contribution is None or latest.tasks == self._tasks_written
        if self._checkpoint is None or written:
            return
        with self._limiter.measure():
            content = self._planner.pack_state(latest.contribution)
            seconds = self.seconds_before + latest.seconds
            self._checkpoint.write_state(latest.tasks, seconds, content)
        self._tasks_written, self._seconds_written = latest.tasks, latest.seconds
        self._log.record(self._checkpoint, tasks=latest.tasks)


class TaskQueue:
    """Sends requests, maybe infinitely many, to a worker pool, a bounded number ahead.

    Every answer goes to the checkpoint as it arrives. Signals are allowed while it waits.
    """

    def __init__(
        self,
        pool: WorkerPool,
        requests: Iterable[tuple[Any, Any]],
        writer: CheckpointWriter,
        interrupts: Interrupts,
    ) -> None:
        self._pool, self._writer, self._interrupts = pool, writer, interrupts
        self._pending = enumerate(requests)
        self._open: dict[int, Any] = {}
        self._answers: dict[int, Any] = {}
        self._in_flight: set[int] = set()
        self._heavy = False

    def iter_in_order(self, seconds_left: Callable[[], float | None]) -> Iterator[tuple[Any, Any]]:
        """Yield requests with their answers, in the order of requests, until the time is up.

        Errors are raised in the same order, whatever later requests were started.
        """
        turn = 0
        while self._fill():
            self._interrupts.check()
            if turn not in self._answers:
                left = seconds_left()
                if left is not None and left <= 0:
                    return
                self._wait(left)
                continue
            answer = self._load(self._answers.pop(turn))
            if isinstance(answer, LostAnswer):
                self._send(turn, self._open[turn])
                continue
            yield self._open.pop(turn), unwrap(answer)
            # Free it before the next one is loaded: it may be large.
            del answer
            turn += 1

    def _fill(self) -> bool:
        """Send as many requests as there is room for; return whether any are open."""
        capacity = self._pool.capacity
        most = capacity // REQUESTS_PER_WORKER + 1 if self._heavy else _UNFOLDED * capacity
        while len(self._in_flight) < capacity and len(self._open) < most:
            index, (request, answer) = next(self._pending, (None, (None, None)))
            if index is None:
                break
            if answer is None:
                self._send(index, request)
            else:
                self._open[index], self._answers[index] = request, answer
        return bool(self._open)

    def _send(self, index: int, request: Any) -> None:
        self._open[index] = request
        self._in_flight.add(index)
        self._pool.submit({index: request})

    def _wait(self, seconds: float | None) -> None:
        if self._writer.writes_answers:
            # Small answers that wait to share a file must not wait for long.
            seconds = _SECONDS_TO_FLUSH if seconds is None else min(seconds, _SECONDS_TO_FLUSH)
        with self._interrupts.allow():
            done = self._pool.wait_for_answers(seconds)
        if not done:
            self._writer.flush()
        for index, answer in done:
            self._in_flight.discard(index)
            # Is it too large for many of its kind to wait in memory?
            if not self._heavy and is_dataclass(answer):
                self._heavy = n_bytes(pack(answer)) >= _HEAVY_BYTES
            if self._writer.writes_answers:
                self._answers[index] = self._writer.write_answer(
                    self._open[index], self._load(answer)
                )
            else:
                self._answers[index] = answer

    def _load(self, answer: Any) -> Any:
        if not isinstance(answer, LazyAnswer):
            return answer
        # Fetching it from a cluster may take long.
        with self._interrupts.allow():
            return answer.load()


@dataclass(frozen=True)
class Outcome:
    """How a run ended: the finished tasks, their folded contributions, and the time spent.

    Tasks and seconds of earlier sessions are included. There is no contribution if the budget ended
    before the first task. ``interrupted`` means that the user ended the run before its rule did.
    """

    tasks: int
    contribution: Addition | None
    interrupted: bool
    seconds: float


def run(
    work: Callable[[Any], Any],
    *,
    planner: Planner,
    stop: StoppingRule,
    executor: Executor,
    tasks_per_round: int,
    checkpoint: DirectoryCheckpoint | None = None,
    identity: Mapping[str, Any],
    title: str = "tasks",
    show_progress: bool = False,
    describe: Callable[[Progress], str] = count_tasks,
    share_done: Callable[[Progress], float] | None = None,
    errors_from: int | None = 2,
    on_round: Callable[[Progress], Any] | None = None,
    forecast: Forecast | None = None,
) -> Outcome:
    """Run tasks 0, 1, 2, ... until the stopping rule is met, with the same result on any executor.

    ``work``, from a request to its answer, must be pure except for deadlines. The rule is checked
    after every round; its limits on tasks and seconds also hold within a round. ``tasks_per_round``
    must not depend on the number of workers. ``identity`` identifies the run: the checkpoint of
    another run raises an error. Every answer is written to the checkpoint as it arrives; a state is
    written after rounds, every ten seconds and at the end, also after an error.
    :class:`ProgressReporter` explains the parameters of the progress bar.
    """
    writer, interrupts = CheckpointWriter(checkpoint, planner, identity), Interrupts()
    progress, interrupted = writer.latest, False
    reporter = ProgressReporter(
        title,
        shown=show_progress,
        share_done=share_done or stop.share_done,
        before=progress,
        describe=describe,
        errors_from=errors_from,
        where={"stop": stop, "executor": executor, "checkpoint": checkpoint},
        file=None if checkpoint is None else checkpoint.folder / PROGRESS,
        forecast=forecast,
    )
    pool = executor.start(work, title)
    folded = _fold_tasks(
        pool, planner, writer, interrupts, stop=stop, tasks_per_round=tasks_per_round
    )
    with interrupts.watch(), reporter, writer, closing(folded):
        try:
            for progress in folded:
                reporter.show(progress)
                round_ends = progress.tasks % tasks_per_round == 0
                writer.record(progress, round_ends)
                if round_ends and on_round is not None:
                    on_round(progress)
        except KeyboardInterrupt:
            interrupted = True
            text = f"interrupted after {progress.tasks} tasks"
            reporter.log("interrupted", text, tasks=progress.tasks)
    if progress.contribution is None and interrupted:
        raise KeyboardInterrupt("the run was interrupted before its first task was done")
    seconds = writer.seconds_before + progress.seconds
    return Outcome(progress.tasks, progress.contribution, interrupted, seconds)


def _fold_tasks(
    start: AbstractContextManager[WorkerPool],
    planner: Planner,
    writer: CheckpointWriter,
    interrupts: Interrupts,
    *,
    stop: StoppingRule,
    tasks_per_round: int,
) -> Generator[Progress, None, None]:
    """Yield the progress after each task, in the order of task numbers."""
    progress = writer.latest
    if _is_finished(progress, stop, tasks_per_round):
        return
    began = time.perf_counter()
    has_deadline = not planner.keeps_deadlines and math.isfinite(stop.most_seconds)

    def seconds_left() -> float | None:
        # The first task is always awaited, so that there is a result.
        if progress.contribution is None or not has_deadline:
            return None
        return began + stop.most_seconds - time.perf_counter()

    # Workers continue while a rule is checked; tasks beyond the last one are dropped.
    tasks = range(progress.tasks, int(min(stop.most_tasks, _ENDLESS)))
    requests = _iter_requests(planner, tasks)
    with start as pool:
        # Fold in task order: float addition is not associative, and a result must not depend on
        # which worker was faster.
        for request, answer in TaskQueue(pool, requests, writer, interrupts).iter_in_order(
            seconds_left
        ):
            contribution = planner.add_answer(request, answer)
            if contribution is None:
                continue
            progress = progress.after(contribution, time.perf_counter() - began)
            del answer, contribution
            yield progress
            late = progress.seconds >= stop.most_seconds
            if late or _is_finished(progress, stop, tasks_per_round):
                return


def _iter_requests(planner: Planner, tasks: Iterable[int]) -> Iterator[tuple[Any, Any]]:
    for task in tasks:
        requests = planner.make_requests(task)
        if requests is None:
            return
        yield from requests


def _is_finished(progress: Progress, stop: StoppingRule, tasks_per_round: int) -> bool:
    # Errors are checked only at the end of rounds, even if an earlier session ended elsewhere: a
    # resumed run must stop at the same task as an uninterrupted one.
    at_round_end = progress.tasks % tasks_per_round == 0
    spent = progress.tasks >= stop.most_tasks or progress.utilities >= stop.most_utilities
    return spent or (at_round_end and stop.share_done(progress) >= 1)
