"""Audit a table, and check it against limits: the commands audit and check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any, get_args

import click
import numpy as np
import pyarrow as pa

from cellworth import report as reports
from cellworth.cli.app import (
    CHECK_FAILED,
    note,
    print_result,
    shorten_path,
    wants_json,
)
from cellworth.cli.folders import (
    LIST_FORMATS,
    check_list_file,
    write_list,
)
from cellworth.cli.input_files import (
    STDIN,
    TextOptions,
    check_column,
    keep_stdin,
    read_input,
    read_table,
)
from cellworth.cli.verdicts import WRITERS, write_verdict
from cellworth.data.file_search import split_suffixes
from cellworth.data.io import AnyPath, jsonable, write_atomically
from cellworth.data.tables import Table
from cellworth.data.text import format_count, visible_text
from cellworth.findings.data_audit import Audit, audit, list_lines
from cellworth.findings.finding import Finding, FindingKind
from cellworth.findings.fixing import Fixed, write_plain
from cellworth.findings.reference_checks import ROWS_DRAWN
from cellworth.valuation import load

ANY = "any"
# Only a reference shows these.
_DIFFERENCES = {"schema", "drift", "new content", "missing values", "dependence", "label drift"}
_LIMITED = [kind for kind in get_args(FindingKind) if kind not in _DIFFERENCES]
# A check of the document lists at most this many findings.
_LISTED = 20
# A file of cells has at most this many lines.
_MAX_CELLS = 100_000
# Options of text files, in the order of a TextFormat; categories are read as text.
_TEXT_OPTIONS = ("delimiter", "encoding", "decimal", "missing", "categorical")
# Options of ``check`` that limit a table.
_LIMITS = ("shares", "max_findings", "min_rows")


def audit_table(
    *,
    table: str,
    values: AnyPath | None,
    fixed: AnyPath | None,
    output: AnyPath | None,
    force: bool,
    **asked: Any,
) -> None:
    """Find out what is wrong with a table: the command ``audit``."""
    check_list_file(output, (".html", *LIST_FORMATS), force=force)
    check_list_file(fixed, (".csv",), force=force, option="--fix")
    found, _, _ = _run_audit(table, valuation=None if values is None else load(values), **asked)
    if output is not None:
        called = "stdin" if table == STDIN else PurePath(table).name or table
        _write_findings(output, found, title=f"Audit of {called}")
        count = format_count(len(found), "finding is", "findings are")
        note(f"{count} in {shorten_path(output.absolute())}.")
    if output is None or wants_json():
        lines = list_lines(found, more="-o FILE lists all")
        print_result("audit", found.to_dict(), map(visible_text, lines))
    if fixed is not None:
        made = found.fix()
        _write_fixed(fixed, table, made, TextOptions(asked["delimiter"], asked["encoding"]))
        for line in made.list_lines():
            note(visible_text(line))


def _write_fixed(path: AnyPath, table: str, fixed: Fixed, text: TextOptions) -> None:
    """Write a text file again, every cell as it was written but those that were changed."""
    from pyarrow import csv

    if table == STDIN or split_suffixes(table)[0] not in (".csv", ".tsv"):
        raise click.UsageError(
            f"--fix needs a .csv or .tsv file, got {table}; in Python, audit(X).fix() fixes any "
            "table."
        )
    names = read_table(table, text=text).column_names
    cells = read_table(table, text=replace(text, as_text=names))
    for position in {change.column for change in fixed.changes}:
        name = str(fixed.table.names[position])
        column = cells.column(name).to_pylist()
        for change in fixed.changes:
            if change.column == position:
                column[change.row] = write_plain(change.after)
        at = names.index(name)
        cells = cells.set_column(at, name, pa.array(column, pa.string()))
    kept = cells.take(fixed.rows) if len(fixed.rows) < cells.num_rows else cells
    with write_atomically(path) as file:
        csv.write_csv(kept, file, csv.WriteOptions(quoting_style="needed"))


def check_input(
    *, table: str, outputs: Sequence[AnyPath], keep: AnyPath | None, force: bool, **asked: Any
) -> None:
    """Check a table against limits: the command ``check``."""
    for output in outputs:
        check_list_file(output, tuple(WRITERS), force=force)
    check_list_file(keep, (".parquet",), force=force, option="--keep")
    limits = {name: asked.pop(name) for name in _LIMITS}
    for kind, _ in limits["shares"]:
        if kind not in (*_LIMITED, ANY):
            raise click.UsageError(
                f"--max is given for {kind!r}; give one of {', '.join((*_LIMITED, ANY))}."
            )
    # Findings are limited besides differences from the reference.
    limits_findings = bool(limits["shares"]) or limits["max_findings"] is not None
    if not (limits_findings or asked["reference"] or limits["min_rows"]):
        raise click.UsageError(
            "no limit was given; give --reference, --max, --max-findings or --min-rows."
        )
    asked["quick"] = asked["quick"] or not limits_findings
    found, y, n_reference = _run_audit(table, **asked)
    checks: list[dict[str, Any]] = []
    if asked["reference"] is not None:
        checks += _check_differences(found, asked["reference"], n_reference, asked["false_alarms"])
    checks += _check_table(found, limits)
    if keep is not None and all(one["passed"] for one in checks):
        _keep_reference(keep, found.table, y, asked["target"])
    document = {"passed": all(one["passed"] for one in checks), "checks": checks}
    for output in outputs:
        write_verdict(output, document, table)
    print_result("check", document, map(visible_text, _list_checks(checks)))
    if not document["passed"]:
        click.get_current_context().exit(CHECK_FAILED)


def _run_audit(
    table: str,
    *,
    target: str | None,
    val: str | None,
    reference: str | None,
    protected: tuple[str, ...],
    row_id: str | None,
    drop: tuple[str, ...],
    **options: Any,
) -> tuple[Audit, Any, int]:
    """Read the tables and audit the first one.

    Returns the audit, the labels and the number of rows of the reference.
    """
    text = TextOptions(*(options.pop(name) for name in _TEXT_OPTIONS))

    def read(path: str, like: Any = None) -> tuple[Table, Any]:
        found = read_input(path, target=target, row_id=row_id, drop=drop, text=text, like=like)
        return found.X, found.y

    with TemporaryDirectory() as folder:
        X, y = read(str(keep_stdin(Path(folder, "table"))) if table == STDIN else table)
    X_val, y_val, X_ref, y_ref = None, None, None, None
    if val is not None:
        X_val, y_val = read(val, like=X.native.schema)
    if reference is not None:
        # With the types of X, text in a column of numbers would be an error, no finding.
        X_ref, y_ref = read(reference, like=pa.schema([]))
    for name in protected:
        check_column(X.names.tolist(), name, table, "--protected")
    found = audit(
        X, y, X_val=X_val, y_val=y_val, reference=X_ref if y_ref is None else (X_ref, y_ref),
        protected=protected, **options,
    )  # fmt: skip
    return found, y, 0 if X_ref is None else X_ref.shape[0]


def _keep_reference(path: AnyPath, table: Table, y: Any, target: str | None) -> None:
    """Write rows drawn at random, for the next check."""
    import pyarrow.parquet as pq

    drawn = np.sort(np.random.default_rng(0).permutation(table.shape[0])[:ROWS_DRAWN])
    kept = table.native.take(drawn)
    if target is not None:
        kept = kept.append_column(target, pa.array(y[drawn]))
    with write_atomically(path) as file:
        pq.write_table(kept, file)


def _list_checks(checks: Sequence[dict[str, Any]]) -> Iterator[str]:
    for one in checks:
        yield f"{'ok  ' if one['passed'] else 'FAIL'}  {one['sentence']}"
        if not one["passed"]:
            yield from (f"      {sentence}" for sentence in one["findings"])
    n_failed = sum(not one["passed"] for one in checks)
    passed = f"Passed: {format_count(len(checks), 'check')}."
    yield f"Failed: {n_failed} of {len(checks)} checks." if n_failed else passed


def _write_findings(path: AnyPath, found: Audit, *, title: str) -> None:
    if path.suffix == ".html":
        reports.write_audit(found, path, title=title)
    else:
        # With values, the cells are what a reader goes through.
        of_cells = found.values is not None
        listed = (
            found.cells(_MAX_CELLS, backend="pyarrow") if of_cells else found.to_frame("pyarrow")
        )
        write_list(path, listed, jsonable(found.to_dict()))


def _check_table(found: Audit, limits: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    least, most = limits["min_rows"], limits["max_findings"]
    if least is not None:
        n_rows = found.table.shape[0]
        sentence = f"{n_rows:,} rows, at least {least:,} required"
        yield _make("min_rows", n_rows, least, passed=n_rows >= least, sentence=sentence)
    for kind, limit in limits["shares"]:
        asked = None if kind == ANY else kind
        share, findings = found.share(asked), found.select(asked)
        what = "any finding" if asked is None else kind
        sentence = f"{what}: {share:.2%} of rows; at most {limit:.2%} allowed"
        passed = share <= limit
        yield _make("max", share, limit, passed=passed, sentence=sentence, findings=findings)
    if most is not None:
        counted = found.select()
        n_found = format_count(len(counted), "finding")
        sentence = f"{n_found}, at most {most:,} allowed"
        passed = len(counted) <= most
        yield _make(
            "max_findings", len(counted), most, passed=passed, sentence=sentence, findings=counted
        )


def _check_differences(
    found: Audit, reference: str, n_reference: int, false_alarms: float
) -> Iterator[dict[str, Any]]:
    differences = found.findings[: found.n_differences]
    for finding in differences:
        sentence = f"{finding.kind}: {finding.sentence}"
        yield _make(
            "reference", finding.false_rate or 0.0, false_alarms, passed=False, sentence=sentence
        )
    if not differences:
        sentence = (
            f"no difference of {found.table.shape[0]:,} rows from the {n_reference:,} of "
            f"{reference}; tables from the same source differ with a probability of at most "
            f"{100 * false_alarms:.4g}%"
        )
        yield _make("reference", 1.0, false_alarms, passed=True, sentence=sentence)


def _make(
    name: str, found: float, limit: float, *, passed: bool, sentence: str,
    findings: Sequence[Finding] = (),
) -> dict[str, Any]:  # fmt: skip
    listed = [f"{finding.kind}: {finding.sentence}" for finding in findings[:_LISTED]]
    return {
        "name": name, "found": found, "limit": limit, "passed": passed, "sentence": sentence,
        "findings": listed,
    }  # fmt: skip
