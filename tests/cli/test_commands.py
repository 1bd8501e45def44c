"""Help has an example for each command, and the examples are command lines."""

import shlex

import click
import pytest

from cellworth.cli.commands import main
from shell import fine

COMMANDS = sorted(main.commands)


def examples(command):
    lines = (command.epilog or "").split("\n")
    return [line.strip() for line in lines if line.startswith("  cellworth ")]


def parsed(line):
    words = shlex.split(line)[1:]
    context = click.Context(main, info_name="cellworth")
    name, command, rest = main.resolve_command(context, words)
    return command.make_context(name, list(rest), parent=context)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_help_with_examples_that_are_command_lines(name):
    text = fine(name, "--help")
    assert "Example:" in text
    assert main.commands[name].help
    for parameter in main.commands[name].params:
        if isinstance(parameter, click.Option):
            assert parameter.help or parameter.show_default, parameter.name
    found = examples(main.commands[name])
    assert found
    for line in found:
        assert line.split()[1] == name
        assert parsed(line).command is main.commands[name]


def test_long_helps_have_headings_and_value_has_few_options():
    text = fine("value", "--help")
    headings = [line for line in text.splitlines() if line.endswith(":") and line[0] != " "]
    assert headings[:-1] == [
        f"{one}:" for one in ("Table", "Validation", "Method", "Budget", "Owners", "Run")
    ]
    assert headings[-1] == "Output:"
    for option in main.commands["value"].params:
        assert option.opts[-1] in text or isinstance(option, click.Argument)
    assert text.count("\n  -") <= 25


def test_the_first_page_says_what_exit_codes_mean():
    text = fine("--help")
    for code in ("0", "1", "2", "70", "75", "130", "141"):
        assert f"\n    {code} " in text
    for line in examples(main):
        parsed(line)


def test_the_version_is_that_of_the_package():
    import cellworth

    assert fine("--version").strip().endswith(cellworth.__version__)
