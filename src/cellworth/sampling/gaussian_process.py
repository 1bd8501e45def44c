"""Values from a Gaussian process over pairs of coalitions, with kernels on sets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats, Mask
from cellworth.sampling.moments import Moments, Sums, append_margins, pool_deviations
from cellworth.sampling.samplers import CoalitionPairs, n_utilities
from cellworth.sampling.semivalues import (
    Banzhaf,
    Semivalue,
    Shapley,
    log_choose,
    membership_weights,
    size_probabilities,
)

# The prior of a game is the product of a row kernel and a column kernel, plus a rough part that is
# independent between pairs of coalitions. It is not noise, because utilities have none: it is part
# of the game and has values of its own. The parameters of a kernel are
# - roughness: how fast it falls with the angle between two coalitions,
# - linear: the weight of additive effects of single players,
# - level: the weight of a constant,
# - size: the weight of linear growth with the coalition's size.
# Those of the row kernel are followed by those of the column kernel and the variance of the rough
# part, as a share of the scale; all are positive. These are the prior means of their logarithms. A
# penalty keeps the fit near them if data are few.
_USUAL = np.log([0.15, 0.05, 1.0, 1.0, 0.15, 0.05, 1.0, 1.0, 0.03])
_PENALTY = 0.15
_BOUNDS = [(-6.0, 4.0), (-8.0, 5.0), (-4.0, 8.0), (-6.0, 8.0)] * 2 + [(-12.0, 1.0)]
_ITERATIONS = 30
# The likelihood uses this many utilities; its cost grows with the third power.
MAX_FITTED = 400
# Posterior errors ignore that the kernel is estimated, and are too small. This factor was measured
# on games with known values (docs/reference/models.md).
_KERNEL_UNKNOWN = 1.15
# With fewer utilities per block the kernel is too uncertain for errors. For semivalues other than
# Shapley's and Banzhaf's, intervals of some games cover less than 80%
# (docs/evidence/errors-of-models.md).
_UTILITIES_PER_BLOCK = 10


def find_interactions(
    tasks: Sequence[CoalitionPairs], utilities: Sequence[Floats]
) -> tuple[Mask, Mask, Floats]:
    """Return the interactions of row and column coalitions: h(S, F) - h(S, 0) - h(0, F) + h(0, 0).

    This game has the same values as h, because terms that depend on one side alone have no second
    differences. It is 0 if either coalition is empty, so those pairs are left out; the tasks must
    include them.

    Returns
    -------
    rows, columns : arrays of shape (n_pairs, n_rows) and (n_pairs, n_columns)
        Distinct pairs of coalitions, in order of first evaluation.
    amounts : array of shape (n_pairs,) or (n_pairs, k)
        The interaction of each pair.
    """
    rows = np.concatenate([task.rows for task in tasks])
    columns = np.concatenate([task.columns for task in tasks])
    seen = np.concatenate(utilities)
    first = np.sort(np.unique(np.hstack([rows, columns]), axis=0, return_index=True)[1])
    rows, columns, seen = rows[first], columns[first], seen[first]
    no_rows, no_columns = ~rows.any(axis=1), ~columns.any(axis=1)
    with_rows = dict(zip(_keys(rows[no_columns]), seen[no_columns], strict=True))
    with_columns = dict(zip(_keys(columns[no_rows]), seen[no_rows], strict=True))
    (nothing,) = seen[no_rows & no_columns]
    both = ~no_rows & ~no_columns
    amounts = seen[both] + nothing
    amounts -= np.array([with_rows[key] for key in _keys(rows[both])])
    amounts -= np.array([with_columns[key] for key in _keys(columns[both])])
    return rows[both], columns[both], amounts


def process_moments(
    parameters: Floats,
    sides: Sides,
    amounts: Floats,
    total: Floats | None,
    sums: Sums = append_margins,
) -> Moments:
    """Return posterior means of sums of values, with errors where they were shown to hold.

    ``amounts`` are the interactions of the sides' coalitions. ``total`` is the sum of the values
    for each column of the amounts, if known.
    """
    n_seen = len(amounts)
    known_total = None
    if total is not None:
        # The total has all deviations; the interactions have as many as the run kept.
        pooled = pool_deviations(total[1:], amounts.shape[-1] - 1) if amounts.ndim > 1 else None
        known_total = total[0] if pooled is None else np.append(total[0], pooled)
    values, errors = posterior(parameters, sides, amounts, known_total, sums)
    shape = sides[0].n_players, sides[1].n_players
    shown = all(isinstance(side.semivalue, Shapley | Banzhaf) for side in sides)
    if not shown or n_seen < min(_UTILITIES_PER_BLOCK * math.prod(shape), n_utilities(shape)):
        errors = np.full(errors.shape, np.nan)
    count = np.full(values.shape, n_seen, dtype=np.int64)
    return Moments.of_variances(count, values, (_KERNEL_UNKNOWN * errors) ** 2)


@dataclass(frozen=True, eq=False)
class Side:
    """The coalitions of rows, or of columns, of some pairs; none is empty."""

    members: Mask  # (n_coalitions, n_players)
    semivalue: Semivalue

    @property
    def n_players(self) -> int:
        """Number of players."""
        return len(self.members[0])

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Size of each coalition."""
        return np.asarray(self.members.sum(axis=1))

    def kernel(self, parameters: Floats, others: Side | None = None) -> Floats:
        """Return the kernel of all pairs of coalitions, or that with others."""
        features = self._features if others is None else _compare(self, others)
        return np.asarray(sum(_terms(parameters, *features)))

    def kernel_slopes(self, parameters: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Return the derivatives of the kernel by the logarithms of its parameters."""
        angles = self._features[0]
        angle, linear, level, size = _terms(parameters, *self._features)
        return -parameters[0] * angles * angle, linear, np.full(angles.shape, level), size

    @cached_property
    def _features(self) -> tuple[Floats, Floats, Floats]:
        return _compare(self, self)

    def values(self, parameters: Floats) -> Floats:
        """Return the semivalues of kernel(S, .) for each coalition S: (n_coalitions, n_players).

        The kernel depends on sizes and overlaps alone. So a player's value depends on the size of S
        and on whether the player is a member.
        """
        inside, outside = self._member_values(parameters)
        return np.where(self.members, inside[self.sizes, None], outside[self.sizes, None])

    def covariance(self, parameters: Floats) -> Floats:
        """Return the prior covariance of the values, shape (n_players, n_players)."""
        inside, outside = self._member_values(parameters)
        chances = size_probabilities(self.semivalue, self.n_players)
        own = chances @ (inside[1:] - outside[:-1])
        # Share of coalitions of each size that contain a given other player.
        share = np.arange(self.n_players) / max(self.n_players - 1, 1)
        steps = share * np.diff(inside) + (1.0 - share) * np.diff(outside)
        return _two_valued(self.n_players, float(own), float(chances @ steps))

    def rough_covariance(self) -> Floats:
        """Return the covariance of values if utilities are independent, and 0 for no player."""
        n = self.n_players
        chances = size_probabilities(self.semivalue, n)
        sizes = np.arange(1, n + 1)
        joined = chances * np.exp(-log_choose(n - 1, sizes - 1))
        left = np.append(chances[1:] * np.exp(-log_choose(n - 1, sizes[:-1])), 0.0)
        own = chances @ joined + chances[1:] @ left[:-1]
        if n == 1:
            return _two_valued(n, own, 0.0)
        both = np.exp(log_choose(n - 2, sizes - 2))
        one = np.exp(log_choose(n - 2, sizes - 1))
        none = np.exp(log_choose(n - 2, sizes))
        other = both @ joined**2 - 2.0 * one @ (joined * left) + none @ left**2
        return _two_valued(n, own, other)

    def _member_values(self, parameters: Floats) -> tuple[Floats, Floats]:
        """Return the values of kernel(S, .) by size of S, for members and for other players."""
        n = self.n_players
        roughness, linear, level, size = parameters
        chances = size_probabilities(self.semivalue, n)
        sizes = np.arange(n + 1)
        common = chances[0] * level + size * sizes / n**2
        inside, outside = self._angle_values(roughness)
        inside = inside + linear * (1.0 - sizes / n) + common
        outside = outside - linear * sizes / n + common
        # The utility of the empty coalition is always 0, and so is its covariance with others.
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
            alone = _angle_kernel(before, size, shared, roughness)
            joined_in = _angle_kernel(before + 1, size, shared + 1, roughness)
            overlaps = _overlap_chances(n - 1, size - 1, before, shared)
            inside[size] = chances @ (overlaps * (joined_in - alone)).sum(axis=1)
            if size < n:
                joined_out = _angle_kernel(before + 1, size, shared, roughness)
                overlaps = _overlap_chances(n - 1, size, before, shared)
                outside[size] = chances @ (overlaps * (joined_out - alone)).sum(axis=1)
        return inside, outside


# Of the same pairs: their row coalitions and their column coalitions.
Sides = tuple[Side, Side]


def _compare(one: Side, other: Side) -> tuple[Floats, Floats, Floats]:
    """Return angles, products of centered membership vectors and of shares of players, by pair."""
    shared = one.members.astype(np.float64) @ other.members.T.astype(np.float64)
    sizes = np.outer(one.sizes, other.sizes)
    angles = np.arccos(np.minimum(shared / np.sqrt(sizes), 1.0))
    return angles, shared - sizes / one.n_players, sizes / one.n_players**2


def _terms(
    parameters: Floats, angles: Floats, products: Floats, growth: Floats
) -> tuple[Floats, Floats, float, Floats]:
    roughness, linear, level, size = parameters
    return np.exp(-roughness * angles), linear * products, level, size * growth


def fit_process(sides: Sides, amounts: Floats) -> Floats:
    """Return the parameters that fit the first interactions, by penalized marginal likelihood."""
    from scipy.optimize import minimize

    first = (Side(side.members[:MAX_FITTED], side.semivalue) for side in sides)
    found = minimize(
        _misfit,
        _USUAL,
        args=(*first, amounts[:MAX_FITTED]),
        jac=True,
        method="L-BFGS-B",
        bounds=_BOUNDS,
        options={"maxiter": _ITERATIONS},
    )
    return np.asarray(np.exp(found.x))


def _misfit(logs: Floats, rows: Side, columns: Side, amounts: Floats) -> tuple[float, Floats]:
    """Return minus the penalized log likelihood at the best scale, and its derivatives."""
    from scipy.linalg import cho_solve

    of_rows, of_columns, rough = split_parameters(np.exp(logs))
    row_kernel, column_kernel = rows.kernel(of_rows), columns.kernel(of_columns)
    n_seen = len(amounts)
    kernel = row_kernel * column_kernel
    kernel[np.diag_indices(n_seen)] += rough
    factor = np.linalg.cholesky(kernel)
    weights = cho_solve((factor, True), amounts)
    scale = float(_scale(amounts, weights))
    misfit = 0.5 * n_seen * np.log(scale) + np.log(np.diag(factor)).sum()
    sensitivity = cho_solve((factor, True), np.eye(n_seen))
    sensitivity -= np.outer(weights, weights) / scale
    sensitivity *= 0.5
    by_rows, by_columns = sensitivity * column_kernel, sensitivity * row_kernel
    slopes = [
        *(np.vdot(by_rows, slope) for slope in rows.kernel_slopes(of_rows)),
        *(np.vdot(by_columns, slope) for slope in columns.kernel_slopes(of_columns)),
        rough * np.trace(sensitivity),
    ]
    away = logs - _USUAL
    return float(misfit + _PENALTY * away @ away), np.array(slopes) + 2.0 * _PENALTY * away


def split_parameters(parameters: Floats) -> tuple[Floats, Floats, float]:
    """Return the kernel parameters of rows and of columns, and the variance of the rough part."""
    return parameters[:4], parameters[4:8], parameters[8]


def posterior(
    parameters: Floats,
    sides: Sides,
    amounts: Floats,
    total: Any,
    sums: Sums = append_margins,
) -> tuple[Floats, Floats]:
    """Return means and standard deviations of sums of values, given the interactions.

    Both have a last axis if the interactions have several columns.
    """
    from scipy.linalg import cho_solve, solve_triangular

    factor = np.linalg.cholesky(pair_kernel(parameters, sides))
    weights = cho_solve((factor, True), amounts)
    links = link_values(parameters, sides)
    values = links.T @ weights
    known = solve_triangular(factor, links, lower=True)
    prior = prior_covariance(parameters, sides)
    covariance = prior - known.T @ known
    if total is not None:
        to_total = covariance.sum(axis=0)
        of_total = to_total.sum()
        # If all relevant pairs were evaluated, the total is already known.
        if of_total > 1e-12 * prior.sum():
            missing = (total - values.sum(axis=0)) / of_total
            values = values + np.multiply.outer(to_total, missing)
            covariance = covariance - np.outer(to_total, to_total) / of_total
    n_blocks, shape = len(prior), (sides[0].n_players, sides[1].n_players)
    # Which blocks each sum has.
    weighed = np.array([sums(block) for block in np.eye(n_blocks).reshape(-1, *shape)])
    flat = weighed.reshape(n_blocks, -1)
    # Exact values, such as a sum all of whose pairs were evaluated, have rounding errors.
    rounding = np.finfo(np.float64).eps * np.einsum("bs,bs->s", flat, prior @ flat)
    variances = np.maximum(np.einsum("bs,bs->s", flat, covariance @ flat), rounding)
    errors = np.sqrt(np.multiply.outer(variances, _scale(amounts, weights)))
    return (
        sums(values.reshape(*shape, *amounts.shape[1:])),
        errors.reshape(*weighed.shape[1:], *amounts.shape[1:]),
    )


def pair_kernel(parameters: Floats, sides: Sides, others: Sides | None = None) -> Floats:
    """Return the covariance of interactions, or that with those of other pairs."""
    of_rows, of_columns, rough = split_parameters(parameters)
    rows, columns = sides
    if others is not None:
        return rows.kernel(of_rows, others[0]) * columns.kernel(of_columns, others[1])
    kernel = rows.kernel(of_rows) * columns.kernel(of_columns)
    kernel[np.diag_indices(len(kernel))] += rough
    return kernel


def link_values(parameters: Floats, sides: Sides) -> Floats:
    """Return the covariance of interactions with the values of blocks: (n_pairs, n_blocks)."""
    of_rows, of_columns, rough = split_parameters(parameters)
    rows, columns = sides
    links = _multiply(rows.values(of_rows), columns.values(of_columns))
    # The values of games that are 1 at one pair of coalitions and 0 at all others.
    alone = (membership_weights(side.semivalue, side.members) for side in sides)
    return np.asarray(links + rough * _multiply(*alone))


def prior_covariance(parameters: Floats, sides: Sides) -> Floats:
    """Return the prior covariance of the values of blocks: (n_blocks, n_blocks)."""
    of_rows, of_columns, rough = split_parameters(parameters)
    rows, columns = sides
    smooth = np.kron(rows.covariance(of_rows), columns.covariance(of_columns))
    return smooth + rough * np.kron(rows.rough_covariance(), columns.rough_covariance())


def _multiply(of_rows: Floats, of_columns: Floats) -> Floats:
    return np.asarray(np.einsum("ki,kj->kij", of_rows, of_columns).reshape(len(of_rows), -1))


def _scale(amounts: Floats, weights: Floats) -> Floats:
    # A game that is 0 everywhere has values of 0 without errors.
    mean = (amounts * weights).sum(axis=0) / len(amounts)
    return np.asarray(np.maximum(mean, np.finfo(np.float64).tiny))


def _angle_kernel(
    sizes: NDArray[np.int64], size: int, shared: NDArray[np.int64], roughness: float
) -> Floats:
    """Return the kernel's angle term by sizes and overlap; 0 for the empty coalition."""
    cosines = np.clip(shared / np.sqrt(np.maximum(sizes, 1) * size), 0.0, 1.0)
    return np.where(sizes > 0, np.exp(-roughness * np.arccos(cosines)), 0.0)


def _overlap_chances(
    n_others: int, size: int, drawn: NDArray[np.int64], shared: NDArray[np.int64]
) -> Floats:
    """Return the chance that ``shared`` of ``drawn`` random others are among ``size`` others."""
    logs = (
        log_choose(size, shared)
        + log_choose(n_others - size, drawn - shared)
        - log_choose(n_others, drawn)
    )
    return np.asarray(np.exp(logs))


def _two_valued(n: int, own: float, other: float) -> Floats:
    return np.full((n, n), other) + (own - other) * np.eye(n)


def _keys(masks: Mask) -> list[bytes]:
    return [packed.tobytes() for packed in np.packbits(masks, axis=1)]
