"""The command info: what a folder holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from cellworth.cli import options
from cellworth.cli.folders import (
    AUDIT,
    CHECKPOINT,
    VALUATION,
    folder_of_sharded_run,
    kind_of,
    resume_line,
)
from cellworth.cli.printing import print_result
from cellworth.cli.requests import FILE, Request
from cellworth.cli.running import summary_of
from cellworth.cli.valuing import KNN
from cellworth.loading import load

# Long, and of no use to a reader.
_LEFT_OUT = ("owners", "agreement", "rounds")


@click.command(epilog=options.example("cellworth info values"))
@click.argument("folder", type=options.PATH)
@options.as_json
def info(folder: Path, as_json: bool) -> None:
    """Say what FOLDER holds: values, a run that can go on, or an audit."""
    sharded = folder_of_sharded_run(folder) if folder.is_dir() else None
    kind = kind_of(folder) if sharded is None else CHECKPOINT
    if kind not in (VALUATION, CHECKPOINT, AUDIT):
        raise ValueError(f"{folder} is no folder that cellworth wrote; it has no manifest of ours.")
    asked = Request.load(folder) if (folder / FILE).exists() else None
    document: dict[str, Any] = {"folder": str(folder), "holds": kind, "request": _plain(asked)}
    lines = [f"{folder}: {kind}"]
    found = folder if kind == VALUATION else folder / "valuation" if kind == AUDIT else None
    if found is not None:
        valuation = load(found)
        provenance = valuation.provenance
        document |= {"created": provenance.created, "versions": dict(provenance.versions)}
        document |= {"values": summary_of(valuation)}
        versions = (f"{name} {number}" for name, number in provenance.versions.items())
        lines += [repr(valuation), f"  created     {provenance.created}"]
        lines += [f"  versions    {', '.join(versions)}"]
        if valuation.column_info is not None:
            lines += ["", repr(valuation.column_info), ""]
    else:
        document |= {"created": None, "versions": None, "values": None}
        model = KNN if asked is None else asked.model
        lines += [*_sharded_lines(sharded)] if sharded else [_go_on(resume_line(folder, model))]
    print_result("info", document, [*lines, *_asked_lines(document["request"])])


def _go_on(how: str) -> str:
    return f"  go on with  {how}"


def _sharded_lines(folder: Path) -> Iterator[str]:
    """What a run over a table in shards left, and how it goes on."""
    yield "  of          a table in shards"
    yield _go_on(f"KNNValuer(..., checkpoint={str(folder)!r}).fit(table, ...), in Python")
    if (folder / "values").is_dir():
        yield f"  values      {folder / 'values'}"


def _plain(request: Request | None) -> dict[str, Any] | None:
    if request is None:
        return None
    asked = vars(request)
    return {name: asked[name] for name in asked if name not in _LEFT_OUT}


def _asked_lines(asked: Mapping[str, Any] | None) -> list[str]:
    if asked is None:
        return []
    said = {name: given for name, given in asked.items() if given not in (None, (), False)}
    return [
        f"  {name.replace('_', '-'):<16}{', '.join(given) if isinstance(given, tuple) else given}"
        for name, given in said.items()
    ]
