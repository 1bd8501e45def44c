"""What a raw column is: numbers, categories or values with a distance of their own."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, get_args

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from cellworth.blocks import some
from cellworth.tables import Table

Floats = NDArray[np.float64]
Codes = NDArray[np.int32]
Kind = Literal["numeric", "categorical"]
Scale = Literal["robust", "std"] | None
Distance = Callable[[Any, Any], float]

GAP = -1
# No column counts more than this: a thousand spreads away is simply far, and whole numbers that
# must hold larger distances would have no digits left for small ones.
FARTHEST = 1e6
# Mean distance of two rows in a column of unit variance; categories are scaled to it.
_MEAN_DISTANCE = 2.0
_MOST_PAIRS = 2**24
# Quantiles that tell a spread, and how far they are apart in a standard normal distribution.
_SPREADS = ((25, 75, 1.349), (5, 95, 3.290), (1, 99, 4.653))


@dataclass(frozen=True, eq=False)
class NumericColumn:
    """Numbers; squared differences count ``weight``, gaps count ``gap``, at most ``largest``."""

    place: int
    cells: list[Floats]
    weight: float
    gap: float
    largest: float


@dataclass(frozen=True, eq=False)
class CategoricalColumn:
    """Codes of categories; a mismatch counts ``weight``, a gap ``gap``."""

    place: int
    cells: list[Codes]
    weight: float
    gap: float
    largest: float


@dataclass(frozen=True, eq=False)
class CodedColumn:
    """Codes of distinct values, and a table of their distances; gaps stand last in it."""

    place: int
    cells: list[Codes]
    table: Floats
    largest: float


def checked_kinds(
    kinds: Mapping[Any, Kind | Distance] | None, table: Table
) -> dict[Any, Kind | Distance]:
    """Refuse what is no mapping from columns to kinds or distances."""
    if kinds is None:
        return {}
    if not isinstance(kinds, Mapping):
        raise TypeError(
            f"kinds is of type {type(kinds).__name__}; give a mapping such as "
            '{"postcode": "categorical"}.'
        )
    for name, kind in kinds.items():
        if name not in table.names.tolist():
            raise ValueError(
                f"kinds names the column {name!r}, which X does not have; "
                f"its columns are {some(table.names)}."
            )
        if not callable(kind) and kind not in get_args(Kind):
            raise ValueError(
                f"kinds has {kind!r} for column {name!r}; give 'numeric', 'categorical' or a "
                "function of two cells that returns their squared distance."
            )
    return dict(kinds)


def read_column(
    place: int, sides: Sequence[Table], kind: Kind | Distance | None, scale: Scale
) -> NumericColumn | CategoricalColumn | CodedColumn:
    """Read one column of a training table and of query tables."""
    name = sides[0].names.tolist()[place]
    cells = [side.column(place) for side in sides]
    if callable(kind):
        return _coded(kind, name, place, [side.tolist() for side in cells])
    guesses = {
        _kind(side.dtype(place), array, name) for side, array in zip(sides, cells, strict=True)
    }
    # A column of numbers on one side and text on the other has categories in common at best.
    guess = kind or ("numeric" if guesses == {"numeric"} else "categorical")
    if guess == "categorical":
        return _categorical(place, [side.tolist() for side in cells])
    return _numeric(place, [_numbers(side, name) for side in cells], scale)


def _kind(dtype: nw.dtypes.DType | None, cells: NDArray[Any], name: Any) -> Kind:
    if isinstance(dtype, nw.Categorical | nw.Enum | nw.String | nw.Boolean):
        return "categorical"
    if isinstance(dtype, nw.List | nw.Array | nw.Struct | nw.Binary):
        raise TypeError(
            f"column {name!r} holds cells of type {dtype}, which have no distance; drop it, "
            "or pass a function of two cells in kinds."
        )
    if cells.dtype.kind in "iufMm":
        return "numeric"
    if cells.dtype.kind != "O":
        return "categorical"
    known = [cell for cell in cells.tolist() if not _is_gap(cell)]
    return "numeric" if known and all(map(_is_quantity, known)) else "categorical"


def _is_quantity(cell: Any) -> bool:
    quantities = (int, float, decimal.Decimal, np.number, datetime.date, datetime.timedelta)
    return isinstance(cell, quantities) and not isinstance(cell, bool)


def _is_gap(cell: Any) -> bool:
    return cell is None or cell != cell  # noqa: PLR0124 (NaN and NaT)


def _numbers(cells: NDArray[Any], name: Any) -> Floats:
    if cells.dtype.kind == "O":
        cells = _unboxed(cells, name)
    if cells.dtype.kind in "Mm":
        gaps = np.isnat(cells)
        since = cells.astype(f"{cells.dtype.kind}8[us]").astype(np.int64)
        return np.where(gaps, np.nan, since.astype(np.float64))
    try:
        numbers: Floats = cells.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"column {name!r} is to be numeric but holds other cells ({error}); "
            "mend them or leave it out of kinds."
        ) from error
    if np.isinf(numbers).any():
        raise ValueError(f"column {name!r} holds infinity, which is no distance from anything.")
    return numbers


def _unboxed(cells: NDArray[Any], name: Any) -> NDArray[Any]:
    """Turn an array of Python objects into one of numbers, dates or durations."""
    known = [cell for cell in cells.tolist() if not _is_gap(cell)]
    if any(isinstance(cell, datetime.datetime) and cell.tzinfo for cell in known):
        return np.array([np.nan if _is_gap(c) else c.timestamp() * 1e6 for c in cells.tolist()])
    if any(isinstance(cell, datetime.date) for cell in known):
        return np.array([None if _is_gap(c) else c for c in cells.tolist()], dtype="M8[us]")
    if any(isinstance(cell, datetime.timedelta) for cell in known):
        return np.array([None if _is_gap(c) else c for c in cells.tolist()], dtype="m8[us]")
    try:
        return np.array([np.nan if _is_gap(c) else float(c) for c in cells.tolist()])
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"column {name!r} is to be numeric but holds other cells ({error}); "
            "mend them or leave it out of kinds."
        ) from error


def _numeric(place: int, sides: list[Floats], scale: Scale) -> NumericColumn:
    known = sides[0][~np.isnan(sides[0])]
    if len(known) == 0:
        return NumericColumn(place, sides, 0.0, 0.0, 0.0)
    weight = 1.0 / _spread(known, scale) ** 2
    # Two random rows differ by twice the variance, in the mean of squares.
    gap = min(_MEAN_DISTANCE * float(np.var(known)) * weight, FARTHEST)
    everyone = np.concatenate(sides)
    reach = float(np.nanmax(everyone) - np.nanmin(everyone))
    largest = min(reach * reach * weight, FARTHEST)
    return NumericColumn(place, sides, weight, gap, max(largest, gap))


def _spread(known: Floats, scale: Scale) -> float:
    if scale == "robust":
        for low, high, of_normal in _SPREADS:
            # Half the rows may have the same value; then wider quantiles tell the spread.
            below, above = np.percentile(known, (low, high))
            if above > below:
                return float(above - below) / of_normal
    spread = 1.0 if scale is None else float(np.std(known))
    return spread if spread > 0 else 1.0


def _categorical(place: int, sides: list[list[Any]]) -> CategoricalColumn:
    numbers: dict[Any, int] = {}
    codes = [
        np.array(
            [GAP if _is_gap(cell) else numbers.setdefault(cell, len(numbers)) for cell in cells],
            dtype=np.int32,
        )
        for cells in sides
    ]
    known = codes[0][codes[0] != GAP]
    shares = np.sort(np.bincount(known)) / max(len(known), 1)
    mismatch = 1.0 - float(shares @ shares)
    if len(known) == 0:
        return CategoricalColumn(place, codes, 0.0, 0.0, 0.0)
    # A mismatch is rare in a column that hardly varies, and must not outweigh all others.
    weight = min(_MEAN_DISTANCE / mismatch if mismatch > 0 else _MEAN_DISTANCE, FARTHEST)
    return CategoricalColumn(place, codes, weight, weight * mismatch, weight)


def _coded(distance: Distance, name: Any, place: int, sides: list[list[Any]]) -> CodedColumn:
    rows, asked = (
        list(dict.fromkeys(cell for cell in cells if not _is_gap(cell)))
        for cells in (sides[0], chain.from_iterable(sides[1:]))
    )
    if len(rows) * max(len(rows), len(asked)) > _MOST_PAIRS:
        raise ValueError(
            f"column {name!r} has {len(rows)} distinct values, too many for a distance of its own; "
            "round or group them."
        )
    counts = dict.fromkeys(rows, 0)
    for cell in sides[0]:
        if not _is_gap(cell):
            counts[cell] += 1
    share = np.array(list(counts.values())) / max(sum(counts.values()), 1)
    among = _pairwise(distance, rows, rows, name)
    mean = float(share @ among @ share) if rows else 0.0
    table = np.full((len(asked) + 1, len(rows) + 1), mean)
    table[:-1, :-1] = _pairwise(distance, asked, rows, name)
    places = [dict(zip(side, range(len(side)), strict=True)) for side in (rows, asked)]
    codes = [
        np.array([places[i > 0].get(c, len(places[i > 0])) for c in side], dtype=np.int32)
        for i, side in enumerate(sides)
    ]
    return CodedColumn(place, codes, np.minimum(table, FARTHEST), float(min(table.max(), FARTHEST)))


def _pairwise(distance: Distance, ones: list[Any], others: list[Any], name: Any) -> Floats:
    table = np.array([[distance(a, b) for b in others] for a in ones], dtype=np.float64)
    if not (np.isfinite(table).all() and (table >= 0).all()):
        raise ValueError(
            f"the distance given for column {name!r} returns values below 0 or not finite; it must "
            "return a squared distance."
        )
    return table.reshape(len(ones), len(others))
