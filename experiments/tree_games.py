"""A decision tree compiled for tiny tables, and the paper's estimators that need many of them.

An unpruned tree with Gini impurity and random ties between columns, as scikit-learn's default. A
fit of scikit-learn takes milliseconds whatever the size; here 40 rows of 13 columns take about
a hundredth of that, so that 500 permutations of a small table can be run. Labels are codes 0, 1,
... of all classes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

# Up to here sorting by insertion is faster.
_SMALL = 64


class Rows(NamedTuple):
    """Features and label codes."""

    X: np.ndarray
    y: np.ndarray


def permutation_values(
    train: Rows, scored: Rows, n_orders: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return what each cell adds along random orders of rows and columns, order by order.

    This is 2D-Shapley-MC, Algorithm 1 of the paper, twice: with a utility of 0 without rows or
    columns, and with the score of the most frequent label without columns.
    """
    zero, prior = (np.empty((n_orders, *train.X.shape)) for _ in range(2))
    for task in range(n_orders):
        rng = np.random.default_rng([seed, task])
        orders = tuple(rng.permutation(n) for n in train.X.shape)
        grid = _utilities(train, scored, orders, task + 1)
        at = np.ix_(*orders)
        prior[task][at] = np.diff(np.diff(grid, axis=0), axis=1)
        grid[:, 0] = grid[0] = 0
        zero[task][at] = np.diff(np.diff(grid, axis=0), axis=1)
    return zero, prior


def flat_values(train: Rows, scored: Rows, n_orders: int, seed: int) -> np.ndarray:
    """Return what each cell adds along random orders of all cells, order by order.

    This is the paper's 1-D baseline: an absent cell is the mean of those present in its column.
    """
    values = np.empty((n_orders, *train.X.shape))
    for task in range(n_orders):
        order = np.random.default_rng([seed, task]).permutation(train.X.size)
        values[task] = _add_cells(train, scored, order, task + 1)
    return values


def leave_one_out_values(train: Rows, scored: Rows, n_fits: int) -> np.ndarray:
    """Return 2D leave-one-out values, mean over fits with different seeds."""
    return np.mean([_leave_one_out(train, scored, seed + 1) for seed in range(n_fits)], axis=0)


def score(train: Rows, scored: Rows, n_fits: int) -> tuple[float, float]:
    """Return accuracy and balanced accuracy of a tree, mean over fits with different seeds."""
    found = [_accuracies(train, scored, seed + 1) for seed in range(n_fits)]
    accuracy, balanced = np.mean(found, axis=0)
    return float(accuracy), float(balanced)


@njit(cache=True)
def _next(state: int) -> int:
    """Return the next state of a 31-bit linear congruential generator."""
    return (state * 1103515245 + 12345) & 0x7FFFFFFF


@njit(cache=True)
def _majority(y: np.ndarray, rows: np.ndarray, n_classes: int) -> int:
    counts = np.zeros(n_classes)
    for row in rows:
        counts[y[row]] += 1
    return np.argmax(counts)


@njit(cache=True)
def _sort_cells(
    column: np.ndarray, y: np.ndarray, rows: np.ndarray, cells: np.ndarray, labels: np.ndarray
) -> None:
    """Write the sorted cells of these rows, and their labels, into two buffers."""
    n = len(rows)
    if n > _SMALL:
        by = np.argsort(column[rows])
        for k in range(n):
            cells[k], labels[k] = column[rows[by[k]]], y[rows[by[k]]]
        return
    for k in range(n):
        cell, label, at = column[rows[k]], y[rows[k]], k
        while at > 0 and cells[at - 1] > cell:
            cells[at], labels[at] = cells[at - 1], labels[at - 1]
            at -= 1
        cells[at], labels[at] = cell, label


@njit(cache=True)
def _best_split(
    train: Rows, rows: np.ndarray, columns: np.ndarray, n_classes: int, state: int
) -> tuple[int, float, int]:
    """Return column, threshold and state; column -1 if the rows are pure or all alike."""
    X, y = train
    n = len(rows)
    total = np.zeros(n_classes)
    for row in rows:
        total[y[row]] += 1
    best, best_column, threshold = -1.0, -1, 0.0
    if total.max() == n:
        return best_column, threshold, state
    order = columns.copy()
    for k in range(len(order) - 1, 0, -1):
        state = _next(state)
        other = (state >> 8) % (k + 1)
        order[k], order[other] = order[other], order[k]
    cells, labels = np.empty(n), np.empty(n, dtype=np.int64)
    for column in order:
        _sort_cells(X[:, column], y, rows, cells, labels)
        if cells[0] == cells[-1]:
            continue
        left, right = np.zeros(n_classes), total.copy()
        squares_left, squares_right = 0.0, (total**2).sum()
        for k in range(n - 1):
            label = labels[k]
            squares_left += 2 * left[label] + 1
            squares_right -= 2 * right[label] - 1
            left[label] += 1
            right[label] -= 1
            low, high = cells[k], cells[k + 1]
            if high > low:
                purity = squares_left / (k + 1) + squares_right / (n - k - 1)
                if purity > best + 1e-12:
                    middle = (low + high) / 2
                    best, best_column = purity, column
                    threshold = middle if middle < high else low
    return best_column, threshold, state


@njit(cache=True)
def _predict(
    train: Rows, X_new: np.ndarray, rows: np.ndarray, columns: np.ndarray, seed: int
) -> np.ndarray:
    """Grow a tree on these rows and columns; new rows walk down while it grows."""
    X, y = train
    n_classes = y.max() + 1
    predicted = np.empty(len(X_new), dtype=np.int64)
    state = _next(_next(seed * 2654435 + 1))
    stack = [(rows, np.arange(len(X_new)))]
    while stack:
        here, walking = stack.pop()
        column, threshold, state = _best_split(train, here, columns, n_classes, state)
        if column < 0 or len(walking) == 0:
            predicted[walking] = _majority(y, here, n_classes)
            continue
        below, walk_below = X[here, column] <= threshold, X_new[walking, column] <= threshold
        stack.append((here[below], walking[walk_below]))
        stack.append((here[~below], walking[~walk_below]))
    return predicted


@njit(cache=True)
def _accuracy(train: Rows, scored: Rows, rows: np.ndarray, columns: np.ndarray, seed: int) -> float:
    return (_predict(train, scored.X, rows, columns, seed) == scored.y).mean()


@njit(cache=True)
def _accuracies(train: Rows, scored: Rows, seed: int) -> tuple[float, float]:
    n, m = train.X.shape
    y_new = scored.y
    right = _predict(train, scored.X, np.arange(n), np.arange(m), seed) == y_new
    total, n_classes = 0.0, 0
    for label in np.unique(y_new):
        total += right[y_new == label].mean()
        n_classes += 1
    return right.mean(), total / n_classes


@njit(cache=True)
def _utilities(train: Rows, scored: Rows, orders: tuple[np.ndarray, ...], seed: int) -> np.ndarray:
    """Return the utility of the first i rows and first j columns; that of no rows is 0."""
    y, (rows, columns) = train.y, orders
    n, m = train.X.shape
    utility = np.zeros((n + 1, m + 1))
    for i in range(1, n + 1):
        utility[i, 0] = (scored.y == _majority(y, rows[:i], y.max() + 1)).mean()
        for j in range(1, m + 1):
            utility[i, j] = _accuracy(train, scored, rows[:i], columns[:j], seed)
    return utility


@njit(cache=True)
def _add_cells(train: Rows, scored: Rows, order: np.ndarray, seed: int) -> np.ndarray:
    X = train.X
    n, m = X.shape
    filled, present = np.empty((n, m)), np.zeros((n, m), dtype=np.bool_)
    for j in range(m):
        filled[:, j] = X[:, j].mean()
    everything, columns = np.arange(n), np.arange(m)
    before = _accuracy(Rows(filled, train.y), scored, everything, columns, seed)
    values = np.empty((n, m))
    for cell in order:
        row, column = cell // m, cell % m
        present[row, column] = True
        here = present[:, column]
        mean = X[here, column].mean()
        for i in range(n):
            filled[i, column] = X[i, column] if here[i] else mean
        after = _accuracy(Rows(filled, train.y), scored, everything, columns, seed)
        values[row, column] = after - before
        before = after
    return values


@njit(cache=True)
def _leave_one_out(train: Rows, scored: Rows, seed: int) -> np.ndarray:
    n, m = train.X.shape
    rows, columns = np.arange(n), np.arange(m)
    utility = np.empty((n + 1, m + 1))
    for i in range(n + 1):
        for j in range(m + 1):
            utility[i, j] = _accuracy(train, scored, rows[rows != i], columns[columns != j], seed)
    values = np.empty((n, m))
    for i in range(n):
        for j in range(m):
            values[i, j] = utility[n, m] - utility[i, m] - utility[n, j] + utility[i, j]
    return values
