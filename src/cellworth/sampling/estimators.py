"""Estimators: which coalitions to evaluate, and how to compute values from their utilities."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from cellworth.data.arguments import Floats, WithoutParameters
from cellworth.sampling.designed_tasks import DesignedTasks
from cellworth.sampling.gaussian_process import (
    MAX_FITTED,
    Side,
    find_interactions,
    fit_process,
    process_moments,
)
from cellworth.sampling.moments import (
    Estimate,
    Moments,
    Sums,
    append_margins,
)
from cellworth.sampling.samplers import (
    CoalitionPairs,
    OrderPairs,
    PermutationTasks,
    QuadTasks,
    TaskSampler,
)
from cellworth.sampling.semivalues import Banzhaf, Semivalue, Shapley, size_probabilities

# Of rows and of columns.
Semivalues = tuple[Semivalue, Semivalue]
Shape = tuple[int, int]
_SHAPLEY = (Shapley(), Shapley())
# Of a Gaussian process.
_MAX_PLAYERS = 300
_MAX_BLOCKS = 3_000
_SIGNS = np.array([1.0, -1.0, -1.0, 1.0])


class Estimator(WithoutParameters, ABC):
    """Base class of estimators: a sampler of tasks, and a function from utilities to values.

    See Also
    --------
    AntitheticPermutations, GaussianProcess

    Examples
    --------
    >>> from cellworth.sampling import AntitheticPermutations, Estimator
    >>> isinstance(AntitheticPermutations(), Estimator)
    True
    """

    name: ClassVar[str] = "own estimator"
    # Whether runs can be merged by averaging.
    merges: ClassVar[bool] = True
    # Whether every task observes all blocks, so that the variance of any sum of blocks is known.
    observes_sums: ClassVar[bool] = False
    most_utilities: ClassVar[float] = math.inf

    @abstractmethod
    def make_sampler(self, shape: Shape, semivalues: Semivalues, seed: int) -> TaskSampler:
        """Return the sampler of tasks; raise an error if the estimator does not suit the game."""

    @abstractmethod
    def estimate(self, semivalues: Semivalues, total: Floats) -> Estimate:
        """Return a function from tasks and their utilities to Moments.

        The utilities of a task have shape (n_pairs,), or (n_pairs, k) if deviations are included;
        the Moments then have a last axis of length k. ``total`` is the sum of the Shapley values
        for each of these k columns.
        """


class AntitheticPermutations(Estimator):
    """Estimate Shapley values from random orders and their reverses, without a bias.

    A task draws one order of the rows and one of the columns and evaluates every pair of their
    prefixes, then does the same with both orders reversed. The mean utility of all coalitions of
    the same sizes is subtracted before second differences are formed. A function of the sizes gives
    all blocks the same value, so only noise is removed. Apart from that mean, observations are
    independent; all are unbiased.

    See Also
    --------
    GaussianProcess

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

    name: ClassVar[str] = "antithetic permutations"
    observes_sums: ClassVar[bool] = True

    def make_sampler(self, shape: Shape, semivalues: Semivalues, seed: int) -> TaskSampler:
        """Return a sampler of random orders and their reverses."""
        require_shapley(self, semivalues)
        return PermutationTasks(shape, seed)

    def estimate(self, semivalues: Semivalues, total: Floats) -> Estimate:
        """Return the mean of second differences, centered by size."""
        return average_centered_differences


class GaussianProcess(Estimator):
    """Design coalitions and fit a Gaussian process: needs the fewest fits, for up to 4,000.

    Pairs of a row and a column coalition are chosen one by one, by how much their utilities are
    expected to say about the values of all blocks: the list depends on the seed, the numbers of
    players and the semivalues alone. After 1,500 pairs, others are drawn at random.

    The kernel is a product of one over row coalitions and one over column coalitions. Each falls
    with the angle between the membership vectors of two coalitions. Marginal likelihood on the
    first 400 utilities decides how fast it falls, and how much of the game is linear, constant
    or rough. Values are posterior means, for every semivalue; Shapley values add up to the total.

    Standard errors are posterior standard deviations. They rely on the kernel, and are given for
    Shapley and Banzhaf values, from ten utilities per block on. Besides the model fits, a run of
    1,000 utilities takes some seconds, and one of 4,000 about a minute.

    See Also
    --------
    AntitheticPermutations

    References
    ----------
    O'Hagan (1991), Bayes-Hermite quadrature, Journal of Statistical Planning and Inference.

    Rundel, Fumagalli, Muschalik, Bischl and Feurer (2026), ShaplEIG: Bayesian Experimental Design
    for Shapley Value Estimation, ICML, arXiv:2606.02247.

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
    (168, 225)
    >>> print(f"{abs(estimate.values - exact.values).max() / abs(exact.values).max():.3f}")
    0.004
    """

    name: ClassVar[str] = "gaussian process"
    merges: ClassVar[bool] = False
    observes_sums: ClassVar[bool] = True
    most_utilities: ClassVar[float] = 4_000

    @staticmethod
    def suits(shape: Shape) -> bool:
        """Return whether a game is small enough."""
        return max(shape) <= _MAX_PLAYERS and math.prod(shape) <= _MAX_BLOCKS

    def make_sampler(self, shape: Shape, semivalues: Semivalues, seed: int) -> TaskSampler:
        """Return a sampler of the pairs that are expected to say most about the values."""
        if not self.suits(shape):
            raise ValueError(
                f"GaussianProcess needs at most {_MAX_PLAYERS} row groups and as "
                f"many column groups, and at most {_MAX_BLOCKS:,} blocks, got "
                f"{shape[0]} x {shape[1]}; form fewer groups, or value with Shapley() or Banzhaf()."
            )
        return DesignedTasks(shape, seed, semivalues)

    def estimate(self, semivalues: Semivalues, total: Floats) -> Estimate:
        """Return the posterior mean and variance of the values."""
        known_total = total if semivalues == _SHAPLEY else None
        # Parameters by the interactions that they were fitted to: deviations use those of values.
        fitted: dict[bytes, Floats] = {}

        def estimate(
            tasks: Sequence[CoalitionPairs],
            utilities: Sequence[Floats],
            sums: Sums = append_margins,
        ) -> Moments:
            rows, columns, amounts = find_interactions(tasks, utilities)
            sides = Side(rows, semivalues[0]), Side(columns, semivalues[1])
            first = amounts.reshape(len(amounts), -1)[:, 0]
            key = first[:MAX_FITTED].tobytes()
            if key not in fitted:
                fitted.clear()
                fitted[key] = fit_process(sides, first)
            return process_moments(fitted[key], sides, amounts, known_total, sums)

        return estimate


class BanzhafSampling(Estimator):
    """Estimate Banzhaf values from uniform coalitions and their complements.

    Every utility contributes to the value of every block.
    """

    name: ClassVar[str] = "banzhaf sampling"
    observes_sums: ClassVar[bool] = True

    def make_sampler(self, shape: Shape, semivalues: Semivalues, seed: int) -> TaskSampler:
        """Return a sampler of quads of uniformly random coalitions."""
        rows, columns = (size_probabilities(Banzhaf(), n + 1) for n in shape)
        return QuadTasks((rows, columns), seed)

    def estimate(self, semivalues: Semivalues, total: Floats) -> Estimate:
        """Return the mean of signed sums of four utilities."""
        return average_quads


def choose_estimator(estimator: Any, semivalues: Semivalues) -> Estimator:
    """Check an estimator, or choose the one that suits the semivalues."""
    if estimator is None:
        if semivalues == _SHAPLEY:
            return AntitheticPermutations()
        return BanzhafSampling() if semivalues == (Banzhaf(), Banzhaf()) else GaussianProcess()
    if not isinstance(estimator, Estimator):
        raise TypeError(
            "estimator must be AntitheticPermutations(), GaussianProcess(), 'exact' for all "
            f"coalitions, or None to choose by the semivalues, got {estimator!r}."
        )
    return estimator


def require_shapley(estimator: Estimator, semivalues: Semivalues) -> None:
    """Raise ValueError if an estimator is asked for other semivalues."""
    if semivalues != _SHAPLEY:
        raise ValueError(
            f"{type(estimator).__name__} estimates Shapley values, got {semivalues[0]!r} x "
            f"{semivalues[1]!r}; use GaussianProcess(), or leave estimator out."
        )


def average_centered_differences(
    tasks: Sequence[OrderPairs], utilities: Sequence[Floats], sums: Sums = append_margins
) -> Moments:
    """Return the Moments of second differences less their mean at the same sizes.

    A function of the two sizes alone gives every block the same value, so it can be subtracted
    from all utilities. The best such function is the mean utility at each pair of sizes. Each task
    uses the mean over all other tasks, which keeps its observation unbiased. A single task has no
    others and is not centered.
    """
    if len(tasks) == 1:
        return Moments.of_all([sums(order_differences(tasks[0], utilities[0]))])
    steps = _second_differences(np.array(list(map(_tables, tasks, utilities))), axis=2)
    task_means = steps.mean(axis=1)
    means = task_means.mean(axis=0)
    equal = np.broadcast_to(means.mean(axis=(0, 1)), means.shape)
    means_of_others = means - (task_means - means) / (len(tasks) - 1)
    blocks = map(order_differences, tasks, utilities, means_of_others)
    moments = Moments.of_all([sums(equal + block) for block in blocks])
    # Blocks do not visit all positions equally often, so errors of the means do not cancel
    # entirely. That matters only if there is hardly any other randomness, as with three rows in an
    # order and its reverse.
    left = [sums(block) for each in map(_arrange, tasks, steps - means) for block in each]
    return replace(moments, sum_sq=moments.sum_sq + np.mean(np.square(left), axis=0))


def _tables(task: OrderPairs, utilities: Floats) -> Floats:
    """Return utilities by pair of orders, length of the row prefix and of the column prefix."""
    (n_pairs, n_rows), n_columns = task.rows.shape, task.columns.shape[1]
    return utilities.reshape(n_pairs, n_rows + 1, n_columns + 1, *utilities.shape[1:])


def order_differences(task: OrderPairs, utilities: Floats, center: Floats | float = 0.0) -> Floats:
    """Return second differences by block, less the center, as means over the pairs of orders."""
    steps = _second_differences(_tables(task, utilities), axis=1) - center
    return np.asarray(_arrange(task, steps).mean(axis=0))


def _arrange(task: OrderPairs, steps: Floats) -> Floats:
    """Return numbers by block for each pair of orders, from numbers by position."""
    blocks = np.empty_like(steps)
    for block, step, rows, columns in zip(blocks, steps, task.rows, task.columns, strict=True):
        block[np.ix_(rows, columns)] = step
    return blocks


def _second_differences(tables: Floats, axis: int) -> Floats:
    """Return differences along the axis of row prefixes and the next one, of column prefixes."""
    return np.diff(np.diff(tables, axis=axis), axis=axis + 1)


def average_quads(
    tasks: Sequence[CoalitionPairs], utilities: Sequence[Floats], sums: Sums = append_margins
) -> Moments:
    """Return the Moments of quads, one observation of all blocks per task.

    The Banzhaf value of block (i, j) is 4 E[h(S, F) s_i s_j] over uniformly random coalitions,
    where s is 1 for members and -1 for others. A quad combines S and its complement with F and its
    complement; memberships in complements have opposite signs. So the quad's signed sum times
    s_i s_j is an unbiased observation of every block. Terms that depend on one side alone cancel.
    """
    return Moments.of_all([sums(block) for block in map(_observe_quads, tasks, utilities)])


def _observe_quads(task: CoalitionPairs, utilities: Floats) -> Floats:
    quads = utilities.reshape(-1, len(_SIGNS), *utilities.shape[1:])
    interactions = np.tensordot(quads, _SIGNS, axes=(1, 0))
    rows = np.where(task.rows[:: len(_SIGNS)], 1.0, -1.0)
    columns = np.where(task.columns[:: len(_SIGNS)], 1.0, -1.0)
    signs = rows[:, :, None] * columns[:, None, :]
    return np.asarray(np.tensordot(signs, interactions, axes=(0, 0)) / len(interactions))
