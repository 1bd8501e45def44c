"""Checks of numbers and dates: codes for missing values, gross errors and wrong units."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator

import numpy as np

from cellworth.data.arguments import Floats, Integers
from cellworth.data.text import format_count, format_number, list_first
from cellworth.findings.finding import Action, Finding
from cellworth.findings.levels import ColumnLevels

# Numbers that people enter for a missing value, with either sign.
_CODES = {9.0, 99.0, 999.0, 9999.0, 99999.0, 999999.0, 9999999.0, 99.9, 999.9, 99.99, 888.0, 8888.0}
_NEGATIVE_CODES = {-1.0, -9.0, -99.0, -999.0, -9999.0, -99999.0, -999999.0, -8.0, -88.0, -888.0}
_DATE_CODES = {
    datetime.datetime(*date, tzinfo=datetime.UTC).timestamp()
    for date in ((1900, 1, 1), (1899, 12, 30), (1970, 1, 1), (1904, 1, 1), (9999, 12, 31),
                 (2099, 12, 31), (1800, 1, 1), (1753, 1, 1), (2999, 12, 31))
}  # fmt: skip
_FACTORS = (10.0, 100.0, 1000.0, 1e6)
# Probability that some power of ten makes any number fit, up to which it is called the cause.
_MAX_BY_CHANCE = 0.8
_NORMAL_TAIL = 1.645
# Gross errors are at least so many standard deviations away from all other numbers.
_MIN_STEP = 1.5
# In heavy tails, they must also be this much farther away than the next number.
_RELATIVE_STEP = 0.7
_MIN_DISTANCE = 4.0
_MAX_OUTSIDE = 0.02
_OUTSIDE, _DOUBTFUL = 0.02, 0.55
# A positive code is so many times as large as all other numbers.
_TIMES_LARGEST = 4.0
# A negative code is among at least so many different sizes, and in at most this share of rows.
_MIN_SIZES, _MAX_CODED = 10, 0.2
_MIN_REPEATED, _MIN_APART = 3, 0.1
_MIN_ROWS, _ENOUGH_ROWS, _MIN_LEVELS = 20, 100, 4
_SHARE_OF_NAMES = 0.9
_SHORTEST_NAME, _DENSEST = 5, 2
NAMES = re.compile(
    r"(^|[_ -])(id|ids|code|number|no|nr|key|index|phone|zip|uuid|postcode)$"
    r"|(?<=[a-z])(Id|ID|Code|Number|Nr|Key|Phone|Zip)$"
)


def are_names(column: ColumnLevels) -> bool:
    """Return whether integers are names rather than quantities: ids, postcodes, phone numbers."""
    levels = column.levels
    if column.kind != "number" or not len(levels) or not np.all(levels == np.floor(levels)):
        return False
    all_differ = len(levels) >= _SHARE_OF_NAMES * column.n_known
    is_dense = levels[-1] - levels[0] < _DENSEST * len(levels)
    lengths = np.floor(np.log10(np.maximum(np.abs(levels), 1.0))) + 1
    usual = np.bincount(lengths.astype(np.int64), weights=column.counts).argmax()
    of_one_length = usual >= _SHORTEST_NAME and (
        column.counts[lengths == usual].sum() >= _SHARE_OF_NAMES * column.n_known
    )
    # Amounts are often round, and have all digits in front; names of one kind seldom do.
    is_round = np.mean(levels % 100 == 0) > 0.3
    is_repeated = len(levels) < 0.5 * column.n_known
    is_named = usual >= _SHORTEST_NAME and NAMES.search(column.name) is not None
    return bool(
        is_named or (all_differ and is_dense) or (of_one_length and is_repeated and not is_round)
    )


def _find_code_among_few(column: ColumnLevels) -> Iterator[Finding]:
    """Yield a code that is far larger than the two or three numbers of a column."""
    code, others = float(column.levels[-1]), column.levels[:-1]
    largest = float(np.abs(others).max())
    if code in _CODES and code >= 99 and code >= 10 * max(largest, 1.0) and column.counts[-1] < 5:
        yield _describe_code(column, len(others), 0.1)


class Bulk:
    """The middle of a column of numbers, on a scale: their own, or logarithms with a unit."""

    def __init__(self, levels: Floats, counts: Integers, unit: float) -> None:
        self.unit = unit
        # The middle 90% of the numbers themselves.
        self.limits: list[float] = _quantiles(levels, counts, 0.05, 0.95)
        moved = _transform(levels, unit)
        low, middle, high = _quantiles(moved, counts, 0.05, 0.5, 0.95)
        self.middle: float = middle
        self.scale: float = (high - low) / (2 * _NORMAL_TAIL)
        sides = high - middle, middle - low
        # How much farther one tail reaches than the other.
        self.skew: float = max(sides) / max(min(sides), 1e-300)

    def distances(self, numbers: Floats) -> Floats:
        """Return distances from the middle in standard deviations, with their sign."""
        return (_transform(numbers, self.unit) - self.middle) / self.scale


def _measure_bulk(levels: Floats, counts: Integers) -> Bulk | None:
    """Measure numbers on the scale on which they are most even; zeros left out if most are 0."""
    if counts[levels == 0].sum() > 0.5 * counts.sum():
        levels, counts = levels[levels != 0], counts[levels != 0]
    if counts.sum() < _MIN_ROWS or len(levels) < _MIN_LEVELS:
        return None
    order = np.argsort(np.abs(levels), kind="stable")
    (unit,) = _quantiles(np.abs(levels[order]), counts[order], 0.5)
    usable = [bulk for bulk in (Bulk(levels, counts, each) for each in (0.0, unit)) if bulk.scale]
    return min(usable, key=lambda bulk: bulk.skew, default=None)


def _transform(numbers: Floats, unit: float) -> Floats:
    return numbers if unit == 0 else np.sign(numbers) * np.log1p(np.abs(numbers) / unit)


def _quantiles(levels: Floats, counts: Integers, *shares: float) -> list[float]:
    """Return quantiles of ascending numbers with counts."""
    ends = np.cumsum(counts)
    positions = np.searchsorted(ends, np.array(shares) * ends[-1])
    return [float(level) for level in levels[positions]]


def find_gross_errors(column: ColumnLevels) -> Iterator[Finding]:
    """Yield codes for missing values and numbers or dates far from all others."""
    levels, counts = column.levels, column.counts
    if column.kind == "text" or column.n_known < _MIN_ROWS:
        return
    if column.kind == "number" and 2 <= len(levels) < _MIN_LEVELS:
        yield from _find_code_among_few(column)
    bulk = None if are_names(column) else _measure_bulk(levels, counts)
    if bulk is None:
        return
    far = bulk.distances(levels)
    left, right = (_outside(levels, counts, far, sign) for sign in (-1, 1))
    codes = _DATE_CODES if column.kind == "date" else _CODES | _NEGATIVE_CODES
    used = set()
    for level in np.flatnonzero(np.isin(levels, list(codes))).tolist():
        doubt = _doubt_code(column, level, left | right)
        if doubt is not None:
            used.add(level)
            yield _describe_code(column, level, doubt)
    for side in (left, right):
        outside = [level for level in sorted(side) if level not in used]
        if outside:
            yield _describe_outside(column, outside, bulk, far)


def _outside(levels: Floats, counts: Integers, far: Floats, sign: int) -> set[int]:
    """Return the levels beyond a wide step on one side."""
    order = np.arange(len(levels))[::-sign]
    away = sign * far[order]
    few = np.cumsum(counts[order]) <= max(3, _MAX_OUTSIDE * counts.sum())
    steps, following = away[:-1] - away[1:], away[1:]
    is_wide = steps >= np.maximum(_MIN_STEP, _RELATIVE_STEP * following)
    edges = np.flatnonzero(is_wide & (few & (away >= _MIN_DISTANCE))[:-1])
    return set(order[: edges.max(initial=-1) + 1].tolist())


def _doubt_code(column: ColumnLevels, level: int, outside: set[int]) -> float | None:
    """Return how doubtful it is that a number is a code; None if it is a number like others.

    A date is a code only outside the range of the others, and so is a positive number. If it is not
    far outside, it may be the largest amount that a form takes.
    """
    levels = column.levels
    others = np.delete(levels, level)
    largest = float(np.abs(others).max())
    if level in outside:
        is_far = column.kind == "date" or abs(levels[level]) >= _TIMES_LARGEST * largest
        return _OUTSIDE if is_far or levels[level] < 0 <= others.min() else _DOUBTFUL
    is_sign = levels[level] < 0 <= others.min() and len(others) >= _MIN_SIZES
    if column.kind == "number" and is_sign:
        # Nothing else is negative: it is a size, a count, an age.
        rare = column.counts[level] <= _MAX_CODED * column.n_known
        # One number just below the others may be the lowest of them.
        repeats = column.counts[level] >= _MIN_REPEATED or others.min() >= _MIN_APART * largest
        return (0.1 if rare and column.n_known >= _ENOUGH_ROWS else 0.4) if repeats else _DOUBTFUL
    return None


def _describe_code(column: ColumnLevels, level: int, doubt: float) -> Finding:
    number, rows = column.levels[level], column.rows_of([level])
    others = np.delete(column.levels, level)
    shown, low, high = (
        format_number(each, column.kind) for each in (number, others.min(), others.max())
    )
    is_doubtful = doubt >= _DOUBTFUL
    means = "may be a code or a limit" if is_doubtful else "probably stands for a missing value"
    return Finding(
        "missing code", (column.name,), rows,
        f"{shown} in {format_count(len(rows), 'cell')} of {column.name} {means}; the others are "
        f"{low} to {high}.",
        Action("set missing", {float(number): None}, "make them missing values"), doubt,
    )  # fmt: skip


def _describe_outside(column: ColumnLevels, outside: list[int], bulk: Bulk, far: Floats) -> Finding:
    inside = np.delete(column.levels, outside)
    rows = column.rows_of(outside)
    numbers = column.levels[outside]
    edge = inside.max() if numbers[0] > inside.max() else inside.min()
    step = float(np.min(np.abs(far[outside] - bulk.distances(np.array([edge]))[0])))
    factor = _find_factor(numbers, bulk)
    listed = list_first([format_number(number, column.kind) for number in numbers], 3)
    side = "at most" if edge == inside.max() else "at least"
    sentence = (
        f"{listed} in {format_count(len(rows), 'cell')} of {column.name}; all others are {side} "
        f"{format_number(edge, column.kind)}"
    )
    doubt = float(np.exp(-step) / (np.exp(-step) + 0.3))
    if factor is None:
        action = Action("set missing", dict.fromkeys(numbers.tolist()), "correct them")
        return Finding("outlier", (column.name,), rows, f"{sentence}.", action, doubt)
    way = f"divide by {factor:g}" if factor > 1 else f"multiply by {1 / factor:g}"
    action = Action("replace", {n: n / factor for n in numbers.tolist()}, way)
    return Finding("scale", (column.name,), rows, f"{sentence}; {way} to fit.", action, doubt)


def _find_factor(numbers: Floats, bulk: Bulk) -> float | None:
    """Return the factor that makes numbers fit, if it would not for nearly all numbers."""
    low, high = bulk.limits
    decades = np.log10(high / low) if low > 0 else np.inf
    if min(decades, 1.0) ** len(numbers) > _MAX_BY_CHANCE:
        return None
    for factor in (*_FACTORS, *(1.0 / each for each in _FACTORS)):
        scaled = numbers / factor
        if np.all((scaled >= low) & (scaled <= high)):
            return factor
    return None
