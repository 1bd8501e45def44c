"""What commands print: a JSON document for programs, lines for people; notes go to stderr."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from cellworth.cli.characters import escaped, visible
from cellworth.packing import jsonable

VERSION = 1


def print_result(command: str, document: Mapping[str, Any], lines: Iterable[str]) -> None:
    """Print what a command found, as JSON where ``--json`` was given."""
    if click.get_current_context().params.get("as_json"):
        plain_document = {"format": f"cellworth {command}", "version": VERSION, **document}
        click.echo(escaped(json.dumps(jsonable(plain_document), indent=1, ensure_ascii=False)))
        return
    for line in lines:
        click.echo(visible(line, keep="\n"))


def note(text: str) -> None:
    """Say something that is no part of the result."""
    click.echo(visible(text), err=True)


def shown(path: Path) -> str:
    """A path as seen from the present folder, where it lies below it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def cut_to_terminal(lines: Iterable[str]) -> Iterable[str]:
    """Cut lines to the width of a terminal; a file or a pipe gets them whole."""
    if not sys.stdout.isatty():
        return lines
    width = shutil.get_terminal_size().columns
    return [line if len(line) <= width else line[: width - 1] + "…" for line in lines]


def progress_is_shown(quiet: bool) -> bool:
    """Tell whether anyone looks at a progress bar."""
    return not quiet and sys.stderr.isatty()
