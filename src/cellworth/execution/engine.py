"""The one loop: run tasks by number, fold what they add in order, stop between tasks."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from cellworth.execution.bars import Bar, count_tasks
from cellworth.execution.books import Bookkeeper
from cellworth.execution.crews import Crew
from cellworth.execution.diaries import Diary
from cellworth.execution.executors import Executor
from cellworth.execution.journal import Journal
from cellworth.execution.lines import Line
from cellworth.execution.signals import Interrupts
from cellworth.execution.stopping import Progress, StoppingRule
from cellworth.moments import Addition

_ENDLESS = 2**62

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Parameters
    ----------
    tasks : int
        Tasks 0..tasks - 1 are done, those of earlier sessions included.
    contribution : Addition or None
        What they added; None if the budget ended before the first.
    interrupted : bool
        Whether the user broke the run off before its stopping rule was met.
    seconds : float
        Time spent, earlier sessions included.
    """

    tasks: int
    contribution: Addition | None
    interrupted: bool
    seconds: float


def run(
    work: Callable[[Any], Any],
    *,
    bookkeeper: Bookkeeper,
    stop: StoppingRule,
    executor: Executor,
    tasks_per_round: int,
    journal: Journal | None = None,
    identity: Mapping[str, Any],
    title: str = "tasks",
    show_progress: bool = False,
    seconds_per_task: float = 0.0,
    describe: Callable[[Progress], str] = count_tasks,
    errors_from: int | None = 2,
    on_round: Callable[[Progress], Any] | None = None,
) -> Outcome:
    """Run tasks 0, 1, 2, ... until the rule is met; the result does not depend on the executor.

    Parameters
    ----------
    work : callable
        What workers do: from a request to its answer. A pure function of its argument, but for
        deadlines.
    bookkeeper : Bookkeeper
        Turns numbers into requests and answers into what a task adds.
    stop : StoppingRule
        Asked after every round. Limits of tasks and seconds also hold within a round.
    executor : Executor
        Where tasks run.
    tasks_per_round : int
        Comes from the problem, never from the number of workers.
    journal : Journal or None
        Read once at the start; gets every answer as it comes, and a state after rounds, every ten
        seconds and at the end, be it an error.
    identity : mapping
        Names the run; a journal that holds another one is refused.
    title : str
        Stands before the progress bar, and names tasks on a cluster.
    show_progress : bool
        Whether a bar with the time left appears once the run has taken two seconds.
    seconds_per_task : float
        A guess; a bar whose first task will take long is shown at once, and says so.
    describe : callable
        What stands behind the bar.
    errors_from : int or None
        Tasks from which on the largest standard error stands there as well.
    on_round : callable or None
        Called with the Progress after every round.
    """
    diary, interrupts = Diary(journal, bookkeeper, identity), Interrupts()
    progress, interrupted = diary.latest, False
    bar = Bar(
        stop.share_done,
        progress,
        title=title,
        shown=show_progress,
        seconds_per_task=seconds_per_task,
        describe=describe,
        errors_from=errors_from,
    )
    _log.info("%s: %d tasks are done; the run ends with %r", title, progress.tasks, stop)
    crew = executor.start(work, title)
    folded = _folded(
        crew, bookkeeper, diary, interrupts, stop=stop, tasks_per_round=tasks_per_round
    )
    with interrupts.watched(), closing(bar), diary, closing(folded):
        try:
            for progress in folded:
                bar.show(progress)
                round_ends = progress.tasks % tasks_per_round == 0
                diary.note(progress, round_ends)
                if round_ends:
                    _log.info("%s: %d tasks, %.1f s", title, progress.tasks, progress.seconds)
                    if on_round is not None:
                        on_round(progress)
        except KeyboardInterrupt:
            interrupted = True
            _log.warning("%s: broken off after %d tasks", title, progress.tasks)
    if progress.contribution is None and interrupted:
        raise KeyboardInterrupt("the run was broken off before its first task was done")
    seconds = diary.seconds_before + progress.seconds
    return Outcome(progress.tasks, progress.contribution, interrupted, seconds)


def run_shard(
    work: Callable[[Any], Any],
    *,
    shard: tuple[int, int],
    bookkeeper: Bookkeeper,
    stop: StoppingRule,
    executor: Executor,
    journal: Journal,
    identity: Mapping[str, Any],
    title: str = "tasks",
    show_progress: bool = False,
) -> int:
    """Answer one shard's share of all requests and leave the answers in the journal.

    Shard (i, n) has the tasks i, i + n, i + 2n, ... up to the limits of ``stop``. Nothing is
    folded: :func:`run` with the same journal does that, once all shards are there.

    Returns
    -------
    int
        How many requests were answered now.
    """
    place, n_shards = shard
    diary, interrupts = Diary(journal, bookkeeper, identity), Interrupts()
    tasks = range(diary.latest.tasks, int(min(stop.most_tasks, _ENDLESS)))
    shares = (bookkeeper.share(task, task % n_shards == place) for task in tasks)
    requests = [request for share in takewhile(_is_there, shares) for request in share or ()]
    _log.info("%s: shard %d of %d has %d requests", title, place, n_shards, len(requests))
    bar = Bar(
        lambda progress: progress.tasks / max(len(requests), 1),
        Progress(0, 0.0, None),
        title=f"{title}, shard {place} of {n_shards}",
        shown=show_progress,
        describe=lambda progress: f"{progress.tasks:,} of {len(requests):,} requests",
    )
    began, n_done = time.perf_counter(), 0
    seconds_left = _Countdown(began, stop, bookkeeper)
    with interrupts.watched(), closing(bar), diary, executor.start(work, title) as crew:
        for _ in Line(crew, requests, diary, interrupts).as_they_come(seconds_left):
            n_done += 1
            bar.show(Progress(n_done, time.perf_counter() - began, None))
    return n_done


def _is_there(requests: Iterable[Any] | None) -> bool:
    return requests is not None


def _folded(
    start: AbstractContextManager[Crew],
    bookkeeper: Bookkeeper,
    diary: Diary,
    interrupts: Interrupts,
    *,
    stop: StoppingRule,
    tasks_per_round: int,
) -> Generator[Progress, None, None]:
    """Progress after each task, in the order of task numbers."""
    progress = diary.latest
    if _long_enough(progress, stop, tasks_per_round):
        return
    began = time.perf_counter()
    countdown = _Countdown(began, stop, bookkeeper)

    def seconds_left() -> float | None:
        # Something must be told, however long the first task takes.
        return None if progress.contribution is None else countdown()

    # Workers go on while a round is judged; what they did beyond the last one is dropped.
    tasks = range(progress.tasks, int(min(stop.most_tasks, _ENDLESS)))
    requests = _requests(bookkeeper, tasks)
    with start as crew:
        # Fold in task order: float addition is not associative, and the bits of a result must not
        # tell which worker was faster.
        for request, answer in Line(crew, requests, diary, interrupts).in_order(seconds_left):
            contribution = bookkeeper.book(request, answer)
            if contribution is None:
                continue
            progress = progress.after(contribution, time.perf_counter() - began)
            del answer, contribution
            yield progress
            late = progress.seconds >= stop.most_seconds
            if late or _long_enough(progress, stop, tasks_per_round):
                return


@dataclass(frozen=True)
class _Countdown:
    """Seconds until a deadline that workers do not keep themselves; None: for ever."""

    began: float
    stop: StoppingRule
    bookkeeper: Bookkeeper

    def __call__(self) -> float | None:
        if self.bookkeeper.keeps_deadlines or math.isinf(self.stop.most_seconds):
            return None
        return self.stop.most_seconds - (time.perf_counter() - self.began)


def _requests(bookkeeper: Bookkeeper, tasks: Iterable[int]) -> Iterator[Any]:
    for task in tasks:
        requests = bookkeeper.ask(task)
        if requests is None:
            return
        yield from requests


def _long_enough(progress: Progress, stop: StoppingRule, tasks_per_round: int) -> bool:
    # Errors are looked at where rounds end, even if an earlier session ended elsewhere: a run in
    # parts must stop at the task at which a run in one would.
    at_round_end = progress.tasks % tasks_per_round == 0
    spent = progress.tasks >= stop.most_tasks or progress.utilities >= stop.most_utilities
    return spent or (at_round_end and stop.share_done(progress) >= 1)
