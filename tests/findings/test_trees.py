"""Random trees: dependence that only they see, none where there is none, order of rows."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from cellworth.data.problem import read_target
from cellworth.data.tables import Table
from cellworth.findings import anomaly_scores, trees
from cellworth.findings.anomaly import Evidence, score_ratios
from cellworth.findings.features import FeatureColumn, read_columns
from cellworth.findings.trees import compute_log_ratios, encode, hash_contents


def evidence(X, y):
    table = Table.from_data(X, called="X")
    return Evidence(read_columns(table, None), *read_target(y, table))


def exclusive_or(n_rows=400, n_wrong=12, seed=0):
    """Return three columns, the third 1 where one of the others is, and wrong cells of it."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 2, (n_rows, 3)).astype(float)
    X[:, 2] = X[:, 0] != X[:, 1]
    wrong = rng.choice(n_rows, n_wrong, replace=False)
    X[wrong, 2] = 1 - X[wrong, 2]
    return X, np.isin(np.arange(n_rows), wrong), rng.integers(0, 2, n_rows)


def test_trees_see_what_columns_tell_only_together():
    X, wrong, y = exclusive_or()
    found = evidence(X, y)
    assert roc_auc_score(wrong, -found.log_ratios[:, 2]) > 0.99
    assert roc_auc_score(wrong, found.scores[:, 2]) > 0.95
    # A regression on single columns does not.
    assert roc_auc_score(wrong, found.quick_scores[:, 2]) < 0.8


def test_ratios_are_about_those_of_the_true_densities():
    """Of a column of levels that repeats another but for a tenth of its cells."""
    rng = np.random.default_rng(1)
    first = rng.integers(0, 2, 2000)
    second = np.where(rng.random(2000) < 0.1, 1 - first, first)
    columns = [FeatureColumn.from_levels(codes) for codes in (first, second)]
    label = FeatureColumn.from_levels(np.zeros(2000, dtype=int))
    ratios = compute_log_ratios(columns, label)
    for is_same, density in ((True, 0.9), (False, 0.1)):
        mean = np.exp(ratios[(first == second) == is_same]).mean()
        assert mean == pytest.approx(density / 0.5, abs=0.1)


def test_independent_columns_keep_the_scores_they_have_without_trees():
    rng = np.random.default_rng(2)
    found = evidence(rng.normal(size=(500, 6)), rng.integers(0, 2, 500))
    assert np.abs(score_ratios(found.log_ratios)).max() < 0.1


def test_planted_errors_are_found_better_than_by_ranks_alone():
    """Cells of correlated columns get the content of another row."""
    leads = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        factors = rng.normal(size=(200, 2))
        X = factors @ rng.normal(size=(2, 6)) + 0.4 * rng.normal(size=(200, 6))
        X[:, 5] = factors[:, 0] ** 2 + 0.2 * rng.normal(size=200)
        wrong = rng.random(X.shape) < 0.02
        X[wrong] = rng.permuted(X, axis=0)[wrong]
        found = evidence(X, (factors[:, 0] > 0).astype(int))
        both = (found.scores, found.quick_scores)
        leads.append([roc_auc_score(wrong.ravel(), scores.ravel()) for scores in both])
    new, old = np.mean(leads, axis=0)
    assert new > old + 0.02


def mixed_columns(rng, n_rows=120):
    size = rng.normal(size=n_rows)
    numbers = np.where(rng.random(n_rows) < 0.1, np.nan, size + rng.normal(size=n_rows))
    return [
        FeatureColumn.from_numbers(size.round(1)),
        FeatureColumn.from_numbers(numbers),
        FeatureColumn.from_levels(np.digitize(size, [-1, 0, 1])),
        FeatureColumn.from_levels(rng.integers(0, 3, n_rows)),
    ], FeatureColumn.from_levels((size > 0).astype(int))


def take(column, rows):
    if column.numbers is None:
        return FeatureColumn.from_levels(column.levels[rows])
    return FeatureColumn.from_numbers(column.numbers[rows])


def test_the_order_of_rows_and_columns_does_not_matter_even_if_some_are_equal():
    rng = np.random.default_rng(3)
    columns, label = mixed_columns(rng)
    twice = np.append(np.arange(120), np.arange(30))
    columns, label = [take(column, twice) for column in (*columns, columns[2])], take(label, twice)
    ratios = compute_log_ratios(columns, label)
    assert np.abs(ratios).max() > 0.5
    for _ in range(3):
        rows, order = rng.permutation(150), rng.permutation(5)
        again = compute_log_ratios([take(columns[j], rows) for j in order], take(label, rows))
        np.testing.assert_array_equal(again, ratios[np.ix_(rows, order)])


def test_hashes_differ_where_contents_do():
    rng = np.random.default_rng(4)
    columns, label = mixed_columns(rng)
    codes = [encode(column) for column in (*columns, label)]
    of_rows, of_columns = hash_contents(codes, np.arange(5, dtype=np.uint64) // 4)
    assert len(np.unique(of_rows)) == len(np.unique(np.stack(codes), axis=1).T)
    assert len(np.unique(of_columns)) == 5


def test_columns_of_more_levels_or_numbers_than_codes_are_read():
    rng = np.random.default_rng(5)
    levels = FeatureColumn.from_levels(rng.permutation(np.append(np.arange(600), np.zeros(400))))
    numbers = FeatureColumn.from_numbers(rng.normal(size=1000))
    assert encode(levels)[levels.levels == 0].max() == 0
    assert np.unique(encode(numbers)).tolist() == list(range(1, 256))
    order = np.argsort(numbers.numbers)
    assert (np.diff(encode(numbers)[order].astype(int)) >= 0).all()
    label = FeatureColumn.from_levels(rng.integers(0, 2, 1000))
    assert np.isfinite(compute_log_ratios([levels, numbers], label)).all()


def test_columns_beyond_the_most_trees_leave_them_out(monkeypatch):
    X, _, y = exclusive_or(60)
    monkeypatch.setattr(trees, "MAX_TREES", 3 * trees.MIN_TREES)
    assert not evidence(X, y).log_ratios.any()
    assert np.isfinite(anomaly_scores(X, y)).all()
