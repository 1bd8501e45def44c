"""Algorithm 2 of the paper (2D-KNN, Liu et al. 2023), at the speed of its authors' function.

As in their scripts, squared differences are taken once per query and added column by column along
an order of the columns that all queries share; rows are sorted once per prefix; and the recursion
of Jia et al. (2019) runs over the ranks in Python, adding only where the label changes. Unlike in
their scripts, the first column of an order gets its share, as the paper says.

``many_permutations`` is the same algorithm in vectorized NumPy: all queries at once.
"""

from __future__ import annotations

import numpy as np


def one_permutation(X, y, queries, labels, *, n_neighbors, order):
    """Return marginal values of all cells along one order of the columns, mean over queries."""
    cells = np.zeros(X.shape[::-1])
    for query, label in zip(queries, labels, strict=True):
        squares = np.square(X - query).T
        match = (y == label).astype(int)
        distances, before = np.zeros(len(y)), np.zeros(len(y))
        for column in order:
            distances += squares[column]
            values = knn_values(distances, match, n_neighbors)
            cells[column] += values - before
            before = values
    return cells.T / len(queries)


def knn_values(distances, match, n_neighbors):
    """Return Shapley values of the rows for one query, from the farthest row to the nearest."""
    farthest_first = np.argsort(-distances)
    ranked = match[farthest_first]
    changes = ranked[1:] - ranked[:-1]
    value = ranked[0] / len(ranked)
    values = [value]
    # Beyond the nearest K each step is divided by its rank.
    for change, rank in zip(changes, range(len(changes), n_neighbors, -1), strict=False):
        if change:
            value += change / rank
        values.append(value)
    for change in changes[-n_neighbors:]:
        if change:
            value += change / n_neighbors
        values.append(value)
    of_rows = np.empty(len(ranked))
    of_rows[farthest_first] = values
    return of_rows


def many_permutations(X, y, queries, labels, *, n_neighbors, orders, nothing=0.0):
    """Return marginal values of all cells by order, mean over queries.

    Rows are worth ``nothing`` without columns: 0 as in the paper, or ``values_of_ties``.
    """
    squares = np.square(X.T[:, np.newaxis] - queries.T[:, :, np.newaxis])
    match = (y == labels[:, np.newaxis]).astype(float)
    settings = {"n_neighbors": n_neighbors, "nothing": nothing}
    return np.array([value_order(squares, match, order, **settings) for order in orders])


def value_order(squares, match, order, *, n_neighbors, nothing=0.0, kind=None):
    """Return marginal values of all cells along one order, with ties as this kind of sort has them.

    Squares are those of each column, query and row.
    """
    cells = np.empty((match.shape[1], len(squares)))
    distances, before = np.zeros(match.shape), nothing
    for column in order:
        distances += squares[column]
        after = value_ranks(distances.argsort(axis=1, kind=kind), match, n_neighbors)
        cells[:, column] = after - before
        before = after
    return cells


def value_ranks(nearest_first, match, n_neighbors):
    """Return Shapley values of the rows, mean over queries, if rows are nearest in this order."""
    ranked = np.take_along_axis(match, nearest_first, axis=1)
    ranks = np.maximum(np.arange(1, match.shape[1] + 1), n_neighbors)
    steps = np.append(ranked[:, :-1] - ranked[:, 1:], ranked[:, -1:], axis=1) / ranks
    of_ranks = steps[:, ::-1].cumsum(axis=1)[:, ::-1] / len(match)
    return np.bincount(nearest_first.ravel(), of_ranks.ravel())


def values_of_ties(y, labels, *, n_neighbors):
    """Return row values if all rows tie: their mean over all orders of the rows."""
    match = (y == labels[:, np.newaxis]).astype(float)
    votes = 1 / np.maximum(np.arange(1, len(y) + 1), n_neighbors)
    displaced = -np.diff(votes) @ np.arange(1, len(y)) / len(y)
    others = (match.sum(axis=1, keepdims=True) - match) / (len(y) - 1)
    return (votes.mean() * match - displaced * others).mean(axis=0)
