import numpy as np
import pytest
from scipy import stats

from cellworth.sampling.moments import Tally
from cellworth.sampling.passes import PassSums, QueryVariance


def part(sums, weight=0.25, total=0.0, **more):
    seen = np.atleast_2d(sums)
    return PassSums(4, 1, 1, seen, weight, total, tally=Tally(utilities=3), **more)


def fold(parts):
    result = parts[0]
    for one in parts[1:]:
        result = result.merge(one)
    return result


def test_a_finished_pass_is_one_observation():
    seen = fold([part([1.0], total=0.5)] * 8)
    assert seen.moments.count.tolist() == [[2]]
    assert seen.moments.values.tolist() == [[4.0]]
    assert seen.moments.sampling_se.tolist() == [[0.0]]
    assert seen.expected_total == 2.0
    assert seen.tally.utilities == 24


def test_differences_between_passes_give_the_standard_error():
    seen = fold([part([1.0])] * 4 + [part([2.0])] * 4)
    assert seen.moments.values[0, 0] == 6.0
    assert seen.moments.sampling_se[0, 0] == pytest.approx(2.0)


def test_values_during_the_first_pass_are_means_over_the_queries_so_far():
    seen = fold([part([1.0], weight=0.2, total=0.3), part([2.0], weight=0.3, total=0.2)])
    assert seen.moments.values[0, 0] == 6.0
    assert seen.expected_total == 1.0


def test_a_later_unfinished_pass_does_not_count():
    seen = fold([part([1.0], total=0.5)] * 4 + [part([9.0], total=3.0)])
    assert seen.moments.values[0, 0] == 4.0
    assert seen.expected_total == 2.0


def test_a_pass_may_be_a_single_task():
    alone = PassSums(1, 1, 1, np.array([[3.0]]), 1.0, 3.0)
    assert alone.moments.values[0, 0] == 3.0
    assert alone.merge(PassSums(1, 1, 1, np.array([[5.0]]), 1.0, 3.0)).moments.values[0, 0] == 4.0


VALUES = np.array([1.0, 4.0, 2.0, 5.0])


def variance_of(*strata, counts=1.0):
    """Return the sums of strata of queries with equal weights."""
    some = [np.asarray(values) for values in strata]
    return QueryVariance(
        np.array(list(map(len, some))),
        counts * np.array([float(len(values)) for values in some]),
        counts * np.array([[[values.sum()]] for values in some]),
        counts * np.array([[[(values**2).sum()]] for values in some]),
    )


def sampling_se(values):
    """Return the standard error of the mean, widened for few values."""
    n = len(values)
    return values.std(ddof=1) / np.sqrt(n) * student(n - 1)


def student(degrees):
    return stats.t.ppf(0.975, degrees) / stats.norm.ppf(0.975)


def test_the_validation_error_is_the_standard_error_of_the_mean_over_queries():
    seen = fold(
        [part([v / 4]) for v in VALUES[:3]] + [part([5 / 4], query_variance=variance_of(VALUES))]
    )
    assert seen.validation_se()[0, 0] == pytest.approx(sampling_se(VALUES))


@pytest.mark.parametrize("n_done", [2, 3])
def test_an_interrupted_run_has_the_error_of_its_finished_queries(n_done):
    done = VALUES[:n_done]
    parts = [part([v / 4], query_variance=variance_of([v])) for v in done]
    errors = fold(parts).validation_se()
    assert errors[0, 0] == pytest.approx(sampling_se(done))


def test_later_passes_repeat_the_same_queries():
    first = [part([v / 4], query_variance=variance_of([v])) for v in VALUES]
    for n_more in (0, 1, 3, 4):
        seen = fold([*first, *(part([v / 4]) for v in VALUES[:n_more])])
        assert seen.n_estimated == 4
        assert seen.validation_se()[0, 0] == pytest.approx(sampling_se(VALUES))


def test_differences_between_strata_are_no_error():
    # Each stratum has half of the weight, though one has twice as many queries.
    few, many = np.array([7.0, 9.0]), np.array([1.0, 4.0, 2.0, 5.0])
    strata = [variance_of(few, counts=1.5**2), variance_of(many, counts=0.75**2)]
    both = QueryVariance(
        *(np.concatenate([getattr(one, name) for one in strata]) for name in vars(strata[0]))
    )
    seen = PassSums(
        1, 1, 6, np.array([[(few.mean() + many.mean()) / 2]]), 1.0, 0.0, query_variance=both
    )
    variances = np.array([few.var(ddof=1) / 2, many.var(ddof=1) / 4])
    # Satterthwaite: the small stratum has most of the variance, with few degrees of freedom.
    degrees = variances.sum() ** 2 / (variances**2 / [1, 3]).sum()
    expected = np.sqrt(variances.sum()) / 2 * student(np.floor(degrees))
    assert seen.validation_se()[0, 0] == pytest.approx(expected, rel=1e-4)


def test_a_single_query_has_no_validation_error():
    assert part([1.0]).validation_se() is None
    assert part([1.0], query_variance=variance_of([1.0])).validation_se() is None


def test_the_correction_for_sampling_errors_never_removes_all_of_the_validation_error():
    first = [part([v / 4], query_variance=variance_of([v])) for v in VALUES]
    for shift, kept in ((0.1, None), (4.0, 0.25)):
        seen = fold([*first, *(part([(v + shift) / 4]) for v in VALUES)])
        variance = VALUES.var(ddof=1) / 4
        expected = variance - shift**2 / 2 if kept is None else kept * variance
        assert seen.validation_se()[0, 0] == pytest.approx(np.sqrt(expected) * student(3))
