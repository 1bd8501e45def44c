"""Summaries and layouts of sharded tables equal those of a table in memory, bit by bit."""

import datetime
import decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cellworth import ShardedTable
from cellworth.data.column import Column
from cellworth.data.problem import Problem
from cellworth.data.tables import Table
from cellworth.knn import KNNGame
from cellworth.knn.distances import Distances
from cellworth.knn.shard_data import read_shard
from cellworth.knn.shard_layout import Layout, summarize_shard
from sharded_tables import KINDS, summarise_all, table_of_all_sorts, travelled, write, written

LIBRARIES = {
    "arrow": lambda table: table,
    "pandas": lambda table: table.to_pandas(),
    "polars": pl.from_arrow,
}


def split_off(table):
    return table.drop_columns("y"), table["y"].to_pylist()


def assert_equal_arrays(one, other):
    for name in one._fields:
        left, right = getattr(one, name), getattr(other, name)
        assert np.asarray(left).dtype == np.asarray(right).dtype
        np.testing.assert_array_equal(left, right)


def laid_out(folder, X_val=None, y_val=None, *, shards=None, **settings):
    table = ShardedTable.from_files(folder, target="y", shards=shards)
    column_types = settings.get("column_types")
    X_val = pa.table({"x": [1.0]}) if X_val is None else X_val
    y_val = [0] if y_val is None else y_val
    return table, *Layout.from_summary(
        table, summarise_all(table, column_types), X_val, y_val, **settings
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "scale"), [("arrow", "robust"), ("pandas", "std"), ("polars", None)]
)
def test_scales_and_cells_equal_those_of_the_table_in_memory(tmp_path, library, scale):
    rows = table_of_all_sorts(3300)
    rows, queries = rows.slice(0, 3000), rows.slice(3000)
    folder = write(rows, tmp_path, [1000, 1700])
    read = LIBRARIES[library]
    (X, y), (X_val, y_val) = split_off(pq.read_table(folder)), split_off(queries)
    X, X_val = read(X), read(X_val)
    settings = {"column_types": KINDS, "scale": scale}
    in_memory = Distances.from_tables(
        Table.from_data(X, called="X"), [Table.from_data(X_val, called="X")], **settings
    )
    problem = Problem.from_data(X, y, X_val, y_val, classification=None)
    for shards in (None, 1, 4):
        table, layout, queries = laid_out(folder, X_val, y_val, shards=shards, **settings)
        layout = travelled(layout)
        assert_equal_arrays(layout.scales, in_memory.scales)
        assert_equal_arrays(queries.columns, in_memory.queries[0])
        assert layout.classes == problem.classes.tolist() == ["no", "yes"]
        assert queries.labels.tolist() == np.searchsorted(problem.classes, y_val).tolist()
        assert sum(layout.class_counts) == 3000
        for shard in range(table.n_shards):
            part = read_shard(table, shard, layout)
            assert_equal_arrays(part.rows, in_memory.rows.take(part.positions))


@settings(deadline=None)
@given(
    st.lists(st.none() | st.integers(-(10**17), 10**17) | st.just(-(2**53)), min_size=1),
    st.integers(0, 25),
    st.integers(0, 2),
)
def test_decimals_are_rounded_as_python_does(digits, scale, skipped):
    exact = decimal.Context(prec=60)
    cells = [None if d is None else decimal.Decimal(d).scaleb(-scale, exact) for d in digits]
    array = pa.array([None] * skipped + cells, pa.decimal128(38, scale)).slice(skipped)
    floats = Column("c", array, array.type).read_part().tolist()
    wanted = [np.nan if cell is None else float(cell) for cell in cells]
    np.testing.assert_array_equal(floats, wanted)


def test_scales_of_many_distinct_numbers_do_not_depend_on_the_shards(tmp_path):
    rng = np.random.default_rng(0)
    n_rows = 150_000
    table = pa.table(
        {
            "normal": rng.normal(size=n_rows),
            "moment": pa.array(rng.integers(10**15, 2 * 10**15, n_rows), pa.timestamp("us")),
            "y": rng.integers(0, 2, n_rows),
        }
    )
    folder = write(table, tmp_path, [70_000], rows_per_group=10_000)
    X_val = table.slice(0, 5).drop_columns("y")
    in_memory = Distances.from_tables(
        Table.from_data(table.drop_columns("y"), called="X"), [Table.from_data(X_val, called="X")]
    )
    for shards in (1, 3, 11):
        _, layout, _ = laid_out(folder, X_val, [0, 1, 0, 1, 0], shards=shards)
        assert_equal_arrays(layout.scales, in_memory.scales)


@pytest.mark.parametrize("n_rows", [2**16, 2**16 + 1])
def test_scales_are_exact_up_to_65536_rows_and_near_beyond(tmp_path, n_rows):
    rng = np.random.default_rng(0)
    x = np.resize(rng.normal(size=30_000), n_rows)
    table = pa.table({"x": x, "y": rng.integers(0, 2, n_rows)})
    truth = np.subtract(*np.percentile(table["x"], (75, 25))) / 1.349
    X = Table.from_data(table.drop_columns("y"), called="X")
    in_memory = Distances.from_tables(X, [X]).scales
    _, layout, _ = laid_out(write(table, tmp_path, [70]))
    assert layout.scales.scale(0) == in_memory.scale(0)
    assert in_memory.scale(0) == pytest.approx(truth, rel=1e-15 if n_rows == 2**16 else 1e-3)
    assert (in_memory.scale(0) == truth) == (n_rows == 2**16)


def test_summaries_merge_in_any_order(tmp_path):
    folder = write(table_of_all_sorts(), tmp_path, [500, 1100, 1200])
    table = ShardedTable.from_files(folder, target="y")
    parts = [summarize_shard(table, shard, KINDS) for shard in range(4)]
    X_val, y_val = split_off(table_of_all_sorts(50, seed=1))
    prints = set()
    for merged in (
        parts[0].merge(parts[1]).merge(parts[2]).merge(parts[3]),
        parts[3].merge(parts[1]).merge(parts[2].merge(parts[0])),
        summarise_all(table, KINDS),
    ):
        layout, _ = Layout.from_summary(table, travelled(merged), X_val, y_val, column_types=KINDS)
        prints.add((layout.sha256(), merged.sha256(table)))
    assert len(prints) == 1


def test_the_hash_depends_on_cells_and_not_on_files(tmp_path):
    def hash_file(table, name, **settings):
        pq.write_table(table, tmp_path / name, **settings)
        sharded = ShardedTable.from_files(tmp_path / name, target="y")
        return summarise_all(sharded, KINDS).sha256(sharded)

    table = table_of_all_sorts(500)
    same = hash_file(table, "a.parquet", compression="zstd", row_group_size=100)
    assert hash_file(table, "b.parquet", compression="none", use_dictionary=False) == same
    for position, name in enumerate(table.column_names):
        moved = table.set_column(
            position, table.field(name), pa.chunked_array([table[name][1:], table[name][:1]])
            .cast(table[name].type).combine_chunks()
        )  # fmt: skip
        alike = table[name].to_pylist()
        constant = all(cell is None or cell != cell for cell in alike)
        assert (hash_file(moved, "c.parquet") == same) == constant, name


def test_float32_is_chosen_only_if_it_is_exact(tmp_path):
    narrow = {"x": pa.array([1.5, 2.5, 3.5, None], "float64"), "i": [1, 2, 3, 2**24]}
    X_val = pa.table({"x": [0.1], "i": [0]})
    _, layout, queries = laid_out(written(tmp_path / "a", **narrow), X_val)
    assert layout.dtype == np.float32
    assert queries.columns.numbers[0, 0] == 0.1
    wide = narrow | {"i": [1, 2, 3, 2**24 + 1]}
    assert laid_out(written(tmp_path / "b", **wide), X_val)[1].dtype == np.float64


def test_a_column_of_missing_values_has_the_type_of_the_validation_rows(tmp_path):
    missing = pa.nulls(4, "float64")
    folder = written(tmp_path, floats=missing, none=pa.nulls(4), text=pa.nulls(4, "string"))
    X_val = pa.table({"x": [1.0], "floats": ["a"], "none": [2.0], "text": [3.0]})
    table, layout, queries = laid_out(folder, X_val)
    assert [column.name for column in layout.categorical] == ["floats"]
    assert [column.name for column in layout.numeric] == ["x", "none", "text"]
    in_memory = Distances.from_tables(
        Table.from_data(pq.read_table(folder).drop_columns("y"), called="X"),
        [Table.from_data(X_val, called="X")],
    )
    assert_equal_arrays(layout.scales, in_memory.scales)
    assert_equal_arrays(queries.columns, in_memory.queries[0])
    part = read_shard(table, 0, layout)
    np.testing.assert_array_equal(part.rows.numbers[1:], np.full((2, 4), np.nan))
    assert (part.rows.categories == -1).all()


@pytest.mark.parametrize("library", LIBRARIES)
def test_column_types_make_categories_of_timestamps_and_numbers(tmp_path, library):
    rows = table_of_all_sorts(900)
    names = ["day", "moment", "zoned", "nanos", "span", "double", "whole", "byte", "money", "signs"]
    signs = pa.array([0.0, -0.0, None] * 300)
    rows = rows.append_column("signs", signs).select([*names, "y"])
    folder = write(rows, tmp_path, [300])
    column_types = dict.fromkeys(names, "categorical")
    X, X_val = (LIBRARIES[library](part.drop_columns("y")) for part in (rows, rows.slice(7, 90)))
    in_memory = Distances.from_tables(
        Table.from_data(X, called="X"),
        [Table.from_data(X_val, called="X")],
        column_types=column_types,
    )
    table, layout, queries = laid_out(
        folder, X_val, rows["y"].to_pylist()[7:97], column_types=column_types
    )
    assert_equal_arrays(layout.scales, in_memory.scales)
    assert_equal_arrays(queries.columns, in_memory.queries[0])
    for shard in range(2):
        part = read_shard(table, shard, layout)
        np.testing.assert_array_equal(
            part.rows.categories, in_memory.rows.take(part.positions).categories
        )


def test_columns_of_validation_rows_are_matched_by_name(tmp_path):
    folder = written(tmp_path, z=["a", "b", "a", "b"])
    columns = {"z": ["b"], "x": [2.0]}
    _, _, queries = laid_out(folder, pd.DataFrame(columns))
    assert queries.table.names.tolist() == ["x", "z"]
    assert queries.columns.numbers.tolist() == [[2.0]]
    assert queries.columns.categories.tolist() == [[1]]


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([3, 1, 3, 2], [1, 2, 3]),
        ([True, False, False, True], [False, True]),
        ([1.0, 0.0, 0.0, 1.0], [0.0, 1.0]),
        (["b", "a", "b", "é"], ["a", "b", "é"]),
    ],
)
def test_classes_are_sorted_like_those_of_a_table_in_memory(tmp_path, labels, classes):
    _, layout, queries = laid_out(written(tmp_path, y=labels), y_val=labels[:1])
    assert layout.classes == classes
    assert layout.class_counts == [labels.count(label) for label in classes]
    assert queries.labels.tolist() == [classes.index(labels[0])]


@pytest.mark.parametrize(
    ("labels", "y_val", "words"),
    [
        (
            [0, None, 1, None],
            [0],
            r"must have a label in 'y', got 2 without, the first of them row 1 of .*0\.",
        ),
        ([0.5, None, 1.5, 2.5], [0.5], "must have a label in 'y', got 1 without, the first of"),
        ([0.5, 0.5, 0.5, 0.5], [0.5], "must have at least two different labels, got only 0.5"),
        ([0.5, np.inf, 1.5, 2.5], [0.5], "column 'y' must be finite, got infinity"),
        ([0.5, 1e80, 1.5, 2.5], [0.5], "squared errors would be infinite or 0"),
        ([0.5, 1.5, 2.5, 3.5], ["a"], "y_val must hold numbers"),
        (["a", "a", "a", "a"], ["a"], "must have at least two different labels, got only 'a'"),
        (["a", "b", "a", "b"], ["c"], "y_val must have classes of y .*, got 'c'"),
        (
            ["a", "b", "a", "b"],
            ["a", "b"],
            "y_val must have one entry for each of 1 rows of X_val, got 2",
        ),
    ],
)
def test_targets_that_cannot_judge_are_errors(tmp_path, labels, y_val, words):
    with pytest.raises(ValueError, match=words):
        laid_out(written(tmp_path, y=labels), y_val=y_val)


def count_few(monkeypatch, most):
    """Keep so many distinct labels, and as many keys of others."""
    monkeypatch.setattr("cellworth.knn.shard_layout.MAX_EXACT", most)
    monkeypatch.setattr("cellworth.sampling.statistics.MAX_KEYS", most)


@pytest.mark.parametrize("most", [2**16, 40])
def test_integers_too_many_to_be_counted_are_a_numeric_target(tmp_path, most, monkeypatch):
    count_few(monkeypatch, most)
    folder = write(pa.table({"x": np.arange(60.0), "y": list(range(60))}), tmp_path, [20])
    assert laid_out(folder, y_val=[70])[1].target_scale.center == 29.5


def test_many_numbers_are_classes_only_if_classification_is_true(tmp_path):
    numbers = list(range(60)) * 2
    folder = write(pa.table({"x": np.arange(120.0), "y": numbers}), tmp_path)
    assert len(laid_out(folder, classification=True)[1].classes) == 60
    _, layout, queries = laid_out(folder, y_val=[70.0])
    assert (layout.classes, layout.class_counts) == ([], [120])
    assert layout.target_scale.center == 29.5
    assert queries.labels.tolist() == [40.5]
    assert laid_out(folder)[1].sha256() != laid_out(folder, y_val=[200.0])[1].sha256()


@pytest.mark.parametrize("most", [2**16, 40, 3])
def test_the_scale_of_a_numeric_target_does_not_depend_on_the_shards(tmp_path, most, monkeypatch):
    count_few(monkeypatch, most)
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.integers(0, 9, 60) / 4, rng.normal(size=140)])
    game = KNNGame(np.zeros((200, 1)), y, np.zeros((1, 1)), [5.0])
    folder = write(pa.table({"x": np.zeros(200), "y": y}), tmp_path, [30, 70, 71, 150])
    for shards in (1, 3, 5):
        table, layout, queries = laid_out(folder, y_val=[5.0], shards=shards)
        assert layout.target_scale == game.target_scales[0]
        assert queries.labels.tolist() == game.query_labels[0].tolist()
        read = [read_shard(table, shard, layout) for shard in range(table.n_shards)]
        steps = game.target_scales[0].count_steps(y)
        assert np.array_equal(np.concatenate([shard.targets for shard in read]), steps)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2, 4, 9]),
        pa.array([True, False, False, True]),
        pa.array([decimal.Decimal("1.5"), decimal.Decimal("2.25")] * 2),
    ],
    ids=lambda column: str(column.type),
)
def test_a_score_of_numbers_reads_labels_of_every_numeric_type(tmp_path, column):
    folder = write(pa.table({"x": np.zeros(4), "y": column}), tmp_path, [2])
    table, layout, _ = laid_out(folder, y_val=[2.0], classification=False)
    scale = layout.target_scale
    read = [read_shard(table, shard, layout).targets for shard in range(table.n_shards)]
    found = np.concatenate(read) * scale.step + scale.center
    np.testing.assert_allclose(found, [float(label) for label in column.to_pylist()], rtol=1e-15)


def test_text_is_no_numeric_target(tmp_path):
    folder = written(tmp_path, y=["1", "2.5", "1", "3"])
    with pytest.raises(ValueError, match="must be a column of numbers for a squared error, got st"):
        laid_out(folder, y_val=["1"], classification=False)


@pytest.mark.parametrize(
    ("column", "query", "words"),
    [
        ([1.0, np.inf, 2.0, 3.0], [1.0], "column 'c' must be finite, got infinity"),
        ([2**53 + 1, 0, 1, 2], [1], r"column 'c' holds integers beyond 2\*\*53"),
        ([-(2**60), 0, 1, 2], [1], r"column 'c' holds integers beyond 2\*\*53"),
        ([1, 0, 1, 2], [2**60], r"column 'c' holds integers beyond 2\*\*53"),
        ([[1], [2], [3], [4]], [[1]], "cells of type list"),
        ([b"a", b"b", b"c", b"d"], [b"a"], "cells of type binary"),
        ([1.0, 2.0, 3.0, 4.0], ["a"], "same type in X and X_val, got a number .* and a text"),
        ([datetime.date(2024, 1, 1)] * 4, [3.0], "got a date .* and a number"),
        ([1e-170, 3e-170, 9e-170, 9e-170], [1e-170], "multiply the column"),
    ],
)
def test_cells_without_a_distance_are_errors(tmp_path, column, query, words):
    folder = written(tmp_path, c=column)
    X_val = pa.table({"x": [1.0], "c": query})
    with pytest.raises((ValueError, TypeError), match=words):
        laid_out(folder, X_val)


def test_column_types_are_checked(tmp_path):
    folder = written(tmp_path, c=["1", "b", "1", "2"])
    X_val = pa.table({"x": [1.0], "c": ["1"]})
    for column_types, words in [
        ({"c": "numeric"}, "column 'c' must be numbers .*'b'"),
        ({"d": "numeric"}, "column_types must name columns of X, got 'd'"),
    ]:
        with pytest.raises(ValueError, match=words):
            laid_out(folder, X_val, column_types=column_types)
    with pytest.raises(ValueError, match=r"scale must be .* got 'wide'"):
        laid_out(folder, X_val, scale="wide")


def test_too_many_categories_and_labels_are_errors(tmp_path, monkeypatch):
    monkeypatch.setattr("cellworth.knn.shard_layout._MAX_CATEGORIES", 3)
    table = ShardedTable.from_files(written(tmp_path / "a", x=list("abcd")), target="y")
    with pytest.raises(ValueError, match=r"'x' has more than 3 different cells.*columns="):
        summarize_shard(table, 0)
    pieces = pa.table({"x": list("abcdab"), "y": [0, 1, 0, 1, 0, 1]})
    table = ShardedTable.from_files(write(pieces, tmp_path / "c", [3]), target="y")
    with pytest.raises(ValueError, match=r"more than 3 different cells such as 'a'.*columns="):
        summarise_all(table)
    monkeypatch.setattr("cellworth.knn.shard_layout._MAX_LABELS", 3)
    table = ShardedTable.from_files(written(tmp_path / "b", y=list("abcd")), target="y")
    with pytest.raises(ValueError, match="more than 3 different cells, which are too many class"):
        summarize_shard(table, 0)
    folder = written(tmp_path / "d", y=[1, 2, 3, 4])
    count_few(monkeypatch, 3)
    with pytest.raises(ValueError, match="different labels, which are too many class"):
        laid_out(folder, classification=True)
