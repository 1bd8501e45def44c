"""Measure the coverage of 95% intervals of a Gaussian process, for blocks and sums.

    python benchmarks/process_coverage.py [repetitions]

The games are formulas (4 x 4 players, 170 of 225 utilities), redrawn in every repetition, and
models on small tables (5 x 4 players, 220 of 465 utilities), in three partitions. The ground truth
is enumerated.
"""

import sys
import warnings

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
from cellworth.runtime import MaxUtilities
from cellworth.sampling import GaussianProcess
from cellworth.sampling.samplers import coalition_masks

MEMBERS = coalition_masks(np.arange(16), 4).astype(float)
MODELS = {
    "wine, tree": (load_wine, DecisionTreeClassifier(random_state=0)),
    "wine, naive Bayes": (load_wine, GaussianNB()),
    "wine, logistic": (load_wine, make_pipeline(StandardScaler(), LogisticRegression())),
    "breast, naive Bayes": (load_breast_cancer, GaussianNB()),
}
PARTITIONS = 3


def formulas(seed):
    """Return utilities of games without a model: smooth, rough, multiplicative, all or nothing."""
    rng = np.random.default_rng(seed)
    rows, columns = rng.gamma(1, size=4), rng.gamma(1, size=4)
    meet = MEMBERS @ rng.normal(size=(4, 4)) @ MEMBERS.T
    positions = np.arange(16.0)
    yield "log of places", np.log1p(np.add.outer(positions * rng.uniform(0.5, 2), 2 * positions))
    yield "log of weights", np.log1p(5 * np.outer(MEMBERS @ rows, MEMBERS @ columns))
    yield "random", rng.normal(size=(16, 16))
    yield "best of each side", np.outer((MEMBERS * rows).max(1), (MEMBERS * columns).max(1))
    yield "threshold", (meet > 1).astype(float)
    yield "product", np.outer(np.prod(1 + MEMBERS * rows, 1), np.prod(1 + MEMBERS * columns / 2, 1))
    yield "interaction", np.tanh(meet)


def model_table(name, partition):
    """Return all utilities of a model trained on five groups of rows and four of columns."""
    loader, model = MODELS[name]
    X, y = loader(return_X_y=True)
    X, X_val, y, y_val = train_test_split(X, y, test_size=0.4, stratify=y, random_state=partition)
    rng = np.random.default_rng(partition)
    groups = {
        "row_groups": rng.permutation(np.arange(len(X)) % 5),
        "column_groups": rng.permutation(np.arange(X.shape[1]) % 4),
    }
    return TableGame.from_game(ModelGame(model, X, y, X_val, y_val, **groups), (5, 4)).table


def measure_coverage(table, budget, seed):
    """Return the covered shares of blocks, rows and columns; None if not reported."""
    table = table.copy()
    table[0], table[:, 0] = 0.0, 0.0
    game = TableGame(table)
    run = {"estimator": GaussianProcess(), "stop": MaxUtilities(budget), "random_state": seed}
    seen, exact = (
        value_game(game, runtime=Runtime(progress=False), **run),
        value_game(game, runtime=Runtime(progress=False)),
    )
    found = []
    for one, other in (
        (seen, exact),
        (seen.rows(), exact.rows()),
        (seen.columns(), exact.columns()),
    ):
        found.append(np.mean(np.abs(one.values - other.values) <= 1.96 * one.sampling_se))
    return None if np.isnan(seen.sampling_se).any() else found


def main(repetitions=30):
    """Print one line for each game."""
    warnings.simplefilter("ignore")
    shares = {}
    tables = {name: [model_table(name, p) for p in range(PARTITIONS)] for name in MODELS}
    for seed in range(repetitions):
        for name, table in formulas(seed):
            shares.setdefault(name, []).append(measure_coverage(table, 170, seed))
        for name, some in tables.items():
            shares.setdefault(name, []).append(measure_coverage(some[seed % PARTITIONS], 220, seed))
    for name, found in shares.items():
        runs = [each for each in found if each is not None]
        blocks, rows, columns = np.mean(runs, axis=0)
        print(
            f"{name:20} {len(runs)} runs: blocks {blocks:.3f} rows {rows:.3f} columns {columns:.3f}"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
