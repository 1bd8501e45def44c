import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import load_diabetes, load_wine
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from cellworth import OutOfBagValuer, load
from cellworth.data.problem import Problem
from cellworth.sampling.moments import widening
from cellworth.valuers.out_of_bag import Bags, ClassDistances, cross_moments, measure_cells

WINE, CULTIVAR = (part[::4] for part in load_wine(return_X_y=True))
PATIENTS, PROGRESS = (part[:60] for part in load_diabetes(return_X_y=True))


def valued(X, y, n_trees=60, groups=(None, None), **settings):
    valuer = OutOfBagValuer(n_trees=n_trees, random_state=3, **settings)
    return valuer.fit(X, y, row_groups=groups[0], column_groups=groups[1]).valuation_


# The formula, word by word --------------------------------------------------------------------


def nearness_by_hand(X, groups, bag, columns):
    """How near each row is to its class: 1 as the nearest of the bag, 0 from the farthest on."""
    cells = (X - X.mean(axis=0)) / X.std(axis=0)
    distances = []
    for i in range(len(X)):
        square = 0.0
        for j in columns:
            alike = [cells[r, j] for r in bag.tolist() if groups[r] == groups[i]]
            alike = alike or [cells[r, j] for r in bag.tolist()]
            square += (cells[i, j] - sum(alike) / len(alike)) ** 2
        distances.append(square**0.5)
    inside = [distances[r] for r in bag.tolist()]
    nearest, farthest = min(inside), max(inside)
    return [min(max((farthest - d) / (farthest - nearest), 0.0), 1.0) for d in distances]


def fifths(y):
    """Group rows by the fifth of the sorted targets in which theirs comes last."""
    ordered = sorted(y.tolist())
    edges = [ordered[-(-k * len(y) // 5) - 1] for k in (1, 2, 3, 4)]
    return np.array([sum(target > edge for edge in edges) for target in y.tolist()])


def scores_by_hand(X, y, bags, tree, distance):
    """For every tree, the score of each row out of its bag, and the columns that it had."""
    for number in range(bags.n_trees):
        rows, players, seed = bags.bag(number)
        columns = [j for j in range(X.shape[1]) if players[j]]
        grown = tree(seed).fit(X[rows][:, columns], y[rows])
        numeric = isinstance(grown, DecisionTreeRegressor)
        near = nearness_by_hand(X, fifths(y) if numeric else y, rows, columns)
        scores = {}
        for i in range(len(y)):
            if i not in rows.tolist():
                prediction = grown.predict(X[i : i + 1][:, columns])[0]
                of_mean = np.mean((y - y.mean()) ** 2)
                told = 1 - (prediction - y[i]) ** 2 / of_mean if numeric else prediction == y[i]
                scores[i] = float(told) + distance * near[i]
        yield scores, columns


def mean_and_error(scores):
    if not scores:
        return np.nan, np.nan
    error = np.std(scores, ddof=1) / np.sqrt(len(scores)) if len(scores) > 1 else np.nan
    return np.mean(scores), error


def by_hand(X, y, bags, tree, *, distance):
    trees = list(scores_by_hand(X, y, bags, tree, distance))
    values, errors = np.empty(X.shape), np.empty(X.shape)
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            with_j = [scores[i] for scores, columns in trees if i in scores and j in columns]
            values[i, j], errors[i, j] = mean_and_error(with_j)
    return values, errors


TREES = {
    "three classes": (WINE, CULTIVAR, DecisionTreeClassifier),
    "a numeric target": (PATIENTS, PROGRESS, DecisionTreeRegressor),
}


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"distance": False}], ids=str)
@pytest.mark.parametrize("name", TREES)
def test_values_and_errors_equal_the_formula(name, settings):
    X, y, kind = TREES[name]
    share = round(0.5 * X.shape[1])
    bags = Bags(n_rows=len(y), n_columns=X.shape[1], n_used=share, n_trees=17, seed=3)
    truth, errors = by_hand(
        X,
        y,
        bags,
        lambda seed: kind(max_features="sqrt", random_state=seed),
        **({"distance": True} | settings),
    )
    ours = valued(X, y, n_trees=17, **settings)
    scale = np.nanmax(np.abs(truth))
    np.testing.assert_allclose(ours.values, truth, rtol=0, atol=1e-12 * scale)
    told = errors * widening(ours.counts)
    np.testing.assert_allclose(ours.sampling_se, told, rtol=0, atol=1e-9 * scale)


def test_units_of_a_numeric_target_do_not_matter():
    plain = valued(PATIENTS, PROGRESS)
    in_pence = valued(PATIENTS, 3e5 + 1e6 * PROGRESS)
    np.testing.assert_allclose(in_pence.values, plain.values, rtol=0, atol=1e-6)
    # Means of R2 and nearness: of the order of 1 a cell, whatever the target.
    assert abs(plain.total) < 3 * plain.values.size


# Distances from the mean of a class -----------------------------------------------------------


def one_hot(codes):
    return np.array([[float(code == level) for level in sorted(set(codes))] for code in codes])


def test_a_category_is_as_far_as_its_one_hot_vector_from_the_shares_of_its_class():
    rng = np.random.default_rng(0)
    y, mood = np.arange(30) % 3, rng.choice(["calm", "odd", "wild"], size=30)
    bag = rng.integers(30, size=30)
    vectors = one_hot(mood.tolist())
    variance = ((vectors - vectors.mean(axis=0)) ** 2).sum(axis=1).mean()
    truth = [
        ((vectors[i] - vectors[[r for r in bag if y[r] == y[i]]].mean(axis=0)) ** 2).sum()
        for i in range(30)
    ]
    distances = ClassDistances.of(problem(pd.DataFrame({"mood": mood}), y))
    ours = measure_cells(distances.columns[0], y, np.bincount(bag, minlength=30).astype(float))
    np.testing.assert_allclose(ours, np.array(truth) / variance, atol=1e-12)


def problem(X, y):
    return Problem.from_data(X, y, classification=None, with_validation=False)


def test_a_missing_cell_has_the_mean_distance_of_its_column():
    rng = np.random.default_rng(0)
    y = np.zeros(40, dtype=int)
    y[20:] = 1
    table = pd.DataFrame({"size": rng.normal(7, 3, 40), "mood": rng.choice(["a", "b"], 40)})
    table.loc[3, "size"] = np.nan
    table.loc[4, "mood"] = None
    everyone = np.ones(40)
    for column, missing in zip(ClassDistances.of(problem(table, y)).columns, (3, 4), strict=True):
        # One group, in which the squared distances from the mean are the variance.
        squares = measure_cells(column, np.zeros(40, dtype=int), everyone)
        assert squares[missing] == 1.0
        assert np.delete(squares, missing).mean() == pytest.approx(1.0)


def test_a_constant_column_has_no_distance_and_missing_cells_in_it_neither():
    table = pd.DataFrame({"one": [7.0, 7.0, np.nan, 7.0], "text": ["a", None, "a", "a"]})
    distances = ClassDistances.of(problem(table, [0, 0, 1, 1]))
    near = distances.nearness(np.array([0, 1, 2, 3]), np.array([0, 1]))
    np.testing.assert_array_equal(near, np.ones(4))


def test_a_class_that_is_not_in_the_bag_is_compared_with_all_of_the_bag():
    X = np.array([[0.0], [1.0], [5.0], [3.0]])
    distances = ClassDistances.of(problem(X, [0, 0, 0, 1]))
    near = distances.nearness(np.array([0, 1, 2]), np.array([0]))
    # The mean of the bag is 2; its rows are 2, 1 and 3 away, the row outside is 1 away.
    np.testing.assert_allclose(near, [0.5, 1.0, 0.0, 1.0], atol=1e-12)


def test_a_large_offset_leaves_distances_as_they_are():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 2)), np.arange(30) % 2
    bag, both = rng.integers(30, size=30), np.array([0, 1])
    near, far = (
        ClassDistances.of(problem(table, y)).nearness(bag, both)
        for table in (X, 1.7e9 + 2.0**-20 * X.round(6))
    )
    np.testing.assert_allclose(far, near, atol=0.2)


def test_a_bag_draws_rows_with_replacement_and_columns_without():
    bags = Bags(n_rows=50, n_columns=6, n_used=2, n_trees=400, seed=0)
    drawn = [bags.bag(tree) for tree in range(400)]
    assert all(len(rows) == 50 and columns.sum() == 2 for rows, columns, _ in drawn)
    left_out = np.array([50 - len(set(rows.tolist())) for rows, _, _ in drawn])
    # Each row is left out with chance (1 - 1/50)^50; so are two rows with (1 - 2/50)^50.
    one, two = 0.98**50, 0.96**50
    variance = 50 * one + 50 * 49 * two - (50 * one) ** 2
    assert abs(left_out.mean() - 50 * one) < 4.5 * np.sqrt(variance / 400)
    assert len({seed for _, _, seed in drawn}) == 400


def test_more_trees_go_on_where_fewer_ended():
    few = Bags(n_rows=9, n_columns=4, n_used=2, n_trees=13, seed=0)
    many = Bags(n_rows=9, n_columns=4, n_used=2, n_trees=27, seed=0)
    assert [len(few(task)) for task in range(few.n_tasks)] == [10, 3]
    assert [len(many(task)) for task in range(many.n_tasks)] == [10, 10, 7]
    for one, other in zip(few(1), many(1), strict=False):
        for ours, theirs in zip(one, other, strict=True):
            np.testing.assert_array_equal(ours, theirs)


# Moments --------------------------------------------------------------------------------------


def test_moments_of_a_batch_keep_their_digits_at_a_high_level():
    rng = np.random.default_rng(0)
    scores, used = rng.normal(size=(10, 5)), rng.random((10, 3)) < 0.6
    low, high = cross_moments(scores, used), cross_moments(scores + 1e8, used)
    np.testing.assert_allclose(high.sum_sq, low.sum_sq, atol=1e-6)
    np.testing.assert_allclose(high.values - 1e8, low.values, atol=1e-6)


def test_a_cell_that_no_tree_saw_is_nan():
    valuation = valued(WINE, CULTIVAR, n_trees=1)
    assert 0 < np.isnan(valuation.values).mean() < 1
    np.testing.assert_array_equal(valuation.counts == 0, np.isnan(valuation.values))
    assert "lowest" in repr(valuation)


# What a user meets ----------------------------------------------------------------------------


def test_a_valuation_can_be_saved_loaded_and_merged(tmp_path):
    one = valued(WINE, CULTIVAR)
    one.save(tmp_path)
    loaded = load(tmp_path)
    np.testing.assert_array_equal(loaded.values, one.values)
    assert loaded.provenance == one.provenance
    other = OutOfBagValuer(n_trees=60, random_state=4).fit(WINE, CULTIVAR)
    merged = loaded.merge(other.valuation_)
    np.testing.assert_array_equal(merged.counts, one.counts + other.valuation_.counts)
    assert merged.sampling_se.mean() < one.sampling_se.mean()


def test_other_settings_are_another_question():
    one, other = (
        valued(WINE, CULTIVAR),
        OutOfBagValuer(n_trees=60, random_state=4, distance=False).fit(WINE, CULTIVAR).valuation_,
    )
    with pytest.raises(ValueError, match="differ in distance"):
        one.merge(other)


def test_sums_of_rows_are_sums_of_values_without_errors():
    valuation = valued(WINE, CULTIVAR)
    np.testing.assert_allclose(valuation.rows().values, valuation.values.sum(axis=1))
    assert np.isnan(valuation.rows().sampling_se).all()


def test_a_block_of_rows_is_worth_the_mean_of_those_out_of_the_bag():
    groups = np.arange(len(CULTIVAR)) % 2
    valuation = valued(WINE, CULTIVAR, n_trees=1, groups=(groups, None))
    cells = valued(WINE, CULTIVAR, n_trees=1).values
    seen = ~np.isnan(cells).all(axis=0)
    for group in range(2):
        np.testing.assert_allclose(
            valuation.values[group, seen], np.nanmean(cells[groups == group][:, seen], axis=0)
        )
    assert np.isnan(valuation.values[:, ~seen]).all()


def test_columns_of_a_group_come_together():
    groups = np.arange(13) % 4
    bags = Bags(n_rows=len(CULTIVAR), n_columns=4, n_used=2, n_trees=30, seed=3)
    seen = [bags.bag(tree)[1] for tree in range(30)]
    valuation = valued(WINE, CULTIVAR, n_trees=30, groups=(np.zeros(len(CULTIVAR)), groups))
    # Some row is out of every bag here, so that every tree with the group counts.
    np.testing.assert_array_equal(valuation.counts[0], np.sum(seen, axis=0))


def mixed(n=40):
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    return y, {
        "size": (y + rng.normal(scale=0.4, size=n)).round(2),
        "mood": np.where(rng.random(n) < 0.8, np.where(y, "wild", "calm"), "odd"),
        "left": y == (rng.random(n) < 0.7),
    }


def test_trees_take_gaps():
    y, columns = mixed()
    table = pd.DataFrame(columns)
    table.loc[::3, "size"] = np.nan
    table.loc[::4, "mood"] = None
    values = valued(table, y).values
    assert np.isfinite(values).all()
    numbers = np.column_stack(
        [table["size"], table["mood"].map({"calm": 0, "odd": 1, "wild": 2}), table["left"]]
    ).astype(float)
    trees, by_number = (valued(X, y, distance=False).values for X in (table, numbers))
    np.testing.assert_array_equal(trees, by_number)


@pytest.mark.slow
def test_any_model_can_take_the_place_of_trees_and_gets_the_table_as_it_is():
    y, columns = mixed()
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude=np.number)),
        remainder="passthrough",
    )
    model = make_pipeline(encode, DecisionTreeClassifier())
    valuation = valued(pd.DataFrame(columns), y, model=model)
    assert np.isfinite(valuation.values).all()
    assert valuation.provenance.tally.failed == 0
    linear = valued(PATIENTS, PROGRESS, model=LinearRegression(), distance=False)
    assert linear.values.max() < 1


class Picky(ClassifierMixin, BaseEstimator):
    """A model that refuses tables in which the first row is in the bag."""

    def fit(self, X, y):
        if X[:, 0].min() == 0 and len(np.unique(X[:, 0])) < 8:
            raise ValueError("not this\nbag")
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return np.ones(len(X), dtype=int)


def test_a_fit_that_fails_counts_as_the_most_frequent_class_and_is_told():
    X, y = np.arange(8.0)[:, None], np.array([0, 1, 1, 1, 1, 1, 1, 1])
    with pytest.warns(UserWarning, match=r"of 60 utilities failed .* ValueError: not this bag"):
        valuation = valued(X, y, model=Picky(), distance=False)
    assert valuation.provenance.tally.failed > 0
    assert (valuation.values[1:] >= 0.5).all()
    assert valuation.values[0, 0] == 0


class Lost(LinearRegression):
    """A model that has no prediction for some rows."""

    def predict(self, X):
        return np.where(super().predict(X) > 150, np.nan, 100.0)


def test_a_model_without_a_prediction_is_refused():
    with pytest.raises(ValueError, match=r"trained and scored on the whole table .* NaN"):
        valued(PATIENTS, PROGRESS, model=Lost())
