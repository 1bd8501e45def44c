"""Fix findings: change cells, keep what was there, and say what could not be done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from cellworth.data.arguments import Positions
from cellworth.data.column import object_array
from cellworth.data.tables import Table, TableLike
from cellworth.data.text import format_cell, format_count
from cellworth.findings.cells import read_cells
from cellworth.findings.changed_cells import copy_native, set_cells
from cellworth.findings.finding import Finding
from cellworth.findings.levels import is_missing_mark
from cellworth.findings.text_checks import name_case

_SHOWN = 20
# A number that is this certainly a code lies outside the range of all other numbers.
_OUTSIDE = 0.02
_MIN_LETTERS, _MAX_INITIALS = 4, 5


@dataclass(frozen=True)
class Change:
    """A cell that was changed: its position, what it was and is, and by which finding."""

    row: int
    column: int
    before: Any
    after: Any
    finding: int


@dataclass(frozen=True, eq=False)
class Fixed:
    """A table in which findings are fixed; made by :meth:`~cellworth.findings.Audit.fix`.

    Parameters
    ----------
    X : data frame or array
        The fixed table, as X came.
    rows : array
        Positions of the rows that it has: all of them, unless a named finding dropped some.
    changes : tuple of Change
        Every cell that was changed, with what it was.
    skipped : tuple of str
        What could not be done, and why.
    table : Table
        The table as it was.

    See Also
    --------
    cellworth.audit, Audit

    Examples
    --------
    >>> import cellworth, pyarrow as pa
    >>> X = pa.table({"city": ["Bonn"] * 30 + ["bonn"], "size": list(range(31))})
    >>> fixed = cellworth.audit(X).fix()
    >>> fixed
    Changed one cell.
      row 30, city: 'bonn' -> 'Bonn'
    >>> fixed.undo()["city"][30].as_py()
    'bonn'
    """

    X: TableLike
    rows: Positions
    changes: tuple[Change, ...]
    skipped: tuple[str, ...]
    table: Table

    def undo(self) -> Any:
        """Return the table as it was before."""
        return copy_native(self.table)

    def __repr__(self) -> str:
        return "\n".join(self.list_lines())

    def list_lines(self) -> Iterator[str]:
        """Yield the changed cells, with what they were, and what was skipped."""
        n_dropped = self.table.shape[0] - len(self.rows)
        dropped = f" Dropped {format_count(n_dropped, 'row')}." if n_dropped else ""
        changed = format_count(len(self.changes), "cell") if self.changes else "no cell"
        yield f"Changed {changed}.{dropped}"
        ids, names = self.table.row_ids, self.table.names
        for change in self.changes[:_SHOWN]:
            before, after = (
                "missing" if cell is None else format_cell(cell)
                for cell in (change.before, change.after)
            )
            yield f"  row {ids[change.row]}, {names[change.column]}: {before} -> {after}"
        if len(self.changes) > _SHOWN:
            yield f"  and {len(self.changes) - _SHOWN:,} more"
        yield from (f"Skipped {reason}" for reason in self.skipped)


def as_column(cells: Sequence[Any], library: str) -> Any:
    """Return cells of several types as a column: objects in pandas, strings elsewhere."""
    if library == "pandas":
        return object_array(cells)
    return [None if cell is None else str(cell) for cell in cells]


def fix(
    table: Table, findings: Sequence[Finding], chosen: Iterable[int], *, only_safe: bool
) -> Fixed:
    """Fix the chosen findings, or only the cells of them whose repair loses nothing."""
    skipped, changes = list[str](), list[Change]()
    kept_rows, kept_columns = np.ones(table.shape[0], bool), np.ones(table.shape[1], bool)
    for number in chosen:
        finding = findings[number]
        if finding.action.kind in ("check", "convert"):
            skipped.append(_skip(number, finding, f"a person must {finding.action.text}"))
        elif finding.action.kind == "drop rows":
            kept_rows[finding.rows] = False
        elif finding.action.kind == "drop columns":
            kept_columns &= ~np.isin(table.names.astype(str), finding.columns)
        else:
            proposed = _propose(table, number, finding)
            changes += [c for c in proposed if not only_safe or _loses_nothing(finding, c)]
    changes, conflicts = _drop_conflicts(table, changes)
    fixed, made, unfit = _apply(table, findings, changes)
    rows, columns = np.flatnonzero(kept_rows), np.flatnonzero(kept_columns)
    is_complete = (len(rows), len(columns)) == table.shape
    X = copy_native(fixed) if is_complete else fixed.take(rows, columns)
    return Fixed(X, rows, tuple(made), (*skipped, *conflicts, *unfit), table)


def _drop_conflicts(table: Table, changes: Sequence[Change]) -> tuple[list[Change], list[str]]:
    """Return one change per cell, and a sentence for each cell with two different ones."""
    of_cells: dict[tuple[int, int], list[Change]] = {}
    for change in changes:
        of_cells.setdefault((change.row, change.column), []).append(change)
    kept, conflicts = list[Change](), list[str]()
    for (row, column), own in of_cells.items():
        others = [change for change in own if change.after != own[0].after]
        if not others:
            kept.append(own[0])
            continue
        conflicts.append(
            f"row {table.row_ids[row]}, {table.names[column]}: findings {own[0].finding} and "
            f"{others[0].finding} replace it with {own[0].after!r} and {others[0].after!r}."
        )
    return kept, conflicts


def _apply(
    table: Table, findings: Sequence[Finding], changes: Sequence[Change]
) -> tuple[Table, list[Change], list[str]]:
    """Return the changed table, what was changed, and which findings the columns cannot hold."""
    made, unfit = list[Change](), list[str]()
    for number in dict.fromkeys(change.finding for change in changes):
        own = [change for change in changes if change.finding == number]
        rows = np.array([change.row for change in own], dtype=np.intp)
        columns = np.array([change.column for change in own], dtype=np.intp)
        try:
            table = set_cells(table, rows, columns, [change.after for change in own])
        except ValueError as error:
            unfit.append(_skip(number, findings[number], str(error).rstrip(".")))
        else:
            made += own
    return table, made, unfit


def _skip(number: int, finding: Finding, why: str) -> str:
    return f"finding {number} ({finding.kind}): {why}."


def _propose(table: Table, number: int, finding: Finding) -> Iterator[Change]:
    """Yield the changes of cells that the action of a finding asks for."""
    rows, columns = finding.cells(table)
    cells = read_cells(table, rows, columns)
    for row, column, before, after in zip(
        rows.tolist(), columns.tolist(), cells, list_replacements(finding, cells), strict=True
    ):
        if before != after:
            yield Change(row, column, before, after, number)


def _loses_nothing(finding: Finding, change: Change) -> bool:
    """Return whether a repair can be made without a person: what was meant stays the same."""
    before, after = change.before, change.after
    if finding.kind == "spelling variant":
        return _is_same_word(" ".join(before.split()), after)
    if finding.kind == "missing mark":
        return is_missing_mark(before)
    return finding.kind == "missing code" and finding.doubt <= _OUTSIDE


def _is_same_word(before: str, after: str) -> bool:
    """Return whether two spellings differ in nothing that capitals may mean.

    Capitals inside tell names apart, such as LaFayette and Lafayette; so do those of units, such as
    s and S, and of short names, such as JAMA.
    """
    n_letters = sum(map(str.isalpha, after))
    cases = name_case(before), name_case(after)
    may_be_name = cases[0] == "upper" and n_letters <= _MAX_INITIALS
    is_plain = "mixed" not in cases and cases[1] != "upper" and not may_be_name
    in_words = is_plain and n_letters >= _MIN_LETTERS and before.casefold() == after.casefold()
    return before == after or in_words


def list_replacements(finding: Finding, cells: Sequence[Any]) -> list[Any]:
    """Return what the action of a finding puts in the place of its cells; None if nothing."""
    new = finding.action.replacements
    if finding.action.kind != "replace":
        return [None] * len(cells)
    listed = [_look_up(cell, new) for cell in cells] if isinstance(new, Mapping) else list(new)
    # Numbers may be stored as strings.
    return [
        write_plain(after) if isinstance(cell, str) else after
        for cell, after in zip(cells, listed, strict=True)
    ]


def _look_up(content: Any, replacements: Mapping[Any, Any]) -> Any:
    """Return the replacement of a content; numbers may be stored as strings."""
    is_text = isinstance(content, str) and content not in replacements
    with suppress(ValueError):
        return replacements.get(float(content) if is_text else content, content)
    return content


def write_plain(cell: Any) -> str | None:
    """Return a cell as text, integers without a point; None if it is missing."""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return None if cell is None else str(cell)
