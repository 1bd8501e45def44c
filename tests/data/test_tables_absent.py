from types import SimpleNamespace

import numpy as np
import pytest

from cellworth.data.sharded_table import AbsentTable

SOURCE = SimpleNamespace(shape=(7, 2), names=["a", "b"])


def test_a_table_in_shards_tells_names_and_shape():
    table = AbsentTable(SOURCE)
    assert table.shape == (7, 2)
    assert table.names.tolist() == ["a", "b"]
    assert table.row_ids.tolist() == list(range(7))
    assert table.sha256() == ""


@pytest.mark.parametrize(
    "look",
    [
        lambda table: table.take(np.array([0]), np.array([0])),
        lambda table: table.native,
    ],
)
def test_cells_that_are_not_at_hand_are_rejected(look):
    with pytest.raises(ValueError, match="the cells of a sharded table cannot be read here"):
        look(AbsentTable(SOURCE))
