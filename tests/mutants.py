"""Change the package in one place at a time, and see whether a test of a push notices.

    python tests/mutants.py                                   # 150 changes, two at a time
    python tests/mutants.py --count 15 --packages sampling

Each change is made in a copy of the tree. The tests of a push follow, quick ones first: those of
the same package, then those of packages that use it, until one fails or the time is over. What no
test notices is printed with its file and line.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Tests of each package, and of those that use it.
TESTS = {
    "knn": ["knn", "valuers/test_knn_valuer.py", "valuers", "test_agreement.py"],
    "sampling": ["sampling", "valuers", "games", "knn"],
    "runtime": ["runtime", "valuers/test_model_valuer.py", "test_resume.py", "cli"],
    "valuation": ["valuation", "valuers/test_columns.py", "report", "plots", "cli"],
    "payouts": ["payouts", "cli", "report"],
    "findings": ["findings", "valuers", "cli"],
}
# Beyond its tests: pytest starts, and kernels are compiled.
MAX_SECONDS_BESIDE_TESTS = 240
_BEGAN = pytest.StashKey[float]()


# As a plugin of pytest ---------------------------------------------------------------------------


def pytest_collection_modifyitems(items: list[Any], config: Any) -> None:
    """Put quick tests of the first folder first, then its slow ones, then those of others."""
    places = os.environ.get("MUTANT_TESTS", "").split(os.pathsep)

    def order(item: Any) -> tuple[int, bool]:
        place = next(i for i, name in enumerate(places) if item.nodeid.startswith(f"tests/{name}"))
        return place, item.get_closest_marker("slow") is not None

    if any(places):
        items.sort(key=order)


def pytest_runtest_setup(item: Any) -> None:
    """Skip what is left when the time is over."""
    # CPU time of this process and of those that ended.
    now = sum(os.times()[:4])
    began = item.config.stash.setdefault(_BEGAN, now)
    if now - began > float(os.environ.get("MUTANT_SECONDS", "inf")):
        pytest.skip("no time left")


# Changes -----------------------------------------------------------------------------------------

SWAPPED: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.And: ast.Or, ast.Or: ast.And,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One changed expression of one file."""

    path: str
    line: int
    before: str
    after: str
    # Where the expression is, in bytes of the file.
    begin: int
    end: int

    @property
    def package(self) -> str:
        return Path(self.path).parent.name

    def apply(self, text: str) -> str:
        """Return the text of the file with the change."""
        content = text.encode()
        return (content[: self.begin] + self.after.encode() + content[self.end :]).decode()

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.before}  ->  {self.after}"


def find_mutants(path: str) -> list[Mutant]:
    """Return every single change of a file."""
    text = (ROOT / path).read_text(encoding="utf-8")
    starts = [0, *accumulate(len(line.encode()) for line in text.splitlines(keepends=True))]
    found = []
    for node in _expressions(ast.parse(text)):
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        for changed in _changes(node):
            after = ast.unparse(changed)
            after = f"({after})" if isinstance(node, ast.expr) else after
            found.append(Mutant(path, node.lineno, ast.unparse(node), after, begin, end))
    return found


def _expressions(node: ast.AST, *, in_function: bool = False) -> Iterator[Any]:
    """Yield what can be changed: no annotations, decorators, texts and messages of errors."""
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert | ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.expr | ast.AugAssign) and (in_function or _is_number(node)):
        yield node
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "bases"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_type_check(node, child):
                inside = in_function or isinstance(node, ast.FunctionDef)
                yield from _expressions(child, in_function=inside)


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in {int, float}


def _is_type_check(node: ast.AST, child: ast.AST) -> bool:
    """Whether a child is a union of types: isinstance(x, A | B), cast(A | B, x)."""
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return is_call and node.func.id in {"isinstance", "cast"} and child is not node.func


def _changes(node: Any) -> Iterator[ast.AST]:
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in SWAPPED:
        yield _with(node, op=SWAPPED[type(node.op)]())
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult):
        yield node.left
    if isinstance(node, ast.BoolOp):
        yield _with(node, values=node.values[:-1]) if len(node.values) > 2 else node.values[0]
    if isinstance(node, ast.Compare):
        yield _with(node, ops=[SWAPPED[type(node.ops[0])](), *node.ops[1:]])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
        yield node.operand
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif _is_number(node):
        yield ast.Constant(node.value + 1 if isinstance(node.value, int) else node.value * 2 + 0.1)


def _with(node: ast.AST, **fields: Any) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def draw_mutants(packages: list[str], count: int, seed: int) -> list[Mutant]:
    """Draw changes, as many of each package."""
    rng, drawn = random.Random(seed), []  # noqa: S311 (a seed is wanted)
    for number, package in enumerate(packages):
        files = sorted((ROOT / "src" / "cellworth" / package).glob("*.py"))
        paths = [path.relative_to(ROOT).as_posix() for path in files]
        found = [mutant for path in paths for mutant in find_mutants(path)]
        share = count // len(packages) + (number < count % len(packages))
        drawn += rng.sample(found, share)
    return drawn


# Running -----------------------------------------------------------------------------------------


def copy_tree(folder: Path) -> Path:
    """Copy what git knows, with the kernels compiled; data sets are found as before."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"],  # noqa: S607 (the one of the developer)
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split("\0")  # fmt: skip
    for name in filter(None, listed):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    given = {"PYTHONPATH": str(folder / "src"), "NUMBA_CACHE_DIR": str(folder / "warmed-up")}
    subprocess.run(
        [sys.executable, "-m", "cellworth", "warm-up"],
        cwd=folder, env=os.environ | given, check=True, capture_output=True,
    )  # fmt: skip
    shutil.copytree(folder / "warmed-up", folder / "numba")
    return folder


def try_mutant(mutant: Mutant, folder: Path, limit: float) -> str:
    """Return whether a change was "killed" or "survived"."""
    path, tests = folder / mutant.path, TESTS[mutant.package]
    original = path.read_text(encoding="utf-8")
    path.write_text(mutant.apply(original), encoding="utf-8")
    # A compiled caller in the cache keeps the callee of before.
    cache = "changed" if mutant.path.endswith("kernels.py") else "numba"
    given = {
        "PYTHONPATH": os.pathsep.join(str(folder / name) for name in ("src", "tests")),
        "NUMBA_CACHE_DIR": str(folder / cache), "WARMED_UP": str(folder / "warmed-up"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "MUTANT_TESTS": os.pathsep.join(tests), "MUTANT_SECONDS": str(limit),
    }  # fmt: skip
    running = subprocess.Popen(  # noqa: S603 (this interpreter, our own tests)
        [
            sys.executable, "-m", "pytest", "-p", "mutants", "-p", "no:cacheprovider", "-n", "0",
            "-m", "not nightly", "-x", "-q", *(f"tests/{name}" for name in tests),
        ],
        cwd=folder, env=os.environ | given, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        # Without an end, or much slower: noticed.
        code = running.wait(4 * limit + MAX_SECONDS_BESIDE_TESTS)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        code = 1
    finally:
        path.write_text(original, encoding="utf-8")
        shutil.rmtree(folder / "changed", ignore_errors=True)
    # 2, 3, 4: a module does not load.
    return {0: "survived"}.get(code, "killed" if code in {1, 2, 3, 4} else f"ended with {code}")


def run_all(mutants: list[Mutant], n_jobs: int, limit: float) -> list[str]:
    """Try all changes, some at a time; print those that no test noticed."""
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(n_jobs) as pool:
        folders: SimpleQueue[Path] = SimpleQueue()
        for number in range(n_jobs):
            folders.put(copy_tree(Path(temporary) / str(number) / "tree"))

        def work(mutant: Mutant) -> str:
            folder = folders.get()
            try:
                return try_mutant(mutant, folder, limit)
            finally:
                folders.put(folder)

        results = []
        for mutant, result in zip(mutants, pool.map(work, mutants), strict=True):
            results.append(result)
            if result != "killed":
                print(f"{result}: {mutant}", flush=True)  # noqa: T201
    return results


def main() -> None:
    """Draw, try and count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--packages", nargs="+", default=list(TESTS), choices=list(TESTS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--seconds", type=float, default=120, help="CPU time of tests, for each change"
    )
    given = parser.parse_args()
    os.environ.setdefault("CELLWORTH_DATA", str(ROOT.parent / "shared" / "data"))
    mutants = draw_mutants(given.packages, given.count, given.seed)
    first = {mutant.package: mutant for mutant in mutants}.values()
    unchanged = [
        replace(mutant, before="unchanged", after="", end=mutant.begin) for mutant in first
    ]
    # Tests that fail anyway would notice every change.
    if "killed" in run_all(unchanged, given.jobs, given.seconds):
        raise SystemExit("tests fail without a change")
    counts: dict[str, list[bool]] = defaultdict(list)
    results = run_all(mutants, given.jobs, given.seconds)
    for mutant, result in zip(mutants, results, strict=True):
        counts[mutant.package].append(result == "killed")
        counts["all"].append(result == "killed")
    for package, killed in counts.items():
        print(f"{package}: {sum(killed)} of {len(killed)} killed")  # noqa: T201


if __name__ == "__main__":
    main()
