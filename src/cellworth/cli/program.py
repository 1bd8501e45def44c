"""The program: how commands fail, warn, and are broken off, the same for all of them."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from cellworth.cli.characters import visible

FINE, NO, WRONG, INTERRUPTED, BUG, KILLED, PIPE = 0, 1, 2, 3, 70, 130, 141

EXIT_CODES = """\b
Exit codes:
  0    all is well
  1    a check or a verdict says no
  2    wrong usage or wrong input, told in one sentence
  3    broken off before its end; with --checkpoint, cellworth resume goes on
  70   a bug of cellworth; --debug shows the traceback
  130  Ctrl-C, with nothing to go on from
  141  whoever read the output has gone"""

# What the library says of a user's mistakes, of files and of what is not installed.
_MISTAKES = (
    ValueError, TypeError, KeyError, OSError, ImportError, NotImplementedError, MemoryError,
)  # fmt: skip


class BrokenOffError(click.ClickException):
    """A run that did not come to its end."""

    def __init__(self, message: str, exit_code: int = INTERRUPTED) -> None:
        """Say how to go on."""
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]

    def show(self, file: Any = None) -> None:
        """Say what can be done about it."""
        click.echo(self.message, err=True)


class _MistakeError(click.ClickException):
    exit_code = WRONG


class _BugError(click.ClickException):
    exit_code = BUG


class Program(click.Group):
    """A group of commands in which a user's mistake is one sentence, never a traceback."""

    def main(self, *args: Any, **given: Any) -> Any:
        """Start; a stream that was closed beforehand leads nowhere."""
        _open_closed_streams()
        return super().main(*args, **given)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what goes wrong in it becomes a sentence and an exit code."""
        with _told_as_lines():
            try:
                result = super().invoke(ctx)
                sys.stdout.flush()
                return result
            except BrokenPipeError:
                # Python would complain once more when it closes the stream.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                ctx.exit(PIPE)
            except (click.Abort, KeyboardInterrupt) as error:
                raise BrokenOffError("Broken off.", KILLED) from error
            except (click.ClickException, click.exceptions.Exit):
                raise
            except (Exception, SystemExit) as error:
                if ctx.params.get("debug"):
                    click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
                raise _told(error) from error


def _open_closed_streams() -> None:
    # The first number that is free is that of the stream, which no file may take then.
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (to the end)
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (to the end)


def _told(error: BaseException) -> click.ClickException:
    """Tell mistakes of the user from those of the program."""
    if isinstance(error, _MISTAKES):
        return _MistakeError(_sentence(error))
    if isinstance(error, SystemExit):
        return _MistakeError(f"code of yours ended the program (SystemExit: {error}).")
    what = f"{type(error).__name__}: {_sentence(error)}"
    return _BugError(f"this is a bug of cellworth ({what}); --debug shows the traceback.")


def _sentence(error: BaseException) -> str:
    """What an error says, on one line."""
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename is not None else ""
        return visible(f"{where}{error.strerror}")
    # A KeyError would print the repr of its sentence.
    told = error.args[0] if isinstance(error, KeyError) and error.args else error
    return visible(" ".join(str(told).split())) or type(error).__name__


@contextmanager
def _told_as_lines() -> Iterator[None]:
    """Show warnings for people: one line each, no line twice."""
    shown: set[str] = set()

    def show(message: Any, *_: Any, **__: Any) -> None:
        line = visible(" ".join(str(message).split()))
        if line not in shown:
            shown.add(line)
            click.echo(f"Warning: {line}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for category in (UserWarning, RuntimeWarning):
            warnings.simplefilter("always", category)
        warnings.showwarning = show
        yield
