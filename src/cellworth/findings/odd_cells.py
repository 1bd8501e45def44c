"""Single cells that do not fit their row or their label."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats, Mask
from cellworth.data.tables import Table
from cellworth.data.text import format_cell, shorten
from cellworth.findings.anomaly import Evidence
from cellworth.findings.cells import fit_words, read_cells
from cellworth.findings.features import FeatureColumn, Features, find_ties
from cellworth.findings.finding import Action, Finding
from cellworth.findings.levels import ColumnLevels
from cellworth.findings.typical_rows import NO_ROW, find_typical_rows, name_evidence

# A single cell is never certain to be wrong.
_MIN_FALSE_RATE = 0.2
_TAIL = 0.005
# Tails may be longer than they seem.
_CAUTION = 3.0
# In smaller tables, too few cells are in the tail.
_MIN_CELLS = 4_000
MAX_LISTED = 100


class OddCells:
    """Anomaly scores of all cells, without those that other checks have found."""

    def __init__(
        self,
        table: Table,
        columns: list[FeatureColumn],
        target: NDArray[Any],
        classes: NDArray[Any] | None,
        *,
        found: Mask,
        left_out: Sequence[int] = (),
    ) -> None:
        self._table = table
        self._evidence = Evidence.from_columns(columns, target, classes)
        tails = np.stack([_count_as_extreme(column) for column in columns], axis=1)
        self.scores: Floats = self._evidence.scores + np.log(len(target) / tails)
        self.scores[found] = 0.0
        self.scores[:, list(left_out)] = 0.0

    @property
    def features(self) -> Features:
        """Features of the columns and the label."""
        return self._evidence.features

    def list(self, k: int = MAX_LISTED) -> Iterator[Finding]:
        """Yield the k cells with the highest scores."""
        order = np.argsort(-self.scores, axis=None, kind="stable")[:k]
        order = order[self.scores.ravel()[order] > 0]
        rows, columns = np.unravel_index(order, self.scores.shape)
        rates = self._false_rates(self.scores[rows, columns])
        like = find_typical_rows(self._evidence, rows, columns)
        cells = read_cells(self._table, rows, columns)
        typical = read_cells(self._table, np.where(like == NO_ROW, rows, like), columns)
        for i, (row, column) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
            yield self._describe(
                row, column, cells[i], None if like[i] == NO_ROW else typical[i], float(rates[i])
            )

    def _false_rates(self, scores: Floats) -> Floats:
        """Return the share of right cells expected among those with at least this score.

        Every column has a most extreme cell. So the tail of the scores is continued from the bulk,
        and only cells beyond that are probably wrong.
        """
        low, high = np.quantile(self.scores, [1 - 10 * _TAIL, 1 - _TAIL])
        if high <= low or self.scores.size < _MIN_CELLS:
            return np.ones(len(scores))
        expected = self.scores.size * _TAIL * 10.0 ** -((scores - high) / (high - low))
        rates = _CAUTION * expected / np.arange(1, len(scores) + 1)
        return np.clip(np.minimum.accumulate(rates[::-1])[::-1], _MIN_FALSE_RATE, 1.0)

    def _describe(self, row: int, column: int, cell: Any, typical: Any, rate: float) -> Finding:
        evidence = self._evidence
        name = str(self._table.names[column])
        about = "about " if evidence.columns[column].numbers is not None else ""
        unusual = name_evidence(
            int(evidence.as_rare[row, column]), int(evidence.as_misfit[row, column]),
            len(evidence.groups), float(np.exp(-evidence.log_ratios[row, column])),
        )  # fmt: skip

        def write(words: int) -> str:
            compare = ""
            if typical is not None and typical != cell:
                compare = f" where rows like it have {about}{format_cell(typical, words)}"
            content = "missing" if cell is None else format_cell(cell, words)
            named = shorten(name, words=words)
            return f"{named} is {content}{compare}; {unusual}."

        sentence = fit_words(write)
        action = Action("check", text="check it")
        if typical is not None and typical != cell:
            action = Action("replace", [typical], "check it")
        return Finding("odd cell", (name,), np.array([row]), sentence, action, rate)


def read_without(column: ColumnLevels, found: Mask) -> FeatureColumn:
    """Return a column in which the cells that other checks have found are missing."""
    if column.kind == "text":
        return FeatureColumn.from_levels(np.where(found, -1, column.codes))
    return FeatureColumn.from_numbers(np.where(found, np.nan, column.numbers))


def _count_as_extreme(column: FeatureColumn) -> Floats:
    """Count the cells of a column that are as extreme: as large, as small, or as rare a level."""
    counts = column.counts[column.levels].astype(np.float64)
    if column.numbers is None:
        return counts
    first, end = find_ties(column.numbers[column.order])
    counts[column.order] = np.minimum(end, len(end) - first)
    return counts
