"""A checkpoint in a folder: what it stores, when small files are joined, and a full disk."""

import os
import signal

import numpy as np
import pytest

from cellworth import Runtime, value_game
from cellworth.data.io import pack, unpack
from cellworth.games import TableGame
from cellworth.runtime import (
    DirectoryCheckpoint,
    MaxTasks,
    MaxUtilities,
    Serial,
    checkpoint,
)
from cellworth.runtime.engine import TaskPlanner, run
from cellworth.sampling import Moments
from cellworth.sampling.moments import Contribution, Tally, append_margins

IDENTITY = {"name": "this run"}


def noise(task):
    seen = np.random.default_rng(task).normal(size=(2, 3))
    return Contribution(Moments.of(append_margins(seen)), Tally(1, new=1))


class Watched:
    """Work that notes its tasks, and may be interrupted before one of them."""

    def __init__(self, until=None):
        self.done, self.until = [], until

    def __call__(self, task):
        if task == self.until:
            raise KeyboardInterrupt
        self.done.append(task)
        return noise(task)


SETTINGS = {"executor": Serial(), "identity": IDENTITY}


def start(folder, n_tasks, work=noise, per_round=8):
    return run(
        work, stop=MaxTasks(n_tasks), checkpoint=folder and DirectoryCheckpoint(folder),
        planner=TaskPlanner(Contribution), tasks_per_round=per_round, **SETTINGS,
    )  # fmt: skip


def write_answers(folder, tasks):
    """Leave answers that nobody has folded, as a killed run does."""
    opened = open_checkpoint(folder)
    for task in tasks:
        opened.write_answer(task, pack(noise(task)))
    opened.flush()


def bits(contribution):
    moments = contribution.moments
    return b"".join(each.tobytes() for each in (moments.count, moments.mean, moments.sum_sq))


def names(folder, pattern="*"):
    return sorted(path.name for path in folder.glob(pattern))


@pytest.fixture
def hasty(monkeypatch):
    """Every answer is written at once, into a file of its own."""
    monkeypatch.setattr(checkpoint, "_SHARE_OF_TIME", float("inf"))


def open_checkpoint(folder):
    opened = DirectoryCheckpoint(folder)
    opened.open(IDENTITY)
    return opened


@pytest.mark.parametrize("until", [1, 5, 8, 9, 15])
def test_an_interrupted_run_goes_on_where_it_ended(tmp_path, until):
    first, second = Watched(until), Watched()
    assert start(tmp_path, 16, first).interrupted
    outcome = start(tmp_path, 16, second)
    assert first.done + second.done == list(range(16))
    assert bits(outcome.contribution) == bits(start(None, 16).contribution)


def test_answers_that_a_killed_run_left_are_folded_in_order(tmp_path, hasty):
    write_answers(tmp_path, [7, 2, 0, 5, 1, 9])
    assert len(names(tmp_path, "answers-*")) == 6
    rest = Watched()
    outcome = start(tmp_path, 10, rest)
    assert rest.done == [3, 4, 6, 8]
    assert bits(outcome.contribution) == bits(start(None, 10).contribution)
    assert names(tmp_path) == ["manifest.json", "progress.json", "state.npz"]


def test_answers_that_come_fast_share_a_file(tmp_path):
    write_answers(tmp_path, range(200))
    assert len(names(tmp_path, "answers-*")) < 100
    assert sorted(task for task, _ in open_checkpoint(tmp_path).answers()) == list(range(200))


def test_a_large_answer_is_written_at_once_and_can_be_read_back(tmp_path):
    large = {"cells": np.random.default_rng(0).normal(size=2**17), "name": "large"}
    opened = open_checkpoint(tmp_path)
    assert opened.write_answer(0, {"name": "small"}) is None
    assert opened.write_answer(1, {"name": "small"}) is None
    load = opened.write_answer(2, large)
    assert load is not None
    assert load()["name"] == "large"
    assert load()["cells"].tobytes() == large["cells"].tobytes()
    # It waits for nobody, and nobody waits with it.
    assert {0, 2} <= dict(open_checkpoint(tmp_path).answers()).keys()
    opened.flush()
    assert dict(open_checkpoint(tmp_path).answers()).keys() == {0, 1, 2}


def test_a_state_takes_the_place_of_the_parts_that_it_holds(tmp_path, hasty):
    opened = open_checkpoint(tmp_path)
    for task in (3, 0, 1):
        opened.write_answer(task, pack(noise(task)))
    opened.write_state(2, 1.5, pack(noise(0).merge(noise(1))))
    assert [task for task, _ in open_checkpoint(tmp_path).answers()] == [3]
    n_tasks, seconds, content = open_checkpoint(tmp_path).read_state()
    assert (n_tasks, seconds) == (2, 1.5)
    assert bits(unpack(Contribution, content)) == bits(noise(0).merge(noise(1)))


def test_one_torn_part_of_many_answers_is_told_of_once(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "_SHARE_OF_TIME", 1e-9)
    # The first answer is written at once, and all others wait for each other.
    write_answers(tmp_path, range(6))
    _, part = sorted(tmp_path.glob("answers-*"))
    content = bytearray(part.read_bytes())
    content[content.index(b"}", content.index(b"NUMPY")) + 70] ^= 1
    part.write_bytes(content)
    again = Watched()
    with pytest.warns(UserWarning, match="is damaged") as warned:
        start(tmp_path, 8, again)
    assert len(warned) == 1
    assert sorted(again.done) == list(range(1, 8))


def test_a_torn_part_that_another_process_set_aside_is_no_error(tmp_path, hasty):
    write_answers(tmp_path, range(4))
    opened = open_checkpoint(tmp_path)
    loads = [load for _, load in opened.answers()]
    part = sorted(tmp_path.glob("answers-*"))[0]
    content = part.read_bytes()
    part.write_bytes(content[:-9])
    part.rename(part.with_name(f"damaged-{part.name}"))
    assert loads[0]() is None
    assert loads[1]() is not None


def test_a_file_under_the_name_of_another_is_damaged(tmp_path):
    files = checkpoint.RunFiles(tmp_path, "this run")
    for key in ("one.npz", "two.npz"):
        files.put(key, {"sums": np.zeros(2)})
    (tmp_path / "two.npz").write_bytes((tmp_path / "one.npz").read_bytes())
    assert files.get("one.npz")
    with pytest.raises(checkpoint.DamagedFileError, match="it was written as one"):
        files.get("two.npz")


# A full disk


def monte_carlo(folder):
    game = TableGame(np.random.default_rng(0).normal(size=(256, 128)))
    return value_game(
        game, (8, 7), stop=MaxUtilities(6000), random_state=0,
        runtime=Runtime(executor=Serial(), checkpoint=folder),
    )  # fmt: skip


def test_a_full_disk_ends_a_run_that_goes_on_once_there_is_room(tmp_path, monkeypatch):
    folder, sync, n_synced = tmp_path / "run", os.fsync, []

    def fill(descriptor):
        n_synced.append(descriptor)
        if len(n_synced) > 4:
            raise OSError(28, "No space left on device")
        sync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fill)
        with pytest.raises(OSError, match="No space left") as error:
            monte_carlo(folder)
    sentence = str(error.value)
    assert str(folder) in sentence
    assert "run the same call to resume" in sentence
    assert "\n" not in sentence
    assert not [name for name in names(folder, ".*") if "~" in name]
    assert bits(monte_carlo(folder)) == bits(monte_carlo(None))


def test_a_slower_run_does_not_take_back_what_a_faster_one_wrote(tmp_path):
    slow, fast = open_checkpoint(tmp_path), open_checkpoint(tmp_path)
    fast.write_state(9, 1.0, pack(noise(0)))
    slow.write_state(4, 1.0, pack(noise(1)))
    assert open_checkpoint(tmp_path).read_state()[0] == 9


def test_parts_are_read_when_their_turn_comes(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "_LARGE", 1)
    write_answers(tmp_path, range(30))
    alive, most = [], []

    class Counted(TaskPlanner):
        def unpack_answer(self, content):
            alive.append(1)
            return super().unpack_answer(content)

        def add_answer(self, request, answer):
            most.append(len(alive))
            alive.clear()
            return answer

    outcome = run(
        None, stop=MaxTasks(30), checkpoint=DirectoryCheckpoint(tmp_path),
        planner=Counted(Contribution), tasks_per_round=8, **SETTINGS,
    )  # fmt: skip
    assert outcome.tasks == 30
    assert most == [1] * 30


def test_a_signal_ends_a_run_that_waits_for_nothing(tmp_path):
    write_answers(tmp_path, range(60))

    class Pressed(TaskPlanner):
        def add_answer(self, request, answer):
            if request == 20:
                signal.raise_signal(signal.SIGTERM)
            return answer

    outcome = run(
        None, stop=MaxTasks(60), checkpoint=DirectoryCheckpoint(tmp_path),
        planner=Pressed(Contribution), tasks_per_round=8, **SETTINGS,
    )  # fmt: skip
    assert outcome.interrupted
    assert outcome.tasks == 21
    assert start(tmp_path, 60, None).tasks == 60


def test_a_signal_that_comes_too_late_for_the_run_is_passed_on():
    def press(progress):
        if progress.tasks == 8:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(
            noise, stop=MaxTasks(8), planner=TaskPlanner(Contribution), tasks_per_round=8,
            on_round=press, **SETTINGS,
        )  # fmt: skip
