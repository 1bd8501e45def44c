"""Torn and foreign checkpoints: each is refused in one sentence, or repaired; none is used."""

import json
import pickle
import re
import shutil
import subprocess
import sys
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from sklearn.naive_bayes import GaussianNB

import cellworth
from cellworth import KNNValuer, ModelValuer, Runtime, value_game
from cellworth.games import TableGame
from cellworth.runtime import MaxTasks, Serial
from cellworth.runtime.engine import CheckpointWriter
from cellworth.sampling import Banzhaf, PermutationSampler
from cellworth.sampling.column_samplers import LeverageSampler
from cellworth.valuation import provenance
from experiments.baselines import PlainPermutations
from fit_settings import split_settings

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(40, 4)), columns=["a", "b", "c", "d"]).round(2)
X["d"] = np.arange(40) % 3
Y = (X["a"] + X["b"] > 0).to_numpy().astype(int)
GOOD = {"X": X, "y": Y}
# Few players, so that a Monte Carlo run is short.
GROUPS = {"row_groups": np.arange(40) // 14, "column_groups": [0, 0, 1, 2]}


def neighbours(folder, fit=GOOD, **settings):
    asked = {
        "n_neighbors": 3, "sampler": PermutationSampler(2), "n_passes": 15, "random_state": 5,
    }  # fmt: skip
    of_valuer, of_fit = split_settings(asked | settings)
    runtime = Runtime(Serial(), folder)
    return KNNValuer(**of_valuer, runtime=runtime).fit(**fit, **of_fit)


def monte_carlo(folder, fit=GOOD, **settings):
    asked = {"stop": MaxTasks(6), "random_state": 5, "cv": 2}
    model = settings.pop("model", None) or GaussianNB()
    runtime = Runtime(Serial(), folder)
    of_valuer, of_fit = split_settings(asked | settings)
    return ModelValuer(model, **of_valuer, runtime=runtime).fit(**(fit | GROUPS), **of_fit)


# How to fit, and what stops it half-way.
RUNS = {
    "knn": (neighbours, {"stop": MaxTasks(7)}),
    "monte carlo": (monte_carlo, {"stop": MaxTasks(2)}),
}


def bits(valuation):
    moments = valuation.moments
    return b"".join(each.tobytes() for each in (moments.count, moments.mean, moments.sum_sq))


@dataclass(frozen=True)
class Halfway:
    """A run that was stopped half-way, and what it would have come to."""

    kind: str
    folder: Path
    reference: bytes
    other: Path

    def fit(self, **settings):
        return RUNS[self.kind][0](self.folder, **settings)

    def assert_goes_on(self):
        assert bits(self.fit().valuation_) == self.reference

    @property
    def state(self):
        return self.folder / "state.npz"

    @property
    def manifest(self):
        return self.folder / "manifest.json"

    @property
    def parts(self):
        return sorted(self.folder.glob("answers-*.npz"))

    @property
    def content(self):
        return {path.name: path.read_bytes() for path in self.folder.iterdir()}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    return {kind: stopped_half_way(kind, tmp_path_factory.mktemp("run")) for kind in RUNS}


def stopped_half_way(kind, where):
    fit, early = RUNS[kind]
    folder, other = where / "this", where / "other"
    for path, seed in ((folder, 5), (other, 6)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit(path, random_state=seed, **early)
        # Killed before the rest is folded: all answers are there, and the earlier state.
        with mock.patch.object(CheckpointWriter, "_write"):
            fit(path, random_state=seed)
    return Halfway(kind, folder, bits(fit(None).valuation_), other)


@pytest.fixture(params=RUNS)
def halfway(request, stopped, tmp_path):
    """A copy to be damaged."""
    shutil.copytree(stopped[request.param].folder, tmp_path / "run")
    return replace(stopped[request.param], folder=tmp_path / "run")


def the_sentence(error):
    """The message of an error, which must be one sentence."""
    sentence = str(error.value)
    assert "\n" not in sentence
    assert len(sentence) < 520
    assert sentence.endswith(".") or isinstance(error.value, OSError)
    return sentence


@pytest.mark.slow
def test_a_run_that_was_stopped_half_way_has_a_state_and_parts(halfway):
    assert halfway.state.exists()
    assert len(halfway.parts) >= 1
    halfway.assert_goes_on()
    assert halfway.parts == []


def flip_in_the_end(path):
    # The list of all arrays comes last.
    content = bytearray(path.read_bytes())
    content[content.rindex(b"PK\x01\x02")] ^= 0x10
    path.write_bytes(content)


def flip_in_the_beginning(path):
    content = bytearray(path.read_bytes())
    content[1] ^= 0x10
    path.write_bytes(content)


def flip_in_an_array(path):
    # Arrays come first; the figures of the first one begin after the line that is its header.
    content = bytearray(path.read_bytes())
    content[content.index(b"\n", content.index(b"NUMPY")) + 1] ^= 0x10
    path.write_bytes(content)


def truncate(path, share=0.6):
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])


class Trap:
    """Something that leaves a trace where it is unpickled."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return self.trace.touch, ()


def trap(path):
    path.write_bytes(pickle.dumps(Trap(path.parent / "trace")))


def trap_in_an_array(path):
    with path.open("wb") as file:
        np.savez(file, **{"content.sums": np.array([Trap(path.parent / "trace")])})


def an_array(path):
    with path.open("wb") as file:
        np.save(file, np.arange(5.0))


def edit(path, **changed):
    manifest = json.loads(path.read_bytes())
    path.write_text(json.dumps(manifest | changed))


def edit_by_hand(halfway):
    text = halfway.manifest.read_text()
    assert '"seed": 5' in text
    halfway.manifest.write_text(text.replace('"seed": 5', '"seed": 6'))


def put_a_valuation_there(halfway):
    saved = halfway.folder.with_name("saved")
    RUNS[halfway.kind][0](None).valuation_.save(saved)
    shutil.copy(saved / "manifest.json", halfway.manifest)


def foreign_part(halfway):
    part = next(halfway.other.glob("answers-*.npz"))
    shutil.copy(part, halfway.folder / part.name)


# What happened to the checkpoint, and the words that must come back.
REFUSED = {
    "manifest truncated": (lambda it: truncate(it.manifest), ["not valid JSON", "restore it"]),
    "manifest empty": (lambda it: it.manifest.write_text(""), ["not valid JSON", "restore it"]),
    "manifest is no JSON": (
        lambda it: it.manifest.write_bytes(b"\x93NUMPY\xff"),
        ["not valid JSON", "restore it"],
    ),
    "manifest is a number": (
        lambda it: it.manifest.write_text("3"),
        ["does not describe a cellworth checkpoint", "another folder"],
    ),
    "manifest of a Valuation": (
        put_a_valuation_there,
        ["does not describe a cellworth checkpoint", "another folder"],
    ),
    "manifest of another version": (
        lambda it: edit(it.manifest, version=99),
        ["format version 99", "reads version 1", "use the cellworth that wrote it"],
    ),
    "manifest edited by hand": (edit_by_hand, ["sha256 differs", "restore it"]),
    "manifest with another hash": (
        lambda it: edit(it.manifest, sha256="0" * 64),
        ["sha256 differs", "restore it"],
    ),
    "manifest without a run": (lambda it: edit(it.manifest, run=3), ["sha256 differs"]),
    "manifest missing": (
        lambda it: it.manifest.unlink(),
        ["files of a run, but no manifest.json", "new folder"],
    ),
    "manifest of another run": (
        lambda it: shutil.copy(it.other / "manifest.json", it.manifest),
        ["holds another run: its ", "but here it is", "give a new checkpoint"],
    ),
    "state truncated": (lambda it: truncate(it.state), ["state.npz is damaged", "delete it"]),
    "state empty": (lambda it: it.state.write_bytes(b""), ["state.npz is damaged", "delete it"]),
    "state with a changed figure": (
        lambda it: flip_in_an_array(it.state),
        ["state.npz is damaged", "CRC", "delete it"],
    ),
    "state with a changed end": (
        lambda it: flip_in_the_end(it.state),
        ["state.npz is damaged", "delete it"],
    ),
    "state is an array": (lambda it: an_array(it.state), ["is damaged", "delete it"]),
    "state is a pickle": (lambda it: trap(it.state), ["is damaged", "delete it"]),
    "state with a pickled array": (
        lambda it: trap_in_an_array(it.state),
        ["is damaged", "delete it"],
    ),
    "state of another run": (
        lambda it: shutil.copy(it.other / "state.npz", it.state),
        ["belongs to another run", "delete it"],
    ),
    "part of another run": (foreign_part, ["belongs to another run", "remove it"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", REFUSED)
def test_a_torn_checkpoint_is_refused_in_one_sentence_and_left_as_it_is(halfway, damage):
    harm, words = REFUSED[damage]
    whole = halfway.content
    harm(halfway)
    harmed = halfway.content
    with pytest.raises(ValueError, match=str(halfway.folder)) as error:
        halfway.fit()
    sentence = the_sentence(error)
    assert all(word in sentence for word in words), sentence
    assert halfway.content.items() <= harmed.items()
    assert "trace" not in halfway.content
    # What the sentence advises helps.
    if "delete it" in sentence:
        halfway.state.unlink()
    else:
        for name in set(harmed) - set(whole):
            (halfway.folder / name).unlink()
        halfway.manifest.write_bytes(whole["manifest.json"])
    halfway.assert_goes_on()


REPAIRED = {
    "part truncated": truncate,
    "part without its last byte": lambda part: truncate(part, 0.9999),
    "part empty": lambda part: part.write_bytes(b""),
    "part with a changed figure": flip_in_an_array,
    "part with a changed head": flip_in_the_beginning,
    "part with a changed end": flip_in_the_end,
    "part is an array": an_array,
    "part is a pickle": trap,
    "part with a pickle_object array": trap_in_an_array,
    "part is text": lambda part: part.write_text("to be done"),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", REPAIRED)
def test_a_torn_part_is_set_aside_and_computed_again(halfway, damage):
    part = halfway.parts[0]
    REPAIRED[damage](part)
    torn = part.read_bytes()
    with pytest.warns(UserWarning, match=f"{part.name} is damaged .* computed again") as warned:
        valuation = halfway.fit().valuation_
    assert len(warned) == 1
    assert str(warned[0].message).endswith(".")
    assert "\n" not in str(warned[0].message)
    assert bits(valuation) == halfway.reference
    assert part.with_name(f"damaged-{part.name}").read_bytes() == torn
    assert not (halfway.folder / "trace").exists()
    assert not part.exists()


def test_a_part_of_another_run_under_the_right_name_is_refused(halfway):
    shutil.copy(next(halfway.other.glob("answers-*.npz")), halfway.parts[0])
    with pytest.raises(ValueError, match=r"belongs to another run .* remove it") as error:
        halfway.fit()
    the_sentence(error)
    halfway.parts[0].unlink()
    halfway.assert_goes_on()


def test_parts_that_are_gone_are_computed_again(halfway):
    for part in halfway.parts:
        part.unlink()
    halfway.assert_goes_on()


def test_a_state_that_is_gone_is_computed_again(halfway):
    halfway.state.unlink()
    halfway.assert_goes_on()


def one_cell_changed(X):
    changed = X.copy()
    changed.iloc[3, 1] += 0.5
    return changed


class Mended(GaussianNB):
    """A model whose code changes under the same name."""

    def predict(self, X):
        return super().predict(X)


def same_name_other_code():
    class Other(GaussianNB):
        def predict(self, X):
            return super().predict(X)[::1]

    Other.__name__, Other.__qualname__ = Mended.__name__, Mended.__qualname__
    return Other()


OTHERS = {
    "seed": {"random_state": 6},
    "one cell": {"fit": GOOD | {"X": one_cell_changed(X)}},
    "one label": {"fit": GOOD | {"y": np.where(np.arange(40) == 7, 1 - Y, Y)}},
    "column of another type": {"fit": GOOD | {"X": X.astype({"d": float})}},
    "column of half the precision": {"fit": GOOD | {"X": X.astype({"d": "int32"})}},
    "rows in another order": {"fit": {"X": X[::-1], "y": Y[::-1]}},
    "row semivalue": {"semivalue": (Banzhaf(), None)},
    "cv": {"cv": 4},
}
OTHERS_OF_ONE = {
    ("knn", "number of neighbours"): {"n_neighbors": 4},
    ("knn", "sampler"): {"sampler": PermutationSampler(3)},
    ("knn", "kind of sampler"): {"sampler": LeverageSampler(8)},
    ("knn", "kind of column"): {"column_types": {"d": "categorical"}},
    ("knn", "column of text"): {"fit": GOOD | {"X": X.astype({"d": str})}},
    ("knn", "column of categories"): {"fit": GOOD | {"X": X.astype({"d": "category"})}},
    ("knn", "scale"): {"scale": "std"},
    ("knn", "playing labels"): {"value_labels": True},
    ("monte carlo", "parameter of the model"): {"model": GaussianNB(var_smoothing=1e-3)},
    ("monte carlo", "model"): {"model": Mended()},
    ("monte carlo", "sampler"): {"estimator": PlainPermutations()},
    ("monte carlo", "scoring"): {"scoring": "neg_log_loss"},
    ("monte carlo", "policy"): {"empty": "zero"},
    ("monte carlo", "repeats"): {"n_repeats": 2},
}


def assert_another_run(halfway, **settings):
    before = halfway.content
    with pytest.raises(ValueError, match=f"{halfway.folder} holds another run: its ") as error:
        halfway.fit(**settings)
    sentence = the_sentence(error)
    assert "but here it is" in sentence
    assert "give a new checkpoint, or the data, settings, versions and random_state" in sentence
    assert halfway.content.items() <= before.items()


@pytest.mark.parametrize("other", OTHERS)
def test_another_run_is_not_let_in(halfway, other):
    assert_another_run(halfway, **OTHERS[other])


@pytest.mark.parametrize(("halfway", "other"), OTHERS_OF_ONE, indirect=["halfway"])
def test_another_run_of_its_kind_is_not_let_in(halfway, other):
    assert_another_run(halfway, **OTHERS_OF_ONE[halfway.kind, other])


def test_other_versions_are_not_let_in(halfway, monkeypatch):
    others = tuple((dict(provenance._versions()) | {"numpy": "9.9.9"}).items())
    with monkeypatch.context() as patched:
        patched.setattr(provenance, "_versions", lambda: others)
        assert_another_run(halfway)
    halfway.assert_goes_on()


def test_another_algorithm_version_is_not_let_in(halfway, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(provenance, "ALGORITHM_VERSION", provenance.ALGORITHM_VERSION + 1)
        assert_another_run(halfway)
    halfway.assert_goes_on()


def test_the_sentence_names_the_algorithm_version(tmp_path, monkeypatch):
    play(tmp_path, n_tasks=2)
    now = provenance.ALGORITHM_VERSION
    monkeypatch.setattr(provenance, "ALGORITHM_VERSION", 99)
    found = f"holds another run: its algorithm_version is {now}, but here it is 99; give a new"
    with pytest.raises(ValueError, match=re.escape(found)) as error:
        play(tmp_path, n_tasks=4)
    the_sentence(error)


def test_another_release_of_the_same_algorithm_goes_on(halfway, monkeypatch):
    others = tuple((dict(provenance._versions()) | {"cellworth": "9.9.9"}).items())
    monkeypatch.setattr(provenance, "_versions", lambda: others)
    monkeypatch.setattr(cellworth, "__version__", "9.9.9")
    halfway.assert_goes_on()


def play(folder, n_tasks):
    """Values of a small game, without kernels."""
    game = TableGame(np.arange(64.0).reshape(8, 8) ** 0.5)
    run = {"stop": MaxTasks(n_tasks), "random_state": 0}
    return value_game(game, runtime=Runtime(Serial(), folder), **run)


IN_ANOTHER_SOURCE = """
import sys

sys.path.insert(0, sys.argv[1])
import numpy as np

import cellworth
from cellworth.runtime import MaxTasks, Serial
from cellworth.runtime.engine import CheckpointWriter
from cellworth import Runtime, value_game
from cellworth.games import TableGame

assert cellworth.__doc__.startswith("Reworded")
game = TableGame(np.arange(64.0).reshape(8, 8) ** 0.5)
run = {"stop": MaxTasks(5), "random_state": 0}
found = value_game(game, runtime=Runtime(Serial(), sys.argv[2]), **run)
print(found.values.tobytes().hex())
"""


@pytest.mark.slow
def test_a_run_goes_on_after_docstrings_have_changed(tmp_path):
    source = Path(cellworth.__file__).parent
    shutil.copytree(source, tmp_path / "cellworth", ignore=shutil.ignore_patterns("__pycache__"))
    for path in (tmp_path / "cellworth").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace('"""', '"""Reworded. ', 1), encoding="utf-8")
    play(tmp_path / "run", n_tasks=2)
    done = subprocess.run(  # noqa: S603 (this interpreter, our own script)
        [sys.executable, "-c", IN_ANOTHER_SOURCE, tmp_path, tmp_path / "run"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    straight = play(tmp_path / "straight", n_tasks=5)
    assert done.stdout.strip() == straight.values.tobytes().hex()


def test_a_model_of_the_same_name_and_other_code_is_not_let_in(tmp_path):
    monte_carlo(tmp_path, model=Mended(), stop=MaxTasks(3))
    monte_carlo(tmp_path, model=Mended(), stop=MaxTasks(4))
    with pytest.raises(ValueError, match="holds another run: its code is") as error:
        monte_carlo(tmp_path, model=same_name_other_code(), stop=MaxTasks(5))
    the_sentence(error)


def near(a, b):
    return (a - b) ** 2


def test_a_distance_of_the_same_name_and_other_code_is_not_let_in(tmp_path):
    def changed(a, b):
        return (a - b) ** 4

    changed.__name__, changed.__qualname__ = near.__name__, near.__qualname__
    neighbours(tmp_path, column_types={"a": near}, n_passes=1)
    neighbours(tmp_path, column_types={"a": near}, n_passes=2)
    with pytest.raises(ValueError, match="holds another run: its ") as error:
        neighbours(tmp_path, column_types={"a": changed}, n_passes=3)
    the_sentence(error)


@pytest.mark.parametrize("kind", RUNS)
def test_a_file_is_no_checkpoint(tmp_path, kind):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(NotADirectoryError, match="checkpoint must be a folder, got the file") as it:
        RUNS[kind][0](tmp_path / "file")
    the_sentence(it)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("kind", RUNS)
def test_a_folder_that_cannot_be_made_is_told(tmp_path, kind):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError, match=r"cannot write the checkpoint \(Not a directory\)") as it:
        RUNS[kind][0](tmp_path / "file" / "run")
    assert str(tmp_path / "file" / "run") in the_sentence(it)


@pytest.mark.slow
@pytest.mark.parametrize("kind", RUNS)
def test_a_folder_of_other_files_can_hold_a_checkpoint(tmp_path, kind):
    (tmp_path / "notes.txt").write_text("mine")
    RUNS[kind][0](tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"
