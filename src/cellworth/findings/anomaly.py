"""anomaly_scores: how unlikely every cell is, given its label and the other cells of its row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtri
from scipy.stats import rankdata
from threadpoolctl import threadpool_limits

from cellworth.data.arguments import ColumnTypes, Floats, Mask
from cellworth.data.problem import read_target, target_groups
from cellworth.data.tables import Table, TableLike, VectorLike
from cellworth.findings.features import (
    FeatureColumn,
    Features,
    Levels,
    compute_uniform_scores,
    read_columns,
    read_labels,
)
from cellworth.findings.trees import compute_log_ratios
from cellworth.knn.distances import quantile_scale
from cellworth.sampling.statistics import NumberSummary

Counts = NDArray[np.int32]
# Which of several regressions each row uses, that of its own level, and its target in it; in the
# others, its target is 0.
Response = tuple[Levels, Floats]
# Digits that depend neither on the order of summation nor on the unit of distances.
DIGITS = 9
_MIN_SCORE = 1e-6
# Weight of the whole column beside the rows of the same label, in rows.
PRIOR_ROWS = 0.1
# Wider than the best fit to a density, because outliers matter here.
WIDTH = 2.0
# Smallest scale of a class, as a share of the scale of its column.
_NARROWEST = 0.05
_NORMAL_QUARTILES = 1.349
# Features have a variance of about 1, so the penalty weighs as much as five rows.
PENALTY = 5.0
_ROWS_AT_ONCE = 2_048
# Almost none: the scores of all levels add up to 1; it keeps the matrix of a single row regular.
_PENALTY_OF_CONSTANT = 1e-9
# A number is isolated if the nearest other one is more than APART scale units away. Ten times that
# distance adds as much to the score as being 1,000 times as rare.
APART = 4.0
WEIGHT = 3.0
# Distances beyond this many scale units are equal.
FARTHEST = 1e12
# Weights of distances from the mean, which are equal beyond some standard deviations, and of ratios
# of densities, in columns of which others tell at most so much.
WEIGHT_OF_DISTANCE, MAX_DISTANCE = 2.0, 2.5
WEIGHT_OF_RATIO, MAX_INFORMATION = 2.0, 1.0
# Numbers farther from the middle, in scale units, do not count as more for means.
_FAR_OFF = 8.0
# Of a group, as a share of the variance of its column.
_MIN_VARIANCE = 0.03**2


def anomaly_scores(
    X: TableLike, y: VectorLike, *, column_types: ColumnTypes | None = None
) -> Floats:
    """Score how unlikely every cell is, given its row's label and the other cells of its row.

    Each cell is left out of its own score, which adds up five terms. Two are ranks: of the n cells
    of the column, a are at least as rare in rows with their label, and b fit a regression on the
    label and all other columns at least as badly; they add log(n / a) + log(n / b). A cell z
    standard deviations from the mean of its label adds 2 log(1 + z²), with z at most 2.5. A cell
    that is r times as likely given the rest of its row, by decision trees, as in its column adds
    -2 c log(r), where c, at most 1, is the mean of log(r) in the column: 0 if the other columns
    cannot predict it. Last, a number more than four scale units away from all others of its column
    adds 3 log(d / 4), where d is its distance from the nearest in scale units.

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
        High scores mark unlikely cells; 0 where all cells of the column are equally likely. Cells
        that the rest of their row predicts well may be below 0. The order of rows and of columns
        does not matter.

    See Also
    --------
    cellworth.audit : What is wrong with a table; its unusual cells have high scores.

    References
    ----------
    Rousseeuw and Van den Bossche (2018), Detecting Deviating Data Cells, Technometrics.

    Examples
    --------
    >>> from cellworth.findings import anomaly_scores
    >>> X = [[size, 7 * size] for size in range(20)]
    >>> X[4][1] = 105
    >>> anomaly_score = anomaly_scores(X, ["small"] * 10 + ["large"] * 10)
    >>> divmod(int(anomaly_score.argmax()), 2)
    (4, 1)
    """
    table = Table.from_data(X, called="X")
    columns = read_columns(table, column_types)
    return Evidence(columns, *read_target(y, table)).scores


class Evidence:
    """Evidence against each cell: how rare it is, how badly it fits, how far the others are."""

    def __init__(
        self,
        columns: list[FeatureColumn],
        target: NDArray[Any] | None,
        classes: NDArray[Any] | None,
    ) -> None:
        if target is None:
            # All rows have the same label.
            target, classes = np.zeros(len(columns[0].levels)), np.zeros(1)
        self.columns = columns
        self.label: FeatureColumn = read_labels(target, classes)
        # Class of each row, or the group of rows with similar targets.
        self.groups: Levels = target_groups(target) if classes is None else self.label.levels
        # Features of all columns, then of the label.
        self.features: Features = Features([*columns, self.label])
        # Cells of the same column, itself included, that are at least as rare in rows with their
        # label, and that fit the other cells of their row at least as badly.
        rare = [_count_at_most(compute_log_densities(each, self.groups)) for each in columns]
        misfit = [_count_at_most(fit) for fit in _score_fits(self.features, columns)]
        surprise = np.log(len(target) / np.array([rare, misfit])).sum(axis=0).T
        # Distance to the nearest other number of the column, in scale units.
        isolation = np.stack([measure_isolation(each) for each in columns], axis=1)
        # Scores without trees: high where a cell is rare, fits badly or is isolated.
        self.quick_scores: Floats = surprise + WEIGHT * np.log(np.maximum(isolation / APART, 1.0))

    @cached_property
    def log_ratios(self) -> Floats:
        """Log of how much likelier a cell is given the rest of its row than in its column."""
        return compute_log_ratios(self.columns, self.label)

    @cached_property
    def scores(self) -> Floats:
        """Anomaly scores: high where a cell is rare, fits badly or is far from others."""
        away = np.stack([measure_distances(c, self.groups) for c in self.columns], axis=1)
        of_distances: Floats = WEIGHT_OF_DISTANCE * np.log1p(np.minimum(away, MAX_DISTANCE) ** 2)
        return self.quick_scores + of_distances + score_ratios(self.log_ratios)


def _score_fits(features: Features, columns: list[FeatureColumn]) -> list[Floats]:
    """Return how well each cell fits the other cells of its row, comparable within a column."""
    far, scores = compute_residuals(features, columns), score_levels(features, columns)
    fits = []
    for position, column in enumerate(columns):
        fit = scores.get(position, np.ones(len(column.levels)))
        if position in far:
            # The share of numbers that are as far off, times the score of not being missing.
            known = column.known
            tail = _count_at_most(-far[position][known]) / known.sum()
            fit[known] = np.maximum(fit[known], _MIN_SCORE) * tail
        fits.append(fit)
    return fits


def _count_at_most(scores: Floats) -> Counts:
    """Count for each entry those of at most its size, itself included."""
    counts: Counts = rankdata(np.round(scores, DIGITS), method="max").astype(np.int32)
    return counts


def compute_log_densities(column: FeatureColumn, groups: Levels) -> Floats:
    """Return the log density of each cell in its group of rows, leaving the cell out.

    It is the share of its level; for numbers, the share of known cells times a density in scale
    units. The whole column has a small weight, so that no content is impossible in a small group.
    """
    density = _compute_shares(column.levels, groups)
    if column.numbers is not None and column.known.any():
        order = column.order
        density[order] *= _estimate_densities(column.numbers[order], groups[order])
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


def _estimate_densities(ascending: Floats, groups: Levels) -> Floats:
    if ascending[0] == ascending[-1]:
        return np.ones(len(ascending))
    numbers = _center(scale_to_one(ascending))
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


def _sum_kernels(ascending: Floats, scale: float) -> Floats:
    """Sum the kernels of the other numbers at each number, in scale units of the column."""
    # The kernel exp(-distance / width) has heavy tails, and its sums need only sorted numbers.
    width = compute_bandwidth(ascending, scale)
    steps = ascending / width
    sums = _sum_below(steps) + _sum_below(-steps[::-1])[::-1]
    return np.asarray(sums * scale / (2.0 * width))


def compute_bandwidth(numbers: Floats, scale: float) -> float:
    """Return the width of the kernel: Silverman's rule, times WIDTH."""
    low, high = np.percentile(numbers, (25, 75)).tolist()
    own = float(np.std(numbers))
    narrow = min(own, (high - low) / _NORMAL_QUARTILES) if high > low else own
    return float(WIDTH * max(narrow, _NARROWEST * scale) * len(numbers) ** -0.2)


def _sum_below(ascending: Floats) -> Floats:
    """Sum exp(-distance) over all earlier entries."""
    # Sums of powers overflow; their logarithms do not.
    logs = np.logaddexp.accumulate(ascending)
    return np.append(0.0, np.exp(logs[:-1] - ascending[1:]))


def ask_levels(column: FeatureColumn) -> Response:
    """Ask for one regression per level, with the target 1 for the rows of the level."""
    # A level of a single row gets the score 0: all such levels share a regression on 0.
    single = column.counts[column.levels] == 1
    levels = np.unique(np.where(single, -1, column.levels), return_inverse=True)[1]
    return levels.reshape(-1), np.where(single, 0.0, 1.0)


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
    # Columns with missing values in the same rows share an inverse.
    for positions in sharing.values():
        known = columns[positions[0]].known
        one = np.zeros(len(known), dtype=np.intp)
        asked = {j: (one, compute_uniform_scores(columns[j])) for j in positions}
        for position, expected in predict_left_out(features, asked, known).items():
            found[position] = np.abs(asked[position][1] - expected)
    return found


def score_levels(features: Features, columns: Sequence[FeatureColumn]) -> dict[int, Floats]:
    """Predict each cell's level from the other cells of its row; 1 means that it is certain.

    Keys are positions of columns; numeric ones with missing values have two levels.
    """
    asked = {
        position: ask_levels(column)
        for position, column in enumerate(columns)
        if column.numbers is None or column.levels.any()
    }
    return predict_left_out(features, asked) if asked else {}


def predict_left_out(
    features: Features, asked: Mapping[int, Response], known: Mask | None = None
) -> dict[int, Floats]:
    """Predict each known row by regressions that were fitted without it; NaN for other rows.

    Keys are positions of columns, whose own features are left out. Heights of rows that are not
    known must be 0.
    """
    n_rows, n_features = features.matrix.shape
    known = np.ones(n_rows, dtype=bool) if known is None else known
    # Other threads of BLAS would gain little, and wait without sleeping.
    with threadpool_limits(1, "blas"):
        inverse = _invert(_sum_known(features, known) + np.diag(make_penalties(n_features)))
        fits = {position: _fit(features, inverse, position, asked[position]) for position in asked}
        expected = {position: np.full(n_rows, np.nan) for position in asked}
        for start in range(0, n_rows, _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            # Of a strip of rows, sparse as it is: products with all features are not needed.
            strip = features.matrix[rows]
            projected = strip @ inverse
            leverages = _multiply(strip, projected, np.arange(strip.shape[0]))
            for position, (levels, heights) in asked.items():
                own_inverse, lines = fits[position]
                is_one = len(lines) == 1
                fitted = strip @ lines[0] if is_one else _multiply(strip, lines, levels[rows])
                own = projected[:, features.own[position]]
                leverage = leverages - np.einsum("ij,ij->i", own @ own_inverse, own)
                # Leaving a row out of a ridge regression is a division: no second fit is needed.
                without = (fitted - leverage * heights[rows]) / (1.0 - leverage)
                expected[position][rows] = np.where(known[rows], without, np.nan)
    return expected


def _multiply(strip: sparse.csr_array, lines: Floats, of_rows: Levels) -> Floats:
    """Return the product of each row of a strip with its own one of some lines."""
    entries = strip.data * lines[np.repeat(of_rows, np.diff(strip.indptr)), strip.indices]
    # No row is empty: each has the constant.
    return np.asarray(np.add.reduceat(entries, strip.indptr[:-1]))


def _invert(matrix: Floats) -> Floats:
    return np.asarray(np.linalg.inv(matrix), dtype=np.float64)


def _fit(
    features: Features, inverse: Floats, position: int, response: Response
) -> tuple[Floats, Floats]:
    """Fit regressions without a column's own features, from the one inverse of all features.

    With P the inverse and o the own features, the inverse without them is
    P - P[:, o] P[o, o]^-1 P[o, :], which is 0 in their rows and columns. Returns P[o, o]^-1 and
    the coefficients, one line per level.
    """
    own, (levels, heights) = features.own[position], response
    entries = sparse.csr_array((heights, (levels, np.arange(len(levels)))))
    # Sums of features times heights, by level.
    projected = (entries @ features.matrix).toarray() @ inverse
    own_inverse = _invert(inverse[own, own])
    return own_inverse, projected - projected[:, own] @ own_inverse @ inverse[own]


def _sum_known(features: Features, known: Mask) -> Floats:
    """Return the Gram matrix of known rows; from that of all rows, if most are known."""
    if 2 * known.sum() < len(known):
        return features.sum_products(known)
    return features.gram if known.all() else features.gram - features.sum_products(~known)


def make_penalties(n_features: int) -> Floats:
    """Return the penalty of each feature; the constant comes last."""
    return np.append(np.full(n_features - 1, PENALTY), _PENALTY_OF_CONSTANT)


def measure_isolation(column: FeatureColumn) -> Floats:
    """Return the distance of each number from the nearest other one, in scale units; else 0."""
    away = np.zeros(len(column.levels))
    if column.numbers is None or column.known.sum() < 2:
        return away
    ascending = scale_to_one(column.numbers[column.order])
    scale = quantile_scale(NumberSummary.from_cells(ascending))
    if scale > 0:
        steps = np.diff(ascending)
        nearest = np.minimum(np.append(np.inf, steps), np.append(steps, np.inf))
        away[column.order] = np.round(np.minimum(nearest, FARTHEST * scale) / scale, DIGITS)
    return away


def score_ratios(log_ratios: Floats) -> Floats:
    """Return the contribution of the ratios of densities: less, the less a column can be predicted.

    The mean log ratio of a column estimates the information that the others have about it.
    """
    information = np.clip(np.round(log_ratios.mean(axis=0), DIGITS), 0.0, MAX_INFORMATION)
    terms: Floats = -WEIGHT_OF_RATIO * information * log_ratios
    return terms


def scale_to_one(numbers: Floats) -> Floats:
    """Scale numbers by a power of two, which is exact, so that their squares do not overflow."""
    return np.ldexp(numbers, -int(np.frexp(np.abs(numbers).max())[1]))


def measure_distances(column: FeatureColumn, groups: Levels) -> Floats:
    """Return the distance of each cell from the mean of its group, in standard deviations.

    The cell is left out. A level gets the normal score of the share of rows with levels as rare.
    """
    away = np.zeros(len(groups))
    if column.levels.max() > 0:
        away = -ndtri(_compute_tails(column.levels, groups) / 2.0)
    if column.numbers is not None and column.known.any():
        known = column.known
        of_numbers = _standardize(column.numbers[known], groups[known])
        away[known] = np.maximum(away[known], of_numbers)
    return np.asarray(np.round(np.minimum(away, _FAR_OFF), DIGITS), dtype=np.float64)


def _compute_tails(levels: Levels, groups: Levels) -> Floats:
    """Return the share of a cell's group whose levels are as rare as its own, without itself."""
    n_rows, n_levels = len(levels), int(levels.max()) + 1
    pairs, inverse, alike = np.unique(
        groups * n_levels + levels, return_inverse=True, return_counts=True
    )
    of_group, overall = pairs // n_levels, np.bincount(levels)[pairs % n_levels]
    weights = np.round(alike + PRIOR_ROWS * overall / n_rows, DIGITS)
    without = np.round(alike - 1 + PRIOR_ROWS * (overall - 1 + 1 / n_levels) / n_rows, DIGITS)
    # Ascending within a group; groups are apart by more than any weight.
    offsets = of_group * 2.0 * n_rows
    order = np.argsort(offsets + weights, kind="stable")
    sums = np.append(0.0, np.cumsum(weights[order]))
    start = np.searchsorted(of_group, of_group)
    rarer = sums[np.searchsorted((offsets + weights)[order], offsets + without, side="right")]
    total = np.bincount(groups)[of_group] - 1 + PRIOR_ROWS
    shares = (rarer - sums[start] + without) / total
    return np.asarray(np.clip(shares, np.finfo(float).tiny, 1.0)[inverse.reshape(-1)])


def _standardize(numbers: Floats, groups: Levels) -> Floats:
    """Return the distance of numbers from the mean of the others of their group."""
    numbers = _center(scale_to_one(numbers))
    # Numbers that are far off, at most 1% on each side, would spoil means.
    reach = _FAR_OFF * (quantile_scale(NumberSummary.from_cells(numbers)) or float(np.std(numbers)))
    low, high = np.percentile(numbers, (1, 99)).tolist()
    numbers = np.clip(numbers, min(-reach, low), max(reach, high))
    scale = float(np.std(numbers))
    if scale == 0:
        return np.zeros(len(numbers))
    numbers = numbers / scale
    overall, others = float(np.mean(numbers)), np.bincount(groups)[groups] - 1 + PRIOR_ROWS
    sums, squares = (np.bincount(groups, each)[groups] - each for each in (numbers, numbers**2))
    means = (sums + PRIOR_ROWS * overall) / others
    variances = (squares + PRIOR_ROWS * (1.0 + overall**2)) / others - means**2
    away: Floats = np.abs(numbers - means) / np.sqrt(np.maximum(variances, _MIN_VARIANCE))
    return away
