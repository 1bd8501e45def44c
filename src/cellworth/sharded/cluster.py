"""Rounds over shards on a Dask cluster: shards stay with workers, summaries meet in a tree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellworth.execution.cluster import lost_cluster_explained
from cellworth.packing import Plain
from cellworth.sharded import errands
from cellworth.sharded.benches import Bench
from cellworth.sharded.courses import Course
from cellworth.sharded.phases import Phases
from cellworth.sharded.sending import Sender, Watched
from cellworth.sharded.states import MOST_IN_FLIGHT, States
from cellworth.sharded.stations import FAN_IN, in_groups, stations


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
            given = {"rounds": rounds, "into": into}
            entries = tasks.for_shards(errands.publish, "publish", 0, shards, **given)
            n_left = len(shards)
            while n_left:
                n_left -= len(tasks.done())
            with course.interrupts.allowed():
                return [tasks.answer_of(entries[shard]) for shard in shards]

    @contextmanager
    def _tasks(self, course: Course) -> Iterator[Sender]:
        with lost_cluster_explained(self.client):
            n_places = self.n_places or max(self.client.nthreads().values(), default=1)
            tasks = Sender(
                self.client, Bench(self.phases, self.states, n_places), course.interrupts
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
    def __init__(self, tasks: Sender, course: Course) -> None:
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
                self._told[number] = self._tasks.answer_of(future)
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
                    errands.settle,
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
        prepared = tasks.one(errands.prepare, "prepare", str(number), home, bench, number)
        looks = tasks.for_shards(
            errands.look, "look", number, shards, number=number, prepared=prepared
        )
        sums = [
            self._merged([(worker, looks[shard]) for shard in mine[worker]], f"{number}-{place}")
            for place, worker in enumerate(around)
        ]
        whole = self._merged(list(zip(around, sums, strict=True)), f"{number}-all")
        resolved = tasks.one(errands.resolve, "resolve", str(number), home, bench, number, whole)
        told = tasks.one(errands.told, "told", str(number), home, resolved)
        tasks.watch(("told", number, 0), told)
        portions: dict[int, Any] = {}
        for place, of_one in enumerate(mine.values()):
            portion = tasks.one(
                errands.portion, "portion", f"{number}-{place}", home, resolved, of_one
            )
            portions |= dict.fromkeys(of_one, portion)
        shared = tasks.one(errands.shared, "shared", str(number), home, resolved)
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
        return self._tasks.one(
            errands.merge, "merge", place, group[0][0], self._tasks.bench, *parts
        )


def _by_portion(portions: dict[int, Any], shards: list[int]) -> list[tuple[Any, list[int]]]:
    found: dict[str, tuple[Any, list[int]]] = {}
    for shard in shards:
        found.setdefault(portions[shard].key, (portions[shard], []))[1].append(shard)
    return list(found.values())
