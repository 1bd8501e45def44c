"""Rows to learn from and queries to be judged on, in the form in which rows are ranked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cellworth.counts import Codes, Floats, Wholes
from cellworth.neighbours.chances import RankChances
from cellworth.neighbours.distances import Columns, Rulers
from cellworth.subsets import Coalitions


class Query(NamedTuple):
    """One row to be judged on.

    Parameters
    ----------
    numbers, categories : arrays
        Its cells, as in Columns.
    lines : array
        Where the distances to its cells begin, for columns that have tables.
    label : float
        Code of its class, or its target minus the mean target of all training rows.
    """

    numbers: Floats
    categories: Codes
    lines: Wholes
    label: float

    @classmethod
    def of(cls, columns: Columns, rulers: Rulers, place: int, label: float) -> Query:
        """Pick one row of a query table."""
        lines = rulers.starts + columns.coded[:, place] * rulers.widths
        numbers = np.ascontiguousarray(columns.numbers[:, place])
        return cls(numbers, np.ascontiguousarray(columns.categories[:, place]), lines, label)


@dataclass(frozen=True, eq=False)
class Training:
    """Rows that may be learned from.

    Parameters
    ----------
    rows : Columns
    rulers : Rulers
    players : array of shape (n_columns,)
        Player that each column belongs to, in the order of the rulers.
    labels : array of shape (n_rows,)
        Codes of classes, or targets minus their mean.
    is_class : bool
    n_neighbors : int
    chances : RankChances
    """

    rows: Columns
    rulers: Rulers
    players: Wholes
    labels: Floats
    is_class: bool
    n_neighbors: int
    chances: RankChances

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.labels)

    @property
    def shift(self) -> int:
        """Bits of a sort key that hold the row, and whether its label matches."""
        return self.n_rows.bit_length() + self.is_class

    @cached_property
    def _shifted_places(self) -> Wholes:
        return np.arange(self.n_rows, dtype=np.int64) << self.is_class

    def payload(self, query: Query) -> Wholes:
        """What the sort keys carry besides the distance."""
        places = self._shifted_places
        return places | (self.labels == query.label) if self.is_class else places

    def row_values(self, keys: Wholes, query: Query, out: Floats) -> None:
        """Write the value of every row into ``out``, from sorted keys, line by line."""
        from cellworth.neighbours import kernels

        chances = self.chances
        if self.is_class:
            kernels.class_values(keys, self.shift, chances.single, chances.running, out)
        else:
            tables = (chances.single, chances.running, chances.pair, chances.pushed)
            kernels.target_values(
                keys, self.shift, self.labels, query.label, self.n_neighbors, tables, out
            )

    def utility(self, keys: Wholes, query: Query) -> float:
        """Utility of all rows, from one line of sorted keys."""
        from cellworth.neighbours import kernels

        if self.is_class:
            matches = kernels.nearest_matches(keys, self.shift, self.n_neighbors)
            return float(matches) / self.n_neighbors
        return -float(
            kernels.nearest_error(keys, self.shift, self.labels, query.label, self.n_neighbors)
        )

    def without_columns(self, query: Query) -> tuple[Floats, float]:
        """Values of rows and utility of all rows where no column tells them apart."""
        keys = self.payload(query)
        values = np.empty((1, self.n_rows))
        self.row_values(keys[None, :], query, values)
        return values[0], self.utility(keys, query)


# Base of each coalition, first entry of each in the toggles, toggles; see kernels.fill_keys.
Steps = tuple[Wholes, Wholes, Wholes]


@dataclass(frozen=True, eq=False)
class CoalitionBatches:
    """Coalitions in the order and the form in which a query is ranked on them.

    Parameters
    ----------
    coalitions : Coalitions
    batches : tuple
        Slices of the coalitions that are ranked together, each with its steps for the kernel.
    """

    coalitions: Coalitions
    batches: tuple[tuple[slice, Steps], ...]

    @property
    def most_at_once(self) -> int:
        """Coalitions in the largest batch."""
        return max(len(steps[0]) for _, steps in self.batches)

    @classmethod
    def of(cls, coalitions: Coalitions, at_once: int) -> CoalitionBatches:
        """Cut coalitions into batches of this many."""
        starts = range(0, len(coalitions.members), at_once)
        parts = [slice(start, start + at_once) for start in starts]
        return cls(
            coalitions, tuple((part, coalition_steps(coalitions.members[part])) for part in parts)
        )


def coalition_steps(members: NDArray[np.bool_]) -> Steps:
    """Shortest ways to each coalition: from nothing, from the one before, or from everything."""
    before = np.vstack([members[:1], members[:-1]])
    sources = np.stack([np.zeros_like(members), before, np.ones_like(members)])
    lengths = (sources != members).sum(axis=2)
    lengths[1, 0] = members.shape[1] + 1
    bases = lengths.argmin(axis=0)
    changed = sources[bases, np.arange(len(members))] != members
    coalition, player = np.nonzero(changed)
    toggles = np.where(members[coalition, player], player, ~player)
    firsts = np.concatenate([[0], np.cumsum(changed.sum(axis=1))])
    return bases.astype(np.int64), firsts.astype(np.int64), toggles.astype(np.int64)
