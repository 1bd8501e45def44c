"""A Gaussian process over pairs of coalitions: values of all blocks from few utilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cellworth.counts import Floats
from cellworth.estimates.gains import Gains
from cellworth.estimates.looks import fewer
from cellworth.estimates.set_kernels import N_WEIGHTS, Shape, Side
from cellworth.moments import Moments
from cellworth.semivalues import Semivalue

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


def process_moments(
    gains: Gains, semivalues: tuple[Semivalue, Semivalue], total: Floats | None
) -> Moments:
    """Posterior means of the values, with standard errors once there are enough utilities.

    Parameters
    ----------
    gains : Gains
        What was looked at. Where it has several columns, the first one tells the kernel.
    semivalues : tuple of Semivalue
        Of rows and of columns.
    total : array of shape (1,) or longer, or None
        What the values of each column of the gains add up to, where that is known.
    """
    rows, columns = Side(gains.rows, semivalues[0]), Side(gains.columns, semivalues[1])
    amounts = gains.amounts
    process = most_likely(rows, columns, amounts.reshape(len(gains), -1)[:, 0])
    known_total = None
    if total is not None:
        known_total = total[0] if amounts.ndim == 1 else _as_many(total, amounts.shape[1])
    values, errors = posterior(process, rows, columns, amounts, known_total)
    n_seen = len(gains)
    n_blocks = rows.n_players * columns.n_players
    n_pairs = ((1 << rows.n_players) - 1) * ((1 << columns.n_players) - 1)
    if n_seen < min(_UTILITIES_PER_BLOCK * n_blocks, n_pairs):
        errors = np.full(errors.shape, np.nan)
    count = np.full(values.shape, n_seen, dtype=np.int64)
    return Moments.of_variances(count, values, (_KERNEL_UNKNOWN * errors) ** 2)


def _as_many(total: Floats, n_columns: int) -> Floats:
    """The total and its deviations, as many as a run kept."""
    return np.append(total[0], fewer(total[1:], n_columns - 1))


def most_likely(rows: Side, columns: Side, amounts: Floats) -> Process:
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
