"""Race estimators for games of models: error, coverage and time at equal numbers of fits.

Fourteen games on real tables have known values, because all their coalitions are evaluated first:
trees, boosting, logistic regression, naive Bayes and nearest neighbors, 6 x 5 to 10 x 10 blocks.
An estimator may then look up a number of distinct coalitions. Those of the literature are in
``race_estimators.py``; they were published for one set of players, and are carried over to two.
A budget that covers all coalitions of a game is left out.

The error is the root mean square over blocks, as a share of that of equal shares: 1 is as bad as
dividing the total by the number of blocks. Seconds are CPU time besides the fits. Means and
standard errors are over games, each the mean of its seeds.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

from cellworth import Runtime, value_game
from cellworth.games import ModelGame, TableGame
from cellworth.runtime import MaxUtilities, Serial
from cellworth.sampling import (
    AntitheticPermutations,
    GaussianProcess,
    Shapley,
)
from cellworth.sampling.moments import WIDTH_95
from cellworth.sampling.samplers import CoalitionPairs, QuadTasks, coalition_masks
from cellworth.sampling.semivalues import membership_weights, sizes_around
from experiments import race_estimators
from experiments.baselines import PlainPermutations
from experiments.frame import Mean, Row, Tables, compute_part, log, means
from experiments.race_estimators import Asked, Found, masks
from experiments.tables import Table, draw_samples, load

QUIET = Runtime(Serial(), progress=False)
SHAPLEY = Shapley()
N_NEIGHBORS = 5
TREE = DecisionTreeClassifier(max_depth=6, random_state=0)
BOOSTING = HistGradientBoostingClassifier(
    max_iter=5, learning_rate=0.3, max_leaf_nodes=8, min_samples_leaf=5, early_stopping=False
)
# Table, blocks, model; "naive Bayes" and "neighbors" have all their utilities by sums and sorts.
GAMES: dict[str, tuple[str, tuple[int, int], Any]] = {
    "wine, tree": ("wine", (6, 5), TREE),
    "heart, tree": ("heart", (6, 5), TREE),
    "fried, tree": ("fried", (6, 5), TREE),
    "adult, boosting": ("adult", (6, 5), BOOSTING),
    "breast original, logistic": ("breast original", (6, 5), LogisticRegression()),
    "credit, logistic": ("credit", (6, 5), LogisticRegression()),
    "electricity, naive Bayes": ("electricity", (6, 5), "naive Bayes"),
    "lawschool, naive Bayes": ("lawschool", (8, 7), "naive Bayes"),
    "pol, naive Bayes": ("pol", (8, 7), "naive Bayes"),
    "jannis, neighbors": ("jannis", (6, 5), "neighbors"),
    "2dplanes, neighbors": ("2dplanes", (7, 6), "neighbors"),
    "breast 30, neighbors": ("breast 30", (10, 10), "neighbors"),
    "pol, naive Bayes, 10 x 10": ("pol", (10, 10), "naive Bayes"),
    "jannis, neighbors, 10 x 10": ("jannis", (10, 10), "neighbors"),
}
# The kernel that chooses coalitions was found on these.
CHOSEN_ON = (
    "2dplanes, neighbors", "breast original, logistic", "electricity, naive Bayes", "heart, tree",
    "lawschool, naive Bayes", "wine, tree",
)  # fmt: skip


class DrawnProcess(GaussianProcess):
    """A Gaussian process through random pairs of coalitions and of their complements."""

    def make_sampler(self, shape: Any, semivalues: Any, seed: int) -> Any:
        """Return a sampler of quads, with the pairs with an empty side that belong to them."""
        quads = QuadTasks(tuple(map(sizes_around, semivalues, shape)), seed)

        def draw(task: int) -> CoalitionPairs:
            drawn = quads(task)
            rows, columns = drawn.rows, drawn.columns
            no_rows, no_columns = np.zeros_like(rows), np.zeros_like(columns)
            return CoalitionPairs(
                np.concatenate([rows, rows, no_rows, no_rows[:1]]),
                np.concatenate([columns, no_columns, columns, no_columns[:1]]),
            )

        draw.utilities_per_task = quads.utilities_per_task  # type: ignore[attr-defined]
        return draw


DEFAULT = "default"
OURS = {
    DEFAULT: None,
    "GaussianProcess, drawn quads": DrawnProcess(),
    "AntitheticPermutations": AntitheticPermutations(),
    "PlainPermutations": PlainPermutations(),
}
OTHERS: dict[str, Callable[[Asked], Found]] = {
    "TMC permutations": race_estimators.truncate_permutations,
    "KernelSHAP regression": race_estimators.kernel_regression,
    "RegressionMSR": race_estimators.regression_msr,
    "OddSHAP": race_estimators.odd_regression,
    "outer product": race_estimators.outer_product,
}
PER_BLOCK = (6, 12, 25, 50, 100)
QUICK = {"seeds": range(1), "games": ("lawschool, naive Bayes",), "per_block": (12,)}
N_TRAIN, N_VALIDATION = 120, 200


def make_game(name: str, folder: Path, one_side: int = 0) -> Any:
    """Return all utilities of a game, by numbers of the row and the column coalition.

    If a number of row players is given, all columns are one player.
    """
    table_name, shape, model = GAMES[name]
    shape = (one_side, 1) if one_side else shape
    table = load(table_name, folder).numbers()
    n_train = min(N_TRAIN, len(table.y) * 2 // 5)
    train, validation = draw_samples(table, n_train, N_VALIDATION, seed=0)
    rng = np.random.default_rng(0)
    groups = [
        rng.permutation(np.arange(n) % n_groups)
        for n, n_groups in zip(train.X.shape, shape, strict=True)
    ]
    train, validation = (Table(each.X.to_numpy(), each.y) for each in (train, validation))
    if isinstance(model, BaseEstimator):
        game = ModelGame(model, *train, *validation, row_groups=groups[0], column_groups=groups[1])
        rows, columns = (coalition_masks(np.arange(1 << n), n) for n in shape)
        return np.array([[game.value(one, other) for other in columns] for one in rows])
    make = naive_bayes_utilities if model == "naive Bayes" else neighbor_utilities
    return make(train, validation, groups)


def naive_bayes_utilities(train: Table, validation: Table, groups: list[Any]) -> Any:
    """Return the accuracy of Gaussian naive Bayes for all coalitions, two classes, by sums."""
    X, X_val, (row_groups, column_groups) = train.X, validation.X, groups
    classes = np.unique(train.y)
    n_rows, n_columns = row_groups.max() + 1, column_groups.max() + 1
    memberships = masks(n_columns)
    in_group = (column_groups[:, None] == np.arange(n_columns)).astype(float)
    utilities = np.full((1 << n_rows, 1 << n_columns), 0.5)
    for number, members in enumerate(masks(n_rows)[1:], start=1):
        logs = []
        for label in classes:
            rows = X[members[row_groups] & (train.y == label)]
            count = len(rows)
            center = rows.mean(axis=0) if count else np.zeros(X.shape[1])
            # A prior of one row with the variance of the whole column.
            variance = (((rows - center) ** 2).sum(axis=0) + 1) / (count + 1)
            density = -0.5 * ((X_val - center) ** 2 / variance + np.log(variance))
            logs.append((np.log(count + 1e-9), density @ in_group))
        (prior, one), (other_prior, other) = logs
        ahead = (one - other) @ memberships.T + prior - other_prior
        utilities[number] = np.mean((ahead > 0) == (validation.y == classes[0])[:, None], axis=0)
    return utilities


def neighbor_utilities(train: Table, validation: Table, groups: list[Any]) -> Any:
    """Return the share of right labels among the nearest rows, for all coalitions."""
    row_groups, column_groups = groups
    apart = (validation.X[:100, None] - train.X) ** 2
    n_columns = column_groups.max() + 1
    by_group = np.stack([apart[:, :, column_groups == j].sum(axis=2) for j in range(n_columns)])
    right = (validation.y[:100, None] == train.y).astype(float)
    return _neighbor_utilities(by_group, right, row_groups, row_groups.max() + 1)


@numba.njit
def _neighbor_utilities(by_group: Any, right: Any, row_groups: Any, n_rows: int) -> Any:
    n_columns, n_val, n_train = by_group.shape
    utilities = np.zeros((1 << n_rows, 1 << n_columns))
    for columns in range(1 << n_columns):
        distance = np.zeros((n_val, n_train))
        for j in range(n_columns):
            if columns >> j & 1:
                distance += by_group[j]
        for v in range(n_val):
            order = np.argsort(distance[v], kind="mergesort")
            for rows in range(1 << n_rows):
                n_found, gain = 0, 0.0
                for i in order:
                    if rows >> row_groups[i] & 1:
                        gain += right[v, i]
                        n_found += 1
                        if n_found == N_NEIGHBORS:
                            break
                utilities[rows, columns] += gain / (N_NEIGHBORS * n_val)
    return utilities


def exact_values(utilities: Any, of_rows: Any = SHAPLEY, of_columns: Any = SHAPLEY) -> Any:
    """Return the values by weighing all coalitions, for a semivalue of each side."""
    sides = (masks(size.bit_length() - 1) for size in utilities.shape)
    rows, columns = map(membership_weights, (of_rows, of_columns), sides)
    return rows.T @ utilities @ columns


def estimate(name: str, utilities: Any, interactions: Any, n_fits: int, seed: int) -> Any:
    """Return values, standard errors or None, and the number of fits, by one estimator."""
    if name in OURS:
        rule = MaxUtilities(n_fits)
        found = value_game(
            TableGame(utilities), estimator=OURS[name], stop=rule, random_state=seed, runtime=QUIET
        )
        return found.values, found.sampling_se, found.provenance.tally.new
    game = Asked(interactions, n_fits, seed)
    return *OTHERS[name](game), len(game.seen)


def race(name: str, data: Path, per_block: tuple[int, ...], seeds: range) -> list[Row]:
    """Return errors, coverage and seconds of all estimators on one game."""
    utilities = make_game(name, data)
    interactions = utilities - utilities[:, :1] - utilities[:1] + utilities[0, 0]
    exact = exact_values(interactions)
    found = []
    for estimator in (*OURS, *OTHERS):
        for k in per_block:
            if k * exact.size >= np.prod(np.array(utilities.shape) - 1):
                continue
            for seed in seeds:
                began = time.process_time()
                try:
                    values, errors, n_fits = estimate(
                        estimator, utilities, interactions, k * exact.size, seed
                    )
                except race_estimators.BudgetSpentError:
                    continue
                seconds = time.process_time() - began
                if n_fits > k * exact.size:
                    raise RuntimeError(f"{estimator} used {n_fits} of {k * exact.size} fits.")
                found.append({
                    "game": name, "estimator": estimator, "fits per block": k,
                    "error": np.sqrt(np.mean((values - exact) ** 2)) / np.std(exact),
                    "coverage": _coverage(values, errors, exact), "seconds": seconds,
                })  # fmt: skip
    return found


def _coverage(values: Any, errors: Any, exact: Any) -> float:
    if errors is None or np.isnan(errors).any():
        return np.nan
    return float(np.mean(np.abs(values - exact) <= WIDTH_95 * errors))


def summarize(rows: list[Row], per_block: tuple[int, ...]) -> list[Row]:
    """Return a row per estimator: errors at each budget, coverage, and seconds at 25 per block."""
    over_games = {
        (row["estimator"], row["fits per block"]): row
        for row in means(rows, ["estimator", "fits per block"], "game")
    }
    none = {"error": Mean.of([]), "seconds": Mean.of([])}
    found = []
    for name in (*OURS, *OTHERS):
        at = {k: over_games.get((name, k), none) for k in per_block}
        line = {"estimator": name} | {f"error, {k} fits per block": at[k]["error"] for k in at}
        known = [row["coverage"] for row in rows if row["estimator"] == name]
        line["coverage"] = Mean.of(known)._replace(se=math.nan)
        found.append(line | {"seconds": at[per_block[len(per_block) // 2]]["seconds"]})
    return found


def compare_games(rows: list[Row]) -> list[Row]:
    """Return in how many games the default has the smaller error, and where it is clearly larger.

    Clearly: by more than two standard errors of the difference over seeds.
    """
    errors = pd.DataFrame(rows).groupby(["estimator", "fits per block", "game"])["error"]
    mean = errors.mean().unstack("game")
    variance = errors.sem().fillna(0).unstack("game") ** 2
    more = mean.loc[DEFAULT] - mean.drop(DEFAULT)
    clearly = more > 2 * np.sqrt(variance.loc[DEFAULT] + variance.drop(DEFAULT))
    counts = pd.DataFrame({
        "won": (more < 0).sum(axis=1), "of": more.count(axis=1), "lost": clearly.sum(axis=1)
    })  # fmt: skip
    return [
        {"against": other}
        | {
            f"{k} fits per block": f"{line.won} of {line.of}, {line.lost} clearly worse"
            for k, line in counts.loc[other].iterrows()
        }
        for other in (*OURS, *OTHERS)
        if other != DEFAULT and other in counts.index
    ]


def run(
    data: Path,
    seeds: range = range(5),
    games: tuple[str, ...] = tuple(GAMES),
    per_block: tuple[int, ...] = PER_BLOCK,
    keep: str = "",
) -> Tables:
    """Race on all games; results of finished ones are kept in a folder, if one is named."""
    # Few coalitions of a model game have one class or a constant column; short runs warn.
    warnings.simplefilter("ignore")
    found = {}
    with threadpool_limits(1):
        for name in games:
            compute = partial(race, name, data, per_block, seeds)
            found[name] = compute_part(keep, f"{name}, {per_block}, {seeds}", compute)
            log(name)
    rows = [row for each in found.values() for row in each["rows"]]
    some = [row for row in rows if row["fits per block"] == per_block[min(1, len(per_block) - 1)]]
    by_game = [
        {"game": game, "blocks": "{} x {}".format(*GAMES[game][1]),
         "kernel": "found here" if game in CHOSEN_ON else "not"}
        | {row["estimator"]: row["error"].mean for row in means(some, ["estimator", "game"])
           if row["game"] == game and row["estimator"] in OURS}
        for game in games
    ]  # fmt: skip
    return {
        "errors, coverage and seconds": summarize(rows, per_block),
        "games won by the default": compare_games(rows),
        "errors by game": by_game,
    }
