"""cellworth: what each cell of a table is worth to your model."""

import logging
from importlib.metadata import version

from cellworth.applications import cell_suspicion, suspect_cells
from cellworth.blocks import Blocks
from cellworth.caches import FileCache, MemoryCache
from cellworth.estimates import CentredGrids, GaussianProcess, PlainGrids, TensorLeastSquares
from cellworth.execution import (
    AfterSeconds,
    AfterTasks,
    AfterUtilities,
    Dask,
    DirectoryJournal,
    MemoryJournal,
    Processes,
    Progress,
    RankingStable,
    Serial,
    StandardErrorBelow,
    Threads,
    merge,
)
from cellworth.games import FailedUtility, Game, KNNGame, ModelGame, TableGame
from cellworth.moments import Moments
from cellworth.neighbours.bins import RankBins
from cellworth.semivalues import Banzhaf, Beta, LeaveOneOut, Shapley
from cellworth.subsets import AllSubsets, LeverageSubsets, Permutations, QuadratureSubsets
from cellworth.valuation import Valuation
from cellworth.valuers import (
    ExactValuer,
    FlattenedValuer,
    KNNValuer,
    LeaveOneOutValuer,
    MonteCarloValuer,
    OutOfBagValuer,
    RandomValuer,
    value_game,
)

__version__ = version("cellworth")

# Quiet, unless a program asks to hear of it.
logging.getLogger("cellworth").addHandler(logging.NullHandler())

__all__ = [
    "AfterSeconds",
    "AfterTasks",
    "AfterUtilities",
    "AllSubsets",
    "Banzhaf",
    "Beta",
    "Blocks",
    "CentredGrids",
    "Dask",
    "DirectoryJournal",
    "ExactValuer",
    "FailedUtility",
    "FileCache",
    "FlattenedValuer",
    "Game",
    "GaussianProcess",
    "KNNGame",
    "KNNValuer",
    "LeaveOneOut",
    "LeaveOneOutValuer",
    "LeverageSubsets",
    "MemoryCache",
    "MemoryJournal",
    "ModelGame",
    "Moments",
    "MonteCarloValuer",
    "OutOfBagValuer",
    "Permutations",
    "PlainGrids",
    "Processes",
    "Progress",
    "QuadratureSubsets",
    "RandomValuer",
    "RankBins",
    "RankingStable",
    "Serial",
    "Shapley",
    "StandardErrorBelow",
    "TableGame",
    "TensorLeastSquares",
    "Threads",
    "Valuation",
    "cell_suspicion",
    "merge",
    "suspect_cells",
    "value_game",
]
