"""Baselines: random orders of the 2D-Shapley paper, and Leverage SHAP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from cellworth.data.arguments import Floats, Integers, Mask
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
