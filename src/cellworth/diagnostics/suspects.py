"""suspect_cells: list the most unlikely cells, with their typical content and reasons."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

import numpy as np

from cellworth.data.arguments import ColumnTypes, Floats, Positions, check_count
from cellworth.data.tables import Table, TableLike, VectorLike, default_backend, frame
from cellworth.diagnostics.anomaly import DIGITS, Evidence
from cellworth.diagnostics.cells import (
    CellValues,
    check_cells,
    check_valuation,
    drop_group_column,
    get_cell_lister,
    read_cells,
    standardize_values,
)
from cellworth.diagnostics.features import FeatureColumn, Features, Levels
from cellworth.valuation.valuation import Valuation

By = Literal["anomaly_score", "value"]
N_NEIGHBORS = 10
NO_ROW = -1
_MOST_DISTANCES = 2**22
_LONGEST = 60
# Unicode isolates: right-to-left text between them does not reorder the sentence.
_ISOLATE, _END = "\u2068", "\u2069"
_LEFTWARD = {"R", "AL", "RLE", "RLO", "RLI"}


def suspect_cells(
    X: TableLike,
    y: VectorLike,
    *,
    valuation: Valuation | None = None,
    k: int = 100,
    by: By = "anomaly_score",
    column_types: ColumnTypes | None = None,
    backend: str | None = None,
) -> Any:
    """List the most unlikely cells, with what is typical of similar rows.

    Cells are ranked by :func:`~cellworth.diagnostics.anomaly_scores`: how unlikely a cell is,
    given its label and its row. The value of a cell shows how much it matters to the model. An
    unlikely cell may be correct, so have a person check it.

    Parameters
    ----------
    X : data frame or array of shape (n_rows, n_columns)
    y : array of shape (n_rows,)
        Its labels.
    valuation : Valuation, default=None
        Values of the cells of X, with the rows in the same order; None leaves values out. A column
        of X that only names the row groups is ignored.
    k : int, default=100
        How many cells to list. The typical content takes a search of all rows for each of them; for
        the scores of all cells, call :func:`~cellworth.diagnostics.anomaly_scores`.
    by : {"anomaly_score", "value"}, default="anomaly_score"
        What to rank by. ``"value"`` ranks by relative value: the distance below the median of the
        same column and label, in standard deviations.
    column_types : mapping, default=None
        ``{"postcode": "categorical"}`` where the guess from a column's type is wrong.
    backend : {"pandas", "polars", "pyarrow"}, default=None
        None means the library that X came in; for arrays the first that is installed.

    Returns
    -------
    data frame
        ``rank, row, column, cell, typical, anomaly_score, value, sampling_se, validation_se,
        reason``; the value and its errors only with a valuation that has them. Cells of equal score
        are in the table's order, row by row. ``typical`` is the median number, or the most
        frequent content, of the ten nearest rows with the same label. Cells of groups have the
        value of their block. In pandas, cells keep their type; elsewhere they are strings if
        columns differ in type. ``reason`` has the first 60 characters of long contents.

    References
    ----------
    Rousseeuw and Van den Bossche (2018), Detecting Deviating Data Cells, Technometrics.

    Examples
    --------
    >>> from cellworth import suspect_cells
    >>> X = [[size, 7 * size] for size in range(20)]
    >>> X[4][1] = 105
    >>> cells = suspect_cells(X, ["small"] * 10 + ["large"] * 10, k=1)
    >>> print(cells["reason"][0])  # doctest: +NORMALIZE_WHITESPACE
    x1 is 105 where rows like it (label 'small') have about 35; the rarest of 20 for this label
    and the worst fit to its row.
    """
    _check_arguments(X, y, valuation)
    k = check_count(k, "k")
    _check_ranking(by, valuation)
    table = Table.from_data(X, called="X")
    cell_values = None
    if valuation is not None:
        table = drop_group_column(table, valuation)
        cell_values = CellValues.of(valuation, table)
        check_cells(valuation, table)
    evidence = Evidence.of(table, y, column_types)
    relative = None
    if by == "value" and cell_values is not None:
        relative = standardize_values(cell_values.all(), evidence.groups)
    rows, columns = cells = _find_highest(evidence.scores if relative is None else -relative, k)
    suspects = _make_suspects(table, evidence, cells)
    name = backend or table.backend or default_backend()
    as_listed = get_cell_lister(table, name)
    listed = {
        "rank": list(range(1, len(rows) + 1)),
        "row": table.row_ids[rows].tolist(),
        "column": table.names[columns].tolist(),
        "cell": as_listed([suspect.cell for suspect in suspects]),
        "typical": as_listed([suspect.typical for suspect in suspects]),
        "anomaly_score": evidence.scores[cells].tolist(),
    }
    listed |= {} if cell_values is None else cell_values.at(*cells)
    if relative is None:
        listed["reason"] = [suspect.why_unlikely() for suspect in suspects]
    else:
        below = -relative[cells]
        listed["reason"] = [s.why_low(b) for s, b in zip(suspects, below.tolist(), strict=True)]
    return frame(listed, name)


def _check_arguments(X: TableLike, y: VectorLike, valuation: Any) -> None:
    for called, given in {"X": X, "y": y}.items():
        if isinstance(given, Valuation):
            raise TypeError(
                f"{called} must be a table or labels, got a Valuation; call suspect_cells(X, y, "
                "valuation=valuation)."
            )
    if valuation is not None:
        check_valuation(valuation)


def _check_ranking(by: By, valuation: Valuation | None) -> None:
    if by not in get_args(By):
        raise ValueError(f"by must be 'anomaly_score' or 'value', got {by!r}.")
    if by == "value" and valuation is None:
        raise ValueError(
            "by='value' needs a valuation; pass valuation=, or rank by 'anomaly_score'."
        )


def _find_highest(scores: Floats, k: int) -> tuple[Positions, Positions]:
    """Return rows and columns of the k highest scores, ties in the table's order, without NaN."""
    order = np.argsort(-scores, axis=None, kind="stable")
    order = order[~np.isnan(scores.ravel()[order])][:k]
    rows, columns = np.unravel_index(order, scores.shape)
    return rows, columns


def _make_suspects(
    table: Table, evidence: Evidence, cells: tuple[Positions, Positions]
) -> list[Suspect]:
    rows, columns = cells
    like = find_typical_rows(evidence, rows, columns)
    near = [evidence.nearest(row, column) for row, column in zip(*cells, strict=True)]
    others = np.array([NO_ROW if row is None else row for row in near], dtype=np.intp)
    cell, typical, nearest = (
        read_cells(table, np.where(asked == NO_ROW, rows, asked), columns)
        for asked in (rows, like, others)
    )
    return [
        Suspect(
            column=str(table.names[column]),
            is_number=evidence.columns[column].numbers is not None,
            cell=cell[i],
            typical=None if like[i] == NO_ROW else typical[i],
            nearest=None if others[i] == NO_ROW else nearest[i],
            is_alone=bool(like[i] == NO_ROW),
            label=evidence.target[[row]].tolist()[0],
            has_class=evidence.is_class,
            n_others=len(evidence.groups) - 1,
            as_rare=int(evidence.as_rare[row, column]) - 1,
            as_misfit=int(evidence.as_misfit[row, column]) - 1,
        )
        for i, (row, column) in enumerate(zip(*cells, strict=True))
    ]


def find_typical_rows(evidence: Evidence, rows: Positions, columns: Positions) -> Positions:
    """Find, for each of some cells, a row whose cell is typical of similar rows; else NO_ROW.

    Similar rows are the ten nearest with the same label by all other columns, and all that are as
    near. Typical is their most frequent level, or the median of their numbers.
    """
    found = np.full(len(rows), NO_ROW, dtype=np.intp)
    for position, distances in _iter_distances(evidence, rows, columns):
        near = _find_nearest(distances)
        if len(near):
            column = evidence.columns[columns[position]]
            # Among equally near rows, the content decides and not the row number.
            order = np.lexsort((column.levels[near], distances[near]))
            found[position] = _choose_typical(column, near[order])
    return found


def _iter_distances(
    evidence: Evidence, rows: Positions, columns: Positions
) -> Iterator[tuple[int, Floats]]:
    """Yield the squared distances of all rows from the row of each cell; inf for other labels."""
    at_once = max(_MOST_DISTANCES // len(evidence.groups), 1)
    for start in range(0, len(rows), at_once):
        cells = slice(start, start + at_once)
        distances = _compute_squares(evidence.features, rows[cells], columns[cells])
        for position, (row, squares) in enumerate(zip(rows[cells], distances, strict=True), start):
            squares[evidence.groups != evidence.groups[row]] = np.inf
            squares[row] = np.inf
            yield position, squares


def _compute_squares(features: Features, rows: Positions, columns: Positions) -> Floats:
    asked = features.rows(rows)
    counts = np.ones(asked.shape)
    # The label is the same, or similar; its features and the constant come last.
    counts[:, features.own[-1].start :] = 0.0
    for line, column in zip(counts, columns, strict=True):
        line[features.own[column]] = 0.0
    distances = np.empty((len(rows), features.n_rows))
    for strip, others in features.iter_rows():
        squares = counts @ (others**2).T - 2.0 * (counts * asked) @ others.T
        distances[:, strip] = squares + (counts * asked**2).sum(axis=1)[:, None]
    return np.round(distances, DIGITS)


def _find_nearest(distances: Floats) -> Positions:
    candidates = np.flatnonzero(np.isfinite(distances))
    if len(candidates) <= N_NEIGHBORS:
        return candidates
    reach = np.partition(distances[candidates], N_NEIGHBORS - 1)[N_NEIGHBORS - 1]
    return np.flatnonzero(distances <= reach)


def _choose_typical(column: FeatureColumn, near: Positions) -> int:
    """Choose a row with the typical content; ``near`` is in order of distance."""
    row = near[_find_most_frequent(column.levels[near])]
    if column.numbers is None or np.isnan(column.numbers[row]):
        return int(row)
    known = near[column.known[near]]
    ascending = known[np.argsort(column.numbers[known], kind="stable")]
    return int(ascending[(len(ascending) - 1) // 2])


def _find_most_frequent(levels: Levels) -> int:
    """Return the first position of the most frequent level; of several, the first."""
    counts = np.bincount(levels)[levels]
    return int(np.argmax(counts))


@dataclass(frozen=True)
class Suspect:
    """A suspicious cell, and what its reason is made of."""

    column: str
    # Whether the column holds numbers or dates rather than categories.
    is_number: bool
    # Content of the cell, and of similar rows; None is a missing value.
    cell: Any
    typical: Any
    # The nearest other content of the column if it is far away, else None.
    nearest: Any
    # Whether no other row has its label, so that nothing is typical.
    is_alone: bool
    # Class or numeric target of its row.
    label: Any
    has_class: bool
    # Other cells of the column; how many of them are as rare for their label, or fit as badly.
    n_others: int
    as_rare: int
    as_misfit: int

    def why_unlikely(self) -> str:
        """Return how the cell ranks in its column, by rarity and by fit, and how isolated it is."""
        if self.n_others == 0:
            return f"{self._compare()}; there is no other cell of {self._name} to compare it with."
        kind = "label" if self.has_class else "target"
        rare = "the rarest" if self.as_rare == 0 else f"among the {self.as_rare + 1:,} rarest"
        fit = "the worst fit to its row"
        if self.as_misfit:
            fit = f"among the {self.as_misfit + 1:,} worst fits to their row"
        ranks = f"{rare} of {self.n_others + 1:,} for this {kind} and {fit}"
        if self.nearest is None:
            return f"{self._compare()}; {ranks}."
        side = "largest" if self.nearest < self.cell else "smallest"
        return f"{self._compare()}; {ranks}; the next {side} is {format_cell(self.nearest)}."

    def why_low(self, below: float) -> str:
        """Return how far its value is from the median, in standard deviations."""
        there = "in rows with this label" if self.has_class else "in rows with a similar target"
        side = "below" if below >= 0 else "above"
        away = f"{abs(below):.1f} standard deviations {side}" if below else "no lower than"
        return f"{self._compare()}; its value is {away} the median of {self._name} {there}."

    @property
    def _name(self) -> str:
        return isolate_text(shorten(self.column))

    def _compare(self) -> str:
        """Compare its content with that of similar rows."""
        here = f"{self._name} is {'missing' if self.cell is None else format_cell(self.cell)}"
        label = f"{'label' if self.has_class else 'target'} {format_cell(self.label)}"
        if self.is_alone:
            return f"{here}, and no other row has the {label}"
        like = f"rows like it ({'' if self.has_class else 'near '}{label})"
        if self.typical == self.cell:
            return f"{here}, as in {like}"
        if self.typical is None:
            return f"{here} where {like} have no value"
        about = "about " if self.is_number else ""
        return f"{here} where {like} have {about}{format_cell(self.typical)}"


def format_cell(content: Any) -> str:
    """Format the content of a cell for a sentence: long strings cut, dates without 00:00."""
    if content is None:
        return "a missing value"
    if isinstance(content, int | float) and not isinstance(content, bool):
        # No separator in four digits: they may be a year.
        thousands = "," if abs(content) >= 10_000 else ""
        return format(content, f"{thousands}.6g" if isinstance(content, float) else thousands)
    if isinstance(content, str):
        return isolate_text(repr(shorten(content)))
    is_timestamp = isinstance(content, datetime)
    return isolate_text(shorten(format_timestamp(content) if is_timestamp else str(content)))


def format_timestamp(moment: datetime) -> str:
    """Format a timestamp, as a date if it is midnight."""
    is_date = moment.time() == datetime.min.time()
    return moment.date().isoformat() if is_date else str(moment)


def shorten(text: str) -> str:
    """Cut off the end of long text."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def isolate_text(text: str) -> str:
    """Isolate right-to-left text, which would reorder the sentence around it."""
    turns = any(unicodedata.bidirectional(character) in _LEFTWARD for character in text)
    return f"{_ISOLATE}{text}{_END}" if turns else text
