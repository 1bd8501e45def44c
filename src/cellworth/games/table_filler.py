"""TableFiller: a table whose absent cells are filled in, for games in which single cells play."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from cellworth.data.arguments import Codes, Floats, Mask, Positions
from cellworth.data.tables import Table


class TableFiller:
    """A table whose cells can be filled in: numbers by the mean, others by the most frequent."""

    def __init__(self, table: Table) -> None:
        self.table: Table = table
        columns = [table.read(position) for position in range(table.shape[1])]
        # Numbers, NaN if missing; or codes of categories in alphabetical order, -1 if missing.
        self.cells: list[Floats | Codes] = [
            column.floats if column.kind == "number" else column.levels[0] for column in columns
        ]
        # Which cells are not missing, shape (n_rows, n_columns).
        self.known: Mask = np.column_stack(
            [~np.isnan(one) if one.dtype.kind == "f" else one >= 0 for one in self.cells]
        )

    def fill(self, present: Mask, may_tell: Mask, *, columns: Positions | None = None) -> Table:
        """Fill cells that are not present, from the rows that ``may_tell`` marks.

        ``columns`` are the columns to fill; None means all. If no cell of a column is present, all
        its known cells determine the fill.
        """
        data, filled = self.table.data, dict[int, Any]()
        for position in range(len(self.cells)) if columns is None else columns.tolist():
            here, known = present[:, position], may_tell & self.known[:, position]
            known = known & here if (known & here).any() else known
            cells, column = self.cells[position], data[:, position]
            if cells.dtype.kind == "f":
                # Integers become floats, like their mean.
                mean = float(cells[known].mean()) if known.any() else np.nan
                filled[position] = np.where(here, cells, mean)
                if isinstance(column, nw.Series):
                    filled[position] = nw.new_series(
                        column.name, filled[position], nw.Float64(), backend=column.implementation
                    )
            elif known.any():
                most_frequent = np.argmax(np.bincount(cells[known]))
                source = np.flatnonzero(cells == most_frequent)[0]
                filled[position] = column[np.where(here, np.arange(len(cells)), source)]
        if not isinstance(data, np.ndarray):
            return replace(self.table, data=data.with_columns(*filled.values()))
        array = data.astype(np.float64) if data.dtype.kind in "iuf" else data.copy()
        for position, column in filled.items():
            array[:, position] = column
        return replace(self.table, data=array)
