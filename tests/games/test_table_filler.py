import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cellworth.data.tables import Table
from cellworth.games.table_filler import TableFiller


def fill(X, present, may_tell=None):
    """The table as a model sees it where these cells are present."""
    filler = TableFiller(Table.from_data(X, called="X"))
    rows = np.ones(len(X), dtype=bool) if may_tell is None else np.asarray(may_tell, dtype=bool)
    return filler.fill(np.asarray(present, dtype=bool), rows).native


NUMBERS = np.array([[1, 10], [2, 20], [6, 60]])


def test_absent_numbers_become_the_mean_of_those_present():
    seen = fill(NUMBERS, [[1, 0], [0, 1], [1, 1]])
    np.testing.assert_array_equal(seen, [[1, 40], [3.5, 20], [6, 60]])


def test_a_column_of_which_nothing_is_present_is_constant_at_its_mean():
    seen = fill(NUMBERS, [[0, 0], [0, 1], [0, 0]])
    np.testing.assert_array_equal(seen, [[3, 20], [3, 20], [3, 20]])


def test_gaps_of_the_table_stay_gaps_and_do_not_tell_a_mean():
    table = np.array([[1.0], [np.nan], [3.0], [8.0]])
    seen = fill(table, [[1], [1], [1], [0]])
    np.testing.assert_array_equal(seen, [[1.0], [np.nan], [3.0], [2.0]])


MIXED = {
    "size": [1, 2, 6, 7],
    "mood": ["calm", "wild", "wild", "odd"],
    "sure": [True] * 3 + [False],
}
PRESENT = [[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]]
FILLED = {
    "size": [1.0, 14 / 3, 6.0, 7.0],
    "mood": ["wild", "wild", "wild", "wild"],
    "sure": [True, True, True, False],
}
LIBRARIES = {
    "pandas": (pd.DataFrame, lambda t: t.to_dict("list")),
    "pandas with an index": (
        lambda t: pd.DataFrame(t, index=list("wxyz")),
        lambda t: t.to_dict("list"),
    ),
    "polars": (pl.DataFrame, lambda t: t.to_dict(as_series=False)),
    "arrow": (pa.table, lambda t: t.to_pydict()),
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_tables_of_every_library_are_filled_in_their_own_type(library):
    make, plain = LIBRARIES[library]
    seen = fill(make(MIXED), PRESENT)
    assert type(seen) is type(make(MIXED))
    assert plain(seen) == FILLED


def test_an_array_of_objects_is_filled_column_by_column():
    table = np.array(list(zip(*MIXED.values(), strict=True)), dtype=object)
    seen = fill(table, PRESENT)
    assert seen.tolist() == [list(row) for row in zip(*FILLED.values(), strict=True)]


def test_categories_keep_their_type_and_ties_go_by_name():
    table = pd.DataFrame({"mood": pd.Categorical(["b", "a", "c"], categories=["c", "b", "a"])})
    seen = fill(table, [[1], [1], [0]])
    assert seen["mood"].tolist() == ["b", "a", "a"]
    assert seen["mood"].dtype == table["mood"].dtype


@pytest.mark.parametrize("gap", [None, np.nan])
def test_a_column_of_gaps_cannot_be_filled(gap):
    table = pd.DataFrame({"x": [1.0, 2.0], "none": np.array([gap, gap], dtype=object)})
    seen = fill(table, [[1, 0], [1, 0]])
    assert seen["none"].isna().all()


def test_rows_that_may_not_tell_do_not_fill_others():
    seen = fill(NUMBERS, [[1, 1], [0, 1], [1, 1]], may_tell=[True, True, False])
    np.testing.assert_array_equal(seen[:2], [[1, 10], [1, 20]])
