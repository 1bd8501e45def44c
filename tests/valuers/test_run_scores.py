"""What stands beside the score: accuracy of the vote, the most frequent class, R squared."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.metrics import balanced_accuracy_score, r2_score, root_mean_squared_error
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from cellworth import (
    KNNValuer,
    ModelValuer,
    OutOfBagValuer,
    ShardedKNNValuer,
    ShardedTable,
    load,
    value_game,
)
from cellworth.games import TableGame
from cellworth.knn import BinnedRanks, KNNGame
from cellworth.runtime import MaxTasks
from cellworth.sampling import PermutationSampler

BALANCED = "balanced_neighbor_agreement"


def problem(n_classes=2, n_rows=120, n_queries=40):
    rng = np.random.default_rng(n_rows)
    X, X_val = rng.random((n_rows, 4)), rng.random((n_queries, 4))
    cuts = np.linspace(0, 1, n_classes + 1)[1:-1] ** 2
    y, y_val = (
        np.searchsorted(cuts, each[:, 0] + rng.normal(0, 0.2, len(each))) for each in (X, X_val)
    )
    return {"X": X, "y": y, "X_val": X_val, "y_val": y_val}


def fitted(given, n_neighbors=5, **settings):
    valuer = KNNValuer(n_neighbors, scale=None, **settings)
    return valuer.fit(**given).valuation_


@pytest.mark.parametrize("n_neighbors", [1, 5, 7])
@pytest.mark.parametrize("ranking", [None, BinnedRanks(15)])
def test_accuracy_is_that_of_a_classifier_with_the_same_neighbors(n_neighbors, ranking):
    given = problem()
    model = KNeighborsClassifier(n_neighbors).fit(given["X"], given["y"])
    predicted = model.predict(given["X_val"])
    settings = {"n_neighbors": n_neighbors, "ranking": ranking}
    plain = fitted(given, **settings)
    assert plain.scores.accuracy == pytest.approx(np.mean(predicted == given["y_val"]))
    balanced = fitted(given, scoring=BALANCED, **settings).scores
    right = balanced_accuracy_score(given["y_val"], predicted)
    assert balanced.accuracy == pytest.approx(right)
    shares = model.predict_proba(given["X_val"])[np.arange(40), given["y_val"]]
    assert plain.score == pytest.approx(shares.mean())
    guess = DummyClassifier().fit(given["X"], given["y"])
    right = guess.score(given["X_val"], given["y_val"])
    assert plain.scores.majority == pytest.approx(right)
    assert balanced.majority == pytest.approx(0.5)


def test_rows_that_tie_for_the_last_votes_share_them():
    X, y = [[0.0], [1.0], [1.0], [1.0], [2.0]], np.array([0, 0, 1, 2, 1])
    X_val, y_val = [[0.0], [0.5], [1.0]], np.array([0, 1, 2])
    # One vote of class 0, and two for three rows of all classes; three equal votes; the same.
    right = [1.0, 0.0, 1 / 3]
    given = {"X": X, "y": y, "X_val": X_val, "y_val": y_val}
    assert fitted(given, 3).scores.accuracy == pytest.approx(np.mean(right))


def test_a_numeric_target_has_r2_and_an_error_in_its_own_units():
    rng = np.random.default_rng(0)
    X, X_val = rng.random((80, 3)), rng.random((30, 3))
    y, y_val = 100 + 20 * X[:, 0] + rng.normal(size=80), 100 + 20 * X_val[:, 0]
    predicted = KNeighborsRegressor(5).fit(X, y).predict(X_val)
    found = fitted({"X": X, "y": y, "X_val": X_val, "y_val": y_val}).scores
    assert found.r2 == pytest.approx(r2_score(y_val, predicted))
    assert found.rmse == pytest.approx(root_mean_squared_error(y_val, predicted))
    assert (found.n_classes, found.task) == (None, "regression")
    assert math.isnan(found.accuracy)
    constant = fitted({"X": X, "y": y, "X_val": X_val, "y_val": np.full(30, 100.5)})
    assert math.isnan(constant.scores.r2)
    assert constant.scores.rmse > 0


def small_tasks(monkeypatch):
    for name, size in (("_RANKED_PER_TASK", 2000), ("_MIN_PER_COLUMN", 8)):
        monkeypatch.setattr(f"cellworth.knn.tasks.{name}", size)


def test_an_interrupted_run_tells_of_the_rows_that_it_was_judged_on(monkeypatch):
    small_tasks(monkeypatch)
    settings = {"sampler": PermutationSampler(1), "n_passes": 3, "random_state": 0}
    with pytest.warns(UserWarning, match="interrupted"):
        part = fitted(problem(), stop=MaxTasks(3), **settings)
    whole = fitted(problem(), **settings)
    assert 0 < part.scores.n_validation_rows < 40 == part.scores.n_given_rows
    assert f"{part.scores.n_validation_rows} of 40 validation rows" in part.scores.scored_on
    n_right = part.scores.accuracy * part.scores.n_validation_rows
    assert n_right == pytest.approx(round(n_right))
    assert whole.scores.scored_on == "40 validation rows"


def test_scores_are_saved_loaded_and_merged(tmp_path):
    settings = {"sampler": PermutationSampler(1), "n_passes": 2}
    one, other = (fitted(problem(), random_state=seed, **settings) for seed in (0, 1))
    one.save(tmp_path / "values")
    plain = one.scores.to_plain()
    assert load(tmp_path / "values").scores.to_plain() == plain
    assert one.merge(other).scores.to_plain() == plain
    assert replace(one, scores=None).scores is None


@pytest.mark.slow
def test_votes_of_more_than_two_classes_are_not_known_of_shards(tmp_path):
    given = problem(n_classes=3)
    table = pd.DataFrame(given["X"]).add_prefix("x").assign(label=given["y"])
    table.to_parquet(tmp_path / "rows.parquet", row_group_size=60)
    valuer = ShardedKNNValuer(5, sampler=PermutationSampler(1), n_passes=1, random_state=0)
    sharded = ShardedTable.from_files(tmp_path, target="label", shards=2)
    names = [f"x{j}" for j in range(4)]
    judges = {"X_val": pd.DataFrame(given["X_val"], columns=names), "y_val": given["y_val"]}
    found = valuer.fit(sharded, **judges).valuation_
    whole = fitted(given, sampler=PermutationSampler(1), n_passes=1, random_state=0).scores
    assert math.isnan(found.scores.accuracy)
    assert found.scores.majority == whole.majority
    assert found.scores.n_validation_rows == 40


def test_models_are_told_of_with_their_own_score():
    given = problem(n_classes=3)
    groups = {"row_groups": np.arange(120) % 3, "column_groups": [0, 0, 1, 1]}
    tree = DecisionTreeClassifier(random_state=0)
    model = tree.fit(given["X"], given["y"])
    valuation = ModelValuer(tree, estimator="exact").fit(**given, **groups).valuation_
    assert valuation.scores.scoring == "accuracy"
    assert valuation.score == pytest.approx(model.score(given["X_val"], given["y_val"]))
    assert valuation.scores.accuracy == valuation.score
    assert valuation.scores.majority == pytest.approx(valuation.baseline)
    assert valuation.scores.scored_on == "40 validation rows"
    X, y = given["X"], given["y"]
    balanced = ModelValuer(tree, scoring="balanced_accuracy", estimator="exact")
    folds = balanced.fit(X, y, cv=3, **groups).valuation_.scores
    scores = cross_val_score(DummyClassifier(), X, y, cv=3, scoring="balanced_accuracy")
    assert folds.majority == pytest.approx(scores.mean())
    assert folds.scored_on == "3-fold cross-validation over 120 rows"


def test_a_model_of_a_numeric_target_has_r2_beside_its_squared_error():
    given = problem()
    given |= {"y": given["X"][:, :3].sum(axis=1), "y_val": given["X_val"][:, :3].sum(axis=1)}
    groups = {"row_groups": np.arange(120) % 2, "column_groups": [0, 0, 1, 1]}
    tree = DecisionTreeRegressor(random_state=0, max_depth=2)
    valuer = ModelValuer(tree, scoring="neg_mean_squared_error", estimator="exact")
    found = valuer.fit(**given, **groups).valuation_.scores
    predicted = tree.fit(given["X"], given["y"]).predict(given["X_val"])
    assert found.r2 == pytest.approx(r2_score(given["y_val"], predicted))
    assert found.rmse == pytest.approx(root_mean_squared_error(given["y_val"], predicted))


def test_games_without_validation_rows_have_no_scores():
    assert value_game(TableGame(np.arange(16.0).reshape(4, 4))).scores is None
    given = problem()
    outside = OutOfBagValuer(n_trees=10, random_state=0)
    assert outside.fit(given["X"], given["y"]).valuation_.scores is None
    small = {name: each[:6] for name, each in given.items()}
    scores = value_game(KNNGame(*small.values(), n_neighbors=1)).scores
    assert (scores.scoring, scores.n_validation_rows) == ("neighbor_agreement", 6)
