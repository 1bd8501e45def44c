import numpy as np
import pytest

from cellworth.sampling import Banzhaf, Beta, LeaveOneOut, Shapley
from cellworth.sampling import designed_tasks as module
from cellworth.sampling.designed_tasks import DesignedTasks
from cellworth.sampling.gaussian_process import (
    Side,
    link_values,
    pair_kernel,
    prior_covariance,
)

PAIR = (Shapley(), Shapley())


def names(pairs):
    return [line.tobytes() for line in np.hstack(pairs)]


def test_a_task_is_a_function_of_seed_and_number():
    one, other = (DesignedTasks((6, 5), 4, PAIR) for _ in range(2))
    late = one(30)
    for task in (0, 3, 30):
        again = other(task)
    np.testing.assert_array_equal(late.rows, again.rows)
    np.testing.assert_array_equal(late.columns, again.columns)
    assert names(DesignedTasks((6, 5), 5, PAIR).pairs(100)) != names(one.pairs(100))


def test_a_task_has_the_empty_sides_of_its_pairs():
    task = DesignedTasks((4, 3), 0, PAIR)(2)
    evaluated = set(names((task.rows, task.columns)))
    for rows, columns in task:
        for pair in ((rows, False * columns), (False * rows, columns)):
            assert np.hstack(pair).tobytes() in evaluated


def test_each_pair_has_the_largest_gain_of_all():
    """Compare with determinants of the covariance of all interactions and all values."""
    shape = 3, 2
    rows, columns = DesignedTasks(shape, 1, PAIR).pairs(8)
    every = DesignedTasks(shape, 1, PAIR).pairs(21)
    sides = Side(every[0], PAIR[0]), Side(every[1], PAIR[1])
    kernel = pair_kernel(module._KERNEL, sides) + module._JITTER * np.eye(21)
    prior = prior_covariance(module._KERNEL, sides)
    prior += module._JITTER * np.diag(np.diag(prior))
    links = link_values(module._KERNEL, sides)
    given_values = kernel - links @ np.linalg.solve(prior, links.T)
    at = [names(every).index(name) for name in names((rows, columns))]

    def variance(covariance, known, pair):
        link = covariance[known][:, pair]
        return covariance[pair, pair] - link @ np.linalg.solve(
            covariance[np.ix_(known, known)], link
        )

    for n_known in range(1, 8):
        known = at[:n_known]
        others = [pair for pair in range(21) if pair not in known]
        gains = {
            pair: variance(kernel, known, pair) / variance(given_values, known, pair)
            for pair in others
        }
        assert gains[at[n_known]] >= max(gains.values()) * (1 - 1e-4)


@pytest.mark.parametrize("semivalue", [Shapley(), Banzhaf(), Beta(4, 1)], ids=repr)
def test_all_pairs_of_a_small_game_are_listed_once(semivalue):
    sampler = DesignedTasks((4, 3), 0, (semivalue, semivalue))
    found = names(sampler.pairs(1000))
    assert len(found) == len(set(found)) == 15 * 7
    # The first ones come again.
    np.testing.assert_array_equal(sampler(13).rows[1], sampler(0).rows[0])


def test_leave_one_out_begins_with_the_pairs_that_count():
    both = (LeaveOneOut(), LeaveOneOut())
    rows, columns = DesignedTasks((5, 4), 0, both).pairs(30)
    assert (rows.sum(axis=1) >= 4).all()
    assert (columns.sum(axis=1) >= 3).all()


def test_pairs_beyond_the_chosen_ones_are_drawn(monkeypatch):
    monkeypatch.setattr(module, "_MAX_CHOSEN", 100)
    found = names(DesignedTasks((20, 15), 0, PAIR).pairs(400))
    assert len(set(found)) == 400


def test_a_restored_list_goes_on_as_it_would_have(monkeypatch):
    first = DesignedTasks((6, 5), 2, PAIR)
    first.pairs(100)
    kept, whole = first.pack(), first.pairs(300)
    # Elsewhere, rounding may lead to other pairs: here, another kernel does.
    monkeypatch.setattr(module, "_POOL", 400)
    again = DesignedTasks((6, 5), 2, PAIR)
    assert names(again.pairs(129)) != names(first.pairs(129))
    again.restore(kept)
    assert names(again.pairs(129)) == names(first.pairs(129))
    monkeypatch.undo()
    again.restore(kept)
    assert names(again.pairs(300)) == names(whole)
