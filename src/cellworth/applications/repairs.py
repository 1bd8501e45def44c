"""repair: a copy of a table in which the cells that a person named are changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, get_args

import numpy as np

from cellworth.applications.cells import NamedCells
from cellworth.applications.refills import drawn, emptied, from_neighbours, given, known_cells
from cellworth.applications.seeds import generator_of
from cellworth.blocks import Mask
from cellworth.tables import Table

Way = Literal["missing", "draw", "neighbours", "values"]


def repair(X: Any, cells: Any, *, how: Way, values: Any = None, random_state: Any = 0) -> Any:
    """Return a copy of X in which the named cells, and only these, are changed.

    Parameters
    ----------
    X : data frame or array of shape (n_rows, n_columns)
        It is left as it is.
    cells : data frame, array or list
        A data frame with columns ``row`` and ``column`` (ids and names as in X, such as a list of
        suspects that a person went through), a boolean mask of X's shape, or a list of pairs
        (row, column).
    how : {"missing", "draw", "neighbours", "values"}
        What comes in their place: a gap; a random draw from the other cells of the column; the
        median (of text and categories the most frequent) of the ten rows that are nearest by the
        other columns; or what the user gives as ``values``.
    values : sequence or str, default=None
        One value per cell, in the order in which ``cells`` names them (row after row in a mask), or
        the name of the column of ``cells`` that holds them. A missing value makes a gap. Text that
        is exactly a number, an ISO date, True or False is read as such where the column holds
        these, because a list that was saved and edited is all text.
    random_state : int, Generator or None, default=0
        Seed of draws.

    Returns
    -------
    data frame or array
        In the library and with the index and the types of X; a list of rows comes back as an array.
        Whole numbers among which there is a gap become floats where the library has no other way.

    See Also
    --------
    before_and_after : Did it help? Asked of rows that nobody touched.

    Examples
    --------
    >>> repair([[20, 1], [30, 2], [300, 3]], [(2, "x0")], how="values", values=[30])
    array([[20,  1],
           [30,  2],
           [30,  3]])
    """
    table = Table.of(X, called="X")
    if how not in get_args(Way):
        choices = ", ".join(map(repr, get_args(Way)))
        raise ValueError(f"how is {how!r}; say what comes in the place of cells: {choices}.")
    named = NamedCells.of(cells, table)
    mask = named.mask(table.shape)
    if (values is not None) != (how == "values"):
        raise ValueError(
            f"how is {how!r} and values is {'not ' if values is not None else ''}None; values go "
            "with how='values', and only with it."
        )
    if how == "missing":
        changed = emptied(table, mask)
    elif how == "values":
        changed = given(table, named, _checked_values(values, named, mask))
    else:
        source = _source(table, mask)
        if how == "draw":
            luck = generator_of(random_state).random(table.shape)
            changed = drawn(table, mask, source, luck)
        else:
            changed = from_neighbours(table, named, source) if len(named) else table
    return _copy(changed.native)


def _source(table: Table, mask: Mask) -> Mask:
    """Cells that others may be filled with: known, and not named themselves."""
    source = known_cells(table) & ~mask
    bare = np.flatnonzero(mask.any(axis=0) & ~source.any(axis=0))
    if len(bare):
        raise ValueError(
            f"no cell of column {table.names.tolist()[bare[0]]!r} is left to fill the named ones "
            "with; name fewer cells, drop the column, or use how='missing' or 'values'."
        )
    return source


def _checked_values(values: Any, named: NamedCells, mask: Mask) -> list[Any]:
    if mask.sum() < len(named):
        raise ValueError(
            f"cells names {len(named)} cells, of which {mask.sum()} differ; with how='values' name "
            "each cell once, so that it gets one value."
        )
    if isinstance(values, str):
        if named.frame is None or values not in named.frame.columns:
            raise ValueError(
                f"values is {values!r}, which is no column of cells; give one value per cell, or "
                "name a column of the data frame that names the cells."
            )
        return list(named.frame[values].to_list())
    if not isinstance(values, Iterable):
        raise TypeError(f"values is {values!r}; give a list with one value per cell.")
    offered = values.tolist() if hasattr(values, "tolist") else list(values)
    if len(offered) != len(named):
        raise ValueError(
            f"values has {len(offered)} entries for {len(named)} cells; give one value per cell."
        )
    return offered


def _copy(native: Any) -> Any:
    # Tables of polars and Arrow cannot be changed in place, so that they may share memory.
    return native.copy() if hasattr(native, "copy") else native
