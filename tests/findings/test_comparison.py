"""compare_models: scores on held-out rows, and whether a change is more than noise."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import stats
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import balanced_accuracy_score, get_scorer, make_scorer, roc_auc_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from cellworth.findings import compare_models
from matrices import rarely


class Sure(ClassifierMixin, BaseEstimator):
    """Is right on a share of the rows that is the mean of its training table."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.share_ = float(np.mean(X))
        return self

    def predict(self, X):
        # The first column of a test row is its label, the second a number between 0 and 1.
        right = X[:, 1] < self.share_
        return np.where(right, X[:, 0], 1 - X[:, 0]).astype(int)


def held_out(n_rows, seed):
    rng = np.random.default_rng(seed)
    label = np.arange(n_rows) % 2
    return np.column_stack([label, rng.random(n_rows)]), label


Y = [0, 1]
WORSE, BETTER = np.full((2, 2), 0.7), np.full((2, 2), 0.8)


@pytest.mark.slow
def test_a_known_change_lies_within_its_interval_about_as_often_as_promised():
    def accuracy(model, X, y):
        # Many times quicker than scikit-learn's.
        return np.mean(model.predict(X) == y)

    inside = []
    for seed in range(200):
        X_test, y_test = held_out(100, seed)
        comparison = compare_models(
            Sure(),
            WORSE,
            Y,
            X_repaired=BETTER,
            X_test=X_test,
            y_test=y_test,
            scoring=accuracy,
            n_repeats=2,
        )
        low, high = comparison.interval
        inside.append(low <= 0.1 <= high)
    # Four standard errors of 95% of 200.
    assert 0.89 <= np.mean(inside) <= 1


class Noted(ClassifierMixin, BaseEstimator):
    """Predicts what the first or the second column of a test row says, as it was taught."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.side_ = int(np.mean(X) > 0.5)
        return self

    def predict(self, X):
        return X[:, self.side_].astype(int)


def balanced(model, X, y):
    right = model.predict(X) == y
    return (right[y == 0].mean() + right[y == 1].mean()) / 2


@pytest.mark.slow
def test_an_interval_holds_where_a_class_has_few_rows():
    inside = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        label = np.repeat([0, 1], [95, 5])
        right = rng.random((100, 2)) < np.where(label == 1, 0.5, 0.9)[:, None]
        comparison = compare_models(
            Noted(), WORSE - 0.5, Y, X_repaired=WORSE, scoring=balanced, n_repeats=2,
            X_test=np.where(right, label[:, None], 1 - label[:, None]), y_test=label,
        )  # fmt: skip
        low, high = comparison.interval
        inside.append(low <= 0 <= high)
    # Four standard errors of 95% of 200.
    assert np.mean(inside) >= 0.89
    assert "One class has only 5 held-out rows: the interval is rough." in repr(comparison)


class Lucky(RegressorMixin, BaseEstimator):
    """Predicts one number for all rows: a draw from its seed and its table."""

    def __init__(self, random_state=None):
        self.random_state = random_state

    def fit(self, X, y):
        self.side_ = int(np.mean(X) > 0.5)
        return self

    def predict(self, X):
        return np.full(len(X), np.random.default_rng([self.random_state, self.side_]).normal())


@pytest.mark.slow
@pytest.mark.parametrize("n_repeats", [2, *rarely(5)])
def test_an_interval_holds_where_seeds_alone_make_the_difference(n_repeats):
    def mean(model, X, y):
        return model.predict(X).mean()

    inside, widths = [], []
    for seed in range(200):
        comparison = compare_models(
            Lucky(1000 * seed), np.zeros((2, 1)), [0.5, 1.5], X_repaired=np.ones((2, 1)),
            scoring=mean, X_test=np.arange(5.0, 15)[:, None], y_test=np.linspace(0, 1, 10),
            n_repeats=n_repeats,
        )  # fmt: skip
        low, high = comparison.interval
        inside.append(low <= 0 <= high)
        widths.append(high - low)
    # All of this noise averages out over splits, of which a few cannot be sure.
    assert np.mean(inside) >= 0.95
    # Differences of two draws, in the mean over two halves and all splits.
    truth = 2 * 1.96 * np.sqrt(2 / (2 * n_repeats))
    assert truth < np.mean(widths) < 5 * truth


def test_scores_are_those_of_the_models():
    X_test, y_test = held_out(200, 0)
    given = {"X_test": X_test, "y_test": y_test}
    comparison = compare_models(Sure(), WORSE, Y, X_repaired=BETTER, **given)
    assert comparison.on_all_rows == (np.mean(X_test[:, 1] < 0.7), np.mean(X_test[:, 1] < 0.8))
    # All rows teach this model the same.
    np.testing.assert_allclose((comparison.before, comparison.after), comparison.on_all_rows)
    assert comparison.change == comparison.after - comparison.before
    assert not comparison.within_noise
    assert comparison.verdict == "helped"
    assert "the change helped" in repr(comparison)
    back = compare_models(Sure(), BETTER, Y, X_repaired=WORSE, **given)
    assert back.change == -comparison.change
    np.testing.assert_allclose(back.interval, [-end for end in comparison.interval[::-1]])
    assert back.verdict == "hurt"
    assert "the change hurt" in repr(back)


def data(seed=0, n_rows=60):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 3))
    return X, (X[:, 0] + rng.normal(size=n_rows) > 0).astype(int)


X, y = data()
X_TEST, Y_TEST = data(1, 80)
# Few trainings, where their number does not matter.
TEST = {"X_test": X_TEST, "y_test": Y_TEST, "n_repeats": 2}


def test_an_identical_table_changes_nothing():
    comparison = compare_models(LogisticRegression(), X, y, X_repaired=X.copy(), **TEST)
    assert comparison.change == 0
    assert comparison.interval == (0, 0)
    assert comparison.within_noise
    assert comparison.n_changed == 0
    assert repr(comparison).endswith("Nothing was changed: both tables are the same.")


def test_changed_cells_are_counted_and_missing_values_are_alike():
    table = pd.DataFrame({"a": [1.0, None, 3.0] * 9, "b": ["x", None, "z"] * 9})
    changed = table.copy()
    changed.loc[0, "a"], changed.loc[4, "b"] = 9.0, "x"
    test = pd.DataFrame({"a": [1.5] * 4, "b": ["x"] * 4})
    given = {"X_test": test, "y_test": [0, 1] * 2, "n_repeats": 1}
    comparison = compare_models(
        DummyClassifier(), table, [0, 1, 0] * 9, X_repaired=changed, **given
    )
    assert comparison.n_changed == 2


@pytest.mark.parametrize("library", [np.asarray, pd.Series, pl.Series])
def test_rows_without_a_label_afterwards_are_left_out(library):
    left = np.arange(60) % 4 != 0
    after = library([int(label) if keep else None for label, keep in zip(y, left, strict=True)])
    comparison = compare_models(LogisticRegression(), X, y, y_repaired=after, **TEST)
    models = [LogisticRegression().fit(X, y), LogisticRegression().fit(X[left], y[left])]
    assert comparison.on_all_rows == tuple(model.score(X_TEST, Y_TEST) for model in models)
    assert comparison.n_changed == 15


def test_labels_that_are_put_right_help_and_are_counted():
    X, y = data(2, 400)
    X_test, y_test = data(3, 400)
    wrong = np.where(np.arange(400) % 2 == 0, 1 - y, y)
    given = {"X_test": X_test, "y_test": y_test, "scoring": "roc_auc"}
    comparison = compare_models(LogisticRegression(), X, wrong, y_repaired=y, **given)
    assert comparison.verdict == "helped"
    assert comparison.n_changed == 200
    both = compare_models(LogisticRegression(), X, wrong, X_repaired=X + 1, y_repaired=y, **given)
    assert both.n_changed == X.size + 200
    # The model does not depend on the origin.
    assert both.on_all_rows[1] == pytest.approx(comparison.on_all_rows[1], abs=1e-3)


def test_numbers_that_are_put_right_help():
    X, _ = data(4, 200)
    target = X @ [1.0, 2.0, 3.0]
    wrong = np.where(np.arange(200) % 3 == 0, 50.0, target)
    X_test, _ = data(5, 100)
    given = {"X_test": X_test, "y_test": X_test @ [1.0, 2.0, 3.0], "n_repeats": 5}
    after = np.where(wrong == 50.0, np.nan, wrong)
    comparison = compare_models(LinearRegression(), X, wrong, y_repaired=after, **given)
    assert comparison.after == pytest.approx(1.0)
    assert comparison.scoring == "r2"
    assert comparison.verdict == "helped"


def test_the_labels_before_and_after_are_both_kept_from_the_held_out_rows():
    for label in (y, 1 - y):
        with pytest.raises(ValueError, match="overrates itself"):
            compare_models(
                LogisticRegression(), X, y, y_repaired=1 - y, X_test=X.copy(), y_test=label
            )


@pytest.mark.slow
@pytest.mark.parametrize(
    "scoring",
    [None, "roc_auc", "neg_log_loss", make_scorer(balanced_accuracy_score)],
)
def test_any_scorer_gives_what_it_gives_the_model_itself(scoring):
    changed = X + 0.5
    comparison = compare_models(
        LogisticRegression(), X, y, X_repaired=changed, scoring=scoring, **TEST
    )
    fitted = [LogisticRegression().fit(table, y) for table in (X, changed)]
    scorer = scoring if callable(scoring) else get_scorer(scoring or "accuracy")
    direct = [scorer(model, X_TEST, Y_TEST) for model in fitted]
    assert comparison.on_all_rows == tuple(direct)


def test_a_model_without_probabilities_is_ranked_by_its_decisions():
    comparison = compare_models(SVC(), X, y, X_repaired=X + 0.5, scoring="roc_auc", **TEST)
    decisions = SVC().fit(X, y).decision_function(X_TEST)
    assert comparison.on_all_rows[0] == roc_auc_score(Y_TEST, decisions)


class Lottery(RegressorMixin, BaseEstimator):
    """Predicts a number that depends on its seed and on its training table alone."""

    def __init__(self, random_state=None):
        self.random_state = random_state

    def fit(self, X, y):
        self.number_ = float(self.random_state) + float(np.mean(X))
        return self

    def predict(self, X):
        return np.full(len(X), self.number_)


def test_repeats_have_seeds_of_their_own_and_share_them_before_and_after():
    comparison = compare_models(
        Lottery(), np.zeros((2, 1)), [0.0, 1.0], X_repaired=np.ones((2, 1)),
        X_test=np.array([[5.0], [6.0]]), y_test=[0.0, 0.0],
        scoring="neg_mean_absolute_error", n_repeats=3,
    )  # fmt: skip
    # Two halves in each of three splits.
    assert comparison.before == -np.mean(range(6))
    assert comparison.after == -np.mean(range(1, 7))
    # Every training and every row changes by the same.
    assert comparison.interval == (-1, -1)


def put_right(table, seed, n_cells=23):
    """Half of a table with cells from rows of another class, the same put right, and the rest."""
    X, y = table(return_X_y=True)
    rng = np.random.default_rng(seed)
    train, test = np.array_split(rng.permutation(len(X)), [len(X) // 2])
    right, label = X[train], y[train]
    rows, columns = (rng.integers(n, size=n_cells) for n in right.shape)
    wrong = right.copy()
    for row, column in zip(rows, columns, strict=True):
        wrong[row, column] = right[rng.choice(np.flatnonzero(label != label[row])), column]
    return (wrong, label, right), {"X_test": X[test], "y_test": y[test]}


def test_wrong_cells_that_are_put_right_do_not_hurt():
    # The tree that was trained once on all rows does worse on so many held-out rows that their
    # choice does not explain it; other trees do not.
    given, test = put_right(load_breast_cancer, 22)
    comparison = compare_models(
        DecisionTreeClassifier(random_state=0), *given[:2], X_repaired=given[2], **test
    )
    once = [
        DecisionTreeClassifier(random_state=0).fit(X, given[1]).predict(test["X_test"])
        == test["y_test"]
        for X in (given[0], given[2])
    ]
    z = stats.ttest_rel(once[1].astype(float), once[0].astype(float)).statistic
    assert z < -1.97
    assert comparison.on_all_rows[1] - comparison.on_all_rows[0] == pytest.approx(
        np.mean(once[1]) - np.mean(once[0])
    )
    assert comparison.verdict == "not distinguishable"


@pytest.mark.slow
def test_a_change_without_effect_seldom_gets_a_verdict():
    verdicts = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        (_, label, right), test = put_right(load_wine, seed)
        tables = right.copy(), right.copy()
        rows, columns = (rng.integers(n, size=23) for n in right.shape)
        for each in tables:
            # Neither draw can be the better one.
            each[rows, columns] = right[rng.integers(len(right), size=23), columns]
        verdicts.append(
            compare_models(
                DecisionTreeClassifier(random_state=seed), tables[0], label, X_repaired=tables[1],
                n_repeats=5, **test,
            ).verdict
        )  # fmt: skip
    # Four standard errors above 5 % of 40.
    assert sum(each != "not distinguishable" for each in verdicts) <= 7


def test_a_single_cell_that_ruins_a_model_is_noticed():
    far = X.copy()
    far[np.argmax(y), 0] = -1000.0
    comparison = compare_models(
        LogisticRegression(), far, y, X_repaired=X, **TEST | {"n_repeats": 5}
    )
    assert comparison.n_changed == 1
    assert comparison.verdict == "helped"


def test_the_same_seed_gives_the_same_interval():
    one, same, other = (
        compare_models(LogisticRegression(), X, y, X_repaired=X + 1, random_state=s, **TEST)
        for s in (0, 0, 1)
    )
    assert one == same
    assert one.interval != other.interval


@pytest.mark.parametrize("library", [pl.DataFrame, lambda d: pa.table(d)])
def test_tables_of_any_library_are_compared(library):
    before, after, test = (
        library({name: table[:, j] for j, name in enumerate("abc")})
        for table in (X, X + 0.5, X_TEST)
    )
    model = DecisionTreeClassifier(random_state=0)
    own = compare_models(
        model, before, y, X_repaired=after, X_test=test, y_test=Y_TEST, n_repeats=2
    )
    plain = compare_models(model, X, y, X_repaired=X + 0.5, **TEST)
    assert (own.before, own.after, own.interval) == (plain.before, plain.after, plain.interval)
    assert type(own.to_frame()) is type(before)
    assert own.to_frame("pandas")["low"][0] == own.interval[0]


@pytest.mark.parametrize("same", [X, X[::-1], pd.DataFrame(X), X + 0.5])
def test_models_are_not_scored_on_the_training_rows(same):
    label = y[::-1] if np.array_equal(same, X[::-1]) else y
    with pytest.raises(ValueError, match="overrates itself"):
        compare_models(LogisticRegression(), X, y, X_repaired=X + 0.5, X_test=same, y_test=label)


def test_some_shared_rows_are_counted_in_a_warning():
    mixed, label = np.vstack([X_TEST, X[:7]]), np.append(Y_TEST, y[:7])
    with pytest.warns(
        UserWarning, match="7 of 87 rows of X_test are also in X, with the same label"
    ):
        compare_models(
            LogisticRegression(),
            X,
            y,
            X_repaired=X + 0.5,
            X_test=mixed,
            y_test=label,
        )


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"X_repaired": X[:-1]}, "X_repaired must have the 60 rows of X, got 59"),
        ({"X_repaired": X[:, :2]}, "X_repaired must have the 3 columns of X, got 2"),
        (
            {"y_test": Y_TEST[:-1]},
            "y_test must have one entry for each of 80 rows of X_test, got 79",
        ),
        ({"y_test": Y_TEST + 5}, "y_test must have classes of y .*, got 5"),
        ({"X_test": None}, "X_test must not be None; pass rows that were set aside"),
        ({"X_repaired": None}, "X_repaired and y_repaired must not both be None"),
        ({"y_repaired": y[:-1]}, "y_repaired must have one entry for each of 60 rows of X, got 59"),
        ({"y_repaired": y + 5}, r"y_repaired must have classes of y \(0, 1\), got [56]"),
        ({"y_repaired": [None] * 60}, "y_repaired must have a label for some rows, got none"),
    ],
)
def test_each_mistake_gets_one_sentence(changed, sentence):
    given = {"X_repaired": X + 0.5, **TEST} | changed
    with pytest.raises(ValueError, match=sentence):
        compare_models(LogisticRegression(), X, y, **given)


def test_rows_in_another_order_are_rejected():
    table = pd.DataFrame(X)
    with pytest.raises(ValueError, match="X_repaired must have the row ids of X"):
        compare_models(LogisticRegression(), table, y, X_repaired=table[::-1], **TEST)


def test_a_model_that_fails_says_why():
    missing = X.copy()
    missing[0, 0] = np.nan
    with pytest.raises(RuntimeError, match=r"failed on the table .*NaN"):
        compare_models(LogisticRegression(), X, y, X_repaired=missing, **TEST)
    with pytest.raises(RuntimeError, match=r"failed on half of its rows .*n_neighbors = 40"):
        compare_models(KNeighborsClassifier(40), X, y, X_repaired=X + 1, **TEST)
    with pytest.raises(TypeError, match="got the class LogisticRegression"):
        compare_models(LogisticRegression, X, y, X_repaired=X + 1, **TEST)
