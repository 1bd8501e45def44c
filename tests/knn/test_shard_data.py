"""Rows of one shard: sorted by class, sampled by position."""

import pickle
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest

from cellworth import ShardedTable
from cellworth.knn.binned import sample_positions
from cellworth.knn.shard_data import read_shard, sample_shards, summarize_table, take_rows
from cellworth.knn.shard_layout import Layout
from cellworth.runtime import Serial
from sharded_tables import KINDS, summarise_all, table_of_all_sorts, write


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Return the labels of a table, the table and its layout."""
    rows = table_of_all_sorts(1200)
    folder = write(rows, tmp_path_factory.mktemp("rows"), [500])
    table = ShardedTable.from_files(folder, target="y")
    X_val = rows.slice(0, 9).drop_columns("y")
    y_val = rows["y"].to_pylist()[:9]
    layout, _ = Layout.from_summary(
        table, summarise_all(table, KINDS), X_val, y_val, column_types=KINDS
    )
    return np.array(rows["y"].to_pylist()), table, layout


def test_rows_are_sorted_by_class_and_keep_their_order(rows):
    labels, table, layout = rows
    positions = []
    for shard in range(2):
        part = read_shard(table, shard, layout)
        for code, label in enumerate(layout.classes):
            own = part.positions[part.starts[code] : part.starts[code + 1]]
            assert (labels[own] == label).all()
            assert (np.diff(own) > 0).all()
        positions.append(part.positions)
    assert [set(part.tolist()) for part in positions] == [set(range(500)), set(range(500, 1200))]


def test_rows_are_sampled_by_position(rows):
    _, table, layout = rows
    ids = np.array([0, 3, 499, 500, 777, 1199])
    shards = {shard: read_shard(table, shard, layout) for shard in range(2)}
    for part in shards.values():
        columns = take_rows(part, ids)
        positions = part.positions.tolist()
        where = [positions.index(position) for position in ids.tolist() if position in positions]
        np.testing.assert_array_equal(columns.numbers, part.rows.numbers[:, where])
        np.testing.assert_array_equal(columns.categories, part.rows.categories[:, where])
    assert take_rows(shards[0], np.array([600])).numbers.shape[1] == 0


def test_files_that_change_while_they_are_read_are_an_error(tmp_path):
    table = ShardedTable.from_files(
        write(pa.table({"c": list("aab"), "y": [0, 1, 1]}), tmp_path), target="y"
    )
    layout, _ = Layout.from_summary(table, summarise_all(table), pa.table({"c": ["a"]}), [1])
    write(pa.table({"c": list("aac"), "y": [0, 1, 1]}), tmp_path)
    with pytest.raises(ValueError, match="was changed since this ShardedTable was created"):
        read_shard(table, 0, layout)
    write(pa.table({"c": list("aabb"), "y": [0, 1, 1, 1]}), tmp_path)
    with pytest.raises(ValueError, match="was changed since this ShardedTable was created"):
        read_shard(table, 0, layout)


class Counted(Serial):
    """An executor that counts the bytes of what its workers send to the driver."""

    def __init__(self):
        self.sent = []

    @contextmanager
    def start(self, work, title):
        def counted(request):
            answer = work(request)
            self.sent.append(len(pickle.dumps(answer)))
            return answer

        with super().start(counted, title) as pool:
            yield pool


@pytest.mark.slow
def test_the_driver_gets_at_most_a_gigabyte_of_the_columns_of_a_billion_rows(tmp_path):
    n_shards, n_rows, n_columns = 150, 75_000, 4
    rng = np.random.default_rng(0)
    columns = {f"c{j}": rng.standard_cauchy(n_rows) for j in range(n_columns)}
    rows = pa.table(columns | {"y": rng.integers(0, 2, n_rows)})
    folder = write(rows, tmp_path / "files", rows_per_group=n_rows // n_shards)
    table = ShardedTable.from_files(folder, target="y", shards=n_shards)
    executor = Counted()
    summary = summarize_table(table, None, executor, show_progress=False)
    # Workers have merged those of two shards. The rest is for the label and hashes of shards.
    assert len(executor.sent) == n_shards / 2
    of_column = (max(executor.sent) - 2_000) / n_columns
    assert 4_000 < of_column < 16_000, of_column

    layout, _ = Layout.from_summary(table, summary, rows.slice(0, 2).drop_columns("y"), [0, 1])
    rows_sent, nothing_sent = Counted(), Counted()
    ids = sample_positions(n_rows)
    sample_shards(table, layout, ids, rows_sent, show_progress=False)
    sample_shards(table, layout, ids[:0], nothing_sent, show_progress=False)
    of_cell = (sum(rows_sent.sent) - sum(nothing_sent.sent)) / len(ids) / n_columns
    assert of_cell == pytest.approx(8, rel=0.01)
    # At most 128 summaries, however many shards there are, and a row in 1,024.
    n_sampled = len(sample_positions(10**9))
    assert 128 * (100 * 16_000 + 2_000) + n_sampled * 100 * 8 < 1e9
