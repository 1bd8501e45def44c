"""What commands print: one JSON document for programs, or lines for people; notes go to stderr."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from cellworth.text import visible_text

VERSION = 1

_JSON = "cellworth.json"
_BEGINS_LIKE_A_FORMULA = re.compile(r"\s*[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def remember_json(context: click.Context, _: click.Parameter, given: bool) -> None:
    """Keep for this command whether ``--json`` was given."""
    context.meta[_JSON] = given


def wants_json() -> bool:
    """Tell whether ``--json`` was given."""
    return bool(click.get_current_context().meta.get(_JSON))


def print_result(command: str, document: Mapping[str, Any], lines: Iterable[str]) -> None:
    """Print the result of a command: as a JSON document with ``--json``, else as lines."""
    if wants_json():
        from cellworth.packing import jsonable

        plain = {"format": f"cellworth {command}", "version": VERSION, **document}
        click.echo(escape_json(json.dumps(jsonable(plain), indent=1, ensure_ascii=False)))
        return
    for line in lines:
        click.echo(visible_text(line, keep="\n"))


def note(text: str) -> None:
    """Print something that is not part of the result."""
    click.echo(visible_text(text), err=True)


def short_path(path: Path) -> str:
    """Return a path relative to the current folder, where it lies below it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def cut_to_terminal(lines: Iterable[str]) -> Iterable[str]:
    """Cut lines to the width of a terminal; a file or a pipe gets whole lines."""
    if not sys.stdout.isatty():
        return lines
    width = shutil.get_terminal_size().columns
    return [line if len(line) <= width else line[: width - 1] + "…" for line in lines]


def shows_progress(quiet: bool) -> bool:
    """Tell whether a progress bar is shown: not with ``--quiet``, and only in a terminal."""
    return not quiet and sys.stderr.isatty()


def escape_json(document: str) -> str:
    """Write characters of a JSON document that a terminal would obey as JSON escapes."""
    return "".join(one if one == "\n" or one.isprintable() else _escape(one) for one in document)


def escape_formula(text: Any) -> Any:
    """Put an apostrophe before text that a spreadsheet would compute; numbers stay as they are."""
    if not isinstance(text, str) or _NUMBER.fullmatch(text):
        return text
    return f"'{text}" if _BEGINS_LIKE_A_FORMULA.match(text) else text


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i] << 8 | units[i + 1]:04x}" for i in range(0, len(units), 2))
