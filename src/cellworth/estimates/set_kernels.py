"""Kernels on coalitions: how alike two of them are, and what a game drawn from them is worth."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from cellworth.counts import Floats, Mask
from cellworth.semivalues import Semivalue, membership_weights, size_probabilities


@dataclass(frozen=True)
class Shape:
    """What a kernel on the coalitions of one side looks like; all four are above 0.

    Parameters
    ----------
    roughness : float
        How fast likeness falls with the angle between two coalitions.
    linear : float
        Weight of effects that single players have, whoever else is there.
    level : float
        Weight of what all coalitions have in common.
    size : float
        Weight of growth with the size.
    """

    roughness: float
    linear: float
    level: float
    size: float


N_WEIGHTS = len(fields(Shape))


@dataclass(frozen=True, eq=False)
class Side:
    """Coalitions of one side of a game that were looked at, none of them empty.

    Parameters
    ----------
    members : array of shape (n_coalitions, n_players)
    semivalue : Semivalue
        How this side weighs coalitions.
    """

    members: Mask
    semivalue: Semivalue

    @property
    def n_players(self) -> int:
        """Count the players."""
        return len(self.members[0])

    def first(self, n: int) -> Side:
        """Only the first n coalitions."""
        return Side(self.members[:n], self.semivalue)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Size of each coalition."""
        sizes: NDArray[np.int64] = self.members.sum(axis=1)
        return sizes

    @cached_property
    def angles(self) -> Floats:
        """Angle between the membership vectors of each two coalitions."""
        cosines = self._shared / np.sqrt(np.outer(self.sizes, self.sizes))
        angles: Floats = np.arccos(np.minimum(cosines, 1.0))
        return angles

    @cached_property
    def products(self) -> Floats:
        """Inner products of the centred membership vectors."""
        return self._shared - np.outer(self.sizes, self.sizes) / self.n_players

    @cached_property
    def growth(self) -> Floats:
        """Products of the sizes, as shares of all players."""
        return np.outer(self.sizes, self.sizes) / self.n_players**2

    @cached_property
    def _shared(self) -> Floats:
        members = self.members.astype(np.float64)
        return members @ members.T

    def kernel(self, shape: Shape) -> Floats:
        """Likeness of each two coalitions."""
        return (
            np.exp(-shape.roughness * self.angles)
            + shape.linear * self.products
            + shape.level
            + shape.size * self.growth
        )

    def kernel_slopes(self, shape: Shape) -> tuple[Floats, Floats, Floats, Floats]:
        """Derivatives of the kernel by the logarithms of the four numbers of its shape."""
        return (
            -shape.roughness * self.angles * np.exp(-shape.roughness * self.angles),
            shape.linear * self.products,
            np.full(self.angles.shape, shape.level),
            shape.size * self.growth,
        )

    def values(self, shape: Shape) -> Floats:
        """Semivalues of the likeness to each coalition, shape (n_coalitions, n_players).

        Likeness depends on sizes and overlaps alone, and so its value for a player depends on the
        coalition's size and on whether the player is in it.
        """
        inside, outside = self._member_values(shape)
        return np.where(self.members, inside[self.sizes, None], outside[self.sizes, None])

    def covariance(self, shape: Shape) -> Floats:
        """Covariance of the values of a random game with this kernel; (n_players, n_players)."""
        inside, outside = self._member_values(shape)
        chances = size_probabilities(self.semivalue, self.n_players)
        own = chances @ (inside[1:] - outside[:-1])
        sizes = np.arange(self.n_players)
        there = sizes / max(self.n_players - 1, 1)
        steps = there * np.diff(inside) + (1.0 - there) * np.diff(outside)
        return _two_valued(self.n_players, float(own), float(chances @ steps))

    def rough_values(self) -> Floats:
        """Semivalues of a game that is 1 at each coalition and 0 at all others."""
        return membership_weights(self.semivalue, self.members)

    def rough_covariance(self) -> Floats:
        """Covariance of the values of a game of independent utilities, 0 for nobody."""
        n = self.n_players
        chances = size_probabilities(self.semivalue, n)
        sizes = np.arange(1, n + 1)
        joined = chances * np.exp(-_log_choose(n - 1, sizes - 1))
        left = np.append(chances[1:] * np.exp(-_log_choose(n - 1, sizes[:-1])), 0.0)
        own = chances @ joined + chances[1:] @ left[:-1]
        if n == 1:
            return _two_valued(n, own, 0.0)
        both = np.exp(_log_choose(n - 2, sizes - 2))
        one = np.exp(_log_choose(n - 2, sizes - 1))
        none = np.exp(_log_choose(n - 2, sizes))
        other = both @ joined**2 - 2.0 * one @ (joined * left) + none @ left**2
        return _two_valued(n, own, other)

    def _member_values(self, shape: Shape) -> tuple[Floats, Floats]:
        """Value of the likeness to a coalition of each size, for its members and for others."""
        n = self.n_players
        chances = size_probabilities(self.semivalue, n)
        sizes = np.arange(n + 1)
        common = chances[0] * shape.level + shape.size * sizes / n**2
        inside, outside = self._angle_values(shape.roughness)
        inside = inside + shape.linear * (1.0 - sizes / n) + common
        outside = outside - shape.linear * sizes / n + common
        # Nothing is like nobody, whose utility is 0 always.
        inside[0] = outside[0] = 0.0
        # Nobody is outside of everybody; any finite number will do.
        outside[-1] = 0.0
        return inside, outside

    def _angle_values(self, roughness: float) -> tuple[Floats, Floats]:
        n = self.n_players
        chances = size_probabilities(self.semivalue, n)
        before = np.arange(n)[:, None]
        shared = np.arange(n)[None, :]
        inside, outside = np.zeros(n + 1), np.zeros(n + 1)
        for size in range(1, n + 1):
            alone = _likeness(before, size, shared, roughness)
            joined_in = _likeness(before + 1, size, shared + 1, roughness)
            ways = _overlap_chances(n - 1, size - 1, before, shared)
            inside[size] = chances @ (ways * (joined_in - alone)).sum(axis=1)
            if size < n:
                joined_out = _likeness(before + 1, size, shared, roughness)
                ways = _overlap_chances(n - 1, size, before, shared)
                outside[size] = chances @ (ways * (joined_out - alone)).sum(axis=1)
        return inside, outside


def _likeness(
    sizes: NDArray[np.int64], size: int, shared: NDArray[np.int64], roughness: float
) -> Floats:
    """Angle part of the kernel between coalitions of given sizes and overlap; 0 for nobody."""
    cosines = np.clip(shared / np.sqrt(np.maximum(sizes, 1) * size), 0.0, 1.0)
    return np.where(sizes > 0, np.exp(-roughness * np.arccos(cosines)), 0.0)


def _overlap_chances(
    n_others: int, size: int, drawn: NDArray[np.int64], shared: NDArray[np.int64]
) -> Floats:
    """Chance that ``drawn`` of the others share so many with a coalition of ``size`` of them."""
    logs = (
        _log_choose(size, shared)
        + _log_choose(n_others - size, drawn - shared)
        - _log_choose(n_others, drawn)
    )
    chances: Floats = np.exp(logs)
    return chances


def _log_choose(n: int, k: NDArray[np.int64]) -> Floats:
    """Logarithm of the number of ways to choose k of n; minus infinity where there is none."""
    possible = (k >= 0) & (k <= n)
    safe = np.where(possible, k, 0)
    logs = gammaln(n + 1) - gammaln(safe + 1) - gammaln(n - safe + 1)
    return np.where(possible, logs, -np.inf)


def _two_valued(n: int, own: float, other: float) -> Floats:
    return np.full((n, n), other) + (own - other) * np.eye(n)
