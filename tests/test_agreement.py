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
from experiments.baselines import PlainPermutations

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

    game = TableGame.from_game(Product(), shape)
    pair = {"semivalue": (rows, columns)}
    exact = value_game(game, shape, estimator="exact", **pair)
    # Large coalitions leave few outside, so that a block is seen seldom.
    rare = sum(isinstance(side, LeaveOneOut) or side == Beta(1, 16) for side in (rows, columns))
    tasks = 400 * 5**rare
    z = []
    for seed in range(1 if rare else 2):
        estimate = value_game(game, shape, **pair, stop=MaxTasks(tasks), random_state=seed)
        enough = estimate.counts >= 50
        assert enough.mean() > 0.8
        sample = [a[enough] for a in (estimate.values, exact.values, estimate.sampling_se)]
        z.append(z_scores(*sample))
    z = np.concatenate(z)
    assert abs(np.sqrt(np.mean(z**2)) - 1) <= 0.25
    assert np.abs(z).max() < 6  # t-distributed and skewed


def test_leave_one_out_is_right_as_soon_as_a_block_is_seen():
    game = TableGame(np.random.default_rng(5).normal(size=(8, 16)))
    pair = {"semivalue": LeaveOneOut()}
    exact = value_game(game, (3, 4), estimator="exact", **pair)
    estimate = value_game(game, (3, 4), **pair, stop=MaxTasks(20), random_state=1)
    seen = estimate.counts > 0
    assert seen.any()
    assert estimate.values[seen] == pytest.approx(exact.values[seen], abs=1e-12)
    assert estimate.counts.sum() == 20


def test_sums_that_no_task_saw_complete_have_no_error():
    game = TableGame(np.random.default_rng(6).normal(size=(8, 16)))
    pair = {"semivalue": (Beta(1, 16), Banzhaf())}
    estimate = value_game(game, (3, 4), **pair, stop=MaxTasks(400), random_state=1)
    rows = estimate.rows()
    np.testing.assert_allclose(rows.values, estimate.values.sum(axis=1), atol=1e-12)
    assert np.isnan(rows.sampling_se).all()
    assert estimate.total == pytest.approx(estimate.values.sum())


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
