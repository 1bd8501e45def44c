"""The compilation of kernels is announced once, and does not count as work."""

import os
import shutil
import subprocess
import sys

import pytest
from numba import njit

from cellworth.knn import binned_kernels, kernels
from cellworth.runtime import Processes, Threads
from cellworth.runtime.progress import ProgressReporter


def make_kernel(name):
    """A kernel that has never been compiled, and cannot be cached."""
    made = {"__name__": "cellworth.knn.made"}
    exec(f"def {name}(x): return x + 1", made)  # noqa: S102 (our own text)
    return kernels.kernel(made[name])


@pytest.fixture
def told(caplog):
    caplog.set_level("INFO", logger="cellworth")
    return lambda: [
        record.getMessage() for record in caplog.records if vars(record).get("event") == "compile"
    ]


def test_the_first_compilation_is_announced_once(monkeypatch, told):
    monkeypatch.setattr(kernels._listener, "_announced", False)
    with ProgressReporter("values", shown=False):
        one, two = make_kernel("one"), make_kernel("two")
        assert one(1) == 2
        assert one(5) == 6
        assert two(1) == 2
    (line,) = told()
    assert line.startswith("values: compiling kernels, once per machine and release")


def test_functions_of_others_without_a_module_are_compiled_too(monkeypatch, told):
    monkeypatch.setattr(kernels._listener, "_announced", False)
    made = {}
    exec("def triple(x): return 3 * x", made)  # noqa: S102 (our own text)
    assert njit(made["triple"])(2) == 6
    assert told() == []


@pytest.mark.parametrize("n_files", [0, 1])
def test_workers_compile_if_this_machine_has_no_code_for_them(monkeypatch, told, tmp_path, n_files):
    monkeypatch.setattr(kernels.fill_keys._cache, "_cache_path", str(tmp_path))
    for number in range(n_files):
        (tmp_path / f"kernels.k{number}.nbi").touch()
    kernels.announce_compilation(Threads(2))
    kernels.announce_compilation(Processes(2))
    assert len(told()) == 1 - n_files


FIT = """
import warnings
import numpy as np
from cellworth import KNNValuer
from cellworth.knn import BinnedRanks, kernels
from cellworth.sampling import PermutationSampler
from experiments.baselines import LeverageSampler

warnings.simplefilter("ignore")
compiled = []
kernels._listener.on_start = lambda event: compiled.append(event.data["dispatcher"].__name__)
kernels._listener.on_end = lambda event: None
X = np.random.default_rng(0).normal(size=(90, 5)).round(1)
for y in (X[:, 0] > 0, X[:, 0]):
    for ranking in (None, BinnedRanks(20)):
        for sampler in (PermutationSampler(1), LeverageSampler()):
            KNNValuer(3, sampler=sampler, ranking=ranking, n_passes=2, random_state=0).fit(X, y)
print(*compiled, end="")
"""


@pytest.mark.slow
def test_nothing_is_compiled_after_a_warm_up(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    if warmed_up := os.environ.get("WARMED_UP"):
        # What a warm-up left in an empty folder, and nobody has added to.
        shutil.copytree(warmed_up, tmp_path, dirs_exist_ok=True)
    else:
        program = [sys.executable, "-m", "cellworth", "warm-up"]
        said = subprocess.run(program, capture_output=True, text=True, check=True)  # noqa: S603
        assert str(tmp_path) in said.stdout
    kept = {path.name.split("-")[0] for path in tmp_path.rglob("*.nbi")}
    for module in (kernels, binned_kernels):
        named = {name for name, found in vars(module).items() if hasattr(found, "py_func")}
        name = module.__name__.rpartition(".")[-1]
        mine = {each for each in named if getattr(module, each).__module__ == module.__name__}
        assert {f"{name}.{each}" for each in mine if not each.startswith("_")} <= kept
    program = [sys.executable, "-c", FIT]
    fits = subprocess.run(program, capture_output=True, text=True, check=True)  # noqa: S603
    assert fits.stdout == ""


def test_a_warm_up_without_a_folder_to_keep_kernels_in_says_so(monkeypatch):
    from cellworth.cli.runs import warm_up

    monkeypatch.delattr(kernels.fill_keys, "_cache")
    with pytest.raises(OSError, match="set NUMBA_CACHE_DIR"):
        warm_up()
