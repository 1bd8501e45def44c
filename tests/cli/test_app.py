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


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (ValueError("give\n  another one."), "give another one."),
        (KeyError("no row is called 'x'."), "no row is called 'x'."),
        (PermissionError(13, "Permission denied"), "Permission denied"),
        (ImportError("install it."), "install it."),
        (TypeError(), "TypeError"),
    ],
)
def test_a_mistake_is_reported_on_one_line(error, reported):
    done = invoked(failing(error), "fail")
    assert (done.code, done.err) == (2, f"Error: {reported}\n")


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (OSError(28, "No space left on device", "values"), "values: No space left on device"),
        (ConnectionError("no scheduler answers."), "no scheduler answers."),
        (TimeoutError("the store is slow."), "the store is slow."),
        (LostWorkersError("workers died 6 times."), "workers died 6 times."),
    ],
)
def test_what_may_pass_has_an_exit_code_of_its_own(error, reported):
    done = invoked(failing(error), "fail")
    assert (done.code, done.err) == (75, f"Error: {reported}\n")


def test_a_mistake_of_ours_has_an_exit_code_of_its_own():
    done = invoked(failing(ZeroDivisionError("by 0")), "fail")
    reported = (
        "internal error (ZeroDivisionError: by 0); please report it, with the traceback that "
        "--debug shows."
    )
    assert (done.code, done.err) == (70, f"Error: {reported}\n")


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
