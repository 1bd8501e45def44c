"""Where shards are worked on: rows and states lie ready between rounds, as far as there is room."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from cellworth.sharded.phases import Phases, State
from cellworth.sharded.states import MOST_IN_FLIGHT, States

_SECONDS_TO_KEEP = 60.0


@dataclass(frozen=True, eq=False)
class Settlement:
    """What a round brought, for shards that settle it.

    Parameters
    ----------
    number : int
        Number of the round.
    prepared, shared : object
    part : object
        What only this shard needs.
    complete : int
        Rounds that all shards have settled; states before that are not needed any more.
    """

    number: int
    prepared: Any
    shared: Any
    part: Any
    complete: int


class Bench:
    """Works on shards of one run, in one process; any number of threads may ask at a time.

    Everything on it can be had again: rows from their files, states from the run's folder. Sent to
    another process, it arrives empty; sent there again, it is the one that arrived before.

    Parameters
    ----------
    phases : Phases
    states : States
    n_places : int
        Shards whose rows and states are held at a time, those that are worked on included. More
        are held only while more threads than that work.
    """

    def __init__(
        self, phases: Phases, states: States, n_places: int, name: str | None = None
    ) -> None:
        """Begin with nothing open."""
        self.phases, self.states, self.n_places = phases, states, n_places
        self.name = name or uuid4().hex
        self.last_used = time.monotonic()
        self._lock = threading.Lock()
        self._places: OrderedDict[int, _Place] = OrderedDict()
        self._prepared: dict[int, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel without what lies on it."""
        return _arrived, (self.phases, self.states, self.n_places, self.name)

    def keep(self, number: int, prepared: Any) -> None:
        """Keep what was prepared for a round until shards settle it; only of rounds in flight."""
        with self._lock:
            self._prepared[number] = prepared
            for old in sorted(self._prepared)[:-MOST_IN_FLIGHT]:
                del self._prepared[old]

    def prepared(self, number: int) -> Any:
        """What was prepared for a round; made again where the round was not looked at."""
        with self._lock:
            found = self._prepared.get(number)
        if found is None:
            found = self.phases.prepare(number)
            self.keep(number, found)
        return found

    def look(self, shard: int, prepared: Any) -> Any:
        """Summary of a shard."""
        with self.hold(shard) as place:
            return self.phases.look(place.rows, prepared)

    def settle(self, shard: int, settlement: Settlement) -> None:
        """Have a shard settle a round, unless it has: the state in the folder tells."""
        number = settlement.number
        if self.states.holds(shard, number + 1):
            return
        with self.hold(shard) as place, place.settling:
            state = self._state(place, shard, number)
            # What is left of it if settling fails is no state.
            place.state = None
            state = self.phases.settle(
                place.rows, settlement.prepared, settlement.shared, settlement.part, state
            )
            self.states.write(shard, number + 1, state, settlement.complete)
            place.state = number + 1, state

    def publish(self, shard: int, rounds: int, into: Path) -> dict[str, Any]:
        """Write the result of a shard after so many rounds."""
        with self.hold(shard) as place, place.settling:
            state = self._state(place, shard, rounds)
            # It may be changed on the way into a file.
            place.state = None
            return self.phases.publish(place.rows, state, shard, into)

    def _state(self, place: _Place, shard: int, rounds: int) -> State:
        if place.state is not None and place.state[0] == rounds:
            return place.state[1]
        # One at a time: it is as large as the other.
        place.state = None
        return self.phases.blank(place.rows) if rounds == 0 else self.states.read(shard, rounds)

    @contextmanager
    def hold(self, shard: int) -> Iterator[_Place]:
        """Where a shard lies, which is not cleared in here; after that, once others need room."""
        with self._lock:
            place = self._places.setdefault(shard, _Place())
            self._places.move_to_end(shard)
            place.n_users += 1
            self._clear()
        try:
            with place.opening:
                if not place.is_open:
                    place.rows = self.phases.open(shard)
                    place.is_open = True
            yield place
        finally:
            with self._lock:
                place.n_users -= 1
                self.last_used = time.monotonic()

    @property
    def is_idle(self) -> bool:
        """Whether nobody has worked on it for a while."""
        with self._lock:
            busy = any(place.n_users for place in self._places.values())
        return not busy and time.monotonic() - self.last_used > _SECONDS_TO_KEEP

    def _clear(self) -> None:
        idle = [shard for shard, place in self._places.items() if place.n_users == 0]
        for shard in idle[: max(len(self._places) - self.n_places, 0)]:
            del self._places[shard]


# Dask drops copies of a bench from workers that have nothing to do for a moment, and what lies on
# it with them; so the latest one is held here, for a while.
_held: dict[str, Bench] = {}
_holding = threading.Lock()


def _arrived(phases: Phases, states: States, n_places: int, name: str) -> Bench:
    with _holding:
        if name not in _held:
            _held.clear()
            _held[name] = Bench(phases, states, n_places, name)
            _let_go_later(_held[name])
        return _held[name]


def _let_go_later(bench: Bench) -> None:
    timer = threading.Timer(_SECONDS_TO_KEEP, _let_go, (bench,))
    timer.daemon = True
    timer.start()


def _let_go(bench: Bench) -> None:
    with _holding:
        if _held.get(bench.name) is not bench:
            return
        if bench.is_idle:
            del _held[bench.name]
            return
    _let_go_later(bench)


@dataclass(eq=False)
class _Place:
    """A shard's rows, and its latest state with the rounds that it has settled."""

    rows: Any = None
    is_open: bool = False
    state: tuple[int, State] | None = None
    n_users: int = 0
    opening: threading.Lock = field(default_factory=threading.Lock)
    settling: threading.Lock = field(default_factory=threading.Lock)
