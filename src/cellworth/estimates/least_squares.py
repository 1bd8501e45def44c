"""Tensor least squares: a bilinear fit of the game gives interactions, margins the rest."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.blocks import Mask
from cellworth.estimates.gains import Gains
from cellworth.moments import Moments, with_margins
from cellworth.semivalues import Shapley, membership_weights

Floats = NDArray[np.float64]

PAIRS_PER_COEFFICIENT = 8


def n_coefficients(shape: tuple[int, int]) -> int:
    """Coefficients of the regression: products, memberships at two rates, sizes."""
    free_rows, free_columns = shape[0] - 1, shape[1] - 1
    return free_rows * free_columns + 2 * free_rows + 2 * free_columns + 4


def least_squares_moments(gains: Gains) -> Moments:
    """Values from all margins and some pairs within, without errors; NaN while there are too few.

    Sums of rows and of columns are one-dimensional Shapley values of the margins, which are known
    completely. What is left of a gain once the margins are blended out of it, in proportion to
    sizes, is regressed on the products of memberships, with weights under which the coefficients
    are the values where all pairs are known.
    """
    n_rows, n_columns = gains.rows.shape[1], gains.columns.shape[1]
    shape = (n_rows + 1, n_columns + 1, *gains.amounts.shape[1:])
    count = np.full(shape, len(gains), dtype=np.int64)
    unknown = np.full(count.shape, np.nan)
    values = _values(gains)
    if values is None:
        return Moments(np.zeros_like(count), np.zeros(count.shape), unknown)
    return Moments(count, with_margins(values), unknown)


def _values(gains: Gains) -> Floats | None:
    n_rows, n_columns = gains.rows.shape[1], gains.columns.shape[1]
    by_rows = _margin(gains.rows, gains.columns, gains.amounts)
    by_columns = _margin(gains.columns, gains.rows, gains.amounts)
    if len(by_rows) < (1 << n_rows) - 1 or len(by_columns) < (1 << n_columns) - 1:
        return None
    total = by_rows[np.ones(n_rows, dtype=bool).tobytes()]
    row_values, column_values = _one_dimensional(by_rows), _one_dimensional(by_columns)
    interactions = _interactions(gains, by_rows, by_columns, total)
    if interactions is None:
        return None
    apart = row_values[:, None] / n_columns + column_values / n_rows
    values: Floats = apart - total / (n_rows * n_columns) + interactions
    return values


def _margin(side: Mask, other: Mask, amounts: Floats) -> dict[bytes, Any]:
    """Gains with everybody on the other side, by coalition of this side."""
    complete = other.all(axis=1)
    names = [mask.tobytes() for mask in side[complete]]
    return dict(zip(names, amounts[complete], strict=True))


def _one_dimensional(margin: dict[bytes, Any]) -> Floats:
    members = np.array([np.frombuffer(name, dtype=bool) for name in margin])
    values: Floats = membership_weights(Shapley(), members).T @ np.array(list(margin.values()))
    return values


def _interactions(
    gains: Gains, by_rows: dict[bytes, Any], by_columns: dict[bytes, Any], total: Any
) -> Floats | None:
    """Doubly centred coefficients of the weighted regression; None for too few pairs."""
    within = ~gains.rows.all(axis=1) & ~gains.columns.all(axis=1)
    rows, columns = gains.rows[within], gains.columns[within]
    n_rows, n_columns = rows.shape[1], columns.shape[1]
    others = gains.amounts.shape[1:]
    if min(n_rows, n_columns) == 1:
        return np.zeros((n_rows, n_columns, *others))
    # With few pairs for each coefficient a regression follows chance: equal shares would be better.
    enough = PAIRS_PER_COEFFICIENT * n_coefficients((n_rows, n_columns))
    if len(rows) < min(enough, ((1 << n_rows) - 2) * ((1 << n_columns) - 2)):
        return None
    row_shares, column_shares = rows.mean(axis=1), columns.mean(axis=1)
    # Shares stand last, as pairs do in what is transposed: amounts may have several columns.
    left = (
        gains.amounts[within].T
        - row_shares * np.array([by_columns[mask.tobytes()] for mask in columns]).T
        - column_shares * np.array([by_rows[mask.tobytes()] for mask in rows]).T
        + np.multiply.outer(total, row_shares * column_shares)
    )
    row_basis, column_basis = _centred_basis(n_rows), _centred_basis(n_columns)
    features = _features(rows @ row_basis, columns @ column_basis, row_shares, column_shares)
    weights = np.sqrt(_weights(rows, columns))
    solved = np.linalg.lstsq(features * weights[:, None], (left * weights).T, rcond=None)[0]
    free = (n_rows - 1, n_columns - 1)
    products = solved[: math.prod(free)].reshape(*free, *others)
    interactions: Floats = np.einsum(
        "ia,jb,ab...->ij...", row_basis, column_basis, products, optimize=True
    )
    return interactions


def _features(
    e_rows: Floats, e_columns: Floats, row_shares: Floats, column_shares: Floats
) -> Floats:
    """Products of memberships, in whose coefficients the values are, and all that stands beside."""
    n_pairs = len(row_shares)
    return np.hstack(
        [
            (e_rows[:, :, None] * e_columns[:, None, :]).reshape(n_pairs, -1),
            e_rows,
            e_rows * column_shares[:, None],
            e_columns,
            e_columns * row_shares[:, None],
            np.column_stack(
                [np.ones(n_pairs), row_shares, column_shares, row_shares * column_shares]
            ),
        ]
    )


def _weights(rows: Mask, columns: Mask) -> Floats:
    """Weights under which coefficients are values, shared by the pairs that have the same sizes."""
    n_rows, n_columns = rows.shape[1], columns.shape[1]
    row_sizes, column_sizes = rows.sum(axis=1), columns.sum(axis=1)
    _, stratum, n_same = np.unique(
        row_sizes * (n_columns + 1) + column_sizes, return_inverse=True, return_counts=True
    )
    spread = row_sizes * (n_rows - row_sizes) * column_sizes * (n_columns - column_sizes)
    weights: Floats = 1.0 / (spread * n_same[stratum])
    return weights


def _centred_basis(n_players: int) -> Floats:
    """Orthonormal columns that span all vectors whose entries add up to 0."""
    centring = np.eye(n_players) - 1.0 / n_players
    basis: Floats = np.linalg.qr(centring)[0][:, : n_players - 1]
    return basis
