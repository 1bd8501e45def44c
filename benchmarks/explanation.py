"""Compute figures of docs/explanation: ties, empty coalitions, raw columns and labels.

python benchmarks/explanation.py
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

import benchmark_data
from cellworth import KNNValuer, Runtime
from cellworth.knn import KNNGame
from cellworth.sampling import LeverageSampler

K = 10


def fit(given, *, value_labels=False, **settings):
    settings = {"random_state": 0, "runtime": Runtime(progress=False)} | settings
    valuer = KNNValuer(K, **settings)
    validation = {"X_val": given.X_val, "y_val": given.y_val}
    return valuer.fit(given.X, given.y, **validation, value_labels=value_labels).valuation_


def ties(name, given, n_orders):
    """Count tied rows, and measure how values move if the order of rows breaks ties."""
    game = KNNGame(given.X, given.y, given.X_val, given.y_val, n_neighbors=K)
    n_rows, n_columns = game.shape
    rng = np.random.default_rng(0)
    shuffled = rng.permutation(n_rows)
    orders = [rng.permutation(n_columns) for _ in range(n_orders)]
    cells = np.zeros((2, n_columns, n_rows))
    for query, label in enumerate(game.query_labels[0]):
        distances, match = game.distances.measure(0, query), game.labels == label
        for order in orders:
            sums = np.cumsum(distances[order], axis=0)
            for position, line in enumerate(sums):
                for k, rows in enumerate((np.arange(n_rows), shuffled)):
                    values = first_come(line[rows], match[rows])
                    cells[k, order[position], rows] += values
                    if position + 1 < n_columns:
                        cells[k, order[position + 1], rows] -= values
    moved = np.sqrt(np.mean((cells[0] - cells[1]) ** 2) / np.mean(cells[0] ** 2))
    on_all_columns = [
        game.distances.measure(0, q).sum(axis=0) for q in range(len(game.query_labels[0]))
    ]
    share = np.mean([np.isin(line, line[find_repeated(line)]).mean() for line in on_all_columns])
    print(f"{name}: {share:.0%} of rows tie with another on all columns; with ties broken by the "
          f"order of rows, shuffling these moves values by {moved:.0%} of their size")  # fmt: skip
    X, y = given.X.iloc[shuffled], np.asarray(given.y)[shuffled]
    settings = {"sampler": LeverageSampler(), "n_passes": 1}
    ours, again = fit(given, **settings), fit(given._replace(X=X, y=y), **settings)
    print(f"  cellworth: by {np.abs(ours.values[shuffled] - again.values).max():.0e}")


def find_repeated(line):
    _, first, counts = np.unique(line, return_index=True, return_counts=True)
    return first[counts > 1]


def first_come(distances, match):
    """Return Shapley values of rows for one query, ties ranked by row order."""
    order = np.argsort(distances, kind="stable")
    ranks = np.arange(1, len(order))
    steps = -np.diff(match[order].astype(float)) * np.minimum(K, ranks) / (K * ranks)
    last = match[order[-1]] / max(K, len(order))
    values = np.empty(len(order))
    values[order] = np.append(np.cumsum(steps[::-1])[::-1], 0.0) + last
    return values


def empty_coalitions(name, given):
    prior, zero = (fit(given, empty=empty) for empty in ("prior", "zero"))
    shuffled = given._replace(
        y=np.random.default_rng(0).permutation(given.y), y_val=np.asarray(given.y_val)
    )
    chance = [fit(shuffled, empty=empty).total for empty in ("prior", "zero")]
    print(f"{name}: values add up to {prior.total:.3f} (prior) and {zero.total:.3f} (zero); with "
          f"shuffled labels to {chance[0]:.3f} and {chance[1]:.3f}")  # fmt: skip


def report_published(given, folder):
    """Print the sum of the authors' published values, and the difference of equal rows."""
    file = folder / "breast_cancer_2dshapley_values_clean.csv.gz"
    values = pd.read_csv(file).drop(columns="row").to_numpy()
    # Their distances use raw numbers, and the empty coalition has utility 0.
    score = fit(given, scale=None, empty="zero").total
    rows = given.X.assign(label=given.y).reset_index(drop=True)
    equal = rows.groupby(list(rows.columns)).indices.values()
    apart = max(np.ptp(values[positions], axis=0).max() for positions in equal)
    print(f"published values: add up to {values.sum():.3f} where the score is {score:.3f}; equal "
          f"rows differ by up to {apart:.1e}, values reach {np.abs(values).max():.1e}")  # fmt: skip
    return values.sum(), score, apart


def raw_columns(given, column):
    """Print the share of a column in the total: raw, and as the sum of its one-hot columns."""
    settings = {"sampler": LeverageSampler(), "n_passes": 4, "scale": "std"}
    raw = fit(given, **settings)
    both = pd.get_dummies(pd.concat([given.X, given.X_val]), columns=[column], dtype=float)
    hot = given._replace(X=both.iloc[: len(given.X)], X_val=both.iloc[len(given.X) :])
    split = fit(hot, **settings)
    parts = [name.startswith(f"{column}_") for name in split.column_labels]
    of_raw = raw.columns().values[raw.column_labels.tolist().index(column)] / raw.total
    of_parts = split.columns().values[parts].sum() / split.total
    print(f"Census, {column}: {of_raw:.0%} of the total as a raw column, {of_parts:.0%} as the sum "
          f"of {sum(parts)} one-hot columns")  # fmt: skip


def labels(name, given):
    """Print the area under the curve for finding changed labels by their values."""
    scores = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        y = np.asarray(given.y).copy()
        wrong = rng.random(len(y)) < 0.1
        y[wrong] = [rng.choice(np.setdiff1d(np.unique(y), [label])) for label in y[wrong]]
        changed = given._replace(y=y)
        own = fit(changed, value_labels=True).values[:, -1]
        rows = fit(changed).rows().values
        scores.append((roc_auc_score(wrong, -own), roc_auc_score(wrong, -rows)))
    own, rows = np.mean(scores, axis=0)
    print(f"{name}: changed labels found with AUROC {own:.3f} by (label), {rows:.3f} by rows")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, default=benchmark_data.FOLDER, help="folder of the CSV files"
    )
    folder = parser.parse_args().data
    breast, wine, census = (
        benchmark_data.load(name, folder) for name in ("breast9", "wine", "adult")
    )
    ties("breast cancer, 241 x 9", breast, 20)
    ties("Census, 2,000 x 14", census._replace(X_val=census.X_val[:50], y_val=census.y_val[:50]), 5)
    empty_coalitions("breast cancer", breast)
    report_published(breast, folder)
    raw_columns(census, "relationship")
    for name, given in (("breast cancer", breast), ("wine", wine)):
        labels(name, given)


if __name__ == "__main__":
    main()
