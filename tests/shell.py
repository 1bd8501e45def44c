"""The command line for tests: in this process, on tables of a few lines."""

import subprocess
import sys
from dataclasses import dataclass

from click.testing import CliRunner

from cellworth.cli.commands import main

ROWS = [
    f"p{i},{20 + 3 * i % 40},{'north' if i % 3 else 'south'},{(7 * i) % 11 + (i % 2) * 9},"
    f"{'yes' if i % 2 else 'no'}"
    for i in range(24)
]
TABLE = "\n".join(["name,age,town,debt,label", *ROWS, ""])
OWNERS = """
[[owners]]
name = "bank"
columns = ["age", "debt"]

[[owners]]
name = "shop"
columns = ["town"]
"""
TERMS = f"""
table = "people.csv"
target = "label"
id = "name"
{OWNERS}
[method]
neighbors = 3

[policy]
game = "cells"
negative = "signed"
"""


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


def cellworth(*arguments) -> Done:
    """Run a command in this process."""
    return invoked(main, *arguments)


def invoked(program, *arguments, stdin=None) -> Done:
    """Run a program of commands in this process; what it does not catch is raised."""
    try:
        runner = CliRunner(mix_stderr=False)
    except TypeError:
        # Click 8.2 keeps the two apart by itself.
        runner = CliRunner()
    result = runner.invoke(program, [str(argument) for argument in arguments], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(result.exit_code, result.stdout, result.stderr)


def fine(*arguments) -> str:
    """Run a command that must succeed; what it printed."""
    done = cellworth(*arguments)
    assert done.code == 0, done.err
    return done.out


def started(*arguments, **given) -> subprocess.Popen:
    """Start a command as a process of its own."""
    command = [sys.executable, "-m", "cellworth", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **{**pipes, **given})  # noqa: S603 (our own program)
