import numpy as np
import pytest

from cellworth.moments import Tally
from cellworth.sweeps import Spread, Sweeps


def part(sums, weight=0.25, total=0.0, **more):
    return Sweeps(4, 1, np.atleast_2d(sums), weight, total, tally=Tally(utilities=3), **more)


def folded(parts):
    result = parts[0]
    for one in parts[1:]:
        result = result.merge(one)
    return result


def test_a_finished_sweep_is_one_observation():
    seen = folded([part([1.0], total=0.5)] * 8)
    assert seen.moments.count.tolist() == [[2]]
    assert seen.moments.values.tolist() == [[4.0]]
    assert seen.moments.standard_errors.tolist() == [[0.0]]
    assert seen.expected_total == 2.0
    assert seen.tally.utilities == 24


def test_the_spread_between_sweeps_gives_the_standard_error():
    seen = folded([part([1.0])] * 4 + [part([2.0])] * 4)
    assert seen.moments.values[0, 0] == 6.0
    assert seen.moments.standard_errors[0, 0] == pytest.approx(2.0)


def test_before_the_first_sweep_is_finished_the_queries_seen_so_far_count():
    seen = folded([part([1.0], weight=0.2, total=0.3), part([2.0], weight=0.3, total=0.2)])
    assert seen.moments.values[0, 0] == 6.0
    assert seen.expected_total == 1.0


def test_an_unfinished_later_sweep_does_not_count():
    seen = folded([part([1.0], total=0.5)] * 4 + [part([9.0], total=3.0)])
    assert seen.moments.values[0, 0] == 4.0
    assert seen.expected_total == 2.0


def test_a_single_part_may_be_a_whole_sweep():
    alone = Sweeps(1, 1, np.array([[3.0]]), 1.0, 3.0)
    assert alone.moments.values[0, 0] == 3.0
    assert alone.merge(Sweeps(1, 1, np.array([[5.0]]), 1.0, 3.0)).moments.values[0, 0] == 4.0


def test_the_error_of_the_choice_of_queries_is_the_standard_deviation_over_queries():
    values = np.array([1.0, 4.0, 2.0, 5.0])
    spread = Spread(4, 4.0, np.array([[values.sum()]]), np.array([[(values**2).sum()]]))
    seen = folded([part([v / 4]) for v in values[:3]] + [part([values[3] / 4], spread=spread)])
    assert seen.validation_errors(4)[0, 0] == pytest.approx(values.std() / np.sqrt(4))


def test_one_query_tells_nothing_of_that_error():
    assert part([1.0]).validation_errors(1) is None
    assert (
        part([1.0], spread=Spread(1, 1.0, np.ones((1, 1)), np.ones((1, 1)))).validation_errors(1)
        is None
    )


def test_that_error_is_never_nothing_because_few_sweeps_differ_much():
    values = np.array([1.0, 4.0, 2.0, 5.0])
    spread = Spread(4, 4.0, np.array([[values.sum()]]), np.array([[(values**2).sum()]]))
    first = [part([v / 4]) for v in values[:3]] + [part([values[3] / 4], spread=spread)]
    for shift, kept in ((0.1, None), (4.0, 0.25)):
        seen = folded([*first, *(part([(v + shift) / 4]) for v in values)])
        middle = values.mean() + shift / 2
        variance = ((values - middle) ** 2).mean() / 4
        expected = variance - shift**2 / 2 if kept is None else kept * variance
        assert seen.validation_errors(4)[0, 0] == pytest.approx(np.sqrt(expected))
