import numpy as np
import pytest

from cellworth.sampling import Banzhaf, Beta, LeaveOneOut, Shapley
from cellworth.sampling.samplers import (
    ExhaustiveTasks,
    MarginalTask,
    MarginalTasks,
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


@pytest.mark.slow
@pytest.mark.parametrize("semivalue", [Shapley(), Banzhaf(), Beta(4, 1), LeaveOneOut()], ids=repr)
def test_players_join_sizes_with_the_semivalues_probabilities(semivalue):
    chances = semivalue.size_probabilities(5), Shapley().size_probabilities(1)
    sampler = MarginalTasks(chances, seed=3)
    coalitions = [sampler(task).rows for task in range(3000)]
    assert all((~drawn).any(axis=0).all() for drawn in coalitions)
    for player in (0, 4):
        joined = [next(rows for rows in drawn if not rows[player]) for drawn in coalitions]
        sizes = [rows.sum() for rows in joined]
        found = np.bincount(sizes, minlength=5) / len(sizes)
        expected = semivalue.size_probabilities(5)
        error = np.sqrt(expected * (1 - expected) / len(sizes))
        assert (np.abs(found - expected) <= 4.5 * error + 1e-12).all()


def test_every_player_outside_joins_in_turn():
    rows = np.array([[True, False, False], [False, True, False]])
    joins = MarginalTask(rows, np.array([[False, True], [True, False]]))
    pairs = [(rows.tolist(), columns.tolist()) for rows, columns in joins]
    assert len(pairs) == 2 * 3 * 2 * 2
    assert pairs[0] == ([True, False, False], [False, True])
    assert pairs[5] == ([True, False, True], [True, True])
    assert pairs[-1] == ([False, True, True], [True, True])


@pytest.mark.slow
@pytest.mark.parametrize("semivalue", [Shapley(), Banzhaf(), LeaveOneOut()], ids=repr)
def test_utilities_per_task_is_the_mean_number(semivalue):
    rows, columns = map(semivalue.size_probabilities, (6, 4))
    sampler = MarginalTasks((rows, columns), seed=0)
    costs = [len(list(sampler(task))) for task in range(4000)]
    assert sampler.utilities_per_task == pytest.approx(np.mean(costs), rel=0.05)
    assert PermutationTasks((6, 4), 0).utilities_per_task == len(
        list(PermutationTasks((6, 4), 0)(0))
    )
    assert ExhaustiveTasks((2, 1)).utilities_per_task == 8


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
