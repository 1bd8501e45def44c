from itertools import permutations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LinearRegression
from sklearn.naive_bayes import GaussianNB

from cellworth import Runtime, load, value_game
from cellworth.data import Blocks
from cellworth.games.flattened import FlattenedGame
from cellworth.games.game import utilities
from cellworth.games.model import ModelGame
from cellworth.runtime import MaxTasks, TargetStandardError
from cellworth.valuers import FlattenedValuer
from cellworth.valuers.baselines import Arrivals, BlockOrder

X, Y = load_iris(return_X_y=True)
GROUPS = {"row_groups": np.arange(150) % 4, "column_groups": ["sepal", "sepal", "petal", "petal"]}
DATA = {"X": X, "y": Y, "X_val": X, "y_val": Y, **GROUPS}


def valuer(stop=None, **settings):
    stop = stop or MaxTasks(60)
    return FlattenedValuer(GaussianNB(), stop=stop, random_state=0, **settings)


@pytest.fixture(scope="module")
def exact():
    """One-dimensional Shapley values from all coalitions of the eight blocks."""
    game = FlattenedGame(ModelGame(GaussianNB(), **DATA))
    return value_game(game, Blocks.from_shape(game.shape)).values.reshape(4, 2)


@pytest.mark.slow
def test_estimates_agree_with_all_coalitions_within_their_errors(exact):
    estimate = valuer().fit(**DATA)
    z = (estimate.values_ - exact) / estimate.standard_errors_
    assert np.abs(z).max() < 4.5


def test_the_mean_over_all_orders_is_the_shapley_value():
    table, y = np.array([[0.0, 1.0], [2.0, 5.0]]), np.array([0.0, 1.0])
    scoring = "neg_mean_squared_error"
    game = FlattenedGame(ModelGame(LinearRegression(), table, y, table + 0.1, y, scoring=scoring))
    orders = [BlockOrder(np.array(order)) for order in permutations(range(4))]
    seen = Arrivals((2, 2))(orders, [utilities(game, order)[0] for order in orders])
    shapley = value_game(game, Blocks.from_shape((4, 1))).values.reshape(2, 2)
    np.testing.assert_allclose(seen.mean[:-1, :-1], shapley, atol=1e-12)


def test_values_add_up_to_everything_minus_everything_filled():
    valuation = valuer(MaxTasks(1)).fit(**DATA).valuation_
    game = FlattenedGame(ModelGame(GaussianNB(), **DATA))
    ends = [game.value(np.full(8, full), np.array([True])) for full in (True, False)]
    assert valuation.expected_total == pytest.approx(ends[0] - ends[1], abs=1e-12)
    assert abs(valuation.efficiency_residual) < 1e-12
    assert "(score minus baseline, residual" in repr(valuation)
    assert "empty='" not in repr(valuation)


def test_sums_of_rows_and_columns_have_errors_of_their_own():
    valuation = valuer().fit(**DATA).valuation_
    for sums, axis in ((valuation.rows(), 1), (valuation.columns(), 0)):
        np.testing.assert_allclose(sums.values, valuation.values.sum(axis=axis))
        assert np.isfinite(sums.sampling_se).all()


@pytest.mark.slow
def test_a_stopping_rule_ends_the_run():
    valuation = valuer(TargetStandardError(0.05) | MaxTasks(500)).fit(**DATA).valuation_
    assert valuation.sampling_se.max() < 0.05
    assert valuation.counts.max() < 500


def test_a_journal_continues_the_run(tmp_path):
    journal = tmp_path / "run"
    valuer(MaxTasks(5), runtime=Runtime(checkpoint=journal)).fit(**DATA)
    resumed = valuer(MaxTasks(9), runtime=Runtime(checkpoint=journal)).fit(**DATA)
    np.testing.assert_array_equal(resumed.values_, valuer(MaxTasks(9)).fit(**DATA).values_)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_names_and_values_do_not_depend_on_the_library(make):
    columns = {name: X[:, j] for j, name in enumerate("abcd")}
    table = make(columns)
    given = {"X": table, "X_val": table, "y": Y, "y_val": Y, "row_groups": GROUPS["row_groups"]}
    ours = valuer(MaxTasks(2)).fit(**given)
    of_array = valuer(MaxTasks(2)).fit(**(given | {"X": X, "X_val": X}))
    np.testing.assert_array_equal(ours.values_, of_array.values_)
    assert ours.feature_names_in_.tolist() == list("abcd")


def test_a_flattened_valuation_can_be_saved_and_is_not_mixed_up_with_others(tmp_path):
    valuation = valuer(MaxTasks(2)).fit(**DATA).valuation_
    valuation.save(tmp_path)
    assert load(tmp_path).provenance.problem_spec["game"] == "FlattenedGame"
