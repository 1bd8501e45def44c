"""Rounds over shards on a Dask cluster: shards stay with workers, summaries meet in a tree."""

from __future__ import annotations

import queue
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4
from weakref import WeakSet

from threadpoolctl import threadpool_limits

from cellworth.packing import Plain
from cellworth.runtime.dask_executor import Memory, explain_lost_cluster, fetch_answer, sent
from cellworth.runtime.run_context import RunContext
from cellworth.runtime.shard_algorithm import (
    MOST_IN_FLIGHT,
    RecoverableError,
    RoundResult,
    RoundUpdate,
    ShardAlgorithm,
    ShardCache,
    ShardCheckpoint,
)
from cellworth.runtime.workers import Interrupts, LostAnswer, taken, unwrap

# What all others wait for comes before any look at a shard.
_FIRST = 1_000_000
_SECONDS_BETWEEN_COUNTS = 2.0
_SECONDS_TO_WAIT = 1.0
# Name of a task, number of its round, and shard.
TaskId = tuple[str, int, int]
Thing = TypeVar("Thing")
# Summaries that are merged at a time.
FAN_IN = 8


@dataclass(frozen=True, eq=False)
class DaskRounds:
    """ShardRunner of a Dask cluster.

    A shard's rows and state stay with one worker, beside Dask's own memory. Should the worker die,
    others open the rows from their file and read the state from the run's folder. Between workers
    travel what rounds prepare, share and sum up; to the driver only what they tell.

    Parameters
    ----------
    client : distributed.Client
    algorithm : ShardAlgorithm
    states : ShardCheckpoint
        In a folder that all workers see.
    n_cached : int or None
        Shards whose rows and states a worker holds at a time; None: as many as it has threads.
    """

    client: Any
    algorithm: ShardAlgorithm
    states: ShardCheckpoint
    n_cached: int | None

    def run(self, context: RunContext) -> None:
        """Do the rounds that are not done, up to three of them at a time."""
        context.begin()
        with self._tasks(context) as tasks:
            _Rounds(tasks, context).run()

    def write(self, context: RunContext, rounds: int, into: Path) -> list[dict[str, Any]]:
        """Write the results of all shards after so many rounds."""
        with self._tasks(context) as tasks:
            shards = list(range(self.algorithm.n_shards))
            given = {"rounds": rounds, "into": into}
            entries = tasks.for_shards(_write_shard, "write", 0, shards, **given)
            n_left = len(shards)
            while n_left:
                n_left -= len(tasks.done())
            with context.interrupts.allow():
                return [tasks.answer_of(entries[shard]) for shard in shards]

    @contextmanager
    def _tasks(self, context: RunContext) -> Iterator[TaskSubmitter]:
        with explain_lost_cluster(self.client):
            n_cached = self.n_cached or max(self.client.nthreads().values(), default=1)
            tasks = TaskSubmitter(
                self.client, ShardCache(self.algorithm, self.states, n_cached), context.interrupts
            )
        try:
            yield tasks
        finally:
            tasks.close()


@dataclass(eq=False)
class _Round:
    """A round in flight.

    Until all have settled, the sums of all workers are held: what dies with one worker is computed
    again from what others still have.
    """

    prepared: Any
    sums: list[Any]
    shared: Any
    portions: dict[int, Any]
    settles: bool = False


class _Rounds:
    def __init__(self, tasks: TaskSubmitter, context: RunContext) -> None:
        self._tasks, self._context, self._standing = tasks, context, context.progress
        self._rounds: dict[int, _Round] = {}
        self._told: dict[int, Plain] = {}
        self._judged = self._begun = self._standing.complete
        self._ends = False

    def run(self) -> None:
        self._ends = not self._context.needs_round(self._judged)
        self._begin_rounds()
        while self._rounds:
            ready: list[tuple[int, int]] = []
            for watched, future in self._tasks.done():
                self._take(watched, future, ready)
            self._settle(ready)
            self._begin_rounds()

    def _take(self, watched: TaskId, future: Any, ready: list[tuple[int, int]]) -> None:
        """Take note of a task that is done; shards that may settle a round are ready for it."""
        name, number, shard = watched
        if number not in self._rounds:
            return
        if name == "count":
            self._context.record_count()
        elif name == "report":
            with self._context.interrupts.allow():
                self._told[number] = self._tasks.answer_of(future)
            self._judge(ready)
        else:
            self._context.record_accumulated(shard, number)
            if number + 1 in self._rounds and self._rounds[number + 1].settles:
                ready.append((shard, number + 1))
            self._finish(number)

    def _judge(self, ready: list[tuple[int, int]]) -> None:
        """In the order of rounds: write down what they told, and see whether it is enough."""
        while self._judged in self._told:
            number = self._judged
            self._context.checkpoint.record(number, self._told.pop(number))
            self._judged += 1
            self._rounds[number].settles = True
            unsettled = self._standing.unsettled(number)
            ready += [(shard, number) for shard in unsettled if self._is_next(shard, number)]
            if not self._context.needs_round(self._judged):
                self._end_after(number)
            self._finish(number)

    def _is_next(self, shard: int, number: int) -> bool:
        return self._standing.settled(shard) == number

    def _settle(self, ready: list[tuple[int, int]]) -> None:
        by_round: dict[int, list[int]] = {}
        for shard, number in ready:
            if self._is_next(shard, number):
                by_round.setdefault(number, []).append(shard)
        for number, shards in by_round.items():
            this = self._rounds[number]
            for portion, mine in _by_portion(this.portions, shards):
                self._tasks.for_shards(
                    _accumulate_shard,
                    "accumulate",
                    number,
                    mine,
                    number=number,
                    shared=this.shared,
                    portion=portion,
                    complete=self._standing.complete,
                )

    def _finish(self, number: int) -> None:
        if self._rounds[number].settles and not self._standing.unsettled(number):
            self._standing.finish(number)
            del self._rounds[number]

    def _end_after(self, number: int) -> None:
        self._ends = True
        self._tasks.drop_after(number)
        for later in [other for other in self._rounds if other > number]:
            del self._rounds[later]

    def _begin_rounds(self) -> None:
        while (
            not self._ends
            and len(self._rounds) < MOST_IN_FLIGHT
            and self._context.may_need_round(self._begun)
        ):
            self._rounds[self._begun] = self._begin(self._begun)
            self._begun += 1

    def _begin(self, number: int) -> _Round:
        """All tasks of a round up to what it tells."""
        tasks, cache = self._tasks, self._tasks.cache
        shards = list(range(self._context.algorithm.n_shards))
        mine = group_by_worker({shard: tasks.workers[shard] for shard in shards})
        workers = list(mine)
        # All that is done once for a round is done by one worker, and they take turns.
        turn = number % len(workers)
        home, *_ = around = workers[turn:] + workers[:turn]
        prepared = tasks.one(_prepare_round, "prepare", str(number), home, cache, number)
        looks = tasks.for_shards(
            _count_shard, "count", number, shards, number=number, prepared=prepared
        )
        sums = [
            self._merged([(worker, looks[shard]) for shard in mine[worker]], f"{number}-{place}")
            for place, worker in enumerate(around)
        ]
        whole = self._merged(list(zip(around, sums, strict=True)), f"{number}-all")
        resolved = tasks.one(_finalize_round, "finalize", str(number), home, cache, number, whole)
        told = tasks.one(_select_report, "report", str(number), home, resolved)
        tasks.watch(("report", number, 0), told)
        portions: dict[int, Any] = {}
        for place, of_one in enumerate(mine.values()):
            portion = tasks.one(
                _select_portion, "portion", f"{number}-{place}", home, resolved, of_one
            )
            portions |= dict.fromkeys(of_one, portion)
        shared = tasks.one(_select_shared, "shared", str(number), home, resolved)
        return _Round(prepared, sums, shared, portions)

    def _merged(self, summaries: list[tuple[str, Any]], place: str) -> Any:
        """Future of the sum of workers' summaries, in a tree; they go to the first of each group.

        So a worker's counts travel once at most, and the sum of all is where the first one is.
        """
        level = 0
        while len(summaries) > 1:
            groups = split_evenly(summaries, FAN_IN)
            summaries = [
                (group[0][0], self._sum(group, f"{place}-{level}-{n}"))
                for n, group in enumerate(groups)
            ]
            level += 1
        return summaries[0][1]

    def _sum(self, group: list[tuple[str, Any]], place: str) -> Any:
        parts = [summary for _, summary in group]
        return self._tasks.one(
            _merge_summaries, "merge", place, group[0][0], self._tasks.cache, *parts
        )


def _by_portion(portions: dict[int, Any], shards: list[int]) -> list[tuple[Any, list[int]]]:
    found: dict[str, tuple[Any, list[int]]] = {}
    for shard in shards:
        found.setdefault(portions[shard].key, (portions[shard], []))[1].append(shard)
    return list(found.values())


class LostTasksError(RecoverableError):
    """Dask has lost patience with tasks whose workers died, or has dropped them."""


class TaskSubmitter:
    """Sends the tasks of one attempt, under keys of their own, and hears of those that are done.

    Parameters
    ----------
    client : distributed.Client
    cache : ShardCache
        Travels once to each worker.
    interrupts : Interrupts
        Signals are let in while others work.
    """

    def __init__(self, client: Any, cache: ShardCache, interrupts: Interrupts) -> None:
        """Send the cache."""
        self._client, self._interrupts = client, interrupts
        self._run = uuid4().hex
        self._done: queue.SimpleQueue[tuple[TaskId, Any]] = queue.SimpleQueue()
        self._flying: dict[TaskId, Any] = {}
        self._workers: dict[int, str] = {}
        self._counted = -_SECONDS_BETWEEN_COUNTS
        self._n_shards = cache.algorithm.n_shards
        parts, self.cache, n_bytes = sent(client, cache, self._run)
        self._memory = Memory(client, n_bytes)
        # Futures may be held by the traceback of an error, so that they must be released by name.
        self._made: WeakSet[Any] = WeakSet([*parts, self.cache])

    def one(
        self, function: Callable[..., Any], name: str, place: str, worker: str, *given: Any
    ) -> Any:
        """Future of a single task, before any look; where it is told to be, if that is there.

        Dask would choose by size, and does not see that of our messages.
        """
        with explain_lost_cluster(self._client):
            future = self._client.submit(
                function,
                *given,
                key=f"{name}-{self._run}-{place}",
                priority=_FIRST,
                workers=[worker],
                allow_other_workers=True,
                pure=False,
            )
        self._made.add(future)
        return future

    def for_shards(
        self,
        function: Callable[..., Any],
        name: str,
        number: int,
        shards: list[int],
        /,
        **given: Any,
    ) -> dict[int, Any]:
        """Futures of the same task for several shards, each where its shard lies."""
        found: dict[int, Any] = {}
        places = {shard: self.workers[shard] for shard in shards}
        for worker, mine in group_by_worker(places).items():
            with explain_lost_cluster(self._client):
                futures = self._client.map(
                    function,
                    mine,
                    cache=self.cache,
                    key=[f"{name}-{self._run}-{number}-{shard}" for shard in mine],
                    # Earlier rounds first, and in a round what was looked at before.
                    priority=-2 * number - (name == "accumulate"),
                    workers=[worker],
                    allow_other_workers=True,
                    pure=False,
                    **given,
                )
            self._made.update(futures)
            found |= dict(zip(mine, futures, strict=True))
        for shard, future in found.items():
            self.watch((name, number, shard), future)
        return found

    def watch(self, what: TaskId, future: Any) -> None:
        """Hear of a task when it is done."""
        self._flying[what] = future
        future.add_done_callback(lambda done: self._done.put((what, done)))

    def done(self) -> list[tuple[TaskId, Any]]:
        """Wait for watched tasks, if only for a moment; one that failed raises its error."""
        with self._interrupts.allow():
            found = taken(self._done, _SECONDS_TO_WAIT)
            self._memory.check(waiting=not found)
        # Others have been dropped.
        found = [(what, future) for what, future in found if self._flying.pop(what, None)]
        for _, future in found:
            if future.status != "finished":
                self.answer_of(future)
        return found

    def drop_after(self, number: int) -> None:
        """Let go of all that is not done of later rounds."""
        for what in [what for what in self._flying if what[1] > number]:
            self._flying.pop(what).release()

    @property
    def workers(self) -> dict[int, str]:
        """The worker of each shard; now and then it is seen who is still there."""
        if time.monotonic() - self._counted >= _SECONDS_BETWEEN_COUNTS or not self._workers:
            while not (n_threads := self._n_threads()):
                with self._interrupts.allow():
                    self._memory.check(waiting=True)
                    time.sleep(_SECONDS_TO_WAIT)
            self._workers = assign_shards(self._n_shards, n_threads, self._workers)
            self._counted = time.monotonic()
        return self._workers

    def _n_threads(self) -> dict[str, int]:
        with explain_lost_cluster(self._client):
            return dict(self._client.nthreads())

    def close(self) -> None:
        """Let go of everything: what has not begun will not, and what runs is not waited for."""
        # Not cancelled: Dask trips over tasks that nobody but other tasks waits for.
        if self._client.status == "running":
            for future in list(self._made):
                future.release()

    def answer_of(self, future: Any) -> Any:
        """Return what a task answered, or raise what became of it."""
        answer = fetch_answer(future, self._memory)
        if isinstance(answer, LostAnswer):
            raise LostTasksError(f"workers died ({answer.error})") from answer.error
        return unwrap(answer)


def assign_shards(
    n_shards: int, n_threads: Mapping[str, int], before: Mapping[int, str]
) -> dict[int, str]:
    """Give every shard a worker; it keeps the one it had, unless that is gone or has too many.

    Parameters
    ----------
    n_shards : int
    n_threads : mapping
        From the addresses of workers to their threads: who has twice as many gets twice as many.
    before : mapping
        From shards to workers, as it was.
    """
    room = _shares(n_shards, n_threads)
    stays: dict[int, str] = {}
    for shard, worker in before.items():
        if room.get(worker, 0) > 0:
            stays[shard] = worker
            room[worker] -= 1
    free = (worker for worker in room for _ in range(room[worker]))
    return {shard: stays.get(shard) or next(free) for shard in range(n_shards)}


def _shares(n_shards: int, n_threads: Mapping[str, int]) -> dict[str, int]:
    """How many shards each worker gets; they differ by one where workers are alike."""
    total, seen, shares = sum(n_threads.values()), 0, {}
    for worker in sorted(n_threads):
        first = seen * n_shards // total
        seen += n_threads[worker]
        shares[worker] = seen * n_shards // total - first
    return shares


def group_by_worker(workers: Mapping[int, str]) -> dict[str, list[int]]:
    """From workers to their shards."""
    found: dict[str, list[int]] = {}
    for shard, worker in workers.items():
        found.setdefault(worker, []).append(shard)
    return found


def split_evenly(things: Sequence[Thing], size: int) -> list[list[Thing]]:
    """Cut a list into parts of at most so many, alike in size."""
    n_groups = -(-len(things) // size)
    bounds = [place * len(things) // n_groups for place in range(n_groups + 1)]
    return [list(things[a:b]) for a, b in pairwise(bounds)]


def _prepare_round(cache: ShardCache, number: int) -> Any:
    """What every shard needs to know of a round."""
    cache.states.require_folder()
    with threadpool_limits(1):
        return cache.algorithm.prepare(number)


def _count_shard(shard: int, cache: ShardCache, *, number: int, prepared: Any) -> Any:
    """Summary of a shard."""
    cache.states.require_folder()
    cache.keep(number, prepared)
    with threadpool_limits(1):
        return cache.count(shard, prepared)


def _merge_summaries(cache: ShardCache, *summaries: Any) -> Any:
    """Several summaries as one."""
    return reduce(cache.algorithm.merge, summaries)


def _finalize_round(cache: ShardCache, number: int, summary: Any) -> RoundResult:
    """What all shards together know of a round."""
    with threadpool_limits(1):
        # Not from Dask, which may have thrown it away since the look and would fetch it again.
        return cache.algorithm.finalize(cache.prepared(number), summary)


def _select_report(resolved: RoundResult) -> Plain:
    """What goes to the driver."""
    return resolved.report


def _select_shared(resolved: RoundResult) -> Any:
    """What goes to every shard."""
    return resolved.shared


def _select_portion(resolved: RoundResult, shards: list[int]) -> dict[int, Any]:
    """What goes to some shards, which one worker works on."""
    return {shard: resolved.per_shard[shard] for shard in shards if shard in resolved.per_shard}


def _accumulate_shard(
    shard: int,
    cache: ShardCache,
    *,
    number: int,
    shared: Any,
    portion: dict[int, Any],
    complete: int,
) -> None:
    """Have a shard settle a round."""
    with threadpool_limits(1):
        prepared = cache.prepared(number)
        settlement = RoundUpdate(number, prepared, shared, portion.get(shard), complete)
        cache.accumulate(shard, settlement)


def _write_shard(shard: int, cache: ShardCache, *, rounds: int, into: Path) -> dict[str, Any]:
    """Write the result of a shard."""
    cache.states.require_folder()
    if not into.is_dir():
        raise FileNotFoundError(
            f"{socket.gethostname()} does not see the folder {into} of the results; give one that "
            "all workers of the cluster share."
        )
    return cache.write(shard, rounds, into)
