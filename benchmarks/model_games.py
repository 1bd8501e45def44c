"""Measure the fits that estimates need on four games with known values, and their coverage.

    python benchmarks/model_games.py --tables tables fits asked errors nothing

Writes all utilities of the games into the folder of tables once (about half an hour on one core).
Each game comes in five random partitions of its rows and columns into groups; four runs on each
make 20 repetitions. As in the 2D-Shapley paper, empty coalitions have utility 0.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from cellworth import Runtime, value_game
from cellworth.games import ModelGame, TableGame
from cellworth.runtime import MaxTasks, MaxUtilities
from cellworth.sampling import AntitheticPermutations, GaussianProcess, PlainPermutations

LOGISTIC = make_pipeline(StandardScaler(), LogisticRegression())
GAMES = {
    "wine_tree": (load_wine, (8, 6), DecisionTreeClassifier(random_state=0)),
    "wine_nb": (load_wine, (10, 5), GaussianNB()),
    "wine_lr": (load_wine, (7, 6), LOGISTIC),
    "breast_nb": (load_breast_cancer, (8, 6), GaussianNB()),
}
PARTITIONS = range(5)
SEEDS = range(4)
ESTIMATORS = (AntitheticPermutations(), GaussianProcess())
WANTED = 0.9
LADDER = np.unique(np.geomspace(400, 16_000, 60).astype(int))
BUDGETS_OF_ERRORS = (300, 500, 1000, 2000, 3500)
ASKED = {
    AntitheticPermutations(): {
        "wine_tree": 10_000,
        "wine_nb": 6000,
        "wine_lr": 4000,
        "breast_nb": 3500,
    },
    GaussianProcess(): {"wine_tree": 3500, "wine_nb": 2000, "wine_lr": 1500, "breast_nb": 1000},
}
SMALL_BUDGETS = (50, 75, 100, 150, 200, 300, 400, 500, 700, 1000, 1500, 2500)


def utilities(name, partition, folder):
    """Return all utilities of a game, from the folder or computed and written there."""
    file = folder / f"{name}_{partition}.npy"
    if not file.exists():
        loader, (n_rows, n_columns), model = GAMES[name]
        X, y = loader(return_X_y=True)
        X, X_val, y, y_val = train_test_split(
            X, y, test_size=0.4, stratify=y, random_state=partition
        )
        rng = np.random.default_rng(partition)
        row_groups = rng.permutation(np.arange(len(X)) % n_rows)
        column_groups = rng.permutation(np.arange(X.shape[1]) % n_columns)
        game = ModelGame(
            model, X, y, X_val, y_val, row_groups=row_groups, column_groups=column_groups
        )
        folder.mkdir(parents=True, exist_ok=True)
        np.save(file, TableGame.from_game(game, (n_rows, n_columns)).table)
    table = np.load(file)
    table[0], table[:, 0] = 0.0, 0.0
    return TableGame(table)


def compute_unexplained(values, exact):
    """Return 1 - R squared: squared error relative to that of equal shares of the total."""
    return float(np.mean((values - exact) ** 2) / np.mean((exact - exact.mean()) ** 2))


def estimate(game, estimator, budget, seed):
    rule = MaxUtilities(int(budget))
    # Budgets below one task are intended here, and warn.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return value_game(
            game, estimator=estimator, stop=rule, random_state=seed, runtime=Runtime(progress=False)
        )


def fits_needed(game, exact, estimator, seed):
    """Return the smallest budget that reaches the wanted R squared, by bisection."""
    low, high = 0, len(LADDER) - 1
    if LADDER[high] > estimator.most_utilities:
        high = int(np.searchsorted(LADDER, estimator.most_utilities, side="right")) - 1
    if (
        compute_unexplained(estimate(game, estimator, LADDER[high], seed).values, exact)
        > 1 - WANTED
    ):
        return np.inf
    while low < high:
        middle = (low + high) // 2
        reached = estimate(game, estimator, LADDER[middle], seed)
        # A run that is too short for any value returns NaN.
        if compute_unexplained(reached.values, exact) <= 1 - WANTED:
            high = middle
        else:
            low = middle + 1
    return LADDER[high]


def fits_of_plain_permutations(game, exact):
    """Return the mean fits of plain permutations: their squared error is variance over tasks."""
    run = value_game(
        game,
        estimator=PlainPermutations(),
        stop=MaxTasks(2000),
        random_state=0,
        runtime=Runtime(progress=False),
    )
    variance_of_a_task = 2000 * np.mean(run.sampling_se**2)
    tasks = variance_of_a_task / ((1 - WANTED) * np.var(exact))
    return tasks * exact.size


def games(folder, names):
    for name in names:
        for partition in PARTITIONS:
            game = utilities(name, partition, folder)
            yield name, game, value_game(game, runtime=Runtime(progress=False)).values


def report_fits(folder, names):
    plain = {name: [] for name in names}
    needed = {(name, estimator): [] for name in names for estimator in ESTIMATORS}
    for name, game, exact in games(folder, names):
        plain[name].append(fits_of_plain_permutations(game, exact))
        for estimator in ESTIMATORS:
            needed[name, estimator] += [fits_needed(game, exact, estimator, seed) for seed in SEEDS]
    for name in names:
        print(
            f"{name:<10} PlainPermutations() {np.median(plain[name]):,.0f} fits for R2 = {WANTED}"
        )
        for estimator in ESTIMATORS:
            fits = needed[name, estimator]
            low, middle, high = np.percentile(fits, [10, 50, 90], method="nearest")
            print(f"{name:<10} {estimator} {middle:,.0f} ({low:,.0f} to {high:,.0f})", flush=True)


def report_asked(folder, names):
    for estimator, budgets in ASKED.items():
        for name in names:
            left = [
                compute_unexplained(estimate(game, estimator, budgets[name], seed).values, exact)
                for _, game, exact in games(folder, [name])
                for seed in SEEDS
            ]
            print(
                f"{name:<10} {estimator} {budgets[name]:>6,} fits: R2 = {1 - np.median(left):.3f}, "
                f"{np.mean(np.array(left) <= 1 - WANTED):.0%} of runs reach {WANTED}",
                flush=True,
            )


def report_errors(folder, names):
    for estimator in (*ESTIMATORS, PlainPermutations()):
        everything = []
        for name in names:
            for budget in BUDGETS_OF_ERRORS:
                covered = coverage(folder, name, estimator, budget)
                everything.append(covered)
                print(f"{name:<10} {estimator} {budget:>5} fits: {covered:.3f} covered", flush=True)
        print(f"{estimator} in all: {np.nanmean(everything):.3f}")


def coverage(folder, name, estimator, budget):
    """Return the share of exact values within 1.96 standard errors; NaN if none are reported."""
    inside = []
    for _, game, exact in games(folder, [name]):
        for seed in SEEDS:
            seen = estimate(game, estimator, budget, seed)
            known = ~np.isnan(seen.sampling_se)
            inside += (np.abs(seen.values - exact) <= 1.96 * seen.sampling_se)[known].tolist()
    return np.mean(inside) if inside else np.nan


def report_nothing(folder, names):
    for name in names:
        for budget in SMALL_BUDGETS:
            ratios = [
                compute_unexplained(estimate(game, None, budget, seed).values, exact)
                for _, game, exact in games(folder, [name])
                for seed in SEEDS
            ]
            print(
                f"{name:<10} {budget:>5} fits: {np.median(ratios):.3f} of equal shares", flush=True
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, required=True, help="folder for the utilities")
    parser.add_argument("--games", nargs="+", choices=GAMES, default=list(GAMES))
    parser.add_argument("what", nargs="+", choices=("fits", "asked", "errors", "nothing"))
    options = parser.parse_args()
    reports = {
        "fits": report_fits,
        "asked": report_asked,
        "errors": report_errors,
        "nothing": report_nothing,
    }
    for what in options.what:
        reports[what](options.tables, options.games)


if __name__ == "__main__":
    main()
