"""Compare row values with pyDVL and shapiq, and scores of columns with PyOD, run by their own code.

    python -m venv pydvl && pydvl/bin/pip install pydvl      # the same for shapiq and pyod
    python -m experiments rivals --python pydvl/bin/python shapiq/bin/python pyod/bin/python

Each rival runs in the first of these environments that has it. Row values are KNN-Shapley values
(Jia and others, 2019) with utility 0 of no rows, on normal numbers: without ties; with each row
twice, the second time with another label; and with more neighbors than rows. The truth is
enumeration of all coalitions, ties averaged over their orders. shapiq has no closed form for
neighbors: its ExactComputer enumerates the game that we give it, which averages ties. Seconds are
of CPU time, the best of three, one thread, without imports and compilation.

Samplers of both then value 14 groups of rows in six games of ``estimators_race.py``, at equal
numbers of fits: different coalitions for ours and pyDVL's, and the budget that shapiq takes. The
error is in units of that of equal shares.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from cellworth import KNNValuer, Runtime, value_game
from cellworth.games import TableGame
from cellworth.runtime import MaxUtilities, Serial
from cellworth.sampling import Shapley
from cellworth.sampling.semivalues import membership_weights
from experiments import rival_programs
from experiments.cell_scores import copod, ecod
from experiments.estimators_race import make_game
from experiments.frame import Mean, Tables, log, spend
from experiments.race_estimators import masks

QUICK = {"sizes": (100,), "seeds": range(1)}
# Games of groups of rows: all columns are one player.
RACED = (
    "electricity, naive Bayes", "lawschool, naive Bayes", "pol, naive Bayes",
    "jannis, neighbors", "2dplanes, neighbors", "breast 30, neighbors",
)  # fmt: skip
N_PLAYERS, BUDGETS = 14, (100, 200, 400)
SAMPLED = (
    ("pydvl_sampled", "PermutationSampler"),
    ("pydvl_sampled", "AntitheticPermutationSampler"),
    ("shapiq_sampled", "PermutationSamplingSV"),
    ("shapiq_sampled", "SVARM"),
    ("shapiq_sampled", "KernelSHAP"),
    ("shapiq_sampled", "UnbiasedKernelSHAP"),
)
_REPEATS = 3
_SKIPPED = "not measured: give --python the interpreter of an environment that has it"


def run(
    data: Path,
    python: tuple[str, ...] = ("",),
    sizes: tuple[int, ...] = (100, 1000, 3000),
    seeds: range = range(5),
) -> Tables:
    """Return the largest differences from the truth, and seconds by number of rows."""
    environments = [each for each in python if each]
    cases = {
        "10 rows, no ties, K = 3": draw_case(10, 3),
        "10 rows, no ties, K = 15": draw_case(10, 15),
        "5 rows, each twice, K = 3": repeat_rows(draw_case(5, 3)),
    }
    apart, seconds = zip(*(compare_rows(n, environments) for n in sizes), strict=True)
    return {
        "largest error of a row value": [
            {"case": name} | compare_values(case, environments) for name, case in cases.items()
        ],
        "agreement of larger tables": list(apart),
        "CPU seconds": list(seconds),
        "sampled values of 14 groups of rows": race_rows(environments, data, seeds),
        "scores of PyOD": [
            compare_scores(name, terms, environments)
            for name, terms in (("ECOD", ecod), ("COPOD", copod))
        ],
    }


def draw_case(n_rows: int, n_neighbors: int, n_queries: int = 8) -> dict[str, Any]:
    """Draw normal numbers and labels that depend on them."""
    rng = np.random.default_rng(n_rows)
    X, X_val = rng.normal(size=(n_rows, 5)), rng.normal(size=(n_queries, 5))
    y, y_val = ((part[:, 0] + rng.normal(size=len(part)) > 0).astype(int) for part in (X, X_val))
    return {"X": X, "y": y, "X_val": X_val, "y_val": y_val, "n_neighbors": n_neighbors}


def repeat_rows(case: dict[str, Any]) -> dict[str, Any]:
    """Return each row twice, the second time with the other label."""
    return case | {"X": np.tile(case["X"], (2, 1)), "y": np.append(case["y"], 1 - case["y"])}


def enumerate_rows(case: dict[str, Any]) -> np.ndarray:
    """Return Shapley values of rows by all coalitions; rows that tie share the places left."""
    n_rows, K = len(case["X"]), case["n_neighbors"]
    distances = ((case["X_val"][:, None] - case["X"]) ** 2).sum(axis=2)
    match = case["y"] == case["y_val"][:, None]

    def utility(members: np.ndarray) -> float:
        near, right = distances[:, members], match[:, members]
        closer = (near[:, None, :] < near[:, :, None]).sum(axis=2)
        equal = (near[:, None, :] == near[:, :, None]).sum(axis=2)
        return float((np.clip((K - closer) / equal, 0, 1) * right).sum(axis=1).mean() / K)

    coalitions = masks(n_rows)
    utilities = np.array([utility(members) for members in coalitions])
    return membership_weights(Shapley(), coalitions).T @ utilities


def ours(case: dict[str, Any]) -> np.ndarray:
    """Return our row values: one group of columns, no scaling, nothing for no columns."""
    data = {key: case[key] for key in ("X", "y", "X_val", "y_val")}
    runtime = Runtime(progress=False, executor=Serial())
    valuer = KNNValuer(case["n_neighbors"], scale=None, empty="zero", runtime=runtime)
    return valuer.fit(**data, column_groups=["all"] * case["X"].shape[1]).valuation_.rows().values


def ask(program: str, case: dict[str, Any], environments: list[str]) -> Any:
    """Return what a rival answers, or None if no environment has it."""
    package = rival_programs.PROGRAMS[program][0]
    for python in environments:
        if not _has(python, package):
            continue
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder) / "in.npz", Path(folder) / "out.npz"
            np.savez(source, **case)
            command = [python, rival_programs.__file__, program, str(source), str(target)]
            quiet = os.environ | {"PYTHONWARNINGS": "ignore"}
            subprocess.run(command, check=True, env=quiet)  # noqa: S603
            return dict(np.load(target))
    log(f"{package} is {_SKIPPED}")
    return None


@cache
def _has(python: str, package: str) -> bool:
    look = [python, "-c", f"import importlib.metadata as m; m.version('{package}')"]
    if not Path(python).exists():
        return False
    return not subprocess.run(look, check=False, capture_output=True).returncode  # noqa: S603


def compare_values(case: dict[str, Any], environments: list[str]) -> dict[str, Any]:
    """Return the largest difference of each package from enumeration."""
    truth = enumerate_rows(case)
    found = {"cellworth": _show(np.abs(ours(case) - truth).max())}
    for program in ("pydvl_rows", "shapiq_rows"):
        answer = ask(program, case, environments)
        package = rival_programs.PROGRAMS[program][0]
        name = f"{package} {answer['version']}" if answer else package
        found[name] = _show(np.abs(answer["answer"] - truth).max()) if answer else _SKIPPED
    return found | {"largest value": float(np.abs(truth).max())}


def compare_rows(n_rows: int, environments: list[str]) -> list[dict[str, Any]]:
    """Return how far pyDVL's row values are from ours, without ties and K <= N, and CPU seconds."""
    case = draw_case(n_rows, 5, 100)
    values = ours(case)
    seconds = [spend(lambda: ours(case))[1] for _ in range(_REPEATS)]
    answer = ask("pydvl_rows", case | {"repeats": _REPEATS}, environments)
    apart = _show(np.abs(answer["answer"] - values).max()) if answer else _SKIPPED
    theirs = float(answer["seconds"]) if answer else _SKIPPED
    return [
        {"rows": n_rows, "largest difference of pyDVL from cellworth": apart},
        {"rows": n_rows, "cellworth": min(seconds), "pyDVL": theirs},
    ]


def compare_scores(name: str, ours: Any, environments: list[str]) -> dict[str, Any]:
    """Return how far our terms of a detector are from PyOD's."""
    X = np.random.default_rng(0).normal(size=(200, 6)) ** 3
    answer = ask("pyod_terms", {"X": X, "name": name}, environments)
    apart = _show(np.abs(answer["answer"] - ours(X)).max()) if answer else _SKIPPED
    return {"detector": name, "largest difference": apart}


def race_rows(environments: list[str], data: Path, seeds: range) -> list[dict[str, Any]]:
    """Return the error of row values by equal numbers of fits, one game after another."""
    lines: dict[str, list[Any]] = {}
    for game in RACED:
        utilities = make_game(game, data, one_side=N_PLAYERS)[:, 1]
        utilities = utilities - utilities[0]
        weights = membership_weights(Shapley(), masks(N_PLAYERS))
        exact = weights.T @ utilities

        def error(values: Any, exact: Any = exact) -> Any:
            away = np.sqrt(np.mean((np.reshape(values, (-1, N_PLAYERS)) - exact) ** 2, axis=1))
            return away.reshape(len(BUDGETS), -1).mean(axis=1) / exact.std()

        table = TableGame(np.column_stack([np.zeros_like(utilities), utilities]))
        runtime = Runtime(Serial(), progress=False)
        own = [
            value_game(table, stop=MaxUtilities(b), random_state=s, runtime=runtime).values
            for b in BUDGETS for s in seeds
        ]  # fmt: skip
        lines.setdefault("cellworth, default", []).append(error(own))
        for program, method in SAMPLED:
            case = {
                "utilities": utilities, "method": method, "budgets": BUDGETS, "seeds": list(seeds)
            }  # fmt: skip
            answer = ask(program, case, environments)
            if answer:
                name = f"{rival_programs.PROGRAMS[program][0]} {answer['version']}, {method}"
                lines.setdefault(name, []).append(error(answer["answer"]))
        log(game)
    return [
        {"values by": name}
        | {f"error, {b} fits": Mean.of(each[i] for each in found) for i, b in enumerate(BUDGETS)}
        for name, found in lines.items()
    ]


def _show(number: float) -> str:
    return f"{number:.1e}"
