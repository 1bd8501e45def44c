"""Measure the overhead of ModelGame: one utility against a bare clone, fit and score.

    python benchmarks/fit_overhead.py

The bare version has its subtables ready; ModelGame selects rows and columns, restricts the model's
column selections, checks the labels and counts failures. The two are timed in turns, coalition by
coalition, in one thread. For each coalition the best of several repetitions counts; the figures are
means over the coalitions. More than 3 ms and more than 10% would be too much. LightGBM is included
if installed.
"""

from __future__ import annotations

import argparse
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

import benchmark_data
from cellworth.games import ModelGame
from cellworth.games.fitting import for_columns

N_ROW_GROUPS, N_COLUMN_COALITIONS, N_ROW_COALITIONS = 20, 6, 4
ROUNDS = 7


def cases(folder):
    """Yield name, model and data."""
    numbers = benchmark_data.load("breast30", folder)
    arrays = numbers.X.to_numpy(), numbers.y, numbers.X_val.to_numpy(), numbers.y_val
    yield "NumPy, logistic regression", add_scaler(LogisticRegression()), arrays
    yield "NumPy, decision tree", DecisionTreeClassifier(random_state=0), arrays
    adult = benchmark_data.load("adult", folder)
    rest = adult.X.select_dtypes("number").columns.tolist()
    text = [name for name in adult.X if name not in rest]
    encoded = ColumnTransformer(
        [("text", OneHotEncoder(handle_unknown="ignore"), text), ("rest", StandardScaler(), rest)]
    )
    yield "pandas, named columns", make_pipeline(encoded, LogisticRegression()), tuple(adult)
    if find_spec("lightgbm"):
        from lightgbm import LGBMClassifier

        boosted = LGBMClassifier(n_estimators=20, n_jobs=1, verbose=-1, random_state=0)
        yield "NumPy, LightGBM", boosted, arrays
        types = dict.fromkeys(text, "category")
        tables = adult.X.astype(types), adult.y, adult.X_val.astype(types), adult.y_val
        yield "pandas, LightGBM", boosted, tables


def add_scaler(model):
    return make_pipeline(StandardScaler(), model)


def coalitions(shape):
    """Return row coalitions combined with the same few column coalitions."""
    rng = np.random.default_rng(0)
    many_columns = rng.random((N_COLUMN_COALITIONS, shape[1])) < 0.6
    many_columns[~many_columns.any(axis=1)] = True
    for rows in rng.random((N_ROW_COALITIONS, shape[0])) < 0.6:
        yield from ((rows, columns) for columns in many_columns)


def compare(model, X, y, X_val, y_val):
    """Return milliseconds of a utility and of the bare version."""
    groups = np.arange(len(y)) % N_ROW_GROUPS
    game = ModelGame(model, X, y, X_val, y_val, row_groups=groups)
    scorer = get_scorer("accuracy")
    best = []
    for rows, columns in coalitions(game.shape):
        train = rows[groups]
        ready = for_columns(model, game.problem.table.names, columns)
        cut, labels, validation = (
            part(X, train, columns),
            y[train],
            part(X_val, slice(None), columns),
        )
        pairs = [
            (
                seconds(lambda rows=rows, columns=columns: game.value(rows, columns)),
                seconds(
                    lambda m=ready, cut=cut, labels=labels, validation=validation: scorer(
                        clone(m).fit(cut, labels), validation, y_val
                    )
                ),
            )
            for _ in range(ROUNDS)
        ]
        best.append(np.min(pairs, axis=0))
    return np.mean(best, axis=0) * 1e3


def part(X, rows, columns):
    return X[rows][:, columns] if isinstance(X, np.ndarray) else X.loc[rows, columns]


def seconds(work):
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, default=benchmark_data.FOLDER, help="folder of the CSV files"
    )
    options = parser.parse_args()
    print(f"{'':28}{'ours':>10}{'bare':>10}{'more':>10}{'ratio':>8}")
    for name, model, data in cases(options.data):
        ours, bare = compare(model, *data)
        print(
            f"{name:28}{ours:7.2f} ms{bare:7.2f} ms{ours - bare:7.2f} ms{ours / bare:8.3f}",
            flush=True,
        )


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
