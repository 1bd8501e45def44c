"""Wrong addresses and files: each gets one sentence that says what came and what to do."""

import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shell import TABLE, cellworth

HEAD, *LINES = TABLE.splitlines()


def write_parquet(path, **columns):
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"age": [1, 2, 3], "label": ["a", "b", "a"]} | columns), path)


def cut_in_half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def save_book(path, *sheets):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["age", "label"])
    for name in sheets:
        book.create_sheet(name)
    book.save(path)


@pytest.fixture(scope="module")
def at(tmp_path_factory):
    """A folder of wrong files."""
    at = tmp_path_factory.mktemp("wrong")
    (at / "good.csv").write_text(TABLE)
    for name in ("empty", "mixed", "keys/year=1", "delta/_delta_log", "ragged", "odd"):
        (at / name).mkdir(parents=True)
    write_parquet(at / "mixed" / "a.parquet")
    (at / "mixed" / "b.csv").write_text(TABLE)
    write_parquet(at / "keys" / "year=1" / "a.parquet")
    write_parquet(at / "keys" / "b.parquet")
    write_parquet(at / "delta" / "a.parquet")
    (at / "delta" / "_delta_log" / "0.json").write_text("{}")
    write_parquet(at / "types" / "a.parquet")
    write_parquet(at / "types" / "b.parquet", age=["x", "y", "z"])
    write_parquet(at / "labels" / "a.parquet")
    write_parquet(at / "labels" / "b.parquet")
    pq.write_table(pa.table({"age": [1]}), at / "labels" / "b.parquet")
    for name in ("cut.parquet", "cuts/a.parquet"):
        write_parquet(at / name)
        cut_in_half(at / name)
    (at / "empty.csv").write_text("")
    (at / "header.csv").write_text(f"{HEAD}\n")
    (at / "numbers.csv").write_text("39,Ulm,a\n50,Bonn,b\n")
    (at / "latin.csv").write_bytes(TABLE.replace("north", "Köln").encode("latin-1"))
    (at / "ragged.csv").write_text("\n".join([HEAD, *LINES[:3], "p9,1", ""]))
    (at / "ragged" / "a.csv").write_text("\n".join([HEAD, *LINES[:3], "p9,1", ""]))
    (at / "bad.jsonl").write_text('{"age": 1, "label": "a"}\n{"age": }\n')
    (at / "odd" / "a.jsonl").write_text('{"age": 1, "label": "a"}\n{"age": }\n')
    (at / "text.parquet").write_text(TABLE)
    (at / "t.pickle").write_bytes(b"\x80")
    (at / "cut.csv.gz").write_bytes(b"\x1f\x8b\x08\x00")
    save_book(at / "two.xlsx", "more")
    save_book(at / "one.xlsx")
    # Files that Office protects by a password begin like this.
    (at / "secret.xlsx").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512))
    return at


# What is given as TABLE, with more options, and parts of the sentence.
WRONG = {
    "nosuch": "nosuch does not exist; give the path of a table",
    "nosuch.csv": "nosuch.csv does not exist; give the path of a table",
    "empty": "empty holds no .parquet, .csv or .jsonl file; give another folder, or a pattern",
    "mixed": "must be of one kind, got {AT}/mixed/a.parquet and {AT}/mixed/b.csv; give a pattern",
    "*.nosuch": "no file fits the pattern {AT}/*.nosuch; give another pattern",
    "cut.parquet": "cut.parquet cannot be read (",
    "cuts": "cuts/a.parquet cannot be read (",
    "text.parquet": "text.parquet cannot be read (",
    "empty.csv": "empty.csv must hold a table, got an empty file; give another file",
    "header.csv": "header.csv has no rows below its header; give a table with rows",
    "numbers.csv": "seems to have no header, because its first line holds '39'; put the names",
    "good.csv --delimiter ;;": "delimiter must be one ASCII character, got ';;'; give one",
    "good.csv --delimiter ;": "if it holds several, give --delimiter",
    "latin.csv": "must be utf-8 text, got other bytes (in column 'town'); give --encoding",
    "good.csv --encoding klingon": "encoding must be one that Python knows, got 'klingon'; give",
    "good.csv --encoding utf-16": "good.csv must be utf-16 text, got other bytes (",
    "good.csv --target price": "--target is 'price', which is not a column of {AT}/good.csv; its",
    "labels": "all files must have the target 'label', got {AT}/labels/b.parquet without it; add",
    "types": "types/b.parquet holds string in column 'age', but files before it hold int64; write",
    "ragged.csv": "got 2: p9,1); fix it, or give another --delimiter, --decimal or --encoding",
    "ragged": "ragged/a.csv cannot be read (CSV parse error: Row #5: Expected 5 columns, got 2",
    "bad.jsonl": "bad.jsonl cannot be read (JSON parse error: Invalid value. in row 1); fix it",
    "odd": "odd/a.jsonl cannot be read (JSON parse error: Invalid value. in row 1); fix it",
    "keys": "same keys, got year= in {AT}/keys/year=1/a.parquet, but not in {AT}/keys/b.parquet",
    "delta": "delta is a table of Delta Lake, whose log says which of its files count; list",
    "t.pickle": "t.pickle must end in .csv, .tsv or .jsonl (also with",
    "cut.csv.gz": "cut.csv.gz cannot be read (",
    "two.xlsx": "it has the sheets 'Sheet', 'more'; save the one that holds the table",
    "secret.xlsx": "it is damaged, or protected by a password",
    "good.csv --owners {AT}/none.toml": "--owners must be a file, got",
    "good.csv --val {AT}/empty": "empty holds no .parquet, .csv or .jsonl file",
}
ELSEWHERE = {
    "nowhere://bucket/t.csv": "nowhere://bucket/t.csv cannot be opened with fsspec (",
    "memory://none/t.csv": "there is no file memory://none/t.csv; give another address",
    "memory://none/*.csv": "no file fits the pattern memory://none/*.csv; give another",
}


def check_one_sentence(done, said):
    assert (done.code, done.out) == (2, ""), done.err
    assert "Traceback" not in done.err
    (line,) = [one for one in done.err.strip().splitlines() if one.startswith("Error: ")]
    assert line == done.err.strip().splitlines()[-1]
    assert said in line
    assert line.endswith(".")
    assert ";" in line or "?" in line


@pytest.mark.parametrize("given", WRONG)
def test_a_wrong_file_gets_one_sentence_and_exit_code_2(at, tmp_path, given):
    name, *more = given.replace("{AT}", str(at)).split()
    more = more if "--target" in more else [*more, "--target", "label"]
    done = cellworth("value", at / name, *more, "-o", tmp_path / "v")
    check_one_sentence(done, WRONG[given].replace("{AT}", str(at)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("address", ELSEWHERE)
def test_a_wrong_address_gets_one_sentence_and_exit_code_2(address, tmp_path):
    pytest.importorskip("fsspec")
    done = cellworth("value", address, "--target", "label", "-o", tmp_path / "v")
    check_one_sentence(done, ELSEWHERE[address])


def test_a_sheet_without_the_extra_gets_one_sentence(at, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    done = cellworth("value", at / "one.xlsx", "--target", "label", "-o", tmp_path / "v")
    check_one_sentence(done, "which is not installed; pip install 'cellworth[excel]'")


@pytest.mark.slow
def test_a_store_without_credentials_gets_one_sentence(s3, tmp_path, monkeypatch):
    import s3fs

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    s3fs.S3FileSystem.clear_instance_cache()
    done = cellworth("value", "s3://bucket/t.csv", "--target", "label", "-o", tmp_path / "v")
    s3fs.S3FileSystem.clear_instance_cache()
    check_one_sentence(done, "credentials")
