"""Data that can be valued but is likely to be a mistake gets one sentence; clean data gets none."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from sklearn.model_selection import GroupKFold
from sklearn.tree import DecisionTreeClassifier

from cellworth import DataWarning, KNNValuer, ModelValuer, OutOfBagValuer

RNG = np.random.default_rng(0)
N = 200
X = pd.DataFrame(RNG.normal(size=(N, 3)), columns=["a", "b", "c"])
Y = pd.Series(np.where(X["a"] + RNG.normal(size=N) > 0, "yes", "no"))
CODES = (Y == "yes").to_numpy().astype(int)
NUMERIC = pd.Series(X["a"] + 2 * RNG.normal(size=N))


def told(valuer, *given, **more):
    """Sentences that a fit would say, without the fit."""
    names = dict(zip(("X", "y"), given, strict=True)) | more
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        valuer._inspect_columns(valuer._make_game(**names))
    return [str(one.message) for one in caught if one.category is DataWarning]


def knn(*given, **more):
    return told(KNNValuer(3, scoring=more.pop("scoring", None)), *given, **more)


VALUERS = {
    "knn": KNNValuer(3),
    "exact": ModelValuer(DecisionTreeClassifier(), estimator="exact"),
    "out of bag": OutOfBagValuer(n_trees=5),
}


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer, load_diabetes])
def test_tables_of_scikit_learn_get_no_warning(load):
    data = load(as_frame=True).frame
    features, labels = data.drop(columns="target"), data["target"]
    assert knn(features, labels) == []
    order = np.random.default_rng(0).permutation(len(labels))
    one, other = order[::2], order[1::2]
    assert knn(
        features.iloc[one], labels.iloc[one], X_val=features.iloc[other], y_val=labels.iloc[other]
    ) == []  # fmt: skip


SPOILED = {
    "copied": Y.to_numpy(),
    "codes": CODES,
    "text": [f"class {code}" for code in CODES],
    "recoded": np.array([30, -2])[CODES],
    "categories": pd.Categorical(Y),
    "booleans": CODES == 1,
}


@pytest.mark.parametrize("valuer", VALUERS)
@pytest.mark.parametrize("name", SPOILED)
def test_a_target_in_the_table_is_found_whatever_it_is_called(valuer, name):
    sentences = told(VALUERS[valuer], X.assign(again=SPOILED[name]), Y)
    assert sentences == [
        "again is the target up to recoding. Drop it, or the target predicts itself."
    ]


def test_a_column_called_like_the_target_is_found_even_if_it_differs():
    changed = X.assign(label=np.where(np.arange(N) < 5, 1 - CODES, CODES))
    (said,) = knn(changed, Y.rename("label"))
    assert said.startswith("label is named like the target.")
    (said,) = knn(pl.from_pandas(changed), pl.Series("label", Y.to_list()))
    assert said.startswith("label is named like the target.")
    # pandas hands names on: y may be called like the column that it was made from, with others.
    assert knn(X, (X["a"] + X["b"] > 0).rename("a")) == []
    # Names of columns that are numbers say nothing: they are positions.
    assert knn(X.set_axis([0, 1, 2], axis=1), Y.rename(0)) == []


def ids_in_order_of(codes):
    ids = np.empty(len(codes), dtype=int)
    ids[np.argsort(codes, kind="stable")] = np.arange(len(codes))
    return ids


@pytest.mark.parametrize(
    "cells",
    [
        CODES + RNG.normal(0, 0.01, N),
        np.array(["u", "v", "w", "x"])[2 * CODES + RNG.integers(0, 2, N)],
        np.where(CODES == 1, RNG.normal(size=N), np.nan),
        ids_in_order_of(CODES)[:N],
    ],
    ids=["noise", "finer categories", "gaps", "sorted ids"],
)
def test_a_column_that_alone_predicts_the_target_is_named(cells):
    if np.asarray(cells).dtype.kind == "i":
        # Two labels beside each other are missed at the border; of 200 rows that is one in 100.
        longer = pd.concat([X] * 5, ignore_index=True) + RNG.normal(size=(5 * N, 3))
        sentences = knn(longer.assign(late=ids_in_order_of(np.tile(CODES, 5))), [*Y] * 5)
    else:
        sentences = knn(X.assign(late=cells), Y)
    assert len(sentences) == 1
    assert sentences[0].startswith("late alone predicts ")


def test_a_good_column_is_no_leak():
    for noise in (0.3, 1.0):
        good = CODES + RNG.normal(0, noise, N)
        assert knn(X.assign(good=good), Y) == []
    # A category for each row predicts nothing, however well it would fit.
    assert knn(X.assign(name=[f"row {i}" for i in range(N)]), Y) == []


def test_numeric_targets_are_found_by_their_ranks():
    assert knn(X, NUMERIC) == []
    for cells in (NUMERIC, np.exp(NUMERIC), -3 * NUMERIC + 100):
        (said,) = knn(X.assign(again=cells), NUMERIC)
        assert said.startswith("again is the target up to recoding.")
    (said,) = knn(X.assign(again=NUMERIC + 0.05 * RNG.normal(size=N)), NUMERIC)
    assert said.startswith("again alone explains 99.")
    assert knn(X.assign(good=NUMERIC + 0.5 * RNG.normal(size=N)), NUMERIC) == []


def test_few_rows_prove_nothing():
    few = X.head(12).assign(again=CODES[:12])
    assert knn(few, Y.head(12)) == []
    assert knn(X.head(12), Y.head(12), X_val=X.head(12), y_val=Y.head(12)) == []


@pytest.mark.parametrize("valuer", ["knn", "exact"])
def test_validation_rows_that_are_trained_on_are_counted(valuer):
    X_val = pd.DataFrame(RNG.normal(size=(80, 3)), columns=list("abc"))
    y_val = RNG.choice(["yes", "no"], 80)
    given = {"X_val": X_val, "y_val": y_val}
    assert told(VALUERS[valuer], X, Y, **given) == []
    X_val.iloc[:10], y_val[:9] = X.iloc[20:30].to_numpy(), Y.iloc[20:29]
    y_val[9] = {"yes": "no", "no": "yes"}[Y.iloc[29]]
    (said,) = told(VALUERS[valuer], X, Y, **given)
    assert said.startswith("10 of 80 validation rows are also in X, 1 of them with an")


def test_rows_that_repeat_by_nature_are_no_copies():
    """Grades from 1 to 3 in three columns: 27 different rows, drawn anew for both sides."""
    grades = pd.DataFrame(RNG.integers(1, 4, (900, 3)), columns=list("abc"))
    labels = RNG.choice(["yes", "no"], 900)
    assert knn(grades, labels) == []
    assert knn(grades[:600], labels[:600], X_val=grades[600:], y_val=labels[600:]) == []
    assert told(OutOfBagValuer(n_trees=5), grades, labels) == []


def test_copies_in_other_folds_are_told_of_and_groups_mend_it():
    twice, labels = pd.concat([X, X], ignore_index=True), pd.concat([Y, Y], ignore_index=True)
    (said,) = knn(twice, labels)
    assert said.startswith("200 rows repeat an earlier row. Drop the copies, or keep them together")
    apart = told(KNNValuer(3), twice, labels, cv=GroupKFold(5), groups=np.arange(2 * N) % N)
    assert apart == []
    (said,) = told(VALUERS["out of bag"], twice, labels)
    assert said.startswith("200 rows repeat an earlier row. Drop the copies; trees")


def test_rows_of_few_distinct_values_are_copies_if_all_validation_rows_are_in_the_table():
    grades = pd.DataFrame(RNG.integers(0, 2, (200, 8)), columns=list("abcdefgh"))
    labels = RNG.choice(["yes", "no"], 200)
    assert knn(grades[:100], labels[:100], X_val=grades[100:], y_val=labels[100:]) == []
    (said,) = knn(grades, labels, X_val=grades[:100], y_val=labels[:100])
    assert said.startswith("100 of 100 validation rows are also in X.")


def test_many_columns_of_one_kind_are_one_warning():
    texts = {f"c{j}": [f"{(i + j) % 30 / 4}" for i in range(N)] for j in range(5)}
    (said,) = knn(X.assign(**texts), Y)
    assert "c2 holds numbers as text (200 cells). So do 2 more columns." in said
    assert "c3" not in said


def test_copies_in_a_split_of_a_table_with_copies_are_told_of():
    """Halves of doubled rows repeat as rows repeat within each half, but not by chance."""
    order = np.random.default_rng(1).permutation(4 * N)
    rows = pd.concat([X] * 4, ignore_index=True).iloc[order].reset_index(drop=True)
    labels = pd.concat([Y] * 4, ignore_index=True).iloc[order].reset_index(drop=True)
    half = 2 * N
    (said,) = knn(rows[:half], labels[:half], X_val=rows[half:], y_val=labels[half:])
    assert " of 400 validation rows are also in X" in said


CLASSES = "treated as classes; if y is a numeric target, pass scoring='neg_mean_squared_error'"
QUANTITY = "treated as a numeric target; if they are classes, pass scoring='neighbor_agreement'"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (RNG.integers(18, 60, N), CLASSES),
        (RNG.poisson(8, N), CLASSES),
        (RNG.integers(18, 60, N).astype(float), CLASSES),
        (np.repeat(np.arange(60), 10), QUANTITY),
        (RNG.integers(0, 2, N), None),
        (RNG.choice([2, 4], N), None),
        (RNG.integers(1, 7, N), None),
        (np.arange(N) % 20, None),
        (RNG.integers(0, 10_000, N), None),
        (RNG.normal(size=N), None),
        (Y, None),
    ],
)
def test_whole_numbers_that_may_be_the_other_task_are_told(target, said):
    rows = pd.DataFrame(RNG.normal(size=(len(target), 3)), columns=list("abc"))
    sentences = knn(rows, target)
    assert [said in sentence for sentence in sentences] == ([] if said is None else [True])
    # Whoever has chosen is not told again.
    if said is not None:
        chosen = "neg_mean_squared_error" if said == CLASSES else "neighbor_agreement"
        assert knn(rows, target, scoring=chosen) == []
        other = "DecisionTreeRegressor" if said == CLASSES else "DecisionTreeClassifier"
        (own,) = told(OutOfBagValuer(n_trees=5), rows, target)
        assert other in own


def test_a_fit_warns_once_and_goes_on():
    with pytest.warns(DataWarning) as warned:
        valuer = KNNValuer(3).fit(X.assign(again=Y), Y)
    assert len(warned) == 1
    assert valuer.columns_["again"].distinct == 2
    assert issubclass(DataWarning, UserWarning)


def test_millions_of_rows_are_looked_at_by_some():
    """Samples of rows stand for all: the sentences are those of the whole."""
    n = 150_000
    rows = pd.DataFrame(RNG.normal(size=(n, 2)), columns=["a", "b"])
    labels = RNG.choice([0, 1], n)
    given = {"X_val": rows[:3000], "y_val": labels[:3000]}
    (leak, copies) = knn(rows.assign(late=labels + 0.001 * rows["a"]), labels, **{
        "X_val": rows[:3000].assign(late=labels[:3000] + 0.001 * rows["a"][:3000]),
        "y_val": given["y_val"],
    })  # fmt: skip
    assert leak.startswith("late alone predicts ")
    assert copies.startswith("3,000 of 3,000 validation rows are also in X")
