"""Columns as numbers or categories, scaled for distances."""

from __future__ import annotations

import datetime
import decimal
import math
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
    ColumnTypes,
    Distance,
    Floats,
    Kind,
    Labels,
    Scale,
)
from cellworth.data.blocks import is_missing, some
from cellworth.data.statistics import NumberSummary
from cellworth.data.tables import LARGEST_EXACT, Table

# No column counts more than this: a thousand spreads away is simply far, and integers that
# must hold larger distances would have no digits left for small ones.
FARTHEST = 1e6
# Mean distance of two rows in a column of unit variance; categories are scaled to it.
_MEAN_DISTANCE = 2.0
_MOST_PAIRS = 2**24
_NESTED = (list, dict, set, np.ndarray)
_NARROWEST = 1e-100
# Quantiles that tell a spread, and how far they are apart in a standard normal distribution.
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
) -> dict[Any, Kind | Distance]:
    """Refuse what is no mapping from columns to column_types or distances."""
    if column_types is None:
        return {}
    if not isinstance(column_types, Mapping):
        raise TypeError(
            f"column_types is of type {type(column_types).__name__}; give a mapping such as "
            '{"postcode": "categorical"}.'
        )
    for name, kind in column_types.items():
        if name not in names.tolist():
            raise ValueError(
                f"column_types names the column {name!r}, which X does not have; "
                f"its columns are {some(names)}."
            )
        if not callable(kind) and kind not in get_args(Kind):
            raise ValueError(
                f"column_types has {kind!r} for column {name!r}; give 'numeric', 'categorical' or "
                "a function of two cells that returns their squared distance."
            )
    return dict(column_types)


def read_column(
    position: int, sides: Sequence[Table], kind: Kind | Distance | None, scale: Scale
) -> NumericColumn | CategoricalColumn | CodedColumn:
    """Read one column of a training table and of query tables."""
    name = sides[0].names.tolist()[position]
    cells = [side.column(position) for side in sides]
    if callable(kind):
        return _read_coded(kind, name, position, [list_cells(side, name) for side in cells])
    dtypes = [side.dtype(position) for side in sides]
    guess = kind or infer_column_type(dtypes, cells, name)
    if guess == "categorical":
        return _read_categorical(position, [list_cells(side, name) for side in cells])
    check_time_zones(set().union(*map(find_time_zones, dtypes, cells)), name)
    numbers, known = to_comparable_floats(cells, name)
    return numeric_column(position, numbers, NumberSummary.from_cells(known), scale, name)


def infer_column_type(
    dtypes: list[nw.dtypes.DType | None],
    cells: list[NDArray[Any]],
    name: Any,
    beside: Kind | None = None,
) -> Kind:
    """Return the type that all sides agree on; a side of missing values alone has no say.

    ``beside`` is the kind of another side, where that is known already.
    """
    found_types: set[Kind] = set() if beside is None else {beside}
    objects: list[Any] = []
    for dtype, array in zip(dtypes, cells, strict=True):
        kind = _kind(dtype, array, name)
        if kind is None:
            objects += [cell for cell in array.tolist() if not is_missing(cell)]
        elif kind not in found_types and not all(map(is_missing, array.tolist())):
            found_types.add(kind)
    if objects:
        # Python objects tell by their content, all sides together: a part may be numbers by chance.
        found_types.add("numeric" if all(map(_is_quantity, objects)) else "categorical")
    if len(found_types) > 1:
        raise ValueError(
            f"column {name!r} holds numbers in one of X and X_val and text or categories in the "
            f"other; give both the same type, or pass column_types={{{name!r}: 'categorical'}}."
        )
    return "numeric" if "numeric" in found_types else "categorical"


def _kind(dtype: nw.dtypes.DType | None, cells: NDArray[Any], name: Any) -> Kind | None:
    """Kind that a type tells; None for Python objects, which may be anything."""
    if isinstance(dtype, nw.Categorical | nw.Enum | nw.String | nw.Boolean):
        return "categorical"
    if isinstance(dtype, nw.List | nw.Array | nw.Struct | nw.Binary) or cells.dtype.kind == "c":
        raise TypeError(
            f"column {name!r} holds cells of type {dtype or cells.dtype}, which have no distance; "
            "drop it, or make numbers or text of it."
        )
    if cells.dtype.kind in "iufMm":
        return "numeric"
    return None if cells.dtype.kind == "O" else "categorical"


def _is_quantity(cell: Any) -> bool:
    quantities = (int, float, decimal.Decimal, np.number, datetime.date, datetime.timedelta)
    return isinstance(cell, quantities) and not isinstance(cell, bool)


def list_cells(cells: NDArray[Any], name: Any) -> list[Any]:
    """Cells as Python objects that can be compared, with None for missing values."""
    if cells.dtype.kind in "Mm":
        # Nanoseconds would come as integers, microseconds as dates.
        cells = cells.astype(f"{cells.dtype.kind}8[us]")
    listed = cells.tolist()
    nested = next((cell for cell in listed if isinstance(cell, _NESTED)), None)
    if nested is not None:
        raise TypeError(
            f"column {name!r} holds the cell {some([nested])}, which cannot be compared; drop the "
            "column, or make numbers or text of it."
        )
    return [None if is_missing(cell) else cell for cell in listed]


def to_comparable_floats(sides: list[NDArray[Any]], name: Any) -> tuple[list[Floats], NDArray[Any]]:
    """All sides of a column as floats that can be subtracted from each other.

    Also what there is to summarise of the first side: floats, or known microseconds.
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
            f"column {name!r} is to be numeric but holds other cells ({error}); fix them, or "
            f"pass column_types={{{name!r}: 'categorical'}}."
        ) from error
    if any(np.isinf(side).any() for side in numbers):
        raise ValueError(
            f"column {name!r} holds infinity, which is at no distance from anything; replace it by "
            "a number or missing."
        )
    return numbers, known


def check_time_zones(zoned: set[bool], name: Any) -> None:
    """Check that either all timestamps have a time zone or none has."""
    if len(zoned) > 1:
        raise ValueError(
            f"column {name!r} holds moments with a time zone and moments without one, whose "
            "distances are not known; give all of them a time zone, or none."
        )


def find_time_zones(dtype: nw.dtypes.DType | None, cells: NDArray[Any]) -> set[bool]:
    """Whether moments have a time zone; nothing where there are no moments."""
    if isinstance(dtype, nw.Datetime):
        return set() if all(map(is_missing, cells.tolist())) else {dtype.time_zone is not None}
    if cells.dtype.kind == "O":
        moments = (cell for cell in cells.tolist() if isinstance(cell, datetime.datetime))
        return {moment.tzinfo is not None for moment in moments if not is_missing(moment)}
    return {False} if cells.dtype.kind == "M" and not np.isnat(cells).all() else set()


def _match_missing_times(sides: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """Sides of missing values alone become dates where other sides hold dates."""
    bare = [side.dtype.kind in "fMm" and bool(np.isnan(side).all()) for side in sides]
    times = [
        side.dtype
        for side, is_missing_side in zip(sides, bare, strict=True)
        if not is_missing_side and side.dtype.kind in "Mm"
    ]
    if not times:
        return sides
    missing = np.array("NaT", dtype=times[0])
    return [
        np.full(len(s), missing) if is_missing_side else s
        for s, is_missing_side in zip(sides, bare, strict=True)
    ]


def _unbox(cells: NDArray[Any]) -> NDArray[Any]:
    """Turn an array of Python objects into one of numbers, dates or durations."""
    listed = [None if is_missing(cell) else cell for cell in cells.tolist()]
    known = [cell for cell in listed if cell is not None]
    if any(isinstance(cell, datetime.datetime) and cell.tzinfo for cell in known):
        # NumPy knows no time zones; moments are those of Greenwich.
        return np.array(
            [None if cell is None else _in_greenwich(cell) for cell in listed], "M8[us]"
        )
    for kind, dtype in ((datetime.date, "M8[us]"), (datetime.timedelta, "m8[us]")):
        if any(isinstance(cell, kind) for cell in known):
            return np.array(listed, dtype=dtype)
    return np.array([np.nan if cell is None else float(cell) for cell in listed])


def _in_greenwich(moment: datetime.datetime) -> datetime.datetime:
    return moment.astimezone(datetime.UTC).replace(tzinfo=None)


def _microseconds(times: NDArray[Any]) -> NDArray[np.int64]:
    known: NDArray[np.int64] = times[~np.isnat(times)].astype(f"{times.dtype.kind}8[us]").view("i8")
    return known


def _times(sides: list[NDArray[Any]]) -> list[Floats]:
    missing_times = [np.isnat(side) for side in sides]
    since = [side.astype(f"{side.dtype.kind}8[us]").astype(np.int64) for side in sides]
    known = _microseconds(sides[0])
    first = known.min() if len(known) else np.int64(0)
    # Counted from the first one, microseconds of three centuries are exact as floats.
    return [
        np.where(missing, np.nan, (s - first).astype(np.float64))
        for missing, s in zip(missing_times, since, strict=True)
    ]


def _subtract_first(sides: list[NDArray[Any]]) -> list[Floats]:
    integral = all(side.dtype.kind in "iu" for side in sides)
    if (
        integral
        and max(abs(int(end)) for side in sides for end in (side.min(), side.max())) > LARGEST_EXACT
    ):
        # Neighbouring large numbers would be the same float; their differences are not.
        first = int(sides[0].min())
        return [np.array([cell - first for cell in side.tolist()], dtype=float) for side in sides]
    return [side.astype(np.float64) for side in sides]


def numeric_column(
    position: int, sides: list[Floats], numbers: NumberSummary, scale: Scale, name: Any
) -> NumericColumn:
    """Scale a column by the summary of its training rows.

    ``sides`` are all rows that are held, of training and of queries; training rows may be absent.
    """
    if numbers.count == 0:
        return NumericColumn(position, sides, 0.0, 0.0, 0.0)
    scale_length = _compute_scale(numbers, scale)
    if not _NARROWEST < scale_length < 1 / _NARROWEST:
        raise ValueError(
            f"column {name!r} has a scale of {scale_length:.1g}, whose square is no number; "
            "rescale it."
        )
    weight = 1.0 / scale_length**2
    # Two random rows differ by twice the variance, in the mean of squares.
    missing = min(_MEAN_DISTANCE * numbers.variance() * weight, FARTHEST)
    # Plain floats, whose products may be endless without a word.
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
    """Spread of numbers that a few far-off ones do not change; 0 where quantiles are all equal."""
    return _between_quantiles(NumberSummary.from_cells(known))


def _between_quantiles(numbers: NumberSummary) -> float:
    for low, high, of_normal in _QUANTILES:
        # Half the rows may have the same value; then wider quantiles tell the spread.
        below, above = numbers.percentile(low), numbers.percentile(high)
        if above > below:
            return (above - below) / of_normal
    return 0.0


def _read_categorical(position: int, sides: list[list[Any]]) -> CategoricalColumn:
    numbers: dict[Any, int] = {}
    codes = [encode_cells(numbers, cells) for cells in sides]
    known = codes[0][codes[0] != MISSING]
    return categorical_column(position, codes, np.bincount(known).tolist())


def encode_cells(numbers: dict[Any, int], cells: list[Any]) -> Codes:
    """Codes of cells; a category that has none yet gets the next one."""
    if any(type(cell) is datetime.date for cell in cells):
        # Some libraries make moments of days, and a moment equals no day.
        cells = [_midnight(cell) if type(cell) is datetime.date else cell for cell in cells]
    return np.array(
        [MISSING if cell is None else numbers.setdefault(cell, len(numbers)) for cell in cells],
        dtype=np.int32,
    )


def _midnight(day: datetime.date) -> datetime.datetime:
    return datetime.datetime.combine(day, datetime.time())


def categorical_column(position: int, sides: list[Codes], counts: list[int]) -> CategoricalColumn:
    """Scale a column by how many training rows each category has."""
    n_known = sum(counts)
    if n_known == 0:
        return CategoricalColumn(position, sides, 0.0, 0.0, 0.0)
    n_pairs = n_known**2
    mismatch = float(Fraction(n_pairs - sum(count**2 for count in counts), n_pairs))
    # A mismatch is rare in a column that hardly varies, and must not outweigh all others.
    weight = min(_MEAN_DISTANCE / mismatch if mismatch > 0 else _MEAN_DISTANCE, FARTHEST)
    return CategoricalColumn(position, sides, weight, weight * mismatch, weight)


def _read_coded(
    distance: Distance, name: Any, position: int, sides: list[list[Any]]
) -> CodedColumn:
    rows, asked = (
        list(dict.fromkeys(cell for cell in cells if cell is not None))
        for cells in (sides[0], chain.from_iterable(sides[1:]))
    )
    if len(rows) * max(len(rows), len(asked)) > _MOST_PAIRS:
        raise ValueError(
            f"column {name!r} has {len(rows)} distinct values, too many for a distance of its own; "
            "round or group them."
        )
    counts = dict.fromkeys(rows, 0)
    for cell in sides[0]:
        if cell is not None:
            counts[cell] += 1
    share = np.array(list(counts.values())) / max(sum(counts.values()), 1)
    among = _pairwise(distance, rows, rows, name)
    mean = float(share @ among @ share) if rows else 0.0
    table = np.full((len(asked) + 1, len(rows) + 1), mean)
    table[:-1, :-1] = _pairwise(distance, asked, rows, name)
    positions = [dict(zip(side, range(len(side)), strict=True)) for side in (rows, asked)]
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
        right = bool(np.isfinite(table).all() and (table >= 0).all())
    except (TypeError, ValueError):
        right = False
    if not right:
        raise ValueError(
            f"the distance given for column {name!r} fails or returns what is no number of at "
            "least 0; it must take two cells and return their squared distance."
        )
    return table.reshape(len(ones), len(others))
