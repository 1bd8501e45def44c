"""Runs in parts, on several machines or a cluster give the bits of one run."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from cellworth import load
from shell import cellworth, fine, started


def wide_table(path, n_rows=12, n_columns=25):
    """A table whose columns must be sampled."""
    rng = np.random.default_rng(0)
    lines = [",".join([*(f"c{j}" for j in range(n_columns)), "label"])]
    for i in range(n_rows):
        lines.append(",".join([*map(str, rng.integers(0, 99, n_columns)), str(i % 2)]))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def asked(tmp_path):
    table = wide_table(tmp_path / "wide.csv")
    return [table, "--target", "label", "-k", 1, "--val", 2, "--stop", "passes=3"]


def test_a_run_that_was_short_goes_on_in_its_checkpoint(asked, tmp_path):
    fine("value", *asked, "-o", tmp_path / "whole")
    shorter = [*asked[:-1], "passes=1"]
    fine("value", *shorter, "--checkpoint", tmp_path / "run", "-o", tmp_path / "v")
    out = json.loads(fine("resume", tmp_path / "run", "--stop", "passes=3", "--json"))
    assert out["status"] == "estimated"
    parts, whole = load(tmp_path / "v"), load(tmp_path / "whole")
    np.testing.assert_array_equal(parts.values, whole.values)
    np.testing.assert_array_equal(parts.sampling_se, whole.sampling_se)


def test_a_checkpoint_of_another_problem_is_rejected(asked, tmp_path):
    fine("value", *asked, "--checkpoint", tmp_path / "run", "-o", tmp_path / "v")
    before = (tmp_path / "run" / "request.json").read_bytes()
    again = ["value", *asked, "--checkpoint", tmp_path / "run", "-o", tmp_path / "w"]
    done = cellworth(*again, "--seed", 5)
    assert done.code == 2
    assert "another seed" in done.err
    assert (tmp_path / "run" / "request.json").read_bytes() == before


def test_a_cluster_that_does_not_answer_is_named(asked, tmp_path, monkeypatch):
    monkeypatch.setattr("cellworth.cli.runs._SECONDS_TO_ANSWER", 1)
    at = ["--workers", "tcp://127.0.0.1:1", "-o", tmp_path / "v"]
    done = cellworth("value", *asked, *at)
    assert done.code == 75
    assert "no scheduler answers at tcp://127.0.0.1:1" in done.err
    monkeypatch.setitem(sys.modules, "distributed", None)
    done = cellworth("value", *asked, *at)
    assert done.code == 2
    assert "pip install 'cellworth[dask]'" in done.err


def test_a_cluster_gives_the_same_bits(asked, tmp_path):
    distributed = pytest.importorskip("distributed")
    fine("value", *asked, "-o", tmp_path / "whole")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
    ) as cluster:
        fine("value", *asked, "--workers", cluster.scheduler_address, "-o", tmp_path / "v")
    found, whole = load(tmp_path / "v"), load(tmp_path / "whole")
    np.testing.assert_array_equal(found.values, whole.values)


def test_a_ray_cluster_that_does_not_answer_is_named(asked, tmp_path, monkeypatch):
    pytest.importorskip("ray")
    at = ["-o", tmp_path / "v", "--workers"]
    done = cellworth("value", *asked, *at, "ray:127.0.0.1:1")
    assert done.code == 75
    assert "no Ray cluster answers at 127.0.0.1:1" in done.err
    done = cellworth("value", *asked, *at, "ray:here")
    assert done.code == 2
    assert "--workers must be an address such as ray:host:6379, got 'here'" in done.err
    monkeypatch.setitem(sys.modules, "ray", None)
    done = cellworth("value", *asked, *at, "ray:127.0.0.1:1")
    assert done.code == 2
    assert "pip install 'cellworth[ray]'" in done.err


@pytest.mark.nightly
@pytest.mark.usefixtures("ray_cluster")
def test_a_ray_cluster_gives_the_same_bits(asked, tmp_path):
    import ray

    address = ray.get_runtime_context().gcs_address
    fine("value", *asked, "-o", tmp_path / "whole")
    given = map(str, ["value", *asked, "--workers", f"ray:{address}", "-o", tmp_path / "v"])
    done = subprocess.run(  # noqa: S603 (this interpreter, our own program)
        [sys.executable, "-m", "cellworth", *given], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found, whole = load(tmp_path / "v"), load(tmp_path / "whole")
    np.testing.assert_array_equal(found.values, whole.values)


def wait_for(condition, seconds=60.0):
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.05)


@pytest.mark.slow
def test_a_run_that_was_interrupted_resumes_to_the_same_bits(tmp_path):
    table = wide_table(tmp_path / "wide.csv", 120)
    asked = [table, "--target", "label", "--val", 3, "--stop", "passes=20", "--workers", 1]
    run = tmp_path / "run"
    process = started("value", *asked, "--checkpoint", run, "-o", tmp_path / "v")
    wait_for(lambda: any(run.glob("answers-*.npz")) or (run / "state.npz").exists())
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 75, err
    assert err.strip().endswith(f"resume with: cellworth resume {run}")
    assert "Traceback" not in err
    fine("resume", run)
    fine("value", *asked, "-o", tmp_path / "whole")
    parts, whole = load(tmp_path / "v"), load(tmp_path / "whole")
    assert parts.status == "estimated"
    np.testing.assert_array_equal(parts.values, whole.values)


@pytest.fixture
def small_tasks(monkeypatch):
    """A pass over a small table has several tasks, so it can be interrupted."""
    monkeypatch.setattr("cellworth.knn.tasks._RANKED_PER_TASK", 1)
    monkeypatch.setattr("cellworth.knn.tasks._MIN_PER_COLUMN", 1)


@pytest.mark.usefixtures("small_tasks")
def test_a_deadline_before_the_first_pass_leaves_what_was_done(tmp_path):
    table = wide_table(tmp_path / "wide.csv", 60)
    asked = ["value", table, "--target", "label", "--val", 3, "--workers", 1]
    asked += ["--stop", "time=0.001s"]
    done = cellworth(*asked, "-o", tmp_path / "v")
    assert done.code == 75
    assert "Interrupted: these values are based on the tasks completed so far." in done.err
    assert "Warning: the run was interrupted after" in done.err
    assert load(tmp_path / "v").status == "interrupted"
    done = cellworth(*asked, "-o", tmp_path / "w", "--checkpoint", tmp_path / "run")
    assert done.code == 75
    assert "cellworth resume" in done.err


@pytest.mark.usefixtures("small_tasks")
def test_a_run_that_is_interrupted_does_not_replace_a_whole_result(tmp_path):
    table = wide_table(tmp_path / "wide.csv", 60)
    asked = ["value", table, "--target", "label", "--val", 3, "--workers", 1, "-o", tmp_path / "v"]
    fine(*asked, "--stop", "passes=1")
    before = load(tmp_path / "v")
    for _ in range(2):
        done = cellworth(*asked, "--stop", "time=0.001s", "--force")
        assert done.code == 75
        assert "is unchanged" in done.err
        assert f"The values are in {tmp_path / 'v.partial'}." in done.err
        np.testing.assert_array_equal(load(tmp_path / "v").values, before.values)
        assert load(tmp_path / "v.partial").status == "interrupted"
    fine("info", tmp_path / "v.partial")
    (tmp_path / "v.partial" / "manifest.json").write_text("{}")
    assert "v.partial1." in cellworth(*asked, "--stop", "time=0.001s", "--force").err


@pytest.mark.parametrize(("begun", "code"), [(False, 130), (True, 75)])
def test_what_is_interrupted_can_go_on_once_the_run_has_begun(
    asked, tmp_path, monkeypatch, begun, code
):
    run = tmp_path / "run"
    if begun:
        fine("value", *asked, "--checkpoint", run, "-o", tmp_path / "v")

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("cellworth.KNNValuer.fit", interrupted)
    done = cellworth("value", *asked, "--checkpoint", run, "-o", tmp_path / "w")
    assert done.code == code
    assert ("cellworth resume" in done.err) == begun
    assert run.exists() == begun


def test_a_run_without_a_checkpoint_that_is_interrupted_at_once_ends_as_shells_expect(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("cellworth.cli.inspection.get_folder_format", interrupted)
    done = cellworth("info", "anything")
    assert done.code == 130
    assert done.err == "Interrupted.\n"
