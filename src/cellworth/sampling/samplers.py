"""Samplers of row and column coalitions: task t is a pure function of (seed, t)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Mask, Positions
from cellworth.sampling.semivalues import Semivalue, size_probabilities

_COALITIONS_PER_TASK = 64
_QUADS_PER_TASK = 8


class Design(Protocol):
    """Names the tasks of a run by number."""

    @property
    def utilities_per_task(self) -> float:
        """Utilities that a task looks at, in the mean."""
        ...

    def __call__(self, task: int) -> Any:
        """Name task number t; a pure function of the design and t."""
        ...


class FiniteDesign(Design, Protocol):
    """A design that comes to an end."""

    @property
    def n_tasks(self) -> int:
        """Tasks in all."""
        ...


def n_utilities(shape: tuple[int, int]) -> int:
    """Pairs of some rows and some columns: the coalitions whose utilities cost something."""
    return math.prod((1 << n_players) - 1 for n_players in shape)


def generator(seed: int, *position: int) -> np.random.Generator:
    """Return the random numbers of one place, such as a task: the same for anyone, in any order."""
    # Philox is counter-based, and a spawn key reaches a place without visiting those before.
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=position)))


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


@dataclass(frozen=True, eq=False)
class Grids:
    """Grids that are drawn together and count as one observation."""

    grids: tuple[Grid, ...]

    def __iter__(self) -> Iterator[tuple[Mask, Mask]]:
        """Pairs of coalitions, grid by grid."""
        return chain.from_iterable(self.grids)


@dataclass(frozen=True)
class PermutationGrids:
    """Task t is one uniformly random order of the rows and one of the columns.

    With ``antithetic`` the grid of both orders reversed comes with it: who joined early in the one
    joins late in the other, so that what depends on the place cancels.
    """

    shape: tuple[int, int]
    seed: int
    antithetic: bool = False

    @property
    def utilities_per_task(self) -> float:
        """One for each pair of prefixes."""
        return float((1 + self.antithetic) * (self.shape[0] + 1) * (self.shape[1] + 1))

    def __call__(self, task: int) -> Grids:
        """Draw the two orders of a task."""
        rng = generator(self.seed, task)
        n_rows, n_columns = self.shape
        drawn = Grid(rng.permutation(n_rows), rng.permutation(n_columns))
        if not self.antithetic:
            return Grids((drawn,))
        return Grids((drawn, Grid(drawn.row_order[::-1], drawn.column_order[::-1])))


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
class CoalitionQuads:
    """Task t draws coalitions of rows and of columns, each with its complement, all four pairs.

    Parameters
    ----------
    sizes : tuple of two arrays
        Chance of each size 0..n of a drawn coalition, for rows and for columns.
    with_empty_sides : bool
        Whether pairs with nobody on one side come along, so that what a coalition earns can be told
        from what its rows or its columns have without the other side.
    """

    shape: tuple[int, int]
    seed: int
    sizes: tuple[NDArray[np.float64], NDArray[np.float64]]
    with_empty_sides: bool = True

    @property
    def utilities_per_task(self) -> float:
        """Four pairs for each quad, and five where sides are empty, which cost little."""
        return 4.0 * _QUADS_PER_TASK

    def __call__(self, task: int) -> CoalitionPairs:
        """Draw the coalitions of a task."""
        rng = generator(self.seed, task)
        drawn = [[_draw(rng, chances) for chances in self.sizes] for _ in range(_QUADS_PER_TASK)]
        pairs = [pair for rows, columns in drawn for pair in _quad(rows, columns)]
        if self.with_empty_sides:
            pairs += [pair for rows, columns in drawn for pair in _empty_sides(rows, columns)]
        rows, columns = zip(*pairs, strict=True)
        return CoalitionPairs(np.array(rows), np.array(columns))


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


@dataclass(frozen=True)
class ThenAll:
    """The first tasks of a design, then every pair of coalitions, of which many are known by then.

    A run that ends early has what the first tasks tell, and one that comes to the end is exact.
    """

    first: Design
    n_first: int
    shape: tuple[int, int]

    @property
    def utilities_per_task(self) -> float:
        """About as many as in a first task."""
        return self.first.utilities_per_task

    @property
    def pairs(self) -> AllCoalitions:
        """What follows the first tasks."""
        return AllCoalitions(self.shape)

    @property
    def n_tasks(self) -> int:
        """First tasks, and those that cover every pair."""
        return self.n_first + self.pairs.n_tasks

    def __call__(self, task: int) -> Any:
        """Name a first task, or list pairs."""
        return self.first(task) if task < self.n_first else self.pairs(task - self.n_first)


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
    return _draw(rng, np.append(_chances_to_be_joined(semivalue, n_players), 0.0))


def _draw(rng: np.random.Generator, chances: NDArray[np.float64]) -> Mask:
    """Draw a coalition whose size has these chances, from 0 to all players."""
    n_players = len(chances) - 1
    size = rng.choice(n_players + 1, p=chances)
    members = np.zeros(n_players, dtype=bool)
    members[rng.permutation(n_players)[:size]] = True
    return members


def _quad(rows: Mask, columns: Mask) -> Iterator[tuple[Mask, Mask]]:
    for some_rows in (rows, ~rows):
        for some_columns in (columns, ~columns):
            yield some_rows, some_columns


def _empty_sides(rows: Mask, columns: Mask) -> Iterator[tuple[Mask, Mask]]:
    no_rows, no_columns = np.zeros_like(rows), np.zeros_like(columns)
    for some_rows in (rows, ~rows, no_rows):
        yield some_rows, no_columns
    for some_columns in (columns, ~columns):
        yield no_rows, some_columns
