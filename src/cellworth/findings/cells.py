"""Cells of a table: their contents in sentences, and their values in a valuation."""

from __future__ import annotations

from typing import Any

import numpy as np

from cellworth.data.arguments import Floats, Positions
from cellworth.data.blocks import LABEL
from cellworth.data.column import list_cells
from cellworth.data.tables import Table
from cellworth.data.text import preview
from cellworth.valuation.valuation import Valuation


def read_cells(table: Table, rows: Positions, columns: Positions) -> list[Any]:
    """Return cells as Python objects, None for missing values."""
    found: list[Any] = [None] * len(rows)
    for column in np.unique(columns):
        positions = np.flatnonzero(columns == column)
        cells = table.column(int(column))[rows[positions]]
        for position, cell in zip(positions, list_cells(cells), strict=True):
            found[position] = cell
    return found


def read_cell_values(valuation: Valuation, table: Table) -> Floats:
    """Return the values of a table's cells, matched by row ids and column names.

    Cells of a group have the value of their block. Raises ValueError for another table.
    """
    rows, columns = match_blocks(valuation, table)
    values = np.empty((len(rows), len(columns)))
    for chunk in valuation.iter_rows():
        inside = (rows >= chunk.rows.start) & (rows < chunk.rows.stop)
        values[inside] = chunk.values[np.ix_(rows[inside] - chunk.rows.start, columns)]
    return values


def match_blocks(valuation: Valuation, table: Table) -> tuple[Positions, Positions]:
    """Return which row and which column of the valuation each row and column belongs to."""
    check_valuation(valuation)
    check_rows(valuation, table)
    names, ids = match_names(valuation, table)
    columns = valuation.blocks.columns.codes[[ids.index(name) for name in names]]
    return valuation.blocks.rows.codes, columns


def check_valuation(valuation: Any) -> None:
    """Raise TypeError unless this is a Valuation."""
    if not isinstance(valuation, Valuation):
        raise TypeError(
            f"valuation must be a Valuation, got {type(valuation).__name__}; pass the valuation_ "
            "attribute of a fitted valuer."
        )


def check_rows(valuation: Valuation, table: Table) -> None:
    """Check that a table has the rows that were valued."""
    ids = valuation.blocks.rows.ids
    if not np.array_equal(ids, table.row_ids):
        raise ValueError(
            f"X must have the {len(ids)} rows of the valuation ({preview(ids)}), got "
            f"{len(table.row_ids)} ({preview(table.row_ids)}); give the table that was valued."
        )


def check_cells(valuation: Valuation, table: Table) -> None:
    """Check the sha256 of a table, if the valuation has one."""
    known = valuation.provenance.problem_spec.get("data_sha256", {}).get("X")
    if known is None:
        return
    names, ids = match_names(valuation, table)
    # Columns are matched by name, in any order.
    in_order = table.select(np.array([names.index(name) for name in ids]))
    if in_order.sha256() != known:
        raise ValueError(
            "X must have the cells of the table that was valued, got others (its sha256 differs); "
            "pass the same table as to fit."
        )


def match_names(valuation: Valuation, table: Table) -> tuple[list[Any], list[Any]]:
    """Return the columns of the table and of the valuation, which must match, without labels."""
    names, ids = table.names.tolist(), valuation.blocks.columns.ids.tolist()
    if ids[-1] == LABEL and LABEL not in names:
        # If labels were valued, all names are strings.
        names, ids = [str(name) for name in names], ids[:-1]
    missing = [name for name in ids if name not in names]
    new = [name for name in names if name not in ids]
    if missing or new:
        came = f"no column {missing[0]!r}" if missing else f"a column {new[0]!r} as well"
        raise ValueError(
            f"X must have the columns of the valuation, got {came}; give the table that was valued."
        )
    return names, ids
