"""Wrong inputs: each gets one sentence that says what came, what was expected and what to do."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.linear_model import LinearRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GroupKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from cellworth import KNNValuer, ModelValuer, OutOfBagValuer, Runtime, value_game
from cellworth.data.blocks import Blocks
from cellworth.games import ModelGame, TableGame
from cellworth.knn import KNNGame
from cellworth.runtime import (
    MaxSeconds,
    MaxTasks,
    TargetStandardError,
    Threads,
)
from cellworth.sampling import (
    AntitheticPermutations,
    Banzhaf,
    Beta,
    ExhaustiveSampler,
    PermutationSampler,
    QuadratureSampler,
    Shapley,
)
from experiments.baselines import LeverageSampler

X = pd.DataFrame({"age": [20.0, 30.0, 40.0, 50.0], "pay": [1.0, 2.0, 3.0, 4.0]})
Y = np.array(["no", "no", "yes", "yes"])
GOOD = {"X": X, "y": Y, "X_val": X, "y_val": Y}
GAME = TableGame(np.zeros((4, 4)))


def fit(model=None, **changed):
    return ModelValuer(model or DecisionTreeClassifier(), estimator="exact").fit(**(GOOD | changed))


def fit_regressor(**changed):
    numbers = {"y": [1.0, 2.0, 3.0, 4.0], "y_val": [1.0, 2.0, 3.0, 4.0]}
    return fit(LinearRegression(), **(numbers | changed))


def fit_neighbors(**changed):
    return KNNValuer(1).fit(**(GOOD | changed))


def fit_with(**settings):
    return ModelValuer(DecisionTreeClassifier(), **settings, estimator="exact").fit(**GOOD)


def monte_carlo(**settings):
    return ModelValuer(DecisionTreeClassifier(), **settings).fit(**GOOD)


def out_of_bag(X=X, y=Y, fit=None, **settings):
    return OutOfBagValuer(**settings).fit(X, y, **(fit or {}))


def play(**settings):
    return ModelGame(DecisionTreeClassifier(), **GOOD, **settings)


def with_column(name):
    return dict.fromkeys(("X", "X_val"), X.assign(**{name: [2.0, 1.0, 4.0, 3.0]}))


def moments(zone):
    return pd.DataFrame({"when": pd.date_range("2026-03-29", periods=4, freq="h", tz=zone)})


def make_mixed_moments():
    naive, aware = (moments(zone)["when"].astype(object) for zone in (None, "UTC"))
    return pd.DataFrame({"when": [naive[0], naive[1], aware[2], None]})


def twice_named():
    return pd.DataFrame(np.ones((4, 2)), columns=["age", "age"])


def with_levels():
    return X.set_index(pd.MultiIndex.from_tuples([(0, "a"), (0, "b"), (1, "a"), (1, "b")]))


class Endless:
    def value(self, rows, columns):
        return float("nan")


class Certain:
    def size_probabilities(self, n_players):
        return np.ones(n_players)


class Silent:
    def value(self, rows, columns):
        return None


pytestmark = pytest.mark.filterwarnings("ignore:n_neighbors should")

# What is done wrong, and words of the message that must come back.
MISTAKES = [
    # the table
    (lambda: fit(X=None), "must be a pandas, polars or Arrow table"),
    (lambda: fit(X={"age": [1, 2, 3, 4]}), "pandas.DataFrame(X)"),
    (lambda: fit(X=[{"age": 1}] * 4), "DataFrame(X)"),
    (lambda: fit(X=[1.0, 2.0, 3.0, 4.0]), "reshape(-1, 1)"),
    (lambda: fit(X=pl.LazyFrame({"age": [1]})), "collect()"),
    (lambda: fit(X=sparse.eye(4).tocsr()), "toarray()"),
    (lambda: fit(X=np.ma.masked_invalid([[1.0, np.nan]] * 4)), "filled(np.nan)"),
    (lambda: fit(X=np.ones((4, 2)) * 1j), "Complex data not supported"),
    (lambda: fit(X=[[1, 2], [3]]), "same number of cells"),
    (
        lambda: fit(X=np.array([[{}, 1], [2, 3], [4, 5], [6, 7]], dtype=object)),
        "must be a string, a number or missing",
    ),
    (lambda: fit(X=X[:0], y=[]), "at least one row"),
    (lambda: fit(X=X[[]]), "0 feature(s)"),
    (lambda: fit(X=twice_named()), "got 'age' 2 times;"),
    (lambda: fit(X=with_levels()), "reset_index()"),
    (lambda: fit(X=X.rename(columns={"pay": 7})), "int and str"),
    (
        lambda: fit(X=X.assign(pay=["low", "low", "high", "high"])),
        "could not convert string to float",
    ),
    # the labels
    (lambda: fit(y=None), "one label per row"),
    (lambda: fit(y="pay"), "pass y=X.pop('pay')"),
    (lambda: fit(y=["no", "yes"]), "4 rows of X, got 2"),
    (
        lambda: fit_neighbors(X=make_mixed_moments(), X_val=make_mixed_moments()),
        "must all have a time zone, or none",
    ),
    (
        lambda: fit_neighbors(X=moments("UTC"), X_val=moments(None)),
        "must all have a time zone, or none",
    ),
    (lambda: fit_regressor(y=[1.0, 2.0, 3e155, 4.0]), "y must be between"),
    (lambda: fit_regressor(y=[1e-160, 2e-160, 3e-160, 4e-160]), "got targets 3.0e-160 apart"),
    (lambda: fit_neighbors(y=[1e155, 2e155, 3.5e155, 1e200], y_val=[1.0] * 4), "y must be between"),
    (lambda: fit(y=np.ones((4, 2))), "one-dimensional"),
    (lambda: fit_regressor(y=[1, 2, np.nan, 4]), "position 2"),
    (lambda: fit(y=pd.array(["no", pd.NA, "yes", "yes"])), "position 1"),
    (
        lambda: fit(y=pd.Series(Y, index=[3, 2, 1, 0])),
        "y must have the row ids of X in the same order",
    ),
    (
        lambda: fit(row_groups=pd.Series(["a", "a", "b", "b"], index=[3, 2, 1, 0])),
        "row_groups must have the row ids of X in the same order",
    ),
    (lambda: fit(y=np.ma.masked_equal([0, 0, 1, 1], 0)), "y must not be a masked array"),
    (lambda: fit(LinearRegression()), "use a classifier"),
    (lambda: fit(y=[0.1, 0.2, 0.3, 0.4]), "use a regressor"),
    (lambda: fit(y=["no"] * 4), "two classes"),
    # the validation set
    (lambda: fit(y_val=None), "X_val needs y_val"),
    (lambda: fit(X_val=None), "y_val needs X_val"),
    (lambda: fit(y_val=["yes"] * 4), "y_val must have at least two classes"),
    (lambda: fit(y_val=["no.", "no", "yes", "yes"]), "y_val must have classes of y"),
    (lambda: fit(X_val=X[["age"]]), "same columns"),
    (lambda: fit(X=X.to_numpy(), X_val=X.to_numpy()[:, :1]), "2 columns of X, got 1"),
    (
        lambda: fit(X_val=None, y_val=None, cv=9),
        "give another cv, groups to keep together, or X_val and y_val",
    ),
    (lambda: fit(X_val=None, y_val=None, cv=[]), "at least one fold"),
    (lambda: fit(X_val=None, y_val=None, cv=[([0, 1], [2, 9])]), "positions from 0 to 3"),
    (lambda: fit(X_val=None, y_val=None, cv=[([0, 1, 2], [2, 3])]), "separate positions"),
    # groups
    (lambda: fit(row_groups=["a", "a", np.nan, "b"]), "none at position 2"),
    (
        lambda: fit(row_groups=np.array([["a"], ["a"], ["b"], ["b"]])),
        "row_groups must hold numbers, strings or dates",
    ),
    (
        lambda: fit(row_groups={"a": [0, 1], "b": [2, 77]}),
        "every row of X once, got others: 77",
    ),
    (
        lambda: fit(row_groups={"a": [0, 1, 2], "b": [2, 3]}),
        "every row of X once, got twice: 2",
    ),
    (lambda: fit(row_groups={"a": [0, 1], "b": [2]}), "every row of X once, left out: 3"),
    (lambda: fit(row_groups={"a": [0, 1, 2, 3], "b": []}), "row_groups['b'] must not be empty"),
    (lambda: fit(column_groups={"a": "age", "b": ["pay"]}), "must be a list"),
    (lambda: fit(row_groups="bank"), "one label per row"),
    (lambda: fit(column_groups="age"), "one label per column"),
    # the model and its score
    (lambda: ModelValuer(estimator="exact").fit(X, Y), "DecisionTreeClassifier()"),
    (
        lambda: ModelValuer(DecisionTreeClassifier, estimator="exact").fit(X, Y),
        "the class DecisionTreeClassifier",
    ),
    (lambda: fit(KMeans()), "must be a classifier or a regressor"),
    (lambda: play(scoring="akkuracy"), "get_scorer_names()"),
    (
        lambda: play(scoring=accuracy_score).value(np.ones(4, dtype=bool), np.ones(2, dtype=bool)),
        "scorer(model, X, y) -> float",
    ),
    (lambda: value_game(play(scoring=lambda model, X, y: np.nan)), "4 validation rows"),
    (lambda: play(empty="none"), "'prior'"),
    (lambda: fit_with(error="ignore"), "got 'ignore'"),
    (lambda: monte_carlo(estimator=ExhaustiveSampler()), "estimator must be"),
    (
        lambda: monte_carlo(estimator=AntitheticPermutations(), semivalue=(Banzhaf(), None)),
        "AntitheticPermutations estimates Shapley values, got Banzhaf()",
    ),
    (lambda: fit_with(n_repeats=0), "n_repeats must be"),
    (lambda: fit(sample_weight=[1.0, 2.0, -3.0, 1.0]), "sample_weight must be at least 0, got -3"),
    (lambda: fit(sample_weight=[1.0, np.nan, 1.0, 1.0]), "got nan at position 1"),
    (lambda: fit(sample_weight=["a", "b", "c", "d"]), "sample_weight must hold one number per row"),
    (lambda: fit(sample_weight=np.zeros(4)), "above 0 for some row"),
    (
        lambda: fit(sample_weight=pd.Series([1.0, 2.0, 3.0, 4.0], index=[3, 2, 1, 0])),
        "sample_weight must have the row ids of X in the same order",
    ),
    (
        lambda: fit(KNeighborsClassifier(1), sample_weight=np.ones(4)),
        "KNeighborsClassifier.fit does not take it",
    ),
    # semivalues, stopping rules, executors, checkpoints, seeds
    (lambda: monte_carlo(semivalue=Shapley), "semivalue must be Shapley()"),
    (lambda: Beta(0, 1), "Beta(0, 1)"),
    (
        lambda: value_game(GAME, semivalue=(Certain(), None)),
        "must return 2 non-negative numbers that add up to 1",
    ),
    (lambda: monte_carlo(stop=100), "MaxTasks(200)"),
    (lambda: MaxTasks(0), "n_tasks of MaxTasks must be an integer of at least 1, got 0"),
    (lambda: MaxSeconds(-1), "n_seconds of MaxSeconds must be"),
    (lambda: TargetStandardError(0), "largest of TargetStandardError must be"),
    (lambda: Threads(0), "n_workers of Threads must be an integer"),
    (lambda: monte_carlo(runtime=Runtime(executor=2)), "executor must be"),
    (lambda: monte_carlo(runtime=Runtime(checkpoint=3)), "checkpoint must be"),
    (lambda: monte_carlo(runtime=Runtime(on_round=3)), "on_round must be"),
    (lambda: monte_carlo(runtime=Runtime(checkpoint="run")), "random_state must be an integer"),
    (
        lambda: monte_carlo(
            runtime=Runtime(checkpoint="run"),
            random_state=np.random.RandomState(0),
        ),
        "same tasks",
    ),
    (lambda: monte_carlo(random_state=-1), "at least 0, None"),
    # games
    (
        lambda: ModelValuer(DecisionTreeClassifier(), estimator="exact").fit(
            np.arange(60.0).reshape(30, 2), [0, 1] * 15
        ),
        "3,221,225,469",
    ),
    (lambda: TableGame(np.zeros((3, 4))), "2^n_rows"),
    (lambda: TableGame([[0, 0], [0, np.nan]]), "finite utilities"),
    (lambda: value_game(GAME, (0, 2)), "at least 1"),
    (lambda: value_game(GAME, (2, 3)), "the game has (2, 2)"),
    (lambda: value_game(len, (2, 2)), "value(rows, columns)"),
    (lambda: value_game(Endless(), (2, 2)), "2 rows (0, 1)"),
    (lambda: value_game(Silent(), (2, 2)), "None of type NoneType"),
    (lambda: KNNGame(**GOOD, n_neighbors=0), "n_neighbors must be an integer"),
    (lambda: KNNGame(**GOOD, scoring="f1"), "'balanced_neighbor_agreement'"),
    (lambda: KNNValuer(scale="range").fit(**GOOD), "scale must be 'robust', 'std' or None"),
    (lambda: fit_neighbors(column_types=["age"]), "column_types must be a mapping"),
    (
        lambda: fit_neighbors(column_types={"agee": "numeric"}),
        "column_types must name columns of X, got 'agee'",
    ),
    (lambda: fit_neighbors(column_types={"age": "ordinal"}), "column_types of column 'age'"),
    (
        lambda: fit_neighbors(X=X.assign(pay="high"), column_types={"pay": "numeric"}),
        "cells of column 'pay' must be numbers",
    ),
    (lambda: fit_neighbors(X_val=X.assign(pay=np.inf)), "column 'pay' must be finite"),
    (
        lambda: fit_neighbors(X_val=X.assign(age=X["age"].astype(str))),
        "column 'age' must have the same type in X and X_val",
    ),
    (
        lambda: fit_neighbors(X=X.assign(age=X["age"] * 1j)),
        "column 'age' must have numbers, dates, strings",
    ),
    (lambda: fit_neighbors(y=[1, 2, 3, 4], y_val=[1, 2, 3, 5]), "neg_mean_squared_error"),
    (lambda: fit_neighbors(groups=[1, 1, 2, 2]), "groups must be None if X_val is given"),
    (lambda: fit_neighbors(X_val=None, y_val=None, cv="kfold"), "cv='kfold' cannot split"),
    (lambda: fit_neighbors(value_labels="no"), "value_labels must be True or False, got 'no'"),
    (lambda: fit_neighbors(X_val=None, y_val=None, cv=[([], [0, 1, 2, 3])]), "1 folds came"),
    (
        lambda: KNNValuer(sampler=ExhaustiveSampler).fit(**GOOD),
        "sampler must be ExhaustiveSampler()",
    ),
    (
        lambda: KNNValuer(sampler=LeverageSampler(2)).fit(**GOOD | with_column("size")),
        "PermutationSampler(1)",
    ),
    (
        lambda: KNNValuer(sampler=QuadratureSampler("many")).fit(**GOOD),
        "coalitions of QuadratureSampler must be an integer",
    ),
    (
        lambda: KNNValuer(sampler=PermutationSampler(0)).fit(**GOOD),
        "orders of PermutationSampler must be an integer",
    ),
    (
        lambda: LeverageSampler().draw(5, Banzhaf(), np.random.default_rng(0)),
        "LeverageSampler is for Shapley values",
    ),
    (lambda: KNNValuer(n_passes=0).fit(**GOOD), "n_passes must be an integer"),
    (lambda: fit_neighbors(**with_column("(label)"), value_labels=True), "rename it"),
    (
        lambda: fit_neighbors(X_val=None, y_val=None, groups=[1, 2], cv=GroupKFold(2)),
        "groups must have one entry",
    ),
    # baselines
    (lambda: out_of_bag(X[:1], [1.5]), "at least 2 rows"),
    (lambda: out_of_bag(n_trees=0), "n_trees must be an integer"),
    (lambda: out_of_bag(column_share=0), "above 0 and at most 1, got 0"),
    (
        lambda: out_of_bag(X.assign(tags=[[1]] * len(X)), model=DecisionTreeClassifier()),
        "must have numbers, dates, strings or categories, got",
    ),
    (lambda: out_of_bag(distance="yes"), "distance must be True or False, got 'yes'"),
    (lambda: out_of_bag(max_features="all"), "the model could not be trained and scored"),
    # results
    (lambda: fit().valuation_.lowest(0), "k must be an integer"),
    (lambda: fit().valuation_.loc[99, "age"], "no row is called 99"),
    (lambda: fit().valuation_.loc[0], "a row and a column"),
    (lambda: fit().valuation_.loc[0:2, "age"], "not other slices"),
    (lambda: fit().valuation_.to_frame(backend="excel"), "'pandas', 'polars' or 'pyarrow'"),
    (lambda: Blocks.cut([(1, "a"), (1, "b")], ["a"]), "one number, string or date per row"),
    (lambda: Blocks.cut(np.array([1], dtype="M8[ns]"), ["a"]), "dates in microseconds"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("make", "words"), MISTAKES, ids=[words for _, words in MISTAKES])
def test_a_mistake_gets_one_clear_sentence(make, words):
    with pytest.raises((ValueError, TypeError, KeyError), match=re.escape(words)) as caught:
        make()
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 420
