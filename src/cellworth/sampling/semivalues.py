"""Semivalues: Shapley, Banzhaf, Beta and leave-one-out weights of coalition sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln, gammaln

from cellworth.data.arguments import Floats

Counts = NDArray[np.int64]


@runtime_checkable
class Semivalue(Protocol):
    """A rule that weighs coalitions by their size alone."""

    def size_probabilities(self, n_players: int) -> Floats:
        """Chance of each size 0..n_players - 1 of the coalition that a player joins."""
        ...


@dataclass(frozen=True)
class Shapley:
    """Every size equally likely; the only family whose values add up to the total.

    References
    ----------
    Shapley (1953), A Value for n-Person Games, Contributions to the Theory of Games II.

    Examples
    --------
    >>> from cellworth.sampling import Shapley
    >>> Shapley().size_probabilities(4)
    array([0.25, 0.25, 0.25, 0.25])
    """

    def size_probabilities(self, n_players: int) -> Floats:
        """Chance of each size 0..n_players - 1: all the same."""
        return np.full(n_players, 1.0 / n_players)


@dataclass(frozen=True)
class Banzhaf:
    """Every coalition equally likely, so that middle sizes prevail.

    References
    ----------
    Dubey, Neyman and Weber (1981), Value Theory Without Efficiency, Mathematics of Operations
    Research.

    Wang and Jia (2023), Data Banzhaf: A Robust Data Valuation Framework for Machine Learning,
    AISTATS.

    Examples
    --------
    >>> from cellworth.sampling import Banzhaf
    >>> Banzhaf().size_probabilities(3)
    array([0.25, 0.5 , 0.25])
    """

    def size_probabilities(self, n_players: int) -> Floats:
        """Chance of each size 0..n_players - 1: binomial with even odds."""
        logs = _log_choose(n_players - 1) - (n_players - 1) * np.log(2.0)
        probabilities: Floats = np.exp(logs)
        return probabilities


@dataclass(frozen=True)
class Beta:
    """Beta(a, b) of Kwon and Zou (2022): a > b favours small coalitions, a < b large ones.

    References
    ----------
    Kwon and Zou (2022), Beta Shapley: a Unified and Noise-reduced Data Valuation Framework for
    Machine Learning, AISTATS.

    Examples
    --------
    >>> from cellworth.sampling import Beta, Shapley
    >>> bool(np.allclose(Beta(1, 1).size_probabilities(5), Shapley().size_probabilities(5)))
    True
    """

    a: float
    b: float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.a) and np.isfinite(self.b) and self.a > 0 and self.b > 0):
            raise ValueError(
                f"Beta({self.a}, {self.b}) is not a semivalue; "
                "both parameters must be finite and above 0, such as Beta(16, 1)."
            )

    def size_probabilities(self, n_players: int) -> Floats:
        """Chance of each size 0..n_players - 1: beta-binomial."""
        sizes = np.arange(n_players)
        log_beta = betaln(sizes + self.b, n_players - 1 - sizes + self.a) - betaln(self.b, self.a)
        probabilities: Floats = np.exp(_log_choose(n_players - 1) + log_beta)
        return probabilities


@dataclass(frozen=True)
class LeaveOneOut:
    """Only the coalition of all others counts.

    Examples
    --------
    >>> from cellworth.sampling import LeaveOneOut
    >>> LeaveOneOut().size_probabilities(3)
    array([0., 0., 1.])
    """

    def size_probabilities(self, n_players: int) -> Floats:
        """Chance of each size 0..n_players - 1: certainly the largest."""
        certain_of_all_others = np.zeros(n_players)
        certain_of_all_others[-1] = 1.0
        return certain_of_all_others


def size_probabilities(semivalue: Semivalue, n_players: int) -> Floats:
    """Chances that a semivalue gives to sizes, refused unless they are chances."""
    chances = np.asarray(semivalue.size_probabilities(n_players), dtype=np.float64)
    if chances.shape == (n_players,) and chances.min() >= 0 and abs(chances.sum() - 1) < 1e-6:
        return chances
    raise ValueError(
        f"{semivalue!r} gives {chances.shape} chances that add up to {chances.sum():.6g}; a "
        f"semivalue must give {n_players} chances of at least 0 that add up to 1."
    )


def coalition_weights(semivalue: Semivalue, n_players: int) -> Floats:
    """Weight of ONE coalition of each size 0..n_players - 1: the paper's w_s.

    Examples
    --------
    >>> coalition_weights(Shapley(), 3) * 6
    array([2., 1., 2.])
    """
    log_choose = _log_choose(n_players - 1)
    return size_probabilities(semivalue, n_players) * np.exp(-log_choose)


def membership_weights(semivalue: Semivalue, members: NDArray[np.bool_]) -> Floats:
    """W with value = W' h: how each player's value counts the utility of each coalition.

    Parameters
    ----------
    members : array of shape (n_coalitions, n_players)
        True where the player belongs to the coalition.

    Returns
    -------
    array of shape (n_coalitions, n_players)
    """
    n_players = members.shape[1]
    weights = coalition_weights(semivalue, n_players)
    sizes = members.sum(axis=1)
    # A coalition of size s is "with" for its members (they joined s - 1 others) and "without"
    # for the rest; the padded ends are never picked.
    joined = np.append(0.0, weights)[sizes]
    absent = np.append(weights, 0.0)[sizes]
    weighed: Floats = np.where(members, joined[:, None], -absent[:, None])
    return weighed


def inside_chances(
    semivalue: Semivalue, n_players: int, n_given: ArrayLike, n_inside: ArrayLike
) -> Floats:
    """Chance that exactly so many of some given others are in the coalition that a player joins.

    Parameters
    ----------
    n_players : int
        All players, the one who joins included.
    n_given, n_inside : integers or arrays of them
        How many others are looked at, and how many of these are in.

    Examples
    --------
    >>> inside_chances(Banzhaf(), 10, 3, np.arange(4))
    array([0.125, 0.375, 0.375, 0.125])
    """
    given, inside = np.broadcast_arrays(np.asarray(n_given), np.asarray(n_inside))
    possible = inside <= given
    outside = np.where(possible, given - inside, 0)
    match semivalue:
        case Shapley():
            chances = 1.0 / (given + 1)
        case Banzhaf():
            chances = np.exp(_log_ways(inside, outside) - given * np.log(2.0))
        case Beta(a, b):
            logs = betaln(inside + b, outside + a) - betaln(b, a)
            chances = np.exp(_log_ways(inside, outside) + logs)
        case LeaveOneOut():
            chances = (outside == 0).astype(np.float64)
        case _:
            sizes = size_probabilities(semivalue, n_players)
            return _hypergeometric(sizes, given, inside)
    return np.where(possible, chances, 0.0)


def _hypergeometric(sizes: Floats, given: Counts, inside: Counts) -> Floats:
    """Chances from those of the sizes alone: a coalition of a size is any, with equal chance."""
    from scipy.stats import hypergeom

    chances = np.zeros(given.shape)
    for size in np.flatnonzero(sizes):
        chances += sizes[size] * hypergeom.pmf(inside, len(sizes) - 1, given, size)
    return chances


def _log_ways(inside: Counts, outside: Counts) -> Floats:
    """Log of the number of ways to pick those who are in."""
    logs: Floats = -betaln(inside + 1, outside + 1) - np.log(inside + outside + 1.0)
    return logs


def _log_choose(n: int) -> Floats:
    sizes = np.arange(n + 1)
    log_choose: Floats = gammaln(n + 1) - gammaln(sizes + 1) - gammaln(n - sizes + 1)
    return log_choose
