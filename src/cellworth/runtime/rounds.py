"""The round loop: run rounds over the shards of a table, with any executor.

A round counts every shard, merges the summaries, and finalizes them; the next pass over the shards
accumulates its result. A stopping rule is checked at the end of a round. Rows and state of a shard
stay with one worker where the executor can arrange it, and summaries merge in a tree on workers. If
a worker dies, others open the rows from their file and read the state from the checkpoint.
"""

from __future__ import annotations

import logging
import math
import tempfile
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

from cellworth.data.io import AnyPath
from cellworth.runtime.checkpoint import DamagedFileError, RoundsCheckpoint, check_folder
from cellworth.runtime.executors import Executor
from cellworth.runtime.forecast import Forecast
from cellworth.runtime.progress import PROGRESS, Progress, ProgressReporter
from cellworth.runtime.shard_algorithm import (
    RoundResult,
    RunContext,
    ShardAlgorithm,
    ShardCache,
    ShardRunResult,
)
from cellworth.runtime.stopping import StoppingRule
from cellworth.runtime.workers import (
    MAX_FAILURES_IN_A_ROW,
    Interrupts,
    LazyAnswer,
    LostWorkersError,
    RecoverableError,
    Request,
    WorkerPool,
    as_lazy,
    map_unordered,
    release_memory,
)

# Summaries that a worker merges at a time.
FAN_IN = 8

_log = logging.getLogger(__name__)


def run_rounds(
    algorithm: ShardAlgorithm,
    stop: StoppingRule,
    *,
    executor: Executor,
    into: AnyPath,
    identity: Mapping[str, Any],
    checkpoint: AnyPath | None = None,
    rounds_per_pass: int = 1,
    on_round: Callable[[Progress], object] | None = None,
    title: str = "rounds over shards",
    show_progress: bool = False,
    forecast: Forecast | None = None,
) -> ShardRunResult:
    """Run rounds 0, 1, 2, ... over all shards; the result does not depend on the executor.

    The results of shards are written into the folder ``into``. The folder ``checkpoint`` stores the
    run, so that the same call resumes it; all workers of a cluster must see both. The checkpoint of
    another run than ``identity`` raises an error. The rule is checked, and ``on_round`` called,
    after every ``rounds_per_pass`` rounds; its limits on rounds (tasks), utilities and seconds also
    hold in between. A process holds one shard in memory for each of its threads.
    """
    # Workers may have another working directory.
    into = into.absolute()
    into.mkdir(parents=True, exist_ok=True)
    visits = 2 * algorithm.n_shards
    planned = f" of {stop.most_tasks}" if math.isfinite(stop.most_tasks) else ""
    opened: AbstractContextManager[AnyPath | str] = (
        tempfile.TemporaryDirectory(prefix="cellworth-", ignore_cleanup_errors=True)
        if checkpoint is None
        else nullcontext(checkpoint)
    )
    with opened as folder:
        rounds = RoundsCheckpoint(
            folder, identity, algorithm.n_shards, durable=checkpoint is not None
        )
        reporter = ProgressReporter(
            title,
            shown=show_progress,
            n_tasks=int(stop.most_tasks) * visits if planned else 0,
            before=Progress(rounds.complete * visits, 0.0, None),
            describe=lambda progress: f"{progress.tasks // visits}{planned} rounds",
            where={"executor": executor, "checkpoint": checkpoint},
            file=checkpoint and checkpoint / PROGRESS,
            forecast=forecast,
        )
        cache = ShardCache(algorithm, rounds.states)
        context = RunContext(
            executor, cache, stop, rounds_per_pass, on_round, rounds, reporter, title
        )
        with reporter:
            return _resume_until_done(context, into)


def _ask_shards(
    pool: WorkerPool, context: RunContext, method: Callable[..., Any], **given: Any
) -> list[Any]:
    """Call a method of the cache for each shard; return the answers in the order of shards."""
    shards = range(context.algorithm.n_shards)
    requests = [Request(partial(method, shard=shard, **given), locality=shard) for shard in shards]
    done = map_unordered(pool, requests, context.interrupts)
    answers = {request.locality: answer for request, answer in done}
    return [answers[shard] for shard in shards]


def _resume_until_done(context: RunContext, into: AnyPath) -> ShardRunResult:
    """Attempt a run until it is done; resume after every recoverable error."""
    n_failed, best = 0, -1
    while True:
        try:
            return _attempt(replace(context, interrupts=Interrupts()), into)
        except RecoverableError as error:
            n_done = context.checkpoint.complete
            _log.warning(
                "%s: %s; resuming after round %d",
                context.title,
                error,
                n_done,
                extra={"event": "retry", "title": context.title, "reason": str(error)},
            )
            helped = isinstance(error, DamagedFileError) and error.set_aside()
            n_failed = 0 if helped or n_done > best else n_failed + 1
            if n_failed > MAX_FAILURES_IN_A_ROW:
                raise LostWorkersError(
                    f"{context.title}: no round could be done in {n_failed} attempts; the last one "
                    f"ended with: {error}"
                ) from error
            best = max(best, n_done)
        context.checkpoint.find_states()


def _attempt(context: RunContext, into: AnyPath) -> ShardRunResult:
    with context.interrupts.watch():
        interrupted = _run_until_interrupted(context)
        # Without a checkpoint, an interrupt while results are written would lose the run.
        context.interrupts.ignore_next()
        rounds = context.checkpoint.complete
        with context.start_workers() as pool:
            entries = _ask_shards(pool, context, ShardCache.write, rounds=rounds, into=into)
    if context.interrupts.received and not interrupted:
        warnings.warn(
            f"{context.title}: a signal arrived after all rounds were done; the result is "
            "complete and was kept.",
            stacklevel=2,
        )
    reports = context.checkpoint.reports(rounds)
    return ShardRunResult(reports, tuple(entries), interrupted, context.checkpoint.seconds)


def _run_until_interrupted(context: RunContext) -> bool:
    """Do the rounds that are not done; return whether a signal ended them early."""
    try:
        context.begin()
        if context.may_need_round(context.checkpoint.complete):
            with context.start_workers() as pool:
                _RoundLoop(pool, context).run()
    except KeyboardInterrupt as signal:
        rounds = context.checkpoint.complete
        context.reporter.log("interrupted", f"interrupted after {rounds} rounds", rounds=rounds)
        if rounds < max(context.checkpoint.earliest, 1):
            raise KeyboardInterrupt(
                "the run was interrupted before its first round was done"
            ) from signal
        return True
    return False


# A round that shards have yet to accumulate, whose result is with the workers: its number, what all
# shards need, and by shard what the shards of its worker need.
_FinalizedRound = tuple[int, LazyAnswer, dict[int, LazyAnswer]]


@dataclass(frozen=True, eq=False)
class _RoundLoop:
    """One pass over the shards for each round, and one more to accumulate the last."""

    pool: WorkerPool
    context: RunContext

    def run(self) -> None:
        context = self.context
        number, before, prepared = context.checkpoint.complete, None, None
        began = number
        while True:
            measures = None
            if context.needs_measures(number) and number >= context.checkpoint.earliest:
                self._pass_over_shards(before, None, None)
                before = None
                measures = _ask_shards(self.pool, context, ShardCache.measure, rounds=number)
                if context.on_round is not None and number > began:
                    context.on_round(context.describe(number, measures))
            if not context.needs_round(number, measures):
                break
            shard, result, prepared = self._count(before, number, prepared)
            before, report = self._split(number, shard, result)
            context.checkpoint.record_report(number, report)
            number += 1
        self._pass_over_shards(before, None, None)

    def _count(
        self, before: _FinalizedRound | None, number: int, prepared: LazyAnswer | None
    ) -> tuple[int, LazyAnswer, LazyAnswer | None]:
        """Count and finalize a round; return a shard of the worker with its result, and the result.

        The third is the input of the next round, if there may be one.
        """
        if prepared is None:
            prepared = self._keep(partial(_prepare, number), number)
        merging, next_prepared = self._pass_over_shards(before, number, prepared)
        shard, summaries = self._merge_rest(merging)
        result = self._keep(partial(_finalize, number), shard, *summaries)
        if not self.pool.keeps_answers:
            # Free the summaries of this process before shards are opened again.
            del merging, summaries
            release_memory()
        return shard, result, next_prepared

    def _pass_over_shards(
        self, before: _FinalizedRound | None, number: int | None, prepared: LazyAnswer | None
    ) -> tuple[_Merging, LazyAnswer | None]:
        """Accumulate the round before and count this one, so that rows are opened once for both.

        Either may be None.
        Returns the summaries of all shards, and the input of the next round.
        """
        context, preparing, next_prepared = self.context, None, None
        merging = _Merging(context.algorithm, self.pool)
        # Shards that have yet to accumulate the round before.
        pending = set() if before is None else set(context.checkpoint.find_pending(before[0]))
        requests = deque(self._make_visits(before, pending, number, prepared))
        if number is not None and context.may_need_round(number + 1):
            # Work for those who would otherwise wait for the last shards.
            preparing = self._request(partial(_prepare, number + 1), number + 1)
            requests.append(preparing)
        for request, answer in map_unordered(self.pool, requests, context.interrupts):
            if request is preparing:
                next_prepared = as_lazy(answer)
                continue
            is_visit = request.content is not _merge
            if is_visit and before is not None and request.locality in pending:
                context.checkpoint.record_accumulated(request.locality, before[0])
                context.reporter.advance()
            if number is not None:
                merging.add(request.locality, answer)
                if is_visit:
                    context.reporter.advance()
                # Merge first, so that few summaries are held at a time.
                requests.extendleft(merging.take_full_groups())
        return merging, next_prepared

    def _make_visits(
        self,
        before: _FinalizedRound | None,
        pending: set[int],
        number: int | None,
        prepared: LazyAnswer | None,
    ) -> Iterator[Request]:
        context = self.context
        finalized, shared, portions = before or (None, None, {})
        n_shards = context.algorithm.n_shards
        # In reverse every other time: the last shards of one pass are open in the next.
        order = range(n_shards)[:: -1 if (number is None or number % 2) else 1]
        for shard in order:
            accumulates = finalized if shard in pending else None
            if accumulates is None and number is None:
                continue
            inputs: tuple[LazyAnswer, ...] = () if prepared is None else (prepared,)
            if shared is not None and accumulates is not None:
                inputs += (shared, portions[shard])
            visit = partial(_visit, shard, number, accumulates, context.checkpoint.complete)
            yield Request(visit, inputs, shard, keep=number is not None)

    def _merge_rest(self, merging: _Merging) -> tuple[int, list[LazyAnswer]]:
        """Return the few summaries that are left, with a shard of a worker that has one."""
        while groups := merging.take_groups():
            for request, answer in map_unordered(self.pool, groups, self.context.interrupts):
                merging.add(request.locality, answer)
        return merging.take_last()

    def _split(self, number: int, shard: int, result: LazyAnswer) -> tuple[_FinalizedRound, Any]:
        """Divide a result into what all shards, the shards of a worker, and the driver need."""
        shards_of: dict[str, list[int]] = {}
        for each in range(self.context.algorithm.n_shards):
            shards_of.setdefault(self.pool.find_worker(each), []).append(each)
        parts = [partial(_get_part, "report"), partial(_get_part, "shared")]
        parts += [partial(_get_portion, shards) for shards in shards_of.values()]
        requests = [self._request(part, shard, result) for part in parts]
        requests[0] = replace(requests[0], keep=False)
        found = dict(map_unordered(self.pool, requests, self.context.interrupts))
        report, shared, *portions = (found[request] for request in requests)
        of_shards = {
            each: as_lazy(portion)
            for shards, portion in zip(shards_of.values(), portions, strict=True)
            for each in shards
        }
        return (number, as_lazy(shared), of_shards), report

    def _keep(self, content: Any, shard: int, *inputs: LazyAnswer) -> LazyAnswer:
        """Have the worker of a shard compute what others need; it stays there if possible."""
        request = self._request(content, shard, *inputs)
        ((_, answer),) = map_unordered(self.pool, [request], self.context.interrupts)
        return as_lazy(answer)

    def _request(self, content: Any, shard: int, *inputs: LazyAnswer) -> Request:
        # What is done once in a round is done by each worker in turn.
        locality = shard % self.context.algorithm.n_shards
        return Request(content, inputs, locality, keep=True, first=True)


class _Merging:
    """Merges summaries: here if they are in this process, otherwise in a tree on the workers.

    A group is merged by the worker of its first summary, and those of one worker before others, so
    that a worker sends one summary at most.
    """

    def __init__(self, algorithm: ShardAlgorithm, pool: WorkerPool) -> None:
        self._algorithm, self._pool = algorithm, pool
        self._here: list[Any] = []
        # Kept summaries of each worker, with one of its shards.
        self._kept: dict[str, list[tuple[int, LazyAnswer]]] = {}

    def add(self, shard: int, summary: Any) -> None:
        """Add the summary of a shard, or of several of its worker."""
        if isinstance(summary, LazyAnswer):
            self._kept.setdefault(self._pool.find_worker(shard), []).append((shard, summary))
        else:
            merge = self._algorithm.merge
            self._here = [merge(self._here[0], summary) if self._here else summary]

    def take_full_groups(self) -> list[Request]:
        """Return requests to merge the summaries of workers that have many."""
        full = [worker for worker, kept in self._kept.items() if len(kept) >= FAN_IN]
        return [self._take(worker) for worker in full]

    def take_groups(self) -> list[Request]:
        """Return requests for the next level of the tree; none once few summaries are left."""
        if self._here:
            self._kept.setdefault("", []).append((0, as_lazy(self._here.pop())))
        workers = [worker for worker, kept in self._kept.items() if len(kept) > 1]
        if not workers and len(self._kept) > FAN_IN:
            rest = [pair for worker in sorted(self._kept) for pair in self._kept.pop(worker)]
            for start in range(0, len(rest), FAN_IN):
                self._kept[str(start)] = rest[start : start + FAN_IN]
            workers = list(self._kept)
        return [self._take(worker) for worker in workers]

    def take_last(self) -> tuple[int, list[LazyAnswer]]:
        """Return the summaries that are left, and a shard of a worker that has one of them."""
        last = [pair for worker in sorted(self._kept) for pair in self._kept.pop(worker)]
        return last[0][0], [summary for _, summary in last]

    def _take(self, worker: str) -> Request:
        group = self._kept.pop(worker)
        inputs = tuple(summary for _, summary in group)
        return Request(_merge, inputs, group[0][0], keep=True, first=True)


# What workers do: functions of a cache in their process, and of inputs.


def _visit(
    shard: int,
    counts: int | None,
    accumulates: int | None,
    complete: int,
    cache: ShardCache,
    *inputs: Any,
) -> Any:
    """Accumulate one round and count another in a shard; either may be None.

    All shards have accumulated ``complete`` rounds.
    """
    check_folder(cache.states.folder)
    with cache.hold(shard) as held:
        if accumulates is not None:
            shared, portion = inputs[-2:]
            cache.accumulate(shard, accumulates, shared, portion.get(shard), complete)
        if counts is None:
            return None
        prepared = inputs[0]
        cache.keep_prepared(counts, prepared)
        return cache.algorithm.count(held.rows, prepared)


def _prepare(number: int, cache: ShardCache) -> Any:
    check_folder(cache.states.folder)
    return cache.algorithm.prepare(number)


def _merge(cache: ShardCache, *summaries: Any) -> Any:
    return reduce(cache.algorithm.merge, summaries)


def _finalize(number: int, cache: ShardCache, *summaries: Any) -> RoundResult:
    # Not an input: a cluster may have dropped it since the count, and would send it again.
    return cache.algorithm.finalize(cache.get_prepared(number), _merge(cache, *summaries))


def _get_part(name: str, cache: ShardCache, result: RoundResult) -> Any:
    return getattr(result, name)


def _get_portion(shards: list[int], cache: ShardCache, result: RoundResult) -> dict[int, Any]:
    """Return what single shards need of a result."""
    return {shard: result.per_shard[shard] for shard in shards if shard in result.per_shard}
