"""Plan: what a run will cost, measured on a few tasks."""

from __future__ import annotations

import math
import pickle
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from cellworth.data.arguments import Mask
from cellworth.data.sharded_table import ShardedTable
from cellworth.data.tables import View
from cellworth.games.flattened import FlattenedGame
from cellworth.games.game import Game, compute_utility
from cellworth.games.model import ModelGame
from cellworth.knn.binned import BinnedRanks, Near, Ranker, Shard, Summary, sample_positions
from cellworth.knn.knn_game import ShardedKNNGame
from cellworth.knn.memory_tasks import QueryTasks
from cellworth.knn.shard_data import PreparedShards
from cellworth.knn.shard_layout import summarize_shard
from cellworth.knn.tasks import TaskSchedule
from cellworth.runtime.dask_executor import Dask
from cellworth.runtime.executors import Executor, Processes, Threads
from cellworth.runtime.ray_executor import Ray
from cellworth.runtime.stopping import YEAR, StoppingRule, format_seconds
from cellworth.runtime.workers import REQUESTS_PER_WORKER
from cellworth.sampling.moments import limit_threads
from cellworth.sampling.samplers import TaskSampler, generator
from cellworth.sampling.semivalues import Semivalue
from cellworth.valuation.column_info import ColumnTable
from cellworth.valuation.provenance import Scores
from cellworth.valuation.storage import write_groups

# A shorter run has no first line.
_SECONDS_BEFORE_LINE = 3.0
_TIMED_UTILITIES = 20
_TIMED_SECONDS = 2.0
_MAX_WRITTEN_OUT = 60
# The serial part of a round, and rounds that may be in progress at once.
SERIAL = "bins and merged ranks"
_ROUNDS_AT_ONCE = 3
# A run sends its sample and queries before the first round, and again before results are written.
_TIMES_SENT = 2
_Result = TypeVar("_Result")
_TRIAL_SECONDS = 0.5
_TRIAL_ROWS = 65_536
_TRIAL_PAIRS = 64
# Bytes of a process with all libraries, and of a pair while its rows are ranked.
_PROCESS = 400e6
_PAIR = 8192


def seconds_per_utility(game: Game, pairs: Iterable[tuple[Mask, Mask]]) -> float:
    """Return the mean time of the first of these pairs of coalitions that are not empty."""
    n_timed, began = 0, time.perf_counter()
    with limit_threads():
        for rows, columns in pairs:
            if rows.any() and columns.any():
                compute_utility(game, rows, columns)
                n_timed += 1
            if n_timed >= _TIMED_UTILITIES or time.perf_counter() - began > _TIMED_SECONDS:
                break
    return (time.perf_counter() - began) / max(n_timed, 1)


def describe_time(seconds: float, executor: Executor, most_seconds: float = math.inf) -> str:
    """Return, for the first line of a run, how long so many seconds of one core take.

    The text is empty for a short run.
    """
    n_cores = executor.n_workers if isinstance(executor, Threads | Processes) else 1
    seconds = min(seconds / n_cores, most_seconds)
    if seconds < _SECONDS_BEFORE_LINE:
        return ""
    return f"about {format_seconds(seconds)} on {n_cores} core{'s' * (n_cores > 1)}"


@dataclass(frozen=True)
class Plan:
    """Estimated cost of a run.

    Parameters
    ----------
    sampler : str
        How coalitions are chosen.
    shape : tuple of int
        Row players and column players.
    utilities : float
        Largest number of utilities; infinite if the stopping rule does not limit it. With a model
        each is one fit, or one for each fold and repeat.
    utilities_per_task : float
        Mean number for a task; no value is known before the first task is done.
    seconds_per_utility : float
        Mean time of some utilities.
    most_seconds : float
        Time that the stopping rule allows.
    limit : float
        Largest number of utilities that is allowed.
    scores : Scores or None
        Scoring and validation rows.
    columns : ColumnTable or None
        How each raw column is read.

    See Also
    --------
    cellworth.KNNValuer, cellworth.ModelValuer

    Examples
    --------
    >>> from cellworth import ModelValuer
    >>> from cellworth.runtime import MaxUtilities
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X, y = [[0.0, 5.0], [1.0, 4.0], [2.0, 5.0], [3.0, 4.0]], [0, 0, 1, 1]
    >>> valuer = ModelValuer(DecisionTreeClassifier(), stop=MaxUtilities(40), random_state=0)
    >>> plan = valuer.plan(X, y, X_val=X, y_val=y)
    >>> plan.shape, plan.utilities
    ((4, 2), 40)
    """

    sampler: str
    shape: tuple[int, int]
    utilities: float
    utilities_per_task: float
    seconds_per_utility: float
    most_seconds: float = math.inf
    limit: float = math.inf
    scores: Scores | None = None
    columns: ColumnTable | None = None

    @classmethod
    def of_run(
        cls, name: str, game: ModelGame | FlattenedGame, sampler: TaskSampler, rule: StoppingRule
    ) -> Plan:
        """Plan a run until a rule is met; time some utilities of its first task."""
        pairs = list(sampler(0))
        order = generator(0, 0).permutation(len(pairs))
        return cls(
            name,
            game.shape,
            min(rule.most_utilities, rule.most_tasks * sampler.utilities_per_task),
            sampler.utilities_per_task,
            seconds_per_utility(game, (pairs[position] for position in order)),
            rule.most_seconds,
        )

    @property
    def seconds(self) -> float:
        """Estimated time of the whole run on one worker."""
        try:
            return min(self.most_seconds, self.seconds_per_utility * self.utilities)
        except OverflowError:
            return self.most_seconds

    @property
    def allowed(self) -> bool:
        """Whether the run is within the limit."""
        return self.utilities <= self.limit

    def __repr__(self) -> str:
        return (
            f"{self.shape[0]} x {self.shape[1]} blocks, {self.sampler}: {self.count} utilities, "
            f"{self.duration} ({self.seconds_per_utility * 1e3:.2g} ms each on one worker, about "
            f"{self.utilities_per_task:.0f} a task){''.join(f'; {note}' for note in self._notes())}"
        )

    def _repr_html_(self) -> str:
        """Show the cost in Jupyter."""
        columns = {
            "blocks": [f"{self.shape[0]} x {self.shape[1]}"],
            "sampler": [self.sampler],
            "utilities": [self.count],
            "a task": [f"{self.utilities_per_task:.0f}"],
            "each on one worker": [f"{self.seconds_per_utility * 1e3:.2g} ms"],
        }
        notes = tuple(note[0].upper() + note[1:] + "." for note in self._notes())
        return View(f"The run takes {self.duration}", columns, notes).html()

    def _notes(self) -> Iterator[str]:
        if self.limit != math.inf:
            yield f"{'within' if self.allowed else 'beyond'} the limit of {self.limit:,}"
        if self.utilities < self.utilities_per_task:
            yield "too few for a first task, so that no value would be known"

    @property
    def count(self) -> str:
        """Number of utilities in short form."""
        if self.utilities == math.inf:
            return "any number of"
        number = int(self.utilities)
        power = number.bit_length() - 1
        short = f"{number:,}" if power <= _MAX_WRITTEN_OUT else ""
        is_power = number == 1 << power and power > 1
        return " = ".join(filter(None, [f"2^{power}" if is_power else "", short]))

    @property
    def duration(self) -> str:
        """Estimated time in words."""
        if self.utilities == self.most_seconds == math.inf:
            return "until its stopping rule is met"
        if self.seconds >= 1e10 * YEAR:
            return "longer than the age of the universe"
        return f"about {format_seconds(self.seconds)}"


@dataclass(frozen=True)
class ShardPlan:
    """Estimated cost of a run over shards; ``KNNValuer.plan`` returns it for a ShardedTable.

    Parameters
    ----------
    shape : tuple of int
        Rows and columns of the table.
    n_shards, n_workers : int
        A worker is one thread.
    n_queries, n_coalitions, n_passes, n_rounds : int
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

    See Also
    --------
    cellworth.ShardedKNNValuer

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa, pyarrow.parquet as pq
    >>> from pathlib import Path
    >>> from cellworth import ShardedKNNValuer, ShardedTable
    >>> folder, X = Path(tempfile.mkdtemp()), {"x0": [0.0, 1.0, 9.0], "x1": [5.0, 4.0, 5.0]}
    >>> pq.write_table(pa.table(X | {"y": [0, 0, 1]}), folder / "part.parquet")
    >>> table = ShardedTable.from_files(folder, target="y")
    >>> plan = ShardedKNNValuer(1, n_passes=1).plan(table, X_val=pa.table(X), y_val=[0, 0, 1])
    >>> plan.shape, plan.n_shards
    ((3, 2), 1)
    """

    shape: tuple[int, int]
    n_shards: int
    n_workers: int
    n_queries: int
    n_coalitions: int
    n_passes: int
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
        """Pairs of all passes."""
        return self.n_queries * self.n_coalitions * self.n_passes

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
        """Name of the part that takes most of the time."""
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
        lines = [f"  {name:<11} {estimate}" for name, estimate in self._estimates().items()]
        return "\n".join([self._title(), *lines])

    def _repr_html_(self) -> str:
        """Show the cost in Jupyter."""
        found = self._estimates()
        columns = {"": list(found), "estimate": list(found.values())}
        return View(self._title(), columns, left=("estimate",)).html()

    def _title(self) -> str:
        return (
            f"{self.shape[0]:,} x {self.shape[1]:,} in {self.n_shards:,} shards, "
            f"{self.n_queries:,} queries x {self.n_coalitions:,} coalitions x {self.n_passes:,} "
            f"passes in {self.n_rounds:,} rounds, {self.n_workers:,} workers"
        )

    def _estimates(self) -> dict[str, str]:
        shares = (f"{name} {format_seconds(spent)}" for name, spent in self.core_seconds.items())
        network = "none: all workers are threads of one process"
        if self.on_cluster:
            network = f"{_short_bytes(self.network_bytes)} between workers, "
            network += f"{_short_bytes(self.driver_bytes)} through the driver"
        work = f"{format_seconds(3600 * self.core_hours)} of one core ({', '.join(shares)})"
        return {
            "work": work,
            "time": f"about {format_seconds(3600 * self.hours)}, mostly {self.bottleneck}",
            "network": network,
            "memory": f"{_short_bytes(self.memory_per_worker)} per worker",
            "disk": _short_bytes(self.disk_bytes),
        }


def _short_bytes(count: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= size:
            return f"{count / size:,.3g} {unit}"
    return f"{count:.0f} B"


def plan_of_passes(tasks: QueryTasks, stop: StoppingRule) -> Plan:
    """Plan a run until a rule is met; time some queries."""
    schedule = tasks.schedule
    n_coalitions, n_queries = schedule.n_coalitions, schedule.queries.n_queries
    n_passes = stop.most_tasks / len(schedule.parts) - schedule.n_quick_passes
    most = n_queries * (schedule.n_quick_coalitions + n_passes * n_coalitions)
    return Plan(
        type(schedule.sampler).__name__,
        tasks.game.shape,
        min(stop.most_utilities, most),
        n_queries * n_coalitions / len(schedule.parts),
        seconds_per_coalition(tasks),
        stop.most_seconds,
    )


def seconds_per_coalition(tasks: QueryTasks) -> float:
    """Time more and more queries until they take half a second; return the time per coalition."""
    # The last part computes errors only if all parts do.
    n_parts = len(tasks.schedule.parts)
    task = tasks((1 + tasks.schedule.n_quick_passes) * n_parts - 1)
    most = task.part.n_queries
    n_queries = 1
    with limit_threads():
        # The first call compiles, sorts columns and draws coalitions.
        tasks.contribution(replace(task, part=task.part.first(1)))
        while True:
            trial = replace(task, part=task.part.first(n_queries))
            began = time.perf_counter()
            tasks.contribution(trial)
            seconds = time.perf_counter() - began
            if n_queries >= most or seconds > _TRIAL_SECONDS:
                return seconds / tasks.schedule.n_ranked(trial)
            n_queries *= 4


def first_rows(table: ShardedTable) -> ShardedTable:
    """Return some of the first rows of a table, as a table of one shard."""
    (file, groups), *_ = table.shards[0]
    n_rows = np.cumsum([table.files[file].group_rows[group] for group in groups])
    n_groups = int(np.searchsorted(n_rows, _TRIAL_ROWS)) + 1
    part = range(groups.start, min(groups.start + n_groups, groups.stop))
    return replace(table, shards=(((file, part),),))


def plan_of_shards(
    table: ShardedTable,
    make_game: Callable[[], ShardedKNNGame],
    ask: Callable[[ShardedKNNGame], tuple[TaskSchedule, int]],
    *,
    bins: BinnedRanks,
    semivalue: Semivalue,
    executor: Executor,
    with_cells: bool = True,
) -> ShardPlan:
    """Time a few pairs on the first rows, and scale to all pairs and rows.

    Without cells, only values of row groups are kept, which are small.
    """
    with limit_threads(), tempfile.TemporaryDirectory() as folder:
        # The first call loads kernels, or compiles them.
        make_game()
        game, gathering = _time_call(time.perf_counter, make_game)
        shards = PreparedShards(game.table, game.layout, Path(folder), durable=False)
        shard, opening = _time_call(time.perf_counter, shards.open, 0)
        schedule, n_passes = ask(game)
        n_results, queries = schedule.n_results, schedule.queries
        values = np.random.default_rng(0).normal(size=(shard.n_rows, n_results))
        # Sampling errors take as much as values, and so do validation errors.
        groups = [{"mean": values, "row_mean": values[:, 0]}]
        groups *= 2 + (schedule.n_kept_strata > 0)
        _, writing = _time_call(time.perf_counter, write_groups, Path(folder), 0, 0, groups)
        ranker = _ranker(game, shard, schedule.shape[0], bins, semivalue)
        passes, serial, pair_bytes, near_bytes = _time_rounds(schedule, ranker, shard)
    n_rows, n_columns = table.shape
    n_pairs, n_parts = queries.n_queries * schedule.n_coalitions, len(schedule.parts)
    # A pass has sums and, for two draws, squares of their differences; the values of a round are
    # kept by draw. The first pass also has sums and squares by stratum, from which the variances
    # between queries follow. Of finished passes there are means and variances.
    n_strata, n_draws = schedule.n_kept_strata, schedule(0).n_draws
    of_pass, finished = n_draws, 2 * (n_passes > 1) + n_strata
    n_held = max(of_pass + (2 + n_draws) * n_strata, of_pass + n_draws + finished)
    n_stored = max(of_pass + 2 * n_strata, of_pass * (n_passes > 1) + finished, 2 + n_strata)
    n_written = 2 + (n_strata > 0)
    if not with_cells:
        n_held = n_stored = n_written = 0
    # Beside the cells, a row has a position, and a numeric target.
    cells, figure = n_columns * game.layout.dtype.itemsize, n_results * 8
    cells += 0 if game.layout.target_scale is None else 8
    run_bytes = (ranker.sample.numbers.shape[1] + queries.n_queries) * n_columns * 8
    return ShardPlan(
        table.shape,
        n_shards=table.n_shards,
        n_workers=_n_workers(executor),
        n_queries=queries.n_queries,
        n_coalitions=schedule.n_coalitions,
        n_passes=n_passes,
        n_rounds=n_passes * n_parts,
        core_seconds={
            "reading": n_rows * (gathering + opening) / shard.n_rows,
            "passes over the rows": n_passes * n_pairs * n_rows * passes,
            SERIAL: n_passes * n_pairs * serial,
            "writing": n_rows * writing / shard.n_rows,
        },
        pair_bytes=pair_bytes,
        near_bytes=near_bytes,
        run_bytes=run_bytes,
        summary_bytes=_n_bytes(summarize_shard(game.table, 0, game.column_types)),
        row_bytes=cells + figure * n_held + 8,
        base_bytes=_PROCESS + n_pairs / n_parts * (_PAIR + pair_bytes) + run_bytes,
        disk_bytes=n_rows * (cells + 2 * figure * n_stored + 8 * (n_results + 1) * n_written),
        on_cluster=isinstance(executor, Dask | Ray),
    )


def _n_workers(executor: Executor) -> int:
    """Return the number of requests that all workers answer at a time."""
    with executor.start(abs, "plan") as pool:
        return max(pool.capacity // REQUESTS_PER_WORKER, 1)


def _ranker(
    game: ShardedKNNGame, shard: Shard, n_rows: int, bins: BinnedRanks, semivalue: Semivalue
) -> Ranker:
    """Return the ranker of the whole table, but with a sample of these rows."""
    drawn = np.random.default_rng(0).integers(0, shard.n_rows, len(sample_positions(n_rows)))
    counts = np.array(game.layout.class_counts, dtype=np.int64)
    counts = counts * n_rows // counts.sum()
    counts[0] += n_rows - counts.sum()
    scales, target_scale = game.layout.scales, game.layout.target_scale
    if target_scale is not None:
        share = n_rows / shard.n_rows
        total, squares = target_scale.total * share, target_scale.squares * share
        target_scale = replace(target_scale, total=total, squares=squares)
    return Ranker.of(
        scales, game.columns.codes[scales.positions].astype(np.int64), shard.rows.take(drawn),
        counts, target_scale, bins=bins, n_neighbors=game.n_neighbors, semivalue=semivalue,
        n_players=n_rows, radius=game.radius,
    )  # fmt: skip


def _time_rounds(schedule: TaskSchedule, ranker: Ranker, shard: Shard) -> tuple[float, ...]:
    """Return seconds per pair and row, serial seconds per pair, and the two kinds of bytes."""
    # The first round loads kernels, or compiles them.
    _time_round(schedule, ranker, shard, 1)
    rounds: list[tuple[float, ...]] = []
    began = time.perf_counter()
    while time.perf_counter() - began < _TRIAL_SECONDS or not rounds:
        rounds.append(_time_round(schedule, ranker, shard, _TRIAL_PAIRS))
    n_pairs, passes, *others = np.sum(rounds, axis=0)
    return passes / (n_pairs * shard.n_rows), *(other / n_pairs for other in others)


def _time_round(
    schedule: TaskSchedule, ranker: Ranker, shard: Shard, n_pairs: int
) -> tuple[float, ...]:
    """Return the pairs of a small round, seconds of its two parts, and bytes of its messages."""
    # Time of this thread: other processes may keep the machine busy.
    task, clock = schedule(0), time.thread_time
    part = task.part.first(max(n_pairs // schedule.n_coalitions, 1))
    orders = schedule.orders(replace(task, part=part))
    prepared, preparing = _time_call(clock, schedule.prepare, part.pieces[0], task, orders, ranker)
    summary, looking = _time_call(clock, ranker.count, 0, shard, prepared)
    values = ranker.finalize(prepared.batch, summary)
    everyone = _of_all_rows(summary, ranker.n_nearest)
    resolved, resolving = _time_call(clock, ranker.finalize, prepared.batch, everyone)
    into = np.zeros((schedule.n_results, shard.n_rows), dtype=np.int64)
    _, settling = _time_call(
        clock, ranker.accumulate, shard, prepared, values.far, values.near[0], into=into
    )
    sent = prepared.batch, prepared.ends, prepared.origins, summary.counts, values.far
    return (
        prepared.batch.n_pairs, looking + settling, preparing + resolving, _n_bytes(sent),
        _n_bytes((everyone.near, resolved.near)),
    )  # fmt: skip


def _of_all_rows(summary: Summary, n_near: int) -> Summary:
    """Return a summary with as many nearest rows as that of the whole table."""
    n_pairs, rng = len(summary.counts), np.random.default_rng(0)
    rows = rng.integers(0, 2**40, n_pairs * n_near)
    starts = np.arange(n_pairs + 1, dtype=np.uint32) * np.uint32(n_near)
    targets = None if summary.near[0].targets is None else rng.normal(size=len(rows))
    return Summary(summary.counts, {0: Near(rows, starts, targets)})


def _time_call(
    clock: Callable[[], float], function: Callable[..., _Result], *given: Any, **named: Any
) -> tuple[_Result, float]:
    began = clock()
    return function(*given, **named), clock() - began


def _n_bytes(thing: Any) -> int:
    return len(pickle.dumps(thing, protocol=5))
