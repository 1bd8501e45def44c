"""cellworth: what each cell of a table is worth to your model.

Names are imported when they are first used, so that ``import cellworth`` is quick. The stub file
``__init__.pyi`` tells editors and type checkers the same names.
"""

import importlib
import logging

# Where each public name is defined, and the public subpackages.
_MODULES = {
    "AfterSeconds": "runtime",
    "AfterTasks": "runtime",
    "AfterUtilities": "runtime",
    "Agreement": "payouts",
    "AllSubsets": "subsets",
    "Banzhaf": "semivalues",
    "Beta": "semivalues",
    "Blocks": "blocks",
    "CentredGrids": "estimates",
    "Comparison": "diagnostics",
    "Dask": "runtime",
    "DataWarning": "checks",
    "DetectionCurve": "diagnostics",
    "DirectoryJournal": "runtime",
    "ExactValuer": "valuers",
    "Explanation": "diagnostics",
    "FailedUtility": "games",
    "FileCache": "caches",
    "Finding": "payouts",
    "FlattenedValuer": "valuers",
    "Game": "games",
    "GaussianProcess": "estimates",
    "JudgedUtility": "moments",
    "KNNGame": "games",
    "KNNValuer": "valuers",
    "LeaveOneOut": "semivalues",
    "LeaveOneOutValuer": "valuers",
    "LeverageSubsets": "subsets",
    "MemoryCache": "caches",
    "MemoryJournal": "runtime",
    "ModelGame": "games",
    "Moments": "moments",
    "MonteCarloValuer": "valuers",
    "OutOfBagValuer": "valuers",
    "Owners": "owners",
    "Payout": "payouts",
    "Permutations": "subsets",
    "PlainGrids": "estimates",
    "Policy": "payouts",
    "Processes": "runtime",
    "Progress": "runtime",
    "QuadratureSubsets": "subsets",
    "RandomValuer": "valuers",
    "RankBins": "neighbours.bins",
    "RankingStable": "runtime",
    "RemovalCurve": "diagnostics",
    "Runtime": "runtime",
    "Serial": "runtime",
    "Shapley": "semivalues",
    "ShardedTable": "sharded.tables",
    "StandardErrorBelow": "runtime",
    "TableGame": "games",
    "Threads": "runtime",
    "Valuation": "valuation",
    "Verdict": "payouts",
    "before_and_after": "diagnostics",
    "cell_suspicion": "diagnostics",
    "check_owners": "payouts",
    "detection_curve": "diagnostics",
    "explain_column": "diagnostics",
    "explain_row": "diagnostics",
    "load": "loading",
    "merge": "runtime",
    "removal_curve": "diagnostics",
    "repair_cells": "diagnostics",
    "split_revenue": "payouts",
    "suspect_cells": "diagnostics",
    "value_game": "valuers",
    "verify_audit": "payouts",
}
_SUBPACKAGES = ("datasets", "plots", "report")

__all__ = [*_MODULES, *_SUBPACKAGES]  # noqa: PLE0604 (strings, all of them)


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        found: object = version("cellworth")
    elif name in _MODULES:
        found = getattr(importlib.import_module(f"cellworth.{_MODULES[name]}"), name)
    elif name in _SUBPACKAGES:
        found = importlib.import_module(f"cellworth.{name}")
    else:
        raise AttributeError(f"module 'cellworth' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})


# Silent unless a program configures logging.
logging.getLogger("cellworth").addHandler(logging.NullHandler())
