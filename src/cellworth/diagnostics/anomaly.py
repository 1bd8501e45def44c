"""anomaly_scores: how unlikely every cell is, given its label and the other cells of its row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import rankdata

from cellworth.data.arguments import ColumnTypes, Floats, Mask
from cellworth.data.problem import read_target, target_groups
from cellworth.data.tables import Table, TableLike, VectorLike
from cellworth.diagnostics.features import (
    FeatureColumn,
    Features,
    Levels,
    read_columns,
    read_labels,
)
from cellworth.knn.columns import quantile_scale

Counts = NDArray[np.int32]
# Digits that do not depend on the order of summation.
DIGITS = 9
_LEAST_SCORE = 1e-6
# Weight of the whole column beside the rows of the same label, in rows.
PRIOR_ROWS = 0.1
# Wider than the best fit to a density, because outliers matter here.
WIDTH = 2.0
# Smallest scale of a class, as a share of the scale of its column.
_NARROWEST = 0.05
_NORMAL_QUARTILES = 1.349
# Powers of e beyond this overflow.
_REACH = 500.0
# Features have a variance of about 1, so the penalty weighs as much as five rows.
PENALTY = 5.0
# Almost none: the scores of all levels add up to 1; it keeps the matrix of a single row regular.
_PENALTY_OF_CONSTANT = 1e-9
# A number is isolated if the nearest other one is more than APART scale units away. Ten times that
# distance adds as much to the score as being 1,000 times as rare.
APART = 4.0
WEIGHT = 3.0
# Distances beyond this many scale units are equal.
FARTHEST = 1e12
# Digits that do not depend on the unit of distances.
_DIGITS = 9


def anomaly_scores(
    X: TableLike, y: VectorLike, *, column_types: ColumnTypes | None = None
) -> Floats:
    """Score how unlikely every cell is, given its row's label and the other cells of its row.

    Each cell is left out of its own score, which combines two ranks. How common is its content in
    rows with the same label? How well does it fit a regression on the label and on all other
    columns? The score is log(n / a) + log(n / b): of the n cells of the column, a are at least as
    rare and b fit at least as badly. Ranks cannot separate far from very far. A number more than
    four scale units away from all others of its column therefore adds 3 log(d / 4), where d is its
    distance from the nearest in scale units.

    Parameters
    ----------
    X : data frame or array of shape (n_rows, n_columns)
        Numbers, strings, categories, booleans, dates and durations. A missing value counts as a
        content of its own.
    y : array of shape (n_rows,)
        Class labels, or a numeric target (numbers with a fraction, or more than 50 different ones).
    column_types : mapping, default=None
        ``{"postcode": "categorical"}`` where the guess from the type is wrong.

    Returns
    -------
    array of shape (n_rows, n_columns)
        High scores mark unlikely cells; 0 where all cells of the column are equally likely. The
        order of rows and of columns does not matter.

    See Also
    --------
    cellworth.suspect_cells : The most suspicious cells, with reasons.

    References
    ----------
    Rousseeuw and Van den Bossche (2018), Detecting Deviating Data Cells, Technometrics.

    Examples
    --------
    >>> from cellworth.diagnostics import anomaly_scores
    >>> X = [[size, 7 * size] for size in range(20)]
    >>> X[4][1] = 105
    >>> anomaly_score = anomaly_scores(X, ["small"] * 10 + ["large"] * 10)
    >>> divmod(int(anomaly_score.argmax()), 2)
    (4, 1)
    """
    return Evidence.of(Table.from_data(X, called="X"), y, column_types).scores


@dataclass(frozen=True, eq=False)
class Evidence:
    """Evidence against each cell: how rare it is, how badly it fits, how far the others are."""

    columns: list[FeatureColumn]
    target: NDArray[Any]
    # Class of each row, or the group of rows with similar targets.
    groups: Levels
    is_class: bool
    # Features of all columns, then of the label.
    features: Features
    # Cells of the same column, itself included, that are at least as rare in rows with their label,
    # and that fit the other cells of their row at least as badly; shape (n_rows, n_columns).
    as_rare: Counts
    as_misfit: Counts
    # Distance to the nearest other number of the column, in scale units.
    isolation: Floats

    @classmethod
    def of(cls, table: Table, y: VectorLike, column_types: ColumnTypes | None) -> Evidence:
        """Compute the evidence for all cells of a table."""
        target, classes = read_target(y, table)
        columns = read_columns(table, column_types)
        label = read_labels(target, classes)
        groups = target_groups(target) if classes is None else label.levels
        features = Features.of([*columns, label])
        rare = _count_columns([compute_log_densities(column, groups) for column in columns])
        misfit = _count_columns(_score_fits(features, columns))
        apart: Floats = np.stack([measure_isolation(column) for column in columns], axis=1)
        return cls(columns, target, groups, classes is not None, features, rare, misfit, apart)

    @property
    def scores(self) -> Floats:
        """Anomaly scores: high where a cell is rare, fits badly or is far from all others."""
        n_rows = len(self.groups)
        anomaly_score: Floats = np.log(n_rows / self.as_rare) + np.log(n_rows / self.as_misfit)
        return anomaly_score + score_isolation(self.isolation)

    def nearest(self, row: int, column: int) -> int | None:
        """Return the row with the nearest number, for an isolated cell; else None."""
        numbers = self.columns[column].numbers
        if numbers is None or self.isolation[row, column] <= APART:
            return None
        # Halves, because the difference of the largest numbers overflows.
        away = np.abs(numbers / 2 - numbers[row] / 2)
        away[row] = np.nan
        return int(np.nanargmin(away))


def _score_fits(features: Features, columns: list[FeatureColumn]) -> list[Floats]:
    """Return how well each cell fits the other cells of its row, comparable within a column."""
    far, scores = compute_residuals(features, columns), score_levels(features, columns)
    fits = []
    for position, column in enumerate(columns):
        fit = scores.get(position, np.ones(features.n_rows))
        if position in far:
            # The share of numbers that are as far off, times the score of not being missing.
            known = column.known
            tail = _count_at_most(-far[position][known]) / known.sum()
            fit[known] = np.maximum(fit[known], _LEAST_SCORE) * tail
        fits.append(fit)
    return fits


def _count_columns(scores: list[Floats]) -> Counts:
    return np.stack([_count_at_most(score) for score in scores], axis=1)


def _count_at_most(scores: Floats) -> Counts:
    counts: Counts = rankdata(np.round(scores, DIGITS), method="max").astype(np.int32)
    return counts


def compute_log_densities(column: FeatureColumn, groups: Levels) -> Floats:
    """Return the log density of each cell in its group of rows, leaving the cell out.

    It is the share of its level; for numbers, the share of known cells times a density in scale
    units. The whole column has a small weight, so that no content is impossible in a small group.
    """
    density = _compute_shares(column.levels, groups)
    if column.numbers is not None and column.known.any():
        known = column.known
        density[known] *= _estimate_densities(column.numbers[known], groups[known])
    return np.log(density)


def _compute_shares(levels: Levels, groups: Levels) -> Floats:
    n_rows, n_levels = len(levels), int(levels.max()) + 1
    # One more row, divided among all levels: a level that occurs once is rare, not impossible.
    overall = (np.bincount(levels)[levels] - 1 + 1 / n_levels) / n_rows
    pairs = np.unique(groups * n_levels + levels, return_inverse=True, return_counts=True)
    alike = pairs[2][pairs[1].reshape(-1)] - 1
    others = np.bincount(groups)[groups] - 1
    shares: Floats = (alike + PRIOR_ROWS * overall) / (others + PRIOR_ROWS)
    return shares


def _estimate_densities(numbers: Floats, groups: Levels) -> Floats:
    if numbers.min() == numbers.max():
        return np.ones(len(numbers))
    numbers = _center(scale_to_one(numbers))
    scale = float(np.std(numbers)) or 1.0
    overall = _sum_kernels(numbers, scale) / max(len(numbers) - 1, 1)
    # Never 0, because its logarithm is taken.
    overall = np.maximum(overall, np.finfo(float).tiny)
    density = np.empty(len(numbers))
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        alike = _sum_kernels(numbers[rows], scale)
        density[rows] = (alike + PRIOR_ROWS * overall[rows]) / (len(rows) - 1 + PRIOR_ROWS)
    return density


def _center(numbers: Floats) -> Floats:
    """Subtract the middle number: a large offset, as of timestamps, would cost digits in sums."""
    middle = len(numbers) // 2
    centered: Floats = numbers - np.partition(numbers, middle)[middle]
    return centered


def _sum_kernels(numbers: Floats, scale: float) -> Floats:
    """Sum the kernels of the other numbers at each number, in scale units of the column."""
    # The kernel exp(-distance / width) has heavy tails, and its sums need only sorted numbers.
    width = compute_bandwidth(numbers, scale)
    order = np.argsort(numbers, kind="stable")
    steps = numbers[order] / width
    sums = np.empty(len(numbers))
    sums[order] = _sum_below(steps) + _sum_below(-steps[::-1])[::-1]
    return sums * scale / (2.0 * width)


def compute_bandwidth(numbers: Floats, scale: float) -> float:
    """Return the width of the kernel: Silverman's rule, times WIDTH."""
    low, high = np.percentile(numbers, (25, 75)).tolist()
    own = float(np.std(numbers))
    narrow = min(own, (high - low) / _NORMAL_QUARTILES) if high > low else own
    return float(WIDTH * max(narrow, _NARROWEST * scale) * len(numbers) ** -0.2)


def _sum_below(ascending: Floats) -> Floats:
    """Sum exp(-distance) over all earlier entries."""
    sums = np.empty(len(ascending))
    start, carried = 0, 0.0
    while start < len(ascending):
        end = int(np.searchsorted(ascending, ascending[start] + _REACH, side="right"))
        powers = np.exp(ascending[start:end] - ascending[start])
        running = carried + np.concatenate([[0.0], np.cumsum(powers)])
        sums[start:end] = running[:-1] / powers
        if end < len(ascending):
            carried = running[-1] * np.exp(ascending[start] - ascending[end])
        start = end
    return sums


@dataclass(frozen=True, eq=False)
class Response:
    """What a regression predicts for a column from all others."""

    # The column, whose own features are left out.
    position: int
    # Which of several regressions each row uses: that of its own level.
    levels: Levels
    # Target of that regression for the row; the others have the target 0.
    heights: Floats

    @classmethod
    def from_levels(cls, position: int, column: FeatureColumn) -> Response:
        """Make one regression per level, with the target 1 for the rows of the level."""
        # A level of a single row gets the score 0: all such levels share a regression on 0.
        single = column.counts[column.levels] == 1
        levels = np.unique(np.where(single, -1, column.levels), return_inverse=True)[1]
        return cls(position, levels.reshape(-1), np.where(single, 0.0, 1.0))

    @classmethod
    def from_numbers(cls, position: int, scores: Floats) -> Response:
        """Make one regression of scores."""
        return cls(position, np.zeros(len(scores), dtype=np.intp), scores)


def compute_residuals(features: Features, columns: Sequence[FeatureColumn]) -> dict[int, Floats]:
    """Return the distance of each number from its prediction, by position of the column.

    A regression on uniform scores predicts it from the other cells of the row, without training on
    the row. Missing values get NaN.
    """
    sharing: dict[bytes, list[int]] = {}
    for position, column in enumerate(columns):
        if column.numbers is not None and column.known.any():
            sharing.setdefault(column.known.tobytes(), []).append(position)
    found = {}
    # Columns with missing values in the same rows share a Gram matrix.
    for positions in sharing.values():
        known = columns[positions[0]].known
        asked = [Response.from_numbers(j, features.parts[j].numbers[:, 0]) for j in positions]
        for response, expected in zip(
            asked, _predict_left_out(features, known, asked), strict=True
        ):
            found[response.position] = np.abs(response.heights - expected)
    return found


def score_levels(features: Features, columns: Sequence[FeatureColumn]) -> dict[int, Floats]:
    """Predict each cell's level from the other cells of its row; 1 means that it is certain.

    Keys are positions of columns; numeric ones with missing values have two levels.
    """
    asked = [
        Response.from_levels(position, column)
        for position, column in enumerate(columns)
        if column.numbers is None or column.levels.any()
    ]
    everyone = np.ones(features.n_rows, dtype=bool)
    scores = _predict_left_out(features, everyone, asked) if asked else []
    return {response.position: score for response, score in zip(asked, scores, strict=True)}


def _predict_left_out(features: Features, known: Mask, asked: Sequence[Response]) -> list[Floats]:
    """Predict each known row by regressions that were fitted without it; NaN for other rows."""
    inverse, sums = _accumulate(features, known, asked)
    fits = [_Fit.of(inverse, features.own[r.position], s) for r, s in zip(asked, sums, strict=True)]
    expected = [np.full(features.n_rows, np.nan) for _ in asked]
    for rows, strip in features.iter_rows():
        projected = strip @ inverse
        leverages = np.einsum("ij,ij->i", projected, strip)
        for response, fit, out in zip(asked, fits, expected, strict=True):
            heights = np.einsum("ij,ij->i", strip, fit.coefficients[response.levels[rows]])
            leverage = leverages - fit.own_leverages(projected)
            # Leaving a row out of a ridge regression is a division: no second fit is needed.
            without = (heights - leverage * response.heights[rows]) / (1.0 - leverage)
            out[rows] = np.where(known[rows], without, np.nan)
    return expected


def _accumulate(
    features: Features, known: Mask, asked: Sequence[Response]
) -> tuple[Floats, list[Floats]]:
    """Return the inverse of the penalized Gram matrix, and sums of features times responses."""
    gram = np.diag(make_penalties(len(features)))
    sums: list[Floats] = [np.zeros((int(r.levels.max()) + 1, len(features))) for r in asked]
    for rows, strip in features.iter_rows():
        teaching = strip * known[rows][:, None]
        gram += teaching.T @ teaching
        for response, total in zip(asked, sums, strict=True):
            total[:] += _sum_by_level(response, rows, teaching, len(total))
    return _invert(gram), sums


def make_penalties(n_features: int) -> Floats:
    """Return the penalty of each feature; the constant comes last."""
    return np.append(np.full(n_features - 1, PENALTY), _PENALTY_OF_CONSTANT)


def _sum_by_level(response: Response, rows: slice, strip: Floats, n_levels: int) -> Floats:
    positions = (response.levels[rows], np.arange(len(strip)))
    shape = (n_levels, len(strip))
    return np.asarray(sparse.csr_matrix((response.heights[rows], positions), shape=shape) @ strip)


def _invert(matrix: Floats) -> Floats:
    return np.asarray(np.linalg.inv(matrix), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class _Fit:
    """Regressions without a column's own features, from the one inverse of all features.

    With P the inverse and o the own features, the inverse without them is
    P - P[:, o] P[o, o]^-1 P[o, :], which is 0 in their rows and columns.
    """

    own: slice
    own_inverse: Floats
    coefficients: Floats

    @classmethod
    def of(cls, inverse: Floats, own: slice, sums: Floats) -> _Fit:
        own_inverse = _invert(inverse[own, own])
        projected = sums @ inverse
        taken_off = projected[:, own] @ own_inverse @ inverse[own]
        return cls(own, own_inverse, projected - taken_off)

    def own_leverages(self, projected: Floats) -> Floats:
        """Return the part of each row's leverage due to the column's own features."""
        own = projected[:, self.own]
        leverages: Floats = np.einsum("ij,ij->i", own @ self.own_inverse, own)
        return leverages


def measure_isolation(column: FeatureColumn) -> Floats:
    """Return the distance of each number from the nearest other one, in scale units; else 0."""
    away = np.zeros(len(column.levels))
    if column.numbers is None or column.known.sum() < 2:
        return away
    numbers = scale_to_one(column.numbers[column.known])
    scale = quantile_scale(numbers)
    if scale > 0:
        nearest = np.minimum(_measure_nearest(numbers), FARTHEST * scale)
        away[column.known] = np.round(nearest / scale, _DIGITS)
    return away


def score_isolation(away: Floats) -> Floats:
    """Return the contribution of isolation to the score; 0 for numbers that are not isolated."""
    terms: Floats = WEIGHT * np.log(np.maximum(away / APART, 1.0))
    return terms


def scale_to_one(numbers: Floats) -> Floats:
    """Scale numbers by a power of two, which is exact, so that their squares do not overflow."""
    return np.ldexp(numbers, -int(np.frexp(np.abs(numbers).max())[1]))


def _measure_nearest(numbers: Floats) -> Floats:
    order = np.argsort(numbers, kind="stable")
    steps = np.diff(numbers[order])
    nearest = np.empty(len(numbers))
    nearest[order] = np.minimum(np.append(np.inf, steps), np.append(steps, np.inf))
    return nearest
