"""Measure how often 95% intervals of sampled coalitions cover exact values, for several semivalues.

    python -m experiments sampling_coverage

Six games of 6 x 5 blocks have known values: three of models on real tables, and a sparse, a
heavy-tailed and a nearly additive one. None of them was used to choose the rules for errors.
Coverage is that of the mean block of a game, over independent runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cellworth.sampling import Banzhaf, Beta, Shapley
from cellworth.sampling.estimators import choose_estimator
from cellworth.sampling.moments import WIDTH_95, Moments, widening
from cellworth.sampling.samplers import coalition_masks
from cellworth.sampling.semivalues import membership_weights
from cellworth.sampling.shrinkage import shrink_values
from experiments.estimators_race import make_game
from experiments.frame import Mean, Row, Tables, log

QUICK = {"tables": (), "semivalues": ("Beta(4, 1) x Beta(4, 1)",), "repetitions": 2}
SHAPE = (6, 5)
TASKS = (10, 40, 160)
# Of larger games, the first six groups of rows and five of columns play.
MODELS = ("heart, tree", "lawschool, naive Bayes", "2dplanes, neighbors")
SEMIVALUES = {
    "Shapley x Shapley": (Shapley(), Shapley()),
    "Banzhaf x Banzhaf": (Banzhaf(), Banzhaf()),
    "Beta(4, 1) x Beta(4, 1)": (Beta(4, 1), Beta(4, 1)),
    "Beta(1, 16) x Shapley": (Beta(1, 16), Shapley()),
    "Shapley x Banzhaf": (Shapley(), Banzhaf()),
}


def make_up_games(seed: int) -> dict[str, Any]:
    """Return all utilities of a sparse, a heavy-tailed and a nearly additive game."""
    rng = np.random.default_rng(seed)
    rows, columns = (coalition_masks(np.arange(1 << n), n) for n in SHAPE)
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


def exact_values(games: Any, pair: Any) -> Any:
    """Return the values of all blocks, as weighted sums of all utilities."""
    sides = (coalition_masks(np.arange(1 << n), n) for n in SHAPE)
    rows, columns = map(membership_weights, pair, sides)
    return np.einsum("si,sfk,fj->ijk", rows, games, columns)


def measure_coverage(games: Any, pair: Any, n_tasks: tuple[int, ...], runs: range) -> Any:
    """Return which intervals cover: (n_runs, n_budgets, n_rows, n_columns, n_games); NaN: none.

    ``games`` has all utilities, with the games along its last axis.
    """
    estimator = choose_estimator(None, pair)
    covers = np.full((len(runs), len(n_tasks), *SHAPE, games.shape[-1]), np.nan)
    rows, columns = (1 << np.arange(n) for n in SHAPE)
    exact = exact_values(games, pair)
    totals = games[-1, -1] - games[-1, 0] - games[0, -1] + games[0, 0]
    for run_covers, seed in zip(covers, runs, strict=True):
        sampler = estimator.make_sampler(SHAPE, pair, seed)
        tasks = [sampler(task) for task in range(max(n_tasks))]
        sides = [map(np.array, zip(*task, strict=True)) for task in tasks]
        utilities = [games[one @ rows, other @ columns] for one, other in sides]
        estimate = estimator.estimate(pair, totals)
        for budget, n in enumerate(n_tasks):
            # Estimators take several columns, for deviations; they withhold errors of the first.
            together = estimate(tasks[:n], utilities[:n])
            for game, total in enumerate(totals):
                moments = (together.count, together.mean, together.sum_sq)
                seen = Moments(*(each[..., game] for each in moments))
                values, errors = seen.values, seen.sampling_se * widening(seen.count)
                if estimator.shrink:
                    values, errors = shrink_values(seen, total)
                away = np.abs(values[:-1, :-1] - exact[..., game])
                reach = WIDTH_95 * errors[:-1, :-1]
                covered = away <= reach + 1e-12
                run_covers[budget, :, :, game] = np.where(np.isnan(reach), np.nan, covered)
    return covers


def summarize(name: str, n_tasks: int, covers: Any) -> Row:
    """Return the line of a pair of semivalues and a number of tasks; games are the last axis."""
    row: Row = {"rows x columns": name, "tasks": n_tasks}
    if np.isnan(covers[..., 0]).any():
        return row | dict.fromkeys(("coverage", "lowest game", "highest game", "worst block"), "-")
    by_game = covers.mean(axis=(0, 1, 2)).tolist()
    return row | {
        "coverage": Mean.of(by_game),
        "lowest game": min(by_game),
        "highest game": max(by_game),
        "worst block": float(covers.mean(axis=0).min()),
    }


def run(
    data: Path,
    tables: tuple[str, ...] = MODELS,
    semivalues: tuple[str, ...] = tuple(SEMIVALUES),
    repetitions: int = 200,
) -> Tables:
    """Return the coverage of each pair of semivalues after some numbers of tasks."""
    rows, columns = (1 << n for n in SHAPE)
    of_models = [make_game(name, data)[:rows, :columns] for name in tables]
    games = np.stack([*of_models, *make_up_games(7).values()], axis=-1)
    found = []
    for name in semivalues:
        covers = measure_coverage(games, SEMIVALUES[name], TASKS, range(repetitions))
        found += [summarize(name, n, covers[:, i]) for i, n in enumerate(TASKS)]
        log(name)
    return {"coverage of 95% intervals": found}
