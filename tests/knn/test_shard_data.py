"""Rows of one shard: sorted by class, stored in files, sampled by position."""

import json
import pickle
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest

from cellworth import ShardedTable
from cellworth.knn.binned import sample_positions
from cellworth.knn.shard_data import (
    PreparedShards,
    StoredShard,
    read_shard,
    summarize_table,
    take_rows,
)
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


def assert_same_rows(one, other):
    for left, right in zip(
        (*one.rows, one.starts, one.positions),
        (*other.rows, other.starts, other.positions),
        strict=True,
    ):
        assert left.dtype == right.dtype
        assert left.flags["C_CONTIGUOUS"]
        assert right.flags["C_CONTIGUOUS"]
        np.testing.assert_array_equal(left, right)


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


def test_a_stored_shard_equals_the_one_that_was_read(rows, tmp_path):
    _, table, layout = rows
    part = read_shard(table, 1, layout)
    part.save(tmp_path / "shard", of=layout.sha256())
    again = StoredShard.open(tmp_path / "shard", of=layout.sha256())
    assert_same_rows(part, again)
    read_shard(table, 0, layout).save(tmp_path / "shard", of="other")
    assert_same_rows(StoredShard.open(tmp_path / "shard", of="other"), read_shard(table, 0, layout))
    assert len(list((tmp_path / "shard").iterdir())) == 5


def test_a_shard_can_be_prepared_again_while_it_is_read(rows, tmp_path):
    _, table, layout = rows
    part = read_shard(table, 0, layout)
    part.save(tmp_path)
    read = StoredShard.open(tmp_path)
    before = sorted(tmp_path.iterdir())
    part.save(tmp_path)
    assert sorted(tmp_path.iterdir()) == before
    assert_same_rows(read, part)
    # Only the manifest names the current files, and it is replaced last.
    (tmp_path / "numbers-000000000000.npy").write_bytes(b"what a stopped machine leaves")
    assert_same_rows(StoredShard.open(tmp_path), part)
    part.save(tmp_path)
    assert sorted(tmp_path.iterdir()) == before


def test_a_shard_without_numeric_columns_is_stored(tmp_path):
    folder = write(pa.table({"c": list("aab"), "y": [0, 1, 1]}), tmp_path / "table")
    table = ShardedTable.from_files(folder, target="y")
    layout, _ = Layout.from_summary(table, summarise_all(table), pa.table({"c": ["a"]}), [1])
    part = read_shard(table, 0, layout)
    part.save(tmp_path / "shard")
    assert_same_rows(part, StoredShard.open(tmp_path / "shard"))


def test_incomplete_and_foreign_shards_are_errors(rows, tmp_path):
    _, table, layout = rows
    part = read_shard(table, 0, layout)
    part.save(tmp_path, of="this")
    with pytest.raises(ValueError, match="must have a shard of this table and layout"):
        StoredShard.open(tmp_path, of="that")
    (numbers,) = tmp_path.glob("numbers-*.npy")
    content = numbers.read_bytes()
    numbers.write_bytes(content[: len(content) // 2])
    with pytest.raises((ValueError, EOFError)):
        StoredShard.open(tmp_path, of="this")
    flipped = bytearray(content)
    flipped[-3] ^= 1
    numbers.write_bytes(flipped)
    with pytest.raises(ValueError, match="does not match its manifest"):
        StoredShard.open(tmp_path, of="this")
    np.save(numbers, part.rows.numbers[:, 1:])
    with pytest.raises(ValueError, match="does not match its manifest"):
        StoredShard.open(tmp_path, of="this")
    numbers.unlink()
    with pytest.raises(FileNotFoundError):
        StoredShard.open(tmp_path, of="this")
    (tmp_path / "manifest.json").write_text(json.dumps({"format": "another"}))
    with pytest.raises(ValueError, match="does not describe a cellworth shard"):
        StoredShard.open(tmp_path, of="this")


def test_a_shard_whose_header_is_no_python_is_prepared_again(rows, tmp_path):
    _, table, layout = rows
    shards = PreparedShards(table, layout, tmp_path)
    expected = shards.open(0)
    (numbers,) = tmp_path.rglob("000000/numbers-*.npy")
    # One bit away, a bracket that never closes.
    numbers.write_bytes(numbers.read_bytes().replace(b")", b"(", 1))
    assert_same_rows(shards.open(0), expected)


def test_rows_are_sampled_by_position(rows):
    _, table, layout = rows
    ids = np.array([0, 3, 499, 500, 777, 1199])
    shards = {shard: read_shard(table, shard, layout) for shard in range(2)}
    for part in shards.values():
        columns = take_rows(part, ids)
        assert columns.numbers.dtype == np.float64
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
    shards = PreparedShards(table, layout, tmp_path, durable=False)
    rows_sent, nothing_sent = Counted(), Counted()
    ids = sample_positions(n_rows)
    shards.sample(ids, rows_sent, show_progress=False)
    shards.sample(ids[:0], nothing_sent, show_progress=False)
    of_cell = (sum(rows_sent.sent) - sum(nothing_sent.sent)) / len(ids) / n_columns
    assert of_cell == pytest.approx(8, rel=0.01)
    # At most 128 summaries, however many shards there are, and a row in 1,024.
    n_sampled = len(sample_positions(10**9))
    assert 128 * (100 * 16_000 + 2_000) + n_sampled * 100 * 8 < 1e9
