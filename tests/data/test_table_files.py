"""Tables as they are in the wild: partitioned folders, patterns, text files, types that differ."""

import bz2
import csv
import datetime
import gzip
import io
import json
import os
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from cellworth import ShardedTable
from cellworth.data import TextFormat
from cellworth.data.table_files import read_text
from sharded_tables import travelled, write, written


def cells_of(table, name):
    """Cells of a column, in the order of rows."""
    return [
        cell
        for shard in range(table.n_shards)
        for (array,) in table.batches(shard, [name])
        for cell in array.to_pylist()
    ]


def mixed(n_rows=240, seed=0):
    """A table of which text files can hold each cell."""
    rng = np.random.default_rng(seed)
    days = [
        datetime.date(2024, 1, 1) + datetime.timedelta(int(d)) for d in rng.integers(0, 300, n_rows)
    ]
    return pa.table(
        {
            "age": pa.array(rng.integers(0, 90, n_rows), mask=rng.random(n_rows) < 0.1),
            "pay": rng.normal(size=n_rows).round(3),
            "town": rng.choice(["Ulm", 'a "b"', "c,d\ne", "é"], n_rows),
            "day": pa.array(days),
            "y": rng.choice(["no", "yes"], n_rows),
        }
    )


def write_csv(table, path, delimiter=","):
    pc.write_csv(table, path, pc.WriteOptions(delimiter=delimiter))


def write_jsonl(table, path):
    lines = (json.dumps(line, default=str) for line in table.to_pylist())
    path.write_text("".join(f"{line}\n" for line in lines))


WRITERS = {
    "parquet": pq.write_table, "parq": pq.write_table, "pq": pq.write_table, "csv": write_csv,
    "tsv": lambda table, path: write_csv(table, path, "\t"), "jsonl": write_jsonl,
    "ndjson": write_jsonl,
}  # fmt: skip


def write_parts(folder, whole, suffix, cuts):
    for number, (start, end) in enumerate(zip([0, *cuts], [*cuts, len(whole)], strict=True)):
        WRITERS[suffix](whole.slice(start, end - start), folder / f"{number}.{suffix}")


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("cuts", [[], [10, 130]], ids=["one", "three"])
def test_every_kind_of_file_holds_the_same_cells(tmp_path, monkeypatch, suffix, cuts):
    monkeypatch.setattr("cellworth.data.table_files._BLOCK", 700)
    whole = mixed()
    write_parts(tmp_path, whole, suffix, cuts)
    table = travelled(ShardedTable.from_files(tmp_path, target="y"))
    # JSON has no dates, only timestamps.
    day = table.schema.field("day").type
    assert table.take(range(240)).equals(whole.set_column(3, "day", whole["day"].cast(day)))
    rows = [239, 0, 130, 9]
    assert table.take(rows)["town"].to_pylist() == whole["town"].take(rows).to_pylist()


def pack_zst(text):
    return pa.compress(text, "zstd", asbytes=True)


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [("gz", gzip.compress), ("bz2", bz2.compress), ("zst", pack_zst)],
)
def test_compressed_text_is_the_same_table(tmp_path, monkeypatch, suffix, pack):
    monkeypatch.setattr("cellworth.data.table_files._BLOCK", 500)
    written = io.BytesIO()
    pc.write_csv(mixed(), written)
    (tmp_path / "0.csv").write_bytes(written.getvalue())
    (tmp_path / f"1.csv.{suffix}").write_bytes(pack(written.getvalue()))
    plain = ShardedTable.from_files(tmp_path / "0.csv", target="y")
    packed = ShardedTable.from_files(tmp_path / f"1.csv.{suffix}", target="y", shards=3)
    assert packed.files[0].group_rows == plain.files[0].group_rows
    assert packed.take(range(240)).equals(plain.take(range(240)))


@pytest.mark.parametrize(
    "columns",
    [
        ["1", "2", "3.5"], ["2", "true", "false"], ["", "", "7"], ["", "", ""],
        ["2024-01-01", "2024-01-01 10:00:00.5", "2024-01-02"], ["2024-01-01", "7", "8"],
    ],
    ids="|".join,
)  # fmt: skip
def test_types_of_csv_are_agreed_over_all_blocks_and_files(tmp_path, monkeypatch, columns):
    monkeypatch.setattr("cellworth.data.table_files._BLOCK", 30)
    cells = [cell for cell in columns for _ in range(3)]
    lines = [f"{cell},{number % 2}" for number, cell in enumerate(cells)]
    one = "\n".join(["c,y", *lines, ""])
    (tmp_path / "whole.csv").write_text(one)
    (tmp_path / "parts").mkdir()
    for number in range(3):
        part = ["c,y", *lines[number * 3 : number * 3 + 3], ""]
        (tmp_path / "parts" / f"{number}.csv").write_text("\n".join(part))
    convert = pc.ConvertOptions(null_values=[""], strings_can_be_null=True)
    wanted = pc.read_csv(tmp_path / "whole.csv", convert_options=convert)
    for address in (tmp_path / "whole.csv", tmp_path / "parts"):
        table = ShardedTable.from_files(address, target="y")
        assert table.schema.field("c").type == wanted.schema.field("c").type
        assert cells_of(table, "c") == wanted["c"].to_pylist()


def test_a_quote_inside_a_plain_cell_does_not_shift_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("cellworth.data.table_files._BLOCK", 30)
    text = 'size,note,y\n1,"a\nb",0\n5,5" pipe,1\n6,"c\n""d""\n",0\n7,6" pipe,1\n8,e,0\n'
    (tmp_path / "0.csv").write_text(text)
    table = ShardedTable.from_files(tmp_path, target="y")
    parse = pc.ParseOptions(newlines_in_values=True)
    whole = pc.read_csv(tmp_path / "0.csv", parse_options=parse)
    assert table.take(range(5)).equals(whole.select(["size", "note", "y"]))
    assert len(table.files[0].group_rows) > 1


def test_json_lines_may_lack_fields_and_mix_integers_with_floats(tmp_path):
    lines = [
        '{"a": 1, "y": 0}',
        '{"y": 1}',
        '{"a": 2.5, "t": "2024-01-01", "y": 0}',
        '{"t": "x", "y": 1}',
    ]
    (tmp_path / "0.jsonl").write_text("\n".join(lines))
    table = ShardedTable.from_files(tmp_path, target="y")
    assert cells_of(table, "a") == [1.0, None, 2.5, None]
    assert cells_of(table, "t") == [None, None, "2024-01-01", "x"]
    for number, cell in enumerate(("2024-01-01", "x")):
        (tmp_path / f"{number}.jsonl").write_text(f'{{"t": "{cell}", "y": 0}}')
    table = ShardedTable.from_files(tmp_path, target="y")
    assert cells_of(table, "t") == ["2024-01-01", "x"]


PEOPLE = "name;age;pay;y\nAnn;31;1,5;0\nBob;42;2,25;1\n"
WHOLE = {"name": ["Ann", "Bob"], "age": [31, 42], "pay": [1.5, 2.25], "y": [0, 1]}
POINTS = PEOPLE.replace(",", ".")
# CSV files as people have them: content, what is given, and the columns or a part of the sentence.
IN_THE_WILD = {
    "semicolons": (POINTS, {}, WHOLE),
    "decimal commas": (PEOPLE, {}, WHOLE),
    "tabs": (PEOPLE.replace(";", "\t"), {}, WHOLE),
    "bars": (PEOPLE.replace(";", "|"), {}, WHOLE),
    "no header": (PEOPLE.partition("\n")[2], {}, "its first line holds '31'; put the names"),
    "years as names": ("2023,2024,y\n1,2,0\n", {}, {"2023": [1], "2024": [2], "y": [0]}),
    "byte order mark": (b"\xef\xbb\xbf" + PEOPLE.encode(), {}, WHOLE),
    "latin-1": (PEOPLE.replace("A", "Ä").encode("latin-1"), {}, "give encoding=, such as latin-1"),
    "latin-1 as given": (
        PEOPLE.replace("A", "Ä").encode("latin-1"),
        {"encoding": "latin-1"},
        WHOLE | {"name": ["Änn", "Bob"]},
    ),
    "missing marks and codes": (
        PEOPLE.replace("31", "n/a").replace("Bob", "007"),
        {"delimiter": ";", "decimal": ",", "missing": ["n/a"], "as_text": ["name"]},
        WHOLE | {"name": ["Ann", "007"], "age": [None, 42]},
    ),
    "utf-16": (PEOPLE.encode("utf-16"), {}, WHOLE),
    "quoted newlines": (PEOPLE.replace("Ann", '"A\nn;n"'), {}, WHOLE | {"name": ["A\nn;n", "Bob"]}),
    "thousands": (PEOPLE.replace("1,5", "1.234,5"), {}, WHOLE | {"pay": ["1.234,5", "2,25"]}),
    "thousands or decimals": (PEOPLE.replace("1,5", "1,500").replace("2,25", "2,250"), {},
                              "'1,500', which is a decimal or a grouped number; give decimal="),
    "thousands or decimals, given": (
        PEOPLE.replace("1,5", "1,500").replace("2,25", "2,250"), {"decimal": ","}, WHOLE),
    "trailing delimiter": (PEOPLE.replace("\n", ";\n"), {}, WHOLE),
    "trailing delimiter below the header": (
        PEOPLE.replace("0\n", "0;\n"), {}, "Expected 4 columns, got 5.*give another delimiter="),
    "mixed line ends": (PEOPLE.replace("0\n", "0\r\n").encode(), {}, WHOLE),
    "gzip": (gzip.compress(PEOPLE.encode()), {}, "compressed by gzip; rename it to end in .gz"),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_THE_WILD)
def test_csv_is_read_as_people_have_it_or_refused_in_a_sentence(tmp_path, name):
    content, given, wanted = IN_THE_WILD[name]
    file = tmp_path / "a.csv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    if isinstance(wanted, str):
        with pytest.raises(ValueError, match=wanted):
            read_text(str(file), TextFormat(**given), {})
        with pytest.raises(ValueError, match=wanted):
            ShardedTable.from_files(file, target="y", text=TextFormat(**given))
        return
    whole = pa.table(wanted)
    assert read_text(str(file), TextFormat(**given), {}).equals(whole)
    table = ShardedTable.from_files(file, target="y", text=TextFormat(**given))
    assert table.take(range(len(whole))).equals(whole)
    packed = tmp_path / "b.csv.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    assert read_text(str(packed), TextFormat(**given), {}).equals(whole)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"delimiter": "ab"}, "delimiter must be one ASCII character, got 'ab'"),
        ({"decimal": ""}, "decimal must be one ASCII character"),
        ({"delimiter": ","} | {"decimal": ","}, "delimiter and decimal must differ"),
        ({"encoding": "klingon"}, "encoding must be one that Python knows, got 'klingon'"),
    ],
)
def test_a_format_that_cannot_be_is_rejected(settings, words):
    with pytest.raises(ValueError, match=words):
        TextFormat(**settings)


def partition(folder, table, name):
    """Write a table as Spark does: one folder per cell of a column, which files lack."""
    for cell in dict.fromkeys(table[name].to_pylist()):
        is_here = (
            pa.compute.is_null(table[name]) if cell is None else pa.compute.equal(table[name], cell)
        )
        rows = table.filter(is_here)
        key = "__HIVE_DEFAULT_PARTITION__" if cell is None else quote(str(cell), safe="")
        written = rows.drop_columns(name)
        (folder / f"{name}={key}").mkdir(parents=True, exist_ok=True)
        pq.write_table(written, folder / f"{name}={key}" / "part-0.parquet")
    return folder


@pytest.mark.parametrize(("cells", "type_"), [([2023, 2024], "int64"), (["a b", "c/d"], "string")])
def test_keys_of_folders_are_columns_of_integers_or_strings(tmp_path, cells, type_):
    whole = pa.table(
        {"x": np.arange(20), "key": [cells[i % 2] for i in range(20)], "y": [0, 1] * 10}
    )
    table = ShardedTable.from_files(partition(tmp_path, whole, "key"), target="y")
    assert (table.names.tolist(), str(table.schema.field("key").type)) == (["x", "key"], type_)
    assert cells_of(table, "key") == [cells[i // 10] for i in range(20)]


def test_keys_may_nest_be_missing_and_be_the_target(tmp_path):
    for year in (2023, 2024):
        for month in ("01", "__HIVE_DEFAULT_PARTITION__"):
            written(tmp_path / f"year={year}" / f"month={month}")
    (tmp_path / "_SUCCESS").write_text("")
    table = travelled(ShardedTable.from_files(tmp_path, target="year"))
    assert table.names.tolist() == ["x", "y", "month"]
    assert cells_of(table, "month") == ([1] * 4 + [None] * 4) * 2
    assert cells_of(table, "year") == [2023] * 8 + [2024] * 8
    only = ShardedTable.from_files(tmp_path, target="year", columns=["month"])
    assert cells_of(only, "month") == ([1] * 4 + [None] * 4) * 2
    assert table.take([15, 0])["year"].to_pylist() == [2024, 2023]
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    (moved / "year=2024").rename(moved / "year=2025")
    other = ShardedTable.from_files(moved, target="year")
    assert other.files_sha256() != table.files_sha256()


def test_a_column_in_the_file_is_preferred_to_the_key_in_its_path(tmp_path):
    write(pa.table({"x": [7, 8], "y": [0, 1]}), tmp_path / "x=1")
    write(pa.table({"z": [7, 8], "y": [0, 1]}), tmp_path / "x=2")
    with pytest.warns(UserWarning, match="1 of 2 files lack the column 'z'"):
        table = ShardedTable.from_files(tmp_path, target="y")
    assert cells_of(table, "x") == [7, 8, 2, 2]


def test_root_says_which_folders_are_columns(tmp_path):
    files = [written(tmp_path / "run=3" / f"year={year}") / "0.parquet" for year in (2023, 2024)]
    without = ShardedTable.from_files(files, target="y")
    assert without.names.tolist() == ["x"]
    table = ShardedTable.from_files(files, target="y", root=tmp_path / "run=3")
    assert cells_of(table, "year") == [2023] * 4 + [2024] * 4
    pattern = ShardedTable.from_files(f"{tmp_path}/run=3/year=*/*.parquet", target="y")
    assert pattern.names.tolist() == ["x", "year"]
    with pytest.raises(ValueError, match="root must be a folder above"):
        ShardedTable.from_files(files, target="y", root=tmp_path / "run=4")


@pytest.mark.parametrize("elsewhere", [False, True])
def test_patterns_name_files_or_folders(tmp_path, elsewhere):
    if elsewhere:
        pytest.importorskip("fsspec")
    start = f"file://{tmp_path}" if elsewhere else str(tmp_path)
    for name in ("a", "b/c", "b/_temporary", ".d"):
        written(tmp_path / name)
    found = {
        pattern: len(ShardedTable.from_files(f"{start}/{pattern}", target="y").files)
        for pattern in ("*/*.parquet", "**/*.parquet", "?", "b/*", "[ab]/**/*.parquet")
    }
    assert found == {"*/*.parquet": 1, "**/*.parquet": 2, "?": 2, "b/*": 1, "[ab]/**/*.parquet": 2}
    with pytest.raises(FileNotFoundError, match=r"no file fits the pattern .*\*.pq; give another"):
        ShardedTable.from_files(f"{start}/*.pq", target="y")


def test_a_name_with_brackets_is_no_pattern_if_it_exists(tmp_path):
    assert ShardedTable.from_files(written(tmp_path / "a[1]"), target="y").shape == (4, 1)


T, D = pa.timestamp, pa.decimal128
MOMENT = datetime.datetime(2024, 1, 2)
ZONED = datetime.datetime(2024, 1, 2, 10, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("types", "cells", "common"),
    [
        (["int32", "int64"], [1, 2], "int64"),
        (["int8", "uint16"], [1, 2], "int32"),
        (["uint8", "uint32"], [1, 2], "uint32"),
        (["int64", "double"], [1, 2.5], "double"),
        (["float", "double"], [0.1, 0.1], "double"),
        (["halffloat", "float"], [np.float16(0.5), 0.1], "float"),
        (["null", "string"], [None, "a"], "string"),
        (["string", "large_string"], ["a", "b"], "large_string"),
        ([pa.dictionary("int32", "string"), "string"], ["a", "b"], "string"),
        ([pa.dictionary("int8", "string"), pa.dictionary("int32", "string")], ["a", "b"], None),
        ([pa.date32(), T("us")], [MOMENT.date(), MOMENT], "timestamp[us]"),
        ([T("s"), T("ns")], [MOMENT, MOMENT], "timestamp[ns]"),
        ([T("s", "UTC"), T("us", "Europe/Berlin")], [ZONED, ZONED], "timestamp[us, tz=UTC]"),
        ([pa.duration("s"), pa.duration("us")], [datetime.timedelta(1)] * 2, "duration[us]"),
        ([D(4, 2), D(5, 1)], ["1.25", "100.5"], "decimal128(6, 2)"),
    ],
    ids=str,
)
def test_types_that_differ_are_cast_if_no_cell_changes(tmp_path, types, cells, common):
    import decimal

    cells = [decimal.Decimal(c) if common and common.startswith("dec") else c for c in cells]
    for number, (type_, cell) in enumerate(zip(types, cells, strict=True)):
        write(pa.table({"x": pa.array([cell, None], type_), "y": [0, 1]}), tmp_path / str(number))
    table = ShardedTable.from_files(tmp_path, target="y")
    if common:
        assert str(table.schema.field("x").type) == common
    taken = table.take(range(4))["x"]
    expected = [pa.array([cell, None], type_) for type_, cell in zip(types, cells, strict=True)]
    assert taken.to_pylist() == [c for e in expected for c in e.cast(taken.type).to_pylist()]
    assert cells_of(table, "x") == taken.to_pylist()


@pytest.mark.parametrize(
    ("one", "other"),
    [("int64", "string"), ("bool", "int64"), (T("us"), T("us", "UTC")), ("string", T("us")),
     (pa.date32(), "int64")],
    ids=str,
)  # fmt: skip
def test_types_that_do_not_fit_are_named_with_the_file(tmp_path, one, other):
    for number, type_ in enumerate((one, other)):
        write(pa.table({"x": pa.nulls(1, type_), "y": [0]}), tmp_path / str(number))
    words = r"1/0.parquet holds .* in column 'x', but files before it hold .*; write"
    with pytest.raises(ValueError, match=words):
        ShardedTable.from_files(tmp_path, target="y")


@pytest.mark.parametrize(
    ("types", "cell"),
    [(["double", "int64"], 2**53 + 1), (["int64", "uint64"], 2**63), ([T("ns"), T("s")], 2**40)],
)
def test_a_cell_that_the_cast_would_change_is_an_error(tmp_path, types, cell):
    write(pa.table({"x": pa.nulls(1, types[0]), "y": [0]}), tmp_path / "0")
    write(pa.table({"x": pa.array([cell], types[1]), "y": [0]}), tmp_path / "1")
    table = ShardedTable.from_files(tmp_path, target="y")
    with pytest.raises(ValueError, match=r"1/0.parquet holds .* in column 'x', which does not fit"):
        cells_of(table, "x")


def test_a_column_that_a_file_lacks_is_missing_there(tmp_path):
    written(tmp_path / "a")
    written(tmp_path / "b", more=["p", "q", None, "r"])
    with pytest.warns(UserWarning, match=r"1 of 2 files lack the column 'more', such as .*a/0"):
        table = ShardedTable.from_files(tmp_path, target="y")
    assert table.names.tolist() == ["x", "more"]
    assert cells_of(table, "more") == [None] * 4 + ["p", "q", None, "r"]
    ShardedTable.from_files(tmp_path, target="y", columns=["x"])


def test_a_changed_text_file_is_noticed_and_a_copy_is_not(tmp_path):
    file = tmp_path / "0.csv"
    file.write_text("x,y\n1,0\n2,1\n\n\n")
    table = ShardedTable.from_files(tmp_path, target="y")
    before = table.files_sha256()
    file.write_text("x,y\n1,0\n2,1\n\n\n")
    os.utime(file, (1, 1))
    table.check_files_unchanged()
    assert cells_of(table, "x") == [1, 2]
    file.write_text("x,y\n1,0\n3,1\n")
    with pytest.raises(ValueError, match=r"0.csv was changed since"):
        cells_of(table, "x")
    assert ShardedTable.from_files(tmp_path, target="y").files_sha256() != before


def test_text_elsewhere_is_read_and_its_change_noticed():
    fsspec = pytest.importorskip("fsspec")
    root = "memory://table-files"
    for name, text in (("0.csv", "x,y\n1,0\n2,1\n"), ("1.csv", "x,y\n2.5,1\n")):
        fsspec.filesystem("memory").pipe(f"{root}/year=1/{name}", text.encode())
    table = travelled(ShardedTable.from_files(f"{root}/**/*.csv", target="y"))
    assert cells_of(table, "x") == [1.0, 2.0, 2.5]
    assert cells_of(table, "year") == [1, 1, 1]
    fsspec.filesystem("memory").pipe(f"{root}/year=1/1.csv", b"x,y\n2.6,1\n")
    with pytest.raises(ValueError, match="was changed since"):
        cells_of(table, "x")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"a.csv": "", "b.csv": "x,y\n1,2\n"}, "a.csv must hold a table, got an empty file"),
        (
            {"a.csv": b"x,y\n\xe9,0\n"},
            r"must be utf-8 text, got other bytes \(in column 'x'\); give encoding=",
        ),
        ({"a.csv": b"\xe9,y\n1,0\n"}, r"must be utf-8 text, got other bytes"),
        (
            {"a.csv": "x,y\n1,2\n".encode("utf-16-le")},
            "got null bytes; give encoding=, such as utf-16",
        ),
        ({"a.csv.gz": gzip.compress(b"x,y\n1,2\n" * 99)[:30]}, "a.csv.gz cannot be read .Trunc"),
        (
            {"x=1/a.csv": "y\n2\n", "b.csv": "y\n3\n"},
            r"same keys, got x= in .*a.csv, but not in .*b",
        ),
        ({"_delta_log/0.json": "", "a.parquet": ""}, r"is a table of Delta Lake, whose log says"),
        ({"metadata/v1.metadata.json": "", "data/a.parquet": ""}, "is a table of Iceberg"),
    ],
)
def test_files_that_cannot_be_a_table_are_named(tmp_path, files, words):
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=words) as caught:
        ShardedTable.from_files(tmp_path, target="y")
    assert str(caught.value).count("\n") == 0


@pytest.mark.parametrize("seed", range(4))
def test_blocks_of_any_size_hold_the_rows_of_the_file(tmp_path, monkeypatch, seed):
    rng = np.random.default_rng(seed)
    # Arrow reads "\r\n" in a cell as "\r" where a block ends between both.
    signs = ["a", "7", ",", '"', "\n", '""', " ", "é", "1.5", ""]
    for trial in range(12):
        written = io.StringIO()
        quoting = [csv.QUOTE_MINIMAL, csv.QUOTE_ALL][trial % 2]
        lines = [["".join(rng.choice(signs, rng.integers(0, 4))) for _ in "xz"] for _ in range(30)]
        csv.writer(written, quoting=quoting, lineterminator=["\n", "\r\n"][seed % 2]).writerows(
            [["x", "z", "y"], *([*line, str(number % 2)] for number, line in enumerate(lines))]
        )
        text = written.getvalue()
        if trial % 3 == 0:
            # A quote inside a plain cell is part of the cell.
            text += 'b"c,5" pipe,1\n"d\ne",f,0\n'
        file = tmp_path / f"{trial}.csv"
        file.write_bytes(text.encode())
        monkeypatch.setattr("cellworth.data.table_files._BLOCK", int(rng.integers(60, 200)))
        table = ShardedTable.from_files(file, target="y")
        parse = pc.ParseOptions(newlines_in_values=True)
        convert = pc.ConvertOptions(null_values=[""], strings_can_be_null=True)
        wanted = pc.read_csv(file, parse_options=parse, convert_options=convert)
        assert table.take(range(table.shape[0])).equals(wanted)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_empty_lines_are_no_rows(tmp_path, suffix):
    lines = {"csv": ["x,y", "1,0", "2,1"], "jsonl": ['{"x": 1, "y": 0}', '{"x": 2, "y": 1}']}
    text = "\n" * 9 + ("\n" * 11).join(lines[suffix]) + "\n" * 9
    (tmp_path / f"0.{suffix}").write_text(text)
    table = ShardedTable.from_files(tmp_path, target="y")
    assert cells_of(table, "x") == [1, 2]
