import numpy as np
import pytest

from cellworth.designs import AllCoalitions, PermutationGrids, generator


def test_a_task_is_the_same_for_whoever_asks():
    design = PermutationGrids((6, 5), seed=4)
    late = design(1_000_000)
    np.testing.assert_array_equal(late.row_order, PermutationGrids((6, 5), 4)(1_000_000).row_order)


def test_tasks_and_seeds_have_numbers_of_their_own():
    draws = {generator(seed, task).random() for seed in range(10) for task in range(10)}
    assert len(draws) == 100


def test_every_order_is_equally_likely():
    design = PermutationGrids((3, 1), seed=0)
    orders = [tuple(design(task).row_order) for task in range(6000)]
    counts = np.array([orders.count(order) for order in set(orders)])
    assert len(counts) == 6
    # Each count is binomial(6000, 1/6) with standard deviation 28.9.
    assert np.abs(counts - 1000).max() < 4.5 * 28.9


def test_a_grid_lists_all_pairs_of_prefixes():
    grid = PermutationGrids((3, 2), seed=1)(0)
    pairs = list(grid)
    assert [(rows.sum(), columns.sum()) for rows, columns in pairs] == [
        (s, f) for s in range(4) for f in range(3)
    ]
    first = pairs[3][0]
    assert np.flatnonzero(first).tolist() == [grid.row_order[0]]


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (4, 4)])
def test_all_coalitions_are_visited_once(shape):
    design = AllCoalitions(shape)
    pairs = [
        (rows.tobytes(), columns.tobytes())
        for task in range(design.n_tasks)
        for rows, columns in design(task)
    ]
    assert len(pairs) == len(set(pairs)) == design.n_pairs == 2 ** sum(shape)
