"""Files become tables; an error says in a sentence what is wrong."""

import gzip
import json
import os
import re
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from cellworth.cli.input_files import read_input, read_table
from cellworth.data import TextFormat

COLUMNS = {
    "id": [7, 8, 9],
    "age": [1, None, 3],
    "town": ["a", None, "NA"],
    "label": ["x", "y", "x"],
}
TEXT = "id,age,town,label\n7,1,a,x\n8,,,y\n9,3,NA,x\n"


def write_text(path):
    path.write_text(TEXT)


def write_tabs(path):
    path.write_text(TEXT.replace(",", "\t"))


def write_gzip(path):
    path.write_bytes(gzip.compress(TEXT.encode()))


def write_with_mark(path):
    path.write_bytes(b"\xef\xbb\xbf" + TEXT.encode())


def write_parquet(path):
    pq.write_table(pa.table(COLUMNS), path)


def write_feather(path):
    pyarrow.feather.write_feather(pa.table(COLUMNS), path)


def write_stream(path):
    with pa.ipc.new_stream(str(path), pa.table(COLUMNS).schema) as stream:
        stream.write_table(pa.table(COLUMNS))


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("t.csv", write_text),
        ("t.CSV", write_text),
        ("my.table.csv", write_text),
        ("t.csv.gz", write_gzip),
        ("t.tsv", write_tabs),
        ("bom.csv", write_with_mark),
        ("t.parquet", write_parquet),
        ("t.feather", write_feather),
        ("t.arrow", write_feather),
        ("stream.arrow", write_stream),
    ],
)
def test_every_format_gives_the_same_table(tmp_path, name, write):
    write(tmp_path / name)
    found = read_input(tmp_path / name, target="label", row_id="id")
    assert found.X.names.tolist() == ["age", "town"]
    assert found.X.row_ids.tolist() == [7, 8, 9]
    assert found.y.tolist() == ["x", "y", "x"]
    np.testing.assert_array_equal(found.X.column(0), [1, np.nan, 3])
    assert found.X.column(1).tolist() == ["a", None, "NA"]


def test_the_index_of_a_pandas_table_names_the_rows(tmp_path):
    table = pa.table({"a": [1, 2], "label": [0, 1], "__index_level_0__": ["u", "v"]})
    pq.write_table(table, tmp_path / "t.parquet")
    found = read_input(tmp_path / "t.parquet", target="label")
    assert found.X.names.tolist() == ["a"]
    assert found.X.row_ids.tolist() == ["u", "v"]


def test_a_validation_file_gets_the_types_of_the_table(tmp_path):
    (tmp_path / "t.csv").write_text("code,size,gap,label\n01,1.5,3,a\nx2,2,4,b\n")
    (tmp_path / "v.csv").write_text("code,size,gap,label\n01,1,,a\n02,2,,b\n")
    train = read_input(tmp_path / "t.csv", target="label")
    val = read_input(
        tmp_path / "v.csv", target="label", like=train.X.native.schema, row_id="id", drop=["no"]
    )
    assert val.X.types == train.X.types
    assert val.X.column(0).tolist() == ["01", "02"]


def test_one_typo_in_a_target_of_numbers_is_named(tmp_path):
    ages = ["31", "4O", *map(str, range(40, 60))]
    (tmp_path / "t.csv").write_text("\n".join(["age,label", *(f"{a},1" for a in ages), ""]))
    with pytest.warns(UserWarning, match=r"'age'.* row 1 .*'4O'.*--missing '4O'"):
        read_input(tmp_path / "t.csv", target="age")


def test_a_target_of_text_with_some_numbers_in_it_is_no_typo(tmp_path):
    towns = ["a", "b", "3", "4", "c", "d"]
    (tmp_path / "t.csv").write_text("\n".join(["town,label", *(f"{t},1" for t in towns), ""]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_input(tmp_path / "t.csv", target="town")


@pytest.mark.parametrize(
    ("name", "content", "reported"),
    [
        ("t.csv", b"a,a\n1,2\n", "has two columns called 'a'"),
        ("t.csv", b"a,,label\n1,2,3\n", "has no name for column 2"),
        ("t.arrow", b"nothing", "cannot be read"),
        ("t.parquet.gz", b"a", "must end in .csv, .tsv or .jsonl"),
    ],
)
def test_a_file_that_cannot_be_read_is_rejected_in_one_sentence(tmp_path, name, content, reported):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(reported)):
        read_table(tmp_path / name)


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        ({"target": "label", "drop": ["id", "age", "town"]}, "no column besides 'label'"),
        ({"target": "label", "row_id": "town"}, "has missing values"),
    ],
)
def test_columns_that_leave_nothing_or_hold_gaps_are_named(tmp_path, given, reported):
    write_text(tmp_path / "t.csv")
    with pytest.raises(ValueError, match=re.escape(reported)):
        read_input(tmp_path / "t.csv", **given)


@pytest.mark.parametrize(
    ("written", "ids"),
    [
        (["7", "8"], [7, 8]),
        (["-7", "0"], [-7, 0]),
        (["00003", "00012"], ["00003", "00012"]),
        (["3", "03"], ["3", "03"]),
        (["100000000000000000001", "100000000000000000002"],) * 2,
        (["1.0", "2.0"], ["1.0", "2.0"]),
        (["2020-01-02", "2020-01-03"], ["2020-01-02", "2020-01-03"]),
    ],
)
def test_row_ids_are_what_is_written(tmp_path, written, ids):
    rows = [f"{name},{position},1" for position, name in enumerate(written)]
    (tmp_path / "t.csv").write_text("\n".join(["id,a,label", *rows, ""]))
    found = read_input(tmp_path / "t.csv", target="label", row_id="id").X.row_ids.tolist()
    assert found == ids
    assert [type(one) for one in found] == [type(one) for one in ids]


def test_ids_of_a_typed_file_keep_their_type(tmp_path):
    pq.write_table(pa.table({"id": ["7", "8"], "a": [1, 2], "label": [0, 1]}), tmp_path / "t.pq")
    found = read_input(tmp_path / "t.pq", target="label", row_id="id")
    assert found.X.row_ids.tolist() == ["7", "8"]


def test_categories_are_what_is_written(tmp_path):
    (tmp_path / "t.csv").write_text("code,label\n01,a\n1,b\n001,a\n,b\n?,a\n")
    (tmp_path / "v.csv").write_text("code,label\n1,a\n01,b\n")
    how = {"target": "label", "text": TextFormat(missing=["?"], as_text=["code"])}
    train = read_input(tmp_path / "t.csv", **how)
    assert train.X.column(0).tolist() == ["01", "1", "001", None, None]
    val = read_input(tmp_path / "v.csv", like=train.X.native.schema, **how)
    assert val.X.column(0).tolist() == ["1", "01"]


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.jsonl.gz", "t.parquet"])
def test_a_table_beyond_memory_is_refused_by_name_before_it_is_read(tmp_path, monkeypatch, name):
    pytest.importorskip("resource")
    line = json.dumps({"a": 1, "label": 2}) if "json" in name else "1,2"
    text = ("" if "json" in name else "a,label\n") + f"{line}\n" * 30_000
    path = tmp_path / name
    if name == "t.parquet":
        pq.write_table(pa.table({"a": [1] * 300_000, "label": [2] * 300_000}), path)
    else:
        path.write_bytes(gzip.compress(text.encode()) if "gz" in name else text.encode())
    read_table(path)
    # 400 kB; the text has 120 kB, or 1 MB with the names.
    sizes = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 100}
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)
    with pytest.raises(MemoryError, match=rf"{name} does not fit .* of 0.41 MB\); give fewer"):
        read_table(path)


def test_memory_that_is_full_while_a_file_is_read_names_the_file(tmp_path, monkeypatch):
    (tmp_path / "t.csv").write_text(TEXT)

    def fill(*_, **__):
        raise pa.ArrowMemoryError("malloc of size 131072 failed")

    monkeypatch.setattr(pa.csv, "read_csv", fill)
    with pytest.raises(MemoryError, match=r"t.csv does not fit into memory .malloc of size 131072"):
        read_table(tmp_path / "t.csv")
