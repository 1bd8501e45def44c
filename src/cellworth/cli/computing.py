"""Commands that compute: value, resume and plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from cellworth.cli import options
from cellworth.cli.folders import CHECKPOINT, folder_of_sharded_run, kind_of
from cellworth.cli.printing import print_result
from cellworth.cli.requests import Request
from cellworth.cli.running import Place, plain_columns, run_and_save
from cellworth.cli.valuing import Question, refuse_code_unasked, toml_of

asked_options = options.joined(
    click.argument("table", type=options.PATH),
    options.table_options,
    options.method_options,
    options.length_options,
)


@click.command(
    epilog=options.example(
        "cellworth value adult.csv.gz --target income --val new.csv --val-rows 200 -o values"
    )
)
@asked_options
@click.option("--owners", type=options.PATH, help="TOML file that says who holds which cells.")
@click.option("--agreement", type=options.PATH, help="What was agreed on; see cellworth draft.")
@click.option("--checkpoint", type=options.PATH, help="Folder from which a killed run goes on.")
@click.option(
    "--shard", type=options.shard, metavar="i/N", help="One share of the run, from 0/N to N-1/N."
)
@options.place_options
@click.option("-o", "--output", type=options.PATH, help="Folder of the result [TABLE.values].")
@options.force
@options.quiet
@options.as_json
def value(**given: Any) -> None:
    """Value the cells of TABLE: CSV, TSV (also .gz), Parquet or Arrow.

    The result is a folder that the other commands read. Without -o it is named after the table, in
    the present folder. A run that is broken off replaces no whole result: it writes FOLDER.partial.
    """
    place = Place(*(given.pop(name) for name in ("checkpoint", "shard", "jobs", "dask", "quiet")))
    if place.shard is not None and place.checkpoint is None:
        raise click.UsageError("--shard leaves its share in a folder; give --checkpoint as well.")
    _refuse_two_places(place)
    force = given.pop("force")
    request = request_of(**given)
    run_and_save("value", request, place, force=force)


@click.command(epilog=options.example("cellworth resume run1 --deadline 2h"))
@click.argument("folder", type=options.PATH)
@options.files_moved
@options.model_again
@options.length_options
@options.place_options
@click.option("-o", "--output", type=options.PATH, help="Folder of the result [as asked then].")
@options.force
@options.quiet
@options.as_json
def resume(
    folder: Path, table: Path | None, val: Path | None, model: str | None, **given: Any
) -> None:
    """Go on with the run in the checkpoint FOLDER, or join its shards.

    Nothing needs to be said again but a --model of yours, whose code is run; a longer budget,
    deadline or smaller error may be.
    """
    sharded = folder_of_sharded_run(folder)
    if sharded is not None:
        raise ValueError(
            f"{folder} holds a run over a table in shards, which goes on in Python: "
            f"KNNValuer(..., checkpoint={str(sharded)!r}).fit(table, ...), with the settings of "
            "then."
        )
    if kind_of(folder) != CHECKPOINT:
        raise ValueError(f"{folder} holds no run; give the --checkpoint of cellworth value.")
    request = Request.load(folder).moved(table, val)
    refuse_code_unasked(request, model, folder)
    longer = ("sweeps", "budget", "deadline", "error")
    asked = {name: given[name] for name in longer if given[name] is not None}
    if given["output"] is not None:
        asked["output"] = str(given["output"].absolute())
    place = Place(folder, None, given["jobs"], given["dask"], given["quiet"])
    _refuse_two_places(place)
    run_and_save("resume", replace(request, **asked), place, force=given["force"])


@click.command(epilog=options.example('cellworth plan adult.csv.gz --target income --missing "?"'))
@asked_options
@options.as_json
def plan(as_json: bool, **given: Any) -> None:
    """Tell what cellworth value with the same options would cost.

    A few validation rows are valued for it; a --model of yours is trained a few times.
    """
    question = Question.of(request_of(**given))
    found = question.valuer().plan(**question.data())
    document = {
        "design": found.design,
        "shape": list(found.shape),
        "utilities": float(found.utilities),
        "seconds": found.seconds,
        "seconds_per_utility": found.seconds_per_utility,
        "allowed": found.allowed,
        "scoring": None if found.scores is None else found.scores.scoring,
        "n_validation_rows": None if found.scores is None else found.scores.n_validation_rows,
        "column_info": plain_columns(found.columns),
    }
    lines = [repr(found)]
    if found.scores is not None:
        lines.append(f"scored by {found.scores.name} on {found.scores.judged_on}")
    print_result("plan", document, [*lines, "", repr(found.columns)])


def _refuse_two_places(place: Place) -> None:
    if place.jobs is not None and place.dask is not None:
        raise click.UsageError("--jobs and --dask both say where to work; give one.")


def request_of(
    *,
    table: Path,
    val: Path | None,
    cv: int | None,
    row_id: str | None,
    as_json: bool = False,
    owners: Path | None = None,
    agreement: Path | None = None,
    column_groups: Path | None = None,
    output: Path | None = None,
    **asked: Any,
) -> Request:
    """Make a request of what stands on the command line."""
    if owners is not None and agreement is not None:
        raise click.UsageError("--owners and --agreement both say who holds what; give one.")
    if val is not None and cv is not None:
        raise click.UsageError("--val and --cv both say which rows judge; give one.")
    if val is None and asked["val_rows"] is not None:
        raise click.UsageError("--val-rows draws rows of --val; give both.")
    groups = None
    if column_groups is not None:
        groups = toml_of(read_text(column_groups, "column-groups"), "column-groups")
    texts = {
        name: None if path is None else read_text(path, name)
        for name, path in (("owners", owners), ("agreement", agreement))
    }
    folder = output or Path(f"{table.name.partition('.')[0]}.values")
    return Request.of(
        table=table,
        val=val,
        cv=Request.cv if cv is None else cv,
        id=row_id,
        column_groups=groups,
        output=str(folder.absolute()),
        **texts,
        **asked,
    )


def read_text(path: Path, called: str) -> str:
    """Read a small file that an option names."""
    if not path.is_file():
        raise FileNotFoundError(f"--{called} is {path}, which is no file.")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no UTF-8 text ({error.reason}); save it as UTF-8.") from error
