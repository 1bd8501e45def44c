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
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

# A word of a name, and the word of the glossary.
NAMES = {
    "bench": "shard cache",
    "benches": "shard caches",
    "contrasts": "Banzhaf",
    "course": "run context",
    "crew": "worker pool",
    "described": "spec",
    "design": "sampler or estimator",
    "designs": "samplers or estimators",
    "diary": "checkpoint writer",
    "errand": "Dask task",
    "errands": "Dask tasks",
    "fingerprint": "hash",
    "fingerprints": "hashes",
    "gap": "missing value",
    "gaps": "missing values",
    "grids": "permutations",
    "hands": "map_unordered",
    "journal": "checkpoint",
    "judge": "validation row",
    "judged": "scored",
    "judges": "validation rows",
    "judging": "scoring",
    "kinds": "column types",
    "ledger": "checkpoint",
    "looks": "utility log",
    "mend": "fix",
    "mended": "fixed",
    "nobody": "none",
    "parcel": "shared pickle",
    "place": "index or position",
    "places": "indices or positions",
    "question": "problem",
    "questions": "task schedule",
    "refill": "fill",
    "refills": "fills",
    "refuse": "check",
    "refused": "check",
    "seal": "digest",
    "sealed": "digest",
    "spread": "scale or variance",
    "spreads": "scales or variances",
    "station": "shard assignment",
    "stations": "shard assignments",
    "strips": "iter_rows",
    "suspicion": "anomaly score",
    "suspicions": "anomaly scores",
    "sweep": "pass",
    "sweeps": "passes",
    "told": "reported",
    "unearned": "baseline",
    "whole": "integer",
    "wholes": "integers",
    "worth": "value",
    "worths": "values",
}

# What prose no longer says, and what it says instead.
PHRASES = {
    r"broken off": "interrupted",
    r"crews?": "worker pool",
    r"diar(y|ies)": "checkpoint writer",
    r"errands?": "Dask task",
    r"fingerprints?": "hash",
    r"gaps?": "missing value",
    r"goes on from": "resumes from",
    r"journals?": "checkpoint",
    r"judg(e|es|ed|ing)": "validation rows; score",
    r"ledgers?": "checkpoint",
    r"mend(s|ed|ing)?": "fix",
    r"nobody": "no one; name the agent",
    r"parcels?": "shared pickle",
    r"refill(s|ed|ing)?": "fill",
    r"rows to learn from": "training rows",
    r"seal(s|ed|ing)?": "digest",
    r"stand-ins?": "fallback",
    r"suspicions?": "anomaly score",
    r"sweeps?": "pass",
    r"taken up": "resumed",
    r"told": "reported; distinguished",
    r"what is not to be had": "limitations",
    r"whoever": "name the agent",
    r"whole numbers?": "integer",
}
# Exceptions: (end of a file's path, line's content), each with its reason.
ALLOWED: tuple[tuple[str, str], ...] = (
    # Titles of journals.
    ("docs/explanation/bibliography.md", "Journal"),
    ("sampling/column_samplers.py", "Journal"),
    ("sampling/estimators.py", "Journal"),
    ("diagnostics/interactions.py", "Journal"),
    # Keys of results that were recorded before the words changed.
    ("benchmarks/battery.py", "fingerprint|"),
    ("benchmarks/battery.py", "question|"),
    ("benchmarks/battery.py", "|seal"),
    # An adjective: the value of a game as a DetailedUtility.
    ("games/model.py", "detailed_"),
    ("experiments/baselines.py", "detailed_"),
    ("payouts/owner_players.py", "detailed_"),
    ("experiments/model_coverage.py", "detailed_"),
)

_PHRASES = re.compile(rf"\b({'|'.join(PHRASES)})\b", re.IGNORECASE)

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
        for line, name, word in _names(ast.parse(text)):
            yield f"{where}:{line}: name {name}: {NAMES.get(word, word)}"
    for number, line in enumerate(text.splitlines(), start=1):
        for match in _PHRASES.finditer(line):
            yield f"{where}:{number}: text {match[0]!r}: {line.strip()[:90]}"


def _names(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    seen = set()
    for node in ast.walk(tree):
        for name in _names_of(node):
            for word in _words(name):
                if word in NAMES and (name, word) not in seen:
                    seen.add((name, word))
                    yield node.lineno, name, word
        if isinstance(node, ast.FunctionDef) and _is_participle(node):
            yield node.lineno, node.name, "a function is named by a verb"


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
    "diagnostics",
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
