"""Sixty columns of every type and trap, and their one reading in every part of the package."""

import datetime
import decimal
import fractions
import uuid
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cellworth import Owners, ShardedTable
from cellworth.data.column import NO_TIME, Column, find_common_kind
from cellworth.data.tables import Table
from cellworth.findings.cells import read_cells
from cellworth.findings.features import read_columns
from cellworth.findings.levels import ColumnLevels, is_missing_mark, read_levels
from cellworth.games.table_filler import TableFiller
from cellworth.knn.distances import Distances
from cellworth.knn.shard_data import read_shard
from cellworth.knn.shard_layout import Layout
from cellworth.valuation.column_info import name_kind
from cellworth.valuers.out_of_bag import numbers_of
from sharded_tables import summarise_all, write

NAN = np.nan
DAY = 86_400e6
D1, D2 = datetime.date(1970, 1, 2), datetime.date(1970, 1, 4)
T1, T2 = datetime.datetime(1970, 1, 2), datetime.datetime(1970, 1, 4, 12)
BERLIN = datetime.timezone(datetime.timedelta(hours=1))
Z1, Z2 = (time.replace(tzinfo=BERLIN) for time in (T1, T2))
EARLIER = 3600e6
CENT, EURO = decimal.Decimal("0.01"), decimal.Decimal("1.00")
S1, S2 = datetime.timedelta(seconds=1), datetime.timedelta(days=1)
A, B = uuid.UUID(int=1), uuid.UUID(int=2)

# Columns that Arrow has: cells, Arrow type, kind, and the numbers or texts of the cells.
TYPED = {
    "float": ([1.5, 2, None, -0.0], pa.float64(), "number", [1.5, 2, NAN, 0]),
    "nan and null": ([1.5, NAN, None, 2], pa.float64(), "number", [1.5, NAN, NAN, 2]),
    "single": ([1.5, 2, 3, 4], pa.float32(), "number", [1.5, 2, 3, 4]),
    "integer": ([3, 1, 2, 2], pa.int64(), "number", [3, 1, 2, 2]),
    "nullable integer": ([3, None, 2, 2], pa.int64(), "number", [3, NAN, 2, 2]),
    "byte": ([3, None, 200, 2], pa.uint8(), "number", [3, NAN, 200, 2]),
    "largest exact": ([2**53, -(2**53), 0, 1], pa.int64(), "number", [2**53, -(2**53), 0, 1]),
    "years": ([1999, 2000, 2001, 2024], pa.int32(), "number", [1999, 2000, 2001, 2024]),
    "ids": ([1001, 1002, 1003, 1004], pa.int64(), "number", [1001, 1002, 1003, 1004]),
    "flags": ([0, 1, 1, 0], pa.int8(), "number", [0, 1, 1, 0]),
    "constant": ([7, 7, 7, 7], pa.int64(), "number", [7, 7, 7, 7]),
    "money": ([CENT, EURO, None, CENT], pa.decimal128(8, 2), "number", [0.01, 1, NAN, 0.01]),
    "day": ([D1, D2, None, D1], pa.date32(), "date", [DAY, 3 * DAY, NAN, DAY]),
    "moment": ([T1, T2, None, T1], pa.timestamp("us"), "date", [DAY, 3.5 * DAY, NAN, DAY]),
    "second": ([T1, T2, None, T1], pa.timestamp("s"), "date", [DAY, 3.5 * DAY, NAN, DAY]),
    "nanos": ([T1, T2, T2, T1], pa.timestamp("ns"), "date", [DAY, 3.5 * DAY, 3.5 * DAY, DAY]),
    "zoned": (
        [Z1, Z2, None, Z1], pa.timestamp("us", "Europe/Berlin"), "date",
        [DAY - EARLIER, 3.5 * DAY - EARLIER, NAN, DAY - EARLIER],
    ),
    "old": ([datetime.datetime(1900, 1, 1), T1, T1, T1], pa.timestamp("us"), "date",
            [-25567 * DAY, DAY, DAY, DAY]),
    "span": ([S1, S2, None, S1], pa.duration("us"), "duration", [1e6, DAY, NAN, 1e6]),
    "postcodes": (["01067", "99999", None, "01067"], pa.string(), "text", None),
    "numbers as text": (["1", "2", "3.5", "1"], pa.string(), "text", None),
    "dates as text": (["2024-01-01", "2024-01-02", None, "x"], pa.string(), "text", None),
    "stray": (["1", "2", "none", "1"], pa.string(), "text", None),
    "marks": (["?", "", "n/a", " NA "], pa.string(), "text", None),
    "spaces": (["a", " a", "a ", "A"], pa.string(), "text", None),
    "unicode": (["é", "e\u0301", "ß", None], pa.string(), "text", None),
    "large text": (["a", None, "b", "a"], pa.large_string(), "text", None),
    "truth as text": (["True", "true", "FALSE", None], pa.string(), "text", None),
    "truth": ([True, False, False, True], pa.bool_(), "boolean", None),
    "doubt": ([True, None, False, True], pa.bool_(), "boolean", None),
    "dictionary": (["x", "y", None, "x"], pa.dictionary(pa.int32(), pa.string()), "category", None),
    "nothing": ([None] * 4, pa.null(), "missing", None),
    "no text": ([None] * 4, pa.string(), "missing", None),
    "no number": ([None] * 4, pa.float64(), "missing", None),
    "clock": ([datetime.time(1), datetime.time(2), None, datetime.time(1)], pa.time64("us"),
              "category", None),
}  # fmt: skip
# Columns of Python objects, and types of NumPy and pandas alone.
OBJECTS = {
    "integers": ([1, 2, None, 1], "number", [1, 2, NAN, 1]),
    "numbers of all sorts": (
        [1, 2.5, CENT, fractions.Fraction(1, 2)], "number", [1, 2.5, 0.01, 0.5],
    ),
    "numpy numbers": ([np.float32(1.5), np.int8(2), None, 3], "number", [1.5, 2, NAN, 3]),
    "pandas na": ([1, pd.NA, 2, 3], "number", [1, NAN, 2, 3]),
    "days": ([D1, D2, None, D1], "date", [DAY, 3 * DAY, NAN, DAY]),
    "days and moments": ([D1, T2, pd.NaT, T1], "date", [DAY, 3.5 * DAY, NAN, DAY]),
    "zones": (
        [Z1, Z2.astimezone(ZoneInfo("Asia/Tokyo")), None, Z1], "date",
        [DAY - EARLIER, 3.5 * DAY - EARLIER, NAN, DAY - EARLIER],
    ),
    "spans": ([S1, S2, None, S1], "duration", [1e6, DAY, NAN, 1e6]),
    "strings": (["b", "a", None, NAN], "text", ["b", "a", None, None]),
    "booleans": ([True, False, None, np.True_], "boolean", ["True", "False", None, "True"]),
    "true and one": ([True, 1, 0, False], "mixed", None),
    "stray text": ([1, 2, "none", 1], "mixed", ["1", "2", "none", "1"]),
    "stray date": ([1, 2, D1, 1], "mixed", None),
    "dates and spans": ([D1, S1, D1, S1], "mixed", None),
    "numbers twice": ([1, "1", "1", 1], "mixed", ["1", "1", "1", "1"]),
    "uuids": ([A, B, None, A], "category", [str(A), str(B), None, str(A)]),
    "tuples": ([(1, 2), (3,), None, (1, 2)], "category", ["(1, 2)", "(3,)", None, "(1, 2)"]),
    "missing of all sorts": ([None, NAN, pd.NaT, pd.NA], "missing", [None] * 4),
    "lists": ([[1], [2], None, [1]], "other", ["[1]", "[2]", None, "[1]"]),
    "arrays": ([np.array([1]), np.array([NAN]), None, 1], "other", None),
    "dicts": ([{"a": 1}, {}, None, {}], "other", ["{'a': 1}", "{}", None, "{}"]),
    "bytes": ([b"a", b"b", None, b"a"], "other", None),
    "complex": ([1j, 1, 2, 3], "other", None),
}  # fmt: skip
ARRAYS = {
    "category of integers": (
        pd.Categorical([10, 2, None, 10]), "category", ["10", "2", None, "10"],
    ),
    "unused levels": (pd.Categorical(["b", "a"] * 2, list("zab")), "category", ["b", "a"] * 2),
}  # fmt: skip
# What polars has no type for: a dictionary of numbers, or of dates.
DICTIONARIES = {
    "integers": ([10, 2, None, 10], ["10", "2", None, "10"]),
    "floats": ([0.5, None, 2.5, 0.5], ["0.5", None, "2.5", "0.5"]),
    "truths": ([True, None, False, True], ["True", None, "False", "True"]),
    "dates": ([D1, None, D2, D1], [str(T1), None, "1970-01-04 00:00:00", str(T1)]),
}
LIBRARIES = {
    "arrow": lambda table: table,
    "pandas": lambda table: table.to_pandas(),
    "polars": pl.from_arrow,
}


def typed_table():
    return pa.table({name: pa.array(cells, type_) for name, (cells, type_, *_) in TYPED.items()})


def objects_table():
    columns = {name: pd.Series(cells, dtype=object) for name, (cells, *_) in OBJECTS.items()}
    return pd.DataFrame({**columns, **{name: cells for name, (cells, *_) in ARRAYS.items()}})


def expected():
    """Return the kind and the numbers or texts of each column; texts are those of the cells."""
    typed = {
        name: (kind, [None if c is None else str(c) for c in cells] if read is None else read)
        for name, (cells, _, kind, read) in TYPED.items()
    }
    others = {name: (kind, read) for name, (_, kind, read) in {**OBJECTS, **ARRAYS}.items()}
    return typed | others


def check(column, kind, read):
    assert (column.kind, column.name) == (kind, column.name)
    if column.is_quantity:
        np.testing.assert_array_equal(column.floats, read)
        assert column.missing.tolist() == np.isnan(read).tolist()
    elif read is not None:
        codes, names = column.levels
        assert names == sorted({text for text in read if text is not None})
        assert [None if code < 0 else names[code] for code in codes.tolist()] == read
        assert column.missing.tolist() == [text is None for text in read]


def test_there_are_sixty_columns():
    assert len(expected()) == 60


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", TYPED)
def test_a_column_of_a_type_is_read_alike_from_every_library(name, library):
    X = LIBRARIES[library](typed_table().select([name]))
    check(Table.from_data(X, called="X").read(0), *expected()[name])


@pytest.mark.parametrize("name", TYPED)
def test_a_column_of_a_shard_is_read_alike(name):
    cells = typed_table()[name].combine_chunks()
    column, (kind, read) = Column(name, cells, cells.type), expected()[name]
    if kind != "missing":
        check(column, kind, read)
    assert (
        column.missing.tolist()
        == Table.from_data(typed_table(), called="X").read(list(TYPED).index(name)).missing.tolist()
    )


@pytest.mark.parametrize("name", [*OBJECTS, *ARRAYS])
def test_python_objects_are_read_by_their_contents(name):
    table = Table.from_data(objects_table()[[name]], called="X")
    check(table.read(0), *expected()[name])
    if name in OBJECTS:
        cells = np.empty(4, dtype=object)
        cells[:] = OBJECTS[name][0]
        check(Column(name, cells), *expected()[name])


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_part_of_the_package_reads_a_table_alike(library):
    table = Table.from_data(LIBRARIES[library](typed_table()), called="X")
    assert_parts_agree(table, {name: kind for name, (kind, _) in expected().items()})


def test_every_part_of_the_package_reads_objects_alike():
    kinds = {name: kind for name, (kind, _) in expected().items() if kind != "other"}
    X = objects_table()
    assert_parts_agree(Table.from_data(X[[n for n in X if n in kinds]], called="X"), kinds)


def assert_parts_agree(table, kinds):
    """Hold the distances, models, trees, checks, reports and anomaly scores against each other."""
    distances = Distances.from_tables(table, [table])
    filler, numbers = TableFiller(table), numbers_of(table).data
    features = read_columns(table, None)
    for position, name in enumerate(table.names.tolist()):
        kind, column = kinds[name], table.read(position)
        is_quantity = kind in ("number", "date", "duration")
        part, at = distances.scales.where(position)
        assert part == ("numbers" if is_quantity else "categories"), name
        seen = getattr(distances.rows, part)[at]
        known = ~np.isnan(seen) if is_quantity else seen >= 0
        assert known.tolist() == (~column.missing).tolist(), name
        assert np.isnan(numbers[:, position]).tolist() == column.missing.tolist(), name
        assert (filler.cells[position].dtype.kind == "f") == (kind == "number"), name
        assert filler.known[:, position].tolist() == known.tolist(), name
        assert (features[position].numbers is not None) == is_quantity, name
        assert name_kind(column) == (kind if is_quantity else "category"), name
        read_as = distances.scales.describe(position, column)[0]
        assert read_as == name_kind(column), name


@pytest.mark.parametrize("name", DICTIONARIES)
def test_a_dictionary_of_arrow_keeps_its_missing_cells(name):
    cells, read = DICTIONARIES[name]
    table = pa.table({name: pa.array(cells).dictionary_encode()})
    check(Table.from_data(table, called="X").read(0), "category", read)
    check(Column(name, table[name].combine_chunks(), table[name].type), "category", read)


def test_owners_and_pages_show_the_cells_as_they_are_read():
    for X in (typed_table(), objects_table()):
        table = Table.from_data(X, called="X")
        for position, name in enumerate(table.names.tolist()):
            column, everything = table.read(position), np.arange(4)
            assert read_cells(table, everything, np.full(4, position)) == column.objects or (
                name == "arrays"
            )
            for cell in column.objects if column.kind != "other" else []:
                if cell is not None:
                    owners = Owners(table, keys=[name]).assign(
                        "ann", rows={"column": name, "is": [cell]}
                    )
                    held = [cell == other for other in column.objects]
                    assert owners.cells_of("ann").all(axis=1).tolist() == held, name


def test_shards_read_a_table_as_memory_does(tmp_path):
    rows = typed_table()
    labels = pa.array(["a", "b", "a", "b"])
    folder = write(rows.append_column("y", labels), tmp_path)
    table = ShardedTable.from_files(folder, target="y")
    X = Table.from_data(rows, called="X")
    distances = Distances.from_tables(X, [X])
    layout, queries = Layout.from_summary(table, summarise_all(table), rows, labels.to_pylist())
    part = read_shard(table, 0, layout)
    assert layout.scales.positions.tolist() == distances.scales.positions.tolist()
    for name in ("numbers", "categories"):
        memory = getattr(distances.rows.take(part.positions), name)
        np.testing.assert_array_equal(getattr(part.rows, name), memory)
        np.testing.assert_array_equal(
            getattr(queries.columns, name), getattr(distances.queries[0], name)
        )


def test_the_audit_reads_numbers_dates_and_text_alike():
    for table in (typed_table(), objects_table()):
        levels = {column.name: column for column in read_levels(Table.from_data(table, called="X"))}
        for name, column in levels.items():
            kind, read = expected()[name]
            if kind in ("number", "date", "duration"):
                assert column.kind == ("date" if kind == "date" else "number"), name
                unit = 1.0 if kind == "number" else 1e6
                np.testing.assert_array_equal(column.numbers, np.array(read) / unit)
            elif kind in ("text", "boolean", "category") and column.kind != "number":
                assert column.kind == "text", name
                assert [None if c < 0 else column.strings[c] for c in column.codes] == read


@pytest.mark.parametrize("name", ["integer", "constant", "years", "truth", "ids"])
def test_declared_types_override_what_cells_are(name):
    column = Column(name, typed_table()[name].to_numpy(), None, "numeric")
    assert (column.kind, column.why) == ("number", "column_types")
    np.testing.assert_array_equal(column.floats, [float(c) for c in TYPED[name][0]])
    as_category = Column(name, typed_table()[name].to_numpy(), None, "categorical")
    assert as_category.kind == "category"
    assert as_category.levels[0].tolist() == Column(name, as_category.cells).levels[0].tolist()


def test_declared_numbers_stay_dates():
    cells = np.array([T1, T2], "M8[ns]")
    assert Column("c", cells, None, "numeric").kind == "date"
    assert Column("c", cells, None, "categorical").levels[1] == [str(T1), str(T2)]
    assert Column("c", np.array([NO_TIME], "M8[us]")).kind == "missing"


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        ([1, 2], [2.5, None], "number"),
        ([1, 2], [None, None], "number"),
        ([None, None], [D1, D2], "date"),
        ([None, None], [None, None], "category"),
        (["a", "b"], [True, False], "category"),
        # Rows of one side may be numbers by chance.
        ([1, "a"], [1, 2], "category"),
        ([1, 2], ["a", "b"], None),
        ([D1, D2], [1, 2], None),
        ([D1, D2], [S1, S2], None),
        ([T1, T2], [Z1, Z2], None),
    ],
)
def test_one_kind_fits_all_tables_or_it_is_an_error(one, other, kind):
    columns = [Column("c", np.array([*cells, None], dtype=object)[:-1]) for cells in (one, other)]
    if kind is not None:
        assert find_common_kind(columns) == kind
        return
    with pytest.raises(ValueError, match=r"column 'c' must .*(same type in X and X_val|time zone)"):
        find_common_kind(columns)


def test_missing_marks_are_text_that_people_write_for_nothing():
    assert all(map(is_missing_mark, ["", " ", "?", "N/A", " nan ", "NULL", "-"]))
    assert not any(map(is_missing_mark, ["0", "none of these", "a", None, 0, NAN]))


def test_integers_that_floats_would_merge_are_different_to_the_audit():
    cells = np.array([2**53, 2**53 + 1, 2**53, -5])
    column = ColumnLevels.of(Column("id", cells))
    assert column.codes.tolist() == [1, 2, 1, 0]
    assert len(np.unique(column.level_hashes)) == 4
    assert column.level_hashes[0] == ColumnLevels.of(Column("id", cells[3:])).level_hashes[0]
