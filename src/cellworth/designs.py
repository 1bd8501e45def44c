"""Designs: which coalitions to look at; task number t is a pure function of (seed, t)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cellworth.blocks import Mask, Positions
from cellworth.semivalues import Semivalue, size_probabilities

_COALITIONS_PER_TASK = 64


class Design(Protocol):
    """Names the tasks of a run by number."""

    @property
    def utilities_per_task(self) -> float:
        """Utilities that a task looks at, in the mean."""
        ...

    def __call__(self, task: int) -> Any:
        """Name task number t; a pure function of the design and t."""
        ...


def generator(seed: int, *place: int) -> np.random.Generator:
    """Return the random numbers of one place, such as a task: the same for anyone, in any order."""
    # Philox is counter-based, and a spawn key reaches a place without visiting those before.
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=place)))


@dataclass(frozen=True, eq=False)
class Grid:
    """One order of the rows and one of the columns: all pairs of their prefixes."""

    row_order: Positions
    column_order: Positions

    def __iter__(self) -> Iterator[tuple[Mask, Mask]]:
        """Pairs of coalitions, row prefixes in the outer loop, the empty ones first."""
        for rows in _prefixes(self.row_order):
            for columns in _prefixes(self.column_order):
                yield rows, columns


@dataclass(frozen=True)
class PermutationGrids:
    """Task t is one uniformly random order of the rows and one of the columns."""

    shape: tuple[int, int]
    seed: int

    @property
    def utilities_per_task(self) -> float:
        """One for each pair of prefixes."""
        return float((self.shape[0] + 1) * (self.shape[1] + 1))

    def __call__(self, task: int) -> Grid:
        """Draw the two orders of a task."""
        rng = generator(self.seed, task)
        n_rows, n_columns = self.shape
        return Grid(rng.permutation(n_rows), rng.permutation(n_columns))


@dataclass(frozen=True, eq=False)
class Joins:
    """A coalition of rows and one of columns, which everyone outside joins in turn."""

    rows: Mask
    columns: Mask

    def __iter__(self) -> Iterator[tuple[Mask, Mask]]:
        """Pairs of coalitions: nobody or one row joins, then nobody or one column."""
        for rows in _joined(self.rows):
            for columns in _joined(self.columns):
                yield rows, columns


@dataclass(frozen=True)
class SemivalueJoins:
    """Task t draws two coalitions so that whoever joins meets sizes as the semivalues ask.

    A coalition of size s leaves n - s players outside, so that a player is more likely to be there
    to join a small one; sizes are drawn in proportion to p_s / (n - s) to make up for it. What is
    seen needs no weights, and so its spread is an honest one, even where a semivalue looks at rare
    sizes only.
    """

    shape: tuple[int, int]
    semivalues: tuple[Semivalue, Semivalue]
    seed: int

    @property
    def utilities_per_task(self) -> float:
        """In the mean: one for each pair of those who may join, or nobody."""
        outside = [
            float(chances @ (len(chances) - np.arange(len(chances))))
            for chances in map(_chances_to_be_joined, self.semivalues, self.shape)
        ]
        return (outside[0] + 1) * (outside[1] + 1)

    def __call__(self, task: int) -> Joins:
        """Draw the two coalitions of a task."""
        rng = generator(self.seed, task)
        rows, columns = (
            _draw_to_be_joined(rng, semivalue, n_players)
            for semivalue, n_players in zip(self.semivalues, self.shape, strict=True)
        )
        return Joins(rows, columns)


@dataclass(frozen=True, eq=False)
class CoalitionPairs:
    """Row coalitions and column coalitions, taken pairwise.

    Parameters
    ----------
    rows, columns : arrays of shape (n_pairs, n_rows) and (n_pairs, n_columns)
        True where the player belongs to the coalition.
    """

    rows: Mask
    columns: Mask

    def __iter__(self) -> Iterator[tuple[Mask, Mask]]:
        """One pair of coalitions after the other."""
        return zip(self.rows, self.columns, strict=True)


@dataclass(frozen=True)
class AllCoalitions:
    """Every pair of a row coalition and a column coalition, a fixed number of them a task."""

    shape: tuple[int, int]

    @property
    def utilities_per_task(self) -> float:
        """One for each pair."""
        return float(min(_COALITIONS_PER_TASK, self.n_pairs))

    @property
    def n_pairs(self) -> int:
        """Pairs in all: 2^n_rows times 2^n_columns."""
        return 1 << sum(self.shape)

    @property
    def n_tasks(self) -> int:
        """Tasks that cover every pair once."""
        return -(-self.n_pairs // _COALITIONS_PER_TASK)

    def __call__(self, task: int) -> CoalitionPairs:
        """List the pairs of a task."""
        start = task * _COALITIONS_PER_TASK
        pairs = np.arange(start, min(start + _COALITIONS_PER_TASK, self.n_pairs))
        n_rows, n_columns = self.shape
        return CoalitionPairs(
            coalition_masks(pairs >> n_columns, n_rows),
            coalition_masks(pairs & ((1 << n_columns) - 1), n_columns),
        )


def coalition_masks(numbers: NDArray[np.int64], n_players: int) -> Mask:
    """Coalitions by number: player p belongs to those whose number has bit p set.

    Examples
    --------
    >>> coalition_masks(np.array([0, 1, 2]), 2)
    array([[False, False],
           [ True, False],
           [False,  True]])
    """
    return ((numbers[:, None] >> np.arange(n_players)) & 1).astype(bool)


def _prefixes(order: Positions) -> Iterator[Mask]:
    members = np.zeros(len(order), dtype=bool)
    yield members.copy()
    for player in order:
        members[player] = True
        yield members.copy()


def _joined(coalition: Mask) -> Iterator[Mask]:
    yield coalition
    for player in np.flatnonzero(~coalition):
        members = coalition.copy()
        members[player] = True
        yield members


def _chances_to_be_joined(semivalue: Semivalue, n_players: int) -> NDArray[np.float64]:
    chances = size_probabilities(semivalue, n_players) / (n_players - np.arange(n_players))
    return chances / float(chances.sum())


def _draw_to_be_joined(rng: np.random.Generator, semivalue: Semivalue, n_players: int) -> Mask:
    size = rng.choice(n_players, p=_chances_to_be_joined(semivalue, n_players))
    members = np.zeros(n_players, dtype=bool)
    members[rng.permutation(n_players)[:size]] = True
    return members
