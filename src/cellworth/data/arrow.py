"""Arrow columns as NumPy arrays: how each Parquet type is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import MISSING, Codes, Floats, Integers, Kind
from cellworth.data.blocks import is_missing
from cellworth.data.tables import LARGEST_EXACT

if TYPE_CHECKING:
    import pyarrow as pa

# How a column is read: as floats, as microseconds, as what float() makes of cells, as codes.
Sort = Literal["floats", "times", "parsed", "codes"]
# What NumPy holds for a missing date.
NO_TIME = np.iinfo(np.int64).min
_UNKNOWN = -2
# Ten to this power is the largest that is exact as a float.
_EXACT_POWER = 22


def read_floats(cells: pa.Array, name: str) -> Floats:
    """Numbers or booleans as floats; a gap is NaN, and infinity is refused."""
    from pyarrow import types

    if types.is_null(cells.type):
        return np.full(len(cells), np.nan)
    gaps = cells.is_null().to_numpy(zero_copy_only=False) if cells.null_count else None
    known = cells if gaps is None else cells.fill_null(False if types.is_boolean(cells.type) else 0)
    raw = known.to_numpy(zero_copy_only=False)
    if raw.dtype.kind in "iu" and raw.itemsize == 8:
        _check_size(raw, name)
    floats: Floats = raw.astype(np.float64)
    if gaps is not None:
        floats[gaps] = np.nan
    _check_finite(floats, name)
    return floats


def read_times(cells: pa.Array, _name: str) -> Integers:
    """Dates, moments or durations as microseconds; a gap is the smallest number."""
    from pyarrow import types

    if types.is_null(cells.type):
        return np.full(len(cells), NO_TIME)
    times = cells.to_numpy(zero_copy_only=False)
    micros: Integers = times.astype(f"{times.dtype.kind}8[us]").view(np.int64)
    return micros


def read_parsed(cells: pa.Array, name: str) -> Floats:
    """What ``float()`` makes of each cell; a gap is NaN, and infinity is refused."""
    quick = _short_decimals(cells)
    if quick is not None:
        return quick
    values, positions = _distinct(cells)
    try:
        numbers = [np.nan if value is None else float(value) for value in values]
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"column {name!r} is to be numeric but holds other cells ({error}); mend them, or "
            f"pass column_types={{{name!r}: 'categorical'}}."
        ) from error
    floats = np.array([*numbers, np.nan])[positions]
    _check_finite(floats, name)
    return floats


READERS: dict[Sort, Callable[[Any, str], NDArray[Any]]] = {
    "floats": read_floats,
    "times": read_times,
    "parsed": read_parsed,
}


def sort_of(type_: pa.DataType, kind: Kind | None, name: str) -> Sort:
    """How a column of this type is read, where the user says what kind it is or says nothing."""
    from pyarrow import types

    if _is_incomparable(type_):
        raise TypeError(
            f"column {name!r} holds cells of type {type_}, which have no distance; drop it, or "
            "make numbers or text of it."
        )
    if types.is_date(type_) or types.is_timestamp(type_) or types.is_duration(type_):
        return "codes" if kind == "categorical" else "times"
    if types.is_integer(type_) or types.is_floating(type_):
        return "codes" if kind == "categorical" else "floats"
    if kind == "numeric":
        return "floats" if types.is_boolean(type_) or types.is_null(type_) else "parsed"
    return "parsed" if types.is_decimal(type_) and kind is None else "codes"


def check_has_labels(type_: pa.DataType, target: str) -> None:
    """Refuse a target whose cells can be no class labels."""
    from pyarrow import types

    if _is_incomparable(type_.value_type if types.is_dictionary(type_) else type_):
        raise TypeError(
            f"the target {target!r} holds cells of type {type_}, but class labels are text, whole "
            "numbers, booleans or dates; give another target, or write labels of these."
        )


def _short_decimals(cells: pa.Array) -> Floats | None:
    """Decimals of so few digits that dividing two exact floats rounds as ``float()`` does."""
    from pyarrow import types

    if not types.is_decimal128(cells.type) or not 0 <= cells.type.scale <= _EXACT_POWER:
        return None
    halves = np.frombuffer(cells.buffers()[1], dtype="<i8").reshape(-1, 2)
    low, high = halves[cells.offset : cells.offset + len(cells)].T
    gaps = cells.is_null().to_numpy(zero_copy_only=False)
    # The upper half of a small number repeats its sign.
    if not (gaps | ((high == low >> 63) & (np.abs(low) <= LARGEST_EXACT))).all():
        return None
    return np.where(gaps, np.nan, low / 10.0**cells.type.scale)


class Coder:
    """Gives codes to the distinct cells of a column, in the order in which they come first.

    Parameters
    ----------
    codes : dict
        Codes that are given already.
    most : int or None
        Distinct cells of which more are too many; None where all are known already.
    advice : str
        How the sentence ends that refuses too many.
    """

    def __init__(self, codes: dict[Any, int], most: int | None = None, advice: str = "") -> None:
        """Begin with these codes."""
        self.codes = codes
        self._most, self._advice = most, advice
        self._before: Any = None
        self._lookup: Codes = np.empty(0, dtype=np.int32)

    def read(self, cells: pa.Array, name: str) -> tuple[Codes, Integers]:
        """Codes of one batch, and where those that are new came first in it."""
        values, positions = self._translated(cells)
        codes = self._lookup[positions]
        new = np.flatnonzero(codes == _UNKNOWN)
        if len(new) == 0:
            return codes, new
        distinct, firsts = np.unique(positions[new], return_index=True)
        order = np.argsort(firsts)
        self._check_count(len(self.codes) + len(distinct), name)
        seen = []
        for position, first in zip(distinct[order], new[firsts[order]], strict=True):
            # Arrow tells 0.0 and -0.0 apart, and we do not.
            if values[position] not in self.codes:
                seen.append(first)
            self._lookup[position] = self.codes.setdefault(values[position], len(self.codes))
        return self._lookup[positions], np.array(seen, dtype=np.int64)

    def _translated(self, cells: pa.Array) -> tuple[list[Any], Integers]:
        from pyarrow import types

        if types.is_dictionary(cells.type) and self._before is not None:
            values, dictionary = self._before
            if cells.dictionary.equals(dictionary):
                return values, _places(cells)
        values, positions = _distinct(cells)
        known = [MISSING if v is None else self.codes.get(v, _UNKNOWN) for v in values]
        self._lookup = np.array([*known, MISSING], dtype=np.int32)
        self._before = (values, cells.dictionary) if types.is_dictionary(cells.type) else None
        return values, positions

    def _check_count(self, n_distinct: int, name: str) -> None:
        if self._most is None:
            raise ValueError(
                f"column {name!r} holds cells that it did not hold before; the files were changed "
                "while they were read, so begin anew."
            )
        if n_distinct > self._most:
            raise ValueError(
                f"column {name!r} has more than {self._most} different cells, {self._advice}"
            )


def _is_incomparable(type_: pa.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_nested(type_) or types.is_interval(type_) or _is_bytes(type_))


def _is_bytes(type_: pa.DataType) -> bool:
    from pyarrow import types

    return bool(
        types.is_binary(type_) or types.is_large_binary(type_) or types.is_fixed_size_binary(type_)
    ) and not types.is_decimal(type_)


def _distinct(cells: pa.Array) -> tuple[list[Any], Integers]:
    """Distinct cells as Python objects, None for gaps, and which one each cell is; -1 for gaps."""
    from pyarrow import types

    if types.is_null(cells.type):
        return [], np.full(len(cells), -1, dtype=np.int64)
    if not types.is_dictionary(cells.type):
        cells = cells.dictionary_encode()
    values = cells.dictionary
    if types.is_temporal(values.type) and not types.is_time(values.type):
        # As for tables in memory: days are midnights, moments are microseconds of Greenwich.
        times = values.to_numpy(zero_copy_only=False)
        listed = times.astype(f"{times.dtype.kind}8[us]").tolist()
    else:
        listed = values.to_pylist()
    return [None if is_missing(value) else value for value in listed], _places(cells)


def _places(cells: pa.Array) -> Integers:
    positions: Integers = cells.indices.cast("int32").fill_null(-1).to_numpy(zero_copy_only=False)
    return positions


def _check_size(raw: NDArray[Any], name: str) -> None:
    if len(raw) and max(-int(raw.min()), int(raw.max())) > LARGEST_EXACT:
        raise ValueError(
            f"column {name!r} holds whole numbers beyond 2**53, which are not exact as floats; "
            f"subtract a constant, leave it out with columns=, or pass "
            f"column_types={{{name!r}: 'categorical'}}."
        )


def _check_finite(floats: Floats, name: str) -> None:
    if np.isinf(floats).any():
        raise ValueError(
            f"column {name!r} holds infinity, which is at no distance from anything; replace it by "
            "a number or a gap."
        )
