import numpy as np
import pytest

from cellworth import value_game
from cellworth.games import TableGame
from cellworth.runtime import MaxTasks
from cellworth.sampling import Moments
from cellworth.sampling.moments import append_margins
from cellworth.sampling.shrinkage import (
    _add_up,
    _split_variances,
    compute_share_errors,
    shrink_values,
)


def moments_of(values, noise, n_tasks, seed=0):
    """Observations of values, each disturbed by noise that adds up to 0."""
    rng = np.random.default_rng(seed)
    seen = []
    for _ in range(n_tasks):
        error = rng.normal(scale=noise, size=values.shape)
        seen.append(append_margins(values + error - error.mean()))
    return Moments.of_all(seen)


VALUES = np.random.default_rng(5).normal(size=(8, 6))
EQUAL = np.full((8, 6), VALUES.mean())


def test_noise_alone_leaves_equal_shares():
    values, _ = shrink_values(moments_of(EQUAL, noise=1.0, n_tasks=5), VALUES.sum())
    assert np.abs(values[:-1, :-1] - EQUAL).max() < 0.1


def test_values_without_noise_are_not_shrunk():
    moments = moments_of(VALUES, noise=0.0, n_tasks=5)
    values, errors = shrink_values(moments, VALUES.sum())
    np.testing.assert_allclose(values, moments.mean, atol=1e-12)
    np.testing.assert_allclose(errors, 0.0, atol=1e-12)


@pytest.mark.parametrize("noise", [0.5, 2.0, 8.0])
def test_shrunk_values_are_closer_to_the_truth_than_means_and_equal_shares(noise):
    errors = []
    for seed in range(20):
        moments = moments_of(VALUES, noise, n_tasks=10, seed=seed)
        values, _ = shrink_values(moments, VALUES.sum())
        means = moments.mean[:-1, :-1]
        errors.append([np.mean((each - VALUES) ** 2) for each in (values[:-1, :-1], means, EQUAL)])
    ours, of_means, of_equal = np.median(errors, axis=0)
    assert ours <= 1.01 * min(of_means, of_equal)


def test_values_still_add_up_and_sums_are_sums():
    moments = moments_of(VALUES, noise=2.0, n_tasks=6)
    values, _ = shrink_values(moments, VALUES.sum())
    assert values[-1, -1] == pytest.approx(VALUES.sum(), abs=1e-12)
    np.testing.assert_allclose(values, append_margins(values[:-1, :-1]), atol=1e-12)


@pytest.mark.parametrize("n_tasks", [3, 10, 100])
def test_intervals_cover_the_values_of_blocks_and_sums(n_tasks):
    inside = {"blocks": [], "rows": [], "columns": []}
    for seed in range(60):
        rng = np.random.default_rng(1000 + seed)
        truth = append_margins(rng.normal(size=(8, 6)))
        moments = moments_of(truth[:-1, :-1], noise=3.0, n_tasks=n_tasks, seed=seed)
        values, errors = shrink_values(moments, truth[-1, -1])
        covered = np.abs(values - truth) <= 1.96 * errors
        inside["blocks"].append(covered[:-1, :-1].mean())
        inside["rows"].append(covered[:-1, -1].mean())
        inside["columns"].append(covered[-1, :-1].mean())
    for shares in inside.values():
        assert 0.9 <= np.mean(shares) <= 1.0


def test_a_single_observation_gives_equal_shares():
    moments = moments_of(VALUES, noise=1.0, n_tasks=1)
    values, errors = shrink_values(moments, VALUES.sum())
    np.testing.assert_allclose(values[:-1, :-1], EQUAL)
    assert np.isnan(errors).all()


@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (3, 1)])
def test_a_single_row_or_column_works(shape):
    truth = np.arange(1.0, 1.0 + np.prod(shape)).reshape(shape)
    values, errors = shrink_values(moments_of(truth, noise=0.01, n_tasks=50), truth.sum())
    np.testing.assert_allclose(values[:-1, :-1], truth, atol=0.05)
    assert not np.isnan(errors).any()


GAME = TableGame(np.random.default_rng(0).normal(size=(32, 16)))


@pytest.mark.nightly
def test_many_short_runs_merge_into_the_values_of_a_long_one():
    """Each short run is all noise; what they hold together must not be lost in shrinking."""
    exact = value_game(GAME).values
    runs = [value_game(GAME, stop=MaxTasks(4), random_state=seed) for seed in range(300)]
    merged = runs[0]
    for other in runs[1:]:
        merged = merged.merge(other)
    assert (merged.counts == 1200).all()
    z = (merged.values - exact) / merged.sampling_se
    assert np.abs(z).max() < 4.5
    assert np.corrcoef(merged.values.ravel(), exact.ravel())[0, 1] > 0.97


def test_variances_of_effects_add_up_and_are_split_again():
    rng = np.random.default_rng(0)
    parts = rng.random((3, 1)), rng.random((1, 4)), rng.random((3, 4)) + 1.0
    added = _add_up(*parts)
    assert added[2, 4] == pytest.approx(16 * parts[0][2, 0])
    assert added[3, 1] == pytest.approx(9 * parts[1][0, 1])
    for part, again in zip(parts, _split_variances(added), strict=True):
        np.testing.assert_allclose(again, part)


def test_errors_of_shares_are_in_the_unit_of_the_values():
    moments = moments_of(VALUES, noise=3.0, n_tasks=6)
    count, mean, sum_sq = moments.count, moments.mean, moments.sum_sq
    shares = np.random.default_rng(1).random((3, *VALUES.shape))
    errors = compute_share_errors(moments, VALUES.sum(), shares)
    in_cents = Moments(count, 100 * mean, 100**2 * sum_sq)
    other = compute_share_errors(in_cents, 100 * VALUES.sum(), shares)
    np.testing.assert_allclose(other, 100 * errors)
    np.testing.assert_allclose(compute_share_errors(moments, VALUES.sum(), 2 * shares), 2 * errors)
