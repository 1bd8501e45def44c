"""The command line: a thin shell over the public names."""

from cellworth.cli.commands import main

__all__ = ["main"]
