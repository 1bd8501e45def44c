"""Types of Arrow columns that files agree on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cellworth.data.column import is_text

if TYPE_CHECKING:
    import pyarrow as pa


def find_common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return a type that holds the cells of both types, no dictionary; None if there is none.

    The cast itself checks that no cell is lost, such as an integer beyond 2**53 among floats.
    """
    import pyarrow as pa
    from pyarrow import types

    pair = [_decode_type(one), _decode_type(other)]
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


def _decode_type(type_: pa.DataType) -> pa.DataType:
    """Return the type of the cells of a dictionary; other types are unchanged."""
    from pyarrow import types

    return type_.value_type if types.is_dictionary(type_) else type_


def cast_cells(cells: pa.Array, field: pa.Field, address: str) -> pa.Array:
    """Cast the cells of a file to the type that all files agree on, if that loses nothing."""
    import pyarrow as pa

    own, wanted = _decode_type(cells.type), field.type
    if own == wanted or (is_text(own) and is_text(wanted)):
        # Dictionaries and strings are read alike.
        return cells
    try:
        return cells.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(
            f"{address} holds {own} in column {field.name!r}, which does not fit into {wanted}, "
            f"the type for all files ({error}); write all files with the same types."
        ) from error
