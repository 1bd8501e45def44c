from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris, load_wine
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from cellworth import ModelValuer, Runtime, value_game
from cellworth.games import ModelGame, TableGame
from cellworth.runtime import (
    MaxSeconds,
    MaxTasks,
    MaxUtilities,
    Processes,
    Serial,
    TargetPrecision,
)
from cellworth.sampling import (
    AntitheticPermutations,
    Banzhaf,
    Estimator,
    LeaveOneOut,
    Moments,
    Shapley,
)
from cellworth.sampling.samplers import n_utilities
from cellworth.valuers.model_valuer import _make_rule
from cellworth.valuers.utility_log import _last_computed
from enumeration import block_values, tabulate
from experiments.baselines import PlainPermutations
from scored_game import Scored

X, Y = load_iris(return_X_y=True)
GROUPS = {"row_groups": np.arange(150) % 4, "column_groups": ["sepal", "sepal", "petal", "petal"]}
DATA = {"X": X, "y": Y, "X_val": X, "y_val": Y, **GROUPS}


class CountingNB(GaussianNB):
    """Counts the fits of all its copies."""

    n_fits = 0

    def fit(self, *given, **named):
        CountingNB.n_fits += 1
        return super().fit(*given, **named)


def count_fits(run):
    before = CountingNB.n_fits
    run()
    return CountingNB.n_fits - before


# Exact or estimated ---------------------------------------------------------------------------


@pytest.mark.parametrize("semivalue", [Shapley(), Banzhaf(), LeaveOneOut()], ids=repr)
@pytest.mark.parametrize(
    "given", [{}, {"estimator": "exact"}, {"stop": MaxUtilities(45)}], ids=repr
)
def test_values_are_exact_where_the_budget_covers_all_coalitions(semivalue, given):
    valuer = ModelValuer(GaussianNB(), semivalue=semivalue, random_state=0, **given).fit(**DATA)
    table = tabulate(ModelGame(GaussianNB(), **DATA), (4, 2))
    truth = block_values(table, (4, 2), semivalue, semivalue)
    np.testing.assert_allclose(valuer.values_, truth, atol=1e-12)
    assert valuer.valuation_.status == "exact"
    assert "4 x 2 blocks, exact" in repr(valuer.valuation_)
    assert not valuer.standard_errors_.any()


def test_a_budget_that_is_one_short_of_all_coalitions_estimates_and_says_so():
    valuer = ModelValuer(GaussianNB(), stop=MaxUtilities(44), random_state=0).fit(**DATA)
    assert valuer.valuation_.status == "estimated"
    assert "4 x 2 blocks, estimated" in repr(valuer.valuation_)
    assert valuer.valuation_.provenance.tally.new <= 44


def test_all_coalitions_cost_the_same_fits_however_they_are_asked_for():
    for given in ({}, {"estimator": "exact"}, {"stop": MaxUtilities(45)}):
        valuer = ModelValuer(CountingNB(), random_state=0, runtime=Runtime(Serial()), **given)
        # The whole table is trained on once more, before the run.
        assert count_fits(lambda valuer=valuer: valuer.fit(**DATA)) == n_utilities((4, 2))


WINE = dict(zip("Xy", load_wine(return_X_y=True), strict=True))
IMPOSSIBLE = {
    "too many coalitions": ({"estimator": "exact"}, r"need about 2\^191 utilities"),
    "beyond the limit that was set": (
        {"estimator": "exact", "stop": MaxUtilities(30_000), "semivalue": (None, LeaveOneOut())},
        "limit is 30,000",
    ),
    "too many left out": (
        {"estimator": "exact", "stop": MaxUtilities(2505), "semivalue": LeaveOneOut()},
        "need 2,506 utilities",
    ),
    "exact values in a minute": ({"estimator": "exact", "stop": MaxSeconds(60)}, "MaxUtilities"),
    "no estimator": ({"estimator": "exactly"}, "'exact' for all coalitions"),
    "no rule": ({"stop": 60}, "stop must be a rule"),
    "permutations of other values": (
        {"estimator": AntitheticPermutations(), "semivalue": Banzhaf()},
        "estimates Shapley values",
    ),
    "a checkpoint without a seed": (
        {"runtime": Runtime(checkpoint="run")},
        "random_state must be an integer",
    ),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_no_model_is_trained_for_a_run_that_is_impossible(case):
    given, message = IMPOSSIBLE[case]
    before = CountingNB.n_fits
    for run in (ModelValuer(CountingNB(), **given).fit, partial(play_wine, given)):
        with pytest.raises((TypeError, ValueError), match=message):
            run(**WINE)
    assert CountingNB.n_fits == before


def play_wine(given, X, y):
    value_game(ModelGame(CountingNB(), X, y), **given)


def test_the_limit_of_exact_values_counts_coalitions_that_are_not_empty():
    settings = {"estimator": "exact", "runtime": Runtime(Serial(), progress=False)}
    with pytest.raises(ValueError, match="need 45 utilities, and the limit is 44"):
        ModelValuer(GaussianNB(), stop=MaxUtilities(44), **settings).fit(**DATA)
    ModelValuer(GaussianNB(), stop=MaxUtilities(45), **settings).fit(**DATA)


def test_values_of_a_game_at_a_high_level_are_not_lost_in_rounding():
    table = np.random.default_rng(0).normal(size=(16, 16))
    plain = value_game(TableGame(table), (4, 4)).values
    high = value_game(TableGame(table + 1e6), (4, 4)).values
    # 1e6 leaves ten digits for each utility; the values keep them.
    assert np.abs(plain - high).max() < 1e-9


class BrokenOff(TableGame):
    left = 0

    def value(self, rows, columns):
        BrokenOff.left -= 1
        if BrokenOff.left == 0:
            raise KeyboardInterrupt
        return super().value(rows, columns)


def test_an_exact_run_that_is_broken_off_has_no_values_unless_it_sampled_first():
    game = BrokenOff(np.random.default_rng(0).normal(size=(16, 8)))
    settings = {"random_state": 0, "runtime": Runtime(Serial(), progress=False)}
    BrokenOff.left = 90
    with (
        pytest.raises(KeyboardInterrupt, match="exact values need all coalitions"),
        pytest.warns(UserWarning, match="interrupted after 1 tasks"),
    ):
        value_game(game, estimator="exact", **settings)
    BrokenOff.left = 90
    with pytest.warns(UserWarning, match="interrupted after"):
        part = value_game(game, **settings)
    assert part.status == "interrupted"
    assert not np.isnan(part.values).any()


# Leave one out --------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (4, 1), (2, 2), (5, 3), (3, 6)])
def test_leave_one_out_values_of_a_game_equal_the_definition(shape):
    rng = np.random.default_rng(sum(shape))
    game = TableGame(rng.normal(size=(1 << shape[0], 1 << shape[1])))
    valuation = value_game(game, semivalue=LeaveOneOut())
    truth = block_values(game.table, shape, LeaveOneOut(), LeaveOneOut())
    np.testing.assert_allclose(valuation.values, truth, rtol=0, atol=1e-12)
    np.testing.assert_allclose(valuation.rows().values, truth.sum(axis=1), rtol=0, atol=1e-12)
    assert valuation.status == "exact"
    assert not valuation.sampling_se.any()


@pytest.mark.parametrize("given", [{}, {"stop": MaxUtilities(15)}, {"estimator": "exact"}])
def test_leave_one_out_looks_at_n_plus_one_times_m_plus_one_utilities(given):
    valuer = ModelValuer(GaussianNB(), semivalue=LeaveOneOut(), **given).fit(**DATA)
    corners = 4
    assert valuer.valuation_.provenance.tally.utilities == corners + (4 + 1) * (2 + 1)


def test_leave_one_out_is_estimated_if_the_budget_is_too_small():
    game = TableGame(np.random.default_rng(0).normal(size=(64, 16)))
    stop = MaxUtilities(34)
    valuation = value_game(game, semivalue=LeaveOneOut(), stop=stop, random_state=0)
    assert valuation.status == "estimated"
    assert np.isnan(valuation.sampling_se).all()


def test_a_run_that_is_broken_off_keeps_the_rows_it_has_left_out_and_goes_on(tmp_path):
    def leave_one_out(game):
        return value_game(game, semivalue=LeaveOneOut(), runtime=Runtime(checkpoint=journal))

    table, journal = np.random.default_rng(0).normal(size=(16, 8)), None
    truth, journal = leave_one_out(TableGame(table)).values, tmp_path / "run"
    game = BrokenOff(table)
    corners, task = 4, 3 + 1
    BrokenOff.left = corners + 3 * task + 1
    with pytest.warns(UserWarning, match="interrupted after 3 tasks"):
        part = leave_one_out(game)
    assert part.status == "interrupted"
    np.testing.assert_array_equal(part.values[:2], truth[:2])
    assert np.isnan(part.values[2:]).all()
    assert np.isnan(part.rows().values).tolist() == [False, False, True, True]
    whole = leave_one_out(game)
    assert whole.status == "exact"
    np.testing.assert_array_equal(whole.values, truth)


# Estimates ------------------------------------------------------------------------------------


def valuer(**settings):
    return ModelValuer(GaussianNB(), stop=MaxTasks(60), random_state=0, **settings)


def test_a_drawn_seed_is_recorded_and_repeats_the_run():
    first = ModelValuer(GaussianNB(), stop=MaxTasks(3)).fit(**DATA).valuation_
    given = first.provenance.sessions[0].seed, np.random.RandomState(1), np.random.RandomState(1)
    runs = [ModelValuer(GaussianNB(), stop=MaxTasks(3), random_state=seed) for seed in given]
    again, *others = [run.fit(**DATA).values_ for run in runs]
    np.testing.assert_array_equal(again, first.values)
    np.testing.assert_array_equal(*others)


@pytest.mark.parametrize(
    ("shape", "rule"),
    [
        # 128 utilities per block cover all coalitions.
        ((5, 4), MaxUtilities(2560)),
        ((8, 6), TargetPrecision() | MaxUtilities(6144)),
        ((20, 6), TargetPrecision() | MaxUtilities(15_360)),
        ((100, 13), TargetPrecision() | MaxUtilities(2**14)),
        # Two tasks are more.
        ((1000, 14), TargetPrecision() | MaxUtilities(2 * 2 * 1001 * 15)),
    ],
)
def test_the_default_rule_follows_from_the_size(shape, rule):
    assert default_rule(AntitheticPermutations(), shape) == rule


def default_rule(estimator, shape):
    sampler = estimator.make_sampler(shape, (Shapley(), Shapley()), 0)
    return _make_rule(None, sampler, shape, n_utilities(shape))


@pytest.mark.parametrize("part", ["X", "y", "X_val", "y_val", "row_groups"])
def test_provenance_sees_any_change_of_the_data(part):
    changed = np.array(DATA[part], copy=True)
    changed[0] = changed[-1]
    assert valuer().problem_spec(**DATA) != valuer().problem_spec(**(DATA | {part: changed}))


def test_row_ids_and_names_reach_the_result():
    table = pd.DataFrame(X[:6], columns=["a", "b", "c", "d"], index=list("uvwxyz"))
    fitted = ModelValuer(DecisionTreeClassifier(), stop=MaxTasks(2)).fit(
        table, [0, 1, 0, 1, 0, 1], X_val=table, y_val=[0, 1, 0, 1, 0, 1]
    )
    assert fitted.valuation_.row_labels.tolist() == list("uvwxyz")
    assert fitted.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    assert fitted.valuation_.loc["w", "c"] == fitted.values_[2, 2]
    refitted = fitted.fit(X[:6], [0, 1, 0, 1, 0, 1], X_val=X[:6], y_val=[0, 1, 0, 1, 0, 1])
    assert not hasattr(refitted, "feature_names_in_")


def play(stop, executor=None, **settings):
    """Value the game; return the valuation, and the progress after every round."""
    runtime = {"executor": executor or Serial(), "progress": False} | settings.pop("runtime", {})
    rounds = []
    valuation = value_game(
        Scored(),
        stop=stop,
        runtime=Runtime(**runtime, on_round=rounds.append),
        **{"random_state": 0} | settings,
    )
    return valuation, rounds


def root_mean_square(errors):
    return np.sqrt(np.mean(errors**2))


def test_errors_are_computed_at_ever_longer_intervals():
    computed = [_last_computed(n_tasks) for n_tasks in range(1, 2000)]
    assert computed[:13] == [1, 2, 3, 4, 5, 6, 7, 8, 8, 10, 10, 12, 12]
    assert all(0.8 * n <= last <= n for n, last in enumerate(computed, start=1))
    assert len(set(computed)) < 8 + np.log(2000 / 8) / np.log(1.2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("estimator", "semivalue"),
    [(PlainPermutations(), None), (None, Banzhaf())],
    ids=lambda given: type(given).__name__,
)
def test_the_mean_square_of_validation_errors_is_unbiased(estimator, semivalue):
    ratios = ratios_to_exact(16, estimator=estimator, semivalue=semivalue)
    assert abs(np.mean(ratios) - 1) < 4.5 * np.std(ratios, ddof=1) / np.sqrt(len(ratios))


def ratios_to_exact(n_tasks, n_runs=50, **given):
    """Mean squares of validation errors in short runs, divided by that of exact values."""
    exact = value_game(Scored(), semivalue=given.get("semivalue"), estimator="exact").validation_se
    last = [play(MaxTasks(n_tasks), random_state=seed, **given)[1][-1] for seed in range(n_runs)]
    squares = [progress.contribution.mean_square_validation_se() for progress in last]
    return np.array(squares) / root_mean_square(exact) ** 2


def test_the_mean_square_is_not_known_before_every_block_has_two_observations():
    _, rounds = play(MaxTasks(16))
    log = rounds[-1].contribution
    assert np.isnan(replace(log, n_tasks=1).mean_square_validation_se())
    assert replace(log, n_tasks=2).mean_square_validation_se() >= 0


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.5, 0.3])
def test_a_run_ends_when_sampling_errors_are_small_beside_validation_errors(share):
    valuation, rounds = play(TargetPrecision(share) | MaxTasks(2000))
    assert 10 <= rounds[-1].tasks < 2000
    sampling = root_mean_square(valuation.moments.sampling_se[:-1, :-1])
    assert 0.5 * share < sampling / root_mean_square(valuation.validation_se) < 1.2 * share


@pytest.mark.slow
def test_a_run_ends_at_the_same_task_after_a_resume_and_in_processes(tmp_path):
    rule = TargetPrecision() | MaxTasks(2000)
    whole, rounds = play(rule)
    assert rounds[-1].tasks > 60
    for n_tasks in (13, 33, 61):
        checkpoint = {"checkpoint": tmp_path / str(n_tasks)}
        play(MaxTasks(n_tasks), runtime=checkpoint)
        resumed, _ = play(rule, runtime=checkpoint)
        assert resumed.provenance.sessions == whole.provenance.sessions
        np.testing.assert_array_equal(resumed.values, whole.values)
    in_processes, _ = play(rule, Processes(2))
    np.testing.assert_array_equal(in_processes.values, whole.values)


class OfBlocks(Estimator):
    """An estimator whose Moments lack the sums."""

    def __init__(self, sampler=None):
        self.sampler = sampler

    def make_sampler(self, shape, semivalues, seed):
        return self.sampler or AntitheticPermutations().make_sampler(shape, semivalues, seed)

    def estimate(self, semivalues, total):
        return lambda tasks, utilities: Moments.of_all([np.zeros((4, 2))])


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (OfBlocks(), r"own estimator must return Moments of shape \(5, 3\), .* got \(4, 2\)"),
        (OfBlocks(sampler=[1]), r"an object with utilities_per_task .* got \[1\]"),
    ],
)
def test_an_estimator_of_ones_own_that_is_wrong_gets_one_sentence(estimator, message):
    game = TableGame(np.zeros((16, 4)))
    with pytest.raises(TypeError, match=message):
        value_game(game, estimator=estimator, stop=MaxTasks(3), random_state=0)
