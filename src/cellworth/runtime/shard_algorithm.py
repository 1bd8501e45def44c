"""ShardAlgorithm: what a round over shards computes, its state and its run context."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from cellworth.data.io import (
    Plain,
    PlainFile,
    add_prefix,
    hash_json,
    remove_prefix,
    write_atomically,
    write_plain,
)
from cellworth.runtime.checkpoint import DirectoryCheckpoint, explain_disk_errors, set_aside
from cellworth.runtime.stopping import CheckpointLog, ProgressReporter
from cellworth.runtime.workers import Interrupts, RecoverableError

# Arrays by name that belong to one shard; together about as large as its values.
ShardState = dict[str, NDArray[Any]]
# A round is counted while the one before it is accumulated; so far may one shard be ahead.
MOST_IN_FLIGHT = 2
_SECONDS_TO_KEEP = 60.0
_NAME = re.compile(r"shard-(?P<shard>\d{6})-(?P<rounds>\d{8})\.npz")
_CONTENT = "state"


@dataclass(frozen=True, eq=False)
class RoundResult:
    """Result of a round over all shards."""

    # Sent to every shard; a few megabytes.
    shared: Any
    # What only one shard needs; a shard may need nothing.
    per_shard: Mapping[int, Any]
    # Small arrays and plain values for the driver process.
    report: Plain

    def __sizeof__(self) -> int:
        """Return the size of the shared part: Dask uses it to keep tasks near their data."""
        return int(getattr(self.shared, "nbytes", 0))


class ShardAlgorithm(Protocol):
    """The algorithm of one run; it is sent to workers, and all of its methods are pure.

    Rounds are numbered from 0. A round counts every shard, merges the summaries, finalizes them
    into one result, and has every shard accumulate that result in its own state. A method may
    change only that state: everything else may be in use elsewhere or read-only.
    """

    @property
    def n_shards(self) -> int:
        """Number of shards of the table."""

    def open(self, shard: int, /) -> Any:
        """Open the rows of a shard; they stay in memory between rounds if there is room."""

    def prepare(self, number: int, /) -> Any:
        """Compute the input that every shard needs for a round; a few megabytes."""

    def count(self, rows: Any, prepared: Any, /) -> Any:
        """Summarize the rows of a shard (first phase)."""

    def merge(self, one: Any, other: Any, /) -> Any:
        """Merge two summaries; any order and any tree must give the same result."""

    def finalize(self, prepared: Any, summary: Any, /) -> RoundResult:
        """Compute the result of a round from the summary of all shards."""

    def initial_state(self, rows: Any, /) -> ShardState:
        """Return the state of a shard before its first round."""

    def accumulate(
        self, rows: Any, prepared: Any, shared: Any, own: Any, state: ShardState, /
    ) -> ShardState:
        """Add a round to a shard's state (second phase); it may be changed in place."""

    def write(self, rows: Any, state: ShardState, shard: int, folder: Path, /) -> dict[str, Any]:
        """Write the result of a shard into a folder; return an entry that JSON can hold.

        It may change the state. A repeated call with the same input writes the same files.
        """


@dataclass(frozen=True)
class ShardCheckpoint:
    """States of the shards of one run in a folder; many processes may read and write them.

    The state after n rounds is written once, under its own name, and never changed. A process
    that finds it does not compute it again, so a round counts once even if workers are killed.
    """

    folder: Path
    # Hash of the run's identity, stored in every file.
    run: str
    # Whether states must survive a crash of the machine, and not only killed processes.
    durable: bool

    def holds(self, shard: int, rounds: int) -> bool:
        """Return whether the state of a shard after so many rounds is stored."""
        try:
            return self._read_head(self._path(shard, rounds)) == (self.run, shard, rounds)
        except (FileNotFoundError, DamagedStateError):
            return False

    def read(self, shard: int, rounds: int) -> ShardState:
        """Read the state after so many rounds and verify its checksums."""
        path = self._path(shard, rounds)
        try:
            if self._read_head(path) != (self.run, shard, rounds):
                raise DamagedStateError(path, "it belongs to another run, shard or round")
            (state,) = PlainFile(path).read(_CONTENT)
        except FileNotFoundError as error:
            raise MissingStateError(f"{path} is missing; was it deleted?") from error
        except ValueError as error:
            raise DamagedStateError(path, str(error)) from error
        return state

    def write(self, shard: int, rounds: int, state: ShardState, complete: int) -> None:
        """Write a state; delete states older than the rounds that all shards have."""
        head = {"run": self.run, "shard": shard, "rounds": rounds}
        with (
            explain_disk_errors(self.folder),
            write_atomically(self._path(shard, rounds), durable=self.durable) as file,
        ):
            write_plain(file, head | add_prefix(_CONTENT, check_arrays(state)))
        # Keep the previous state: if this one is damaged, one round is lost and not the run.
        before = min(complete, rounds - 1)
        for old in range(max(before - MOST_IN_FLIGHT - 1, 1), before):
            self._path(shard, old).unlink(missing_ok=True)

    def find(self, n_shards: int) -> list[range]:
        """Return, by shard, the consecutive numbers of rounds with a state, the latest last.

        A shard without any state has accumulated 0 rounds.
        """
        kept: list[list[int]] = [[] for _ in range(n_shards)]
        for path in sorted(self.folder.iterdir()):
            match = _NAME.fullmatch(path.name)
            if match is None:
                continue
            shard, rounds = int(match["shard"]), int(match["rounds"])
            if self._is_valid(path, shard, rounds):
                kept[shard].append(rounds)
        found = [_latest_consecutive(rounds) for rounds in kept]
        for shard, there in enumerate(kept):
            for old in set(there).difference(found[shard]):
                # Left by a process that was believed to be dead.
                self._path(shard, old).unlink(missing_ok=True)
        return found

    def _is_valid(self, path: Path, shard: int, rounds: int) -> bool:
        try:
            head = self._read_head(path)
        except FileNotFoundError:
            return False
        except DamagedStateError as damaged:
            set_state_aside(damaged)
            return False
        if head != (self.run, shard, rounds):
            raise ValueError(
                f"{path} belongs to another run than manifest.json beside it; remove it from the "
                "folder."
            )
        return True

    def _read_head(self, path: Path) -> tuple[str, int, int]:
        try:
            head = PlainFile(path).rest
            return head["run"], int(head["shard"]), int(head["rounds"])
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedStateError(path, str(error)) from error

    def _path(self, shard: int, rounds: int) -> Path:
        return self.folder / f"shard-{shard:06d}-{rounds:08d}.npz"


@dataclass(frozen=True, eq=False)
class RoundUpdate:
    """Everything that a shard needs to accumulate a round."""

    number: int
    shared: Any
    # What only this shard needs.
    own: Any
    # Rounds that all shards have accumulated; earlier states can be deleted.
    complete: int


@dataclass(eq=False)
class _CachedShard:
    """Rows of a shard, and its latest state with the number of rounds in it."""

    rows: Any = None
    is_open: bool = False
    state: tuple[int, ShardState] | None = None
    n_users: int = 0
    opening: threading.Lock = field(default_factory=threading.Lock)
    updating: threading.Lock = field(default_factory=threading.Lock)


class ShardCache:
    """Rows and states of the shards of one run in one process; safe for many threads.

    Everything in it can be loaded again: rows from their files, states from the checkpoint.
    Pickled to another process, it arrives empty; pickled there again, it is the same object. It
    holds ``n_cached`` shards at a time, and more only while more threads are at work; None stands
    for as many as were at work at a time.
    """

    def __init__(
        self,
        algorithm: ShardAlgorithm,
        states: ShardCheckpoint,
        n_cached: int | None = None,
        name: str | None = None,
    ) -> None:
        self.algorithm = algorithm
        self.states = states
        self.n_cached = n_cached
        self.name: str = name or uuid4().hex
        self.last_used: float = time.monotonic()
        self._most_users = 1
        self._lock = threading.Lock()
        self._shards: OrderedDict[int, _CachedShard] = OrderedDict()
        self._prepared: dict[int, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without rows and states."""
        return _unpickle_cache, (self.algorithm, self.states, self.n_cached, self.name)

    def keep_prepared(self, number: int, prepared: Any) -> None:
        """Keep the input of a round while it may be in flight."""
        with self._lock:
            self._prepared[number] = prepared
            for old in sorted(self._prepared)[:-MOST_IN_FLIGHT]:
                del self._prepared[old]

    def get_prepared(self, number: int) -> Any:
        """Return the input of a round; compute it again if this process did not count it."""
        with self._lock:
            found = self._prepared.get(number)
        if found is None:
            found = self.algorithm.prepare(number)
            self.keep_prepared(number, found)
        return found

    def count(self, shard: int, prepared: Any) -> Any:
        """Summarize a shard."""
        with self.hold(shard) as held:
            return self.algorithm.count(held.rows, prepared)

    def accumulate(self, shard: int, update: RoundUpdate) -> None:
        """Add a round to a shard's state, unless the checkpoint has that state already."""
        number = update.number
        if self.states.holds(shard, number + 1):
            return
        with self.hold(shard) as held, held.updating:
            state = self._get_state(held, shard, number)
            # If the update fails, the half-changed state must not be used again.
            held.state = None
            state = self.algorithm.accumulate(
                held.rows, self.get_prepared(number), update.shared, update.own, state
            )
            self.states.write(shard, number + 1, state, update.complete)
            held.state = number + 1, state

    def write(self, shard: int, rounds: int, into: Path) -> dict[str, Any]:
        """Write the result of a shard after so many rounds."""
        with self.hold(shard) as held, held.updating:
            state = self._get_state(held, shard, rounds)
            # Writing may change it.
            held.state = None
            return self.algorithm.write(held.rows, state, shard, into)

    def _get_state(self, held: _CachedShard, shard: int, rounds: int) -> ShardState:
        if held.state is not None and held.state[0] == rounds:
            return held.state[1]
        # Free the old state before loading another: both may be large.
        held.state = None
        if rounds == 0:
            return self.algorithm.initial_state(held.rows)
        return self.states.read(shard, rounds)

    @contextmanager
    def hold(self, shard: int) -> Iterator[_CachedShard]:
        """Open a shard and keep it open in here; afterwards it may be evicted."""
        with self._lock:
            held = self._shards.setdefault(shard, _CachedShard())
            self._shards.move_to_end(shard)
            held.n_users += 1
            n_users = sum(held.n_users > 0 for held in self._shards.values())
            self._most_users = max(self._most_users, n_users)
            self._evict()
        try:
            with held.opening:
                if not held.is_open:
                    held.rows = self.algorithm.open(shard)
                    held.is_open = True
            yield held
        finally:
            with self._lock:
                held.n_users -= 1
                self.last_used = time.monotonic()

    @property
    def is_idle(self) -> bool:
        """Whether it has not been used for a minute."""
        with self._lock:
            busy = any(held.n_users for held in self._shards.values())
        return not busy and time.monotonic() - self.last_used > _SECONDS_TO_KEEP

    def _evict(self) -> None:
        idle = [shard for shard, held in self._shards.items() if held.n_users == 0]
        for shard in idle[: max(len(self._shards) - (self.n_cached or self._most_users), 0)]:
            del self._shards[shard]


# Dask drops the cache object from workers that are idle for a moment, and its contents with it.
# So this module holds the latest one for a while.
_held: dict[str, ShardCache] = {}
_holding = threading.Lock()
# Called with the reports of all rounds so far; True ends the run after these rounds.
Enough = Callable[[Sequence[Plain]], bool]
_REPORT = "report"
_SECONDS = "seconds"


@dataclass(frozen=True, eq=False)
class ShardRunResult:
    """How a run over shards ended; reports and seconds of earlier sessions are included.

    If the user interrupted the run, the results cover the reported rounds.
    """

    reports: tuple[Plain, ...]
    # What ShardAlgorithm.write returned for each shard.
    entries: tuple[dict[str, Any], ...]
    interrupted: bool
    seconds: float


def _unpickle_cache(
    algorithm: ShardAlgorithm, states: ShardCheckpoint, n_cached: int | None, name: str
) -> ShardCache:
    with _holding:
        if name not in _held:
            _held.clear()
            _held[name] = ShardCache(algorithm, states, n_cached, name)
            _release_later(_held[name])
        return _held[name]


def _release_later(cache: ShardCache) -> None:
    def release_if_idle() -> None:
        with _holding:
            if cache.is_idle and _held.get(cache.name) is cache:
                del _held[cache.name]
            if _held.get(cache.name) is cache:
                _release_later(cache)

    timer = threading.Timer(_SECONDS_TO_KEEP, release_if_idle)
    timer.daemon = True
    timer.start()


class DamagedStateError(RecoverableError):
    """A file does not contain the state that its name promises."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path: Path = path
        self.reason: str = reason


class MissingStateError(RecoverableError):
    """A state that was found earlier is gone."""


def check_folder(folder: Path) -> None:
    """Raise if this machine cannot see a folder: all machines of a cluster must share it."""
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{socket.gethostname()} does not see the folder {folder} of the run; give a "
            "checkpoint in a folder that all workers of the cluster share."
        )


def check_arrays(state: Mapping[str, Any]) -> ShardState:
    """Raise unless all values of a state are arrays: others would not be read as written."""
    for name, array in state.items():
        if not isinstance(array, np.ndarray):
            raise TypeError(f"{name} of a state must be an array, got {type(array).__name__}.")
    return dict(state)


def _latest_consecutive(rounds: list[int]) -> range:
    if not rounds:
        return range(1)
    first = last = rounds[-1]
    while first - 1 in rounds:
        first -= 1
    return range(first, last + 1)


def set_state_aside(damaged: DamagedStateError) -> bool:
    """Rename a damaged file, if it exists; the shard resumes from the previous state."""
    return set_aside(damaged.path, damaged.reason, "round is")


class ShardProgress:
    """How many rounds each shard has accumulated during a run.

    It begins with ``found``: by shard, the numbers of rounds after which there is a state.
    """

    def __init__(self, found: list[range], reports: Mapping[int, Plain]) -> None:
        self._accumulated: list[int] = [rounds[-1] for rounds in found]
        unknown = next(number for number in range(len(reports) + 1) if number not in reports)
        # Rounds that all shards have accumulated and that have a report.
        self.complete: int = min(*self._accumulated, unknown)
        # Before that, the state of some shard has been deleted.
        self.earliest: int = max(rounds[0] for rounds in found)

    def count_accumulated(self, shard: int) -> int:
        """Return the number of rounds that a shard has accumulated."""
        return self._accumulated[shard]

    def find_pending(self, number: int) -> list[int]:
        """Return the shards that have not accumulated a round."""
        return [shard for shard, rounds in enumerate(self._accumulated) if rounds <= number]

    def record(self, shard: int, number: int) -> None:
        """Record that a shard has accumulated a round."""
        self._accumulated[shard] = max(self._accumulated[shard], number + 1)

    def finish(self, number: int) -> None:
        """Record that a round is done."""
        self.complete = max(self.complete, number + 1)


class RoundsCheckpoint:
    """Checkpoint of a run over shards: reports of rounds, states of shards.

    ``identity`` holds everything that determines what rounds compute and report; the checkpoint of
    another run raises an error. ``durable`` says whether the folder must outlive the run.
    """

    def __init__(
        self, folder: Path, identity: Mapping[str, Any], n_shards: int, *, durable: bool
    ) -> None:
        self._directory = DirectoryCheckpoint(folder)
        self._directory.open(identity)
        self._began, self._seconds_before = time.perf_counter(), 0.0
        self._reports: dict[int, Plain] = {}
        self._log = CheckpointLog() if durable else None
        # Hash the identity as it will be read back from JSON.
        run = hash_json(json.loads(json.dumps(identity)))
        self.states: ShardCheckpoint = ShardCheckpoint(folder.absolute(), run, durable)
        self._n_shards = n_shards
        for number, load in self._directory.answers():
            record = load()
            if record is not None:
                self._reports[number] = remove_prefix(_REPORT, record)
                self._seconds_before = max(self._seconds_before, float(record[_SECONDS]))

    @property
    def seconds(self) -> float:
        """Time spent so far, earlier sessions included."""
        return self._seconds_before + time.perf_counter() - self._began

    def record(self, number: int, report: Plain) -> None:
        """Write the report of a round, before any shard accumulates the round."""
        if number not in self._reports:
            record = add_prefix(_REPORT, report) | {_SECONDS: self.seconds}
            self._directory.write_answer(number, record)
            self._directory.flush()
            self._reports[number] = report
            if self._log is not None:
                self._log.record(self._directory, rounds=number + 1)

    def reports(self, n_rounds: int) -> tuple[Plain, ...]:
        """Return the reports of the first rounds."""
        return tuple(self._reports[number] for number in range(n_rounds))

    def read_progress(self) -> ShardProgress:
        """Find out how far the shards are, from their states in the folder."""
        return ShardProgress(self.states.find(self._n_shards), self._reports)


@dataclass(frozen=True, eq=False)
class RunContext:
    """One attempt at a run, until it is done, is interrupted, or finds something lost."""

    algorithm: ShardAlgorithm
    n_rounds: int
    enough: Enough | None
    checkpoint: RoundsCheckpoint
    progress: ShardProgress
    # Counts phases of shards.
    reporter: ProgressReporter
    interrupts: Interrupts
    title: str

    def needs_round(self, number: int) -> bool:
        """Return whether a round is to be done, given the reports of all rounds before it."""
        if number < self.progress.earliest:
            return True
        if number >= self.n_rounds:
            return False
        return not (number and self.enough and self.enough(self.checkpoint.reports(number)))

    def may_need_round(self, number: int) -> bool:
        """Return whether a round may be needed, as long as earlier reports are missing."""
        return number < max(self.progress.earliest, self.n_rounds)

    def begin(self) -> None:
        """Set the number of phases that the reporter expects."""
        n_rounds = max(self.n_rounds, self.progress.earliest) - self.progress.complete
        self.reporter.n_tasks = (
            self.reporter.n_done + 2 * max(n_rounds, 0) * self.algorithm.n_shards
        )

    def record_count(self) -> None:
        """Record that a shard has been counted."""
        self.reporter.advance()

    def record_accumulated(self, shard: int, number: int) -> None:
        """Record that a shard has accumulated a round."""
        self.progress.record(shard, number)
        self.reporter.advance()
