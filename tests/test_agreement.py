"""Estimates against exact values, within the estimates' own standard errors."""

import numpy as np
import pytest
from scipy import stats

from cellworth import value_game
from cellworth.games import TableGame
from cellworth.runtime import MaxTasks
from cellworth.sampling import (
    AntitheticPermutations,
    Banzhaf,
    Beta,
    LeaveOneOut,
    Shapley,
)
from cellworth.sampling.samplers import PermutationTasks
from enumeration import tabulate
from experiments.baselines import PlainPermutations
from experiments.sampling_coverage import SEMIVALUES, make_up_games, measure_coverage

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


PAIRS = [
    (Shapley(), Banzhaf()),
    (Beta(4, 1), Beta(4, 1)),
    (Beta(1, 16), Shapley()),
    (LeaveOneOut(), Beta(4, 1)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "columns"), PAIRS, ids=str)
def test_other_semivalues_are_estimated_honestly_too(rows, columns):
    """A game in which blocks differ much, and few tasks: weights would fool the errors here."""
    shape, weights = (6, 5), np.arange(1, 7)

    class Product:
        def value(self, S, F):
            return float((S * weights).sum() ** 2 * (F * weights[:5]).sum() ** 1.5)

    game = TableGame(tabulate(Product(), shape))
    pair = {"semivalue": (rows, columns)}
    exact = value_game(game, shape, estimator="exact", **pair)
    z = []
    # Blocks of a run share the sizes that it drew, and so their errors: many short runs.
    for seed in range(30):
        estimate = value_game(game, shape, **pair, stop=MaxTasks(40), random_state=seed)
        z.append(z_scores(estimate.values, exact.values, estimate.sampling_se))
    z = np.concatenate(z)
    assert abs(np.sqrt(np.mean(z**2)) - 1) <= 0.25
    assert np.abs(z).max() < 6  # t-distributed and skewed


def test_leave_one_out_is_right_as_soon_as_a_block_is_seen():
    game = TableGame(np.random.default_rng(5).normal(size=(8, 16)))
    pair = {"semivalue": LeaveOneOut()}
    exact = value_game(game, (3, 4), estimator="exact", **pair)
    estimate = value_game(game, (3, 4), **pair, stop=MaxTasks(20), random_state=1)
    assert estimate.values == pytest.approx(exact.values, abs=1e-12)
    assert (estimate.counts == 20).all()


def test_sums_of_other_semivalues_have_errors_of_their_own():
    game = TableGame(np.random.default_rng(6).normal(size=(8, 16)))
    pair = {"semivalue": (Beta(1, 16), Banzhaf())}
    exact = value_game(game, (3, 4), estimator="exact", **pair)
    estimate = value_game(game, (3, 4), **pair, stop=MaxTasks(400), random_state=1)
    for side in ("rows", "columns"):
        sums, truth = getattr(estimate, side)(), getattr(exact, side)()
        assert np.abs(z_scores(sums.values, truth.values, sums.sampling_se)).max() < 4.5
    assert estimate.total == pytest.approx(estimate.values.sum())


def test_short_runs_of_other_semivalues_have_no_errors_and_say_why():
    game = TableGame(np.random.default_rng(6).normal(size=(8, 16)))
    pair = {"semivalue": Beta(4, 1)}
    short, enough = (
        value_game(game, (3, 4), **pair, stop=MaxTasks(n), random_state=1) for n in (19, 20)
    )
    assert np.isnan(short.sampling_se).all()
    assert "too short a run for errors that hold; run it longer" in repr(short)
    assert not np.isnan(enough.sampling_se).any()


@pytest.mark.slow
@pytest.mark.parametrize("name", SEMIVALUES)
def test_intervals_of_all_semivalues_cover_in_games_of_extreme_and_of_even_gains(name):
    games = make_up_games(3)
    both = np.stack([games["heavy-tailed"], games["nearly additive"]], axis=-1)
    covers = measure_coverage(both, SEMIVALUES[name], (20,), range(40))
    by_game = covers.mean(axis=(0, 1, 2, 3))
    assert by_game.min() > 0.88
    assert by_game.mean() > 0.92


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
