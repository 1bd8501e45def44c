"""anomaly_scores: twins that refit without the row, order, column types, degenerate tables."""

from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.special import ndtri
from sklearn.metrics import roc_auc_score

from cellworth.data.problem import target_groups
from cellworth.findings import anomaly, anomaly_scores, features
from cellworth.findings.anomaly import (
    compute_log_densities,
    compute_residuals,
    measure_distances,
    score_levels,
)
from cellworth.findings.features import FeatureColumn, Features

# What the largest distance from the mean adds to a score.
FAR_FROM_MEAN = 2 * np.log(1 + 2.5**2)


def mixed_table(n_rows=60, seed=0, missing=True):
    rng = np.random.default_rng(seed)
    size = rng.normal(size=n_rows)
    table = pd.DataFrame(
        {
            "size": size.round(2),
            "weight": (3 * size + rng.normal(size=n_rows)).round(1),
            "colour": rng.choice(["red", "green", "blue"], n_rows),
            "long": size > 0.5,
            "born": pd.Timestamp("2001-01-01") + pd.to_timedelta((100 * size).round(), unit="D"),
            "spent": pd.to_timedelta(rng.integers(0, 50, n_rows), unit="h"),
        }
    )
    if missing:
        table.loc[rng.choice(n_rows, 7, replace=False), "weight"] = np.nan
        table.loc[rng.choice(n_rows, 5, replace=False), "colour"] = None
        table.loc[rng.choice(n_rows, 3, replace=False), "born"] = pd.NaT
    return table, np.where(size + 0.5 * rng.normal(size=n_rows) > 0, "yes", "no")


def columns_and_features(table, y):
    columns = features.read_columns(features.Table.from_data(table, called="X"), None)
    label = features.read_labels(y, np.unique(y))
    return columns, Features([*columns, label])


# The twins: everything is computed anew without the row.


def kernel_twin(numbers, groups, row):
    scale = np.std(numbers)

    def density(witnesses, width):
        distances = np.abs(numbers[row] - witnesses) / width
        return np.exp(-distances).sum() * scale / (2 * width)

    alike = groups == groups[row]
    others = np.arange(len(numbers)) != row
    own = density(numbers[alike & others], anomaly.compute_bandwidth(numbers[alike], scale))
    overall = density(numbers[others], anomaly.compute_bandwidth(numbers, scale)) / others.sum()
    prior = anomaly.PRIOR_ROWS
    return (own + prior * overall) / ((alike & others).sum() + prior)


def test_a_density_is_that_of_the_other_rows_of_the_class():
    rng = np.random.default_rng(1)
    numbers = np.concatenate([rng.normal(size=40).round(1), [1e4, -700.0, 3.0]])
    groups = rng.integers(0, 3, len(numbers))
    found = compute_log_densities(FeatureColumn.from_numbers(numbers), groups)
    twin = np.log([kernel_twin(numbers, groups, row) for row in range(len(numbers))])
    np.testing.assert_allclose(found, twin, rtol=1e-9, atol=1e-9)


def test_a_density_holds_where_numbers_are_farther_apart_than_powers_can_tell():
    numbers = np.concatenate([np.linspace(0, 1, 3000), [40.0, 40.1, 3e3, 3e3 + 0.5]])
    groups = np.zeros(len(numbers), dtype=np.intp)
    scale = np.std(numbers)
    assert (numbers.max() - numbers.min()) / anomaly.compute_bandwidth(numbers, scale) > 1000
    found = compute_log_densities(FeatureColumn.from_numbers(numbers), groups)
    for row in (0, 1500, 2999, 3000, 3001, 3002, 3003):
        twin = np.log(kernel_twin(numbers, groups, row))
        np.testing.assert_allclose(found[row], twin, rtol=1e-9, atol=1e-9)


def test_missing_values_among_numbers_have_the_share_of_missing_values_in_the_class():
    rng = np.random.default_rng(2)
    numbers, groups = rng.normal(size=30), rng.integers(0, 2, 30)
    numbers[rng.choice(30, 8, replace=False)] = np.nan
    missing = np.isnan(numbers)
    found = compute_log_densities(FeatureColumn.from_numbers(numbers), groups)
    shares = compute_log_densities(FeatureColumn.from_levels(missing), groups)
    densities_of_known = compute_log_densities(
        FeatureColumn.from_numbers(numbers[~missing]), groups[~missing]
    )
    np.testing.assert_allclose(found[missing], shares[missing])
    # A column without missing values has one level, whose share is 1.
    np.testing.assert_allclose(found[~missing], shares[~missing] + densities_of_known)


def test_a_share_is_that_of_the_other_rows_of_the_class():
    levels, groups = np.array([0, 0, 1, 1, 1, 2]), np.array([0, 0, 0, 1, 1, 1])
    prior = anomaly.PRIOR_ROWS
    overall = (np.array([1, 1, 2, 2, 2, 0]) + 1 / 3) / 6
    expected = (np.array([1, 1, 0, 1, 1, 0]) + prior * overall) / (2 + prior)
    np.testing.assert_allclose(
        np.exp(compute_log_densities(FeatureColumn.from_levels(levels), groups)), expected
    )


def test_a_distance_is_that_from_the_mean_of_the_other_rows_of_the_class():
    rng = np.random.default_rng(3)
    numbers, groups = rng.normal(size=60), rng.integers(0, 3, 60)
    found = measure_distances(FeatureColumn.from_numbers(numbers), groups)
    prior, mean, variance = anomaly.PRIOR_ROWS, numbers.mean(), numbers.var()
    for row in range(60):
        others = np.delete(numbers, row)[np.delete(groups, row) == groups[row]]
        weight = len(others) + prior
        middle = (others.sum() + prior * mean) / weight
        square = (np.square(others).sum() + prior * (variance + mean**2)) / weight
        twin = abs(numbers[row] - middle) / np.sqrt(square - middle**2)
        np.testing.assert_allclose(found[row], twin, atol=1e-8)


def test_far_off_numbers_do_not_widen_the_scale_of_their_class():
    rng = np.random.default_rng(4)
    numbers, groups = rng.normal(size=300), np.zeros(300, dtype=np.intp)
    before = measure_distances(FeatureColumn.from_numbers(numbers), groups)
    numbers[0] = 1e9
    after = measure_distances(FeatureColumn.from_numbers(numbers), groups)
    assert after[0] > 5
    np.testing.assert_allclose(after[1:], before[1:], atol=0.3)


def test_the_distance_of_a_level_is_the_normal_score_of_levels_as_rare():
    levels = np.repeat([0, 1, 2], [80, 15, 5])
    found = measure_distances(FeatureColumn.from_levels(levels), np.zeros(100, dtype=np.intp))
    prior = anomaly.PRIOR_ROWS
    for level, n_as_rare in ((0, 99), (1, 19), (2, 4)):
        # Without itself, five cells of the last level are four.
        share = n_as_rare / (99 + prior)
        assert found[levels == level].max() == pytest.approx(-ndtri(share / 2), abs=0.01)


def refitted(A, target, known, row):
    """Ridge prediction of one row by all other known rows."""
    teaching = known.copy()
    teaching[row] = False
    gram = A[teaching].T @ A[teaching] + np.diag(anomaly.make_penalties(A.shape[1]))
    return A[row] @ np.linalg.solve(gram, A[teaching].T @ target[teaching])


def without(made, position):
    A = made.matrix.toarray()
    return np.delete(A, np.arange(A.shape[1])[made.own[position]], axis=1)


def test_residuals_are_those_of_regressions_refitted_without_the_row():
    table, y = mixed_table()
    columns, made = columns_and_features(table, y)
    found = compute_residuals(made, columns)
    assert sorted(found) == [0, 1, 4, 5]
    for position, residual in found.items():
        A, known = without(made, position), columns[position].known
        scores = features.compute_uniform_scores(columns[position])
        for row in range(len(table)):
            twin = abs(scores[row] - refitted(A, scores, known, row)) if known[row] else np.nan
            np.testing.assert_allclose(residual[row], twin, rtol=1e-9, atol=1e-9)


def test_scores_of_levels_are_those_of_regressions_refitted_without_the_row():
    table, y = mixed_table()
    table.loc[[3, 11], "colour"] = ["mauve", "teal"]
    columns, made = columns_and_features(table, y)
    found = score_levels(made, columns)
    assert sorted(found) == [1, 2, 3, 4]
    everyone = np.ones(len(table), dtype=bool)
    for position, scores in found.items():
        A, levels = without(made, position), columns[position].levels
        for row in range(len(table)):
            twin = refitted(A, (levels == levels[row]).astype(float), everyone, row)
            np.testing.assert_allclose(scores[row], twin, rtol=1e-9, atol=1e-9)


def test_chunks_of_rows_give_what_the_whole_table_gives(monkeypatch):
    table, y = mixed_table()
    whole = anomaly_scores(table, y)
    monkeypatch.setattr(anomaly, "_ROWS_AT_ONCE", 7)
    np.testing.assert_allclose(anomaly_scores(table, y), whole, atol=1e-12)


# What scores means.


def test_scores_counts_cells_of_the_column_that_are_as_unlikely():
    X = np.array([[0.0], [0.1], [0.2], [0.3], [0.8]])
    scores = anomaly_scores(X, np.zeros(5, dtype=int))
    assert scores.shape == (5, 1)
    # No other is as rare; the lowest and the highest are as far from the middle.
    assert scores[4, 0] == pytest.approx(np.log(5) + np.log(5 / 2) + FAR_FROM_MEAN)
    assert scores.argmax() == 4


@pytest.mark.parametrize("column", ["size", "weight", "colour", "long", "born", "spent"])
def test_a_wrong_cell_of_every_kind_stands_out(column):
    table, y = mixed_table(200, seed=3, missing=False)
    order = table["size"].rank()
    table["colour"] = np.where(order > 100, "red", "blue")
    table["spent"] = pd.to_timedelta(order, unit="h")
    low, high = order.argmin(), order.argmax()
    table.loc[low, column] = table.loc[high, column]
    scores = anomaly_scores(table, y)
    position = list(table).index(column)
    assert (scores[:, position] >= scores[low, position]).sum() <= 3


def test_a_missing_value_is_suspicious_only_where_missing_values_are_rare():
    rng = np.random.default_rng(5)
    kind = rng.integers(0, 2, 200)
    X = pd.DataFrame({"kind": kind.astype(str), "price": rng.normal(size=200)})
    usual = np.flatnonzero(kind == 1)
    X.loc[usual[5:], "price"] = np.nan
    odd = int(np.flatnonzero(kind == 0)[0])
    X.loc[odd, "price"] = np.nan
    scores = anomaly_scores(X, kind)[:, 1]
    assert scores[odd] > np.quantile(scores, 0.97)
    assert scores[usual[5:]].max() < scores[odd]
    # A number where most are missing is odd too.
    assert np.median(scores[usual[:5]]) > np.median(scores)


def test_a_numeric_target_is_used_like_classes():
    rng = np.random.default_rng(6)
    target = rng.normal(size=300)
    X = np.stack([target + 0.1 * rng.normal(size=300), rng.normal(size=300)], axis=1)
    low, high = target.argmin(), target.argmax()
    X[low, 0] = X[high, 0]
    assert np.unravel_index(anomaly_scores(X, target).argmax(), X.shape) == (low, 0)


def test_groups_of_targets_keep_equal_targets_together():
    groups = target_groups(np.array([1.0, 1.0, 1.0, 1.0, 2.0, 3.0, 4.0, 5.0, 5.0, 5.0]))
    assert groups.tolist() == [0, 0, 0, 0, 1, 1, 2, 2, 2, 2]
    assert len(np.unique(target_groups(np.arange(100.0)))) == 5
    assert not target_groups(np.full(9, 0.5)).any()


def test_column_types_overrule_the_guess():
    rng = np.random.default_rng(7)
    X = pd.DataFrame({"code": np.tile([1, 2, 50, 99], 50), "x": rng.normal(size=200)})
    X.loc[0, "code"] = 3
    y = rng.integers(0, 2, 200)
    as_number, as_category = (
        anomaly_scores(X, y, column_types={"code": kind})[0, 0]
        for kind in ("numeric", "categorical")
    )
    # A number between others is nothing special; a level that occurs once is.
    assert as_category == pytest.approx(2 * np.log(200) + FAR_FROM_MEAN)
    assert as_number < as_category


# What must not matter.


@pytest.mark.slow
@pytest.mark.parametrize("regression", [False, True])
def test_the_order_of_rows_and_columns_does_not_matter(regression):
    table, y = mixed_table(120)
    table = pd.concat([table, table.iloc[:40]], ignore_index=True)
    y = np.concatenate([y, y[:40]])
    if regression:
        y = np.where(y == "yes", 1.5, 0.0) + np.arange(160) % 40
    scores = anomaly_scores(table, y)
    rng = np.random.default_rng(0)
    for _ in range(5):
        rows, columns = rng.permutation(160), rng.permutation(table.shape[1])
        again = anomaly_scores(table.iloc[rows, columns], y[rows])
        np.testing.assert_allclose(again, scores[np.ix_(rows, columns)], atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("offset", "step"), [(1.7e9, 1e-5), (1.7e12, 1e-3), (-1e15, 1.0), (1e6, 1e-9)]
)
@pytest.mark.parametrize("regression", [False, True])
def test_an_offset_takes_no_digits_off(offset, step, regression):
    """Moments as floats: neither the order of rows nor the day that is counted from matters."""
    rng = np.random.default_rng(3)
    when = offset + step * np.cumsum(rng.integers(1, 4, 500))
    size = rng.normal(size=500)
    y = size + rng.normal(size=500) if regression else size > 0
    scores = anomaly_scores(np.column_stack([when, size]), y)
    order = rng.permutation(500)
    shuffled = anomaly_scores(np.column_stack([when, size])[order], y[order])
    assert np.array_equal(shuffled, scores[order])
    # Differences of these floats are exact.
    since = anomaly_scores(np.column_stack([when - when[0], size]), y)
    assert np.array_equal(since, scores)


def test_the_library_of_the_table_does_not_matter():
    table, y = mixed_table()
    scores = anomaly_scores(table, y)
    polars = pl.from_pandas(table)
    np.testing.assert_allclose(anomaly_scores(polars, pl.Series(y)), scores, atol=1e-12)
    np.testing.assert_allclose(anomaly_scores(polars.to_arrow(), y), scores, atol=1e-12)
    numbers = table[["size", "weight"]]
    np.testing.assert_array_equal(anomaly_scores(numbers.to_numpy(), y), anomaly_scores(numbers, y))


def test_units_do_not_matter():
    rng = np.random.default_rng(8)
    X, y = rng.normal(size=(80, 3)), rng.integers(0, 3, 80)
    np.testing.assert_allclose(
        anomaly_scores(X * [1e-8, 4.0, 1e8] + [0, 7, 0], y), anomaly_scores(X, y), atol=1e-12
    )


# Tables at the edge.


@pytest.mark.parametrize(
    "column",
    [
        ["same"] * 12,
        [3.5] * 12,
        [None] * 12,
        [np.nan] * 12,
        [datetime(2020, 1, 1)] * 12,
        [timedelta(hours=2)] * 12,
        [True] * 12,
    ],
)
def test_no_cell_of_a_constant_column_is_suspicious(column):
    X = pd.DataFrame({"constant": column, "other": np.arange(12.0)})
    scores = anomaly_scores(X, ["a", "b"] * 6)
    np.testing.assert_allclose(scores[:, 0], scores[0, 0], atol=1e-9)
    np.testing.assert_array_equal(scores[:, 1], anomaly_scores(X[["other"]], ["a", "b"] * 6)[:, 0])


def test_scores_grows_with_the_distance_from_all_others():
    X = np.array([[0.0], [0.1], [0.2], [0.3], [9.0]])
    scores = anomaly_scores(X, np.zeros(5, dtype=int))
    away = 8.7 / (0.2 / 1.349)
    ranks = np.log(5) + np.log(5 / 2)
    assert scores[4, 0] == pytest.approx(ranks + 3 * np.log(away / 4) + FAR_FROM_MEAN)
    twice = anomaly_scores(np.append(X, [[9.0]], axis=0), np.zeros(6, dtype=int))
    assert twice.max() <= 2 * np.log(6) + FAR_FROM_MEAN


@pytest.mark.parametrize("column", [[3.5] * 30, ["same"] * 30, [np.nan] * 30, [0.0] * 30])
def test_no_cell_of_a_constant_column_is_suspicious_where_classes_differ_in_size(column):
    X = pd.DataFrame({"constant": column, "other": np.arange(30.0)})
    np.testing.assert_array_equal(anomaly_scores(X, ["a"] * 22 + ["b"] * 8)[:, 0], 0)


@pytest.mark.parametrize("huge", [1e200, np.finfo(float).max, -np.finfo(float).max])
def test_numbers_whose_squares_are_endless_are_suspicious(huge):
    X = np.random.default_rng(0).normal(size=(60, 3))
    X[7, 1] = huge
    scores = anomaly_scores(X, np.arange(60) % 2)
    assert np.isfinite(scores).all()
    assert scores.argmax() == 7 * 3 + 1
    with pytest.raises(ValueError, match=r"scale of column 'x0' must be between"):
        anomaly_scores([[huge], [-huge], [0.0]] * 4, [0, 1] * 6)


@pytest.mark.parametrize(
    ("X", "y"),
    [
        ([[1.0]], [1]),
        ([["a", None, 3]], ["yes"]),
        ([[1.0], [5.0], [2.0]], ["one"] * 3),
        ([[1.0, "a"], [5.0, "b"]], ["one", "two"]),
        ([[1.0], [None], [2.0]], [0.5, 0.25, 0.75]),
        ([[f"name {i}"] for i in range(9)], [f"class {i}" for i in range(9)]),
        ([[1e90], [-1e90], [0.0], [1.0]], [0, 1, 0, 1]),
    ],
)
def test_tables_that_tell_next_to_nothing_are_read(X, y):
    scores = anomaly_scores(X, y)
    assert scores.shape == (len(X), len(X[0]))
    assert np.isfinite(scores).all()
    assert (scores >= 0).all()


def test_levels_beyond_the_most_are_left_out_by_their_number_of_rows(monkeypatch):
    monkeypatch.setattr(features, "MAX_LEVELS", 4)
    levels = np.repeat([0, 1, 2, 3, 4], [30, 20, 10, 8, 8])
    made = Features(
        [FeatureColumn.from_levels(levels), FeatureColumn.from_levels(np.zeros(76, dtype=int))]
    )
    # Of five and one levels, the two of eight rows would be one too many.
    assert made.own == [slice(0, 3), slice(3, 4)]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"y": None}, "the target y is None; give one label per row of X."),
        ({"y": [1, 0]}, "y must have one entry for each of 3 rows of X, got 2"),
        ({"y": [1, 0, None]}, "y must have a label for every row"),
        ({"y": ["a", 1, "b"]}, "must have labels of one type"),
        ({"X": None}, "X must be a .*, got NoneType"),
        ({"X": [[np.inf], [1.0], [2.0]]}, "must be finite"),
        ({"column_types": {"x9": "numeric"}}, "column_types must name columns of X, got 'x9'"),
        (
            {"column_types": {"x0": "ordinal"}},
            "column_types of column 'x0' must be .* got 'ordinal'",
        ),
    ],
)
def test_wrong_input_gets_a_sentence(changed, sentence):
    given = {"X": [[1.0], [2.0], [3.0]], "y": [0, 1, 0], "column_types": None} | changed
    with pytest.raises((ValueError, TypeError), match=sentence):
        anomaly_scores(given["X"], given["y"], column_types=given["column_types"])


def test_a_column_may_depend_on_the_square_of_the_target():
    rng = np.random.default_rng(0)
    y = rng.uniform(-1.0, 1.0, 300)
    cells = np.abs(y) + 0.02 * rng.normal(size=300)
    wrong = np.isin(np.arange(300), np.flatnonzero(np.abs(cells - 0.5) > 0.3)[:12])
    cells[wrong] = 1.0 - cells[wrong]
    columns = features.read_columns(features.Table.from_data(cells[:, None], called="X"), None)
    found = anomaly.Evidence(columns, y, None)
    assert roc_auc_score(wrong, found.quick_scores[:, 0]) > 0.99
