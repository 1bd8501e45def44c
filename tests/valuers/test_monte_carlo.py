import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from cellworth import ExactValuer, MonteCarloValuer, load
from cellworth.runtime import MaxTasks

X, Y = load_iris(return_X_y=True)
GROUPS = {"row_groups": np.arange(150) % 4, "column_groups": ["sepal", "sepal", "petal", "petal"]}
DATA = {"X": X, "y": Y, "X_val": X, "y_val": Y, **GROUPS}


def valuer(**settings):
    return MonteCarloValuer(GaussianNB(), stop=MaxTasks(60), random_state=0, **settings)


@pytest.mark.slow
def test_estimates_agree_with_exact_values_within_their_errors():
    exact = ExactValuer(GaussianNB()).fit(**DATA).values_
    estimate = valuer().fit(**DATA)
    z = (estimate.values_ - exact) / estimate.standard_errors_
    assert np.abs(z).max() < 4.5


def test_a_drawn_seed_is_recorded_and_repeats_the_run():
    first = MonteCarloValuer(GaussianNB(), stop=MaxTasks(3)).fit(**DATA).valuation_
    seed = first.provenance.seed
    again = MonteCarloValuer(GaussianNB(), stop=MaxTasks(3), random_state=seed).fit(**DATA)
    np.testing.assert_array_equal(again.values_, first.values)


def test_a_random_state_object_gives_a_seed():
    runs = [
        MonteCarloValuer(GaussianNB(), stop=MaxTasks(2), random_state=np.random.RandomState(1)).fit(
            **DATA
        )
        for _ in range(2)
    ]
    np.testing.assert_array_equal(runs[0].values_, runs[1].values_)


@pytest.mark.slow
def test_the_default_budget_is_fifty_utilities_a_block():
    groups = {"row_groups": np.arange(150) % 8, "column_groups": np.arange(4)}
    valuation = MonteCarloValuer(GaussianNB(), random_state=0).fit(**(DATA | groups)).valuation_
    budget, per_task = 50 * 8 * 4, 2 * 9 * 5
    assert budget - per_task < valuation.provenance.tally.new <= budget


@pytest.mark.slow
def test_the_default_budget_is_exact_where_there_are_fewer_coalitions():
    groups = {"row_groups": np.arange(150) % 5, "column_groups": np.arange(4)}
    valuation = MonteCarloValuer(GaussianNB(), random_state=0).fit(**(DATA | groups)).valuation_
    exact = ExactValuer(GaussianNB()).fit(**(DATA | groups)).valuation_
    assert valuation.status == "exact"
    np.testing.assert_array_equal(valuation.values, exact.values)


@pytest.mark.slow
def test_provenance_tells_what_was_run(tmp_path):
    valuation = valuer().fit(**DATA).valuation_
    provenance = valuation.provenance
    assert provenance.seed == 0
    assert provenance.problem_spec["model"] == "sklearn.naive_bayes.GaussianNB"
    assert provenance.problem_spec["model_parameters"]["var_smoothing"] == "1e-09"
    assert len(provenance.problem_spec["data_sha256"]["X"]) == 64
    assert provenance.method["stop"] == "MaxTasks(n_tasks=60)"
    assert provenance.seconds > 0
    valuation.save(tmp_path)
    assert load(tmp_path).provenance == provenance


@pytest.mark.slow
@pytest.mark.parametrize("part", ["X", "y", "X_val", "y_val", "row_groups"])
def test_provenance_sees_any_change_of_the_data(part):
    before = valuer().fit(**DATA).valuation_.provenance.problem_spec
    changed = np.array(DATA[part], copy=True)
    changed[0] = changed[-1]
    after = valuer().fit(**(DATA | {part: changed})).valuation_.provenance.problem_spec
    assert before != after


def test_row_ids_and_names_reach_the_result():
    table = pd.DataFrame(X[:6], columns=["a", "b", "c", "d"], index=list("uvwxyz"))
    fitted = MonteCarloValuer(DecisionTreeClassifier(), stop=MaxTasks(2)).fit(
        table, [0, 1, 0, 1, 0, 1], X_val=table, y_val=[0, 1, 0, 1, 0, 1]
    )
    assert fitted.valuation_.row_labels.tolist() == list("uvwxyz")
    assert fitted.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    assert fitted.valuation_.loc["w", "c"] == fitted.values_[2, 2]
    refitted = fitted.fit(X[:6], [0, 1, 0, 1, 0, 1], X_val=X[:6], y_val=[0, 1, 0, 1, 0, 1])
    assert not hasattr(refitted, "feature_names_in_")


def test_a_valuer_can_be_cloned():
    copy = clone(valuer(empty="zero"))
    assert copy.empty == "zero"
    assert copy.stop == MaxTasks(60)
