"""Plan and ShardPlan: the estimated cost of a run."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from threadpoolctl import threadpool_limits

from cellworth.column_info import ColumnTable
from cellworth.counts import Mask
from cellworth.designs import Design, generator
from cellworth.games import Game
from cellworth.games.base import checked_utility
from cellworth.runtime import StoppingRule
from cellworth.scores import Scores

_TIMED_UTILITIES = 20
_TIMED_SECONDS = 2.0
_YEAR = 31_557_600
_LONGEST_WRITTEN_OUT = 60
# The part of a round that one worker does, and rounds that may be in progress at once.
SERIAL = "bins and merged ranks"
_ROUNDS_AT_ONCE = 3
# A run sends its sample and queries before the first round, and again before results are written.
_TIMES_SENT = 2


@dataclass(frozen=True)
class Plan:
    """What a run would cost.

    Parameters
    ----------
    design : str
        How coalitions are chosen.
    shape : tuple of int
        Row players and column players.
    utilities : float
        Utilities to look at, at most; infinite where the stopping rule sets no number. With a model
        each is a fit, or one for each fold and repeat.
    utilities_per_task : float
        How many a task needs, about: nothing can be told before the first task is done.
    seconds_per_utility : float
        Mean of a few that were timed.
    most_seconds : float
        Time that the stopping rule allows.
    limit : float
        Utilities beyond which the run is refused.
    scores : Scores or None
        What the table will be scored by, and on which rows.
    columns : ColumnTable or None
        What each raw column is taken for.
    """

    design: str
    shape: tuple[int, int]
    utilities: float
    utilities_per_task: float
    seconds_per_utility: float
    most_seconds: float = math.inf
    limit: float = math.inf
    scores: Scores | None = None
    columns: ColumnTable | None = None

    @classmethod
    def of_run(cls, name: str, game: Any, design: Design, rule: StoppingRule) -> Plan:
        """Plan a run until a rule is met; some utilities of its first task are timed."""
        pairs = list(design(0))
        order = generator(0, 0).permutation(len(pairs))
        return cls(
            name,
            game.shape,
            min(rule.most_utilities, rule.most_tasks * design.utilities_per_task),
            design.utilities_per_task,
            seconds_per_utility(game, (pairs[place] for place in order)),
            rule.most_seconds,
        )

    @property
    def seconds(self) -> float:
        """Estimated time of the whole run on one worker; infinite beyond all measure."""
        try:
            return min(self.most_seconds, self.seconds_per_utility * self.utilities)
        except OverflowError:
            return self.most_seconds

    @property
    def allowed(self) -> bool:
        """Whether the run is within the limit."""
        return self.utilities <= self.limit

    def __repr__(self) -> str:
        """Return one readable line."""
        verdict = "within" if self.allowed else "beyond"
        limit = "" if self.limit == math.inf else f"; {verdict} the limit of {self.limit:,}"
        if self.utilities < self.utilities_per_task:
            limit += "; too few for a first task, and so for any value"
        return (
            f"{self.shape[0]} x {self.shape[1]} blocks, {self.design}: {self.count} utilities, "
            f"{self.duration} ({self.seconds_per_utility * 1e3:.2g} ms each on one worker, about "
            f"{self.utilities_per_task:.0f} a task){limit}"
        )

    @property
    def count(self) -> str:
        """Number of utilities in words that stay short."""
        if self.utilities == math.inf:
            return "any number of"
        number = int(self.utilities)
        power = number.bit_length() - 1
        short = f"{number:,}" if power <= _LONGEST_WRITTEN_OUT else ""
        is_power = number == 1 << power and power > 1
        return " = ".join(filter(None, [f"2^{power}" if is_power else "", short]))

    @property
    def duration(self) -> str:
        """Estimated time in words."""
        if self.utilities == self.most_seconds == math.inf:
            return "until its stopping rule is met"
        if self.seconds >= 1e10 * _YEAR:
            return "longer than the age of the universe"
        return f"about {_short_time(self.seconds)}"


@dataclass(frozen=True)
class ShardPlan:
    """Estimated cost of a run over shards; ``KNNValuer.plan`` returns it for a ShardedTable.

    Parameters
    ----------
    shape : tuple of int
        Rows and columns of the table.
    n_shards, n_workers : int
        A worker is one thread.
    n_queries, n_coalitions, sweeps, n_rounds : int
        A pair is a query with one of its coalitions.
    core_seconds : dict
        Seconds of one core, by what they are spent on.
    pair_bytes, near_bytes : float
        Bytes of a pair that every further worker exchanges, and bytes of its nearest rows, which
        one worker gathers and sends back.
    run_bytes, summary_bytes : float
        Bytes that every worker receives once, and bytes of the column statistics of a shard.
    row_bytes, base_bytes : float
        Memory of a row of a shard, and of a worker without a shard.
    disk_bytes : float
        Bytes of prepared rows, of states (two while one is written) and of the result.
    on_cluster : bool
        Whether workers are processes of a cluster, or threads of one process.
    """

    shape: tuple[int, int]
    n_shards: int
    n_workers: int
    n_queries: int
    n_coalitions: int
    sweeps: int
    n_rounds: int
    core_seconds: dict[str, float]
    pair_bytes: float
    near_bytes: float
    run_bytes: float
    summary_bytes: float
    row_bytes: float
    base_bytes: float
    disk_bytes: float
    on_cluster: bool

    @property
    def n_pairs(self) -> int:
        """Pairs of all sweeps."""
        return self.n_queries * self.n_coalitions * self.sweeps

    @property
    def core_hours(self) -> float:
        """Hours of one core."""
        return sum(self.core_seconds.values()) / 3600

    @property
    def hours(self) -> float:
        """Hours of all workers together."""
        return sum(self._seconds.values()) / 3600

    @property
    def bottleneck(self) -> str:
        """What takes most of the time."""
        return max(self._seconds, key=self._seconds.__getitem__)

    @property
    def _seconds(self) -> dict[str, float]:
        at_once = dict.fromkeys(self.core_seconds, min(self.n_workers, self.n_shards))
        at_once[SERIAL] = min(self.n_workers, _ROUNDS_AT_ONCE)
        return {name: spent / at_once[name] for name, spent in self.core_seconds.items()}

    @property
    def network_bytes(self) -> float:
        """Bytes between workers in the whole run; threads send none."""
        others = (self.n_workers - 1) * self.on_cluster
        of_pair = self.pair_bytes + self.near_bytes / self.n_workers
        return others * (self.n_pairs * of_pair + _TIMES_SENT * self.run_bytes)

    @property
    def driver_bytes(self) -> float:
        """Bytes through the driver: column statistics of all shards, the sample and the queries."""
        return self.n_shards * self.summary_bytes + _TIMES_SENT * self.run_bytes

    @property
    def memory_per_worker(self) -> float:
        """Bytes that one worker needs: a shard with its values, and the messages of a round."""
        return self.base_bytes + math.ceil(self.shape[0] / self.n_shards) * self.row_bytes

    def with_workers(self, n_workers: int, n_shards: int | None = None) -> ShardPlan:
        """Return the plan of the same run on a cluster of ``n_workers`` workers."""
        n_shards = n_shards or max(n_workers, self.n_shards)
        return replace(self, n_workers=n_workers, n_shards=n_shards, on_cluster=True)

    def __repr__(self) -> str:
        """Return the plan, line by line."""
        shares = (f"{name} {_short_time(spent)}" for name, spent in self.core_seconds.items())
        network = "none: all workers are threads of one process"
        if self.on_cluster:
            network = f"{_short_bytes(self.network_bytes)} between workers, "
            network += f"{_short_bytes(self.driver_bytes)} through the driver"
        return (
            f"{self.shape[0]:,} x {self.shape[1]:,} in {self.n_shards:,} shards, "
            f"{self.n_queries:,} queries x {self.n_coalitions:,} coalitions x {self.sweeps:,} "
            f"sweeps in {self.n_rounds:,} rounds, {self.n_workers:,} workers\n"
            f"  work        {_short_time(3600 * self.core_hours)} of one core "
            f"({', '.join(shares)})\n"
            f"  time        about {_short_time(3600 * self.hours)}, mostly {self.bottleneck}\n"
            f"  network     {network}\n"
            f"  memory      {_short_bytes(self.memory_per_worker)} per worker\n"
            f"  disk        {_short_bytes(self.disk_bytes)}"
        )


def _short_time(seconds: float) -> str:
    for unit, length in (("years", _YEAR), ("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.2g} s"


def _short_bytes(count: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= size:
            return f"{count / size:,.3g} {unit}"
    return f"{count:.0f} B"


def seconds_per_utility(game: Game, pairs: Iterable[tuple[Mask, Mask]]) -> float:
    """Mean time of the first few of these pairs of coalitions, those that need a fit."""
    n_timed, began = 0, time.perf_counter()
    with threadpool_limits(1):
        for rows, columns in pairs:
            if rows.any() and columns.any():
                checked_utility(game, rows, columns)
                n_timed += 1
            if n_timed >= _TIMED_UTILITIES or time.perf_counter() - began > _TIMED_SECONDS:
                break
    return (time.perf_counter() - began) / max(n_timed, 1)
