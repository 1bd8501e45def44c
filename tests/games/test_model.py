import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Perceptron, RidgeClassifier
from sklearn.metrics import accuracy_score, f1_score, log_loss, make_scorer, roc_auc_score
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit, StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from cellworth import ModelValuer, value_game
from cellworth.games import FailedUtility, ModelGame
from cellworth.games.fitting import set_seeds, weight_name
from cellworth.sampling import DetailedUtility

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


def draw_coalition(game, seed):
    rng = np.random.default_rng(seed)
    return tuple(rng.random(n) < 0.6 for n in game.shape)


@pytest.mark.parametrize("seed", range(5))
def test_a_utility_is_the_score_of_the_model_trained_on_the_coalition(seed):
    model = GaussianNB()
    game = wine_game(model)
    rows, columns = draw_coalition(game, seed)
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
    rows, _ = draw_coalition(game, 0)
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
    with pytest.warns(UserWarning, match=r"1 of 3 utilities failed .* 9 rows are too few"):
        valuation = ModelValuer(Refusing(), estimator="exact").fit(**data).valuation_
    assert valuation.provenance.tally.failed == 1
    assert "1 failed" in repr(valuation)
    assert "9 rows are too few" in repr(valuation)


def named_columns():
    scaled = ColumnTransformer([("numbers", StandardScaler(), ["age", "pay"])])
    return make_pipeline(scaled, SimpleImputer(), DecisionTreeClassifier())


@pytest.mark.parametrize("empty", ["prior", "zero"])
def test_a_model_that_sees_none_of_the_columns_is_worth_as_much_as_no_columns(empty):
    X, y = mixed_table(), np.arange(60) % 3 % 2
    game = ModelGame(named_columns(), X, y, X, y, empty=empty)
    rows, _ = draw_coalition(game, 0)
    only_job = np.array([False, False, True])
    assert not isinstance(game.value(rows, only_job), FailedUtility)
    assert game.value(rows, only_job) == game.value(rows, np.zeros(3, dtype=bool))


def test_an_error_can_be_raised_where_it_happens():
    game = wine_game(Refusing(), error="raise")
    told = r"failed on 9 rows \(0, 1, .*\) and 13 columns \('x0', .*\): RuntimeError: 9 rows are"
    with pytest.raises(RuntimeError, match=told) as caught:
        game.value(np.arange(80) < 9, np.ones(13, dtype=bool))
    assert str(caught.value.__cause__) == "9 rows\nare too few"
    data = WINE_X[TRAIN], WINE_Y[TRAIN]
    valuer = ModelValuer(Refusing(), error="raise", estimator="exact")
    with pytest.raises(RuntimeError, match="9 rows are too few"):
        valuer.fit(*data, row_groups=(np.arange(80) >= 9) * 1, column_groups=np.zeros(13),
                   X_val=WINE_X[VAL], y_val=WINE_Y[VAL])  # fmt: skip


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
    coalition = draw_coalition(game, 3)
    assert len({game.value(*coalition) for _ in range(4)}) == 1
    assert search.cv.random_state is None


def test_a_model_that_fails_on_the_whole_table_stops_at_once():
    with pytest.raises(ValueError, match=r"whole table .*5 rows are too few.*Pipeline"):
        ModelValuer(Refusing(), estimator="exact").fit(
            WINE_X[:5], [0, 1, 0, 1, 0], X_val=WINE_X, y_val=WINE_Y % 2
        )


def test_an_open_random_state_is_closed_so_that_utilities_repeat():
    model = make_pipeline(StandardScaler(), RandomForestClassifier(n_estimators=3))
    game = wine_game(model)
    coalition = draw_coalition(game, 3)
    assert len({game.value(*coalition) for _ in range(5)}) == 1
    assert model[-1].random_state is None


def noisy(**settings):
    return RandomForestClassifier(n_estimators=2, **settings)


@pytest.mark.parametrize("seed", [None, 7])
def test_a_repeated_utility_is_the_mean_over_seeds_that_follow_each_other(seed):
    game = wine_game(noisy(random_state=seed)).with_repeats(3)
    coalition = draw_coalition(game, 1)
    single = [
        wine_game(noisy(random_state=(seed or 0) + repeat)).value(*coalition) for repeat in range(3)
    ]
    assert len(set(single)) > 1
    assert game.value(*coalition) == pytest.approx(np.mean(single), abs=1e-15)


def test_repeats_move_every_seed_of_a_model():
    class Seeded(DecisionTreeClassifier):
        def __init__(self, random_state=None, random_seed=None, seed=5):
            super().__init__(random_state=random_state)
            self.random_seed = random_seed
            self.seed = seed

    third = set_seeds(Seeded(), 2)
    assert (third.random_state, third.random_seed, third.seed) == (2, 2, 7)
    search = set_seeds(GridSearchCV(noisy(), {}, cv=KFold(3, shuffle=True, random_state=4)), 2)
    assert (search.cv.random_state, search.estimator.random_state) == (6, 2)
    state = np.random.RandomState(0)
    seeds = {set_seeds(noisy(random_state=state), repeat).random_state for repeat in (1, 2)}
    assert len(seeds) == 2


def test_repeats_and_weights_are_part_of_the_question():
    plain = wine_game(GaussianNB()).problem_spec()
    assert wine_game(GaussianNB()).with_repeats(2).problem_spec() == plain | {"n_repeats": 2}
    weighted = wine_game(GaussianNB(), sample_weight=np.arange(80) + 1.0).problem_spec()
    other = wine_game(GaussianNB(), sample_weight=np.arange(80) + 2.0).problem_spec()
    assert weighted != plain
    assert weighted != other


# labels -----------------------------------------------------------------------------------------


class Coded(GaussianNB):
    """Takes labels 0, 1, ... without a gap only, as XGBoost does."""

    def fit(self, X, y, sample_weight=None):
        found = np.unique(y)
        if found.dtype.kind not in "iu" or not np.array_equal(found, np.arange(len(found))):
            raise ValueError(f"Invalid classes {found}")
        return super().fit(X, y, sample_weight)


KINDS = {
    "codes": lambda y: y,
    "other numbers": lambda y: y * 3 + 1,
    "text": lambda y: np.array(["barbera", "barolo", "grignolino"])[y],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scoring", ["accuracy", "neg_log_loss", "f1_macro", "roc_auc_ovr"])
def test_a_model_that_wants_codes_scores_as_one_that_takes_any_label(kind, scoring):
    y = KINDS[kind](WINE_Y)
    coded, plain = (wine_game(model, y=y, scoring=scoring) for model in (Coded(), GaussianNB()))
    columns = np.ones(13, dtype=bool)
    for rows in (np.arange(80) < 40, WINE_Y[TRAIN] != 0, WINE_Y[TRAIN] != 1, WINE_Y[TRAIN] != 2):
        utility = coded.value(rows, columns)
        assert isinstance(utility, DetailedUtility)
        assert utility == plain.value(rows, columns)


def test_a_positive_label_is_the_users_own():
    y = np.where(WINE_Y == 1, "yes", "no")
    scorer = make_scorer(f1_score, pos_label="yes")
    coded, plain = (wine_game(model, y=y, scoring=scorer) for model in (Coded(), GaussianNB()))
    assert coded.value(*everyone(coded)) == plain.value(*everyone(plain)) > 0.5


class Units(GaussianNB):
    """Answers with three columns always, as a network with three units does."""

    def predict_proba(self, X):
        known = super().predict_proba(X)
        units = np.zeros((len(known), 3))
        units[:, self.classes_] = known
        return units


def test_a_network_with_a_unit_per_class_answers_for_classes_that_it_never_met():
    rows, columns = WINE_Y[TRAIN] != 1, np.ones(13, dtype=bool)
    units, plain = (wine_game(m, scoring="neg_log_loss") for m in (Units(), GaussianNB()))
    assert units.value(rows, columns) == plain.value(rows, columns)


def test_units_that_cannot_be_told_apart_are_a_failure():
    game = wine_game(Units(), y=WINE_Y * 2 - 2, scoring="neg_log_loss")
    utility = game.value(WINE_Y[TRAIN] != 0, np.ones(13, dtype=bool))
    assert isinstance(utility, FailedUtility)
    assert "predicts 3 columns" in utility.message


@pytest.mark.parametrize("model", [LinearSVC(), SVC(), Perceptron(), RidgeClassifier()], ids=repr)
def test_models_without_probabilities_serve_scorers_that_rank(model):
    binary = wine_game(model, y=(WINE_Y == 0) * 1, scoring="roc_auc")
    several = wine_game(model, scoring="top_k_accuracy")
    for game in (binary, several):
        for seed in range(3):
            assert isinstance(game.value(*draw_coalition(game, seed)), DetailedUtility)
    lacking = several.value(WINE_Y[TRAIN] != 1, np.ones(13, dtype=bool))
    # Two classes are the first two of three for every row.
    assert lacking == np.mean(WINE_Y[VAL] != 1)


# weights ----------------------------------------------------------------------------------------

WEIGHTS = np.random.default_rng(0).integers(0, 4, 80).astype(float)


@pytest.mark.parametrize("columns", [np.ones(13, dtype=bool), np.zeros(13, dtype=bool)], ids=sum)
@pytest.mark.parametrize("scoring", ["accuracy", "neg_log_loss"])
def test_whole_weights_are_copies_of_rows(columns, scoring):
    rows = np.arange(80) % 3 > 0
    model = DecisionTreeClassifier(max_depth=2)
    weighted = wine_game(model, sample_weight=WEIGHTS, scoring=scoring)
    copies = np.repeat(np.arange(80), WEIGHTS.astype(int))
    X, y = WINE_X[TRAIN][copies], WINE_Y[TRAIN][copies]
    repeated = ModelGame(model, X, y, WINE_X[VAL], WINE_Y[VAL], scoring=scoring)
    assert weighted.value(rows, columns) == pytest.approx(repeated.value(rows[copies], columns))


def test_a_weighted_mean_target_stands_for_no_columns_and_no_rows():
    y = WINE_X[:, 0]
    game = wine_game(
        LinearRegression(), y=y, scoring="neg_mean_squared_error", sample_weight=WEIGHTS
    )
    mean = np.average(y[TRAIN], weights=WEIGHTS)
    expected = pytest.approx(-np.mean((y[VAL] - mean) ** 2))
    assert game.value(np.ones(80, dtype=bool), np.zeros(13, dtype=bool)) == expected
    assert game.value(*no_one(game)) == expected


def test_rows_of_weight_zero_are_left_out():
    weights = np.where(WINE_Y[TRAIN] == 1, 0.0, 1.0)
    weighted, plain = wine_game(GaussianNB(), sample_weight=weights), wine_game(GaussianNB())
    columns = np.ones(13, dtype=bool)
    everyone_else = plain.value(WINE_Y[TRAIN] != 1, columns)
    assert weighted.value(np.ones(80, dtype=bool), columns) == everyone_else
    assert weighted.value(WINE_Y[TRAIN] == 1, columns) == plain.value(*no_one(plain))


PIPE = make_pipeline(StandardScaler(), GaussianNB())
WEIGHT_NAMES = [
    (GaussianNB(), "sample_weight"),
    (PIPE, "gaussiannb__sample_weight"),
    (make_pipeline(PIPE), "pipeline__gaussiannb__sample_weight"),
    (GridSearchCV(GaussianNB(), {}, cv=2), "sample_weight"),
    (GridSearchCV(PIPE, {}, cv=2), "gaussiannb__sample_weight"),
    (VotingClassifier([("a", GaussianNB()), ("b", GaussianNB())]), "sample_weight"),
    (VotingClassifier([("a", PIPE)]), None),
    (make_pipeline(StandardScaler(), KNeighborsClassifier()), None),
    (KNeighborsClassifier(), None),
]


@pytest.mark.parametrize(("model", "name"), WEIGHT_NAMES, ids=str)
def test_weights_go_to_the_model_that_weighs(model, name):
    assert weight_name(model) == name
    if name is not None:
        game = wine_game(model, sample_weight=WEIGHTS)
        plain = wine_game(GaussianNB(), sample_weight=WEIGHTS)
        rows, columns = np.arange(80) < 40, np.ones(13, dtype=bool)
        assert game.value(rows, columns) == pytest.approx(plain.value(rows, columns), abs=0.02)
        assert isinstance(game.value(rows, columns), DetailedUtility)


def test_valuers_hand_weights_to_the_game():
    given = {"X_val": WINE_X[VAL], "y_val": WINE_Y[VAL], "row_groups": np.arange(80) % 3}
    given["column_groups"] = np.arange(13) % 3
    weighted = ModelValuer(GaussianNB(), estimator="exact").fit(
        WINE_X[TRAIN], WINE_Y[TRAIN], sample_weight=WEIGHTS, **given
    )
    game = wine_game(GaussianNB(), sample_weight=WEIGHTS, row_groups=given["row_groups"],
                     column_groups=given["column_groups"])  # fmt: skip
    np.testing.assert_array_equal(weighted.values_, value_game(game).values)


# tables at hand ---------------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["numpy", "pandas"])
def test_a_model_that_writes_into_its_table_spoils_nothing(library):
    X = pd.DataFrame(WINE_X) if library == "pandas" else WINE_X
    model = make_pipeline(StandardScaler(copy=False), GaussianNB())
    take = X.iloc if library == "pandas" else X
    game = ModelGame(model, take[TRAIN], WINE_Y[TRAIN], take[VAL], WINE_Y[VAL])
    coalition = draw_coalition(game, 1)
    assert len({game.value(*coalition) for _ in range(3)}) == 1


def test_a_game_keeps_a_limited_number_of_tables_at_hand(monkeypatch):
    monkeypatch.setattr("cellworth.games.model._MAX_CELLS_AT_HAND", 3 * 98 * 13)
    game = wine_game(GaussianNB())
    rows, _ = everyone(game)
    seen = [game.value(rows, np.arange(13) == column) for column in (0, 1, 2, 3, 0)]
    assert len(game._views) == 3
    assert seen[0] == seen[-1]


def test_a_game_travels_without_the_tables_at_hand():
    game = wine_game(GaussianNB())
    utility = game.value(*everyone(game))
    copy = pickle.loads(pickle.dumps(game))  # noqa: S301 (our own)
    assert len(copy._views) == 0
    assert copy.value(*everyone(copy)) == utility


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
    coalition = draw_coalition(game, 5)
    assert game.value(*coalition) == plain.value(*coalition)


# cross-validation -------------------------------------------------------------------------------


@pytest.mark.parametrize("cv", [3, StratifiedKFold(4, shuffle=True, random_state=0)], ids=str)
def test_without_a_validation_set_no_row_is_judged_on_itself(cv):
    X, y = WINE_X[TRAIN], WINE_Y[TRAIN]
    game = ModelGame(GaussianNB(), X, y, cv=cv)
    rows, columns = draw_coalition(game, 2)
    splitter = StratifiedKFold(cv) if isinstance(cv, int) else cv
    scores = []
    for train, val in splitter.split(X, y):
        mine = train[rows[train]]
        trained = GaussianNB().fit(X[mine][:, columns], y[mine])
        scores.append(trained.score(X[val][:, columns], y[val]))
    assert game.value(rows, columns) == pytest.approx(np.mean(scores), abs=1e-15)
