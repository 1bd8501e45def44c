"""Estimates against exact values, within the estimates' own standard errors."""

import numpy as np
import pytest
from scipy import stats

from cellworth import value_game
from cellworth.games import TableGame
from cellworth.runtime import MaxTasks, MaxUtilities
from cellworth.sampling import (
    AntitheticPermutations,
    Banzhaf,
    Beta,
    GaussianProcess,
    LeaveOneOut,
    Shapley,
)
from cellworth.sampling.samplers import PermutationTasks
from enumeration import tabulate
from experiments.baselines import PlainPermutations
from experiments.sampling_coverage import CASES, make_up_games, measure

N_GAMES = 25
TASKS = 200


def z_scores(estimates, truths, errors):
    """Standardised errors, where there is any error; what has none must be right."""
    certain = errors < 1e-12
    assert np.abs(estimates - truths)[certain] == pytest.approx(0.0, abs=1e-10)
    return ((estimates - truths) / np.where(certain, 1.0, errors))[~certain]


# With two or three rows, pairs of opposite orders leave hardly any chance; errors are too large.
FEWEST = {PlainPermutations(): 2, AntitheticPermutations(): 4}


@pytest.fixture(scope="module", params=FEWEST, ids=repr)
def scores(request):
    """z-scores of blocks, row sums and column sums over many random games."""
    collected = {"blocks": [], "rows": [], "columns": []}
    rng = np.random.default_rng(20230619)
    for seed in range(N_GAMES):
        fewest = FEWEST[request.param]
        shape = tuple(rng.integers(fewest, 5, size=2).tolist())
        game = TableGame(rng.normal(size=(1 << shape[0], 1 << shape[1])))
        exact = value_game(game, shape, estimator="exact")
        run = {"estimator": request.param, "stop": MaxTasks(TASKS), "random_state": seed}
        estimate = value_game(game, shape, **run)
        collected["blocks"].append(
            z_scores(estimate.values, exact.values, estimate.sampling_se).ravel()
        )
        for side in ("rows", "columns"):
            ours, true = getattr(estimate, side)(), getattr(exact, side)()
            collected[side].append(z_scores(ours.values, true.values, ours.sampling_se))
    return {name: np.concatenate(parts) for name, parts in collected.items()}


@pytest.mark.slow
def test_standard_errors_are_honest(scores):
    for what in ("blocks", "rows", "columns"):
        z = scores[what]
        assert abs(z.std() - 1) <= 0.15
        assert abs(z.mean()) <= 0.15
        # |z| > 5 has a chance of 6e-7 each; with t-distributed errors a little more.
        expected = len(z) * 2 * stats.t.sf(5, TASKS - 1)
        assert np.sum(np.abs(z) > 5) <= stats.poisson.ppf(0.9999, expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "columns"), [(Shapley(), Banzhaf()), (Beta(4, 1), Beta(1, 16))], ids=str
)
def test_pairs_of_semivalues_are_estimated_where_blocks_differ_much(rows, columns):
    shape, weights = (6, 5), np.arange(1, 7)

    class Product:
        def value(self, S, F):
            return float((S * weights).sum() ** 2 * (F * weights[:5]).sum() ** 1.5)

    game = TableGame(tabulate(Product(), shape))
    pair = {"semivalue": (rows, columns)}
    exact = value_game(game, shape, estimator="exact", **pair)
    for seed in range(3):
        seen = value_game(game, shape, **pair, stop=MaxUtilities(320), random_state=seed)
        away = seen.values - exact.values
        assert np.sqrt(np.mean(away**2)) < 0.1 * exact.values.std()
        if rows == Shapley():
            z = z_scores(seen.values, exact.values, seen.sampling_se)
            assert np.sqrt(np.mean(z**2)) < 1.3


def test_leave_one_out_is_right_once_the_pairs_that_count_are_known():
    game = TableGame(np.random.default_rng(5).normal(size=(8, 16)))
    pair = {"semivalue": LeaveOneOut(), "estimator": GaussianProcess()}
    exact = value_game(game, (3, 4), semivalue=LeaveOneOut(), estimator="exact")
    estimate = value_game(game, (3, 4), **pair, stop=MaxTasks(20), random_state=1)
    assert estimate.values == pytest.approx(exact.values, abs=1e-6)


def test_errors_that_were_not_shown_to_hold_are_not_given():
    game = TableGame(np.random.default_rng(6).normal(size=(8, 16)))
    stop = MaxUtilities(80)
    for semivalue in (Beta(4, 1), (Shapley(), LeaveOneOut())):
        seen = value_game(game, (3, 4), semivalue=semivalue, stop=stop, random_state=1)
        assert np.isnan(seen.sampling_se).all()
        assert "a semivalue without errors" in repr(seen)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if "Beta" not in case])
def test_intervals_cover_in_games_of_extreme_and_of_even_gains(case):
    games = make_up_games(3)
    estimator, pair = CASES[case]
    process = isinstance(estimator, GaussianProcess)
    both = [games["heavy-tailed"], games["nearly additive"]]
    runs = [
        measure(estimator, pair, both, (76 if process else 40,), seed)
        for seed in range(3 if process else 40)
    ]
    coverage = [np.mean([run[i][0]["covers"] for run in runs]) for i in range(2)]
    assert min(coverage) > 0.85
    assert np.mean(coverage) > 0.9


def test_every_grid_adds_up_to_the_expected_total():
    rng = np.random.default_rng(3)
    game = TableGame(rng.normal(size=(16, 8)))
    estimate = value_game(game, (4, 3), stop=MaxTasks(3), random_state=0)
    assert abs(estimate.efficiency_residual) <= 1e-12


def test_a_utility_is_computed_once_however_often_tasks_look_at_it():
    class Counting:
        calls = 0

        def value(self, rows, columns):
            Counting.calls += 1
            return float(rows.sum() * columns.sum())

    estimate = value_game(Counting(), (5, 4), stop=MaxTasks(7), random_state=0)
    sampler = PermutationTasks((5, 4), 0)
    pairs = [pair for task in range(7) for pair in sampler(task)]
    distinct = {(*rows.tolist(), *columns.tolist()) for rows, columns in pairs}
    assert Counting.calls == len(distinct)
    tally, corners = estimate.provenance.tally, 4
    assert tally.utilities == corners + 7 * 2 * (5 + 1) * (4 + 1)
    assert tally.utilities - tally.reused == Counting.calls
    assert tally.new == len([each for each in distinct if any(each[:5]) and any(each[5:])])
