"""The command line: every command calls the public functions."""

from cellworth.cli.commands import main

__all__ = ["main"]
