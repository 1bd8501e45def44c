"""suspect_cells: list the most unlikely cells, with their typical content and reasons."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

import numpy as np

from cellworth.data.arguments import ColumnTypes, Floats, Positions, check_count
from cellworth.data.tables import Table, TableLike, VectorLike, View, default_backend, frame
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
# Cells whose distances from other rows are computed together.
_CELLS_AT_ONCE = 256
# Characters of a content, and words of a reason.
_LONGEST = 60
_MAX_WORDS = 25
_SHOWN = 20
_IN_SIMILAR_ROWS, _FOR_LABEL, _IN_ITS_ROW = (
    "rare in similar rows", "rare for its label", "unlike the rest of its row",
)  # fmt: skip
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
) -> Suspects:
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

    Returns
    -------
    Suspects
        It prints and shows the reasons; ``to_frame()`` returns a data frame. Cells of equal score
        are in the table's order, row by row.

    See Also
    --------
    cellworth.diagnostics.anomaly_scores, cellworth.diagnostics.repair_cells, audit

    References
    ----------
    Rousseeuw and Van den Bossche (2018), Detecting Deviating Data Cells, Technometrics.

    Examples
    --------
    >>> from cellworth import suspect_cells
    >>> X = [[size, 7 * size] for size in range(20)]
    >>> X[4][1] = 105
    >>> suspects = suspect_cells(X, ["small"] * 10 + ["large"] * 10, k=1)
    >>> print(suspects["reason"][0])
    x1 is 105 where rows like it (label 'small') have about 35; the rarest of 20 for this label.
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
    listed = {
        "rank": list(range(1, len(rows) + 1)),
        "row": table.row_ids[rows].tolist(),
        "column": table.names[columns].tolist(),
        "cell": [suspect.cell for suspect in suspects],
        "typical": [suspect.typical for suspect in suspects],
        "anomaly_score": evidence.scores[cells].tolist(),
    }
    listed |= {} if cell_values is None else cell_values.at(*cells)
    if relative is None:
        listed["reason"] = [suspect.why_unlikely() for suspect in suspects]
    else:
        below = -relative[cells]
        listed["reason"] = [s.why_low(b) for s, b in zip(suspects, below.tolist(), strict=True)]
    return Suspects(table, by, listed, tuple(suspect.kind for suspect in suspects))


@dataclass(frozen=True, eq=False)
class Suspects:
    """The most suspicious cells with their reasons, worst first; made by ``suspect_cells``.

    Parameters
    ----------
    table : Table
    by : {"anomaly_score", "value"}
        What cells are ranked by.
    columns : mapping of str to list
        ``rank, row, column, cell, typical, anomaly_score, value, sampling_se, validation_se,
        reason``; the value and its errors only with a valuation that has them. ``typical`` is the
        median number, or the most frequent content, of the ten nearest rows with the same label.
        Cells of groups have the value of their block. ``reason`` has at most 25 words and shortens
        long contents.
    short_reasons : tuple of str
        What is most unusual about each cell, in a few words.

    See Also
    --------
    cellworth.suspect_cells, repair_cells

    Examples
    --------
    >>> from cellworth import suspect_cells
    >>> X = [[size, 7 * size] for size in range(20)]
    >>> X[4][1] = 105
    >>> suspects = suspect_cells(X, ["small"] * 10 + ["large"] * 10, k=3)
    >>> suspects["row"][0], suspects["cell"][0], suspects["typical"][0]
    (4, 105, 35)
    >>> suspects.short_reasons[0]
    'rare for its label'
    >>> suspects.to_frame("pyarrow").column_names
    ['rank', 'row', 'column', 'cell', 'typical', 'anomaly_score', 'reason']
    """

    table: Table
    by: By
    columns: Mapping[str, list[Any]]
    short_reasons: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.columns["rank"])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield one dictionary per cell."""
        for entry in zip(*self.columns.values(), strict=True):
            yield dict(zip(self.columns, entry, strict=True))

    def __getitem__(self, name: str) -> list[Any]:
        """Return a column, such as ``suspects["reason"]``."""
        return self.columns[name]

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame with one row per cell.

        In pandas, cells keep their type; elsewhere they are strings if columns differ in type.

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}, default=None
            None means the library that X came in; for arrays the first that is installed.
        """
        name = backend or self.table.backend or default_backend()
        as_listed = get_cell_lister(self.table, name)
        contents = {each: as_listed(self.columns[each]) for each in ("cell", "typical")}
        return frame(dict(self.columns) | contents, name)

    def __repr__(self) -> str:
        shown = zip(self["rank"], self["row"], self["reason"], strict=True)
        lines = [f"{rank:>4}  row {row}: {reason}" for rank, row, reason in shown]
        return "\n".join([self._title(), *lines[:_SHOWN], *self._left_out()])

    def _repr_html_(self) -> str:
        """Show the cells in Jupyter, with bars of what they are ranked by."""
        columns = {
            "rank": self["rank"],
            "row": self["row"],
            "column": self["column"],
            "cell": list(map(format_cell, self["cell"])),
            "typical": list(map(format_cell, self["typical"])),
            "why": self["reason"],
            "value": [f"{number:.4g}" for number in self.columns.get("value", [])],
            "anomaly_score": [f"{number:.4g}" for number in self["anomaly_score"]],
        }
        shown = {name: entries[:_SHOWN] for name, entries in columns.items() if entries}
        numbers = self[self.by][:_SHOWN]
        return View(self._title(), shown, self._left_out(), numbers, left=("why",)).html()

    def _title(self) -> str:
        what = "least likely" if self.by == "anomaly_score" else "lowest, given column and label,"
        return f"The {what} of {math.prod(self.table.shape):,} cells"

    def _left_out(self) -> tuple[str, ...]:
        left = len(self) - _SHOWN
        return (f"... and {left:,} more, in to_frame()",) if left > 0 else ()


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
            times_rarer=float(np.exp(-evidence.log_ratios[row, column])),
        )
        for i, (row, column) in enumerate(zip(*cells, strict=True))
    ]


def find_typical_rows(evidence: Evidence, rows: Positions, columns: Positions) -> Positions:
    """Find, for each of some cells, a row whose cell is typical of similar rows; else NO_ROW.

    Similar rows are the ten nearest with the same label by all other columns, and all that are as
    near. Typical is their most frequent level, or the median of their numbers.
    """
    found = np.full(len(rows), NO_ROW, dtype=np.intp)
    for start in range(0, len(rows), _CELLS_AT_ONCE):
        cells = slice(start, start + _CELLS_AT_ONCE)
        nearest = _find_nearest(evidence, rows[cells], columns[cells])
        for position, (near, distances) in enumerate(nearest, start):
            if len(near):
                column = evidence.columns[columns[position]]
                # Among equally near rows, the content decides and not the row number.
                order = np.lexsort((column.levels[near], distances))
                found[position] = _choose_typical(column, near[order])
    return found


def _find_nearest(
    evidence: Evidence, rows: Positions, columns: Positions
) -> list[tuple[Positions, Floats]]:
    """Return the nearest rows of each cell, all that are as near, and their distances."""
    found = [(np.zeros(0, dtype=np.intp), np.zeros(0)) for _ in rows]
    reach = np.full(len(rows), np.inf)
    for strip, distances in _iter_distances(evidence.features, rows, columns):
        groups = evidence.groups[strip]
        for cell, (row, line) in enumerate(zip(rows.tolist(), distances, strict=True)):
            near = np.flatnonzero((line <= reach[cell]) & (groups == evidence.groups[row]))
            near = near[near + strip.start != row]
            if len(near):
                both = np.append(found[cell][0], near + strip.start)
                found[cell], reach[cell] = _keep_nearest(
                    both, np.append(found[cell][1], line[near])
                )
    return found


def _keep_nearest(rows: Positions, distances: Floats) -> tuple[tuple[Positions, Floats], float]:
    """Return the nearest rows with their distances, and how far others may be."""
    if len(rows) < N_NEIGHBORS:
        return (rows, distances), np.inf
    reach = np.partition(distances, N_NEIGHBORS - 1)[N_NEIGHBORS - 1]
    near = distances <= reach
    return (rows[near], distances[near]), float(reach)


def _iter_distances(
    features: Features, rows: Positions, columns: Positions
) -> Iterator[tuple[slice, Floats]]:
    """Yield squared distances of cells from all rows, some rows at a time."""
    asked = features.rows(rows)
    counts = np.ones(asked.shape)
    # The label is the same, or similar; its features and the constant come last.
    counts[:, features.own[-1].start :] = 0.0
    for line, column in zip(counts, columns, strict=True):
        line[features.own[column]] = 0.0
    for strip, others in features.iter_rows():
        squares = counts @ (others**2).T - 2.0 * (counts * asked) @ others.T
        yield strip, np.round(squares + (counts * asked**2).sum(axis=1)[:, None], DIGITS)


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
    # How many times rarer it is in similar rows than in its column.
    times_rarer: float

    @property
    def kind(self) -> str:
        """What is most unusual about the cell, in a few words by which cells can be grouped."""
        if self.cell is None:
            return "missing"
        if self.nearest is not None:
            return "far from all others"
        counts = self.as_rare + 1, self.as_misfit + 1
        found = _choose_evidence(*counts, self.n_others + 1, self.times_rarer)
        return found.replace("label", "label" if self.has_class else "target")

    def why_unlikely(self) -> str:
        """Compare the cell with similar rows, then name what is most unusual about it."""
        return fit_words(lambda words: f"{self._compare(words)}; {self._rank(words)}.")

    def why_low(self, below: float) -> str:
        """Return how far its value is from the median, in standard deviations."""
        side = "below" if below >= 0 else "above"
        away = f"{abs(below):.1f} standard deviations {side}" if below else "no lower than"
        kind = "this label" if self.has_class else "similar targets"
        return fit_words(
            lambda words: f"{self._compare(words)}; its value is {away} the median for {kind}."
        )

    def _rank(self, words: int) -> str:
        """Name the next number if the cell is isolated, else the clearest evidence."""
        if self.n_others == 0:
            return "there is no other cell to compare it with"
        if self.nearest is not None:
            side = "largest" if self.nearest < self.cell else "smallest"
            return f"the next {side} is {format_cell(self.nearest, words)}"
        counts = self.as_rare + 1, self.as_misfit + 1
        kind = "label" if self.has_class else "target"
        return name_evidence(*counts, self.n_others + 1, self.times_rarer, f" for this {kind}")

    def _compare(self, words: int) -> str:
        """Compare its content with that of similar rows."""
        content = "missing" if self.cell is None else format_cell(self.cell, words)
        here = f"{isolate_text(shorten(self.column, words))} is {content}"
        label = f"{'label' if self.has_class else 'target'} {format_cell(self.label, words)}"
        if self.is_alone:
            return f"{here}, and no other row has the {label}"
        like = f"rows like it ({'' if self.has_class else 'near '}{label})"
        if self.typical == self.cell:
            return f"{here}, as in {like}"
        if self.typical is None:
            return f"{here} where {like} have no value"
        about = "about " if self.is_number else ""
        return f"{here} where {like} have {about}{format_cell(self.typical, words)}"


def name_evidence(
    as_rare: int, as_misfit: int, n_cells: int, times_rarer: float, for_label: str = ""
) -> str:
    """Say what is most unusual about a cell: one of two counts, or a ratio of densities."""
    found = _choose_evidence(as_rare, as_misfit, n_cells, times_rarer)
    if found == _IN_SIMILAR_ROWS:
        return f"{times_rarer:,.0f} times rarer in similar rows than in its column"
    lower = min(as_rare, as_misfit)
    some = "" if lower == 1 else f"among the {lower:,} "
    if found == _FOR_LABEL:
        return f"{some or 'the '}rarest of {n_cells:,}{for_label}"
    return f"{some or 'the '}worst of {n_cells:,} fits to a row"


def _choose_evidence(as_rare: int, as_misfit: int, n_cells: int, times_rarer: float) -> str:
    """Return which of two counts and a ratio is the most unusual."""
    lower = min(as_rare, as_misfit)
    if times_rarer > n_cells / lower:
        return _IN_SIMILAR_ROWS
    return _FOR_LABEL if as_rare == lower else _IN_ITS_ROW


def fit_words(make: Callable[[int], str]) -> str:
    """Return a sentence of at most 25 words; ``make`` gets the most words of one content."""
    sentences = [make(words) for words in range(_MAX_WORDS, 0, -1)]
    return next((s for s in sentences if len(s.split()) <= _MAX_WORDS), sentences[-1])


def format_cell(content: Any, words: int = _LONGEST) -> str:
    """Format the content of a cell for a sentence: long strings cut, dates without 00:00."""
    if content is None:
        return "a missing value"
    if isinstance(content, int | float) and not isinstance(content, bool):
        return _format_number(content)
    if isinstance(content, str):
        return isolate_text(repr(shorten(content, words)))
    is_timestamp = isinstance(content, datetime)
    return isolate_text(shorten(format_timestamp(content) if is_timestamp else str(content), words))


def _format_number(number: float) -> str:
    """Format a number; no separator in four digits: they may be a year."""
    if isinstance(number, float) and not 1e5 <= abs(number) < 1e15:
        return format(number, ",.6g" if abs(number) >= 10_000 else ".6g")
    return f"{round(number):,}" if abs(number) >= 10_000 else str(number)


def format_timestamp(moment: datetime) -> str:
    """Format a timestamp, as a date if it is midnight."""
    is_date = moment.time() == datetime.min.time()
    return moment.date().isoformat() if is_date else str(moment)


def shorten(text: str, words: int = _LONGEST) -> str:
    """Cut off the end of text that is long or has more words than this."""
    end = _find_end(text, words)
    if len(text) <= _LONGEST and end == len(text):
        return text
    return f"{text[: min(end, _LONGEST - 1)]}…"


def _find_end(text: str, words: int) -> int:
    """Return where a number of words ends."""
    ends = [word.end() for word in re.finditer(r"\S+", text)]
    return ends[words - 1] if len(ends) > words else len(text)


def isolate_text(text: str) -> str:
    """Isolate right-to-left text, which would reorder the sentence around it."""
    turns = any(unicodedata.bidirectional(character) in _LEFTWARD for character in text)
    return f"{_ISOLATE}{text}{_END}" if turns else text
