import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.naive_bayes import GaussianNB

from cellworth import ExactValuer, value_game
from cellworth.games import ModelGame, TableGame
from cellworth.sampling import Shapley
from cellworth.valuers import Plan
from enumeration import block_values

X, Y = load_iris(return_X_y=True)
GROUPS = {"row_groups": np.arange(150) % 3, "column_groups": ["sepal", "sepal", "petal", "petal"]}


def test_exact_values_of_a_model_equal_enumeration():
    valuer = ExactValuer(GaussianNB()).fit(X, Y, X_val=X, y_val=Y, **GROUPS)
    table = TableGame.from_game(ModelGame(GaussianNB(), X, Y, X, Y, **GROUPS), (3, 2)).table
    np.testing.assert_allclose(
        valuer.values_, block_values(table, (3, 2), Shapley(), Shapley()), atol=1e-12
    )


def test_fitted_names_are_those_of_the_valuation():
    valuer = ExactValuer(GaussianNB()).fit(X, Y, X_val=X, y_val=Y, **GROUPS)
    valuation = valuer.valuation_
    assert valuer.values_ is valuation.values
    np.testing.assert_array_equal(valuer.row_values_, valuation.rows().values)
    np.testing.assert_array_equal(valuer.column_values_, valuation.columns().values)
    assert not valuer.standard_errors_.any()
    assert valuer.n_features_in_ == 4
    assert valuation.empty == "prior"


def test_a_plan_counts_utilities_and_tells_the_time():
    plan = ExactValuer(GaussianNB()).plan(X, Y, X_val=X, y_val=Y, **GROUPS)
    assert plan.utilities == 2**5
    assert 0 < plan.seconds < 5
    assert plan.allowed
    assert repr(plan).startswith("3 x 2 blocks, exact values: 2^5 = 32 utilities, about ")


def test_a_plan_of_an_absurd_run_says_so_without_running_it():
    plan = ExactValuer(GaussianNB()).plan(X, Y, X_val=X, y_val=Y)
    assert not plan.allowed
    assert "2^154 utilities, longer than the age of the universe" in repr(plan)
    assert "beyond the limit" in repr(plan)


def test_a_table_of_thousands_of_rows_gets_the_same_advice():
    table, labels = np.arange(6000.0).reshape(3000, 2), np.arange(3000) % 2
    with pytest.raises(ValueError, match=r"2\^3002 utilities, longer than .* MonteCarloValuer"):
        ExactValuer(GaussianNB()).fit(table, labels, X_val=table + 0.5, y_val=labels)
    plan = ExactValuer(GaussianNB()).plan(table, labels, X_val=table + 0.5, y_val=labels)
    assert plan.seconds == np.inf


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.5, "about 0.5 s"), (90, "about 1.5 min"), (7200, "about 2 h"), (1e6, "about 11.6 days")],
)
def test_a_plan_speaks_of_time_in_plain_words(seconds, words):
    assert Plan("exact values", (1, 1), 4, 4, seconds / 4).duration == words


def test_values_of_a_game_at_a_high_level_are_not_lost_in_rounding():
    table = np.random.default_rng(0).normal(size=(16, 16))
    plain = value_game(TableGame(table), (4, 4)).values
    high = value_game(TableGame(table + 1e6), (4, 4)).values
    # 1e6 leaves ten digits for each utility; the values keep them.
    assert np.abs(plain - high).max() < 1e-9


def test_the_limit_can_be_set():
    with pytest.raises(ValueError, match=r"2\^5 = 32 utilities, .* the limit is 31"):
        ExactValuer(GaussianNB(), max_utilities=31).fit(X, Y, **GROUPS)
    ExactValuer(GaussianNB(), max_utilities=32).fit(X, Y, X_val=X, y_val=Y, **GROUPS)


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (3, 1)])
def test_single_players_are_valued_too(shape):
    rng = np.random.default_rng(0)
    game = TableGame(rng.normal(size=(1 << shape[0], 1 << shape[1])))
    valuation = value_game(game, shape)
    assert not np.isnan(valuation.values).any()
    assert abs(valuation.efficiency_residual) < 1e-12
