"""Estimators: which coalitions a model game needs, and how values follow from utilities."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, ClassVar

import numpy as np

from cellworth.data.arguments import Floats
from cellworth.sampling.gaussian_process import Interactions, process_moments
from cellworth.sampling.moments import (
    Estimate,
    Moments,
    Sums,
    append_margins,
    append_unknown_margins,
)
from cellworth.sampling.samplers import (
    CoalitionPairs,
    MarginalTask,
    MarginalTasks,
    OrderPairs,
    PermutationTasks,
    QuadTasks,
    TaskSampler,
)
from cellworth.sampling.semivalues import Banzhaf, Semivalue, Shapley, size_probabilities

Semivalues = tuple[Semivalue, Semivalue]
Shape = tuple[int, int]
_SHAPLEY = (Shapley(), Shapley())
_MOST_PLAYERS_OF_A_PROCESS = 300
_MOST_BLOCKS_OF_A_PROCESS = 3_000
_MOST_UTILITIES_OF_A_PROCESS = 4_000
_SIGNS = np.array([1.0, -1.0, -1.0, 1.0])


class Estimator(ABC):
    """A way to estimate values: a design of tasks, and what their utilities tell."""

    name: ClassVar[str]
    # Whether short runs are drawn towards equal shares.
    shrink: ClassVar[bool] = False
    # Whether runs join by averaging.
    merges: ClassVar[bool] = True
    # Whether every task observes all blocks, so that any sum of blocks has its own spread.
    observes_sums: ClassVar[bool] = False
    # Tasks below which the spread between them is no guide to the error.
    errors_from: ClassVar[int] = 2
    most_utilities: ClassVar[float] = math.inf

    @abstractmethod
    def make_sampler(self, shape: Shape, semivalues: Semivalues, seed: int) -> TaskSampler:
        """Name the tasks; refuse games that this way does not suit."""

    @abstractmethod
    def estimate(self, semivalues: Semivalues, total: Floats) -> Estimate:
        """Return what turns tasks and their utilities into Moments.

        Utilities of a task are an array of shape (n_pairs,), or (n_pairs, k) where their deviations
        come along; Moments then have a last axis of length k. ``total`` is what Shapley values
        add up to, for each of these columns.
        """


@dataclass(frozen=True)
class AntitheticPermutations(Estimator):
    """Random orders in pairs of opposites, less what sizes alone explain; the safe choice.

    A task draws one order of the rows and one of the columns and looks at every pair of their
    prefixes, and again with both orders reversed. From each utility the mean of those with as many
    rows and columns is taken before second differences are formed: a function of sizes gives all
    blocks the same value, and so only noise is lost. Observations are unbiased and independent but
    for that mean.

    While differences between blocks may be noise, values are drawn towards equal shares, so that a
    short run is no worse than dividing the total by the number of blocks. Shapley values only.

    Examples
    --------
    >>> from cellworth.runtime import MaxTasks
    >>> from cellworth.games import TableGame
    >>> from cellworth import value_game
    >>> from cellworth.sampling import AntitheticPermutations
    >>> game = TableGame(np.arange(64.0).reshape(8, 8) ** 2)
    >>> run = {"estimator": AntitheticPermutations(), "stop": MaxTasks(100), "random_state": 0}
    >>> estimate, exact = value_game(game, (3, 3), **run), value_game(game, (3, 3))
    >>> bool((abs(estimate.values - exact.values) <= 4 * estimate.sampling_se + 1e-9).all())
    True
    """

    name: ClassVar[str] = "centred grids"
    shrink: ClassVar[bool] = True

    def make_sampler(self, shape: Shape, semivalues: Semivalues, seed: int) -> TaskSampler:
        """Pairs of opposite orders."""
        _require_shapley(self, semivalues)
        return PermutationTasks(shape, seed, antithetic=True)

    def estimate(self, semivalues: Semivalues, total: Floats) -> Estimate:
        """Second differences, centred by size."""
        return average_centered_differences


@dataclass(frozen=True)
class PlainPermutations(Estimator):
    """Random orders of rows and columns, as in the paper; for comparison.

    Unbiased, but ten to hundreds of times more utilities are needed than with
    :class:`~cellworth.sampling.AntitheticPermutations` or
    :class:`~cellworth.sampling.GaussianProcess`. What a task tells is skewed,
    so that variances of few tasks promise too much: standard errors come
    with 200 tasks. Shapley values only.

    References
    ----------
    Liu, Just, Chang, Chen and Jia (2023), 2D-Shapley: A Framework for Fragmented Data Valuation,
    ICML.

    Examples
    --------
    >>> from cellworth.runtime import MaxTasks
    >>> from cellworth.games import TableGame
    >>> from cellworth import value_game
    >>> from cellworth.sampling import PlainPermutations
    >>> game = TableGame(np.arange(64.0).reshape(8, 8) ** 2)
    >>> run = {"estimator": PlainPermutations(), "random_state": 0}
    >>> short, long = (value_game(game, (3, 3), stop=MaxTasks(n), **run) for n in (100, 200))
    >>> bool(np.isnan(short.sampling_se).all()), bool(np.isnan(long.sampling_se).any())
    (True, False)
    """

    name: ClassVar[str] = "plain grids"
    observes_sums: ClassVar[bool] = True
    errors_from: ClassVar[int] = 200

    def make_sampler(self, shape: Shape, semivalues: Semivalues, seed: int) -> TaskSampler:
        """One order of rows and one of columns a task."""
        _require_shapley(self, semivalues)
        return PermutationTasks(shape, seed)

    def estimate(self, semivalues: Semivalues, total: Floats) -> Estimate:
        """Second differences."""
        return average_differences


@dataclass(frozen=True)
class GaussianProcess(Estimator):
    """A Gaussian process over pairs of coalitions: the fewest fits, for up to 4,000 of them.

    Likeness of two coalitions falls with the angle between their members, on the side of the rows
    and on that of the columns; how fast, and how much of the game is linear, common to all or
    rough, is learned by marginal likelihood from the first 1,000 utilities. Values are posterior
    means that add up to the total; they serve every semivalue. Standard errors are posterior ones,
    given once there are ten utilities for each block; they trust the kernel. The cost beyond fits
    is some seconds at the end, and grows with the third power of the utilities.

    References
    ----------
    O'Hagan (1991), Bayes-Hermite quadrature, Journal of Statistical Planning and Inference.

    Examples
    --------
    >>> from cellworth.runtime import MaxUtilities
    >>> from cellworth.games import TableGame
    >>> from cellworth import value_game
    >>> from cellworth.sampling import GaussianProcess
    >>> game = TableGame(np.log1p(np.add.outer(np.arange(16.0), 2 * np.arange(16.0))))
    >>> run = {"estimator": GaussianProcess(), "stop": MaxUtilities(170), "random_state": 0}
    >>> estimate, exact = value_game(game, (4, 4), **run), value_game(game, (4, 4))
    >>> estimate.provenance.tally.new, exact.provenance.tally.new
    (163, 225)
    >>> print(f"{abs(estimate.values - exact.values).max() / abs(exact.values).max():.2f}")
    0.01
    """

    name: ClassVar[str] = "gaussian process"
    merges: ClassVar[bool] = False
    most_utilities: ClassVar[float] = _MOST_UTILITIES_OF_A_PROCESS

    def make_sampler(self, shape: Shape, semivalues: Semivalues, seed: int) -> TaskSampler:
        """Quads of sizes that the semivalues ask for."""
        if max(shape) > _MOST_PLAYERS_OF_A_PROCESS or math.prod(shape) > _MOST_BLOCKS_OF_A_PROCESS:
            raise ValueError(
                f"GaussianProcess suits up to {_MOST_PLAYERS_OF_A_PROCESS} players a side and "
                f"{_MOST_BLOCKS_OF_A_PROCESS:,} blocks, not {shape[0]} x {shape[1]}; use "
                "AntitheticPermutations(), or group rows and columns."
            )
        rows, columns = (
            _sizes_around(semivalue, n) for semivalue, n in zip(semivalues, shape, strict=True)
        )
        return QuadTasks(shape, seed, (rows, columns))

    def estimate(self, semivalues: Semivalues, total: Floats) -> Estimate:
        """Posterior of the values."""
        known_total = total if semivalues == _SHAPLEY else None
        return _InteractionEstimate(
            partial(process_moments, semivalues=semivalues, total=known_total)
        )


@dataclass(frozen=True)
class BanzhafSampling(Estimator):
    """Uniform coalitions with their complements: every fit serves every block; Banzhaf values."""

    name: ClassVar[str] = "banzhaf contrasts"
    observes_sums: ClassVar[bool] = True

    def make_sampler(self, shape: Shape, semivalues: Semivalues, seed: int) -> TaskSampler:
        """Quads of uniformly random coalitions."""
        rows, columns = (_binomial_sizes(n) for n in shape)
        return QuadTasks(shape, seed, (rows, columns), with_empty_sides=False)

    def estimate(self, semivalues: Semivalues, total: Floats) -> Estimate:
        """Signed sums of the four utilities."""
        return average_quads


@dataclass(frozen=True)
class MarginalSampling(Estimator):
    """Coalitions at the sizes that semivalues ask for, which everyone outside joins in turn."""

    name: ClassVar[str] = "semivalue joins"

    def make_sampler(self, shape: Shape, semivalues: Semivalues, seed: int) -> TaskSampler:
        """Pairs of coalitions to be joined."""
        return MarginalTasks(shape, semivalues, seed)

    def estimate(self, semivalues: Semivalues, total: Floats) -> Estimate:
        """Second differences of those who joined."""
        return average_marginals


def choose_estimator(design: Any, semivalues: Semivalues) -> Estimator:
    """Accept a way to estimate, or choose the one that suits the semivalues."""
    if design is None:
        if semivalues == _SHAPLEY:
            return AntitheticPermutations()
        return BanzhafSampling() if semivalues == (Banzhaf(), Banzhaf()) else MarginalSampling()
    if not isinstance(design, Estimator):
        raise TypeError(
            f"estimator is {design!r}; give AntitheticPermutations(), PlainPermutations(), "
            "GaussianProcess(), or None for the one that suits the semivalues."
        )
    return design


@dataclass(frozen=True)
class _InteractionEstimate:
    """Reads values from gains; a class, so that it travels between processes."""

    read: Callable[[Interactions], Moments]

    def __call__(self, tasks: Sequence[CoalitionPairs], utilities: Sequence[Floats]) -> Moments:
        return self.read(Interactions.of(tasks, utilities))


def _require_shapley(estimator: Estimator, semivalues: Semivalues) -> None:
    if semivalues != _SHAPLEY:
        raise ValueError(
            f"{type(estimator).__name__} estimates Shapley values, not {semivalues[0]!r} x "
            f"{semivalues[1]!r}; use GaussianProcess(), or leave design out."
        )


def _sizes_around(semivalue: Semivalue, n_players: int) -> Floats:
    """Sizes before and after a player joins, as the semivalue asks for."""
    chances = size_probabilities(semivalue, n_players)
    return (np.append(chances, 0.0) + np.insert(chances, 0, 0.0)) / 2.0


def _binomial_sizes(n_players: int) -> Floats:
    """Sizes of uniformly random coalitions."""
    return size_probabilities(Banzhaf(), n_players + 1)


def average_differences(
    tasks: Sequence[OrderPairs], utilities: Sequence[Floats], sums: Sums = append_margins
) -> Moments:
    """Moments of the second differences, one observation a task."""
    evaluated = zip(tasks, utilities, strict=True)
    return Moments.of_all([sums(_differences(*look)) for look in evaluated])


def average_centered_differences(
    tasks: Sequence[OrderPairs], utilities: Sequence[Floats]
) -> Moments:
    """Moments of second differences from which the mean at the same sizes is taken.

    A function of the two sizes alone gives every block the same value, and so nothing is lost when
    one is taken from all utilities. The best one is their mean at each pair of sizes. It comes from
    all tasks but the one that it is taken from, which makes every observation unbiased. One task
    alone has no others, and stays as it is.
    """
    evaluated = list(zip(tasks, utilities, strict=True))
    if len(evaluated) == 1:
        return average_differences(tasks, utilities)
    steps = _second_differences(np.array([_tables(*look) for look in evaluated]), axis=2)
    levels = steps.mean(axis=1)
    everyone = levels.mean(axis=0)
    equal = np.broadcast_to(everyone.mean(axis=(0, 1)), everyone.shape)
    others = everyone - (levels - everyone) / (len(evaluated) - 1)
    seen = Moments.of_all(
        [
            append_margins(equal + _differences(*look, less=steps_of_others))
            for look, steps_of_others in zip(evaluated, others, strict=True)
        ]
    )
    return replace(seen, sum_sq=seen.sum_sq + _level_sum_sq(steps - everyone))


def _level_sum_sq(residuals: Floats) -> Floats:
    """What the chance in the means by size adds to the spread, for blocks, sums and the total.

    Blocks do not visit all places equally often, and where they visit one too often, the error of
    the mean there does not cancel. That is of second order, and felt only where hardly any other
    chance is left, as with three rows in pairs of opposite orders.
    """
    n_rows, n_columns = residuals.shape[2:4]
    sum_sq = np.empty((n_rows + 1, n_columns + 1, *residuals.shape[4:]))
    sum_sq[:-1, :-1] = np.mean(residuals**2, axis=(0, 1, 2, 3))
    sum_sq[:-1, -1] = np.mean(residuals.sum(axis=3) ** 2, axis=(0, 1, 2))
    sum_sq[-1, :-1] = np.mean(residuals.sum(axis=2) ** 2, axis=(0, 1, 2))
    sum_sq[-1, -1] = 0.0
    return sum_sq


def average_marginals(tasks: Sequence[MarginalTask], utilities: Sequence[Floats]) -> Moments:
    """Moments of second differences for everyone who joined; others were not seen."""
    seen = (Moments.of(_join_differences(*look)) for look in zip(tasks, utilities, strict=True))
    return reduce(Moments.merge, seen)


def _tables(task: OrderPairs, utilities: Floats) -> Floats:
    """Utilities of a task by grid, length of the row prefix and length of the column prefix."""
    first = task.pairs[0]
    shape = (len(task.pairs), len(first.row_order) + 1, len(first.column_order) + 1)
    return utilities.reshape(*shape, *utilities.shape[1:])


def _differences(task: OrderPairs, utilities: Floats, less: Floats | float = 0.0) -> Floats:
    """Second differences at the blocks, in the mean over the grids of a task."""
    steps = _second_differences(_tables(task, utilities), axis=1) - less
    blocks = np.empty_like(steps)
    for block, step, grid in zip(blocks, steps, task.pairs, strict=True):
        block[np.ix_(grid.row_order, grid.column_order)] = step
    mean: Floats = blocks.mean(axis=0)
    return mean


def _second_differences(tables: Floats, axis: int) -> Floats:
    """Differences along the axis of row prefixes and the next one, that of column prefixes."""
    differences: Floats = np.diff(np.diff(tables, axis=axis), axis=axis + 1)
    return differences


def _join_differences(joins: MarginalTask, utilities: Floats) -> Floats:
    rows, columns = np.flatnonzero(~joins.rows), np.flatnonzero(~joins.columns)
    others = utilities.shape[1:]
    table = utilities.reshape(len(rows) + 1, len(columns) + 1, *others)
    blocks = np.full((len(joins.rows), len(joins.columns), *others), np.nan)
    blocks[np.ix_(rows, columns)] = table[1:, 1:] - table[1:, :1] - table[:1, 1:] + table[0, 0]
    return append_unknown_margins(blocks)


def average_quads(
    tasks: Sequence[CoalitionPairs], utilities: Sequence[Floats], sums: Sums = append_margins
) -> Moments:
    """Moments of what quads of pairs tell about all blocks, one observation a task.

    The Banzhaf value of block (i, j) is 4 E[h(S, F) s_i s_j], where s is 1 for members and -1 for
    others, over uniformly random coalitions. A quad holds S and its complement with F and its
    complement: their memberships have opposite signs, so that the quad's signed sum times
    s_i s_j is an unbiased view of every block, free of what depends on one side alone.
    """
    return Moments.of_all([sums(_observe(*look)) for look in zip(tasks, utilities, strict=True)])


def _observe(task: CoalitionPairs, utilities: Floats) -> Floats:
    quads = utilities.reshape(-1, len(_SIGNS), *utilities.shape[1:])
    interactions = np.tensordot(quads, _SIGNS, axes=(1, 0))
    rows = np.where(task.rows[:: len(_SIGNS)], 1.0, -1.0)
    columns = np.where(task.columns[:: len(_SIGNS)], 1.0, -1.0)
    signs = rows[:, :, None] * columns[:, None, :]
    observed: Floats = np.tensordot(signs, interactions, axes=(0, 0)) / len(interactions)
    return observed
