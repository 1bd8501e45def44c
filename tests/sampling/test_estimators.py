from itertools import permutations, product

import numpy as np
import pytest

from cellworth import value_game
from cellworth.games import TableGame
from cellworth.runtime import MaxTasks
from cellworth.sampling import AntitheticPermutations, Banzhaf
from cellworth.sampling.estimators import (
    average_centered_differences,
    average_quads,
)
from cellworth.sampling.samplers import CoalitionPairs, OrderPairs
from enumeration import tabulate
from experiments.baselines import average_many_differences

GAME = TableGame(np.random.default_rng(0).normal(size=(8, 4)))
EXACT = value_game(GAME).values


def opposites(rows, columns):
    return OrderPairs(*(np.array([order, order[::-1]]) for order in (rows, columns)))


ALL_ORDERS = [
    opposites(*orders) for orders in product(permutations(range(3)), permutations(range(2)))
]


def evaluate(tasks, game=GAME):
    return tasks, [np.array([game.value(*pair) for pair in task]) for task in tasks]


def test_plain_permutations_are_exact_in_the_mean_over_all_orders():
    tasks = [OrderPairs(task.rows[:1], task.columns[:1]) for task in ALL_ORDERS]
    np.testing.assert_allclose(
        average_many_differences(*evaluate(tasks)).mean[:-1, :-1], EXACT, atol=1e-12
    )


def test_antithetic_permutations_are_exact_in_the_mean_over_all_pairs_of_tasks():
    """Each task is centred by the other: no bias, however few there are."""
    means = [
        average_centered_differences(*evaluate([one, other])).mean[:-1, :-1]
        for one, other in product(ALL_ORDERS, repeat=2)
    ]
    np.testing.assert_allclose(np.mean(means, axis=0), EXACT, atol=1e-12)


def test_a_function_of_sizes_alone_does_not_change_estimates():
    class OfSizes:
        def value(self, rows, columns):
            return float(rows.sum() ** 3 * np.sqrt(columns.sum()))

    sized = tabulate(OfSizes(), (3, 2))
    together = TableGame(GAME.table + 100 * sized)
    run = {"estimator": AntitheticPermutations(), "stop": MaxTasks(6), "random_state": 0}
    plain, more = (value_game(game, **run) for game in (GAME, together))
    equal = 100 * sized[-1, -1] / 6
    np.testing.assert_allclose(more.moments.mean[:-1, :-1] - equal, plain.moments.mean[:-1, :-1])
    np.testing.assert_allclose(more.moments.sum_sq, plain.moments.sum_sq, rtol=1e-6, atol=1e-9)


def test_every_run_adds_up_to_the_total():
    for n_tasks in (1, 2, 5):
        seen = value_game(GAME, stop=MaxTasks(n_tasks), random_state=0)
        assert abs(seen.efficiency_residual) < 1e-12
        if n_tasks > 1:
            assert seen.moments.sampling_se[-1, -1] < 1e-12


def test_banzhaf_sampling_is_unbiased():
    """Estimates are within their own errors of the exact values."""
    pair = {"semivalue": Banzhaf()}
    exact = value_game(GAME, **pair)
    seen = value_game(GAME, **pair, stop=MaxTasks(500), random_state=0)
    assert seen.provenance.method["name"] == "banzhaf sampling"
    z = (seen.values - exact.values) / seen.sampling_se
    assert np.abs(z).max() < 4.5
    for side in ("rows", "columns"):
        sums, truth = getattr(seen, side)(), getattr(exact, side)()
        assert (np.abs(sums.values - truth.values) < 4.5 * sums.sampling_se).all()


def test_an_observation_is_a_signed_sum_of_four_utilities():
    rows = np.array([[True, False], [True, False], [False, True], [False, True]])
    columns = np.array([[True], [False], [True], [False]])
    seen = average_quads([CoalitionPairs(rows, columns)], [np.array([5.0, 1.0, 2.0, 4.0])])
    # 5 - 1 - 2 + 4 for the member row and the member column, minus that for the other row.
    np.testing.assert_array_equal(seen.mean[:-1, :-1], [[6.0], [-6.0]])


@pytest.mark.slow
@pytest.mark.parametrize("n_rows", [2, 3])
def test_errors_of_two_or_three_rows_are_never_too_small(n_rows):
    """An order and its reverse leave little randomness; errors must still include it."""
    z = []
    for seed in range(40):
        game = TableGame(np.random.default_rng(seed).normal(size=(1 << n_rows, 8)))
        seen = value_game(game, stop=MaxTasks(30), random_state=seed)
        rows, exact = seen.rows(), value_game(game).rows()
        z.append((rows.values - exact.values) / rows.sampling_se)
    assert np.mean(np.abs(z) < 1.96) >= 0.93


@pytest.mark.nightly
def test_many_short_runs_merge_into_the_values_of_a_long_one():
    game = TableGame(np.random.default_rng(0).normal(size=(32, 16)))
    exact = value_game(game).values
    runs = [value_game(game, stop=MaxTasks(4), random_state=seed) for seed in range(300)]
    merged = runs[0]
    for other in runs[1:]:
        merged = merged.merge(other)
    assert (merged.counts == 1200).all()
    z = (merged.values - exact) / merged.sampling_se
    assert np.abs(z).max() < 4.5
    assert np.corrcoef(merged.values.ravel(), exact.ravel())[0, 1] > 0.97
