"""Equal bits on every executor, however often a run is interrupted."""

import threading
import time
import warnings
from contextlib import suppress

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.tree import DecisionTreeClassifier

from cellworth import KNNValuer, ModelValuer, OutOfBagValuer, Runtime, load, value_game
from cellworth.games import TableGame
from cellworth.knn.memory_tasks import QueryTasks
from cellworth.runtime import (
    MaxTasks,
    MaxUtilities,
    Processes,
    Ray,
    Serial,
    Threads,
)
from cellworth.sampling import GaussianProcess, LeaveOneOut, PermutationSampler
from cellworth.valuers import utilities
from cellworth.valuers.out_of_bag import Lessons
from matrices import rarely

EXECUTORS = [Threads(3), Processes(2), *rarely(Ray())]


@pytest.fixture
def executor(request):
    """Executors as they are; Ray needs its cluster."""
    if isinstance(request.param, Ray):
        request.getfixturevalue("ray_cluster")
    return request.param


def arrays(valuation):
    moments = valuation.moments
    return moments.count, moments.mean, moments.sum_sq


def assert_same_bits(one, other):
    for a, b in zip(arrays(one), arrays(other), strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    train, val = order[:90], order[90:]
    groups = {"row_groups": np.arange(90) % 4, "column_groups": np.arange(13) % 3}
    return {"X": X[train], "y": y[train], "X_val": X[val], "y_val": y[val], **groups}


MODEL = DecisionTreeClassifier(max_depth=4)
EVERYWHERE = {
    "estimates": lambda **given: ModelValuer(MODEL, stop=MaxTasks(12), random_state=3, **given),
    "exact": lambda **given: ModelValuer(MODEL, estimator="exact", **given),
    "leave one out": lambda **given: ModelValuer(MODEL, **given, semivalue=LeaveOneOut()),
    "out of bag": lambda **given: OutOfBagValuer(n_trees=95, random_state=3, **given),
}


@pytest.mark.slow
@pytest.mark.parametrize("executor", EXECUTORS, ids=repr, indirect=True)
@pytest.mark.parametrize("name", EVERYWHERE)
def test_values_are_the_same_bits_everywhere(wine, name, executor):
    given = wine if "bag" not in name else {part: wine[part] for part in ("X", "y")}
    make = EVERYWHERE[name]
    reference = make(runtime=Runtime(executor=Serial())).fit(**given).valuation_
    assert_same_bits(make(runtime=Runtime(executor=executor)).fit(**given).valuation_, reference)


@pytest.fixture(scope="module")
def table_game():
    return TableGame(np.random.default_rng(11).normal(size=(16, 8)))


class Uneven(TableGame):
    """A game whose tasks take different times, so that later ones finish first."""

    def value(self, rows, columns):
        time.sleep(0.002 * (rows.sum() % 3 == 1))
        return super().value(rows, columns)


def test_the_order_in_which_tasks_finish_leaves_no_trace(table_game):
    run = {"shape": (4, 3), "stop": MaxTasks(37), "random_state": 5}
    uneven = value_game(Uneven(table_game.table), **run, runtime=Runtime(executor=Threads(4)))
    assert_same_bits(uneven, value_game(table_game, **run))


class BrokenOff(TableGame):
    """A game that is interrupted from the keyboard at its n-th utility."""

    left = 0

    def value(self, rows, columns):
        BrokenOff.left -= 1
        if BrokenOff.left == 0:
            raise KeyboardInterrupt
        return super().value(rows, columns)


def test_a_run_broken_off_before_its_first_task_raises(table_game):
    BrokenOff.left = 10
    with pytest.raises(KeyboardInterrupt):
        value_game(BrokenOff(table_game.table), (4, 3), stop=MaxTasks(5), random_state=0)


class Scaled:
    """A game that cannot be pickled: only its utilities tell it from another."""

    def __init__(self, factor):
        self.utility = lambda rows, columns: factor * float(rows.sum() * columns.sum())

    def value(self, rows, columns):
        return self.utility(rows, columns)


def test_a_journal_tells_games_apart_that_look_alike(tmp_path):
    checkpoint = tmp_path / "run"
    run = {"shape": (4, 3), "random_state": 5, "runtime": Runtime(checkpoint=checkpoint)}
    value_game(Scaled(1.0), stop=MaxTasks(5), **run)
    with pytest.raises(ValueError, match="holds another run"):
        value_game(Scaled(7.0), stop=MaxTasks(9), **run)


class Tilted:
    """A semivalue of the user's own, which prints nothing of itself."""

    def __init__(self, tilt):
        self.tilt = tilt

    def size_probabilities(self, n_players):
        chances = self.tilt ** np.arange(n_players)
        return chances / chances.sum()


def test_a_journal_tells_semivalues_apart_that_look_alike(table_game, tmp_path):
    checkpoint = tmp_path / "run"
    run = {"shape": (4, 3), "random_state": 5, "runtime": Runtime(checkpoint=checkpoint)}
    value_game(table_game, stop=MaxTasks(5), semivalue=(Tilted(0.1), None), **run)
    value_game(table_game, stop=MaxTasks(6), semivalue=(Tilted(0.1), None), **run)
    with pytest.raises(ValueError, match="holds another run"):
        value_game(table_game, stop=MaxTasks(9), semivalue=(Tilted(10.0), None), **run)


class Named:
    """A game that keeps a cache, and says what decides its utilities."""

    def __init__(self):
        self.cache = {}
        self.empty = "a method would do as well"

    def problem_spec(self):
        return {"game": "Named", "levels": (np.int64(1), np.float32(2.0))}

    def value(self, rows, columns):
        return self.cache.setdefault((rows.tobytes(), columns.tobytes()), float(rows.sum()))


def test_a_game_with_a_cache_can_name_its_question_and_go_on(tmp_path):
    game, checkpoint = Named(), tmp_path / "run"
    run = {"shape": (4, 3), "random_state": 5, "runtime": Runtime(checkpoint=checkpoint)}
    value_game(game, stop=MaxTasks(5), **run)
    longer = value_game(game, stop=MaxTasks(9), **run)
    assert longer.counts.max() == 9
    assert longer.empty == "game"
    longer.save(tmp_path)
    other = value_game(Named(), (4, 3), stop=MaxTasks(2), random_state=6)
    assert load(tmp_path).merge(other).counts.max() == 11


BLOCKS = {"row_groups": np.arange(36) % 3, "column_groups": [0, 1, 2, 2]}
TREE, SEED = DecisionTreeClassifier(max_depth=3, random_state=0), {"random_state": 3}
# A valuer of each kind of task, and the groups that it values.
VALUERS = {
    "exact": (ModelValuer, {"model": TREE, "estimator": "exact"}, BLOCKS),
    "monte carlo": (ModelValuer, {"model": TREE, "stop": MaxTasks(7)} | SEED, BLOCKS),
    "gaussian process": (
        ModelValuer,
        {"model": TREE, "stop": MaxUtilities(40), "estimator": GaussianProcess()} | SEED,
        BLOCKS,
    ),
    "out of bag": (OutOfBagValuer, {"model": TREE, "n_trees": 75} | SEED, {}),
    "neighbors": (KNNValuer, {"sampler": PermutationSampler(1), "n_passes": 3} | SEED, {}),
}


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

    def watch(owner, method, name):
        function = getattr(owner, method)
        monkeypatch.setattr(
            owner, method, lambda *given: seen.append(name(*given)) or function(*given)
        )

    watch(utilities, "compute_utility", lambda _, rows, columns: (*rows.tolist(), None, *columns))
    watch(Lessons, "score_bags", lambda _, bags: bags[0][2])
    watch(QueryTasks, "contribution", lambda _, task: task.number)
    return seen


@pytest.mark.parametrize("name", VALUERS)
def test_a_run_that_was_broken_off_computes_nothing_twice(tmp_path, computed, name):
    def fit(folder=None):
        kind, settings, groups = VALUERS[name]
        X = np.random.default_rng(0).normal(size=(36, 4))
        valuer = kind(**settings, runtime=Runtime(Serial(), folder))
        return valuer.fit(X, (X[:, 0] + X[:, 1] > 0).astype(int), **groups).valuation_

    reference, alone = fit(), list(computed)
    computed.clear()
    computed.most = len(alone) // 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with suppress(KeyboardInterrupt):
            fit(tmp_path)
    before = list(computed)
    computed.clear()
    del computed.most
    assert_same_bits(fit(tmp_path), reference)
    # No more than the request in flight was lost.
    assert set(before) | set(computed) == set(alone)
    assert len(set(before) & set(computed)) <= 64
    computed.clear()
    assert_same_bits(fit(tmp_path), reference)
    assert computed == []


class Fussy(DecisionTreeClassifier):
    """A model that fails on a single column."""

    def fit(self, X, y, **given):
        if X.shape[1] == 1:
            raise ValueError("one column is too few")
        return super().fit(X, y, **given)


def test_failures_of_an_earlier_session_are_told_again(wine, tmp_path):
    for _ in range(2):
        runtime = Runtime(Serial(), tmp_path)
        valuer = ModelValuer(Fussy(), stop=MaxTasks(3), random_state=0, runtime=runtime)
        with pytest.warns(UserWarning, match=r"failed .* one column is too few"):
            valuer.fit(**wine | {"column_groups": np.arange(13)})


def test_tasks_of_an_exact_run_are_done_side_by_side():
    meeting = threading.Barrier(2, timeout=20)

    class Meeting:
        def value(self, rows, columns):
            if threading.current_thread() is not threading.main_thread() and not meeting.broken:
                meeting.wait()
            return float(rows.sum() * columns.sum())

    # 128 pairs are two tasks; each of their utilities waits for one of the other task.
    runtime = Runtime(executor=Threads(2))
    assert np.allclose(value_game(Meeting(), (4, 3), estimator="exact", runtime=runtime).values, 1)
