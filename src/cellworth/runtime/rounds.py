"""Run rounds over the shards of a table: in threads or on a cluster, killed or not, the same."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from cellworth.runtime.dask_executor import Dask
from cellworth.runtime.dask_rounds import OnCluster
from cellworth.runtime.executors import Executor, Serial, Threads
from cellworth.runtime.processes import Processes
from cellworth.runtime.progress import steps_bar
from cellworth.runtime.run_context import Course, Enough, Ledger
from cellworth.runtime.shard_algorithm import (
    Bench,
    DamagedState,
    Finished,
    Phases,
    Resolved,
    Setback,
    Settlement,
    States,
    set_aside,
)
from cellworth.runtime.workers import Hands, Interrupts, give_back

# Attempts without a round done: then it is the work that fails.
_MOST_IN_VAIN = 5
_log = logging.getLogger(__name__)
Job = Callable[[], Any]


def run_rounds(
    phases: Phases,
    n_rounds: int,
    *,
    executor: Executor,
    into: Path,
    identity: Mapping[str, Any],
    checkpoint: Path | None = None,
    enough: Enough | None = None,
    title: str = "rounds over shards",
    show_progress: bool = False,
    n_places: int | None = None,
) -> Finished:
    """Run rounds 0, 1, 2, ... over all shards; the result does not depend on the executor.

    Parameters
    ----------
    phases : Phases
        What is done with shards.
    n_rounds : int
        How many rounds at most, those of earlier sessions included.
    executor : Executor
        Serial, Threads or Dask.
    into : path
        Where shards publish their results. Made if it is not there.
    identity : mapping
        Names the run, as JSON: all that decides what rounds do and tell. A checkpoint of another
        run is refused.
    checkpoint : path or None
        A folder that keeps the run, whoever is killed; the same call goes on from there. On a
        cluster all workers must see it.
    enough : callable or None
        Asked, once a round has told, with what all rounds told so far; True ends the run after it.
    title : str
        Stands before the progress bar, and names threads.
    show_progress : bool
        Whether a bar with the time left appears once the run has taken two seconds.
    n_places : int or None
        Shards whose rows and states a process holds at a time; None: as many as it has threads.

    Returns
    -------
    Finished
    """
    workers = workers_of(executor)
    # Workers may be at home elsewhere.
    into = into.absolute()
    into.mkdir(parents=True, exist_ok=True)
    with _folder(checkpoint) as folder, closing(steps_bar(title, 0, shown=show_progress)) as bar:
        ledger = Ledger(folder, identity, phases.n_shards, durable=checkpoint is not None)
        hands = workers(phases, ledger.states, n_places)
        run = _Run(phases, n_rounds, enough, ledger, hands, bar, title)
        return run.finished(into)


class Workers(Protocol):
    """Those who work on the shards."""

    def run(self, course: Course) -> None:
        """Do the rounds that are not done."""
        ...

    def publish(self, course: Course, rounds: int, into: Path) -> list[dict[str, Any]]:
        """Write the results of all shards after so many rounds."""
        ...


@dataclass(frozen=True, eq=False)
class _Run:
    phases: Phases
    n_rounds: int
    enough: Enough | None
    ledger: Ledger
    workers: Workers
    bar: Any
    title: str

    def finished(self, into: Path) -> Finished:
        """Go on until it is done, whatever is lost on the way."""
        n_in_vain, best = 0, -1
        while True:
            course = self._course()
            try:
                return self._attempted(course, into)
            except Setback as setback:
                _log.warning("%s: %s; going on from round %d", self.title, setback, best)
                helped = isinstance(setback, DamagedState) and set_aside(setback)
                helped = helped or course.standing.complete > best
                n_in_vain = 0 if helped else n_in_vain + 1
                best = max(best, course.standing.complete)
                if n_in_vain > _MOST_IN_VAIN:
                    raise RuntimeError(
                        f"{self.title}: no round could be done in {n_in_vain} attempts; the last "
                        f"one ended with: {setback}"
                    ) from setback

    def _attempted(self, course: Course, into: Path) -> Finished:
        with course.interrupts.watched():
            interrupted = self._broken_off(course)
            # Without a checkpoint, all would be lost for the want of a file.
            course.interrupts.wait_for_the_end()
            rounds = course.standing.complete
            entries = self.workers.publish(course, rounds, into)
        if course.interrupts.came and not interrupted:
            warnings.warn(
                f"{self.title}: a signal to end the run came when all was done; the result is "
                "whole, and is kept.",
                stacklevel=2,
            )
        told = self.ledger.told(rounds)
        return Finished(told, tuple(entries), interrupted, self.ledger.seconds)

    def _broken_off(self, course: Course) -> bool:
        """Do the rounds that are not done; tell whether a signal ended that early."""
        try:
            self.workers.run(course)
        except KeyboardInterrupt as signal:
            rounds = course.standing.complete
            _log.warning("%s: broken off after %d rounds", self.title, rounds)
            if rounds < max(course.standing.earliest, 1):
                raise KeyboardInterrupt(
                    "the run was broken off before its first round was done"
                ) from signal
            return True
        return False

    def _course(self) -> Course:
        return Course(
            self.phases,
            self.n_rounds,
            self.enough,
            self.ledger,
            self.ledger.look_around(),
            self.bar,
            Interrupts(),
            self.title,
        )


def workers_of(executor: Executor) -> Callable[[Phases, States, int | None], Workers]:
    """Those who work on shards where an executor says; one that is not for shards is refused."""
    if isinstance(executor, Serial | Threads):
        n_threads = executor.n_workers if isinstance(executor, Threads) else 1
        return lambda phases, states, n_places: Here(
            executor, Bench(phases, states, n_places or n_threads)
        )
    if isinstance(executor, Dask):
        return partial(OnCluster, executor.client)
    if isinstance(executor, Processes):
        raise ValueError(
            f"shards are not worked on by {executor!r}: threads are as fast here and share rows; "
            f"use Threads({executor.n_workers})."
        )
    raise TypeError(f"shards are worked on by Serial, Threads or Dask, not by {executor!r}.")


@contextmanager
def _folder(checkpoint: Path | None) -> Iterator[Path]:
    """Give the folder of a run; without a checkpoint one that goes with the run."""
    if checkpoint is not None:
        yield checkpoint
        return
    with tempfile.TemporaryDirectory(prefix="cellworth-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@dataclass(frozen=True, eq=False)
class Here:
    """Workers of this process.

    Parameters
    ----------
    executor : Executor
        Serial or Threads.
    bench : Bench
        Where all of them work.
    """

    executor: Executor
    bench: Bench

    def run(self, course: Course) -> None:
        """Do the rounds that are not done, one after the other."""
        course.begin()
        with self.executor.start(_do, course.title) as crew:
            _Rounds(Hands(crew, course.interrupts), self.bench, course).run()

    def publish(self, course: Course, rounds: int, into: Path) -> list[dict[str, Any]]:
        """Write the results of all shards after so many rounds."""
        jobs = [
            partial(self.bench.publish, shard, rounds, into)
            for shard in range(course.phases.n_shards)
        ]
        with self.executor.start(_do, course.title) as crew:
            entries = dict(Hands(crew, course.interrupts).each(jobs))
        return [entries[shard] for shard in range(len(jobs))]


def _do(job: Job) -> Any:
    return job()


@dataclass(frozen=True, eq=False)
class _Round:
    number: int
    prepared: Any
    resolved: Resolved


@dataclass(frozen=True)
class _Rounds:
    hands: Hands
    bench: Bench
    course: Course

    def run(self) -> None:
        phases, course, hands = self.course.phases, self.course, self.hands
        number, before, prepared = course.standing.complete, None, None
        while course.goes_on(number):
            if prepared is None:
                prepared = hands.one(partial(phases.prepare, number))
            summary, following = self._passed(before, number, prepared)
            resolved = hands.one(partial(phases.resolve, prepared, summary))
            # Shards, which come next, need the room.
            del summary
            give_back()
            course.ledger.note(number, resolved.told)
            before, prepared, number = _Round(number, prepared, resolved), following, number + 1
        if before is not None:
            self._settle(before)

    def _passed(self, before: _Round | None, number: int, prepared: Any) -> tuple[Any, Any]:
        """Settle a round and look at the next, shard by shard: rows are opened once for both.

        Returns the summary of all shards, and what the round after needs.
        """
        course, phases = self.course, self.course.phases
        shards, settlements = _in_turn(phases.n_shards, number), self._settlements(before)
        jobs: list[Job] = [
            partial(_visit, self.bench, shard, settlements.get(shard), prepared) for shard in shards
        ]
        if course.may_go_on(number + 1):
            # Something for hands that would wait for the last shards.
            jobs.append(partial(phases.prepare, number + 1))
        summaries: list[Any] = []
        following = None
        for place, answer in self.hands.each(jobs):
            if place == len(shards):
                following = answer
                continue
            summaries = [phases.merge(summaries[0], answer) if summaries else answer]
            if shards[place] in settlements:
                course.note_settled(shards[place], number - 1)
            course.note_look()
        if before is not None:
            course.standing.finish(before.number)
        return summaries[0], following

    def _settle(self, last: _Round) -> None:
        course, settlements = self.course, self._settlements(last)
        shards = [shard for shard in _in_turn(course.phases.n_shards, 1) if shard in settlements]
        jobs = [partial(self.bench.settle, shard, settlements[shard]) for shard in shards]
        for place, _ in self.hands.each(jobs):
            course.note_settled(shards[place], last.number)
        course.standing.finish(last.number)

    def _settlements(self, before: _Round | None) -> dict[int, Settlement]:
        """For every shard that has not settled a round, what it needs for that."""
        if before is None:
            return {}
        standing, told = self.course.standing, before.resolved
        return {
            shard: Settlement(
                before.number,
                before.prepared,
                told.shared,
                told.parts.get(shard),
                standing.complete,
            )
            for shard in standing.unsettled(before.number)
        }


def _in_turn(n_shards: int, number: int) -> list[int]:
    """Shards, every other time from the back: the last of one pass are still open in the next."""
    return list(range(n_shards))[:: -1 if number % 2 else 1]


def _visit(bench: Bench, shard: int, settlement: Settlement | None, prepared: Any) -> Any:
    with bench.hold(shard):
        if settlement is not None:
            bench.settle(shard, settlement)
        return bench.look(shard, prepared)
