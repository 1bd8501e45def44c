"""Cells: their values in a valuation of the same table, and their contents in sentences."""

import numpy as np
import pandas as pd
import pytest

from cellworth import KNNValuer, audit, value_game
from cellworth.data.blocks import Blocks
from cellworth.data.tables import Table
from cellworth.findings.cells import read_cell_values
from cellworth.games import TableGame
from cellworth.runtime import MaxTasks

ROWS = [f"p{i}" for i in range(12)]
X = pd.DataFrame(
    np.random.default_rng(0).normal(size=(12, 3)), columns=["age", "job", "pay"], index=ROWS
)
Y = np.arange(12) % 2


@pytest.fixture(scope="module")
def valuation():
    return KNNValuer(random_state=0).fit(X, Y, cv=3).valuation_


def read(valuation, table):
    return read_cell_values(valuation, Table.from_data(table, called="X"))


def test_values_are_matched_by_column_name_and_read_chunk_by_chunk(valuation, monkeypatch):
    np.testing.assert_array_equal(read(valuation, X), valuation.values)
    original = valuation.iter_rows
    monkeypatch.setattr(type(valuation), "iter_rows", lambda self: original(5))
    swapped = read(valuation, X[["pay", "age", "job"]])
    np.testing.assert_array_equal(swapped, valuation.values[:, [2, 0, 1]])


def test_a_cell_of_a_group_has_the_value_of_its_block():
    rows, columns = np.tile([0, 1, 2], 4), {"who": ["age", "job"], "p": ["pay"]}
    blocks = Blocks.cut(X.index, X.columns, row_groups=rows, column_groups=columns)
    game = TableGame(np.random.default_rng(1).normal(size=(8, 4)))
    valuation = value_game(game, blocks, stop=MaxTasks(9), random_state=0)
    np.testing.assert_array_equal(read(valuation, X), valuation.values[rows][:, [0, 0, 1]])


def test_the_values_of_labels_are_left_out():
    numbered = X.set_axis([1, 2, 3], axis=1)
    valuation = KNNValuer(random_state=0).fit(numbered, Y, cv=3, value_labels=True).valuation_
    np.testing.assert_array_equal(read(valuation, numbered), valuation.values[:, :3])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda X: X.iloc[::-1], r"X must have the 12 rows .*, got 12 \('p11', 'p10', 'p9', ...\)"),
        (lambda X: X.drop(columns="job"), "columns of the valuation, got no column 'job'"),
        (lambda X: X.assign(sex="f"), "columns of the valuation, got a column 'sex'"),
        (lambda X: X.assign(age=X["age"] + 1), "X must have the cells of the table that was"),
    ],
)
def test_a_table_that_was_not_valued_is_rejected(valuation, change, sentence):
    with pytest.raises(ValueError, match=sentence):
        audit(change(X), Y, valuation=valuation, quick=True)


def test_what_is_no_valuation_gets_a_sentence():
    with pytest.raises(TypeError, match="valuation must be a Valuation, got KNNValuer; pass the"):
        audit(X, Y, valuation=KNNValuer(), quick=True)
