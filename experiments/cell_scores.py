"""Scores of cells by simple and by published methods; a high score means an unusual cell.

DDC is DetectDeviatingCells (Rousseeuw and Van den Bossche, "Detecting deviating data cells",
Technometrics 60, 2018), steps 1 to 6 of its section 2, with the paper's constants. ECOD (Li and
others, 2022) and COPOD (Li and others, 2020) score rows by a sum over columns; here are its terms,
as in PyOD, which the experiment ``rivals`` compares.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata, skew

_CUTOFF = 2.5758  # both tails beyond it hold 1% of a normal distribution
_MIN_CORRELATION = 0.5
_MIN_VALUES = 3


def class_z(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the distance from the mean of the class, in its standard deviations."""
    scores = np.empty(X.shape)
    for label in np.unique(y):
        alike = X[y == label]
        scale = alike.std(axis=0)
        scores[y == label] = np.abs(alike - alike.mean(axis=0)) / np.where(scale > 0, scale, 1)
    return scores


def standardize_values(values: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the distance of values from the median of their column and class.

    The unit is the standard deviation there. Columns and classes differ in their effect on a model;
    these values show which cells are low for their column and class.
    """
    relative = np.full(values.shape, np.nan)
    # Differences below this are rounding.
    noise = 1e-12 * np.abs(values[~np.isnan(values)]).max(initial=0.0)
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        for position, column in enumerate(values[rows].T):
            known = ~np.isnan(column)
            if known.any():
                above, deviation = column[known] - np.median(column[known]), np.std(column[known])
                relative[rows[known], position] = above / deviation if deviation > noise else 0.0
    return relative


def ecod(X: np.ndarray) -> np.ndarray:
    """Return the term of ECOD of each column, the larger tail."""
    return np.maximum(*_tails(X))


def copod(X: np.ndarray) -> np.ndarray:
    """Return the term of COPOD of each column: the tail of the skewness, or the mean of both."""
    left, right = _tails(X)
    # A constant column has no skewness.
    side = np.sign(skew(X, axis=0), where=np.ptp(X, axis=0) > 0, out=np.zeros(X.shape[1]))
    skewed = left * -np.sign(side - 1) + right * np.sign(side + 1)
    return np.maximum(skewed, (left + right) / 2)


def _tails(X: np.ndarray) -> list[np.ndarray]:
    ranks = (np.apply_along_axis(rankdata, 0, side, method="max") for side in (X, -X))
    return [-np.log(each / len(X)) for each in ranks]


def ddc(X: np.ndarray) -> np.ndarray:
    """Return the absolute standardized residuals of DDC; columns that it sets aside have 0.

    Like the authors' software it sets aside columns with fewer than three different values and
    those whose robust scale is 0.
    """
    scores = np.zeros(X.shape)
    scale = np.array([_scale(column - _location(column)) for column in X.T])
    used = (scale > 0) & (np.array([len(np.unique(column)) for column in X.T]) >= _MIN_VALUES)
    center = np.array([_location(column) for column in X.T])
    Z = (X[:, used] - center[used]) / scale[used]
    inner = np.where(np.abs(Z) <= _CUTOFF, Z, np.nan)
    residuals = Z - _predict_from_other_columns(Z, inner)
    scale = np.array([_scale(column) for column in residuals.T])
    scores[:, used] = np.abs(residuals) / np.where(scale > 0, scale, np.inf)
    return scores


def _predict_from_other_columns(Z: np.ndarray, inner: np.ndarray) -> np.ndarray:
    """Return what correlated columns say of each cell, with its shrinkage undone; 0 without any."""
    n_columns = Z.shape[1]
    predicted = np.zeros(Z.shape)
    for j in range(n_columns):
        sums, weights = np.zeros(len(Z)), np.zeros(len(Z))
        for h in range(n_columns):
            correlation = 0.0 if h == j else _correlation(inner[:, j], inner[:, h])
            if abs(correlation) < _MIN_CORRELATION:
                continue
            reported = _slope(inner[:, h], inner[:, j]) * inner[:, h]
            known = ~np.isnan(reported)
            sums[known] += abs(correlation) * reported[known]
            weights[known] += abs(correlation)
        if weights.any():
            plain = np.divide(sums, weights, out=np.zeros(len(Z)), where=weights > 0)
            predicted[:, j] = plain * _slope(plain, Z[:, j])
    return predicted


def _location(x: np.ndarray) -> float:
    """Return one step of an M-estimator with Tukey's biweight (c = 3), from the median."""
    middle = np.median(x)
    scale = 1.4826 * np.median(np.abs(x - middle))
    if scale == 0:
        return float(middle)
    weights = np.clip(1 - ((x - middle) / (3 * scale)) ** 2, 0, None) ** 2
    return float(np.average(x, weights=weights))


def _scale(x: np.ndarray) -> float:
    """Return one step of an M-estimator of scale with a capped square (b = 2.5), about 0."""
    first = 1.4826 * np.median(np.abs(x))
    if first == 0:
        return 0.0
    # 0.9776 is the mean of the capped square of a standard normal number.
    return float(first * np.sqrt(np.minimum((x / first) ** 2, 2.5**2).mean() / 0.9776))


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Return the correlation of the cells within the 99% ellipse of a robust first guess."""
    both = ~np.isnan(x) & ~np.isnan(y)
    x, y = x[both], y[both]
    if len(x) < _MIN_VALUES:
        return 0.0
    plus, minus = _scale(x + y) ** 2, _scale(x - y) ** 2
    guess = np.clip((plus - minus) / max(plus + minus, 1e-12), -0.99, 0.99)
    distance = (x**2 - 2 * guess * x * y + y**2) / (1 - guess**2)
    near = distance <= -2 * np.log(0.01)
    if near.sum() < _MIN_VALUES or np.ptp(x[near]) == 0 or np.ptp(y[near]) == 0:
        return 0.0
    return float(np.corrcoef(x[near], y[near])[0, 1])


def _slope(x: np.ndarray, y: np.ndarray) -> float:
    """Return the slope through the origin of the cells that are near a robust first line."""
    both = ~np.isnan(x) & ~np.isnan(y) & (np.abs(x) > 1e-6)
    x, y = x[both], y[both]
    if not len(x):
        return 0.0
    residuals = y - np.median(y / x) * x
    near = np.abs(residuals) <= _CUTOFF * _scale(residuals)
    return float((x[near] @ y[near]) / (x[near] @ x[near])) if near.any() else 0.0
