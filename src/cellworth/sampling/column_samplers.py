"""Samplers of column coalitions: exhaustive, leverage, quadrature, permutations."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.special import comb

from cellworth.data.arguments import Floats, Mask, check_count
from cellworth.sampling.samplers import coalition_masks
from cellworth.sampling.semivalues import Semivalue, Shapley, membership_weights, size_probabilities

Counts = NDArray[np.int64]
MOST_COALITIONS_OF_ALL_SUBSETS = 2**20
MOST_COLUMNS_OF_QUADRATURE = 500
_SHAPLEY = Shapley()
# Chosen on three data sets and checked on others (benchmarks/samplers.py).
_FALL_PER_RADIAN = 0.3
_LINEAR_VARIANCE = 1000.0
_NOISE = 1e-3


@dataclass(frozen=True, eq=False)
class Coalitions:
    """Coalitions of players and what each counts for every player's value.

    Parameters
    ----------
    members : array of shape (n_coalitions, n_players)
        True where the player belongs to the coalition. The last one is everyone, none is empty.
    weights : array of shape (n_coalitions, n_players)
    nothing : array of shape (n_players,)
        What the empty coalition counts.
    """

    members: Mask
    weights: Floats
    nothing: Floats

    def with_last_player(self) -> Coalitions:
        """Keep the coalitions that the last player is in, for games in which all others are 0.

        The last player's own membership goes; the weights of its value stay in the last column.
        """
        inside = self.members[:, -1]
        members, weights = self.members[inside, :-1], self.weights[inside]
        alone = ~members.any(axis=1)
        return Coalitions(members[~alone], weights[~alone], weights[alone].sum(axis=0))


@runtime_checkable
class ColumnSampler(Protocol):
    """Draws coalitions of columns for one query."""

    def n_coalitions(self, n_players: int, semivalue: Semivalue = _SHAPLEY) -> int:
        """How many coalitions a query is ranked on, about."""
        ...

    def draw(self, n_players: int, semivalue: Semivalue, rng: np.random.Generator) -> Coalitions:
        """Draw coalitions, symmetric in the players."""
        ...


@dataclass(frozen=True)
class ExhaustiveSampler:
    """Every coalition of columns that counts: no sampling error.

    For most semivalues these are all, so that the work doubles with each column; leaving one column
    out needs one coalition more than there are columns. Where all count, they follow each other as
    in a Gray code, so that one column joins or leaves at a time.

    Examples
    --------
    >>> from cellworth.sampling import ExhaustiveSampler, LeaveOneOut
    >>> ExhaustiveSampler().n_coalitions(9)
    511
    >>> ExhaustiveSampler().n_coalitions(9, LeaveOneOut())
    10
    """

    def n_coalitions(self, n_players: int, semivalue: Semivalue = _SHAPLEY) -> int:
        """All that count but the empty one."""
        sizes = _sizes_that_count(semivalue, n_players)
        if len(sizes) == n_players:
            return (1 << n_players) - 1
        return sum(math.comb(n_players, size) for size in sizes)

    def draw(self, n_players: int, semivalue: Semivalue, rng: np.random.Generator) -> Coalitions:
        """List the coalitions; nothing is drawn."""
        if self.n_coalitions(n_players, semivalue) >= MOST_COALITIONS_OF_ALL_SUBSETS:
            least = MOST_COALITIONS_OF_ALL_SUBSETS.bit_length() - 1
            raise ValueError(
                f"ExhaustiveSampler of {n_players} columns (labels included, if they play) "
                f"are more than 2^{least} coalitions; use LeverageSampler() or "
                f"PermutationSampler(), or cut columns into "
                f"column_groups, at most {least} players in all."
            )
        return _all_subsets(n_players, semivalue)


@dataclass(frozen=True)
class FittedSubsets(ABC):
    """Base of designs that fit values to the utilities of some coalitions; for Shapley values.

    Parameters
    ----------
    coalitions : int, default=None
        How many a query is ranked on in a sweep; None means eight per column.
    """

    coalitions: int | None = None

    # Fits through fewer coalitions are unstable.
    _least_per_player: ClassVar[int]

    def __post_init__(self) -> None:
        """Refuse what is no number of coalitions."""
        if self.coalitions is not None:
            check_count(self.coalitions, f"coalitions of {type(self).__name__}")

    def n_coalitions(self, n_players: int, semivalue: Semivalue = _SHAPLEY) -> int:
        """As asked, or eight per player, but not more than there are."""
        wanted = 8 * n_players if self.coalitions is None else self.coalitions
        return min(wanted, ExhaustiveSampler().n_coalitions(n_players))

    def draw(self, n_players: int, semivalue: Semivalue, rng: np.random.Generator) -> Coalitions:
        """Draw coalitions and fit the values to them."""
        if not isinstance(semivalue, Shapley):
            raise ValueError(
                f"{type(self).__name__} is for Shapley values of columns, not {semivalue!r}; use "
                "ExhaustiveSampler() or PermutationSampler()."
            )
        if n_players == 1:
            return _all_subsets(1, semivalue)
        least = min(self._least_per_player * n_players, ExhaustiveSampler().n_coalitions(n_players))
        if self.n_coalitions(n_players) < least:
            raise ValueError(
                f"{self!r} is too few for {n_players} columns: a fit through fewer than {least} "
                "coalitions is unstable. Give more, or use PermutationSampler(1)."
            )
        return _keeping_the_sum(*self._fitted(n_players, self.n_coalitions(n_players) - 1, rng))

    @abstractmethod
    def _fitted(self, n_players: int, budget: int, rng: np.random.Generator) -> tuple[Mask, Floats]:
        """Coalitions other than nobody and everyone, and what they count for each player."""


@dataclass(frozen=True)
class LeverageSampler(FittedSubsets):
    """Coalitions of all sizes in pairs with their complements, and a weighted regression on them.

    Every size gets about as many coalitions, none is drawn twice, and the values are those of the
    additive game that fits best while it keeps the sum (Musco and Witter 2025, Leverage SHAP). With
    as many coalitions as there are, they are exact. For Shapley values of columns.

    Parameters
    ----------
    coalitions : int, default=None
        How many a query is ranked on in a sweep; None means eight per column.

    References
    ----------
    Musco and Witter (2025), Provably Accurate Shapley Value Estimation via Leverage Score Sampling,
    ICLR.

    Examples
    --------
    >>> from cellworth.sampling import LeverageSampler
    >>> LeverageSampler().n_coalitions(30)
    240
    """

    _least_per_player = 3

    def _fitted(self, n_players: int, budget: int, rng: np.random.Generator) -> tuple[Mask, Floats]:
        members, n_alike = _paired(n_players, budget, rng)
        sizes = members.sum(axis=1)
        centred = members - (sizes / n_players)[:, None]
        weighted = centred / (n_alike * sizes * (n_players - sizes))[:, None]
        products = weighted.T @ centred
        # Equal shares are no direction of the fit; filling it in makes the rest well conditioned.
        products += np.trace(products) / n_players**2
        return members, weighted @ np.linalg.pinv(products, rcond=1e-10, hermitian=True)


@dataclass(frozen=True)
class QuadratureSampler(FittedSubsets):
    """Coalitions of all sizes, and values as the integral of a Gaussian process through them.

    Needs fewer coalitions than :class:`LeverageSampler` for the same error where the utility is
    smooth, at the price of solving a system of as many equations for each design. For Shapley
    values of columns.

    Parameters
    ----------
    coalitions : int, default=None
        How many a query is ranked on in a sweep; None means eight per column.

    References
    ----------
    O'Hagan (1991), Bayes-Hermite quadrature, Journal of Statistical Planning and Inference.

    Examples
    --------
    >>> from cellworth.sampling import QuadratureSampler
    >>> QuadratureSampler(100).n_coalitions(30)
    100
    """

    _least_per_player = 2

    def _fitted(self, n_players: int, budget: int, rng: np.random.Generator) -> tuple[Mask, Floats]:
        if n_players > MOST_COLUMNS_OF_QUADRATURE:
            raise ValueError(
                f"QuadratureSampler serves up to {MOST_COLUMNS_OF_QUADRATURE} columns, not "
                f"{n_players}; use LeverageSampler()."
            )
        sizes = np.arange(1, n_players)
        counts = _allotted(1.0 / np.sqrt(sizes), _numbers_of_subsets(n_players, sizes), budget, rng)
        members = np.vstack(
            [
                _subsets(n_players, size, count, rng)
                for size, count in zip(sizes.tolist(), counts.tolist(), strict=True)
            ]
        )
        return members, quadrature_weights(members)


@dataclass(frozen=True)
class PermutationSampler:
    """Prefixes of random orders of the columns: unbiased with any number of coalitions.

    Two orders are an order and its reverse; more are such pairs, spread as far apart as can be
    (orthogonal permutations, Mitchell et al. 2022). Serves every semivalue.

    Parameters
    ----------
    orders : int, default=2
        Orders per query and sweep; each costs one ranking per column.

    References
    ----------
    Castro, Gómez and Tejada (2009), Polynomial calculation of the Shapley value based on sampling,
    Computers & Operations Research.

    Mitchell, Cooper, Frank and Holmes (2022), Sampling Permutations for Shapley Value Estimation,
    Journal of Machine Learning Research.

    Examples
    --------
    >>> from cellworth.sampling import PermutationSampler
    >>> PermutationSampler(1).n_coalitions(14)
    14
    """

    orders: int = 2

    def __post_init__(self) -> None:
        """Refuse what is no number of orders."""
        check_count(self.orders, "orders of Permutations")

    def n_coalitions(self, n_players: int, semivalue: Semivalue = _SHAPLEY) -> int:
        """One per column and order; everyone is shared."""
        return self.orders * (n_players - 1) + 1

    def draw(self, n_players: int, semivalue: Semivalue, rng: np.random.Generator) -> Coalitions:
        """Draw the orders."""
        n_orders = self.orders
        ranks = _orthogonal_ranks(n_players, n_orders, rng)
        # A prefix ends with the column that joined last.
        sizes = np.arange(1, n_players + 1)
        members = ranks[:, None, :] < sizes[:, None]
        joined = ranks[:, None, :] == sizes[:, None] - 1
        follows = ranks[:, None, :] == sizes[:, None]
        chances = size_probabilities(semivalue, n_players) * (n_players / n_orders)
        left = np.append(chances[1:], 0.0)
        weights = joined * chances[:, None] - follows * left[:, None]
        nothing = -((ranks == 0) * chances[0]).sum(axis=0)
        proper = (np.arange(n_orders)[:, None], np.arange(n_players - 1))
        return Coalitions(
            np.vstack([members[proper].reshape(-1, n_players), members[0, -1:]]),
            np.vstack([weights[proper].reshape(-1, n_players), weights[:, -1].sum(axis=0)]),
            nothing,
        )


def _all_subsets(n_players: int, semivalue: Semivalue) -> Coalitions:
    sizes = _sizes_that_count(semivalue, n_players)
    if len(sizes) == n_players:
        members = _gray_code(n_players)
    else:
        members = np.vstack([_listed(n_players, size) for size in sizes])
    nothing = membership_weights(semivalue, np.zeros((1, n_players), dtype=bool))[0]
    return Coalitions(members, membership_weights(semivalue, members), nothing)


def _sizes_that_count(semivalue: Semivalue, n_players: int) -> list[int]:
    """Sizes of coalitions that someone joins or has joined; everyone is always looked at."""
    chances = size_probabilities(semivalue, n_players)
    joined_or_left = np.append(chances, 1.0) + np.append(0.0, chances)
    return [size for size in range(1, n_players + 1) if joined_or_left[size] > 0]


def _gray_code(n_players: int) -> Mask:
    """List all coalitions but the empty one, everyone last."""
    numbers = np.arange(1, 1 << n_players)
    members = coalition_masks(numbers ^ (numbers >> 1), n_players)
    everyone = members.all(axis=1)
    return np.vstack([members[~everyone], members[everyone]])


def _keeping_the_sum(members: Mask, slopes: Floats) -> Coalitions:
    """Estimates that add up: an equal share of the sum, plus slopes of what deviates from it.

    ``value = D / m + sum over F of slopes[F] * (phi(F) - phi(0) - |F| / m * D)``, where D is
    phi(everyone) - phi(0), as weights of phi.
    """
    n_players = members.shape[1]
    shares = members.sum(axis=1) / n_players
    # A slope moves value between players; what rounding adds to the sum goes.
    slopes = slopes - slopes.mean(axis=1, keepdims=True)
    slopes = _unbiased(members, slopes)
    everyone = 1.0 / n_players - shares @ slopes
    nothing = -everyone - slopes.sum(axis=0)
    return Coalitions(
        np.vstack([members, np.ones((1, n_players), dtype=bool)]),
        np.vstack([slopes, everyone]),
        nothing,
    )


def _unbiased(members: Mask, slopes: Floats) -> Floats:
    """Scale slopes size by size so that, over all ways to rename the players, they are right.

    In the Shapley value, coalitions of one size count 1 in all for their members. A fit is drawn
    towards what it knows and counts them a little less or more; where players are renamed at
    random for every query, setting that right makes the mean of the estimates exact.
    """
    sizes = members.sum(axis=1)
    counted = np.bincount(sizes, weights=(slopes * members).sum(axis=1))
    unbiased: Floats = slopes / counted[sizes][:, None]
    return unbiased


def _allotted(shares: Floats, exist: Floats, budget: float, rng: np.random.Generator) -> Counts:
    """Split a budget over the sizes, in these shares, at least one and no more than exist of each.

    Fractions are rounded at random, so that each size gets its share in the mean.
    """
    counts, left = np.zeros(len(shares)), min(budget, float(exist.sum()))
    unfilled = np.ones(len(shares), dtype=bool)
    while left > 1e-9 and unfilled.any():
        more = left * shares * unfilled / (shares * unfilled).sum()
        full = unfilled & (counts + more >= exist)
        if not full.any():
            counts += more
            break
        left -= float((exist - counts)[full].sum())
        counts[full] = exist[full]
        unfilled &= ~full
    steps = np.floor(np.cumsum(counts) + rng.random() + 1e-9)
    return np.clip(np.diff(steps, prepend=0.0), 1.0, exist).astype(np.int64)


def _numbers_of_subsets(n_players: int, sizes: Counts) -> Floats:
    # Beyond all budgets it does not matter how many more there are.
    return np.array([float(min(math.comb(n_players, k), 2**62)) for k in sizes.tolist()])


def _paired(n_players: int, budget: int, rng: np.random.Generator) -> tuple[Mask, Counts]:
    """Pairs of coalition and complement, and how many coalitions of its size each one has."""
    sizes = np.arange(1, n_players // 2 + 1)
    exist = _numbers_of_subsets(n_players, sizes)
    # A half and its complement are of one size, which then has twice as many.
    halves = 2 * sizes == n_players
    shares = np.where(halves, 0.5, 1.0)
    counts = _allotted(shares, exist * shares, budget / 2, rng)
    ones = np.vstack(
        [
            _subsets_with_first(n_players, size, count, rng)
            if 2 * size == n_players
            else _subsets(n_players, size, count, rng)
            for size, count in zip(sizes.tolist(), counts.tolist(), strict=True)
        ]
    )
    n_alike = np.repeat(np.where(halves, 2, 1) * counts, counts)
    members = np.stack([ones, ~ones], axis=1).reshape(-1, n_players)
    return members, np.repeat(n_alike, 2)


def _subsets_with_first(n_players: int, size: int, count: int, rng: np.random.Generator) -> Mask:
    """Different subsets that hold the first player: of a half and its complement, one does."""
    rest = _subsets(n_players - 1, size - 1, count, rng)
    return np.column_stack([np.ones(count, dtype=bool), rest])


def _subsets(n_players: int, size: int, count: int, rng: np.random.Generator) -> Mask:
    """Draw this many different subsets of a size, all equally likely."""
    exist = math.comb(n_players, size)
    if exist <= 4 * count:
        listed = _listed(n_players, size)
        return listed[rng.permutation(exist)[:count]]
    found = np.empty((0, n_players), dtype=bool)
    while len(found) < count:
        scores = rng.random((2 * (count - len(found)), n_players))
        positions = np.argpartition(scores, size, axis=1)[:, :size]
        more = np.zeros(scores.shape, dtype=bool)
        np.put_along_axis(more, positions, values=True, axis=1)
        found = np.vstack([found, more])
        _, first = np.unique(np.packbits(found, axis=1), axis=0, return_index=True)
        # In the order in which they were drawn: sorted ones would not be a fair sample.
        found = found[np.sort(first)]
    return found[:count]


@lru_cache(maxsize=64)
def _listed(n_players: int, size: int) -> Mask:
    if 2 * size > n_players:
        return ~_listed(n_players, n_players - size)
    members = np.zeros((math.comb(n_players, size), n_players), dtype=bool)
    positions = np.array(list(combinations(range(n_players), size)), dtype=np.intp)
    np.put_along_axis(members, positions.reshape(len(members), size), values=True, axis=1)
    return members


def _orthogonal_ranks(n_players: int, n_orders: int, rng: np.random.Generator) -> Counts:
    """Place of each player in each order, shape (n_orders, n_players).

    A random direction whose entries sum to 0, sorted, is a random order, and the opposite direction
    its reverse; orthogonal directions give orders that are far apart.
    """
    directions: list[Floats] = []
    while 2 * len(directions) < n_orders:
        normal = rng.standard_normal((n_players, max(n_players - 1, 1)))
        orthogonal, _ = np.linalg.qr(normal - normal.mean(axis=0))
        signs = rng.choice([-1.0, 1.0], size=orthogonal.shape[1])
        directions.extend((orthogonal * signs).T)
    pairs = [(direction, -direction) for direction in directions]
    scores = np.array([one for pair in pairs for one in pair][:n_orders])
    return scores.argsort(axis=1).argsort(axis=1)


def quadrature_weights(members: Mask) -> Floats:
    """Weights of coalitions in the Shapley values of the process that runs through them.

    The process has a covariance that falls with the angle between coalitions, conditioned on what
    everyone is worth, plus a strong linear part and a little noise.

    Parameters
    ----------
    members : array of shape (n_coalitions, n_players)
        True where the player belongs to the coalition; neither the empty nor the full one.

    Returns
    -------
    array of shape (n_coalitions, n_players)
        What each coalition's deviation from an equal share counts.
    """
    n_players = members.shape[1]
    sizes = members.sum(axis=1)
    centred = members - (sizes / n_players)[:, None]
    overlaps = (members.astype(np.float64) @ members.T).round()
    with_everyone = _correlation(sizes, n_players, sizes)
    covariance = _correlation(sizes[:, None], sizes, overlaps)
    covariance -= np.outer(with_everyone, with_everyone)
    covariance += _LINEAR_VARIANCE / n_players * (centred @ centred.T)
    covariance[np.diag_indices_from(covariance)] += _NOISE
    integrals = _integrals(n_players)
    target = integrals[sizes[:, None], members.astype(np.intp)]
    target -= target.mean(axis=1, keepdims=True)
    target += _LINEAR_VARIANCE / n_players * centred
    return np.linalg.solve(covariance, target)


def _correlation(one: Any, other: Any, overlap: Any) -> Floats:
    """Correlation of the utilities of two coalitions, given their sizes and their overlap."""
    cosine = np.minimum(overlap / np.sqrt(one * other), 1.0)
    correlation: Floats = np.exp(-_FALL_PER_RADIAN * np.arccos(cosine))
    return correlation


@lru_cache(maxsize=8)
def _integrals(n_players: int) -> Floats:
    """Shapley value of a player in the game F -> correlation(F, G), shape (n_players, 2).

    By the size of G, for players outside and inside of G; without the empty and the full F.
    """
    integrals = np.zeros((n_players, 2))
    size = np.arange(1, n_players)[:, None]
    joined = 1.0 / (n_players * comb(n_players - 1, size - 1))
    absent = 1.0 / (n_players * comb(n_players - 1, size))
    for given in range(1, n_players):
        overlap = np.arange(given + 1)
        correlation = _correlation(size, given, overlap)
        # Ways to pick F of a size and an overlap with G, with the player and without.
        outside, inside = n_players - given, given
        rest = size - overlap
        for is_in in (0, 1):
            with_player = (
                comb(inside - 1, overlap - 1) * comb(outside, rest)
                if is_in
                else comb(inside, overlap) * comb(outside - 1, rest - 1)
            )
            without = (
                comb(inside - 1, overlap) * comb(outside, rest)
                if is_in
                else comb(inside, overlap) * comb(outside - 1, rest)
            )
            marginal = with_player * joined - without * absent
            integrals[given, is_in] = (correlation * marginal).sum()
    return integrals
