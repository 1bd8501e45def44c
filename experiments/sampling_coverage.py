"""Measure how often 95% intervals of sampled coalitions cover exact values, for several semivalues.

Six games of 6 x 5 blocks have known values: three of models on real tables, and a sparse, a
heavy-tailed and a nearly additive one. None of them was used to choose the rules for errors.
Coverage is that of the mean block of a game, over independent runs. Errors are in units of that of
equal shares.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from cellworth.sampling import AntitheticPermutations, Banzhaf, Beta, GaussianProcess, Shapley
from cellworth.sampling.estimators import BanzhafSampling
from cellworth.sampling.moments import WIDTH_95, widening
from experiments.estimators_race import exact_values, make_game
from experiments.frame import Mean, Row, Tables, log
from experiments.race_estimators import masks

SHAPE = (6, 5)
BLOCKS = 30
# A task of a Gaussian process has eight fits.
FITS_PER_BLOCK, FITS_PER_TASK = (10, 20, 40), 8
TASKS = (10, 40, 160)
# Of larger games, the first six groups of rows and five of columns play.
MODELS = ("heart, tree", "lawschool, naive Bayes", "2dplanes, neighbors")
BOTH = {"Shapley": (Shapley(), Shapley()), "Banzhaf": (Banzhaf(), Banzhaf())}
# Estimators with the semivalues of rows and of columns.
CASES: dict[str, Any] = {
    "Shapley": (GaussianProcess(), BOTH["Shapley"]),
    "Banzhaf": (GaussianProcess(), BOTH["Banzhaf"]),
    "Beta(4, 1)": (GaussianProcess(), (Beta(4, 1), Beta(4, 1))),
    "Beta(1, 16) x Shapley": (GaussianProcess(), (Beta(1, 16), Shapley())),
    "Shapley x Banzhaf": (GaussianProcess(), (Shapley(), Banzhaf())),
    "Shapley, orders": (AntitheticPermutations(), BOTH["Shapley"]),
    "Banzhaf, quads": (BanzhafSampling(), BOTH["Banzhaf"]),
}
QUICK = {"tables": (), "cases": ("Beta(4, 1)",), "repetitions": 1}


def make_up_games(seed: int) -> dict[str, Any]:
    """Return all utilities of a sparse, a heavy-tailed and a nearly additive game."""
    rng = np.random.default_rng(seed)
    rows, columns = map(masks, SHAPE)
    contains_rows, contains_columns = (
        (side[:, None] >= side).all(axis=2).astype(float) for side in (rows, columns)
    )
    sizes = np.add.outer(rows.sum(axis=1), columns.sum(axis=1))
    gains = {
        # Few sets of rows and columns gain anything together; all small ones do, a few very much.
        "sparse": rng.normal(size=sizes.shape) * (rng.random(sizes.shape) < 8 / sizes.size),
        "heavy-tailed": rng.standard_t(2, size=sizes.shape) * 2.0 ** (-sizes / 2),
    }
    found = {name: contains_rows @ gain @ contains_columns.T for name, gain in gains.items()}
    products = np.outer(
        rows @ rng.uniform(0.5, 2, SHAPE[0]), columns @ rng.uniform(0.5, 2, SHAPE[1])
    )
    return found | {"nearly additive": products * rng.normal(1, 0.05, products.shape)}


def measure(
    estimator: Any, pair: Any, games: list[Any], budgets: tuple[int, ...], seed: int
) -> list[list[Row]]:
    """Return which intervals cover and the error, by game and number of tasks, of one seed."""
    sampler = estimator.make_sampler(SHAPE, pair, seed)
    tasks = [sampler(task) for task in range(max(budgets))]
    rows, columns = (1 << np.arange(n) for n in SHAPE)
    sides = [tuple(map(np.array, zip(*task, strict=True))) for task in tasks]
    return [
        _measure_game(
            estimator.estimate(
                pair, np.array([game[-1, -1] - game[-1, 0] - game[0, -1] + game[0, 0]])
            ),
            tasks,
            [game[one @ rows, other @ columns] for one, other in sides],
            exact_values(game, *pair),
            budgets,
        )
        for game in games
    ]


def _measure_game(
    estimate: Any, tasks: Any, seen: Any, exact: Any, budgets: tuple[int, ...]
) -> list[Row]:
    found = []
    for n in budgets:
        moments = estimate(tasks[:n], seen[:n])
        values, errors = moments.values[:-1, :-1], moments.sampling_se * widening(moments.count)
        away, reach = np.abs(values - exact), WIDTH_95 * errors[:-1, :-1]
        covers = np.where(np.isnan(reach), np.nan, away <= reach + 1e-12)
        error = np.sqrt(np.mean(away**2)) / np.std(exact)
        found.append({"covers": covers, "error": error})
    return found


def summarize(case: str, budget: int, runs: list[list[Row]]) -> Row:
    """Return the line of a case and a budget from the runs of each game."""
    by_game = [float(np.mean([run["covers"] for run in some])) for some in runs]
    unit = "fits per block" if isinstance(CASES[case][0], GaussianProcess) else "tasks"
    return {
        "semivalues": case,
        "budget": f"{budget} {unit}",
        "coverage": Mean.of(by_game),
        "lowest game": min(by_game),
        "highest game": max(by_game),
        "error": Mean.of(float(np.mean([run["error"] for run in some])) for some in runs),
    }


def run(
    data: Path,
    tables: tuple[str, ...] = MODELS,
    cases: tuple[str, ...] = tuple(CASES),
    repetitions: int = 20,
) -> Tables:
    """Return the coverage of each pair of semivalues after some numbers of fits or tasks."""
    warnings.simplefilter("ignore")
    n_rows, n_columns = (1 << n for n in SHAPE)
    games = [make_game(name, data)[:n_rows, :n_columns] for name in tables]
    games += make_up_games(7).values()
    found = []
    with threadpool_limits(1):
        for case in cases:
            estimator, pair = CASES[case]
            budgets, n_tasks = TASKS, TASKS
            if isinstance(estimator, GaussianProcess):
                budgets = FITS_PER_BLOCK
                n_tasks = tuple(k * BLOCKS // FITS_PER_TASK + 1 for k in FITS_PER_BLOCK)
            by_seed = [
                measure(estimator, pair, games, n_tasks, seed) for seed in range(repetitions)
            ]
            for i, budget in enumerate(budgets):
                runs = [[of_seed[g][i] for of_seed in by_seed] for g in range(len(games))]
                found.append(summarize(case, budget, runs))
            log(case)
    return {"coverage of 95% intervals": found}
