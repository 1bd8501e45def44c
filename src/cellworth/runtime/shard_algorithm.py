"""ShardAlgorithm: what a run does with the shards of a table, and where shards are kept."""

from __future__ import annotations

import re
import socket
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from cellworth.files import written_atomically
from cellworth.packing import Plain, PlainFile, prefixed, write_plain
from cellworth.runtime.checkpoint import explain_disk_errors

# Arrays by name, which belong to one shard and are about as large as its values.
ShardState = dict[str, NDArray[Any]]
_SECONDS_TO_KEEP = 60.0
# Rounds that may be in flight at a time, so that a shard may be so far ahead of another.
MOST_IN_FLIGHT = 3
_NAME = re.compile(r"shard-(?P<shard>\d{6})-(?P<rounds>\d{8})\.npz")
_CONTENT = "state"


@dataclass(frozen=True, eq=False)
class RoundResult:
    """What all shards together know of a round.

    Parameters
    ----------
    shared : object
        Goes to every shard; some megabytes.
    per_shard : mapping
        From shards to the data that only they need; a shard may have none.
    report : dict
        Small arrays and plain values for the driver process.
    """

    shared: Any
    per_shard: Mapping[int, Any]
    report: Plain

    def __sizeof__(self) -> int:
        """Bytes of the most of it: a cluster asks, to keep work where most of it is."""
        return int(getattr(self.shared, "nbytes", 0))


class ShardAlgorithm(Protocol):
    """The plan of one run; it travels to workers, and all of it is pure.

    Rounds are numbered from 0. In a round every shard is looked at, what was seen is merged and
    resolved, and every shard settles: it adds what the round brought to a state of its own. Only
    that state may be changed: anything else may be in use elsewhere, and its arrays read-only.
    """

    @property
    def n_shards(self) -> int:
        """How many shards the table has."""
        ...

    def open(self, shard: int, /) -> Any:
        """Rows of a shard, from their file; they are kept between rounds where there is room."""
        ...

    def prepare(self, number: int, /) -> Any:
        """What every shard needs to know before a round of this number; some megabytes."""
        ...

    def count(self, rows: Any, prepared: Any, /) -> Any:
        """First phase: a summary of a shard's rows."""
        ...

    def merge(self, one: Any, other: Any, /) -> Any:
        """Two summaries as one: the same in any order and any tree."""
        ...

    def finalize(self, prepared: Any, summary: Any, /) -> RoundResult:
        """Make of the summary of all shards what they need to settle."""
        ...

    def initial_state(self, rows: Any, /) -> ShardState:
        """ShardState of a shard before its first round."""
        ...

    def accumulate(
        self, rows: Any, prepared: Any, shared: Any, part: Any, state: ShardState, /
    ) -> ShardState:
        """Second phase: a shard's state after the round; it may change the one it gets."""
        ...

    def write(self, rows: Any, state: ShardState, shard: int, folder: Path, /) -> dict[str, Any]:
        """Write the result of a shard into a folder; what is returned can be written as JSON.

        It may change the state that it gets. Asked again for the same, it writes the same.
        """
        ...


@dataclass(frozen=True, eq=False)
class ShardRunResult:
    """How a run over shards ended.

    Parameters
    ----------
    reports : tuple of dict
        The report of each round, in order; earlier sessions included.
    entries : tuple of dict
        What publishing each shard returned.
    interrupted : bool
        Whether the user broke the run off; the rounds told are in the results all the same.
    seconds : float
        Time spent, earlier sessions included.
    """

    reports: tuple[Plain, ...]
    entries: tuple[dict[str, Any], ...]
    interrupted: bool
    seconds: float


def as_arrays(state: Mapping[str, Any]) -> ShardState:
    """Refuse what is not a state: it would be written otherwise than it is."""
    for name, array in state.items():
        if not isinstance(array, np.ndarray):
            raise TypeError(f"{name} of a state is {type(array).__name__}; give an array.")
    return dict(state)


@dataclass(frozen=True, eq=False)
class RoundUpdate:
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


class ShardCache:
    """Works on shards of one run, in one process; any number of threads may ask at a time.

    Everything on it can be had again: rows from their files, states from the run's folder. Sent to
    another process, it arrives empty; sent there again, it is the one that arrived before.

    Parameters
    ----------
    algorithm : ShardAlgorithm
    states : ShardCheckpoint
    n_cached : int
        Shards whose rows and states are held at a time, those that are worked on included. More
        are held only while more threads than that work.
    """

    def __init__(
        self,
        algorithm: ShardAlgorithm,
        states: ShardCheckpoint,
        n_cached: int,
        name: str | None = None,
    ) -> None:
        """Begin with nothing open."""
        self.algorithm, self.states, self.n_cached = algorithm, states, n_cached
        self.name = name or uuid4().hex
        self.last_used = time.monotonic()
        self._lock = threading.Lock()
        self._shards: OrderedDict[int, _CachedShard] = OrderedDict()
        self._prepared: dict[int, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel without what lies on it."""
        return _arrived, (self.algorithm, self.states, self.n_cached, self.name)

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
            found = self.algorithm.prepare(number)
            self.keep(number, found)
        return found

    def count(self, shard: int, prepared: Any) -> Any:
        """Summary of a shard."""
        with self.hold(shard) as place:
            return self.algorithm.count(place.rows, prepared)

    def accumulate(self, shard: int, settlement: RoundUpdate) -> None:
        """Have a shard settle a round, unless it has: the state in the folder tells."""
        number = settlement.number
        if self.states.holds(shard, number + 1):
            return
        with self.hold(shard) as place, place.settling:
            state = self._state(place, shard, number)
            # What is left of it if settling fails is no state.
            place.state = None
            state = self.algorithm.accumulate(
                place.rows, settlement.prepared, settlement.shared, settlement.part, state
            )
            self.states.write(shard, number + 1, state, settlement.complete)
            place.state = number + 1, state

    def write(self, shard: int, rounds: int, into: Path) -> dict[str, Any]:
        """Write the result of a shard after so many rounds."""
        with self.hold(shard) as place, place.settling:
            state = self._state(place, shard, rounds)
            # It may be changed on the way into a file.
            place.state = None
            return self.algorithm.write(place.rows, state, shard, into)

    def _state(self, place: _CachedShard, shard: int, rounds: int) -> ShardState:
        if place.state is not None and place.state[0] == rounds:
            return place.state[1]
        # One at a time: it is as large as the other.
        place.state = None
        return (
            self.algorithm.initial_state(place.rows)
            if rounds == 0
            else self.states.read(shard, rounds)
        )

    @contextmanager
    def hold(self, shard: int) -> Iterator[_CachedShard]:
        """Where a shard lies, which is not cleared in here; after that, once others need room."""
        with self._lock:
            place = self._shards.setdefault(shard, _CachedShard())
            self._shards.move_to_end(shard)
            place.n_users += 1
            self._clear()
        try:
            with place.opening:
                if not place.is_open:
                    place.rows = self.algorithm.open(shard)
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
            busy = any(place.n_users for place in self._shards.values())
        return not busy and time.monotonic() - self.last_used > _SECONDS_TO_KEEP

    def _clear(self) -> None:
        idle = [shard for shard, place in self._shards.items() if place.n_users == 0]
        for shard in idle[: max(len(self._shards) - self.n_cached, 0)]:
            del self._shards[shard]


# Dask drops copies of a cache from workers that have nothing to do for a moment, and what lies on
# it with them; so the latest one is held here, for a while.
_held: dict[str, ShardCache] = {}
_holding = threading.Lock()


def _arrived(
    algorithm: ShardAlgorithm, states: ShardCheckpoint, n_cached: int, name: str
) -> ShardCache:
    with _holding:
        if name not in _held:
            _held.clear()
            _held[name] = ShardCache(algorithm, states, n_cached, name)
            _let_go_later(_held[name])
        return _held[name]


def _let_go_later(cache: ShardCache) -> None:
    timer = threading.Timer(_SECONDS_TO_KEEP, _let_go, (cache,))
    timer.daemon = True
    timer.start()


def _let_go(cache: ShardCache) -> None:
    with _holding:
        if _held.get(cache.name) is not cache:
            return
        if cache.is_idle:
            del _held[cache.name]
            return
    _let_go_later(cache)


@dataclass(eq=False)
class _CachedShard:
    """A shard's rows, and its latest state with the rounds that it has settled."""

    rows: Any = None
    is_open: bool = False
    state: tuple[int, ShardState] | None = None
    n_users: int = 0
    opening: threading.Lock = field(default_factory=threading.Lock)
    settling: threading.Lock = field(default_factory=threading.Lock)


class RecoverableError(Exception):
    """Something was lost that can be had again: look around and go on from there."""


class DamagedStateError(RecoverableError):
    """A file does not hold the state that its name promises."""

    def __init__(self, path: Path, reason: str) -> None:
        """Remember where and why."""
        super().__init__(path, reason)
        self.path, self.reason = path, reason


class MissingStateError(RecoverableError):
    """A state is not there, which was seen a moment ago."""


@dataclass(frozen=True)
class ShardCheckpoint:
    """ShardCheckpoint of the shards of one run; any number of processes may read and write them.

    A state that has settled n rounds is written once, under a name of its own, and never changed:
    who finds it there need not settle again. So a round counts once, whoever is killed.

    Parameters
    ----------
    folder : Path
    run : str
        Fingerprint of the run, which stands in every file.
    durable : bool
        Whether states shall outlive a machine that stops, and not only killed processes.
    """

    folder: Path
    run: str
    durable: bool

    def holds(self, shard: int, rounds: int) -> bool:
        """Whether a shard has settled so many rounds."""
        path = self._path(shard, rounds)
        try:
            return self._head(path) == (self.run, shard, rounds)
        except (FileNotFoundError, DamagedStateError):
            return False

    def read(self, shard: int, rounds: int) -> ShardState:
        """ShardState after so many rounds; its checksums are looked at."""
        path = self._path(shard, rounds)
        try:
            if self._head(path) != (self.run, shard, rounds):
                raise DamagedStateError(path, "it belongs to another run, shard or round")
            (state,) = PlainFile(path).read(_CONTENT)
        except FileNotFoundError as error:
            raise MissingStateError(f"{path} is gone; has somebody deleted it?") from error
        except ValueError as error:
            raise DamagedStateError(path, str(error)) from error
        return state

    def write(self, shard: int, rounds: int, state: ShardState, complete: int) -> None:
        """Keep a state; those before the rounds that all shards have settled go."""
        head = {"run": self.run, "shard": shard, "rounds": rounds}
        with (
            explain_disk_errors(self.folder),
            written_atomically(self._path(shard, rounds), durable=self.durable) as file,
        ):
            write_plain(file, head | prefixed(_CONTENT, as_arrays(state)))
        # The one before stays, even if all are as far: should this one be damaged, one round is
        # lost and not the run.
        before = min(complete, rounds - 1)
        for old in range(max(before - MOST_IN_FLIGHT - 1, 1), before):
            self._path(shard, old).unlink(missing_ok=True)

    def found(self, n_shards: int) -> list[range]:
        """By shard, the numbers of rounds after which there is a state: without gaps, latest last.

        A shard without any has settled 0 rounds.
        """
        kept: list[list[int]] = [[] for _ in range(n_shards)]
        for path in sorted(self.folder.iterdir()):
            match = _NAME.fullmatch(path.name)
            if match is None:
                continue
            shard, rounds = int(match["shard"]), int(match["rounds"])
            if self._is_sound(path, shard, rounds):
                kept[shard].append(rounds)
        found = [_latest_without_gaps(rounds) for rounds in kept]
        for shard, there in enumerate(kept):
            for old in set(there).difference(found[shard]):
                # Left by a process that was thought to be dead.
                self._path(shard, old).unlink(missing_ok=True)
        return found

    def require_folder(self) -> None:
        """Refuse to work where the folder cannot be seen."""
        require_folder(self.folder)

    def _is_sound(self, path: Path, shard: int, rounds: int) -> bool:
        try:
            head = self._head(path)
        except FileNotFoundError:
            return False
        except DamagedStateError as damaged:
            set_aside(damaged)
            return False
        if head != (self.run, shard, rounds):
            raise ValueError(
                f"{path} belongs to another run than manifest.json beside it; take it out of the "
                "folder."
            )
        return True

    def _head(self, path: Path) -> tuple[str, int, int]:
        try:
            head = PlainFile(path).rest
            return head["run"], int(head["shard"]), int(head["rounds"])
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedStateError(path, str(error)) from error

    def _path(self, shard: int, rounds: int) -> Path:
        return self.folder / f"shard-{shard:06d}-{rounds:08d}.npz"


def require_folder(folder: Path) -> None:
    """Refuse to work where a folder cannot be seen: a cluster's machines must share it."""
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{socket.gethostname()} does not see the folder {folder} of the run; give a "
            "checkpoint in a folder that all workers of the cluster share."
        )


def _latest_without_gaps(rounds: list[int]) -> range:
    if not rounds:
        return range(1)
    first = last = rounds[-1]
    while first - 1 in rounds:
        first -= 1
    return range(first, last + 1)


def set_aside(damaged: DamagedStateError) -> bool:
    """Give a damaged file another name, if it is there: the shard goes on from the state before."""
    other = damaged.path.with_name(f"damaged-{damaged.path.name}")
    try:
        damaged.path.rename(other)
    except FileNotFoundError:
        # It was deleted, or another process was faster.
        return False
    warnings.warn(
        f"{damaged.path} is damaged ({damaged.reason}); it is set aside as {other.name}, and its "
        "round is done again.",
        stacklevel=2,
    )
    return True
