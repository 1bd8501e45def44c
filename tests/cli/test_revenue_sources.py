"""A table with a column of owners, on the command line."""

import re
import tomllib

import pandas as pd
import pytest

from cellworth import KNNValuer, Owners, load
from cellworth.payouts import Agreement, OwnerValuer, verify_bundle
from shell import cellworth, fine

SOURCES = ["bank", "shop", "bank", "mill"]
ROWS = [
    f"{1000 + i},{i % 5 + i % 2 * 3},{i % 7},{SOURCES[i % 4]},{'yes' if i % 2 else 'no'}"
    for i in range(24)
]
OPTIONS = ("--target", "label", "-k", "3", "--val", "3")
TERMS = """
table = "rows.csv"
target = "label"
drop = ["customer"]
source = "source"
[validation]
folds = 3
[method]
neighbors = 3
"""


def write(path, rows):
    path.write_text("\n".join(["customer,a,b,source,label", *rows, ""]))
    return path


@pytest.fixture
def table(tmp_path):
    return write(tmp_path / "rows.csv", ROWS)


def agree(folder, terms=TERMS):
    (folder / "terms.toml").write_text(terms)
    fine("agree", folder / "terms.toml", "-o", folder / "deal.toml")
    return folder / "deal.toml"


def test_from_a_source_column_to_a_bundle_that_verifies(table, tmp_path):
    deal, values, bundle = agree(tmp_path), tmp_path / "values", tmp_path / "bundle"
    assert tomllib.loads(deal.read_text())["source"] == "source"
    fine("value", table, "--agreement", deal, "-o", values)
    printed = fine("split", values, "--amount", "100.00", "-o", bundle)
    assert all(name in printed for name in SOURCES)
    assert fine("verify", bundle, "--values", values).startswith("yes: files, split, agreement, ")
    # In Python, the data holds the column that names the owners.
    X = pd.read_csv(table).drop(columns="customer")
    data = {"X": X.drop(columns="label"), "y": X["label"], "cv": 3}
    valuer = OwnerValuer(KNNValuer(3, random_state=0), random_state=0)
    assert verify_bundle(bundle, data=data, valuer=valuer)
    assert Agreement.from_toml(deal).owners_of(data["X"]).n_cells_of("bank") == 24


def test_a_column_of_owners_that_is_missing_is_a_difference(table, tmp_path):
    deal = agree(tmp_path)
    bare = tmp_path / "bare.csv"
    pd.read_csv(table).drop(columns=["source", "a"]).to_csv(bare, index=False)
    done = cellworth("value", bare, "--agreement", deal, "-o", tmp_path / "v")
    assert done.code == 2
    assert "source" in done.err


def test_an_owner_who_chose_ids_to_be_drawn_is_refused(table, tmp_path):
    terms = TERMS.replace('drop = ["customer"]', 'id = "customer"')
    deal = agree(tmp_path, terms.replace("folds = 3", 'share = 0.3\nseed = "any text"'))
    draw = Agreement.from_toml(deal).validation
    rows = pd.concat([pd.read_csv(table)] * 4).assign(customer=range(96), a=range(96))
    chosen = (i for i in range(96, 9000) if draw.select([i])[0])
    is_shop = rows["source"] == "shop"
    rows.loc[is_shop, "customer"] = [next(chosen) for _ in range(is_shop.sum())]
    rows.to_csv(tmp_path / "next.csv", index=False)
    done = cellworth("value", tmp_path / "next.csv", "--agreement", deal, "-o", tmp_path / "v")
    assert done.code == 2
    assert re.search(r"'shop' has 24 of 4\d validation rows, but agreed on 2\d\.\d%", done.err)


def test_rows_that_came_later_need_an_owner(table, tmp_path):
    owners = tmp_path / "owners.toml"
    rule = "rows = {column = 'customer', from = 1000, to = 1023}"
    owners.write_text(f"keys = ['customer', 'source']\n[[owners]]\nname = 'old'\n{rule}")
    fine("value", table, *OPTIONS, "--owners", owners, "-o", tmp_path / "v")
    later = write(tmp_path / "later.csv", [*ROWS, "1024,1,1,bank,no"])
    done = cellworth("value", later, *OPTIONS, "--owners", owners, "-o", tmp_path / "w")
    assert done.code != 0
    assert "one row has no owner in --owners, for example row 24 in column 'a'" in done.err
    owners.write_text("rest = 'pool'\n" + owners.read_text())
    fine("value", later, *OPTIONS, "--owners", owners, "-o", tmp_path / "w")
    assert load(tmp_path / "w").owned.names == ("old", "pool")


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


@pytest.mark.parametrize(
    ("more", "advice"),
    [
        ("stop = {passes = 2}", "--stop passes is for cells"),
        ("", "players only of tables in memory"),
    ],
)
def test_owners_are_players_of_tables_in_memory_without_passes(table, tmp_path, more, advice):
    terms = TERMS + more
    if not more:
        terms = terms.replace("folds = 3", 'table = "rows.csv"').replace(
            "source", "shards = true\nsource", 1
        )
    (tmp_path / "terms.toml").write_text(terms)
    done = cellworth("agree", tmp_path / "terms.toml", "-o", tmp_path / "deal.toml")
    assert (done.code, advice in done.err) == (2, True), done.err
