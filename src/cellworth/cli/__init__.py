"""The command line: a thin shell over the public names."""

from __future__ import annotations

from importlib.metadata import version

import click

from cellworth.cli.checking import check
from cellworth.cli.computing import plan, resume, value
from cellworth.cli.describing import completion, schema
from cellworth.cli.informing import info
from cellworth.cli.looking import explain, suspects
from cellworth.cli.merging import merge
from cellworth.cli.money import draft, split, verify
from cellworth.cli.options import example
from cellworth.cli.program import EXIT_CODES, Program
from cellworth.cli.reporting import report

__all__ = ["main"]

_EXAMPLE = (
    "cellworth value adult.csv.gz --target income -o values",
    "cellworth suspects values -k 20",
)


@click.group(
    cls=Program,
    epilog=f"{example(*_EXAMPLE)}\n\n{EXIT_CODES}",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(version("cellworth"), message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of a mistake.")
def main(debug: bool) -> None:
    """What each cell of a table is worth to a model.

    Results go to stdout or into files, progress and warnings to stderr.
    """


for _command in (
    value, resume, merge, plan, info, suspects, explain, report, check, draft, split, verify,
    schema, completion,
):  # fmt: skip
    main.add_command(_command)
