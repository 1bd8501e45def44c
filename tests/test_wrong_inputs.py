"""Wrong inputs: each gets one sentence that says what came, what was expected and what to do."""

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
from cellworth.data import Blocks
from cellworth.games import ModelGame, TableGame
from cellworth.knn import KNNGame
from cellworth.runtime import (
    MaxSeconds,
    MaxTasks,
    MaxUtilities,
    TargetStandardError,
    Threads,
)
from cellworth.sampling import (
    AntitheticPermutations,
    Banzhaf,
    Beta,
    ExhaustiveSampler,
    GaussianProcess,
    LeaveOneOut,
    LeverageSampler,
    PermutationSampler,
    QuadratureSampler,
    Shapley,
)

X = pd.DataFrame({"age": [20.0, 30.0, 40.0, 50.0], "pay": [1.0, 2.0, 3.0, 4.0]})
Y = np.array(["no", "no", "yes", "yes"])
GOOD = {"X": X, "y": Y, "X_val": X, "y_val": Y}
THREE_COLUMNS = dict.fromkeys(("X", "X_val"), X.assign(size=[2.0, 1.0, 4.0, 3.0]))
GAME = TableGame(np.zeros((4, 4)))


def fit(model=None, **changed):
    return ModelValuer(model or DecisionTreeClassifier(), estimator="exact").fit(**(GOOD | changed))


def fit_regressor(**changed):
    numbers = {"y": [1.0, 2.0, 3.0, 4.0], "y_val": [1.0, 2.0, 3.0, 4.0]}
    return fit(LinearRegression(), **(numbers | changed))


def fit_with(**settings):
    return ModelValuer(DecisionTreeClassifier(), **settings, estimator="exact").fit(**GOOD)


def monte_carlo(**settings):
    return ModelValuer(DecisionTreeClassifier(), **settings).fit(**GOOD)


def out_of_bag(X=X, y=Y, fit=None, **settings):
    return OutOfBagValuer(**settings).fit(X, y, **(fit or {}))


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

# What is done wrong, and the words that must come back: what came, and what to do about it.
MISTAKES = {
    # the table
    "X is missing": (
        lambda: fit(X=None),
        ["got NoneType", "must be a pandas, polars or Arrow table"],
    ),
    "X is text": (
        lambda: fit(X="table.csv"),
        ["str", "two-dimensional array", "read the file first"],
    ),
    "X is a dictionary": (lambda: fit(X={"age": [1, 2, 3, 4]}), ["dict", "pandas.DataFrame(X)"]),
    "X is a list of dictionaries": (lambda: fit(X=[{"age": 1}] * 4), ["dict", "DataFrame(X)"]),
    "X is one-dimensional": (lambda: fit(X=[1.0, 2.0, 3.0, 4.0]), ["1D array", "reshape(-1, 1)"]),
    "X has three dimensions": (lambda: fit(X=np.ones((4, 2, 1))), ["3D array", "Reshape"]),
    "X is sparse": (lambda: fit(X=sparse.eye(4).tocsr()), ["sparse", "toarray()"]),
    "X is masked": (
        lambda: fit(X=np.ma.masked_invalid([[1.0, np.nan]] * 4)),
        ["masked", "filled(np.nan)"],
    ),
    "X is complex": (lambda: fit(X=np.ones((4, 2)) * 1j), ["Complex data not supported"]),
    "X is lazy": (lambda: fit(X=pl.LazyFrame({"age": [1]})), ["lazy", "collect()"]),
    "X is ragged": (lambda: fit(X=[[1, 2], [3]]), ["different lengths", "same number of cells"]),
    "X holds a dictionary": (
        lambda: fit(X=np.array([[{}, 1], [2, 3], [4, 5], [6, 7]], dtype=object)),
        ["{}", "must be a string, a number or missing"],
    ),
    "zero rows": (lambda: fit(X=X[:0], y=[]), ["0 sample(s)", "at least one row"]),
    "zero columns": (lambda: fit(X=X[[]]), ["0 feature(s)", "one column"]),
    "duplicate columns": (
        lambda: fit(X=twice_named()),
        ["got 'age' 2 times;", "unique column names"],
    ),
    "an index of two levels": (lambda: fit(X=with_levels()), ["2 levels", "reset_index()"]),
    "column names of two kinds": (
        lambda: fit(X=X.rename(columns={"pay": 7})),
        ["int and str", "one type"],
    ),
    "strings where numbers are due": (
        lambda: fit(X=X.assign(pay=["low", "low", "high", "high"])),
        ["could not convert string to float", "Pipeline"],
    ),
    # the labels
    "y is missing": (lambda: fit(y=None), ["y is None", "one label per row"]),
    "y is the name of a column": (lambda: fit(y="pay"), ["'pay'", "pass y=X.pop('pay')"]),
    "y is too short": (lambda: fit(y=["no", "yes"]), ["one label", "4 rows of X, got 2"]),
    "moments with and without a time zone in one column": (
        lambda: KNNValuer(1).fit(make_mixed_moments(), Y, X_val=make_mixed_moments(), y_val=Y),
        ["'when'", "must all have a time zone, or none"],
    ),
    "moments with a time zone in X alone": (
        lambda: KNNValuer(1).fit(moments("UTC"), Y, X_val=moments(None), y_val=Y),
        ["'when'", "must all have a time zone, or none"],
    ),
    "y is too large to be squared": (
        lambda: fit_regressor(y=[1.0, 2.0, 3e155, 4.0]),
        ["y must be between", "got 3.0e+155", "infinite or 0", "another unit"],
    ),
    "y_val is too large to be squared": (
        lambda: fit_regressor(y_val=[1.0, 2.0, 3.0, -1e80]),
        ["y_val must be between", "got 1.0e+80", "infinite or 0", "another unit"],
    ),
    "y is too small to be squared": (
        lambda: fit_regressor(y=[1e-160, 2e-160, 3e-160, 4e-160]),
        ["y must be between", "got targets 3.0e-160 apart", "infinite or 0", "another unit"],
    ),
    "y is too large for nearest neighbours": (
        lambda: KNNValuer(1).fit(X, [1e155, 2e155, 3.5e155, 1e200], X_val=X, y_val=[1.0] * 4),
        ["y must be between", "got 1.0e+200", "infinite or 0", "another unit"],
    ),
    "y is too large for models out of the bag": (
        lambda: out_of_bag(y=[1e155, 2e155, 3.5e155, 1e200]),
        ["y must be between", "got 1.0e+200", "infinite or 0", "another unit"],
    ),
    "y has two columns": (lambda: fit(y=np.ones((4, 2))), ["(4, 2)", "one-dimensional"]),
    "y has a NaN": (lambda: fit_regressor(y=[1, 2, np.nan, 4]), ["NaN", "position 2", "drop"]),
    "y has a None": (lambda: fit(y=["no", None, "yes", "yes"]), ["None", "position 1", "drop"]),
    "y has an NA": (
        lambda: fit(y=pd.array(["no", pd.NA, "yes", "yes"])),
        ["position 1", "drop"],
    ),
    "y is in another order": (
        lambda: fit(y=pd.Series(Y, index=[3, 2, 1, 0])),
        ["y must have the row ids of X in the same order", "y.loc[X.index]", "y.to_numpy()"],
    ),
    "row_groups are in another order": (
        lambda: fit(row_groups=pd.Series(["a", "a", "b", "b"], index=[3, 2, 1, 0])),
        ["row_groups must have the row ids of X in the same order", "row_groups.loc[X.index]"],
    ),
    "y is masked": (
        lambda: fit(y=np.ma.masked_equal([0, 0, 1, 1], 0)),
        ["y must not be a masked array", "drop"],
    ),
    "y is a frame in another order": (
        lambda: fit(y=pd.DataFrame({"y": Y}, index=[3, 2, 1, 0])),
        ["another order", "y.loc[X.index]"],
    ),
    "y is infinite": (lambda: fit_regressor(y=[1, 2, 3, np.inf]), ["inf", "position 3", "finite"]),
    "y is text for a regressor": (
        lambda: fit(LinearRegression()),
        ["'no'", "regressor", "use a classifier"],
    ),
    "y is continuous for a classifier": (
        lambda: fit(y=[0.1, 0.2, 0.3, 0.4]),
        ["continuous", "0.1", "use a regressor"],
    ),
    "y has one class": (lambda: fit(y=["no"] * 4), ["one class", "'no'", "two classes"]),
    "y mixes kinds": (lambda: fit(y=["no", 1, "no", 1]), ["int and str", "one type"]),
    "y is complex": (lambda: fit(y=np.ones(4) * 1j), ["Complex data not supported"]),
    # the validation set
    "X_val without y_val": (
        lambda: fit(y_val=None),
        ["X_val needs y_val", "pass both"],
    ),
    "y_val without X_val": (
        lambda: fit(X_val=None),
        ["y_val needs X_val", "pass both"],
    ),
    "y_val is too long": (
        lambda: fit(y_val=["no", "yes"] * 3),
        ["y_val must have one label", "4 rows of X_val, got 6"],
    ),
    "y_val has a missing value": (
        lambda: fit(y_val=["no", "yes", None, "no"]),
        ["y_val", "position 2", "drop"],
    ),
    "y_val has one class": (
        lambda: fit(y_val=["yes"] * 4),
        ["y_val must have at least two classes", "yes"],
    ),
    "y_val spells a class otherwise": (
        lambda: fit(y_val=["no.", "no", "yes", "yes"]),
        ["y_val must have classes of y", "got 'no.'", "Spell labels alike"],
    ),
    "X_val lacks a column": (lambda: fit(X_val=X[["age"]]), ["lacks", "'pay'", "same columns"]),
    "X_val has a column more": (
        lambda: fit(X_val=X.assign(zip=1)),
        ["has the columns 'zip'", "that X lacks", "same columns"],
    ),
    "X_val has nothing in common": (
        lambda: fit(X_val=pd.DataFrame({"zip": [1, 2, 3, 4]}), row_groups="age"),
        ["lacks the columns 'pay'", "same columns"],
    ),
    "X_val is narrower": (
        lambda: fit(X=X.to_numpy(), X_val=X.to_numpy()[:, :1]),
        ["2 columns of X, got 1", "same columns"],
    ),
    "cv beyond the rows": (
        lambda: ModelValuer(DecisionTreeClassifier(), estimator="exact").fit(X, Y, cv=9),
        ["cv=9", "n_samples=4", "give X_val and y_val"],
    ),
    "cv without folds": (
        lambda: ModelValuer(DecisionTreeClassifier(), estimator="exact").fit(X, Y, cv=[]),
        ["at least one fold", "0 folds came", "a splitter"],
    ),
    "cv beyond the table": (
        lambda: ModelValuer(DecisionTreeClassifier(), estimator="exact").fit(
            X, Y, cv=[([0, 1], [2, 9])]
        ),
        ["positions from 0 to 3", "got 2 to 9"],
    ),
    "cv that scores a row on itself": (
        lambda: ModelValuer(DecisionTreeClassifier(), estimator="exact").fit(
            X, Y, cv=[([0, 1, 2], [2, 3])]
        ),
        ["separate training and validation rows", "separate positions"],
    ),
    # groups
    "too few row groups": (
        lambda: fit(row_groups=["a", "b"]),
        ["row_groups must have one entry", "4 rows of X, got 2"],
    ),
    "too few column groups": (lambda: fit(column_groups=["a"]), ["2 columns of X, got 1"]),
    "a row without a group": (
        lambda: fit(row_groups=["a", "a", np.nan, "b"]),
        ["must give every row a group", "none at position 2"],
    ),
    "groups in a column": (
        lambda: fit(row_groups=np.array([["a"], ["a"], ["b"], ["b"]])),
        ["row_groups must hold numbers, strings or dates"],
    ),
    "groups that are lists": (
        lambda: fit(row_groups=[["a"], ["a"], ["b"], ["b"]]),
        ["row_groups must hold numbers, strings or dates", "got ['a']"],
    ),
    "a row whose group is NA": (
        lambda: fit(row_groups=pd.array(["a", pd.NA, "a", "b"])),
        ["must give every row a group", "none at position 1"],
    ),
    "an unknown row id": (
        lambda: fit(row_groups={"a": [0, 1], "b": [2, 77]}),
        ["must name rows of X", "got 77", "0, 1, 2"],
    ),
    "an unknown column name": (
        lambda: fit(column_groups={"a": ["age"], "b": ["wage"]}),
        ["'wage'", "its columns are 'age', 'pay'"],
    ),
    "a row in two groups": (
        lambda: fit(row_groups={"a": [0, 1, 2], "b": [2, 3]}),
        ["must name each row once", "got 2 twice"],
    ),
    "a row in no group": (
        lambda: fit(row_groups={"a": [0, 1], "b": [2]}),
        ["leaves out 1 rows: 3", "every row of X"],
    ),
    "an empty group": (
        lambda: fit(row_groups={"a": [0, 1, 2, 3], "b": []}),
        ["row_groups['b'] must not be empty", "leave it out"],
    ),
    "a group that is no list": (
        lambda: fit(column_groups={"a": "age", "b": ["pay"]}),
        ["got 'age'", "must be a list", "['age']"],
    ),
    "row_groups names no column": (
        lambda: fit(row_groups="bank"),
        ["got 'bank'", "must be a column of X", "'age', 'pay'"],
    ),
    "row_groups names the only column": (
        lambda: fit(X=X[["age"]], row_groups="age"),
        ["must have a column besides 'age'"],
    ),
    "column_groups is a name": (
        lambda: fit(column_groups="age"),
        ["'age'", "one label per column", "['age'] * 2"],
    ),
    "row_groups is a number": (lambda: fit(row_groups=3), ["got 3", "one label per row"]),
    # the model and its score
    "no model": (
        lambda: ModelValuer(estimator="exact").fit(X, Y),
        ["got None", "DecisionTreeClassifier()"],
    ),
    "a class for a model": (
        lambda: ModelValuer(DecisionTreeClassifier, estimator="exact").fit(X, Y),
        ["the class DecisionTreeClassifier", "DecisionTreeClassifier()"],
    ),
    "a model that neither classifies nor regresses": (
        lambda: fit(KMeans()),
        ["KMeans", "must be a classifier or a regressor"],
    ),
    "an unknown scoring": (
        lambda: ModelGame(DecisionTreeClassifier(), **GOOD, scoring="akkuracy"),
        ["'akkuracy'", "get_scorer_names()"],
    ),
    "a metric for a scorer": (
        lambda: ModelGame(DecisionTreeClassifier(), **GOOD, scoring=accuracy_score).value(
            np.ones(4, dtype=bool), np.ones(2, dtype=bool)
        ),
        ["cannot score", "scorer(model, X, y) -> float"],
    ),
    "a scorer without an answer": (
        lambda: value_game(
            ModelGame(DecisionTreeClassifier(), **GOOD, scoring=lambda model, X, y: None)
        ),
        ["cannot score", "scorer(model, X, y) -> float"],
    ),
    "a score that is not defined": (
        lambda: value_game(
            ModelGame(DecisionTreeClassifier(), **GOOD, scoring=lambda model, X, y: np.nan)
        ),
        ["gives nan", "4 validation rows", "another scoring"],
    ),
    "an unknown policy": (
        lambda: ModelGame(DecisionTreeClassifier(), **GOOD, empty="none"),
        ["'none'", "'prior'", "'zero'"],
    ),
    "an unknown way to fail": (
        lambda: fit_with(error="ignore"),
        ["got 'ignore'", "'fallback'", "'raise'"],
    ),
    "a sampler by its name": (
        lambda: monte_carlo(estimator="grids"),
        ["got 'grids'", "AntitheticPermutations()", "GaussianProcess()"],
    ),
    "an estimator's class": (
        lambda: monte_carlo(estimator=GaussianProcess),
        ["got <class", "GaussianProcess()"],
    ),
    "a sampler over columns for a model": (
        lambda: monte_carlo(estimator=ExhaustiveSampler()),
        ["got ExhaustiveSampler()", "AntitheticPermutations()"],
    ),
    "grids for Banzhaf values": (
        lambda: monte_carlo(estimator=AntitheticPermutations(), semivalue=(Banzhaf(), None)),
        ["AntitheticPermutations estimates Shapley values, got Banzhaf()", "GaussianProcess()"],
    ),
    "no utilities": (lambda: MaxUtilities(0), ["MaxUtilities must be at least 1 utility", "got 0"]),
    "half a utility": (lambda: MaxUtilities(0.5), ["integer number of utilities", "got 0.5"]),
    "no repeats": (lambda: fit_with(n_repeats=0), ["n_repeats must be", "at least 1", "got 0"]),
    "weights for other rows": (
        lambda: fit(sample_weight=[1.0, 2.0]),
        ["sample_weight must have one weight", "4 rows of X, got 2"],
    ),
    "a negative weight": (
        lambda: fit(sample_weight=[1.0, 2.0, -3.0, 1.0]),
        ["sample_weight must be finite and at least 0", "got -3.0 at position 2"],
    ),
    "a missing weight": (
        lambda: fit(sample_weight=[1.0, np.nan, 1.0, 1.0]),
        ["sample_weight must be finite", "got nan at position 1"],
    ),
    "weights in words": (
        lambda: fit(sample_weight=["a", "b", "c", "d"]),
        ["sample_weight must hold one number per row", "one number per row"],
    ),
    "weights by name": (
        lambda: fit(sample_weight="pay"),
        ["sample_weight must have one entry", "'pay'"],
    ),
    "weights of nothing": (
        lambda: fit(sample_weight=np.zeros(4)),
        ["above 0 for some row", "got zero for every row"],
    ),
    "weights in another order": (
        lambda: fit(sample_weight=pd.Series([1.0, 2.0, 3.0, 4.0], index=[3, 2, 1, 0])),
        ["sample_weight must have the row ids of X in the same order"],
    ),
    "weights for a model that does not weigh": (
        lambda: fit(KNeighborsClassifier(1), sample_weight=np.ones(4)),
        ["KNeighborsClassifier.fit does not take it", "leave it out"],
    ),
    "weights for neighbours": (
        lambda: KNNValuer(1).fit(**GOOD, sample_weight=np.ones(4)),
        ["unexpected keyword argument 'sample_weight'"],
    ),
    # semivalues, stopping rules, executors, checkpoints, seeds
    "a name for a semivalue": (
        lambda: monte_carlo(semivalue="shapley"),
        ["semivalue must be Shapley()", "got 'shapley'"],
    ),
    "a class for a semivalue": (
        lambda: monte_carlo(semivalue=Shapley),
        ["semivalue must be Shapley()", "got <class"],
    ),
    "Beta outside its family": (lambda: Beta(0, 1), ["Beta(0, 1)", "above 0"]),
    "chances that do not add up": (
        lambda: value_game(GAME, semivalue=(Certain(), None)),
        ["must return 2 non-negative numbers that add up to 1", "adds up to 2"],
    ),
    "a number for a rule": (
        lambda: monte_carlo(stop=100),
        ["stop must be a rule", "MaxTasks(200)", "got 100"],
    ),
    "no tasks": (lambda: MaxTasks(0), ["MaxTasks must be at least 1 task", "got 0"]),
    "half a task": (lambda: MaxTasks(0.5), ["integer number of tasks", "0.5"]),
    "no time": (lambda: MaxSeconds(-1), ["MaxSeconds must be", "above 0", "got -1"]),
    "time in words": (lambda: MaxSeconds("1 h"), ["number of seconds", "'1 h'"]),
    "an impossible error": (
        lambda: TargetStandardError(0),
        ["TargetStandardError must be", "above 0", "got 0"],
    ),
    "no threads": (lambda: Threads(0), ["n_workers of Threads must be an integer", "got 0"]),
    "a number for an executor": (
        lambda: monte_carlo(runtime=Runtime(executor=2)),
        ["executor must be", "got 2", "Threads(2)"],
    ),
    "a number for a checkpoint": (
        lambda: monte_carlo(runtime=Runtime(checkpoint=3)),
        ["checkpoint must be", "got 3", '"run1/"'],
    ),
    "a number for on_round": (
        lambda: monte_carlo(runtime=Runtime(on_round=3)),
        ["on_round must be", "got 3", "a Progress"],
    ),
    "a checkpoint without a seed": (
        lambda: monte_carlo(runtime=Runtime(checkpoint="run")),
        ["random_state", "same tasks"],
    ),
    "a checkpoint with a random state": (
        lambda: monte_carlo(
            runtime=Runtime(checkpoint="run"),
            random_state=np.random.RandomState(0),
        ),
        ["integer", "same tasks"],
    ),
    "a negative seed": (lambda: monte_carlo(random_state=-1), ["-1", "at least 0"]),
    "text for a seed": (lambda: monte_carlo(random_state="x"), ["'x'", "integer"]),
    # games
    "absurdly many coalitions": (
        lambda: ModelValuer(DecisionTreeClassifier(), estimator="exact").fit(
            np.arange(60.0).reshape(30, 2), [0, 1] * 15
        ),
        ["3,221,225,469", "row_groups", "column_groups", "stop=MaxUtilities"],
    ),
    "a table of the wrong size": (lambda: TableGame(np.zeros((3, 4))), ["(3, 4)", "2^n_rows"]),
    "a table with NaN": (lambda: TableGame([[0, 0], [0, np.nan]]), ["NaN", "finite"]),
    "a table of words": (lambda: TableGame([["a", "b"], ["c", "d"]]), ["array of numbers"]),
    "a shape with zero": (lambda: value_game(GAME, (0, 2)), ["(0, 2)", "at least 1"]),
    "a shape of one number": (lambda: value_game(GAME, 4), ["shape must be two integers", "got 4"]),
    "a shape that is not the game's": (lambda: value_game(GAME, (2, 3)), ["(2, 3)", "(2, 2)"]),
    "a game of unknown shape": (
        lambda: value_game(Silent()),
        ["shape must be two integers", "got None"],
    ),
    "no game": (lambda: value_game(len, (2, 2)), ["value(rows, columns)"]),
    "a utility of NaN": (
        lambda: value_game(Endless(), (2, 2)),
        ["returned nan", "2 rows (0, 1)", "finite"],
    ),
    "a utility of None": (
        lambda: value_game(Silent(), (2, 2)),
        ["None of type NoneType", "must return a number"],
    ),
    "no neighbours": (
        lambda: KNNGame(**GOOD, n_neighbors=0),
        ["n_neighbors must be an integer", "got 0"],
    ),
    "an unknown way to score": (
        lambda: KNNGame(**GOOD, scoring="f1"),
        ["scoring must be one of", "'balanced_neighbor_agreement'", "got 'f1'", "leave it out"],
    ),
    "accuracy of neighbours": (
        lambda: KNNValuer(scoring="accuracy").fit(**GOOD),
        ["got 'accuracy'", "share of the K nearest rows", "use 'neighbor_agreement'"],
    ),
    "balanced accuracy of neighbours": (
        lambda: KNNGame(**GOOD, scoring="balanced_accuracy"),
        ["got 'balanced_accuracy'", "use 'balanced_neighbor_agreement'"],
    ),
    "an unknown scale": (
        lambda: KNNValuer(scale="range").fit(**GOOD),
        ["scale must be 'robust', 'std' or None", "'range'"],
    ),
    "column_types in a list": (
        lambda: KNNValuer().fit(**GOOD, column_types=["age"]),
        ["column_types must be a mapping", "got list"],
    ),
    "a kind for no column": (
        lambda: KNNValuer().fit(**GOOD, column_types={"agee": "numeric"}),
        ["column_types must name columns of X, got 'agee'", "the columns of X are"],
    ),
    "an unknown kind": (
        lambda: KNNValuer().fit(**GOOD, column_types={"age": "ordinal"}),
        ["column_types of column 'age'", "function of two cells", "got 'ordinal'"],
    ),
    "text in a numeric column": (
        lambda: KNNValuer().fit(
            **(GOOD | {"X": X.assign(pay="high")}), column_types={"pay": "numeric"}
        ),
        ["cells of the numeric column 'pay' must be numbers", "fix them"],
    ),
    "an infinite cell": (
        lambda: KNNValuer().fit(**(GOOD | {"X_val": X.assign(pay=np.inf)})),
        ["cells of column 'pay' must be finite"],
    ),
    "a distance below zero": (
        lambda: KNNValuer().fit(**GOOD, column_types={"age": lambda a, b: -1.0}),
        ["distance function of column 'age'", "squared distance"],
    ),
    "a distance in words": (
        lambda: KNNValuer().fit(**GOOD, column_types={"age": lambda a, b: "far"}),
        ["distance function of column 'age'", "finite number"],
    ),
    "numbers here and text there": (
        lambda: KNNValuer(1).fit(**(GOOD | {"X_val": X.assign(age=X["age"].astype(str))})),
        ["column 'age' must have the same type in X and X_val", "column_types"],
    ),
    "complex cells": (
        lambda: KNNValuer(1).fit(**(GOOD | {"X": X.assign(age=X["age"] * 1j)})),
        ["column 'age' must have numbers, dates, strings", "drop it"],
    ),
    "a numeric target of integers": (
        lambda: KNNValuer(1).fit(X, [1, 2, 3, 4], X_val=X, y_val=[1, 2, 3, 5]),
        ["classes of y", "got 5", "numeric target", "neg_mean_squared_error"],
    ),
    "groups with a validation set": (
        lambda: KNNValuer(1).fit(**GOOD, groups=[1, 1, 2, 2]),
        ["groups must be None if X_val is given", "cross-validation"],
    ),
    "a column that groups rows among the columns": (
        lambda: KNNValuer(1).fit(**GOOD, row_groups="age", column_groups={"all": ["age", "pay"]}),
        ["must not name 'age', the column of row groups", "leave it out"],
    ),
    "labels by name": (
        lambda: KNNValuer(1).fit(X, "pay"),
        ["y must have one entry per row", "'pay'"],
    ),
    "a splitter by name": (
        lambda: KNNValuer(1).fit(X, Y, cv="kfold"),
        ["cv='kfold' cannot split", "another cv"],
    ),
    "labels that may play": (
        lambda: KNNValuer().fit(**GOOD, value_labels="no"),
        ["value_labels must be True or False, got 'no'"],
    ),
    "a fold with nothing to train on": (
        lambda: KNNValuer().fit(X, Y, cv=[([], [0, 1, 2, 3])]),
        ["1 folds came", "none empty"],
    ),
    "a sampler by its class": (
        lambda: KNNValuer(sampler=ExhaustiveSampler).fit(**GOOD),
        ["sampler must be ExhaustiveSampler()", "got <class"],
    ),
    "too few coalitions": (
        lambda: KNNValuer(sampler=LeverageSampler(2)).fit(**GOOD | THREE_COLUMNS),
        ["coalitions must be at least", "for 3 columns", "PermutationSampler(1)"],
    ),
    "coalitions in words": (
        lambda: KNNValuer(sampler=QuadratureSampler("many")).fit(**GOOD),
        ["coalitions of QuadratureSampler must be an integer", "many"],
    ),
    "no orders": (
        lambda: KNNValuer(sampler=PermutationSampler(0)).fit(**GOOD),
        ["orders of PermutationSampler must be an integer", "got 0"],
    ),
    "a fit for Banzhaf columns": (
        lambda: LeverageSampler().draw(5, Banzhaf(), np.random.default_rng(0)),
        ["LeverageSampler is for Shapley values", "PermutationSampler()"],
    ),
    "no passes": (
        lambda: KNNValuer(n_passes=0).fit(**GOOD),
        ["n_passes must be an integer", "got 0"],
    ),
    "a rule for neighbours by name": (
        lambda: KNNValuer(stop="soon").fit(**GOOD),
        ["stop must be a rule", "MaxTasks(200)", "got 'soon'"],
    ),
    "a column called like the labels": (
        lambda: KNNValuer().fit(
            **(GOOD | {"X": X.assign(**{"(label)": 1}), "X_val": X.assign(**{"(label)": 1})}),
            value_labels=True,
        ),
        ["'(label)'", "rename it"],
    ),
    "groups for other rows": (
        lambda: KNNValuer().fit(X, Y, groups=[1, 2], cv=GroupKFold(2)),
        ["groups must have one entry", "got 2"],
    ),
    "a splitter without its groups": (
        lambda: KNNValuer().fit(X, Y, cv=GroupKFold(2)),
        ["cannot split X", "groups"],
    ),
    # baselines
    "leaving out without a model": (
        lambda: ModelValuer(semivalue=LeaveOneOut()).fit(X, Y),
        ["got None", "DecisionTreeClassifier()"],
    ),
    "leaving out where the model fails": (
        lambda: ModelValuer(DecisionTreeClassifier(), semivalue=LeaveOneOut()).fit(
            **(GOOD | {"X": X.assign(pay="high")})
        ),
        ["whole table", "could not convert", "Pipeline"],
    ),
    "leaving out in no place": (
        lambda: ModelValuer(
            DecisionTreeClassifier(), runtime=Runtime(executor=2), semivalue=LeaveOneOut()
        ).fit(**GOOD),
        ["executor must be", "got 2", "Threads(2)"],
    ),
    "trees with a validation set": (
        lambda: out_of_bag(fit={"X_val": X, "y_val": Y}),
        ["X_val and y_val must be None here", "leave them out"],
    ),
    "trees with groups for cv": (
        lambda: out_of_bag(fit={"groups": [1, 1, 2, 2]}),
        ["groups must be None here", "leave them out"],
    ),
    "trees for one row": (
        lambda: out_of_bag(X[:1], [1.5]),
        ["n_samples=1", "in every bag", "at least 2 rows"],
    ),
    "trees for one class": (lambda: out_of_bag(y=["no"] * 4), ["one class ('no')"]),
    "no trees": (lambda: out_of_bag(n_trees=0), ["n_trees must be an integer", "got 0"]),
    "half a tree": (lambda: out_of_bag(n_trees=0.5), ["n_trees must be an integer", "got 0.5"]),
    "no columns for a tree": (
        lambda: out_of_bag(column_share=0),
        ["column_share must be", "above 0 and at most 1, got 0"],
    ),
    "more columns than there are": (
        lambda: out_of_bag(column_share=3),
        ["column_share must be", "above 0 and at most 1, got 3"],
    ),
    "columns in words": (
        lambda: out_of_bag(column_share="half"),
        ["column_share must be", "above 0 and at most 1, got 'half'"],
    ),
    "a contrast with nothing": (
        lambda: out_of_bag(X[["age"]], contrast=True),
        ["contrast compares", "of 1 columns is all of them", "smaller share"],
    ),
    "a cell without a distance, for a model that may take it": (
        lambda: out_of_bag(X.assign(tags=[[1]] * len(X)), model=DecisionTreeClassifier()),
        ["must be comparable, got [1]", "distance=False if your model takes it"],
    ),
    "a choice of distance in words": (
        lambda: out_of_bag(distance="yes"),
        ["distance must be True or False, got 'yes'"],
    ),
    "a contrast in words": (
        lambda: out_of_bag(contrast="yes"),
        ["contrast must be True or False, got 'yes'"],
    ),
    "trees of an unknown kind": (
        lambda: out_of_bag(max_features="all"),
        ["the model could not be trained and scored", "max_features"],
    ),
    "a cluster for a tree": (
        lambda: out_of_bag(model=KMeans()),
        ["KMeans", "must be a classifier or a regressor"],
    ),
    "a regressor for words": (
        lambda: out_of_bag(model=LinearRegression()),
        ["y must hold numbers", "classifier"],
    ),
    "infinite cells for trees": (
        lambda: out_of_bag(X.assign(pay=np.inf)),
        ["column 'pay' must be finite", "replace it"],
    ),
    # results
    "no lines to list": (
        lambda: fit().valuation_.lowest(0),
        ["k must be an integer", "at least 1"],
    ),
    "an unknown row label": (
        lambda: fit().valuation_.loc[99, "age"],
        ["no row is called 99", "0, 1, 2", "iloc"],
    ),
    "a row label of another kind": (
        lambda: fit().valuation_.loc["0", "age"],
        ["no row is called '0'", "0, 1, 2", "iloc"],
    ),
    "an unknown column label": (
        lambda: fit().valuation_.loc[0, "wage"],
        ["no column is called 'wage'", "'age', 'pay'"],
    ),
    "half a lookup": (lambda: fit().valuation_.loc[0], ["not a pair", "a row and a column"]),
    "a slice of labels": (lambda: fit().valuation_.loc[0:2, "age"], ["slices go to iloc"]),
    "an unknown backend": (
        lambda: fit().valuation_.to_frame(backend="excel"),
        ["'excel'", "'pandas', 'polars' or 'pyarrow'"],
    ),
    "labels on two levels": (
        lambda: Blocks.cut([[1, 2]], ["a"]),
        ["levels", "one number, string or date per row"],
    ),
    "labels that are pairs": (
        lambda: Blocks.cut([(1, "a"), (1, "b")], ["a"]),
        ["2 levels", "one number, string or date per row"],
    ),
    "dates finer than microseconds": (
        lambda: Blocks.cut(np.array([1], dtype="M8[ns]"), ["a"]),
        ["dates in microseconds", "got finer ones", "round them"],
    ),
    "labels of no kind": (lambda: Blocks.cut([object()], ["a"]), ["object", "one type"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_one_clear_sentence(mistake):
    make, words = MISTAKES[mistake]
    with pytest.raises((ValueError, TypeError, KeyError)) as caught:
        make()
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 420
    for word in words:
        assert word in message, message
