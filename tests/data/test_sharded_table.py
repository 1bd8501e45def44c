"""ShardedTable: which files, rows and columns are meant, and what is refused."""

import io
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.tree import DecisionTreeClassifier

from cellworth import ModelValuer, ShardedTable
from cellworth.data.sharded_table import read_batches
from sharded_tables import table_of_all_sorts, travelled, write, written


def rows_in(table):
    """Cells of the first column, shard by shard."""
    name = table.names.tolist()[0]
    return [
        [cell for (array,) in table.batches(shard, [name]) for cell in array.to_pylist()]
        for shard in range(table.n_shards)
    ]


@pytest.fixture
def numbered():
    return pa.table({"x": np.arange(1000), "y": np.arange(1000) % 2})


def test_a_shard_is_a_file_and_rows_are_numbered_through(numbered, tmp_path):
    table = ShardedTable.from_files(write(numbered, tmp_path, [100, 450]), target="y")
    assert table.shape == (1000, 1)
    assert table.n_shards == 3
    assert [list(table.rows(s)) for s in range(3)] == rows_in(table)
    assert repr(table) == (
        "<ShardedTable: 1000 rows x 1 columns and the target 'y', in 3 files, 3 shards>"
    )


@pytest.mark.parametrize("n_shards", [1, 2, 4, 7, 10])
def test_row_groups_are_dealt_in_order_into_even_shards(numbered, tmp_path, n_shards):
    folder = write(numbered, tmp_path, [370], rows_per_group=40)
    table = ShardedTable.from_files(folder, target="y", shards=n_shards)
    assert [list(table.rows(s)) for s in range(n_shards)] == rows_in(table)
    assert np.concatenate(rows_in(table)).tolist() == list(range(1000))
    lengths = [len(rows) for rows in rows_in(table)]
    assert max(lengths) - min(lengths) <= 80


def test_uneven_row_groups_leave_no_shard_empty(tmp_path):
    write(pa.table({"x": np.arange(900), "y": np.arange(900)}), tmp_path / "a", rows_per_group=900)
    write(pa.table({"x": np.arange(3), "y": np.arange(3)}), tmp_path / "b", rows_per_group=1)
    for n_shards in (1, 2, 3, 4):
        table = ShardedTable.from_files(tmp_path, target="y", shards=n_shards)
        assert all(len(table.rows(shard)) for shard in range(table.n_shards))
        assert table.n_shards <= n_shards


def test_a_long_file_is_cut_by_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr("cellworth.data.sharded_table._MAX_ROWS", 300)
    numbers = pa.table({"x": np.arange(1000), "y": np.arange(1000) % 2})
    table = ShardedTable.from_files(write(numbers, tmp_path, rows_per_group=140), target="y")
    assert [len(table.rows(shard)) for shard in range(table.n_shards)] == [280, 280, 280, 160]


def test_a_file_a_folder_and_a_list_are_addresses(numbered, tmp_path):
    write(numbered.slice(0, 600), tmp_path / "b" / "c")
    write(numbered.slice(600), tmp_path / "d")
    (tmp_path / ".hidden.parquet").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("")
    whole = ShardedTable.from_files(tmp_path, target="y")
    listed = ShardedTable.from_files([tmp_path / "b", tmp_path / "d" / "0.parquet"], target="y")
    assert rows_in(whole) == rows_in(listed)
    assert whole.shape == (1000, 1)
    one = ShardedTable.from_files(str(tmp_path / "d" / "0.parquet"), target="y")
    assert one.shape == (400, 1)


@pytest.mark.parametrize("protocol", ["memory", "file"])
def test_addresses_elsewhere_are_read_with_fsspec(numbered, tmp_path, protocol):
    fsspec = pytest.importorskip("fsspec")
    root = "memory://sharded-table" if protocol == "memory" else f"file://{tmp_path}/elsewhere"
    for k in range(2):
        content = io.BytesIO()
        pq.write_table(numbered.slice(500 * k, 500), content)
        with fsspec.open(f"{root}/{k}.parquet", "wb", auto_mkdir=True) as file:
            file.write(content.getvalue())
    for address in (root, [f"{root}/0.parquet", f"{root}/1.parquet"]):
        table = travelled(ShardedTable.from_files(address, target="y"))
        assert np.concatenate(rows_in(table)).tolist() == list(range(1000))
    with pytest.raises(FileNotFoundError, match="no file or folder"):
        ShardedTable.from_files(f"{root}/none.parquet", target="y")


def test_it_is_small_and_travels(tmp_path):
    folder = write(table_of_all_sorts(), tmp_path, [1000], rows_per_group=10)
    table = ShardedTable.from_files(folder, target="y")
    pack = pickle.dumps(table)
    assert len(pack) < 5000
    other = travelled(table)
    assert (other.shape, other.names.tolist(), repr(other)) == (
        table.shape, table.names.tolist(), repr(table),
    )  # fmt: skip
    assert other.files_sha256() == table.files_sha256()


def test_columns_are_chosen_and_ordered(tmp_path):
    folder = write(table_of_all_sorts(), tmp_path)
    table = ShardedTable.from_files(folder, target="truth", columns=["text", "single"])
    assert (table.names.tolist(), table.target) == (["text", "single"], "truth")
    everything = ShardedTable.from_files(folder, target="truth")
    assert everything.shape == (3000, 21)


def test_columns_may_come_in_another_order_and_missing_values_have_no_type(tmp_path):
    write(pa.table({"x": pa.nulls(2), "z": ["a", "b"], "y": [0, 1]}), tmp_path / "a")
    write(pa.table({"y": [0, 1], "z": ["a", "b"], "x": [1.5, 2.5]}), tmp_path / "b")
    table = ShardedTable.from_files(tmp_path, target="y")
    assert table.schema.field("x").type == pa.float64()
    assert rows_in(table) == [[None, None], [1.5, 2.5]]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"x": ["a"], "y": [0]}, r"b/0.parquet holds string in column 'x', but .* hold double"),
        ({"x": [True], "y": [0]}, r"b/0.parquet holds bool in column 'x', but .* hold double"),
        ({"x": [1.0], "z": [0]}, r"all files must have the target 'y', got .*b/0.parquet without"),
    ],
)
def test_files_that_disagree_are_rejected(tmp_path, other, words):
    written(tmp_path / "a")
    write(pa.table(other), tmp_path / "b")
    with pytest.raises(ValueError, match=words):
        ShardedTable.from_files(tmp_path, target="y")


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        (
            {"target": "z"},
            ValueError,
            "target must be among the columns of .*, got 'z'; its columns are 'x', 'y'",
        ),
        (
            {"target": "y", "columns": ["q"]},
            ValueError,
            "columns must be among the columns of .*, got 'q'",
        ),
        ({"target": "y", "columns": ["x", "x"]}, ValueError, "twice"),
        ({"target": "y", "columns": ["x", "y"]}, ValueError, "twice"),
        ({"target": "y", "columns": []}, ValueError, "no column besides the target"),
        ({"target": "y", "columns": "x"}, TypeError, "must be a list of names"),
        ({"target": "y", "shards": 0}, ValueError, "shards must be an integer of at least 1"),
    ],
)
def test_what_is_asked_for_must_be_there(tmp_path, settings, error, words):
    with pytest.raises(error, match=words):
        ShardedTable.from_files(written(tmp_path), **settings)


def test_what_is_no_table_is_rejected(tmp_path):
    def read(address):
        ShardedTable.from_files(address, target="y")

    with pytest.raises(FileNotFoundError, match="there is no file or folder"):
        read(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match=r"holds no .parquet, .csv or .jsonl file"):
        read(tmp_path)
    with pytest.raises(ValueError, match="at least one file or folder, got none"):
        read([])
    file = written(tmp_path / "a") / "0.parquet"
    with pytest.raises(ValueError, match="listed twice"):
        read([file, file])
    file.write_bytes(b"no Parquet, but text")
    with pytest.raises(ValueError, match=r"cannot be read .*write it again"):
        read(file)
    empty = write(
        pa.table({"x": pa.array([], "int64"), "y": pa.array([], "int64")}), tmp_path / "c"
    )
    with pytest.raises(ValueError, match="hold no row"):
        read(empty)


def test_more_rows_than_can_be_counted_are_rejected(numbered, tmp_path, monkeypatch):
    monkeypatch.setattr("cellworth.data.sharded_table._TOO_MANY_ROWS", 1000)
    with pytest.raises(ValueError, match="the files must hold fewer than 1000 rows, got 1000"):
        ShardedTable.from_files(write(numbered, tmp_path, [100]), target="y")


def test_footers_tell_replaced_files(tmp_path):
    folder = written(tmp_path)
    table = ShardedTable.from_files(folder, target="y")
    before = table.files_sha256()
    table.check_files_unchanged()
    written(tmp_path, x=[1.0, 2.0, 3.0, 5.0])
    assert ShardedTable.from_files(folder, target="y").files_sha256() != before
    with pytest.raises(ValueError, match="was changed since"):
        table.check_files_unchanged()
    with pytest.raises(ValueError, match=r"0.parquet was changed since"):
        rows_in(table)


def test_a_file_that_was_cut_off_is_rejected(numbered, tmp_path):
    table = ShardedTable.from_files(write(numbered, tmp_path), target="y")
    file = tmp_path / "0.parquet"
    for n_bytes in (file.stat().st_size // 2, 3, 0):
        file.write_bytes(file.read_bytes()[:n_bytes])
        with pytest.raises(ValueError, match=r"0.parquet was changed since"):
            rows_in(table)


def test_a_damaged_page_is_rejected_with_the_name_of_its_file(numbered, tmp_path):
    table = ShardedTable.from_files(write(numbered, tmp_path), target="y")
    with (tmp_path / "0.parquet").open("r+b") as file:
        file.seek(4)
        file.write(b"\xff" * 60)
    with pytest.raises(
        ValueError, match=r"0.parquet cannot be read \(.*\); fix it, or write it again"
    ):
        rows_in(table)


@pytest.mark.parametrize(
    "address", [None, 3, [["a"]], b"a", {"a": 1}, pa.table({"a": [1]})], ids=type
)
def test_what_is_no_address_is_rejected(address):
    with pytest.raises(TypeError, match="address must be a path, got"):
        ShardedTable.from_files(address, target="y")


@pytest.mark.parametrize(
    "labels", [[[1], [2]], [b"a", b"b"], pa.array([b"a", b"b"]).dictionary_encode()], ids=str
)
def test_a_target_that_holds_no_labels_is_rejected(labels, tmp_path):
    folder = write(pa.table({"x": [1.0, 2.0], "y": labels}), tmp_path)
    with pytest.raises(TypeError, match=r"the target 'y' must hold .*; give another"):
        ShardedTable.from_files(folder, target="y")


def test_other_valuers_say_who_takes_a_sharded_table(tmp_path):
    table = ShardedTable.from_files(written(tmp_path), target="y")
    with pytest.raises(TypeError, match="X must be a table in memory, got a ShardedTable"):
        ModelValuer(DecisionTreeClassifier()).fit(table, [0, 1])


def test_a_row_is_found_again(numbered, tmp_path):
    table = ShardedTable.from_files(write(numbered, tmp_path, [100]), target="y")
    assert table.where(100) == f"row 0 of {tmp_path / '1.parquet'}"
    assert table.where(99) == f"row 99 of {tmp_path / '0.parquet'}"


@pytest.mark.parametrize("shards", [None, 2])
def test_rows_are_taken_by_number_in_any_order(tmp_path, monkeypatch, shards):
    monkeypatch.setattr("cellworth.data.table_files._BATCH", 70)
    # NaN is not equal to itself.
    whole = table_of_all_sorts(1000).drop_columns("unknown")
    folder = write(whole, tmp_path, [100, 450], rows_per_group=200)
    table = ShardedTable.from_files(folder, target="y", shards=shards)
    rows = [999, 0, 449, 450, 99, 100, 0, 300]
    plain = whole["dictionary"].cast(pa.string())
    position = whole.column_names.index("dictionary")
    wanted = whole.set_column(position, "dictionary", plain).take(rows)
    assert table.take(rows).equals(wanted)
    assert table.take(np.array(rows)).equals(wanted)
    assert table.take([]).schema == wanted.schema


def test_only_the_row_groups_that_are_needed_are_read(numbered, tmp_path, monkeypatch):
    table = ShardedTable.from_files(write(numbered, tmp_path, [300]), target="y")
    read = []

    def watched(file, groups, *more):
        read.append((file.address[-9:], list(groups)))
        return read_batches(file, groups, *more)

    monkeypatch.setattr("cellworth.data.sharded_table.read_batches", watched)
    assert table.take([950, 299, 901])["x"].to_pylist() == [950, 299, 901]
    assert read == [("0.parquet", [0]), ("1.parquet", [2])]


@pytest.mark.parametrize(
    ("ask", "error", "words"),
    [
        (
            lambda table: table.take([3, -1]),
            ValueError,
            "rows must be positions from 0 to 999, got -1",
        ),
        (lambda table: table.take([1000]), ValueError, "rows must be positions from 0 to 999"),
        (lambda table: table.take([True]), ValueError, "rows must be positions for"),
        (lambda table: table.take(["a"]), ValueError, "rows must be positions for"),
        (lambda table: table.take(5), ValueError, "rows must be positions for"),
        (
            lambda table: table.where(50_000),
            ValueError,
            "rows must be positions from 0 to 999, got 50000",
        ),
        (lambda table: table.rows(9), IndexError, "shard must be an integer from 0 to 1, got 9"),
        (lambda table: table.rows(-1), IndexError, "shard must be an integer from 0 to 1, got -1"),
    ],
)
def test_rows_and_shards_that_are_not_there_get_a_sentence(numbered, tmp_path, ask, error, words):
    table = ShardedTable.from_files(write(numbered, tmp_path, [300]), target="y")
    assert table.where(301) == f"row 1 of {tmp_path / '1.parquet'}"
    with pytest.raises(error, match=words):
        ask(table)
