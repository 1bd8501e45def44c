"""Options that several commands share, and what their texts mean."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from cellworth.cli.console import remember_json

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


class _LocalPath(click.Path):
    """A path on this machine, whether it is read or written."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Refuse an address before it becomes the name of a folder."""
        from cellworth.files import address_refused, is_address, local_path

        if is_address(value):
            self.fail(address_refused(value), param, ctx)
        super().convert(value, param, ctx)
        return local_path(value, "path")


PATH = _LocalPath(path_type=Path)

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def duration(text: str) -> float:
    """Seconds of 90s, 10m or 2h."""
    found = re.fullmatch(r"(\d+\.?\d*)\s*([smhd])", text.strip())
    if not found or float(found[1]) == 0:
        raise click.BadParameter(f"{text!r} is not a duration; give one such as 90s, 10m or 2h.")
    return float(found[1]) * _SECONDS[found[2]]


def partition(text: str) -> tuple[int, int]:
    """Which share of a run: 0/10 is the first of ten."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if not found or int(found[1]) >= int(found[2]):
        raise click.BadParameter(f"{text!r} is not a partition; give i/N with i from 0 to N - 1.")
    return int(found[1]), int(found[2])


def share(text: str) -> float:
    """Part of the whole: 2% or 0.02."""
    found = re.fullmatch(r"((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(%?)", text.strip())
    part = float(found[1]) / (100 if found[2] else 1) if found else 2.0
    if part > 1:
        raise click.BadParameter(f"{text!r} is not a share; give one such as 2% or 0.02.")
    return part


def finite(text: str) -> float:
    """Limit that a figure can be held against."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise click.BadParameter(f"{text!r} is not a finite number; give one such as 0.1.")
    return number


def example(*lines: str) -> str:
    """Lines that stand below the help of a command as they are."""
    return "\n".join(["\b", "Example:", *(f"  {line}" for line in lines)])


def joined(*options: Decorator) -> Decorator:
    """Several options as one decorator; help lists them in this order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        return functools.reduce(lambda made, option: option(made), reversed(options), function)

    return decorate


json_output = click.option(
    "--json", is_flag=True, expose_value=False, callback=remember_json,
    help="Print one JSON document.",
)  # fmt: skip

quiet = click.option("-q", "--quiet", is_flag=True, help="Show no progress bar and no notes.")

force = click.option("--force", is_flag=True, help="Replace an existing result.")

files_moved = joined(
    click.option("--table", type=PATH, help="New path of the table, if it was moved."),
    click.option("--val", type=PATH, help="New path of the validation file."),
)

table_options = joined(
    click.option("--target", required=True, metavar="COLUMN", help="Column that holds the labels."),
    click.option(
        "--id", "row_id", metavar="COLUMN",
        help="Column of row ids; without it rows are numbered 0, 1, 2, ...",
    ),
    click.option("--drop", multiple=True, metavar="COLUMN", help="Column to leave out."),
    click.option(
        "--missing", multiple=True, metavar="TEXT",
        help="String that marks a missing value in a text file, besides an empty field.",
    ),
    click.option(
        "--categorical", multiple=True, metavar="COLUMN",
        help="Column of categories written as numbers, such as postcodes (knn); 01 is not 1.",
    ),
    click.option("--val", type=PATH, help="File of validation rows, with the same columns."),
    click.option(
        "--val-rows", type=click.IntRange(min=1), metavar="N",
        help="Use N rows of --val, drawn at random: faster, with larger validation errors.",
    ),
    click.option(
        "--cv", type=click.IntRange(min=2),
        help="Number of cross-validation folds if there is no --val.  [default: 5]",
    ),
    click.option("--row-groups", metavar="COLUMN", help="Column of row groups."),
    click.option(
        "--column-groups", type=PATH,
        help='TOML file with one line per group, such as money = ["income", "debt"].',
    ),
)  # fmt: skip

same_model = click.option(
    "--model", metavar="MODULE:OBJECT",
    help="Repeat the model if you used your own; its code will be executed.",
)  # fmt: skip

method_options = joined(
    click.option(
        "--model", default="knn", show_default=True, metavar="knn|MODULE:OBJECT",
        help="Nearest neighbors, or your own estimator, its class or a function that returns it; "
        "its code is imported (from the current folder last) and executed.",
    ),
    click.option(
        "-k", "--neighbors", type=click.IntRange(min=1), default=5, show_default=True,
        help="Number of neighbors (knn).",
    ),
    click.option(
        "--scoring",
        help="How the table is scored: balanced_neighbor_agreement (knn), or a name of "
        "scikit-learn, such as balanced_accuracy (models).",
    ),
    click.option("--labels", is_flag=True, help="Value the labels as one more column (knn)."),
    click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True),
)  # fmt: skip

length_options = joined(
    click.option(
        "--sweeps", type=click.IntRange(min=1),
        help="Passes over all validation rows where columns are sampled (knn).",
    ),
    click.option("--budget", type=click.IntRange(min=1), help="Largest number of fits (models)."),
    click.option("--deadline", type=duration, metavar="TIME", help="Largest time: 90s, 10m, 2h."),
    click.option(
        "--error", type=click.FloatRange(min=0, min_open=True),
        help="Stop when the largest standard error is below this.",
    ),
)  # fmt: skip

executor_options = joined(
    click.option(
        "--jobs",
        type=click.IntRange(min=1),
        help="Number of workers on this machine; default: all cores.",
    ),
    click.option("--dask", metavar="ADDRESS", help="Address of a Dask scheduler: tcp://host:8786."),
)

asked_options = joined(
    click.argument("table", type=PATH),
    table_options,
    method_options,
    length_options,
)

# The defaults of Policy, which takes too long to import for --help.
policy_options = joined(
    click.option("--currency", default="EUR", show_default=True),
    click.option("--unit", default="0.01", show_default=True, help="Smallest amount paid."),
    click.option(
        "--negative", type=click.Choice(["floor", "carry", "signed"]), default="floor",
        show_default=True, help="Owners of negative value get nothing, carry it over, or pay.",
    ),
    click.option("--minimum", default="0", show_default=True, help="Least amount for every owner."),
    click.option("--label-owner", metavar="NAME", help="Who holds the labels."),
    click.option("--label-share", help="Share for labels that are not valued, such as 0.10."),
    click.option(
        "--game", type=click.Choice(["cells", "blocks"]), default="cells", show_default=True,
        help="Players: single cells or whole blocks.",
    ),
    click.option(
        "--gate", type=click.Choice(["warn", "refuse", "off"]), default="warn", show_default=True,
        help="What to do if copies or harmful owners are found.",
    ),
)  # fmt: skip
