"""Hands: a crew that is kept busy, and no busier than its answers can be taken in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from cellworth.execution.crews import Crew, Later, Lost, sound
from cellworth.execution.signals import Interrupts


@dataclass(frozen=True)
class Hands:
    """Has requests answered side by side; no more are sent than can be, so that none pile up.

    Parameters
    ----------
    crew : Crew
    interrupts : Interrupts
        Signals are let in while answers are waited for.
    """

    crew: Crew
    interrupts: Interrupts

    def each(self, requests: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        """Places of requests and their answers, as they come; what is lost is asked for again."""
        coming, flying = enumerate(requests), dict[int, Any]()
        while True:
            while len(flying) < self.crew.capacity:
                place, request = next(coming, (None, None))
                if place is None:
                    break
                self._send(place, request, flying)
            if not flying:
                return
            with self.interrupts.allowed():
                done = self.crew.completed()
            for place, answer in done:
                request = flying.pop(place)
                here = answer.load() if isinstance(answer, Later) else answer
                if isinstance(here, Lost):
                    self._send(place, request, flying)
                else:
                    yield place, sound(here)

    def one(self, request: Any) -> Any:
        """Return the answer to a single request."""
        ((_, answer),) = self.each([request])
        return answer

    def _send(self, place: int, request: Any, flying: dict[int, Any]) -> None:
        self.crew.submit(place, request)
        flying[place] = request
