"""One equality of cells and rows, for hashes of rows and of whole tables."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cellworth.data.equal_rows import find_first_equal
from cellworth.data.tables import HashedRows, Table

UTC, EAST = datetime.UTC, datetime.timezone(datetime.timedelta(hours=2))


def objects(*cells):
    column = np.empty(len(cells), dtype=object)
    column[:] = cells
    return column


def as_table(*columns, names="abc"):
    named = dict(zip(names, columns, strict=False))
    return Table.from_data(pd.DataFrame(named), called="X")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (np.array([1, 2]), np.array([1.0, 2.0]), True),
        (np.array([1, 0]), np.array([True, False]), True),
        (np.array([1.5]), objects(Decimal("1.5")), True),
        (np.array([0.1]), objects(Decimal("0.1")), False),
        (np.array([0.0]), np.array([-0.0]), True),
        (np.array([2**53 + 1]), np.array([2**53 + 2]), False),
        (np.array([2**60, 2]), objects(2.0**60, 2), True),
        (np.array([2**60 + 1]), np.array([2.0**60]), False),
        (objects(1, None), np.array([1.0, np.nan]), True),
        (objects(1, None), pd.array([1, None], "Int64"), True),
        (objects("a", None), objects("a", "None"), False),
        (objects("a", None), pd.array(["a", None], "string"), True),
        (objects("a", "b", "a"), pd.Categorical(["a", "b", "a"], ["c", "b", "a"]), True),
        (objects("1"), np.array([1]), False),
        (objects("a", 1), objects("a", 1.0), True),
        (objects("A"), objects("a"), False),
        (objects("a "), objects("a"), False),
        (objects(None), np.array([np.nan]), True),
        (objects(None), np.array(["NaT"], "M8[ns]"), True),
        (np.array(["2026-01-01"], "M8[ns]"), np.array(["2026-01-01"], "M8[s]"), True),
        (np.array(["2026-01-01"], "M8[ns]"), objects(datetime.date(2026, 1, 1)), True),
        (np.array(["2026-01-01"], "M8[ns]"), objects("2026-01-01 00:00:00"), False),
        (np.array(["2026-01-01"], "M8[ns]"), np.array(["NaT"], "M8[ns]"), False),
        (
            objects(datetime.datetime(2026, 1, 1, 10, tzinfo=UTC), "a"),
            objects(datetime.datetime(2026, 1, 1, 12, tzinfo=EAST), "a"),
            True,
        ),
    ],
    ids=str,
)
def test_rows_and_tables_are_equal_if_their_cells_are(one, other, same):
    sides = [as_table(column) for column in (one, other)]
    rows = [side.hash_rows().tolist() for side in sides]
    assert (rows[0] == rows[1]) is same
    assert (sides[0].sha256() == sides[1].sha256()) is same


def test_a_table_has_the_same_rows_in_every_library_and_order_of_columns():
    columns = {"n": [1, 2, 2], "x": [0.5, None, None], "s": ["a", "b", None]}
    reversed_columns = dict(reversed(columns.items()))
    tables = [
        Table.from_data(library(given), called="X")
        for library in (pd.DataFrame, pl.DataFrame, pa.table)
        for given in (columns, reversed_columns)
    ]
    rows, hashed = tables[0].hash_rows().tolist(), HashedRows.of(tables[0])
    assert len(set(rows)) == 3
    for table in tables:
        assert table.hash_rows().tolist() == rows
        assert hashed.hash(table).tolist() == hashed.hashes.tolist()
    assert HashedRows.from_plain(hashed.to_plain()).hashes.tolist() == hashed.hashes.tolist()


def test_cells_of_other_columns_make_other_rows():
    one = as_table(objects("ab", "c"), objects("c", "ab"))
    assert one.hash_rows()[0] != one.hash_rows()[1]
    assert as_table(objects("a", "bc")).sha256() != as_table(objects("ab", "c")).sha256()
    assert as_table([1, 2], names="b").hash_rows()[0] != as_table([1, 2]).hash_rows()[0]


def test_equal_rows_are_found_where_they_first_stand():
    table = as_table([3, 1, 3, 1, 2], objects("x", None, "x", None, "x"))
    assert find_first_equal(table.hash_rows()).tolist() == [0, 1, 0, 1, 4]


def test_hashed_rows_of_two_tables_cannot_be_compared():
    one, other = as_table([1, 2]), as_table([1, 3])
    assert HashedRows.of(one).hashes[0] != HashedRows.of(other).hashes[0]
