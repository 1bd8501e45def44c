"""repair_cells: copy a table and change the named cells."""

from __future__ import annotations

import datetime
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import (
    Floats,
    Integers,
    Mask,
    Positions,
    RandomState,
    check_random_state,
)
from cellworth.data.blocks import is_missing
from cellworth.data.tables import Table, TableLike, VectorLike
from cellworth.diagnostics.cells import NamedCells
from cellworth.knn.columns import NumericColumn, read_column
from cellworth.knn.distances import Distances

Way = Literal["missing", "draw", "neighbors", "values"]
N_NEIGHBORS = 10
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def repair_cells(
    X: TableLike,
    cells: TableLike,
    *,
    how: Way,
    values: VectorLike | None = None,
    random_state: RandomState = 0,
) -> Any:
    """Return a copy of X in which the named cells, and only these, are changed.

    Parameters
    ----------
    X : data frame or array of shape (n_rows, n_columns)
        It is left as it is.
    cells : data frame, array or list
        A data frame with columns ``row`` and ``column`` (ids and names as in X, such as a list of
        suspects that a person went through), a boolean mask of X's shape, or a list of pairs
        (row, column).
    how : {"missing", "draw", "neighbors", "values"}
        What replaces them: a missing value; a random draw from the other cells of the column; the
        median (or the most frequent category) of the ten nearest rows by the other columns; or
        ``values``.
    values : sequence or str, default=None
        One value per cell, in the order of ``cells`` (row by row for a mask), or the name of the
        column of ``cells`` that holds them. Strings of numbers, ISO dates, True and False are
        converted to the type of the column, because an edited file has only strings.
    random_state : int, Generator, RandomState or None, default=0
        Seed of draws.

    Returns
    -------
    data frame or array
        In the library and with the index and the types of X; a list of rows comes back as an array.
        Integers beside missing values become floats if the library has no nullable integers.

    See Also
    --------
    cellworth.diagnostics.compare_models : Test on untouched rows whether it helped.

    Examples
    --------
    >>> from cellworth.diagnostics import repair_cells
    >>> repair_cells([[20, 1], [30, 2], [300, 3]], [(2, "x0")], how="values", values=[30])
    array([[20,  1],
           [30,  2],
           [30,  3]])
    """
    table = Table.from_data(X, called="X")
    if how not in get_args(Way):
        choices = ", ".join(map(repr, get_args(Way)))
        raise ValueError(f"how must be one of {choices}, got {how!r}.")
    named = NamedCells.of(cells, table)
    mask = named.mask(table.shape)
    if (values is not None) != (how == "values"):
        raise ValueError(
            f"values must be given with how='values', and only then, got how={how!r} and "
            f"values {'given' if values is not None else 'None'}."
        )
    if how == "missing":
        changed = clear_cells(table, mask)
    elif how == "values":
        changed = set_cells(table, named, _read_values(values, named, mask))
    else:
        source = _find_source(table, mask)
        if how == "draw":
            rng = np.random.default_rng(check_random_state(random_state))
            changed = draw_cells(table, mask, source, rng.random(table.shape))
        else:
            changed = fill_from_neighbors(table, named, source) if len(named) else table
    return copy_native(changed)


def _find_source(table: Table, mask: Mask) -> Mask:
    """Return the cells to fill others with: not missing, and not named themselves."""
    source = find_known_cells(table) & ~mask
    bare = np.flatnonzero(mask.any(axis=0) & ~source.any(axis=0))
    if len(bare):
        raise ValueError(
            f"cells must leave some known cell of column {table.names.tolist()[bare[0]]!r} to fill "
            "the others with; name fewer, drop the column, or use how='missing' or 'values'."
        )
    return source


def _read_values(values: Any, named: NamedCells, mask: Mask) -> list[Any]:
    if mask.sum() < len(named):
        raise ValueError(
            f"cells must name each cell once with how='values', got {len(named)} names of "
            f"{mask.sum()} cells."
        )
    if isinstance(values, str):
        if named.frame is None or values not in named.frame.columns:
            raise ValueError(
                f"values must be one value per cell, or a column of the data frame cells, got "
                f"{values!r}."
            )
        return list(named.frame[values].to_list())
    if not isinstance(values, Iterable):
        raise TypeError(f"values must be a list of one value per cell, got {values!r}.")
    offered = values.tolist() if hasattr(values, "tolist") else list(values)
    if len(offered) != len(named):
        raise ValueError(
            f"values must have one entry for each of {len(named)} cells, got {len(offered)}."
        )
    return offered


def copy_native(table: Table) -> Any:
    """Return a copy in the user's own type."""
    # Tables of polars and Arrow are immutable and may share memory.
    return table.native.copy() if hasattr(table.native, "copy") else table.native


def clear_cells(table: Table, mask: Mask) -> Table:
    """Make these cells missing; a column changes its type if it cannot hold missing values."""
    if isinstance(table.data, np.ndarray):
        array = _make_nullable(table.data) if mask.any() else table.data.copy()
        if mask.any():
            # NumPy turns None into NaN among numbers and into NaT among dates.
            array[mask] = None
        return replace(table, data=array)
    data = table.data
    series = [
        data.select(nw.when(_make_flags(~mask[:, position], data)).then(data[:, position]))[:, 0]
        for position in _find_positions(mask.any(axis=0))
    ]
    return replace(table, data=data.with_columns(*series) if series else data)


def find_known_cells(table: Table) -> Mask:
    """Return a mask of the cells that are not missing, shape (n_rows, n_columns)."""
    return np.column_stack(
        [_is_known(table.column(position)) for position in range(table.shape[1])]
    )


def draw_cells(table: Table, mask: Mask, source: Mask, uniforms: Floats) -> Table:
    """Fill cells with cells of their column in ``source``; ``uniforms`` in [0, 1) choose them."""
    origins = np.tile(np.arange(table.shape[0])[:, None], table.shape[1])
    for position in np.flatnonzero(mask.any(axis=0)):
        pool = np.flatnonzero(source[:, position])
        filled = mask[:, position]
        origins[filled, position] = pool[(uniforms[filled, position] * len(pool)).astype(np.intp)]
    return take_cells(table, origins)


def fill_from_neighbors(table: Table, cells: NamedCells, source: Mask) -> Table:
    """Fill cells from the nearest rows by the other columns, using only cells in ``source``."""
    mask = cells.mask(table.shape)
    # For distances, the named cells count as missing.
    cleared = clear_cells(table, mask)
    asked = np.flatnonzero(mask.any(axis=1))
    queries = Table.from_data(cleared.take(asked, np.arange(table.shape[1])), called="X")
    distances = Distances.of(cleared, [replace(queries, names=table.names)])
    columns = {
        position: _Middle.of(table, position) for position in _find_positions(mask.any(axis=0))
    }
    origins = np.tile(np.arange(table.shape[0])[:, None], table.shape[1])
    for query, row in enumerate(asked):
        measured = distances.measure(0, query)
        overall = measured.sum(axis=0)
        for position in _find_positions(mask[row]):
            origins[row, position] = columns[position].among(
                np.flatnonzero(source[:, position]), overall - measured[position]
            )
    return take_cells(table, origins)


def take_cells(table: Table, origins: Positions) -> Table:
    """Take every cell from another row of its column, which keeps the column types."""
    data, own = table.data, np.arange(table.shape[0])
    if isinstance(data, np.ndarray):
        return replace(table, data=np.take_along_axis(data, origins, axis=0))
    changed = _find_positions((origins != own[:, None]).any(axis=0))
    series = [data[:, position][origins[:, position]] for position in changed]
    return replace(table, data=data.with_columns(*series) if series else data)


def set_cells(table: Table, cells: NamedCells, values: Sequence[Any]) -> Table:
    """Set cells to the user's values, one per cell; None and NaN make cells missing."""
    missing = np.array([is_missing(value) for value in values], dtype=bool)
    empty = NamedCells(cells.rows[missing], cells.columns[missing])
    table = clear_cells(table, empty.mask(table.shape))
    data = table.data
    series = []
    for position in np.unique(cells.columns[~missing]).tolist():
        which = _find_positions((cells.columns == position) & ~missing)
        rows, offered = cells.rows[which], [values[number] for number in which]
        offered = [_parse_cell(value, _get_cell_type(table, position)) for value in offered]
        if isinstance(data, np.ndarray):
            data = _set_in_array(data, rows, position, offered, table.names[position])
        else:
            series.append(_set_in_series(data[:, position], rows, offered))
    if not isinstance(data, np.ndarray) and series:
        data = data.with_columns(*series)
    return replace(table, data=data)


class _Middle:
    """The median of a column's numbers, or its most frequent category, among some rows."""

    def __init__(self, cells: NDArray[Any], numeric: bool) -> None:
        self._cells = cells
        self._numeric = numeric

    @classmethod
    def of(cls, table: Table, position: int) -> _Middle:
        column = read_column(position, [table], None, "robust")
        return cls(column.cells[0], isinstance(column, NumericColumn))

    def among(self, rows: Positions, distances: Integers) -> int:
        """Return the row of that cell among the ten nearest rows and all that are as near."""
        away = distances[rows]
        n_nearest = min(N_NEIGHBORS, len(rows))
        near = away <= np.partition(away, n_nearest - 1)[n_nearest - 1]
        rows, away = rows[near], away[near]
        return int(rows[self._median(rows, away) if self._numeric else self._mode(rows, away)])

    def _median(self, rows: Positions, away: Integers) -> int:
        # Of equal values, the nearer first; of two middle values, the one of the nearer row.
        order = np.lexsort((away, self._cells[rows]))
        middle = order[[(len(order) - 1) // 2, len(order) // 2]]
        return int(middle[np.argmin(away[middle])])

    def _mode(self, rows: Positions, away: Integers) -> int:
        _, codes, counts = np.unique(self._cells[rows], return_inverse=True, return_counts=True)
        # Of equally frequent categories, that of the nearest row.
        return int(np.lexsort((away, -counts[codes]))[0])


def _find_positions(mask: Any) -> list[int]:
    positions: list[int] = np.flatnonzero(mask).tolist()
    return positions


def _is_known(cells: NDArray[Any]) -> Mask:
    if cells.dtype.kind in "iub":
        return np.ones(len(cells), dtype=bool)
    if cells.dtype.kind in "fMm":
        return np.asarray(cells == cells)  # noqa: PLR0124 (NaN and NaT differ from themselves)
    return np.array([not is_missing(cell) for cell in cells.tolist()], dtype=bool)


def _make_nullable(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind in "iub":
        return array.astype(np.float64)
    return array.astype(object) if array.dtype.kind in "US" else array.copy()


def _make_flags(mask: Mask, data: nw.DataFrame[Any]) -> nw.Series[Any]:
    return nw.new_series("kept", mask, nw.Boolean(), backend=data.implementation)


def _get_cell_type(table: Table, position: int) -> type | None:
    """Return the type that strings of a column are converted to; None for no conversion."""
    dtype = table.dtype(position)
    if dtype is None:
        return float if table.column(position).dtype.kind in "iuf" else None
    if dtype.is_numeric():
        return float
    return {nw.Boolean: bool, nw.Datetime: datetime.datetime, nw.Date: datetime.date}.get(
        type(dtype)
    )


def _parse_cell(value: Any, kind: type | None) -> Any:
    """Convert a string that is a number, a date, True or False to the type of a column."""
    if not isinstance(value, str) or kind is None:
        return value
    if kind is bool:
        return {"True": True, "False": False}.get(value, value)
    if kind is float:
        if not _NUMBER.fullmatch(value):
            return value
        return int(value) if value.lstrip("+-").isdigit() else float(value)
    try:
        return kind.fromisoformat(value)  # type: ignore[attr-defined]
    except ValueError:
        return value


def _set_in_series(series: nw.Series[Any], rows: Positions, values: list[Any]) -> nw.Series[Any]:
    """Set values of a column, as they are or cast to its type; the type must not change."""
    _check_values_fit(values, series.name, series.dtype, numeric=series.dtype.is_numeric())
    arrow = series.implementation.is_pyarrow()
    for scatter in (_scatter_in_arrow,) if arrow else (_scatter_plain, _scatter_after_cast):
        try:
            with warnings.catch_warnings():
                # Some versions of pandas warn where others raise.
                warnings.simplefilter("error")
                changed = scatter(series, rows, values)
        # Libraries raise various errors; one message below replaces them.
        except Exception:  # noqa: S112
            continue
        unchanged = changed[rows].to_list() == values or series.dtype.is_float()
        if changed.dtype == series.dtype and unchanged:
            return changed
    raise ValueError(_describe_misfit(values, series.name, series.dtype))


def _scatter_plain(series: nw.Series[Any], rows: Positions, values: list[Any]) -> nw.Series[Any]:
    return series.scatter(rows.tolist(), values)


def _scatter_after_cast(
    series: nw.Series[Any], rows: Positions, values: list[Any]
) -> nw.Series[Any]:
    made = nw.new_series("values", values, backend=series.implementation)
    return series.scatter(rows.tolist(), made.cast(series.dtype))


def _scatter_in_arrow(series: nw.Series[Any], rows: Positions, values: list[Any]) -> nw.Series[Any]:
    """Append the values to the column, in its type, and take them from there."""
    import pyarrow as pa

    native = series.to_native()
    made = pa.array(values, type=native.type)
    longer = pa.chunked_array([*native.chunks, made], type=native.type).unify_dictionaries()
    origins = np.arange(len(series))
    origins[rows] = len(series) + np.arange(len(rows))
    taken: nw.Series[Any] = nw.from_native(longer.take(pa.array(origins)), series_only=True)
    return taken.alias(series.name)


def _check_values_fit(values: list[Any], name: Any, dtype: Any, *, numeric: bool) -> None:
    """Raise ValueError for infinity, and for strings among numbers, which libraries parse."""
    for value in values if numeric else []:
        if isinstance(value, str):
            raise ValueError(_describe_misfit([value], name, dtype))
        if isinstance(value, float | np.floating) and np.isinf(value):
            raise ValueError(
                f"values must be finite, got {value!r} for column {name!r}; give a number, or None "
                "for a missing value."
            )


def _set_in_array(
    array: NDArray[Any], rows: Positions, position: int, values: list[Any], name: Any
) -> NDArray[Any]:
    _check_values_fit(values, name, array.dtype, numeric=array.dtype.kind in "iuf")
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
