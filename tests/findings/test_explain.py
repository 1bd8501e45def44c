"""explain_row and explain_column: parts that add up, contents of cells, and labels of like rows."""

import html
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cellworth import KNNValuer, OutOfBagValuer, explain_column, explain_row, value_game
from cellworth.data.blocks import Blocks
from cellworth.sampling import Moments
from cellworth.valuation.values import ValueList


class Sum:
    """Every cell is worth what stands in it."""

    def __init__(self, cells):
        self.cells = np.asarray(cells, dtype=float)

    def value(self, rows, columns):
        return float(self.cells[np.ix_(rows, columns)].sum())


CELLS = np.array([[3.0, -1.0, 0.0], [0.5, 1.5, 0.2], [9.0, -8.0, 0.9], [5.0, 5.0, 5.0]])
BLOCKS = Blocks.cut(["ann", "bob", "cid", "dan"], ["age", "pay", "sex"])
ADDED = value_game(Sum(CELLS), BLOCKS)


def test_parts_of_a_row_are_its_cells_the_largest_first():
    bob = explain_row(ADDED, "bob")
    assert (bob.side, bob.label) == ("row", "bob")
    assert bob.value == pytest.approx(2.2)
    assert isinstance(bob.parts, ValueList)
    assert bob.parts.labels["column"].tolist() == ["pay", "age", "sex"]
    np.testing.assert_allclose(bob.parts.values, [1.5, 0.5, 0.2])
    assert bob.adds_up
    assert bob.residual == pytest.approx(0, abs=1e-12)


def test_parts_of_a_column_are_its_cells_by_row():
    pay = explain_column(ADDED, "pay")
    assert (pay.side, pay.label) == ("column", "pay")
    assert pay.value == pytest.approx(-2.5)
    assert pay.parts.labels["row"].tolist() == ["cid", "dan", "bob", "ann"]
    np.testing.assert_allclose(pay.parts.values, [-8, 5, 1.5, -1])
    assert pay.adds_up


def test_errors_come_along():
    X = np.random.default_rng(0).normal(size=(30, 3))
    valuer = KNNValuer().fit(X, np.arange(30) % 2)
    row = explain_row(valuer.valuation_, 4)
    listing = valuer.valuation_.rows()
    assert row.sampling_se == listing.sampling_se[4] == 0
    assert row.validation_se == listing.validation_se[4] > 0
    assert row.parts.validation_se.sum() == pytest.approx(valuer.valuation_.validation_se[4].sum())
    drawn = OutOfBagValuer(n_trees=30, random_state=0).fit(X, np.arange(30) % 2).valuation_
    column = explain_column(drawn, "x1")
    assert column.validation_se is None
    position = column.parts.labels["row"].tolist().index(20)
    assert column.parts.sampling_se[position] == drawn.sampling_se[20, 1] > 0


def unvisited(cells):
    """A valuation in which these cells of the second row were never seen."""
    counts = np.ones((5, 4), dtype=np.int64)
    counts[1, cells] = 0
    mean = np.zeros((5, 4))
    mean[:-1, :-1] = CELLS
    mean[:-1, -1] = CELLS.sum(axis=1)
    moments = Moments(counts, np.where(counts > 0, mean, 0.0), np.zeros((5, 4)))
    return replace(ADDED, moments=moments, status="estimated")


def test_a_cell_that_was_never_visited_is_last_and_reported():
    bob = explain_row(unvisited([2]), "bob")
    assert np.isnan(bob.parts.values).tolist() == [False, False, True]
    assert bob.residual == pytest.approx(0.2)
    assert not bob.adds_up
    assert "1 was never visited" in repr(bob)
    assert "the parts do not add up: 0.2 is missing" in repr(bob)


def test_a_row_of_which_nothing_is_known_has_no_value():
    bob = explain_row(unvisited([0, 1, 2, 3]), "bob")
    assert np.isnan(bob.value)
    assert "3 were never visited" in repr(bob)


def test_a_long_column_shows_its_largest_parts_and_sums_of_the_rest():
    X = np.arange(32.0)[:, None]
    valuation = KNNValuer().fit(X, np.arange(32) % 2).valuation_
    column = explain_column(valuation, "x0")
    rest = column.parts.values[5:]
    text = repr(column)
    assert f"{(rest > 0).sum()} more above 0: {rest[rest > 0].sum():.4g} together" in text
    assert f"{(rest < 0).sum()} more below 0: {rest[rest < 0].sum():.4g} together" in text
    assert len(text.split("\n")) == 9
    assert len(column.to_frame("pandas")) == 32


def test_unknown_labels_tables_and_numbers_are_rejected():
    with pytest.raises(KeyError, match="no row is called 'eve'"):
        explain_row(ADDED, "eve")
    with pytest.raises(KeyError, match="no column is called 0"):
        explain_column(ADDED, 0)
    with pytest.raises(ValueError, match="give the table that was valued"):
        explain_row(ADDED, "ann", X=CELLS)
    grouped = Blocks.cut("abcde", "xyz", row_groups=["p", "q", "r", "s", "s"])
    with pytest.raises(ValueError, match="X must be None for a valuation of row groups"):
        explain_row(value_game(Sum(CELLS), grouped), "p", X=np.ones((5, 3)))


def test_rows_of_one_name_are_looked_at_by_position():
    X = pd.DataFrame({"a": [1.0, 2.0, 8.0, 9.0], "b": [1.0, 5.0, 2.0, 6.0]}, index=[7, 8, 7, 9])
    valuation = KNNValuer(1).fit(X, [0, 0, 1, 1], X_val=X, y_val=[0, 0, 1, 1]).valuation_
    with pytest.raises(KeyError, match=r"valuation\.row\(position\), positions are 0, 2"):
        explain_row(valuation, 7)
    np.testing.assert_array_equal(valuation.row(2).values, valuation.values[2])


def test_a_table_that_was_changed_after_it_was_valued_is_rejected():
    table = np.column_stack([np.arange(20.0), np.arange(20.0) % 7])
    valuation = KNNValuer().fit(table, np.arange(20) % 2).valuation_
    explain_row(valuation, 3, X=table)
    with pytest.raises(ValueError, match="X must have the cells of the table that was valued"):
        explain_row(valuation, 3, X=table + 1)
    with pytest.raises(
        ValueError, match="X must have the columns of the valuation, got no column 'x1'"
    ):
        explain_row(valuation, 3, X=table[:, :1])


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table])
def test_with_the_table_what_stands_in_the_cells_is_shown(library):
    rng = np.random.default_rng(0)
    X = {"age": rng.integers(20, 60, 30), "sex": rng.choice(["f", "m"], 30).tolist()}
    X["pay"] = [None, *rng.normal(size=29).tolist()]
    valuer = KNNValuer().fit(library(X), np.arange(30) % 2, value_labels=True)
    row = explain_row(valuer.valuation_, 0, X=library(X))
    expected = {"age": X["age"][0], "sex": X["sex"][0], "pay": None, "(label)": None}
    assert dict(zip(row.parts.labels["column"].tolist(), row.cells, strict=True)) == expected
    lines = {line.split()[0]: line for line in repr(row).split("\n")[2:6]}
    assert f"  {X['age'][0]}  " in lines["age"]
    assert f"  {X['sex'][0]!r}  " in lines["sex"]
    assert "  a missing value  " in lines["pay"]
    frame = row.to_frame("polars")
    listed = dict(zip(frame["column"], frame["cell"], strict=True))
    assert listed == {name: None if c is None else str(c) for name, c in expected.items()}
    assert "cell" in row.to_frame("pandas").columns
    assert explain_row(valuer.valuation_, 0).cells is None


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_with_labels_a_sentence_says_how_often_rows_like_it_have_the_same_one(library):
    X = {"size": np.arange(200.0), "color": ["red", "red", "blue", "blue"] * 50}
    y = np.array(["no", "no", "yes", "yes"] * 50)
    y[0] = "yes"
    table = library(X)
    valuation = KNNValuer(n_passes=1).fit(table, y).valuation_
    row = explain_row(valuation, 0, X=table, y=y)
    near = f"{(y[1:51] == 'yes').mean():.0%} of the 50 rows like it in size"
    start, *others = row.reason.removesuffix(".").split(", ")
    assert start == "50% of all other rows have its label 'yes'"
    assert sorted(others) == ["0% of the 99 rows like it in color", near]
    assert row.reason in repr(row)
    assert row.reason in html.unescape(row._repr_html_())
    with pytest.raises(ValueError, match="y needs X"):
        explain_row(valuation, 0, y=y)


def test_a_numeric_target_is_compared_with_means():
    X = pd.DataFrame({"size": np.arange(100.0)})
    y = np.arange(100) / 4
    row = explain_row(KNNValuer(n_passes=1).fit(X, y).valuation_, 99, X=X, y=y)
    assert row.reason == (
        f"its target is 24.75; the mean is {y[:99].mean():.4g} of all other rows, "
        f"{y[49:99].mean():.4g} of the 50 rows like it in size."
    )


def test_both_errors_are_shown_together_and_rounding_is_not():
    X = np.random.default_rng(0).normal(size=(30, 3))
    row = explain_row(KNNValuer().fit(X, np.arange(30) % 2).valuation_, 4)
    both = np.hypot(row.sampling_se, row.validation_se)
    assert f" +- {both:.2g}, of which" in repr(row)
    dust = replace(row, sampling_se=5.7e-19, validation_se=None)
    assert "+-" not in repr(dust).split("\n")[0]
