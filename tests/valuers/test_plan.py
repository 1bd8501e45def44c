"""What a run of KNNValuer will cost, told beforehand."""

import math

import numpy as np
import pytest

from cellworth import KNNValuer, Runtime
from cellworth.runtime import MaxSeconds, MaxTasks, Serial
from cellworth.sampling import LeverageSampler


def table(n_rows, n_columns):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, n_columns))
    return X, (X[:, 0] > 0).astype(int)


def test_a_plan_counts_the_rankings_of_the_run():
    X, y = table(40, 4)
    plan = KNNValuer(3).plan(X, y)
    tally = KNNValuer(3).fit(X, y).valuation_.provenance.tally
    assert plan.utilities == tally.utilities == 40 * 15
    assert plan.sampler == "ExhaustiveSampler"
    assert plan.shape == (40, 4)


def test_sweeps_multiply_what_is_ranked():
    X, y = table(60, 6)
    asked = {"sampler": LeverageSampler(20), "random_state": 0}
    plan = KNNValuer(3, n_passes=3, **asked).plan(X, y)
    tally = KNNValuer(3, n_passes=3, **asked).fit(X, y).valuation_.provenance.tally
    # A draw may hold a coalition more than was asked for.
    assert plan.utilities == pytest.approx(tally.utilities, rel=0.1)


def test_a_rule_alone_sets_no_number_but_a_time():
    X, y = table(60, 6)
    valuer = KNNValuer(3, sampler=LeverageSampler(20), stop=MaxSeconds(7))
    plan = valuer.plan(X, y)
    assert plan.utilities == math.inf
    assert plan.seconds == 7
    tasks = KNNValuer(3, sampler=LeverageSampler(20), stop=MaxTasks(2)).plan(X, y)
    assert tasks.utilities == pytest.approx(2 * tasks.utilities_per_task)


@pytest.mark.alone
@pytest.mark.parametrize(("n_rows", "n_columns"), [(400, 10), (1000, 8)])
def test_the_time_is_that_of_a_run_within_a_factor_of_three(n_rows, n_columns):
    X, y = table(n_rows, n_columns)
    valuer = KNNValuer(5, runtime=Runtime(executor=Serial()))
    plan = valuer.plan(X, y)
    seconds = valuer.fit(X, y).valuation_.provenance.seconds
    assert seconds / 3 < plan.seconds < 3 * seconds
