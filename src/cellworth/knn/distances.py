"""Distances between rows: columns of numbers and categories, scaled to integers that add up."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import (
    MISSING,
    Codes,
    ColumnType,
    ColumnTypes,
    Floats,
    Integers,
    Labels,
    Scale,
)
from cellworth.data.column import Coder, Column, find_common_kind, read_differences
from cellworth.data.tables import Table
from cellworth.data.text import preview
from cellworth.sampling.statistics import CategorySummary, NumberSummary, limit_keys
from cellworth.valuation.column_info import ReadAs, name_kind

# Largest distance in a column, a thousand scales squared. Integers that hold larger distances
# would have no digits left for small ones.
FARTHEST = 1e6
# Mean squared distance of two rows in a column of unit variance; categories are scaled to it.
_MEAN_DISTANCE = 2.0
_NARROWEST = 1e-100
_DAY = 86_400e6
# Pairs of percentiles, and their difference in a standard normal distribution.
_QUANTILES = ((25, 75, 1.349), (5, 95, 3.290), (1, 99, 4.653))
_FINEST = 40
# Floats represent sums of distances below exactly, with two bits to spare.
LARGEST_DISTANCE = 2.0**51


class Columns(NamedTuple):
    """Columns of some rows as arrays for kernels; missing values are NaN or code -1."""

    numbers: Floats  # (n_numeric, n_rows)
    categories: Codes  # (n_categorical, n_rows): codes of categories

    def take(self, rows: NDArray[Any]) -> Columns:
        """Keep these rows, in this order."""
        arrays: Any = (np.ascontiguousarray(array[:, rows]) for array in self)
        return Columns(*arrays)


class ColumnScales(NamedTuple):
    """Distances of each column, in integer units."""

    # (n_numeric,): distance of a squared difference of 1, and of a missing value.
    number_weights: Floats
    number_missing: Floats
    farthest: float  # Largest distance in a numeric column
    # (n_categorical,): distance of a mismatch, and of a missing value.
    category_weights: Integers
    category_missing: Integers
    # (n_columns,): positions of numeric and categorical columns, in this order, in the user's table
    positions: Integers

    def where(self, position: int) -> tuple[Literal["numbers", "categories"], int]:
        """Return the field of :class:`Columns` for a column of the user's table, and its index."""
        at, n_numeric = int(np.flatnonzero(self.positions == position)[0]), len(self.number_weights)
        return ("numbers", at) if at < n_numeric else ("categories", at - n_numeric)

    def scale(self, at: int) -> float:
        """Return the divisor of differences in a numeric column; 0 if it has no weight."""
        weight = float(self.number_weights[at]) / self.unit
        return weight**-0.5 if weight > 0 else 0.0

    def describe(self, position: int, column: Column) -> tuple[ReadAs, str]:
        """Return what a column of the user's table is read as, and the distance of two cells."""
        part, at = self.where(position)
        if part == "categories":
            return "category", f"0 or {float(self.category_weights[at]) / self.unit:.3g}"
        scale, read_as = self.scale(at), name_kind(column) if column.is_time else "number"
        if scale in (0, 1) and (scale == 0 or read_as == "number"):
            return read_as, "difference²" if scale else "0"
        unit = f"{scale:.3g}" if read_as == "number" else f"{scale / _DAY:.3g} days"
        return read_as, f"(difference / {unit})²"

    @property
    def unit(self) -> float:
        """Integer that stands for a distance of 1."""
        return self.farthest / FARTHEST

    def measure_radius(self, radius: float) -> int:
        """Return the largest distance within a radius."""
        return round(radius**2 * self.unit)


@dataclass(frozen=True, eq=False)
class Distances:
    """Distances between the rows of a training table and the rows of query tables."""

    rows: Columns
    queries: tuple[Columns, ...]  # One for each query table
    scales: ColumnScales

    @classmethod
    def from_tables(
        cls,
        table: Table,
        queries: Sequence[Table],
        *,
        scale: Scale = "robust",
        column_types: ColumnTypes | None = None,
    ) -> Distances:
        """Read the columns of all tables and scale them by the training rows in ``table``.

        ``scale`` is the divisor of numeric columns: the interquartile range (relative to that of
        the standard normal distribution), the standard deviation, or None. ``column_types`` has
        the type of a column if the guess is wrong.
        """
        column_types = check_column_types(column_types, table.names)
        check_scale(scale)
        tables = [table, *queries]
        columns = [
            read_column(position, tables, column_types.get(name), scale)
            for position, name in enumerate(table.names.tolist())
        ]
        rows, *others = (stack_columns(columns, side) for side in range(len(tables)))
        return cls(rows, tuple(others), make_scales(columns))

    def sha256(self) -> str:
        """Return a hash of the column types, scales, missing values and given distances."""
        digest = hashlib.sha256()
        for field in (*self.scales, *(array.shape for array in self.rows)):
            digest.update(np.asarray(field).tobytes())
        return digest.hexdigest()

    def measure(self, fold: int, query: int) -> Integers:
        """Return the distances of all rows to one query, shape (n_columns, n_rows).

        This is the plain definition; kernels compute the same faster.
        """
        scales, rows, queries = self.scales, self.rows, self.queries[fold]
        lines = []
        for j, cells in enumerate(rows.numbers):
            difference = cells - queries.numbers[j, query]
            distance = np.floor(difference * difference * scales.number_weights[j] + 0.5)
            distance = np.minimum(distance, scales.farthest)
            lines.append(np.where(np.isnan(distance), scales.number_missing[j], distance))
        for j, cells in enumerate(rows.categories):
            other = queries.categories[j, query]
            distance = np.where(cells == other, 0, scales.category_weights[j])
            missing = (cells == MISSING) | (other == MISSING)
            lines.append(np.where(missing, scales.category_missing[j], distance))
        distances = np.empty((len(scales.positions), rows.numbers.shape[1]), dtype=np.int64)
        distances[scales.positions] = np.array(lines).astype(np.int64)
        return distances


def stack_columns(columns: Sequence[ScaledColumn], side: int) -> Columns:
    """Return the cells of one table (side 0: training rows) as arrays for kernels."""
    n_rows = len(columns[0].cells[side])

    def stack(kind: str, dtype: Any) -> NDArray[Any]:
        cells = [column.cells[side] for column in columns if column.kind == kind]
        return np.array(cells, dtype=dtype).reshape(len(cells), n_rows)

    return Columns(stack("numbers", np.float64), stack("categories", np.int32))


def make_scales(columns: Sequence[ScaledColumn]) -> ColumnScales:
    """Return scales in the finest unit in which distances over all columns are exact."""
    largest = sum(column.largest for column in columns)
    unit = 2.0**_FINEST
    # Rounding adds at most 1/2 per column.
    while largest * unit + len(columns) / 2 >= LARGEST_DISTANCE:
        unit /= 2
    numeric = [column for column in columns if column.kind == "numbers"]
    categorical = [column for column in columns if column.kind == "categories"]

    def to_integers(amounts: list[float]) -> Integers:
        return np.rint(np.array(amounts, dtype=np.float64) * unit).astype(np.int64)

    return ColumnScales(
        np.array([column.weight * unit for column in numeric], dtype=np.float64),
        to_integers([column.missing for column in numeric]).astype(np.float64),
        float(np.rint(FARTHEST * unit)),
        to_integers([column.weight for column in categorical]),
        to_integers([column.missing for column in categorical]),
        np.array([column.position for column in (*numeric, *categorical)], dtype=np.int64),
    )


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
    position: int, tables: Sequence[Table], kind: ColumnType | None, scale: Scale
) -> ScaledColumn:
    """Read one column of the training table and of the query tables, in this order."""
    return scale_column(position, [table.read(position, kind) for table in tables], scale)


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
    cells, known = read_differences(columns)
    if not isinstance(summary, NumberSummary):
        summary = NumberSummary.from_cells(known, limit_keys(len(columns[0].cells)))
    return _scale_numbers(position, cells, summary, scale, columns[0].name)


def _scale_numbers(
    position: int, cells: list[Floats], summary: NumberSummary, scale: Scale, name: Any
) -> ScaledColumn:
    """Scale a column by the summary of its training rows.

    ``cells`` has the numbers of each table in memory; those of training rows may be missing.
    """
    if summary.count == 0:
        return ScaledColumn("numbers", position, cells)
    robust = quantile_scale(summary) if scale == "robust" else 0.0
    scale_length = robust or (math.sqrt(summary.variance()) if scale else 0.0) or 1.0
    if not _NARROWEST < scale_length < 1 / _NARROWEST:
        raise ValueError(
            f"the scale of column {name!r} must be between {_NARROWEST:g} and {1 / _NARROWEST:g}, "
            f"got {scale_length:.1g}; multiply the column by a constant."
        )
    weight = 1.0 / scale_length**2
    # The mean squared difference of two random rows is twice the variance.
    missing = min(_MEAN_DISTANCE * summary.variance() * weight, FARTHEST)
    # Python floats overflow to infinity without a warning.
    low, high = summary.reach
    reach = max(high, *(float(np.fmax.reduce(numbers, initial=high)) for numbers in cells)) - min(
        low, *(float(np.fmin.reduce(numbers, initial=low)) for numbers in cells)
    )
    largest = min(reach * reach * weight, FARTHEST)
    return ScaledColumn("numbers", position, cells, weight, missing, max(largest, missing))


def quantile_scale(numbers: NumberSummary) -> float:
    """Return a robust scale of numbers; 0 if the quantiles are equal."""
    for low, high, of_normal in _QUANTILES:
        # If half of the rows have the same value, the next pair of percentiles is used.
        below, above = numbers.percentile(low), numbers.percentile(high)
        if above > below:
            return (above - below) / of_normal
    return 0.0


def _scale_categories(position: int, cells: list[Codes], counts: list[int]) -> ScaledColumn:
    """Scale a column by the number of training rows in each category."""
    n_known = sum(counts)
    if n_known == 0:
        return ScaledColumn("categories", position, cells)
    n_pairs = n_known**2
    mismatch = float(Fraction(n_pairs - sum(count**2 for count in counts), n_pairs))
    # In a column that hardly varies, mismatches are rare and must not outweigh other columns.
    weight = min(_MEAN_DISTANCE / mismatch if mismatch > 0 else _MEAN_DISTANCE, FARTHEST)
    return ScaledColumn("categories", position, cells, weight, weight * mismatch, weight)
