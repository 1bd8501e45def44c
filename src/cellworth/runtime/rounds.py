"""The round loop: run rounds over the shards of a table, in threads or on a Dask cluster.

A round counts every shard, and a stopping rule is checked at its end. All executors give the same
result.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from cellworth.runtime.dask_executor import Dask
from cellworth.runtime.dask_rounds import DaskRounds
from cellworth.runtime.executors import Executor, Serial, Threads
from cellworth.runtime.processes import Processes
from cellworth.runtime.shard_algorithm import (
    DamagedStateError,
    Enough,
    RecoverableError,
    RoundResult,
    RoundsCheckpoint,
    RoundUpdate,
    RunContext,
    ShardAlgorithm,
    ShardCache,
    ShardCheckpoint,
    ShardRunResult,
    set_state_aside,
)
from cellworth.runtime.stopping import Progress, ProgressReporter
from cellworth.runtime.workers import Interrupts, WorkerPool, map_unordered, release_memory

# Attempts without a finished round before the run gives up.
_MOST_FAILED_ATTEMPTS = 5

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

    The results of shards are written into the folder ``into``. The folder ``checkpoint`` stores the
    run, so that the same call resumes it; all workers of a cluster must see both. The checkpoint of
    another run than ``identity`` raises an error. ``enough`` is called after each round with all
    reports so far and ends the run by returning True. A process holds ``n_cached`` shards in memory
    at a time, by default one for each of its threads.
    """
    make_runner = get_shard_runner(executor)
    # Workers may have another working directory.
    into = into.absolute()
    into.mkdir(parents=True, exist_ok=True)
    visits = 2 * algorithm.n_shards
    with _open_folder(checkpoint) as folder:
        rounds = RoundsCheckpoint(
            folder, identity, algorithm.n_shards, durable=checkpoint is not None
        )
        progress = rounds.read_progress()
        reporter = ProgressReporter(
            title,
            shown=show_progress,
            n_tasks=n_rounds * visits,
            before=Progress(progress.complete * visits, 0.0, None),
            describe=lambda progress: f"{progress.tasks // visits} of {n_rounds} rounds",
            where={"executor": executor, "checkpoint": checkpoint},
        )
        runner = make_runner(algorithm, rounds.states, n_cached)
        context = RunContext(
            algorithm, n_rounds, enough, rounds, progress, reporter, Interrupts(), title
        )
        with reporter:
            return _run_until_done(runner, context, into)


class ShardRunner(Protocol):
    """Runs rounds and writes results with one kind of executor."""

    def run(self, context: RunContext) -> None:
        """Do the rounds that are not done."""

    def write(self, context: RunContext, rounds: int, into: Path) -> list[dict[str, Any]]:
        """Write the results of all shards after so many rounds."""


def _run_until_done(runner: ShardRunner, context: RunContext, into: Path) -> ShardRunResult:
    """Attempt the run until it is done; resume after every recoverable error."""
    n_failed, best = 0, -1
    while True:
        try:
            return _attempt(runner, context, into)
        except RecoverableError as error:
            _log.warning(
                "%s: %s; resuming after round %d",
                context.title,
                error,
                context.progress.complete,
                extra={"event": "retry", "title": context.title, "reason": str(error)},
            )
            helped = isinstance(error, DamagedStateError) and set_state_aside(error)
            helped = helped or context.progress.complete > best
            n_failed = 0 if helped else n_failed + 1
            best = max(best, context.progress.complete)
            if n_failed > _MOST_FAILED_ATTEMPTS:
                raise RuntimeError(
                    f"{context.title}: no round could be done in {n_failed} attempts; the last "
                    f"one ended with: {error}"
                ) from error
        progress = context.checkpoint.read_progress()
        context = replace(context, progress=progress, interrupts=Interrupts())


def _attempt(runner: ShardRunner, context: RunContext, into: Path) -> ShardRunResult:
    with context.interrupts.watch():
        interrupted = _run_until_interrupted(runner, context)
        # Without a checkpoint, an interrupt while results are written would lose the run.
        context.interrupts.ignore_next()
        rounds = context.progress.complete
        entries = runner.write(context, rounds, into)
    if context.interrupts.received and not interrupted:
        warnings.warn(
            f"{context.title}: a signal arrived after all rounds were done; the result is "
            "complete and was kept.",
            stacklevel=2,
        )
    reports = context.checkpoint.reports(rounds)
    return ShardRunResult(reports, tuple(entries), interrupted, context.checkpoint.seconds)


def _run_until_interrupted(runner: ShardRunner, context: RunContext) -> bool:
    """Do the rounds that are not done; return whether a signal ended them early."""
    try:
        runner.run(context)
    except KeyboardInterrupt as signal:
        rounds = context.progress.complete
        _log.info(
            "%s: interrupted after %d rounds",
            context.title,
            rounds,
            extra={"event": "interrupted", "title": context.title, "rounds": rounds},
        )
        if rounds < max(context.progress.earliest, 1):
            raise KeyboardInterrupt(
                "the run was interrupted before its first round was done"
            ) from signal
        return True
    return False


def get_shard_runner(
    executor: Executor,
) -> Callable[[ShardAlgorithm, ShardCheckpoint, int | None], ShardRunner]:
    """Return what makes the runner for an executor; raise if it cannot run shards."""
    if isinstance(executor, Serial | Threads):
        n_threads = executor.n_workers if isinstance(executor, Threads) else 1
        return lambda algorithm, states, n_cached: ThreadRounds(
            executor, ShardCache(algorithm, states, n_cached or n_threads)
        )
    if isinstance(executor, Dask):
        return partial(DaskRounds, executor.client)
    if isinstance(executor, Processes):
        raise ValueError(
            f"executor must be Serial, Threads or Dask for a ShardedTable, got {executor!r}; "
            f"threads are as fast here and share rows: use Threads({executor.n_workers})."
        )
    raise TypeError(
        f"executor must be Serial, Threads or Dask for a ShardedTable, got {executor!r}."
    )


@contextmanager
def _open_folder(checkpoint: Path | None) -> Iterator[Path]:
    """Give the folder of the checkpoint, or a temporary one that ends with the run."""
    if checkpoint is not None:
        yield checkpoint
        return
    with tempfile.TemporaryDirectory(prefix="cellworth-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@dataclass(frozen=True, eq=False)
class ThreadRounds:
    """Runs rounds in threads of this process, which share the cache."""

    executor: Executor
    cache: ShardCache

    def run(self, context: RunContext) -> None:
        """Do the rounds that are not done, one after the other."""
        context.begin()
        with self.executor.start(_call, context.title) as pool:
            _Passes(pool, self.cache, context).run()

    def write(self, context: RunContext, rounds: int, into: Path) -> list[dict[str, Any]]:
        """Write the results of all shards after so many rounds."""
        shards = range(context.algorithm.n_shards)
        jobs = [partial(self.cache.write, shard, rounds, into) for shard in shards]
        with self.executor.start(_call, context.title) as pool:
            entries = dict(map_unordered(pool, jobs, context.interrupts))
        return [entries[shard] for shard in shards]


def _call(job: Job) -> Any:
    return job()


class _FinalizedRound(NamedTuple):
    number: int
    prepared: Any
    result: RoundResult


@dataclass(frozen=True)
class _Passes:
    """One pass over the shards for each round, and one more to accumulate the last."""

    pool: WorkerPool
    cache: ShardCache
    context: RunContext

    def run(self) -> None:
        algorithm, context = self.context.algorithm, self.context
        number, before, prepared = context.progress.complete, None, None
        while context.needs_round(number):
            if prepared is None:
                prepared = self._call_one(partial(algorithm.prepare, number))
            summary, following = self._pass_over_shards(before, number, prepared)
            result = self._call_one(partial(algorithm.finalize, prepared, summary))
            # Free the summary before shards are opened again.
            del summary
            release_memory()
            context.checkpoint.record(number, result.report)
            before, prepared = _FinalizedRound(number, prepared, result), following
            number += 1
        if before is not None:
            self._accumulate(before)

    def _call_one(self, job: Job) -> Any:
        ((_, answer),) = map_unordered(self.pool, [job], self.context.interrupts)
        return answer

    def _pass_over_shards(
        self, before: _FinalizedRound | None, number: int, prepared: Any
    ) -> tuple[Any, Any]:
        """Accumulate the round before and count this one, so that rows are opened once for both.

        Returns the summary of all shards, and the input of the next round.
        """
        context, algorithm = self.context, self.context.algorithm
        shards, updates = _order_shards(algorithm.n_shards, number), self._make_updates(before)
        jobs: list[Job] = [
            partial(_visit, self.cache, shard, updates.get(shard), prepared) for shard in shards
        ]
        if context.may_need_round(number + 1):
            # Work for threads that would otherwise wait for the last shards.
            jobs.append(partial(algorithm.prepare, number + 1))
        summaries: list[Any] = []
        following = None
        for index, answer in map_unordered(self.pool, jobs, context.interrupts):
            if index == len(shards):
                following = answer
                continue
            summaries = [algorithm.merge(summaries[0], answer) if summaries else answer]
            if shards[index] in updates:
                context.record_accumulated(shards[index], number - 1)
            context.record_count()
        if before is not None:
            context.progress.finish(before.number)
        return summaries[0], following

    def _accumulate(self, last: _FinalizedRound) -> None:
        context, updates = self.context, self._make_updates(last)
        order = _order_shards(context.algorithm.n_shards, 1)
        shards = [shard for shard in order if shard in updates]
        jobs = [partial(self.cache.accumulate, shard, updates[shard]) for shard in shards]
        for index, _ in map_unordered(self.pool, jobs, context.interrupts):
            context.record_accumulated(shards[index], last.number)
        context.progress.finish(last.number)

    def _make_updates(self, before: _FinalizedRound | None) -> dict[int, RoundUpdate]:
        """Return the update for every shard that has not accumulated a round."""
        if before is None:
            return {}
        (number, prepared, result), progress = before, self.context.progress
        return {
            shard: RoundUpdate(
                number, prepared, result.shared, result.per_shard.get(shard), progress.complete
            )
            for shard in progress.find_pending(number)
        }


def _order_shards(n_shards: int, number: int) -> list[int]:
    """Reverse the order every other time: the last shards of one pass are open in the next."""
    return list(range(n_shards))[:: -1 if number % 2 else 1]


def _visit(cache: ShardCache, shard: int, update: RoundUpdate | None, prepared: Any) -> Any:
    with cache.hold(shard):
        if update is not None:
            cache.accumulate(shard, update)
        return cache.count(shard, prepared)
