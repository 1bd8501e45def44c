"""Runs and results of the command line in object stores: in memory, and on a real S3 server."""

import json

import pytest

from cellworth import load
from object_store import digest
from shell import TABLE, cellworth, fine

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


@pytest.mark.parametrize("address", ["nowhere://box/x", "a::memory://box/x"])
def test_a_wrong_address_is_one_sentence(asked, address):
    done = cellworth("value", *asked, "-o", address)
    assert done.code == 2
    assert len(done.err.strip().splitlines()[-1]) > len(address)
    assert address in done.err
