import math
from dataclasses import replace

import numpy as np
import pytest

from cellworth.runtime import (
    MaxSeconds,
    MaxTasks,
    Progress,
    TargetPrecision,
    TargetStandardError,
)
from cellworth.runtime.progress import BlockErrors
from cellworth.sampling import Moments
from cellworth.sampling.moments import Contribution, Tally, append_margins


def progress(observations, seconds=1.0):
    """Progress after tasks that saw these (n, m) arrays."""
    state = Progress(0, 0.0, None)
    for seen in observations:
        moments = Moments.of(append_margins(np.asarray(seen, dtype=float)))
        state = state.after(Contribution(moments), seconds)
    return state


def noisy(n_tasks, spread, seed=0):
    rng = np.random.default_rng(seed)
    truth = np.arange(12.0).reshape(4, 3)
    return progress([truth + spread * rng.normal(size=truth.shape) for _ in range(n_tasks)])


def test_tasks_and_seconds_count_linearly():
    half = progress([np.ones((1, 1))] * 5, seconds=3.0)
    assert MaxTasks(10).share_done(half) == 0.5
    assert MaxSeconds(6).share_done(half) == 0.5


def test_any_of_two_rules_is_the_one_further_on():
    state = progress([np.ones((1, 1))] * 5, seconds=8.0)
    either, both = MaxTasks(10) | MaxSeconds(10), MaxTasks(10) & MaxSeconds(10)
    assert either.share_done(state) == 0.8
    assert both.share_done(state) == 0.5


def test_limits_hold_for_any_and_are_lifted_for_all():
    either, both = MaxTasks(10) | MaxSeconds(5), MaxTasks(10) & MaxSeconds(5)
    assert (either.most_tasks, either.most_seconds) == (10, 5)
    assert (both.most_tasks, both.most_seconds) == (math.inf, math.inf)
    assert (MaxTasks(3) & MaxTasks(5)).most_tasks == 5


def test_rules_join_only_with_rules():
    with pytest.raises(TypeError):
        MaxTasks(3) | 5
    with pytest.raises(TypeError):
        MaxTasks(3) & 5


def test_errors_are_done_when_the_largest_is_small_enough():
    state = noisy(100, spread=1.0)
    largest = state.largest_standard_error
    assert TargetStandardError(largest * 1.01).share_done(state) >= 1
    assert TargetStandardError(largest / 2).share_done(state) == pytest.approx(0.25)


def test_precision_is_the_mean_square_of_sampling_errors_beside_that_of_validation_errors():
    moments = noisy(40, spread=1.0).contribution.moments
    mean_square = np.mean(moments.sampling_se[:-1, :-1] ** 2)
    state = Progress(40, 1.0, None)
    errors = BlockErrors.of(moments, validation=4 * mean_square)
    assert errors.mean_square == pytest.approx(mean_square)
    state = replace(state, shards=(Tally(), errors))
    assert TargetPrecision(0.5).share_done(state) == pytest.approx(1)
    assert TargetPrecision(0.25).share_done(state) == pytest.approx(0.25)


def test_a_few_lucky_tasks_do_not_end_a_run():
    same = progress([np.ones((2, 2))] * 9)
    assert same.largest_standard_error == 0
    assert TargetStandardError(0.1).share_done(same) < 1
    enough = progress([np.ones((2, 2))] * 10)
    assert TargetStandardError(0.1).share_done(enough) >= 1


def test_an_unvisited_block_is_never_good_enough():
    state = progress([[[1.0, np.nan]]] * 50)
    assert state.largest_standard_error == math.inf
    assert TargetStandardError(10).share_done(state) == 0
