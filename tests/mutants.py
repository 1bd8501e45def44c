"""Change the package in one place at a time, and see whether a test of a push notices.

    python tests/mutants.py                                   # 300 changes, two at a time
    python tests/mutants.py --count 15 --packages sampling
    python tests/mutants.py --traced FOLDER                   # keep the trace, or use the one there

The tests of a push run once, traced: which test runs which line, and how long it takes. Each change
is then made in a copy of the tree, and faces the tests that run its statement, those of its package
first and quick ones before slow ones, until one fails or the time is over. What no test is known to
run (modules while they load, other processes, compiled code) faces tests of its package and of
those that use it. Every result is printed with its file and line.
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
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from xml.etree import ElementTree

import coverage
import pytest

ROOT = Path(__file__).resolve().parents[1]
# Tests of each package, and of those that use it: for what no test is known to run.
TESTS = {
    "knn": ["knn", "valuers/test_knn_valuer.py", "valuers", "test_agreement.py"],
    "sampling": ["sampling", "valuers", "games", "knn"],
    "runtime": ["runtime", "valuers/test_model_valuer.py", "test_resume.py", "cli"],
    "valuation": ["valuation", "valuers/test_columns.py", "report", "plots", "cli"],
    "payouts": ["payouts", "cli", "report"],
    "findings": ["findings", "valuers", "cli"],
    "data": ["data", "cli", "valuers"],
    "games": ["games", "valuers"],
    "valuers": ["valuers", "test_agreement.py", "cli"],
    "plots": ["plots", "report"],
    "report": ["report", "cli"],
    "cli": ["cli"],
}
# Beyond its tests: pytest starts, and kernels are compiled.
MAX_SECONDS_BESIDE_TESTS = 240
# Options of pytest for the tests of a push.
PUSH = ["-m", "not nightly", "-p", "no:cacheprovider"]
_BEGAN = pytest.StashKey[float]()


# As a plugin of pytest ---------------------------------------------------------------------------


def pytest_collection_modifyitems(items: list[Any], config: Any) -> None:
    """Keep the tests that are listed, in the order of the list."""
    listed = os.environ.get("MUTANT_TESTS")
    if listed:
        names = Path(listed).read_text(encoding="utf-8").splitlines()
        places = {name: i for i, name in enumerate(names)}
        found = [item for item in items if item.nodeid in places]
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in places])
        items[:] = sorted(found, key=lambda item: places[item.nodeid])


def pytest_runtest_setup(item: Any) -> None:
    """Skip what is left when the time is over."""
    # CPU time of this process and of those that ended.
    now = sum(os.times()[:4])
    began = item.config.stash.setdefault(_BEGAN, now)
    if now - began > float(os.environ.get("MUTANT_SECONDS", "inf")):
        pytest.skip("no time left")


# Which test runs which line ----------------------------------------------------------------------


@dataclass(frozen=True)
class Trace:
    """One run of the tests of a push: the seconds of each test, and the lines that it runs."""

    seconds: dict[str, float]
    lines: coverage.CoverageData

    @classmethod
    def read(cls, folder: Path) -> Trace:
        """Read what :func:`record` wrote."""
        lines = coverage.CoverageData(str(folder / "coverage"))
        lines.read()
        # The report names a test by its module and name, contexts by its file and name.
        contexts = {_to_id(context) for context in lines.measured_contexts()}
        ids = {_to_report_name(name): name for name in contexts}
        seconds = {}
        for case in ElementTree.parse(folder / "tests.xml").iter("testcase"):  # noqa: S314 (ours)
            name = f"{case.get('classname')}.{case.get('name')}"
            seconds[ids.get(name, name)] = float(case.get("time", "0"))
        return cls(seconds, lines)

    def find_tests(self, mutant: Mutant) -> list[str]:
        """Return the tests that run the statement of a change, or those of its package."""
        ending = f"/{Path(mutant.path).relative_to('src').as_posix()}"
        found: set[str] = set()
        for path in self.lines.measured_files():
            if path.endswith(ending):
                by_line = self.lines.contexts_by_lineno(path)
                found.update(
                    _to_id(name) for line in mutant.statement for name in by_line.get(line, [])
                )
        found &= self.seconds.keys()
        if found:
            own = f"tests/{mutant.package}/"
            return sorted(found, key=lambda name: (not name.startswith(own), self.seconds[name]))
        places = [f"tests/{name}" for name in TESTS[mutant.package]]
        return sorted(
            (name for name in self.seconds if name.startswith(tuple(places))),
            key=lambda name: (
                next(i for i, place in enumerate(places) if name.startswith(place)),
                self.seconds[name],
            ),
        )


def _to_id(context: str) -> str:
    """Return the test of a context, which is followed by setup, run or teardown."""
    return context.rpartition("|")[0]


def _to_report_name(name: str) -> str:
    test, bracket, parameters = name.partition("[")
    path, _, function = test.partition("::")
    module = path.removesuffix(".py").replace("/", ".")
    return f"{module}.{function.replace('::', '.')}{bracket}{parameters}"


def record(folder: Path) -> None:
    """Run the tests of a push, traced."""
    folder.mkdir(parents=True, exist_ok=True)
    given = {"COVERAGE_FILE": str(folder / "coverage")}
    subprocess.run(  # noqa: S603 (this interpreter, our own tests)
        [
            sys.executable, "-m", "pytest", *PUSH, "-n", "2", "-q", "--cov", "--cov-context=test",
            "--cov-report=", f"--junitxml={folder / 'tests.xml'}", "tests",
        ],
        cwd=ROOT, env=os.environ | given, check=True,
    )  # fmt: skip


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
    # Lines of its statement, without those of statements inside.
    statement: range

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
    tree = ast.parse(text)
    statements = _find_statements(tree)
    for node in _expressions(tree):
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        for changed in _changes(node):
            after = ast.unparse(changed)
            after = f"({after})" if isinstance(node, ast.expr) else after
            before, lines = ast.unparse(node), statements[id(node)]
            found.append(Mutant(path, node.lineno, before, after, begin, end, lines))
    return found


def _find_statements(tree: ast.Module) -> dict[int, range]:
    """Return the lines of the innermost statement around each expression."""
    lines = {}
    for statement in ast.walk(tree):  # outer ones first
        if isinstance(statement, ast.stmt):
            body = getattr(statement, "body", None)
            last = body[0].lineno - 1 if body else statement.end_lineno
            found = range(statement.lineno, max(last, statement.lineno) + 1)
            lines.update((id(node), found) for node in ast.walk(statement))
    return lines


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


def try_tests(tests: list[str], folder: Path, cache: Path, limit: float) -> str:
    """Run these tests of a tree; return "survived", "killed" or "without an end"."""
    listed = folder.parent / "tests.txt"
    listed.write_text("\n".join(tests), encoding="utf-8")
    files = sorted({name.partition("::")[0] for name in tests})
    given = {
        "PYTHONPATH": os.pathsep.join(str(folder / name) for name in ("src", "tests")),
        "NUMBA_CACHE_DIR": str(cache), "WARMED_UP": str(folder / "warmed-up"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "MUTANT_TESTS": str(listed), "MUTANT_SECONDS": str(limit),
    }  # fmt: skip
    running = subprocess.Popen(  # noqa: S603 (this interpreter, our own tests)
        [sys.executable, "-m", "pytest", "-p", "mutants", *PUSH, "-n", "0", "-x", "-q", *files],
        cwd=folder, env=os.environ | given, start_new_session=True,
        stdout=(folder.parent / "last.log").open("w"), stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        code = running.wait(4 * limit + MAX_SECONDS_BESIDE_TESTS)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        return "without an end"
    # 2, 3, 4: a module does not load.
    return {0: "survived"}.get(code, "killed" if code in {1, 2, 3, 4} else f"ended with {code}")


def try_mutant(mutant: Mutant, tests: list[str], folder: Path, limit: float) -> str:
    """Return what the tests make of a change."""
    path = folder / mutant.path
    original = path.read_text(encoding="utf-8")
    path.write_text(mutant.apply(original), encoding="utf-8")
    try:
        # A compiled caller in the cache keeps the callee of before.
        is_compiled = mutant.path.endswith("kernels.py")
        cache = Path(tempfile.mkdtemp(dir=folder.parent)) if is_compiled else folder / "numba"
        # To import the tests of all packages takes longer than most tests.
        n_own = sum(name.startswith(f"tests/{mutant.package}/") for name in tests)
        results = (
            try_tests(part, folder, cache, limit) for part in (tests[:n_own], tests[n_own:]) if part
        )
        return next((result for result in results if result != "survived"), "survived")
    finally:
        path.write_text(original, encoding="utf-8")


def choose_tests(tests: list[str], trace: Trace, limit: float) -> list[str]:
    """Return the first tests that fit into the limit, at least one."""
    total = list(accumulate(trace.seconds[name] for name in tests))
    return [name for name, so_far in zip(tests, total, strict=True) if so_far <= limit] or tests[:1]


def run_all(mutants: list[Mutant], trace: Trace, n_jobs: int, limit: float) -> list[str]:
    """Try all changes, some at a time; print what became of each."""
    tests = [choose_tests(trace.find_tests(mutant), trace, limit) for mutant in mutants]
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(n_jobs) as pool:
        folders: SimpleQueue[Path] = SimpleQueue()
        for number in range(n_jobs):
            folders.put(copy_tree(Path(temporary) / str(number) / "tree"))

        def work(mutant: Mutant, chosen: list[str]) -> str:
            folder = folders.get()
            try:
                result = try_mutant(mutant, chosen, folder, limit)
            finally:
                folders.put(folder)
            print(f"{result} ({len(chosen)} tests): {mutant}", flush=True)  # noqa: T201
            return result

        # Tests that fail anyway would notice every change.
        chosen = sorted(set().union(*tests), key=lambda name: trace.seconds[name])
        tree = folders.get()
        result = try_tests(choose_tests(chosen, trace, limit), tree, tree / "numba", limit)
        if result != "survived":
            told = (tree.parent / "last.log").read_text(encoding="utf-8")
            raise SystemExit(f"tests fail without a change:\n{told}")
        folders.put(tree)
        return list(pool.map(work, mutants, tests))


def main() -> None:
    """Trace, draw, try and count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--packages", nargs="+", default=list(TESTS), choices=list(TESTS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--traced", type=Path, help="folder of the trace; default: a temporary one")
    parser.add_argument(
        "--seconds", type=float, default=120, help="CPU time of tests, for each change"
    )
    given = parser.parse_args()
    os.environ.setdefault("CELLWORTH_DATA", str(ROOT.parent / "shared" / "data"))
    with tempfile.TemporaryDirectory() as temporary:
        folder = (given.traced or Path(temporary)).absolute()
        if not (folder / "tests.xml").exists():
            record(folder)
        trace = Trace.read(folder)
        mutants = draw_mutants(given.packages, given.count, given.seed)
        results = run_all(mutants, trace, given.jobs, given.seconds)
    counts: dict[str, list[bool]] = defaultdict(list)
    for mutant, result in zip(mutants, results, strict=True):
        counts[mutant.package].append(result != "survived")
        counts["all"].append(result != "survived")
    for package, killed in counts.items():
        print(f"{package}: {sum(killed)} of {len(killed)} killed")  # noqa: T201


if __name__ == "__main__":
    main()
