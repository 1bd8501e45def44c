"""Labels that the cells of their row contradict, with the label that fits better."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import ColumnTypes, Floats, Integers
from cellworth.data.problem import read_target
from cellworth.data.tables import Table, TableLike, VectorLike
from cellworth.data.text import format_count
from cellworth.findings.anomaly import ask_levels, predict_left_out
from cellworth.findings.features import FeatureColumn, Features, read_columns
from cellworth.findings.finding import Action, Finding

_N_TREES = 200
# Rows that one tree is trained on, so that large tables take seconds.
_ROWS_PER_TREE = 5_000
# After so many trees, rows are left out of which nothing more needs to be known.
_TREES_AT_ONCE = 10
_MIN_CHANCE = 1e-3
# Labels are doubtful if another one has at least this probability.
_CONFIDENT = 0.9
_MIN_ROWS = 50


def label_scores(X: TableLike, y: VectorLike, *, column_types: ColumnTypes | None = None) -> Floats:
    """Score how unlikely the label of every row is, given the cells of the row.

    A score is the mean of minus two log probabilities, neither of which knows the row's own label:
    by extremely randomized trees that have not seen the row, and by a ridge regression without it.

    Parameters
    ----------
    X : data frame or array of shape (n_rows, n_columns)
        Numbers, strings, categories, booleans, dates and durations. A missing value counts as a
        content of its own.
    y : array of shape (n_rows,)
        Class labels.
    column_types : mapping, default=None
        ``{"postcode": "categorical"}`` where the guess from the type is wrong.

    Returns
    -------
    array of shape (n_rows,)
        High scores mark labels that the cells contradict: sort by them to look at all rows. They
        change a little with the order of the rows, because trees draw rows.

    See Also
    --------
    anomaly_scores : The same question for cells.
    cellworth.audit : Lists only labels for which another one is probable.

    Examples
    --------
    >>> from cellworth.findings import label_scores
    >>> X = [[size, size % 7] for size in range(60)]
    >>> y = ["small"] * 30 + ["large"] * 30
    >>> y[4] = "large"
    >>> int(label_scores(X, y).argmax())
    4
    """
    table = Table.from_data(X, called="X")
    target, classes = read_target(y, table)
    if classes is None:
        raise ValueError("y must be class labels, got a numeric target; pass strings for classes.")
    columns = read_columns(table, column_types)
    return score_labels(columns, np.searchsorted(classes, target))[0]


def score_labels(
    columns: Sequence[FeatureColumn], labels: Integers, features: Features | None = None,
    least: float = 0.0,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Return scores, high where both models find the label unlikely, and the trees' probabilities.

    ``features`` are those of the columns and the label, if they are known; ``least`` is that of
    ``predict_by_trees``.
    """
    chances = predict_by_trees(columns, labels, least)
    label, position = FeatureColumn.from_levels(labels), len(columns)
    features = features or Features([*columns, label])
    by_ridge = predict_left_out(features, {position: ask_levels(label)})[position]
    both = chances[np.arange(len(labels)), labels], by_ridge
    return -np.log(np.clip(both, _MIN_CHANCE, 1.0)).mean(axis=0), chances


def find_wrong_labels(
    columns: Sequence[FeatureColumn], labels: Integers, classes: NDArray[Any],
    features: Features | None = None,
) -> Iterator[Finding]:  # fmt: skip
    """Yield the rows of each class whose cells speak for another one, the surest first."""
    # Labels of which most rows have one of their own are names of rows, and cannot be predicted.
    if len(labels) < _MIN_ROWS or not 2 <= len(classes) <= len(labels) / 2:
        return
    scores, others = score_labels(columns, labels, features, _CONFIDENT)
    others[np.arange(len(others)), labels] = -1.0
    best = others.argmax(axis=1)
    doubtful = others.max(axis=1) >= _CONFIDENT
    names = [repr(name) for name in classes.tolist()]
    for given, likely in product(range(len(classes)), repeat=2):
        rows = np.flatnonzero(doubtful & (labels == given) & (best == likely))
        if len(rows):
            count = format_count(len(rows), "row has", "rows have")
            yield Finding(
                "wrong label", (), rows[np.argsort(-scores[rows])],
                f"{count} the label {names[given]}, but cells as in rows with {names[likely]}.",
                Action("check", text=f"check whether they are {names[likely]}"), 0.5,
            )  # fmt: skip


def predict_by_trees(
    columns: Sequence[FeatureColumn], labels: Integers, least: float = 0.0
) -> Floats:
    """Return the probability of each label by trees that have not seen the row.

    They are scikit-learn's extremely randomized trees on bootstrap samples. Where no label but the
    row's own can reach ``least``, the probability is that of the first trees.
    """
    from sklearn import config_context
    from sklearn.tree import ExtraTreeClassifier

    X = np.column_stack([_as_numbers(column).astype(np.float32) for column in columns])
    n_rows, rng = len(labels), np.random.RandomState(0)
    sums, n_trees, left = np.zeros((n_rows, labels.max() + 1)), np.zeros(n_rows), np.arange(n_rows)
    for number in range(_N_TREES):
        if number % _TREES_AT_ONCE == 0:
            # As if all later trees were sure of another label.
            others = np.where(np.arange(sums.shape[1]) == labels[left, None], 0.0, sums[left])
            more = _N_TREES - number
            left = left[others.max(axis=1) + more > least * (n_trees[left] + more) - 1e-6]
            asked = X[left]
        seed = rng.randint(np.iinfo(np.int32).max)
        drawn = np.random.RandomState(seed).randint(0, n_rows, min(n_rows, _ROWS_PER_TREE))
        counts = np.bincount(drawn, minlength=n_rows)
        rows = np.flatnonzero(counts)
        tree = ExtraTreeClassifier(min_samples_leaf=2, random_state=seed)
        with warnings.catch_warnings(), config_context(skip_parameter_validation=True):
            # Many labels among few rows.
            warnings.simplefilter("ignore")
            tree.fit(X[rows], labels[rows], counts[rows].astype(np.float64), check_input=False)
        is_new = counts[left] == 0
        found = tree.predict_proba(asked, check_input=False) * is_new[:, None]
        sums[np.ix_(left, tree.classes_)] += found
        n_trees[left] += is_new
    return np.asarray(sums / np.maximum(n_trees, 1.0)[:, None])


def _as_numbers(column: FeatureColumn) -> Floats:
    """Return numbers, or how frequent levels are; missing values are below all others."""
    if column.numbers is None:
        return np.asarray(column.counts[column.levels], dtype=np.float64)
    lowest = np.min(column.numbers[column.known], initial=0.0)
    return np.where(column.known, column.numbers, lowest - 1.0)
