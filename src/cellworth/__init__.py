"""cellworth: what each cell of a table is worth to your model.

Names are imported when they are first used, so that ``import cellworth`` is quick. The stub file
``__init__.pyi`` tells editors and type checkers the same names.
"""

import importlib
import logging

# Where each public name is defined, and the public subpackages.
_MODULES = {
    "DataWarning": "findings",
    "KNNValuer": "valuers",
    "ModelValuer": "valuers",
    "OutOfBagValuer": "valuers",
    "Owners": "data",
    "Runtime": "runtime",
    "ShardedKNNValuer": "valuers",
    "ShardedTable": "data",
    "Valuation": "valuation",
    "audit": "findings",
    "explain_column": "findings",
    "explain_row": "findings",
    "load": "valuation",
    "look": "report",
    "value_game": "valuers",
}
_SUBPACKAGES = (
    "data",
    "findings",
    "games",
    "knn",
    "payouts",
    "plots",
    "report",
    "runtime",
    "sampling",
)

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
