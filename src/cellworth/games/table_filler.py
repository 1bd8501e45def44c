"""TableFiller: a table whose absent cells are filled in, for games in which single cells play."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Codes, Floats, Mask, Positions
from cellworth.data.column import Column
from cellworth.data.tables import Table


@dataclass(frozen=True, eq=False)
class NumericFill:
    """A column that is filled with the mean."""

    cells: Floats

    @property
    def known(self) -> Mask:
        """Which cells are not missing."""
        return ~np.isnan(self.cells)

    def of_array(self, column: NDArray[Any], present: Mask, may_tell: Mask) -> Floats:
        """Fill the column of an array."""
        return self._fill(present, may_tell)

    def of_series(self, column: nw.Series[Any], present: Mask, may_tell: Mask) -> nw.Series[Any]:
        """Fill the column of a data frame; integers become floats, like their mean."""
        return nw.new_series(
            column.name, self._fill(present, may_tell), nw.Float64(), backend=column.implementation
        )

    def _fill(self, present: Mask, may_tell: Mask) -> Floats:
        known = _who_tell(may_tell & ~np.isnan(self.cells), present)
        mean = float(self.cells[known].mean()) if known.any() else np.nan
        return np.where(present, self.cells, mean)


@dataclass(frozen=True, eq=False)
class CategoricalFill:
    """A column that is filled with its most frequent cell; ties go to the first by name.

    Parameters
    ----------
    codes : array of shape (n_rows,)
        Category of each cell; -1 if missing.
    """

    codes: Codes

    @property
    def known(self) -> Mask:
        """Which cells are not missing."""
        return self.codes >= 0

    def of_array(self, column: NDArray[Any], present: Mask, may_tell: Mask) -> NDArray[Any]:
        """Fill the column of an array."""
        return column[self._source_positions(present, may_tell)]

    def of_series(self, column: nw.Series[Any], present: Mask, may_tell: Mask) -> nw.Series[Any]:
        """Fill the column of a data frame; it keeps its type."""
        return column[self._source_positions(present, may_tell)]

    def _source_positions(self, present: Mask, may_tell: Mask) -> Positions:
        """Return the position in the column that each cell is taken from."""
        own = np.arange(len(self.codes))
        known = _who_tell(may_tell & (self.codes >= 0), present)
        if not known.any():
            return own
        most_frequent = np.argmax(np.bincount(self.codes[known]))
        source = np.flatnonzero(self.codes == most_frequent)[0]
        return np.where(present, own, source)


@dataclass(frozen=True, eq=False)
class TableFiller:
    """A table whose cells can be filled in, column by column.

    Parameters
    ----------
    table : Table
    columns : list of NumericFill or CategoricalFill
    """

    table: Table
    columns: list[NumericFill | CategoricalFill]

    @classmethod
    def from_table(cls, table: Table) -> TableFiller:
        """Read every column as numbers or as categories."""
        return cls(table, [_readable(table.read(position)) for position in range(table.shape[1])])

    @cached_property
    def known(self) -> Mask:
        """Which cells are not missing, shape (n_rows, n_columns)."""
        return np.column_stack([column.known for column in self.columns])

    def fill(self, present: Mask, may_tell: Mask, *, columns: Positions | None = None) -> Table:
        """Fill cells that are not present, from the rows that ``may_tell`` marks.

        ``columns`` are the columns to fill; None means all.
        """
        data = self.table.data
        filled = range(len(self.columns)) if columns is None else columns.tolist()
        if isinstance(data, np.ndarray):
            array = data.astype(np.float64) if data.dtype.kind in "iuf" else data.copy()
            for position in filled:
                array[:, position] = self.columns[position].of_array(
                    array[:, position], present[:, position], may_tell
                )
            return replace(self.table, data=array)
        series = [
            self.columns[position].of_series(data[:, position], present[:, position], may_tell)
            for position in filled
        ]
        return replace(self.table, data=data.with_columns(*series))


def _who_tell(known: Mask, present: Mask) -> Mask:
    """Return the cells that determine the fill: those present, or all known ones if none is."""
    return known & present if (known & present).any() else known


def _readable(column: Column) -> NumericFill | CategoricalFill:
    if column.kind == "number":
        return NumericFill(column.floats)
    return CategoricalFill(column.levels[0])
