"""Lists, explanations and limits are those of the library."""

import json
import re
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cellworth import audit, explain_row, load
from cellworth.cli.input_files import read_input
from shell import cellworth, fine


@pytest.fixture(scope="module")
def read(home):
    return read_input(home.table, target="label", row_id="name")


def test_an_audit_lists_cells_with_their_values(home, tmp_path):
    table, values, path = (tmp_path / name for name in ("t.csv", "v", "cells.parquet"))
    table.write_text(re.sub("(?m)^(p[12],[^,]*),[^,]*", r"\1,n/a", home.table.read_text()))
    asked = [table, "--target", "label", "--id", "name"]
    fine("value", *asked, "-o", values)
    assert fine("audit", *asked, "--values", values, "-o", path) == ""
    read = read_input(table, target="label", row_id="name")
    found = audit(read.X, read.y, valuation=load(values))
    assert pq.read_table(path).to_pylist() == found.cells(1000, backend="pyarrow").to_pylist()
    assert {line["row"] for line in pq.read_table(path).to_pylist()} >= {"p1", "p2"}
    assert "the cells are worth" in fine("audit", *asked, "--values", values)
    other = cellworth("audit", *asked[:3], "--values", values)
    assert "X must have the 24 rows of the valuation" in other.err


def test_a_row_is_explained_as_the_library_does(home, read):
    again = explain_row(load(home.values), "p5", X=read.X)
    assert fine("explain", home.values, "--row", "p5") == f"{again!r}\n"


def test_rows_without_names_go_by_number(home, tmp_path):
    fine("value", home.table, "--target", "label", "--drop", "name", "-o", tmp_path / "v")
    assert "row 7 is worth" in fine("explain", tmp_path / "v", "--row", "7")
    assert cellworth("explain", tmp_path / "v", "--row", "24").code == 2


def test_a_report_is_one_page(home, tmp_path):
    path = tmp_path / "report.html"
    assert "The report is in" in fine("report", home.values, "-o", path, "--title", "People")
    page = path.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "People" in page
    assert cellworth("report", home.values, "-o", path).code == 2
    assert "What changed" not in page
    fine("report", home.values, "-o", path, "--before", home.values, "--force")
    assert "What changed" in path.read_text(encoding="utf-8")
    fine("report", home.values, "-o", path, "--no-cells", "--force")
    assert path.read_text(encoding="utf-8") != page


def test_info_says_what_a_folder_holds(home):
    out = fine("info", home.values)
    assert out.startswith(f"{home.values}: cellworth valuation\n")
    assert "24 x 3 blocks" in out
    assert "label" in out
    assert "column  read_as   missing  distinct  distance" in out
    values = json.loads(fine("info", home.values, "--json"))["values"]
    assert [line["name"] for line in values["column_info"]] == ["age", "town", "debt"]


def test_info_says_how_far_a_run_is(home, tmp_path):
    run = tmp_path / "run"
    fine("value", *home.asked, "--checkpoint", run, "-o", tmp_path / "v")
    out = fine("info", run)
    assert "\n  method      KNNValuer, ExhaustiveSampler()\n" in out
    assert "\n  done        100% (1.0 passes)\n" in out
    assert "(ended)" in out
    document = json.loads(fine("info", run, "--json"))
    assert document["created"] <= document["progress"]["time"]
    # A process that was killed leaves what it wrote last.
    killed = json.loads((run / "progress.json").read_text()) | {"event": "progress", "done": 0.25}
    for seconds, state in ((5, "active"), (500, "seems dead")):
        ago = datetime.now(UTC) - timedelta(seconds=seconds)
        text = json.dumps(killed | {"time": ago.isoformat(timespec="seconds")})
        (run / "progress.json").write_text(text)
        assert f"({state})" in fine("info", run)
        assert "  done        25%" in fine("info", run)


@pytest.mark.parametrize(
    ("ids", "asked"),
    [
        ([date(2020, 1, day) for day in (1, 2, 3, 4)], ["2020-01-03", "2020-01-03 00:00:00"]),
        ([datetime(2020, 1, 1, hour, 30) for hour in range(4)], ["2020-01-01T02:30:00"]),
        ([1.5, 2.5, 3.5, 4.5], ["3.5"]),
        ([False, True], ["True"]),
    ],
)
def test_rows_are_asked_for_as_they_are_written(tmp_path, ids, asked):
    n = len(ids)
    table = pa.table({"id": ids, "a": list(range(n)), "label": [i % 2 for i in range(n)]})
    pq.write_table(table, tmp_path / "t.parquet")
    given = [tmp_path / "t.parquet", "--target", "label", "-k", 1]
    fine("value", *given, "--id", "id", "--val", tmp_path / "t.parquet", "-o", tmp_path / "v")
    for text in asked:
        assert " is worth " in fine("explain", tmp_path / "v", "--row", text)
    lowest = json.loads(fine("info", tmp_path / "v", "--json"))["values"]["lowest"]
    fine("explain", tmp_path / "v", "--row", str(lowest[0]["row"]))


def test_rows_of_one_name_cannot_be_distinguished(tmp_path):
    (tmp_path / "t.csv").write_text("id,a,label\nx,1,0\nx,2,1\ny,3,0\nz,4,1\n")
    given = [tmp_path / "t.csv", "--target", "label", "--id", "id", "-k", 1, "--val", 2]
    fine("value", *given, "-o", tmp_path / "v")
    done = cellworth("explain", tmp_path / "v", "--row", "x")
    assert done.code == 2
    assert "2 rows are called 'x'; value the table with a unique --id" in done.err
    assert "iloc" not in done.err
    assert "row 'y' is worth" in fine("explain", tmp_path / "v", "--row", "y")
