"""Owners: rectangles and other shapes, overlaps, names, files; one sentence for each mistake."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cellworth import Owners, ShardedTable
from cellworth.data.blocks import Blocks
from owned_cells import assign_cells

TABLE = pd.DataFrame(
    {"age": [20, 30, 40, 50], "pay": [1.0, 2.0, None, 4.0], "region": ["n", "s", "n", None]},
    index=["r1", "r2", "r3", "r4"],
)
OWNERS = Owners(TABLE).assign("ann", columns="age").assign("bob", rows=["r1"], columns=["pay"])


def masks(owners):
    return {name: owners.cells_of(name).astype(int).tolist() for name in owners.names}


def test_rectangles_add_up_and_what_no_one_holds_is_counted():
    owners = OWNERS.assign("ann", rows="r4", columns="region")
    assert masks(owners)["ann"] == [[1, 0, 0], [1, 0, 0], [1, 0, 0], [1, 0, 1]]
    assert owners.codes.tolist() == [[0, 1, -1], [0, -1, -1], [0, -1, -1], [0, -1, 0]]
    assert owners.n_unassigned == 6
    assert repr(owners).splitlines() == [
        "Owners of 4 x 3 cells", "  ann  5 cells", "  bob  1 cell", "  unassigned  6 cells",
    ]  # fmt: skip


def test_assigning_changes_no_owners_that_are_there():
    before = masks(OWNERS)
    OWNERS.assign("eve", columns="region")
    assert masks(OWNERS) == before


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("r2", [0, 1, 0, 0]),
        (["r2", "r4"], [0, 1, 0, 1]),
        ({"r2", "r4"}, [0, 1, 0, 1]),
        (pd.Index(["r1"]), [1, 0, 0, 0]),
        (slice(1, 3), [0, 1, 1, 0]),
        (slice(-1, None), [0, 0, 0, 1]),
        ([True, False, False, True], [1, 0, 0, 1]),
        (TABLE["age"] > 25, [0, 1, 1, 1]),
        (pl.Series([True, False, False, False]), [1, 0, 0, 0]),
        (None, [1, 1, 1, 1]),
    ],
)
def test_rows_are_named_in_many_ways(rows, expected):
    owners = Owners(TABLE).assign("ann", rows=rows, columns="pay")
    assert owners.cells_of("ann")[:, 1].astype(int).tolist() == expected


def owners_by(rule, table):
    return Owners.from_plain({"owners": [{"name": "ann", "rows": rule}]}, table, called="here")


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"from": 0, "to": 2}, [1, 1, 0, 0]),
        ({"column": "region", "is": "n"}, [1, 0, 1, 0]),
        ({"column": "region", "is": ["n", "s"]}, [1, 1, 1, 0]),
        ({"column": "age", "is": 20.0}, [1, 0, 0, 0]),
        (["r2", "r4"], [0, 1, 0, 1]),
    ],
)
def test_a_file_selects_rows_by_position_content_or_id(rule, expected):
    assert owners_by(rule, TABLE).cells_of("ann")[:, 1].astype(int).tolist() == expected


def test_any_shape_can_be_held():
    cells = np.random.default_rng(0).random((4, 3)) < 0.5
    owners = assign_cells(assign_cells(Owners(TABLE), "ann", cells), "bob", ~cells)
    assert np.array_equal(owners.cells_of("ann"), cells)
    assert owners.n_unassigned == 0


@pytest.mark.parametrize("make", [pl.from_pandas, pa.Table.from_pandas, pd.DataFrame.to_numpy])
def test_every_kind_of_table_has_owners(make):
    table = make(TABLE.reset_index(drop=True))
    region = "x2" if isinstance(table, np.ndarray) else "region"
    owners = owners_by({"column": region, "is": "n"}, table)
    assert owners.cells_of("ann").all(axis=1).tolist() == [True, False, True, False]


def test_integers_can_be_names_of_columns_beside_the_labels():
    owners = Owners(pd.DataFrame([[1, 2], [3, 4]])).assign("ann", columns=[1, "(label)"])
    assert owners.assign("bob", columns=0).codes.tolist() == [[1, 0], [1, 0]]
    assert owners.share_of_labels() == {"ann": 2}


def test_dates_are_values_and_ids():
    days = pd.to_datetime(["2024-01-01", "2024-01-02"])
    table = pd.DataFrame({"day": days, "x": [1, 2]}, index=days)
    for day in (datetime.date(2024, 1, 2), datetime.datetime(2024, 1, 2)):
        assigned = [Owners(table).assign("ann", rows=rows) for rows in ([day], day)]
        for owners in (*assigned, owners_by({"column": "day", "is": day}, table)):
            assert owners.codes[:, 0].tolist() == [-1, 0]


def test_overlaps_are_rejected_by_name():
    with pytest.raises(ValueError, match=r"'ann' and 'eve' both claim the cell \('r1', 'age'\)"):
        repr(OWNERS.assign("eve", rows=["r1"]))


def test_overlaps_are_shared_alike():
    owners = Owners(TABLE, overlaps="equal").assign("ann", rows="r1")
    owners = owners.assign("bob", columns="age").assign("ann", columns="age")
    assert owners.codes[:, 0].tolist() == [-2] * 4
    assert owners.codes[:, 1].tolist() == [0, -1, -1, -1]


def test_columns_with_an_owner_do_not_belong_to_the_source_of_the_row(tmp_path):
    file = tmp_path / "owners.toml"
    file.write_text('source = "region"\nowners = [{name = "bank", columns = ["pay"]}]')
    table = TABLE.fillna({"region": "s"})
    owners = Owners.from_toml(file, table)
    assert masks(owners) == {
        "n": [[1, 0], [0, 0], [1, 0], [0, 0]],
        "s": [[0, 0], [1, 0], [0, 0], [1, 0]],
        "bank": [[0, 1]] * 4,
    }
    same = Owners.from_column(table, "region").assign("bank", columns="pay")
    assert (
        masks(same)
        == masks(owners)
        == masks(Owners.from_plain(owners.to_plain(), table, called=""))
    )


def test_an_owner_who_is_left_without_a_cell_is_an_error(tmp_path):
    text = 'source = "region"\nowners = [{name = "bank", columns = ["pay", "age"]}]'
    (tmp_path / "owners.toml").write_text(text)
    with pytest.raises(ValueError, match=r"'n', 's' would hold no cell in .*owners.toml"):
        Owners.from_toml(tmp_path / "owners.toml", TABLE.fillna({"region": "s"}))


def test_the_same_owner_may_claim_a_cell_twice():
    owners = OWNERS.assign("ann", rows="r1", columns="age")
    assert masks(owners) == masks(OWNERS)


@pytest.mark.parametrize("overlaps", ["refuse", "equal"])
def test_a_block_that_was_claimed_in_parts_by_one_owner_is_held_as_a_whole(overlaps):
    owners = Owners(TABLE, overlaps=overlaps).assign("ann", rows=slice(0, 2))
    owners = owners.assign("ann", rows=slice(2, 4))
    blocks = Blocks.cut(TABLE.index, TABLE.columns, row_groups=["g"] * 4)
    assert owners.project(blocks).codes().tolist() == [[1, 1, 1]]


def test_a_block_of_several_owners_is_rejected():
    rows = Blocks.cut(TABLE.index, TABLE.columns, row_groups=["g", "g", "h", "h"])
    with pytest.raises(ValueError, match="the row group 'g' must belong to one owner, got several"):
        OWNERS.project(rows)
    columns = Blocks.cut(TABLE.index, TABLE.columns, column_groups=["g", "g", "h"])
    with pytest.raises(ValueError, match="the column group 'g' must belong to one owner"):
        OWNERS.project(columns)


def test_owners_of_another_table_are_rejected():
    other = Blocks.cut(TABLE.index, ["age", "pay", "size"])
    with pytest.raises(
        ValueError, match=r"the columns of the valuation .*, got 'age', 'pay', 'region'"
    ):
        OWNERS.project(other)
    shuffled = Blocks.cut(TABLE.index[::-1], TABLE.columns)
    with pytest.raises(ValueError, match=r"the 4 rows of the valuation \('r4', .*, got 4 \('r1'"):
        OWNERS.project(shuffled)


def test_a_hash_of_holdings_depends_on_these_alone():
    blocks = Blocks.cut(TABLE.index, TABLE.columns)
    one = OWNERS.project(blocks).keys[0]
    renamed = Owners(TABLE).assign("zoe", columns="age").assign("ivy", columns="region")
    in_parts = Owners(TABLE).assign("bob", rows=["r1"], columns=["pay"])
    for rows in (["r3", "r4"], ["r1", "r2"]):
        in_parts = in_parts.assign("ann", rows=rows, columns="age")
    assert one == renamed.project(blocks).keys[0] == in_parts.project(blocks).keys[1]
    keys = {one, OWNERS.project(blocks).keys[1], renamed.project(blocks).keys[1]}
    shared = Owners(TABLE, overlaps="equal").assign("ann", columns="age")
    keys.add(shared.assign("bob", columns="age").project(blocks).keys[0])
    assert len(keys) == 4


ROUND_TRIPS = {
    "rectangles": OWNERS,
    "ids": Owners(TABLE).assign("ann", rows=["r1", "r3"]).assign("bob", rows=["r2"]),
    "shapes": assign_cells(Owners(TABLE), "ann", np.eye(4, 3, dtype=bool)),
    "labels": OWNERS.assign("eve", columns=["(label)"]),
    "equal": Owners(TABLE, overlaps="equal").assign("ann").assign("bob", columns="pay"),
    "one id twice": Owners(TABLE.set_axis(["a", "b", "a", "b"]))
    .assign("ann", rows=[True, False, False, True])
    .assign("bob", rows=[False, True, True, False]),
    "numbers": Owners([[1, 2], [3, 4], [5, 6]]).assign("ann", rows=[0, 2]),
    "dates": Owners(TABLE.set_axis(pd.date_range("2024-01-01", periods=4))).assign(
        "ann", rows=[True, False, True, False]
    ),
    "whole-number names": Owners(pd.DataFrame([[1, 2], [3, 4]])).assign("ann", columns=[1]),
}


@pytest.mark.parametrize("which", ROUND_TRIPS)
def test_owners_can_be_written_down_and_read_again(which, tmp_path):
    import tomli_w

    owners = ROUND_TRIPS[which]
    plain = {"rest": False} | owners.to_plain()
    (tmp_path / "owners.toml").write_text(tomli_w.dumps(plain))
    again = Owners.from_toml(tmp_path / "owners.toml", owners.table)
    assert again.names == owners.names
    assert np.array_equal(again.codes, owners.codes)
    assert again.share_of_labels() == owners.share_of_labels()


TOML = {
    "": r"must have at least one \[\[owners\]\] or a source, got none",
    "owners = ['ann']": r"must be \[\[owners\]\] tables, got 'ann'",
    "[[owners]]\nrows = [1]": "an owner in .* must have name, rows and columns, got rows",
    "[[owners]]\nname = 'a'\ncolour = 1": "must have name, rows and columns, got colour, name",
    "[[owners": "is not valid TOML",
    "overlaps = 'some'\n[[owners]]\nname = 'a'": "'equal', got 'some'",
    "[[owners]]\nname = 'a'\nrows = {from = -2, to = 1}": "must be positions .*, got -2 to 1",
    "[[owners]]\nname = 'a'\nrows = {from = 0, to = 9}": "must be positions .*, got 0 to 9",
    "[[owners]]\nname = 'a'\nrows = {column = 'size', is = 1}": "to = ...} with a column of X",
    "[[owners]]\nname = 'a'\nrows = {column = 'region', is = ['n', 'w']}": "got 'w'",
}


@pytest.mark.parametrize("text", TOML)
def test_a_mistake_in_a_file_gets_one_sentence(text, tmp_path):
    path = tmp_path / "owners.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=TOML[text]):
        Owners.from_toml(path, TABLE)


WRONG = [
    ({"name": ""}, "the owner's name must be a non-empty string, got ''"),
    ({"name": "ann\nbob"}, "must have no line breaks"),
    ({"rows": ["r9"]}, "rows of owner 'eve' must be rows of X, got 'r9'; its rows are 'r1'"),
    ({"rows": []}, "rows of owner 'eve' must select some row of X, got none; leave the owner out"),
    ({"rows": {"from": 0, "size": 2}}, "must be {column = ..., is = ...} or"),
    ({"rows": {"from": 0}}, "must be {column = ..., is = ...} or"),
    (
        {"rows": slice(2, 9)},
        "rows of owner 'eve' must be positions up to 4, the number of rows, got 2 to 9",
    ),
    ({"rows": slice("r1", "r3")}, "rows of owner 'eve' must be positions .*, got 'r1' to 'r3'"),
    ({"rows": pl.col("region") == "n"}, "rows of owner 'eve' must be row ids, .*, got Expr"),
    (
        {"name": "unassigned"},
        "the owner's name 'unassigned' is reserved",
    ),
    ({"rows": [True]}, r"must have one entry for each of 4 rows, got a mask of shape \(1,\)"),
    ({"rows": (TABLE["age"] > 25)[::-1]}, "must have the row ids of the table .* same order"),
    ({"columns": "size"}, "columns of owner 'eve' must be columns of X, got 'size'"),
    (
        {"columns": []},
        "columns of owner 'eve' must name some column, got none; leave the owner out",
    ),
    (
        {"columns": [True, False, True]},
        "columns of owner 'eve' must be names of columns, got a mask",
    ),
]


@pytest.mark.parametrize(("given", "sentence"), WRONG)
def test_a_mistake_gets_one_sentence(given, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        Owners(TABLE).assign(**({"name": "eve"} | given))


def test_wrong_tables_and_unknown_owners_get_one_sentence():
    with pytest.raises(ValueError, match="overlaps must be 'refuse' or 'equal', got 'maybe'"):
        Owners(TABLE, overlaps="maybe")
    with pytest.raises(ValueError, match=r"X must not have a column '\(label\)'.*rename it"):
        Owners(TABLE.rename(columns={"age": "(label)"}))
    with pytest.raises(TypeError, match=r"X must be a pandas, polars or Arrow table .*, got dict"):
        Owners({"age": [1]})
    with pytest.raises(KeyError, match="name must be an owner, got 'zoe'; owners are 'ann', 'bob'"):
        OWNERS.cells_of("zoe")


def test_owners_by_a_column_hold_rows_as_if_they_were_assigned_one_by_one(tmp_path):
    banks = ["north", "south", None, "north", "north", "south"]
    cells = pd.DataFrame({"age": range(6), "pay": range(6), "bank": banks, "rich": [0, 1] * 3})
    cells.to_parquet(tmp_path / "rows.parquet", row_group_size=2)
    table = ShardedTable.from_files(tmp_path, target="rich", shards=2)
    assert table.column("bank").tolist() == banks
    assert table.column("age").dtype.kind == "i"
    for X in (table, cells.drop(columns="rich")):
        owners = Owners.from_column(X, "bank")
        wanted = Owners(owners.features(X)).assign("north", rows=[0, 3, 4])
        wanted = wanted.assign("south", rows=[1, 5])
        assert owners.names == wanted.names == ["north", "south"]
        np.testing.assert_array_equal(owners.codes, wanted.codes)
    plain = {"owners": [{"name": "ann", "rows": {"column": "bank", "is": "south"}}]}
    by_rule = Owners.from_plain(plain, table, called="here")
    np.testing.assert_array_equal(by_rule.codes[:, 0], [-1, 0, -1, -1, -1, 0])
    with pytest.raises(ValueError, match="must be among the columns of the table, got 'town'"):
        table.column("town")
    with pytest.raises(ValueError, match="must leave a column besides the target"):
        table.drop("age", "pay", "bank")
