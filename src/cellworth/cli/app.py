"""How all commands fail, warn and are interrupted: one sentence and an exit code."""

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

from cellworth.text import visible_text

CHECK_FAILED, WRONG_INPUT, INTERRUPTED, INTERNAL_ERROR, KILLED, CLOSED_PIPE = 1, 2, 3, 70, 130, 141

EXIT_CODES = """\b
Exit codes:
  0    success
  1    a check failed, or an audit is not confirmed
  2    wrong usage or wrong input, explained in one sentence
  3    interrupted; with --checkpoint, cellworth resume continues the run
  70   internal error (please report); --debug shows the traceback
  130  interrupted by Ctrl-C, with nothing to resume
  141  output pipe closed by the reader"""

# Errors that the library raises for wrong input, files and packages that are not installed.
_MISTAKES = (
    ValueError, TypeError, KeyError, OSError, ImportError, NotImplementedError, MemoryError,
)  # fmt: skip


class InterruptedRunError(click.ClickException):
    """A run that was interrupted."""

    def __init__(self, message: str, exit_code: int = INTERRUPTED) -> None:
        """Say how to resume the run."""
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]

    def show(self, file: Any = None) -> None:
        """Print the message without a prefix."""
        click.echo(self.message, err=True)


class _MistakeError(click.ClickException):
    exit_code = WRONG_INPUT


class _BugError(click.ClickException):
    exit_code = INTERNAL_ERROR


class Program(click.Group):
    """A group of commands that report a user's mistake in one sentence, without a traceback."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Start the program; output to a stream that is closed is discarded."""
        _open_closed_streams()
        return super().main(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; turn an error into one sentence and an exit code."""
        with _warnings_as_lines():
            try:
                result = super().invoke(ctx)
                sys.stdout.flush()
                return result
            except BrokenPipeError:
                # Python would complain once more when it closes the stream.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                ctx.exit(CLOSED_PIPE)
            except (click.Abort, KeyboardInterrupt) as error:
                raise InterruptedRunError("Interrupted.", KILLED) from error
            except (click.ClickException, click.exceptions.Exit):
                raise
            except (Exception, SystemExit) as error:
                if ctx.params.get("debug"):
                    click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
                raise _as_click_error(error) from error


def _open_closed_streams() -> None:
    # The first number that is free is that of the stream, which no file may take then.
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (to the end)
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (to the end)


def _as_click_error(error: BaseException) -> click.ClickException:
    """Distinguish mistakes of the user from internal errors."""
    if isinstance(error, _MISTAKES):
        return _MistakeError(_sentence(error))
    if isinstance(error, SystemExit):
        return _MistakeError(f"your code ended the program (SystemExit: {error}).")
    what = f"{type(error).__name__}: {_sentence(error)}"
    return _BugError(
        f"internal error ({what}); please report it, with the traceback that --debug shows."
    )


def _sentence(error: BaseException) -> str:
    """Return the message of an error on one line."""
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename is not None else ""
        return visible_text(f"{where}{error.strerror}")
    # A KeyError would print the repr of its sentence.
    message = error.args[0] if isinstance(error, KeyError) and error.args else error
    return visible_text(" ".join(str(message).split())) or type(error).__name__


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Print each warning once, as one line."""
    shown: set[str] = set()

    def show(message: Any, *_: Any, **__: Any) -> None:
        line = visible_text(" ".join(str(message).split()))
        if line not in shown:
            shown.add(line)
            click.echo(f"Warning: {line}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for category in (UserWarning, RuntimeWarning):
            warnings.simplefilter("always", category)
        warnings.showwarning = show
        yield
