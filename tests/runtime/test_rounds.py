"""Rounds over shards: the same numbers from any sharding, any executor, in any number of goes."""

import signal
import threading
import weakref
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
import pytest

import toy_shards
from cellworth.runtime import (
    MaxSeconds,
    MaxTasks,
    MaxUtilities,
    Processes,
    Ray,
    Serial,
    StoppingRule,
    Threads,
    rounds,
)
from cellworth.runtime.workers import Interrupts, WorkerPool, map_unordered
from toy_shards import Toy

N_ROWS, N_ROUNDS, N_SHARDS = 1000, 5, 7


@dataclass(frozen=True)
class Watched(Toy):
    """A toy that counts what is done in this process, and may be broken at a moment."""

    done: Counter = field(default_factory=Counter)
    breaks: tuple = ()
    error: type = RuntimeError

    def open(self, shard):
        self.done["open"] += 1
        return super().open(shard)

    def count(self, rows, number):
        self.done["count", rows[0], number] += 1
        return super().count(rows, number)

    def accumulate(self, rows, number, below, part, state):
        self.done["accumulate", rows[0], number] += 1
        state = super().accumulate(rows, number, below, part, state)
        if (rows[0], number) == self.breaks:
            raise self.error("broken")
        return state

    def n(self, what):
        return sum(count for name, count in self.done.items() if name[0] == what)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("executor", "n_shards"),
    [
        *product([Serial()], [1, 7]),
        *product([Threads(2)], [4, 16]),
        (Processes(2), 7),
        pytest.param(Ray(), 7, marks=pytest.mark.nightly),
    ],
    ids=str,
)
def test_any_sharding_gives_what_a_plain_loop_gives(n_shards, executor, truth, tmp_path, request):
    if isinstance(executor, Ray):
        request.getfixturevalue("ray_cluster")
    finished, got = toy_shards.run(Toy(n_shards), N_ROUNDS, executor, tmp_path)
    assert np.array_equal(got, truth(N_ROUNDS))
    assert [told["round"] for told in finished.reports] == list(range(N_ROUNDS))
    assert [entry["shard"] for entry in finished.entries] == list(range(n_shards))
    assert not finished.interrupted


@pytest.mark.slow
def test_a_run_in_two_goes_does_nothing_twice(truth, tmp_path):
    toy, folder = Watched(N_SHARDS, seconds=0.02), tmp_path / "checkpoint"
    _, got = toy_shards.run(toy, 2, Threads(2), tmp_path, folder)
    assert np.array_equal(got, truth(2))
    toy = replace(toy, seconds=0.0)
    second, got = toy_shards.run(toy, N_ROUNDS, Serial(), tmp_path, folder)
    assert np.array_equal(got, truth(N_ROUNDS))
    assert toy.n("count") == N_ROUNDS * N_SHARDS
    # States are not written after a few seconds: results of rounds are added up again.
    assert toy.n("accumulate") == (2 + N_ROUNDS) * N_SHARDS
    assert len(second.reports) == N_ROUNDS
    # The first go slept while two threads counted all shards twice; that counts, too.
    assert second.seconds > N_SHARDS * 0.02


@pytest.mark.slow
def test_a_folder_with_more_rounds_than_asked_for_gives_these(truth, tmp_path):
    toy, folder = Watched(N_SHARDS), tmp_path / "checkpoint"
    toy_shards.run(toy, N_ROUNDS, Serial(), tmp_path, folder)
    finished, got = toy_shards.run(toy, 2, Serial(), tmp_path, folder)
    assert np.array_equal(got, truth(N_ROUNDS))
    assert len(finished.reports) == N_ROUNDS


class ThreeRounds(StoppingRule):
    """A rule that is met after three rounds, whatever the states hold."""

    needs_errors = False

    def share_done(self, progress):
        assert progress.errors is None
        return progress.utilities / 3


@pytest.mark.slow
def test_a_rule_ends_a_run_after_the_round_that_it_judged(truth, tmp_path):
    given = {"stop": ThreeRounds(), "checkpoint": tmp_path / "checkpoint"}
    finished, got = toy_shards.run(Toy(N_SHARDS), None, Threads(2), tmp_path, **given)
    assert np.array_equal(got, truth(3))
    again, _ = toy_shards.run(Toy(N_SHARDS), None, Serial(), tmp_path, **given)
    assert len(finished.reports) == len(again.reports) == 3


class LargeStates(StoppingRule):
    """A rule that reads the states of all shards."""

    def __init__(self, largest):
        self.largest = largest

    def share_done(self, progress):
        return progress.errors.largest / self.largest


@pytest.mark.slow
@pytest.mark.parametrize(("executor", "rounds_per_pass"), [(Serial(), 1), (Processes(2), 2)])
def test_a_rule_may_depend_on_the_states_of_all_shards(executor, rounds_per_pass, truth, tmp_path):
    # States grow about 31 times in each round.
    rule, seen = LargeStates(int(truth(3).max())), []
    given = {"stop": rule, "rounds_per_pass": rounds_per_pass, "on_round": seen.append}
    finished, got = toy_shards.run(Toy(N_SHARDS), None, executor, tmp_path, **given)
    n_rounds = 3 if rounds_per_pass == 1 else 4
    assert len(finished.reports) == n_rounds
    assert np.array_equal(got, truth(n_rounds))
    checked = range(rounds_per_pass, n_rounds + 1, rounds_per_pass)
    assert [progress.tasks for progress in seen] == list(checked)
    assert [progress.errors.largest for progress in seen] == [truth(n).max() for n in checked]


@pytest.mark.slow
def test_limits_of_a_rule_hold_within_a_pass(truth, tmp_path):
    for n_rounds, rule in ((1, MaxSeconds(1e-6)), (3, MaxUtilities(3)), (2, MaxTasks(2))):
        folder = tmp_path / str(n_rounds)
        given = {"stop": rule, "rounds_per_pass": 10}
        finished, got = toy_shards.run(Toy(N_SHARDS), None, Serial(), folder, **given)
        assert len(finished.reports) == n_rounds
        assert np.array_equal(got, truth(n_rounds))


@pytest.mark.slow
@pytest.mark.parametrize("executor", [Serial(), Threads(2)], ids=str)
def test_what_was_settled_before_an_error_counts_once(executor, truth, tmp_path):
    folder = tmp_path / "checkpoint"
    broken = Watched(N_SHARDS, breaks=(3, 2))
    with pytest.raises(RuntimeError, match="broken"):
        toy_shards.run(broken, N_ROUNDS, executor, tmp_path, folder)
    whole = Watched(N_SHARDS)
    _, got = toy_shards.run(whole, N_ROUNDS, executor, tmp_path, folder)
    assert np.array_equal(got, truth(N_ROUNDS))
    settled = broken.done + whole.done
    assert {shard for shard in range(N_SHARDS) if settled["accumulate", shard, 2] > 1} == {3}
    assert whole.n("count") == 0


def latest_state(folder, shard):
    return sorted(folder.glob(f"shard-{shard:06d}-*.npz"))[-1]


def cut(path):
    path.write_bytes(path.read_bytes()[:-40])


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[300] ^= 1
    path.write_bytes(content)


@pytest.mark.slow
@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize("damage", [cut, flip_a_bit])
def test_a_damaged_state_costs_its_shard_one_round(damage, truth, tmp_path):
    folder = tmp_path / "checkpoint"
    toy_shards.run(Toy(N_SHARDS), 3, Serial(), tmp_path, folder)
    damage(latest_state(folder, 4))
    toy = Watched(N_SHARDS)
    with pytest.warns(UserWarning, match="its content is computed again"):
        _, got = toy_shards.run(toy, N_ROUNDS, Serial(), tmp_path, folder)
    assert np.array_equal(got, truth(N_ROUNDS))
    settled = {(name[1], name[2]) for name in toy.done if name[0] == "accumulate"}
    assert {(shard, number) for shard, number in settled if number < 3} == {(4, 2)}


@pytest.mark.slow
@pytest.mark.usefixtures("stored")
def test_a_run_without_any_state_of_a_shard_begins_anew(truth, tmp_path):
    folder = tmp_path / "checkpoint"
    toy_shards.run(Toy(N_SHARDS), N_ROUNDS, Serial(), tmp_path, folder)
    for path in folder.glob("shard-000001-*"):
        path.unlink()
    toy = Watched(N_SHARDS)
    _, got = toy_shards.run(toy, N_ROUNDS + 1, Serial(), tmp_path, folder)
    assert np.array_equal(got, truth(N_ROUNDS + 1))
    assert toy.n("count") == toy.n("accumulate") == (N_ROUNDS + 1) * N_SHARDS


@pytest.mark.slow
@pytest.mark.usefixtures("stored")
def test_states_of_long_ago_are_removed(truth, tmp_path):
    folder = tmp_path / "checkpoint"
    toy_shards.run(Toy(N_SHARDS), 1, Serial(), tmp_path, folder)
    old = latest_state(folder, 2)
    content = old.read_bytes()
    toy_shards.run(Toy(N_SHARDS), 4, Serial(), tmp_path, folder)
    old.write_bytes(content)
    _, got = toy_shards.run(Toy(N_SHARDS), N_ROUNDS, Serial(), tmp_path, folder)
    assert np.array_equal(got, truth(N_ROUNDS))
    assert not old.exists()


@pytest.mark.slow
def test_what_a_round_told_is_found_again_if_its_file_is_gone(truth, tmp_path):
    folder = tmp_path / "checkpoint"
    whole, _ = toy_shards.run(Toy(N_SHARDS), N_ROUNDS, Serial(), tmp_path, folder)
    sorted(folder.glob("answers-*"))[2].unlink()
    toy = Watched(N_SHARDS)
    again, got = toy_shards.run(toy, N_ROUNDS, Serial(), tmp_path, folder)
    assert np.array_equal(got, truth(N_ROUNDS))
    assert toy.n("accumulate") == 0
    for one, other in zip(whole.reports, again.reports, strict=True):
        assert np.array_equal(one["smallest"], other["smallest"])


@pytest.mark.slow
@pytest.mark.usefixtures("stored")
def test_a_folder_keeps_two_states_of_a_shard(tmp_path):
    folder = tmp_path / "checkpoint"
    toy_shards.run(Toy(N_SHARDS), 6, Threads(2), tmp_path, folder)
    rounds = [int(path.stem[-8:]) for path in folder.glob("shard-*")]
    assert Counter(rounds) == {5: N_SHARDS, 6: N_SHARDS}


def test_a_folder_of_another_run_is_refused(tmp_path):
    folder = tmp_path / "checkpoint"
    toy_shards.run(Toy(N_SHARDS), 1, Serial(), tmp_path, folder)
    with pytest.raises(ValueError, match="holds another run: its n_shards is 7, but here it is 4"):
        toy_shards.run(Toy(4), 1, Serial(), tmp_path, folder)


@pytest.mark.usefixtures("stored")
def test_a_state_of_another_run_is_refused(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    toy_shards.run(Toy(N_SHARDS), 1, Serial(), tmp_path, one)
    toy_shards.run(Toy(N_SHARDS, n_rows=70), 1, Serial(), tmp_path, other)
    path = latest_state(other, 2)
    (one / path.name).write_bytes(path.read_bytes())
    with pytest.raises(ValueError, match="belongs to another run"):
        toy_shards.run(Toy(N_SHARDS), 2, Serial(), tmp_path, one)


SIGNALS = [(Serial(), signal.SIGTERM), (Threads(2), signal.SIGINT)]


@dataclass(frozen=True)
class Signalled(Toy):
    """A toy during which the user presses Ctrl-C."""

    moment: tuple = ()
    sent: signal.Signals = signal.SIGINT

    def count(self, rows, number):
        if (rows[0], number) == self.moment:
            signal.raise_signal(self.sent)
        return super().count(rows, number)


@pytest.mark.slow
@pytest.mark.parametrize(("executor", "sent"), SIGNALS, ids=str)
def test_a_signal_ends_a_run_after_a_whole_round(executor, sent, truth, tmp_path):
    folder = tmp_path / "checkpoint"
    toy = Signalled(N_SHARDS, moment=(3, 3), sent=sent)
    finished, got = toy_shards.run(toy, N_ROUNDS, executor, tmp_path, folder)
    assert finished.interrupted
    assert len(finished.reports) == 3
    assert np.array_equal(got, truth(3))
    finished, got = toy_shards.run(Toy(N_SHARDS), N_ROUNDS, executor, tmp_path, folder)
    assert not finished.interrupted
    assert np.array_equal(got, truth(N_ROUNDS))


@dataclass(frozen=True)
class SignalledAtTheEnd(Toy):
    """A toy during which this process is told to end while results are written."""

    n_signals: int = 1
    sent: signal.Signals = signal.SIGINT

    def write(self, rows, state, shard, folder):
        if shard == 3:
            for _ in range(self.n_signals):
                signal.raise_signal(self.sent)
        return super().write(rows, state, shard, folder)


@pytest.mark.slow
@pytest.mark.parametrize(("executor", "sent"), SIGNALS, ids=str)
def test_a_signal_while_results_are_written_waits_for_them(executor, sent, truth, tmp_path):
    toy = SignalledAtTheEnd(N_SHARDS, sent=sent)
    with pytest.warns(
        UserWarning, match="arrived after all rounds were done; the result is complete"
    ):
        finished, got = toy_shards.run(toy, N_ROUNDS, executor, tmp_path)
    assert not finished.interrupted
    assert np.array_equal(got, truth(N_ROUNDS))


@pytest.mark.slow
def test_a_second_signal_ends_a_run_while_results_are_written(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        toy_shards.run(SignalledAtTheEnd(N_SHARDS, n_signals=2), N_ROUNDS, Serial(), tmp_path)


def test_a_run_without_a_whole_round_has_nothing_to_tell(tmp_path):
    with pytest.raises(KeyboardInterrupt, match="before the first round"):
        toy_shards.run(Signalled(N_SHARDS, moment=(3, 0)), N_ROUNDS, Serial(), tmp_path)


class Living:
    """How many arrays of a kind are alive at a time."""

    def __init__(self):
        self.now = self.most = 0
        self._lock = threading.Lock()

    def born(self, array):
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        weakref.finalize(array, self._died)
        return array

    def _died(self):
        with self._lock:
            self.now -= 1


@dataclass(frozen=True)
class Weighed(Toy):
    """A toy that counts what is held."""

    rows: Living = field(default_factory=Living)
    states: Living = field(default_factory=Living)
    summaries: Living = field(default_factory=Living)

    def open(self, shard):
        rows = super().open(shard)
        return rows[0], rows[1], self.rows.born(rows[2])

    def count(self, rows, number):
        counts, nearest = super().count(rows, number)
        return self.summaries.born(counts), nearest

    def accumulate(self, rows, number, below, part, state):
        state = super().accumulate(rows, number, below, part, state)
        return state | {"heavy": self.states.born(state["heavy"].copy())}


@pytest.mark.slow
@pytest.mark.parametrize("n_threads", [1, 2])
def test_memory_holds_shards_at_work_and_few_summaries(n_threads, tmp_path):
    toy = Weighed(40, weight=8, seconds=0.001)
    toy_shards.run(toy, 3, Threads(n_threads), tmp_path)
    assert 1 <= toy.rows.most <= n_threads
    assert 1 <= toy.states.most <= 2 * n_threads
    # Two requests for each thread may be answered and not yet merged.
    assert toy.summaries.most <= 2 * n_threads + 2


class Batches(WorkerPool):
    """A pool that answers all requests in flight at once, with an array each."""

    capacity = 4

    def __init__(self):
        self.living, self._numbers = Living(), []

    def submit(self, requests):
        self._numbers += requests

    def forget(self):
        self._numbers.clear()

    def wait_for_answers(self, seconds=None):
        numbers, self._numbers = self._numbers, []
        return [(number, self.living.born(np.zeros(1))) for number in numbers]


def test_answers_are_let_go_before_the_next_ones_come():
    pool = Batches()
    for _ in map_unordered(pool, range(12), Interrupts()):
        pass
    # Those in flight, and the last one that was looked at.
    assert pool.living.most <= pool.capacity + 1


@pytest.mark.slow
def test_a_round_opens_a_shard_once(tmp_path):
    toy = Watched(N_SHARDS)
    toy_shards.run(toy, N_ROUNDS, Serial(), tmp_path)
    # One pass for each round, and one that adds them up; where a pass turns around, a shard is
    # still open.
    assert toy.done["open"] <= (N_ROUNDS + 1) * (N_SHARDS - 1) + 1


def test_a_result_that_is_gone_is_written_again(truth, tmp_path):
    folder = tmp_path / "checkpoint"
    toy_shards.run(Toy(N_SHARDS), 2, Serial(), tmp_path, folder)
    (tmp_path / "results" / "0003.npy").unlink()
    toy = Watched(N_SHARDS)
    _, got = toy_shards.run(toy, 2, Serial(), tmp_path, folder)
    assert np.array_equal(got, truth(2))
    assert toy.n("accumulate") == 2
    assert toy.n("count") == 0


@pytest.mark.slow
@pytest.mark.parametrize("executor", [Serial(), Threads(2), Processes(2)], ids=str)
def test_states_that_do_not_fit_into_memory_are_written_and_it_is_said(
    executor, truth, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(rounds, "MAX_WAITING_BYTES", 0)
    # Three of the seven shards fit; 8 bytes for each of 143 rows.
    monkeypatch.setattr(rounds, "MAX_KEPT_BYTES", 3 * 143 * 8)
    monkeypatch.setattr(rounds.tempfile, "tempdir", str(tmp_path))
    with caplog.at_level("INFO", logger="cellworth"):
        _, got = toy_shards.run(Toy(N_SHARDS), N_ROUNDS, executor, tmp_path)
    assert np.array_equal(got, truth(N_ROUNDS))
    said = [record.message for record in caplog.records if "do not fit" in record.message]
    assert len(said) == 1
    assert {path.name for path in tmp_path.iterdir()} <= {"results"}


@pytest.mark.slow
def test_a_run_without_checkpoint_writes_nothing_but_its_result(monkeypatch, truth, tmp_path):
    monkeypatch.setattr(rounds.tempfile, "tempdir", str(tmp_path))
    seen = []
    given = {"stop": LargeStates(int(truth(3).max())), "on_round": lambda _: seen.append(files())}

    def files():
        return [path.relative_to(tmp_path) for path in tmp_path.rglob("*")]

    toy_shards.run(Toy(2), None, Threads(2), tmp_path, **given)
    # While rounds are done, there is an empty folder for results.
    assert len(seen) == 3
    assert {len(found) for found in seen} == {1}
    assert len(files()) == 3
