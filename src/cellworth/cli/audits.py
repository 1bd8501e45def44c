"""Audit a table, and check a table or values against limits: the commands audit and check."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any, cast, get_args

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
    wrap_to_terminal,
)
from cellworth.cli.folders import (
    LIST_FORMATS,
    VALUATION,
    check_list_file,
    get_folder_format,
    read_folder_manifest,
    write_list,
)
from cellworth.cli.input_files import (
    STDIN,
    TextOptions,
    check_column,
    check_same_columns,
    keep_stdin,
    read_input,
    read_unlabeled,
)
from cellworth.cli.verdicts import WRITERS, write_verdict
from cellworth.data.io import AnyPath, jsonable, to_path, write_atomically
from cellworth.data.tables import Table
from cellworth.data.views import visible_text
from cellworth.findings.data_audit import Audit, audit, list_lines
from cellworth.findings.finding import Finding, FindingKind
from cellworth.findings.reference_checks import ROWS_DRAWN
from cellworth.valuation import load
from cellworth.valuation.valuation import Valuation, format_score

ANY = "any"
# Only a reference shows these.
_DIFFERENCES = {"schema", "drift", "new content", "missing values", "dependence", "label drift"}
_LIMITED = [kind for kind in get_args(FindingKind) if kind not in _DIFFERENCES]
# A check of the document lists at most this many findings.
_LISTED = 20


@dataclass(frozen=True)
class AuditRequest:
    """A table to audit, how to read it, and what to compare it with: options of the commands."""

    table: str
    target: str | None
    row_id: str | None
    drop: tuple[str, ...]
    missing: tuple[str, ...]
    categorical: tuple[str, ...]
    delimiter: str | None
    encoding: str
    decimal: str | None
    val: str | None
    reference: str | None
    false_alarms: float
    protected: tuple[str, ...]
    quick: bool

    def run(
        self, *, quick: bool = False, valuation: Valuation | None = None
    ) -> tuple[Audit, Any, int]:
        """Read the tables and audit the first one.

        Returns the audit, the labels and the number of rows of the reference.
        """
        with TemporaryDirectory() as folder:
            is_stdin = self.table == STDIN
            path = str(keep_stdin(Path(folder, "table"))) if is_stdin else self.table
            X, y = self._read(path)
            X_val, y_val, X_ref, y_ref = None, None, None, None
            if self.val is not None:
                X_val, y_val = self._read(self.val, like=X.native.schema)
            if self.reference is not None:
                # With the types of X, text in a column of numbers would be an error, no finding.
                X_ref, y_ref = self._read(self.reference, like=pa.schema([]))
        names = X.names.tolist()
        for name in self.protected:
            check_column(names, name, self.table, "--protected")
        if X_val is not None:
            check_same_columns(names, X_val.names.tolist(), str(self.val))
        found = audit(
            X, y, X_val=X_val, y_val=y_val, reference=X_ref if y_ref is None else (X_ref, y_ref),
            false_alarms=self.false_alarms, protected=self.protected, quick=quick or self.quick,
            valuation=valuation,
        )  # fmt: skip
        return found, y, 0 if X_ref is None else X_ref.shape[0]

    @property
    def title(self) -> str:
        """What the table is called."""
        return "stdin" if self.table == STDIN else PurePath(self.table).name or self.table

    def _read(self, path: str, like: Any = None) -> tuple[Table, Any]:
        """Return a table and its labels, if a target is given."""
        text = TextOptions(self.delimiter, self.encoding, self.decimal, self.missing)
        how: dict[str, Any] = {
            "row_id": self.row_id, "drop": self.drop, "categorical": self.categorical,
            "text": text, "like": like,
        }  # fmt: skip
        if self.target is None:
            return read_unlabeled(path, **how), None
        read = read_input(path, target=self.target, **how)
        return read.X, read.y


@dataclass(frozen=True)
class Limits:
    """What a table or its values may have: options of the command ``check``."""

    shares: tuple[tuple[str, float], ...] = ()
    max_findings: int | None = None
    certain: float = 0.9
    min_total: float | None = None
    allow_interrupted: bool = False
    min_rows: int | None = None

    @property
    def are_of_findings(self) -> bool:
        """Whether findings are limited, besides differences from a reference."""
        return bool(self.shares) or self.max_findings is not None

    def check_shares(self) -> None:
        """Check that all kinds of findings are known."""
        for kind, _ in self.shares:
            if kind not in (*_LIMITED, ANY):
                raise click.UsageError(
                    f"--max is given for {kind!r}; give one of {', '.join((*_LIMITED, ANY))}."
                )


def audit_table(
    request: AuditRequest, *, values: AnyPath | None, output: AnyPath | None, force: bool
) -> None:
    """Find out what is wrong with a table: the command ``audit``."""
    check_list_file(output, (".html", *LIST_FORMATS), force=force)
    found, _, _ = request.run(valuation=None if values is None else load(values))
    if output is not None:
        _write_findings(output, found, title=f"Audit of {request.title}")
        count = "1 finding is" if len(found) == 1 else f"{len(found):,} findings are"
        note(f"{count} in {shorten_path(output.absolute())}.")
    if output is None or wants_json():
        document = found.to_dict()
        lines = list_lines(found, more="-o FILE lists all")
        print_result("audit", document, wrap_to_terminal(map(visible_text, lines)))


def check_input(
    request: AuditRequest,
    limits: Limits,
    *,
    outputs: Sequence[AnyPath],
    keep: AnyPath | None,
    force: bool,
) -> None:
    """Check a table, or a folder of values, against limits: the command ``check``."""
    limits.check_shares()
    for output in outputs:
        check_list_file(output, tuple(WRITERS), force=force)
    check_list_file(keep, (".parquet",), force=force, option="--keep")
    folder = _find_values(request.table)
    if folder is not None:
        _finish(list(_check_values(folder, request, limits)), request, outputs)
        return
    _check_limits_of_table(request, limits)
    found, y, n_reference = request.run(quick=not limits.are_of_findings)
    checks = list(_check_table(found, request, limits, n_reference))
    if keep is not None and all(one["passed"] for one in checks):
        _keep_reference(keep, found.table, y, request.target)
    _finish(checks, request, outputs)


def _finish(
    checks: list[dict[str, Any]], request: AuditRequest, outputs: Sequence[AnyPath]
) -> None:
    """Print and write the verdict; end with exit code 1 if a check failed."""
    document = {"passed": all(one["passed"] for one in checks), "checks": checks}
    for output in outputs:
        write_verdict(output, document, request.table)
    print_result("check", document, wrap_to_terminal(map(visible_text, _list_checks(checks))))
    if not document["passed"]:
        click.get_current_context().exit(CHECK_FAILED)


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
    n_checks = f"{len(checks)} check{'s' * (len(checks) > 1)}"
    yield f"Failed: {n_failed} of {n_checks}." if n_failed else f"Passed: {n_checks}."


def _write_findings(path: AnyPath, found: Audit, *, title: str) -> None:
    if path.suffix == ".html":
        reports.write_audit(found, path, title=title)
    else:
        # With values, the cells are what a reader goes through.
        listed = found.to_frame if found.values is None else found.cells
        write_list(path, listed("pyarrow"), jsonable(found.to_dict()))


# Tables


def _check_limits_of_table(request: AuditRequest, limits: Limits) -> None:
    if limits.min_total is not None or limits.allow_interrupted:
        get_folder_format(to_path(request.table, "the path"))
        raise click.UsageError(
            f"--min-total and --allow-interrupted are for values, and {request.table} is a table; "
            "give a folder that cellworth value wrote."
        )
    if request.reference is None and limits.min_rows is None and not limits.are_of_findings:
        raise click.UsageError(
            "no limit was given; give --reference, --max, --max-findings or --min-rows."
        )


def _check_table(
    found: Audit, request: AuditRequest, limits: Limits, n_reference: int
) -> Iterator[dict[str, Any]]:
    if limits.min_rows is not None:
        n_rows, least = found.table.shape[0], limits.min_rows
        sentence = f"{n_rows:,} rows, at least {least:,} required"
        yield _make("min_rows", n_rows, least, passed=n_rows >= least, sentence=sentence)
    if request.reference is not None:
        yield from _check_differences(found, request, n_reference)
    for kind, limit in limits.shares:
        yield _check_share(found, kind, limit, limits.certain)
    if limits.max_findings is not None:
        counted = found.select(certain=limits.certain)
        sentence = (
            f"{len(counted):,} finding{'s' * (len(counted) != 1)} at least "
            f"{100 * limits.certain:.4g}% certain, at most {limits.max_findings:,} allowed"
        )
        passed = len(counted) <= limits.max_findings
        yield _make(
            "max_findings", len(counted), limits.max_findings, passed=passed, sentence=sentence,
            findings=counted,
        )  # fmt: skip


def _check_differences(
    found: Audit, request: AuditRequest, n_reference: int
) -> Iterator[dict[str, Any]]:
    chance = f"{100 * request.false_alarms:.4g}%"
    differences = found.findings[: found.n_differences]
    for finding in differences:
        sentence = f"{finding.kind}: {finding.sentence}"
        yield _make(
            "reference", finding.false_rate, request.false_alarms, passed=False, sentence=sentence
        )
    if not differences:
        sentence = (
            f"no difference of {found.table.shape[0]:,} rows from the {n_reference:,} of "
            f"{request.reference}; tables from the same source differ with a probability of at "
            f"most {chance}"
        )
        yield _make("reference", 1.0, request.false_alarms, passed=True, sentence=sentence)


def _check_share(found: Audit, kind: str, limit: float, certain: float) -> dict[str, Any]:
    asked = None if kind == ANY else cast("FindingKind", kind)
    share = found.share(asked, certain=certain)
    what = "any finding" if asked is None else kind
    sentence = (
        f"{what}: {share:.2%} of rows, {100 * certain:.4g}% certain; at most {limit:.2%} allowed"
    )
    findings = found.select(asked, certain=certain)
    return _make("max", share, limit, passed=share <= limit, sentence=sentence, findings=findings)


# Values


def _find_values(address: str) -> AnyPath | None:
    """Return the folder of values that an address names; None for a table."""
    if address == STDIN:
        return None
    path = to_path(address, "the path")
    return path if path.is_dir() and read_folder_manifest(path) is not None else None


def _check_values(
    folder: AnyPath, request: AuditRequest, limits: Limits
) -> Iterator[dict[str, Any]]:
    if request.reference is not None or limits.min_rows is not None or limits.are_of_findings:
        raise click.UsageError(
            f"--reference, --max, --max-findings and --min-rows are for tables, and {folder} holds "
            "values; give the table."
        )
    if limits.min_total is None:
        raise click.UsageError("no limit was given; give --min-total.")
    if get_folder_format(folder) != VALUATION:
        raise ValueError(f"{folder} holds no values; give a folder that cellworth value wrote.")
    valuation = load(folder)
    yield from _check_status(valuation, limits.allow_interrupted)
    total = valuation.total
    sentence = (
        f"the sum of all values is {total:.4g}{_describe_score(valuation)}, at least "
        f"{limits.min_total:.4g} required"
    )
    passed = total >= limits.min_total
    yield _make("min_total", total, limits.min_total, passed=passed, sentence=sentence)


def _check_status(valuation: Valuation, allowed: bool) -> Iterator[dict[str, Any]]:
    """Check that the run was not interrupted."""
    if valuation.status != "interrupted":
        return
    scores = valuation.scores
    done = f" ({scores.scored_on})" if scores is not None else ""
    advice = "allowed" if allowed else "continue with cellworth resume, or give --allow-interrupted"
    sentence = f"the run was interrupted{done}; {advice}"
    yield _make("interrupted", 1.0, float(allowed), passed=allowed, sentence=sentence)


def _describe_score(valuation: Valuation) -> str:
    if valuation.scores is None or math.isnan(valuation.score):
        return ""
    return f" (score {format_score(valuation)}, baseline {valuation.baseline:.4g})"


def _make(
    name: str, found: float, limit: float, *, passed: bool, sentence: str,
    findings: Sequence[Finding] = (),
) -> dict[str, Any]:  # fmt: skip
    listed = [f"{finding.kind}: {finding.sentence}" for finding in findings[:_LISTED]]
    return {
        "name": name, "found": found, "limit": limit, "passed": passed, "sentence": sentence,
        "findings": listed,
    }  # fmt: skip
