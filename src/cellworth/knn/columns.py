"""Numeric, categorical and coded columns, scaled for distances."""

from __future__ import annotations

import datetime
import decimal
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from typing import Any, get_args

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import (
    MISSING,
    Codes,
    ColumnType,
    ColumnTypes,
    Distance,
    Floats,
    Labels,
    Scale,
)
from cellworth.data.blocks import is_missing
from cellworth.data.tables import MAX_EXACT, Table
from cellworth.data.text import preview
from cellworth.sampling.statistics import NumberSummary

# Largest distance in a column, a thousand scales squared. Integers that hold larger distances
# would have no digits left for small ones.
FARTHEST = 1e6
# Mean squared distance of two rows in a column of unit variance; categories are scaled to it.
_MEAN_DISTANCE = 2.0
_MAX_PAIRS = 2**24
_NESTED = (list, dict, set, np.ndarray)
_NARROWEST = 1e-100
# Pairs of percentiles, and their difference in a standard normal distribution.
_QUANTILES = ((25, 75, 1.349), (5, 95, 3.290), (1, 99, 4.653))


@dataclass(frozen=True, eq=False)
class NumericColumn:
    """A numeric column: squared differences are multiplied by ``weight``.

    A missing value on either side has the distance ``missing``; no distance exceeds ``largest``.
    """

    position: int
    cells: list[Floats]
    weight: float
    missing: float
    largest: float


@dataclass(frozen=True, eq=False)
class CategoricalColumn:
    """A categorical column: mismatches have distance ``weight``, missing values ``missing``."""

    position: int
    cells: list[Codes]
    weight: float
    missing: float
    largest: float


@dataclass(frozen=True, eq=False)
class CodedColumn:
    """A column with a distance function: codes of distinct values and a table of distances.

    The last code stands for a missing value.
    """

    position: int
    cells: list[Codes]
    table: Floats
    largest: float


def check_column_types(
    column_types: ColumnTypes | None, names: Labels
) -> dict[Any, ColumnType | Distance]:
    """Check a mapping from column names to column types or distance functions."""
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
        if not callable(kind) and kind not in get_args(ColumnType):
            raise ValueError(
                f"column_types of column {name!r} must be 'numeric', 'categorical' or a function "
                f"of two cells that returns their squared distance, got {kind!r}."
            )
    return dict(column_types)


def check_scale(scale: Scale) -> None:
    """Check the scale of numeric columns."""
    if scale not in (*get_args(get_args(Scale)[0]), None):
        raise ValueError(f"scale must be 'robust', 'std' or None, got {scale!r}.")


def read_column(
    position: int, sides: Sequence[Table], kind: ColumnType | Distance | None, scale: Scale
) -> NumericColumn | CategoricalColumn | CodedColumn:
    """Read one column of the training table and of the query tables (together: the sides)."""
    name = sides[0].names.tolist()[position]
    cells = [side.column(position) for side in sides]
    if callable(kind):
        return _read_coded(kind, name, position, [list_cells(side, name) for side in cells])
    dtypes = [side.dtype(position) for side in sides]
    guess = kind or infer_column_type(dtypes, cells, name)
    if guess == "categorical":
        numbered: dict[Any, int] = {}
        codes = [encode_cells(numbered, list_cells(side, name)) for side in cells]
        counts = np.bincount(codes[0][codes[0] != MISSING])
        return categorical_column(position, codes, counts.tolist())
    check_time_zones(set().union(*map(find_time_zones, dtypes, cells)), name)
    numbers, known = to_comparable_floats(cells, name)
    return numeric_column(position, numbers, NumberSummary.from_cells(known), scale, name)


def infer_column_type(
    dtypes: list[nw.dtypes.DType | None],
    cells: list[NDArray[Any]],
    name: Any,
    beside: ColumnType | None = None,
) -> ColumnType:
    """Return the column type that all sides have; a side of missing values alone is ignored.

    ``beside`` is the type of another side, if known.
    """
    found_types: set[ColumnType] = set() if beside is None else {beside}
    objects: list[Any] = []
    for dtype, array in zip(dtypes, cells, strict=True):
        kind = _infer_type(dtype, array, name)
        if kind is None:
            objects += [cell for cell in array.tolist() if not is_missing(cell)]
        elif kind not in found_types and not all(map(is_missing, array.tolist())):
            found_types.add(kind)
    if objects:
        # The content of Python objects decides, of all sides: one may be numeric by chance.
        found_types.add("numeric" if all(map(_is_quantity, objects)) else "categorical")
    if len(found_types) > 1:
        raise ValueError(
            f"column {name!r} must have the same type in X and X_val, got numbers in one and "
            "strings or categories in the other; convert one of them, or pass "
            f"column_types={{{name!r}: 'categorical'}}."
        )
    return "numeric" if "numeric" in found_types else "categorical"


def _infer_type(dtype: nw.dtypes.DType | None, cells: NDArray[Any], name: Any) -> ColumnType | None:
    """Return the column type of a data type; None for Python objects."""
    if isinstance(dtype, nw.Categorical | nw.Enum | nw.String | nw.Boolean):
        return "categorical"
    if isinstance(dtype, nw.List | nw.Array | nw.Struct | nw.Binary) or cells.dtype.kind == "c":
        raise TypeError(
            f"column {name!r} must have numbers, dates, strings or categories, got "
            f"{dtype or cells.dtype}; drop it, or convert it to numbers or strings."
        )
    if cells.dtype.kind in "iufMm":
        return "numeric"
    return None if cells.dtype.kind == "O" else "categorical"


def _is_quantity(cell: Any) -> bool:
    quantities = (int, float, decimal.Decimal, np.number, datetime.date, datetime.timedelta)
    return isinstance(cell, quantities) and not isinstance(cell, bool)


def list_cells(cells: NDArray[Any], name: Any) -> list[Any]:
    """Return cells as comparable Python objects, with None for missing values."""
    if cells.dtype.kind in "Mm":
        # tolist turns nanoseconds into integers, but microseconds into dates.
        cells = cells.astype(f"{cells.dtype.kind}8[us]")
    listed = cells.tolist()
    nested = next((cell for cell in listed if isinstance(cell, _NESTED)), None)
    if nested is not None:
        raise TypeError(
            f"cells of column {name!r} must be comparable, got {preview([nested])}; drop "
            "the column, or convert it to numbers or strings."
        )
    return [None if is_missing(cell) else cell for cell in listed]


def to_comparable_floats(sides: list[NDArray[Any]], name: Any) -> tuple[list[Floats], NDArray[Any]]:
    """Convert all sides of a column to floats that can be subtracted from each other.

    Also return the numbers of the first side to summarize: floats, or known microseconds.
    """
    try:
        sides = [_unbox(side) if side.dtype.kind == "O" else side for side in sides]
        sides = _match_missing_times(sides)
        found_types = {side.dtype.kind if side.dtype.kind in "Mm" else "f" for side in sides}
        if len(found_types) > 1:
            raise TypeError("dates or durations on one side only")
        numbers = _times(sides) if found_types != {"f"} else _subtract_first(sides)
        known = _microseconds(sides[0]) if found_types != {"f"} else numbers[0]
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ValueError(
            f"cells of the numeric column {name!r} must be numbers ({error}); fix them, or pass "
            f"column_types={{{name!r}: 'categorical'}}."
        ) from error
    if any(np.isinf(side).any() for side in numbers):
        raise ValueError(
            f"cells of column {name!r} must be finite, got infinity; replace it by a number or a "
            "missing value."
        )
    return numbers, known


def check_time_zones(zoned: set[bool], name: Any) -> None:
    """Check that either all timestamps have a time zone or none has."""
    if len(zoned) > 1:
        raise ValueError(
            f"timestamps of column {name!r} must all have a time zone, or none of them, got both; "
            "add or remove time zones."
        )


def find_time_zones(dtype: nw.dtypes.DType | None, cells: NDArray[Any]) -> set[bool]:
    """Return whether timestamps have a time zone; an empty set without timestamps."""
    if isinstance(dtype, nw.Datetime):
        return set() if all(map(is_missing, cells.tolist())) else {dtype.time_zone is not None}
    if cells.dtype.kind == "O":
        times = (cell for cell in cells.tolist() if isinstance(cell, datetime.datetime))
        return {time.tzinfo is not None for time in times if not is_missing(time)}
    return {False} if cells.dtype.kind == "M" and not np.isnat(cells).all() else set()


def _match_missing_times(sides: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """Convert sides of missing values alone to dates if other sides have dates."""
    empty = [side.dtype.kind in "fMm" and bool(np.isnan(side).all()) for side in sides]
    pairs = list(zip(sides, empty, strict=True))
    times = [side.dtype for side, is_empty in pairs if not is_empty and side.dtype.kind in "Mm"]
    if not times:
        return sides
    missing = np.array("NaT", dtype=times[0])
    return [np.full(len(side), missing) if is_empty else side for side, is_empty in pairs]


def _unbox(cells: NDArray[Any]) -> NDArray[Any]:
    """Convert an array of Python objects to one of numbers, dates or durations."""
    listed = [None if is_missing(cell) else cell for cell in cells.tolist()]
    known = [cell for cell in listed if cell is not None]
    if any(isinstance(cell, datetime.datetime) and cell.tzinfo for cell in known):
        # NumPy has no time zones, so times are converted to UTC.
        in_utc = [cell and cell.astimezone(datetime.UTC).replace(tzinfo=None) for cell in listed]
        return np.array(in_utc, "M8[us]")
    for kind, dtype in ((datetime.date, "M8[us]"), (datetime.timedelta, "m8[us]")):
        if any(isinstance(cell, kind) for cell in known):
            return np.array(listed, dtype=dtype)
    return np.array([np.nan if cell is None else float(cell) for cell in listed])


def _microseconds(times: NDArray[Any]) -> NDArray[np.int64]:
    return np.asarray(times[~np.isnat(times)].astype(f"{times.dtype.kind}8[us]").view("i8"))


def _times(sides: list[NDArray[Any]]) -> list[Floats]:
    missing_times = [np.isnat(side) for side in sides]
    since = [side.astype(f"{side.dtype.kind}8[us]").astype(np.int64) for side in sides]
    known = _microseconds(sides[0])
    first = known.min() if len(known) else np.int64(0)
    # Relative to the first one, microseconds of three centuries are exact as floats.
    return [
        np.where(missing, np.nan, (s - first).astype(np.float64))
        for missing, s in zip(missing_times, since, strict=True)
    ]


def _subtract_first(sides: list[NDArray[Any]]) -> list[Floats]:
    integral = all(side.dtype.kind in "iu" for side in sides)
    if (
        integral
        and max(abs(int(end)) for side in sides for end in (side.min(), side.max())) > MAX_EXACT
    ):
        # Large integers that differ by 1 may be the same float, but their differences are exact.
        first = int(sides[0].min())
        return [np.array([cell - first for cell in side.tolist()], dtype=float) for side in sides]
    return [side.astype(np.float64) for side in sides]


def numeric_column(
    position: int, sides: list[Floats], numbers: NumberSummary, scale: Scale, name: Any
) -> NumericColumn:
    """Scale a column by the summary of its training rows.

    ``sides`` are the rows in memory; training rows may be missing.
    """
    if numbers.count == 0:
        return NumericColumn(position, sides, 0.0, 0.0, 0.0)
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
    return NumericColumn(position, sides, weight, missing, max(largest, missing))


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


def encode_cells(numbers: dict[Any, int], cells: list[Any]) -> Codes:
    """Return the codes of cells; new categories get the next codes."""
    if any(type(cell) is datetime.date for cell in cells):
        # Some libraries convert dates to timestamps, which are not equal to dates.
        cells = [
            datetime.datetime.combine(cell, datetime.time())
            if type(cell) is datetime.date
            else cell
            for cell in cells
        ]
    return np.array(
        [MISSING if cell is None else numbers.setdefault(cell, len(numbers)) for cell in cells],
        dtype=np.int32,
    )


def categorical_column(position: int, sides: list[Codes], counts: list[int]) -> CategoricalColumn:
    """Scale a column by the number of training rows in each category."""
    n_known = sum(counts)
    if n_known == 0:
        return CategoricalColumn(position, sides, 0.0, 0.0, 0.0)
    n_pairs = n_known**2
    mismatch = float(Fraction(n_pairs - sum(count**2 for count in counts), n_pairs))
    # In a column that hardly varies, mismatches are rare and must not outweigh other columns.
    weight = min(_MEAN_DISTANCE / mismatch if mismatch > 0 else _MEAN_DISTANCE, FARTHEST)
    return CategoricalColumn(position, sides, weight, weight * mismatch, weight)


def _read_coded(
    distance: Distance, name: Any, position: int, sides: list[list[Any]]
) -> CodedColumn:
    counts = Counter(cell for cell in sides[0] if cell is not None)
    rows = list(counts)
    queries = list(dict.fromkeys(c for c in chain.from_iterable(sides[1:]) if c is not None))
    if len(rows) * max(len(rows), len(queries)) > _MAX_PAIRS:
        raise ValueError(
            f"column {name!r} must have at most {_MAX_PAIRS:,} pairs of distinct values for a "
            f"distance function, got {len(rows)} values in training rows and {len(queries)} in "
            "validation rows; round or group them."
        )
    share = np.array(list(counts.values())) / max(sum(counts.values()), 1)
    among = _pairwise(distance, rows, rows, name)
    mean = float(share @ among @ share) if rows else 0.0
    table = np.full((len(queries) + 1, len(rows) + 1), mean)
    table[:-1, :-1] = _pairwise(distance, queries, rows, name)
    positions = [dict(zip(side, range(len(side)), strict=True)) for side in (rows, queries)]
    codes = [
        np.array([positions[i > 0].get(c, len(positions[i > 0])) for c in side], dtype=np.int32)
        for i, side in enumerate(sides)
    ]
    return CodedColumn(
        position, codes, np.minimum(table, FARTHEST), float(min(table.max(), FARTHEST))
    )


def _pairwise(distance: Distance, ones: list[Any], others: list[Any], name: Any) -> Floats:
    try:
        table = np.array([[float(distance(a, b)) for b in others] for a in ones])
        valid = bool(np.isfinite(table).all() and (table >= 0).all())
    except (TypeError, ValueError):
        valid = False
    if not valid:
        raise ValueError(
            f"the distance function of column {name!r} must take two cells and return their "
            "squared distance, a finite number of at least 0; it fails or returns something else."
        )
    return table.reshape(len(ones), len(others))
