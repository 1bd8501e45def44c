"""The checks of an audit, in their order: what each one asks, and what it is given."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, Literal, TypeAlias

import numpy as np

from cellworth.data.arguments import Floats, Mask
from cellworth.data.column import Column
from cellworth.data.tables import Table
from cellworth.data.text import format_number, list_first
from cellworth.findings import leaks, number_checks, table_checks, text_checks
from cellworth.findings.anomaly import Evidence
from cellworth.findings.features import (
    FeatureColumn,
    Features,
    count_as_extreme,
    read_without,
)
from cellworth.findings.finding import Action, Finding
from cellworth.findings.label_checks import find_wrong_labels
from cellworth.findings.levels import ColumnLevels
from cellworth.findings.table_checks import is_name

# Cells of findings at least this certain are not compared with others.
_SURE = 0.3
# Kinds that call a content wrong because it is rare or unlike others.
_BY_RARITY: frozenset[str] = frozenset(
    {"misspelling", "outlier", "scale", "dependency", "wrong column"}
)


@dataclass(frozen=True, eq=False)
class AuditInput:
    """What checks may look at: the table, its labels, and what the checks before have found."""

    table: Table
    columns: list[ColumnLevels]
    # Arrays of the labels and their classes; None for a numeric target, or without labels.
    target: Any = None
    classes: Any = None
    target_name: str | None = None
    # Columns and labels of validation rows; None without them.
    validation: Any = None
    validation_target: Any = None
    protected: frozenset[str] = frozenset()
    found: list[Finding] = field(default_factory=list)

    def can_ask(self, check: AuditCheck, *, quick: bool) -> bool:
        """Return whether the table has what a check needs."""
        asked = {
            "labels": self.target, "classes": self.classes, "validation rows": self.validation,
        }  # fmt: skip
        lacks = check.needs is not None and asked[check.needs] is None
        return not lacks and not (quick and check.is_slow)

    def run(self, check: AuditCheck) -> None:
        """Add what a check finds, without what is called wrong in protected columns by rarity."""
        for finding in check.find(self):
            is_by_rarity = finding.kind in _BY_RARITY
            if not (is_by_rarity and self.protected.intersection(finding.columns)):
                self.found.append(finding)

    def find_earlier(self, column: ColumnLevels, *kinds: str) -> list[Finding]:
        """Return what was found in a column before."""
        return [f for f in self.found if f.kind in kinds and f.columns == (column.name,)]

    @cached_property
    def features(self) -> list[FeatureColumn]:
        """The columns, without the cells that the checks before have found."""
        found = mark_cells(self.found, self.table, most_doubt=_SURE)
        return [read_without(column, found[:, j]) for j, column in enumerate(self.columns)]

    @cached_property
    def odd_cells(self) -> tuple[Floats, Features]:
        """How little cells fit their row and label, and features of the columns and the label."""
        evidence = Evidence(self.features, self.target, self.classes)
        tails = np.stack([count_as_extreme(column) for column in self.features], axis=1)
        # Every table has cells with the highest scores: they are where to look, and no findings.
        scores: Floats = evidence.scores + np.log(len(tails) / tails)
        left_out = [j for j, c in enumerate(self.columns) if is_name(c) or c.name in self.protected]
        scores[mark_cells(self.found, self.table, most_doubt=_SURE)] = 0.0
        scores[:, left_out] = 0.0
        return scores, evidence.features


Asked: TypeAlias = Callable[[AuditInput], Iterable[Finding]]


@dataclass(frozen=True)
class AuditCheck:
    """One question that an audit asks of a table."""

    name: str
    find: Asked
    needs: Literal["labels", "classes", "validation rows"] | None = None
    # Whether ``audit(quick=True)`` leaves it out.
    is_slow: bool = False


def mark_cells(findings: Iterable[Finding], table: Table, *, most_doubt: float = 1.0) -> Mask:
    """Return a mask of the cells of findings that are at least this certain."""
    found = np.zeros(table.shape, dtype=bool)
    for finding in findings:
        if finding.doubt <= most_doubt:
            found[finding.cells(table)] = True
    return found


def find_mixed_shapes(given: AuditInput) -> Iterator[Finding]:
    """Find strings whose digits, letters and signs are arranged as in few other cells."""
    for column in given.columns:
        if column.kind == "text" and not given.find_earlier(
            column, "numbers as text", "dates as text", "text among numbers"
        ):
            yield from text_checks.find_mixed_shapes(column)


def find_misspellings(given: AuditInput) -> Iterator[Finding]:
    """Find rare words that are a few letters away from a frequent one."""
    for column in given.columns:
        variants = given.find_earlier(column, "spelling variant")
        known = {text for finding in variants for text in finding.action.replacements}
        yield from text_checks.find_misspellings(column, known)


def find_copies(given: AuditInput) -> Iterator[Finding]:
    """Find rows that repeat an earlier one, its label included."""
    label = None if given.target is None else ColumnLevels.of(Column("label", given.target))
    yield from table_checks.find_repeated_rows(given.columns, label)


def find_shared_rows(given: AuditInput) -> Iterator[Finding]:
    """Find validation rows that are also in the table."""
    labels = None
    if given.target is not None and given.validation_target is not None:
        labels = given.target, given.validation_target
    yield from table_checks.find_shared_rows(given.columns, given.validation, labels)


def find_leaks(given: AuditInput) -> Iterator[Finding]:
    """Find columns that are the label, or that alone predict it."""
    yield from leaks.find_leaks(
        given.columns, given.target,
        of_classes=given.classes is not None, target_name=given.target_name,
    )  # fmt: skip


def find_labels(given: AuditInput) -> Iterator[Finding]:
    """Find labels that the cells of their row contradict, where no column is the label."""
    asked = [j for j, column in enumerate(given.columns) if not is_name(column)]
    columns = [given.features[j] for j in asked]
    has_leak = any(finding.kind == "leak" for finding in given.found)
    if has_leak or not columns:
        return
    known = given.odd_cells[1] if len(columns) == len(given.columns) else None
    codes = np.searchsorted(given.classes, given.target)
    yield from find_wrong_labels(columns, codes, given.classes, known)


def _ask_columns(find: Callable[[ColumnLevels], Iterator[Finding]]) -> Asked:
    """Return the check that asks every column by itself."""
    return lambda given: _merge_codes(chain.from_iterable(map(find, given.columns)))


# Later checks look at what earlier ones have found.
CHECKS: tuple[AuditCheck, ...] = (
    AuditCheck("marks of missing values", _ask_columns(text_checks.find_missing_marks)),
    AuditCheck("numbers and dates as text", _ask_columns(text_checks.find_stored_quantities)),
    AuditCheck("mixed formats", find_mixed_shapes),
    AuditCheck("wrong encodings", _ask_columns(text_checks.find_garbled)),
    AuditCheck("spelling variants", _ask_columns(text_checks.find_spelling_variants)),
    AuditCheck("misspellings", find_misspellings),
    AuditCheck("codes, units and outliers", _ask_columns(number_checks.find_gross_errors)),
    AuditCheck("contents of other columns", lambda given: text_checks.find_swapped(given.columns)),
    AuditCheck("dependencies", lambda given: table_checks.find_violations(given.columns)),
    AuditCheck("useless columns", lambda given: table_checks.check_columns(given.columns)),
    AuditCheck("copies of rows", find_copies),
    AuditCheck("validation rows in X", find_shared_rows, "validation rows"),
    AuditCheck("leaks", find_leaks, "labels"),
    AuditCheck(
        "rows sorted by label", lambda given: leaks.find_sorted_rows(given.target), "classes"
    ),
    AuditCheck("wrong labels", find_labels, "classes", is_slow=True),
)


def _merge_codes(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Make one finding of a code for missing values that several columns have."""
    same: dict[Any, list[Finding]] = defaultdict(list)
    for finding in findings:
        if finding.action.kind == "set missing" and len(finding.action.replacements) == 1:
            (code,) = finding.action.replacements
            same[finding.kind, code].append(finding)
        else:
            yield finding
    for (kind, code), group in same.items():
        if len(group) == 1 or kind == "outlier":
            yield from group
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
            doubt=min(finding.doubt for finding in group),
        )
