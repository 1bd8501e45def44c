"""The identity of a run: its problem, its tasks, its code and its versions."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from typing import Any

from cellworth.data.io import content_hash
from cellworth.data.problem import Problem
from cellworth.valuation.provenance import ALGORITHM_VERSION, versions


def run_identity(
    problem_spec: dict[str, Any], game: Any, method: Mapping[str, Any]
) -> dict[str, Any]:
    """Return everything that determines the tasks of a run and their results, to the bit."""
    problem = find_problem(game)
    # A game with a model also names the user's code.
    parts = game.parts() if hasattr(game, "parts") else [game]
    return {
        "problem_spec": problem_spec,
        # Columns in single precision, for example, give other bits.
        "types": {} if problem is None else problem.types(),
        "code": [code_sha256(part) for part in parts],
        **method,
        **environment(),
    }


def find_problem(game: Any) -> Problem | None:
    """Return the table and the validation rows of a game; None if it has none."""
    problem = getattr(game, "problem", None)
    return problem if isinstance(problem, Problem) else None


def environment() -> dict[str, Any]:
    """Return the versions that the bits of a result may depend on, for the identity of a run.

    The algorithm version takes the place of the package version: a release that computes the same
    bits resumes the checkpoints of the one before.
    """
    others = {package: number for package, number in versions() if package != "cellworth"}
    return {"algorithm_version": ALGORITHM_VERSION, "versions": others}


def code_sha256(thing: Any) -> str:
    """Hash the code of an object: that of a function, or of its class and base classes."""
    digest = hashlib.sha256()
    if hasattr(thing, "__code__"):
        _add_code(digest, thing)
        return digest.hexdigest()
    for base in type(thing).__mro__[:-1]:
        package = base.__module__.partition(".")[0]
        if package == "cellworth":
            # Its classes may move between modules; ALGORITHM_VERSION identifies their code.
            digest.update(f"{package}.{base.__qualname__}".encode())
            continue
        digest.update(f"{base.__module__}.{base.__qualname__}".encode())
        # A package's version identifies its code; a user's code changes without one.
        released = getattr(sys.modules.get(package), "__version__", None)
        digest.update(str(released).encode())
        if released is None:
            for name, member in sorted(vars(base).items()):
                # Pickling adds this to a class; the hash must not depend on it.
                if name != "__slotnames__":
                    digest.update(name.encode())
                    _add_code(digest, member)
    return digest.hexdigest()


def _add_code(digest: Any, function: Any) -> None:
    code = getattr(function, "__code__", None)
    if code is None:
        return
    digest.update(code.co_code)
    for constant in code.co_consts:
        if hasattr(constant, "co_code"):
            digest.update(constant.co_code + repr(constant.co_names).encode())
        else:
            # The order of a set of strings differs between processes.
            plain = sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant
            digest.update(repr(plain).encode())
    digest.update(repr(code.co_names).encode())
    closure = getattr(function, "__closure__", None) or ()
    digest.update(repr([content_hash(cell.cell_contents) for cell in closure]).encode())
