"""Audit a table, and check it against limits: the commands audit and check."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any, get_args

import click
import numpy as np
import pyarrow as pa
from click.core import ParameterSource

from cellworth import report as reports
from cellworth.cli.app import (
    CHECK_FAILED,
    note,
    print_result,
    shorten_path,
    shows_progress,
    wants_json,
)
from cellworth.cli.folders import (
    LIST_FORMATS,
    check_list_file,
    write_list,
)
from cellworth.cli.input_files import (
    STDIN,
    InputTable,
    TextOptions,
    check_column,
    keep_stdin,
    read_input,
    read_table,
)
from cellworth.cli.runs import read_owners, summarize_valuation
from cellworth.cli.verdicts import WRITERS, write_verdict
from cellworth.data.file_search import split_suffixes
from cellworth.data.io import AnyPath, jsonable, write_atomically
from cellworth.data.owners import Owners, list_keys, parse_toml
from cellworth.data.tables import Table
from cellworth.data.text import format_count, visible_text
from cellworth.findings.data_audit import Audit, audit, list_lines
from cellworth.findings.finding import Finding, FindingKind
from cellworth.findings.fixing import Fixed, write_plain
from cellworth.findings.reference_checks import ROWS_DRAWN
from cellworth.report.look_page import make_look
from cellworth.runtime.run_settings import Runtime
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
_NOT_REPEATED = {"table", "output", "force", "fixed", "json"}
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
    found, *_ = _run_audit(table, valuation=None if values is None else load(values), **asked)
    if output is not None:
        _write_findings(output, found, title=f"Audit of {_name(table)}")
        count = format_count(len(found), "finding is", "findings are")
        note(f"{count} in {shorten_path(output.absolute())}.")
    if output is None or wants_json():
        lines = list_lines(found, more="-o FILE lists all")
        print_result("audit", found.to_dict(), map(visible_text, lines))
    if fixed is not None:
        _write_fixed(fixed, table, found.fix(), asked)


def look_at_table(
    *, table: str, owners: str | None, fixed: AnyPath | None, output: AnyPath, force: bool,
    **asked: Any,
) -> None:  # fmt: skip
    """Audit and value a table, and write both to one page: the command ``look``."""
    check_list_file(output, (".html",), force=force)
    check_list_file(fixed, (".csv",), force=force, option="--fix")
    plain = {} if owners is None else parse_toml(read_owners(owners), "--owners")
    # Names of owners are text, as for cellworth value.
    asked["categorical"] += (plain["source"],) if "source" in plain else ()
    keys = list_keys(plain, "--owners")
    found, train, val, _ = _run_audit(table, keys=keys, **asked)
    if not wants_json():
        # At once: values take a minute.
        print_result("look", {}, map(visible_text, list_lines(found, more=f"{output} lists all")))
    if fixed is not None:
        _write_fixed(fixed, table, found.fix(), asked)
    commands = {
        # The columns that only name owners were not audited.
        "audit": _repeat(table, "audit", *(f"--drop={name}" for name in keys)),
        "value": _repeat(table, "value", "-o", "values") + "\ncellworth report values",
        "look": _repeat(table, "look"),
    }
    held = None
    if owners is not None:
        named = Owners.from_plain(plain, train.delivered, called="--owners")
        held = named.check_covered("--owners")
    made = make_look(
        found, train.X, train.y, {} if val is None else {"X_val": val.X, "y_val": val.y},
        owners=held, title=f"A look at {_name(table)}", code={"commands": commands},
        runtime=Runtime(progress=shows_progress()),
    )  # fmt: skip
    made.save(output)
    document = {
        "output": shorten_path(output.absolute()),
        "audit": found.to_dict(),
        "values": made.valuation and summarize_valuation(made.valuation),
        "shares": made.payout and made.payout.to_frame("pyarrow").to_pylist(),
    }
    shown = [repr(part) for part in (made.valuation, made.payout) if part is not None]
    print_result("look", document, [line for part in shown for line in ("", part)])
    note(f"The page is in {shorten_path(output.absolute())}.")


def _repeat(table: str, name: str, *more: str) -> str:
    """Return another command with the options that were given to this one, if it has them."""
    context = click.get_current_context()
    commands: Any = context.find_root().command
    known = {option.name for option in commands.get_command(context, name).params}
    words = ["cellworth", name, table]
    for option in context.command.params:
        source: Any = context.get_parameter_source(str(option.name))
        if source is ParameterSource.COMMANDLINE and option.name in known - _NOT_REPEATED:
            held: Any = context.params[option.name]
            for one in held if option.multiple else [held]:
                words += option.opts[:1] if one is True else [option.opts[0], str(one)]
    return shlex.join([*words, *more])


def _name(table: str) -> str:
    return "stdin" if table == STDIN else PurePath(table).name or table


def _write_fixed(path: AnyPath, table: str, fixed: Fixed, asked: Mapping[str, Any]) -> None:
    """Write a text file again, every cell as it was written but those that were changed."""
    from pyarrow import csv

    text = TextOptions(asked["delimiter"], asked["encoding"])

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
    for line in fixed.list_lines():
        note(visible_text(line))


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
    found, read, _, reference = _run_audit(table, **asked)
    checks: list[dict[str, Any]] = []
    if reference is not None:
        n_rows = reference.X.shape[0]
        checks += _check_differences(found, asked["reference"], n_rows, asked["false_alarms"])
    checks += _check_table(found, limits)
    if keep is not None and all(one["passed"] for one in checks):
        _keep_reference(keep, found.table, read.y, asked["target"])
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
    keys: Sequence[str] = (),
    **options: Any,
) -> tuple[Audit, InputTable, InputTable | None, InputTable | None]:
    """Read the tables and audit the first one.

    Returns the audit, the table, its validation rows and the reference.
    """
    text = TextOptions(*(options.pop(name) for name in _TEXT_OPTIONS))
    given: dict[str, Any] = {"target": target, "row_id": row_id, "drop": drop, "keys": keys}
    with TemporaryDirectory() as folder:
        path = str(keep_stdin(Path(folder, "table"))) if table == STDIN else table
        read = read_input(path, text=text, **given)
    held_out = ref = None
    if val is not None:
        held_out = read_input(val, text=text, **given, like=read.X.native.schema)
        options |= {"X_val": held_out.X, "y_val": held_out.y}
    if reference is not None:
        # With the types of X, text in a column of numbers would be an error, no finding.
        ref = read_input(reference, text=text, **given, like=pa.schema([]))
        options["reference"] = ref.X if ref.y is None else (ref.X, ref.y)
    for name in protected:
        check_column(read.X.names.tolist(), name, table, "--protected")
    return audit(read.X, read.y, protected=protected, **options), read, held_out, ref


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
