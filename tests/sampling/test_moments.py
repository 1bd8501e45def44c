import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cellworth.sampling import Moments
from cellworth.sampling.moments import Tally, append_margins, append_pairs, draw_errors

observations = hnp.arrays(
    np.float64,
    st.tuples(st.integers(2, 12), st.integers(1, 4)),
    elements=st.floats(-1e3, 1e3) | st.just(np.nan),
)


def fold(rows):
    moments = Moments.of(rows[0])
    for row in rows[1:]:
        moments = moments.merge(Moments.of(row))
    return moments


@given(observations)
def test_moments_equal_those_of_the_observations(seen):
    moments = fold(seen)
    for j, column in enumerate(seen.T):
        known = column[~np.isnan(column)]
        assert moments.count[j] == len(known)
        if len(known) == 0:
            assert np.isnan(moments.values[j])
        else:
            assert moments.values[j] == pytest.approx(known.mean(), abs=1e-9)
        if len(known) < 2:
            assert np.isnan(moments.sampling_se[j])
        else:
            error = known.std(ddof=1) / np.sqrt(len(known))
            assert moments.sampling_se[j] == pytest.approx(error, abs=1e-7)


@given(observations, st.data())
def test_merged_moments_equal_those_of_all_observations(seen, data):
    cut = data.draw(st.integers(1, len(seen) - 1))
    joined = fold(seen[:cut]).merge(fold(seen[cut:]))
    together = fold(seen)
    np.testing.assert_array_equal(joined.count, together.count)
    np.testing.assert_allclose(joined.mean, together.mean, atol=1e-9)
    np.testing.assert_allclose(joined.sum_sq, together.sum_sq, rtol=1e-9, atol=1e-6)


def test_moments_cannot_be_changed():
    moments = Moments.of(np.array([1.0]))
    with pytest.raises(ValueError, match="read-only"):
        moments.mean[0] = 2.0


def test_margins_are_row_sums_column_sums_and_the_total():
    margins = append_margins(np.array([[1.0, 2.0], [3.0, 4.0]]))
    np.testing.assert_array_equal(margins, [[1, 2, 3], [3, 4, 7], [4, 6, 10]])


def test_a_sum_with_an_unobserved_block_counts_as_unobserved():
    moments = Moments.of(append_margins(np.array([[1.0, np.nan], [3.0, 4.0]])))
    np.testing.assert_array_equal(moments.count, [[1, 0, 0], [1, 1, 1], [1, 0, 0]])


def test_a_tally_keeps_counts_and_the_first_distinct_messages():
    tally = Tally()
    for number in range(8):
        tally = tally.merge(Tally(10, 1, (f"reason {number % 6}",)))
    assert (tally.utilities, tally.failed) == (80, 8)
    assert tally.messages == tuple(f"reason {number}" for number in range(5))


def test_draws_of_errors_have_the_covariances_of_owners_over_validation_rows():
    rows = np.random.default_rng(0).normal(size=(50, 4)) @ np.array(
        [[1.0, 0.5, 0, 0], [0, 1, -2, 0], [0, 0, 1, 0.3], [0, 0, 0, 0]]
    )
    expected = np.cov(rows.T) / 50
    errors = append_pairs(rows).std(axis=0, ddof=1) / np.sqrt(50)
    normals = np.random.default_rng(1).standard_normal((200_000, 5))
    drawn = np.cov(draw_errors(errors, 4, normals).T)
    assert np.abs(drawn - expected).max() < 0.02 * np.abs(expected).max()


def test_draws_for_many_owners_keep_each_error_and_that_of_the_total():
    n_owners = 200
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, n_owners)) + 0.3 * rng.normal(size=(400, 1))
    errors = append_pairs(rows).std(axis=0, ddof=1) / 20
    assert len(errors) == 2 * n_owners + 1
    drawn = draw_errors(errors, n_owners, rng.standard_normal((20_000, n_owners + 1)))
    assert drawn.std(axis=0) == pytest.approx(errors[:n_owners], rel=0.04)
    assert drawn.sum(axis=1).std() == pytest.approx(errors[-1], rel=0.03)
