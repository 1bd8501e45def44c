import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from cellworth import ExactValuer, MonteCarloValuer, Runtime, load, value_game
from cellworth.runtime import MaxTasks, MaxUtilities, Processes, Serial, TargetPrecision
from cellworth.sampling import (
    AntitheticPermutations,
    Banzhaf,
    DetailedUtility,
    PlainPermutations,
)
from cellworth.sampling.moments import UtilityLog, _last_computed
from cellworth.valuers import model_valuers
from cellworth.valuers.model_valuers import _rule
from cellworth.valuers.settings import Settings

X, Y = load_iris(return_X_y=True)
GROUPS = {"row_groups": np.arange(150) % 4, "column_groups": ["sepal", "sepal", "petal", "petal"]}
DATA = {"X": X, "y": Y, "X_val": X, "y_val": Y, **GROUPS}


def valuer(**settings):
    return MonteCarloValuer(GaussianNB(), stop=MaxTasks(60), random_state=0, **settings)


@pytest.mark.slow
def test_estimates_agree_with_exact_values_within_their_errors():
    exact = ExactValuer(GaussianNB()).fit(**DATA).values_
    estimate = valuer().fit(**DATA)
    z = (estimate.values_ - exact) / estimate.standard_errors_
    assert np.abs(z).max() < 4.5


def test_a_drawn_seed_is_recorded_and_repeats_the_run():
    first = MonteCarloValuer(GaussianNB(), stop=MaxTasks(3)).fit(**DATA).valuation_
    seed = first.provenance.seed
    again = MonteCarloValuer(GaussianNB(), stop=MaxTasks(3), random_state=seed).fit(**DATA)
    np.testing.assert_array_equal(again.values_, first.values)


def test_a_random_state_object_gives_a_seed():
    runs = [
        MonteCarloValuer(GaussianNB(), stop=MaxTasks(2), random_state=np.random.RandomState(1)).fit(
            **DATA
        )
        for _ in range(2)
    ]
    np.testing.assert_array_equal(runs[0].values_, runs[1].values_)


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


def test_the_default_rule_waits_for_errors():
    rule = default_rule(PlainPermutations(), (8, 6))
    assert rule == (TargetPrecision() & MaxTasks(200)) | MaxUtilities(6144)


def default_rule(estimator, shape):
    settings = Settings.of()
    sampler = estimator.make_sampler(shape, settings.semivalues, 0)
    return _rule(None, estimator, sampler, shape, settings)


@pytest.mark.slow
def test_a_default_run_ends_at_the_precision_or_the_limit_of_its_size():
    groups = {"row_groups": np.arange(150) % 10, "column_groups": np.arange(4)}
    valuation = MonteCarloValuer(GaussianNB(), random_state=0).fit(**(DATA | groups)).valuation_
    budget, per_task = 128 * 10 * 4, 2 * 11 * 5
    sampling = root_mean_square(valuation.moments.sampling_se[:-1, :-1])
    if valuation.provenance.tally.new <= budget - per_task:
        assert sampling < 0.6 * root_mean_square(valuation.validation_se)
    else:
        assert sampling > 0.45 * root_mean_square(valuation.validation_se)
        assert valuation.provenance.tally.new <= budget


@pytest.mark.slow
def test_the_default_budget_is_exact_where_there_are_fewer_coalitions():
    groups = {"row_groups": np.arange(150) % 5, "column_groups": np.arange(4)}
    valuation = MonteCarloValuer(GaussianNB(), random_state=0).fit(**(DATA | groups)).valuation_
    exact = ExactValuer(GaussianNB()).fit(**(DATA | groups)).valuation_
    assert valuation.status == "exact"
    np.testing.assert_array_equal(valuation.values, exact.values)


@pytest.mark.slow
def test_provenance_tells_what_was_run(tmp_path):
    valuation = valuer().fit(**DATA).valuation_
    provenance = valuation.provenance
    assert provenance.seed == 0
    assert provenance.problem_spec["model"] == "sklearn.naive_bayes.GaussianNB"
    assert provenance.problem_spec["model_parameters"]["var_smoothing"] == "1e-09"
    assert len(provenance.problem_spec["data_sha256"]["X"]) == 64
    assert provenance.method["stop"] == "MaxTasks(n_tasks=60)"
    assert provenance.seconds > 0
    valuation.save(tmp_path)
    assert load(tmp_path).provenance == provenance


@pytest.mark.slow
@pytest.mark.parametrize("part", ["X", "y", "X_val", "y_val", "row_groups"])
def test_provenance_sees_any_change_of_the_data(part):
    before = valuer().fit(**DATA).valuation_.provenance.problem_spec
    changed = np.array(DATA[part], copy=True)
    changed[0] = changed[-1]
    after = valuer().fit(**(DATA | {part: changed})).valuation_.provenance.problem_spec
    assert before != after


def test_row_ids_and_names_reach_the_result():
    table = pd.DataFrame(X[:6], columns=["a", "b", "c", "d"], index=list("uvwxyz"))
    fitted = MonteCarloValuer(DecisionTreeClassifier(), stop=MaxTasks(2)).fit(
        table, [0, 1, 0, 1, 0, 1], X_val=table, y_val=[0, 1, 0, 1, 0, 1]
    )
    assert fitted.valuation_.row_labels.tolist() == list("uvwxyz")
    assert fitted.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    assert fitted.valuation_.loc["w", "c"] == fitted.values_[2, 2]
    refitted = fitted.fit(X[:6], [0, 1, 0, 1, 0, 1], X_val=X[:6], y_val=[0, 1, 0, 1, 0, 1])
    assert not hasattr(refitted, "feature_names_in_")


def test_a_valuer_can_be_cloned():
    copy = clone(valuer(empty="zero"))
    assert copy.empty == "zero"
    assert copy.stop == MaxTasks(60)


class Scored:
    """A game whose utilities are means of the scores of 32 validation rows."""

    shape = (5, 4)

    def __init__(self):
        rng = np.random.default_rng(3)
        weights = rng.random((32, 5)), rng.random((32, 4))
        self.weights = weights
        # Noise of single rows, and of all alike.
        self.rough = rng.normal(size=(32, 32, 16)) / 4 + rng.normal(size=(32, 16)) / 16

    def detailed_value(self, rows, columns):
        by_rows, by_columns = (
            np.sqrt(weights @ members)
            for weights, members in zip(self.weights, (rows, columns), strict=True)
        )
        code = rows @ (1 << np.arange(5)), columns @ (1 << np.arange(4))
        scores = by_rows * by_columns + self.rough[:, code[0], code[1]]
        return DetailedUtility(scores.mean(), (scores - scores.mean()) / np.sqrt(32 * 31))

    def value(self, rows, columns):
        return float(self.detailed_value(rows, columns))

    def problem_spec(self):
        return {"game": "scored"}


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


@pytest.mark.slow
def test_wide_sampling_errors_of_few_tasks_make_the_mean_square_a_little_too_small():
    few, more = (np.mean(ratios_to_exact(n_tasks, n_runs=60)) for n_tasks in (16, 48))
    assert 0.85 < few < more
    assert more == pytest.approx(1, abs=0.03)


def ratios_to_exact(n_tasks, n_runs=100, **given):
    """Mean squares of validation errors in short runs, divided by that of exact values."""
    exact = value_game(Scored(), semivalue=given.get("semivalue")).validation_se
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


def test_validation_errors_are_computed_a_few_times(monkeypatch):
    asked = []
    own = UtilityLog.mean_square_validation_se
    monkeypatch.setattr(
        UtilityLog,
        "mean_square_validation_se",
        lambda log: asked.append(log.n_tasks) or own(log),
    )
    play(TargetPrecision(1e-6) | MaxTasks(400), runtime={"progress": True})
    assert asked == sorted(set(asked))
    assert 5 < len(asked) < 8 + np.log(400 / 8) / np.log(1.2)


def first_line(monkeypatch, capsys, seconds, fit, **settings):
    """What a run prints if the whole table took so many seconds."""
    slow = model_valuers.corners
    monkeypatch.setattr(
        model_valuers, "corners", lambda game, shape: replace(slow(game, shape), seconds=seconds)
    )
    runtime = Runtime(Serial())
    with warnings.catch_warnings():
        # These runs are too short for differences between blocks.
        warnings.simplefilter("ignore")
        MonteCarloValuer(GaussianNB(), random_state=0, runtime=runtime, **settings).fit(**fit)
    # A busy machine prints its progress, too.
    return capsys.readouterr().err.partition("\n")[0]


def test_a_long_run_says_what_it_will_do(monkeypatch, capsys):
    groups = DATA | {"row_groups": np.arange(150) % 8, "column_groups": None}
    monkeypatch.setattr(model_valuers, "_UTILITIES_PER_BLOCK", 5)
    assert first_line(monkeypatch, capsys, 0.5, groups) == (
        "antithetic permutations: 8 x 4 blocks, at most 160 fits, about 1.33 min on 1 core; "
        "stop=MaxUtilities(n) sets another limit"
    )


def test_a_short_run_says_nothing(monkeypatch, capsys):
    assert not first_line(monkeypatch, capsys, 0.001, DATA)


def test_a_run_with_a_rule_gets_no_advice(monkeypatch, capsys):
    folds = {"X": X, "y": Y, "cv": 3, **GROUPS}
    line = first_line(monkeypatch, capsys, 0.5, folds, stop=MaxTasks(2))
    assert line == (
        "antithetic permutations: 4 x 2 blocks, at most 60 utilities of 3 fits each, "
        "about 30 s on 1 core"
    )


@pytest.mark.slow
def test_many_rows_are_better_grouped(monkeypatch, capsys):
    some = {"X": X[::10], "y": Y[::10], "X_val": X[1::10], "y_val": Y[1::10]}
    monkeypatch.setattr(model_valuers, "_MAX_BY_DEFAULT", 100)
    line = first_line(monkeypatch, capsys, 0.5, some)
    assert "15 x 4 blocks, at most 320 fits" in line
    assert "row_groups= makes fewer blocks" in line
    assert "KNNValuer values single rows" in line
    grouped = first_line(monkeypatch, capsys, 0.5, some | {"row_groups": np.arange(15) % 6})
    assert "row_groups= makes fewer blocks" in grouped
    assert "KNNValuer" not in grouped
