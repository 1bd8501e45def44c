"""Algorithm 2 of the paper (2D-KNN, Liu et al. 2023) word by word, to be timed against.

One order of the columns at a time, shared by all queries; for each of its prefixes and each query
the rows are ranked by NumPy, and the recursion of Jia et al. (2019) runs over the ranks in Python.
"""

from __future__ import annotations

import numpy as np


def knn_values(X, y, query, label, n_neighbors):
    """Shapley values of the rows for one query, on the columns given."""
    n_rows = len(y)
    order = np.argsort(np.linalg.norm(X - query, axis=1))
    # Plain Python numbers: a loop over NumPy's would take five times as long.
    match = (y[order] == label).astype(float).tolist()
    value = match[-1] / n_rows
    ranked = [value]
    for rank in range(n_rows - 1, 0, -1):
        step = (match[rank - 1] - match[rank]) / n_neighbors
        value += step * min(n_neighbors, rank) / rank
        ranked.append(value)
    values = np.empty(n_rows)
    values[order] = ranked[::-1]
    return values


def one_permutation(X, y, queries, labels, *, n_neighbors, order):
    """Marginal values of all cells along one order of the columns, mean over queries."""
    cells = np.zeros(X.shape)
    before = np.zeros(len(y))
    for place, column in enumerate(order):
        prefix = order[: place + 1]
        values = np.mean(
            [
                knn_values(X[:, prefix], y, query[prefix], label, n_neighbors)
                for query, label in zip(queries, labels, strict=True)
            ],
            axis=0,
        )
        cells[:, column] += values - before
        before = values
    return cells
