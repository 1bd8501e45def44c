"""Which promises of two-dimensional values the baselines keep, as their page says."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.tree import DecisionTreeClassifier

from cellworth import ModelValuer, OutOfBagValuer, value_game
from cellworth.data import Blocks
from cellworth.games import ModelGame, TableGame
from cellworth.sampling import LeaveOneOut, Shapley
from cellworth.valuers.out_of_bag import cross_moments
from enumeration import line_values
from experiments.baselines import FlattenedGame

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "baselines.md"
PROMISES = ("linear", "dummy", "symmetric", "efficient", "row sums", "column sums")
TOLERANCE = 1e-12

RNG = np.random.default_rng(5)
X = RNG.normal(size=(4, 2))
Y = RNG.normal(size=4)
ROWS, COLUMNS = np.array([2, 0, 3, 1]), np.array([1, 0])


class Summary(RegressorMixin, BaseEstimator):
    """A model that learns the sum and the largest of its cells; scorers tell either."""

    def fit(self, X, y):
        self.total_, self.largest_ = float(np.sum(X)), float(np.max(X))
        return self

    def predict(self, X):
        return np.zeros(len(X))


def total(model, X, y):
    return getattr(model, "total_", 0.0)


def largest(model, X, y):
    return getattr(model, "largest_", 0.0)


def both(model, X, y):
    return 2 * total(model, X, y) + 3 * largest(model, X, y)


def leave_one_out(X, y, scoring):
    valuer = ModelValuer(Summary(), scoring=scoring, empty="zero", semivalue=LeaveOneOut())
    return valuer.fit(X, y, X_val=X, y_val=y).values_


def value_flattened(X, y, scoring):
    """All coalitions of cells, so that nothing is a matter of chance."""
    game = FlattenedGame(ModelGame(Summary(), X, y, X, y, scoring=scoring))
    blocks = Blocks.from_shape(game.shape)
    return value_game(game, blocks, estimator="exact").values.reshape(np.shape(X))


VALUES = {
    "LeaveOneOut": leave_one_out,
    "flattened cells": value_flattened,
}
ROW_VALUES = {"LeaveOneOut": LeaveOneOut()}


def max_difference(one, other):
    return float(np.max(np.abs(np.asarray(one) - np.asarray(other))))


def two_dimensional(scoring):
    """Utilities of all coalitions of rows and columns, everything empty worth 0."""
    game = ModelGame(Summary(), X, Y, X, Y, scoring=scoring, empty="zero")
    return TableGame.from_game(game, X.shape).table


# How far a valuer is from keeping each promise on this table ----------------------------------


def linear(name):
    values = VALUES[name]
    apart = 2 * values(X, Y, total) + 3 * values(X, Y, largest)
    return max_difference(values(X, Y, both), apart)


def dummy(name):
    # A sum of cells: each adds itself to every coalition of rows and columns.
    return max_difference(VALUES[name](X, Y, total), X)


def symmetric(name):
    values = VALUES[name]
    moved = values(X[np.ix_(ROWS, COLUMNS)], Y[ROWS], largest)
    return max_difference(moved, values(X, Y, largest)[np.ix_(ROWS, COLUMNS)])


def efficient(name):
    table = two_dimensional(largest)
    corners = table[-1, -1] - table[-1, 0] - table[0, -1] + table[0, 0]
    return max_difference(VALUES[name](X, Y, largest).sum(), corners)


def row_sums(name):
    table, semivalue = two_dimensional(largest), ROW_VALUES.get(name, Shapley())
    lines = line_values(table[:, -1] - table[:, 0], X.shape[0], semivalue)
    return max_difference(VALUES[name](X, Y, largest).sum(axis=1), lines)


def column_sums(name):
    table, semivalue = two_dimensional(largest), ROW_VALUES.get(name, Shapley())
    lines = line_values(table[-1] - table[0], X.shape[1], semivalue)
    return max_difference(VALUES[name](X, Y, largest).sum(axis=0), lines)


DISTANCES = {
    "linear": linear,
    "dummy": dummy,
    "symmetric": symmetric,
    "efficient": efficient,
    "row sums": row_sums,
    "column sums": column_sums,
}


# 2D-OOB plays no game; its scores are accuracies, and the game beside it is that of a tree ------

# A column that tells the labels, and a constant one, which no tree can use.
CELLS = np.column_stack([[0.0, 1.0, 2.0, 4.0, 8.0, 16.0], np.ones(6)])
LABELS = np.repeat([0, 1], 3)


def out_of_bag(X=CELLS, y=LABELS, n_trees=400, **settings):
    valuer = OutOfBagValuer(n_trees=n_trees, random_state=0, **settings)
    return valuer.fit(X, y).valuation_


def tree_values():
    valuer = ModelValuer(DecisionTreeClassifier(), estimator="exact")
    return valuer.fit(CELLS, LABELS, X_val=CELLS, y_val=LABELS)


def linear_in_the_score():
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=(2, 10, 4))
    used = rng.random((10, 3)) < 0.6
    means = [cross_moments(s, used).values for s in (2 * one + 3 * other, one, other)]
    return max_difference(means[0][:-1, :-1], (2 * means[1] + 3 * means[2])[:-1, :-1])


def dummy_column():
    assert np.abs(tree_values().values_[:, 1]).max() < TOLERANCE
    return np.abs(out_of_bag(column_share=1.0).values[:, 1]).max()


def symmetric_within_errors():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(30, 4)), np.arange(30) % 3
    X[:, 0] += y
    rows, columns = rng.permutation(30), rng.permutation(4)
    before, after = out_of_bag(X, y), out_of_bag(X[np.ix_(rows, columns)], y[rows])
    position = np.ix_(rows, columns)
    errors = np.hypot(after.sampling_se, before.sampling_se[position])
    z = (after.values - before.values[position]) / np.maximum(errors, 0.01)
    return 0.0 if np.abs(z).max() < 4.5 else np.inf


OUT_OF_BAG = {
    "linear": linear_in_the_score,
    "dummy": dummy_column,
    "symmetric": symmetric_within_errors,
    "efficient": lambda: max_difference(
        out_of_bag().total, tree_values().valuation_.expected_total
    ),
    "row sums": lambda: max_difference(out_of_bag().rows().values, tree_values().row_values_),
    "column sums": lambda: max_difference(
        out_of_bag().columns().values, tree_values().column_values_
    ),
}


def entries_of_the_page():
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    start = cells.index(["valuer", *PROMISES])
    for name, *answers in cells[start + 2 : start + 5]:
        for promise, answer in zip(PROMISES, answers, strict=True):
            kept = {"yes": True, "no": False}[answer]
            yield pytest.param(name, promise, kept, id=f"{name}-{promise}")


ENTRIES = list(entries_of_the_page())


def test_the_page_speaks_of_all_three():
    names = {entry.values[0] for entry in ENTRIES}
    assert names == {*VALUES, "OutOfBagValuer"}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "promise", "kept"), ENTRIES)
def test_the_page_on_baselines_tells_the_truth(name, promise, kept):
    distance = OUT_OF_BAG[promise]() if name == "OutOfBagValuer" else DISTANCES[promise](name)
    if kept:
        assert distance <= TOLERANCE
    else:
        assert distance > 0.05


def test_the_pages_example_of_a_dummy():
    values = value_flattened(np.array([[0.0], [3.0]]), np.array([0.0, 1.0]), total)
    np.testing.assert_allclose(values, [[-3.0], [3.0]], atol=TOLERANCE)


@pytest.mark.slow
def test_the_contrast_of_a_useless_column_is_below_zero():
    rng = np.random.default_rng(2)
    y = np.arange(40) % 2
    X = np.column_stack([y + rng.normal(scale=0.1, size=40), np.ones(40)])
    values = out_of_bag(X, y, contrast=True)
    assert (values.columns().values < 0).tolist() == [False, True]


def test_a_flattened_row_without_cells_still_teaches_its_label():
    X_val, y_val = [[0.0], [0.0], [0.0]], [0, 1, 1]
    game = FlattenedGame(
        ModelGame(DecisionTreeClassifier(), [[0.0], [0.0], [0.0]], [0, 1, 1], X_val, y_val)
    )
    assert game.value(np.zeros(3, dtype=bool), np.array([True])) == pytest.approx(2 / 3)
