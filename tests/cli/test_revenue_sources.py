"""A table with a column of owners, on the command line."""

import json
import tomllib

import numpy as np
import pandas as pd
import pytest

from cellworth import KNNValuer, Owners, load
from cellworth.payouts import Agreement, verify_bundle
from shell import cellworth, fine

SOURCES = ["bank", "shop", "bank", "mill"]
ROWS = [
    f"{1000 + i},{i % 5 + i % 2 * 3},{i % 7},{SOURCES[i % 4]},{'yes' if i % 2 else 'no'}"
    for i in range(24)
]
OPTIONS = ("--target", "label", "-k", "3", "--val", "3")


def write(path, rows):
    path.write_text("\n".join(["customer,a,b,source,label", *rows, ""]))
    return path


@pytest.fixture
def table(tmp_path):
    return write(tmp_path / "rows.csv", ROWS)


def test_from_a_source_column_to_a_bundle_that_verifies(table, tmp_path):
    deal, values, bundle = (tmp_path / name for name in ("deal.toml", "values", "bundle"))
    given = (table, *OPTIONS, "--drop", "customer")
    fine("draft", *given, "--owners", "source", "-o", deal)
    assert tomllib.loads(deal.read_text())["source"] == "source"
    fine("value", *given, "--agreement", deal, "-o", values)
    valuation = load(values)
    assert valuation.column_labels.tolist() == ["a", "b"]
    assert valuation.owned.names == ("bank", "shop", "mill")
    printed = fine("split", values, "--amount", "100.00", "-o", bundle)
    assert all(name in printed for name in SOURCES)
    assert fine("verify", bundle, "--values", values).startswith("yes: files, split, agreement, ")
    # In Python, the data holds the column that names the owners.
    X = pd.read_csv(table).drop(columns="customer")
    data = {"X": X.drop(columns="label"), "y": X["label"], "cv": 3, "value_labels": False}
    data["n_validation"] = "auto"
    valuer = KNNValuer(3, random_state=0)
    assert verify_bundle(bundle, data=data, valuer=valuer)
    assert Agreement.from_toml(deal).owners_of(data["X"]).n_cells_of("bank") == 24


def test_rows_handed_in_again_are_worth_nothing(table, tmp_path):
    again = [f"{2000 + i},{row.partition(',')[2]}" for i, row in enumerate(ROWS[3::4] * 3)]
    more = write(tmp_path / "more.csv", [*ROWS, *again])
    amounts = []
    for file in (table, more):
        given = (file, *OPTIONS, "--drop", "customer")
        deal, values, bundle = (tmp_path / f"{file.stem} {name}" for name in ("a.toml", "v", "b"))
        fine("draft", *given, "--owners", "source", "-o", deal)
        assert tomllib.loads(deal.read_text())["policy"]["duplicates"] == "share"
        done = cellworth("value", *given, "--agreement", deal, "-o", values)
        shared = "18 of 42 rows equal an earlier one and share its value, as agreed."
        assert (shared in done.err) == (file == more)
        printed = fine("split", values, "--amount", "100.00", "-o", bundle, "--json")
        amounts.append([float(one["amount"]) for one in json.loads(printed)["owners"]])
        assert fine("verify", bundle, "--values", values).endswith("data, values agree\n")
    assert amounts[1] == pytest.approx(amounts[0], rel=0.01)


def test_a_reserve_shows_who_knew_validation_rows_and_the_bundle_verifies_without_it(tmp_path):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(1700, 4)).round(2), columns=list("abcd"))
    table, val, reserve = rows[:600].copy(), rows[600:700], rows[700:]
    table.iloc[:12] = val[:12] + rng.choice([-0.05, 0.05], (12, 4))
    for name, part in (("table", table), ("val", val), ("reserve", reserve)):
        given = {"source": np.repeat(list("uvwxy"), 120)} if name == "table" else {}
        labels = np.where(part["a"] + part["b"] > 0, "yes", "no")
        part.assign(label=labels, **given).to_csv(tmp_path / f"{name}.csv", index=False)
    given = (tmp_path / "table.csv", "--target", "label", "--val", tmp_path / "val.csv")
    deal, values, bundle = (tmp_path / name for name in ("deal.toml", "values", "bundle"))
    owners = tmp_path / "owners.toml"
    owners.write_text('source = "source"\nowners = [{name = "bank", columns = ["d"]}]')
    fine("draft", *given, "--owners", owners, "--gate", "warn", "-o", deal)
    fine("value", *given, "--agreement", deal, "-o", values)
    split = ("split", values, "--amount", "100.00", "-o", bundle, "--json")
    done = cellworth(*split, "--reserve", tmp_path / "reserve.csv")
    found = [(one["kind"], one["owners"]) for one in json.loads(done.out)["findings"]]
    assert ("too good", ["u"]) in found
    assert fine("verify", bundle, "--values", values).endswith("data, values agree\n")
    done = cellworth("split", values, "--amount", "100.00", "--reserve", deal)
    assert done.code == 2


def test_rows_that_came_later_need_an_owner(table, tmp_path):
    owners = tmp_path / "owners.toml"
    rule = "rows = {column = 'customer', from = 1000, to = 1023}"
    owners.write_text(f"keys = ['customer', 'source']\n[[owners]]\nname = 'old'\n{rule}")
    fine("value", table, *OPTIONS, "--owners", owners, "-o", tmp_path / "v")
    assert "old" in fine("split", tmp_path / "v", "--amount", "5.00")
    later = write(tmp_path / "later.csv", [*ROWS, "1024,1,1,bank,no"])
    done = cellworth("value", later, *OPTIONS, "--owners", owners, "-o", tmp_path / "w")
    assert done.code != 0
    assert "one row has no owner in --owners, for example row 24 in column 'a'" in done.err
    owners.write_text("rest = 'pool'\n" + owners.read_text())
    fine("value", later, *OPTIONS, "--owners", owners, "-o", tmp_path / "w")
    assert load(tmp_path / "w").owned.names == ("old", "pool")


def test_a_dropped_column_can_name_owners_at_the_split(table, tmp_path):
    values, owners = tmp_path / "values", tmp_path / "owners.toml"
    fine("value", table, *OPTIONS, "--drop", "source", "--drop", "customer", "-o", values)
    owners.write_text("source = 'source'")
    split = ("split", values, "--amount", "9.00", "--owners", owners)
    done = cellworth(*split, "--duplicates", "pay")
    assert (done.code, "mill" in done.out) == (0, True), done.err


def test_shards_are_valued_without_their_source_column(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    for part in range(2):
        write(folder / f"{part}.csv", ROWS[12 * part : 12 * part + 12])
    val = write(tmp_path / "val.csv", ROWS[:6])
    given = ("--target", "label", "-k", "3", "--val", val, "--shards", "--drop", "customer")
    fine("value", folder, *given, "--owners", "source", "-o", tmp_path / "values")
    valuation = load(tmp_path / "values")
    assert valuation.column_labels.tolist() == ["a", "b"]
    assert valuation.owned.names == ("bank", "shop", "mill")


def test_owners_of_the_library_and_of_the_command_line_are_the_same(table, tmp_path):
    fine("value", table, *OPTIONS, "--owners", "source", "-o", tmp_path / "values")
    X = pd.read_csv(table).drop(columns="label")
    keys = load(tmp_path / "values").owned.keys
    owners = Owners.from_column(X, "source")
    assert owners.project(load(tmp_path / "values").blocks).keys == keys


def test_owners_are_players_from_the_draft_to_the_verdict(table, tmp_path):
    deal, values, bundle = (tmp_path / name for name in ("deal.toml", "values", "bundle"))
    given = (table, *OPTIONS, "--drop", "customer")
    fine("draft", *given, "--owners", "source", "--game", "owners", "-o", deal)
    printed = fine("value", *given, "--agreement", deal, "-o", values)
    assert all(name in printed for name in SOURCES)
    assert load(values).shape == (3, 1)
    fine("split", values, "--amount", "100.00", "-o", bundle)
    assert fine("verify", bundle, "--values", values).endswith("data, values agree\n")
    done = cellworth("explain", values, "--row", "1")
    assert (done.code, "holds values of owners, not of cells" in done.err) == (2, True), done.err


@pytest.mark.parametrize(
    "options", [("--val", "4", "--stop", "passes=2"), ("--val", "{T}", "--shards")]
)
def test_owners_are_players_of_tables_in_memory_without_passes(table, tmp_path, options):
    options = [one.format(T=table) for one in options]
    given = ("--target", "label", *options, "--owners", "source", "--game", "owners")
    done = cellworth("draft", table, *given, "-o", tmp_path / "deal.toml")
    assert (done.code, "owners are players" in done.err) == (2, True), done.err


def test_values_of_all_validation_rows_can_be_split(table, tmp_path):
    given = (table, *OPTIONS, "--drop", "customer", "--owners", "source", "--val-rows", "all")
    fine("value", *given, "-o", tmp_path / "values")
    split = ("split", tmp_path / "values", "--amount", "9.00")
    assert "3 rows equal an earlier one" in cellworth(*split).err
    assert "mill" in fine(*split, "--duplicates", "pay")
