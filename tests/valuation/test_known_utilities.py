"""Utilities of a run: what they hold, what they are worth as a game, and how they are saved."""

import numpy as np
import pandas as pd
import pytest
from sklearn.naive_bayes import GaussianNB

from cellworth import KNNValuer, ModelValuer, Runtime, load, value_game
from cellworth.games import ModelGame, TableGame
from cellworth.runtime import MaxTasks, MaxUtilities, Serial
from cellworth.sampling import (
    AntitheticPermutations,
    Banzhaf,
    Beta,
    GaussianProcess,
    LeaveOneOut,
    Shapley,
)
from enumeration import block_values, tabulate
from scored_game import Scored

RNG = np.random.default_rng(0)
GAME = TableGame(RNG.normal(size=(16, 8)))
X = pd.DataFrame(RNG.normal(size=(24, 2)), columns=["age", "pay"])
Y = (X["age"] > 0).to_numpy().astype(int)
DATA = {"X": X[:12], "y": Y[:12], "X_val": X[12:], "y_val": Y[12:]}
GROUPS = {"row_groups": np.arange(12) % 4}
SEMIVALUES = [Shapley(), Banzhaf(), Beta(4, 1), (Beta(1, 16), Shapley()), LeaveOneOut()]


class Counted(Scored):
    """Counts how often it is asked."""

    n_asked = 0

    def value(self, rows, columns):
        Counted.n_asked += 1
        return super().value(rows, columns)


def number(masks):
    return masks @ (1 << np.arange(masks.shape[1]))


@pytest.mark.parametrize("given", [{}, {"stop": MaxUtilities(80), "random_state": 0}], ids=str)
def test_they_are_the_distinct_coalitions_of_the_run(given):
    valuation = value_game(GAME, **given)
    utilities = valuation.utilities
    rows, columns = number(utilities.rows), number(utilities.columns)
    np.testing.assert_array_equal(utilities.values, GAME.table[rows, columns])
    assert len({*zip(rows, columns, strict=True)}) == len(rows)
    assert np.count_nonzero(rows * columns) == valuation.provenance.tally.new


@pytest.mark.parametrize("semivalue", SEMIVALUES, ids=str)
def test_values_of_all_coalitions_are_those_of_a_new_exact_run(semivalue):
    known = value_game(GAME, estimator="exact").utilities
    again = value_game(known, semivalue=semivalue)
    exact = value_game(GAME, semivalue=semivalue, estimator="exact")
    np.testing.assert_allclose(again.values, exact.values, atol=1e-12)
    pair = semivalue if isinstance(semivalue, tuple) else (semivalue, semivalue)
    np.testing.assert_allclose(again.values, block_values(GAME.table, (4, 3), *pair), atol=1e-12)
    assert again.status == "exact"
    assert again.provenance.problem_spec == exact.provenance.problem_spec


def test_no_utility_is_computed_again_and_validation_errors_stay():
    # Where a utility is slow, as on a busy machine, processes would be the default.
    here = Runtime(Serial())
    valuation = value_game(Counted(), runtime=here)
    n_asked = Counted.n_asked
    again = value_game(valuation.utilities, semivalue=Banzhaf())
    assert Counted.n_asked == n_asked
    anew = value_game(Counted(), semivalue=Banzhaf(), estimator="exact", runtime=here)
    np.testing.assert_allclose(again.values, anew.values, atol=1e-12)
    np.testing.assert_allclose(again.validation_se, anew.validation_se, rtol=1e-6)


@pytest.mark.parametrize("estimator", [AntitheticPermutations(), GaussianProcess()], ids=repr)
@pytest.mark.parametrize("semivalue", [Banzhaf(), Beta(4, 1)], ids=str)
def test_a_part_of_the_coalitions_gives_estimates_with_errors(estimator, semivalue):
    game = TableGame(tabulate(Scored(), (5, 4)))
    run = {"estimator": estimator, "stop": MaxUtilities(300), "random_state": 0}
    known = value_game(game, **run).utilities
    assert len(known.values) < 512
    again = value_game(known, semivalue=semivalue)
    exact = value_game(game, semivalue=semivalue, estimator="exact")
    assert again.status == "estimated"
    away = again.values - exact.values
    if semivalue == Banzhaf():
        z = away / again.sampling_se
        assert np.abs(z).max() < 4.5
        assert np.sqrt(np.mean(z**2)) < 2
    else:
        # Intervals of other semivalues were not shown to hold.
        assert np.isnan(again.sampling_se).all()
        assert np.sqrt(np.mean(away**2)) < 0.4 * np.std(exact.values)


def test_a_process_reads_all_known_utilities_as_its_own_run_did():
    run = {"estimator": GaussianProcess(), "stop": MaxUtilities(60), "random_state": 0}
    first = value_game(GAME, **run)
    again = value_game(first.utilities)
    np.testing.assert_allclose(again.values, first.values, rtol=1e-3, atol=1e-3)


def test_the_same_run_over_known_utilities_is_the_same_to_the_bit():
    run = {"stop": MaxTasks(3), "random_state": 0, "estimator": AntitheticPermutations()}
    first = value_game(GAME, **run)
    np.testing.assert_array_equal(value_game(first.utilities, **run).values, first.values)


def test_a_coalition_that_was_not_evaluated_is_named_in_one_sentence():
    known = value_game(GAME, stop=MaxTasks(1), random_state=0).utilities
    with pytest.raises(ValueError, match=r"rows and . columns is not known, only those of .* othe"):
        value_game(known, estimator="exact")


def test_coalitions_whose_sides_are_not_known_alone_are_refused():
    known = value_game(GAME, semivalue=Banzhaf(), stop=MaxTasks(1), random_state=0).utilities
    with pytest.raises(ValueError, match=r"what their rows and their columns are worth alone"):
        value_game(known)


def test_frames_name_the_members():
    valuer = ModelValuer(GaussianNB()).fit(**DATA, **GROUPS)
    frame = valuer.valuation_.utilities.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert [*frame] == ["row 0", "row 1", "row 2", "row 3", "column age", "column pay", "utility"]
    game = ModelGame(GaussianNB(), **DATA, **GROUPS)
    for line in frame.to_numpy()[[0, 5, 40]]:
        assert game.value(line[:4].astype(bool), line[4:6].astype(bool)) == line[6]


def test_saved_utilities_are_the_same_and_give_the_same_values(tmp_path):
    valuation = ModelValuer(GaussianNB()).fit(**DATA, **GROUPS).valuation_
    valuation.save(tmp_path, utilities=True)
    loaded = load(tmp_path).utilities
    for name in ("rows", "columns", "values", "deviations"):
        kept, found = getattr(valuation.utilities, name), getattr(loaded, name)
        np.testing.assert_array_equal(found, kept)
        assert found.dtype == kept.dtype
    one, other = (value_game(known, semivalue=Banzhaf()) for known in (valuation.utilities, loaded))
    np.testing.assert_array_equal(one.values, other.values)
    np.testing.assert_array_equal(one.validation_se, other.validation_se)
    assert one.provenance.problem_spec == other.provenance.problem_spec


def test_utilities_without_deviations_are_saved_too(tmp_path):
    valuation = value_game(GAME)
    valuation.save(tmp_path, utilities=True)
    np.testing.assert_array_equal(load(tmp_path).utilities.values, valuation.utilities.values)
    valuation.save(tmp_path)
    assert load(tmp_path).utilities is None
    assert not [*tmp_path.glob("utilities*")]


def test_a_changed_file_is_refused(tmp_path):
    value_game(GAME).save(tmp_path, utilities=True)
    (file,) = tmp_path.glob("utilities-*")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match="restore it from a copy"):
        load(tmp_path)


def test_nearest_neighbors_have_none():
    valuation = KNNValuer(2).fit(**DATA).valuation_
    assert valuation.utilities is None
    with pytest.raises(ValueError, match="has no utilities; leave out utilities=True"):
        valuation.save("values", utilities=True)


def test_a_merge_has_none():
    ones = [value_game(GAME, stop=MaxTasks(2), random_state=seed) for seed in (0, 1)]
    assert ones[0].merge(ones[1]).utilities is None


def test_a_resumed_run_has_the_same(tmp_path):
    run = {"random_state": 0, "runtime": Runtime(checkpoint=tmp_path)}
    value_game(Scored(), stop=MaxTasks(1), **run)
    resumed = value_game(Scored(), stop=MaxTasks(3), **run).utilities
    whole = value_game(Scored(), stop=MaxTasks(3), random_state=0).utilities
    for name in ("coalitions", "values", "deviations"):
        np.testing.assert_array_equal(getattr(resumed, name), getattr(whole, name))
