"""Models of real libraries, end to end: values are finite, add up and repeat, nothing fails.

The libraries are in the dependency group ``models``. Without them these tests are skipped, unless
the environment variable REQUIRE_MODELS is set.
"""

import os
from functools import cache, partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_wine
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from threadpoolctl import threadpool_limits

from cellworth import ModelValuer, Runtime
from cellworth.games import FailedUtility, ModelGame
from cellworth.runtime import MaxTasks, Processes, Threads

pytestmark = [
    pytest.mark.models,
    # Few rows do not know all categories of the validation rows, and skrub's encoder says so.
    pytest.mark.filterwarnings("ignore:Found unknown categories"),
]

DATA = Path(__file__).parents[2] / "shared" / "data"
with_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"the data sets are not in {DATA}")

COLUMN_GROUPS = {
    "person": ["age", "sex", "race"],
    "school": ["education", "education_num"],
    "work": ["workclass", "occupation", "hours_per_week"],
    "family": ["marital_status", "relationship"],
    "money": ["capital_gain", "capital_loss"],
    "rest": ["fnlwgt", "native_country"],
}
NUMBERS = ["age", "education_num", "hours_per_week", "capital_gain", "capital_loss", "fnlwgt"]
TEXTS = [n for names in COLUMN_GROUPS.values() for n in names if n not in NUMBERS]


@pytest.fixture(autouse=True)
def one_thread():
    """As inside the tasks of a run; small fits on many threads wait for each other."""
    with threadpool_limits(1):
        yield


def library(name):
    return import_module(name) if os.environ.get("REQUIRE_MODELS") else pytest.importorskip(name)


@cache
def adult():
    """Some hundred rows of the Census with text as categories, and the labels as they are."""
    both = []
    for side, n_rows in (("train", 240), ("test", 100)):
        table = pd.read_csv(DATA / f"adult_{side}.csv.gz").sample(n_rows, random_state=0)
        both.append(table.reset_index(drop=True))
    # Both tables share their categories, whichever rows a coalition has.
    for name in TEXTS:
        kind = pd.CategoricalDtype(
            sorted(set(both[0][name].dropna()) | set(both[1][name].dropna()))
        )
        for table in both:
            table[name] = table[name].astype(kind)
    return both


def data(prepare=lambda X: X):
    train, test = adult()
    return {
        "X": prepare(train.drop(columns="income")),
        "y": train["income"].to_numpy(dtype=object),
        "X_val": prepare(test.drop(columns="income")),
        "y_val": test["income"].to_numpy(dtype=object),
        "row_groups": np.arange(len(train)) % 8,
        "column_groups": COLUMN_GROUPS,
    }


def as_text(X):
    return X.astype(dict.fromkeys(TEXTS, object)).fillna(dict.fromkeys(TEXTS, "?"))


# the models -------------------------------------------------------------------------------------


def encode(**settings):
    return ColumnTransformer(
        [
            ("texts", OneHotEncoder(handle_unknown="ignore"), TEXTS),
            ("numbers", StandardScaler(), NUMBERS),
        ],
        **settings,
    )


def linear():
    return make_pipeline(encode(), LogisticRegression(max_iter=1000))


def histogram_boosting():
    return HistGradientBoostingClassifier(
        max_iter=5, min_samples_leaf=5, categorical_features="from_dtype"
    )


def xgboost():
    return library("xgboost").XGBClassifier(n_estimators=5, n_jobs=1, enable_categorical=True)


def lightgbm(kind="LGBMClassifier"):
    return getattr(library("lightgbm"), kind)(
        n_estimators=5, min_child_samples=5, n_jobs=1, verbose=-1
    )


def catboost(kind="CatBoostClassifier", **settings):
    # It would write a folder of logs otherwise.
    return getattr(library("catboost"), kind)(
        iterations=5, verbose=False, allow_writing_files=False, thread_count=1, **settings
    )


def catboost_with_text():
    return catboost(cat_features=TEXTS)


def network(n_classes=2, batch_size=16):
    torch, skorch = library("torch"), library("skorch")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = torch.nn.LazyLinear(8)
            self.out = torch.nn.Linear(8, n_classes)

        def forward(self, X):
            return torch.softmax(self.out(torch.relu(self.hidden(X))), dim=-1)

    return skorch.NeuralNetClassifier(
        Net,
        max_epochs=5,
        lr=0.3,
        batch_size=batch_size,
        train_split=None,
        verbose=0,
        iterator_train__shuffle=True,
    )


def as_float32(X):
    return X.astype(np.float32)


def make_encoded_network():
    return make_pipeline(
        encode(sparse_threshold=0.0), FunctionTransformer(as_float32), network(batch_size=64)
    )


def skrub():
    return library("skrub").tabular_pipeline(LogisticRegression(max_iter=1000))


MODELS = {
    "scikit-learn": (linear, as_text),
    "scikit-learn with categories": (histogram_boosting, lambda X: X),
    "XGBoost": (xgboost, lambda X: X),
    "LightGBM": (lightgbm, lambda X: X),
    "CatBoost": (catboost_with_text, as_text),
    "skorch": (make_encoded_network, as_text),
    "skrub": (skrub, as_text),
}


# two-dimensional values of the Census -------------------------------------------------------------


@with_data
@pytest.mark.parametrize("name", MODELS)
def test_a_library_values_the_census(name):
    make, prepare = MODELS[name]
    valuer = ModelValuer(make(), stop=MaxTasks(1), random_state=0)
    first = valuer.fit(**data(prepare)).valuation_
    assert first.shape == (8, 6)
    assert np.isfinite(first.values).all()
    assert abs(first.efficiency_residual) < 1e-12
    assert first.provenance.tally.failed == 0
    second = valuer.fit(**data(prepare)).valuation_
    np.testing.assert_array_equal(first.values, second.values)
    assert first.provenance.problem_spec == second.provenance.problem_spec


# classes that a coalition lacks, and numbers ------------------------------------------------------

WINE_X, WINE_Y = load_wine(return_X_y=True)
WINE_X = (WINE_X - WINE_X.mean(axis=0)) / WINE_X.std(axis=0)
ORDER = np.random.default_rng(1).permutation(len(WINE_X))
TRAIN, VAL = ORDER[:100], ORDER[100:]
CLASSIFIERS = {
    "XGBoost": xgboost,
    "LightGBM": lightgbm,
    "CatBoost": catboost,
    "skorch": partial(network, 3),
}


@pytest.mark.parametrize(
    ("scoring", "labels"),
    [("accuracy", ["barbera", "barolo", "grignolino"]), ("neg_log_loss", [1, 3, 7])],
    ids=["text", "numbers"],
)
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_rows_may_lack_a_class_whatever_the_classes_are_called(name, scoring, labels):
    X, y = WINE_X.astype(np.float32), np.array(labels)[WINE_Y]
    game = ModelGame(CLASSIFIERS[name](), X[TRAIN], y[TRAIN], X[VAL], y[VAL], scoring=scoring)
    columns = np.ones(13, dtype=bool)
    for absent in range(3):
        utility = game.value(WINE_Y[TRAIN] != absent, columns)
        assert not isinstance(utility, FailedUtility), utility.message
    if scoring == "accuracy":
        assert game.value(np.ones(100, dtype=bool), columns) > 0.5


# seeds ------------------------------------------------------------------------------------------

NOISY = {
    "XGBoost": lambda: xgboost().set_params(subsample=0.5),
    "LightGBM": lambda: lightgbm().set_params(subsample=0.5, subsample_freq=1),
    "CatBoost": catboost,
    "skorch": partial(network, 3),
}


@pytest.mark.parametrize("name", NOISY)
def test_repeats_draw_other_random_numbers_and_repeat(name):
    X = WINE_X.astype(np.float32)
    given = X[TRAIN], WINE_Y[TRAIN], X[VAL], WINE_Y[VAL]
    everything = np.ones(100, dtype=bool), np.ones(13, dtype=bool)
    once, thrice = (
        ModelGame(NOISY[name](), *given, scoring="neg_log_loss").with_repeats(n) for n in (1, 3)
    )
    assert once.value(*everything) != thrice.value(*everything)
    assert len({thrice.value(*everything) for _ in range(2)}) == 1


def test_a_networks_values_do_not_depend_on_who_else_draws_random_numbers():
    torch = library("torch")
    X = WINE_X.astype(np.float32)
    given = {"X_val": X[VAL], "y_val": WINE_Y[VAL], "row_groups": np.arange(100) % 3}
    given["column_groups"] = np.arange(13) % 2
    values = []
    for executor in (None, Threads(2), Processes(2)):
        torch.manual_seed(len(values))
        before = torch.random.get_rng_state()
        valuer = ModelValuer(
            network(3),
            scoring="neg_log_loss",
            stop=MaxTasks(3),
            random_state=0,
            runtime=Runtime(executor=executor),
        )
        values.append(valuer.fit(X[TRAIN], WINE_Y[TRAIN], **given).values_)
        assert executor is not None or torch.equal(before, torch.random.get_rng_state())
    np.testing.assert_array_equal(values[0], values[1])
    np.testing.assert_array_equal(values[0], values[2])
