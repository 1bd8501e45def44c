from cellworth import datasets as datasets
from cellworth import plots as plots
from cellworth import report as report
from cellworth.blocks import Blocks as Blocks
from cellworth.caches import FileCache as FileCache
from cellworth.caches import MemoryCache as MemoryCache
from cellworth.checks import DataWarning as DataWarning
from cellworth.diagnostics import Comparison as Comparison
from cellworth.diagnostics import DetectionCurve as DetectionCurve
from cellworth.diagnostics import Explanation as Explanation
from cellworth.diagnostics import RemovalCurve as RemovalCurve
from cellworth.diagnostics import before_and_after as before_and_after
from cellworth.diagnostics import cell_suspicion as cell_suspicion
from cellworth.diagnostics import detection_curve as detection_curve
from cellworth.diagnostics import explain_column as explain_column
from cellworth.diagnostics import explain_row as explain_row
from cellworth.diagnostics import removal_curve as removal_curve
from cellworth.diagnostics import repair_cells as repair_cells
from cellworth.diagnostics import suspect_cells as suspect_cells
from cellworth.estimates import CentredGrids as CentredGrids
from cellworth.estimates import GaussianProcess as GaussianProcess
from cellworth.estimates import PlainGrids as PlainGrids
from cellworth.games import FailedUtility as FailedUtility
from cellworth.games import Game as Game
from cellworth.games import KNNGame as KNNGame
from cellworth.games import ModelGame as ModelGame
from cellworth.games import TableGame as TableGame
from cellworth.loading import load as load
from cellworth.moments import JudgedUtility as JudgedUtility
from cellworth.moments import Moments as Moments
from cellworth.neighbours.bins import RankBins as RankBins
from cellworth.owners import Owners as Owners
from cellworth.payouts import Agreement as Agreement
from cellworth.payouts import Finding as Finding
from cellworth.payouts import Payout as Payout
from cellworth.payouts import Policy as Policy
from cellworth.payouts import Verdict as Verdict
from cellworth.payouts import check_owners as check_owners
from cellworth.payouts import split_revenue as split_revenue
from cellworth.payouts import verify_audit as verify_audit
from cellworth.runtime import AfterSeconds as AfterSeconds
from cellworth.runtime import AfterTasks as AfterTasks
from cellworth.runtime import AfterUtilities as AfterUtilities
from cellworth.runtime import Dask as Dask
from cellworth.runtime import DirectoryJournal as DirectoryJournal
from cellworth.runtime import MemoryJournal as MemoryJournal
from cellworth.runtime import Processes as Processes
from cellworth.runtime import Progress as Progress
from cellworth.runtime import RankingStable as RankingStable
from cellworth.runtime import Runtime as Runtime
from cellworth.runtime import Serial as Serial
from cellworth.runtime import StandardErrorBelow as StandardErrorBelow
from cellworth.runtime import Threads as Threads
from cellworth.runtime import merge as merge
from cellworth.semivalues import Banzhaf as Banzhaf
from cellworth.semivalues import Beta as Beta
from cellworth.semivalues import LeaveOneOut as LeaveOneOut
from cellworth.semivalues import Shapley as Shapley
from cellworth.sharded.tables import ShardedTable as ShardedTable
from cellworth.subsets import AllSubsets as AllSubsets
from cellworth.subsets import LeverageSubsets as LeverageSubsets
from cellworth.subsets import Permutations as Permutations
from cellworth.subsets import QuadratureSubsets as QuadratureSubsets
from cellworth.valuation import Valuation as Valuation
from cellworth.valuers import ExactValuer as ExactValuer
from cellworth.valuers import FlattenedValuer as FlattenedValuer
from cellworth.valuers import KNNValuer as KNNValuer
from cellworth.valuers import LeaveOneOutValuer as LeaveOneOutValuer
from cellworth.valuers import MonteCarloValuer as MonteCarloValuer
from cellworth.valuers import OutOfBagValuer as OutOfBagValuer
from cellworth.valuers import RandomValuer as RandomValuer
from cellworth.valuers import value_game as value_game

__version__: str
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
    "Runtime",
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
    "load",
    "merge",
    "plots",
    "removal_curve",
    "repair_cells",
    "report",
    "split_revenue",
    "suspect_cells",
    "value_game",
    "verify_audit",
]
