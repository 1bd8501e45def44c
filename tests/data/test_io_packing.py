"""Results as files: what comes back is what was written, to the bit, or nothing at all."""

import io
import math
import pickle
import zipfile
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest

from cellworth.data.io import PlainFile, add_prefix, pack, unpack, write_plain
from cellworth.sampling import Moments
from cellworth.sampling.moments import Contribution, Tally, append_margins
from cellworth.sampling.passes import DrawVariance, Passes, PassSums, QueryTotals, QueryVariance
from cellworth.valuers.out_of_bag import TreeScores

ODD = np.array([[math.nan, math.inf, -math.inf], [-0.0, 5e-324, 1 / 3]])
TALLY = Tally(7, 2, ("a fit\nfailed", "größer"), new=5, reused=1)
MOMENTS = Moments(np.array([[1, 2, 3], [0, 0, 2**62]]), ODD, ODD[::-1])
PASSES = PassSums(
    parts_per_pass=3,
    parts=1,
    n_queries=2,
    sums=append_margins(np.random.default_rng(0).normal(size=(2, 3))),
    totals=QueryTotals(0.1 + 0.2, -1 / 3),
    tally=TALLY,
)
VARIANCE = QueryVariance(np.array([4]), np.array([math.inf]), ODD[None], ODD[None] ** 2)
FINISHED = Passes(2, 8, 30, ODD, ODD[::-1], of_draw=2.0, total=2 / 3, right=math.nan)

THINGS = {
    "Tally": TALLY,
    "an empty Tally": Tally(),
    "Moments": MOMENTS,
    "Contribution": Contribution(MOMENTS, TALLY),
    "TreeScores": TreeScores(ODD, ODD > 0, TALLY),
    "TreeScores of no tree": TreeScores(np.zeros((0, 3)), np.zeros((0, 2), dtype=bool), Tally()),
    "PassSums": PASSES,
    "PassSums with finished ones": replace(PASSES, finished=FINISHED),
    "PassSums with draws": replace(PASSES, draws=DrawVariance(3, ODD, 0.1, math.nan)),
    "PassSums with a variance": replace(PASSES, query_variance=VARIANCE),
    "PassSums with both": replace(
        PASSES, finished=replace(FINISHED, query_variance=VARIANCE), query_variance=VARIANCE
    ),
    "numbers of NumPy": replace(
        PASSES, parts=np.int64(2), totals=QueryTotals(np.float64(1e300) / 3, -1 / 3)
    ),
    "numbers that are none": replace(PASSES, totals=QueryTotals(math.nan, -math.inf)),
}


def assert_equal_to_the_bit(one, other):
    assert type(one) is type(other) or isinstance(one, np.generic)
    if is_dataclass(one):
        for field in fields(one):
            assert_equal_to_the_bit(getattr(one, field.name), getattr(other, field.name))
    elif isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tobytes() == other.tobytes()
    elif isinstance(one, float):
        assert np.float64(one).tobytes() == np.float64(other).tobytes()
    else:
        assert one == other


def written(path, plain):
    with path.open("wb") as file:
        write_plain(file, plain)
    return path


@pytest.mark.parametrize("name", THINGS)
def test_what_is_read_is_what_was_written_to_the_bit(tmp_path, name):
    thing = THINGS[name]
    path = written(tmp_path / "thing.npz", add_prefix("it", pack(thing)))
    assert_equal_to_the_bit(thing, unpack(type(thing), PlainFile(path).read("it")[0]))


def test_one_file_holds_several_things_under_names_of_their_own(tmp_path):
    several = {"1": TALLY, "10": MOMENTS, "2": PASSES}
    content = {"run": "this one"}
    for name, thing in several.items():
        content |= add_prefix(name, pack(thing))
    file = PlainFile(written(tmp_path / "things.npz", content))
    assert file.rest["run"] == "this one"
    for name, thing in several.items():
        assert_equal_to_the_bit(thing, unpack(type(thing), file.read(name)[0]))


def test_the_file_is_one_that_numpy_reads(tmp_path):
    path = written(tmp_path / "thing.npz", add_prefix("it", pack(MOMENTS)))
    with np.load(path, allow_pickle=False) as archive:
        assert archive["it.mean"].tobytes() == ODD.tobytes()


def test_what_would_have_to_be_pickled_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="allow_pickle=False"):
        written(tmp_path / "thing.npz", {"it.cells": np.array([object()])})
    with pytest.raises(TypeError, match="generic"):
        written(tmp_path / "thing.npz", {"it.cell": object()})


class Trap:
    """Something that leaves a trace where it is unpickled."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return self.trace.touch, ()


def a_pickle(path, trap):
    path.write_bytes(pickle.dumps(trap))


def a_pickled_array(path, trap):
    np.save(path.open("wb"), np.array([trap]), allow_pickle=True)


def an_archive_with_a_pickled_array(path, trap):
    sound = written(path, {"it.cells": np.zeros(3)}).read_bytes()
    with zipfile.ZipFile(io.BytesIO(sound)) as old, zipfile.ZipFile(path, "w") as new:
        pickled = io.BytesIO()
        np.save(pickled, np.array([trap]), allow_pickle=True)
        new.writestr("it.cells.npy", pickled.getvalue())
        new.writestr("rest.npy", old.read("rest.npy"))


@pytest.mark.parametrize("make", [a_pickle, a_pickled_array, an_archive_with_a_pickled_array])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_nothing_is_unpickled(tmp_path, make):
    make(tmp_path / "thing.npz", Trap(tmp_path / "trace"))
    with pytest.raises(ValueError, match=r"BadZipFile|pickle"):
        PlainFile(tmp_path / "thing.npz").read("it")
    assert not (tmp_path / "trace").exists()
    pickle.loads(pickle.dumps(Trap(tmp_path / "trace")))  # noqa: S301 (the trap works)
    assert (tmp_path / "trace").exists()


@pytest.mark.slow
@pytest.mark.parametrize("bit", [3])
def test_whichever_byte_is_changed_the_file_is_rejected_or_means_the_same(tmp_path, bit):
    arrays = {"it.a": np.arange(12.0).reshape(3, 4), "it.b": np.arange(3)}
    content = written(tmp_path / "thing.npz", arrays | {"it.c": 0.5}).read_bytes()
    rejected = 0
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 1 << bit
        (tmp_path / "thing.npz").write_bytes(changed)
        try:
            (found,) = PlainFile(tmp_path / "thing.npz").read("it")
        except ValueError:
            rejected += 1
            continue
        assert set(found) == {"a", "b", "c"}
        assert found["c"] == 0.5
        for name in ("a", "b"):
            assert_equal_to_the_bit(found[name], arrays[f"it.{name}"])
    assert rejected > 0.7 * len(content)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.6, 0.9, 0.999])
def test_a_file_without_its_end_is_rejected(tmp_path, share):
    path = written(tmp_path / "thing.npz", add_prefix("it", pack(MOMENTS)))
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match="BadZipFile"):
        PlainFile(path)


def test_headers_that_threads_disturb_are_read_again(tmp_path, monkeypatch):
    with (tmp_path / "file.npz").open("wb") as file:
        write_plain(file, {"numbers": np.arange(3)})
    read, calls = np.lib.format.read_array, []

    def fail_often(*given, **settings):
        calls.append(given)
        if len(calls) % 4:
            raise SystemError("AST constructor recursion depth mismatch")
        return read(*given, **settings)

    monkeypatch.setattr(np.lib.format, "read_array", fail_often)
    PlainFile(tmp_path / "file.npz")
    assert len(calls) == 4
    monkeypatch.setattr(np.lib.format, "read_array", lambda *given, **settings: 1 / 0)
    with pytest.raises(ValueError, match="ZeroDivisionError"):
        PlainFile(tmp_path / "file.npz")
