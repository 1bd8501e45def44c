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

from cellworth.execution.bars import steps_bar
from cellworth.execution.cluster import Dask
from cellworth.execution.executors import Executor, Serial, Threads
from cellworth.execution.processes import Processes
from cellworth.execution.signals import Interrupts
from cellworth.sharded.benches import Bench
from cellworth.sharded.cluster import OnCluster
from cellworth.sharded.courses import Course, Enough
from cellworth.sharded.ledgers import Ledger
from cellworth.sharded.local import Here
from cellworth.sharded.phases import Finished, Phases
from cellworth.sharded.states import DamagedState, Setback, States, set_aside

# Attempts without a round done: then it is the work that fails.
_MOST_IN_VAIN = 5

_log = logging.getLogger(__name__)


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
