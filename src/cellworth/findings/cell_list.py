"""The list of cells that people read: contents of findings, then single unusual cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from cellworth.data.arguments import Floats, Positions
from cellworth.data.tables import Table
from cellworth.findings.cells import read_cells
from cellworth.findings.checks import AuditInput, mark_cells
from cellworth.findings.finding import Finding
from cellworth.findings.fixing import list_replacements

# Kinds about whole rows.
_OF_ROWS = {"repeated rows", "validation rows in X", "wrong label"}
# Lines of a finding that are listed before those of the next one; the others come last.
_FIRST_LINES = 10
UNUSUAL = -1


@dataclass(frozen=True, eq=False)
class CellLine:
    """A content of a finding: its rows, its column, and what it should be; or a whole finding."""

    finding: int
    kind: str
    rows: Positions
    column: int | None = None
    cell: Any = None
    new: Any = None
    value: float = np.nan


def score_cells(given: AuditInput, *, quick: bool) -> Floats:
    """Return a score for every cell: the higher, the more probably it is wrong."""
    scores = np.zeros(given.table.shape) if quick else given.odd_cells[0].copy()
    # Cells of findings come before all others, most certain first.
    top = 1.0 + scores.max(initial=0.0)
    for finding in given.found:
        if finding.kind not in _OF_ROWS:
            scores[finding.cells(given.table)] += top * (1.0 - finding.doubt) ** 2
    return scores


def list_cells(
    table: Table, findings: Sequence[Finding], scores: Floats, values: Floats | None, k: int
) -> list[CellLine]:
    """Return the first k lines: contents of findings in their order, then unusual cells."""
    of_findings = [_list_contents(table, i, f, values) for i, f in enumerate(findings)]
    first = [line for lines in of_findings for line in lines[:_FIRST_LINES]]
    later = [line for lines in of_findings for line in lines[_FIRST_LINES:]]
    lines = (first + later)[:k]
    return [*lines, *islice(_list_unusual(table, findings, scores, values), k - len(lines))]


def _list_contents(
    table: Table, number: int, finding: Finding, values: Floats | None
) -> list[CellLine]:
    """Return a line for each content of a finding and what replaces it, the lowest values first."""
    if finding.kind in _OF_ROWS or not finding.columns or len(finding.rows) == 0:
        value = np.nan if values is None else float(values[np.unique(finding.rows)].sum())
        column = None
        if len(finding.columns) == 1 and finding.kind not in _OF_ROWS:
            column = table.names.astype(str).tolist().index(finding.columns[0])
        return [CellLine(number, finding.kind, finding.rows, column, value=value)]
    rows, columns = finding.cells(table)
    cells = read_cells(table, rows, columns)
    groups: dict[tuple[int, str, str], list[int]] = {}
    replacements = list_replacements(finding, cells)
    for position, (column, cell, new) in enumerate(
        zip(columns.tolist(), cells, replacements, strict=True)
    ):
        groups.setdefault((column, repr(cell), repr(new)), []).append(position)
    lines = []
    for (column, _, _), positions in groups.items():
        own, first = rows[positions], positions[0]
        value = np.nan if values is None else float(values[own, column].sum())
        lines.append(
            CellLine(number, finding.kind, own, column, cells[first], replacements[first], value)
        )
    # NaN is last, and the order stays as it is among equal values.
    return [lines[i] for i in np.argsort([line.value for line in lines], kind="stable")]


def _list_unusual(
    table: Table, findings: Sequence[Finding], scores: Floats, values: Floats | None
) -> Iterator[CellLine]:
    """Yield the cells with the highest scores that no finding has."""
    known = [f for f in findings if f.kind not in _OF_ROWS and len(f.rows)]
    left = np.where(mark_cells(known, table), 0.0, scores)
    for flat in np.argsort(-left, axis=None, kind="stable").tolist():
        row, column = divmod(flat, table.shape[1])
        if left[row, column] <= 0:
            return
        (cell,) = read_cells(table, np.array([row]), np.array([column]))
        value = np.nan if values is None else float(values[row, column])
        yield CellLine(UNUSUAL, "odd cell", np.array([row]), column, cell, value=value)
