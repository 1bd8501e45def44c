"""Column: the one reader of a column: what its cells are, and the cells as numbers or codes."""

from __future__ import annotations

import datetime
import decimal
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import MISSING, Codes, ColumnType, Floats, Integers, Mask
from cellworth.data.text import shorten

# Mixed cells are Python objects of several types. Other cells, such as lists, have no distance.
Kind = Literal[
    "number", "date", "duration", "boolean", "text", "category", "mixed", "missing", "other"
]
# Integers up to here are exact in float64, so that 1 and 1.0 have the same hash.
MAX_EXACT = 2**53
# NumPy's representation of a missing date.
NO_TIME = np.iinfo(np.int64).min
_UNKNOWN = -2
# Arrow takes arrays of objects that are all strings.
_TYPES_OF_ARRAYS: dict[str, Kind] = {
    "b": "boolean", "i": "number", "u": "number", "f": "number", "M": "date", "m": "duration",
    "U": "text", "O": "text",
}  # fmt: skip
# The first that fits counts: a boolean is an integer, too.
_TYPES_OF_OBJECTS: tuple[tuple[Kind, tuple[type, ...]], ...] = (
    ("text", (str,)),
    ("boolean", (bool, np.bool_)),
    ("number", (numbers.Real, decimal.Decimal)),
    ("date", (datetime.date,)),
    ("duration", (datetime.timedelta,)),
    ("other", (list, dict, set, np.ndarray, bytes, bytearray, complex)),
)


@dataclass(frozen=True, eq=False)
class Column:
    """A column of a table in memory, or a part of one in a shard.

    Parameters
    ----------
    name : object
    cells : NumPy or Arrow array
        Missing cells are NaN, NaT, None or null.
    type_ : type of narwhals or Arrow, default=None
        What the data frame or the file says; None if it says nothing, as NumPy does.
    declared : {"numeric", "categorical"}, default=None
        What the user says, which overrides the kind.
    """

    name: Any
    cells: Any
    type_: Any = None
    declared: ColumnType | None = None

    @property
    def kind(self) -> Kind:
        """What the cells are."""
        return self._choice[0]

    @property
    def why(self) -> str:
        """What the kind follows from."""
        return self._choice[1]

    @property
    def is_time(self) -> bool:
        """Whether numbers are microseconds: of dates, since 1970, or of durations."""
        return self.kind in ("date", "duration")

    @property
    def is_quantity(self) -> bool:
        """Whether cells can be subtracted from each other."""
        return self.kind == "number" or self.is_time

    @cached_property
    def _choice(self) -> tuple[Kind, str]:
        kind, why = self._find_kind()
        if self.declared is None or kind in ("missing", "other"):
            return kind, why
        if self.declared == "categorical":
            return "category", "column_types"
        return (kind, why) if kind in ("date", "duration") else ("number", "column_types")

    def _find_kind(self) -> tuple[Kind, str]:
        why = f"cells of type {self.cells.dtype if self.type_ is None else self.type_}"
        if not isinstance(self.type_, nw.dtypes.DType | None):
            return find_kind_of_type(self.type_), why
        if isinstance(self.type_, nw.List | nw.Array | nw.Struct | nw.Binary):
            return "other", why
        if self.missing.all():
            return "missing", "no cells"
        if isinstance(self.type_, nw.Categorical | nw.Enum):
            return "category", why
        if self.cells.dtype.kind == "O" and self._arrow is None:
            return self._find_kind_of_objects()
        return _TYPES_OF_ARRAYS.get(self.cells.dtype.kind, "other"), why

    def _find_kind_of_objects(self) -> tuple[Kind, str]:
        types = {type(cell) for cell in list_cells(self.cells) if cell is not None}
        found_types: set[Kind] = {
            next(
                (kind for kind, known in _TYPES_OF_OBJECTS if issubclass(type_, known)), "category"
            )
            for type_ in types
        }
        why = f"cells of type {' and '.join(sorted(type_.__name__ for type_ in types))}"
        if "other" in found_types:
            return "other", why
        return (found_types.pop() if len(found_types) == 1 else "mixed"), why

    def check_comparable(self) -> None:
        """Raise TypeError if cells are neither numbers nor categories."""
        if self.kind == "other":
            raise TypeError(
                f"column {self.name!r} must have numbers, dates, strings or categories, got "
                f"{self.why}; drop it, or convert it to numbers or strings."
            )

    @cached_property
    def missing(self) -> Mask:
        """Which cells are missing."""
        code = self.cells.dtype.kind if isinstance(self.cells, np.ndarray) else "O"
        if code in "iub":
            return np.zeros(len(self.cells), dtype=bool)
        if code in "fMm":
            return np.asarray(np.isnan(self.cells))
        values, positions = self.distinct
        return np.array([*(value is None for value in values), True])[positions]

    @cached_property
    def objects(self) -> list[Any]:
        """The cells as Python objects, None if missing."""
        return list_cells(self.cells)

    @cached_property
    def distinct(self) -> tuple[list[Any], Integers]:
        """Values of the cells, and the position of each cell's value among them, -1 if missing.

        They are in order of first appearance. Those of an Arrow dictionary are in its own order;
        some may have no cell, or be missing, which is None.
        """
        from pyarrow import types

        cells = self._arrow
        if cells is None:
            return _find_distinct(list_cells(self.cells))
        if types.is_null(cells.type):
            return [], np.full(len(cells), MISSING)
        if not types.is_dictionary(cells.type):
            cells = cells.dictionary_encode()
        values = cells.dictionary
        if types.is_temporal(values.type) and not types.is_time(values.type):
            # Dates are midnights, timestamps are microseconds in UTC.
            return list_cells(values.to_numpy(zero_copy_only=False)), _read_indices(cells)
        listed = [None if is_missing(value) else value for value in values.to_pylist()]
        return listed, _read_indices(cells)

    @cached_property
    def _arrow(self) -> Any:
        """The cells as an Arrow array; None for Python objects other than strings."""
        import pyarrow as pa

        if not isinstance(self.cells, np.ndarray):
            return self.cells
        cells = _to_microseconds(self.cells)
        try:
            found = pa.array(cells, from_pandas=True)
        # Python objects of any types.
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            return None
        # Arrow would convert objects of several types to one of them, such as integers to floats.
        return found if isinstance(found, pa.StringArray) or cells.dtype.kind != "O" else None

    @cached_property
    def levels(self) -> tuple[Codes, list[str]]:
        """Code of each cell's text, -1 if missing, and the texts of codes in alphabetical order."""
        values, positions = self.distinct
        texts = [None if value is None else str(value) for value in values]
        names = sorted({text for text in texts if text is not None})
        codes = {name: code for code, name in enumerate(names)} | {None: MISSING}
        return np.array([*map(codes.get, texts), MISSING], dtype=np.int32)[positions], names

    @cached_property
    def numbers(self) -> NDArray[Any]:
        """The cells as floats, NaN if missing, or as integers; times as microseconds, NO_TIME."""
        if self.is_time:
            return self._read_times()
        if isinstance(self.cells, np.ndarray):
            if self.cells.dtype.kind in "iuf":
                return self.cells
        elif _is_plain_number(self.cells.type):
            return self._read_plain_numbers()
        values, positions = self.distinct
        try:
            floats = [np.nan if value is None else float(value) for value in values]
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(
                f"cells of column {self.name!r} must be numbers ({shorten(str(error))}); fix them, "
                f"or pass column_types={{{self.name!r}: 'categorical'}}."
            ) from error
        return np.array([*floats, np.nan])[positions]

    def _read_times(self) -> Integers:
        times = self.cells
        if not isinstance(times, np.ndarray):
            times = times.to_numpy(zero_copy_only=False)
        elif times.dtype.kind == "O":
            values, positions = self.distinct
            unit = "M8[us]" if self.kind == "date" else "m8[us]"
            times = np.array([*map(drop_zone, values), None], dtype=unit)[positions]
        return np.asarray(_to_microseconds(times).view(np.int64))

    def _read_plain_numbers(self) -> NDArray[Any]:
        cells = self.cells
        if not cells.null_count:
            return np.asarray(cells.to_numpy(zero_copy_only=False))
        self._check_size(cells.drop_null().to_numpy(zero_copy_only=False))
        # NumPy reads None as NaN.
        return np.asarray(cells.to_numpy(zero_copy_only=False), dtype=np.float64)

    @property
    def floats(self) -> Floats:
        """The numbers as floats, NaN if missing."""
        floats = self.numbers.astype(np.float64)
        if self.is_time:
            floats[self.numbers == NO_TIME] = np.nan
        return floats

    def read_part(self) -> NDArray[Any]:
        """Return numbers that do not depend on other parts of the column: floats or microseconds.

        Integers that are not exact as floats, and infinity, raise ValueError.
        """
        if self.is_time:
            return self.numbers
        self._check_size(self.numbers)
        return check_finite(self.floats, self.name)

    def _check_size(self, found: NDArray[Any]) -> None:
        if find_largest(found) > MAX_EXACT:
            raise ValueError(
                f"column {self.name!r} holds integers beyond 2**53, which are not exact as floats; "
                f"subtract a constant, leave it out with columns=, or pass "
                f"column_types={{{self.name!r}: 'categorical'}}."
            )

    @property
    def has_zone(self) -> set[bool]:
        """Whether timestamps have a time zone; an empty set if there are none."""
        if self.kind != "date":
            return set()
        if isinstance(self.cells, np.ndarray) and self.cells.dtype.kind == "O":
            moments = (cell for cell in self.objects if isinstance(cell, datetime.datetime))
            return {moment.tzinfo is not None for moment in moments}
        # In narwhals, and in Arrow.
        zones = (getattr(self.type_, name, None) for name in ("time_zone", "tz"))
        return {any(zone is not None for zone in zones)}


def find_common_kind(columns: Sequence[Column]) -> Kind:
    """Return the kind of one column of several tables; parts that are missing have any kind."""
    for column in columns:
        column.check_comparable()
    found = {column.kind: column for column in columns if column.kind != "missing"}
    # Parts of a mixed column may have cells of one kind by chance.
    if "mixed" in found or not any(column.is_quantity for column in found.values()):
        return "number" if columns[0].declared == "numeric" else "category"
    if len(found) > 1:
        listed = " and ".join(f"a {kind} ({column.why})" for kind, column in found.items())
        raise ValueError(
            f"column {columns[0].name!r} must have the same type in X and X_val, got {listed}; "
            f"convert one of them, or pass column_types={{{columns[0].name!r}: 'categorical'}}."
        )
    if len(set().union(*(column.has_zone for column in columns))) > 1:
        raise ValueError(
            f"timestamps of column {columns[0].name!r} must all have a time zone, or none of them, "
            "got both; add or remove time zones."
        )
    return next(iter(found))


def read_differences(columns: Sequence[Column]) -> tuple[list[Floats], NDArray[Any]]:
    """Return the numbers of one column of several tables as floats with exact differences.

    Also return the numbers of the first table to summarize: floats, or microseconds.
    """
    if any(column.is_time for column in columns):
        times = [
            column.numbers if column.is_time else np.full(len(column.cells), NO_TIME)
            for column in columns
        ]
        known = times[0][times[0] != NO_TIME]
        # Relative to the first one, microseconds of three centuries are exact as floats.
        first = known.min() if len(known) else np.int64(0)
        return [
            np.where(side == NO_TIME, np.nan, (side - first).astype(np.float64)) for side in times
        ], times[0]
    cells = [column.numbers for column in columns]
    are_integers = all(numbers.dtype.kind in "iu" for numbers in cells)
    if are_integers and max(map(find_largest, cells)) > MAX_EXACT:
        # Large integers that differ by 1 may be the same float, but their differences are exact.
        first = int(cells[0].min())
        cells = [
            np.array([cell - first for cell in numbers.tolist()], dtype=float) for numbers in cells
        ]
    cells = [check_finite(numbers.astype(np.float64), columns[0].name) for numbers in cells]
    return cells, cells[0]


def check_finite(numbers: Floats, name: Any) -> Floats:
    """Return the same numbers; infinity raises ValueError."""
    if np.isinf(numbers).any():
        raise ValueError(
            f"column {name!r} must be finite, got infinity; replace it by a number or a missing "
            "value."
        )
    return numbers


def is_missing(cell: Any) -> bool:
    """Return whether a label or cell is missing: None, NaN, NaT or pandas' NA."""
    if cell is None:
        return True
    try:
        differs = cell != cell  # noqa: PLR0124 (NaN and NaT differ from themselves; NA returns NA)
    # A signalling NaN.
    except decimal.InvalidOperation:
        return True
    if isinstance(differs, bool | np.bool_):
        return bool(differs)
    return not isinstance(cell, np.ndarray)


def list_cells(cells: NDArray[Any]) -> list[Any]:
    """Return cells as Python objects, None for missing values."""
    return [None if is_missing(cell) else cell for cell in _to_microseconds(cells).tolist()]


def drop_zone(time: Any) -> Any:
    """Convert a timestamp with a time zone to UTC: NumPy has no time zones."""
    if isinstance(time, datetime.datetime) and time.tzinfo:
        return time.astimezone(datetime.UTC).replace(tzinfo=None)
    return time


def object_array(cells: Sequence[Any]) -> NDArray[Any]:
    """Return Python objects as a one-dimensional array."""
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    return array


class Coder:
    """Assign codes to the distinct cells of a column, in order of first appearance.

    ``most`` is the largest number of distinct cells; 0 if all of them are in ``codes``.
    """

    def __init__(self, codes: dict[Any, int], most: float = 0, advice: str = "") -> None:
        self.codes = codes
        self._most, self._advice = most, advice
        self._before: Any = None
        self._lookup: Codes = np.empty(0, dtype=np.int32)

    def read(self, column: Column) -> tuple[Codes, Integers]:
        """Return the codes of one part, and the positions where new cells first appear in it."""
        values, positions = self._translate(column)
        codes = self._lookup[positions]
        new = np.flatnonzero(codes == _UNKNOWN)
        if len(new) == 0:
            return codes, new
        distinct, firsts = np.unique(positions[new], return_index=True)
        order = np.argsort(firsts)
        if self._most == 0:
            raise ValueError(
                f"column {column.name!r} holds cells that it did not hold before: the files were "
                "changed while they were read; run the same call again."
            )
        if len(self.codes) + len(distinct) > self._most:
            raise ValueError(
                f"column {column.name!r} has more than {self._most} different cells, {self._advice}"
            )
        seen = []
        firsts = new[firsts[order]]
        for position, first in zip(distinct[order].tolist(), firsts.tolist(), strict=True):
            # Arrow distinguishes 0.0 and -0.0; cellworth does not.
            if values[position] not in self.codes:
                seen.append(first)
            self._lookup[position] = self.codes.setdefault(values[position], len(self.codes))
        return self._lookup[positions], np.array(seen, dtype=np.int64)

    def _translate(self, column: Column) -> tuple[list[Any], Integers]:
        dictionary = getattr(column.cells, "dictionary", None)
        if dictionary is not None and self._before is not None:
            values, before = self._before
            if dictionary.equals(before):
                return values, _read_indices(column.cells)
        values, positions = column.distinct
        known = [MISSING if v is None else self.codes.get(v, _UNKNOWN) for v in values]
        self._lookup = np.array([*known, MISSING], dtype=np.int32)
        self._before = None if dictionary is None else (values, dictionary)
        return values, positions


def find_kind_of_type(type_: Any) -> Kind:
    """Return what cells of an Arrow type are."""
    from pyarrow import types

    checks: tuple[tuple[Kind, Callable[[Any], bool]], ...] = (
        ("other", types.is_nested),
        ("other", types.is_interval),
        ("other", is_bytes),
        ("missing", types.is_null),
        ("date", types.is_date),
        ("date", types.is_timestamp),
        ("duration", types.is_duration),
        ("boolean", types.is_boolean),
        ("number", _is_plain_number),
        ("number", types.is_decimal),
        ("text", is_text),
    )
    return next((kind for kind, fits in checks if fits(type_)), "category")


def _is_plain_number(type_: Any) -> bool:
    from pyarrow import types

    return bool(types.is_integer(type_) or types.is_floating(type_) or types.is_boolean(type_))


def is_text(type_: Any) -> bool:
    """Tell whether cells of an Arrow type are strings."""
    from pyarrow import types

    return bool(types.is_string(type_) or types.is_large_string(type_)) or "view" in str(type_)


def is_bytes(type_: Any) -> bool:
    """Tell whether cells of an Arrow type are bytes, of any length or of one."""
    from pyarrow import types

    return bool(
        types.is_binary(type_) or types.is_large_binary(type_) or types.is_fixed_size_binary(type_)
    ) and not types.is_decimal(type_)


def _find_distinct(cells: list[Any]) -> tuple[list[Any], Integers]:
    """Return the distinct objects of a column, and the position of each cell among them."""
    # Some libraries convert dates to timestamps, which are not equal to dates.
    cells = [
        datetime.datetime.combine(cell, datetime.time()) if type(cell) is datetime.date else cell
        for cell in cells
    ]
    try:
        known = dict.fromkeys(cell for cell in cells if cell is not None)
    # Lists and the like cannot be keys.
    except TypeError:
        return _find_distinct([None if cell is None else repr(cell) for cell in cells])
    codes = {None: MISSING} | {cell: code for code, cell in enumerate(known)}
    return list(known), np.array([codes[cell] for cell in cells], dtype=np.int64)


def _to_microseconds(cells: NDArray[Any]) -> NDArray[Any]:
    # tolist turns nanoseconds into integers, but microseconds into dates.
    return cells.astype(f"{cells.dtype.kind}8[us]") if cells.dtype.kind in "Mm" else cells


def _read_indices(cells: Any) -> Integers:
    positions: Integers = cells.indices.cast("int32").fill_null(-1).to_numpy(zero_copy_only=False)
    return positions


def find_largest(found: NDArray[Any]) -> int:
    """Return the largest absolute integer; 0 for floats."""
    if found.dtype.kind not in "iu" or not len(found):
        return 0
    return max(-int(found.min()), int(found.max()))
