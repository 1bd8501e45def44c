"""suspect_cells: which cells to look at first, what stands there, and why it is suspicious."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np

from cellworth.applications.cells import contents, lister
from cellworth.applications.likeness import NOBODY, typical_rows
from cellworth.applications.reasons import Suspect
from cellworth.applications.unlikely import Evidence
from cellworth.applications.worths import (
    CellWorths,
    refuse_other_cells,
    relative_worth,
    without_groups,
)
from cellworth.blocks import Positions
from cellworth.counts import checked_count
from cellworth.listing import default_backend, frame
from cellworth.neighbours.columns import Distance, Floats, Kind
from cellworth.tables import Table
from cellworth.valuation import Valuation

By = Literal["suspicion", "worth"]


def suspect_cells(
    X: Any,
    y: Any,
    valuation: Valuation | None = None,
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
    X : data frame or array of shape (n_rows, n_columns)
    y : array of shape (n_rows,)
        Its labels.
    valuation : Valuation, default=None
        What the cells of X are worth; None leaves worth out. It must be the valuation of this very
        table, with the rows in the same order; a column of X that only named the groups of rows is
        left out.
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
        ``reason`` has the first 60 characters of long contents.

    References
    ----------
    Rousseeuw and Van den Bossche (2018), Detecting Deviating Data Cells, Technometrics.

    Examples
    --------
    >>> X = [[size, 7 * size] for size in range(20)]
    >>> X[4][1] = 105
    >>> cells = suspect_cells(X, ["small"] * 10 + ["large"] * 10, k=1)
    >>> print(cells["reason"][0])  # doctest: +NORMALIZE_WHITESPACE
    x1 is 105 where rows like it (label 'small') have about 35; of the 19 other cells of x1, none
    is as rare for its label and none fits its row as badly.
    """
    _refuse_other_order(X, y, valuation)
    k = checked_count(k, "k")
    _refuse_ranking(by, valuation)
    table = Table.of(X, called="X")
    worths = None
    if valuation is not None:
        table = without_groups(table, valuation)
        worths = CellWorths.of(valuation, table)
        refuse_other_cells(valuation, table)
    evidence = Evidence.of(table, y, kinds)
    relative = None
    if by == "worth" and worths is not None:
        relative = relative_worth(worths.all(), evidence.groups)
    rows, columns = cells = _first(evidence.suspicion if relative is None else -relative, k)
    suspects = _suspects(table, evidence, cells)
    name = backend or table.backend or default_backend()
    as_listed = lister(table, name)
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


def _refuse_other_order(X: Any, y: Any, valuation: Any) -> None:
    for called, given in {"X": X, "y": y}.items():
        if isinstance(given, Valuation):
            raise TypeError(
                f"{called} is a Valuation; the order is suspect_cells(X, y, valuation)."
            )
    if valuation is not None and not isinstance(valuation, Valuation):
        raise TypeError(
            f"valuation is of type {type(valuation).__name__}; give the valuation_ of a fitted "
            "valuer, as in suspect_cells(X, y, valuation)."
        )


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
    cell, typical, nearest = (
        contents(table, np.where(asked == NOBODY, rows, asked), columns)
        for asked in (rows, like, others)
    )
    return [
        Suspect(
            column=str(table.names[column]),
            is_number=evidence.columns[column].numbers is not None,
            cell=cell[i],
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
