"""The command-line program: errors, exit codes, options and output that all commands share."""

from __future__ import annotations

import errno
import functools
import io
import json
import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from cellworth.data.io import AnyPath

CHECK_FAILED, WRONG_INPUT, INTERNAL_ERROR, TRY_AGAIN, KILLED, CLOSED_PIPE = 1, 2, 70, 75, 130, 141
EXIT_CODES = """\b
Exit codes:
  0    success
  1    a check failed, or a bundle is not confirmed
  2    wrong usage or wrong input, explained in one sentence
  70   internal error (please report); --debug shows the traceback
  75   try again: the run was interrupted or its deadline came too early (with --checkpoint,
       cellworth resume continues it), or the disk is full, no scheduler answers, or workers
       were lost
  130  interrupted by Ctrl-C, with nothing to resume
  141  output pipe closed by the reader"""
# Errors that the library raises for wrong input, files and packages that are not installed.
_MISTAKES = (
    ValueError, TypeError, KeyError, OSError, ImportError, NotImplementedError, MemoryError,
)  # fmt: skip
# Numbers of errors that may be gone at the next attempt.
_TEMPORARY = frozenset(
    getattr(errno, name)
    for name in (
        "ENOSPC", "EDQUOT", "EFBIG", "EIO", "EAGAIN", "ENOMEM", "EMFILE", "ENFILE", "ESTALE",
        "ETIMEDOUT", "ENETUNREACH", "EHOSTUNREACH",
    )
    if hasattr(errno, name)
)  # fmt: skip
# Headings of options in long helps; other options are about the output.
_MAX_OPTIONS_WITHOUT_HEADINGS = 8
_HEADINGS = {
    "Table": (
        "target", "row_id", "drop", "missing", "categorical", "delimiter", "encoding", "decimal",
        "shards", "table",
    ),
    "Validation": ("val", "val_rows"),
    "Method": (
        "model", "neighbors", "scoring", "seed", "reference", "false_alarms", "protected", "quick",
    ),
    "Budget": ("stop",),
    "Owners": ("owners", "agreement", "amount", "carried"),
    "Limits": ("shares", "max_findings", "min_rows"),
    "Run": ("checkpoint", "workers", "dry_run"),
    "Output": (),
}  # fmt: skip
VERSION = 1
_JSON, _QUIET = "cellworth.json", "cellworth.quiet"
_LOG_FORMAT = "cellworth.log_format"
_USUAL_FIELDS = frozenset([*vars(logging.makeLogRecord({})), "message", "asctime"])
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
# Limits of --stop: a number and, for a time, its unit.
_LIMITS = {
    "time": r"(\d+\.?\d*)([smhd])", "passes": r"(\d+)()", "fits": r"(\d+)()",
    "error": r"((?:\d+\.?\d*|\.\d+)(?:[eE]-?\d+)?)()",
}  # fmt: skip


class _PathType(click.Path):
    """A local path, or with ``stored`` also the address of an object store."""

    def __init__(self, *, stored: bool = False) -> None:
        super().__init__(path_type=Path)
        self._stored = stored

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> AnyPath:
        """Check the path."""
        from cellworth.data.io import local_path, to_path

        try:
            path = to_path(value, "the path") if self._stored else local_path(value, "the path")
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if isinstance(path, Path):
            super().convert(path, param, ctx)
        return path


PATH = _PathType()
# Folders and files that cellworth writes, and reads again.
STORED = _PathType(stored=True)
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def join_options(*options: Decorator) -> Decorator:
    """Join options into one decorator; help lists them in this order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        return functools.reduce(lambda made, option: option(made), reversed(options), function)

    return decorate


def _remember(context: click.Context, option: click.Parameter, given: Any) -> None:
    """Remember an option about the output."""
    context.meta[f"cellworth.{option.name}"] = given


json_output: Decorator = click.option(
    "--json", is_flag=True, expose_value=False, callback=_remember,
    help="Print one JSON document.",
)  # fmt: skip


log_options: Decorator = join_options(
    click.option(
        "-q", "--quiet", is_flag=True, expose_value=False, callback=_remember,
        help="Show no progress and no notes.",
    ),
    click.option(
        "--log-format", type=click.Choice(["text", "json"]), envvar="CELLWORTH_LOG_FORMAT",
        expose_value=False, callback=_remember,
        help="Lines on stderr: text, or one JSON document each (progress, warnings, errors).",
    ),
)  # fmt: skip
owners: Decorator = click.option(
    "--owners", metavar="COLUMN|FILE.toml",
    help="Column with the owner of each row, which is not a feature, or a file of owners and their "
    "cells.",
)  # fmt: skip
fixed: Decorator = click.option(
    "--fix", "fixed", type=STORED, metavar="FILE",
    help="Write TABLE with repairs that lose nothing: case and blanks of frequent contents, marks "
    "and codes of missing values. They are listed on stderr.",
)  # fmt: skip
force: Decorator = click.option("--force", is_flag=True, help="Replace an existing result.")


files_moved: Decorator = join_options(
    click.option("--table", metavar="TABLE", help="New path of the table, if it was moved."),
    click.option("--val", metavar="TABLE", help="New path of the validation file."),
)


def number_or_all(text: str) -> int | str:
    """Parse a number of rows, or all."""
    if text == "all":
        return text
    if not text.isdecimal() or int(text) == 0:
        raise click.BadParameter(f"{text!r} is not a number of rows; give one, or all.")
    return int(text)


def share(text: str) -> float:
    """Parse a share: 2% or 0.02."""
    found = re.fullmatch(r"((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(%?)", text.strip())
    part = float(found[1]) / (100 if found[2] else 1) if found else 2.0
    if part > 1:
        raise click.BadParameter(f"{text!r} is not a share; give one such as 2% or 0.02.")
    return part


def limit_of_kind(text: str) -> tuple[str, float]:
    """Parse a kind of findings and a share: missing code=1%."""
    kind, equals, part = text.rpartition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} has no share; give one such as 'missing code=1%'.")
    return kind.strip(), share(part)


file_options: Decorator = join_options(
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
        help="Column of categories written as numbers, such as postcodes; 01 is not 1 (not for "
        "models).",
    ),
    click.option(
        "--delimiter", metavar="CHARACTER",
        help="Between cells of a text file.  [default: found from the file]",
    ),
    click.option(
        "--encoding", default="utf-8", show_default=True,
        help="Encoding of text files, such as latin-1 or utf-16.",
    ),
    click.option(
        "--decimal", metavar="CHARACTER",
        help="Before the decimals of a number in a text file.  [default: found from the file]",
    ),
)  # fmt: skip
audit_options: Decorator = join_options(
    click.option(
        "--target", metavar="COLUMN",
        help="Column that holds the labels; without it, leaks and wrong labels are not searched.",
    ),
    file_options,
    click.option(
        "--val", metavar="TABLE",
        help="Table of validation rows, with the same columns, which should not be in TABLE.",
    ),
    click.option(
        "--reference", metavar="TABLE",
        help="Earlier table with the same columns, such as that of last month: what differs?",
    ),
    click.option(
        "--false-alarms", type=share, metavar="SHARE", default="1%", show_default=True,
        help="Probability of any difference from --reference by chance, over all comparisons.",
    ),
    click.option(
        "--protected", multiple=True, metavar="COLUMN",
        help="Column whose contents are never called wrong because they are rare, such as sex.",
    ),
    click.option(
        "--quick", is_flag=True, help="Leave out single cells and labels, which take most time."
    ),
)  # fmt: skip
table_options: Decorator = join_options(
    click.option(
        "--target", metavar="COLUMN",
        help="Column that holds the labels; needed, unless there is an --agreement.",
    ),
    file_options,
    click.option(
        "--shards/--no-shards", default=None,
        help="Read the table in shards, or into memory.  [default: in shards, if it is a folder "
        "or pattern of more than 10,000,000 cells]",
    ),
    click.option(
        "--val", metavar="TABLE|FOLDS",
        help="Table of validation rows, with the same columns, or a number of cross-validation "
        "folds.  [default: 5]",
    ),
    click.option(
        "--val-rows", type=number_or_all, metavar="N|all",
        help="Number of validation rows that are used, drawn at random.  [default: all, or for knn "
        "as many as about a minute of work allows]",
    ),
)  # fmt: skip
same_model: Decorator = click.option(
    "--model", metavar="MODULE:OBJECT",
    help="Repeat the model if you used your own; its code will be executed.",
)  # fmt: skip
method_options: Decorator = join_options(
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
        help="How the table is scored: balanced_neighbor_agreement or neg_brier_score (knn), or a "
        "name of scikit-learn, such as balanced_accuracy (models).",
    ),
    click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True),
)  # fmt: skip


def _read_stop(
    _context: click.Context, _option: click.Parameter, given: tuple[str, ...]
) -> dict[str, float]:
    """Read KEY=LIMIT pairs; a time has a unit and becomes seconds."""
    limits: dict[str, float] = {}
    for pair in given:
        key, _, text = pair.partition("=")
        found = re.fullmatch(_LIMITS[key], text) if key in _LIMITS else None
        if not found or not float(found[1]):
            raise click.BadParameter(
                f"{pair!r} is not a limit; give one such as time=20m, passes=4, fits=500 or "
                "error=0.01."
            )
        limits[key] = int(text) if text.isdecimal() else float(found[1]) * _SECONDS[found[2]]
    return limits


stop: Decorator = click.option(
    "--stop", multiple=True, callback=_read_stop, metavar="KEY=LIMIT",
    help="When to stop: time=20m (or 90s, 2h), passes=4 over all validation rows (knn), fits=500 "
    "(models) or error=0.01, the largest standard error; may be repeated.",
)  # fmt: skip


def _read_workers(
    _context: click.Context, _option: click.Parameter, given: str | None
) -> int | str | None:
    """Read a number of workers on this machine, or the address of a cluster."""
    if given is None or ":" in given:
        return given
    if not given.isdecimal() or int(given) == 0:
        raise click.BadParameter(
            f"{given!r} is neither a number of workers nor an address such as tcp://host:8786."
        )
    return int(given)


workers: Decorator = click.option(
    "--workers", callback=_read_workers, metavar="N|ADDRESS",
    help="Number of workers on this machine, or address of a Dask scheduler, tcp://host:8786, or "
    "of a Ray cluster, ray:host:6379.  [default: all cores]",
)  # fmt: skip
asked_options: Decorator = join_options(
    click.argument("table"), table_options, method_options, stop
)


class _Failure(click.ClickException):
    """A sentence and an exit code that end the program."""

    def __init__(self, message: str, exit_code: int = TRY_AGAIN) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]


class InterruptedRunError(_Failure):
    """A run that was interrupted."""

    def show(self, file: Any = None) -> None:
        """Print the message without a prefix."""
        click.echo(self.message, err=True)


class Command(click.Command):
    """A command whose help lists many options under headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options."""
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        if len(options) <= _MAX_OPTIONS_WITHOUT_HEADINGS:
            super().format_options(ctx, formatter)
            return
        below: dict[str, list[tuple[str, str]]] = {heading: [] for heading in _HEADINGS}
        for option in options:
            heading = next((one for one in _HEADINGS if option.name in _HEADINGS[one]), "Output")
            below[heading].append(option.get_help_record(ctx) or ("", ""))
        for heading, records in below.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


class Program(click.Group):
    """A group of commands that report a user's mistake in one sentence, without a traceback."""

    command_class: type[click.Command] | None = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of commands in the order in which they are used."""
        return list(self.commands)

    def main(self, *args: Any, **extra: Any) -> Any:
        """Start the program; discard output to a closed stream."""
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream is None:
                # Otherwise the next opened file would get the number of the closed stream.
                setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
            elif isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
                # A pipe on Windows has a code page, which may lack letters of a table.
                stream.reconfigure(errors="backslashreplace")
        return super().main(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; turn an error into one sentence and an exit code."""
        with _log_to_stderr():
            try:
                result = super().invoke(ctx)
                sys.stdout.flush()
                return result
            except BrokenPipeError:
                # Python would complain once more when it closes the stream.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                ctx.exit(CLOSED_PIPE)
            except (click.Abort, KeyboardInterrupt) as error:
                _raise(ctx, InterruptedRunError("Interrupted.", KILLED), error)
            except click.exceptions.Exit:
                raise
            except click.ClickException as error:
                _raise(ctx, error)
            except (Exception, SystemExit) as error:
                if ctx.params.get("debug"):
                    click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
                _raise(ctx, _as_click_error(error), error)


def _as_click_error(error: BaseException) -> click.ClickException:
    """Distinguish failures that may pass, mistakes of the user and internal errors."""
    if _is_temporary(error):
        return _Failure(_format_error(error))
    if isinstance(error, _MISTAKES):
        return _Failure(_format_error(error), WRONG_INPUT)
    if isinstance(error, SystemExit):
        return _Failure(f"your code ended the program (SystemExit: {error}).", WRONG_INPUT)
    what = f"{type(error).__name__}: {_format_error(error)}"
    return _Failure(
        f"internal error ({what}); please report it, with the traceback that --debug shows.",
        INTERNAL_ERROR,
    )


def _is_temporary(error: BaseException) -> bool:
    """Return whether the same command may succeed later: disk, network, lost workers."""
    if isinstance(error, OSError):
        lost = isinstance(error, ConnectionError | TimeoutError)
        # NumPy does not number the error of a full disk.
        return lost or error.errno in _TEMPORARY or " requested and " in str(error)
    workers = sys.modules.get("cellworth.runtime.workers")
    return workers is not None and isinstance(error, workers.LostWorkersError)


def _format_error(error: BaseException) -> str:
    """Return the message of an error on one line."""
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename is not None else ""
        return _show(f"{where}{error.strerror}")
    # A KeyError would print the repr of its sentence.
    message = error.args[0] if isinstance(error, KeyError) and error.args else error
    # Python gives no reason when memory is full.
    bare = "memory is full; give fewer rows" if isinstance(error, MemoryError) else ""
    return _show(" ".join(str(message).split())) or bare or type(error).__name__


def _raise(
    ctx: click.Context, shown: click.ClickException, cause: BaseException | None = None
) -> NoReturn:
    """End the program with an error: click prints it, or the log as JSON."""
    if not _logs_json():
        raise shown from cause
    fields = {"event": "error", "exit_code": shown.exit_code}
    logging.getLogger("cellworth").error(shown.format_message(), extra=fields)
    ctx.exit(shown.exit_code)


class _StderrHandler(logging.Handler):
    """Writes log records and warnings to stderr, as text or as JSON lines."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json
        self._shown: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        if not self._as_json:
            self.warn(record.getMessage())
            return
        message = _show(" ".join(record.getMessage().split()))
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        own = {name: vars(record)[name] for name in vars(record) if name not in _USUAL_FIELDS}
        line = {"time": time, "level": record.levelname.lower(), "message": message, **own}
        click.echo(json.dumps(line, default=str), err=True)

    def warn(self, message: Any, *_: Any, **__: Any) -> None:
        """Print a warning once, as one line."""
        line = _show(" ".join(str(message).split()))
        if line in self._shown:
            return
        self._shown.add(line)
        if self._as_json:
            logging.getLogger("cellworth").warning(line, extra={"event": "warning"})
        else:
            click.echo(f"Warning: {line}", err=True)


@contextmanager
def _log_to_stderr() -> Iterator[None]:
    """Print the log and each warning to stderr, one line each; JSON lines include progress."""
    logger, handler = logging.getLogger("cellworth"), _StderrHandler(as_json=_logs_json())
    level = logger.level
    logger.setLevel(logging.INFO if _logs_json() else logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for category in (UserWarning, RuntimeWarning):
            warnings.simplefilter("always", category)
        warnings.showwarning = handler.warn
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)


def wants_json() -> bool:
    """Return whether ``--json`` was given."""
    return bool(click.get_current_context().meta.get(_JSON))


def format_document(command: str, document: Mapping[str, Any]) -> str:
    """Return the JSON document of a command, with its format and version."""
    from cellworth.data.io import jsonable

    plain = {"format": f"cellworth {command}", "version": VERSION, **document}
    return json.dumps(jsonable(plain), indent=1)


def print_result(command: str, document: Mapping[str, Any], lines: Iterable[str]) -> None:
    """Print the result of a command: as a JSON document with ``--json``, else as lines."""
    if wants_json():
        click.echo(format_document(command, document))
        return
    for line in lines:
        click.echo(_show(line, keep="\n"))


def note(text: str) -> None:
    """Print a note to stderr, unless the program is quiet."""
    if click.get_current_context().meta.get(_QUIET):
        return
    if _logs_json():
        logging.getLogger("cellworth").info(text, extra={"event": "note"})
    else:
        click.echo(_show(text), err=True)


def shorten_path(path: AnyPath) -> str:
    """Return a path relative to the current folder, if it is below it."""
    here = Path.cwd()
    if isinstance(path, Path) and path.is_relative_to(here):
        return str(path.relative_to(here))
    return str(path)


def shows_progress() -> bool:
    """Return whether to show progress: not with ``--quiet``, nor if the log shows it."""
    return not _logs_json() and not click.get_current_context().meta.get(_QUIET)


def _logs_json() -> bool:
    return bool(click.get_current_context().meta.get(_LOG_FORMAT) == "json")


def example(*lines: str) -> str:
    """Return an example for the end of a help text."""
    return "\n".join(["\b", "Example:", *(f"  {line}" for line in lines)])


def _show(text: str, keep: str = "") -> str:
    """Show hidden characters as pictures."""
    if all(one.isprintable() or one in keep for one in text):
        return text
    # Imported only if needed: it loads numpy.
    from cellworth.data.text import visible_text

    return visible_text(text, keep)
