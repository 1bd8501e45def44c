import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_selector
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from cellworth.games.fitting import for_columns

NAMES = np.array(["age", "pay", "job", "town"])
TABLE = pd.DataFrame(
    {
        "age": [20.0, 30.0, 40.0, 50.0] * 5,
        "pay": [1.0, 4.0, 2.0, 3.0] * 5,
        "job": ["baker", "smith"] * 10,
        "town": ["Ulm", "Ulm", "Bonn", "Kiel"] * 5,
    }
)
LABELS = np.array([0, 0, 1, 1] * 5)
FLOATS = make_column_selector(dtype_include=float)


def adapted(model, kept):
    """The model for a table with these columns only, fitted to it; None where it sees nothing."""
    model = for_columns(
        model, NAMES, np.isin(NAMES, kept), lambda: TABLE[[n for n in NAMES if n in kept]]
    )
    return None if model is None else model.fit(TABLE[[n for n in NAMES if n in kept]], LABELS)


def columns_of(transformer):
    return [columns for _, _, columns in transformer.transformers]


def by(selection, remainder="drop"):
    return ColumnTransformer([("part", "passthrough", selection)], remainder=remainder)


# column transformers ----------------------------------------------------------------------------

SELECTIONS = {
    "names": ["age", "town", "job"],
    "an array of names": np.array(["town", "age"]),
    "an index": pd.Index(["pay", "age"], dtype=object),
    "positions": [0, 3, 1],
    "positions from the end": [-1, -4],
    "a mask": [True, False, True, False],
    "an array as mask": np.array([True, True, False, False]),
    "a slice of positions": slice(0, 3),
    "a slice of names": slice("age", "job"),
    "a slice to the end": slice("pay", None),
    "nothing": [],
}


@pytest.mark.parametrize("how", SELECTIONS)
def test_adapted_transformers_hand_on_the_same_cells(how):
    selection = SELECTIONS[how]
    kept = ["pay", "job", "town"]
    whole = by(selection, remainder="passthrough").set_output(transform="pandas").fit(TABLE)
    cut = for_columns(whole, NAMES, np.isin(NAMES, kept)).fit(TABLE[kept])
    expected = whole.transform(TABLE)
    expected = expected[[name for name in expected if name.split("__")[-1] in kept]]
    pd.testing.assert_frame_equal(cut.transform(TABLE[kept]), expected)


def test_a_single_name_stays_single_and_asks_for_a_one_dimensional_column():
    words = ColumnTransformer([("words", CountVectorizer(), "job")])
    assert columns_of(adapted(words, ["age", "job"])) == ["job"]
    words = ColumnTransformer([("words", CountVectorizer(), 2)], remainder="passthrough")
    assert columns_of(adapted(words, ["age", "job"])) == [1]
    assert columns_of(adapted(words, ["age", "pay"])) == [[]]


def test_a_function_that_chooses_columns_stays():
    [choose] = columns_of(adapted(by(FLOATS), ["pay", "job"]))
    assert isinstance(choose, make_column_selector)


def test_a_transformer_without_columns_is_not_fitted_but_keeps_its_name():
    model = ColumnTransformer(
        [("number", StandardScaler(), ["age"]), ("text", OneHotEncoder(), ["job"])]
    )
    cut = adapted(model, ["job"])
    assert columns_of(cut) == [[], ["job"]]
    assert cut.transform(TABLE[["job"]]).shape == (20, 2)
    search = GridSearchCV(
        make_pipeline(model, DecisionTreeClassifier()),
        {"columntransformer__number__with_mean": [True, False]},
        cv=2,
    )
    assert adapted(search, ["job"]).predict(TABLE[["job"]]).shape == (20,)


def test_the_users_model_stays_as_it_is():
    model = make_pipeline(by(["age", "pay"]), LogisticRegression())
    adapted(model, ["pay"])
    assert columns_of(model[0]) == [["age", "pay"]]


NOTHING = {
    "names": (by(["age", "pay"]), ["job", "town"]),
    "positions": (by([0, 1]), ["job", "town"]),
    "a function": (by(FLOATS), ["job", "town"]),
    "a dropped transformer": (
        ColumnTransformer([("a", "drop", ["job"]), ("b", "passthrough", ["age"])]),
        ["job", "town"],
    ),
    "a remainder that is gone": (
        ColumnTransformer([("a", "drop", ["job", "town"])], remainder="passthrough"),
        ["job"],
    ),
    "a scaled remainder that is gone": (
        ColumnTransformer([("a", "drop", ["job", "town"])], remainder=StandardScaler()),
        ["job"],
    ),
}


@pytest.mark.parametrize("how", NOTHING)
def test_a_model_that_sees_no_column_is_none(how):
    model, kept = NOTHING[how]
    tree = make_pipeline(model, DecisionTreeClassifier())
    assert adapted(tree, kept) is None
    assert adapted(GridSearchCV(tree, {}, cv=2), kept) is None
    assert adapted(StackingClassifier([("tree", tree)], LogisticRegression()), kept) is None
    assert adapted(tree, ["age", "pay"]) is not None


def test_a_function_that_fails_is_left_for_the_fit_to_tell():
    def choose(X):
        raise KeyError("no such kind")

    model = make_pipeline(by(choose), DecisionTreeClassifier())
    with pytest.raises(KeyError, match="no such kind"):
        adapted(model, ["age"])


def test_wrong_positions_are_left_for_the_model_to_tell():
    with pytest.raises(ValueError, match="all features must be in"):
        adapted(by([7]), ["age"])


# where they stand -------------------------------------------------------------------------------

PREPARED = ColumnTransformer(
    [("number", StandardScaler(), ["age", "pay"]), ("text", OneHotEncoder(), ["job", "town"])]
)
PIPELINE = make_pipeline(PREPARED, LogisticRegression())
MODELS = {
    "a pipeline": PIPELINE,
    "a pipeline in a pipeline": make_pipeline("passthrough", PIPELINE),
    "a search": GridSearchCV(PIPELINE, {"logisticregression__C": [1.0, 2.0]}, cv=2),
    "a calibration": CalibratedClassifierCV(PIPELINE, cv=2),
    "a vote": VotingClassifier([("a", PIPELINE), ("b", PIPELINE)]),
    "a stack": StackingClassifier([("a", PIPELINE)], LogisticRegression(), cv=2),
    "a transformed target": TransformedTargetRegressor(
        make_pipeline(PREPARED, LinearRegression()), transformer=StandardScaler()
    ),
    "a union": make_pipeline(FeatureUnion([("a", PREPARED), ("b", PREPARED)]), LinearRegression()),
    "inside another": make_pipeline(
        ColumnTransformer([("outer", PREPARED, ["town", "job", "pay", "age"])]), LinearRegression()
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("where", MODELS)
@pytest.mark.parametrize("kept", [["pay", "town"], ["job"]], ids="-".join)
def test_column_transformers_are_found_wherever_they_stand(where, kept):
    assert adapted(MODELS[where], kept).predict(TABLE[kept]).shape == (20,)


def test_positions_inside_a_transformer_are_among_its_own_columns():
    inner = ColumnTransformer([("in", "passthrough", [1, 2])])
    cut = adapted(ColumnTransformer([("out", inner, ["town", "pay", "job"])]), ["pay", "job"])
    assert columns_of(cut.transformers[0][1]) == [[0, 1]]
    assert cut.transform(TABLE[["pay", "job"]])[0].tolist() == [1.0, "baker"]


def test_positions_behind_a_step_that_makes_columns_are_left_alone():
    encoded = make_pipeline(OneHotEncoder(sparse_output=False), by([0, 1]))
    assert columns_of(for_columns(encoded, NAMES, NAMES != "age")[1]) == [[0, 1]]
    imputed = make_pipeline(SimpleImputer(strategy="most_frequent"), by([0, 1]))
    assert columns_of(for_columns(imputed, NAMES, NAMES != "age")[1]) == [[0]]
    function = FunctionTransformer(feature_names_out="one-to-one")
    assert columns_of(for_columns(make_pipeline(function, by([3])), NAMES, NAMES != "age")[1]) == [
        [2]
    ]


def test_names_behind_a_step_that_makes_columns_are_still_cut():
    wide = OneHotEncoder(sparse_output=False).set_output(transform="pandas")
    kept = for_columns(make_pipeline(wide, by(["age", "job_baker"])), NAMES, NAMES != "age")
    assert columns_of(kept[1]) == [["job_baker"]]


def test_a_voter_that_sees_nothing_is_dropped():
    numbers = make_pipeline(by(["age", "pay"]), LogisticRegression())
    vote = VotingClassifier([("numbers", numbers), ("all", PIPELINE)])
    assert dict(adapted(vote, ["job"]).estimators)["numbers"] == "drop"


# other places that name columns -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (["job", "town"], ["town"]),
        ([2, 3], [1]),
        (np.array([False, False, True, True]), [1]),
        ("from_dtype", "from_dtype"),
        (None, None),
        (["job"], []),
    ],
    ids=str,
)
def test_categorical_features_are_cut(given, left):
    model = HistGradientBoostingClassifier(categorical_features=given)
    cut = for_columns(model, NAMES, np.isin(NAMES, ["age", "town"]))
    assert cut.categorical_features == left


@pytest.mark.slow
def test_gradient_boosting_with_named_categories_trains_on_what_is_left():
    X = TABLE.assign(job=TABLE["job"].astype("category"), town=TABLE["town"].astype("category"))
    model = HistGradientBoostingClassifier(
        categorical_features=["job", "town"],
        monotonic_cst={"age": 1, "pay": 0},
        interaction_cst=[{0, 1}, {2, 3}],
    )
    for kept in (["age", "town"], ["pay"], ["job"]):
        cut = for_columns(model, NAMES, np.isin(NAMES, kept))
        assert cut.fit(X[kept], LABELS).predict(X[kept]).shape == (20,)
    assert for_columns(model, NAMES, NAMES == "age").interaction_cst == [{0}]
    assert for_columns(model, NAMES, NAMES == "pay").monotonic_cst == {"pay": 0}


def test_entries_per_column_are_cut():
    forest = RandomForestClassifier(monotonic_cst=[1, 0, -1, 0])
    assert for_columns(forest, NAMES, NAMES != "pay").monotonic_cst == [1, -1, 0]
    forest = RandomForestClassifier(monotonic_cst=np.array([1, 0, -1, 0]))
    assert for_columns(forest, NAMES, NAMES != "pay").monotonic_cst.tolist() == [1, -1, 0]


def test_an_encoders_lists_of_categories_are_cut():
    encoder = OrdinalEncoder(categories=[["Ulm", "Bonn", "Kiel"], ["smith", "baker"]])
    encode = make_pipeline(SimpleImputer(strategy="most_frequent"), encoder)
    model = ColumnTransformer([("text", encode, ["town", "job"])])
    cut = adapted(model, ["age", "job"])
    assert cut.transform(TABLE[["age", "job"]])[:2, 0].tolist() == [1.0, 0.0]


class Boosting(BaseEstimator):
    """An estimator that lists columns as CatBoost and XGBoost do."""

    def __init__(self, cat_features=None, interaction_constraints=None, feature_types=None):
        self.cat_features = cat_features
        self.interaction_constraints = interaction_constraints
        self.feature_types = feature_types


def test_other_libraries_are_known_by_the_names_of_their_parameters():
    model = Boosting(("job", "town"), [["age", "pay"], ["job"]], ["q", "q", "c", "c"])
    cut = for_columns(model, NAMES, np.isin(NAMES, ["pay", "town"]))
    assert cut.cat_features == ("town",)
    assert cut.interaction_constraints == [["pay"]]
    assert cut.feature_types == ["q", "c"]
    texts = for_columns(Boosting(interaction_constraints="[[0, 1]]"), NAMES, NAMES == "age")
    assert texts.interaction_constraints == "[[0, 1]]"


class Vectorizer(BaseEstimator):
    """An estimator that pairs transformers with columns as skrub does."""

    def __init__(self, specific_transformers=(), cols=None):
        self.specific_transformers = specific_transformers
        self.cols = cols


def test_pairs_of_transformer_and_columns_are_cut():
    pairs = [(StandardScaler(), ["age", "pay"]), (OneHotEncoder(), ["job"])]
    cut = for_columns(Vectorizer(pairs, cols="job"), NAMES, np.isin(NAMES, ["age", "town"]))
    [(scaler, columns)] = cut.specific_transformers
    assert isinstance(scaler, StandardScaler)
    assert columns == ["age"]
    assert cut.cols == []
