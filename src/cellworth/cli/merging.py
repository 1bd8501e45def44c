"""The command merge: shards of one run, or estimates with different seeds, brought together."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import click

from cellworth.cli import options
from cellworth.cli.folders import (
    CHECKPOINT,
    VALUATION,
    Result,
    kind_of,
    refuse_to_overwrite,
    resume_line,
    save_result,
)
from cellworth.cli.printing import print_result, shown
from cellworth.cli.requests import FILE, Request
from cellworth.cli.running import summary_of
from cellworth.cli.valuing import KNN
from cellworth.runtime import merge as merge_shards
from cellworth.valuation import Valuation


@click.command(
    epilog=options.example(
        "cellworth merge shard-0 shard-1 --into run1", "cellworth merge seed-0 seed-1 --into values"
    )
)
@click.argument("folders", nargs=-1, required=True, type=options.PATH)
@click.option(
    "-o", "--into", "output", type=options.PATH, required=True, help="Folder of the whole."
)
@options.force
@options.as_json
def merge(folders: tuple[Path, ...], output: Path, force: bool, as_json: bool) -> None:
    """Join FOLDERS: shards into a run that resume folds, or values of other seeds into better ones.

    Shards that share a checkpoint folder need no merging.
    """
    kinds = {kind_of(folder) for folder in folders}
    if kinds == {CHECKPOINT}:
        if force:
            raise click.UsageError("--force replaces values; shards are added to what is there.")
        _merge_shards(folders, output)
    elif kinds == {VALUATION}:
        _merge_values(folders, output, force)
    else:
        raise ValueError(
            "the folders are neither all runs nor all values; merge like with like (cellworth info "
            "says what a folder holds)."
        )


def _merge_shards(folders: tuple[Path, ...], output: Path) -> None:
    request = next((Request.load(folder) for folder in folders if (folder / FILE).exists()), None)
    merge_shards(folders, output)
    if request is not None:
        request.save(output)
    document = {"output": shown(output.absolute()), "holds": CHECKPOINT, "values": None}
    way_on = resume_line(output, KNN if request is None else request.model)
    told = f"The shards are in {output}; {way_on} gives the values."
    print_result("merge", document, [told])


def _merge_values(folders: tuple[Path, ...], output: Path, force: bool) -> None:
    refuse_to_overwrite(output, force=force)
    results = [Result.load(folder) for folder in folders]
    if len(results) < 2:
        raise click.UsageError("one folder is nothing to merge; give two or more.")
    merged = functools.reduce(Valuation.merge, (result.valuation for result in results))
    # How one of the runs went says nothing of all together.
    save_result(merged, replace(results[0].request, rounds=()), output)
    document = {
        "output": shown(output.absolute()),
        "holds": VALUATION,
        "values": summary_of(merged),
    }
    print_result("merge", document, [repr(merged)])
