"""Cells that users select by masks or pairs: their contents, scores and values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats, Labels, Mask, Positions
from cellworth.data.blocks import LABEL, is_missing, label_array, preview
from cellworth.data.tables import Table, entries_per_cell, series_array
from cellworth.valuation.valuation import Valuation

# Differences below this share of the largest value are rounding.
_ROUNDING = 1e-12
_FORMS_OF_CELLS = (
    "a data frame with columns 'row' and 'column', a boolean mask of X's shape, or pairs (row, "
    "column)"
)


@dataclass(frozen=True, eq=False)
class NamedCells:
    """Positions of the cells that a user named, in the user's order."""

    rows: Positions
    columns: Positions
    # The data frame that named them, if any.
    frame: nw.DataFrame[Any] | None = None

    @classmethod
    def of(cls, cells: Any, table: Table) -> NamedCells:
        """Read a mask, a data frame with columns ``row`` and ``column``, or a list of pairs."""
        if _is_mask(cells):
            return cls.from_mask(check_mask(cells, table.shape, called="cells"))
        frame = _read_frame(cells)
        if frame is None:
            return cls(*_find_positions(*_read_pairs(cells), table))
        if all(isinstance(dtype, nw.Boolean) for dtype in frame.schema.values()):
            mask = read_entries(cells, table, called="cells")
            return cls.from_mask(check_mask(mask, table.shape, called="cells"))
        if not {"row", "column"} <= set(frame.columns):
            raise ValueError(
                f"cells must be {_FORMS_OF_CELLS}, got a data frame with the columns "
                f"{preview(frame.columns)}."
            )
        rows, columns = (series_array(frame[name]).tolist() for name in ("row", "column"))
        return cls(*_find_positions(rows, columns, table), frame)

    @classmethod
    def from_mask(cls, mask: Mask) -> NamedCells:
        """Return the cells where the mask is True, row by row."""
        rows, columns = np.nonzero(mask)
        return cls(rows, columns)

    def __len__(self) -> int:
        return len(self.rows)

    def mask(self, shape: tuple[int, int]) -> Mask:
        """Return a mask of the named cells."""
        mask = np.zeros(shape, dtype=bool)
        mask[self.rows, self.columns] = True
        return mask


def check_mask(mask: Any, shape: tuple[int, int], *, called: str) -> Mask:
    """Check that this is a boolean array of the given shape."""
    array = np.asarray(mask)
    if array.dtype != bool:
        raise TypeError(f"{called} must be True or False for every cell, got {array.dtype}.")
    if array.shape != shape:
        raise ValueError(
            f"{called} must have one entry per cell, shape {shape}, got shape {array.shape}."
        )
    return array


def read_entries(given: Any, table: Table, *, called: str) -> NDArray[Any]:
    """Return one entry per cell of a table, matched by column names and row ids if possible."""
    frame = _read_frame(given) if not isinstance(given, np.ndarray) else None
    if frame is None:
        return np.asarray(given)
    if table.backend is None:
        return frame.to_numpy()
    return entries_per_cell(frame.to_native(), table.names, table.row_ids, called=called)


def read_cell_scores(ranking: Any, table: Table) -> Floats:
    """Return a score for every cell, NaN for none: values of a Valuation, or the array itself."""
    if isinstance(ranking, Valuation):
        return CellValues.of(ranking, table).all()
    given = read_entries(ranking, table, called="ranking")
    try:
        scores = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"ranking must be a Valuation or an array of numbers, got {type(ranking).__name__} "
            f"({error})."
        ) from error
    if scores.shape != table.shape:
        raise ValueError(
            f"ranking must have X's shape {table.shape}, got shape {scores.shape}; pass a "
            "Valuation or one score per cell."
        )
    if np.isnan(scores).all():
        raise ValueError("ranking must have a score for some cell, got NaN for all.")
    return scores


def _is_mask(cells: Any) -> bool:
    # A list of flags per row must not be read as pairs, although True equals 1.
    rows = cells if isinstance(cells, list | tuple) else []
    flags = [flag for row in rows if isinstance(row, list | tuple) for flag in row]
    if flags and all(isinstance(flag, bool | np.bool_) for flag in flags):
        return True
    return isinstance(cells, np.ndarray) and cells.dtype == bool


def _read_frame(cells: Any) -> nw.DataFrame[Any] | None:
    """Return a data frame, also of an object with ``to_frame``; else None."""
    frame = nw.from_native(cells, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame) and hasattr(cells, "to_frame"):
        frame = nw.from_native(cells.to_frame(), eager_only=True, pass_through=True)
    return frame if isinstance(frame, nw.DataFrame) else None


def _read_pairs(cells: Any) -> tuple[list[Any], list[Any]]:
    try:
        pairs = [(row, column) for row, column in cells]
    except (TypeError, ValueError) as error:
        raise TypeError(f"cells must be {_FORMS_OF_CELLS}, got {type(cells).__name__}.") from error
    return [row for row, _ in pairs], [column for _, column in pairs]


def _find_positions(
    rows: Sequence[Any], columns: Sequence[Any], table: Table
) -> tuple[Positions, Positions]:
    return _look_up(rows, table.row_ids, "row"), _look_up(columns, table.names, "column")


def _look_up(named: Sequence[Any], labels: Labels, what: str) -> Positions:
    positions: dict[Any, list[int]] = {}
    for position, label in enumerate(labels.tolist()):
        positions.setdefault(label, []).append(position)
    keys = label_array(list(named), what=what).tolist() if len(named) else []
    for key in dict.fromkeys(keys):
        if key not in positions:
            raise ValueError(
                f"cells must name {what}s of X, got {key!r}; its {what}s are {preview(labels)}."
            )
        if len(positions[key]) > 1:
            raise ValueError(
                f"cells must name {what}s that are unique in X, got {key!r}, which occurs "
                f"{len(positions[key])} times; pass a boolean mask of X's shape."
            )
    return np.array([positions[key][0] for key in keys], dtype=np.intp)


def read_cells(table: Table, rows: Positions, columns: Positions) -> list[Any]:
    """Return cells as Python objects, None for missing values."""
    found: list[Any] = [None] * len(rows)
    for column in np.unique(columns):
        positions = np.flatnonzero(columns == column)
        cells = table.column(int(column))[rows[positions]]
        if cells.dtype.kind in "Mm":
            # NumPy returns finer units as integers.
            cells = cells.astype(f"{cells.dtype.kind}8[us]")
        for position, cell in zip(positions, cells.tolist(), strict=True):
            found[position] = None if is_missing(cell) else cell
    return found


def get_cell_lister(table: Table, backend: str) -> Callable[[list[Any]], Any]:
    """Return a function that puts cells of several columns into one column of a data frame."""
    # pandas would convert integers beside missing values to floats.
    return object_array if backend == "pandas" else _get_caster(table)


def object_array(cells: Sequence[Any]) -> NDArray[Any]:
    """Return Python objects as a one-dimensional array."""
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    return array


def _get_caster(table: Table) -> Callable[[list[Any]], list[Any]]:
    """Return a function that converts cells to one type: strings if column types differ."""
    dtypes = {table.column(position).dtype.kind for position in range(table.shape[1])}
    if dtypes <= set("iu") or dtypes in ({"b"}, {"M"}, {"m"}):
        return list
    if dtypes <= set("iuf"):
        return lambda cells: [None if cell is None else float(cell) for cell in cells]
    return lambda cells: [None if cell is None else str(cell) for cell in cells]


@dataclass(frozen=True, eq=False)
class CellValues:
    """A valuation, and the block that each cell of a table belongs to."""

    valuation: Valuation
    # Row of the valuation that each row of the table belongs to.
    row_blocks: Positions
    column_blocks: Positions

    @classmethod
    def of(cls, valuation: Valuation, table: Table) -> CellValues:
        """Match by row ids and column names; raise ValueError for another table."""
        check_valuation(valuation)
        check_rows(valuation, table)
        return cls(valuation, valuation.blocks.rows.codes, _find_column_blocks(valuation, table))

    def at(self, rows: Positions, columns: Positions) -> dict[str, list[float]]:
        """Return the values of some cells, with their errors if known."""
        found: dict[str, Floats] = {}
        in_row, in_column = self.row_blocks[rows], self.column_blocks[columns]
        for chunk in self.valuation.iter_rows():
            inside = (in_row >= chunk.rows.start) & (in_row < chunk.rows.stop)
            cells = in_row[inside] - chunk.rows.start, in_column[inside]
            figures = {"value": chunk.values, "sampling_se": chunk.sampling_se}
            if chunk.validation_se is not None:
                figures["validation_se"] = chunk.validation_se
            for name, figure in figures.items():
                found.setdefault(name, np.empty(len(rows)))[inside] = figure[cells]
        return {name: figure.tolist() for name, figure in found.items()}

    def all(self) -> Floats:
        """Return the values of all cells, shape (n_rows, n_columns)."""
        values = np.empty((len(self.row_blocks), len(self.column_blocks)))
        for chunk in self.valuation.iter_rows():
            start, stop = chunk.rows.start, chunk.rows.stop
            inside = (self.row_blocks >= start) & (self.row_blocks < stop)
            cells = np.ix_(self.row_blocks[inside] - start, self.column_blocks)
            values[inside] = chunk.values[cells]
        return values


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
    names, ids = _match_columns(valuation, table)
    # Columns are matched by name, in any order.
    in_order = table.select(np.array([names.index(name) for name in ids]))
    if in_order.sha256() != known:
        raise ValueError(
            "X must have the cells of the table that was valued, got others (its sha256 differs); "
            "pass the same table as to fit."
        )


def drop_group_column(table: Table, valuation: Valuation) -> Table:
    """Drop the column of row groups, whose cells were not valued."""
    names, rows = table.names.tolist(), valuation.blocks.rows
    known = set(map(str, valuation.blocks.columns.ids.tolist()))
    new = [position for position, name in enumerate(names) if str(name) not in known]
    if not rows.grouped or len(new) != 1 or len(rows.codes) != table.shape[0]:
        return table
    groups = list(map(str, rows.labels[rows.codes].tolist()))
    if list(map(str, table.column(new[0]).tolist())) != groups:
        return table
    return table.select(np.delete(np.arange(len(names)), new))


def standardize_values(values: Floats, groups: NDArray[Any]) -> Floats:
    """Return the distance of values from the median of their column and group of rows.

    The unit is the standard deviation there. Columns and classes differ in their effect on a model;
    these values show which cells are low for their column and class.
    """
    relative = np.full(values.shape, np.nan)
    noise = _ROUNDING * float(np.abs(values[~np.isnan(values)]).max(initial=0.0))
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        for position, column in enumerate(values[rows].T):
            known = ~np.isnan(column)
            if known.any():
                above = column[known] - np.median(column[known])
                deviation = float(np.std(column[known]))
                relative[rows[known], position] = above / deviation if deviation > noise else 0.0
    return relative


def _find_column_blocks(valuation: Valuation, table: Table) -> Positions:
    names, ids = _match_columns(valuation, table)
    return valuation.blocks.columns.codes[[ids.index(name) for name in names]]


def _match_columns(valuation: Valuation, table: Table) -> tuple[list[Any], list[Any]]:
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
