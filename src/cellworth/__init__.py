"""cellworth: what each cell of a table is worth to your model."""

import logging
from importlib.metadata import version

from cellworth import datasets, plots, report
from cellworth.applications import (
    Agreement,
    Comparison,
    DetectionCurve,
    Explanation,
    Finding,
    Payout,
    Policy,
    RemovalCurve,
    Verdict,
    before_and_after,
    cell_suspicion,
    check_owners,
    detection_curve,
    explain_column,
    explain_row,
    removal_curve,
    repair,
    split,
    suspect_cells,
    verify,
)
from cellworth.blocks import Blocks
from cellworth.caches import FileCache, MemoryCache
from cellworth.checks import DataWarning
from cellworth.estimates import CentredGrids, GaussianProcess, PlainGrids
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
from cellworth.moments import JudgedUtility, Moments
from cellworth.neighbours.bins import RankBins
from cellworth.owners import Owners
from cellworth.semivalues import Banzhaf, Beta, LeaveOneOut, Shapley
from cellworth.sharded.tables import ShardedTable
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
    "Agreement",
    "AllSubsets",
    "Banzhaf",
    "Beta",
    "Blocks",
    "CentredGrids",
    "Comparison",
    "Dask",
    "DataWarning",
    "DetectionCurve",
    "DirectoryJournal",
    "ExactValuer",
    "Explanation",
    "FailedUtility",
    "FileCache",
    "Finding",
    "FlattenedValuer",
    "Game",
    "GaussianProcess",
    "JudgedUtility",
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
    "Owners",
    "Payout",
    "Permutations",
    "PlainGrids",
    "Policy",
    "Processes",
    "Progress",
    "QuadratureSubsets",
    "RandomValuer",
    "RankBins",
    "RankingStable",
    "RemovalCurve",
    "Serial",
    "Shapley",
    "ShardedTable",
    "StandardErrorBelow",
    "TableGame",
    "Threads",
    "Valuation",
    "Verdict",
    "before_and_after",
    "cell_suspicion",
    "check_owners",
    "datasets",
    "detection_curve",
    "explain_column",
    "explain_row",
    "merge",
    "plots",
    "removal_curve",
    "repair",
    "report",
    "split",
    "suspect_cells",
    "value_game",
    "verify",
]
