"""The engine, without any game: tasks are numbers, contributions are arrays."""

import math
import threading
import time

import numpy as np
import pytest

from cellworth.data.io import pack
from cellworth.runtime import (
    DirectoryCheckpoint,
    MaxSeconds,
    MaxTasks,
    Serial,
    TargetStandardError,
    Threads,
    engine,
)
from cellworth.runtime.engine import TaskPlanner, run
from cellworth.sampling import Moments
from cellworth.sampling.moments import Contribution, Tally, append_margins


def noise(task):
    seen = np.random.default_rng(task).normal(size=(2, 2))
    return Contribution(Moments.of(append_margins(seen)), Tally(1))


def start(stop, contribution=noise, executor=None, checkpoint=None, **settings):
    return run(
        contribution,
        stop=stop,
        planner=TaskPlanner(Contribution),
        executor=executor or Serial(),
        checkpoint=checkpoint,
        identity={"name": "this run"},
        tasks_per_round=8,
        **settings,
    )


@pytest.mark.parametrize("n_tasks", [1, 7, 8, 9, 16, 30])
def test_a_limit_of_tasks_is_met_exactly(n_tasks):
    outcome = start(MaxTasks(n_tasks))
    assert outcome.tasks == n_tasks == outcome.contribution.tally.utilities
    assert not outcome.interrupted


def test_contributions_are_folded_in_the_order_of_tasks():
    folded = noise(0)
    for task in range(1, 20):
        folded = folded.merge(noise(task))
    outcome = start(MaxTasks(20), executor=Threads(2))
    assert outcome.contribution.moments.mean.tobytes() == folded.moments.mean.tobytes()


def test_statistical_rules_are_asked_at_the_end_of_rounds():
    outcome = start(TargetStandardError(0.2))
    assert outcome.tasks % 8 == 0
    errors = outcome.contribution.moments.sampling_se[:-1, :-1]
    assert errors.max() <= 0.2


def test_a_deadline_holds_within_a_round():
    def slow(task):
        time.sleep(0.02)
        return noise(task)

    outcome = start(MaxSeconds(0.05), slow)
    assert 1 <= outcome.tasks < 8
    assert not outcome.interrupted


@pytest.mark.parametrize("executor", [Serial(), Threads(2)], ids=repr)
def test_a_stopped_run_starts_no_further_task(executor):
    begun = []

    def slow(task):
        begun.append(task)
        time.sleep(0.05)
        return noise(task)

    start(MaxSeconds(0.01), slow, executor)
    settled = len(begun)
    time.sleep(0.3)
    assert len(begun) == settled
    assert settled <= 8


@pytest.mark.parametrize(("n_tasks", "entries"), [(19, [8, 16, 19]), (16, [8, 16])])
def test_the_checkpoint_is_written_after_every_round_and_at_the_end(
    n_tasks, entries, monkeypatch, tmp_path
):
    # However long a write takes: that they keep to a share of the time is another matter.
    monkeypatch.setattr(engine, "_SHARE_OF_TIME", math.inf)
    written = []

    class RecordingCheckpoint(DirectoryCheckpoint):
        def write_state(self, n_tasks, *state):
            super().write_state(n_tasks, *state)
            written.append(n_tasks)

    start(MaxTasks(n_tasks), checkpoint=RecordingCheckpoint(tmp_path / "run"))
    assert written == entries


@pytest.mark.parametrize("cut", [1, 8, 11, 12, 23])
def test_a_run_in_parts_stops_at_the_task_at_which_a_run_in_one_stops(cut, tmp_path):
    whole = start(TargetStandardError(0.2))
    checkpoint = DirectoryCheckpoint(tmp_path / "run")
    start(MaxTasks(cut), checkpoint=checkpoint)
    assert start(TargetStandardError(0.2), checkpoint=checkpoint).tasks == whole.tasks > 23


@pytest.mark.parametrize("executor", [Serial(), Threads(4)], ids=repr)
def test_a_task_beyond_the_stop_may_fail(executor):
    def fails_later(task):
        return noise(task) if task < 40 else 1 / 0

    whole = start(TargetStandardError(0.2), noise)
    assert whole.tasks == 40
    assert start(TargetStandardError(0.2), fails_later, executor).tasks == whole.tasks


def test_what_was_done_before_an_error_is_not_lost(tmp_path):
    def broken_later(task):
        return noise(task) if task < 11 else 1 / 0

    checkpoint = DirectoryCheckpoint(tmp_path / "run")
    with pytest.raises(ZeroDivisionError):
        start(MaxTasks(20), broken_later, checkpoint=checkpoint)
    assert checkpoint.read_state()[0] == 11


def test_time_of_earlier_sessions_counts_in_the_outcome_only(tmp_path):
    checkpoint = DirectoryCheckpoint(tmp_path / "run")
    checkpoint.open({"name": "this run"})
    checkpoint.write_state(3, 1000.0, pack(noise(0)))
    outcome = start(MaxTasks(5) | MaxSeconds(500), checkpoint=checkpoint)
    assert outcome.tasks == 5
    assert 1000.0 < outcome.seconds < 1100.0


def test_rounds_are_told_to_those_who_ask():
    seen = []
    start(MaxTasks(20), on_round=seen.append)
    assert [progress.tasks for progress in seen] == [8, 16]
    assert 0 < seen[1].largest_standard_error < 1
    with pytest.raises(AttributeError):
        seen[0].tasks = 3


def test_an_error_of_a_listener_ends_the_run_with_what_was_done(tmp_path):
    checkpoint = DirectoryCheckpoint(tmp_path / "run")

    def fail(progress):
        raise ZeroDivisionError("the tracker is down")

    with pytest.raises(ZeroDivisionError, match="the tracker is down"):
        start(MaxTasks(20), on_round=fail, checkpoint=checkpoint)
    assert checkpoint.read_state()[0] == 8


@pytest.mark.slow
def test_requests_in_flight_are_bounded_while_one_takes_long():
    begun, before, release = [], [], threading.Event()

    def first_is_slow(task):
        begun.append(task)
        if task == 0:
            release.wait(60)
        return noise(task)

    def let_go():
        n_begun = -1
        while not begun or n_begun < len(begun):
            n_begun = len(begun)
            time.sleep(0.5)
        before.extend(begun)
        release.set()

    waiting = threading.Thread(target=let_go)
    waiting.start()
    outcome = start(MaxTasks(200), first_is_slow, Threads(2))
    waiting.join()
    assert outcome.tasks == len(begun) == 200
    # Four may be in flight, and four for each of these may wait for their turn.
    assert len(before) == 16
