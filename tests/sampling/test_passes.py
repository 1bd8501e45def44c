from copy import deepcopy
from functools import reduce

import numpy as np
import pytest
from scipy import stats

from cellworth.sampling.moments import Tally, widening
from cellworth.sampling.passes import DrawVariance, PassSums, QueryTotals, QueryVariance


def part(sums, weight=0.25, total=0.0, half_difference=None, **more):
    """Return one of four parts of a pass; its queries may have been drawn twice."""
    seen = np.atleast_2d(sums)
    squares = np.full(seen.shape, 0.0 if half_difference is None else half_difference**2)
    twice = half_difference is not None
    draws = DrawVariance(int(twice), squares, weight**2 * twice, weight**2 * (not twice))
    totals = QueryTotals(weight, total)
    return PassSums(4, 1, 1, seen, totals, draws=draws, tally=Tally(utilities=3), **more)


def fold(parts):
    # Merging uses up the arrays of a part.
    return reduce(PassSums.merge, map(deepcopy, parts))


def test_parts_with_two_draws_are_observations():
    seen = fold([part([1.0], total=0.5, half_difference=0.0)] * 8)
    assert seen.moments.count.tolist() == [[9]]
    assert seen.moments.values.tolist() == [[4.0]]
    assert seen.moments.sampling_se.tolist() == [[0.0]]
    assert seen.latest.total == 2.0
    assert seen.tally.utilities == 24


def test_differences_between_draws_give_the_standard_error():
    first = [part([1.0], half_difference=0.5)] * 4
    assert fold(first).moments.sampling_se[0, 0] == pytest.approx(1.0)
    seen = fold(first + [part([2.0], half_difference=0.5)] * 4)
    assert seen.moments.values[0, 0] == 6.0
    assert seen.moments.sampling_se[0, 0] == pytest.approx(np.sqrt(0.5))
    # A query that is drawn once has twice the variance of one that is drawn twice.
    mixed = fold([part([1.0], half_difference=0.5)] * 2 + [part([1.0])] * 2)
    assert mixed.moments.sampling_se[0, 0] == pytest.approx(np.sqrt(2 * 0.25 + 2 * 0.5))


def test_without_second_draws_the_sampling_error_is_not_known():
    assert np.isnan(fold([part([1.0])] * 4).moments.sampling_se).all()


def test_errors_of_a_simulated_run_are_right_at_every_moment():
    """Values of queries and of their draws are known: so are both errors."""
    rng = np.random.default_rng(0)
    n_runs, n_parts, n_queries, query_sd, draw_sd = 4000, 16, 4, 1.0, 1.0
    weight = 1 / (n_parts * n_queries)
    for n_done in (12, n_parts, 24, 31, 3 * n_parts, 3 * n_parts + 9):
        truth = query_sd * rng.normal(size=(n_runs, n_parts, n_queries))
        parts = []
        # Variance of the mean of each query's draws, and passes that it is a mean over.
        of_query, n_means = np.zeros(n_parts), np.zeros(n_parts)
        for number in range(n_done):
            at = number % n_parts
            # A pass counts by quarters.
            if number < n_parts or at < (n_done - number + at) // 4 * 4:
                n_means[at] += 1
                of_query[at] += draw_sd**2 / 2
            own = truth[:, at]
            draws = own + draw_sd * rng.normal(size=(2, *own.shape))
            halves = draws.sum(axis=2) * weight / 2
            variance = None
            if number < n_parts:
                seen = draws[0][np.newaxis]
                variance = QueryVariance(
                    np.array([n_queries]), np.array([float(n_queries)]),
                    seen.sum(axis=2), (seen**2).sum(axis=2),
                )  # fmt: skip
            squares = DrawVariance(1, (halves[0] - halves[1]) ** 2, n_queries * weight**2, 0.0)
            parts.append(
                PassSums(
                    n_parts,
                    1,
                    n_queries,
                    halves.sum(axis=0),
                    QueryTotals(n_queries * weight, 0.0),
                    draws=squares,
                    query_variance=variance,
                    milestones=(4, 8, 12),
                )
            )
        found = fold(parts)
        n_asked = min(n_done, n_parts) * n_queries
        known = of_query[:n_done] / n_means[:n_done] ** 2
        error = found.moments.values - truth[:, : min(n_done, n_parts)].mean(axis=(1, 2))
        sampling = np.mean(found.moments.sampling_se**2)
        assert sampling == pytest.approx(known.mean() / n_asked, rel=0.05)
        assert sampling == pytest.approx(np.mean(error**2), rel=0.1)
        count = found.moments.count[0]
        reach = 1.96 * np.hypot(
            found.moments.sampling_se * widening(count), found.latest.validation_se()
        )
        # Values vary around 0, the mean over all queries there could be.
        assert 0.93 < np.mean(np.abs(found.moments.values) < reach) < 0.98


def test_earlier_sums_stay_as_they_are_when_later_tasks_are_added():
    numbers = np.random.default_rng(0).normal(size=12)
    parts = [
        part([n], half_difference=n / 3, milestones=(2, 3), query_variance=variance_of([n]))
        for n in numbers
    ]
    kept = [deepcopy(parts[0])]
    for one in map(deepcopy, parts[1:]):
        kept.append(kept[-1].merge(one))
    for n_done, seen in enumerate(kept, 1):
        alone = fold(parts[:n_done]).latest
        assert seen.latest.values.tobytes() == alone.values.tobytes()
        assert seen.moments.sum_sq.tobytes() == alone.moments.sum_sq.tobytes()
        if n_done > 1:
            assert seen.latest.validation_se().tobytes() == alone.validation_se().tobytes()


def test_sums_take_the_memory_of_the_task_that_is_added():
    one, other = (part([v], half_difference=v, query_variance=variance_of([v])) for v in VALUES[:2])
    both = one.merge(other)
    assert np.shares_memory(both.sums, other.sums)
    assert np.shares_memory(both.draws.squares, other.draws.squares)
    assert np.shares_memory(both.query_variance.second, other.query_variance.second)


def test_arrays_that_are_read_only_are_added_all_the_same():
    one, other = part([1.0], half_difference=2.0), part([3.0], half_difference=4.0)
    other.sums.setflags(write=False)
    other.draws.squares.setflags(write=False)
    both = one.merge(other)
    assert (both.sums[0, 0], both.draws.squares[0, 0]) == (4.0, 20.0)
    assert (other.sums[0, 0], other.draws.squares[0, 0]) == (3.0, 16.0)


def test_a_later_unfinished_pass_without_milestones_does_not_count():
    seen = fold([part([1.0], total=0.5)] * 4 + [part([9.0], total=3.0)])
    assert seen.moments.values[0, 0] == 4.0
    assert seen.latest.total == 2.0


def test_a_pass_may_be_a_single_task():
    alone, more = (PassSums(1, 1, 1, np.array([[n]]), QueryTotals(1.0, 3.0)) for n in (3.0, 5.0))
    assert alone.moments.values[0, 0] == 3.0
    assert alone.merge(more).moments.values[0, 0] == 4.0


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
    assert seen.latest.validation_se()[0, 0] == pytest.approx(sampling_se(VALUES))


@pytest.mark.parametrize("n_done", [2, 3])
def test_an_interrupted_run_has_the_error_of_its_finished_queries(n_done):
    done = VALUES[:n_done]
    parts = [part([v / 4], query_variance=variance_of([v])) for v in done]
    errors = fold(parts).latest.validation_se()
    assert errors[0, 0] == pytest.approx(sampling_se(done))


def test_later_passes_repeat_the_same_queries():
    first = [part([v / 4], query_variance=variance_of([v])) for v in VALUES]
    for n_more in (0, 1, 3, 4):
        seen = fold([*first, *(part([v / 4]) for v in VALUES[:n_more])])
        assert seen.latest.n_queries == 4
        assert seen.latest.validation_se()[0, 0] == pytest.approx(sampling_se(VALUES))


def test_differences_between_strata_are_no_error():
    # Each stratum has half of the weight, though one has twice as many queries.
    few, many = np.array([7.0, 9.0]), np.array([1.0, 4.0, 2.0, 5.0])
    strata = [variance_of(few, counts=1.5**2), variance_of(many, counts=0.75**2)]
    both = QueryVariance(
        *(np.concatenate([getattr(one, name) for one in strata]) for name in vars(strata[0]))
    )
    seen = PassSums(
        1,
        1,
        6,
        np.array([[(few.mean() + many.mean()) / 2]]),
        QueryTotals(1.0, 0.0),
        query_variance=both,
    )
    variances = np.array([few.var(ddof=1) / 2, many.var(ddof=1) / 4])
    # Satterthwaite: the small stratum has most of the variance, with few degrees of freedom.
    degrees = variances.sum() ** 2 / (variances**2 / [1, 3]).sum()
    expected = np.sqrt(variances.sum()) / 2 * student(np.floor(degrees))
    assert seen.latest.validation_se()[0, 0] == pytest.approx(expected, rel=1e-4)


def test_a_single_query_has_no_validation_error():
    assert part([1.0]).latest.validation_se() is None
    assert part([1.0], query_variance=variance_of([1.0])).latest.validation_se() is None


def test_the_correction_for_sampling_errors_never_removes_all_of_the_validation_error():
    variance = VALUES.var(ddof=1) / 4
    for half_difference, expected in ((0.1, variance - 8 * 0.1**2), (0.5, variance / 4)):
        seen = fold(
            [
                part([v / 4], half_difference=half_difference, query_variance=variance_of([v]))
                for v in VALUES
            ]
        )
        assert seen.latest.validation_se()[0, 0] == pytest.approx(np.sqrt(expected) * student(3))
