from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cellworth.data.tables import AbsentTable, Table, is_absent

SOURCE = SimpleNamespace(shape=(7, 2), names=["a", "b"])


def test_a_table_in_shards_tells_names_shape_and_fingerprint():
    table = AbsentTable(SOURCE)
    assert table.shape == (7, 2)
    assert table.names.tolist() == ["a", "b"]
    assert table.row_ids.tolist() == list(range(7))
    assert table.sha256() == ""
    known = SimpleNamespace(**vars(SOURCE), sha256=lambda: "abc")
    assert AbsentTable(known).sha256() == "abc"


@pytest.mark.parametrize(
    "look",
    [
        lambda table: table.column(0),
        lambda table: table.take(np.array([0]), np.array([0])),
        lambda table: table.native,
    ],
)
def test_cells_that_are_not_at_hand_are_refused(look):
    with pytest.raises(ValueError, match="the cells of a sharded table cannot be read here"):
        look(AbsentTable(SOURCE))


def test_tables_at_hand_are_never_taken_for_absent_ones():
    columns = {"names": [1, 2], "shape": [3, 4]}
    tables = [pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns), np.ones((2, 2))]
    assert not any(map(is_absent, [*tables, [[1, 2]], Table.from_data(tables[0], called="X")]))
    assert not is_absent(AbsentTable(SOURCE))
    assert is_absent(SOURCE)
