"""What goes wrong becomes a sentence; what is printed fits a terminal."""

import warnings

import click
import pytest

from cellworth.cli.app import Program, log_options, note, share, shows_progress
from cellworth.runtime import LostWorkersError
from shell import invoked


def failing(error):
    @click.group(cls=Program)
    @click.option("--debug", is_flag=True)
    def program(debug):
        pass

    @program.command()
    def fail():
        raise error

    return program


INTERNAL = "internal error (ZeroDivisionError: by 0); please report it, with the traceback that "


@pytest.mark.parametrize(
    ("error", "code", "reported"),
    [
        (ValueError("give\n  another one."), 2, "give another one."),
        (KeyError("no row is called 'x'."), 2, "no row is called 'x'."),
        (PermissionError(13, "Permission denied"), 2, "Permission denied"),
        (TypeError(), 2, "TypeError"),
        (OSError(28, "No space left on device", "values"), 75, "values: No space left on device"),
        (ConnectionError("no scheduler answers."), 75, "no scheduler answers."),
        (TimeoutError("the store is slow."), 75, "the store is slow."),
        (LostWorkersError("workers died 6 times."), 75, "workers died 6 times."),
        (ZeroDivisionError("by 0"), 70, f"{INTERNAL}--debug shows."),
    ],
)
def test_an_error_is_one_line_with_an_exit_code_by_its_kind(error, code, reported):
    done = invoked(failing(error), "fail")
    assert (done.code, done.err) == (code, f"Error: {reported}\n")


@pytest.mark.parametrize(("error", "code"), [(ZeroDivisionError(), 70), (ValueError("x"), 2)])
def test_debug_shows_the_traceback_and_keeps_the_exit_code(error, code):
    done = invoked(failing(error), "--debug", "fail")
    assert done.code == code
    assert done.err.startswith("Traceback")
    assert done.err.strip().split("\n")[-1].startswith("Error: ")


def test_code_of_the_user_that_ends_the_program_says_neither_yes_nor_no():
    for given in (None, 0, 1):
        done = invoked(failing(SystemExit(given)), "fail")
        assert done.code == 2
        assert "your code ended the program" in done.err


def test_a_warning_is_one_line_and_comes_once():
    @click.group(cls=Program)
    def program():
        pass

    @program.command()
    def warn():
        for _ in range(3):
            warnings.warn("mind\nthis", stacklevel=1)
        warnings.warn("old", DeprecationWarning, stacklevel=1)

    done = invoked(program, "warn")
    assert (done.code, done.err) == (0, "Warning: mind this\n")


@pytest.mark.parametrize("text", ["1%", "0.01", ".01", "1e-2", "1E0 %"])
def test_a_share_is_written_in_many_ways(text):
    assert share(text) == 0.01


@pytest.mark.parametrize("quiet", [False, True])
def test_progress_and_notes_are_shown_unless_they_are_unwanted(quiet):
    @click.group(cls=Program)
    @log_options
    def program():
        pass

    @program.command()
    def tell():
        note("noted")
        assert shows_progress() != quiet

    done = invoked(program, *["-q"] * quiet, "tell")
    assert (done.code, done.err) == (0, "" if quiet else "noted\n")
