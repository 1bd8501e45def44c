"""suspect_cells: which cells to look at first, what stands there, and why it is suspicious."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

import numpy as np

from cellworth.blocks import Positions
from cellworth.counts import checked_count
from cellworth.diagnostics.anomaly import DIGITS, Evidence
from cellworth.diagnostics.cells import (
    CellWorths,
    contents,
    lister,
    refuse_other_cells,
    relative_worth,
    without_groups,
)
from cellworth.diagnostics.features import Column, Features, Levels
from cellworth.listing import default_backend, frame
from cellworth.neighbours.columns import Distance, Floats, Kind
from cellworth.tables import Table
from cellworth.valuation import Valuation

By = Literal["suspicion", "worth"]
N_NEIGHBOURS = 10
NOBODY = -1
_MOST_DISTANCES = 2**22
_LONGEST = 60
# Unicode's isolates keep the direction of what stands between them.
_ISOLATE, _END = "\u2068", "\u2069"
_LEFTWARD = {"R", "AL", "RLE", "RLO", "RLI"}


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


def typical_rows(evidence: Evidence, rows: Positions, columns: Positions) -> Positions:
    """For each of some cells, a row whose cell in this column is typical of rows like its own.

    Rows like it are the ten nearest with the same label, by all other columns; more where several
    are equally near. Typical is their most frequent level, or the middle one of their numbers.
    NOBODY where no other row has the label.
    """
    found = np.full(len(rows), NOBODY, dtype=np.intp)
    for place, distances in _distances(evidence, rows, columns):
        near = _nearest(distances)
        if len(near):
            column = evidence.columns[columns[place]]
            # Of rows that are equally near, the content decides and not the place in the table.
            order = np.lexsort((column.levels[near], distances[near]))
            found[place] = _typical(column, near[order])
    return found


def _distances(
    evidence: Evidence, rows: Positions, columns: Positions
) -> Iterator[tuple[int, Floats]]:
    """Squared distances of all rows from the row of each cell; infinite for other labels."""
    at_once = max(_MOST_DISTANCES // len(evidence.groups), 1)
    for start in range(0, len(rows), at_once):
        cells = slice(start, start + at_once)
        distances = _squared(evidence.features, rows[cells], columns[cells])
        for place, (row, squares) in enumerate(zip(rows[cells], distances, strict=True), start):
            squares[evidence.groups != evidence.groups[row]] = np.inf
            squares[row] = np.inf
            yield place, squares


def _squared(features: Features, rows: Positions, columns: Positions) -> Floats:
    asked = features.rows(rows)
    counts = np.ones(asked.shape)
    # The label is the same anyhow, or nearly so; its features and the constant come last.
    counts[:, features.own[-1].start :] = 0.0
    for line, column in zip(counts, columns, strict=True):
        line[features.own[column]] = 0.0
    distances = np.empty((len(rows), features.n_rows))
    for strip, others in features.strips():
        squares = counts @ (others**2).T - 2.0 * (counts * asked) @ others.T
        distances[:, strip] = squares + (counts * asked**2).sum(axis=1)[:, None]
    return np.round(distances, DIGITS)


def _nearest(distances: Floats) -> Positions:
    candidates = np.flatnonzero(np.isfinite(distances))
    if len(candidates) <= N_NEIGHBOURS:
        return candidates
    reach = np.partition(distances[candidates], N_NEIGHBOURS - 1)[N_NEIGHBOURS - 1]
    return np.flatnonzero(distances <= reach)


def _typical(column: Column, near: Positions) -> int:
    """Choose one of the rows that stand in order of distance."""
    row = near[_most_frequent(column.levels[near])]
    if column.numbers is None or np.isnan(column.numbers[row]):
        return int(row)
    known = near[column.known[near]]
    ascending = known[np.argsort(column.numbers[known], kind="stable")]
    return int(ascending[(len(ascending) - 1) // 2])


def _most_frequent(levels: Levels) -> int:
    """First place of the most frequent level; among equally frequent ones, of the first to come."""
    counts = np.bincount(levels)[levels]
    return int(np.argmax(counts))


@dataclass(frozen=True)
class Suspect:
    """A cell and what is known about it.

    Parameters
    ----------
    column : str
        Name of its column.
    is_number : bool
        Whether the column holds numbers or dates rather than categories.
    cell, typical : object
        What stands there, and what rows like it have; None is a gap.
    nearest : object
        The nearest other content of the column, where that is far away; else None.
    is_alone : bool
        Whether no other row has its label, so that nothing is typical.
    label : object
        Class of its row, or its target.
    has_class : bool
        Whether labels are classes.
    n_others, as_rare, as_misfit : int
        Other cells of the column; how many of them are as rare for their label, or fit as badly.
    """

    column: str
    is_number: bool
    cell: Any
    typical: Any
    nearest: Any
    is_alone: bool
    label: Any
    has_class: bool
    n_others: int
    as_rare: int
    as_misfit: int

    def why_unlikely(self) -> str:
        """Say how few cells of the column are as unlikely."""
        if self.n_others == 0:
            return f"{self._compared()}; there is no other cell of {self._name} to compare it with."
        label = "label" if self.has_class else "target"
        rare = _counted(self.as_rare, ("is as rare", "are as rare"), " or rarer")
        whose = "its" if self.as_rare < 2 else "their"
        fits = ("fits its row as badly", "fit their row as badly")
        misfit = _counted(self.as_misfit, fits, " or worse")
        others = f"{self.n_others:,} other cell{'s' if self.n_others > 1 else ''} of {self._name}"
        apart = "" if self.nearest is None else f"; the nearest of them is {shown(self.nearest)}"
        return (
            f"{self._compared()}; of the {others}, {rare} for {whose} {label} and {misfit}{apart}."
        )

    def why_low(self, below: float) -> str:
        """Say how far its worth is from the median, in standard deviations."""
        there = "in rows with its label" if self.has_class else "in rows with a like target"
        side = "below" if below >= 0 else "above"
        away = f"{abs(below):.1f} standard deviations {side}" if below else "no lower than"
        return f"{self._compared()}; its worth is {away} the median of {self._name} {there}."

    @property
    def _name(self) -> str:
        return isolated(shortened(self.column))

    def _compared(self) -> str:
        here = f"{self._name} is {shown(self.cell)}"
        label = f"{'label' if self.has_class else 'target'} {shown(self.label)}"
        if self.is_alone:
            return f"{here}, and no other row has the {label}"
        like = f"rows like it ({'' if self.has_class else 'near '}{label})"
        if self.typical == self.cell:
            return f"{here}, as in {like}"
        about = "about " if self.is_number and self.typical is not None else ""
        return f"{here} where {like} have {about}{shown(self.typical)}"


def _counted(n: int, verbs: tuple[str, str], beyond: str) -> str:
    """Say how many do something, or go beyond it."""
    if n == 0:
        return f"none {verbs[0]}"
    return f"{n:,} {verbs[n > 1]}{beyond}"


def shown(content: Any) -> str:
    """Show the content of a cell in a sentence: the beginning of long text, dates without 00:00."""
    if content is None:
        return "a gap"
    if isinstance(content, float):
        return f"{content:.6g}"
    if isinstance(content, str):
        return isolated(repr(shortened(content)))
    return isolated(
        shortened(date_text(content) if isinstance(content, datetime) else str(content))
    )


def date_text(moment: datetime) -> str:
    """Write a moment; one that is midnight sharp is a date."""
    is_date = moment.time() == datetime.min.time()
    return moment.date().isoformat() if is_date else str(moment)


def shortened(text: str) -> str:
    """Leave out the end of long text."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def isolated(text: str) -> str:
    """Keep text that runs from right to left from turning the sentence around it."""
    turns = any(unicodedata.bidirectional(character) in _LEFTWARD for character in text)
    return f"{_ISOLATE}{text}{_END}" if turns else text
