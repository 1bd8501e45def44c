"""The commands and their options; the implementation is imported when a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cellworth.cli import app
from cellworth.cli.app import EXIT_CODES, Program

_EXAMPLE = ("cellworth value adult.csv.gz --target income -o values",)


@click.group(
    cls=Program,
    epilog=f"{app.example(*_EXAMPLE)}\n\n{EXIT_CODES}",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="cellworth", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@app.log_options
def main(debug: bool) -> None:
    """Value each cell of a table for a model.

    Results go to stdout or into files, progress and warnings to stderr.
    """


@main.command(
    epilog=app.example(
        "cellworth look adult.csv.gz --target income -o adult.html",
        "cellworth look sales.csv --target sold --owners shop --fix fixed.csv",
    )
)
@click.argument("table")
@app.audit_options
@app.owners
@app.fixed
@click.option(
    "-o", "--output", type=app.STORED, default=Path("look.html"), show_default=True,
    help="The file.",
)  # fmt: skip
@app.force
@app.json_output
def look(**arguments: Any) -> None:
    """Look at TABLE: what is wrong with it, what its cells are worth, and who gets what.

    The findings of cellworth audit come first, then the values of nearest neighbors, in about a
    minute, and with --owners the share of each; all of it is on one page, which needs no network.
    Without --target, only the findings. TABLE is as for cellworth value, and is read into memory.
    """
    from cellworth.cli.audits import look_at_table

    look_at_table(**arguments)


@main.command(
    epilog=app.example(
        "cellworth value adult.csv.gz --target income --val new.csv --val-rows 200 -o values"
    )
)
@app.asked_options
@app.owners
@click.option(
    "--agreement", type=app.PATH,
    help="File of cellworth agree: every setting of the table and the method is taken from it.",
)  # fmt: skip
@click.option(
    "--checkpoint", type=app.STORED, help="Folder from which an interrupted run can be resumed."
)
@app.workers
@click.option("-o", "--output", type=app.STORED, help="Folder of the result [TABLE.values].")
@click.option(
    "--dry-run", is_flag=True, help="Say what would be run and how long it takes; write nothing."
)
@app.force
@app.json_output
def value(**arguments: Any) -> None:
    """Value the cells of TABLE.

    TABLE is a file, a folder, a pattern, or - for stdin. Files are CSV, TSV, JSONL (also
    compressed), Parquet, Arrow or .xlsx. A folder or a pattern such as "data/part-??.parquet"
    stands for many files of one kind; folders such as year=2024/ are columns. An address such as
    s3://bucket/data needs cellworth[remote].

    The result is a folder that the other commands read. Without -o it is named after the table, in
    the current folder. An interrupted run never replaces a complete result: it writes
    FOLDER.partial.
    """
    from cellworth.cli.runs import value_table

    value_table(**arguments)


@main.command(epilog=app.example("cellworth resume run1 --stop time=2h"))
@click.argument("folder", type=app.STORED)
@app.files_moved
@app.same_model
@app.stop
@app.workers
@click.option("-o", "--output", type=app.STORED, help="Folder of the result [default: as before].")
@app.force
@app.json_output
def resume(**arguments: Any) -> None:
    """Resume the run in the checkpoint FOLDER.

    Options are read from the checkpoint. Repeat --model if you used your own (its code will be
    executed). Other limits may be given.
    """
    from cellworth.cli.runs import resume_run

    resume_run(**arguments)


@main.command(epilog=app.example("cellworth merge seed-0 seed-1 --into values"))
@click.argument("folders", nargs=-1, required=True, type=app.STORED)
@click.option(
    "-o", "--into", "output", type=app.STORED, required=True, help="Folder of the merged result."
)
@app.force
@app.json_output
def merge(**arguments: Any) -> None:
    """Merge FOLDERS of values that were computed with different seeds."""
    from cellworth.cli.inspection import merge_folders

    merge_folders(**arguments)


@main.command(epilog=app.example("cellworth info values"))
@click.argument("folder", type=app.STORED)
@app.json_output
def info(**arguments: Any) -> None:
    """Show what FOLDER holds: values, a run or a bundle."""
    from cellworth.cli.inspection import show_folder

    show_folder(**arguments)


@main.command(
    epilog=app.example(
        "cellworth audit adult.csv.gz --target income --protected race --protected sex",
        "cellworth audit new.csv --target income --reference old.csv -o audit.html",
        "cellworth audit new.csv --target income --values values -o cells.csv",
        "cellworth audit new.csv --fix fixed.csv",
    )
)
@click.argument("table")
@app.audit_options
@click.option(
    "--values",
    type=app.STORED,
    help="Folder of the values of TABLE; findings tell what their cells are worth, and a .csv or "
    ".parquet file lists cells.",
)
@app.fixed
@click.option("-o", "--output", type=app.STORED, help="File: .html, .csv, .parquet or .json.")
@app.force
@app.json_output
def audit(**arguments: Any) -> None:
    """Find out what is wrong with TABLE.

    It looks for missing codes, formats, spellings, copies, leaks and more. TABLE is a file, a
    folder, a pattern, or - for stdin, as for cellworth value. Cells are read as they are written: ?
    is a string and may become a finding, unless --missing names it.

    The findings go to stdout, worst first; -o writes a file: one line per finding, or with .json or
    .html also their rows. With --values, .csv and .parquet files have one line per cell, with its
    value. The page shows contents of cells. In a .csv file, text that a
    spreadsheet would run as a formula gets a leading apostrophe.
    """
    from cellworth.cli.audits import audit_table

    audit_table(**arguments)


@main.command(epilog=app.example("cellworth explain values --row 7"))
@click.argument("folder", type=app.STORED)
@click.option("--row", help="Id of a row.")
@click.option("--column", help="Name of a column.")
@app.files_moved
@app.json_output
def explain(**arguments: Any) -> None:
    """Explain the value of a row or column by its cells.

    Rows are named by the --id column of cellworth value; without one they are 0, 1, 2, ...
    """
    from cellworth.cli.inspection import explain_value

    explain_value(**arguments)


@main.command(epilog=app.example("cellworth report values -o report.html"))
@click.argument("folder", type=app.STORED)
@click.option(
    "-k", "n_cells", type=click.IntRange(min=1), default=100, show_default=True,
    help="How many cells of lowest value to list.",
)  # fmt: skip
@click.option("--title", help="Title of the report.")
@click.option("--no-cells", is_flag=True, help="Show nothing about single rows or cells.")
@click.option("--before", type=app.STORED, help="Folder of earlier values: say what changed.")
@app.files_moved
@click.option(
    "-o", "--output", type=app.STORED, default=Path("report.html"), show_default=True,
    help="The file.",
)  # fmt: skip
@app.force
@app.json_output
def report(**arguments: Any) -> None:
    """Write an HTML report of the values in FOLDER.

    It shows contents of cells; --no-cells leaves them out.
    """
    from cellworth.cli.inspection import write_report

    write_report(**arguments)


@main.command(
    epilog=app.example(
        "cellworth check new.csv --target income --reference old.csv -o check.xml",
        "cellworth check new.csv --max 'missing code=1%' --max 'wrong label=5%'",
    )
)
@click.argument("table")
@app.audit_options
@click.option(
    "--max", "shares", type=app.limit_of_kind, multiple=True, metavar="KIND=SHARE",
    help="Largest share of rows, as 2% or 0.02, with findings of a kind, or of any; findings about "
    "a whole column concern all rows.",
)  # fmt: skip
@click.option(
    "--max-findings", type=click.IntRange(min=0), metavar="N", help="Largest number of findings."
)
@click.option("--min-rows", type=click.IntRange(min=1), metavar="N", help="Least number of rows.")
@click.option(
    "-o", "--output", "outputs", type=app.STORED, multiple=True,
    help="File of the verdict: .json, .xml (JUnit) or .md; may be repeated.",
)  # fmt: skip
@click.option(
    "--keep", type=app.STORED, metavar="FILE",
    help="If TABLE passes, keep 20,000 of its rows, drawn at random, in this .parquet file: the "
    "next --reference.",
)  # fmt: skip
@app.force
@app.json_output
def check(**arguments: Any) -> None:
    """Check TABLE against limits.

    The exit code is 1 if one is exceeded. With --reference, everything that cellworth audit finds
    different fails, columns and their types included; a table of fewer rows does not, unless --min-
    rows says so. --max and --max-findings limit what an audit finds; what is common in the whole
    table cannot be found without a reference.
    """
    from cellworth.cli.audits import check_input

    check_input(**arguments)


@main.command(epilog=app.example("cellworth agree terms.toml -o agreement.toml"))
@click.argument("terms", type=app.PATH)
@click.option("-o", "--output", type=app.PATH, required=True, help="TOML file of the agreement.")
@app.force
@app.json_output
def agree(**arguments: Any) -> None:
    """Write the agreement on how a table is valued and paid.

    TERMS is a TOML file that you write: table and target, who owns what, and the sections
    [validation], [method] and [policy]. The agreement adds what the table has: columns, types, a
    hash of the validation rows. Then run cellworth value TABLE --agreement FILE.
    """
    from cellworth.cli.revenue import write_agreement

    write_agreement(**arguments)


@main.command(
    epilog=app.example("cellworth split values --agreement deal.toml --amount 100000.00 -o bundle")
)
@click.argument("folder", type=app.STORED)
@click.option("--amount", required=True, help="Amount to share, such as 100000.00, after fees.")
@click.option(
    "--agreement", type=app.PATH, help="File of cellworth agree, if value was not given it."
)
@click.option(
    "--carried", type=app.PATH, help="Bundle of the payout before: go on from its shortfalls."
)
@click.option("--report", type=app.PATH, help="Write a page for those who decide.")
@click.option(
    "--statements", type=app.PATH,
    help="New folder for one page per owner, with what that owner may see.",
)  # fmt: skip
@app.files_moved
@click.option("-o", "--output", type=app.PATH, help="New folder for the bundle of the payout.")
@app.json_output
def split(**arguments: Any) -> None:
    """Share an amount among the owners of the cells in FOLDER.

    Owners and policy are those of the agreement under which cellworth value was run.
    """
    from cellworth.cli.revenue import split_amount

    split_amount(**arguments)


@main.command(epilog=app.example("cellworth verify bundle --digest 5d41402abc --values values"))
@click.argument("folder", type=app.PATH)
@click.option("--digest", help="Digest that cellworth split printed.")
@click.option("--agreement", type=app.PATH, help="Your own copy of the agreement.")
@click.option(
    "--values", "values_folder", type=app.STORED,
    help="Folder of cellworth value: recompute all values from its table.",
)  # fmt: skip
@app.same_model
@app.files_moved
@app.json_output
def verify(**arguments: Any) -> None:
    """Replay the bundle in FOLDER and print the verdict.

    The exit code is 1 if it does not hold. Bundles before it are checked, too, if they are in the
    same folder. With --values and your own --model its code is executed.
    """
    from cellworth.cli.revenue import verify_payout

    verify_payout(**arguments)


@main.command("warm-up", epilog=app.example("cellworth warm-up"))
def warm_up() -> None:
    """Compile all kernels, as for the image of a container.

    Otherwise the first run compiles those that it needs. They are kept in NUMBA_CACHE_DIR, if it
    is set.
    """
    from cellworth.cli.runs import warm_up as compile_kernels

    compile_kernels()
