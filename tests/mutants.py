"""Change the package in one place at a time, and see whether a test of a push notices.

    python tests/mutants.py --map map.json                    # 150 changes, two at a time
    python tests/mutants.py --map small.json --count 15 --packages sampling --tests tests/sampling

The map says which tests run which line, and how long they take. It is recorded if the file is not
there: all tests of a push once, and those of kernels once more without compiling. Each change is
made in a copy of the tree; tests that run its line follow, those of the same package first and
quick ones first, until one fails. What no test notices is printed with its file and line.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
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

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("knn", "sampling", "runtime", "valuation", "payouts", "findings")
KERNEL_TESTS = ("tests/knn", "tests/valuers/test_knn_valuer.py", "tests/test_agreement.py")
MAX_TESTS = 400
# Compiled kernels cannot be traced, and a caller in the cache keeps the callee of before.
WITHOUT_COMPILING = {"NUMBA_DISABLE_JIT": "1"}


# As a plugin of pytest ---------------------------------------------------------------------------


def pytest_collection_modifyitems(items: list[Any], config: Any) -> None:
    """Keep the tests that a file names, in its order."""
    if "MUTANT_TESTS" in os.environ:
        wanted = json.loads(Path(os.environ["MUTANT_TESTS"]).read_text(encoding="utf-8"))
        found = {item.nodeid: item for item in items}
        items[:] = [found[name] for name in wanted if name in found]


def pytest_runtest_logreport(report: Any) -> None:
    """Write down how long a test that passed took."""
    if "MUTANT_SECONDS" in os.environ and report.when == "call" and report.passed:
        with Path(os.environ["MUTANT_SECONDS"]).open("a", encoding="utf-8") as file:
            file.write(json.dumps([report.nodeid, round(report.duration, 3)]) + "\n")


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


# The map -----------------------------------------------------------------------------------------


def record_map(folder: Path, tests: list[str], n_jobs: int) -> dict[str, Any]:
    """Return the tests of each line of each file, and the seconds of each test that passes."""
    lines: dict[str, dict[int, list[str]]] = {}
    seconds: dict[str, dict[str, float]] = {}
    of_kernels = [path for path in KERNEL_TESTS if any(path.startswith(each) for each in tests)]
    runs = {"compiled": ({}, tests), "plain": (WITHOUT_COMPILING, of_kernels)}
    for name, (environment, chosen) in runs.items():
        if not chosen:
            continue
        log, settings = folder / f"{name}.jsonl", folder / f"{name}.rc"
        omitted = "*/knn/*kernels.py" if name == "compiled" else ""
        settings.write_text(
            f"[run]\nsource_pkgs = cellworth\nconcurrency = thread\nomit = {omitted}\n"
        )
        given = {"MUTANT_SECONDS": str(log), "COVERAGE_FILE": str(folder / f"{name}.coverage")}
        _pytest(
            folder, "-n", str(n_jobs), "-m", "not nightly", "-q", "--timeout=120", "--cov",
            f"--cov-config={settings}", "--cov-context=test", "--cov-report=", *chosen,
            environment=environment | given,
        ).wait()  # fmt: skip
        if not log.exists():
            raise SystemExit("no test passed: there is no map of them")
        seconds[name] = dict(map(json.loads, log.read_text(encoding="utf-8").splitlines()))
        for path, found in _read_coverage(folder, given["COVERAGE_FILE"]).items():
            if path.endswith("kernels.py") == (name == "plain"):
                lines[path] = found
    return {"lines": lines, "seconds": seconds}


def _read_coverage(folder: Path, file: str) -> dict[str, dict[int, list[str]]]:
    from coverage import CoverageData

    data = CoverageData(file)
    data.read()
    return {
        Path(path).relative_to(folder).as_posix(): {
            line: sorted({context.split("|")[0] for context in contexts if context})
            for line, contexts in data.contexts_by_lineno(path).items()
        }
        for path in data.measured_files()
    }


def choose_tests(mutant: Mutant, known: dict[str, Any], limit: float) -> list[str]:
    """Return the tests that may notice a change: its package's first, then quick ones first."""
    is_kernel = mutant.path.endswith("kernels.py")
    seconds = known["seconds"].get("plain" if is_kernel else "compiled", {})
    lines = known["lines"].get(mutant.path, {})
    # What runs when a module is loaded is noticed by any test that uses it.
    names = lines.get(str(mutant.line)) or {name for found in lines.values() for name in found}
    mirror = f"tests/{mutant.package}/"
    ordered = sorted(
        (name for name in names if name in seconds),
        key=lambda name: (not name.startswith(mirror), seconds[name]),
    )
    chosen, spent = [], 0.0
    for name in ordered[:MAX_TESTS]:
        spent += seconds[name]
        if chosen and spent > limit:
            break
        chosen.append(name)
    return chosen


# Running -----------------------------------------------------------------------------------------


def _pytest(
    folder: Path, *arguments: str, environment: dict[str, str], output: int | None = None
) -> Any:
    paths = os.pathsep.join(str(folder / name) for name in ("src", "tests"))
    given = {"PYTHONPATH": paths, "NUMBA_CACHE_DIR": str(folder / "numba")}
    return subprocess.Popen(  # noqa: S603 (this interpreter, our own tests)
        [sys.executable, "-m", "pytest", "-p", "mutants", "-p", "no:cacheprovider", *arguments],
        cwd=folder, env=os.environ | given | environment, start_new_session=True,
        stdout=output, stderr=output,
    )  # fmt: skip


def copy_tree(folder: Path) -> Path:
    """Copy what git knows, with the kernels compiled; data sets are found as before."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"],  # noqa: S607 (the one of the developer)
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split("\0")  # fmt: skip
    for name in filter(None, listed):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    given = {"PYTHONPATH": str(folder / "src"), "NUMBA_CACHE_DIR": str(folder / "numba")}
    subprocess.run(
        [sys.executable, "-m", "cellworth", "warm-up"],
        cwd=folder, env=os.environ | given, check=True, capture_output=True,
    )  # fmt: skip
    return folder


def try_mutant(mutant: Mutant, folder: Path, tests: list[str], limit: float) -> str:
    """Return whether a change was "killed", "survived", or is not "run" by any test."""
    if not tests:
        return "run by no test"
    path, names = folder / mutant.path, folder / "tests.json"
    original = path.read_text(encoding="utf-8")
    names.write_text(json.dumps(tests), encoding="utf-8")
    environment = {"MUTANT_TESTS": str(names), "PYTHONDONTWRITEBYTECODE": "1"}
    if mutant.path.endswith("kernels.py"):
        environment |= WITHOUT_COMPILING
    files = sorted({name.split("::")[0] for name in tests})
    path.write_text(mutant.apply(original), encoding="utf-8")
    running = _pytest(
        folder, "-n", "0", "-m", "", "-x", "-q", *files,
        environment=environment, output=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        # Without an end, or much slower: noticed.
        code = running.wait(4 * limit + 120)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        code = 1
    finally:
        path.write_text(original, encoding="utf-8")
    # 2: a module does not load.
    return {0: "survived", 1: "killed", 2: "killed"}.get(code, f"pytest ended with {code}")


def run_all(mutants: list[Mutant], known: dict[str, Any], n_jobs: int, limit: float) -> list[str]:
    """Try all changes, some at a time; print those that no test noticed."""
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(n_jobs) as pool:
        folders: SimpleQueue[Path] = SimpleQueue()
        for number in range(n_jobs):
            folders.put(copy_tree(Path(temporary) / str(number) / "tree"))

        def work(mutant: Mutant) -> str:
            folder = folders.get()
            try:
                return try_mutant(mutant, folder, choose_tests(mutant, known, limit), limit)
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
    parser.add_argument("--map", type=Path, required=True, help="JSON file; recorded if absent")
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--packages", nargs="+", default=list(PACKAGES))
    parser.add_argument("--tests", nargs="+", default=["tests"], help="files of the map")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60, help="of tests, for each change")
    given = parser.parse_args()
    os.environ.setdefault("CELLWORTH_DATA", str(ROOT.parent / "shared" / "data"))
    if not given.map.exists():
        with tempfile.TemporaryDirectory() as temporary:
            tree = copy_tree(Path(temporary).resolve() / "tree")
            given.map.write_text(
                json.dumps(record_map(tree, given.tests, given.jobs)), encoding="utf-8"
            )
    known = json.loads(given.map.read_text(encoding="utf-8"))
    mutants = draw_mutants(given.packages, given.count, given.seed)
    counts: dict[str, list[bool]] = defaultdict(list)
    results = run_all(mutants, known, given.jobs, given.seconds)
    for mutant, result in zip(mutants, results, strict=True):
        counts[mutant.package].append(result == "killed")
        counts["all"].append(result == "killed")
    for package, killed in counts.items():
        print(f"{package}: {sum(killed)} of {len(killed)} killed")  # noqa: T201


if __name__ == "__main__":
    main()
