"""Samplers of column coalitions: exhaustive, quadrature, permutations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from scipy.special import comb

from cellworth.data.arguments import Floats, Integers, Mask, WithoutParameters, check_count
from cellworth.sampling.samplers import coalition_masks
from cellworth.sampling.semivalues import Semivalue, Shapley, membership_weights, size_probabilities

MAX_COALITIONS_OF_ALL_SUBSETS = 2**20
MAX_COLUMNS_OF_QUADRATURE = 500
_SHAPLEY = Shapley()
# Chosen on three data sets and checked on others (experiments/column_samplers.py).
_FALL_PER_RADIAN = 0.3
_LINEAR_VARIANCE = 1000.0
_NOISE = 1e-3


@dataclass(frozen=True, eq=False)
class Coalitions:
    """Coalitions of players and their weights in every player's value."""

    # (n_coalitions, n_players): true where the player belongs to the coalition. The last
    # coalition is full, none is empty.
    members: Mask
    weights: Floats  # (n_coalitions, n_players)
    nothing: Floats  # (n_players,): weights of the empty coalition

    def with_last_player(self) -> Coalitions:
        """Keep the coalitions with the last player, for games whose other utilities are 0.

        The column of its membership is dropped; the weights of its value stay in the last column.
        """
        inside = self.members[:, -1]
        members, weights = self.members[inside, :-1], self.weights[inside]
        alone = ~members.any(axis=1)
        return Coalitions(members[~alone], weights[~alone], weights[alone].sum(axis=0))


@runtime_checkable
class ColumnSampler(Protocol):
    """Protocol of samplers that draw the column coalitions of one query.

    See Also
    --------
    QuadratureSampler, PermutationSampler

    Examples
    --------
    >>> from cellworth.sampling import ColumnSampler, PermutationSampler
    >>> isinstance(PermutationSampler(2), ColumnSampler)
    True
    """

    def n_coalitions(self, n_players: int, semivalue: Semivalue = _SHAPLEY) -> int:
        """Return the approximate number of coalitions per query."""

    def draw(self, n_players: int, semivalue: Semivalue, rng: np.random.Generator) -> Coalitions:
        """Draw coalitions; the distribution is symmetric in the players."""


class ExhaustiveSampler(WithoutParameters):
    """Evaluate every column coalition with a non-zero weight: no sampling error.

    For most semivalues these are all coalitions, and the work doubles with each column.
    :class:`~cellworth.sampling.LeaveOneOut` needs one coalition more than there are columns. All
    coalitions follow
    each other as in a Gray code, so that one column joins or leaves at a time.

    See Also
    --------
    QuadratureSampler, PermutationSampler

    Examples
    --------
    >>> from cellworth.sampling import ExhaustiveSampler, LeaveOneOut
    >>> ExhaustiveSampler().n_coalitions(9)
    511
    >>> ExhaustiveSampler().n_coalitions(9, LeaveOneOut())
    10
    """

    def n_coalitions(self, n_players: int, semivalue: Semivalue = _SHAPLEY) -> int:
        """Return the number of non-empty coalitions with a non-zero weight."""
        sizes = _list_weighted_sizes(semivalue, n_players)
        if len(sizes) == n_players:
            return (1 << n_players) - 1
        return sum(math.comb(n_players, size) for size in sizes)

    def draw(self, n_players: int, semivalue: Semivalue, rng: np.random.Generator) -> Coalitions:
        """List the coalitions; nothing is random."""
        if self.n_coalitions(n_players, semivalue) >= MAX_COALITIONS_OF_ALL_SUBSETS:
            least = MAX_COALITIONS_OF_ALL_SUBSETS.bit_length() - 1
            raise ValueError(
                f"ExhaustiveSampler would evaluate more than 2^{least} coalitions of {n_players} "
                "columns (labels included, if they are valued); use QuadratureSampler() or "
                f"PermutationSampler(), or form at most {least} column_groups."
            )
        return _all_subsets(n_players, semivalue)


@dataclass(frozen=True)
class QuadratureSampler:
    """Draw coalitions of all sizes, and integrate a Gaussian process through their utilities.

    If the utility is smooth, it needs few coalitions. Each draw solves a system of as many
    equations as coalitions. For Shapley values of columns.

    Parameters
    ----------
    coalitions : int, default=None
        Coalitions per query and pass; None means eight per column.

    See Also
    --------
    PermutationSampler

    References
    ----------
    O'Hagan (1991), Bayes-Hermite quadrature, Journal of Statistical Planning and Inference.

    Examples
    --------
    >>> from cellworth.sampling import QuadratureSampler
    >>> QuadratureSampler(100).n_coalitions(30)
    100
    """

    coalitions: int | None = None

    # Fits through fewer coalitions are unstable.
    _least_per_player: ClassVar[int] = 2

    def __post_init__(self) -> None:
        if self.coalitions is not None:
            check_count(self.coalitions, f"coalitions of {type(self).__name__}")

    def n_coalitions(self, n_players: int, semivalue: Semivalue = _SHAPLEY) -> int:
        """Return the requested number, or eight per player, limited to all coalitions."""
        wanted = 8 * n_players if self.coalitions is None else self.coalitions
        return min(wanted, ExhaustiveSampler().n_coalitions(n_players))

    def draw(self, n_players: int, semivalue: Semivalue, rng: np.random.Generator) -> Coalitions:
        """Draw coalitions and compute the weights of the fit."""
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
                f"coalitions must be at least {least} for {n_players} columns, got {self!r}; fits "
                "through fewer are unstable. Use more, or PermutationSampler(1)."
            )
        return _keep_total(*self._fit(n_players, self.n_coalitions(n_players) - 1, rng))

    def _fit(self, n_players: int, budget: int, rng: np.random.Generator) -> tuple[Mask, Floats]:
        """Return coalitions, neither empty nor full, and their weights for each player."""
        if n_players > MAX_COLUMNS_OF_QUADRATURE:
            raise ValueError(
                f"QuadratureSampler supports at most {MAX_COLUMNS_OF_QUADRATURE} columns, got "
                f"{n_players}; use PermutationSampler()."
            )
        sizes = np.arange(1, n_players)
        counts = allot(1.0 / np.sqrt(sizes), numbers_of_subsets(n_players, sizes), budget, rng)
        members = np.vstack(
            [
                subsets(n_players, size, count, rng)
                for size, count in zip(sizes.tolist(), counts.tolist(), strict=True)
            ]
        )
        return members, quadrature_weights(members)


@dataclass(frozen=True)
class PermutationSampler:
    """Evaluate the prefixes of random orders of the columns; unbiased for any number of orders.

    Two orders are an order and its reverse. More are such pairs from orthogonal permutations
    (Mitchell et al. 2022). Supports every semivalue.

    Parameters
    ----------
    orders : int, default=2
        Orders per query and pass; each costs one ranking per column.

    See Also
    --------
    QuadratureSampler

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
        check_count(self.orders, "orders of PermutationSampler")

    def n_coalitions(self, n_players: int, semivalue: Semivalue = _SHAPLEY) -> int:
        """Return one per column and order; the orders share the full coalition."""
        return self.orders * (n_players - 1) + 1

    def draw(self, n_players: int, semivalue: Semivalue, rng: np.random.Generator) -> Coalitions:
        """Draw the orders and weigh their prefixes."""
        ranks = _orthogonal_ranks(n_players, self.orders, rng)
        # A prefix ends with the column that joined last.
        sizes = np.arange(1, n_players + 1)
        members = ranks[:, None, :] < sizes[:, None]
        joined = ranks[:, None, :] == sizes[:, None] - 1
        follows = ranks[:, None, :] == sizes[:, None]
        chances = size_probabilities(semivalue, n_players) * (n_players / self.orders)
        left = np.append(chances[1:], 0.0)
        weights = joined * chances[:, None] - follows * left[:, None]
        nothing = -((ranks == 0) * chances[0]).sum(axis=0)
        proper = (np.arange(self.orders)[:, None], np.arange(n_players - 1))
        return Coalitions(
            np.vstack([members[proper].reshape(-1, n_players), members[0, -1:]]),
            np.vstack([weights[proper].reshape(-1, n_players), weights[:, -1].sum(axis=0)]),
            nothing,
        )


def _all_subsets(n_players: int, semivalue: Semivalue) -> Coalitions:
    sizes = _list_weighted_sizes(semivalue, n_players)
    if len(sizes) == n_players:
        # All non-empty coalitions, the full one last.
        numbers = np.arange(1, 1 << n_players)
        members = coalition_masks(numbers ^ (numbers >> 1), n_players)
        members = members[np.argsort(members.all(axis=1), kind="stable")]
    else:
        members = np.vstack([_list_subsets(n_players, size) for size in sizes])
    nothing = membership_weights(semivalue, np.zeros((1, n_players), dtype=bool))[0]
    return Coalitions(members, membership_weights(semivalue, members), nothing)


def _list_weighted_sizes(semivalue: Semivalue, n_players: int) -> list[int]:
    """Return the sizes with a non-zero weight; the full coalition is always included."""
    chances = size_probabilities(semivalue, n_players)
    joined_or_left = np.append(chances, 1.0) + np.append(0.0, chances)
    return [size for size in range(1, n_players + 1) if joined_or_left[size] > 0]


def _keep_total(members: Mask, slopes: Floats) -> Coalitions:
    """Return weights whose estimates add up to the total.

    ``value = D / m + sum over F of slopes[F] * (phi(F) - phi(0) - |F| / m * D)``, where D is
    phi(all columns) - phi(0).

    In the Shapley value, the coalitions of one size have total weight 1 for their members. A fit
    weighs them slightly too high or too low. Players are renamed at random for every query, so
    correcting the weights size by size makes the mean of the estimates exact.
    """
    n_players = members.shape[1]
    sizes = members.sum(axis=1)
    # Slopes move value between players; remove what rounding adds to the total.
    slopes = slopes - slopes.mean(axis=1, keepdims=True)
    counted = np.bincount(sizes, weights=(slopes * members).sum(axis=1))
    slopes = slopes / counted[sizes][:, None]
    everyone = 1.0 / n_players - (sizes / n_players) @ slopes
    nothing = -everyone - slopes.sum(axis=0)
    return Coalitions(
        np.vstack([members, np.ones((1, n_players), dtype=bool)]),
        np.vstack([slopes, everyone]),
        nothing,
    )


def allot(shares: Floats, exist: Floats, budget: float, rng: np.random.Generator) -> Integers:
    """Split a budget over the sizes in these shares; each gets at least 1 and at most ``exist``.

    Fractions are rounded at random, so that the expected number of each size is its share.
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


def numbers_of_subsets(n_players: int, sizes: Integers) -> Floats:
    """Return how many subsets of each size exist; beyond any budget, at least so many."""
    return np.array([float(min(math.comb(n_players, k), 2**62)) for k in sizes.tolist()])


def subsets(n_players: int, size: int, count: int, rng: np.random.Generator) -> Mask:
    """Draw distinct subsets of a size, all equally likely."""
    exist = math.comb(n_players, size)
    if exist <= 4 * count:
        return _list_subsets(n_players, size)[rng.permutation(exist)[:count]]
    found = np.empty((0, n_players), dtype=bool)
    while len(found) < count:
        scores = rng.random((2 * (count - len(found)), n_players))
        positions = np.argpartition(scores, size, axis=1)[:, :size]
        more = np.zeros(scores.shape, dtype=bool)
        np.put_along_axis(more, positions, values=True, axis=1)
        found = np.vstack([found, more])
        _, first = np.unique(np.packbits(found, axis=1), axis=0, return_index=True)
        # Keep the order of drawing: the first of sorted subsets are not a fair sample.
        found = found[np.sort(first)]
    return found[:count]


@lru_cache(maxsize=64)
def _list_subsets(n_players: int, size: int) -> Mask:
    if 2 * size > n_players:
        return ~_list_subsets(n_players, n_players - size)
    members = np.zeros((math.comb(n_players, size), n_players), dtype=bool)
    positions = np.array(list(combinations(range(n_players), size)), dtype=np.intp)
    np.put_along_axis(members, positions.reshape(len(members), size), values=True, axis=1)
    return members


def _orthogonal_ranks(n_players: int, n_orders: int, rng: np.random.Generator) -> Integers:
    """Return the rank of each player in each order, shape (n_orders, n_players).

    Sorting a random direction with entries of sum 0 gives a random order, and the opposite
    direction gives its reverse. Orthogonal directions give orders that are far apart.
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
    """Return the weights of coalitions, neither empty nor full, in a Gaussian process.

    A player's Shapley value is the weighted sum of the coalitions' deviations from equal shares.
    The covariance falls with the angle between coalitions and is conditioned on the full
    coalition; a strong linear part and little noise are added.
    """
    n_players = members.shape[1]
    sizes = members.sum(axis=1)
    centered = members - (sizes / n_players)[:, None]
    overlaps = (members.astype(np.float64) @ members.T).round()
    with_everyone = _correlation(sizes, n_players, sizes)
    covariance = _correlation(sizes[:, None], sizes, overlaps)
    covariance -= np.outer(with_everyone, with_everyone)
    covariance += _LINEAR_VARIANCE / n_players * (centered @ centered.T)
    covariance[np.diag_indices_from(covariance)] += _NOISE
    integrals = _integrals(n_players)
    target = integrals[sizes[:, None], members.astype(np.intp)]
    target -= target.mean(axis=1, keepdims=True)
    target += _LINEAR_VARIANCE / n_players * centered
    return np.linalg.solve(covariance, target)


def _correlation(one: Any, other: Any, overlap: Any) -> Floats:
    """Return the correlation of the utilities of coalitions, from their sizes and overlap."""
    cosine = np.minimum(overlap / np.sqrt(one * other), 1.0)
    return np.asarray(np.exp(-_FALL_PER_RADIAN * np.arccos(cosine)))


@lru_cache(maxsize=8)
def _integrals(n_players: int) -> Floats:
    """Return Shapley values of the game F -> correlation(F, G), shape (n_players, 2).

    Rows are sizes of G, columns are players outside and inside G; F is neither empty nor full.
    """
    integrals = np.zeros((n_players, 2))
    size = np.arange(1, n_players)[:, None]
    joined = 1.0 / (n_players * comb(n_players - 1, size - 1))
    absent = 1.0 / (n_players * comb(n_players - 1, size))
    for given in range(1, n_players):
        overlap = np.arange(given + 1)
        correlation = _correlation(size, given, overlap)
        rest = size - overlap
        for is_in, is_out in ((0, 1), (1, 0)):
            # Numbers of F by size and overlap with G, with and without the player.
            inside, outside = given - is_in, n_players - given - is_out
            with_player = comb(inside, overlap - is_in) * comb(outside, rest - is_out)
            without = comb(inside, overlap) * comb(outside, rest)
            marginal = with_player * joined - without * absent
            integrals[given, is_in] = (correlation * marginal).sum()
    return integrals
