"""ShardAlgorithm: what a round over shards computes, its state and its run context."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from cellworth.data.io import AnyPath, Plain
from cellworth.runtime.checkpoint import (
    MAX_IN_FLIGHT,
    RoundsCheckpoint,
    ShardCheckpoint,
    ShardState,
    check_folder,
)
from cellworth.runtime.executors import Executor
from cellworth.runtime.progress import Progress, ProgressReporter, ShardSummary
from cellworth.runtime.stopping import StoppingRule
from cellworth.runtime.workers import Interrupts, WorkerPool

_SECONDS_TO_KEEP = 60.0


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

    def measure(self, state: ShardState, /) -> Plain:
        """Return what a stopping rule needs to know of a shard's state; a few numbers."""

    def summarize(
        self, reports: Sequence[Plain], measures: Sequence[Plain] | None, /
    ) -> ShardSummary:
        """Summarize a run from the reports of rounds and the measures of all shards, if known."""

    def write(self, rows: Any, state: ShardState, shard: int, folder: AnyPath, /) -> dict[str, Any]:
        """Write the result of a shard into a folder; return a small entry, also of arrays.

        It may change the state. A repeated call with the same input writes the same files.
        """


@dataclass(eq=False)
class _CachedShard:
    """Rows of a shard, and its latest state with the number of rounds in it."""

    rows: Any = None
    state: tuple[int, ShardState] | None = None
    n_users: int = 0
    opening: threading.Lock = field(default_factory=threading.Lock)
    updating: threading.Lock = field(default_factory=threading.Lock)


class ShardCache:
    """Rows and states of the shards of one run in one process; safe for many threads.

    Everything in it can be loaded again: rows from their files, states from the checkpoint.
    Pickled to another process, it arrives empty; pickled there again, it is the same object. It
    holds as many shards as threads were at work at a time.
    """

    def __init__(
        self,
        algorithm: ShardAlgorithm,
        states: ShardCheckpoint,
        name: str | None = None,
    ) -> None:
        self.algorithm = algorithm
        self.states = states
        self.name: str = name or uuid4().hex
        self.last_used: float = time.monotonic()
        self._most_users = 1
        self._lock = threading.Lock()
        self._shards: OrderedDict[int, _CachedShard] = OrderedDict()
        self._prepared: dict[int, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without rows and states."""
        return _unpickle_cache, (self.algorithm, self.states, self.name)

    def keep_prepared(self, number: int, prepared: Any) -> None:
        """Keep the input of a round while it may be in flight."""
        with self._lock:
            self._prepared[number] = prepared
            for old in sorted(self._prepared)[:-MAX_IN_FLIGHT]:
                del self._prepared[old]

    def get_prepared(self, number: int) -> Any:
        """Return the input of a round; compute it again if this process did not count it."""
        with self._lock:
            found = self._prepared.get(number)
        if found is None:
            found = self.algorithm.prepare(number)
            self.keep_prepared(number, found)
        return found

    def accumulate(self, shard: int, number: int, shared: Any, own: Any, complete: int) -> None:
        """Add a round to a shard's state, unless the checkpoint has that state already.

        ``own`` is what only this shard needs; all shards have accumulated ``complete`` rounds.
        """
        if self.states.holds(shard, number + 1):
            return
        with self.hold(shard) as held, held.updating:
            state = self._get_state(held, shard, number)
            # If the update fails, the half-changed state must not be used again.
            held.state = None
            prepared = self.get_prepared(number)
            state = self.algorithm.accumulate(held.rows, prepared, shared, own, state)
            self.states.write(shard, number + 1, state, complete)
            held.state = number + 1, state

    def write(self, shard: int, rounds: int, into: AnyPath) -> dict[str, Any]:
        """Write the result of a shard after so many rounds."""
        check_folder(self.states.folder)
        if isinstance(into, Path):
            check_folder(into, "results")
        with self.hold(shard) as held, held.updating:
            state = self._get_state(held, shard, rounds)
            # Writing may change it.
            held.state = None
            return self.algorithm.write(held.rows, state, shard, into)

    def measure(self, shard: int, rounds: int) -> Plain:
        """Measure the state of a shard after so many rounds."""
        with self.hold(shard) as held, held.updating:
            state = self._get_state(held, shard, rounds)
            held.state = rounds, state
            return self.algorithm.measure(state)

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
                if held.rows is None:
                    held.rows = self.algorithm.open(shard)
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
        for shard in idle[: max(len(self._shards) - self._most_users, 0)]:
            del self._shards[shard]


# Dask drops the cache object from workers that are idle for a moment, and its contents with it.
# So this module holds the latest one for a while.
_held: dict[str, ShardCache] = {}
_holding = threading.Lock()


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


def _unpickle_cache(algorithm: ShardAlgorithm, states: ShardCheckpoint, name: str) -> ShardCache:
    with _holding:
        if name not in _held:
            _held.clear()
            _held[name] = ShardCache(algorithm, states, name)
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


@dataclass(frozen=True, eq=False)
class RunContext:
    """One attempt at a run, until it is done, is interrupted, or finds something lost."""

    executor: Executor
    cache: ShardCache
    stop: StoppingRule
    # Rules are checked, and on_round called, after so many rounds.
    rounds_per_pass: int
    on_round: Callable[[Progress], object] | None
    checkpoint: RoundsCheckpoint
    # Counts phases of shards.
    reporter: ProgressReporter
    title: str
    interrupts: Interrupts = field(default_factory=Interrupts)
    began: float = field(default_factory=time.perf_counter)

    @property
    def algorithm(self) -> ShardAlgorithm:
        """The algorithm of the run."""
        return self.cache.algorithm

    def start_workers(self) -> AbstractContextManager[WorkerPool]:
        """Start workers that have rows and states of shards in a cache of their process."""
        return self.executor.start(partial(_answer, self.cache), self.title)

    def needs_measures(self, number: int) -> bool:
        """Return whether the states of shards are measured after so many rounds."""
        ends_pass = number > 0 and number % self.rounds_per_pass == 0
        return ends_pass and (self.stop.needs_errors or self.on_round is not None)

    def needs_round(self, number: int, measures: Sequence[Plain] | None = None) -> bool:
        """Return whether a round is to be done, given the reports of all rounds before it."""
        if number < self.checkpoint.earliest or not number:
            return True
        if number >= self.stop.most_tasks:
            return False
        now = self.describe(number, measures)
        if now.seconds >= self.stop.most_seconds or now.utilities >= self.stop.most_utilities:
            return False
        return number % self.rounds_per_pass > 0 or self.stop.share_done(now) < 1

    def describe(self, number: int, measures: Sequence[Plain] | None) -> Progress:
        """Return the progress after so many rounds."""
        summary = self.algorithm.summarize(self.checkpoint.reports(number), measures)
        return Progress(number, time.perf_counter() - self.began, None, summary)

    def may_need_round(self, number: int) -> bool:
        """Return whether a round may be needed, as long as earlier reports are missing."""
        return number < max(self.checkpoint.earliest, self.stop.most_tasks)

    def begin(self) -> None:
        """Set the number of phases that the reporter expects, if a rule limits it."""
        n_rounds = max(self.stop.most_tasks, self.checkpoint.earliest) - self.checkpoint.complete
        if math.isfinite(n_rounds):
            self.reporter.expect(2 * max(int(n_rounds), 0) * self.algorithm.n_shards)


def _answer(cache: ShardCache, request: Callable[..., Any], *inputs: Any) -> Any:
    return request(cache, *inputs)
