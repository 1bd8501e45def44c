"""Commands about the program itself: schema and completion."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import click
from click.shell_completion import get_completion_class

from cellworth.cli import options

_VARIABLE = "_CELLWORTH_COMPLETE"


def schema_names() -> list[str]:
    """Documents that have a schema."""
    names = (path.name for path in files("cellworth.cli").joinpath("schemas").iterdir())
    return sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))


def read_schema(name: str) -> dict[str, Any]:
    """JSON Schema of what a command prints with ``--json``."""
    text = files("cellworth.cli").joinpath("schemas", f"{name}.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


@click.command(epilog=options.example("cellworth schema value"))
@click.argument("document", type=click.Choice(schema_names()))
def schema(document: str) -> None:
    """Print the JSON Schema (2020-12) of what a command prints with --json."""
    click.echo(json.dumps(read_schema(document), indent=1))


@click.command(epilog=options.example('eval "$(cellworth completion bash)"'))
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands and options in a shell."""
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 (the choice names those that there are)
    click.echo(kind(ctx.find_root().command, {}, "cellworth", _VARIABLE).source())
