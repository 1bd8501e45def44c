"""Partitions of a run, computed anywhere and in any order, give the bits of the run in one."""

import signal
import subprocess
import sys
import time
import warnings
from collections import Counter

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.tree import DecisionTreeClassifier

from cellworth import KNNValuer, ModelValuer, OutOfBagValuer, Runtime, load
from cellworth.knn.memory_tasks import QueryTasks
from cellworth.runtime import (
    MaxSeconds,
    MaxTasks,
    MaxUtilities,
    MemoryCheckpoint,
    Serial,
    StableRanking,
    TargetStandardError,
    Threads,
    merge,
)
from cellworth.sampling import GaussianProcess, LeaveOneOut, PermutationSampler
from cellworth.valuers import FlattenedValuer
from cellworth.valuers import utilities as bookkeeping
from cellworth.valuers.out_of_bag import OutOfBagScores

RNG = np.random.default_rng(0)
X = RNG.normal(size=(36, 4))
Y = (X[:, 0] + X[:, 1] > 0).astype(int)
ALL = {"X": X, "y": Y}
JUDGED = ALL | {"X_val": X[::2], "y_val": Y[::2]}
BLOCKS = JUDGED | {"row_groups": np.arange(36) % 3, "column_groups": [0, 1, 2, 2]}


class Tree(DecisionTreeClassifier):
    """A model that counts how often it is fitted."""

    fits = 0

    def fit(self, X, y, **given):
        Tree.fits += 1
        return super().fit(X, y, **given)


def model():
    return Tree(max_depth=3, random_state=0)


SEED = {"random_state": 3}

# What is valued, on which table.
VALUERS = {
    "exact": (ModelValuer, {"model": model(), "estimator": "exact"}, BLOCKS),
    "monte carlo, tasks": (
        ModelValuer,
        {"model": model(), "stop": MaxTasks(7)} | SEED,
        BLOCKS,
    ),
    "monte carlo, utilities": (
        ModelValuer,
        {"model": model(), "stop": MaxUtilities(40)} | SEED,
        BLOCKS,
    ),
    "gaussian process": (
        ModelValuer,
        {"model": model(), "stop": MaxUtilities(40), "estimator": GaussianProcess()} | SEED,
        BLOCKS,
    ),
    "leave one out": (ModelValuer, {"model": model(), "semivalue": LeaveOneOut()}, BLOCKS),
    "flattened": (FlattenedValuer, {"model": model(), "stop": MaxTasks(7)} | SEED, BLOCKS),
    "out of bag": (OutOfBagValuer, {"model": model(), "n_trees": 75} | SEED, ALL),
    "out of bag, contrast": (
        OutOfBagValuer,
        {"model": model(), "n_trees": 75, "contrast": True} | SEED,
        ALL,
    ),
    "neighbours, exact": (KNNValuer, {}, ALL),
    "neighbours, sweeps": (
        KNNValuer,
        {"sampler": PermutationSampler(1), "n_passes": 3} | SEED,
        ALL,
    ),
}
# Shards do all that the limit allows; the final fit folds as much as the other rule asks for.
EARLY = {
    "monte carlo, early": (
        ModelValuer,
        {"model": model(), "stop": MaxTasks(60) | TargetStandardError(0.05)} | SEED,
        BLOCKS,
    ),
    "neighbours, early": (
        KNNValuer,
        {"sampler": PermutationSampler(1), "n_passes": 40, "stop": TargetStandardError(0.005)}
        | SEED,
        ALL,
    ),
}
EVERY = VALUERS | EARLY


def fit(name, folder=None, partition=None, **settings):
    kind, given, table = EVERY[name]
    made = kind(
        **(given | settings),
        runtime=Runtime(executor=Serial(), checkpoint=folder, partition=partition),
    )
    return made.fit(**table)


def bits(valuation):
    moments = valuation.moments
    return b"".join(each.tobytes() for each in (moments.count, moments.mean, moments.sum_sq))


class Computed(list):
    """What was computed; the keyboard may interrupt before there is more than so much."""

    most = float("inf")

    def append(self, name):
        if len(self) >= self.most:
            raise KeyboardInterrupt
        super().append(name)


@pytest.fixture
def computed(monkeypatch):
    """All that workers compute: coalitions, or tasks where these are not looked at singly."""
    seen = Computed()

    def watched(function, name):
        def noting(*given):
            seen.append(name(*given))
            return function(*given)

        return noting

    utility = watched(
        bookkeeping.compute_utility, lambda game, rows, columns: (*rows.tolist(), *columns.tolist())
    )
    monkeypatch.setattr(bookkeeping, "compute_utility", utility)
    for kind, method, name in (
        (OutOfBagScores, "__call__", lambda self, bags: bags[0].seed),
        (QueryTasks, "contribution", lambda self, task: task.number),
    ):
        monkeypatch.setattr(kind, method, watched(getattr(kind, method), name))
    return seen


def taken(computed):
    done = Counter(computed)
    computed.clear()
    return done


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_partitions_in_one_folder_give_the_bits_of_the_run_in_one(tmp_path, computed, name):
    reference = fit(name).valuation_
    alone = taken(computed)
    for position in (2, 0, 1):
        fit(name, tmp_path, (position, 3))
    together = taken(computed)
    # Each is computed in exactly one partition.
    assert set(together.values()) == {1}
    assert together == alone or name in EARLY
    assert together >= alone
    whole = fit(name, tmp_path).valuation_
    assert taken(computed) == {}
    assert bits(whole) == bits(reference)
    assert whole.status == reference.status
    assert whole.provenance.sessions == reference.provenance.sessions
    assert whole.provenance.tally.new == reference.provenance.tally.new
    # A second fit folds nothing either.
    assert bits(fit(name, tmp_path).valuation_) == bits(reference)
    assert taken(computed) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_partitions_in_folders_of_their_own_are_merged(tmp_path, computed, name):
    reference = fit(name).valuation_
    alone = taken(computed)
    folders = [tmp_path / str(position) for position in range(3)]
    for position, folder in enumerate(folders):
        fit(name, folder, (position, 3))
    together = taken(computed)
    assert set(together.values()) == {1}
    assert together == alone or name in EARLY
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    merge(folders[::-1], into=tmp_path / "all")
    assert all(path.read_bytes() == content for path, content in before.items())
    assert bits(fit(name, tmp_path / "all").valuation_) == bits(reference)
    assert taken(computed) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in EVERY if "neighbours" not in name])
def test_the_last_fit_trains_no_model_but_for_the_corners(tmp_path, name):
    for position in range(2):
        fit(name, tmp_path, (position, 2))
    Tree.fits = 0
    fit(name, tmp_path)
    # A table whose every cell is filled in still has rows to learn from.
    assert Tree.fits == (2 if name == "flattened" else 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", VALUERS)
def test_a_missing_partition_is_computed_by_the_last_fit(tmp_path, computed, name):
    reference = fit(name).valuation_
    alone = taken(computed)
    fit(name, tmp_path, (0, 3))
    fit(name, tmp_path, (2, 3))
    before = taken(computed)
    assert bits(fit(name, tmp_path).valuation_) == bits(reference)
    assert taken(computed) == alone - before


@pytest.mark.slow
@pytest.mark.parametrize("name", ["monte carlo, tasks", "flattened", "neighbours, sweeps"])
def test_partitions_go_on_after_a_run_that_ended_early(tmp_path, computed, name):
    reference = fit(name).valuation_
    alone = taken(computed)
    with warnings.catch_warnings():
        # Not all validation rows are used yet.
        warnings.simplefilter("ignore", UserWarning)
        fit(name, tmp_path, stop=MaxTasks(6))
    for position in range(2):
        fit(name, tmp_path, (position, 2))
    assert bits(fit(name, tmp_path).valuation_) == bits(reference)
    assert taken(computed) == alone


@pytest.mark.slow
@pytest.mark.parametrize("name", VALUERS)
def test_a_partition_that_was_broken_off_goes_on(tmp_path, computed, name):
    reference = fit(name).valuation_
    alone = taken(computed)
    computed.most = len(alone) // 4
    with pytest.raises(KeyboardInterrupt):
        fit(name, tmp_path, (0, 2))
    del computed.most
    before = taken(computed)
    for position in range(2):
        fit(name, tmp_path, (position, 2))
    again = taken(computed)
    # No more than the request in flight was lost.
    assert set(again) | set(before) == set(alone)
    assert sum((before & again).values()) <= 64
    assert bits(fit(name, tmp_path).valuation_) == bits(reference)
    assert taken(computed) == {}


TABLE = ALL | {"X_val": X, "y_val": Y, "row_groups": np.arange(36) % 5}
SCRIPT = """
import sys, time
import numpy as np
from sklearn.tree import DecisionTreeClassifier
from cellworth.runtime import MaxTasks, Serial
from cellworth import ModelValuer, Runtime

folder, *places = sys.argv[1:]

class Slow(DecisionTreeClassifier):
    fits = 0

    def fit(self, X, y, **given):
        time.sleep(0.01)
        Slow.fits += 1
        print("fit", flush=True)
        return super().fit(X, y, **given)

table = np.load(folder + ".npz")
for place in places:
    partition = None if place == "all" else (int(place), 2)
    Slow.fits = 0
    valuer = ModelValuer(Slow(), stop=MaxTasks(9), random_state=0,
                              runtime=Runtime(Serial(), folder, partition)).fit(**table)
    print("done", Slow.fits, flush=True)
valuer.valuation_.save(folder + "-saved") if partition is None else None
"""
# Of the four corners, the whole table alone is a fit.
CORNERS = 1


def process(folder, *positions):
    np.savez(f"{folder}.npz", **TABLE)
    return subprocess.Popen(  # noqa: S603 (this interpreter, our own script)
        [sys.executable, "-c", SCRIPT, str(folder), *positions],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def fits(running):
    """How many fits each part of a process made."""
    output, errors = running.communicate(timeout=100)
    assert running.returncode == 0, errors
    return [int(line.split()[1]) for line in output.splitlines() if line.startswith("done")]


def in_one_process():
    Tree.fits = 0
    valuer = ModelValuer(
        Tree(), stop=MaxTasks(9), random_state=0, runtime=Runtime(executor=Serial())
    )
    return bits(valuer.fit(**TABLE).valuation_), Tree.fits


@pytest.mark.slow
def test_two_processes_share_a_folder_at_the_same_time(tmp_path):
    reference, n_alone = in_one_process()
    first, second = map(fits, [process(tmp_path / "run", position) for position in ("0", "1")])
    assert fits(process(tmp_path / "run", "all")) == [CORNERS]
    assert sum(first + second) == n_alone + CORNERS
    assert min(first + second) > CORNERS
    assert bits(load(tmp_path / "run-saved")) == reference


@pytest.mark.slow
def test_a_partition_that_was_killed_goes_on(tmp_path):
    reference, n_alone = in_one_process()
    with process(tmp_path / "run", "0") as running:
        for _ in range(40):
            assert running.stdout.readline() == "fit\n"
        running.send_signal(signal.SIGKILL)
    assert list((tmp_path / "run").glob("answers-*"))
    first, second, last = fits(process(tmp_path / "run", "0", "1", "all"))
    # What the killed process had written down was not done again.
    assert first + second < n_alone + CORNERS
    assert last == CORNERS
    assert bits(load(tmp_path / "run-saved")) == reference


# What is done wrong, and the words that must come back.
MISTAKES = {
    "a partition beyond the last": (
        lambda folder: fit("exact", folder, (3, 3)),
        ["got (3, 3)", "i from 0 to n - 1"],
    ),
    "a partition before the first": (
        lambda folder: fit("exact", folder, (-1, 2)),
        ["got (-1, 2)", "i from 0 to n - 1"],
    ),
    "no partitions": (lambda folder: fit("exact", folder, (0, 0)), ["got (0, 0)", "(0, 10)"]),
    "a partition in words": (
        lambda folder: fit("exact", folder, "1/2"),
        ["got '1/2'", "must be (i, n)"],
    ),
    "a partition of one number": (
        lambda folder: fit("exact", folder, (1,)),
        ["(1,)", "must be (i, n)"],
    ),
    "half a partition": (
        lambda folder: fit("exact", folder, (0.5, 2)),
        ["(0.5, 2)", "must be (i, n)"],
    ),
    "a number for a partition": (
        lambda folder: fit("exact", folder, 1),
        ["got 1", "must be (i, n)"],
    ),
    "a partition without a checkpoint": (
        lambda folder: fit("exact", None, (0, 2)),
        ["partition needs a folder", "give one as checkpoint"],
    ),
    "a partition in memory": (
        lambda folder: fit("exact", MemoryCheckpoint(), (0, 2)),
        ["partition needs a folder", "give one as checkpoint"],
    ),
    "a rule without a limit": (
        lambda folder: fit("monte carlo, tasks", folder, (0, 2), stop=TargetStandardError(0.1)),
        ["TargetStandardError", "join it with MaxTasks(n) or MaxUtilities(n)"],
    ),
    "a limit of time alone": (
        lambda folder: fit("flattened", folder, (0, 2), stop=MaxSeconds(5)),
        ["MaxSeconds", "join it with MaxTasks(n) or MaxUtilities(n)"],
    ),
    "a limit that both rules must meet": (
        lambda folder: fit("flattened", folder, (0, 2), stop=MaxTasks(5) & StableRanking()),
        ["MaxTasks(n_tasks=5)) & (StableRanking", "join it with MaxTasks(n)"],
    ),
    "neighbours without a limit": (
        lambda folder: fit(
            "neighbours, sweeps", folder, (0, 2), stop=TargetStandardError(0.1), n_passes=None
        ),
        ["TargetStandardError", "join it with MaxTasks(n)"],
    ),
    "neighbours with a limit of utilities": (
        lambda folder: fit(
            "neighbours, sweeps", folder, (0, 2), stop=MaxUtilities(99), n_passes=None
        ),
        ["MaxUtilities(n_utilities=99)", "join it with MaxTasks(n)"],
    ),
    "no seed": (
        lambda folder: fit("monte carlo, tasks", folder, (0, 2), random_state=None),
        ["random_state", "an integer"],
    ),
    "merging nothing": (
        lambda folder: merge([], into=folder),
        ["no folders to merge", "give the checkpoints of the partitions"],
    ),
    "merging one name": (
        lambda folder: merge("run1", into=folder),
        ["folders is 'run1'", "give a list"],
    ),
    "merging a folder that is not there": (
        lambda folder: merge([folder / "nowhere"], into=folder / "all"),
        ["nowhere holds no checkpoint", "give folders of partitions"],
    ),
    "merging a folder without a checkpoint": (
        lambda folder: merge([folder], into=folder / "all"),
        ["holds no checkpoint", "give folders of partitions"],
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_one_clear_sentence(tmp_path, mistake):
    make, words = MISTAKES[mistake]
    with pytest.raises((ValueError, TypeError, FileNotFoundError)) as caught:
        make(tmp_path)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    for word in words:
        assert word in message, message
    assert {path.name for path in tmp_path.iterdir()} <= {"manifest.json"}


@pytest.mark.parametrize("attribute", ["valuation_", "values_", "row_values_"])
def test_a_fitted_partition_has_no_values_and_says_so(tmp_path, attribute):
    partition = fit("leave one out", tmp_path, (0, 2))
    assert not hasattr(partition, attribute)
    with pytest.raises(
        AttributeError, match=f"a partition has no {attribute}: .* fit without partition"
    ):
        getattr(partition, attribute)
    assert partition.n_features_in_ == 4
    with pytest.raises(AttributeError, match="KNNValuer has no valuation_ yet; call fit first"):
        KNNValuer().valuation_  # noqa: B018 (asked for, not used)
    with pytest.raises(AttributeError, match="object has no attribute 'wrong_'"):
        partition.wrong_  # noqa: B018 (asking is the point)


def test_different_runs_are_not_merged(tmp_path):
    for seed in (3, 4):
        fit("flattened", tmp_path / str(seed), (0, 2), random_state=seed)
    with pytest.raises(ValueError, match=r"holds another run: its .* but here it is") as error:
        merge([tmp_path / "3", tmp_path / "4"], into=tmp_path / "all")
    assert str(tmp_path / "4") in str(error.value)
    assert not (tmp_path / "all").exists()


def test_another_run_is_not_merged_into_one(tmp_path):
    for seed in (3, 4):
        fit("flattened", tmp_path / str(seed), (0, 2), random_state=seed)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match=f"{tmp_path / '3'} holds another run: its "):
        merge([tmp_path / "4"], into=tmp_path / "3")
    assert sorted(tmp_path.rglob("*")) == before


def test_partitions_are_merged_into_one_of_their_folders(tmp_path, computed):
    reference = fit("flattened").valuation_
    for position in range(3):
        fit("flattened", tmp_path / str(position), (position, 3))
    folders = [tmp_path / str(position) for position in range(3)]
    merge(folders, into=folders[1])
    merge(folders, into=folders[1])
    computed.clear()
    assert bits(fit("flattened", folders[1]).valuation_) == bits(reference)
    assert computed == []


def test_the_longest_state_is_merged(tmp_path, computed):
    reference = fit("monte carlo, tasks").valuation_
    for folder, n_tasks in (("short", 2), ("long", 5)):
        fit("monte carlo, tasks", tmp_path / folder, stop=MaxTasks(n_tasks))
    fit("monte carlo, tasks", tmp_path / "partition", (1, 2))
    folders = [tmp_path / name for name in ("partition", "long", "short")]
    merge(folders, into=tmp_path / "all")
    alone = len(taken(computed))
    assert bits(fit("monte carlo, tasks", tmp_path / "all").valuation_) == bits(reference)
    assert len(computed) < alone


def test_a_torn_part_is_not_merged_but_computed_again(tmp_path):
    reference = fit("flattened").valuation_
    for position in range(2):
        fit("flattened", tmp_path / str(position), (position, 2))
    torn = next((tmp_path / "1").glob("answers-*"))
    torn.write_bytes(torn.read_bytes()[:-9])
    merge([tmp_path / "0", tmp_path / "1"], into=tmp_path / "all")
    with pytest.warns(UserWarning, match="is damaged .* computed again"):
        joined = fit("flattened", tmp_path / "all").valuation_
    assert bits(joined) == bits(reference)
    # The source is left as it was.
    assert torn.exists()


class Fussy(DecisionTreeClassifier):
    """A model that fails on a single column."""

    def fit(self, X, y, **given):
        if X.shape[1] == 1:
            raise ValueError("one column is too few")
        return super().fit(X, y, **given)


def test_failures_in_partitions_are_told_of_by_the_last_fit(tmp_path):
    def told(**settings):
        with pytest.warns(UserWarning, match=r"failed .* one column is too few") as warned:
            valuation = fit("monte carlo, tasks", model=Fussy(), **settings).valuation_
        return [str(each.message) for each in warned], bits(valuation)

    for position in range(2):
        fit("monte carlo, tasks", tmp_path, (position, 2), model=Fussy())
    assert told(folder=tmp_path) == told()


@pytest.mark.slow
def test_a_partition_of_fits_keeps_a_deadline(tmp_path):
    X, y = load_iris(return_X_y=True)
    groups = {"row_groups": np.arange(150) % 5, "column_groups": np.arange(4)}

    def valuer(stop, **where):
        runtime = Runtime(checkpoint=tmp_path, **where)
        return ModelValuer(Sleepy(), stop=stop, random_state=0, runtime=runtime)

    began = time.perf_counter()
    rule = MaxTasks(4) | MaxSeconds(0.5)
    valuer(rule, partition=(0, 1), executor=Threads(2)).fit(X, y, X_val=X, y_val=y, **groups)
    assert time.perf_counter() - began < 3.0
    joined = valuer(MaxTasks(4)).fit(X, y, X_val=X, y_val=y, **groups)
    plain = ModelValuer(
        Sleepy(), stop=MaxTasks(4), random_state=0, runtime=Runtime(executor=Serial())
    )
    assert bits(joined.valuation_) == bits(plain.fit(X, y, X_val=X, y_val=y, **groups).valuation_)


class Sleepy(DecisionTreeClassifier):
    """A model that takes its time."""

    def fit(self, X, y, **given):
        time.sleep(0.01)
        return super().fit(X, y, **given)
