import numpy as np
import pytest

from cellworth import (
    AfterTasks,
    AfterUtilities,
    Banzhaf,
    StandardErrorBelow,
    TableGame,
    TensorLeastSquares,
    value_game,
)
from cellworth.designs import CoalitionQuads, MarginsThenQuads, n_margins


class Counting:
    """Every row adds 1 to what every column earns."""

    def value(self, rows, columns):
        return float(rows.sum() * columns.sum())


def seen_all(game):
    """A run that is long enough to meet every pair of coalitions."""
    return value_game(game, design=TensorLeastSquares(), stop=AfterTasks(400), random_state=0)


@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (2, 4), (1, 3), (3, 1), (1, 1), (2, 2)])
def test_all_utilities_give_the_exact_values(shape):
    game = TableGame(np.random.default_rng(0).normal(size=(1 << shape[0], 1 << shape[1])))
    seen = seen_all(game)
    n_pairs = ((1 << shape[0]) - 1) * ((1 << shape[1]) - 1)
    assert seen.provenance.tally.new == n_pairs
    np.testing.assert_allclose(seen.values, value_game(game).values, atol=1e-10)


def test_sums_of_rows_and_columns_are_exact_long_before():
    game = TableGame(np.random.default_rng(0).normal(size=(128, 64)))
    exact = value_game(game)
    seen = value_game(game, design=TensorLeastSquares(), stop=AfterUtilities(1000), random_state=0)
    np.testing.assert_allclose(seen.rows().values, exact.rows().values, atol=1e-10)
    np.testing.assert_allclose(seen.columns().values, exact.columns().values, atol=1e-10)
    assert np.abs(seen.values - exact.values).max() > 1e-3


def test_it_reports_no_errors_and_says_so():
    game = TableGame(np.random.default_rng(0).normal(size=(16, 16)))
    seen = value_game(game, design=TensorLeastSquares(), stop=AfterTasks(40), random_state=0)
    assert np.isnan(seen.standard_errors).all()
    assert "errors      not known" in repr(seen)


def test_too_few_utilities_give_no_values():
    game = TableGame(np.random.default_rng(0).normal(size=(128, 64)))
    for budget in (100, 300):
        with pytest.warns(UserWarning, match="too few for tensor least squares"):
            seen = value_game(
                game, design=TensorLeastSquares(), stop=AfterUtilities(budget), random_state=0
            )
        assert np.isnan(seen.values).all()


def test_the_default_budget_is_enough_for_values():
    game = TableGame(np.random.default_rng(0).normal(size=(2**9, 4)))
    seen = value_game(game, design=TensorLeastSquares(), random_state=0)
    assert not np.isnan(seen.values).any()


def test_a_rule_on_errors_alone_is_refused():
    game = TableGame(np.zeros((4, 4)))
    with pytest.raises(ValueError, match=r"no standard errors, so that .* give AfterUtilities"):
        value_game(game, design=TensorLeastSquares(), stop=StandardErrorBelow(0.1))


def test_margins_come_first_and_once():
    shape = (4, 3)
    sizes = tuple(np.ones(n + 1) / (n + 1) for n in shape)
    design = MarginsThenQuads(CoalitionQuads(shape, 0, sizes))
    pairs = [pair for task in range(design.n_margin_tasks) for pair in design(task)]
    assert len(pairs) == 2 * n_margins(shape) == 2 * (16 + 8)
    complete = {(*r.tolist(), *c.tolist()) for r, c in pairs if r.all() or c.all()}
    # Everybody with everybody is among both sides.
    assert len(complete) == 16 + 8 - 1


def test_other_semivalues_and_large_sides_are_refused():
    game = TableGame(np.zeros((4, 4)))
    rule = AfterTasks(1)
    with pytest.raises(ValueError, match="TensorLeastSquares estimates Shapley values"):
        value_game(game, design=TensorLeastSquares(), row_semivalue=Banzhaf(), stop=rule)
    with pytest.raises(ValueError, match=r"all 32,772 coalitions .* use GaussianProcess"):
        value_game(Counting(), (15, 2), design=TensorLeastSquares(), stop=rule)
