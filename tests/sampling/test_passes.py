import numpy as np
import pytest
from scipy import stats

from cellworth.sampling.moments import Tally
from cellworth.sampling.passes import PassSums, QueryVariance


def part(sums, weight=0.25, total=0.0, **more):
    seen = np.atleast_2d(sums)
    return PassSums(4, 1, 1, seen, weight, total, tally=Tally(utilities=3), **more)


def folded(parts):
    result = parts[0]
    for one in parts[1:]:
        result = result.merge(one)
    return result


def test_a_finished_sweep_is_one_observation():
    seen = folded([part([1.0], total=0.5)] * 8)
    assert seen.moments.count.tolist() == [[2]]
    assert seen.moments.values.tolist() == [[4.0]]
    assert seen.moments.sampling_se.tolist() == [[0.0]]
    assert seen.expected_total == 2.0
    assert seen.tally.utilities == 24


def test_the_spread_between_sweeps_gives_the_standard_error():
    seen = folded([part([1.0])] * 4 + [part([2.0])] * 4)
    assert seen.moments.values[0, 0] == 6.0
    assert seen.moments.sampling_se[0, 0] == pytest.approx(2.0)


def test_before_the_first_sweep_is_finished_the_queries_seen_so_far_count():
    seen = folded([part([1.0], weight=0.2, total=0.3), part([2.0], weight=0.3, total=0.2)])
    assert seen.moments.values[0, 0] == 6.0
    assert seen.expected_total == 1.0


def test_an_unfinished_later_sweep_does_not_count():
    seen = folded([part([1.0], total=0.5)] * 4 + [part([9.0], total=3.0)])
    assert seen.moments.values[0, 0] == 4.0
    assert seen.expected_total == 2.0


def test_a_single_part_may_be_a_whole_sweep():
    alone = PassSums(1, 1, 1, np.array([[3.0]]), 1.0, 3.0)
    assert alone.moments.values[0, 0] == 3.0
    assert alone.merge(PassSums(1, 1, 1, np.array([[5.0]]), 1.0, 3.0)).moments.values[0, 0] == 4.0


VALUES = np.array([1.0, 4.0, 2.0, 5.0])


def spread_of(*strata, counts=1.0):
    """Queries of equal counts, stratum by stratum."""
    some = [np.asarray(values) for values in strata]
    return QueryVariance(
        np.array(list(map(len, some))),
        counts * np.array([float(len(values)) for values in some]),
        counts * np.array([[[values.sum()]] for values in some]),
        counts * np.array([[[(values**2).sum()]] for values in some]),
    )


def sampling_se(values):
    """Of their mean, for intervals of 1.96: few values are widened as Student found."""
    n = len(values)
    return values.std(ddof=1) / np.sqrt(n) * student(n - 1)


def student(degrees):
    return stats.t.ppf(0.975, degrees) / stats.norm.ppf(0.975)


def test_the_error_of_the_choice_of_queries_is_the_standard_error_of_their_mean():
    seen = folded(
        [part([v / 4]) for v in VALUES[:3]] + [part([5 / 4], query_variance=spread_of(VALUES))]
    )
    assert seen.validation_se()[0, 0] == pytest.approx(sampling_se(VALUES))


@pytest.mark.parametrize("n_done", [2, 3])
def test_a_run_that_is_broken_off_has_the_error_of_the_queries_that_were_done(n_done):
    done = VALUES[:n_done]
    parts = [part([v / 4], query_variance=spread_of([v])) for v in done]
    errors = folded(parts).validation_se()
    assert errors[0, 0] == pytest.approx(sampling_se(done))


def test_later_sweeps_ask_no_further_queries():
    first = [part([v / 4], query_variance=spread_of([v])) for v in VALUES]
    for n_more in (0, 1, 3, 4):
        seen = folded([*first, *(part([v / 4]) for v in VALUES[:n_more])])
        assert seen.n_estimated == 4
        assert seen.validation_se()[0, 0] == pytest.approx(sampling_se(VALUES))


def test_strata_differ_without_any_error():
    # Each has half of the mean, though one has twice as many queries as the other.
    few, many = np.array([7.0, 9.0]), np.array([1.0, 4.0, 2.0, 5.0])
    spreads = [spread_of(few, counts=1.5**2), spread_of(many, counts=0.75**2)]
    both = QueryVariance(
        *(np.concatenate([getattr(one, name) for one in spreads]) for name in vars(spreads[0]))
    )
    seen = PassSums(
        1, 1, 6, np.array([[(few.mean() + many.mean()) / 2]]), 1.0, 0.0, query_variance=both
    )
    variances = np.array([few.var(ddof=1) / 2, many.var(ddof=1) / 4])
    # Satterthwaite: the few tell most of the variance, and tell it badly.
    degrees = variances.sum() ** 2 / (variances**2 / [1, 3]).sum()
    expected = np.sqrt(variances.sum()) / 2 * student(np.floor(degrees))
    assert seen.validation_se()[0, 0] == pytest.approx(expected, rel=1e-4)


def test_one_query_tells_nothing_of_that_error():
    assert part([1.0]).validation_se() is None
    assert part([1.0], query_variance=spread_of([1.0])).validation_se() is None


def test_that_error_is_never_nothing_because_few_sweeps_differ_much():
    first = [part([v / 4], query_variance=spread_of([v])) for v in VALUES]
    for shift, kept in ((0.1, None), (4.0, 0.25)):
        seen = folded([*first, *(part([(v + shift) / 4]) for v in VALUES)])
        variance = VALUES.var(ddof=1) / 4
        expected = variance - shift**2 / 2 if kept is None else kept * variance
        assert seen.validation_se()[0, 0] == pytest.approx(np.sqrt(expected) * student(3))
