"""The house: few packages, little code, imports that run downwards, one name for one thing."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import code_lines

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "cellworth"
FILES = sorted(PACKAGE.rglob("*.py"))
# Ceilings only fall. A change that needs more takes it from elsewhere, or says why in its commit.
MAX_CODE_LINES = {
    "cellworth": 44,
    "cli": 2319,
    "data": 3033,
    "findings": 3381,
    "games": 892,
    "knn": 3802,
    "payouts": 1891,
    "plots": 840,
    "report": 995,
    "runtime": 2404,
    "sampling": 1457,
    "valuation": 1406,
    "valuers": 2246,
}
MAX_CODE_LINES_IN_ALL = 24_710


@cache
def _read(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _repeated(names: list[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


def test_the_package_is_at_most_thirteen_packages_without_loose_modules() -> None:
    packages = [path for path in PACKAGE.iterdir() if (path / "__init__.py").exists()]
    loose = {path.name for path in PACKAGE.iterdir() if path.is_file()}
    assert len(packages) <= 13
    assert loose == {"__init__.py", "__init__.pyi", "__main__.py", "py.typed"}


def test_no_package_grows_beyond_its_ceiling_of_code_lines() -> None:
    sizes = Counter[str]()
    for path in FILES:
        sizes[path.parent.name] += code_lines.count(path)
    assert {name: size for name, size in sizes.items() if size > MAX_CODE_LINES[name]} == {}
    assert sizes.total() <= MAX_CODE_LINES_IN_ALL


def test_packages_do_not_nest() -> None:
    assert {path.parent.parent for path in FILES} <= {PACKAGE, PACKAGE.parent}


def test_no_two_files_have_one_name() -> None:
    stems = [path.stem for path in FILES if path.stem not in {"__init__", "__main__"}]
    folders = [path.parent.name for path in FILES if path.name == "__init__.py"]
    assert _repeated(stems) == set()
    # valuation/valuation.py is the one file that its package is named for.
    assert _repeated(stems + folders) <= {"valuation"}


def test_no_two_classes_have_one_name() -> None:
    classes = [
        node.name
        for path in FILES
        for node in ast.walk(_read(path))
        if isinstance(node, ast.ClassDef)
    ]
    assert _repeated(classes) == set()


def test_one_contract_without_exceptions_says_which_imports_are_allowed() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    assert len(contracts) == 1
    assert "ignore_imports" not in contracts[0]
    named = {name.strip() for layer in contracts[0]["layers"] for name in layer.split("|")}
    packages = {path.parent.name for path in FILES if path.name == "__init__.py"}
    assert named == packages - {"cellworth"}


def _imports(path: Path) -> set[str]:
    """Return the modules of this package that a file imports, at any depth."""
    found = set()
    for node in ast.walk(_read(path)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cellworth."):
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_no_circle_of_imports_between_files() -> None:
    names = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path
        for path in FILES
        if path.stem not in {"__init__", "__main__"}
    }
    graph = {name: _imports(path) & set(names) for name, path in names.items()}
    # Raises CycleError, which names the circle.
    assert len(list(TopologicalSorter(graph).static_order())) == len(names)
