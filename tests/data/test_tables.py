import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cellworth.data.tables import Table

COLUMNS = {
    "age": [31, 42, 53],
    "pay": [1.5, None, -0.0],
    "job": ["baker", None, "smith"],
    "new": [True, False, True],
}


def tables():
    return {
        "pandas": pd.DataFrame(COLUMNS),
        "polars": pl.DataFrame(COLUMNS),
        "pyarrow": pa.table(COLUMNS),
    }


@pytest.mark.parametrize("library", tables())
def test_names_are_kept_and_parts_come_in_the_users_own_type(library):
    X = tables()[library]
    table = Table.from_data(X, called="X")
    assert table.backend == library
    assert table.names.tolist() == list(COLUMNS)
    part = table.take(np.array([2, 0]), np.array([2, 0]))
    assert type(part) is type(X)
    assert pa.table(part).select(["age"]).to_pydict() == {"age": [53, 31]}


def test_a_table_has_one_hash_in_every_library():
    digests = {Table.from_data(X, called="X").sha256() for X in tables().values()}
    assert len(digests) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"age": [31, 42, 54]},
        {"age": [42, 31, 53]},
        {"pay": [1.5, 0.0, -0.0]},
        {"job": ["baker", "", "smith"]},
        {"job": ["bakers", None, "mith"]},
    ],
    ids=str,
)
def test_any_change_changes_the_hash(change):
    before = Table.from_data(pl.DataFrame(COLUMNS), called="X").sha256()
    assert Table.from_data(pl.DataFrame(COLUMNS | change), called="X").sha256() != before


def test_names_are_part_of_the_hash():
    one, other = pd.DataFrame({"a": [1]}), pd.DataFrame({"b": [1]})
    assert Table.from_data(one, called="X").sha256() != Table.from_data(other, called="X").sha256()


def test_numbers_among_text_stay_numbers():
    table = Table.from_data([["baker", 1.5], ["smith", 2.5]], called="X")
    assert table.column(1).tolist() == [1.5, 2.5]


def test_a_pandas_index_gives_the_row_ids():
    table = Table.from_data(pd.DataFrame({"a": [1, 2]}, index=["r7", "r9"]), called="X")
    assert table.row_ids.tolist() == ["r7", "r9"]


def test_arrays_get_the_names_that_scikit_learn_gives():
    table = Table.from_data([[1, 2], [3, 4]], called="X")
    assert table.names.tolist() == ["x0", "x1"]
    assert table.row_ids.tolist() == [0, 1]


def test_a_pandas_table_may_have_numbers_for_names():
    table = Table.from_data(pd.DataFrame(np.ones((2, 2))), called="X")
    assert table.names.tolist() == [0, 1]
    assert table.select(np.array([1])).names.tolist() == [1]


def test_columns_are_aligned_by_name():
    X = Table.from_data(pd.DataFrame({"a": [1], "b": [2]}), called="X")
    val = Table.from_data(pl.DataFrame({"b": [20], "a": [10]}), called="X_val")
    assert X.align(val, called="X_val").column(0).tolist() == [10]


def test_a_table_that_was_read_is_not_read_again():
    table = Table.from_data([[1, 2]], called="X")
    assert Table.from_data(table, called="X") is table
