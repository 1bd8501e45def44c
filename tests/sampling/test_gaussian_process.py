import numpy as np
import pytest

from cellworth import value_game
from cellworth.games import TableGame
from cellworth.runtime import MaxTasks, MaxUtilities
from cellworth.sampling import Banzhaf, Beta, GaussianProcess, LeaveOneOut, Shapley
from cellworth.sampling.gaussian_process import (
    _USUAL,
    Side,
    _misfit,
    find_interactions,
    posterior,
    split_parameters,
)
from cellworth.sampling.samplers import coalition_masks
from cellworth.sampling.semivalues import membership_weights
from enumeration import tabulate


class Growing:
    """A game like a learning curve: more rows and more columns help less and less."""

    effects = np.random.default_rng(3).uniform(0.2, 2.0, size=(6, 5))

    def value(self, rows, columns):
        return float(1 - np.exp(-(self.effects[np.ix_(rows, columns)]).sum() / 4))


GAME = TableGame(tabulate(Growing(), (6, 5)))


def estimate(budget=300, game=GAME, seed=0, **semivalues):
    rule = MaxUtilities(budget)
    return value_game(game, estimator=GaussianProcess(), stop=rule, random_state=seed, **semivalues)


@pytest.mark.slow
@pytest.mark.parametrize(
    "pair", [(Banzhaf(), Banzhaf()), (Shapley(), Beta(4, 1)), (LeaveOneOut(), Shapley())], ids=str
)
def test_every_semivalue_is_estimated(pair):
    semivalues = {"semivalue": (pair[0], pair[1])}
    exact = value_game(GAME, **semivalues)
    ours = estimate(400, **semivalues)
    assert np.corrcoef(ours.values.ravel(), exact.values.ravel())[0, 1] > 0.95
    if pair == (Banzhaf(), Banzhaf()):
        inside = np.abs(ours.values - exact.values) <= 1.96 * ours.sampling_se + 1e-9
        assert np.mean(inside) > 0.8
    else:
        assert np.isnan(ours.sampling_se).all()


def test_values_add_up_to_the_total_and_sums_are_sums():
    seen = estimate(150)
    assert abs(seen.efficiency_residual) < 1e-9
    np.testing.assert_allclose(seen.rows().values, seen.values.sum(axis=1), atol=1e-9)
    np.testing.assert_allclose(seen.columns().values, seen.values.sum(axis=0), atol=1e-9)


@pytest.mark.slow
def test_all_utilities_give_the_exact_values():
    game = TableGame(np.random.default_rng(0).normal(size=(32, 8)))
    seen = value_game(game, estimator=GaussianProcess(), stop=MaxTasks(300), random_state=0)
    assert seen.provenance.tally.new == 31 * 7
    np.testing.assert_allclose(seen.values, value_game(game).values, atol=1e-6)
    assert seen.sampling_se.max() < 1e-3


@pytest.mark.slow
def test_errors_are_reported_from_ten_utilities_per_block_on():
    assert np.isnan(estimate(250).sampling_se).all()
    assert not np.isnan(estimate(400).sampling_se).any()


def test_the_posterior_equals_the_textbook_formula():
    """Compare with the full covariance matrix of all utilities."""
    rng = np.random.default_rng(1)
    parameters = np.exp(_USUAL + rng.normal(scale=0.3, size=9))
    of_rows, of_columns, rough = split_parameters(parameters)
    coalitions = [coalition_masks(np.arange(1, 1 << n), n) for n in (3, 2)]
    sides = [Side(members, Shapley()) for members in coalitions]
    kernel = np.kron(sides[0].kernel(of_rows), sides[1].kernel(of_columns))
    kernel += rough * np.eye(len(kernel))
    weights = np.kron(*(membership_weights(Shapley(), members) for members in coalitions))
    # Leave out the last pair, all rows with all columns, which would determine the total.
    seen = rng.permutation(20)[:9]
    amounts = rng.normal(size=9)
    inverse = np.linalg.inv(kernel[np.ix_(seen, seen)])
    scale = amounts @ inverse @ amounts / 9
    known = weights.T @ kernel[:, seen]
    values = known @ inverse @ amounts
    covariance = scale * (weights.T @ kernel @ weights - known @ inverse @ known.T)
    rows, columns = coalitions[0][seen // 3], coalitions[1][seen % 3]
    seen_sides = Side(rows, Shapley()), Side(columns, Shapley())
    ours = posterior(parameters, seen_sides, amounts, None)
    np.testing.assert_allclose(ours[0][:-1, :-1].ravel(), values, atol=1e-9)
    np.testing.assert_allclose(ours[1][:-1, :-1].ravel() ** 2, np.diag(covariance), atol=1e-9)
    sums = np.kron(np.eye(3), np.ones(2))
    row_variances = np.diag(sums @ covariance @ sums.T)
    np.testing.assert_allclose(ours[1][:-1, -1] ** 2, row_variances, atol=1e-9)
    # The total is known: condition on it.
    to_total, total = covariance.sum(axis=1), 0.7
    share = to_total / to_total.sum()
    given = posterior(parameters, seen_sides, amounts, total)
    np.testing.assert_allclose(
        given[0][:-1, :-1].ravel(), values + share * (total - values.sum()), atol=1e-9
    )
    np.testing.assert_allclose(
        given[1][:-1, :-1].ravel() ** 2, np.diag(covariance - np.outer(share, to_total)), atol=1e-9
    )


def test_the_derivatives_of_the_likelihood_are_correct():
    rng = np.random.default_rng(2)
    members = [rng.random((25, n)) < 0.6 for n in (5, 4)]
    for side in members:
        side[~side.any(axis=1), 0] = True
    sides = [Side(side, Shapley()) for side in members]
    amounts, logs = rng.normal(size=25), _USUAL + rng.normal(scale=0.2, size=9)
    _, slopes = _misfit(logs, *sides, amounts)
    for position in range(9):
        step = 1e-5 * (np.arange(9) == position)
        above, below = (_misfit(logs + way * step, *sides, amounts)[0] for way in (1, -1))
        assert slopes[position] == pytest.approx((above - below) / 2e-5, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1e6])
def test_the_unit_of_the_game_does_not_matter(scale):
    usual, scaled = estimate(150), estimate(150, TableGame(GAME.table * scale))
    np.testing.assert_allclose(scaled.values / scale, usual.values, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("table", [np.zeros((16, 8)), np.ones((16, 8))], ids=["zero", "constant"])
def test_a_constant_game_has_values_of_zero(table):
    seen = value_game(
        TableGame(table), estimator=GaussianProcess(), stop=MaxUtilities(60), random_state=0
    )
    np.testing.assert_allclose(seen.values, 0.0, atol=1e-9)


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (4, 1)])
def test_single_rows_and_columns_work(shape):
    game = TableGame(np.random.default_rng(0).normal(size=tuple(1 << n for n in shape)))
    seen = value_game(game, estimator=GaussianProcess(), stop=MaxTasks(20), random_state=0)
    np.testing.assert_allclose(seen.values, value_game(game).values, atol=1e-5)


def test_interactions_do_not_depend_on_effects_of_one_side_alone():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(8, 4))
    alone = table + rng.normal(size=(8, 1)) + rng.normal(size=(1, 4))
    sampler = GaussianProcess().make_sampler((3, 2), (Shapley(), Shapley()), 0)
    tasks = [sampler(number) for number in range(3)]
    interactions = [
        find_interactions(
            tasks, [np.array([TableGame(t).value(*pair) for pair in task]) for task in tasks]
        )
        for t in (table, alone)
    ]
    rows, columns, amounts = interactions[0]
    np.testing.assert_allclose(amounts, interactions[1][2], atol=1e-12)
    pairs = {(r.tobytes(), c.tobytes()) for r, c in zip(rows, columns, strict=True)}
    assert len(pairs) == len(amounts)


def test_too_many_players_are_an_error():
    with pytest.raises(
        ValueError, match=r"at most 300 row groups .* at most 3,000 blocks, got 301 x 2"
    ):
        value_game(Growing(), (301, 2), estimator=GaussianProcess(), stop=MaxUtilities(10))


def test_exact_sums_have_rounding_errors():
    """A difference of equal variances must not be reported as an error of 0."""
    rng = np.random.default_rng(3)
    rows, columns = (coalition_masks(np.arange(16), 4) for _ in range(2))
    growth = [np.prod(1 + side * rng.gamma(1, size=4), axis=1) for side in (rows, columns)]
    table = np.multiply.outer(*growth)
    table[0], table[:, 0] = 0.0, 0.0
    game = TableGame(table)
    run = {"estimator": GaussianProcess(), "stop": MaxUtilities(170), "random_state": 3}
    seen, exact = value_game(game, **run).rows(), value_game(game).rows()
    off = np.abs(seen.values - exact.values)
    assert (off <= 1.96 * seen.sampling_se).all()
    assert (seen.sampling_se < 1e-6 * np.abs(table).max()).all()
