"""Baselines: random orders and cells as players of the 2D-Shapley paper, and Leverage SHAP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from cellworth.data.arguments import Floats, Integers, Mask
from cellworth.data.blocks import Blocks
from cellworth.data.problem import Problem
from cellworth.games import ModelGame
from cellworth.games.model import FoldScore
from cellworth.games.table_filler import TableFiller
from cellworth.sampling.column_samplers import (
    QuadratureSampler,
    allot,
    numbers_of_subsets,
    subsets,
)
from cellworth.sampling.estimators import (
    Estimator,
    Semivalues,
    Shape,
    order_differences,
    require_shapley,
)
from cellworth.sampling.moments import Estimate, Moments, Sums, append_margins
from cellworth.sampling.samplers import OrderPairs, PermutationTasks, TaskSampler

_MIN_TASKS_OF_ERRORS = 200


@dataclass(frozen=True)
class PlainPermutations(Estimator):
    """Estimate Shapley values from random orders of rows and columns, as in the paper.

    This estimator is for comparison. It is unbiased, but it needs ten to hundreds of times more
    utilities than :class:`~cellworth.sampling.AntitheticPermutations` or
    :class:`~cellworth.sampling.GaussianProcess`. Observations are skewed, so the variance of few
    tasks is too small. Standard errors are given from 200 tasks on.

    References
    ----------
    Liu, Just, Chang, Chen and Jia (2023), 2D-Shapley: A Framework for Fragmented Data Valuation,
    ICML.

    Examples
    --------
    >>> from cellworth.runtime import MaxTasks
    >>> from cellworth.games import TableGame
    >>> from cellworth import value_game
    >>> from experiments.baselines import PlainPermutations
    >>> game = TableGame(np.arange(64.0).reshape(8, 8) ** 2)
    >>> run = {"estimator": PlainPermutations(), "random_state": 0}
    >>> short, long = (value_game(game, (3, 3), stop=MaxTasks(n), **run) for n in (100, 200))
    >>> bool(np.isnan(short.sampling_se).all()), bool(np.isnan(long.sampling_se).any())
    (True, False)
    """

    name: ClassVar[str] = "plain permutations"
    observes_sums: ClassVar[bool] = True

    def make_sampler(self, shape: Shape, semivalues: Semivalues, seed: int) -> TaskSampler:
        """Return a sampler of one order of rows and one of columns per task."""
        require_shapley(self, semivalues)
        return PlainTasks(shape, seed)

    def estimate(self, semivalues: Semivalues, total: Floats) -> Estimate:
        """Return the mean of second differences, with errors from 200 tasks on."""
        return average_many_differences


def average_many_differences(
    tasks: Sequence[OrderPairs], utilities: Sequence[Floats], sums: Sums = append_margins
) -> Moments:
    """Average second differences; the errors of the values of few tasks are not known."""
    seen = Moments.of_all([sums(block) for block in map(order_differences, tasks, utilities)])
    unknown = seen.sum_sq.copy()
    # The last axis has the value first, and then its deviations.
    unknown[(..., 0) if utilities[0].ndim > 1 else ...] = np.nan
    return seen if len(tasks) >= _MIN_TASKS_OF_ERRORS else replace(seen, sum_sq=unknown)


class PlainTasks(PermutationTasks):
    """Draw one uniformly random order of the rows and one of the columns per task."""

    def __call__(self, task: int) -> OrderPairs:
        """Draw the orders of a task."""
        drawn = super().__call__(task)
        return OrderPairs(drawn.rows[:1], drawn.columns[:1])

    @property
    def utilities_per_task(self) -> float:
        """One utility per pair of prefixes."""
        return super().utilities_per_task / 2


class FlattenedGame:
    """Game of single blocks: the model is trained on all rows, with absent cells filled.

    This is the one-dimensional game that the 2D-Shapley paper compares with. ``value_game`` of it
    gives the values of cells, one row for each. An absent number is
    replaced by the mean of the numbers present in its column, an absent string or category by the
    most frequent one present. If no cell of a column is present, all its cells determine the fill,
    and the column is constant. Missing values of the user's table are left to the model.

    As a :class:`~cellworth.games.Game`, its row players are the blocks (row by row of the table).
    There is a single column player, without which the utility is 0.

    Parameters
    ----------
    game : ModelGame
        Model, table and validation rows. Without a validation set, the fills of a fold come from
        its training rows. A filled table is never empty, so ``empty`` does not matter.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X, y = [[0.0], [1.0]], [0, 1]
    >>> from cellworth.games import ModelGame
    >>> from experiments.baselines import FlattenedGame
    >>> game = FlattenedGame(ModelGame(DecisionTreeClassifier(), X, y, X_val=X, y_val=y))
    >>> game.value(np.array([True, True]), np.array([True]))
    1.0
    >>> game.value(np.array([True, False]), np.array([True]))
    0.5
    """

    def __init__(self, game: ModelGame) -> None:
        self._model_game = game
        self.problem: Problem = game.problem
        self.scoring: str = game.scoring
        self.blocks: Blocks = Blocks.from_shape((int(np.prod(self.problem.blocks.shape)), 1))

    @property
    def shape(self) -> tuple[int, int]:
        """Number of blocks, and 1."""
        return self.blocks.shape

    def problem_spec(self) -> dict[str, Any]:
        """Return everything that determines the values of this game."""
        problem_spec = self._model_game.problem_spec() | {"game": "FlattenedGame"}
        # Filled tables are never empty.
        del problem_spec["empty"]
        return problem_spec

    def parts(self) -> list[Any]:
        """Return the objects whose code determines the utilities."""
        return [self, *self._model_game.parts()]

    def value(self, rows: Mask, columns: Mask) -> float:
        """Return the score of the model trained on the filled table, mean over the folds."""
        if not columns.any():
            return self._model_game.no_utility()
        present = self._cells(rows)
        return self._model_game.mean_utility(lambda fold: self._fold_score(fold, present))

    def _cells(self, members: Mask) -> Mask:
        blocks = self.problem.blocks
        present = members.reshape(blocks.shape)
        return present[np.ix_(blocks.rows.codes, blocks.columns.codes)]

    def _fold_score(self, number: int, present: Mask) -> FoldScore:
        # The same game on another table: it handles failed fits.
        table = self._fillings.fill(present, self.problem.folds[number].may_train)
        everything = (np.ones(n, dtype=bool) for n in self.problem.blocks.shape)
        return self._model_game.on(table).fold_score(number, *everything)

    @cached_property
    def _fillings(self) -> TableFiller:
        return TableFiller(self.problem.table)


@dataclass(frozen=True)
class LeverageSampler(QuadratureSampler):
    """Draw coalitions of all sizes with their complements, and fit a weighted regression.

    Every size gets about as many coalitions, and none is drawn twice. The values are those of the
    additive game that fits best and keeps the total (Musco and Witter 2025, Leverage SHAP). They
    are exact if all coalitions are drawn. For Shapley values of columns.

    Parameters
    ----------
    coalitions : int, default=None
        Coalitions per query and pass; None means eight per column.

    References
    ----------
    Musco and Witter (2025), Provably Accurate Shapley Value Estimation via Leverage Score Sampling,
    ICLR.
    """

    _least_per_player: ClassVar[int] = 3

    def _fit(self, n_players: int, budget: int, rng: np.random.Generator) -> tuple[Mask, Floats]:
        members, n_alike = _draw_pairs(n_players, budget, rng)
        sizes = members.sum(axis=1)
        centered = members - (sizes / n_players)[:, None]
        weighted = centered / (n_alike * sizes * (n_players - sizes))[:, None]
        products = weighted.T @ centered
        # The fit has no component along equal shares; adding one makes it well conditioned.
        products += np.trace(products) / n_players**2
        return members, weighted @ np.linalg.pinv(products, rcond=1e-10, hermitian=True)


def _draw_pairs(n_players: int, budget: int, rng: np.random.Generator) -> tuple[Mask, Integers]:
    """Draw coalitions with complements; also return the number of coalitions of each size."""
    sizes = np.arange(1, n_players // 2 + 1)
    exist = numbers_of_subsets(n_players, sizes)
    # A coalition of half the players has a complement of the same size.
    halves = 2 * sizes == n_players
    shares = np.where(halves, 0.5, 1.0)
    counts = allot(shares, exist * shares, budget / 2, rng)
    ones = np.vstack(
        [
            _subsets_with_first(n_players, size, count, rng)
            if 2 * size == n_players
            else subsets(n_players, size, count, rng)
            for size, count in zip(sizes.tolist(), counts.tolist(), strict=True)
        ]
    )
    n_alike = np.repeat(np.where(halves, 2, 1) * counts, counts)
    members = np.stack([ones, ~ones], axis=1).reshape(-1, n_players)
    return members, np.repeat(n_alike, 2)


def _subsets_with_first(n_players: int, size: int, count: int, rng: np.random.Generator) -> Mask:
    """Draw distinct subsets with the first player: one of each half and its complement."""
    rest = subsets(n_players - 1, size - 1, count, rng)
    return np.column_stack([np.ones(count, dtype=bool), rest])
