"""Tables with changed cells: missing, taken from other rows of their column, or set."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Mask, Positions
from cellworth.data.column import is_missing
from cellworth.data.tables import Table


def copy_native(table: Table) -> Any:
    """Return a copy in the user's own type."""
    # Tables of polars and Arrow are immutable and may share memory.
    return table.native.copy() if hasattr(table.native, "copy") else table.native


def clear_cells(table: Table, mask: Mask) -> Table:
    """Make these cells missing; a column changes its type if it cannot hold missing values."""
    data = table.data
    if not mask.any():
        return table
    if isinstance(data, np.ndarray):
        wider = {"i": np.float64, "u": np.float64, "b": np.float64, "U": object, "S": object}
        array = data.astype(wider.get(data.dtype.kind, data.dtype))
        # NumPy turns None into NaN among numbers and into NaT among dates.
        array[mask] = None
        return replace(table, data=array)
    flags = partial(nw.new_series, "kept", dtype=nw.Boolean(), backend=data.implementation)
    series = [
        data.select(nw.when(flags(~mask[:, position])).then(data[:, position]))[:, 0]
        for position in np.flatnonzero(mask.any(axis=0)).tolist()
    ]
    return replace(table, data=data.with_columns(*series))


def set_cells(table: Table, rows: Positions, columns: Positions, values: Sequence[Any]) -> Table:
    """Set cells to values of their column's type; None and NaN make cells missing."""
    missing = np.array([is_missing(value) for value in values], dtype=bool)
    empty = np.zeros(table.shape, dtype=bool)
    empty[rows[missing], columns[missing]] = True
    table = clear_cells(table, empty)
    data = table.data
    for position in np.unique(columns[~missing]).tolist():
        which = np.flatnonzero((columns == position) & ~missing)
        offered = [values[number] for number in which.tolist()]
        if isinstance(data, np.ndarray):
            data = _set_in_array(data, rows[which], position, offered, table.names[position])
        else:
            data = data.with_columns(_set_in_series(data[:, position], rows[which], offered))
    return replace(table, data=data)


def _set_in_series(series: nw.Series[Any], rows: Positions, values: list[Any]) -> nw.Series[Any]:
    """Set values of a column, as they are or cast to its type; the type must not change."""
    arrow = series.implementation.is_pyarrow()
    for scatter in (_scatter_in_arrow,) if arrow else (nw.Series.scatter, _scatter_after_cast):
        try:
            with warnings.catch_warnings():
                # Some versions of pandas warn where others raise.
                warnings.simplefilter("error")
                changed = scatter(series, rows.tolist(), values)
        # Libraries raise various errors; one message below replaces them.
        except Exception:  # noqa: S112
            continue
        unchanged = changed[rows].to_list() == values or series.dtype.is_float()
        if changed.dtype == series.dtype and unchanged:
            return changed
    raise ValueError(_describe_misfit(values, series.name, series.dtype))


def _scatter_after_cast(
    series: nw.Series[Any], rows: list[int], values: list[Any]
) -> nw.Series[Any]:
    made = nw.new_series("values", values, backend=series.implementation)
    return series.scatter(rows, made.cast(series.dtype))


def _scatter_in_arrow(series: nw.Series[Any], rows: list[int], values: list[Any]) -> nw.Series[Any]:
    """Append the values to the column, in its type, and take them from there."""
    import pyarrow as pa

    native = series.to_native()
    made = pa.array(values, type=native.type)
    longer = pa.chunked_array([*native.chunks, made], type=native.type).unify_dictionaries()
    origins = np.arange(len(series))
    origins[rows] = len(series) + np.arange(len(rows))
    taken: nw.Series[Any] = nw.from_native(longer.take(pa.array(origins)), series_only=True)
    return taken.alias(series.name)


def _set_in_array(
    array: NDArray[Any], rows: Positions, position: int, values: list[Any], name: Any
) -> NDArray[Any]:
    try:
        made = np.array(values, dtype=None if array.dtype.kind == "U" else array.dtype)
        if array.dtype.kind == made.dtype.kind == "U":
            # A longer string must not be cut to the width of the array.
            array = array.astype(np.promote_types(array.dtype, made.dtype))
        copy = array.copy()
        copy[rows, position] = made
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(_describe_misfit(values, name, array.dtype)) from error
    if copy.dtype.kind != "f" and copy[rows, position].tolist() != list(values):
        raise ValueError(_describe_misfit(values, name, array.dtype))
    return copy


def _describe_misfit(values: list[Any], name: Any, dtype: Any) -> str:
    shown = ", ".join(map(repr, values[:3]))
    return (
        f"values of column {name!r} must be of its type, {dtype}, got {shown}; convert them, or "
        "change the type of the column first."
    )
