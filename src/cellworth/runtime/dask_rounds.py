"""DaskRounds: rounds over shards on a Dask cluster.

Shards stay with workers, and summaries merge in a tree.
"""

from __future__ import annotations

import queue
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4
from weakref import WeakSet

from threadpoolctl import threadpool_limits

from cellworth.data.io import Plain
from cellworth.runtime.dask_executor import (
    WorkerMemory,
    explain_lost_cluster,
    fetch_answer,
    send_object,
)
from cellworth.runtime.shard_algorithm import (
    MOST_IN_FLIGHT,
    RecoverableError,
    RoundResult,
    RoundUpdate,
    RunContext,
    ShardAlgorithm,
    ShardCache,
    ShardCheckpoint,
    check_folder,
)
from cellworth.runtime.workers import Interrupts, LostAnswer, drain, unwrap

# Summaries that are merged at a time.
FAN_IN = 8

# Tasks that all others wait for run before any shard is counted.
_FIRST = 1_000_000
_SECONDS_BETWEEN_COUNTS = 2.0
_SECONDS_TO_WAIT = 1.0

# Name of a Dask task, number of its round, and shard.
TaskId = tuple[str, int, int]
Item = TypeVar("Item")


@dataclass(frozen=True, eq=False)
class DaskRounds:
    """Runs rounds on the workers of a Dask cluster.

    Rows and state of a shard stay with one worker, outside Dask's own memory. If the worker dies,
    others open the rows from their file and read the state from the checkpoint. Workers exchange
    the inputs, summaries and results of rounds; the driver gets only the reports. The states are in
    a folder that all workers see.
    """

    client: Any
    algorithm: ShardAlgorithm
    states: ShardCheckpoint
    n_cached: int | None

    def run(self, context: RunContext) -> None:
        """Do the rounds that are not done, up to three of them at a time."""
        context.begin()
        with self._open_tasks(context) as tasks:
            _RoundScheduler(tasks, context).run()

    def write(self, context: RunContext, rounds: int, into: Path) -> list[dict[str, Any]]:
        """Write the results of all shards after so many rounds."""
        with self._open_tasks(context) as tasks:
            shards = list(range(self.algorithm.n_shards))
            given = {"rounds": rounds, "into": into}
            entries = tasks.for_shards(_write_shard, "write", 0, shards, **given)
            n_left = len(shards)
            while n_left:
                n_left -= len(tasks.wait())
            with context.interrupts.allow():
                return [tasks.fetch(entries[shard]) for shard in shards]

    @contextmanager
    def _open_tasks(self, context: RunContext) -> Iterator[TaskSubmitter]:
        with explain_lost_cluster(self.client):
            n_cached = self.n_cached or max(self.client.nthreads().values(), default=1)
            cache = ShardCache(self.algorithm, self.states, n_cached)
            tasks = TaskSubmitter(self.client, cache, context.interrupts)
        try:
            yield tasks
        finally:
            tasks.close()


@dataclass(eq=False)
class _RoundInFlight:
    """A round in flight.

    It holds the sums of all workers until all shards have accumulated the round. If a worker dies,
    its results are computed again from those of the others.
    """

    prepared: Any
    sums: list[Any]
    shared: Any
    portions: dict[int, Any]
    accumulates: bool = False


class _RoundScheduler:
    """Submits up to three rounds at a time, and finishes them in order."""

    def __init__(self, tasks: TaskSubmitter, context: RunContext) -> None:
        self._tasks, self._context, self._progress = tasks, context, context.progress
        self._rounds: dict[int, _RoundInFlight] = {}
        self._reports: dict[int, Plain] = {}
        self._reported = self._begun = self._progress.complete
        self._ends = False

    def run(self) -> None:
        self._ends = not self._context.needs_round(self._reported)
        self._begin_rounds()
        while self._rounds:
            ready: list[tuple[int, int]] = []
            for task, future in self._tasks.wait():
                self._handle(task, future, ready)
            self._accumulate(ready)
            self._begin_rounds()

    def _handle(self, task: TaskId, future: Any, ready: list[tuple[int, int]]) -> None:
        """Handle a finished task; add shards that can now accumulate a round to ``ready``."""
        name, number, shard = task
        if number not in self._rounds:
            return
        if name == "count":
            self._context.record_count()
        elif name == "report":
            with self._context.interrupts.allow():
                self._reports[number] = self._tasks.fetch(future)
            self._record_reports(ready)
        else:
            self._context.record_accumulated(shard, number)
            if number + 1 in self._rounds and self._rounds[number + 1].accumulates:
                ready.append((shard, number + 1))
            self._finish(number)

    def _record_reports(self, ready: list[tuple[int, int]]) -> None:
        """Record reports in the order of rounds, and check whether they are enough."""
        while self._reported in self._reports:
            number = self._reported
            self._context.checkpoint.record(number, self._reports.pop(number))
            self._reported += 1
            self._rounds[number].accumulates = True
            pending = self._progress.find_pending(number)
            ready += [(shard, number) for shard in pending if self._is_next(shard, number)]
            if not self._context.needs_round(self._reported):
                self._end_after(number)
            self._finish(number)

    def _is_next(self, shard: int, number: int) -> bool:
        return self._progress.count_accumulated(shard) == number

    def _accumulate(self, ready: list[tuple[int, int]]) -> None:
        by_round: dict[int, list[int]] = {}
        for shard, number in ready:
            if self._is_next(shard, number):
                by_round.setdefault(number, []).append(shard)
        for number, shards in by_round.items():
            this = self._rounds[number]
            for portion, mine in _group_by_portion(this.portions, shards):
                self._tasks.for_shards(
                    _accumulate_shard,
                    "accumulate",
                    number,
                    mine,
                    number=number,
                    shared=this.shared,
                    portion=portion,
                    complete=self._progress.complete,
                )

    def _finish(self, number: int) -> None:
        if self._rounds[number].accumulates and not self._progress.find_pending(number):
            self._progress.finish(number)
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

    def _begin(self, number: int) -> _RoundInFlight:
        """Submit all tasks of a round up to its report."""
        tasks, cache = self._tasks, self._tasks.cache
        shards = list(range(self._context.algorithm.n_shards))
        mine = group_by_worker({shard: tasks.workers[shard] for shard in shards})
        workers = list(mine)
        # One worker does what is done once in a round; workers take turns.
        turn = number % len(workers)
        home, *_ = around = workers[turn:] + workers[:turn]
        prepared = tasks.one(_prepare_round, "prepare", str(number), home, cache, number)
        counts = tasks.for_shards(
            _count_shard, "count", number, shards, number=number, prepared=prepared
        )
        sums = [
            self._merge([(worker, counts[shard]) for shard in mine[worker]], f"{number}-{index}")
            for index, worker in enumerate(around)
        ]
        total = self._merge(list(zip(around, sums, strict=True)), f"{number}-all")
        result = tasks.one(_finalize_round, "finalize", str(number), home, cache, number, total)
        report = tasks.one(attrgetter("report"), "report", str(number), home, result)
        tasks.watch(("report", number, 0), report)
        portions: dict[int, Any] = {}
        for index, of_one in enumerate(mine.values()):
            portion = tasks.one(
                _select_portion, "portion", f"{number}-{index}", home, result, of_one
            )
            portions |= dict.fromkeys(of_one, portion)
        shared = tasks.one(attrgetter("shared"), "shared", str(number), home, result)
        return _RoundInFlight(prepared, sums, shared, portions)

    def _merge(self, summaries: list[tuple[str, Any]], name: str) -> Any:
        """Submit a tree of merges; each group is merged by the worker of its first summary.

        So a worker's summary is sent once at most, and the sum is where the first one is.
        """
        level = 0
        while len(summaries) > 1:
            groups = split_evenly(summaries, FAN_IN)
            summaries = []
            for n, group in enumerate(groups):
                worker, given = group[0][0], [self._tasks.cache, *(summary for _, summary in group)]
                index = f"{name}-{level}-{n}"
                merged = self._tasks.one(_merge_summaries, "merge", index, worker, *given)
                summaries.append((worker, merged))
            level += 1
        return summaries[0][1]


def _group_by_portion(portions: dict[int, Any], shards: list[int]) -> list[tuple[Any, list[int]]]:
    found: dict[str, tuple[Any, list[int]]] = {}
    for shard in shards:
        found.setdefault(portions[shard].key, (portions[shard], []))[1].append(shard)
    return list(found.values())


class LostTasksError(RecoverableError):
    """Dask has given up on tasks whose workers died, or has dropped them."""


class TaskSubmitter:
    """Submits the Dask tasks of one attempt, and waits for those that finish.

    The cache is sent once to each worker. Signals are allowed while workers are busy.
    """

    def __init__(self, client: Any, cache: ShardCache, interrupts: Interrupts) -> None:
        self._client, self._interrupts = client, interrupts
        self._run = uuid4().hex
        self._done: queue.SimpleQueue[tuple[TaskId, Any]] = queue.SimpleQueue()
        self._in_flight: dict[TaskId, Any] = {}
        self._workers: dict[int, str] = {}
        self._counted = -_SECONDS_BETWEEN_COUNTS
        self._n_shards = cache.algorithm.n_shards
        self.cache: Any
        chunks, self.cache, n_bytes = send_object(client, cache, self._run)
        self._memory = WorkerMemory(client, n_bytes)
        # Futures may be held by the traceback of an error, so they must be released by name.
        self._made: WeakSet[Any] = WeakSet([*chunks, self.cache])

    def one(
        self, function: Callable[..., Any], name: str, index: str, worker: str, *given: Any
    ) -> Any:
        """Submit a single task that runs before any count, on the given worker if it is there.

        Dask would choose a worker by size, and does not see the size of our messages.
        """
        with explain_lost_cluster(self._client):
            future = self._client.submit(
                function,
                *given,
                key=f"{name}-{self._run}-{index}",
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
        """Submit the same task for several shards, each to the worker of its shard."""
        found: dict[int, Any] = {}
        workers = {shard: self.workers[shard] for shard in shards}
        for worker, mine in group_by_worker(workers).items():
            with explain_lost_cluster(self._client):
                futures = self._client.map(
                    function,
                    mine,
                    cache=self.cache,
                    key=[f"{name}-{self._run}-{number}-{shard}" for shard in mine],
                    # Earlier rounds first, and counts before updates.
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

    def watch(self, task: TaskId, future: Any) -> None:
        """Let :meth:`wait` return a task when it is done."""
        self._in_flight[task] = future
        future.add_done_callback(lambda done: self._done.put((task, done)))

    def wait(self) -> list[tuple[TaskId, Any]]:
        """Wait a moment for watched tasks; raise the error of one that failed."""
        with self._interrupts.allow():
            found = drain(self._done, _SECONDS_TO_WAIT)
            self._memory.check(waiting=not found)
        # Others have been dropped.
        found = [(task, future) for task, future in found if self._in_flight.pop(task, None)]
        for _, future in found:
            if future.status != "finished":
                self.fetch(future)
        return found

    def drop_after(self, number: int) -> None:
        """Release all unfinished tasks of later rounds."""
        for task in [task for task in self._in_flight if task[1] > number]:
            self._in_flight.pop(task).release()

    @property
    def workers(self) -> dict[int, str]:
        """The worker of each shard; updated every few seconds as workers come and go."""
        if time.monotonic() - self._counted >= _SECONDS_BETWEEN_COUNTS or not self._workers:
            while not (n_threads := self._count_threads()):
                with self._interrupts.allow():
                    self._memory.check(waiting=True)
                    time.sleep(_SECONDS_TO_WAIT)
            self._workers = assign_shards(self._n_shards, n_threads, self._workers)
            self._counted = time.monotonic()
        return self._workers

    def _count_threads(self) -> dict[str, int]:
        with explain_lost_cluster(self._client):
            return dict(self._client.nthreads())

    def close(self) -> None:
        """Release everything: pending tasks are dropped, running ones are not waited for."""
        # Not cancelled: Dask fails on cancelled tasks that only other tasks depend on.
        if self._client.status == "running":
            for future in list(self._made):
                future.release()

    def fetch(self, future: Any) -> Any:
        """Return the result of a task, or raise its error."""
        answer = fetch_answer(future, self._memory)
        if isinstance(answer, LostAnswer):
            raise LostTasksError(f"workers died ({answer.error})") from answer.error
        return unwrap(answer)


def assign_shards(
    n_shards: int, n_threads: Mapping[str, int], before: Mapping[int, str]
) -> dict[int, str]:
    """Assign every shard to a worker, in proportion to their numbers of threads.

    A shard keeps its worker of ``before``, unless that is gone or has too many.
    """
    room = _share_shards(n_shards, n_threads)
    stays: dict[int, str] = {}
    for shard, worker in before.items():
        if room.get(worker, 0) > 0:
            stays[shard] = worker
            room[worker] -= 1
    free = (worker for worker in room for _ in range(room[worker]))
    return {shard: stays.get(shard) or next(free) for shard in range(n_shards)}


def _share_shards(n_shards: int, n_threads: Mapping[str, int]) -> dict[str, int]:
    """Return how many shards each worker gets; equal workers differ by one at most."""
    total, seen, shares = sum(n_threads.values()), 0, {}
    for worker in sorted(n_threads):
        first = seen * n_shards // total
        seen += n_threads[worker]
        shares[worker] = seen * n_shards // total - first
    return shares


def group_by_worker(workers: Mapping[int, str]) -> dict[str, list[int]]:
    """Return the shards of each worker."""
    found: dict[str, list[int]] = {}
    for shard, worker in workers.items():
        found.setdefault(worker, []).append(shard)
    return found


def split_evenly(items: Sequence[Item], size: int) -> list[list[Item]]:
    """Split a list into groups of at most ``size`` items, nearly equal in length."""
    n_groups = -(-len(items) // size)
    bounds = [index * len(items) // n_groups for index in range(n_groups + 1)]
    return [list(items[a:b]) for a, b in pairwise(bounds)]


# Dask tasks: functions that run on workers.


def _prepare_round(cache: ShardCache, number: int) -> Any:
    check_folder(cache.states.folder)
    with threadpool_limits(1):
        return cache.algorithm.prepare(number)


def _count_shard(shard: int, cache: ShardCache, *, number: int, prepared: Any) -> Any:
    check_folder(cache.states.folder)
    cache.keep_prepared(number, prepared)
    with threadpool_limits(1):
        return cache.count(shard, prepared)


def _merge_summaries(cache: ShardCache, *summaries: Any) -> Any:
    return reduce(cache.algorithm.merge, summaries)


def _finalize_round(cache: ShardCache, number: int, summary: Any) -> RoundResult:
    with threadpool_limits(1):
        # Not as an argument: Dask may have dropped it since the count and would fetch it again.
        return cache.algorithm.finalize(cache.get_prepared(number), summary)


def _select_portion(result: RoundResult, shards: list[int]) -> dict[int, Any]:
    return {shard: result.per_shard[shard] for shard in shards if shard in result.per_shard}


def _accumulate_shard(
    shard: int,
    cache: ShardCache,
    *,
    number: int,
    shared: Any,
    portion: dict[int, Any],
    complete: int,
) -> None:
    with threadpool_limits(1):
        prepared = cache.get_prepared(number)
        cache.accumulate(shard, RoundUpdate(number, prepared, shared, portion.get(shard), complete))


def _write_shard(shard: int, cache: ShardCache, *, rounds: int, into: Path) -> dict[str, Any]:
    check_folder(cache.states.folder)
    if not into.is_dir():
        raise FileNotFoundError(
            f"{socket.gethostname()} does not see the folder {into} of the results; give one that "
            "all workers of the cluster share."
        )
    return cache.write(shard, rounds, into)
