"""Changed cells: they alone change, in the type of their column, and never in the original."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cellworth.data.tables import Table
from cellworth.findings.changed_cells import clear_cells, copy_native, set_cells

COLUMNS = {
    "age": [20, 30, 40, 300],
    "pay": [1.5, 2.5, 3.5, 4.5],
    "sex": ["f", "m", "m", "f"],
    "since": [dt.datetime(2020, 1, day) for day in (1, 2, 3, 4)],
    "fit": [True, False, True, True],
}
CHANGED = np.array([3, 0, 1]), np.array([0, 2, 3])


def pandas_table():
    table = pd.DataFrame(COLUMNS)
    table["rank"] = pd.array([1, 2, 3, 4], dtype="Int64")
    table["town"] = pd.Categorical(["a", "b", "a", "a"], categories=["a", "b", "c"])
    table["small"] = np.array([1, 2, 3, 4], dtype="float32")
    return table


def polars_table():
    town = pl.Series("town", ["a", "b", "a", "a"]).cast(pl.Categorical)
    return pl.DataFrame(COLUMNS).with_columns(town)


TABLES = {"pandas": pandas_table, "polars": polars_table, "pyarrow": lambda: pa.table(COLUMNS)}


def read(table):
    return Table.from_data(table, called="X")


def cells_of(table, name):
    column = table[name]
    return column.to_pylist() if isinstance(table, pa.Table) else column.to_list()


def clear(table, rows, columns):
    mask = np.zeros(read(table).shape, dtype=bool)
    mask[rows, columns] = True
    return clear_cells(read(table), mask).native


def put(table, rows, columns, values):
    return set_cells(read(table), np.array(rows), np.array(columns), values).native


@pytest.mark.parametrize("library", TABLES)
@pytest.mark.parametrize("change", [clear, put])
def test_all_other_cells_and_the_original_are_kept(library, change):
    table, untouched = TABLES[library](), TABLES[library]()
    values = [[41, "x", dt.datetime(2021, 1, 1)]] if change is put else []
    changed = change(table, *CHANGED, *values)
    assert type(changed) is type(table)
    expected = {name: cells_of(untouched, name) for name in COLUMNS}
    assert {name: cells_of(table, name) for name in COLUMNS} == expected
    for row, column in zip(*CHANGED, strict=True):
        name = [*COLUMNS][column]
        new = cells_of(changed, name)[row]
        if change is clear:
            assert pd.isna(new)
        else:
            assert new == values[0].pop(0)
        expected[name][row] = new
    found = {name: cells_of(changed, name) for name in COLUMNS}
    assert str(found).replace(".0,", ",") == str(expected).replace(".0,", ",")
    if change is not clear:
        types = (lambda t: t.dtypes.to_dict()) if library == "pandas" else (lambda t: t.schema)
        assert types(changed) == types(table)


def test_missing_values_are_what_the_library_makes_of_them():
    cleared = clear(pandas_table(), 0, slice(None))
    assert cleared.iloc[0].isna().all()
    kinds = cleared.dtypes.astype(str).to_dict()
    assert [kinds[n] for n in ("age", "rank", "town", "small")] == [
        "float64", "Int64", "category", "float32",
    ]  # fmt: skip
    assert clear(polars_table(), *CHANGED).schema == polars_table().schema
    assert clear(TABLES["pyarrow"](), *CHANGED)["age"].null_count == 1


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (np.arange(6).reshape(3, 2), "f"),
        (np.array([["a", "b"], ["c", "d"], ["e", "f"]]), "O"),
        (np.arange("2020-01-01", "2020-01-07", dtype="M8[D]").reshape(3, 2), "M"),
        (np.ones((3, 2), dtype=bool), "f"),
        (np.array([["a", 1], ["c", 2], ["e", 3]], dtype=object), "O"),
    ],
)
def test_arrays_of_any_kind_get_missing_values(array, kind):
    before = array.tolist()
    cleared = clear(array, 1, 0)
    assert cleared.dtype.kind == kind
    assert pd.isna(cleared).tolist() == [[False, False], [True, False], [False, False]]
    assert array.tolist() == before


def test_writing_into_a_copy_does_not_reach_the_original():
    for table in (pandas_table()[["pay"]], np.ones((2, 2))):
        copy = copy_native(read(table))
        assert not np.shares_memory(np.asarray(copy), np.asarray(table))


@pytest.mark.parametrize("library", TABLES)
def test_every_library_takes_values_of_the_columns_type(library):
    values = [21, 9.0, "x", dt.datetime(2022, 2, 2), None]
    changed = put(TABLES[library](), [0] * 5, range(5), values)
    assert [cells_of(changed, name)[0] for name in [*COLUMNS][:4]] == values[:4]
    assert pd.isna(cells_of(changed, "fit")[0])


def test_a_longer_text_is_not_cut_to_the_width_of_an_array():
    assert put(np.array([["a", "b"], ["c", "d"]]), [0], [1], ["beta"])[0, 1] == "beta"


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table, None])
@pytest.mark.parametrize("value", [2.5, "two"])
def test_a_value_that_does_not_fit_its_column_is_rejected(make, value):
    table = np.array([[1], [2]]) if make is None else make({"x0": [1, 2]})
    with pytest.raises(ValueError, match=r"must be of its type, .*; convert them, or change the"):
        put(table, [0], [0], [value])


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
    changed = put(pa.table({"a": column}), [1], [0], [value])["a"]
    assert changed.to_pylist() == [column[0].as_py(), value, column[2].as_py()]
    assert changed.type == column.type
