"""Noise of a difference of scores: of held-out rows, and of training rows."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import get_scorer, make_scorer

from cellworth.diagnostics.held_out import (
    SAFETY,
    ClassLookup,
    Noise,
    RowGroups,
    SingleRows,
    half_width,
    halves,
    judges_of,
    of_training,
    split_kinds,
)


def test_halves_share_no_row_and_have_half_of_every_kind():
    rng = np.random.default_rng(0)
    codes = rng.integers(3, size=200)
    changed = rng.choice(200, 60, replace=False)
    kinds = split_kinds(codes, changed)
    assert kinds.min() == 0
    for _ in range(20):
        first, second = halves(kinds, rng)
        np.testing.assert_array_equal(first, ~second)
        for kind in range(6):
            own = kinds == kind
            assert abs(int((first & own).sum()) - int((second & own).sum())) <= 1


def test_few_changed_rows_and_the_only_row_of_a_class_are_in_both_halves():
    codes = np.array([0] * 50 + [1] * 49 + [2])
    kinds = split_kinds(codes, np.array([3, 60]))
    assert np.flatnonzero(kinds < 0).tolist() == [3, 60, 99]
    for half in halves(kinds, np.random.default_rng(0)):
        assert half[[3, 60, 99]].all()
    # Where all rows are changed, all are a sample.
    assert split_kinds(np.zeros(4, dtype=int), np.arange(4)).min() == 0


def test_an_odd_row_goes_to_either_half():
    rng = np.random.default_rng(0)
    sizes = {int(halves(np.zeros(5, dtype=int), rng)[0].sum()) for _ in range(50)}
    assert sizes == {2, 3}


def test_training_noise_counts_what_splits_share_and_averages_the_rest():
    # Halves that differ as much as in a mean of two independent numbers, alike in all splits.
    shared = np.array([[1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, 1.0]])
    assert of_training(shared) == Noise(1.0 + SAFETY, 4)
    # Splits that differ, and halves that do not.
    own = np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, 1.0], [-1.0, -1.0]])
    assert of_training(own) == pytest.approx((4 / 3 * (1 / 4 + SAFETY), 4))
    assert of_training(shared[:1]) == Noise(1.0, 1)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 1.0])
def test_at_most_one_in_twenty_is_false_whatever_part_of_the_noise_is_shared(share):
    rng = np.random.default_rng(0)
    false = 0
    for _ in range(1000):
        mean, contrast = np.sqrt(1 - share) * rng.normal(size=(2, 10))
        mean += np.sqrt(share) * rng.normal()
        contrast += np.sqrt(share) * rng.normal(size=10)
        differences = np.column_stack([mean + contrast, mean - contrast])
        false += abs(differences.mean()) > half_width([of_training(differences)])
    # Three standard errors above 5 %.
    assert false <= 70


class Said:
    """A fitted model that says what it was told to say."""

    classes_ = np.array([0, 1])

    def __init__(self, said):
        self.said = said

    def predict(self, X):
        return self.said


def lookups(n_rows=200, seed=0):
    rng = np.random.default_rng(seed)
    target = rng.integers(2, size=n_rows)
    models = [
        ClassLookup(Said(np.where(rng.random(n_rows) < share, target, 1 - target)), None)
        for share in (0.7, 0.8)
    ]
    return target, models


def noise_of(judges, models):
    return judges.noise(judges.told(models[1]) - judges.told(models[0]))


def test_single_rows_give_the_variance_of_a_paired_difference():
    target, models = lookups()
    strata = [np.arange(len(target))]
    scorer = get_scorer("accuracy")
    judges = judges_of(scorer, target, strata, models[0], np.random.default_rng(0))
    assert isinstance(judges, SingleRows)
    right = [(model.answer("predict") == target).astype(float) for model in models]
    test = stats.ttest_rel(right[1], right[0])
    low, high = test.confidence_interval()
    assert half_width(noise_of(judges, models)) == pytest.approx((high - low) / 2)


def test_balanced_accuracy_varies_class_by_class():
    target, models = lookups()
    strata = [np.flatnonzero(target == label) for label in (0, 1)]
    scorer = get_scorer("balanced_accuracy")
    judges = judges_of(scorer, target, strata, models[0], np.random.default_rng(0))
    found = noise_of(judges, models)
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
    groups = judges_of(make_scorer(accuracy), target, strata, models[0], rng)
    assert isinstance(groups, RowGroups)
    rows = judges_of(get_scorer("accuracy"), target, strata, models[0], rng)
    # Twenty groups of one row.
    assert noise_of(groups, models)[0] == pytest.approx(noise_of(rows, models)[0])


def test_groups_estimate_the_noise_of_many_rows():
    target, models = lookups(1000)
    strata = [np.flatnonzero(target == label) for label in (0, 1)]
    rng = np.random.default_rng(0)
    rows = judges_of(get_scorer("balanced_accuracy"), target, strata, models[0], rng)
    truth = sum(part.variance for part in noise_of(rows, models))
    found = []
    for _ in range(30):
        groups = RowGroups(get_scorer("balanced_accuracy"), target, strata, rng)
        found.append(sum(part.variance for part in noise_of(groups, models)))
    assert abs(np.mean(found) - truth) < 4 * np.std(found, ddof=1) / np.sqrt(30)
