"""Equal cells and rows, and hashes by which equal ones are found in any table.

Missing equals missing, 1 equals 1.0 and True, a date equals its midnight, and text is compared as
it is. Rows are compared by the names of columns, whatever their order.
"""

from __future__ import annotations

import datetime
import decimal
import hashlib
import numbers
import struct
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats, Positions
from cellworth.data.column import MAX_EXACT, Column, drop_zone, find_largest

Hashes = NDArray[np.uint64]
# The hash of a missing cell: no finite number has these bits.
_HASH_OF_MISSING = np.uint64(2**64 - 1)


def hash_rows(columns: Iterable[Column]) -> Hashes:
    """Return a number for each row of these columns, equal for equal rows of any table."""
    return np.asarray(
        sum(
            mix_bits(hash_cells(column), _hash_bytes(str(column.name).encode()))
            for column in columns
        )
    )


def find_first_equal(hashes: NDArray[Any]) -> Positions:
    """Return for each row the position of the first row with the same hash."""
    _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    return np.asarray(first[inverse.ravel()])


def hash_cells(column: Column) -> Hashes:
    """Return a number for each cell, equal for equal cells of any column."""
    floats = _read_exact(column)
    if floats is not None:
        return hash_floats(floats)
    values, positions = column.distinct
    return np.append(hash_values(values), _HASH_OF_MISSING)[positions]


def hash_floats(floats: Floats) -> Hashes:
    """Return a number for each float; NaN is a missing cell."""
    # Adding 0.0 turns -0.0 into 0.0.
    return np.where(np.isnan(floats), _HASH_OF_MISSING, (floats + 0.0).view(np.uint64))


def hash_values(values: Iterable[Any]) -> Hashes:
    """Return a number for each Python object that is a cell; None is a missing one."""
    encoded = map(encode_value, values)
    return np.array(
        [
            _HASH_OF_MISSING
            if one == b"-"
            else int.from_bytes(one[1:], "little")
            if one[:1] == b"n"
            else _hash_bytes(one)
            for one in encoded
        ],
        dtype=np.uint64,
    )


def mix_bits(cells: Hashes, column: int) -> Hashes:
    """Return hashes of the cells of a column; their sum over columns is a hash of the row."""
    mixed = cells + np.uint64((column + 1) * 0x9E3779B97F4A7C15 % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)), dtype=np.uint64)


def encode_value(value: Any) -> bytes:
    """Return bytes that are equal for equal cells; those of one are no beginning of another's."""
    if value is None:
        return b"-"
    if isinstance(value, str):
        return b"t" + add_length(value.encode(errors="surrogatepass"))
    if isinstance(value, datetime.date):
        micros = int(np.datetime64(drop_zone(value), "us").astype(np.int64))
        return b"d" + struct.pack("<q", micros)
    number = _as_float(value)
    if number is not None:
        return b"n" + struct.pack("<d", number + 0.0)
    return b"o" + add_length(str(value).encode(errors="surrogatepass"))


def add_length(content: bytes) -> bytes:
    """Put the length before bytes: it distinguishes ("ab", "c") from ("a", "bc")."""
    return len(content).to_bytes(8, "little") + content


def column_sha256(cells: NDArray[Any]) -> bytes:
    """Return the hash of one column; it does not depend on the type of numbers or strings."""
    digest, column = hashlib.sha256(), Column("", cells)
    floats = _read_exact(column)
    if floats is not None:
        # Every NaN becomes the same one, and -0.0 becomes 0.0.
        clean = np.where(np.isnan(floats), np.nan, floats + 0.0)
        digest.update(b"numbers" + clean.astype("<f8").tobytes())
        return digest.digest()
    values, positions = column.distinct
    digest.update(b"codes" + positions.astype("<i8").tobytes())
    digest.update(b"".join(map(encode_value, values)))
    return digest.digest()


def _read_exact(column: Column) -> Floats | None:
    """Return numbers as floats, NaN if missing; None unless all cells are numbers and exact."""
    if column.missing.all():
        return np.full(len(column.missing), np.nan)
    cells, code = column.cells, column.cells.dtype.kind
    if code in "fb" or (code in "iu" and find_largest(cells) <= MAX_EXACT):
        return np.asarray(cells, dtype=np.float64)
    if code not in "iuO":
        return None
    values, positions = column.distinct
    floats = list(map(_as_float, values))
    return None if None in floats else np.array([*floats, np.nan], dtype=np.float64)[positions]


def _as_float(value: Any) -> float | None:
    """Return the float that equals an object; None if there is none."""
    if not isinstance(value, numbers.Real | decimal.Decimal | np.bool_):
        return None
    try:
        number = float(value)
    # Integers beyond the range of floats, and fractions of such.
    except (OverflowError, ValueError):
        return None
    return number if number == value else None


def _hash_bytes(content: bytes) -> int:
    """Return 64 bits that depend on the bytes alone."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
