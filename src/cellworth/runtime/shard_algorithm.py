"""ShardAlgorithm: what a round over shards computes, its state and its run context."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import uuid4

from numpy.typing import NDArray

from cellworth.data.io import AnyPath, Plain, n_bytes
from cellworth.runtime.checkpoint import (
    RoundsCheckpoint,
    ShardCheckpoint,
    ShardState,
    check_folder,
)
from cellworth.runtime.executors import Executor
from cellworth.runtime.progress import Progress, ProgressReporter, ShardSummary
from cellworth.runtime.stopping import StoppingRule
from cellworth.runtime.workers import Interrupts

# Rows that a process keeps in memory from round to round, if they are not more; and states.
MAX_KEPT_BYTES = 2**29
_SECONDS_TO_KEEP = 60.0


@dataclass(frozen=True, eq=False)
class RoundResult:
    """Result of a round over all shards."""

    # Sent to every shard; a few megabytes.
    shared: NDArray[Any]
    # What only one shard needs; a shard may need nothing.
    per_shard: Mapping[int, Plain]
    # Small arrays and plain values for the driver process.
    report: Plain

    def __sizeof__(self) -> int:
        """Return the size of what shards need; Dask uses it to keep tasks near their data."""
        return self.shared.nbytes + sum(map(n_bytes, self.per_shard.values()))


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
        """Read the rows of a shard; with ``nbytes``, they may stay in memory between rounds."""

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
        """Add a round to a shard's state (second phase); the state may be changed in place."""

    def measure(self, state: ShardState, /) -> Plain:
        """Return what a stopping rule needs to know of a shard's state; a few numbers."""

    def summarize(
        self, reports: Sequence[Plain], measures: Sequence[Plain] | None, /
    ) -> ShardSummary:
        """Summarize a run from the reports of rounds and the measures of all shards, if known."""

    def write(self, rows: Any, state: ShardState, shard: int, folder: AnyPath, /) -> dict[str, Any]:
        """Write the result of a shard into a folder; return a small entry, also of arrays.

        Its ``file``, if any, is the name of what was written. The state may be changed. A repeated
        call with the same input writes the same files.
        """


@dataclass(eq=False)
class _CachedShard:
    """Rows of a shard."""

    # Nothing yet.
    rows: Any = None
    n_users: int = 0
    opening: threading.Lock = field(default_factory=threading.Lock)


class ShardCache:
    """Rows of the shards of one run in one process; safe for many threads.

    Everything in it can be read or computed again. Pickled to another process, it arrives empty;
    pickled there again, it is the same object. It holds as many shards as threads were at work at a
    time, and more while their rows are within MAX_KEPT_BYTES.
    """

    def __init__(
        self,
        algorithm: ShardAlgorithm,
        states: ShardCheckpoint | None,
        name: str | None = None,
    ) -> None:
        self.algorithm = algorithm
        # Of a run with a checkpoint.
        self.states = states
        self.name: str = name or uuid4().hex
        self.last_used: float = time.monotonic()
        self._most_users = 1
        self._lock = threading.Lock()
        self._shards: OrderedDict[int, _CachedShard] = OrderedDict()
        self._prepared: dict[int, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without rows."""
        return _unpickle_cache, (self.algorithm, self.states, self.name)

    def keep_prepared(self, number: int, prepared: Any, since: int) -> None:
        """Keep the input of a round until rounds since then are added up."""
        with self._lock:
            self._prepared[number] = prepared
            for old in [each for each in self._prepared if each < since]:
                del self._prepared[old]

    def get_prepared(self, number: int, since: int) -> Any:
        """Return the input of a round; compute it again if this process did not count it."""
        with self._lock:
            found = self._prepared.get(number)
        if found is None:
            found = self.algorithm.prepare(number)
            self.keep_prepared(number, found, since)
        return found

    def check_folder(self) -> None:
        """Raise if this machine cannot see the checkpoint of the run."""
        if self.states is not None:
            check_folder(self.states.folder)

    @contextmanager
    def hold(self, shard: int) -> Iterator[Any]:
        """Yield the rows of a shard, which stay in memory in here; afterwards they may go."""
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
            yield held.rows
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
        # Rows of unknown size are not kept.
        sizes = {
            shard: getattr(held.rows, "nbytes", math.inf) if held.rows else 0
            for shard, held in self._shards.items()
        }
        for shard in [shard for shard, held in self._shards.items() if held.n_users == 0]:
            if len(sizes) > self._most_users and sum(sizes.values()) > MAX_KEPT_BYTES:
                del self._shards[shard], sizes[shard]


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


def _unpickle_cache(
    algorithm: ShardAlgorithm, states: ShardCheckpoint | None, name: str
) -> ShardCache:
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

    def needs_measures(self, number: int) -> bool:
        """Return whether the states of shards are measured after so many rounds."""
        ends_pass = number > 0 and number % self.rounds_per_pass == 0
        return ends_pass and (self.stop.needs_errors or self.on_round is not None)

    def needs_round(self, number: int, measures: Sequence[Plain] | None = None) -> bool:
        """Return whether a round is to be done, given the reports of all rounds before it."""
        if not number:
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

    def report(self, n_counted: int) -> None:
        """Show how often shards have counted or added a round; so many count the next one."""
        n_visits = self.checkpoint.n_visits + n_counted
        self.reporter.show(Progress(n_visits, time.perf_counter() - self.began, None))
