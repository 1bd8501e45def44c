"""Owners by a column, by rules and by what is left over."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cellworth import Owners, ShardedTable

TABLE = pd.DataFrame(
    {
        "bank_a": [1.0, 2.0, 3.0, 4.0, 5.0],
        "bank_b": [5.0, 4.0, 3.0, 2.0, 1.0],
        "age": [20, 30, 40, 50, 60],
        "customer": [1000, 1500, 1999, 2000, 2500],
        "day": pd.to_datetime([f"2024-0{month}-01" for month in range(1, 6)]),
        "source": ["north", "south", None, "north", "north"],
    },
    index=["r1", "r2", "r3", "r4", "r5"],
)


@pytest.fixture(params=["pandas", "polars", "arrow", "shards"])
def table(request, tmp_path):
    plain = TABLE.reset_index(drop=True)
    if request.param == "shards":
        plain.assign(y=[0, 1, 0, 1, 0]).to_parquet(tmp_path / "rows.parquet", row_group_size=2)
        return ShardedTable.from_files(tmp_path, target="y", shards=2)
    make = {"pandas": lambda frame: frame, "polars": pl.from_pandas, "arrow": pa.Table.from_pandas}
    return make[request.param](plain)


def test_a_column_names_the_owners_and_is_no_feature(table):
    owners = Owners.from_column(table, "source")
    assert owners.names == ["north", "south"]
    assert owners.shape == (5, 5)
    np.testing.assert_array_equal(owners.codes, np.repeat([[0], [1], [-1], [0], [0]], 5, axis=1))
    features = owners.features(table)
    names = features.names if isinstance(table, ShardedTable) else Owners(features).table.names
    assert names.tolist() == list(TABLE.columns[:-1])


def test_a_range_of_a_key_has_both_ends(table):
    owners = Owners(table, keys=["customer", "source"])
    owners = owners.assign("old", rows={"column": "customer", "to": 999 + 1000})
    owners = owners.assign("new", rows={"column": "customer", "from": 2000, "to": 2499})
    assert owners.codes[:, 0].tolist() == [0, 0, 0, 1, -1]
    assert owners.shape == (5, 4)


def test_a_range_of_dates_has_both_ends():
    first, last = datetime.date(2024, 2, 1), datetime.date(2024, 4, 1)
    owners = Owners(TABLE).assign("ann", rows={"column": "day", "from": first, "to": last})
    assert owners.codes[:, 0].tolist() == [-1, 0, 0, 0, -1]


def test_the_beginning_of_names_stands_for_columns():
    owners = Owners(TABLE, keys=["source"]).assign("bank", columns="bank_*")
    owners = owners.assign("town", columns=["age", "day*"])
    assert owners.codes[0].tolist() == [0, 0, 1, -1, 1]
    # A column whose name ends so is that column alone.
    starred = pd.DataFrame({"x*": [1], "x1": [2]})
    assert Owners(starred).assign("ann", columns="x*").codes.tolist() == [[0, -1]]


def test_what_no_one_claims_goes_to_the_rest_but_no_labels(table):
    owners = Owners.from_column(table, "source").assign_rest("pool")
    assert owners.names == ["north", "south", "pool"]
    assert owners.n_cells_of("pool") == 5
    assert owners.n_unassigned == 0
    assert owners.share_of_labels() == {}
    later = owners.assign("ann", columns=["(label)"])
    assert later.n_cells_of("pool") == 5


FILE = """
source = "source"
keys = ["customer"]
overlaps = "equal"
rest = "pool"
[[owners]]
name = "registry"
rows = {column = "customer", from = 1600}
columns = "bank_*"
"""


def test_a_file_has_source_keys_rules_and_rest_and_is_written_as_such(tmp_path):
    import tomli_w

    (tmp_path / "owners.toml").write_text(FILE)
    owners = Owners.from_toml(tmp_path / "owners.toml", TABLE)
    assert owners.names == ["north", "south", "registry", "pool"]
    # Columns are bank_a, bank_b, age and day.
    assert owners.codes.tolist() == [[0] * 4, [1] * 4, [2, 2, 3, 3], *[[-2, -2, 0, 0]] * 2]
    (tmp_path / "again.toml").write_text(tomli_w.dumps(owners.to_plain()))
    # Rules stay rules: they hold for rows that came later.
    later = pd.concat([TABLE, TABLE.iloc[[1, 2]].set_axis(["r6", "r7"])])
    again = Owners.from_toml(tmp_path / "again.toml", later)
    np.testing.assert_array_equal(again.codes, owners.codes[[0, 1, 2, 3, 4, 1, 2]])


def test_rows_without_an_owner_are_an_error_unless_the_file_says_who_gets_them(table, tmp_path):
    path = tmp_path / "owners.toml"
    path.write_text("source = 'source'")
    with pytest.raises(ValueError, match=r"one row has no owner .* example row 2 in .*rest"):
        Owners.from_toml(path, table)
    path.write_text("source = 'source'\nrest = false")
    assert Owners.from_toml(path, table).n_unassigned == 5
    # A column that no one owns is no mistake.
    path.write_text("[[owners]]\nname = 'ann'\ncolumns = ['age']")
    assert Owners.from_toml(path, table).n_unassigned == 25


def test_numbers_can_name_owners():
    owners = Owners.from_column(pd.DataFrame({"x": [1.0, 2.0, 3.0], "shop": [7, 8, 7]}), "shop")
    assert owners.names == ["7", "8"]


WRONG = [
    (lambda: Owners(TABLE, keys=["shop"]), "keys must be among the columns of X, got 'shop'"),
    (lambda: Owners(TABLE[["source"]], keys=["source"]), "must have a column besides the keys"),
    (
        lambda: Owners.from_column(TABLE.assign(source=None), "source"),
        "must name some owner, got missing cells only",
    ),
    (
        lambda: Owners(TABLE).assign("ann", rows={"column": "source", "from": 3}),
        "range of values of column 'source', got 3, which cannot be compared",
    ),
    (
        lambda: Owners(TABLE).assign("ann", rows={"column": "age", "from": 99}),
        "must select some row of X, got none",
    ),
    (
        lambda: Owners(TABLE).assign("ann", columns="shop_*"),
        r"must be columns of X, got 'shop_\*', with which none begins",
    ),
    (
        lambda: Owners.from_plain({"source": 5}, TABLE, called="here"),
        "source of here must be the name of a column, got 5",
    ),
    (
        lambda: Owners.from_plain({"keys": "age"}, TABLE, called="here"),
        "keys of here must be a list of columns, got 'age'",
    ),
]


@pytest.mark.parametrize("call", WRONG, ids=[sentence[:30] for _, sentence in WRONG])
def test_a_mistake_gets_one_sentence(call):
    make, sentence = call
    with pytest.raises(ValueError, match=sentence):
        make()
