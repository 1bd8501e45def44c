"""Rounds over shards in threads of this process: a round passes over the shards once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cellworth.execution.executors import Executor
from cellworth.sharded.benches import Bench, Settlement
from cellworth.sharded.courses import Course
from cellworth.sharded.hands import Hands
from cellworth.sharded.memory import give_back
from cellworth.sharded.phases import Resolved

Job = Callable[[], Any]


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
