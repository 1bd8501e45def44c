import numpy as np
import pytest

from cellworth.sampling import Banzhaf, Beta, LeaveOneOut, Shapley
from cellworth.sampling.gaussian_process import Side
from cellworth.sampling.samplers import coalition_masks
from cellworth.sampling.semivalues import membership_weights

# Roughness, linear, level and size.
PARAMETERS = np.array([0.7, 0.3, 1.2, 0.8])
SEMIVALUES = [Shapley(), Banzhaf(), Beta(4, 1), LeaveOneOut()]


def make_side(n_players, semivalue):
    """All coalitions but the empty one, with the weights of their utilities in each value."""
    members = coalition_masks(np.arange(1, 1 << n_players), n_players)
    return Side(members, semivalue), membership_weights(semivalue, members)


@pytest.mark.parametrize("semivalue", SEMIVALUES, ids=repr)
@pytest.mark.parametrize("n_players", [1, 2, 3, 6])
def test_values_by_sizes_equal_sums_over_all_coalitions(n_players, semivalue):
    side, weights = make_side(n_players, semivalue)
    kernel = side.kernel(PARAMETERS)
    np.testing.assert_allclose(side.values(PARAMETERS), kernel @ weights, atol=1e-12)
    np.testing.assert_allclose(
        side.covariance(PARAMETERS), weights.T @ kernel @ weights, atol=1e-12
    )
    np.testing.assert_allclose(side.rough_covariance(), weights.T @ weights, atol=1e-12)


def test_the_derivatives_of_the_kernel_are_correct():
    side, _ = make_side(4, Shapley())
    logs = np.log(PARAMETERS)
    for position, slope in enumerate(side.kernel_slopes(PARAMETERS)):
        step = 1e-6 * (np.arange(4) == position)
        above, below = (side.kernel(np.exp(logs + way * step)) for way in (1, -1))
        np.testing.assert_allclose(slope, (above - below) / 2e-6, atol=1e-7)


@pytest.mark.slow
def test_values_of_many_players_add_up():
    rng = np.random.default_rng(0)
    side = Side(rng.random((4, 200)) < 0.4, Shapley())
    values = side.values(PARAMETERS)
    with_all = Side(np.vstack([side.members, np.ones(200, dtype=bool)]), Shapley())
    np.testing.assert_allclose(values.sum(axis=1), with_all.kernel(PARAMETERS)[-1, :-1], rtol=1e-9)
