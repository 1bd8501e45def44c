import numpy as np
import pytest

from cellworth.sampling import Banzhaf
from cellworth.sampling.estimators import BanzhafSampling
from cellworth.sampling.samplers import (
    ExhaustiveTasks,
    PermutationTasks,
    generator,
)


def test_a_task_is_a_function_of_seed_and_number():
    sampler = PermutationTasks((6, 5), seed=4)
    late = sampler(1_000_000)
    again = PermutationTasks((6, 5), 4)(1_000_000)
    np.testing.assert_array_equal(late.rows, again.rows)


def test_tasks_and_seeds_differ():
    draws = {generator(seed, task).random() for seed in range(10) for task in range(10)}
    assert len(draws) == 100


def test_every_order_is_equally_likely():
    sampler = PermutationTasks((3, 1), seed=0)
    orders = [tuple(sampler(task).rows[0]) for task in range(6000)]
    counts = np.array([orders.count(order) for order in set(orders)])
    assert len(counts) == 6
    # Each count is binomial(6000, 1/6) with standard deviation 28.9.
    assert np.abs(counts - 1000).max() < 4.5 * 28.9


def test_utilities_per_task_is_their_number():
    pair = (Banzhaf(), Banzhaf())
    quads = BanzhafSampling().make_sampler((6, 4), pair, 0)
    for sampler in (PermutationTasks((6, 4), 0), ExhaustiveTasks((2, 1)), quads):
        assert sampler.utilities_per_task == len(list(sampler(0)))


def test_a_pair_of_orders_lists_all_pairs_of_prefixes():
    drawn = PermutationTasks((3, 2), seed=1)(0)
    pairs = list(drawn)[:12]
    assert [(rows.sum(), columns.sum()) for rows, columns in pairs] == [
        (s, f) for s in range(4) for f in range(3)
    ]
    first = pairs[3][0]
    assert np.flatnonzero(first).tolist() == [drawn.rows[0, 0]]
    for one, other in (drawn.rows, drawn.columns):
        assert one.tolist() == other.tolist()[::-1]


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (4, 4)])
def test_all_coalitions_are_listed_once(shape):
    sampler = ExhaustiveTasks(shape)
    pairs = [
        (rows.tobytes(), columns.tobytes())
        for task in range(sampler.n_tasks)
        for rows, columns in sampler(task)
    ]
    assert len(pairs) == len(set(pairs)) == sampler.n_pairs == 2 ** sum(shape)
