import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cellworth.data.tables import HashedRows, Table, entries_per_cell

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


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (np.array([1, 2]), np.array([1.0, 2.0]), True),
        (np.array([0.0]), np.array([-0.0]), True),
        (np.array([2**53 + 1]), np.array([2**53 + 2]), False),
        (np.array([1, None], dtype=object), np.array([1.0, np.nan]), True),
        (np.array(["a", None], dtype=object), np.array(["a", "None"], dtype=object), False),
        (np.array(["1"], dtype=object), np.array([1]), False),
        (np.array(["2026-01-01"], "M8[ns]"), np.array(["2026-01-01"], "M8[s]"), True),
        (np.array(["2026-01-01"], "M8[ns]"), np.array(["NaT"], "M8[ns]"), False),
    ],
    ids=str,
)
def test_hashes_see_content_not_types(one, other, same):
    digests = [Table.from_data(column[:, None], called="X").sha256() for column in (one, other)]
    assert (digests[0] == digests[1]) is same


def test_dates_have_one_hash_in_pandas_and_polars():
    days = pd.date_range("2026-01-01", periods=3)
    one = Table.from_data(pd.DataFrame({"day": days}), called="X")
    other = Table.from_data(pl.DataFrame({"day": days.to_list()}), called="X")
    assert one.sha256() == other.sha256()


def test_a_missing_value_in_a_nullable_pandas_column_is_a_missing_value():
    nullable = pd.DataFrame({"n": pd.array([1, None], "Int64"), "s": pd.array(["a", None])})
    plain = pl.DataFrame({"n": [1, None], "s": ["a", None]})
    assert (
        Table.from_data(nullable, called="X").sha256()
        == Table.from_data(plain, called="X").sha256()
    )


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
    assert val.align_to(X, called="X_val").column(0).tolist() == [10]


def test_a_table_that_was_read_is_not_read_again():
    table = Table.from_data([[1, 2]], called="X")
    assert Table.from_data(table, called="X") is table


def test_entries_of_cells_are_taken_only_from_frames_that_are_labelled_alike():
    table = Table.from_data(pd.DataFrame({"a": [1, 2], "b": [3, 4]}, index=["r", "s"]), called="X")
    marks = pd.DataFrame({"a": [True, False], "b": [False, False]}, index=["r", "s"])
    labels = table.names, table.row_ids
    assert entries_per_cell(marks, *labels, called="marks").tolist() == [[True, False], [False] * 2]
    assert entries_per_cell([[1, 2], [3, 4]], *labels, called="marks").tolist() == [[1, 2], [3, 4]]
    with pytest.raises(
        ValueError, match=r"the columns of the table .* in the same order, got 'b', 'a'"
    ):
        entries_per_cell(marks[["b", "a"]], *labels, called="marks")
    with pytest.raises(
        ValueError, match=r"the row ids of the table .* in the same order, got 's', 'r'"
    ):
        entries_per_cell(marks[::-1], *labels, called="marks")


def test_equal_rows_have_equal_hashes_in_every_library():
    columns = {"n": [1, 2, 2], "x": [0.5, None, None], "s": ["a", "b", None]}
    tables = [
        Table.from_data(library(columns), called="X")
        for library in (pd.DataFrame, pl.DataFrame, pa.table)
    ]
    hashed = HashedRows.of(tables[0])
    assert len(set(hashed.hashes.tolist())) == 3
    for table in tables:
        assert hashed.hash(table).tolist() == hashed.hashes.tolist()
    assert HashedRows.from_plain(hashed.to_plain()).hashes.tolist() == hashed.hashes.tolist()


def test_hashes_of_rows_are_those_of_numbers_and_strings_not_of_types():
    hashed = HashedRows.of(Table.from_data([[1.0, -0.0], [2.0, 3.0]], called="X"))
    mixed = Table.from_data(np.array([[True, 0], [2, 3], ["2", 3]], dtype=object), called="X")
    assert (hashed.hash(mixed)[:2] == hashed.hashes).all()
    assert hashed.hash(mixed)[2] not in hashed.hashes
    # Cells do not run into each other.
    one, other = (Table.from_data([row], called="X") for row in (["ab", "c"], ["a", "bc"]))
    assert hashed.hash(one) != hashed.hash(other)
