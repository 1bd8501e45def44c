import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.metrics import make_scorer
from sklearn.naive_bayes import GaussianNB

from cellworth import ModelValuer, Runtime, value_game
from cellworth.games import FailedUtility, TableGame
from cellworth.runtime import FileCache, MaxUtilities, MemoryCache, Processes, Serial, Threads
from cellworth.sampling import Banzhaf, GaussianProcess

X, Y = load_iris(return_X_y=True)
DATA = {"X": X, "y": Y, "X_val": X, "y_val": Y, "row_groups": np.arange(150) % 5}


@pytest.fixture(params=["memory", "file"])
def cache(request, tmp_path):
    if request.param == "memory":
        yield MemoryCache()
    else:
        made = FileCache(tmp_path / "utilities.sqlite")
        yield made
        made.close()


class Counting(TableGame):
    """A game that counts how often it is asked."""

    asked = 0

    def value(self, rows, columns):
        Counting.asked += 1
        return super().value(rows, columns)


@pytest.fixture
def game():
    Counting.asked = 0
    return Counting(np.random.default_rng(0).normal(size=(64, 32)))


def test_what_is_kept_is_found_under_its_game_alone(cache):
    cache.add("one game", {b"ab": 0.25, b"\x00": -1.0})
    assert cache.find("one game", [b"ab", b"\x00", b"c"]) == {b"ab": 0.25, b"\x00": -1.0}
    assert cache.find("another game", [b"ab"]) == {}
    assert len(cache) == 2


def test_what_is_there_stays_as_it_is(cache):
    cache.add("game", {b"ab": 0.25})
    cache.add("game", {b"ab": 0.75})
    assert cache.find("game", [b"ab"])[b"ab"] == 0.25


def test_many_utilities_are_found_at_once(cache):
    many = {number.to_bytes(4, "big"): float(number) for number in range(3000)}
    cache.add("game", many)
    assert cache.find("game", many) == many


def test_a_rerun_pays_for_nothing_but_the_corners(cache, game):
    run = {"stop": MaxUtilities(300), "random_state": 0, "runtime": Runtime(cache=cache)}
    first = value_game(game, **run)
    paid = Counting.asked
    again = value_game(game, **run)
    assert Counting.asked - paid == 4
    np.testing.assert_array_equal(again.values, first.values)
    tally = again.provenance.tally
    # The four corners are looked at anew, to see that the game is the same.
    assert tally.hit_rate == 1 - 4 / tally.utilities
    assert tally.new == first.provenance.tally.new


def test_a_larger_budget_pays_only_for_what_is_new(cache, game):
    value_game(game, stop=MaxUtilities(300), random_state=0, runtime=Runtime(cache=cache))
    paid = Counting.asked
    both = value_game(game, stop=MaxUtilities(600), random_state=0, runtime=Runtime(cache=cache))
    assert Counting.asked - paid < 400
    alone = value_game(game, stop=MaxUtilities(600), random_state=0)
    np.testing.assert_array_equal(both.values, alone.values)


def test_designs_and_semivalues_share_what_they_computed(cache, game):
    value_game(game, runtime=Runtime(cache=cache))
    paid = Counting.asked
    value_game(
        game, estimator=GaussianProcess(), stop=MaxUtilities(200), runtime=Runtime(cache=cache)
    )
    value_game(game, semivalue=Banzhaf(), runtime=Runtime(cache=cache))
    assert Counting.asked - paid == 2 * 4


@pytest.mark.slow
@pytest.mark.parametrize("executor", [Threads(2), Processes(2)], ids=repr)
def test_a_file_serves_every_executor(executor, tmp_path):
    game = TableGame(np.random.default_rng(0).normal(size=(64, 32)))
    run = {"stop": MaxUtilities(300), "random_state": 0}
    alone = value_game(game, **run)
    for _ in range(2):
        cache = FileCache(tmp_path / "utilities.sqlite")
        shared = value_game(game, **run, runtime=Runtime(executor=executor, cache=cache))
        cache.close()
        np.testing.assert_array_equal(shared.values, alone.values)
    assert shared.provenance.tally.hit_rate > 0.99


@pytest.mark.slow
def test_another_model_or_table_shares_nothing(cache):
    def paid(model, **changed):
        valuer = ModelValuer(
            model, stop=MaxUtilities(60), random_state=0, runtime=Runtime(cache=cache)
        )
        tally = valuer.fit(**(DATA | changed)).valuation_.provenance.tally
        return tally.utilities - tally.reused

    first = paid(GaussianNB())
    assert paid(GaussianNB()) == 4
    assert paid(GaussianNB(var_smoothing=0.1)) == first
    assert paid(GaussianNB(), X=X + 1.0) == first
    assert paid(GaussianNB(), row_groups=np.arange(150) // 30) == first


def test_a_model_that_changed_behind_its_parameters_is_refused(cache):
    class Hidden(GaussianNB):
        answer = None

        def predict(self, X):
            return super().predict(X) if self.answer is None else np.full(len(X), self.answer)

    valuer = ModelValuer(Hidden(), runtime=Runtime(cache=cache), estimator="exact")
    groups = {"row_groups": np.arange(150) % 3, "column_groups": [0, 0, 1, 1]}
    valuer.fit(**(DATA | groups))
    Hidden.answer = 1
    with pytest.raises(ValueError, match=r"the cache holds .* use a new cache"):
        valuer.fit(**(DATA | groups))


class Failing:
    """A game that fails for a single row."""

    def value(self, rows, columns):
        if rows.sum() == 1 and columns.any():
            return FailedUtility(0.0, "one row is too few")
        return float(rows.sum() * columns.sum())


def test_what_failed_is_tried_again_and_told_of_again(cache):
    for _ in range(2):
        with pytest.warns(UserWarning, match=r"9 of 21 utilities failed .* one row is too few"):
            valuation = value_game(Failing(), (3, 2), runtime=Runtime(cache=cache))
        assert valuation.provenance.tally.failed == 3 * 3
    assert len(cache) == 2**5 - 9


@pytest.mark.slow
def test_a_mended_model_is_fitted_where_it_failed(cache):
    class Mending(GaussianNB):
        mended = False

        def fit(self, X, y):
            if len(X) < 40 and not Mending.mended:
                raise RuntimeError("too few rows")
            return super().fit(X, y)

    def fit(**settings):
        return ModelValuer(Mending(), **settings, estimator="exact").fit(
            **DATA, column_groups=[0, 0, 1, 1]
        )

    with pytest.warns(UserWarning, match="too few rows"):
        fit(runtime=Runtime(cache=cache))
    with pytest.raises(RuntimeError, match="too few rows"):
        fit(runtime=Runtime(cache=cache), error="raise")
    Mending.mended = True
    np.testing.assert_array_equal(fit(runtime=Runtime(cache=cache)).values_, fit().values_)


class Corner:
    """One block is worth 1; how many players there are decides which."""

    def value(self, rows, columns):
        return float(rows[-1] and columns[-1])


def test_another_shape_is_another_game(cache):
    for shape in ((2, 3), (3, 2), (3, 3), (4, 2)):
        values = value_game(Corner(), shape, runtime=Runtime(cache=cache)).values
        assert values[-1, -1] == pytest.approx(1.0)
        assert np.abs(values).sum() == pytest.approx(1.0)


class Wrapped:
    """A game that holds a function, whose content nobody can tell."""

    def __init__(self, function):
        self.function = function

    def value(self, rows, columns):
        return float(self.function(rows, columns))


def test_a_game_that_cannot_be_told_from_others_is_refused(cache):
    with pytest.raises(
        ValueError, match=r"a Wrapped cannot be distinguished from others .* problem_spec\(\)"
    ):
        value_game(Wrapped(lambda rows, columns: rows.sum()), (2, 2), runtime=Runtime(cache=cache))


@pytest.mark.slow
def test_scorers_of_another_code_share_nothing(cache):
    def paid(score):
        runtime = Runtime(Serial(), cache=cache)
        valuer = ModelValuer(
            GaussianNB(), scoring=make_scorer(score), runtime=runtime, estimator="exact"
        )
        tally = valuer.fit(**DATA, column_groups=[0, 0, 1, 1]).valuation_.provenance.tally
        return tally.utilities - tally.reused

    first = paid(lambda y, predicted: (y == predicted).mean())
    assert paid(lambda y, predicted: (y == predicted).mean()) == 4
    assert paid(lambda y, predicted: (y == predicted).mean() ** 2) == first


def test_a_cloned_valuer_shares_its_cache(cache):
    valuer = ModelValuer(GaussianNB(), runtime=Runtime(cache=cache), estimator="exact")
    clone(valuer).fit(**DATA, column_groups=[0, 0, 1, 1])
    assert len(cache) == 2**7


KILLED = """
import os, signal, sys, time
import numpy as np
from cellworth.runtime import MaxUtilities, FileCache
from cellworth.sampling import GaussianProcess
from cellworth import Runtime, value_game

class Slow:
    calls = 0

    def problem_spec(self):
        return {"game": "slow"}

    def value(self, rows, columns):
        Slow.calls += 1
        if Slow.calls == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.05)
        return float(rows.sum() ** 2 * columns.sum())

value_game(Slow(), (6, 5), estimator=GaussianProcess(), stop=MaxUtilities(70), random_state=0,
           runtime=Runtime(cache=FileCache(sys.argv[1])))
print(Slow.calls)
"""


def run_until_killed(path, at):
    return subprocess.run(  # noqa: S603 (this interpreter, our own script)
        [sys.executable, "-c", KILLED, str(path), str(at)], capture_output=True, text=True,
        timeout=100, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_fits_outlive_a_killed_process(game, tmp_path):
    path = tmp_path / "utilities.sqlite"
    assert run_until_killed(path, at=60).returncode == -signal.SIGKILL
    cache = FileCache(path)
    kept = len(cache)
    cache.close()
    # A request is a second of work, 20 utilities; no more than the one in flight is lost.
    assert kept >= 60 - 20 - 4
    rest = run_until_killed(path, at=0)
    value_game(game, estimator=GaussianProcess(), stop=MaxUtilities(70), random_state=0)
    assert int(rest.stdout) <= Counting.asked - kept + 4


WRITER = """
import sys
from cellworth.runtime import FileCache

cache = FileCache(sys.argv[1])
for number in range(int(sys.argv[2]), int(sys.argv[2]) + 200):
    cache.add("game", {number.to_bytes(4, "big"): float(number)})
"""


@pytest.mark.slow
def test_two_processes_may_write_to_one_file(tmp_path):
    path = tmp_path / "utilities.sqlite"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), start])  # noqa: S603
        for start in ("0", "100")
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    cache = FileCache(path)
    assert len(cache) == 300
    cache.close()


def test_a_file_cache_travels_as_its_path(tmp_path):
    cache = FileCache(tmp_path / "utilities.sqlite")
    cache.add("game", {b"a": 1.0})
    copy = pickle.loads(pickle.dumps(cache))  # noqa: S301 (our own object)
    assert copy.find("game", [b"a"]) == {b"a": 1.0}
    assert repr(copy) == repr(cache) == f"FileCache({str(cache.path)!r})"
    copy.close()
    cache.close()


def test_a_forgotten_file_is_closed_without_a_word(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache = FileCache(tmp_path / "utilities.sqlite")
        len(cache)
        del cache


def text_file(path):
    path.write_text("no database" * 100)


def foreign_database(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE people (name TEXT)")
    connection.close()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (text_file, ValueError, "is not a cache of utilities"),
        (foreign_database, ValueError, "is a database, but not a cache of utilities"),
        (os.mkdir, IsADirectoryError, "is a folder"),
    ],
    ids=["text", "foreign", "folder"],
)
def test_other_files_are_refused_and_left_alone(make, error, message, tmp_path):
    path = tmp_path / "there"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(error, match=message):
        len(FileCache(path))
    assert (path.read_bytes() if path.is_file() else None) == before


def test_a_missing_folder_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        len(FileCache(tmp_path / "nowhere" / "utilities.sqlite"))


UTILITIES = {number.to_bytes(4, "big"): 1.0 / (1 + number) for number in range(400)}


@pytest.fixture(scope="module")
def sound_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("cache") / "utilities.sqlite"
    cache = FileCache(path)
    cache.add("game", UTILITIES)
    cache.close()
    return path.read_bytes()


def found_in(path):
    """What a file still gives, or the sentence with which it is refused."""
    cache = FileCache(path)
    try:
        return cache.find("game", UTILITIES)
    except (ValueError, OSError) as error:
        return str(error)
    finally:
        cache.close()


def is_clear(sentence, path):
    return sentence.startswith(str(path)) and sentence.endswith(".") and "\n" not in sentence


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_file_without_its_end_is_refused(tmp_path, sound_file, share):
    path = tmp_path / "utilities.sqlite"
    path.write_bytes(sound_file[: int(share * len(sound_file))])
    assert is_clear(found_in(path), path)


def test_all_utilities_can_be_listed(tmp_path):
    for cache in (MemoryCache(), FileCache(tmp_path / "cache")):
        cache.add("b", {b"2": 0.5, b"1": -1.0})
        cache.add("a", {b"3": 2.0})
        expected = [("a", b"3", 2.0), ("b", b"1", -1.0), ("b", b"2", 0.5)]
        assert sorted(cache.entries()) == expected
