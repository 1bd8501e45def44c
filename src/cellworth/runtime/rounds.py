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
from cellworth.runtime.dask_rounds import DaskRounds
from cellworth.runtime.executors import Executor, Serial, Threads
from cellworth.runtime.processes import Processes
from cellworth.runtime.progress import make_progress_bar
from cellworth.runtime.run_context import Enough, RoundsCheckpoint, RunContext
from cellworth.runtime.shard_algorithm import (
    DamagedStateError,
    RecoverableError,
    RoundResult,
    RoundUpdate,
    ShardAlgorithm,
    ShardCache,
    ShardCheckpoint,
    ShardRunResult,
    set_aside,
)
from cellworth.runtime.workers import Hands, Interrupts, release_memory

# Attempts without a round done: then it is the work that fails.
_MOST_IN_VAIN = 5
_log = logging.getLogger(__name__)
Job = Callable[[], Any]


def run_rounds(
    algorithm: ShardAlgorithm,
    n_rounds: int,
    *,
    executor: Executor,
    into: Path,
    identity: Mapping[str, Any],
    checkpoint: Path | None = None,
    enough: Enough | None = None,
    title: str = "rounds over shards",
    show_progress: bool = False,
    n_cached: int | None = None,
) -> ShardRunResult:
    """Run rounds 0, 1, 2, ... over all shards; the result does not depend on the executor.

    Parameters
    ----------
    algorithm : ShardAlgorithm
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
    n_cached : int or None
        Shards whose rows and states a process holds at a time; None: as many as it has threads.

    Returns
    -------
    ShardRunResult
    """
    workers = get_shard_runner(executor)
    # ShardRunner may be at home elsewhere.
    into = into.absolute()
    into.mkdir(parents=True, exist_ok=True)
    with (
        _folder(checkpoint) as folder,
        closing(make_progress_bar(title, 0, shown=show_progress)) as bar,
    ):
        run_checkpoint = RoundsCheckpoint(
            folder, identity, algorithm.n_shards, durable=checkpoint is not None
        )
        hands = workers(algorithm, run_checkpoint.states, n_cached)
        run = _Run(algorithm, n_rounds, enough, run_checkpoint, hands, bar, title)
        return run.finished(into)


class ShardRunner(Protocol):
    """Those who work on the shards."""

    def run(self, context: RunContext) -> None:
        """Do the rounds that are not done."""
        ...

    def write(self, context: RunContext, rounds: int, into: Path) -> list[dict[str, Any]]:
        """Write the results of all shards after so many rounds."""
        ...


@dataclass(frozen=True, eq=False)
class _Run:
    algorithm: ShardAlgorithm
    n_rounds: int
    enough: Enough | None
    checkpoint: RoundsCheckpoint
    workers: ShardRunner
    bar: Any
    title: str

    def finished(self, into: Path) -> ShardRunResult:
        """Go on until it is done, whatever is lost on the way."""
        n_in_vain, best = 0, -1
        while True:
            context = self._context()
            try:
                return self._attempted(context, into)
            except RecoverableError as setback:
                _log.warning("%s: %s; going on from round %d", self.title, setback, best)
                helped = isinstance(setback, DamagedStateError) and set_aside(setback)
                helped = helped or context.progress.complete > best
                n_in_vain = 0 if helped else n_in_vain + 1
                best = max(best, context.progress.complete)
                if n_in_vain > _MOST_IN_VAIN:
                    raise RuntimeError(
                        f"{self.title}: no round could be done in {n_in_vain} attempts; the last "
                        f"one ended with: {setback}"
                    ) from setback

    def _attempted(self, context: RunContext, into: Path) -> ShardRunResult:
        with context.interrupts.watch():
            interrupted = self._broken_off(context)
            # Without a checkpoint, all would be lost for the want of a file.
            context.interrupts.ignore_next()
            rounds = context.progress.complete
            entries = self.workers.write(context, rounds, into)
        if context.interrupts.received and not interrupted:
            warnings.warn(
                f"{self.title}: a signal to end the run came when all was done; the result is "
                "whole, and is kept.",
                stacklevel=2,
            )
        told = self.checkpoint.told(rounds)
        return ShardRunResult(told, tuple(entries), interrupted, self.checkpoint.seconds)

    def _broken_off(self, context: RunContext) -> bool:
        """Do the rounds that are not done; tell whether a signal ended that early."""
        try:
            self.workers.run(context)
        except KeyboardInterrupt as signal:
            rounds = context.progress.complete
            _log.warning("%s: broken off after %d rounds", self.title, rounds)
            if rounds < max(context.progress.earliest, 1):
                raise KeyboardInterrupt(
                    "the run was broken off before its first round was done"
                ) from signal
            return True
        return False

    def _context(self) -> RunContext:
        return RunContext(
            self.algorithm,
            self.n_rounds,
            self.enough,
            self.checkpoint,
            self.checkpoint.read_progress(),
            self.bar,
            Interrupts(),
            self.title,
        )


def get_shard_runner(
    executor: Executor,
) -> Callable[[ShardAlgorithm, ShardCheckpoint, int | None], ShardRunner]:
    """Those who work on shards where an executor says; one that is not for shards is refused."""
    if isinstance(executor, Serial | Threads):
        n_threads = executor.n_workers if isinstance(executor, Threads) else 1
        return lambda algorithm, states, n_cached: ThreadRounds(
            executor, ShardCache(algorithm, states, n_cached or n_threads)
        )
    if isinstance(executor, Dask):
        return partial(DaskRounds, executor.client)
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
class ThreadRounds:
    """ShardRunner of this process.

    Parameters
    ----------
    executor : Executor
        Serial or Threads.
    cache : ShardCache
        Where all of them work.
    """

    executor: Executor
    cache: ShardCache

    def run(self, context: RunContext) -> None:
        """Do the rounds that are not done, one after the other."""
        context.begin()
        with self.executor.start(_do, context.title) as pool:
            _Rounds(Hands(pool, context.interrupts), self.cache, context).run()

    def write(self, context: RunContext, rounds: int, into: Path) -> list[dict[str, Any]]:
        """Write the results of all shards after so many rounds."""
        jobs = [
            partial(self.cache.write, shard, rounds, into)
            for shard in range(context.algorithm.n_shards)
        ]
        with self.executor.start(_do, context.title) as pool:
            entries = dict(Hands(pool, context.interrupts).each(jobs))
        return [entries[shard] for shard in range(len(jobs))]


def _do(job: Job) -> Any:
    return job()


@dataclass(frozen=True, eq=False)
class _Round:
    number: int
    prepared: Any
    resolved: RoundResult


@dataclass(frozen=True)
class _Rounds:
    hands: Hands
    cache: ShardCache
    context: RunContext

    def run(self) -> None:
        algorithm, context, hands = self.context.algorithm, self.context, self.hands
        number, before, prepared = context.progress.complete, None, None
        while context.needs_round(number):
            if prepared is None:
                prepared = hands.one(partial(algorithm.prepare, number))
            summary, following = self._passed(before, number, prepared)
            resolved = hands.one(partial(algorithm.finalize, prepared, summary))
            # Shards, which come next, need the room.
            del summary
            release_memory()
            context.checkpoint.record(number, resolved.report)
            before, prepared, number = _Round(number, prepared, resolved), following, number + 1
        if before is not None:
            self._settle(before)

    def _passed(self, before: _Round | None, number: int, prepared: Any) -> tuple[Any, Any]:
        """Settle a round and look at the next, shard by shard: rows are opened once for both.

        Returns the summary of all shards, and what the round after needs.
        """
        context, algorithm = self.context, self.context.algorithm
        shards, settlements = _in_turn(algorithm.n_shards, number), self._settlements(before)
        jobs: list[Job] = [
            partial(_visit, self.cache, shard, settlements.get(shard), prepared) for shard in shards
        ]
        if context.may_need_round(number + 1):
            # Something for hands that would wait for the last shards.
            jobs.append(partial(algorithm.prepare, number + 1))
        summaries: list[Any] = []
        following = None
        for place, answer in self.hands.each(jobs):
            if place == len(shards):
                following = answer
                continue
            summaries = [algorithm.merge(summaries[0], answer) if summaries else answer]
            if shards[place] in settlements:
                context.record_accumulated(shards[place], number - 1)
            context.record_count()
        if before is not None:
            context.progress.finish(before.number)
        return summaries[0], following

    def _settle(self, last: _Round) -> None:
        context, settlements = self.context, self._settlements(last)
        shards = [
            shard for shard in _in_turn(context.algorithm.n_shards, 1) if shard in settlements
        ]
        jobs = [partial(self.cache.accumulate, shard, settlements[shard]) for shard in shards]
        for place, _ in self.hands.each(jobs):
            context.record_accumulated(shards[place], last.number)
        context.progress.finish(last.number)

    def _settlements(self, before: _Round | None) -> dict[int, RoundUpdate]:
        """For every shard that has not settled a round, what it needs for that."""
        if before is None:
            return {}
        progress, told = self.context.progress, before.resolved
        return {
            shard: RoundUpdate(
                before.number,
                before.prepared,
                told.shared,
                told.per_shard.get(shard),
                progress.complete,
            )
            for shard in progress.unsettled(before.number)
        }


def _in_turn(n_shards: int, number: int) -> list[int]:
    """Shards, every other time from the back: the last of one pass are still open in the next."""
    return list(range(n_shards))[:: -1 if number % 2 else 1]


def _visit(cache: ShardCache, shard: int, settlement: RoundUpdate | None, prepared: Any) -> Any:
    with cache.hold(shard):
        if settlement is not None:
            cache.accumulate(shard, settlement)
        return cache.count(shard, prepared)
