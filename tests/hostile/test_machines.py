"""Machines that fail: full disks, folders and memory that may not be used, kills in a storm."""

import os
import shutil
import signal
import subprocess
import sys
import time
from unittest.mock import ANY

import numpy as np
import psutil
import pytest

import survivor
from cellworth import Runtime, load
from cellworth.runtime import MaxTasks, Serial
from killing import Driver, Log
from shell import TABLE

linux = pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("setpriv") is None,
    reason="needs Linux with setpriv and mount",
)
root = pytest.mark.skipif(
    getattr(os, "geteuid", lambda: -1)() != 0, reason="only root mounts a file system"
)
# Root may write everywhere; without these it is an ordinary user.
AS_USER = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search,-sys_resource"]


@pytest.fixture
def home(tmp_path):
    (tmp_path / "t.csv").write_text(TABLE)
    return tmp_path


def command(home, *words, limit="true", user=True, **environment):
    """Run a command as a user, in a folder, with limits; return its code and last line."""
    asked = [sys.executable, "-m", "cellworth", *map(str, words)]
    asked = [*AS_USER, *asked] if user and os.geteuid() == 0 else asked
    given = {name: it for name, it in (os.environ | environment).items() if it is not None}
    ended = subprocess.run(  # noqa: S603 (our own program)
        [shutil.which("bash"), "-c", f'{limit} && exec "$@"', "bash", *asked],
        cwd=home, env=given, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    return ended.returncode, (ended.stderr.strip().splitlines() or [""])[-1]


VALUE = ("value", "t.csv", "--target", "label", "--id", "name")


@pytest.fixture
def small_disk(home):
    """A file system of 64 kB."""
    folder = home / "disk"
    folder.mkdir()
    mounted = subprocess.run(  # noqa: S603
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)],  # noqa: S607
        check=False, capture_output=True,
    )  # fmt: skip
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)  # noqa: S603, S607


@linux
@root
@pytest.mark.nightly
@pytest.mark.parametrize("words", [["-o", "disk/v"], ["--checkpoint", "disk/run", "-o", "v"]])
def test_a_full_disk_is_a_reason_to_try_again_and_leaves_no_temporary_file(home, small_disk, words):
    filled = small_disk / "fill"
    # The folder can be made, and nothing be written.
    filled.write_bytes(bytes(2**16 - 2**13))
    code, line = command(home, *VALUE, *words, user=False)
    assert (code, line.startswith("Error: "), "No space left on device" in line) == (75, True, True)
    assert "disk/" in line
    assert not [path for path in small_disk.rglob("*") if "~" in path.name]
    filled.unlink()
    # What was written stays in the folder of the result, so that there must be a new one.
    again = ["-o", "disk/new"] if words[1] == "disk/v" else words
    assert command(home, *VALUE, *again, user=False) == (0, ANY)


@linux
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("words", "reported"),
    [
        ([*VALUE, "-o", "closed/v"], "closed is not writable; give another path as -o."),
        ([*VALUE, "--checkpoint", "closed/run", "-o", "v"], "closed/run: Permission denied"),
        (["audit", "t.csv", "-o", "closed/a.html"], "closed is not writable"),
    ],
)
def test_a_folder_that_only_others_may_write_is_named(home, words, reported):
    (home / "closed").mkdir(mode=0o555)
    code, line = command(home, *words)
    assert (code, reported in line) == (2, True), line


NOWHERE = [
    {"HOME": "/nonexistent", "NUMBA_CACHE_DIR": None},
    {"HOME": None, "XDG_CACHE_HOME": None, "MPLCONFIGDIR": None},
    {"TMPDIR": "/nonexistent"},
]


@linux
@pytest.mark.nightly
@pytest.mark.parametrize("environment", NOWHERE, ids=lambda given: "-".join(given))
def test_a_run_needs_no_home_and_no_folder_of_its_own_for_temporary_files(home, environment):
    code, line = command(home, *VALUE, "-o", "v", **environment)
    assert code == 0, line
    assert load(home / "v").status == "exact"


@linux
@pytest.mark.nightly
@pytest.mark.parametrize("limit", ["ulimit -n 40", "ulimit -f 4", "ulimit -v 1500000"])
def test_limits_of_the_shell_end_a_run_with_a_result_or_a_sentence(home, limit):
    code, line = command(home, *VALUE, "-o", "v", "--workers", "2", limit=limit)
    # A thread needs memory for its stack, and a result a file.
    assert code == 0 or line.startswith("Error: "), line
    assert code in (0, 75), line
    assert (home / "v" / "manifest.json").exists() == (code == 0)


N_TASKS = 20


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["threads", "processes", "dask", "ray"])
def test_a_storm_of_kills_changes_no_bit(name, tmp_path):
    """Driver and workers are killed at drawn moments, five times over; each run goes on."""
    pytest.importorskip({"dask": "distributed", "ray": "ray"}.get(name, "numpy"))
    log = Log(tmp_path / "whole")
    stop = MaxTasks(N_TASKS)
    whole = survivor.knn(log.path, stop=stop, runtime=Runtime(Serial()), seconds=0.0)
    rng, n_killed = np.random.default_rng(41), 0
    for moment in sorted(rng.integers(1, log.n_starts, 5).tolist()):
        with Driver("survivor") as driver:
            driver.begin(tmp_path, valuer="knn", executor=name, n_workers=2, n_tasks=N_TASKS)
            while driver.alive() and driver.log.n_starts < moment:
                time.sleep(0.005)
            victims = (
                [psutil.Process(driver.process.pid), *driver.family()] if driver.alive() else []
            )
            for victim in victims:
                try:
                    os.kill(victim.pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                n_killed += 1
    runtime = Runtime(Serial(), tmp_path / "checkpoint")
    resumed = survivor.knn(tmp_path / "log", stop=stop, runtime=runtime, seconds=0.0)
    assert n_killed >= 3
    assert survivor.digest(resumed) == survivor.digest(whole)
