"""cellworth: what each cell of a table is worth to your model."""

from importlib.metadata import version

from cellworth.blocks import Blocks
from cellworth.execution import (
    AfterSeconds,
    AfterTasks,
    MemoryJournal,
    Processes,
    RankingStable,
    Serial,
    StandardErrorBelow,
    Threads,
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

__all__ = [
    "AfterSeconds",
    "AfterTasks",
    "AllSubsets",
    "Banzhaf",
    "Beta",
    "Blocks",
    "ExactValuer",
    "FailedUtility",
    "FlattenedValuer",
    "Game",
    "KNNGame",
    "KNNValuer",
    "LeaveOneOut",
    "LeaveOneOutValuer",
    "LeverageSubsets",
    "MemoryJournal",
    "ModelGame",
    "Moments",
    "MonteCarloValuer",
    "OutOfBagValuer",
    "Permutations",
    "Processes",
    "QuadratureSubsets",
    "RandomValuer",
    "RankBins",
    "RankingStable",
    "Serial",
    "Shapley",
    "StandardErrorBelow",
    "TableGame",
    "Threads",
    "Valuation",
    "value_game",
]
