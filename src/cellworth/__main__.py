"""python -m cellworth: the command line, where no script is on the path."""

from cellworth.cli.commands import main

main(prog_name="cellworth")
