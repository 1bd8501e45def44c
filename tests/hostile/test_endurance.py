"""Hours of work leave nothing behind: memory, threads, handles and temporary files.

``PYTHONPATH=tests python tests/hostile/test_endurance.py 1000`` prints what is held after the
tenth and after the last of so many audits and fits, and ``... 200 dask`` or ``ray`` in a cluster.
"""

import gc
import shutil
import sys
import tempfile
import threading
from contextlib import nullcontext
from pathlib import Path

import psutil
import pytest

import survivor
from cellworth import KNNValuer, Runtime, audit
from cellworth.runtime import Threads

# Noise: allocators keep what they once had, and connections come and go.
MAX_GROWTH = {"MB": 12, "threads": 3, "handles": 3}


def measure():
    """Return what this process holds, and its temporary files."""
    gc.collect()
    process = psutil.Process()
    return {
        "MB": process.memory_info().rss / 1e6,
        "threads": threading.active_count(),
        "handles": process.num_fds() if hasattr(process, "num_fds") else process.num_handles(),
        "files": len(list(Path(tempfile.gettempdir()).glob("cellworth*"))),
        "children": len(process.children(recursive=True)),
    }


def work(executor):
    """One audit and one fit."""
    X, y = survivor.table(80, 4)
    audit(X, y, quick=True)
    return KNNValuer(3, runtime=Runtime(executor), random_state=0).fit(X, y, cv=3).valuation_


def endure(n_runs, executor):
    """Return what is held after the tenth run and after the last; all have the same values."""
    first = work(executor).values.tobytes()
    for _ in range(9):
        assert work(executor).values.tobytes() == first
    before = measure()
    for _ in range(n_runs - 10):
        assert work(executor).values.tobytes() == first
    return before, measure()


def list_growth(before, after):
    """Return what grew beyond noise."""
    return {
        name: (before[name], after[name])
        for name in before
        if after[name] > before[name] + MAX_GROWTH.get(name, 0)
    }


@pytest.mark.nightly
def test_audits_and_fits_leave_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert list_growth(*endure(60, Threads(2))) == {}


@pytest.mark.nightly
def test_runs_in_a_cluster_leave_nothing_behind(tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with survivor.executor("dask", 2) as executor:
        assert list_growth(*endure(30, executor)) == {}


if __name__ == "__main__":
    n_runs, name = int(sys.argv[1]), (sys.argv[2:] or ["threads"])[0]
    # Other programs write to the usual folder.
    tempfile.tempdir = tempfile.mkdtemp(prefix="endurance-")
    with survivor.executor(name, 2) if name != "threads" else nullcontext(Threads(2)) as given:
        for held in endure(n_runs, given):
            sys.stdout.write(f"{held}\n")
    shutil.rmtree(tempfile.tempdir)
