"""cellworth: what each cell of a table is worth to your model.

Names are imported when they are first used, so that ``import cellworth`` is quick. The stub file
``__init__.pyi`` tells editors and type checkers the same names.
"""

import importlib
import logging

# Where each public name is defined, and the public subpackages.
_MODULES = {
    "AfterSeconds": "execution",
    "AfterTasks": "execution",
    "AfterUtilities": "execution",
    "Agreement": "applications",
    "AllSubsets": "subsets",
    "Banzhaf": "semivalues",
    "Beta": "semivalues",
    "Blocks": "blocks",
    "CentredGrids": "estimates",
    "Comparison": "applications",
    "Dask": "execution",
    "DataWarning": "checks",
    "DetectionCurve": "applications",
    "DirectoryJournal": "execution",
    "ExactValuer": "valuers",
    "Explanation": "applications",
    "FailedUtility": "games",
    "FileCache": "caches",
    "Finding": "applications",
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
    "MemoryJournal": "execution",
    "ModelGame": "games",
    "Moments": "moments",
    "MonteCarloValuer": "valuers",
    "OutOfBagValuer": "valuers",
    "Owners": "owners",
    "Payout": "applications",
    "Permutations": "subsets",
    "PlainGrids": "estimates",
    "Policy": "applications",
    "Processes": "execution",
    "Progress": "execution",
    "QuadratureSubsets": "subsets",
    "RandomValuer": "valuers",
    "RankBins": "neighbours.bins",
    "RankingStable": "execution",
    "RemovalCurve": "applications",
    "Serial": "execution",
    "Shapley": "semivalues",
    "ShardedTable": "sharded.tables",
    "StandardErrorBelow": "execution",
    "TableGame": "games",
    "Threads": "execution",
    "Valuation": "valuation",
    "Verdict": "applications",
    "before_and_after": "applications",
    "cell_suspicion": "applications",
    "check_owners": "applications",
    "detection_curve": "applications",
    "explain_column": "applications",
    "explain_row": "applications",
    "load": "loading",
    "merge": "execution",
    "removal_curve": "applications",
    "repair": "applications",
    "split": "applications",
    "suspect_cells": "applications",
    "value_game": "valuers",
    "verify": "applications",
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
