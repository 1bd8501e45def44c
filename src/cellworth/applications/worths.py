"""What single cells are worth: a Valuation, read for the table that was valued."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.blocks import LABEL, Positions, some
from cellworth.neighbours.columns import Floats
from cellworth.tables import Table
from cellworth.valuation import Valuation

# Differences below this part of the largest worth are rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class CellWorths:
    """A valuation, and the block that each cell of a table belongs to.

    Parameters
    ----------
    valuation : Valuation
    row_blocks : array of shape (n_rows,)
        Row of the valuation that each row of the table belongs to.
    column_blocks : array of shape (n_columns,)
    """

    valuation: Valuation
    row_blocks: Positions
    column_blocks: Positions

    @classmethod
    def of(cls, valuation: Valuation, table: Table) -> CellWorths:
        """Match by row ids and column names; refuse a table that was not the one valued."""
        refuse_no_valuation(valuation)
        refuse_other_rows(valuation, table)
        return cls(valuation, valuation.blocks.rows.codes, _column_blocks(valuation, table))

    def at(self, rows: Positions, columns: Positions) -> dict[str, list[float]]:
        """Worth of some cells, with its errors as far as these are known."""
        found: dict[str, Floats] = {}
        in_row, in_column = self.row_blocks[rows], self.column_blocks[columns]
        for strip in self.valuation.strips():
            inside = (in_row >= strip.rows.start) & (in_row < strip.rows.stop)
            cells = in_row[inside] - strip.rows.start, in_column[inside]
            figures = {"worth": strip.values, "standard_error": strip.standard_errors}
            if strip.validation_errors is not None:
                figures["validation_error"] = strip.validation_errors
            for name, figure in figures.items():
                found.setdefault(name, np.empty(len(rows)))[inside] = figure[cells]
        return {name: figure.tolist() for name, figure in found.items()}

    def all(self) -> Floats:
        """Worth of all cells, shape (n_rows, n_columns)."""
        worths = np.empty((len(self.row_blocks), len(self.column_blocks)))
        for strip in self.valuation.strips():
            start, stop = strip.rows.start, strip.rows.stop
            inside = (self.row_blocks >= start) & (self.row_blocks < stop)
            cells = np.ix_(self.row_blocks[inside] - start, self.column_blocks)
            worths[inside] = strip.values[cells]
        return worths


def refuse_no_valuation(valuation: Any) -> None:
    """Refuse what is no Valuation, such as the valuer itself or arguments in another order."""
    if not isinstance(valuation, Valuation):
        raise TypeError(
            f"valuation is of type {type(valuation).__name__}; give the valuation_ of a fitted "
            "valuer as the first argument."
        )


def refuse_other_rows(valuation: Valuation, table: Table) -> None:
    """Refuse a table that has other rows than the one that was valued."""
    ids = valuation.blocks.rows.ids
    if not np.array_equal(ids, table.row_ids):
        raise ValueError(
            f"X has {len(table.row_ids)} rows with the ids {some(table.row_ids)}, the "
            f"valuation {len(ids)} with {some(ids)}; give the table that was valued."
        )


def refuse_other_cells(valuation: Valuation, table: Table) -> None:
    """Refuse a table with other contents, where the valuation knows the sha256 of its own."""
    known = valuation.provenance.question.get("data_sha256", {}).get("X")
    if known is None:
        return
    # Refuses other columns.
    _column_blocks(valuation, table)
    names, ids = table.names.tolist(), valuation.blocks.columns.ids.tolist()
    if ids[-1] == LABEL and LABEL not in names:
        # Where labels were valued, all names are text.
        names, ids = list(map(str, names)), ids[:-1]
    # Columns may stand in another order, as for all that matches them by name.
    in_order = table.only(np.array([names.index(name) for name in ids]))
    if in_order.sha256() != known:
        raise ValueError(
            "X has other cells than the table that was valued (its sha256 differs); give the very "
            "table that fit got."
        )


def without_groups(table: Table, valuation: Valuation) -> Table:
    """Leave the column out that named the groups of rows: it has no cells that were valued."""
    names, rows = table.names.tolist(), valuation.blocks.rows
    known = set(map(str, valuation.blocks.columns.ids.tolist()))
    new = [place for place, name in enumerate(names) if str(name) not in known]
    if not rows.grouped or len(new) != 1 or len(rows.codes) != table.shape[0]:
        return table
    groups = list(map(str, rows.labels[rows.codes].tolist()))
    if list(map(str, table.column(new[0]).tolist())) != groups:
        return table
    return table.only(np.delete(np.arange(len(names)), new))


def relative_worth(worths: Floats, groups: NDArray[Any]) -> Floats:
    """Worth above the median of its column and group of rows, in standard deviations there.

    Columns and classes differ in what they matter to a model; this tells the cells apart that are
    low for their place. 0 where all are worth the same, NaN where a worth is.
    """
    relative = np.full(worths.shape, np.nan)
    noise = _ROUNDING * float(np.abs(worths[~np.isnan(worths)]).max(initial=0.0))
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        for place, column in enumerate(worths[rows].T):
            known = ~np.isnan(column)
            if known.any():
                above = column[known] - np.median(column[known])
                spread = float(np.std(column[known]))
                relative[rows[known], place] = above / spread if spread > noise else 0.0
    return relative


def _column_blocks(valuation: Valuation, table: Table) -> Positions:
    names, columns = table.names.tolist(), valuation.blocks.columns
    ids = columns.ids.tolist()
    if ids[-1] == LABEL and LABEL not in names:
        # Where labels were valued, all names are text.
        names, ids = [str(name) for name in names], ids[:-1]
    missing = [name for name in ids if name not in names]
    new = [name for name in names if name not in ids]
    if missing or new:
        which = (
            f"lacks the column {missing[0]!r} of" if missing else f"has a column {new[0]!r} beyond"
        )
        raise ValueError(f"X {which} the valuation; give the table that was valued.")
    return columns.codes[[ids.index(name) for name in names]]
