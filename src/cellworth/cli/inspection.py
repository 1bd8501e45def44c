"""Look at a result: info, explain, report and merge."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import click

from cellworth import report as reports
from cellworth.cli.app import (
    print_result,
    shorten_path,
)
from cellworth.cli.folders import (
    BUNDLE,
    CHECKPOINT,
    VALUATION,
    Result,
    check_list_file,
    check_output_folder,
    find_run,
    get_folder_format,
    make_resume_line,
    read_folder_manifest,
    save_result,
)
from cellworth.cli.request import FILE, RunRequest
from cellworth.cli.runs import list_values, summarize_valuation
from cellworth.data.blocks import Axis
from cellworth.data.io import AnyPath, get_size, local_path
from cellworth.data.text import preview
from cellworth.findings.explain import explain_column, explain_row
from cellworth.payouts.bundle import open_values
from cellworth.report.page import text_of
from cellworth.runtime.forecast import format_seconds
from cellworth.runtime.progress import read_progress
from cellworth.valuation import load
from cellworth.valuation.valuation import Valuation

# A run records its progress every 30 seconds.
_SECONDS_OF_SILENCE = 120.0


def show_folder(folder: AnyPath) -> None:
    """Print what a folder holds: the command ``info``."""
    kind = get_folder_format(folder)
    if kind not in (VALUATION, CHECKPOINT, BUNDLE):
        raise ValueError(
            f"{folder} was not written by cellworth (it has no manifest); give another folder."
        )
    settings = vars(RunRequest.load(folder)) if (folder / FILE).exists() else {}
    settings = {name: settings[name] for name in settings if name not in ("owners", "agreement")}
    document: dict[str, Any] = {"folder": str(folder), "holds": kind, "request": settings or None}
    document |= dict.fromkeys(("created", "versions", "values", "progress"))
    lines = [f"{folder}: {kind}"]
    if kind != CHECKPOINT:
        with ExitStack() as stack:
            if kind == BUNDLE:
                valuation, _ = stack.enter_context(open_values(local_path(folder, "folder")))
            else:
                valuation = load(folder)
            provenance = valuation.provenance
            document |= {"created": provenance.created, "versions": dict(provenance.versions)}
            document["values"] = summarize_valuation(valuation)
            versions = (f"{name} {number}" for name, number in provenance.versions.items())
            lines += [repr(valuation), f"  created     {provenance.created}"]
            lines += [f"  versions    {', '.join(versions)}"]
            if valuation.column_info is not None:
                lines += ["", repr(valuation.column_info), ""]
    else:
        if settings:
            lines.append(f"  resume with {make_resume_line(folder, settings['model'])}")
        run = find_run(folder)
        manifest = read_folder_manifest(run) or {}
        document["created"] = manifest.get("created")
        document["versions"] = manifest["run"].get("versions")
        document["progress"] = progress = _read_progress(run)
        lines += _describe_progress(manifest, progress)
    lines += [
        f"  {name.replace('_', '-'):<16}{', '.join(value) if isinstance(value, tuple) else value}"
        for name, value in settings.items()
        if value not in (None, (), False)
    ]
    print_result("info", document, lines)


def explain_value(
    *,
    folder: AnyPath,
    row: str | None,
    column: str | None,
    table: str | None,
    val: str | None,
) -> None:
    """Explain the value of a row or column by its cells: the command ``explain``."""
    if (row is None) == (column is None):
        raise click.UsageError("give either --row or --column.")
    result = Result.load(folder, table=table, val=val)
    blocks = result.valuation.blocks
    if column is not None:
        label = _find_label(blocks.columns, column, "column")
        found = explain_column(result.valuation, label)
    else:
        label = _find_label(blocks.rows, str(row), "row")
        X = None if blocks.rows.grouped else result.loaded.data()["X"]
        in_shards = result.request.shards
        found = explain_row(result.valuation, label, X=None if in_shards else X)
        if in_shards and X is not None:
            (line,) = X.take([label]).to_pylist()
            names = found.parts.labels["column"].tolist()
            found = replace(found, cells=tuple(line.get(name) for name in names))
    parts = list_values(found.parts)
    cells = found.cells or [None] * len(parts)
    document = {
        "side": found.side,
        "label": found.label,
        "value": found.value,
        "sampling_se": found.sampling_se,
        "validation_se": found.validation_se,
        "parts": [part | {"cell": cell} for part, cell in zip(parts, cells, strict=True)],
    }
    print_result("explain", document, [repr(found)])


def write_report(
    *,
    folder: AnyPath,
    n_cells: int,
    title: str | None,
    no_cells: bool,
    before: AnyPath | None,
    table: str | None,
    val: str | None,
    output: AnyPath,
    force: bool,
) -> None:
    """Write a report: the command ``report``."""
    check_list_file(output, (".html",), force=force)
    options: dict[str, Any] = {"k": n_cells, "title": title, "cells": not no_cells}
    options["before"] = None if before is None else load(before)
    if get_folder_format(folder) == VALUATION and not (folder / FILE).exists():
        # Values that Python wrote know no table.
        valuation = load(folder)
    else:
        result = Result.load(folder, table=table, val=val)
        valuation, loaded = result.valuation, result.loaded.in_memory()
        options |= {"X": loaded.data()["X"], "y": loaded.train.y, "owners": loaded.owners()}
    reports.save(valuation, output, **options)
    document = {"output": shorten_path(output.absolute()), "bytes": get_size(output)}
    print_result("report", document, [f"The report is in {shorten_path(output.absolute())}."])


def merge_folders(*, folders: tuple[AnyPath, ...], output: AnyPath, force: bool) -> None:
    """Merge values with different seeds: the command ``merge``."""
    check_output_folder(output, force=force)
    results = [Result.load(folder) for folder in folders]
    if len(results) < 2:
        raise click.UsageError("one folder cannot be merged; give two or more.")
    merged = functools.reduce(Valuation.merge, (result.valuation for result in results))
    save_result(merged, results[0].request, output)
    document = {"output": shorten_path(output.absolute()), "values": summarize_valuation(merged)}
    print_result("merge", document, [repr(merged)])


def _read_progress(folder: AnyPath) -> dict[str, Any] | None:
    """Return how far the run in a checkpoint is; it seems active if it wrote lately."""
    entry = read_progress(folder)
    if entry is None:
        return None
    age = (datetime.now(UTC) - datetime.fromisoformat(entry["time"])).total_seconds()
    is_active = entry["event"] in ("start", "progress") and age < _SECONDS_OF_SILENCE
    return {**entry, "active": is_active}


def _describe_progress(manifest: Mapping[str, Any], entry: dict[str, Any] | None) -> Iterator[str]:
    run = manifest["run"]
    yield f"  method      {run.get('method', 'ShardedKNNValuer')}, {run.get('sampler')}"
    if table := run["problem_spec"].get("data_sha256", {}).get("X", run.get("table")):
        yield f"  table       sha256 {table}"
    yield f"  since       {manifest.get('created')}"
    if entry is not None:
        left, error = entry["seconds_left"], entry["error"]
        texts = [f"{entry['done']:.0%} ({entry['count']})"]
        texts += [f"about {format_seconds(left)} left"] if left and entry["active"] else []
        texts += [f"standard errors up to {error:.2g}"] if error is not None else []
        yield f"  done        {', '.join(texts)}"
        state = {"end": "ended", "failed": "failed"}.get(entry["event"], "seems dead")
        yield f"  last write  {entry['time']} ({'active' if entry['active'] else state})"


def _find_label(axis: Axis, given: str, what: str) -> Any:
    """Return the label with this text, as printed here or in a report."""
    labels = axis.labels.tolist()
    found = [label for label in labels if given in (str(label), text_of(label))]
    if not found:
        written = preview([text_of(label) for label in labels])
        raise KeyError(f"no {what} is called {given!r}; labels are {written}.")
    if len(found) > 1:
        raise KeyError(
            f"{len(found)} {what}s are called {given!r}; value the table with a unique --id, or "
            "without one."
        )
    return found[0]
