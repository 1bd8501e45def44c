from cellworth import data as data
from cellworth import findings as findings
from cellworth import games as games
from cellworth import knn as knn
from cellworth import payouts as payouts
from cellworth import plots as plots
from cellworth import report as report
from cellworth import runtime as runtime
from cellworth import sampling as sampling
from cellworth.data import Owners as Owners
from cellworth.data import ShardedTable as ShardedTable
from cellworth.findings import DataWarning as DataWarning
from cellworth.findings import audit as audit
from cellworth.findings import explain_column as explain_column
from cellworth.findings import explain_row as explain_row
from cellworth.report import look as look
from cellworth.runtime import Runtime as Runtime
from cellworth.valuation import Valuation as Valuation
from cellworth.valuation import load as load
from cellworth.valuers import KNNValuer as KNNValuer
from cellworth.valuers import ModelValuer as ModelValuer
from cellworth.valuers import OutOfBagValuer as OutOfBagValuer
from cellworth.valuers import ShardedKNNValuer as ShardedKNNValuer
from cellworth.valuers import value_game as value_game

__version__: str
__all__ = [
    "DataWarning",
    "KNNValuer",
    "ModelValuer",
    "OutOfBagValuer",
    "Owners",
    "Runtime",
    "ShardedKNNValuer",
    "ShardedTable",
    "Valuation",
    "audit",
    "data",
    "explain_column",
    "explain_row",
    "findings",
    "games",
    "knn",
    "load",
    "look",
    "payouts",
    "plots",
    "report",
    "runtime",
    "sampling",
    "value_game",
]
