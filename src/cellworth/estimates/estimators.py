"""Estimators: which coalitions to look at, and how values are read from what was seen."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from cellworth.counts import Floats
from cellworth.designs import (
    CoalitionPairs,
    CoalitionQuads,
    Design,
    PermutationGrids,
    SemivalueJoins,
)
from cellworth.estimates.contrasts import contrast_moments
from cellworth.estimates.gains import Gains
from cellworth.estimates.gaussian_process import process_moments
from cellworth.estimates.grids import centred_moments, join_moments, plain_moments
from cellworth.estimates.looks import Estimate
from cellworth.moments import Moments
from cellworth.semivalues import Banzhaf, Semivalue, Shapley, size_probabilities

Semivalues = tuple[Semivalue, Semivalue]
Shape = tuple[int, int]

_SHAPLEY = (Shapley(), Shapley())
_MOST_PLAYERS_OF_A_PROCESS = 300
_MOST_BLOCKS_OF_A_PROCESS = 3_000
_MOST_UTILITIES_OF_A_PROCESS = 4_000


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
    def design(self, shape: Shape, semivalues: Semivalues, seed: int) -> Design:
        """Name the tasks; refuse games that this way does not suit."""

    @abstractmethod
    def estimate(self, semivalues: Semivalues, total: Floats) -> Estimate:
        """Return what turns tasks and their utilities into Moments.

        Utilities of a task are an array of shape (n_pairs,), or (n_pairs, k) where their deviations
        come along; Moments then have a last axis of length k. ``total`` is what Shapley values
        add up to, for each of these columns.
        """


@dataclass(frozen=True)
class CentredGrids(Estimator):
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
    >>> from cellworth import AfterTasks, TableGame, value_game
    >>> game = TableGame(np.arange(64.0).reshape(8, 8) ** 2)
    >>> run = {"estimator": CentredGrids(), "stop": AfterTasks(100), "random_state": 0}
    >>> estimate, exact = value_game(game, (3, 3), **run), value_game(game, (3, 3))
    >>> bool((abs(estimate.values - exact.values) <= 4 * estimate.standard_errors + 1e-9).all())
    True
    """

    name: ClassVar[str] = "centred grids"
    shrink: ClassVar[bool] = True

    def design(self, shape: Shape, semivalues: Semivalues, seed: int) -> Design:
        """Pairs of opposite orders."""
        _require_shapley(self, semivalues)
        return PermutationGrids(shape, seed, antithetic=True)

    def estimate(self, semivalues: Semivalues, total: Floats) -> Estimate:
        """Second differences, centred by size."""
        return centred_moments


@dataclass(frozen=True)
class PlainGrids(Estimator):
    """Random orders of rows and columns, as in the paper; for comparison.

    Unbiased, but ten to hundreds of times more utilities are needed than with
    :class:`CentredGrids` or :class:`GaussianProcess`. What a task tells is skewed, so that spreads
    of few tasks promise too much: standard errors come with 200 tasks. Shapley values only.

    References
    ----------
    Liu, Just, Chang, Chen and Jia (2023), 2D-Shapley: A Framework for Fragmented Data Valuation,
    ICML.

    Examples
    --------
    >>> from cellworth import AfterTasks, TableGame, value_game
    >>> game = TableGame(np.arange(64.0).reshape(8, 8) ** 2)
    >>> run = {"estimator": PlainGrids(), "random_state": 0}
    >>> short, long = (value_game(game, (3, 3), stop=AfterTasks(n), **run) for n in (100, 200))
    >>> bool(np.isnan(short.standard_errors).all()), bool(np.isnan(long.standard_errors).any())
    (True, False)
    """

    name: ClassVar[str] = "plain grids"
    observes_sums: ClassVar[bool] = True
    errors_from: ClassVar[int] = 200

    def design(self, shape: Shape, semivalues: Semivalues, seed: int) -> Design:
        """One order of rows and one of columns a task."""
        _require_shapley(self, semivalues)
        return PermutationGrids(shape, seed)

    def estimate(self, semivalues: Semivalues, total: Floats) -> Estimate:
        """Second differences."""
        return plain_moments


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
    >>> from cellworth import AfterUtilities, TableGame, value_game
    >>> game = TableGame(np.log1p(np.add.outer(np.arange(16.0), 2 * np.arange(16.0))))
    >>> run = {"estimator": GaussianProcess(), "stop": AfterUtilities(170), "random_state": 0}
    >>> estimate, exact = value_game(game, (4, 4), **run), value_game(game, (4, 4))
    >>> estimate.provenance.tally.new, exact.provenance.tally.new
    (163, 225)
    >>> print(f"{abs(estimate.values - exact.values).max() / abs(exact.values).max():.2f}")
    0.01
    """

    name: ClassVar[str] = "gaussian process"
    merges: ClassVar[bool] = False
    most_utilities: ClassVar[float] = _MOST_UTILITIES_OF_A_PROCESS

    def design(self, shape: Shape, semivalues: Semivalues, seed: int) -> Design:
        """Quads of sizes that the semivalues ask for."""
        if max(shape) > _MOST_PLAYERS_OF_A_PROCESS or math.prod(shape) > _MOST_BLOCKS_OF_A_PROCESS:
            raise ValueError(
                f"GaussianProcess suits up to {_MOST_PLAYERS_OF_A_PROCESS} players a side and "
                f"{_MOST_BLOCKS_OF_A_PROCESS:,} blocks, not {shape[0]} x {shape[1]}; use "
                "CentredGrids(), or group rows and columns."
            )
        rows, columns = (
            _sizes_around(semivalue, n) for semivalue, n in zip(semivalues, shape, strict=True)
        )
        return CoalitionQuads(shape, seed, (rows, columns))

    def estimate(self, semivalues: Semivalues, total: Floats) -> Estimate:
        """Posterior of the values."""
        known_total = total if semivalues == _SHAPLEY else None
        return _OfGains(partial(process_moments, semivalues=semivalues, total=known_total))


@dataclass(frozen=True)
class BanzhafContrasts(Estimator):
    """Uniform coalitions with their complements: every fit serves every block; Banzhaf values."""

    name: ClassVar[str] = "banzhaf contrasts"
    observes_sums: ClassVar[bool] = True

    def design(self, shape: Shape, semivalues: Semivalues, seed: int) -> Design:
        """Quads of uniformly random coalitions."""
        rows, columns = (_binomial_sizes(n) for n in shape)
        return CoalitionQuads(shape, seed, (rows, columns), with_empty_sides=False)

    def estimate(self, semivalues: Semivalues, total: Floats) -> Estimate:
        """Signed sums of the four utilities."""
        return contrast_moments


@dataclass(frozen=True)
class JoiningPlayers(Estimator):
    """Coalitions at the sizes that semivalues ask for, which everyone outside joins in turn."""

    name: ClassVar[str] = "semivalue joins"

    def design(self, shape: Shape, semivalues: Semivalues, seed: int) -> Design:
        """Pairs of coalitions to be joined."""
        return SemivalueJoins(shape, semivalues, seed)

    def estimate(self, semivalues: Semivalues, total: Floats) -> Estimate:
        """Second differences of those who joined."""
        return join_moments


def checked_estimator(design: Any, semivalues: Semivalues) -> Estimator:
    """Accept a way to estimate, or choose the one that suits the semivalues."""
    if design is None:
        if semivalues == _SHAPLEY:
            return CentredGrids()
        return BanzhafContrasts() if semivalues == (Banzhaf(), Banzhaf()) else JoiningPlayers()
    if not isinstance(design, Estimator):
        raise TypeError(
            f"estimator is {design!r}; give CentredGrids(), PlainGrids(), GaussianProcess(), "
            "or None for the one that suits the semivalues."
        )
    return design


@dataclass(frozen=True)
class _OfGains:
    """Reads values from gains; a class, so that it travels between processes."""

    read: Callable[[Gains], Moments]

    def __call__(self, tasks: Sequence[CoalitionPairs], utilities: Sequence[Floats]) -> Moments:
        return self.read(Gains.of(tasks, utilities))


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
