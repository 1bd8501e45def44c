"""repair: named cells change, all others and the original do not."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cellworth import suspect_cells
from cellworth.data.blocks import is_missing
from cellworth.diagnostics import repair_cells
from cellworth.valuation.values import ValueList

COLUMNS = {
    "age": [20, 30, 40, 300],
    "pay": [1.5, 2.5, 3.5, 4.5],
    "sex": ["f", "m", "m", "f"],
    "since": [dt.datetime(2020, 1, day) for day in (1, 2, 3, 4)],
    "fit": [True, False, True, True],
}
WRONG = [(3, "age"), (0, "sex"), (1, "since")]


def pandas_table():
    table = pd.DataFrame(COLUMNS)
    table["rank"] = pd.array([1, 2, 3, 4], dtype="Int64")
    table["town"] = pd.Categorical(["a", "b", "a", "a"], categories=["a", "b", "c"])
    table["small"] = np.array([1, 2, 3, 4], dtype="float32")
    return table


def polars_table():
    town = pl.Series("town", ["a", "b", "a", "a"]).cast(pl.Categorical)
    return pl.DataFrame(COLUMNS).with_columns(town)


TABLES = {
    "pandas": pandas_table,
    "polars": polars_table,
    "pyarrow": lambda: pa.table(COLUMNS),
}


def cells_of(table, name):
    column = table[name]
    return column.to_pylist() if isinstance(table, pa.Table) else column.to_list()


def bytes_of(table):
    sink = pa.BufferOutputStream()
    frame = table.to_arrow() if isinstance(table, pl.DataFrame) else pa.table(table)
    with pa.ipc.new_stream(sink, frame.schema) as writer:
        writer.write_table(frame)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("library", TABLES)
@pytest.mark.parametrize("how", ["missing", "draw", "neighbors"])
def test_the_original_keeps_every_byte_and_all_other_cells_are_kept(library, how):
    table = TABLES[library]()
    before = bytes_of(table)
    repaired = repair_cells(table, WRONG, how=how)
    assert type(repaired) is type(table)
    assert bytes_of(table) == before
    named = set(WRONG)
    for name in COLUMNS:
        old, new = cells_of(table, name), cells_of(repaired, name)
        assert [old[i] for i in range(4) if (i, name) not in named] == [
            new[i] for i in range(4) if (i, name) not in named
        ]


def test_writing_into_the_copy_does_not_reach_the_original():
    table = TABLES["pandas"]()
    repaired = repair_cells(table, [], how="missing")
    for name in ("age", "pay"):
        assert not np.shares_memory(repaired[name].to_numpy(), table[name].to_numpy())
    array = np.ones((2, 2))
    repair_cells(array, [], how="missing")[:] = 0
    assert array.all()


@pytest.mark.parametrize("library", TABLES)
@pytest.mark.parametrize("how", ["draw", "neighbors", "values"])
def test_types_are_kept_where_no_missing_value_comes(library, how):
    table = TABLES[library]()
    values = [41, "m", dt.datetime(2021, 1, 1)] if how == "values" else None
    repaired = repair_cells(table, WRONG, how=how, values=values)
    types = (lambda t: t.schema) if library != "pandas" else (lambda t: t.dtypes.to_dict())
    assert types(repaired) == types(table)


def test_missing_values_are_what_the_library_makes_of_them():
    every = [(0, name) for name in pandas_table().columns]
    repaired = repair_cells(pandas_table(), every, how="missing")
    assert repaired.iloc[0].isna().all()
    assert repaired.iloc[1:].notna().all(axis=None)
    column_types = repaired.dtypes.astype(str).to_dict()
    assert column_types["age"] == "float64"
    assert (column_types["rank"], column_types["town"], column_types["small"]) == (
        "Int64",
        "category",
        "float32",
    )
    assert (
        repair_cells(TABLES["polars"](), WRONG, how="missing").schema == TABLES["polars"]().schema
    )
    assert repair_cells(TABLES["pyarrow"](), WRONG, how="missing")["age"].null_count == 1


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (np.arange(6).reshape(3, 2), "f"),
        (np.arange(6.0).reshape(3, 2), "f"),
        (np.array([["a", "b"], ["c", "d"], ["e", "f"]]), "O"),
        (np.arange("2020-01-01", "2020-01-07", dtype="M8[D]").reshape(3, 2), "M"),
        (np.ones((3, 2), dtype=bool), "f"),
        (np.array([["a", 1], ["c", 2], ["e", 3]], dtype=object), "O"),
    ],
)
def test_arrays_of_any_kind_get_missing_values(array, kind):
    before = array.tolist()
    repaired = repair_cells(array, [(1, "x0")], how="missing")
    assert repaired.dtype.kind == kind
    assert pd.isna(repaired).tolist() == [[False, False], [True, False], [False, False]]
    assert array.tolist() == before


@pytest.mark.parametrize("library", TABLES)
def test_cells_are_named_by_pairs_a_frame_a_mask_or_a_list_of_values(library):
    table = TABLES[library]()
    pairs = [(1, "pay"), (3, "age")]
    mask = np.zeros(table.shape, dtype=bool)
    mask[1, 1] = mask[3, 0] = True
    named = {"row": [1, 3], "column": ["pay", "age"]}
    listing = ValueList(
        {name: np.array(labels) for name, labels in named.items()},
        np.zeros(2), np.zeros(2), np.ones(2, dtype=int),
    )  # fmt: skip
    expected = bytes_of(repair_cells(table, pairs, how="draw", random_state=3))
    for cells in (mask, pd.DataFrame(named), pl.DataFrame(named), pa.table(named), listing):
        assert bytes_of(repair_cells(table, cells, how="draw", random_state=3)) == expected


def test_a_mask_may_be_a_frame_with_the_columns_of_the_table():
    table = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    mask = pd.DataFrame({"a": [True, False], "b": [False, False]})
    assert repair_cells(table, mask, how="missing").isna().equals(mask)
    for other in (mask[["b", "a"]], mask[::-1]):
        with pytest.raises(ValueError, match=r"in the same order, got .*; or pass an array"):
            repair_cells(table, other, how="missing")
    array = repair_cells(table.to_numpy(), mask, how="missing")
    np.testing.assert_array_equal(np.isnan(array), mask)


def test_a_mask_may_be_a_list_of_rows():
    table = pd.DataFrame([[1.0, 2.0], [3.0, 4.0]])
    mask = [[False, True], [False, False]]
    assert repair_cells(table, mask, how="missing").isna().to_numpy().tolist() == mask
    with pytest.raises(ValueError, match="must have one entry per cell"):
        repair_cells(table, mask[:1], how="missing")


def test_a_draw_is_a_cell_of_the_column_that_was_not_named():
    table = pd.DataFrame({"a": np.arange(50.0), "b": [None, *range(49)]})
    mask = np.zeros((50, 2), dtype=bool)
    mask[:20] = True
    repaired = repair_cells(table, mask, how="draw", random_state=0)
    assert repaired.iloc[:20].isin({"a": range(20, 50), "b": range(19, 49)}).all(axis=None)
    assert repair_cells(table, mask, how="draw", random_state=0).equals(repaired)
    assert not repair_cells(table, mask, how="draw", random_state=1).equals(repaired)


def test_near_rows_tell_the_median_and_the_most_frequent():
    # Two clusters of twelve rows, far apart in "where".
    table = pd.DataFrame(
        {
            "where": np.r_[np.zeros(12), np.full(12, 100.0)],
            "size": np.r_[np.arange(12.0), np.arange(12.0) + 50],
            "kind": ["a"] * 7 + ["b"] * 5 + ["b"] * 7 + ["a"] * 5,
        }
    )
    table.loc[0, ["size", "kind"]] = [999.0, "z"]
    table.loc[23, ["size", "kind"]] = [999.0, "z"]
    cells = [(0, "size"), (0, "kind"), (23, "size"), (23, "kind")]
    repaired = repair_cells(table, cells, how="neighbors")
    # All eleven others of the cluster are equally near, whatever they are called.
    assert repaired.loc[0, ["size", "kind"]].tolist() == [6.0, "a"]
    assert repaired.loc[23, ["size", "kind"]].tolist() == [55.0, "b"]
    shuffled = table.sample(frac=1, random_state=1)
    assert repair_cells(shuffled, cells, how="neighbors").loc[table.index].equals(repaired)


def test_a_cell_in_doubt_does_not_say_which_rows_are_near():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=30), "b": rng.normal(size=30)})
    wild = table.copy()
    wild.loc[4, "b"] = 1e9
    cells = [(4, "a"), (4, "b")]
    one, other = (repair_cells(X, cells, how="neighbors") for X in (table, wild))
    pd.testing.assert_frame_equal(one, other)


def test_values_come_from_a_list_or_from_a_column_of_the_frame():
    table = TABLES["pandas"]()
    cells = pd.DataFrame({"row": [3, 0], "column": ["age", "pay"], "right": [30.0, 9.5]})
    repaired = repair_cells(table, cells, how="values", values="right")
    assert (repaired.loc[3, "age"], repaired.loc[0, "pay"]) == (30, 9.5)
    assert repaired["age"].dtype == table["age"].dtype
    assert repair_cells(table, cells, how="values", values=[30, 9.5]).equals(repaired)
    missing = repair_cells(table, cells, how="values", values=[None, 9.5])
    assert np.isnan(missing.loc[3, "age"])
    assert missing.loc[0, "pay"] == 9.5


@pytest.mark.parametrize("library", TABLES)
def test_every_library_takes_values_of_the_columns_type(library):
    cells = [(0, name) for name in COLUMNS]
    values = [21, 9, "x", dt.datetime(2022, 2, 2), False]
    repaired = repair_cells(TABLES[library](), cells, how="values", values=values)
    assert [cells_of(repaired, name)[0] for name in COLUMNS] == values


def test_a_longer_text_is_not_cut_to_the_width_of_an_array():
    array = np.array([["a", "b"], ["c", "d"]])
    assert repair_cells(array, [(0, "x1")], how="values", values=["beta"])[0, 1] == "beta"


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"x0": [1, 2]}),
        np.array([[1], [2]]),
        pl.DataFrame({"x0": [1, 2]}),
        pa.table({"x0": [1, 2]}),
    ],
)
@pytest.mark.parametrize("value", [2.5, "two"])
def test_a_value_that_does_not_fit_its_column_is_rejected(table, value):
    with pytest.raises(
        ValueError, match=r"must be of its type, .*; convert them, or change the type"
    ):
        repair_cells(table, [(0, "x0")], how="values", values=[value])


def test_row_ids_are_the_index():
    table = pd.DataFrame({"a": [1.0, 2.0]}, index=["ann", "bob"])
    assert repair_cells(table, [("bob", "a")], how="missing")["a"].isna().to_dict() == {
        "ann": False,
        "bob": True,
    }
    dated = pd.DataFrame({"a": [1.0, 2.0]}, index=pd.to_datetime(["2020-01-01", "2020-01-02"]))
    assert repair_cells(dated, [(dated.index[1], "a")], how="missing")["a"].isna().tolist() == [
        False,
        True,
    ]


def test_ids_that_stand_twice_do_not_matter_where_they_are_not_named():
    table = pd.DataFrame({"a": [1.0, 2.0, 3.0]}, index=[7, 7, 8])
    assert repair_cells(table, [(8, "a")], how="missing")["a"].isna().tolist() == [
        False,
        False,
        True,
    ]
    with pytest.raises(ValueError, match="unique in X, got 7, which occurs 2 times"):
        repair_cells(table, [(7, "a")], how="missing")


SMALL = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": ["x", "y", None]})


@pytest.mark.parametrize(
    ("cells", "settings", "sentence"),
    [
        ([(9, "a")], {"how": "draw"}, "cells must name rows of X, got 9"),
        ([(0, "c")], {"how": "draw"}, "cells must name columns of X, got 'c'"),
        ([(0, "a")], {"how": "mean"}, "how must be one of .*, got 'mean'"),
        ([(0, "a"), (1, "a"), (2, "a")], {"how": "draw"}, "some known cell of column 'a'"),
        ([(0, "b"), (1, "b")], {"how": "neighbors"}, "some known cell of column 'b'"),
        (np.ones((2, 2), dtype=bool), {"how": "draw"}, "one entry per cell, .*, got shape"),
        (pd.DataFrame({"r": [1], "c": ["a"]}), {"how": "draw"}, "with the columns 'r', 'c'"),
        ([(0, "a")], {"how": "values"}, "with how='values', and only then, .* values None"),
        ([(0, "a")], {"how": "draw", "values": [1]}, "got how='draw' and values given"),
        ([(0, "a")], {"how": "values", "values": [1, 2]}, "one entry for each of 1 cells, got 2"),
        ([(0, "a")], {"how": "values", "values": "right"}, "or a column of .*, got 'right'"),
        ([(0, "a")] * 2, {"how": "values", "values": [1, 2]}, "once .*, got 2 names of 1 cells"),
    ],
)  # fmt: skip
def test_each_mistake_gets_one_sentence(cells, settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        repair_cells(SMALL, cells, **settings)


@pytest.mark.parametrize("cells", [7, "age", [1, 2, 3], None])
def test_what_names_no_cells_is_rejected(cells):
    with pytest.raises(
        TypeError, match="cells must be a data frame with columns 'row' and 'column'"
    ):
        repair_cells(SMALL, cells, how="draw")


def test_values_must_be_many():
    with pytest.raises(TypeError, match="values must be a list of one value per cell, got 7"):
        repair_cells(SMALL, [(0, "a")], how="values", values=7)


def test_nothing_is_done_unasked():
    with pytest.raises(TypeError, match="how"):
        repair_cells(SMALL, [(0, "a")])
    assert repair_cells(SMALL, [], how="neighbors").equals(SMALL)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (pa.array(["x", "y", "z"], pa.large_string()), "new"),
        (pa.array(["x", "y", "z"]).dictionary_encode(), "new"),
        (pa.array([dt.timedelta(1)] * 3), dt.timedelta(2)),
        (pa.array([1, 2, 3], pa.int8()), 7),
    ],
)
def test_arrow_keeps_its_own_types(column, value):
    repaired = repair_cells(pa.table({"a": column}), [(1, "a")], how="values", values=[value])
    old = column.to_pylist()
    assert repaired["a"].to_pylist() == [old[0], value, old[2]]
    assert repaired["a"].type == column.type


def test_dates_of_python_are_filled_from_neighbours():
    days = [dt.date(2020, 1, day) for day in range(1, 15)]
    table = pd.DataFrame({"day": days, "size": np.arange(14.0)})
    repaired = repair_cells(table, [(0, "day")], how="neighbors")
    assert repaired["day"].tolist() == [days[5], *days[1:]]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_list_of_suspects_that_was_saved_and_edited_is_read_back(library, tmp_path):
    rng = np.random.default_rng(0)
    size = rng.normal(50, 10, 60).round(1)
    columns = {
        "size": size,
        "count": (size / 5).astype(int),
        "kind": np.where(size > 50, "big", "small"),
        "tall": size > 50,
    }
    table = pd.DataFrame(columns) if library == "pandas" else pl.DataFrame(columns)
    suspects = suspect_cells(table, columns["kind"], k=40).to_frame()
    file = tmp_path / "suspects.csv"
    if library == "pandas":
        suspects.to_csv(file, index=False)
        seen = pd.read_csv(file)
        fixed = seen.assign(fix=["31.5" if c == "size" else None for c in seen["column"]])
    else:
        suspects.write_csv(file)
        seen = pl.read_csv(file)
        fix = ["31.5" if c == "size" else None for c in seen["column"]]
        fixed = seen.with_columns(pl.Series("fix", fix))
    named = list(zip(seen["row"], seen["column"], strict=True))
    assert {column for _, column in named} >= {"size", "count"}
    by_hand, by_rule = (
        repair_cells(table, fixed, how="values", values=values) for values in ("fix", "typical")
    )
    for row, column in named:
        given = cells_of(by_hand, column)[row]
        assert given == 31.5 if column == "size" else is_missing(given)
    typical = suspects["typical"].to_list()
    for (row, column), expected in zip(named, typical, strict=True):
        found = cells_of(by_rule, column)[row]
        assert str(found) == str(expected) or float(found) == float(expected)
    assert list(by_rule.dtypes) == list(table.dtypes)


@pytest.mark.parametrize("table", [SMALL, pl.from_pandas(SMALL), SMALL[["a"]].to_numpy()])
@pytest.mark.parametrize("value", ["9 ", "nine", "nan", "1_000", "inf", np.inf])
def test_only_text_that_is_exactly_a_number_is_a_number(table, value):
    name = "a" if hasattr(table, "columns") else "x0"
    with pytest.raises(ValueError, match=f"column '{name}'"):
        repair_cells(table, [(0, name)], how="values", values=[value])
    for text, number in (("9", 9), ("-31.5", -31.5), ("2e3", 2000)):
        repaired = repair_cells(table, [(0, name)], how="values", values=[text])
        assert np.asarray(repaired)[0, 0] == number


def test_a_seed_that_is_none_gets_a_sentence():
    with pytest.raises(ValueError, match=r"random_state must be .* got 'x'"):
        repair_cells(SMALL, [(0, "a")], how="draw", random_state="x")
