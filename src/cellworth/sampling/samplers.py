"""Samplers of row and column coalitions: task t is a pure function of seed and t."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats, Mask, Positions

_COALITIONS_PER_TASK = 64
_QUADS_PER_TASK = 8


class TaskSampler(Protocol):
    """Draw the tasks of a run by number."""

    @property
    def utilities_per_task(self) -> float:
        """Mean number of utilities per task."""

    def __call__(self, task: int) -> Any:
        """Return task number t; a pure function of the sampler and t."""


def n_utilities(shape: tuple[int, int]) -> int:
    """Return the number of pairs of non-empty row and column coalitions."""
    return math.prod((1 << n_players) - 1 for n_players in shape)


def generator(seed: int, *position: int) -> np.random.Generator:
    """Return the random generator of one position, such as a task number."""
    # A spawn key reaches any position directly, in any order and on any machine.
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=position)))


@dataclass(frozen=True, eq=False)
class CoalitionPairs:
    """Pairs of a row coalition and a column coalition."""

    # (n_pairs, n_rows) and (n_pairs, n_columns): true where the player belongs to the
    # coalition.
    rows: NDArray[Any]
    columns: NDArray[Any]

    def __iter__(self) -> Iterator[tuple[Mask, Mask]]:
        return zip(self.rows, self.columns, strict=True)


class OrderPairs(CoalitionPairs):
    """Pairs of an order of the rows and one of the columns, drawn together: one observation.

    ``rows`` and ``columns`` are the players of each order.
    """

    def __iter__(self) -> Iterator[tuple[Mask, Mask]]:
        """Yield all pairs of prefixes of each pair, row prefixes in the outer loop."""
        for row_order, column_order in zip(self.rows, self.columns, strict=True):
            yield from product(_prefixes(row_order), _prefixes(column_order))


@dataclass(frozen=True)
class PermutationTasks:
    """Draw one uniformly random order of the rows and one of the columns, and both reversed.

    A player that joins early in one order joins late in the other, so effects of the position
    cancel.
    """

    shape: tuple[int, int]
    seed: int

    @property
    def utilities_per_task(self) -> float:
        """One utility per pair of prefixes, of each order."""
        return 2.0 * (self.shape[0] + 1) * (self.shape[1] + 1)

    def __call__(self, task: int) -> OrderPairs:
        """Draw the orders of a task."""
        rng = generator(self.seed, task)
        orders = (rng.permutation(n_players) for n_players in self.shape)
        return OrderPairs(*(np.array([order, order[::-1]]) for order in orders))


@dataclass(frozen=True)
class QuadTasks:
    """Draw row and column coalitions with their complements; all four pairs form a quad."""

    # Probability of each size 0..n of a drawn coalition, for rows and for columns.
    sizes: tuple[Floats, Floats]
    seed: int

    @property
    def utilities_per_task(self) -> float:
        """Four pairs per quad."""
        return 4.0 * _QUADS_PER_TASK

    def __call__(self, task: int) -> CoalitionPairs:
        """Draw the coalitions of a task."""
        rng = generator(self.seed, task)
        drawn = (draw_coalitions(rng, chances, _QUADS_PER_TASK) for chances in self.sizes)
        pairs = [pair for r, c in zip(*drawn, strict=True) for pair in product((r, ~r), (c, ~c))]
        rows, columns = zip(*pairs, strict=True)
        return CoalitionPairs(np.array(rows), np.array(columns))


@dataclass(frozen=True)
class ExhaustiveTasks:
    """List every pair of a row coalition and a column coalition, a fixed number per task."""

    shape: tuple[int, int]

    @property
    def utilities_per_task(self) -> float:
        """One utility per pair."""
        return float(min(_COALITIONS_PER_TASK, self.n_pairs))

    @property
    def n_pairs(self) -> int:
        """Number of pairs: 2^n_rows times 2^n_columns."""
        return 1 << sum(self.shape)

    @property
    def n_tasks(self) -> int:
        """Number of tasks that cover every pair once."""
        return -(-self.n_pairs // _COALITIONS_PER_TASK)

    def __call__(self, task: int) -> CoalitionPairs:
        """List the pairs of a task."""
        start = task * _COALITIONS_PER_TASK
        end = min(start + _COALITIONS_PER_TASK, self.n_pairs)
        return list_pairs(np.arange(start, end), self.shape)


def list_pairs(numbers: NDArray[np.int64], shape: tuple[int, int]) -> CoalitionPairs:
    """Return pairs by number: its last bits are those of the column coalition."""
    n_rows, n_columns = shape
    columns = numbers & ((1 << n_columns) - 1)
    return CoalitionPairs(
        coalition_masks(numbers >> n_columns, n_rows), coalition_masks(columns, n_columns)
    )


def coalition_masks(numbers: NDArray[np.int64], n_players: int) -> Mask:
    """Return coalitions by number: player p is a member if bit p of the number is set.

    Examples
    --------
    >>> from cellworth.sampling.samplers import coalition_masks
    >>> coalition_masks(np.array([0, 1, 2]), 2)
    array([[False, False],
           [ True, False],
           [False,  True]])
    """
    return ((numbers[:, None] >> np.arange(n_players)) & 1).astype(bool)


def _prefixes(order: Positions) -> Mask:
    """Return the prefixes of an order as coalitions, the empty one first."""
    return np.asarray(np.argsort(order) < np.arange(len(order) + 1)[:, np.newaxis])


def draw_coalitions(rng: np.random.Generator, chances: Floats, n_draws: int) -> Mask:
    """Draw coalitions whose sizes, from 0 to all players, have these probabilities."""
    n_players = len(chances) - 1
    sizes = rng.choice(n_players + 1, n_draws, p=chances)
    ranks = rng.random((n_draws, n_players)).argsort(axis=1).argsort(axis=1)
    return np.asarray(ranks < sizes[:, np.newaxis])
