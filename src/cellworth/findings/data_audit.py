"""audit: what is wrong with a table, in groups, worst first."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cellworth.data.arguments import Floats, Mask
from cellworth.data.io import AnyPath, jsonable, to_path, write_atomically
from cellworth.data.problem import read_target
from cellworth.data.tables import Table, TableLike, VectorLike, default_backend, frame
from cellworth.data.text import format_count, format_number, list_first, preview, write_csv
from cellworth.data.views import heading, html_table, paragraph, view
from cellworth.findings.cells import check_cells, object_array, read_cell_values, read_cells
from cellworth.findings.changed_cells import copy_native, set_cells
from cellworth.findings.differences import find_differences
from cellworth.findings.finding import Action, Finding, FindingKind
from cellworth.findings.label_checks import find_wrong_labels
from cellworth.findings.leaks import find_leaks, find_sorted_rows
from cellworth.findings.levels import ColumnLevels, read_levels
from cellworth.findings.number_checks import check_numbers
from cellworth.findings.odd_cells import OddCells, read_without
from cellworth.findings.table_checks import (
    check_columns,
    find_near_copies,
    find_nearly_shared_rows,
    find_repeated_rows,
    find_shared_rows,
    find_violations,
    is_name,
)
from cellworth.findings.text_checks import check_text, find_swapped
from cellworth.valuation.valuation import Valuation

# Findings are listed in these classes of estimated error, and by size within a class.
_CLASSES = (0.1, 0.3, 0.5)
# Cells of findings at least this certain are not compared with others.
_SURE = 0.3
_SHOWN, _UNUSUAL_SHOWN, _ROWS_SHOWN = 20, 3, 3
# Kinds that call a content wrong because it is rare or unlike others.
_BY_RARITY: frozenset[FindingKind] = frozenset(
    {"misspelling", "outlier", "scale", "odd cell", "dependency", "wrong column"}
)
_OF_ROWS: frozenset[FindingKind] = frozenset(
    {"repeated rows", "near copies", "validation rows in X", "wrong label"}
)
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
        :meth:`Audit.cells` lists the cells of a finding from the lowest value to the highest.
    quick : bool, default=False
        Whether to leave out single odd cells and wrong labels, which take most of the time.

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
    Audit of 40 rows x 2 columns: 2 findings (2 x missing code)
       0  missing code: 999 in one cell of x0 probably stands for a missing value; the others are
          20 to 59.
          Make them missing values (98% certain). Row 3.
       1  missing code: 'n/a' stands for a missing value in one cell of x1.
          Make them missing values (98% certain). Row 8.
    Unusual, and may well be right (audit.unusual):
          Row 0: x0 is 20 where rows like it have about 40; among the 2 rarest of 40.
          Row 39: x0 is 59 where rows like it have about 39; among the 3 rarest of 40.
          Row 1: x0 is 21 where rows like it have about 41; among the 2 of 40 that fit their rows
          worst.
    """
    table = Table.from_data(X, called="X")
    shielded = _check_protected(protected, table)
    columns = read_levels(table)
    target, classes = (
        (np.zeros(len(table.row_ids)), np.zeros(1)) if y is None else (read_target(y, table))
    )
    listed = [
        finding
        for finding in _merge_codes(_check_cells(columns))
        if finding.kind not in _BY_RARITY or not shielded.intersection(finding.columns)
    ]
    found = mark_cells(listed, table, most_false=_SURE)
    features = [read_without(column, found[:, j]) for j, column in enumerate(columns)]
    scores, odd_cells, known = np.zeros(table.shape), [], None
    if not quick:
        left_out = [j for j, c in enumerate(columns) if is_name(c) or c.name in shielded]
        odd = OddCells(table, features, target, classes, found=found, left_out=left_out)
        scores, odd_cells, known = odd.scores, list(odd.list()), odd.features
    listed += [*check_columns(columns), *find_repeated_rows(columns), *find_near_copies(columns)]
    if X_val is not None:
        validation = Table.from_data(X_val, called="X_val").align_to(table, called="X_val")
        labels = None if y is None or y_val is None else (target, read_target(y_val, validation)[0])
        of_validation = read_levels(validation)
        listed += find_shared_rows(columns, of_validation, labels)
        listed += find_nearly_shared_rows(columns, of_validation)
    elif y_val is not None:
        raise ValueError("y_val needs X_val; pass both, or neither.")
    leaks: list[Finding] = []
    if y is not None:
        name = getattr(y, "name", None)
        leaks += find_leaks(columns, target, of_classes=classes is not None, target_name=name)
        listed += leaks
    if y is not None and classes is not None:
        listed += find_sorted_rows(target)
        used = [
            feature
            for feature, column in zip(features, columns, strict=True)
            if not is_name(column)
        ]
        if used and not quick and not leaks:
            known = known if len(used) == len(columns) else None
            codes = np.searchsorted(classes, target)
            listed += find_wrong_labels(used, codes, classes, features=known)
    probable, unusual = list[Finding](), list[Finding]()
    for finding in (*listed, *odd_cells):
        (unusual if finding.false_rate > _CLASSES[-1] else probable).append(finding)
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
    unusual.sort(key=lambda finding: finding.false_rate)
    findings = (*differences, *_sort_findings(probable))
    return Audit(table, findings, tuple(unusual), scores, len(differences), values)


def _check_protected(protected: Sequence[str], table: Table) -> frozenset[str]:
    names = [str(name) for name in table.names.tolist()]
    if isinstance(protected, str) or not all(str(name) in names for name in protected):
        raise ValueError(
            f"protected must be a list of columns of X, got {protected!r}; the columns of X are "
            f"{preview(names)}."
        )
    return frozenset(map(str, protected))


def _add_values(findings: Iterable[Finding], table: Table, values: Floats) -> Iterator[Finding]:
    for finding in findings:
        cells = finding.cells(table)
        yield replace(finding, value=float(values[cells].sum())) if len(cells[0]) else finding


def _check_cells(columns: Sequence[ColumnLevels]) -> Iterator[Finding]:
    for column in columns:
        yield from check_text(column)
        yield from check_numbers(column)
    yield from find_swapped(columns)
    yield from find_violations(columns)


def _merge_codes(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Make one finding of a missing code that several columns have."""
    same: dict[Any, list[Finding]] = defaultdict(list)
    for finding in findings:
        if finding.kind == "missing code" and isinstance(finding.action.replacements, dict):
            (code,) = finding.action.replacements
            same[code].append(finding)
        else:
            yield finding
    for code, group in same.items():
        if len(group) == 1:
            yield group[0]
            continue
        names = tuple(finding.columns[0] for finding in group)
        n_cells = sum(len(finding.rows) for finding in group)
        shown = repr(code) if isinstance(code, str) else format_number(code)
        listed = list_first(names, 3)
        rows = [finding.rows for finding in group]
        yield replace(
            group[0],
            columns=names,
            rows=np.concatenate(rows),
            positions=np.concatenate([np.full(len(r), at) for at, r in enumerate(rows)]),
            sentence=f"{shown} stands for a missing value in {n_cells:,} cells of {listed}.",
            action=Action("set missing", {code: None}, "make them missing values"),
            false_rate=min(finding.false_rate for finding in group),
        )


def mark_cells(findings: Iterable[Finding], table: Table, *, most_false: float = 1.0) -> Mask:
    """Return a mask of the cells of findings that are at least this certain."""
    found = np.zeros(table.shape, dtype=bool)
    for finding in findings:
        if finding.false_rate <= most_false:
            found[finding.cells(table)] = True
    return found


def _sort_findings(findings: Sequence[Finding]) -> list[Finding]:
    def order(finding: Finding) -> tuple[Any, ...]:
        group = int(np.searchsorted(_CLASSES, finding.false_rate))
        return group, -len(finding.rows) if group < 2 else 0, finding.false_rate

    return sorted(findings, key=order)


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
        How little single cells fit their row and label.
    n_differences : int, default=0
        How many findings, the first ones, are differences from the reference.
    values : array of shape (n_rows, n_columns), default=None
        Values of the cells, if a valuation was given.

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
            return f"Audit of {size}: nothing found"
        counts = Counter(finding.kind for finding in self.findings)
        listed = ", ".join(f"{count} x {kind}" for kind, count in counts.most_common())
        return f"Audit of {size}: {format_count(len(self), 'finding')} ({listed})"

    def share(self, kind: FindingKind | None = None, *, certain: float = 0.9) -> float:
        """Return the share of rows that findings concern, those about the reference left out.

        Parameters
        ----------
        kind : str, default=None
            Kind of findings, such as ``"missing code"``; None means all kinds.
        certain : float, default=0.9
            How certain a finding must be to count.

        Returns
        -------
        float
            1 if a finding concerns columns as a whole.
        """
        counted = self.select(kind, certain=certain)
        if any(len(finding.rows) == 0 for finding in counted):
            return 1.0
        touched = np.zeros(self.table.shape[0], dtype=bool)
        for finding in counted:
            touched[finding.rows] = True
        return float(touched.mean()) if len(touched) else 0.0

    def select(
        self, kind: FindingKind | None = None, *, certain: float = 0.9
    ) -> tuple[Finding, ...]:
        """Return the findings of a kind that are this certain, differences left out."""
        return tuple(
            finding
            for finding in self.findings[self.n_differences :]
            if kind in (None, finding.kind) and 1 - finding.false_rate >= certain
        )

    def cell_scores(self) -> Floats:
        """Return a score for every cell: the higher, the more probably it is wrong."""
        # Cells of findings come before all others, most certain first.
        top = 1.0 + self.scores.max(initial=0.0)
        scores = self.scores.copy()
        for finding in (*self.findings, *self.unusual):
            if finding.kind != "odd cell" and finding.kind not in _OF_ROWS:
                scores[finding.cells(self.table)] += top * (1.0 - finding.false_rate) ** 2
        return scores

    def fix(self, which: Iterable[int] | None = None) -> Any:
        """Return a copy of X in which the chosen findings are fixed.

        Parameters
        ----------
        which : positions of findings, default=None
            None means all whose action is known and that are at least 90% certain. Rows and columns
            are never dropped unless their finding is named.

        Returns
        -------
        data frame or array
            As X came, also where X has no value for a content.
        """
        numbers = self._choose_safe() if which is None else which
        chosen = [self._get(number) for number in numbers]
        table = self.table
        for finding in chosen:
            if finding.action.kind in ("set missing", "replace"):
                rows, columns = finding.cells(table)
                new = _list_replacements(finding, read_cells(table, rows, columns))
                table = set_cells(table, rows, columns, new)
        dropped = [f.rows for f in chosen if f.action.kind == "drop rows"]
        names = {n for f in chosen if f.action.kind == "drop columns" for n in f.columns}
        keep_rows = np.setdiff1d(np.arange(table.shape[0]), np.concatenate([*dropped, []]))
        keep = np.array([j for j, n in enumerate(table.names.tolist()) if str(n) not in names])
        if len(keep_rows) == table.shape[0] and len(keep) == table.shape[1]:
            return copy_native(table)
        return table.take(keep_rows.astype(np.intp), keep.astype(np.intp))

    def _choose_safe(self) -> Iterator[int]:
        for number, finding in enumerate(self.findings):
            is_known = finding.action.kind in ("set missing", "replace")
            if is_known and finding.false_rate <= _CLASSES[0]:
                yield number

    def _get(self, number: int) -> Finding:
        if not isinstance(number, int | np.integer) or not 0 <= number < len(self):
            raise ValueError(
                f"which must hold positions of findings, 0 to {len(self) - 1}, got {number!r}."
            )
        finding = self.findings[number]
        if finding.action.kind in ("check", "convert"):
            raise ValueError(
                f"finding {number} ({finding.kind}) has no automatic fix: {finding.action.text}."
            )
        return finding

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

    def cells(self, backend: str | None = None) -> Any:
        """Return a data frame with one line per cell of every finding.

        Parameters
        ----------
        backend : str, default=None
            Library of the result, such as "polars"; None means that of X.

        Returns
        -------
        data frame
            The position of the finding, the row id, the column, the cell, and what :meth:`fix`
            replaces it with: nothing if it becomes missing, or if a person must decide. They are
            strings except in pandas. A finding about whole rows has one line per row, no column.
            With a valuation, there is also the ``value`` of the cell or row, and the cells of a
            finding are in order of their values, lowest first.
        """
        table, lines = self.table, list[tuple[Any, ...]]()
        of_cells = np.full(table.shape, np.nan) if self.values is None else self.values
        for number, finding in enumerate(self.findings):
            if finding.kind in _OF_ROWS:
                rows, values = finding.rows, of_cells[finding.rows].sum(axis=1)
                columns = cells = new = [None] * len(rows)
            else:
                rows, positions = finding.cells(table)
                columns = table.names[positions].astype(str).tolist()
                values = of_cells[rows, positions]
                cells = read_cells(table, rows, positions)
                new = _list_replacements(finding, cells)
            numbers, ids = [number] * len(rows), table.row_ids[rows].tolist()
            found = list(zip(numbers, ids, columns, cells, new, values.tolist(), strict=True))
            # NaN is last, and the order stays as it is among equal values.
            lines += [found[i] for i in np.argsort(values, kind="stable")]
        names = ["finding", "row", "column", "cell", "new", "value"]
        if self.values is None:
            names.remove("value")
        listed: dict[str, Any] = {name: [line[j] for line in lines] for j, name in enumerate(names)}
        library = backend or table.backend or default_backend()
        for name in ("cell", "new"):
            # Other libraries have one type per column.
            texts = [None if cell is None else str(cell) for cell in listed[name]]
            listed[name] = object_array(listed[name]) if library == "pandas" else texts
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


def _list_replacements(finding: Finding, cells: Sequence[Any]) -> list[Any]:
    """Return what the action of a finding puts in the place of its cells; None if nothing."""
    new = finding.action.replacements
    if finding.action.kind != "replace":
        return [None] * len(cells)
    return [_look_up(cell, new) for cell in cells] if isinstance(new, Mapping) else list(new)


def _look_up(content: Any, replacements: Mapping[Any, Any]) -> Any:
    """Return the replacement of a content; numbers may be stored as strings."""
    if content in replacements or not isinstance(content, str):
        return replacements.get(content, content)
    try:
        return replacements.get(float(content), content)
    except ValueError:
        return content
