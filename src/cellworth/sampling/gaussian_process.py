"""Values by a Gaussian process over coalitions, with kernels of sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from cellworth.data.arguments import Floats, Mask
from cellworth.sampling.moments import Moments, fewer
from cellworth.sampling.samplers import CoalitionPairs
from cellworth.sampling.semivalues import Semivalue, membership_weights, size_probabilities

# Where the likelihood says little, kernels stay near these: roughness, linear, level, size of the
# rows, then of the columns, and the share of what is left unexplained.
_USUAL = np.log([0.15, 0.05, 1.0, 1.0, 0.15, 0.05, 1.0, 1.0, 0.03])
_PULL = 0.15
_BOUNDS = [(-6.0, 4.0), (-8.0, 5.0), (-4.0, 8.0), (-6.0, 8.0)] * 2 + [(-12.0, 1.0)]
_STEPS = 30
# The likelihood is looked at on so many utilities; its cost grows with the third power.
_UTILITIES_TO_LEARN_FROM = 1_000
# Errors that take the learned kernel for the true one are too small; by how much was measured on
# games whose values are known (docs/explanation/models.md).
_KERNEL_UNKNOWN = 1.15
# Below this many utilities for each block the kernel is not known well enough to tell errors.
_UTILITIES_PER_BLOCK = 10


@dataclass(frozen=True)
class Shape:
    """What a kernel on the coalitions of one side looks like; all four are above 0.

    Parameters
    ----------
    roughness : float
        How fast likeness falls with the angle between two coalitions.
    linear : float
        Weight of effects of single players, whatever the coalition.
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
class Process:
    """The prior of a game: products of a kernel on rows and one on columns, and a rough part.

    The rough part is independent from one pair of coalitions to the next. Utilities are not noisy:
    it belongs to the game, and its own value counts.

    Parameters
    ----------
    row_shape, column_shape : Shape
    rough : float
        Variance of the rough part, as a share of the scale.
    """

    row_shape: Shape
    column_shape: Shape
    rough: float

    @classmethod
    def of_logs(cls, logs: Floats) -> Process:
        """Read the parameters from their logarithms."""
        weights = np.exp(logs)
        return cls(
            Shape(*weights[:N_WEIGHTS]), Shape(*weights[N_WEIGHTS : 2 * N_WEIGHTS]), weights[-1]
        )


@dataclass(frozen=True, eq=False)
class Interactions:
    """What pairs of coalitions earn: h(S, F) - h(S, 0) - h(0, F) + h(0, 0).

    The values of this game are those of h, because what depends on one side alone has no second
    differences; and it is 0 wherever one side is empty.

    Parameters
    ----------
    rows, columns : arrays of shape (n_pairs, n_rows) and (n_pairs, n_columns)
        Distinct pairs of coalitions, none of them empty, in the order in which they were met.
    amounts : array of shape (n_pairs,) or (n_pairs, k)
    """

    rows: Mask
    columns: Mask
    amounts: Floats

    @classmethod
    def of(cls, tasks: Sequence[CoalitionPairs], utilities: Sequence[Floats]) -> Interactions:
        """Gains of all pairs that were looked at together with their empty sides."""
        rows = np.concatenate([task.rows for task in tasks])
        columns = np.concatenate([task.columns for task in tasks])
        seen = np.concatenate(utilities)
        names = np.packbits(np.hstack([rows, columns]), axis=1)
        first = np.sort(np.unique(names, axis=0, return_index=True)[1])
        rows, columns, seen = rows[first], columns[first], seen[first]
        no_rows, no_columns = ~rows.any(axis=1), ~columns.any(axis=1)
        with_rows = dict(zip(_names(rows[no_columns]), seen[no_columns], strict=True))
        with_columns = dict(zip(_names(columns[no_rows]), seen[no_rows], strict=True))
        (nothing,) = seen[no_rows & no_columns]
        both = ~no_rows & ~no_columns
        amounts = seen[both] + nothing
        amounts -= np.array([with_rows[name] for name in _names(rows[both])])
        amounts -= np.array([with_columns[name] for name in _names(columns[both])])
        return cls(rows[both], columns[both], amounts)

    def __len__(self) -> int:
        return len(self.amounts)


def process_moments(
    interactions: Interactions, semivalues: tuple[Semivalue, Semivalue], total: Floats | None
) -> Moments:
    """Posterior means of the values, with standard errors once there are enough utilities.

    Parameters
    ----------
    interactions : Interactions
        What was looked at. Where it has several columns, the first one tells the kernel.
    semivalues : tuple of Semivalue
        Of rows and of columns.
    total : array of shape (1,) or longer, or None
        What the values of each column of the interactions add up to, where that is known.
    """
    rows, columns = (
        Side(interactions.rows, semivalues[0]),
        Side(interactions.columns, semivalues[1]),
    )
    amounts = interactions.amounts
    process = fit_process(rows, columns, amounts.reshape(len(interactions), -1)[:, 0])
    known_total = None
    if total is not None:
        known_total = total[0] if amounts.ndim == 1 else _as_many(total, amounts.shape[1])
    values, errors = posterior(process, rows, columns, amounts, known_total)
    n_seen = len(interactions)
    n_blocks = rows.n_players * columns.n_players
    n_pairs = ((1 << rows.n_players) - 1) * ((1 << columns.n_players) - 1)
    if n_seen < min(_UTILITIES_PER_BLOCK * n_blocks, n_pairs):
        errors = np.full(errors.shape, np.nan)
    count = np.full(values.shape, n_seen, dtype=np.int64)
    return Moments.of_variances(count, values, (_KERNEL_UNKNOWN * errors) ** 2)


def _as_many(total: Floats, n_columns: int) -> Floats:
    """The total and its deviations, as many as a run kept."""
    return np.append(total[0], fewer(total[1:], n_columns - 1))


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
        """Covariance of the values of a game of independent utilities, 0 for the empty one."""
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
        # The empty coalition is like no other; its utility is always 0.
        inside[0] = outside[0] = 0.0
        # No player is outside the full coalition; any finite number will do.
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


def fit_process(rows: Side, columns: Side, amounts: Floats) -> Process:
    """The process under which the first few hundred gains are likeliest."""
    from scipy.optimize import minimize

    n = _UTILITIES_TO_LEARN_FROM
    found = minimize(
        _misfit,
        _USUAL,
        args=(rows.first(n), columns.first(n), amounts[:n]),
        jac=True,
        method="L-BFGS-B",
        bounds=_BOUNDS,
        options={"maxiter": _STEPS},
    )
    return Process.of_logs(found.x)


def _misfit(logs: Floats, rows: Side, columns: Side, amounts: Floats) -> tuple[float, Floats]:
    """Minus the log marginal likelihood, at the best scale, pulled to the usual; and slopes."""
    from scipy.linalg import cho_solve

    process = Process.of_logs(logs)
    row_kernel, column_kernel = rows.kernel(process.row_shape), columns.kernel(process.column_shape)
    n_seen = len(amounts)
    factor = _factor(row_kernel, column_kernel, process.rough)
    weights = cho_solve((factor, True), amounts)
    scale = float(_scale(amounts, weights))
    misfit = 0.5 * n_seen * np.log(scale) + np.log(np.diag(factor)).sum()
    sensitivity = cho_solve((factor, True), np.eye(n_seen))
    sensitivity -= np.outer(weights, weights) / scale
    sensitivity *= 0.5
    by_rows, by_columns = sensitivity * column_kernel, sensitivity * row_kernel
    slopes = [
        *(np.vdot(by_rows, slope) for slope in rows.kernel_slopes(process.row_shape)),
        *(np.vdot(by_columns, slope) for slope in columns.kernel_slopes(process.column_shape)),
        process.rough * np.trace(sensitivity),
    ]
    away = logs - _USUAL
    return float(misfit + _PULL * away @ away), np.array(slopes) + 2.0 * _PULL * away


def posterior(
    process: Process, rows: Side, columns: Side, amounts: Floats, total: Any
) -> tuple[Floats, Floats]:
    """Means and standard deviations of the values, given the gains; sums at the margins.

    Both have a last axis where the gains have several columns.
    """
    from scipy.linalg import cho_solve, solve_triangular

    row_kernel, column_kernel = rows.kernel(process.row_shape), columns.kernel(process.column_shape)
    factor = _factor(row_kernel, column_kernel, process.rough)
    weights = cho_solve((factor, True), amounts)
    row_values, column_values = rows.values(process.row_shape), columns.values(process.column_shape)
    links = row_values[:, :, None] * column_values[:, None, :]
    links += process.rough * rows.rough_values()[:, :, None] * columns.rough_values()[:, None, :]
    links = _with_sums(links)
    n_seen = len(links)
    values = np.tensordot(links, weights, axes=(0, 0))
    known = solve_triangular(factor, links.reshape(n_seen, -1), lower=True).reshape(links.shape)
    prior, prior_to_total = _prior(process, rows, columns)
    variances = prior - np.einsum("kij,kij->ij", known, known)
    if total is not None:
        to_total = prior_to_total - np.einsum("kij,k->ij", known, known[:, -1, -1])
        of_total = to_total[-1, -1]
        # Once all pairs that matter are known, so is the total.
        if of_total > 1e-12 * prior[-1, -1]:
            missing = (total - values[-1, -1]) / of_total
            values = values + np.multiply.outer(to_total, missing)
            variances = variances - to_total**2 / of_total
    # What is known for sure, such as a sum all of whose pairs were seen, is known up to rounding.
    variances = np.maximum(variances, np.finfo(np.float64).eps * prior)
    scale = _scale(amounts, weights)
    errors: Floats = np.sqrt(np.multiply.outer(variances, scale))
    return values, errors


def _factor(row_kernel: Floats, column_kernel: Floats, rough: float) -> Floats:
    kernel = row_kernel * column_kernel
    kernel[np.diag_indices(len(kernel))] += rough
    factor = np.linalg.cholesky(kernel)
    return factor.astype(np.float64, copy=False)


def _scale(amounts: Floats, weights: Floats) -> Floats:
    # A game that is 0 everywhere has values of 0, without any doubt.
    mean = (amounts * weights).sum(axis=0) / len(amounts)
    return np.asarray(np.maximum(mean, np.finfo(np.float64).tiny))


def _with_sums(links: Floats) -> Floats:
    with_row_sums = np.concatenate([links, links.sum(axis=2, keepdims=True)], axis=2)
    return np.concatenate([with_row_sums, with_row_sums.sum(axis=1, keepdims=True)], axis=1)


def _prior(process: Process, rows: Side, columns: Side) -> tuple[Floats, Floats]:
    """Prior variances of blocks and sums, and their covariances with the total."""
    smooth = (
        _side_sums(rows.covariance(process.row_shape)),
        _side_sums(columns.covariance(process.column_shape)),
    )
    rough = _side_sums(rows.rough_covariance()), _side_sums(columns.rough_covariance())
    variances, to_total = (
        np.outer(smooth[0][which], smooth[1][which])
        + process.rough * np.outer(rough[0][which], rough[1][which])
        for which in (0, 1)
    )
    return variances, to_total


def _side_sums(covariance: Floats) -> tuple[Floats, Floats]:
    """Variances of the players and of their sum, and covariances of each with the sum."""
    to_sum = covariance.sum(axis=0)
    return np.append(np.diag(covariance), to_sum.sum()), np.append(to_sum, to_sum.sum())


def _likeness(
    sizes: NDArray[np.int64], size: int, shared: NDArray[np.int64], roughness: float
) -> Floats:
    """Angle part of the kernel of coalitions with given sizes and overlap; 0 for the empty one."""
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


def _names(masks: Mask) -> list[Any]:
    return [packed.tobytes() for packed in np.packbits(masks, axis=1)]
