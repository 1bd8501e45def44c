"""Estimates against exact values, judged by the estimates' own standard errors."""

import numpy as np
import pytest
from scipy import stats

from cellworth import AfterTasks, Banzhaf, Beta, LeaveOneOut, Shapley, TableGame, value_game

N_GAMES = 200
TASKS = 200


def z_scores(estimates, truths, errors):
    """Standardised errors, where there is any error; what has none must be right."""
    certain = errors < 1e-12
    assert np.abs(estimates - truths)[certain] == pytest.approx(0.0, abs=1e-10)
    return ((estimates - truths) / np.where(certain, 1.0, errors))[~certain]


@pytest.fixture(scope="module")
def scores():
    """z-scores of blocks, row sums and column sums over many random games."""
    collected = {"blocks": [], "rows": [], "columns": []}
    rng = np.random.default_rng(20230619)
    for seed in range(N_GAMES):
        shape = int(rng.integers(2, 5)), int(rng.integers(2, 5))
        game = TableGame(rng.normal(size=(1 << shape[0], 1 << shape[1])))
        exact = value_game(game, shape)
        estimate = value_game(game, shape, stop=AfterTasks(TASKS), random_state=seed)
        collected["blocks"].append(
            z_scores(estimate.values, exact.values, estimate.standard_errors).ravel()
        )
        for side in ("rows", "columns"):
            ours, true = getattr(estimate, side)(), getattr(exact, side)()
            collected[side].append(z_scores(ours.values, true.values, ours.standard_errors))
    return {name: np.concatenate(parts) for name, parts in collected.items()}


@pytest.mark.parametrize("what", ["blocks", "rows", "columns"])
def test_standard_errors_are_honest(scores, what):
    z = scores[what]
    assert abs(z.std() - 1) <= 0.15
    assert abs(z.mean()) <= 0.15
    # |z| > 5 has a chance of 6e-7 each; with t-distributed errors a little more.
    expected = len(z) * 2 * stats.t.sf(5, TASKS - 1)
    assert np.sum(np.abs(z) > 5) <= stats.poisson.ppf(0.9999, expected)


PAIRS = [
    (Banzhaf(), Banzhaf()),
    (Beta(4, 1), Beta(1, 4)),
    (LeaveOneOut(), LeaveOneOut()),
    (Banzhaf(), Shapley()),
    (Shapley(), LeaveOneOut()),
]


@pytest.mark.parametrize(("rows", "columns"), PAIRS, ids=str)
def test_a_permutation_design_serves_any_semivalue(rows, columns):
    rng = np.random.default_rng(5)
    game = TableGame(rng.normal(size=(8, 16)))
    pair = {"row_semivalue": rows, "column_semivalue": columns}
    exact = value_game(game, (3, 4), **pair)
    estimate = value_game(game, (3, 4), **pair, stop=AfterTasks(3000), random_state=1)
    z = z_scores(estimate.values, exact.values, estimate.standard_errors)
    assert np.abs(z).max() < 4.5


def test_every_grid_adds_up_to_the_expected_total():
    rng = np.random.default_rng(3)
    game = TableGame(rng.normal(size=(16, 8)))
    estimate = value_game(game, (4, 3), stop=AfterTasks(3), random_state=0)
    assert abs(estimate.efficiency_residual) <= 1e-12


def test_a_grid_costs_one_utility_per_block_and_its_empty_edges():
    class Counting:
        calls = 0

        def value(self, rows, columns):
            Counting.calls += 1
            return float(rows.sum() * columns.sum())

    estimate = value_game(Counting(), (5, 4), stop=AfterTasks(7), random_state=0)
    corners = 4
    assert Counting.calls == corners + 7 * (5 + 1) * (4 + 1)
    assert estimate.provenance.tally.utilities == Counting.calls
