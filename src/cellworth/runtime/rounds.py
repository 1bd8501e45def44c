"""The round loop: run rounds over the shards of a table, with any executor.

A round counts every shard, merges the summaries, and finalizes them into one small result. Results
wait in the memory of workers until the values of shards are needed: at the end, when a stopping
rule asks for errors, or when they take much memory. Then each shard adds up all that wait, so that
its values, which are as large as the table, need not be kept from round to round. Rows of a shard
stay with one worker where the executor can arrange it, and summaries merge in a tree on workers. If
a worker dies, others read the rows again and repeat what only it knew.
"""

from __future__ import annotations

import logging
import math
import sys
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any, cast

from cellworth.data.io import AnyPath, n_bytes
from cellworth.runtime.checkpoint import (
    DamagedFileError,
    RoundsCheckpoint,
    ShardCheckpoint,
    ShardState,
    check_folder,
)
from cellworth.runtime.executors import Executor
from cellworth.runtime.forecast import Forecast
from cellworth.runtime.progress import PROGRESS, Progress, ProgressReporter
from cellworth.runtime.shard_algorithm import (
    MAX_KEPT_BYTES,
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
# Results of rounds that wait to be added up. They hold values by pair and bin: a few megabytes for
# a round, whatever the number of rows.
MAX_WAITING_BYTES = 2**27
_SECONDS_BETWEEN_STATES = 60.0

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
    hold in between. A process holds one shard in memory for each of its threads, and more rows
    while there is room.
    """
    # Workers may have another working directory.
    into = into.absolute()
    into.mkdir(parents=True, exist_ok=True)
    visits = 2 * algorithm.n_shards
    planned = f" of {stop.most_tasks}" if math.isfinite(stop.most_tasks) else ""
    rounds = RoundsCheckpoint(checkpoint, identity, algorithm.n_shards)
    reporter = ProgressReporter(
        title,
        shown=show_progress,
        n_tasks=int(stop.most_tasks) * visits if planned else 0,
        before=Progress(rounds.n_visits, 0.0, None),
        describe=lambda progress: f"{progress.tasks // visits}{planned} rounds",
        where={"executor": executor, "checkpoint": checkpoint},
        file=checkpoint and checkpoint / PROGRESS,
        forecast=forecast,
    )
    cache = ShardCache(algorithm, rounds.states)
    context = RunContext(executor, cache, stop, rounds_per_pass, on_round, rounds, reporter, title)
    with reporter:
        return _resume_until_done(context, into)


def _resume_until_done(context: RunContext, into: AnyPath) -> ShardRunResult:
    """Attempt a run until it is done; resume after every recoverable error."""
    n_failed, best = 0, -1
    while True:
        try:
            return _attempt(replace(context, interrupts=Interrupts()), into)
        except RecoverableError as error:
            helped = isinstance(error, DamagedFileError) and error.set_aside()
            counted = context.checkpoint.complete
            context.checkpoint.find_complete()
            fields = {"event": "retry", "title": context.title, "reason": str(error)}
            text = f"{context.title}: {error}; resuming after round {context.checkpoint.complete}"
            _log.warning("%s", text, extra=fields)
            n_failed = 0 if helped or counted > best else n_failed + 1
            if n_failed > MAX_FAILURES_IN_A_ROW:
                raise LostWorkersError(
                    f"{context.title}: no round could be done in {n_failed} attempts; the last one "
                    f"ended with: {error}"
                ) from error
            best = max(best, counted)


def _attempt(context: RunContext, into: AnyPath) -> ShardRunResult:
    work = partial(_answer, context.cache)
    with (
        context.interrupts.watch(),
        context.executor.start(work, context.title) as pool,
        ExitStack() as closing,
    ):
        loop = _RoundLoop(pool, context, closing)
        interrupted = _run_until_interrupted(loop)
        # Without a checkpoint, an interrupt while results are written would lose the run.
        context.interrupts.ignore_next()
        rounds = context.checkpoint.complete
        entries = loop.write(rounds, into)
    if context.interrupts.received and not interrupted:
        warnings.warn(
            f"{context.title}: a signal arrived after all rounds were done; the result is "
            "complete and was kept.",
            stacklevel=2,
        )
    reports = context.checkpoint.reports(rounds)
    return ShardRunResult(reports, tuple(entries), interrupted, context.checkpoint.seconds)


def _run_until_interrupted(loop: _RoundLoop) -> bool:
    """Do the rounds that are not done; return whether a signal ended them early."""
    context = loop.context
    try:
        loop.run()
    except KeyboardInterrupt as signal:
        rounds = context.checkpoint.complete
        if not rounds:
            raise KeyboardInterrupt("interrupted before the first round was done") from signal
        text = f"interrupted after {rounds} rounds, which are added up now"
        context.reporter.log("interrupted", text, rounds=rounds)
        return True
    return False


@dataclass(eq=False)
class _RoundLoop:
    """One pass over the shards for each round, and one more to add up those that wait."""

    pool: WorkerPool
    context: RunContext
    closing: ExitStack
    # Results of rounds, by shard what its worker needs of them.
    waiting: dict[int, dict[int, LazyAnswer]] = field(default_factory=dict)
    n_waiting_bytes: int = 0
    # States that are kept since a pass added rounds up; others are made, or read from a checkpoint.
    states: dict[int, LazyAnswer] = field(default_factory=dict)
    n_kept_bytes: int = 0
    # States that memory has no room for, in temporary files.
    spilled: ShardCheckpoint | None = None
    written: float = field(default_factory=time.monotonic)

    def run(self) -> None:
        """Do rounds until the stopping rule is met."""
        context, prepared = self.context, None
        began = number = context.checkpoint.complete
        while True:
            measures = None
            if context.needs_measures(number):
                measures = self._measure(number)
                if context.on_round is not None and number > began:
                    context.on_round(context.describe(number, measures))
            if not context.needs_round(number, measures):
                break
            shard, result, prepared = self._count(number, prepared)
            report, size = self._ask(_describe, shard, result)
            if context.checkpoint.states is not None:
                # If a cluster loses it, it is read again, and rounds are not counted again.
                result = self._keep(partial(_read_result, number), number)
            self._keep_waiting(number, shard, result)
            self.n_waiting_bytes += size
            context.checkpoint.record_report(number, report)
            number += 1
            # A limit of time leaves no time to add up all rounds after it.
            is_timed = math.isfinite(context.stop.most_seconds)
            if is_timed or self.n_waiting_bytes > MAX_WAITING_BYTES:
                self._add_up(number)

    def write(self, number: int, into: AnyPath) -> list[Any]:
        """Add up the rounds before a number, and write the results of all shards."""
        return self._ask_shards(self._make_visits(number, into=into), number)

    def _measure(self, number: int) -> list[Any]:
        """Return the measures of all shards after so many rounds."""
        self._add_up(number)
        known = sorted(self.states.items())
        requests = deque(Request(_measure, (state,), shard) for shard, state in known)
        return self._ask_shards(requests, number)

    def _ask_shards(self, requests: deque[Request], number: int) -> list[Any]:
        """Return the answers of all shards, in their order; they have added rounds up by then."""
        answers = {}
        for request, answer in map_unordered(self.pool, requests, self.context.interrupts):
            answers[request.locality] = answer
            self._record_added(request.locality, number)
        return [answers[shard] for shard in sorted(answers)]

    def _add_up(self, number: int) -> None:
        """Add the rounds before a number to the states of all shards, and keep these.

        With a checkpoint, states are written, unless that was a moment ago.
        """
        checkpoint = self.context.checkpoint
        stores = time.monotonic() - self.written > _SECONDS_BETWEEN_STATES
        requests = self._make_visits(number, stores=stores)
        stores = stores and bool(requests)
        # A signal waits: results of rounds are given up once all shards have added them.
        held_back = Interrupts()
        for request, answer in map_unordered(self.pool, requests, held_back):
            shard = request.locality
            self.states[shard] = self._keep_state(shard, answer)
            self._record_added(shard, number)
        self.waiting.clear()
        self.n_waiting_bytes = self.n_kept_bytes = 0
        if stores:
            self.written = time.monotonic()
            checkpoint.record_states(number)

    def _keep_state(self, shard: int, answer: Any) -> LazyAnswer:
        """Return where a state is kept: with a worker, in memory here, or on disk."""
        if isinstance(answer, LazyAnswer):
            return answer
        self.n_kept_bytes += n_bytes(answer)
        if self.n_kept_bytes <= MAX_KEPT_BYTES:
            return as_lazy(answer)
        if self.spilled is None:
            made = tempfile.TemporaryDirectory(prefix="cellworth-", ignore_cleanup_errors=True)
            folder = Path(self.closing.enter_context(made))
            self.spilled = ShardCheckpoint(folder, "", durable=False)
            size = n_bytes(answer) * self.context.algorithm.n_shards / 1e6
            text = f"unfinished values ({size:,.0f} MB) do not fit into memory; some go to {folder}"
            self.context.reporter.announce("spilled", text)
        self.spilled.write(shard, 0, answer)
        return LazyAnswer(partial(self.spilled.read, shard, 0))

    def _make_visits(
        self, number: int, *, into: AnyPath | None = None, stores: bool = False
    ) -> deque[Request]:
        """Return a request for each shard, which adds up all rounds before a number."""
        added, n_shards = self.context.checkpoint.added, self.context.algorithm.n_shards
        requests: deque[Request] = deque()
        for waiting in range(min(added), number):
            if waiting not in self.waiting:
                # Found in the checkpoint.
                result = self._keep(partial(_read_result, waiting), waiting)
                self._keep_waiting(waiting, waiting % n_shards, result)
        for shard in range(n_shards):
            rounds = range(added[shard], number)
            if into is None and shard in self.states and not rounds:
                continue
            inputs = [self.states[shard]] if shard in self.states else []
            inputs += [self.waiting[each][shard] for each in rounds]
            visit = partial(_add_up, shard, rounds, stores, into)
            requests.append(Request(visit, tuple(inputs), shard, keep=into is None))
        return requests

    def _record_added(self, shard: int, number: int) -> None:
        self.context.checkpoint.added[shard] = number
        self.context.report(0)

    def _count(
        self, number: int, prepared: LazyAnswer | None
    ) -> tuple[int, LazyAnswer, LazyAnswer | None]:
        """Count and finalize a round; return a shard of the worker with its result, and the result.

        The third is the input of the next round, if there may be one.
        """
        if prepared is None:
            prepared = self._keep(partial(_prepare, number), number)
        merging, next_prepared = self._count_shards(number, prepared)
        shard, summaries = self._merge_rest(merging)
        finalize = partial(_finalize, number, number - len(self.waiting))
        result = self._keep(finalize, shard, *summaries)
        if not self.pool.keeps_answers:
            # Free the summaries of this process before shards are opened again.
            del merging, summaries
            release_memory()
        return shard, result, next_prepared

    def _count_shards(
        self, number: int, prepared: LazyAnswer
    ) -> tuple[_Merging, LazyAnswer | None]:
        """Return the summaries of all shards, and the input of the next round."""
        context, preparing, next_prepared, n_counted = self.context, None, None, 0
        merging = _Merging(context.algorithm, self.pool)
        # In reverse every other time: the last shards of one pass are open in the next.
        order = range(context.algorithm.n_shards)[:: 1 if number % 2 else -1]
        visit = partial(_count, number=number, since=number - len(self.waiting))
        requests = deque(
            Request(partial(visit, shard), (prepared,), shard, keep=True) for shard in order
        )
        if number + 1 < context.stop.most_tasks:
            # Work for those who would otherwise wait for the last shards.
            preparing = self._request(partial(_prepare, number + 1), number + 1)
            requests.append(preparing)
        for request, answer in map_unordered(self.pool, requests, context.interrupts):
            if request is preparing:
                next_prepared = as_lazy(answer)
                continue
            if request.content is not _merge:
                n_counted += 1
                context.report(n_counted)
            merging.add(request.locality, answer)
            # Merge first, so that few summaries are held at a time.
            requests.extendleft(merging.take_full_groups())
        return merging, next_prepared

    def _merge_rest(self, merging: _Merging) -> tuple[int, list[LazyAnswer]]:
        """Return the few summaries that are left, with a shard of a worker that has one."""
        while groups := merging.take_groups():
            for request, answer in map_unordered(self.pool, groups, self.context.interrupts):
                merging.add(request.locality, answer)
        return merging.take_last()

    def _keep_waiting(self, number: int, shard: int, result: LazyAnswer) -> None:
        """Divide a result into what all shards and what the shards of a worker need.

        It waits with the workers until it is added up.
        """
        shards_of: dict[str, list[int]] = {}
        for each in range(self.context.algorithm.n_shards):
            shards_of.setdefault(self.pool.find_worker(each), []).append(each)
        wanted = {
            self._request(partial(_get_portion, shards), shard, result): shards
            for shards in shards_of.values()
        }
        self.waiting[number] = {}
        for request, portion in map_unordered(self.pool, wanted, self.context.interrupts):
            self.waiting[number] |= dict.fromkeys(wanted[request], as_lazy(portion))

    def _keep(self, content: Any, shard: int, *inputs: LazyAnswer) -> LazyAnswer:
        """Have the worker of a shard compute what others need; it stays there if possible."""
        return as_lazy(self._ask(content, shard, *inputs, keep=True))

    def _ask(self, content: Any, shard: int, *inputs: LazyAnswer, keep: bool = False) -> Any:
        request = replace(self._request(content, shard, *inputs), keep=keep)
        ((_, answer),) = map_unordered(self.pool, [request], self.context.interrupts)
        return answer

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


def _count(shard: int, cache: ShardCache, prepared: Any, *, number: int, since: int) -> Any:
    """Count a round in a shard; rounds since then have yet to be added up."""
    cache.check_folder()
    with cache.hold(shard) as rows:
        cache.keep_prepared(number, prepared, since)
        return cache.algorithm.count(rows, prepared)


def _add_up(
    shard: int, rounds: range, stores: bool, into: AnyPath | None, cache: ShardCache, *inputs: Any
) -> Any:
    """Add rounds to the state of a shard; return it, or write the result of the shard.

    ``inputs`` are the state, if it is known, and for each round what this worker needs.
    """
    cache.check_folder()
    if isinstance(into, Path):
        check_folder(into, "results")
    if into is not None and cache.states is not None:
        entry = cache.states.read_entry(shard, rounds.stop, into)
        if entry is not None:
            return entry
    n_states = len(inputs) - len(rounds)
    with cache.hold(shard) as rows:
        state = cache.algorithm.initial_state(rows)
        if n_states:
            # A copy: if this fails, the state before is still needed.
            state = {name: array.copy() for name, array in inputs[0].items()}
        elif rounds.start and cache.states is not None:
            state = cache.states.read(shard, rounds.start)
        for number, (shared, parts) in zip(rounds, inputs[n_states:], strict=True):
            prepared, part = cache.get_prepared(number, rounds.start), parts.get(shard)
            state = cache.algorithm.accumulate(rows, prepared, shared, part, state)
        if into is not None:
            entry = cache.algorithm.write(rows, state, shard, into)
            if cache.states is not None:
                cache.states.write_entry(shard, rounds.stop, entry)
            return entry
    if stores and cache.states is not None:
        cache.states.write(shard, rounds.stop, state)
    return state


def _measure(cache: ShardCache, state: ShardState) -> Any:
    return cache.algorithm.measure(state)


def _prepare(number: int, cache: ShardCache) -> Any:
    return cache.algorithm.prepare(number)


def _merge(cache: ShardCache, *summaries: Any) -> Any:
    return reduce(cache.algorithm.merge, summaries)


def _finalize(number: int, since: int, cache: ShardCache, *summaries: Any) -> RoundResult:
    # Not an input: a cluster may have dropped it since the count, and would send it again.
    prepared = cache.get_prepared(number, since)
    result = cache.algorithm.finalize(prepared, _merge(cache, *summaries))
    if cache.states is not None:
        cache.states.write_result(number, result.shared, result.per_shard)
    return result


def _read_result(number: int, cache: ShardCache) -> RoundResult:
    """Read the result of a round of an earlier session."""
    shared, per_shard = cast(ShardCheckpoint, cache.states).read_result(number)
    return RoundResult(shared, per_shard, {})


def _describe(cache: ShardCache, result: RoundResult) -> tuple[Any, int]:
    """Return the report of a result, and its size in bytes."""
    return result.report, sys.getsizeof(result)


def _get_portion(shards: list[int], cache: ShardCache, result: RoundResult) -> Any:
    """Return what all shards and what some shards need of a result."""
    parts = result.per_shard
    return result.shared, {shard: parts[shard] for shard in shards if shard in parts}


def _answer(cache: ShardCache, request: Callable[..., Any], *inputs: Any) -> Any:
    return request(cache, *inputs)
