"""Run an experiment by name: flags in, figures out, on the screen and in files.

    python -m experiments                           # list all
    python -m experiments detection --help          # its flags
    python -m experiments detection --quick         # small, to see that it runs
    python -m experiments detection --out docs/results
    python -m experiments --docs                    # copy docs/results into the pages

An experiment is a module of this package with a function ``run``. Its parameters are the flags;
``QUICK`` has those of ``--quick``; with ``--keep FOLDER`` a run that was stopped continues there.
It returns tables by title: lists of rows, which map names to strings, numbers or a ``Mean``. A
function ``draw``, if there is one, makes a picture of the result.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import inspect
import json
import math
import os
import pkgutil
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pooch
from scipy.stats import binomtest

import cellworth

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
_HELPERS = {
    "__main__",
    "audit_tables",
    "baselines",
    "cell_scores",
    "frame",
    "mixture",
    "paper",
    "race_estimators",
    "rival_programs",
    "tables",
    "tree_games",
}
# Where things are on one machine is no part of a result.
_PATHS = {"data", "keep", "python"}
_PACKAGES = ("cellworth", "numpy", "scikit-learn", "numba")
_BEGAN = time.perf_counter()
# CPU seconds of parts that an earlier run kept.
_earlier: list[float] = []
# A table of a page: NAME is that of a file in docs/results, TITLE one of its tables; names of
# columns may follow, each after " > ". A single figure: TITLE > first cells of the row > column.
_IN_A_PAGE = re.compile(r"(<!-- result: (\S+) (.*?) -->\n).*?(<!-- end of result -->)", re.DOTALL)
_FIGURE = re.compile(r"(<!-- figure: (\S+) (.*?) -->).*?(<!-- -->)", re.DOTALL)

Row = dict[str, Any]
Tables = dict[str, list[Row]]


class Mean(NamedTuple):
    """A mean, its standard error, and of how many independent numbers it is."""

    mean: float
    se: float
    n: int

    @classmethod
    def of(cls, numbers: Iterable[float]) -> Mean:
        """Return the mean of some numbers; one alone has no standard error."""
        known = np.array([x for x in numbers if not math.isnan(x)], dtype=float)
        error = known.std(ddof=1) / math.sqrt(len(known)) if len(known) > 1 else math.nan
        return cls(float(known.mean()) if len(known) else math.nan, float(error), len(known))


def means(rows: Iterable[Row] | pd.DataFrame, by: Sequence[str], over: str | None = None) -> Any:
    """Return a row per group with the ``Mean`` of every other numeric column.

    If ``over`` is given, numbers are averaged within each of its categories first: runs on one
    table are similar, only tables are independent.
    """
    frame = pd.DataFrame(rows)
    if over:
        frame = frame.groupby([*by, over], sort=False).mean(numeric_only=True).reset_index()
    figures = frame.drop(columns=[*by]).select_dtypes("number").columns
    return [
        dict(zip(by, key, strict=True)) | {name: Mean.of(part[name]) for name in figures}
        for key, part in frame.groupby(list(by), sort=False)
    ]


def sign_tests(differences: pd.DataFrame) -> pd.DataFrame:
    """Return how many differences of each column are positive, with the p-value of a sign test.

    The index names tables (last level) and what is tested on them. Differences of 0 and NaN do not
    count. P-values are two-sided and corrected for all tests of the result (Holm).
    """
    tested = differences.groupby(level=list(range(differences.index.nlevels - 1)), sort=False)
    won = tested.agg(lambda column: (column > 0).sum()).stack()
    of = tested.agg(lambda column: ((column != 0) & column.notna()).sum()).stack()
    chance = pd.Series([binomtest(k, n).pvalue if n else 1.0 for k, n in zip(won, of, strict=True)])
    order = np.argsort(chance, kind="stable")
    steps = chance.iloc[order] * np.arange(len(chance), 0, -1)
    chance.iloc[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    shown = [f"{k} of {n} (p = {p:.2g})" for k, n, p in zip(won, of, chance, strict=True)]
    return pd.Series(shown, won.index).unstack(sort=False)


def compute_part(keep: str, name: str, compute: Callable[[], list[Row]]) -> Row:
    """Return rows of a part and its CPU seconds.

    If a folder is named, a part is computed only once by the same code.
    """
    file = Path(keep) / digest_of_code() / f"{name}.json"
    if keep and file.exists():
        found = json.loads(file.read_text(encoding="utf-8"))
        _earlier.append(found["seconds"])
        return dict(found)
    found = dict(zip(("rows", "seconds"), spend(compute), strict=True))
    if keep:
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(found), encoding="utf-8")
        unfinished.replace(file)
    return found


@cache
def digest_of_code() -> str:
    """Return a digest of the code of the package and of all experiments."""
    read = hashlib.sha256()
    for folder in (Path(cellworth.__file__).parent, Path(__file__).parent):
        for path in sorted(folder.rglob("*.py")):
            read.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    return read.hexdigest()[:12]


def find_commit() -> str:
    """Return the commit of the checkout, after which ``+`` says that code has changed since."""
    head = _ask_git("rev-parse", "HEAD")
    return f"{head}+" if _ask_git("status", "--porcelain", "--", "src", "experiments") else head


def _ask_git(*arguments: str) -> str:
    asked = subprocess.run(  # noqa: S603 (our own arguments)
        ["git", *arguments],  # noqa: S607 (the one of the developer)
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return asked.stdout.strip()


def log(*what: object) -> None:
    """Say how far an experiment is."""
    print(f"{time.perf_counter() - _BEGAN:6.0f} s ", *what, file=sys.stderr, flush=True)


def spend(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return what a function returns, and its CPU seconds."""
    began = time.process_time()
    return work(), time.process_time() - began


def find_folder() -> Path:
    """Return the folder of the tables: by environment, beside the checkout, or the user's cache."""
    beside = ROOT.parent / "shared" / "data"
    if "CELLWORTH_DATA" in os.environ:
        return Path(os.environ["CELLWORTH_DATA"])
    return beside if beside.is_dir() else Path(pooch.os_cache("cellworth"))


def names() -> list[str]:
    """Return the names of all experiments."""
    found = pkgutil.iter_modules([str(Path(__file__).parent)])
    return sorted(each.name for each in found if each.name not in _HELPERS)


def measure(name: str, options: Row, *, quick: bool = False) -> Row:
    """Run an experiment; return its tables and how they came about, as JSON has them."""
    experiment = importlib.import_module(f"experiments.{name}")
    given = (experiment.QUICK if quick else {}) | options
    # Before a long run: later the checkout may be another one.
    commit, wall, cpu = find_commit(), time.perf_counter(), time.process_time()
    _earlier.clear()
    tables = experiment.run(**given)
    settings = {
        key: each.default for key, each in _parameters(experiment).items() if key not in _PATHS
    } | {key: each for key, each in given.items() if key not in _PATHS}
    return {
        "experiment": name,
        "quick": quick,
        "commit": commit,
        "options": _plain(settings),
        "tables": _plain(tables),
        "seconds": round(time.perf_counter() - wall + sum(_earlier), 1),
        "cpu_seconds": round(time.process_time() - cpu + sum(_earlier), 1),
        "cores": os.cpu_count(),
        "versions": {each: version(each) for each in _PACKAGES}
        | {"Python": platform.python_version()},
    }


def render(rows: list[Row]) -> str:
    """Return a table of a result in Markdown."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [columns, *([show(row.get(key)) for key in columns] for row in rows)]
    widths = [max(len(line[j]) for line in lines) for j in range(len(columns))]
    lines.insert(1, ["-" * width for width in widths])
    return "".join(
        "| " + " | ".join(f"{cell:<{w}}" for cell, w in zip(line, widths, strict=True)) + " |\n"
        for line in lines
    )


def update_page(text: str, folder: Path = RESULTS) -> str:
    """Return a page whose tables and marked figures are those of the results in a folder."""

    def table(found: re.Match[str]) -> str:
        begin, name, what, end = found.groups()
        title, *columns = what.split(" > ")
        rows = _find(folder, name, title)
        shown = [{key: row[key] for key in columns} for row in rows] if columns else rows
        return f"{begin}\n{render(shown)}\n{end}"

    def figure(found: re.Match[str]) -> str:
        begin, name, what, end = found.groups()
        title, *first, column = what.split(" > ")
        rows = _find(folder, name, title)
        row = next(row for row in rows if [str(x) for x in row.values()][: len(first)] == first)
        return f"{begin}{show(row[column])}{end}"

    return _FIGURE.sub(figure, _IN_A_PAGE.sub(table, text))


def _find(folder: Path, name: str, title: str) -> list[Row]:
    result = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    if title not in result["tables"]:
        have = ", ".join(result["tables"])
        raise KeyError(f"{name}.json has no table {title!r}; it has {have}.")
    return list(result["tables"][title])


def pages() -> list[Path]:
    """Return README and all pages of the docs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*/*.md"))]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one experiment, list all, or update the pages."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given == ["--docs"]:
        for page in pages():
            page.write_text(update_page(page.read_text(encoding="utf-8")), encoding="utf-8")
    elif not given or given[0] not in names():
        for name in names():
            print(name)
        if given and given != ["--help"]:
            sys.exit(f"{given[0]!r} is no experiment; give one of these names first.")
    else:
        _run(given[0], given[1:])


def _run(name: str, arguments: Sequence[str]) -> None:
    experiment = importlib.import_module(f"experiments.{name}")
    options = vars(_parser(name, experiment).parse_args(arguments))
    quick, out, called = options.pop("quick"), options.pop("out"), options.pop("called")
    first, count = options.pop("first_seed", None), options.pop("seeds", None)
    given = {key: each for key, each in options.items() if each is not None}
    if first is not None or count is not None:
        default = _parameters(experiment)["seeds"].default
        usual = (experiment.QUICK if quick else {}).get("seeds", default)
        start = usual.start if first is None else first
        given["seeds"] = range(start, start + (len(usual) if count is None else count))
    if out.resolve() == RESULTS and find_commit()[-1:] in {"", "+"}:
        sys.exit("what is published names its commit: commit src and experiments first.")
    result = measure(name, given, quick=quick)
    for title, rows in result["tables"].items():
        print(f"{title}\n\n{render(rows)}", flush=True)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{called or name}.json"
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if hasattr(experiment, "draw"):
        save_figure(experiment.draw(result["tables"]), path.with_suffix(".png"))
    log(f"written to {path}")


def save_figure(figure: Any, path: Path) -> None:
    """Save a figure with a palette of 256 colors: half of the bytes."""
    from PIL import Image

    figure.savefig(path, dpi=110)
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    small.save(path, optimize=True)


def _parser(name: str, experiment: Any) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m experiments {name}",
        description=experiment.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of the JSON file")
    parser.add_argument("--as", dest="called", help="name of the JSON file, if not the experiment")
    for key, each in _parameters(experiment).items():
        flag, default = f"--{key.replace('_', '-')}", each.default
        if key == "data":
            text = "folder of the tables, to which public ones are downloaded"
            parser.add_argument(flag, type=Path, default=find_folder(), help=text)
        elif key == "seeds":
            parser.add_argument(flag, type=int, help=f"how many, {len(default)} by default")
            parser.add_argument("--first-seed", type=int, help=f"{default.start} by default")
        elif isinstance(default, tuple):
            listed = " ".join(map(str, default)).replace("%", "%%")
            parser.add_argument(flag, type=type(default[0]), nargs="+", help=listed)
        else:
            parser.add_argument(flag, type=type(default), help=f"{default!r} by default")
    return parser


def _parameters(experiment: Any) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(experiment.run).parameters)


def _plain(value: Any) -> Any:
    """Return what JSON can hold, without NaN."""
    if isinstance(value, Mean):
        return _plain(value._asdict())
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float):
        # Six digits are more than any figure is known to.
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def show(value: Any) -> str:
    """Format a cell: a mean with two digits of its standard error, a number by its size."""
    if value is None:
        return "-"
    if isinstance(value, dict):
        # Equal numbers may have an error of some bits.
        if value["mean"] is None or not value["se"] or value["se"] < 1e-9 * abs(value["mean"]):
            return show(value["mean"])
        digits = min(max(1 - math.floor(math.log10(value["se"])), 0), 4)
        return f"{value['mean']:,.{digits}f} ± {value['se']:,.{digits}f}"
    if isinstance(value, float):
        return f"{value:,.{min(max(2 - math.floor(math.log10(abs(value) or 0.1)), 0), 3)}f}"
    return f"{value:,}" if isinstance(value, int) else str(value).replace("|", "\\|")
