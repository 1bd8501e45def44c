"""suspect_cells: which cells to look at first, what stands there, and why it is suspicious."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from cellworth.applications.likeness import NOBODY, typical_rows
from cellworth.applications.reasons import Suspect
from cellworth.applications.unlikely import Evidence
from cellworth.applications.worths import CellWorths, relative_worth
from cellworth.blocks import Positions, is_missing
from cellworth.counts import checked_count
from cellworth.listing import default_backend, frame
from cellworth.neighbours.columns import Distance, Floats, Kind
from cellworth.tables import Table
from cellworth.valuation import Valuation

By = Literal["suspicion", "worth"]


def suspect_cells(
    valuation: Valuation | None,
    X: Any,
    y: Any,
    *,
    k: int = 100,
    by: By = "suspicion",
    kinds: Mapping[Any, Kind | Distance] | None = None,
    backend: str | None = None,
) -> Any:
    """List the cells that most deserve a look, worst first, with what one would expect there.

    The ranking says how unlikely a cell is, given its label and its row
    (:func:`cell_suspicion`). Its worth stands beside it and says how much the cell matters to the
    model. An unlikely cell may still be right: a person decides.

    Parameters
    ----------
    valuation : Valuation or None
        What the cells are worth; None leaves worth out.
    X : data frame or array of shape (n_rows, n_columns)
        The table that was valued, in the same order of rows.
    y : array of shape (n_rows,)
        Its labels.
    k : int, default=100
        How many cells to list. What is typical takes a look at all rows for each of them; for the
        suspicion of all cells, call :func:`cell_suspicion`.
    by : {"suspicion", "worth"}, default="suspicion"
        What to rank by. ``"worth"`` puts cells first that are worth less than others of their
        column and label, counted in standard deviations from the median.
    kinds : mapping, default=None
        ``{"postcode": "categorical"}`` where the guess from a column's type is wrong.
    backend : {"pandas", "polars", "pyarrow"}, default=None
        None means the library that X came in; for arrays the first that is installed.

    Returns
    -------
    data frame
        ``rank, row, column, cell, typical, suspicion, worth, standard_error, validation_error,
        reason``; the three of the valuation only where it was given (and knows them). Equally
        suspicious cells stand in the table's order, row after row. ``typical``
        is what the ten nearest rows with the same label have there: the middle one of their
        numbers, or their most frequent content. Cells of groups get the worth of their block.
        Cells are as they are in pandas; elsewhere they are text if columns differ in type.

    Examples
    --------
    >>> X = [[size, 7 * size] for size in range(20)]
    >>> X[4][1] = 105
    >>> cells = suspect_cells(None, X, ["small"] * 10 + ["large"] * 10, k=1)
    >>> print(cells["reason"][0])  # doctest: +NORMALIZE_WHITESPACE
    x1 is 105 where rows like it (label 'small') have about 35; of the 19 other cells of x1, none
    is as rare for its label and none fits its row as badly.
    """
    k = checked_count(k, "k")
    _refuse_ranking(by, valuation)
    table = Table.of(X, called="X")
    worths = None if valuation is None else CellWorths.of(valuation, table)
    evidence = Evidence.of(table, y, kinds)
    relative = None
    if by == "worth" and worths is not None:
        relative = relative_worth(worths.all(), evidence.groups)
    rows, columns = cells = _first(evidence.suspicion if relative is None else -relative, k)
    suspects = _suspects(table, evidence, cells)
    name = backend or table.backend or default_backend()
    as_listed = _as_objects if name == "pandas" else _of_one_type(table)
    listed = {
        "rank": list(range(1, len(rows) + 1)),
        "row": table.row_ids[rows].tolist(),
        "column": table.names[columns].tolist(),
        "cell": as_listed([suspect.cell for suspect in suspects]),
        "typical": as_listed([suspect.typical for suspect in suspects]),
        "suspicion": evidence.suspicion[cells].tolist(),
    }
    listed |= {} if worths is None else worths.at(*cells)
    if relative is None:
        listed["reason"] = [suspect.why_unlikely() for suspect in suspects]
    else:
        below = -relative[cells]
        listed["reason"] = [s.why_low(b) for s, b in zip(suspects, below.tolist(), strict=True)]
    return frame(listed, name)


def _refuse_ranking(by: By, valuation: Valuation | None) -> None:
    if by not in get_args(By):
        raise ValueError(f"by is {by!r}; give 'suspicion' or 'worth'.")
    if by == "worth" and valuation is None:
        raise ValueError("by is 'worth', but no valuation came; pass one, or rank by 'suspicion'.")


def _first(scores: Floats, k: int) -> tuple[Positions, Positions]:
    """Rows and columns of the k highest scores, ties in the table's order, without NaN."""
    order = np.argsort(-scores, axis=None, kind="stable")
    order = order[~np.isnan(scores.ravel()[order])][:k]
    rows, columns = np.unravel_index(order, scores.shape)
    return rows, columns


def _suspects(
    table: Table, evidence: Evidence, cells: tuple[Positions, Positions]
) -> list[Suspect]:
    rows, columns = cells
    like = typical_rows(evidence, rows, columns)
    near = [evidence.nearest(row, column) for row, column in zip(*cells, strict=True)]
    others = np.array([NOBODY if row is None else row for row in near], dtype=np.intp)
    contents, typical, nearest = (
        _contents(table, np.where(asked == NOBODY, rows, asked), columns)
        for asked in (rows, like, others)
    )
    return [
        Suspect(
            column=str(table.names[column]),
            is_number=evidence.columns[column].numbers is not None,
            cell=contents[i],
            typical=None if like[i] == NOBODY else typical[i],
            nearest=None if others[i] == NOBODY else nearest[i],
            is_alone=bool(like[i] == NOBODY),
            label=evidence.target[[row]].tolist()[0],
            has_class=evidence.is_class,
            n_others=len(evidence.groups) - 1,
            as_rare=int(evidence.as_rare[row, column]) - 1,
            as_misfit=int(evidence.as_misfit[row, column]) - 1,
        )
        for i, (row, column) in enumerate(zip(*cells, strict=True))
    ]


def _contents(table: Table, rows: Positions, columns: Positions) -> list[Any]:
    """Cells as Python objects, None for gaps."""
    contents: list[Any] = [None] * len(rows)
    for column in np.unique(columns):
        places = np.flatnonzero(columns == column)
        cells = table.column(int(column))[rows[places]]
        if cells.dtype.kind in "Mm":
            # Finer units would come as whole numbers.
            cells = cells.astype(f"{cells.dtype.kind}8[us]")
        for place, cell in zip(places, cells.tolist(), strict=True):
            contents[place] = None if is_missing(cell) else cell
    return contents


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
