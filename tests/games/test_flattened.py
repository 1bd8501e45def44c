import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from cellworth.games import FailedUtility
from cellworth.games.flattened import FlattenedGame
from cellworth.games.model import ModelGame

HERE = np.array([True])


class Keeps(RegressorMixin, BaseEstimator):
    """A model that keeps the tables it is trained on."""

    tables = ()

    def fit(self, X, y):
        Keeps.tables = (*Keeps.tables, X)
        return self

    def predict(self, X):
        return np.zeros(len(X))


def learned_from(X, present, y=None, **settings):
    """The tables that a model sees where these blocks are present."""
    y = np.arange(float(len(X))) if y is None else y
    given = {"X_val": X, "y_val": y} if "cv" not in settings else {}
    game = FlattenedGame(
        ModelGame(Keeps(), X, y, scoring=lambda model, X, y: 0.0, **given, **settings)
    )
    Keeps.tables = ()
    game.value(np.asarray(present, dtype=bool).ravel(), HERE)
    return Keeps.tables


NUMBERS = np.array([[1, 10], [2, 20], [6, 60]])


def test_absent_numbers_become_the_mean_of_those_present():
    (seen,) = learned_from(NUMBERS, [[1, 0], [0, 1], [1, 1]])
    np.testing.assert_array_equal(seen, [[1, 40], [3.5, 20], [6, 60]])


def test_a_column_of_which_nothing_is_present_is_constant_at_its_mean():
    (seen,) = learned_from(NUMBERS, [[0, 0], [0, 1], [0, 0]])
    np.testing.assert_array_equal(seen, [[3, 20], [3, 20], [3, 20]])


def test_gaps_of_the_table_stay_gaps_and_do_not_tell_a_mean():
    table = np.array([[1.0], [np.nan], [3.0], [8.0]])
    (seen,) = learned_from(table, [[1], [1], [1], [0]])
    np.testing.assert_array_equal(seen, [[1.0], [np.nan], [3.0], [2.0]])


def test_a_group_is_present_or_absent_as_a_whole():
    (seen,) = learned_from(NUMBERS, [[1], [0]], row_groups=["a", "b", "a"], column_groups=[0, 0])
    np.testing.assert_array_equal(seen, [[1, 10], [3.5, 35], [6, 60]])


MIXED = {
    "size": [1, 2, 6, 7],
    "mood": ["calm", "wild", "wild", "odd"],
    "sure": [True] * 3 + [False],
}
PRESENT = [[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]]
FILLED = {
    "size": [1.0, 14 / 3, 6.0, 7.0],
    "mood": ["wild", "wild", "wild", "wild"],
    "sure": [True, True, True, False],
}
LIBRARIES = {
    "pandas": (pd.DataFrame, lambda t: t.to_dict("list")),
    "pandas with an index": (
        lambda t: pd.DataFrame(t, index=list("wxyz")),
        lambda t: t.to_dict("list"),
    ),
    "polars": (pl.DataFrame, lambda t: t.to_dict(as_series=False)),
    "arrow": (pa.table, lambda t: t.to_pydict()),
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_tables_of_every_library_are_filled_in_their_own_type(library):
    make, plain = LIBRARIES[library]
    (seen,) = learned_from(make(MIXED), PRESENT, y=[0.0, 1.0, 2.0, 3.0])
    assert type(seen) is type(make(MIXED))
    assert plain(seen) == FILLED


def test_an_array_of_objects_is_filled_column_by_column():
    table = np.array(list(zip(*MIXED.values(), strict=True)), dtype=object)
    (seen,) = learned_from(table, PRESENT)
    assert seen.tolist() == [list(row) for row in zip(*FILLED.values(), strict=True)]


def test_categories_keep_their_type_and_ties_go_by_name():
    table = pd.DataFrame({"mood": pd.Categorical(["b", "a", "c"], categories=["c", "b", "a"])})
    (seen,) = learned_from(table, [[1], [1], [0]])
    assert seen["mood"].tolist() == ["b", "a", "a"]
    assert seen["mood"].dtype == table["mood"].dtype


@pytest.mark.parametrize("gap", [None, np.nan])
def test_a_column_of_gaps_cannot_be_filled(gap):
    table = pd.DataFrame({"x": [1.0, 2.0], "none": np.array([gap, gap], dtype=object)})
    (seen,) = learned_from(table, [[1, 0], [1, 0]])
    assert seen["none"].isna().all()


def test_the_rows_of_a_fold_do_not_tell_what_fills_its_training_rows():
    halves = [([0, 1], [2]), ([2], [0, 1])]
    first, second = learned_from(NUMBERS, [[1, 1], [0, 1], [1, 1]], cv=halves)
    np.testing.assert_array_equal(first, [[1, 10], [1, 20]])
    np.testing.assert_array_equal(second, [[6, 60]])


def test_everything_present_is_the_models_own_score():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 3)), rng.normal(size=20)
    game = FlattenedGame(ModelGame(LinearRegression(), X[:12], y[:12], X[12:], y[12:]))
    score = LinearRegression().fit(X[:12], y[:12]).score(X[12:], y[12:])
    assert game.value(np.ones(36, dtype=bool), HERE) == pytest.approx(score, abs=1e-12)
    assert game.value(np.ones(36, dtype=bool), ~HERE) == 0.0


def test_a_fit_that_fails_has_a_defined_utility_and_says_so():
    # Text that cannot be a number: trees refuse it wherever it is present.
    table, y = pd.DataFrame({"x": ["a", "b"]}), [0, 1]
    game = FlattenedGame(ModelGame(DecisionTreeClassifier(), table, y, table, y))
    utility = game.value(np.ones(2, dtype=bool), HERE)
    assert isinstance(utility, FailedUtility)
    assert utility == 0.5
    assert "could not convert string" in utility.message


def test_the_question_tells_it_from_the_game_of_rows_and_columns():
    y = [0.0, 1.0, 2.0]
    game = FlattenedGame(ModelGame(DecisionTreeRegressor(), NUMBERS, y, NUMBERS, y))
    assert game.problem_spec()["game"] == "FlattenedGame"
    assert game.shape == (6, 1)
