"""Rank bins: the nearest rows are ranked, the others counted; one pass over the rows, no sort.

Beyond the nearest rows a value changes slowly with the rank, so that rows in a narrow range of
ranks may be valued as if they tied. Ties have a closed form, and the sum of all values stays exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cellworth.counts import checked_count
from cellworth.neighbours.columns import Floats
from cellworth.neighbours.distances import Wholes
from cellworth.neighbours.training import Plan, Query, Steps, Training

_SAMPLE_SHARE = 16
_LEAST_SAMPLE, _MOST_SAMPLE = 1024, 32768
# So many rows of the sample must be among the nearest, to tell where these end.
_LEAST_NEAREST_IN_SAMPLE = 8
_MARGIN = 50
# Nearest rows that are made room for at first; more are counted, and then listed anew.
_ROOM = 4096
COALITIONS_AT_ONCE = 32


@dataclass(frozen=True)
class RankBins:
    """Rank the nearest rows exactly and count the others in bins of like rank.

    Time grows with the number of rows, not faster; worth it above some 50,000 rows. The total and
    the sums of columns stay exact; single values are off by up to a percent of their spread. For
    class labels.

    Parameters
    ----------
    nearest : int, default=500
        Rows that are ranked exactly, about.
    width : float, default=0.02
        How far ranks in one bin are apart, relative to the rank.

    Examples
    --------
    >>> RankBins().n_bins(1_000_000)
    384
    """

    nearest: int = 500
    width: float = 0.02

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        checked_count(self.nearest, "nearest of RankBins")
        number = isinstance(self.width, int | float | np.number)
        if not number or not 1e-3 <= self.width <= 1:
            raise ValueError(
                f"width of RankBins is {self.width!r}; give a number between 0.001 and 1."
            )

    def n_bins(self, n_rows: int) -> int:
        """How many bins the far ones of so many rows fall into."""
        ratio = max(n_rows / self.nearest, 1.0)
        return max(math.ceil(math.log(ratio) / math.log1p(self.width)), 1)


class Edges(NamedTuple):
    """Where bins begin, for every coalition of a query; the same for all shards of a table.

    Parameters
    ----------
    nearest_end : array of shape (n_coalitions,)
        Distances below this, as ordered by 32 bits, are among the nearest.
    bits : array of shape (n_coalitions,)
        How many bits wide the steps beyond are.
    steps_to_bin : array of shape (n_coalitions, n_steps)
        Twice the bin of each step.
    n_places : int
        Two for each bin, and one for the nearest.
    """

    nearest_end: NDArray[np.int32]
    bits: NDArray[np.int32]
    steps_to_bin: NDArray[np.uint16]
    n_places: int


def n_nearest(bins: RankBins, n_rows: int, n_neighbors: int) -> int:
    """How many rows are to be ranked exactly: as asked, but enough to find where they end.

    Where these are all rows, or nearly so, rows are better sorted.
    """
    in_sample = math.ceil(_LEAST_NEAREST_IN_SAMPLE * n_rows / _sample_size(n_rows))
    return max(bins.nearest, in_sample, 2 * n_neighbors + _MARGIN)


def _sample_size(n_rows: int) -> int:
    return min(n_rows, max(min(n_rows // _SAMPLE_SHARE, _MOST_SAMPLE), _LEAST_SAMPLE))


@dataclass(frozen=True, eq=False)
class RankSummary:
    """What one shard of rows tells about ranks, for every coalition of a query.

    Summaries of the shards of a table merge into that of the table: counts add up, lists join.

    Parameters
    ----------
    counts : array of shape (n_coalitions, n_places)
        Rows by twice the bin plus 1 for a match; the last place counts the nearest.
    near : tuple of arrays
        Sort keys of the nearest rows, coalition by coalition, sorted.
    """

    counts: Wholes
    near: tuple[Wholes, ...]

    def merge(self, other: RankSummary) -> RankSummary:
        """Summary of both shards."""
        near = (np.sort(np.concatenate(pair)) for pair in zip(self.near, other.near, strict=True))
        return RankSummary(self.counts + other.counts, tuple(near))

    def values(self, training: Training) -> tuple[Floats, list[Floats]]:
        """Values of far rows by place, and of the nearest in the order of their keys."""
        from cellworth.neighbours import bin_kernels

        far = np.empty(self.counts.shape)
        nearest = [np.empty(len(keys)) for keys in self.near]
        chances = training.chances
        for s, keys in enumerate(self.near):
            bin_kernels.binned_values(
                self.counts[s], keys, training.shift, chances.single, chances.running,
                far[s], nearest[s],
            )  # fmt: skip
        return far, nearest

    def matches(self, training: Training) -> float:
        """Matches among the nearest rows of the last coalition; rows of a bin share its places."""
        keys, counts = self.near[-1], self.counts[-1]
        tied = keys >> training.shift
        groups = [
            np.array([len(part), (part & 1).sum()])
            for part in np.split(keys, np.flatnonzero(np.diff(tied)) + 1)
        ]
        far = counts[:-1].reshape(-1, 2)
        groups += list(np.column_stack([far.sum(axis=1), far[:, 1]]))
        left, found = training.n_neighbors, 0.0
        for size, matches in groups:
            taken = min(left, int(size))
            if taken:
                found += taken * matches / size
                left -= taken
        return float(found)


class BinnedRows:
    """Values the rows for one query after the other, in buffers of its own."""

    def __init__(self, training: Training, n_lines: int, bins: RankBins) -> None:
        n_rows = training.n_rows
        self._training = training
        n_sample = _sample_size(n_rows)
        # By position alone: the same rows for every query and coalition.
        sample = np.sort(np.random.Generator(np.random.Philox(1)).permutation(n_rows)[:n_sample])
        self._sample = training.rows.take(sample)
        nearest = n_nearest(bins, n_rows, training.n_neighbors)
        ranks = nearest * (1.0 + bins.width) ** np.arange(bins.n_bins(n_rows) + 1)
        places = (ranks[ranks < n_rows] / n_rows * n_sample).astype(np.int64)
        self._edge_places = np.unique(np.clip(places, 0, n_sample - 1))
        # A bin from each edge on, and one for the distance of the first edge alone.
        self._n_places = 2 * (len(self._edge_places) + 1) + 1
        self._places = np.empty((n_lines, n_rows), dtype=np.uint16)

    def add(
        self,
        query: Query,
        plan: Plan,
        *,
        order: Wholes,
        weights: Floats,
        count: float,
        nothing: Floats,
        into: Floats,
    ) -> float:
        """Add the values of all cells for one query; as in SortedRows."""
        from cellworth.neighbours import bin_kernels

        training, whole = self._training, 0.0
        for part, steps in plan.batches:
            edges = self.edges(query, order, steps)
            places = self._places[: len(steps[0])]
            summary = summarise(
                training, query, order=order, steps=steps, edges=edges, places=places
            )
            far, nearest = summary.values(training)
            counts = weights[part] * count
            bin_kernels.add_far(places, far, counts, into)
            for s, (keys, values) in enumerate(zip(summary.near, nearest, strict=True)):
                rows = (keys & ((1 << training.shift) - 1)) >> 1
                bin_kernels.add_near(rows, values, counts[s], into)
            if part is plan.batches[-1][0]:
                whole = summary.matches(training) / training.n_neighbors
        for player in np.flatnonzero(weights[-1]):
            into[player] += (weights[-1, player] * count) * nothing
        return whole

    def edges(self, query: Query, order: Wholes, steps: Steps) -> Edges:
        """Find where bins begin, from distances of a sample of the rows."""
        from cellworth.neighbours import bin_kernels, kernels

        training, n_lines = self._training, len(steps[0])
        payload = np.zeros(self._sample.numbers.shape[1], dtype=np.int64)
        keys = np.empty((n_lines, len(payload)), dtype=np.int64)
        kernels.fill_keys(
            self._sample, query[:3], training.rulers, training.players, order, steps, payload,
            training.shift, keys,
        )  # fmt: skip
        floats = np.empty(keys.shape, dtype=np.float32)
        bin_kernels.ordinals(keys.ravel(), training.shift, floats.ravel())
        sample = np.sort(floats.view(np.int32), axis=1)
        nearest_end, bits = (np.empty(n_lines, dtype=np.int32) for _ in range(2))
        steps_to_bin = np.empty((n_lines, bin_kernels.N_STEPS), dtype=np.uint16)
        for s in range(n_lines):
            nearest_end[s], bits[s] = bin_kernels.place_edges(
                sample[s], self._edge_places, steps_to_bin[s]
            )
        return Edges(nearest_end, bits, steps_to_bin, self._n_places)


def summarise(
    shard: Training,
    query: Query,
    *,
    order: Wholes,
    steps: Steps,
    edges: Edges,
    places: NDArray[np.uint16],
) -> RankSummary:
    """Count the rows of a shard by bin, and list the nearest of them.

    Parameters
    ----------
    shard : Training
        Some rows of a table, or all of them.
    query, order, steps
        As in kernels.fill_keys.
    edges : Edges
    places : array of shape (n_coalitions, n_rows)
        Filled: the place of each row in the counts.
    """
    from cellworth.neighbours import bin_kernels

    n_lines, room = len(steps[0]), _ROOM
    payload = shard.payload(query)
    while True:
        counts = np.zeros((n_lines, edges.n_places), dtype=np.int64)
        near, n_near = np.empty((n_lines, room), dtype=np.int64), np.zeros(n_lines, dtype=np.int64)
        bin_kernels.bin_rows(
            shard.rows, query[:3], shard.rulers, shard.players, order, steps, payload,
            shard.shift, edges[:3], places, counts, near, n_near,
        )  # fmt: skip
        if n_near.max() <= room:
            kept = tuple(np.sort(line[:n]) for line, n in zip(near, n_near, strict=True))
            return RankSummary(counts, kept)
        room = int(n_near.max())
