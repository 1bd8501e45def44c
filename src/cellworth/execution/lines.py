"""The line of requests: a bounded number is with the workers, answers wait for their turn."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from cellworth.execution.books import Ready
from cellworth.execution.crews import AHEAD, Crew, Later, Lost, sound
from cellworth.execution.diaries import Diary
from cellworth.execution.signals import Interrupts
from cellworth.packing import n_bytes, packed

# Requests beyond the one whose turn it is, for each that may be in flight: where one takes long,
# the others need not wait, but what they brought must be kept somewhere.
_UNFOLDED = 4
_HEAVY = 16 * 2**20
_SECONDS_TO_FLUSH = 1.0


class Line:
    """Requests on their way to a crew and back.

    Parameters
    ----------
    crew : Crew
    requests : iterable
        There may be no end to them; they are asked for as there is room.
    diary : Diary
        Gets every answer before anything else is done with it.
    interrupts : Interrupts
        Signals are let in while answers are waited for.
    """

    def __init__(
        self, crew: Crew, requests: Iterable[Any], diary: Diary, interrupts: Interrupts
    ) -> None:
        """Begin with nothing sent."""
        self._crew, self._diary, self._interrupts = crew, diary, interrupts
        self._coming = enumerate(requests)
        self._asked: dict[int, Any] = {}
        self._answers: dict[int, Any] = {}
        self._flying: set[int] = set()
        self._heavy = False

    def in_order(
        self, seconds_left: Callable[[], float | None] = lambda: None
    ) -> Iterator[tuple[Any, Any]]:
        """Requests with their answers, in the order of requests, until no time is left.

        An error is raised in its turn, so that it does not matter which later requests were begun.
        """
        turn = 0
        while self._fill():
            self._interrupts.check()
            if turn not in self._answers:
                left = seconds_left()
                if left is not None and left <= 0:
                    return
                self._wait(left)
                continue
            answer = self._loaded(self._answers.pop(turn))
            if isinstance(answer, Lost):
                self._send(turn, self._asked[turn])
                continue
            yield self._asked.pop(turn), sound(answer)
            # Let go of it before the next one is loaded: it may be large.
            del answer
            turn += 1

    def as_they_come(
        self, seconds_left: Callable[[], float | None] = lambda: None
    ) -> Iterator[Any]:
        """Requests whose answers are in the diary, in any order, until no time is left."""
        while self._fill():
            left = seconds_left()
            if left is not None and left <= 0:
                return
            self._wait(left)
            for place in list(self._answers):
                answer = self._answers.pop(place)
                if isinstance(answer, Lost):
                    self._send(place, self._asked[place])
                else:
                    sound(answer)
                    yield self._asked.pop(place)

    def _fill(self) -> bool:
        """Send as much as may be on its way; tell whether anything is."""
        capacity = self._crew.capacity
        most = capacity // AHEAD + 1 if self._heavy else _UNFOLDED * capacity
        while len(self._flying) < capacity and len(self._asked) < most:
            place, request = next(self._coming, (None, None))
            if place is None:
                break
            if isinstance(request, Ready):
                self._asked[place], self._answers[place] = request.request, request.answer
            else:
                self._send(place, request)
        return bool(self._asked)

    def _send(self, place: int, request: Any) -> None:
        self._asked[place] = request
        self._flying.add(place)
        self._crew.submit(place, request)

    def _wait(self, seconds: float | None) -> None:
        if self._diary.writes:
            # What waits to share a file with others must not wait for hours.
            seconds = _SECONDS_TO_FLUSH if seconds is None else min(seconds, _SECONDS_TO_FLUSH)
        with self._interrupts.allowed():
            done = self._crew.completed(seconds)
        if not done:
            self._diary.flush()
        for place, answer in done:
            self._flying.discard(place)
            self._heavy = self._heavy or _is_heavy(answer)
            if self._diary.writes:
                self._answers[place] = self._diary.kept(self._asked[place], self._loaded(answer))
            else:
                self._answers[place] = answer

    def _loaded(self, answer: Any) -> Any:
        if not isinstance(answer, Later):
            return answer
        # From a worker of a cluster, it may take long.
        with self._interrupts.allowed():
            return answer.load()


def _is_heavy(answer: Any) -> bool:
    """Whether answers like this should not pile up in memory before their turn comes."""
    return dataclasses.is_dataclass(answer) and n_bytes(packed(answer)) >= _HEAVY
