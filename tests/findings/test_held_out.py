"""Noise of a difference of scores: of held-out rows, and of training rows."""

import numpy as np
import pytest
from scipy import stats
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import balanced_accuracy_score, get_scorer, make_scorer

from cellworth.findings.held_out import (
    SAFETY,
    HeldOutRows,
    VarianceComponent,
    compute_half_width,
    estimate_training_variance,
    find_strata,
    split_in_halves,
)
from cellworth.games.scoring import Recorded


def test_halves_share_no_row_and_have_half_of_every_kind():
    rng = np.random.default_rng(0)
    codes = rng.integers(3, size=200)
    changed = rng.choice(200, 60, replace=False)
    column_types = find_strata(codes, changed)
    assert column_types.min() == 0
    for _ in range(20):
        first, second = split_in_halves(column_types, rng)
        np.testing.assert_array_equal(first, ~second)
        for kind in range(6):
            own = column_types == kind
            assert abs(int((first & own).sum()) - int((second & own).sum())) <= 1


def test_few_changed_rows_and_the_only_row_of_a_class_are_in_both_halves():
    codes = np.array([0] * 50 + [1] * 49 + [2])
    column_types = find_strata(codes, np.array([3, 60]))
    assert np.flatnonzero(column_types < 0).tolist() == [3, 60, 99]
    for half in split_in_halves(column_types, np.random.default_rng(0)):
        assert half[[3, 60, 99]].all()
    # Where all rows are changed, all are a sample.
    assert find_strata(np.zeros(4, dtype=int), np.arange(4)).min() == 0


def test_an_odd_row_goes_to_either_half():
    rng = np.random.default_rng(0)
    sizes = {int(split_in_halves(np.zeros(5, dtype=int), rng)[0].sum()) for _ in range(50)}
    assert sizes == {2, 3}


def test_training_noise_counts_what_splits_share_and_averages_the_rest():
    # Halves that differ as much as in a mean of two independent numbers, alike in all splits.
    shared = np.array([[1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, 1.0]])
    assert estimate_training_variance(shared) == VarianceComponent(1.0 + SAFETY, 4)
    # Splits that differ, and halves that do not.
    own = np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, 1.0], [-1.0, -1.0]])
    assert estimate_training_variance(own) == pytest.approx((4 / 3 * (1 / 4 + SAFETY), 4))
    assert estimate_training_variance(shared[:1]) == VarianceComponent(1.0, 1)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 1.0])
def test_at_most_one_in_twenty_is_false_whatever_part_of_the_noise_is_shared(share):
    rng = np.random.default_rng(0)
    false = 0
    for _ in range(1000):
        mean, contrast = np.sqrt(1 - share) * rng.normal(size=(2, 10))
        mean += np.sqrt(share) * rng.normal()
        contrast += np.sqrt(share) * rng.normal(size=10)
        differences = np.column_stack([mean + contrast, mean - contrast])
        false += abs(differences.mean()) > compute_half_width(
            [estimate_training_variance(differences)]
        )
    # Three standard errors above 5 %.
    assert false <= 70


class Said(ClassifierMixin, BaseEstimator):
    """A fitted model that predicts what it was given."""

    classes_ = np.array([0, 1])

    def __init__(self, said):
        self.said = said

    def predict(self, X):
        return self.said


def lookups(n_rows=200, seed=0):
    rng = np.random.default_rng(seed)
    target = rng.integers(2, size=n_rows)
    models = [
        Recorded(Said(np.where(rng.random(n_rows) < share, target, 1 - target)), None)
        for share in (0.7, 0.8)
    ]
    return target, models


def noise_of(rows, models):
    return rows.estimate_variance(
        rows.compute_replicates(models[1]) - rows.compute_replicates(models[0])
    )


def test_single_rows_give_the_variance_of_a_paired_difference():
    target, models = lookups()
    strata = [np.arange(len(target))]
    scorer = get_scorer("accuracy")
    held_out = HeldOutRows(scorer, target, strata, models[0], np.random.default_rng(0))
    assert held_out.read_rows is not None
    right = [(model.answer("predict") == target).astype(float) for model in models]
    test = stats.ttest_rel(right[1], right[0])
    low, high = test.confidence_interval()
    assert compute_half_width(noise_of(held_out, models)) == pytest.approx((high - low) / 2)


def test_balanced_accuracy_varies_class_by_class():
    target, models = lookups()
    strata = [np.flatnonzero(target == label) for label in (0, 1)]
    scorer = get_scorer("balanced_accuracy")
    held_out = HeldOutRows(scorer, target, strata, models[0], np.random.default_rng(0))
    found = noise_of(held_out, models)
    right = [(model.answer("predict") == target).astype(float) for model in models]
    for part, own in zip(found, strata, strict=True):
        change = (right[1] - right[0])[own]
        assert part.variance == pytest.approx(np.var(change, ddof=1) / len(own) / 4)
        assert part.freedom == len(own) - 1


def test_any_scorer_has_the_noise_of_its_closed_form():
    target, models = lookups(20)
    strata = [np.arange(20)]

    def accuracy(y, predicted):
        return np.mean(y == predicted)

    rng = np.random.default_rng(0)
    groups = HeldOutRows(make_scorer(accuracy), target, strata, models[0], rng)
    assert groups.read_rows is None
    rows = HeldOutRows(get_scorer("accuracy"), target, strata, models[0], rng)
    # Twenty groups of one row.
    assert noise_of(groups, models)[0] == pytest.approx(noise_of(rows, models)[0])


@pytest.mark.slow
def test_groups_estimate_the_noise_of_many_rows():
    target, models = lookups(1000)
    strata = [np.flatnonzero(target == label) for label in (0, 1)]
    rng = np.random.default_rng(0)
    rows = HeldOutRows(get_scorer("balanced_accuracy"), target, strata, models[0], rng)
    truth = sum(part.variance for part in noise_of(rows, models))
    # A function of one's own has no closed form.
    own_scorer = make_scorer(lambda y, predicted: balanced_accuracy_score(y, predicted))
    found = []
    for _ in range(30):
        groups = HeldOutRows(own_scorer, target, strata, models[0], rng)
        found.append(sum(part.variance for part in noise_of(groups, models)))
    assert abs(np.mean(found) - truth) < 4 * np.std(found, ddof=1) / np.sqrt(30)
