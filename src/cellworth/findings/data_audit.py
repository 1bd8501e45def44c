"""audit: what is wrong with a table, in groups, worst first."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cellworth.data.arguments import Floats
from cellworth.data.io import AnyPath, jsonable, to_path, write_atomically
from cellworth.data.problem import read_target
from cellworth.data.tables import Table, TableLike, VectorLike, default_backend, frame
from cellworth.data.text import format_count, list_first, preview, write_csv
from cellworth.data.views import heading, html_table, paragraph, view
from cellworth.findings.cell_list import list_cells, score_cells
from cellworth.findings.cells import check_cells, read_cell_values
from cellworth.findings.certainty import divide_findings
from cellworth.findings.checks import CHECKS, AuditInput
from cellworth.findings.differences import find_differences
from cellworth.findings.finding import NO_ROWS, Finding
from cellworth.findings.fixing import Fixed, as_column, fix
from cellworth.findings.levels import read_levels
from cellworth.valuation.valuation import Valuation

_SHOWN, _UNUSUAL_SHOWN, _ROWS_SHOWN = 20, 3, 3
OwnCheck = Callable[[Any, Any], Iterable[Finding]]
VERSION = 1


def audit(
    X: TableLike,
    y: VectorLike | None = None,
    *,
    X_val: TableLike | None = None,
    y_val: VectorLike | None = None,
    reference: TableLike | tuple[TableLike, VectorLike] | None = None,
    false_alarms: float = 0.01,
    protected: Sequence[str] = (),
    valuation: Valuation | None = None,
    checks: Sequence[OwnCheck] = (),
    quick: bool = False,
) -> Audit:
    """Find out what is wrong with a table, in seconds and without a model.

    Parameters
    ----------
    X : data frame or array of shape (n_rows, n_columns)
    y : array of shape (n_rows,), default=None
        Its labels. None leaves out what needs them: leaks and wrong labels.
    X_val, y_val : default=None
        Validation rows, which should not be in X, and their labels: rows that are in both with
        different labels are counted.
    reference : table, or pair of table and labels, default=None
        An earlier table with the columns of X, such as that of last month. What differs from it is
        listed first: drift, missing values, new contents, broken dependence between columns, label
        drift, copies, leaks.
    false_alarms : float, default=0.01
        Probability that anything is called different if X and the reference come from the same
        source; it holds for all comparisons together.
    protected : sequence of str, default=()
        Columns whose contents are never called wrong because they are rare, such as ``["race",
        "sex"]``. Missing codes, formats and spelling variants of them are still found.
    valuation : Valuation, default=None
        Values of the cells of X. Findings then tell what their cells are worth to the model, and
        :meth:`~cellworth.findings.Audit.cells` lists the cells of a finding from the lowest value
        to the highest.
    checks : sequence of callables, default=()
        Checks of your own: each gets X and y, and returns or yields findings of any kind.
    quick : bool, default=False
        Whether to leave out scores of single cells and wrong labels, which take most of the time.

    Returns
    -------
    Audit

    See Also
    --------
    cellworth.findings.compare_models : Whether a fixed table makes a better model.

    Examples
    --------
    >>> from cellworth import audit
    >>> X = [[age, "yes" if age % 2 else "no"] for age in range(20, 60)]
    >>> X[3], X[8] = [999, "yes"], [28, "n/a"]
    >>> audit(X)  # doctest: +NORMALIZE_WHITESPACE
    Audit of 40 rows x 2 columns: 2 findings (1 x missing mark, 1 x missing code)
       0  missing mark: 'n/a' stands for a missing value in one cell of x1.
          Make them missing values (83% certain). Row 8.
       1  missing code: 999 in one cell of x0 probably stands for a missing value; the others are
          20 to 59.
          Make them missing values. Row 3.
    """
    table = Table.from_data(X, called="X")
    given = _read_input(table, y, X_val, y_val, protected)
    asked = [check for check in CHECKS if given.can_ask(check, quick=quick)]
    for check in asked:
        given.run(check)
    for own_check in checks:
        given.found.extend(_check_own(found, table) for found in own_check(X, y))
    scores = score_cells(given, quick=quick)
    probable, unusual = divide_findings(given.found)
    differences = []
    if reference is not None:
        differences = find_differences(table, y, reference, false_alarms)
    values = None
    if valuation is not None:
        values = read_cell_values(valuation, table)
        check_cells(valuation, table)
        differences, probable, unusual = (
            list(_add_values(e, table, values)) for e in (differences, probable, unusual)
        )
    findings = (*differences, *probable)
    names = [str(getattr(own_check, "__name__", type(own_check).__name__)) for own_check in checks]
    checked = (*(check.name for check in asked), *(name.replace("_", " ") for name in names))
    return Audit(table, findings, tuple(unusual), scores, len(differences), values, checked=checked)


def _read_input(
    table: Table, y: VectorLike | None, X_val: TableLike | None, y_val: VectorLike | None,
    protected: Sequence[str],
) -> AuditInput:  # fmt: skip
    """Check the arguments of an audit, and read the columns and labels."""
    names = [str(name) for name in table.names.tolist()]
    if isinstance(protected, str) or not all(str(name) in names for name in protected):
        raise ValueError(
            f"protected must be a list of columns of X, got {protected!r}; the columns of X are "
            f"{preview(names)}."
        )
    target, classes = (None, None) if y is None else read_target(y, table)
    validation, validation_target = None, None
    if X_val is not None:
        held_out = table.align(X_val, called="X_val")
        validation = read_levels(held_out)
        validation_target = None if y_val is None else read_target(y_val, held_out)[0]
    elif y_val is not None:
        raise ValueError("y_val needs X_val; pass both, or neither.")
    shielded, name = frozenset(map(str, protected)), getattr(y, "name", None)
    return AuditInput(
        table, read_levels(table), target, classes, name, validation, validation_target, shielded
    )


def _check_own(finding: Any, table: Table) -> Finding:
    """Check what a check of the user found."""
    if not isinstance(finding, Finding):
        raise TypeError(
            f"checks must return or yield findings, got {type(finding).__name__}; make a "
            "cellworth.findings.Finding."
        )
    n_rows, names = len(table.row_ids), table.names.astype(str).tolist()
    rows = np.asarray(finding.rows, dtype=np.intp)
    if len(rows) and not 0 <= rows.min() <= rows.max() < n_rows:
        raise ValueError(
            f"rows of the finding {finding.kind!r} must be positions of rows, 0 to {n_rows - 1}, "
            f"got {rows.min()} to {rows.max()}."
        )
    unknown = [name for name in finding.columns if name not in names]
    if unknown:
        raise ValueError(
            f"columns of the finding {finding.kind!r} must be columns of X ({preview(names)}), "
            f"got {unknown[0]!r}."
        )
    return replace(finding, rows=rows)


def _add_values(findings: Iterable[Finding], table: Table, values: Floats) -> Iterator[Finding]:
    for finding in findings:
        cells = finding.cells(table)
        yield replace(finding, value=float(values[cells].sum())) if len(cells[0]) else finding


@dataclass(frozen=True, eq=False)
class Audit:
    """What is wrong with a table, worst first; made by :func:`~cellworth.audit`.

    Parameters
    ----------
    table : Table
    findings : tuple of Finding
        What is probably wrong.
    unusual : tuple of Finding
        What is unusual and may well be right, most unusual first.
    scores : array of shape (n_rows, n_columns)
        The higher, the more probably a cell is wrong.
    n_differences : int, default=0
        How many findings, the first ones, are differences from the reference.
    values : array of shape (n_rows, n_columns), default=None
        Values of the cells, if a valuation was given.
    checked : tuple of str
        What was looked for.

    See Also
    --------
    cellworth.audit, Finding, cellworth.report.write_audit

    Examples
    --------
    >>> import cellworth, pyarrow as pa
    >>> X = pa.table({"city": ["Bonn"] * 30 + ["bonn"], "size": list(range(31))})
    >>> audit = cellworth.audit(X)
    >>> [finding.kind for finding in audit]
    ['spelling variant', 'id column']
    """

    table: Table
    findings: tuple[Finding, ...]
    unusual: tuple[Finding, ...]
    scores: Floats
    n_differences: int = 0
    values: Floats | None = None
    checked: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __getitem__(self, position: int) -> Finding:
        return self.findings[position]

    def __repr__(self) -> str:
        lines = list_lines(self, more="to_frame() lists all", unusual=" (audit.unusual)")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Show the findings in Jupyter."""
        shown = self.findings[:_SHOWN]
        columns: dict[str, Sequence[object]] = {
            "kind": [finding.kind for finding in shown],
            "finding": [finding.sentence for finding in shown],
            "what to do": [finding.advice for finding in shown],
            "cells": [len(finding.rows) or "-" for finding in shown],
        }
        more = "" if len(self) <= _SHOWN else f"{len(self) - _SHOWN:,} more in to_frame()"
        listed = html_table(columns, sentences=("finding", "what to do"))
        unusual = [finding.sentence for finding in self.unusual[:_UNUSUAL_SHOWN]]
        if unusual:
            unusual.insert(0, "Unusual, and may well be right (audit.unusual):")
        return view(heading(self.title), listed, *map(paragraph, filter(None, [more, *unusual])))

    @property
    def title(self) -> str:
        """One line: the size of the table and the number of findings of each kind."""
        rows, columns = self.table.shape
        size = f"{rows:,} rows x {columns:,} columns"
        if not self.findings:
            return f"Nothing looks wrong in {size}."
        counts = Counter(finding.kind for finding in self.findings)
        listed = ", ".join(f"{count} x {kind}" for kind, count in counts.most_common())
        return f"Audit of {size}: {format_count(len(self), 'finding')} ({listed})"

    def share(self, kind: str | None = None) -> float:
        """Return the share of rows that findings concern, those about the reference left out.

        Parameters
        ----------
        kind : str, default=None
            Kind of findings, such as ``"missing code"``; None means all kinds.

        Returns
        -------
        float
            1 if a finding concerns columns as a whole.
        """
        rows = [finding.rows for finding in self.select(kind)]
        if not all(map(len, rows)):
            return 1.0
        touched = np.unique(np.concatenate([NO_ROWS, *rows]))
        return len(touched) / self.table.shape[0]

    def select(self, kind: str | None = None) -> tuple[Finding, ...]:
        """Return the findings of a kind, or all, differences from a reference left out."""
        found = self.findings[self.n_differences :]
        return tuple(finding for finding in found if kind in (None, finding.kind))

    def fix(
        self, kinds: Iterable[str] | None = None, findings: Iterable[int] | None = None
    ) -> Fixed:
        """Return X with findings fixed, what was changed, and what was not and why.

        By default only repairs that lose nothing are made: another case or other blanks of a
        frequent content become that content; marks such as "?", and codes outside the range of all
        other numbers, become missing values. Everything else is a proposal, which is applied if it
        is named. Cells for which two findings propose different contents stay as they are.

        Parameters
        ----------
        kinds : iterable of str, default=None
            Kinds to fix, such as ``["misspelling"]``, among findings and what is unusual.
        findings : iterable of int, default=None
            Positions of findings to fix.

        Returns
        -------
        Fixed
            With the table ``X``, the ``changes``, what was ``skipped``, and ``undo()``.
        """
        by_default = kinds is None and findings is None
        wanted, numbers = frozenset(kinds or ()), frozenset(findings or ())
        known = range(len(self.findings))
        if not numbers.issubset(known):
            unknown = next(number for number in numbers if number not in known)
            raise ValueError(
                f"findings must hold positions of findings, 0 to {len(self) - 1}, got {unknown!r}."
            )
        every = (*self.findings, *self.unusual)
        present = {finding.kind for finding in every}
        if not wanted <= present:
            raise ValueError(
                f"kinds must hold kinds of findings ({preview(sorted(present))}), got "
                f"{preview(sorted(wanted - present))}."
            )
        if by_default:
            chosen = [i for i in known if self[i].action.kind in ("set missing", "replace")]
        else:
            chosen = [i for i, f in enumerate(every) if i in numbers or f.kind in wanted]
        return fix(self.table, every, chosen, only_safe=by_default)

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame with one line per finding."""
        listed: dict[str, list[Any]] = {
            "kind": [finding.kind for finding in self.findings],
            "columns": [", ".join(finding.columns) for finding in self.findings],
            "n_rows": [finding.n_rows for finding in self.findings],
            "false_rate": [finding.false_rate for finding in self.findings],
            "finding": [finding.sentence for finding in self.findings],
            "action": [finding.action.text for finding in self.findings],
        }
        if any(finding.value is not None for finding in self.findings):
            listed["value"] = [finding.value for finding in self.findings]
        return frame(listed, backend or self.table.backend)

    def cells(self, k: int = 100, *, backend: str | None = None) -> Any:
        """Return a data frame of the contents to look at, most certain and least repeated first.

        Parameters
        ----------
        k : int, default=100
            Number of lines.
        backend : str, default=None
            Library of the result, such as "polars"; None means that of X.

        Returns
        -------
        data frame
            A line for each different content of a finding: the position of the finding, its kind,
            the id of the first row, the column, the cell, what :meth:`fix` would replace it with
            (nothing if it becomes missing, or if a person must decide), and in how many cells it
            is. A finding about whole rows has one line. After the findings come single cells that
            are unusual and may well be right: their finding is -1. With a valuation, there
            is also the ``value`` of the cells, and those of one finding begin with the lowest.
        """
        lines = list_cells(self.table, self.findings, self.scores, self.values, k)
        library = backend or self.table.backend or default_backend()
        ids, names = self.table.row_ids, self.table.names
        listed: dict[str, Any] = {
            "finding": [line.finding for line in lines],
            "kind": [line.kind for line in lines],
            "row": [ids[line.rows[:1]].tolist()[0] if len(line.rows) else None for line in lines],
            "column": [None if c.column is None else str(names[c.column]) for c in lines],
            "cell": as_column([line.cell for line in lines], library),
            "new": as_column([line.new for line in lines], library),
            "n_cells": [len(line.rows) for line in lines],
        }
        if self.values is not None:
            listed["value"] = [line.value for line in lines]
        return frame(listed, library)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: the content of :meth:`to_json`."""
        ids = self.table.row_ids
        return {
            "format": "cellworth audit",
            "version": VERSION,
            "n_rows": self.table.shape[0],
            "n_columns": self.table.shape[1],
            "findings": [finding.to_dict(ids) for finding in self.findings],
            "unusual": [finding.to_dict(ids) for finding in self.unusual],
        }

    def to_json(self, path: AnyPath | str) -> None:
        """Write all findings with their rows to a JSON file."""
        text = json.dumps(jsonable(self.to_dict()), indent=1, ensure_ascii=False)
        with write_atomically(to_path(path, "path")) as file:
            file.write(text.encode())

    def to_csv(self, path: AnyPath | str) -> None:
        """Write one line per finding to a CSV file.

        Text that a spreadsheet would run as a formula gets a leading apostrophe.
        """
        with write_atomically(to_path(path, "path")) as file:
            write_csv(self.to_frame("pyarrow"), file)


def list_lines(audit: Audit, *, more: str, unusual: str = "") -> list[str]:
    """Return an audit as text; ``more`` and ``unusual`` say where the rest is listed."""
    lines = [audit.title]
    if not audit.findings and audit.checked:
        lines.append(f"Looked for {', '.join(audit.checked)}.")
    for number, finding in enumerate(audit.findings[:_SHOWN]):
        lines.append(f"{number:>4}  {finding.kind}: {finding.sentence}")
        rows = _name_rows(audit, finding)
        lines.append(f"      {finding.advice}{f' {rows}.' if rows else ''}")
    if len(audit) > _SHOWN:
        lines.append(f"      and {len(audit) - _SHOWN:,} more; {more}")
    if audit.unusual:
        lines.append(f"Unusual, and may well be right{unusual}:")
        for finding in audit.unusual[:_UNUSUAL_SHOWN]:
            rows = _name_rows(audit, finding)
            lines.append(f"      {f'{rows}: ' if rows else ''}{finding.sentence}")
    return lines


def _name_rows(audit: Audit, finding: Finding) -> str:
    """Return the ids of the first rows of a finding."""
    rows = list(dict.fromkeys(finding.rows.tolist()))
    ids = [str(row) for row in audit.table.row_ids[rows].tolist()] if rows else []
    return f"Row{'s'[: len(rows) > 1]} {list_first(ids, _ROWS_SHOWN)}" if rows else ""
