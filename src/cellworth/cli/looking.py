"""Commands that look at values: suspects and explain."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from cellworth.blocks import Axis, some
from cellworth.cli import options
from cellworth.cli.characters import unlike_formula, visible
from cellworth.cli.folders import Result, refuse_file
from cellworth.cli.printing import cut_to_terminal, note, print_result, shown
from cellworth.cli.running import entries
from cellworth.diagnostics import explain_column, explain_row, suspect_cells
from cellworth.files import written_atomically
from cellworth.listing import table_lines
from cellworth.packing import jsonable
from cellworth.report.subjects import text_of

_FORMATS = (".csv", ".parquet", ".json")


@click.command(epilog=options.example("cellworth suspects values -k 20 -o suspects.csv"))
@click.argument("folder", type=options.PATH)
@click.option(
    "-k", "n_cells", type=click.IntRange(min=1), default=100, show_default=True,
    help="How many cells to list.",
)  # fmt: skip
@click.option(
    "--by", type=click.Choice(["suspicion", "worth"]), default="suspicion", show_default=True,
    help="How unlikely a cell is, or how low its worth.",
)  # fmt: skip
@options.files_moved
@click.option("-o", "--output", type=options.PATH, help="File: .csv, .parquet or .json.")
@options.force
@options.as_json
def suspects(
    *,
    folder: Path,
    n_cells: int,
    by: Any,
    table: Path | None,
    val: Path | None,
    output: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """List the cells of the table behind FOLDER that most deserve a look.

    A table for people goes to stdout (cut to the width of a terminal); -o writes a file. In a .csv
    file, text that a spreadsheet would take for a formula gets an apostrophe in front.
    """
    refuse_file(output, force=force)
    if output is not None and output.suffix not in _FORMATS:
        raise ValueError(f"-o is {output}; give a file that ends in .csv, .parquet or .json.")
    result = Result.load(folder, table=table, val=val)
    question = result.question
    found = suspect_cells(
        question.data()["X"],
        question.y,
        valuation=result.valuation,
        k=n_cells,
        by=by,
        kinds=question.kinds,
        backend="pyarrow",
    )
    cells = [_cell(line) for line in found.to_pylist()]
    if output is not None:
        _write(output, found, cells)
        note(f"{len(cells)} cells are in {shown(output.absolute())}.")
        if not as_json:
            return
    print_result("suspects", {"by": by, "cells": cells}, cut_to_terminal(_lines(cells)))


@click.command(epilog=options.example("cellworth explain values --row 7"))
@click.argument("folder", type=options.PATH)
@click.option("--row", help="Id of a row, or the name of its group.")
@click.option("--column", help="Name of a column, or of its group.")
@click.option("--similar", type=click.IntRange(min=0), default=3, show_default=True)
@options.files_moved
@options.as_json
def explain(
    *,
    folder: Path,
    row: str | None,
    column: str | None,
    similar: int,
    table: Path | None,
    val: Path | None,
    as_json: bool,
) -> None:
    """Take the value of one row or column apart into those of its cells.

    Rows go by the --id of then; without one they are numbered 0, 1, 2, ... below the header.
    """
    if (row is None) == (column is None):
        raise click.UsageError("give --row or --column, one of them.")
    result = Result.load(folder, table=table, val=val)
    blocks = result.valuation.blocks
    if column is not None:
        label = _label(blocks.columns, column, "column")
        found = explain_column(result.valuation, label, n_similar=similar)
    else:
        label = _label(blocks.rows, str(row), "row")
        X = None if blocks.rows.grouped else result.question.data()["X"]
        found = explain_row(result.valuation, label, X=X, n_similar=similar)
    parts = entries(found.parts)
    cells = found.cells or [None] * len(parts)
    document = {
        "side": found.side,
        "label": found.label,
        "value": found.value,
        "standard_error": found.standard_error,
        "validation_error": found.validation_error,
        "parts": [part | {"cell": cell} for part, cell in zip(parts, cells, strict=True)],
        "similar": [{"label": one.label, "value": one.value} for one in found.similar],
    }
    print_result("explain", document, [repr(found)])


def _label(axis: Axis, given: str, what: str) -> Any:
    """The label that is written like this, here or in a report, whatever its type is."""
    labels = axis.labels.tolist()
    found = [label for label in labels if given in (str(label), text_of(label))]
    if not found:
        written = some([text_of(label) for label in labels])
        raise KeyError(f"no {what} is called {given!r}; labels are {written}.")
    if len(found) > 1:
        raise KeyError(
            f"{len(found)} {what}s are called {given!r}; value the table with an --id that tells "
            "them apart, or without one."
        )
    return found[0]


def _cell(line: Mapping[str, Any]) -> dict[str, Any]:
    errors = {name: line.get(name) for name in ("worth", "standard_error", "validation_error")}
    rest = {name: line[name] for name in line if name not in ("reason", *errors)}
    cell: dict[str, Any] = jsonable(rest | errors | {"reason": line["reason"]})
    return cell


def _lines(cells: list[dict[str, Any]]) -> list[str]:
    columns: dict[str, list[Any]] = {
        name: [visible(_text(cell[name])) for cell in cells]
        for name in ("rank", "row", "column", "cell", "typical", "suspicion", "worth")
    }
    lines = table_lines(columns)
    reasons = ["reason", *(visible(cell["reason"]) for cell in cells)]
    return [f"{line}  {reason}" for line, reason in zip(lines, reasons, strict=True)]


def _text(entry: Any) -> str:
    if entry is None:
        return ""
    return f"{entry:.4g}" if isinstance(entry, float) else str(entry)


def _write(path: Path, found: Any, cells: list[dict[str, Any]]) -> None:
    with written_atomically(path) as file:
        if path.suffix == ".json":
            file.write(json.dumps(cells, indent=1, ensure_ascii=False).encode())
        elif path.suffix == ".parquet":
            import pyarrow.parquet as pq

            pq.write_table(found, file)
        else:
            import pyarrow.csv as pc

            pc.write_csv(_without_formulas(found), file)


def _without_formulas(found: Any) -> Any:
    """Have no text that a spreadsheet would compute: cells may come from anyone."""
    import pyarrow as pa

    for place, field in enumerate(found.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            harmless = [unlike_formula(text) for text in found.column(place).to_pylist()]
            found = found.set_column(place, field, pa.array(harmless, field.type))
    return found
