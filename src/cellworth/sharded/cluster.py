"""Rounds over shards on a Dask cluster: shards stay with workers, summaries meet in a tree."""

from __future__ import annotations

import queue
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any
from uuid import uuid4
from weakref import WeakSet

from threadpoolctl import threadpool_limits

from cellworth.execution.cluster import gathered, lost_cluster_explained, sent
from cellworth.execution.crews import Lost, sound, taken
from cellworth.packing import Plain
from cellworth.sharded.benches import Bench, Settlement
from cellworth.sharded.courses import Course
from cellworth.sharded.phases import Phases, Resolved
from cellworth.sharded.states import MOST_IN_FLIGHT, Setback, States
from cellworth.sharded.stations import FAN_IN, assigned, in_groups, stations

# What all others wait for comes before any look at a shard.
_FIRST = 1_000_000
_SECONDS_BETWEEN_COUNTS = 2.0
_SECONDS_TO_WAIT = 1.0

# Name of a task, number of its round, and shard.
Watched = tuple[str, int, int]


class LostOnCluster(Setback):
    """Dask has lost patience with tasks whose workers died, or has dropped them."""


@dataclass(frozen=True, eq=False)
class OnCluster:
    """Workers of a Dask cluster.

    A shard's rows and state stay with one worker, beside Dask's own memory. Should the worker die,
    others open the rows from their file and read the state from the run's folder. Between workers
    travel what rounds prepare, share and sum up; to the driver only what they tell.

    Parameters
    ----------
    client : distributed.Client
    phases : Phases
    states : States
        In a folder that all workers see.
    n_places : int or None
        Shards whose rows and states a worker holds at a time; None: as many as it has threads.
    """

    client: Any
    phases: Phases
    states: States
    n_places: int | None

    def run(self, course: Course) -> None:
        """Do the rounds that are not done, up to three of them at a time."""
        course.begin()
        with self._tasks(course) as tasks:
            _Rounds(tasks, course).run()

    def publish(self, course: Course, rounds: int, into: Path) -> list[dict[str, Any]]:
        """Write the results of all shards after so many rounds."""
        with self._tasks(course) as tasks:
            shards = list(range(self.phases.n_shards))
            entries = tasks.for_shards(_publish, "publish", 0, shards, rounds=rounds, into=into)
            n_left = len(shards)
            while n_left:
                n_left -= len(tasks.done())
            with course.interrupts.allowed():
                return [_answer(entries[shard]) for shard in shards]

    @contextmanager
    def _tasks(self, course: Course) -> Iterator[_Tasks]:
        with lost_cluster_explained(self.client):
            n_places = self.n_places or max(self.client.nthreads().values(), default=1)
            tasks = _Tasks(self.client, Bench(self.phases, self.states, n_places), course)
        try:
            yield tasks
        finally:
            tasks.close()


class _Tasks:
    """Tasks of one attempt, under keys of their own; the driver hears of those that are done."""

    def __init__(self, client: Any, bench: Bench, course: Course) -> None:
        self._client, self._course = client, course
        self._run = uuid4().hex
        self._done: queue.SimpleQueue[tuple[Watched, Any]] = queue.SimpleQueue()
        self._flying: dict[Watched, Any] = {}
        self._workers: dict[int, str] = {}
        self._counted = -_SECONDS_BETWEEN_COUNTS
        self._n_shards = bench.phases.n_shards
        parts, self.bench = sent(client, bench, self._run)
        # Futures may be held by the traceback of an error, so that they must be released by name.
        self._made: WeakSet[Any] = WeakSet([*parts, self.bench])

    def one(
        self, function: Callable[..., Any], name: str, place: str, worker: str, *given: Any
    ) -> Any:
        """Future of a single task, before any look; where it is told to be, if that is there.

        Dask would choose by size, and does not see that of our messages.
        """
        with lost_cluster_explained(self._client):
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
        for worker, mine in stations(places).items():
            with lost_cluster_explained(self._client):
                futures = self._client.map(
                    function,
                    mine,
                    bench=self.bench,
                    key=[f"{name}-{self._run}-{number}-{shard}" for shard in mine],
                    # Earlier rounds first, and in a round what was looked at before.
                    priority=-2 * number - (name == "settle"),
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

    def watch(self, what: Watched, future: Any) -> None:
        """Hear of a task when it is done."""
        self._flying[what] = future
        future.add_done_callback(lambda done: self._done.put((what, done)))

    def done(self) -> list[tuple[Watched, Any]]:
        """Wait for watched tasks, if only for a moment; one that failed raises its error."""
        with self._course.interrupts.allowed():
            found = taken(self._done, _SECONDS_TO_WAIT)
        # Others have been dropped.
        found = [(what, future) for what, future in found if self._flying.pop(what, None)]
        for _, future in found:
            if future.status != "finished":
                _answer(future)
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
                with self._course.interrupts.allowed():
                    time.sleep(_SECONDS_TO_WAIT)
            self._workers = assigned(self._n_shards, n_threads, self._workers)
            self._counted = time.monotonic()
        return self._workers

    def _n_threads(self) -> dict[str, int]:
        with lost_cluster_explained(self._client):
            return dict(self._client.nthreads())

    def close(self) -> None:
        """Let go of everything: what has not begun will not, and what runs is not waited for."""
        # Not cancelled: Dask trips over tasks that nobody but other tasks waits for.
        if self._client.status == "running":
            for future in list(self._made):
                future.release()


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
    def __init__(self, tasks: _Tasks, course: Course) -> None:
        self._tasks, self._course, self._standing = tasks, course, course.standing
        self._rounds: dict[int, _Round] = {}
        self._told: dict[int, Plain] = {}
        self._judged = self._begun = self._standing.complete
        self._ends = False

    def run(self) -> None:
        self._ends = not self._course.goes_on(self._judged)
        self._begin_rounds()
        while self._rounds:
            ready: list[tuple[int, int]] = []
            for watched, future in self._tasks.done():
                self._take(watched, future, ready)
            self._settle(ready)
            self._begin_rounds()

    def _take(self, watched: Watched, future: Any, ready: list[tuple[int, int]]) -> None:
        """Take note of a task that is done; shards that may settle a round are ready for it."""
        name, number, shard = watched
        if number not in self._rounds:
            return
        if name == "look":
            self._course.note_look()
        elif name == "told":
            with self._course.interrupts.allowed():
                self._told[number] = _answer(future)
            self._judge(ready)
        else:
            self._course.note_settled(shard, number)
            if number + 1 in self._rounds and self._rounds[number + 1].settles:
                ready.append((shard, number + 1))
            self._finish(number)

    def _judge(self, ready: list[tuple[int, int]]) -> None:
        """In the order of rounds: write down what they told, and see whether it is enough."""
        while self._judged in self._told:
            number = self._judged
            self._course.ledger.note(number, self._told.pop(number))
            self._judged += 1
            self._rounds[number].settles = True
            unsettled = self._standing.unsettled(number)
            ready += [(shard, number) for shard in unsettled if self._is_next(shard, number)]
            if not self._course.goes_on(self._judged):
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
                    _settle,
                    "settle",
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
            and self._course.may_go_on(self._begun)
        ):
            self._rounds[self._begun] = self._begin(self._begun)
            self._begun += 1

    def _begin(self, number: int) -> _Round:
        """All tasks of a round up to what it tells."""
        tasks, bench = self._tasks, self._tasks.bench
        shards = list(range(self._course.phases.n_shards))
        mine = stations({shard: tasks.workers[shard] for shard in shards})
        workers = list(mine)
        # All that is done once for a round is done by one worker, and they take turns.
        turn = number % len(workers)
        home, *_ = around = workers[turn:] + workers[:turn]
        prepared = tasks.one(_prepare, "prepare", str(number), home, bench, number)
        looks = tasks.for_shards(_look, "look", number, shards, number=number, prepared=prepared)
        sums = [
            self._merged([(worker, looks[shard]) for shard in mine[worker]], f"{number}-{place}")
            for place, worker in enumerate(around)
        ]
        whole = self._merged(list(zip(around, sums, strict=True)), f"{number}-all")
        resolved = tasks.one(_resolve, "resolve", str(number), home, bench, number, whole)
        told = tasks.one(_told, "told", str(number), home, resolved)
        tasks.watch(("told", number, 0), told)
        portions: dict[int, Any] = {}
        for place, of_one in enumerate(mine.values()):
            portion = tasks.one(_portion, "portion", f"{number}-{place}", home, resolved, of_one)
            portions |= dict.fromkeys(of_one, portion)
        shared = tasks.one(_shared, "shared", str(number), home, resolved)
        return _Round(prepared, sums, shared, portions)

    def _merged(self, summaries: list[tuple[str, Any]], place: str) -> Any:
        """Future of the sum of workers' summaries, in a tree; they go to the first of each group.

        So a worker's counts travel once at most, and the sum of all is where the first one is.
        """
        level = 0
        while len(summaries) > 1:
            groups = in_groups(summaries, FAN_IN)
            summaries = [
                (group[0][0], self._sum(group, f"{place}-{level}-{n}"))
                for n, group in enumerate(groups)
            ]
            level += 1
        return summaries[0][1]

    def _sum(self, group: list[tuple[str, Any]], place: str) -> Any:
        parts = [summary for _, summary in group]
        return self._tasks.one(_merge, "merge", place, group[0][0], self._tasks.bench, *parts)


def _by_portion(portions: dict[int, Any], shards: list[int]) -> list[tuple[Any, list[int]]]:
    found: dict[str, tuple[Any, list[int]]] = {}
    for shard in shards:
        found.setdefault(portions[shard].key, (portions[shard], []))[1].append(shard)
    return list(found.values())


def _answer(future: Any) -> Any:
    answer = gathered(future)
    if isinstance(answer, Lost):
        raise LostOnCluster(f"workers died ({answer.error})") from answer.error
    return sound(answer)


def _prepare(bench: Bench, number: int) -> Any:
    bench.states.require_folder()
    with threadpool_limits(1):
        return bench.phases.prepare(number)


def _look(shard: int, bench: Bench, *, number: int, prepared: Any) -> Any:
    bench.states.require_folder()
    bench.keep(number, prepared)
    with threadpool_limits(1):
        return bench.look(shard, prepared)


def _merge(bench: Bench, *summaries: Any) -> Any:
    return reduce(bench.phases.merge, summaries)


def _resolve(bench: Bench, number: int, summary: Any) -> Resolved:
    with threadpool_limits(1):
        # Not from Dask, which may have thrown it away since the look and would fetch it again.
        return bench.phases.resolve(bench.prepared(number), summary)


def _told(resolved: Resolved) -> Plain:
    return resolved.told


def _shared(resolved: Resolved) -> Any:
    return resolved.shared


def _portion(resolved: Resolved, shards: list[int]) -> dict[int, Any]:
    return {shard: resolved.parts[shard] for shard in shards if shard in resolved.parts}


def _settle(
    shard: int,
    bench: Bench,
    *,
    number: int,
    shared: Any,
    portion: dict[int, Any],
    complete: int,
) -> None:
    with threadpool_limits(1):
        settlement = Settlement(
            number, bench.prepared(number), shared, portion.get(shard), complete
        )
        bench.settle(shard, settlement)


def _publish(shard: int, bench: Bench, *, rounds: int, into: Path) -> dict[str, Any]:
    bench.states.require_folder()
    if not into.is_dir():
        raise FileNotFoundError(
            f"{socket.gethostname()} does not see the folder {into} of the results; give one that "
            "all workers of the cluster share."
        )
    return bench.publish(shard, rounds, into)
