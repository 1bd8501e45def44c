"""Tables in many files, from stdin and from sheets, through all commands."""

import gzip
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from cellworth import load
from cellworth.cli.commands import main
from shell import OWNERS, ROWS, TABLE, cellworth, fine, invoked

HEAD = "name,age,town,debt,label"


def make_home(folder, suffix="csv"):
    """A table of 24 rows in one file and in three, with validation rows."""
    (folder / "whole.csv").write_text(TABLE)
    (folder / "val.csv").write_text("\n".join([HEAD, *ROWS[3:9], ""]))
    whole = pc.read_csv(folder / "whole.csv")
    (folder / "parts").mkdir()
    for number, start in enumerate((0, 5, 17)):
        part = whole.slice(start, [5, 12, 7][number])
        path = folder / "parts" / f"{number}.{suffix}"
        (pc.write_csv if suffix == "csv" else pq.write_table)(part, path)
    (folder / "owners.toml").write_text(OWNERS)
    return folder


ASKED = ["--target", "label", "--drop", "name", "-k", "3", "--stop", "passes=2"]


def read_values(folder):
    return load(folder).values


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The table valued in shards, from a folder of Parquet files."""
    home = make_home(tmp_path_factory.mktemp("many"), "parquet")
    asked = [home / "parts", *ASKED, "--val", home / "val.csv", "--shards"]
    fine("value", *asked, "-o", home / "values", "--owners", home / "owners.toml")
    return home


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_folder_and_a_pattern_have_the_values_of_one_file(tmp_path, suffix):
    home = make_home(tmp_path, suffix)
    fine("value", home / "whole.csv", *ASKED, "-o", home / "one")
    for address in (home / "parts", f"{home}/parts/*.{suffix}"):
        done = cellworth("value", address, *ASKED, "-o", home / "many", "--force")
        assert done.err.startswith(
            f"{address} has 24 rows x 3 columns and is read into memory; --s"
        )
        np.testing.assert_array_equal(read_values(home / "many"), read_values(home / "one"))
    assert "is read into memory" in cellworth("value", home / "parts", *ASKED, "--dry-run").err


@pytest.mark.slow
def test_a_large_folder_is_read_in_shards(tmp_path, monkeypatch):
    monkeypatch.setattr("cellworth.cli.request.MAX_CELLS_IN_MEMORY", 71)
    home = make_home(tmp_path)
    asked = ["value", home / "parts", *ASKED, "-o", home / "o"]
    assert "is read in shards, which needs validation rows; give --val" in cellworth(*asked).err
    done = cellworth(*asked, "--val", home / "val.csv")
    assert (done.code, "and is read in shards; --no-shards" in done.err) == (0, True)
    done = cellworth(*asked, "--val", home / "val.csv", "--no-shards", "--force")
    assert (done.code, "is read into memory" in done.err) == (0, True)
    monkeypatch.setattr("cellworth.cli.request.MAX_CELLS_IN_MEMORY", 72)
    assert "is read into memory" in cellworth(*asked, "--val", home / "val.csv", "--force").err


def test_values_in_shards_are_those_in_memory_with_ranks_in_bins(home):
    from cellworth import KNNValuer
    from cellworth.cli.input_files import read_input
    from cellworth.knn import BinnedRanks

    how = {"target": "label", "drop": ["name"]}
    train, val = (read_input(home / name, **how) for name in ("whole.csv", "val.csv"))
    valuer = KNNValuer(3, n_passes=2, random_state=0, ranking=BinnedRanks())
    valuer.fit(train.X, train.y, X_val=val.X, y_val=val.y)
    np.testing.assert_array_equal(read_values(home / "values"), valuer.valuation_.values)


def pipe(content, *arguments):
    """Run a command with this on stdin; its exit code and stderr."""
    done = invoked(main, *arguments, stdin=content)
    return done.code, done.err


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "csv.gz"])
def test_stdin_is_kept_for_later_commands(tmp_path, kind):
    home = make_home(tmp_path)
    whole = pc.read_csv(home / "whole.csv")
    pq.write_table(whole, home / "x.parquet")
    content = {
        "csv": TABLE.encode(),
        "csv.gz": gzip.compress(TABLE.encode()),
        "jsonl": "\n".join(map(json.dumps, whole.to_pylist())).encode(),
        "parquet": (home / "x.parquet").read_bytes(),
    }[kind]
    code, noted = pipe(content, "value", "-", *ASKED, "-o", home / "v")
    assert (code, f"stdin is kept in {home}/v.stdin.{kind}, for later" in noted) == (0, True)
    fine("value", home / "whole.csv", *ASKED, "-o", home / "one")
    np.testing.assert_array_equal(read_values(home / "v"), read_values(home / "one"))
    assert " is worth " in fine("explain", home / "v", "--row", "3")


def test_a_dry_run_of_stdin_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert pipe(TABLE.encode(), "value", "-", *ASKED, "--dry-run")[0] == 0
    assert list(tmp_path.iterdir()) == []
    code, told = pipe(b"", "value", "-", *ASKED, "--dry-run")
    assert (code, "stdin is empty; pipe a table into it" in told) == (2, True)


def test_a_sheet_has_the_values_of_the_same_csv(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    home = make_home(tmp_path)
    book = openpyxl.Workbook()
    whole = pc.read_csv(home / "whole.csv")
    book.active.append(whole.column_names)
    for line in whole.to_pylist():
        book.active.append(list(line.values()))
    book.save(home / "one.xlsx")
    fine("value", home / "whole.csv", *ASKED, "-o", home / "one")
    fine("value", home / "one.xlsx", *ASKED, "-o", home / "v")
    np.testing.assert_array_equal(read_values(home / "v"), read_values(home / "one"))
    book.create_sheet("notes").append(["nothing"])
    book.save(home / "two.xlsx")
    asked = ["value", home / "two.xlsx", *ASKED, "-o", home / "w"]
    assert "it has the sheets 'Sheet', 'notes'; save the one" in cellworth(*asked).err


def test_delimiter_decimal_and_encoding_are_options(tmp_path):
    home = make_home(tmp_path)
    text = TABLE.replace(",", ";").replace("town", "größe")
    (home / "other.csv").write_text(text, encoding="utf-16")
    fine("value", home / "whole.csv", *ASKED, "-o", home / "one")
    how = ["--delimiter", ";", "--encoding", "utf-16", "--decimal", ","]
    fine("value", home / "other.csv", *ASKED, *how, "-o", home / "v")
    np.testing.assert_array_equal(read_values(home / "v"), read_values(home / "one"))
    assert "größe" in fine("explain", home / "v", "--row", "3")
    assert json.loads(fine("info", home / "v", "--json"))["request"]["encoding"] == "utf-16"


@pytest.mark.slow
def test_all_commands_work_over_shards(home, tmp_path):
    values = home / "values"
    assert "Valuation of 24 x 3" in fine("info", values)
    assert json.loads(fine("info", values, "--json"))["request"]["shards"] is True
    explained = json.loads(fine("explain", values, "--row", "7", "--json"))
    whole = pc.read_csv(home / "whole.csv").slice(7, 1).to_pylist()[0]
    assert {part["column"]: part["cell"] for part in explained["parts"]} == {
        name: whole[name] for name in ("age", "town", "debt")
    }
    assert "no row is called 'x'" in cellworth("explain", values, "--row", "x").err
    fine("explain", values, "--column", "debt")
    fine("report", values, "-o", tmp_path / "report.html")
    assert "<!doctype html>" in (tmp_path / "report.html").read_text(encoding="utf-8")
    asked = [home / "parts", *ASKED, "--val", home / "val.csv", "--shards"]
    assert re.search("3 shards, .* 47. MB of memory", fine("value", *asked, "--dry-run"))


@pytest.mark.slow
def test_agreements_work_over_shards(home, tmp_path):
    deal, values, bundle = (tmp_path / name for name in ("deal.toml", "v", "bundle"))
    (home / "terms.toml").write_text(
        'table = "parts"\ntarget = "label"\ndrop = ["name"]\nshards = true\n'
        + (home / "owners.toml").read_text()
        + '[validation]\ntable = "val.csv"\n[policy]\ngame = "cells"\nnegative = "signed"\n'
        + "[method]\nneighbors = 3\nstop = {passes = 2}\n"
    )
    fine("agree", home / "terms.toml", "-o", deal)
    fine("value", home / "parts", "--agreement", deal, "-o", values)
    assert "shop" in fine("split", values, "--amount", "100.00", "-o", bundle)
    assert fine("verify", bundle, "--values", values).endswith("data, values agree\n")


@pytest.mark.slow
def test_a_run_over_shards_is_resumed_and_merged(tmp_path):
    rng = np.random.default_rng(0)
    cells = pa.table({f"c{i}": rng.normal(size=30) for i in range(24)} | {"y": [0, 1] * 15})
    pq.write_table(cells, tmp_path / "t.parquet", row_group_size=10)
    pc.write_csv(cells.slice(0, 6), tmp_path / "val.csv")
    asked = [tmp_path / "t.parquet", "--target", "y", "--val", tmp_path / "val.csv", "--shards"]
    run, passes = tmp_path / "run", ["--stop", "passes=2"]
    fine("value", *asked, *passes, "--checkpoint", run, "-o", tmp_path / "v")
    assert f"cellworth resume {run}" in fine("info", run)
    fine("resume", run, "--stop", "passes=4", "-o", tmp_path / "w")
    fine("value", *asked, "--stop", "passes=4", "-o", tmp_path / "four")
    np.testing.assert_array_equal(read_values(tmp_path / "w"), read_values(tmp_path / "four"))
    fine("value", *asked, *passes, "--seed", "1", "-o", tmp_path / "other")
    fine("merge", tmp_path / "v", tmp_path / "other", "--into", tmp_path / "both")
    merged = (read_values(tmp_path / "v") + read_values(tmp_path / "other")) / 2
    np.testing.assert_allclose(read_values(tmp_path / "both"), merged, atol=1e-15)
    assert " is worth " in fine("explain", tmp_path / "both", "--row", "2")


@pytest.mark.slow
def test_files_that_changed_are_told(tmp_path):
    home = make_home(tmp_path)
    for flag in ("--shards", "--no-shards"):
        asked = [home / "parts", *ASKED, "--val", home / "val.csv", flag]
        fine("value", *asked, "-o", home / f"v{flag}")
    with (home / "parts" / "1.csv").open("a") as file:
        file.write("p99,30,north,4,yes\n")
    for flag in ("--shards", "--no-shards"):
        done = cellworth("explain", home / f"v{flag}", "--row", "1")
        assert (done.code, "is not the table that was valued (its sha256 differs)" in done.err) == (
            2,
            True,
        )
    (home / "parts").rename(home / "moved")
    done = cellworth("explain", home / "v--shards", "--row", "1")
    assert "does not exist any more; give --table" in done.err


@pytest.mark.parametrize(
    ("option", "reported"),
    [
        (["--id", "name"], "--id is for tables in memory, but"),
        (["--model", "m:f"], "--model is for tables in memory, but"),
        (["--stop", "fits=9"], "--stop fits is for models"),
        (["--drop", "nosuch"], "--drop is 'nosuch'"),
        (["--target", "nosuch"], "got 'nosuch'; its columns are"),
    ],
)
def test_options_that_shards_do_not_have_are_told(home, option, reported):
    asked = [home / "parts", "--target", "label", "--val", home / "val.csv", "--shards"]
    done = cellworth("value", *asked, *option, "--dry-run")
    assert (done.code, reported in done.err) == (2, True)


def test_a_table_too_large_for_memory_is_told_to_commands_that_need_it(home, monkeypatch):
    monkeypatch.setattr("cellworth.cli.request._MAX_CELLS", 71)
    done = cellworth("report", home / "values")
    assert (done.code, "must have at most 71 cells, got 72; list the lowest" in done.err) == (
        2,
        True,
    )
    fine("explain", home / "values", "--row", "3")
