"""explain_row, explain_column: decompose a row's or column's value into those of its cells."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from cellworth.data.arguments import Floats, Mask
from cellworth.data.blocks import LABEL
from cellworth.data.column import object_array
from cellworth.data.problem import read_target
from cellworth.data.tables import Table, TableLike, VectorLike, default_backend
from cellworth.data.text import format_cell
from cellworth.data.views import heading, paragraph, view
from cellworth.findings.cells import (
    check_cells,
    check_rows,
    check_valuation,
    read_cells,
)
from cellworth.knn.distances import Distances
from cellworth.valuation.valuation import Valuation
from cellworth.valuation.values import ValueList

ExplainedAxis = Literal["row", "column"]
_PARTS_PRINTED = 5
# Labels are compared in this many columns, among equal cells or this many nearest ones.
_COLUMNS_COMPARED, _ROWS_COMPARED = 3, 50
_ROUNDING = 1e-9
# Parts and errors below this share of the largest are rounding.
_NEGLIGIBLE = 1e-12


@dataclass(frozen=True, eq=False)
class Explanation:
    """The value of one row or column as the sum of the values of its cells.

    Parameters
    ----------
    side : {"row", "column"}
        What is explained.
    label : object
        The row's id or the column's name.
    value, sampling_se : float
    validation_se : float or None
        Error due to the choice of validation rows, if known.
    parts : ValueList
        Cells of the row by ``column``, or of the column by ``row``, the largest in size first;
        those that were never visited (NaN) are last.
    cells : tuple or None
        Content of the cell of each part, None if missing; only for rows, and with X.
    reason : str
        How the row's label compares with those of other rows; only for rows, and with X and y.

    See Also
    --------
    cellworth.explain_row, cellworth.explain_column, cellworth.plots.waterfall

    Examples
    --------
    >>> from cellworth.games import TableGame
    >>> from cellworth import explain_row, value_game
    >>> game = TableGame([[0, 0, 0, 0], [0, 3, -1, 2], [0, 1, 2, 3], [0, 4, 1, 5]])
    >>> explanation = explain_row(value_game(game, (2, 2)), 0)
    >>> explanation
    row 0 is worth 2, of which
      column   value
           0   3.000
           1  -1.000
    >>> explanation.adds_up
    True
    """

    side: ExplainedAxis
    label: Any
    value: float
    sampling_se: float
    validation_se: float | None
    parts: ValueList
    cells: tuple[Any, ...] | None = None
    reason: str = ""

    @property
    def residual(self) -> float:
        """Value minus the sum of all known parts; 0 up to rounding if they add up."""
        return float(self.value - np.nansum(self.parts.values))

    @property
    def adds_up(self) -> bool:
        """Whether all parts are known and add up to the value."""
        largest = np.abs(self.parts.values).sum()
        return bool(abs(self.residual) <= _ROUNDING * max(largest, 1.0))

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame of the parts, with the content of each ``cell`` if X was given."""
        if self.cells is None:
            return self.parts.to_frame(backend)
        name = backend or self.parts.backend or default_backend()
        # Columns of other libraries have one type.
        as_is = name == "pandas" or len({type(cell) for cell in self.cells if cell is not None}) < 2
        cells = tuple(cell if cell is None or as_is else str(cell) for cell in self.cells)
        return _add_cells(self.parts, cells).to_frame(name)

    def __repr__(self) -> str:
        parts = self._parts_to_print()
        lines = [*repr(_take_first(parts)).split("\n"), *self._notes(parts)]
        return "\n".join([self._title(), *map("  {}".format, lines)])

    def _repr_html_(self) -> str:
        """Show the parts in Jupyter."""
        parts = self._parts_to_print()
        notes = map(paragraph, self._notes(parts))
        return view(heading(self._title()), _take_first(parts).to_html(bars=True), *notes)

    def _title(self) -> str:
        both = math.hypot(self.sampling_se, self.validation_se or 0.0)
        # Smaller ones are rounding.
        is_error = both > _NEGLIGIBLE * max(self.parts.find_largest(), abs(self.value))
        error = f" +- {both:.2g}" if is_error else ""
        return f"{self.side} {self.label!r} is worth {self.value:.4g}{error}, of which"

    def _parts_to_print(self) -> ValueList:
        if self.cells is None:
            return self.parts
        return _add_cells(self.parts, tuple(map(format_cell, self.cells)))

    def _notes(self, parts: ValueList) -> Iterator[str]:
        rest, negligible = parts.values[_PARTS_PRINTED:], _NEGLIGIBLE * parts.find_largest()
        for side, signed in (
            ("above", rest[rest > negligible]),
            ("below", rest[rest < -negligible]),
        ):
            if len(signed):
                yield f"{len(signed):,} more {side} 0: {signed.sum():.4g} together"
        if unvisited := int(np.isnan(parts.values).sum()):
            yield f"{unvisited:,} {'was' if unvisited == 1 else 'were'} never visited"
        if not self.adds_up:
            yield f"the parts do not add up: {self.residual:.2g} is missing"
        if self.reason:
            yield self.reason


def explain_row(
    valuation: Valuation,
    row: Hashable,
    *,
    X: TableLike | None = None,
    y: VectorLike | None = None,
) -> Explanation:
    """Decompose the value of a row into those of its cells.

    Parameters
    ----------
    valuation : Valuation
    row : label
        Id of the row (or name of the row group), as in ``valuation.loc``.
    X : table, default=None
        The table that was valued. With it, cell contents are shown.
    y : array-like of shape (n_rows,), default=None
        Labels of the rows of X. With them, a sentence tells how often other rows have the row's
        label: all of them, and those with an equal or near cell in the three columns that matter
        most. A cell is often low because its label is rare among such rows.

    Returns
    -------
    Explanation

    See Also
    --------
    explain_column, cellworth.plots.waterfall

    Examples
    --------
    >>> from cellworth import explain_row, value_game
    >>> class Sum:
    ...     cells = np.array([[3.0, -1.0], [0.5, 1.5]])
    ...     def value(self, rows, columns):
    ...         return float(self.cells[np.ix_(rows, columns)].sum())
    >>> valuation = value_game(Sum(), (2, 2))
    >>> explain_row(valuation, 0)
    row 0 is worth 2, of which
      column   value
           0   3.000
           1  -1.000
    """
    check_valuation(valuation)
    position = valuation.blocks.rows.position(row, what="row")
    explained = _decompose(valuation, "row", position)
    if X is None and y is not None:
        raise ValueError("y needs X; pass both, or neither.")
    if X is None:
        return explained
    table = Table.from_data(X, called="X")
    if valuation.blocks.rows.grouped:
        raise ValueError(
            "X must be None for a valuation of row groups, which hold several cells; leave it out."
        )
    check_rows(valuation, table)
    check_cells(valuation, table)
    explained = replace(explained, cells=_read_cells(table, position, explained.parts))
    if y is None:
        return explained
    return replace(explained, reason=_compare_labels(explained, table, position, y))


def explain_column(valuation: Valuation, column: Hashable) -> Explanation:
    """Decompose the value of a column into those of its cells.

    Parameters
    ----------
    valuation : Valuation
    column : label
        Name of the column (or of the column group), as in ``valuation.loc``.

    Returns
    -------
    Explanation

    See Also
    --------
    explain_row, cellworth.plots.waterfall

    Examples
    --------
    >>> from cellworth import explain_column, value_game
    >>> class Sum:
    ...     cells = np.array([[3.0, -1.0], [0.5, 1.5]])
    ...     def value(self, rows, columns):
    ...         return float(self.cells[np.ix_(rows, columns)].sum())
    >>> valuation = value_game(Sum(), (2, 2))
    >>> explain_column(valuation, 1)
    column 1 is worth 0.5, of which
      row   value
        1   1.500
        0  -1.000
    """
    check_valuation(valuation)
    position = valuation.blocks.columns.position(column, what="column")
    return _decompose(valuation, "column", position)


def _decompose(valuation: Valuation, side: ExplainedAxis, position: int) -> Explanation:
    sums = valuation.rows() if side == "row" else valuation.columns()
    total = sums.part(np.array([position]))
    parts = valuation.row(position) if side == "row" else valuation.column(position)
    # NaN sorts last; equal sizes stay in the table's order.
    order = np.argsort(-np.abs(parts.values), kind="stable")
    return Explanation(
        side,
        total.labels[side].tolist()[0],
        float(total.values[0]),
        float(total.sampling_se[0]),
        None if total.validation_se is None else float(total.validation_se[0]),
        parts.part(order),
    )


def _read_cells(table: Table, row: int, parts: ValueList) -> tuple[Any, ...] | None:
    """Return the contents of a row's cells; None if its parts are groups of cells."""
    names = [str(name) for name in table.names.tolist()]
    asked = [str(name) for name in parts.labels["column"].tolist()]
    # A valued label is not a cell of the table.
    if not set(asked) - {LABEL} <= set(names):
        return None
    found = read_cells(table, np.full(len(names), row), np.arange(len(names)))
    by_name = dict(zip(names, found, strict=True))
    return tuple(by_name.get(name) for name in asked)


def _add_cells(parts: ValueList, cells: tuple[Any, ...]) -> ValueList:
    return replace(parts, labels=dict(parts.labels) | {"cell": object_array(cells)})


def _compare_labels(explained: Explanation, table: Table, position: int, y: VectorLike) -> str:
    """Say how often other rows have the row's label: all, and those near it in one column."""
    target, classes = read_target(y, table)
    own_row = table.take(np.array([position]), np.arange(table.shape[1]))
    own_table = replace(Table.from_data(own_row, called="X"), names=table.names)
    # Shape (n_columns, n_rows).
    away: Floats = Distances.from_tables(table, [own_table]).measure(0, 0).astype(np.float64)
    others = np.arange(len(target)) != position
    names = [str(name) for name in table.names.tolist()]
    compared: list[tuple[str, Mask]] = []
    for name, cell in zip(explained.parts.labels["column"], explained.cells or (), strict=False):
        if cell is None or str(name) not in names or len(compared) == _COLUMNS_COMPARED:
            continue
        near = others & _find_near(away[names.index(str(name))], others)
        if near.any():
            compared.append((f"{near.sum():,} rows like it in {name}", near))
    own = target[position : position + 1].tolist()[0]
    if classes is None:
        shares = [f"{target[near].mean():.4g} of the {text}" for text, near in compared]
        start = (
            f"its target is {own:.4g}; the mean is {target[others].mean():.4g} of all other rows"
        )
    else:
        shares = [f"{(target[near] == own).mean():.0%} of the {text}" for text, near in compared]
        start = f"{(target[others] == own).mean():.0%} of all other rows have its label {own!r}"
    return ", ".join([start, *shares]) + "."


def _find_near(away: Floats, others: Mask) -> Mask:
    """Return the rows with an equal cell; if these are few, the nearest ones of a number."""
    equal: Mask = away <= 0
    n_others = int(others.sum())
    if (equal & others).sum() >= _ROWS_COMPARED or n_others <= _ROWS_COMPARED:
        return equal
    near: Mask = away <= np.partition(away[others], _ROWS_COMPARED - 1)[_ROWS_COMPARED - 1]
    # All categories that differ are equally far.
    return equal if near[others].all() else near


def _take_first(parts: ValueList) -> ValueList:
    return parts.part(np.arange(min(len(parts), _PARTS_PRINTED)))
