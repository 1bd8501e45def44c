"""Columns of numbers and of categories, scaled for distances."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import (
    MISSING,
    Codes,
    ColumnType,
    ColumnTypes,
    Floats,
    Labels,
    Scale,
)
from cellworth.data.column import Coder, Column, find_common_kind, read_differences
from cellworth.data.tables import Table
from cellworth.data.text import preview
from cellworth.sampling.statistics import CategorySummary, NumberSummary

# Largest distance in a column, a thousand scales squared. Integers that hold larger distances
# would have no digits left for small ones.
FARTHEST = 1e6
# Mean squared distance of two rows in a column of unit variance; categories are scaled to it.
_MEAN_DISTANCE = 2.0
_NARROWEST = 1e-100
# Pairs of percentiles, and their difference in a standard normal distribution.
_QUANTILES = ((25, 75, 1.349), (5, 95, 3.290), (1, 99, 4.653))


@dataclass(frozen=True, eq=False)
class ScaledColumn:
    """A column of several tables, and the distances of its cells.

    Squared differences of numbers are multiplied by ``weight``, and a mismatch of categories has
    the distance ``weight``. A missing value on either side has the distance ``missing``; no
    distance exceeds ``largest``.
    """

    kind: Literal["numbers", "categories"]
    position: int
    cells: Sequence[NDArray[Any]]  # Numbers, or codes of categories, of each table
    weight: float = 0.0
    missing: float = 0.0
    largest: float = 0.0


def check_column_types(column_types: ColumnTypes | None, names: Labels) -> dict[Any, ColumnType]:
    """Check a mapping from column names to column types."""
    if column_types is None:
        return {}
    if not isinstance(column_types, Mapping):
        raise TypeError(
            'column_types must be a mapping such as {"postcode": "categorical"}, got '
            f"{type(column_types).__name__}."
        )
    for name, kind in column_types.items():
        if name not in names.tolist():
            raise ValueError(
                f"column_types must name columns of X, got {name!r}; "
                f"the columns of X are {preview(names)}."
            )
        if kind not in get_args(ColumnType):
            raise ValueError(
                f"column_types of column {name!r} must be 'numeric' or 'categorical', got {kind!r}."
            )
    return dict(column_types)


def check_scale(scale: Scale) -> None:
    """Check the scale of numeric columns."""
    if scale not in (*get_args(get_args(Scale)[0]), None):
        raise ValueError(f"scale must be 'robust', 'std' or None, got {scale!r}.")


def read_column(
    position: int, sides: Sequence[Table], kind: ColumnType | None, scale: Scale
) -> ScaledColumn:
    """Read one column of the training table and of the query tables (together: the sides)."""
    return scale_column(position, [side.read(position, kind) for side in sides], scale)


def scale_column(
    position: int,
    columns: Sequence[Column],
    scale: Scale,
    summary: NumberSummary | CategorySummary | None = None,
) -> ScaledColumn:
    """Scale one column of several tables by the training rows, which are the first table.

    With a summary of the training rows, the first table need only have their ends or categories.
    """
    if find_common_kind(columns) == "category":
        coder = Coder({}, math.inf)
        codes = [coder.read(column)[0] for column in columns]
        counts = np.bincount(codes[0][codes[0] != MISSING]).tolist()
        if isinstance(summary, CategorySummary):
            counts = [summary.counts[value] for value in summary.values]
        return _scale_categories(position, codes, counts)
    numbers, known = read_differences(columns)
    if not isinstance(summary, NumberSummary):
        summary = NumberSummary.from_cells(known)
    return _scale_numbers(position, numbers, summary, scale, columns[0].name)


def _scale_numbers(
    position: int, sides: list[Floats], numbers: NumberSummary, scale: Scale, name: Any
) -> ScaledColumn:
    """Scale a column by the summary of its training rows.

    ``sides`` are the rows in memory; training rows may be missing.
    """
    if numbers.count == 0:
        return ScaledColumn("numbers", position, sides)
    scale_length = _compute_scale(numbers, scale)
    if not _NARROWEST < scale_length < 1 / _NARROWEST:
        raise ValueError(
            f"the scale of column {name!r} must be between {_NARROWEST:g} and {1 / _NARROWEST:g}, "
            f"got {scale_length:.1g}; multiply the column by a constant."
        )
    weight = 1.0 / scale_length**2
    # The mean squared difference of two random rows is twice the variance.
    missing = min(_MEAN_DISTANCE * numbers.variance() * weight, FARTHEST)
    # Python floats overflow to infinity without a warning.
    low, high = numbers.reach
    reach = max(high, *(float(np.fmax.reduce(side, initial=high)) for side in sides)) - min(
        low, *(float(np.fmin.reduce(side, initial=low)) for side in sides)
    )
    largest = min(reach * reach * weight, FARTHEST)
    return ScaledColumn("numbers", position, sides, weight, missing, max(largest, missing))


def _compute_scale(numbers: NumberSummary, scale: Scale) -> float:
    scale_length = _between_quantiles(numbers) if scale == "robust" else 0.0
    if scale_length > 0:
        return scale_length
    scale_length = 1.0 if scale is None else math.sqrt(numbers.variance())
    return scale_length if scale_length > 0 else 1.0


def quantile_scale(known: Floats) -> float:
    """Return a robust scale of numbers; 0 if the quantiles are equal."""
    return _between_quantiles(NumberSummary.from_cells(known))


def _between_quantiles(numbers: NumberSummary) -> float:
    for low, high, of_normal in _QUANTILES:
        # If half of the rows have the same value, the next pair of percentiles is used.
        below, above = numbers.percentile(low), numbers.percentile(high)
        if above > below:
            return (above - below) / of_normal
    return 0.0


def _scale_categories(position: int, sides: list[Codes], counts: list[int]) -> ScaledColumn:
    """Scale a column by the number of training rows in each category."""
    n_known = sum(counts)
    if n_known == 0:
        return ScaledColumn("categories", position, sides)
    n_pairs = n_known**2
    mismatch = float(Fraction(n_pairs - sum(count**2 for count in counts), n_pairs))
    # In a column that hardly varies, mismatches are rare and must not outweigh other columns.
    weight = min(_MEAN_DISTANCE / mismatch if mismatch > 0 else _MEAN_DISTANCE, FARTHEST)
    return ScaledColumn("categories", position, sides, weight, weight * mismatch, weight)
