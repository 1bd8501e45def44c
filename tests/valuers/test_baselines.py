import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.naive_bayes import GaussianNB

from cellworth import ExactValuer, LeaveOneOutValuer, Runtime, load, value_game
from cellworth.data import Blocks
from cellworth.games import TableGame
from cellworth.runtime import MemoryCheckpoint
from cellworth.sampling import LeaveOneOut
from cellworth.valuers import RandomValuer
from cellworth.valuers.baselines import leave_one_out_valuation
from cellworth.valuers.settings import Settings

X, Y = load_iris(return_X_y=True)
DATA = {"X": X, "y": Y, "X_val": X, "y_val": Y, "row_groups": np.arange(150) % 5}
BY_DEFINITION = {"semivalue": LeaveOneOut()}


def leave_one_out(game, checkpoint=None):
    settings = Settings.of(LeaveOneOut(), runtime=Runtime(checkpoint=checkpoint))
    return leave_one_out_valuation(game, Blocks.from_shape(game.shape), settings)


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (4, 1), (2, 2), (5, 3), (3, 6)])
def test_leave_one_out_values_of_a_game_equal_the_definition(shape):
    rng = np.random.default_rng(sum(shape))
    game = TableGame(rng.normal(size=(1 << shape[0], 1 << shape[1])))
    valuation, truth = leave_one_out(game), value_game(game, **BY_DEFINITION)
    np.testing.assert_allclose(valuation.values, truth.values, rtol=0, atol=1e-12)
    np.testing.assert_allclose(valuation.rows().values, truth.rows().values, rtol=0, atol=1e-12)
    assert valuation.total == pytest.approx(truth.total, abs=1e-12)
    assert valuation.status == "exact"
    assert not valuation.sampling_se.any()


@pytest.mark.slow
@pytest.mark.parametrize("empty", ["prior", "zero"])
def test_leave_one_out_values_of_a_model_equal_exact_values(empty):
    ours = LeaveOneOutValuer(GaussianNB(), empty=empty).fit(**DATA).valuation_
    exact = ExactValuer(GaussianNB(), empty=empty, **BY_DEFINITION).fit(**DATA).valuation_
    np.testing.assert_allclose(ours.values, exact.values, rtol=0, atol=1e-12)
    assert np.abs(ours.values).max() > 1e-3
    assert ours.provenance.problem_spec == exact.provenance.problem_spec


def test_leave_one_out_looks_at_n_plus_one_times_m_plus_one_utilities():
    tally = LeaveOneOutValuer(GaussianNB()).fit(**DATA).valuation_.provenance.tally
    corners = 4
    assert tally.utilities == corners + (5 + 1) * (4 + 1)


def test_leave_one_out_prints_no_total_that_it_does_not_reach():
    text = repr(LeaveOneOutValuer(GaussianNB()).fit(**DATA).valuation_)
    assert "5 x 4 blocks, exact" in text
    assert "expected" not in text
    assert "only Shapley values add up to it" in text
    assert "errors      none from sampling;" in text


class BrokenOff(TableGame):
    left = 0

    def value(self, rows, columns):
        BrokenOff.left -= 1
        if BrokenOff.left == 0:
            raise KeyboardInterrupt
        return super().value(rows, columns)


def test_a_run_that_is_broken_off_keeps_the_rows_it_has_left_out_and_goes_on():
    table = np.random.default_rng(0).normal(size=(16, 8))
    truth, journal = leave_one_out(TableGame(table)).values, MemoryCheckpoint()
    game = BrokenOff(table)
    corners, task = 4, 3 + 1
    BrokenOff.left = corners + 3 * task + 1
    with pytest.warns(UserWarning, match="interrupted after 3 tasks"):
        part = leave_one_out(game, journal)
    assert part.status == "interrupted"
    np.testing.assert_array_equal(part.values[:2], truth[:2])
    assert np.isnan(part.values[2:]).all()
    assert np.isnan(part.rows().values).tolist() == [False, False, True, True]
    whole = leave_one_out(game, journal)
    assert whole.status == "exact"
    np.testing.assert_array_equal(whole.values, truth)


# random values --------------------------------------------------------------------------------


def test_random_values_are_uniform_and_their_seed_repeats_them():
    table, labels = np.zeros((400, 20)), np.arange(400) % 2
    values = RandomValuer(random_state=1).fit(table, labels).values_
    assert 0 <= values.min() < values.max() <= 1
    cells = values.size
    # The mean of uniform numbers is 1/2, with a standard error of 1 / sqrt(12 n).
    assert abs(values.mean() - 0.5) < 4.5 / np.sqrt(12 * cells)
    counts = np.histogram(values, bins=10, range=(0, 1))[0]
    assert np.abs(counts - cells / 10).max() < 4.5 * np.sqrt(cells * 0.1 * 0.9)
    np.testing.assert_array_equal(
        RandomValuer(random_state=1).fit(table, labels, X_val=table, y_val=labels).values_, values
    )
    assert (RandomValuer(random_state=2).fit(table, labels).values_ != values).all()


def test_a_drawn_seed_is_recorded():
    first = RandomValuer().fit(X, Y).valuation_
    again = RandomValuer(random_state=first.provenance.seed).fit(X, Y)
    np.testing.assert_array_equal(again.values_, first.values)


def test_random_values_have_names_groups_sums_and_no_errors(tmp_path):
    table = pd.DataFrame(X, columns=list("abcd"))
    valuation = RandomValuer(random_state=0).fit(table, Y, row_groups=np.arange(150) % 3).valuation_
    assert valuation.shape == (3, 4)
    assert valuation.column_labels.tolist() == list("abcd")
    np.testing.assert_allclose(valuation.rows().values, valuation.values.sum(axis=1))
    assert np.isnan(valuation.sampling_se).all()
    assert np.isnan(valuation.efficiency_residual)
    text = repr(valuation)
    assert "expected" not in text
    assert "empty" not in text
    assert "errors      not known" in text
    valuation.save(tmp_path)
    assert "NaN" not in (tmp_path / "manifest.json").read_text()
    loaded = load(tmp_path)
    np.testing.assert_array_equal(loaded.values, valuation.values)
    assert np.isnan(loaded.expected_total)
