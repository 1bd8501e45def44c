"""List words that the glossary replaced: ``python tests/words.py [PATH ...]``.

``python tests/words.py --public`` lists the public names with their parameters.

Names are read from the syntax tree (functions, classes, parameters, variables, attributes); text is
everything else that people read: docstrings, comments, messages, pages.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

# What neither names nor prose say any more, and what they say instead.
WORDS = {
    r"crews?": "worker pool",
    r"diar(y|ies)": "checkpoint writer",
    r"errands?": "Dask task",
    r"fingerprints?": "hash",
    r"gaps?": "missing value",
    r"journals?": "checkpoint",
    r"judg(e|es|ed|ing)": "validation rows; score",
    r"ledgers?": "checkpoint",
    r"mend(s|ed|ing)?": "fix",
    r"nobody": "no one; name the agent",
    r"parcels?": "shared pickle",
    r"refill(s|ed|ing)?": "fill",
    r"seal(s|ed|ing)?": "digest",
    r"suspicions?": "anomaly score",
    r"sweeps?": "pass",
    r"told": "reported; distinguished",
}
# Of names alone.
NAMES = {
    r"bench(es)?": "shard cache",
    r"contrasts": "Banzhaf",
    r"course": "run context",
    r"described": "spec",
    r"designs?": "sampler or estimator",
    r"grids": "permutations",
    r"hands": "map_unordered",
    r"looks": "utility log",
    r"places?": "index or position",
    r"questions?": "problem; task schedule",
    r"refused?": "check",
    r"spreads?": "scale or variance",
    r"stations?": "shard assignment",
    r"strips": "iter_rows",
    r"unearned": "baseline",
    r"wholes?": "integer",
    r"worths?": "value",
}
# Of prose alone.
PHRASES = {
    r"broken off": "interrupted",
    r"goes on from": "resumes from",
    r"rows to learn from": "training rows",
    r"stand-ins?": "fallback",
    r"taken up": "resumed",
    r"what is not to be had": "limitations",
    r"whoever": "name the agent",
    r"whole numbers?": "integer",
}
# Exceptions: (end of a file's path, line's content), each with its reason.
ALLOWED: tuple[tuple[str, str], ...] = (
    # Titles of journals.
    ("docs/reference/bibliography.md", "Journal"),
    ("sampling/column_samplers.py", "Journal"),
    ("sampling/estimators.py", "Journal"),
    ("findings/interactions.py", "Journal"),
)

_TEXT = re.compile(rf"\b({'|'.join(WORDS | PHRASES)})\b", re.IGNORECASE)

# Past participles that do not end in -ed.
_PARTICIPLES = {
    "drawn",
    "given",
    "held",
    "kept",
    "known",
    "made",
    "sent",
    "shown",
    "taken",
    "told",
    "written",
}
_VERBS = {"embed", "feed", "need", "seed", "shed", "speed"}


def offences(path: Path) -> Iterator[str]:
    """Yield what a file says in old words, one line each."""
    text = path.read_text(encoding="utf-8")
    where = path.relative_to(ROOT).as_posix()
    for ending, content in ALLOWED:
        if where.endswith(ending):
            text = text.replace(content, "")
    if path.suffix == ".py":
        for line, name, advice in _names(ast.parse(text)):
            yield f"{where}:{line}: name {name}: {advice}"
    for number, line in enumerate(text.splitlines(), start=1):
        for match in _TEXT.finditer(line):
            yield f"{where}:{number}: text {match[0]!r}: {line.strip()[:90]}"


def _names(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    seen = set()
    for node in ast.walk(tree):
        for name in _names_of(node):
            advice = _advice(name)
            if advice and name not in seen:
                seen.add(name)
                yield node.lineno, name, advice
        if isinstance(node, ast.FunctionDef) and _is_participle(node):
            yield node.lineno, node.name, "a function is named by a verb"


@cache
def _advice(name: str) -> str:
    """Return what a name should say instead of its first old word; empty if it has none."""
    for word in _words(name):
        for pattern, advice in (WORDS | NAMES).items():
            if re.fullmatch(pattern, word):
                return advice
    return ""


def _names_of(node: ast.AST) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return [node.id]
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return [node.attr]
    return []


def _words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def _is_participle(node: ast.FunctionDef) -> bool:
    """Whether a function, not a property or a test, is named by a past participle."""
    if any(isinstance(mark, ast.Name) and "property" in mark.id for mark in node.decorator_list):
        return False
    first = _words(node.name)[:1]
    return (
        bool(first)
        and first[0] not in _VERBS
        and (first[0].endswith("ed") or first[0] in _PARTICIPLES)
    )


def files() -> list[Path]:
    """What people read: the package, its pages and its programs."""
    folders = ("src", "docs", "examples", "benchmarks", "experiments")
    found = [
        path
        for name in folders
        for path in sorted((ROOT / name).rglob("*"))
        if path.suffix in {".py", ".pyi", ".md", ".rst", ".j2", ".js"}
    ]
    return [*found, *sorted(ROOT.glob("*.md"))]


# Packages whose names users import.
PACKAGES = (
    "data",
    "findings",
    "games",
    "knn",
    "payouts",
    "plots",
    "report",
    "runtime",
    "sampling",
    "valuation",
    "valuers",
)


def public_things() -> dict[str, Any]:
    """Return all that users import, by its path below cellworth; a name of cellworth has no dot."""
    cellworth = importlib.import_module("cellworth")
    door = {name: getattr(cellworth, name) for name in cellworth.__all__ if name not in PACKAGES}
    modules = {package: importlib.import_module(f"cellworth.{package}") for package in PACKAGES}
    return door | {
        f"{package}.{name}": getattr(module, name)
        for package, module in modules.items()
        for name in module.__all__
        if name not in door
    }


def parameters_of(thing: Any) -> dict[str, inspect.Parameter]:
    """Return the parameters of a function or of a class; interfaces have none."""
    if getattr(thing, "_is_protocol", False) or not callable(thing):
        return {}
    try:
        return dict(inspect.signature(thing).parameters)
    except ValueError:
        return {}


if __name__ == "__main__":
    if "--public" in sys.argv:
        for path, thing in public_things().items():
            sys.stdout.write(f"{path}({', '.join(parameters_of(thing))})\n")
        sys.exit()
    wanted = [Path(name).resolve() for name in sys.argv[1:]]
    for path in files():
        if not wanted or any(path.is_relative_to(name) for name in wanted):
            sys.stdout.writelines(f"{offence}\n" for offence in offences(path))
