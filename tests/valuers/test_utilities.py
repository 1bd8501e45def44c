import time
from functools import partial

import numpy as np
import pytest

from cellworth import Runtime, value_game
from cellworth.games import TableGame
from cellworth.runtime import (
    MaxSeconds,
    MaxTasks,
    MaxUtilities,
    Processes,
    Serial,
    Threads,
)
from cellworth.sampling import (
    AntitheticPermutations,
    GaussianProcess,
)
from cellworth.sampling.estimators import average_centered_differences
from cellworth.sampling.samplers import PermutationTasks
from cellworth.valuers.utilities import Known, UtilityPlanner, look_up, pack_coalitions
from experiments.baselines import PlainPermutations
from matrices import rarely

GAME = TableGame(np.random.default_rng(0).normal(size=(256, 64)))
ESTIMATORS = [AntitheticPermutations(), PlainPermutations(), GaussianProcess()]


def run(budget=1, estimator=None, game=GAME, **settings):
    given = {"stop": MaxUtilities(budget), "random_state": 0} | settings
    return value_game(game, estimator=estimator, **given)


class Slow(TableGame):
    """A game whose utilities take their time."""

    seconds = 0.02
    asked = 0

    def value(self, rows, columns):
        Slow.asked += 1
        time.sleep(self.seconds)
        return super().value(rows, columns)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
@pytest.mark.parametrize("budget", [300, 500])
def test_a_budget_of_utilities_is_never_exceeded_and_nearly_used(estimator, budget):
    tally = run(budget, estimator).provenance.tally
    # A task of grids has up to 2 x 48 new ones; the whole table was looked at before.
    assert budget - 96 < tally.new <= budget


@pytest.mark.slow
@pytest.mark.parametrize("executor", [Threads(3), *rarely(Processes(2))], ids=repr)
def test_what_a_budget_buys_does_not_depend_on_workers(executor):
    alone, shared = run(600), run(600, runtime=Runtime(executor=executor))
    np.testing.assert_array_equal(shared.values, alone.values)
    assert shared.provenance.tally == alone.provenance.tally


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_a_run_in_parts_ends_where_a_run_in_one_would(estimator, tmp_path):
    journal = tmp_path / "run"
    for budget in (120, 250, 400):
        parts = run(budget, estimator, runtime=Runtime(checkpoint=journal))
    whole = run(400, estimator)
    np.testing.assert_array_equal(parts.values, whole.values)
    assert parts.provenance.sessions == whole.provenance.sessions
    assert parts.provenance.tally.new == whole.provenance.tally.new


def test_a_game_of_few_coalitions_ends_although_the_budget_is_not_used_up():
    small = TableGame(np.random.default_rng(0).normal(size=(4, 4)))
    seen = run(1000, game=small)
    assert seen.provenance.tally.new == 9
    assert seen.provenance.tally.utilities <= 10 * 1000 + 4


SMALL = TableGame(np.random.default_rng(0).normal(size=(16, 8)))
ALL_OF_SMALL = 15 * 7


@pytest.mark.parametrize("budget", [ALL_OF_SMALL, 10**6])
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_a_budget_for_all_coalitions_gives_exact_values_with_any_estimator(estimator, budget):
    seen, exact = run(budget, estimator, SMALL), value_game(SMALL)
    np.testing.assert_array_equal(seen.moments.mean, exact.moments.mean)
    assert seen.status == "exact"
    assert not seen.sampling_se.any()
    assert seen.provenance.tally.new == ALL_OF_SMALL


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_a_budget_that_lacks_one_coalition_gives_estimates(estimator):
    seen = run(ALL_OF_SMALL - 1, estimator, SMALL)
    assert seen.status == "estimated"
    assert seen.provenance.tally.new < ALL_OF_SMALL


@pytest.mark.slow
def test_time_may_end_a_run_whose_utilities_would_suffice():
    class Slowing(TableGame):
        asked = 0

        def value(self, rows, columns):
            self.asked += 1
            time.sleep(self.asked > 80)
            return super().value(rows, columns)

    assert run(game=SMALL, stop=MaxUtilities(200) | MaxSeconds(600)).status == "exact"
    cut = run(game=Slowing(SMALL.table), stop=MaxUtilities(200) | MaxSeconds(1.5))
    assert cut.status == "estimated"
    assert cut.sampling_se.min() > 0


def test_a_checkpoint_that_was_begun_with_less_goes_on_with_its_tasks(tmp_path):
    journal = tmp_path / "run"
    short = run(90, game=SMALL, runtime=Runtime(checkpoint=journal))
    longer = run(200, game=SMALL, runtime=Runtime(checkpoint=journal))
    assert longer.status == "estimated"
    assert longer.provenance.sessions[0].tasks > short.provenance.sessions[0].tasks
    with pytest.raises(ValueError, match=r"holds another run.*seed=0.*seed=1"):
        run(200, game=SMALL, runtime=Runtime(checkpoint=journal), random_state=1)


def test_a_finished_run_over_all_coalitions_is_found_in_its_checkpoint(tmp_path):
    whole = run(200, game=SMALL, runtime=Runtime(checkpoint=tmp_path))
    again = run(300, game=SMALL, runtime=Runtime(checkpoint=tmp_path))
    assert again.status == "exact"
    np.testing.assert_array_equal(again.values, whole.values)


def test_a_budget_below_one_task_gives_a_warning():
    with pytest.warns(UserWarning, match="the budget ended before the first task"):
        seen = run(20, AntitheticPermutations())
    assert np.isnan(seen.values).all()
    assert np.isnan(seen.sampling_se).all()


@pytest.mark.slow
@pytest.mark.parametrize("executor", [Serial(), Threads(2)], ids=repr)
def test_a_deadline_is_met_within_about_one_utility(executor):
    game, asked = Slow(GAME.table), Slow.asked
    with pytest.warns(UserWarning, match="the budget ended before the first task"):
        value_game(game, stop=MaxSeconds(0.5), random_state=0, runtime=Runtime(executor=executor))
    # Four utilities of full and empty coalitions come before, and each thread ends its last one.
    n_threads = 2 if executor == Threads(2) else 1
    assert Slow.asked - asked <= n_threads * (0.5 / Slow.seconds + 1) + 4


def test_a_clock_that_is_put_back_does_not_make_a_run_longer(monkeypatch):
    now, asked = time.time, Slow.asked
    monkeypatch.setattr(time, "time", lambda: now() - 86_400 * (Slow.asked > asked + 4))
    with pytest.warns(UserWarning, match="the budget ended before the first task"):
        value_game(
            Slow(GAME.table), stop=MaxSeconds(0.3), random_state=0, runtime=Runtime(Serial())
        )
    # A request is not left before its end: it takes about a second.
    assert Slow.asked - asked <= 1.3 / Slow.seconds + 6


@pytest.mark.slow
def test_what_was_computed_before_a_deadline_is_kept(tmp_path):
    game, runtime = Slow(GAME.table), Runtime(Serial(), tmp_path)
    Slow.asked = 0
    with pytest.warns(UserWarning, match="the budget ended"):
        value_game(game, stop=MaxSeconds(0.5), random_state=0, runtime=runtime)
    n_kept, Slow.asked = Slow.asked - 4, 0
    assert n_kept > 6
    value_game(game, stop=MaxTasks(1), random_state=0, runtime=runtime)
    alone, Slow.asked = Slow.asked, 0
    value_game(game, stop=MaxTasks(1), random_state=0, runtime=Runtime(Serial()))
    assert alone == Slow.asked - n_kept


def test_a_task_that_was_answered_in_time_counts_although_the_next_comes_too_late():
    sampler = PermutationTasks((8, 6), 0)
    (everything,) = pack_coalitions([(np.ones(8, dtype=bool), np.ones(6, dtype=bool))])
    nothing_known = {everything: Known(0.0)}
    book = UtilityPlanner(
        sampler, average_centered_differences, MaxSeconds(0.3), known=nothing_known
    )
    look = partial(look_up, GAME, (8, 6), 256, book.deadline)
    answers = [(request, look(request)) for request, _ in book.make_requests(0)]
    late = book.make_requests(1)
    time.sleep(0.35)
    assert list(late) == []
    booked = [book.add_answer(request, answer) for request, answer in answers]
    assert booked[-1].n_tasks == 1
    assert book.make_requests(2) is None


def test_the_provenance_tells_what_was_known():
    seen = run(1500)
    tally = seen.provenance.tally
    assert 0 < tally.reused < tally.utilities
    computed = tally.utilities - tally.reused
    assert f"{tally.new:,} different in {tally.utilities:,} lookups ({computed:,} computed" in repr(
        seen
    )
