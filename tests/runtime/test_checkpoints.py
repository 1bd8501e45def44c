"""Torn and foreign checkpoints: each is refused in one sentence, or repaired; none is used."""

import json
import pickle
import shutil
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from sklearn.naive_bayes import GaussianNB

import cellworth
from cellworth import KNNValuer, ModelValuer, Runtime
from cellworth.knn import BinnedRanks
from cellworth.runtime import DirectoryCheckpoint, MaxTasks, Serial
from cellworth.runtime.engine import CheckpointWriter
from cellworth.sampling import Banzhaf, PermutationSampler
from cellworth.valuation import provenance
from cellworth.valuers import identity
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


@pytest.fixture
def halfway(request, stopped, tmp_path):
    """A copy to be damaged; a checkpoint is the same thing for every kind of run."""
    kind = getattr(request, "param", "knn")
    shutil.copytree(stopped[kind].folder, tmp_path / "run")
    return replace(stopped[kind], folder=tmp_path / "run")


def the_sentence(error):
    """The message of an error, which must be one sentence."""
    sentence = str(error.value)
    assert "\n" not in sentence
    assert len(sentence) < 520
    assert sentence.endswith(".") or isinstance(error.value, OSError)
    return sentence


@pytest.mark.slow
@pytest.mark.parametrize("halfway", RUNS, indirect=True)
def test_a_run_that_was_stopped_half_way_has_a_state_and_parts(halfway):
    assert halfway.state.exists()
    assert len(halfway.parts) >= 1
    halfway.assert_goes_on()
    assert halfway.parts == []


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
    "manifest of a Valuation": (
        put_a_valuation_there,
        ["does not describe a cellworth checkpoint", "another folder"],
    ),
    "manifest of another version": (
        lambda it: edit(it.manifest, version=99),
        ["format version 99", "reads version 1", "use the cellworth that wrote it"],
    ),
    "manifest edited by hand": (edit_by_hand, ["sha256 differs", "restore it"]),
    "manifest missing": (
        lambda it: it.manifest.unlink(),
        ["files of a run, but no manifest.json", "new folder"],
    ),
    "manifest of another run": (
        lambda it: shutil.copy(it.other / "manifest.json", it.manifest),
        ["holds another run: its ", "but here it is", "give a new checkpoint"],
    ),
    "state truncated": (lambda it: truncate(it.state), ["state.npz is damaged", "delete it"]),
    "state with a changed figure": (
        lambda it: flip_in_an_array(it.state),
        ["state.npz is damaged", "CRC", "delete it"],
    ),
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
    "part with a changed figure": flip_in_an_array,
    "part is a pickle": trap,
    "part with a pickle_object array": trap_in_an_array,
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
    "row semivalue": {"semivalue": (Banzhaf(), None)},
    "cv": {"cv": 4},
}
OTHERS_OF_ONE = {
    ("knn", "sampler"): {"sampler": PermutationSampler(3)},
    ("knn", "kind of column"): {"column_types": {"d": "categorical"}},
    ("knn", "scale"): {"scale": "std"},
    ("knn", "playing labels"): {"value_labels": True},
    ("knn", "ranking"): {"ranking": BinnedRanks(5)},
    ("monte carlo", "parameter of the model"): {"model": GaussianNB(var_smoothing=1e-3)},
    ("monte carlo", "model"): {"model": Mended()},
    ("monte carlo", "scoring"): {"scoring": "neg_log_loss"},
    ("monte carlo", "policy"): {"empty": "zero"},
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
    others = tuple((dict(provenance.versions()) | {"numpy": "9.9.9"}).items())
    with monkeypatch.context() as patched:
        patched.setattr(identity, "versions", lambda: others)
        assert_another_run(halfway)
    halfway.assert_goes_on()


def test_another_algorithm_version_is_not_let_in(halfway, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(identity, "ALGORITHM_VERSION", provenance.ALGORITHM_VERSION + 1)
        assert_another_run(halfway)
    halfway.assert_goes_on()


def test_another_release_of_the_same_algorithm_goes_on(halfway, monkeypatch):
    others = tuple((dict(provenance.versions()) | {"cellworth": "9.9.9"}).items())
    monkeypatch.setattr(identity, "versions", lambda: others)
    monkeypatch.setattr(cellworth, "__version__", "9.9.9")
    halfway.assert_goes_on()


def test_a_model_of_the_same_name_and_other_code_is_not_let_in(tmp_path):
    monte_carlo(tmp_path, model=Mended(), stop=MaxTasks(3))
    monte_carlo(tmp_path, model=Mended(), stop=MaxTasks(4))
    with pytest.raises(ValueError, match="holds another run: its code is") as error:
        monte_carlo(tmp_path, model=same_name_other_code(), stop=MaxTasks(5))
    the_sentence(error)


def test_a_file_is_no_checkpoint(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(NotADirectoryError, match="checkpoint must be a folder, got the file") as it:
        monte_carlo(tmp_path / "file")
    the_sentence(it)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError, match=r"cannot write the checkpoint \(Not a directory\)") as it:
        monte_carlo(tmp_path / "file" / "run")
    assert str(tmp_path / "file" / "run") in the_sentence(it)


def test_answers_that_wait_for_their_file_may_be_used_up(tmp_path):
    checkpoint = DirectoryCheckpoint(tmp_path)
    checkpoint.open({})
    # The first is written at once, and others wait.
    for task in range(3):
        answer = {"sums": np.full(2, float(task))}
        checkpoint.write_answer(task, answer)
        answer["sums"] += 9.0
    checkpoint.flush()
    again = DirectoryCheckpoint(tmp_path)
    again.open({})
    assert {task: load()["sums"].tolist() for task, load in again.answers()} == {
        0: [0.0, 0.0], 1: [1.0, 1.0], 2: [2.0, 2.0],
    }  # fmt: skip
