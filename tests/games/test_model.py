import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import accuracy_score, log_loss, make_scorer, roc_auc_score
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, ShuffleSplit, StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from cellworth import ExactValuer, FailedUtility, ModelGame, value_game

WINE_X, WINE_Y = load_wine(return_X_y=True)
ORDER = np.random.default_rng(1).permutation(len(WINE_X))
TRAIN, VAL = ORDER[:80], ORDER[80:]


def wine_game(model, y=WINE_Y, **settings):
    X = WINE_X
    return ModelGame(model, X[TRAIN], y[TRAIN], X[VAL], y[VAL], **settings)


def everyone(game):
    return tuple(np.ones(n, dtype=bool) for n in game.shape)


def no_one(game):
    return tuple(np.zeros(n, dtype=bool) for n in game.shape)


def some(game, seed):
    rng = np.random.default_rng(seed)
    return tuple(rng.random(n) < 0.6 for n in game.shape)


@pytest.mark.parametrize("seed", range(5))
def test_a_utility_is_the_score_of_the_model_trained_on_the_coalition(seed):
    model = GaussianNB()
    game = wine_game(model)
    rows, columns = some(game, seed)
    trained = clone(model).fit(WINE_X[TRAIN][rows][:, columns], WINE_Y[TRAIN][rows])
    by_hand = accuracy_score(WINE_Y[VAL], trained.predict(WINE_X[VAL][:, columns]))
    assert game.value(rows, columns) == by_hand


def test_a_group_brings_all_its_rows_and_columns():
    groups = {"row_groups": np.arange(80) % 4, "column_groups": np.arange(13) // 5}
    game = wine_game(GaussianNB(), **groups)
    assert game.shape == (4, 3)
    rows, columns = np.array([True, False, True, True]), np.array([False, True, True])
    single = wine_game(GaussianNB())
    assert game.value(rows, columns) == single.value(np.arange(80) % 4 != 1, np.arange(13) // 5 > 0)


def test_any_scoring_name_or_scorer_serves():
    by_name = wine_game(GaussianNB(), scoring="neg_log_loss")
    by_scorer = wine_game(
        GaussianNB(),
        scoring=make_scorer(log_loss, greater_is_better=False, response_method="predict_proba"),
    )
    assert by_name.value(*everyone(by_name)) == by_scorer.value(*everyone(by_scorer))


# empty coalitions -----------------------------------------------------------------------------


def test_without_columns_the_labels_of_the_rows_still_count():
    game = wine_game(GaussianNB())
    rows, columns = np.arange(80) < 30, np.zeros(13, dtype=bool)
    labels = WINE_Y[TRAIN][:30]
    most_frequent = np.bincount(labels).argmax()
    assert game.value(rows, columns) == np.mean(WINE_Y[VAL] == most_frequent)


def test_classes_that_tie_share_the_prediction():
    game = wine_game(GaussianNB())
    rows = np.zeros(80, dtype=bool)
    rows[[np.flatnonzero(WINE_Y[TRAIN] == label)[0] for label in (0, 2)]] = True
    expected = (np.mean(WINE_Y[VAL] == 0) + np.mean(WINE_Y[VAL] == 2)) / 2
    assert game.value(rows, np.zeros(13, dtype=bool)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("scoring", "score"),
    [("accuracy", 1 / 3), ("balanced_accuracy", 1 / 3), ("neg_log_loss", -np.log(3))],
)
def test_without_rows_only_the_classes_are_known(scoring, score):
    game = wine_game(GaussianNB(), scoring=scoring)
    _, columns = everyone(game)
    rows, _ = no_one(game)
    assert game.value(rows, columns) == pytest.approx(score)
    assert game.value(*no_one(game)) == pytest.approx(score)


def test_without_rows_a_regressor_knows_the_mean_target():
    y = WINE_X[:, 0]
    game = wine_game(LinearRegression(), y=y, scoring="neg_mean_squared_error")
    _, columns = everyone(game)
    rows, _ = no_one(game)
    assert game.value(rows, columns) == pytest.approx(-np.mean((y[VAL] - y[TRAIN].mean()) ** 2))


def test_without_columns_a_regressor_knows_the_mean_of_its_rows():
    y = WINE_X[:, 0]
    game = wine_game(LinearRegression(), y=y, scoring="neg_mean_squared_error")
    rows, _ = some(game, 0)
    expected = -np.mean((y[VAL] - y[TRAIN][rows].mean()) ** 2)
    assert game.value(rows, np.zeros(13, dtype=bool)) == pytest.approx(expected)


def test_the_papers_policy_makes_everything_empty_worth_nothing():
    game = wine_game(GaussianNB(), empty="zero")
    all_rows, all_columns = everyone(game)
    assert game.value(all_rows, ~all_columns) == game.value(~all_rows, all_columns) == 0.0
    assert game.value(~all_rows, ~all_columns) == 0.0


def test_rows_of_one_class_teach_that_class_and_nothing_else():
    game = wine_game(LogisticRegression())
    rows = WINE_Y[TRAIN] == 1
    utility = game.value(rows, np.ones(13, dtype=bool))
    assert not isinstance(utility, FailedUtility)
    assert utility == np.mean(WINE_Y[VAL] == 1)


# classes, failures, randomness ------------------------------------------------------------------


@pytest.mark.parametrize("scoring", ["neg_log_loss", "roc_auc_ovr"])
def test_a_class_that_the_coalition_lacks_has_probability_zero(scoring):
    game = wine_game(GaussianNB(), scoring=scoring)
    rows = WINE_Y[TRAIN] != 1
    trained = GaussianNB().fit(WINE_X[TRAIN][rows], WINE_Y[TRAIN][rows])
    probabilities = np.insert(trained.predict_proba(WINE_X[VAL]), 1, 0.0, axis=1)
    by_hand = {
        "neg_log_loss": -log_loss(WINE_Y[VAL], probabilities),
        "roc_auc_ovr": roc_auc_score(WINE_Y[VAL], probabilities, multi_class="ovr"),
    }
    assert game.value(rows, np.ones(13, dtype=bool)) == pytest.approx(by_hand[scoring])


def test_the_area_under_the_curve_works_with_decision_functions_and_names():
    y = np.where(WINE_Y == 0, "grignolino", "other")
    model = make_pipeline(StandardScaler(), LogisticRegression())
    game = wine_game(model, y=y, scoring="roc_auc")
    assert game.value(*everyone(game)) > 0.95
    assert game.value(*no_one(game)) == 0.5


class Refusing(ClassifierMixin, BaseEstimator):
    """Refuses tables of fewer than ten rows."""

    def fit(self, X, y):
        if len(X) < 10:
            raise RuntimeError(f"{len(X)} rows\nare too few")
        self.model_ = GaussianNB().fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict(self, X):
        return self.model_.predict(X)


def test_a_fit_that_fails_has_a_defined_utility_and_says_so():
    game = wine_game(Refusing())
    rows, columns = np.arange(80) < 9, np.ones(13, dtype=bool)
    utility = game.value(rows, columns)
    assert isinstance(utility, FailedUtility)
    assert utility == game.value(rows, ~columns)
    assert utility.message == "RuntimeError: 9 rows are too few"


def test_failed_utilities_are_counted_and_shown():
    X, y = WINE_X[TRAIN], WINE_Y[TRAIN]
    groups = {"row_groups": (np.arange(80) >= 9) * 1, "column_groups": np.zeros(13)}
    data = {"X": X, "y": y, "X_val": WINE_X[VAL], "y_val": WINE_Y[VAL], **groups}
    with pytest.warns(UserWarning, match=r"1 of 12 utilities failed .* 9 rows are too few"):
        valuation = ExactValuer(Refusing()).fit(**data).valuation_
    assert valuation.provenance.failed_utilities == 1
    assert "1 failed" in repr(valuation)
    assert "9 rows are too few" in repr(valuation)


def test_a_transformer_that_names_columns_is_warned_of():
    X = mixed_table()
    scaled = ColumnTransformer([("numbers", StandardScaler(), ["age", "pay"])])
    model = make_pipeline(scaled, SimpleImputer(), DecisionTreeClassifier())
    groups = {"row_groups": np.arange(60) % 3}
    with pytest.warns(UserWarning, match=r"14 of 36 utilities failed .*column"):
        ExactValuer(model).fit(X[["age", "pay"]], np.arange(60) % 2, X_val=X[["age", "pay"]],
                               y_val=np.arange(60) % 2, **groups)  # fmt: skip


class Undefined(DecisionTreeClassifier):
    """A classifier whose probabilities are not defined below ten rows."""

    def predict_proba(self, X):
        probabilities = super().predict_proba(X)
        return probabilities if self.tree_.n_node_samples[0] >= 10 else probabilities * np.nan


def test_a_score_of_nan_is_a_failed_utility():
    def mean_probability(model, X, y):
        return float(model.predict_proba(X)[:, 0].mean())

    game = wine_game(Undefined(), scoring=mean_probability)
    assert not isinstance(game.value(*everyone(game)), FailedUtility)
    utility = game.value(np.arange(80) < 9, np.ones(13, dtype=bool))
    assert isinstance(utility, FailedUtility)
    assert utility.message == "the score is nan"


def test_a_scorer_that_asks_for_decisions_gets_them_from_constant_predictors_too():
    y = (WINE_Y == 0) * 1
    scorer = make_scorer(roc_auc_score, response_method="decision_function")
    game = wine_game(LogisticRegression(max_iter=5000), y=y, scoring=scorer)
    assert game.value(*no_one(game)) == 0.5
    assert game.value(*everyone(game)) > 0.9


@pytest.mark.parametrize("cv", [KFold(3, shuffle=True), ShuffleSplit(3)], ids=repr)
def test_an_open_splitter_inside_a_model_is_closed_too(cv):
    search = GridSearchCV(DecisionTreeClassifier(), {"max_depth": [1, 2, 5]}, cv=cv)
    game = wine_game(search)
    coalition = some(game, 3)
    assert len({game.value(*coalition) for _ in range(4)}) == 1
    assert search.cv.random_state is None


def test_a_model_that_fails_on_the_whole_table_stops_at_once():
    with pytest.raises(ValueError, match=r"whole table .*5 rows are too few.*Pipeline"):
        ExactValuer(Refusing()).fit(WINE_X[:5], [0, 1, 0, 1, 0], X_val=WINE_X, y_val=WINE_Y % 2)


def test_an_open_random_state_is_closed_so_that_utilities_repeat():
    model = make_pipeline(StandardScaler(), RandomForestClassifier(n_estimators=3))
    game = wine_game(model)
    coalition = some(game, 3)
    assert len({game.value(*coalition) for _ in range(5)}) == 1
    assert model[-1].random_state is None


# tables -----------------------------------------------------------------------------------------


def mixed_table(n=60):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 80, n),
            "pay": np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n)),
            "job": rng.choice(["baker", "smith", "cook"], n),
        },
        index=[f"r{i}" for i in range(n)],
    )


TYPES = {
    "pandas": lambda X: X,
    "polars": pl.from_pandas,
    "pyarrow": lambda X: pa.Table.from_pandas(X, preserve_index=False),
    "numpy": lambda X: X.to_numpy(),
}


@pytest.mark.parametrize("library", TYPES)
def test_numeric_tables_of_every_library_give_the_same_utilities(library):
    X = mixed_table()[["age", "pay"]].astype(float).fillna(0.0)
    y = (X["age"] > 45).to_numpy()
    convert = TYPES[library]
    game = ModelGame(DecisionTreeClassifier(), convert(X), y, convert(X), y)
    plain = ModelGame(DecisionTreeClassifier(), X.to_numpy(), y, X.to_numpy(), y)
    coalition = some(game, 5)
    assert game.value(*coalition) == plain.value(*coalition)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_pipeline_sees_names_types_and_gaps(library):
    X = TYPES[library](mixed_table())
    y = np.where(mixed_table()["job"] == "baker", "sweet", "salty")
    encoder = OneHotEncoder(handle_unknown="ignore", min_frequency=5)
    model = make_pipeline(encoder, DecisionTreeClassifier(random_state=0))
    valuer = ExactValuer(model).fit(X, y, X_val=X, y_val=y, row_groups=np.arange(60) % 3)
    assert valuer.valuation_.columns().highest(1).labels["column"].tolist() == ["job"]
    assert valuer.valuation_.provenance.failed_utilities == 0
    assert type(valuer.valuation_.to_frame()) is type(X)


def test_a_column_can_name_the_row_groups_and_then_does_not_play():
    X = mixed_table()[["age", "pay", "job"]].fillna(0.0)
    y = np.arange(60) % 2
    game = ModelGame(DecisionTreeClassifier(), X, y, X, y, row_groups="job")
    assert game.blocks.columns.labels.tolist() == ["age", "pay"]
    assert sorted(game.blocks.rows.labels) == ["baker", "cook", "smith"]
    bare = ModelGame(DecisionTreeClassifier(), X, y, X[["pay", "age"]], y, row_groups="job")
    assert bare.value(*everyone(bare)) == game.value(*everyone(game))


def test_the_grouping_column_is_dropped_from_validation_arrays_too():
    X = np.column_stack([np.arange(60) % 3, np.arange(60.0), np.arange(60.0) ** 2])
    y = np.arange(60) % 2
    wide = ModelGame(DecisionTreeClassifier(), X, y, X, y, row_groups="x0")
    narrow = ModelGame(DecisionTreeClassifier(), X, y, X[:, 1:], y, row_groups="x0")
    assert wide.shape == (3, 2)
    assert wide.value(*everyone(wide)) == narrow.value(*everyone(narrow)) == 1.0


def test_a_valued_game_keeps_the_names_of_its_table():
    X = mixed_table()[["age", "pay"]].fillna(0.0)
    game = ModelGame(
        DecisionTreeClassifier(), X, np.arange(60) % 2, X, np.arange(60) % 2,
        row_groups=np.arange(60) % 2,
    )  # fmt: skip
    assert value_game(game).column_labels.tolist() == ["age", "pay"]
    assert value_game(game, (2, 2)).column_labels.tolist() == ["age", "pay"]
    assert isinstance(value_game(game).to_frame(), pd.DataFrame)


def test_labels_of_an_array_are_matched_by_position_whatever_their_index():
    X = mixed_table()[["age"]]
    y = pd.Series(np.arange(60) % 2, index=np.arange(60)[::-1])
    game = ModelGame(DecisionTreeClassifier(), X.to_numpy(), y, X.to_numpy(), y)
    assert game.shape == (60, 1)


def test_labels_may_come_as_series_of_any_library():
    X = mixed_table()[["age"]]
    y = pd.Series(np.arange(60) % 2, index=X.index)
    utilities = set()
    shuffled = y.set_axis(y.index[::-1])
    for labels in (
        y,
        shuffled.to_numpy(),
        pl.Series(y.to_numpy()),
        pa.chunked_array([y.to_numpy()]),
        y.tolist(),
    ):
        game = ModelGame(DecisionTreeClassifier(), X, labels, X, labels)
        utilities.add(game.value(*everyone(game)))
    assert len(utilities) == 1


# cross-validation -------------------------------------------------------------------------------


@pytest.mark.parametrize("cv", [3, StratifiedKFold(4, shuffle=True, random_state=0)], ids=str)
def test_without_a_validation_set_no_row_is_judged_on_itself(cv):
    X, y = WINE_X[TRAIN], WINE_Y[TRAIN]
    game = ModelGame(GaussianNB(), X, y, cv=cv)
    rows, columns = some(game, 2)
    splitter = StratifiedKFold(cv) if isinstance(cv, int) else cv
    scores = []
    for train, val in splitter.split(X, y):
        mine = train[rows[train]]
        trained = GaussianNB().fit(X[mine][:, columns], y[mine])
        scores.append(trained.score(X[val][:, columns], y[val]))
    assert game.value(rows, columns) == pytest.approx(np.mean(scores), abs=1e-15)


def test_cross_validation_keeps_the_users_tables():
    X = mixed_table()[["age", "pay"]].fillna(0.0)
    y = X["age"].to_numpy(dtype=float)
    game = ModelGame(DecisionTreeRegressor(), X, y, cv=3)
    assert game.value(*everyone(game)) > 0.9
    assert len(game.problem.folds) == 3


def test_a_splitter_that_needs_groups_is_explained():
    with pytest.raises(ValueError, match="groups"):
        ModelGame(GaussianNB(), WINE_X, WINE_Y, cv=GroupKFold(3))
