"""Semivalues: Shapley, Banzhaf, Beta and leave-one-out weights of coalition sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln, gammaln

from cellworth.data.arguments import Floats, WithoutParameters

Counts = NDArray[np.int64]


@runtime_checkable
class Semivalue(Protocol):
    """Weights of coalitions that depend on their size alone.

    See Also
    --------
    Shapley, Banzhaf

    Examples
    --------
    >>> from cellworth.sampling import Semivalue, Shapley
    >>> isinstance(Shapley(), Semivalue)
    True
    >>> Shapley().size_probabilities(4)
    array([0.25, 0.25, 0.25, 0.25])
    """

    def size_probabilities(self, n_players: int) -> Floats:
        """Return the probability that a player joins a coalition of size 0..n_players - 1."""


class Shapley(WithoutParameters):
    """Give every size the same probability; the only semivalue whose values add up to the total.

    See Also
    --------
    Banzhaf, Beta

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
        """Return equal probabilities of the sizes 0..n_players - 1."""
        return np.full(n_players, 1.0 / n_players)


class Banzhaf(WithoutParameters):
    """Give every coalition the same probability, so most are of medium size.

    See Also
    --------
    Shapley, Beta

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
        """Return binomial probabilities (p = 1/2) of the sizes 0..n_players - 1."""
        logs = log_choose(n_players - 1, np.arange(n_players)) - (n_players - 1) * np.log(2.0)
        return np.asarray(np.exp(logs))


@dataclass(frozen=True)
class Beta:
    """Beta(a, b) of Kwon and Zou (2022): a > b favors small coalitions, a < b large ones.

    Parameters
    ----------
    a, b : float
        Both above 0; ``Beta(1, 1)`` is Shapley.

    See Also
    --------
    Shapley, Banzhaf

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
                f"a and b must be finite and above 0, got Beta({self.a}, {self.b}); "
                "use Beta(16, 1), for example."
            )

    def size_probabilities(self, n_players: int) -> Floats:
        """Return beta-binomial probabilities of the sizes 0..n_players - 1."""
        sizes = np.arange(n_players)
        log_beta = betaln(sizes + self.b, n_players - 1 - sizes + self.a) - betaln(self.b, self.a)
        return np.asarray(np.exp(log_choose(n_players - 1, sizes) + log_beta))


class LeaveOneOut(WithoutParameters):
    """Compare the coalition of all players with the one that lacks a single player.

    See Also
    --------
    Shapley, cellworth.ModelValuer

    Examples
    --------
    >>> from cellworth.sampling import LeaveOneOut
    >>> LeaveOneOut().size_probabilities(3)
    array([0., 0., 1.])
    """

    def size_probabilities(self, n_players: int) -> Floats:
        """Return probability 1 for the largest size and 0 for the others."""
        return np.append(np.zeros(n_players - 1), 1.0)


def size_probabilities(semivalue: Semivalue, n_players: int) -> Floats:
    """Return the probabilities of the sizes after checking that they are probabilities."""
    chances = np.asarray(semivalue.size_probabilities(n_players), dtype=np.float64)
    if chances.shape == (n_players,) and chances.min() >= 0 and abs(chances.sum() - 1) < 1e-6:
        return chances
    raise ValueError(
        f"size_probabilities of {semivalue!r} must return {n_players} non-negative numbers that "
        f"add up to 1, got an array of shape {chances.shape} that adds up to {chances.sum():.6g}."
    )


def sizes_around(semivalue: Semivalue, n_players: int) -> Floats:
    """Return the probabilities of the sizes before and after a player joins, half each."""
    chances = size_probabilities(semivalue, n_players)
    return (np.append(chances, 0.0) + np.insert(chances, 0, 0.0)) / 2.0


def coalition_weights(semivalue: Semivalue, n_players: int) -> Floats:
    """Return the weight of a single coalition of each size 0..n_players - 1: the paper's w_s.

    Examples
    --------
    >>> from cellworth.sampling.semivalues import Shapley, coalition_weights
    >>> coalition_weights(Shapley(), 3) * 6
    array([2., 1., 2.])
    """
    ways = np.exp(-log_choose(n_players - 1, np.arange(n_players)))
    return size_probabilities(semivalue, n_players) * ways


def membership_weights(semivalue: Semivalue, members: NDArray[np.bool_]) -> Floats:
    """Return W with values = W' h, where h are the utilities of the coalitions.

    ``members`` and W have shape (n_coalitions, n_players).
    """
    weights = coalition_weights(semivalue, members.shape[1])
    sizes = members.sum(axis=1)
    # A coalition of size s has a positive weight for its members, who joined s - 1 others, and a
    # negative one for all other players. The padding is never selected.
    joined = np.append(0.0, weights)[sizes]
    absent = np.append(weights, 0.0)[sizes]
    return np.asarray(np.where(members, joined[:, None], -absent[:, None]))


def inside_chances(
    semivalue: Semivalue, n_players: int, n_given: ArrayLike, n_inside: ArrayLike
) -> Floats:
    """Return the probability that n_inside of n_given others are in the coalition a player joins.

    ``n_players`` includes the one who joins; ``n_given`` is the size of a fixed set of others.

    Examples
    --------
    >>> from cellworth.sampling.semivalues import Banzhaf, inside_chances
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
            from scipy.stats import hypergeom

            # Any semivalue: coalitions of one size are equally likely.
            sizes, chances = size_probabilities(semivalue, n_players), np.zeros(given.shape)
            for size in np.flatnonzero(sizes):
                chances += sizes[size] * hypergeom.pmf(inside, n_players - 1, given, size)
    return np.where(possible, chances, 0.0)


def _log_ways(inside: Counts, outside: Counts) -> Floats:
    """Return the logarithm of (inside + outside) choose inside."""
    return np.asarray(-betaln(inside + 1, outside + 1) - np.log(inside + outside + 1.0))


def log_choose(n: int, k: NDArray[np.int64]) -> Floats:
    """Return the logarithm of n choose k; minus infinity if k is impossible."""
    possible = (k >= 0) & (k <= n)
    safe = np.where(possible, k, 0)
    return np.where(possible, gammaln(n + 1) - gammaln(safe + 1) - gammaln(n - safe + 1), -np.inf)
