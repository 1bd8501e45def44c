"""Samplers of columns: exact with all coalitions, unbiased with any number of them."""

from itertools import combinations, permutations
from math import comb

import numpy as np
import pytest

from cellworth.sampling import (
    Banzhaf,
    Beta,
    ExhaustiveSampler,
    LeaveOneOut,
    PermutationSampler,
    QuadratureSampler,
    Shapley,
)
from cellworth.sampling.column_samplers import _correlation, _integrals
from cellworth.sampling.samplers import coalition_masks, generator
from cellworth.sampling.semivalues import membership_weights
from enumeration import line_values
from experiments.baselines import LeverageSampler

SEMIVALUES = (Shapley(), Banzhaf(), Beta(4, 1), LeaveOneOut())
FITS = (LeverageSampler, QuadratureSampler)


def estimate(coalitions, utilities):
    """Return values from coalitions and utilities by number of the coalition."""
    numbers = coalitions.members @ (1 << np.arange(coalitions.members.shape[1]))
    return coalitions.weights.T @ utilities[numbers] + coalitions.nothing * utilities[0]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("n_players", range(1, 7))
@pytest.mark.parametrize("semivalue", SEMIVALUES, ids=repr)
def test_exhaustive_sampling_gives_the_values_by_definition(n_players, semivalue, rng):
    utilities = rng.normal(size=1 << n_players)
    drawn = ExhaustiveSampler().draw(n_players, semivalue, rng)
    truth = line_values(utilities, n_players, semivalue)
    np.testing.assert_allclose(estimate(drawn, utilities), truth, atol=1e-13)


@pytest.mark.parametrize("n_players", [3, 14, 400])
def test_leave_one_out_needs_one_coalition_more_than_there_are_players(n_players, rng):
    drawn = ExhaustiveSampler().draw(n_players, LeaveOneOut(), rng)
    assert len(drawn.members) == ExhaustiveSampler().n_coalitions(n_players, LeaveOneOut())
    assert len(drawn.members) == n_players + 1
    assert drawn.members[-1].all()
    assert not drawn.nothing.any()
    utilities = rng.normal(size=n_players + 1)
    left_out = np.argmin(drawn.members[:-1], axis=1)
    truth = utilities[-1] - utilities[:-1][np.argsort(left_out)]
    np.testing.assert_allclose(drawn.weights.T @ utilities, truth, atol=1e-13)


class SizesUpToTwo:
    """A semivalue in which players join coalitions of at most two others."""

    def size_probabilities(self, n_players):
        return np.append(np.full(3, 1 / 3), np.zeros(n_players - 3))


def test_coalitions_without_weight_are_not_listed(rng):
    drawn = ExhaustiveSampler().draw(6, SizesUpToTwo(), rng)
    sizes = drawn.members.sum(axis=1)
    assert np.bincount(sizes).tolist() == [0, 6, 15, 20, 0, 0, 1]
    assert ExhaustiveSampler().n_coalitions(6, SizesUpToTwo()) == 42
    utilities = rng.normal(size=64)
    every = membership_weights(SizesUpToTwo(), coalition_masks(np.arange(64), 6))
    np.testing.assert_allclose(estimate(drawn, utilities), every.T @ utilities, atol=1e-13)


@pytest.mark.parametrize("n_players", range(1, 8))
def test_successive_coalitions_differ_in_one_player(n_players, rng):
    members = ExhaustiveSampler().draw(n_players, Shapley(), rng).members
    assert len(np.unique(members, axis=0)) == len(members) == 2**n_players - 1
    assert members[-1].all()
    # The full coalition is moved to the end.
    steps = (members[1:-1] != members[:-2]).sum(axis=1)
    assert (steps == 1).sum() >= len(steps) - 1


@pytest.mark.parametrize("n_players", [2, 3, 6, 7, 10, 13])
def test_leverage_with_all_coalitions_is_exact(n_players, rng):
    utilities = rng.normal(size=1 << n_players)
    exact = estimate(ExhaustiveSampler().draw(n_players, Shapley(), rng), utilities)
    drawn = LeverageSampler(2**n_players).draw(n_players, Shapley(), rng)
    np.testing.assert_allclose(estimate(drawn, utilities), exact, atol=1e-12)


@pytest.mark.parametrize("sampler", [*(fit(16) for fit in FITS), PermutationSampler(1)], ids=repr)
def test_estimates_are_exact_in_the_mean_over_all_permutations_of_the_players(sampler, rng):
    n_players = 5
    utilities = rng.normal(size=1 << n_players)
    truth = line_values(utilities, n_players, Shapley())
    drawn = sampler.draw(n_players, Shapley(), rng)
    total = np.zeros(n_players)
    for order in permutations(range(n_players)):
        # Coalitions of the names 0, 1, ... when player order[name] bears each name.
        positions = list(order)
        numbers = drawn.members @ (1 << np.array(positions))
        values = drawn.weights.T @ utilities[numbers] + drawn.nothing * utilities[0]
        total[positions] += values
    np.testing.assert_allclose(total / 120, truth, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("semivalue", SEMIVALUES, ids=repr)
@pytest.mark.parametrize("orders", [1, 2, 5])
def test_permutations_are_unbiased_for_every_semivalue(orders, semivalue, rng):
    utilities = rng.normal(size=1 << 4)
    truth = line_values(utilities, 4, semivalue)
    seen = np.array(
        [
            estimate(PermutationSampler(orders).draw(4, semivalue, rng), utilities)
            for _ in range(1000)
        ]
    )
    error = seen.std(axis=0) / np.sqrt(len(seen))
    assert (np.abs(seen.mean(axis=0) - truth) < 4.5 * error + 1e-12).all()


@pytest.mark.parametrize("sampler", [*(fit(40) for fit in FITS), PermutationSampler(3)], ids=repr)
@pytest.mark.parametrize("n_players", [2, 7, 12])
def test_estimates_add_up_to_the_total(sampler, n_players, rng):
    utilities = rng.normal(size=1 << n_players)
    for _ in range(5):
        values = estimate(sampler.draw(n_players, Shapley(), rng), utilities)
        assert values.sum() == pytest.approx(utilities[-1] - utilities[0], abs=1e-12)


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize(("n_players", "count"), [(5, 16), (9, 60), (14, 200), (30, 150)])
def test_no_coalition_is_drawn_twice_and_every_size_occurs(fit, n_players, count):
    for seed in range(5):
        members = fit(count).draw(n_players, Shapley(), generator(seed, 0)).members
        assert len(np.unique(members, axis=0)) == len(members)
        assert len(members) == pytest.approx(count, abs=n_players)
        sizes = np.bincount(members.sum(axis=1), minlength=n_players + 1)
        assert sizes[0] == 0
        assert (sizes[1:] >= 1).all()
        assert all(sizes[s] <= comb(n_players, s) for s in range(n_players + 1))


def test_leverage_draws_coalitions_with_their_complements(rng):
    members = LeverageSampler(80).draw(9, Shapley(), rng).members[:-1]
    assert {m.tobytes() for m in members} == {(~m).tobytes() for m in members}


@pytest.mark.parametrize("n_players", [2, 3, 8])
def test_two_orders_are_an_order_and_its_reverse(n_players, rng):
    members = PermutationSampler(2).draw(n_players, Shapley(), rng).members[:-1]
    first, second = members[: n_players - 1], members[n_players - 1 :]
    assert {m.tobytes() for m in first} == {(~m).tobytes() for m in second}


def test_a_required_last_player_halves_the_coalitions(rng):
    drawn = ExhaustiveSampler().draw(4, Shapley(), rng).with_last_player()
    assert drawn.members.shape == (7, 3)
    utilities = rng.normal(size=8)
    all_utilities = np.concatenate([np.zeros(8), utilities])
    truth = line_values(all_utilities, 4, Shapley())
    np.testing.assert_allclose(estimate(drawn, utilities), truth, atol=1e-13)


def test_exhaustive_sampling_of_many_columns_is_an_error(rng):
    with pytest.raises(ValueError, match=r"of 21 columns.*at most 20 column_groups"):
        ExhaustiveSampler().draw(21, Shapley(), rng)


@pytest.mark.slow
def test_a_thousand_columns_and_more_can_be_sampled(rng):
    drawn = LeverageSampler().draw(1100, Shapley(), rng)
    assert np.isfinite(drawn.weights).all()
    assert len(drawn.members) > 8000
    with pytest.raises(
        ValueError, match=r"QuadratureSampler supports at most 500 columns, got 501"
    ):
        QuadratureSampler().draw(501, Shapley(), rng)


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("n_players", [5, 12, 20, 40])
def test_the_smallest_allowed_samples_are_stable(fit, n_players):
    least = (3 if fit is LeverageSampler else 2) * n_players
    for seed in range(20):
        weights = fit(least).draw(n_players, Shapley(), generator(seed, 0)).weights
        assert np.abs(weights).max() < 3
    with pytest.raises(ValueError, match=f"coalitions must be at least {least} "):
        fit(least - 1).draw(n_players, Shapley(), generator(0, 0))


def test_integrals_are_the_shapley_values_of_a_correlation():
    n = 4
    coalitions = [set(one) for size in range(1, n) for one in combinations(range(n), size)]
    for given in range(1, n):
        chosen = set(range(given))
        for is_in, player in ((0, n - 1), (1, 0)):
            value = 0.0
            for each in coalitions:
                worth = float(_correlation(len(each), given, len(each & chosen)))
                if player in each:
                    value += worth / (n * comb(n - 1, len(each) - 1))
                else:
                    value -= worth / (n * comb(n - 1, len(each)))
            assert _integrals(n)[given, is_in] == pytest.approx(value)
