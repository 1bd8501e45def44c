"""The command report: all that there is to say about values, in one HTML file."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from cellworth import report as reports
from cellworth.cli import options
from cellworth.cli.folders import Result, refuse_file, stands_alone
from cellworth.cli.printing import print_result, shown
from cellworth.loading import load


@click.command(epilog=options.example("cellworth report values -o report.html"))
@click.argument("folder", type=options.PATH)
@click.option(
    "-k", "n_cells", type=click.IntRange(min=1), default=100, show_default=True,
    help="How many suspicious cells to list.",
)  # fmt: skip
@click.option("--title", help="Stands above the report.")
@click.option(
    "--no-cells",
    is_flag=True,
    help="Nothing about single rows or cells.",
)
@options.files_moved
@click.option(
    "-o", "--output", type=options.PATH, default=Path("report.html"), show_default=True,
    help="The file.",
)  # fmt: skip
@options.force
@options.as_json
def report(
    *,
    folder: Path,
    n_cells: int,
    title: str | None,
    no_cells: bool,
    table: Path | None,
    val: Path | None,
    output: Path,
    force: bool,
    as_json: bool,
) -> None:
    """Write a report of the values in FOLDER: one HTML file that any browser opens.

    It shows what stands in cells; --no-cells leaves that out.
    """
    refuse_file(output, force=force)
    if find_spec("jinja2") is None:
        raise ImportError("a report needs jinja2; pip install 'cellworth[report]'.")
    shown_of: dict[str, Any] = {"k": n_cells, "title": title, "cells": not no_cells}
    if stands_alone(folder) and table is None and val is None:
        reports.save(output, load(folder), None, **shown_of)
    else:
        result = Result.load(folder, table=table, val=val)
        question = result.question
        reports.save(
            output,
            result.valuation,
            question.data()["X"],
            question.y,
            owners=question.owners(),
            rounds=result.request.rounds,
            kinds=question.kinds,
            **shown_of,
        )
    document = {"output": shown(output.absolute()), "bytes": output.stat().st_size}
    print_result("report", document, [f"The report is in {shown(output.absolute())}."])
