"""The one loop: run tasks by number, fold what they add in order, stop between tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

from tqdm.auto import tqdm

from cellworth.execution.executors import Executor
from cellworth.execution.journal import Entry, Journal
from cellworth.execution.stopping import Progress, StoppingRule
from cellworth.moments import Addition

_SECONDS_BEFORE_BAR = 2.0
_SECONDS_BETWEEN_LOOKS = 0.2
_SECONDS_BETWEEN_ENTRIES = 10.0
_ENDLESS = 2**62


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


class Bookkeeper(Protocol):
    """Stands between task numbers and workers, in the process that folds.

    It knows what earlier tasks taught, so that a task asks workers only for what is missing, and
    it may split a task into several requests.
    """

    def resume(self, contribution: Any) -> None:
        """Take in what earlier sessions taught."""
        ...

    def ask(self, number: int) -> Iterable[Any] | None:
        """Requests that workers must answer for a task; None ends the run before it."""
        ...

    def book(self, answer: Any) -> Addition | None:
        """Take in an answer; the one that completes a task gives what the task adds."""
        ...


@dataclass(frozen=True)
class Work:
    """One task from its number to what it adds; this is what travels to the workers."""

    task: Callable[[int], Any]
    contribution: Callable[[Any], Addition]

    def __call__(self, number: int) -> Addition:
        """Do the task of this number."""
        return self.contribution(self.task(number))


def describe_errors(progress: Progress) -> str:
    """Tasks done and the largest standard error so far."""
    error = progress.largest_standard_error
    return f"{progress.tasks} tasks, standard errors up to {error:.2g}"


def run(
    work: Callable[[Any], Any],
    *,
    bookkeeper: Bookkeeper | None = None,
    stop: StoppingRule,
    executor: Executor,
    journal: Journal,
    fingerprint: str,
    tasks_per_round: int,
    title: str = "tasks",
    show_progress: bool = False,
    seconds_per_task: float = 0.0,
    describe: Callable[[Progress], str] = describe_errors,
) -> Outcome:
    """Run tasks 0, 1, 2, ... until the rule is met; the result does not depend on the executor.

    Parameters
    ----------
    work : callable
        What workers do: from the number of a task to what it adds, or, with a bookkeeper, from a
        request to its answer. A pure function of its argument, but for deadlines.
    bookkeeper : Bookkeeper or None
        Turns numbers into requests and answers into what a task adds.
    stop : StoppingRule
        Asked after every round. Limits of tasks and seconds also hold within a round.
    executor : Executor
        Where tasks run.
    journal : Journal
        Read once at the start; written after every round, every ten seconds and at the end, be
        it an error.
    fingerprint : str
        Names the run; a journal that holds another one is refused.
    tasks_per_round : int
        Comes from the problem, never from the number of workers.
    title : str
        Stands before the progress bar.
    show_progress : bool
        Whether a bar with the time left appears once the run has taken two seconds.
    seconds_per_task : float
        A guess; a bar whose first task will take long is shown at once, and says so.
    describe : callable
        What stands behind the bar.
    """
    earlier = _earlier_entry(journal, fingerprint)
    start = (
        Progress(earlier.tasks, 0.0, earlier.contribution) if earlier else Progress(0, 0.0, None)
    )
    seconds_before = earlier.seconds if earlier else 0.0
    if bookkeeper is not None and earlier is not None:
        bookkeeper.resume(earlier.contribution)

    def write(progress: Progress) -> None:
        if progress.contribution is not None:
            seconds = seconds_before + progress.seconds
            journal.write(Entry(fingerprint, progress.tasks, progress.contribution, seconds))

    progress, written, interrupted = start, start, False
    bar = _Bar(
        stop,
        start,
        title=title,
        shown=show_progress,
        seconds_per_task=seconds_per_task,
        describe=describe,
    )
    with closing(bar):
        try:
            for progress in _folded(
                work, bookkeeper, start, stop, executor, tasks_per_round=tasks_per_round
            ):
                bar.show(progress)
                entry_is_old = progress.seconds - written.seconds >= _SECONDS_BETWEEN_ENTRIES
                if entry_is_old or progress.tasks % tasks_per_round == 0:
                    write(progress)
                    written = progress
        except KeyboardInterrupt:
            interrupted = True
        finally:
            if progress is not written:
                write(progress)
    if progress.contribution is None and interrupted:
        raise KeyboardInterrupt("the run was broken off before its first task was done")
    return Outcome(
        progress.tasks, progress.contribution, interrupted, seconds_before + progress.seconds
    )


def _earlier_entry(journal: Journal, fingerprint: str) -> Entry | None:
    entry = journal.read()
    if entry is not None and entry.fingerprint != fingerprint:
        raise ValueError(
            f"the journal holds run {entry.fingerprint[:12]}, but this is run {fingerprint[:12]}: "
            "data, model, parameters or seed differ; use a new journal, or the settings of that "
            "run with its seed as random_state."
        )
    return entry


def _folded(
    work: Callable[[Any], Any],
    bookkeeper: Bookkeeper | None,
    start: Progress,
    stop: StoppingRule,
    executor: Executor,
    *,
    tasks_per_round: int,
) -> Iterator[Progress]:
    """Progress after each task, in the order of task numbers."""
    if _long_enough(start, stop, tasks_per_round):
        return
    began = time.perf_counter()
    progress = start
    # Workers go on while a round is judged; what they did beyond the last one is dropped.
    tasks = range(start.tasks, int(min(stop.most_tasks, _ENDLESS)))
    requests = tasks if bookkeeper is None else _requests(bookkeeper, tasks)
    with closing(executor.run(work, requests)) as results:
        # Fold in task order: float addition is not associative, and the bits of a result must not
        # tell which worker was faster.
        for result in results:
            contribution = result if bookkeeper is None else bookkeeper.book(result)
            if contribution is None:
                continue
            progress = progress.after(contribution, time.perf_counter() - began)
            yield progress
            late = progress.seconds >= stop.most_seconds
            if late or _long_enough(progress, stop, tasks_per_round):
                return


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


class _Bar:
    """A tqdm bar of the share done, with the time left."""

    def __init__(
        self,
        stop: StoppingRule,
        start: Progress,
        *,
        title: str,
        shown: bool,
        seconds_per_task: float,
        describe: Callable[[Progress], str],
    ) -> None:
        self._stop = stop
        self._describe = describe
        self._shown = start
        slow = seconds_per_task >= _SECONDS_BEFORE_BAR
        self._looked = time.perf_counter()
        self._bar = tqdm(
            total=1.0,
            initial=stop.share_done(start),
            desc=title,
            disable=not shown,
            delay=0.0 if slow else _SECONDS_BEFORE_BAR,
            postfix=f"a task takes about {seconds_per_task:.0f} s" if slow else None,
            smoothing=0.0,
            bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed}, {remaining} left{postfix}",
        )

    def show(self, progress: Progress) -> None:
        self._shown = progress
        # Standard errors of a large table take time, and a person looks now and then.
        if time.perf_counter() - self._looked >= _SECONDS_BETWEEN_LOOKS:
            self._draw()

    def close(self) -> None:
        self._draw()
        self._bar.close()

    def _draw(self) -> None:
        self._looked = time.perf_counter()
        if not self._bar.disable:
            self._bar.set_postfix_str(self._describe(self._shown), refresh=False)
            self._bar.update(min(self._stop.share_done(self._shown), 1.0) - self._bar.n)
