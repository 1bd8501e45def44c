from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

from cellworth.knn import KNNGame
from cellworth.knn.knn_game import compute_expected_error, compute_expected_matches

BALANCED = "balanced_neighbor_agreement"


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=6), st.integers(1, 8)
)
def test_tied_rows_count_as_in_the_mean_over_all_tie_orders(rows, n_neighbors):
    distances = np.array([d for d, _ in rows], dtype=float)
    match = np.array([m for _, m in rows], dtype=bool)
    nearest = [
        sum(match[sorted(order, key=lambda r: distances[r])[:n_neighbors]])
        for order in permutations(range(len(rows)))
    ]
    assert compute_expected_matches(distances, match, n_neighbors) == pytest.approx(
        np.mean(nearest)
    )


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(-3, 3)), min_size=1, max_size=6),
    st.integers(1, 8),
)
def test_tied_targets_err_as_in_the_mean_over_all_tie_orders(rows, n_neighbors):
    distances = np.array([d for d, _ in rows])
    targets = np.array([t for _, t in rows], dtype=float)
    errors = [
        (sum(targets[sorted(order, key=lambda r: distances[r])[:n_neighbors]]) / n_neighbors - 0.7)
        ** 2
        for order in permutations(range(len(rows)))
    ]
    assert compute_expected_error(distances, targets, 0.7, n_neighbors) == pytest.approx(
        np.mean(errors)
    )


def test_without_ties_a_numeric_target_is_scored_like_kneighborsregressor():
    rng = np.random.default_rng(0)
    X, X_val = rng.normal(size=(40, 3)), rng.normal(size=(30, 3))
    y, y_val = X[:, 0] + 5, X_val[:, 0] + 5
    game = KNNGame(X, y, X_val, y_val, n_neighbors=4, scale=None)
    predicted = KNeighborsRegressor(4).fit(X, y).predict(X_val)
    everything = np.ones(40, dtype=bool), np.ones(3, dtype=bool)
    assert game.value(*everything) == pytest.approx(-np.mean((predicted - y_val) ** 2))
    chance_of_empty = np.zeros(40, dtype=bool), np.ones(3, dtype=bool)
    assert game.value(*chance_of_empty) == pytest.approx(-np.mean((y.mean() - y_val) ** 2))


def test_balanced_agreement_weighs_all_classes_equally():
    X, X_val = [[0.0], [1.0]], [[0.0], [0.0], [0.0], [0.0]]
    game = KNNGame(X, [0, 1], X_val, [0, 0, 0, 1], n_neighbors=1, scoring=BALANCED)
    assert game.value(np.ones(2, dtype=bool), np.ones(1, dtype=bool)) == pytest.approx(0.5)


def test_many_different_numbers_are_a_numeric_target():
    X = np.arange(120.0)[:, None]
    assert not KNNGame(X, np.repeat(np.arange(60), 2), cv=2).is_class
    assert not KNNGame(X, np.arange(120) % 7 + 0.5, cv=2).is_class
    assert KNNGame(X, np.arange(120) % 7, cv=2).is_class
    assert KNNGame(X, np.repeat(np.arange(60), 2), cv=2, scoring="neighbor_agreement").is_class
    assert KNNGame(X, [str(i // 2) for i in range(120)], cv=2).is_class


def test_a_warning_says_if_all_rows_always_vote():
    with pytest.warns(
        UserWarning, match="n_neighbors should be less than the number of training rows, 4, got 9"
    ):
        KNNGame([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1], [[0.0]], [0], n_neighbors=9)


def test_without_ties_one_neighbor_is_scored_like_kneighborsclassifier():
    rng = np.random.default_rng(0)
    X, X_val = rng.normal(size=(40, 3)), rng.normal(size=(30, 3))
    y, y_val = X[:, 0] > 0, X_val[:, 0] > 0
    game = KNNGame(X, y, X_val, y_val, n_neighbors=1, scale=None)
    score = KNeighborsClassifier(1).fit(X[:, :2], y).score(X_val[:, :2], y_val)
    columns = np.array([True, True, False])
    assert game.value(np.ones(40, dtype=bool), columns) == pytest.approx(score)


@pytest.fixture
def game():
    rng = np.random.default_rng(2)
    X, X_val = rng.integers(0, 3, (6, 3)), rng.integers(0, 3, (9, 3))
    return KNNGame(X, [0, 1, 2, 0, 1, 2], X_val, np.arange(9) % 3, n_neighbors=2)


def test_without_columns_all_rows_tie(game):
    rows = np.array([True, True, True, True, False, False])
    # Two votes among labels 0, 1, 2, 0: half of them match a query of label 0.
    shares = [2 / 4, 1 / 4, 1 / 4]
    assert game.value(rows, np.zeros(3, dtype=bool)) == pytest.approx(np.mean(shares))


def test_without_rows_nothing_matches(game):
    assert game.value(np.zeros(6, dtype=bool), np.ones(3, dtype=bool)) == 0.0


def test_the_papers_policy_gives_no_columns_a_utility_of_zero():
    zero = KNNGame([[0.0], [1.0]], [0, 1], [[0.0]], [0], n_neighbors=1, empty="zero")
    assert zero.value(np.ones(2, dtype=bool), np.zeros(1, dtype=bool)) == 0.0


def test_cross_validation_scores_each_row_on_the_others():
    X, y = [[0.0], [0.1], [1.0], [1.1]], [0, 0, 1, 1]
    game = KNNGame(X, y, n_neighbors=1, cv=2)
    assert game.value(np.ones(4, dtype=bool), np.ones(1, dtype=bool)) == 1.0
    assert game.problem_spec()["validation"] == "2 folds"
