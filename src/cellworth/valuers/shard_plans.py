"""Plans of runs over shards: core-hours, bytes, memory and disk, told before they are paid."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from cellworth.neighbours.bins import RankBins, edge_places, n_nearest, sample_places
from cellworth.neighbours.summaries import MOST_KEYS
from cellworth.runtime.dask_rounds import FAN_IN, in_groups

_NUMBER = 8
# What travels with every message besides what it holds.
_FRAME = 2048
# What a run sends to all workers before the first round, and again before results are written.
_TIMES_SENT = 2
# A process with all libraries, before it holds a shard.
_PROCESS = 400e6


@dataclass(frozen=True)
class Rates:
    """Seconds of one core, measured where the run is planned; part of a ``ShardPlan``.

    Parameters
    ----------
    read : float
        For a cell, to gather statistics of its column and to prepare it.
    look, settle : float
        For a row and a coalition, in the two passes.
    prepare, resolve : float
        For a query and a coalition, whatever the number of shards.
    publish : float
        For a cell, to write its value down.
    """

    read: float
    look: float
    settle: float
    prepare: float
    resolve: float
    publish: float


@dataclass(frozen=True)
class ShardPlan:
    """What a run over shards would cost; ``KNNValuer.plan`` makes it of a ShardedTable.

    Parameters
    ----------
    shape : tuple of int
        Rows and columns of the table.
    n_results : int
        Columns that are valued: players, the label included if it plays.
    n_shards, n_workers : int
        A worker is one thread.
    n_queries, n_coalitions, sweeps : int
        A pair is a query with one of its coalitions.
    pairs_per_round : int
    n_neighbors : int
    bins : RankBins
    rates : Rates
    cell_bytes : int
        Bytes of a cell as kernels read it.
    n_designs : int
        Lists of coalitions in a sweep.
    summary_bytes : float
        Bytes of what a shard tells of its columns, for each of its first 65,536 rows.
    on_cluster : bool
        Whether workers are processes, or threads of one.

    Examples
    --------
    >>> from cellworth.valuers.shard_plans import Rates, ShardPlan
    >>> rates = Rates(1e-7, 3e-9, 4e-9, 2e-4, 2e-4, 5e-8)
    >>> plan = ShardPlan(
    ...     (10**9, 100), 100, n_shards=1000, n_workers=100, n_queries=10_000, n_coalitions=100,
    ...     sweeps=1, pairs_per_round=12_800, n_neighbors=10, bins=RankBins(), rates=rates,
    ... )
    >>> plan.bottleneck
    'passes over the rows'
    """

    shape: tuple[int, int]
    n_results: int
    n_shards: int
    n_workers: int
    n_queries: int
    n_coalitions: int
    sweeps: int
    pairs_per_round: int
    n_neighbors: int
    bins: RankBins
    rates: Rates
    cell_bytes: int = 4
    n_designs: int = 1
    summary_bytes: float = 0.0
    on_cluster: bool = True

    @property
    def n_pairs(self) -> int:
        """Pairs of all sweeps."""
        return self.n_queries * self.n_coalitions * self.sweeps

    @property
    def n_rounds(self) -> int:
        """Rounds of all sweeps."""
        return self.sweeps * math.ceil(self.n_queries * self.n_coalitions / self.pairs_per_round)

    @property
    def core_seconds(self) -> dict[str, float]:
        """Seconds of one core, by what they are spent on."""
        (n_rows, n_columns), rates = self.shape, self.rates
        return {
            "reading": n_rows * n_columns * rates.read,
            "passes over the rows": self.n_pairs * n_rows * (rates.look + rates.settle),
            "bins and merged ranks": self.n_pairs * (rates.prepare + rates.resolve),
            "writing": n_rows * self.n_results * rates.publish,
        }

    @property
    def core_hours(self) -> float:
        """Hours of one core."""
        return sum(self.core_seconds.values()) / 3600

    @property
    def hours(self) -> float:
        """Hours of all workers at once; what is done by one at a time waits for nobody else."""
        spent = self.core_seconds
        # A round's edges and worths are made by one worker each, three rounds at a time.
        narrow = spent.pop("bins and merged ranks") / min(self.n_workers, 3)
        return (sum(spent.values()) / min(self.n_workers, self.n_shards) + narrow) / 3600

    @property
    def bottleneck(self) -> str:
        """What most of the time goes into."""
        spent = self.core_seconds
        spent["bins and merged ranks"] *= max(self.n_workers / 3, 1.0)
        return max(spent, key=lambda name: spent[name])

    @property
    def network(self) -> dict[str, float]:
        """Bytes between workers in the whole run, by what they hold; threads send none.

        Summaries of one worker's shards meet where they are. Those of workers meet in a tree, where
        counts add up and lists grow; what comes of them goes to every worker once.
        """
        if not self.on_cluster:
            return {}
        others, pairs = self.n_workers - 1, self.n_pairs
        n_edges, listed = self._n_edges, self._listed
        by_bin = 2 * (n_edges + 1)
        share = others / self.n_workers
        frames = self.n_rounds * _FRAME * others
        return {
            "bins": others * ((4 * n_edges + _NUMBER) * pairs + self._queries_bytes) + frames,
            "summaries": (others * 4 * by_bin + listed * self._times_moved) * pairs + frames,
            "worths by bin": others * _NUMBER * by_bin * pairs + frames,
            "worths of the nearest": listed * share * pairs + frames,
            # In parts to one worker, which puts them together for all others.
            "run": self._run_bytes * (others + share) * _TIMES_SENT,
        }

    @property
    def bytes_per_pair(self) -> float:
        """Bytes between workers, for one pair."""
        return sum(size for kind, size in self.network.items() if kind != "run") / self.n_pairs

    @property
    def network_bytes(self) -> float:
        """Bytes between workers in the whole run."""
        return sum(self.network.values())

    @property
    def driver_bytes(self) -> dict[str, float]:
        """Bytes that go through the driver and the scheduler, by what they hold."""
        rows = math.ceil(self.shape[0] / self.n_shards)
        told = self.n_rounds * (2 * _NUMBER * (self.n_results + 1) + _FRAME)
        return {
            "columns": self.n_shards * self.summary_bytes * min(rows, MOST_KEYS),
            "sample": self._n_sample * self.shape[1] * _NUMBER,
            "run": self._run_bytes * _TIMES_SENT,
            "told": told + self.n_shards * _FRAME,
        }

    @property
    def memory_per_worker(self) -> float:
        """Bytes that one worker needs: a shard with its values, and the messages of a round."""
        rows = math.ceil(self.shape[0] / self.n_shards)
        figures = 1 if self.sweeps == 1 else 3
        shard = rows * (self.shape[1] * self.cell_bytes + self.n_results * 8 * figures + 8)
        n_edges = self._n_edges
        # Bins by distance, counts and worths of all pairs.
        messages = self.pairs_per_round * (8192 + (4 + 8 + 4) * 2 * n_edges)
        return _PROCESS + shard + messages + self._run_bytes

    @property
    def disk_bytes(self) -> float:
        """Bytes of prepared rows, of states (two while one is written) and of the result."""
        n_rows, n_columns = self.shape
        figures = 1 if self.sweeps == 1 else 3
        state = n_rows * self.n_results * 8 * figures
        result = n_rows * (self.n_results + 1) * 8 * min(figures, 2)
        return n_rows * n_columns * self.cell_bytes + 2 * state + result

    def with_workers(self, n_workers: int, n_shards: int | None = None) -> ShardPlan:
        """The same run on a cluster of so many workers."""
        return replace(
            self,
            n_workers=n_workers,
            n_shards=n_shards or max(n_workers, self.n_shards),
            on_cluster=True,
        )

    def __repr__(self) -> str:
        """Return what to expect, line by line."""
        spent = {name: seconds / 3600 for name, seconds in self.core_seconds.items()}
        shares = ", ".join(f"{name} {told_hours(hours)}" for name, hours in spent.items())
        n_rows, n_columns = self.shape
        return "\n".join(
            [
                f"{n_rows:,} x {n_columns:,} in {self.n_shards:,} shards, {self.n_queries:,} "
                f"queries x {self.n_coalitions:,} coalitions x {self.sweeps:,} sweeps in "
                f"{self.n_rounds:,} rounds, {self.n_workers:,} workers",
                f"  work        {told_hours(self.core_hours)} of one core ({shares})",
                f"  time        about {told_hours(self.hours)}, mostly {self.bottleneck}",
                f"  network     {self._told_network}",
                f"  memory      {told_bytes(self.memory_per_worker)} per worker",
                f"  disk        {told_bytes(self.disk_bytes)}",
            ]
        )

    @property
    def _told_network(self) -> str:
        if not self.on_cluster:
            return "none: all workers are threads of one process"
        return (
            f"{told_bytes(self.network_bytes)} ({told_bytes(self.bytes_per_pair)} for a query and "
            f"coalition), {told_bytes(sum(self.driver_bytes.values()))} through the driver"
        )

    @property
    def _n_edges(self) -> int:
        return len(edge_places(self.bins, self.shape[0], self.n_neighbors))

    @property
    def _n_sample(self) -> int:
        return len(sample_places(self.shape[0]))

    @property
    def _listed(self) -> float:
        """Bytes of the nearest rows of all shards, for one pair."""
        return _NUMBER * n_nearest(self.bins, self.shape[0], self.n_neighbors) + 4 * self.n_shards

    @property
    def _times_moved(self) -> float:
        """How often one of the nearest moves up the tree of workers; the first of a group waits."""
        sizes, moved = [1.0] * self.n_workers, 0.0
        while len(sizes) > 1:
            groups = in_groups(sizes, FAN_IN)
            moved += sum(sum(group[1:]) for group in groups)
            sizes = [sum(group) for group in groups]
        return moved / self.n_workers

    @property
    def _queries_bytes(self) -> float:
        """Bytes of cells and of coalitions that all rounds send, to one worker."""
        cells = self.n_queries * self.sweeps * (self.shape[1] + self.n_results) * _NUMBER
        designs = self.n_designs * self.n_coalitions * (self.n_results + 3) * _NUMBER
        return cells + self.n_rounds * designs

    @property
    def _run_bytes(self) -> float:
        """Bytes of what every worker must know: the sample and the queries."""
        return (self._n_sample + self.n_queries) * self.shape[1] * _NUMBER


def told_hours(hours: float) -> str:
    """A time in words that stay short."""
    for unit, length in (("h", 1.0), ("min", 60.0)):
        if hours * length >= 1:
            return f"{hours * length:,.3g} {unit}" if hours < 1e4 else f"{hours:,.0f} h"
    return f"{hours * 3600:.2g} s"


def told_bytes(count: float) -> str:
    """A number of bytes in words that stay short."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= size:
            return f"{count / size:,.3g} {unit}"
    return f"{count:.0f} B"
