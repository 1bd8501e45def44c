"""Runs and results of the command line in object stores: in memory, and on a real S3 server."""

import json
import signal
import time

import numpy as np
import pytest

from cellworth import load
from object_store import digest
from shell import TABLE, cellworth, fine, started

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def box(memory_store):
    return "memory://box"


@pytest.fixture
def asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(TABLE)
    return ["t.csv", "--target", "label", "--id", "name", "-k", 3]


@pytest.mark.slow
def test_commands_write_to_a_store_and_read_from_it(asked, box, tmp_path):
    fine("value", *asked, "-o", "local")
    out = fine("value", *asked, "--checkpoint", f"{box}/run", "-o", f"{box}/values", "--json")
    assert json.loads(out)["output"] == f"{box}/values"
    assert digest(load(f"{box}/values")) == digest(load("local"))
    assert "cellworth valuation" in fine("info", f"{box}/values")
    assert f"cellworth resume {box}/run" in fine("info", f"{box}/run")
    fine("resume", f"{box}/run")
    fine("audit", *asked[:5], "--values", f"{box}/values", "-o", f"{box}/cells.csv")
    fine("report", f"{box}/values", "-o", f"{box}/report.html")
    fine("explain", f"{box}/values", "--row", "p3")
    store = fsspec.filesystem("memory")
    assert store.cat_file("/box/cells.csv").startswith(b'"')
    assert store.cat_file("/box/report.html").startswith(b"<!doctype html>")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["local", "t.csv"]


def test_results_in_a_store_are_replaced_only_by_force(asked, box):
    fine("value", *asked, "-o", f"{box}/values")
    done = cellworth("value", *asked, "-o", f"{box}/values")
    assert done.code != 0
    assert "memory://box/values holds a result already" in done.err
    fine("value", *asked, "-o", f"{box}/values", "--force")


@pytest.mark.parametrize("address", ["nowhere://box/x", "memory:/box/x", "a::memory://box/x"])
def test_a_wrong_address_is_one_sentence(asked, address):
    done = cellworth("value", *asked, "-o", address)
    assert done.code == 2
    assert len(done.err.strip().splitlines()[-1]) > len(address)
    assert address in done.err


@pytest.mark.slow
def test_a_bucket_that_is_missing_is_told_before_the_run(asked, s3):
    done = cellworth("value", *asked, "-o", "s3://no-such-bucket/x")
    assert done.code not in (0, 70)
    assert "s3://no-such-bucket/x" in done.err
    assert "create the bucket first" in done.err


@pytest.mark.nightly
def test_a_killed_command_is_resumed_from_s3(s3, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, options = s3
    # So many columns that they are sampled.
    cells = np.random.default_rng(0).integers(0, 99, (30, 25))
    lines = [",".join(map(str, row)) + f",{row[:9].sum() > 440}" for row in cells]
    header = ",".join([*(f"c{j}" for j in range(25)), "label"])
    (tmp_path / "wide.csv").write_text("\n".join([header, *lines, ""]))
    asked = ["wide.csv", "--target", "label", "-k", 3, "--stop", "passes=40"]
    fine("value", *asked, "-o", "local")
    store = fsspec.filesystem("s3", **options)
    run = ["--checkpoint", "s3://bucket/cli/run", "-o", "s3://bucket/cli/values"]
    killed = started("value", *asked, *run)
    while not store.exists("bucket/cli/run/manifest.json") and killed.poll() is None:
        store.invalidate_cache()
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    fine("resume", "s3://bucket/cli/run")
    assert digest(load("s3://bucket/cli/values")) == digest(load("local"))
    fine("report", "s3://bucket/cli/values", "-o", "s3://bucket/cli/report.html")
    store.invalidate_cache()
    assert store.cat_file("bucket/cli/report.html").startswith(b"<!doctype html>")
