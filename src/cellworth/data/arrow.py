"""Arrow columns: types that files agree on, and how each type is read as a NumPy array."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import MISSING, Codes, ColumnType, Floats, Integers
from cellworth.data.blocks import is_missing
from cellworth.data.tables import MAX_EXACT

if TYPE_CHECKING:
    import pyarrow as pa

# How a column is read: as floats, as microseconds, with float() of each cell, or as codes.
Encoding = Literal["floats", "times", "parsed", "codes"]
# NumPy's representation of a missing date.
NO_TIME = np.iinfo(np.int64).min
_UNKNOWN = -2


def read_floats(cells: pa.Array, name: str) -> Floats:
    """Return numbers or booleans as floats, NaN where missing; infinity raises ValueError."""
    from pyarrow import types

    if types.is_null(cells.type):
        return np.full(len(cells), np.nan)
    missing = cells.is_null().to_numpy(zero_copy_only=False) if cells.null_count else None
    known = (
        cells if missing is None else cells.fill_null(False if types.is_boolean(cells.type) else 0)
    )
    raw = known.to_numpy(zero_copy_only=False)
    if raw.dtype.kind in "iu" and raw.itemsize == 8:
        _check_size(raw, name)
    floats: Floats = raw.astype(np.float64)
    if missing is not None:
        floats[missing] = np.nan
    _check_finite(floats, name)
    return floats


def read_times(cells: pa.Array, _name: str) -> Integers:
    """Return dates, timestamps or durations as microseconds, NO_TIME where missing."""
    from pyarrow import types

    if types.is_null(cells.type):
        return np.full(len(cells), NO_TIME)
    times = cells.to_numpy(zero_copy_only=False)
    micros: Integers = times.astype(f"{times.dtype.kind}8[us]").view(np.int64)
    return micros


def read_parsed(cells: pa.Array, name: str) -> Floats:
    """Return ``float()`` of each cell, NaN where missing; infinity raises ValueError."""
    values, positions = _find_distinct(cells)
    try:
        numbers = [np.nan if value is None else float(value) for value in values]
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"column {name!r} must be numeric, got other cells ({error}); fix them, or "
            f"pass column_types={{{name!r}: 'categorical'}}."
        ) from error
    floats = np.array([*numbers, np.nan])[positions]
    _check_finite(floats, name)
    return floats


READERS: dict[Encoding, Callable[[Any, str], NDArray[Any]]] = {
    "floats": read_floats,
    "times": read_times,
    "parsed": read_parsed,
}


def choose_encoding(type_: pa.DataType, kind: ColumnType | None, name: str) -> Encoding:
    """Choose how to read a column, given the column type that the user declared, if any."""
    from pyarrow import types

    if _is_incomparable(type_):
        raise TypeError(
            f"column {name!r} holds cells of type {type_}, which have no distance; drop it, or "
            "convert it to numbers or strings."
        )
    if types.is_date(type_) or types.is_timestamp(type_) or types.is_duration(type_):
        return "codes" if kind == "categorical" else "times"
    if types.is_integer(type_) or types.is_floating(type_):
        return "codes" if kind == "categorical" else "floats"
    if kind == "numeric":
        return "floats" if types.is_boolean(type_) or types.is_null(type_) else "parsed"
    return "parsed" if types.is_decimal(type_) and kind is None else "codes"


def find_common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return a type that holds the cells of both types; None if there is none.

    The cast itself checks that no cell is lost, such as an integer beyond 2**53 among floats.
    """
    import pyarrow as pa
    from pyarrow import types

    pair = [one, other]
    if types.is_dictionary(one) != types.is_dictionary(other):
        pair = [decode_type(each) for each in pair]
    # Arrow itself merges neither views, nor dates with timestamps, nor zones.
    pair = [pa.large_string() if "view" in str(each) else each for each in pair]
    moments = [each for each in pair if types.is_timestamp(each)]
    if len({each.tz for each in moments} - {None}) > 1:
        pair = [pa.timestamp(each.unit, "UTC") for each in moments]
    elif moments:
        pair = [pa.timestamp(moments[0].unit) if types.is_date(each) else each for each in pair]
    schemas = [pa.schema([("", each)]) for each in pair]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").types[0]
    except pa.ArrowTypeError:
        return None


def _is_text(type_: pa.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_string(type_) or types.is_large_string(type_)) or "view" in str(type_)


def decode_type(type_: pa.DataType) -> pa.DataType:
    """Return the type of the cells of a dictionary; other types are unchanged."""
    from pyarrow import types

    return type_.value_type if types.is_dictionary(type_) else type_


def cast_cells(cells: pa.Array, field: pa.Field, address: str) -> pa.Array:
    """Cast the cells of a file to the type that all files agree on, if that loses nothing."""
    import pyarrow as pa

    own, wanted = decode_type(cells.type), decode_type(field.type)
    if own == wanted or (_is_text(own) and _is_text(wanted)):
        # Dictionaries and strings are read alike.
        return cells
    try:
        return cells.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(
            f"{address} holds {own} in column {field.name!r}, which does not fit into {wanted}, "
            f"the type for all files ({error}); write all files with the same types."
        ) from error


def check_has_labels(type_: pa.DataType, target: str) -> None:
    """Check that the cells of the target can be labels."""
    from pyarrow import types

    if _is_incomparable(type_.value_type if types.is_dictionary(type_) else type_):
        raise TypeError(
            f"the target {target!r} must hold strings, numbers, booleans or dates as "
            f"labels, got {type_}; give another target, or convert it."
        )


class Coder:
    """Assign codes to the distinct cells of a column, in order of first appearance.

    ``most`` is the largest number of distinct cells; None if all of them are in ``codes``.
    """

    def __init__(self, codes: dict[Any, int], most: int | None = None, advice: str = "") -> None:
        self.codes = codes
        self._most, self._advice = most, advice
        self._before: Any = None
        self._lookup: Codes = np.empty(0, dtype=np.int32)

    def read(self, cells: pa.Array, name: str) -> tuple[Codes, Integers]:
        """Return the codes of one batch, and the positions where new cells first appear in it."""
        values, positions = self._translate(cells)
        codes = self._lookup[positions]
        new = np.flatnonzero(codes == _UNKNOWN)
        if len(new) == 0:
            return codes, new
        distinct, firsts = np.unique(positions[new], return_index=True)
        order = np.argsort(firsts)
        self._check_count(len(self.codes) + len(distinct), name)
        seen = []
        for position, first in zip(distinct[order], new[firsts[order]], strict=True):
            # Arrow distinguishes 0.0 and -0.0; cellworth does not.
            if values[position] not in self.codes:
                seen.append(first)
            self._lookup[position] = self.codes.setdefault(values[position], len(self.codes))
        return self._lookup[positions], np.array(seen, dtype=np.int64)

    def _translate(self, cells: pa.Array) -> tuple[list[Any], Integers]:
        from pyarrow import types

        if types.is_dictionary(cells.type) and self._before is not None:
            values, dictionary = self._before
            if cells.dictionary.equals(dictionary):
                return values, _read_indices(cells)
        values, positions = _find_distinct(cells)
        known = [MISSING if v is None else self.codes.get(v, _UNKNOWN) for v in values]
        self._lookup = np.array([*known, MISSING], dtype=np.int32)
        self._before = (values, cells.dictionary) if types.is_dictionary(cells.type) else None
        return values, positions

    def _check_count(self, n_distinct: int, name: str) -> None:
        if self._most is None:
            raise ValueError(
                f"column {name!r} holds cells that it did not hold before: the files were changed "
                "while they were read; run the same call again."
            )
        if n_distinct > self._most:
            raise ValueError(
                f"column {name!r} has more than {self._most} different cells, {self._advice}"
            )


def _is_incomparable(type_: pa.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_nested(type_) or types.is_interval(type_) or is_bytes(type_))


def is_bytes(type_: pa.DataType) -> bool:
    """Tell whether cells are bytes, of any length or of one."""
    from pyarrow import types

    return bool(
        types.is_binary(type_) or types.is_large_binary(type_) or types.is_fixed_size_binary(type_)
    ) and not types.is_decimal(type_)


def _find_distinct(cells: pa.Array) -> tuple[list[Any], Integers]:
    """Return the distinct cells, None if missing, and the position of each cell among them."""
    from pyarrow import types

    if types.is_null(cells.type):
        return [], np.full(len(cells), -1, dtype=np.int64)
    if not types.is_dictionary(cells.type):
        cells = cells.dictionary_encode()
    values = cells.dictionary
    if types.is_temporal(values.type) and not types.is_time(values.type):
        # As for tables in memory: dates are midnights, timestamps are microseconds in UTC.
        times = values.to_numpy(zero_copy_only=False)
        listed = times.astype(f"{times.dtype.kind}8[us]").tolist()
    else:
        listed = values.to_pylist()
    return [None if is_missing(value) else value for value in listed], _read_indices(cells)


def _read_indices(cells: pa.Array) -> Integers:
    positions: Integers = cells.indices.cast("int32").fill_null(-1).to_numpy(zero_copy_only=False)
    return positions


def _check_size(raw: NDArray[Any], name: str) -> None:
    if len(raw) and max(-int(raw.min()), int(raw.max())) > MAX_EXACT:
        raise ValueError(
            f"column {name!r} holds integers beyond 2**53, which are not exact as floats; "
            f"subtract a constant, leave it out with columns=, or pass "
            f"column_types={{{name!r}: 'categorical'}}."
        )


def _check_finite(floats: Floats, name: str) -> None:
    if np.isinf(floats).any():
        raise ValueError(
            f"column {name!r} must be finite, got infinity; replace it by a number or a missing "
            "value."
        )
