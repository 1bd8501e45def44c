"""python -m experiments NAME [--quick] [--data FOLDER]."""

from experiments.frame import main

main()
