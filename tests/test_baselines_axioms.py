"""Which promises of two-dimensional values 2D-OOB and flattened cells keep, as their page says."""

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from cellworth import ModelValuer, OutOfBagValuer
from cellworth.valuers.out_of_bag import cross_moments

TOLERANCE = 1e-12


def max_difference(one, other):
    return float(np.max(np.abs(np.asarray(one) - np.asarray(other))))


# 2D-OOB plays no game; its scores are accuracies, and the game beside it is that of a tree ------

# A column that tells the labels, and a constant one, which no tree can use.
CELLS = np.column_stack([[0.0, 1.0, 2.0, 4.0, 8.0, 16.0], np.ones(6)])
LABELS = np.repeat([0, 1], 3)


def out_of_bag(X=CELLS, y=LABELS, n_trees=100, **settings):
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


@pytest.mark.nightly
@pytest.mark.parametrize("promise", OUT_OF_BAG)
def test_the_page_on_baselines_tells_the_truth_of_trees(promise):
    distance = OUT_OF_BAG[promise]()
    if promise in ("linear", "symmetric"):
        assert distance <= TOLERANCE
    else:
        assert distance > 0.05


# Flattened cells ---------------------------------------------------------------------------------
