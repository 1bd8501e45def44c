"""Which cells of a table are meant, and what stands in them: masks, pairs, scores, contents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from cellworth.applications.worths import CellWorths
from cellworth.blocks import Labels, Mask, Positions, is_missing, label_array, some
from cellworth.tables import Table, entries_per_cell, series_array
from cellworth.valuation import Valuation

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NamedCells:
    """Cells that a user named, by position and in the order in which they were named.

    Parameters
    ----------
    rows, columns : arrays of shape (n_cells,)
    frame : narwhals DataFrame or None
        What the user named them with, where that was a data frame.
    """

    rows: Positions
    columns: Positions
    frame: nw.DataFrame[Any] | None = None

    @classmethod
    def of(cls, cells: Any, table: Table) -> NamedCells:
        """Read a mask, a data frame with columns ``row`` and ``column``, or a list of pairs."""
        if _is_mask(cells):
            return cls.of_mask(as_mask(cells, table.shape, called="cells"))
        frame = _frame(cells)
        if frame is None:
            rows, columns = _pairs(cells)
            return cls(*_places(rows, columns, table))
        if all(isinstance(dtype, nw.Boolean) for dtype in frame.schema.values()):
            mask = entries(cells, table, called="cells")
            return cls.of_mask(as_mask(mask, table.shape, called="cells"))
        if not {"row", "column"} <= set(frame.columns):
            raise ValueError(
                f"cells has the columns {some(frame.columns)}; give a data frame with columns "
                "'row' and 'column', a boolean mask of X's shape, or pairs (row, column)."
            )
        rows, columns = (series_array(frame[name]).tolist() for name in ("row", "column"))
        return cls(*_places(rows, columns, table), frame)

    @classmethod
    def of_mask(cls, mask: Mask) -> NamedCells:
        """Cells where the mask is True, row after row."""
        rows, columns = np.nonzero(mask)
        return cls(rows, columns)

    def __len__(self) -> int:
        """Count the cells, as often as they were named."""
        return len(self.rows)

    def mask(self, shape: tuple[int, int]) -> Mask:
        """Tell for every cell of the table whether it is named."""
        mask = np.zeros(shape, dtype=bool)
        mask[self.rows, self.columns] = True
        return mask


def as_mask(mask: Any, shape: tuple[int, int], *, called: str) -> Mask:
    """Check that this is True or False for every cell."""
    array = np.asarray(mask)
    if array.dtype != bool:
        raise TypeError(f"{called} holds {array.dtype}; give True or False for every cell.")
    if array.shape != shape:
        raise ValueError(
            f"{called} has shape {array.shape}, but there are {shape[0]} rows and {shape[1]} "
            "columns of cells; give one entry per cell."
        )
    return array


def entries(given: Any, table: Table, *, called: str) -> NDArray[Any]:
    """One entry per cell of a table, by its names and row ids where it has any."""
    frame = _frame(given) if not isinstance(given, np.ndarray) else None
    if frame is None:
        return np.asarray(given)
    if table.backend is None:
        return frame.to_numpy()
    return entries_per_cell(frame.to_native(), table.names, table.row_ids, called=called)


def scores_of_cells(ranking: Any, table: Table) -> Floats:
    """Score every cell of a table: an array as it is, a Valuation by the worth of its cells."""
    if isinstance(ranking, Valuation):
        return CellWorths.of(ranking, table).all()
    return as_scores(ranking, table)


def as_scores(ranking: Any, table: Table | None = None) -> Floats:
    """Check that this is a number for every cell (of a table), NaN where none is known."""
    shape = None if table is None else table.shape
    if table is not None:
        ranking = entries(ranking, table, called="ranking")
    frame = _frame(ranking) if not isinstance(ranking, np.ndarray) else None
    try:
        scores = np.asarray(ranking if frame is None else frame.to_numpy(), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"ranking is of type {type(ranking).__name__} and no array of numbers ({error}); give "
            "a Valuation or one score per cell."
        ) from error
    if scores.ndim != 2 or (shape is not None and scores.shape != shape):
        expected = "two dimensions" if shape is None else f"X's shape {shape}"
        raise ValueError(
            f"ranking has shape {scores.shape}, not {expected}; give a Valuation or one score "
            "per cell."
        )
    if np.isnan(scores).all():
        raise ValueError("ranking holds no number at all; give scores that rank cells.")
    return scores


def _is_mask(cells: Any) -> bool:
    # A list of flags per row must not be read as pairs: True is 1 to Python.
    rows = cells if isinstance(cells, list | tuple) else []
    flags = [flag for row in rows if isinstance(row, list | tuple) for flag in row]
    if flags and all(isinstance(flag, bool | np.bool_) for flag in flags):
        return True
    return isinstance(cells, np.ndarray) and cells.dtype == bool


def _frame(cells: Any) -> nw.DataFrame[Any] | None:
    """A data frame, or what turns into one, such as a list of values."""
    frame = nw.from_native(cells, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame) and hasattr(cells, "to_frame"):
        frame = nw.from_native(cells.to_frame(), eager_only=True, pass_through=True)
    return frame if isinstance(frame, nw.DataFrame) else None


def _pairs(cells: Any) -> tuple[list[Any], list[Any]]:
    try:
        pairs = [(row, column) for row, column in cells]
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"cells is of type {type(cells).__name__}; give a data frame with columns 'row' and "
            "'column', a boolean mask of X's shape, or pairs (row, column)."
        ) from error
    return [row for row, _ in pairs], [column for _, column in pairs]


def _places(
    rows: Sequence[Any], columns: Sequence[Any], table: Table
) -> tuple[Positions, Positions]:
    return (
        _found(rows, table.row_ids, "row"),
        _found(columns, table.names, "column"),
    )


def _found(named: Sequence[Any], labels: Labels, what: str) -> Positions:
    places: dict[Any, list[int]] = {}
    for place, label in enumerate(labels.tolist()):
        places.setdefault(label, []).append(place)
    keys = label_array(list(named), what=what).tolist() if len(named) else []
    for key in dict.fromkeys(keys):
        if key not in places:
            raise ValueError(
                f"cells names the {what} {key!r}, which X does not have; its {what}s are "
                f"{some(labels)}."
            )
        if len(places[key]) > 1:
            raise ValueError(
                f"cells names the {what} {key!r}, which X has {len(places[key])} times; give a "
                "boolean mask of X's shape, or ids that differ."
            )
    return np.array([places[key][0] for key in keys], dtype=np.intp)


def contents(table: Table, rows: Positions, columns: Positions) -> list[Any]:
    """Cells as Python objects, None for gaps."""
    found: list[Any] = [None] * len(rows)
    for column in np.unique(columns):
        places = np.flatnonzero(columns == column)
        cells = table.column(int(column))[rows[places]]
        if cells.dtype.kind in "Mm":
            # Finer units would come as whole numbers.
            cells = cells.astype(f"{cells.dtype.kind}8[us]")
        for place, cell in zip(places, cells.tolist(), strict=True):
            found[place] = None if is_missing(cell) else cell
    return found


def lister(table: Table, backend: str) -> Callable[[list[Any]], Any]:
    """How cells of several columns become one column of a data frame."""
    return _as_objects if backend == "pandas" else _of_one_type(table)


def _as_objects(cells: list[Any]) -> NDArray[Any]:
    """Cells as they are, side by side: pandas would make floats of whole numbers and gaps."""
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    return array


def _of_one_type(table: Table) -> Callable[[list[Any]], list[Any]]:
    """How cells of this table become a column of one type; text where columns differ too much."""
    kinds = {table.column(place).dtype.kind for place in range(table.shape[1])}
    if kinds <= set("iu") or kinds in ({"b"}, {"M"}, {"m"}):
        return list
    if kinds <= set("iuf"):
        return lambda cells: [None if cell is None else float(cell) for cell in cells]
    return lambda cells: [None if cell is None else str(cell) for cell in cells]
