"""cellworth audit: what the library finds in the table as it is written, as text, data and page."""

import csv
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cellworth import audit
from cellworth.cli.commands import main
from cellworth.cli.input_files import read_input
from cellworth.data.table_files import TextFormat
from shell import cellworth, fine, invoked

TOWNS = ("Aachen", "Bremen", "Cottbus")
ROWS = [
    f"p{i},{999 if i in (3, 50) else 20 + 7 * i % 45},{'?' if i == 8 else TOWNS[i * i % 3]},"
    f"{5 * i % 97},{'yes' if i % 2 else 'no'}"
    for i in range(120)
]
HEAD = "name,age,town,debt,label"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("audit") / "people.csv"
    path.write_text("\n".join([HEAD, *ROWS, ""]))
    return path


def asked(table):
    return ["audit", table, "--target", "label", "--id", "name"]


def quickly(table):
    """Ask for no odd cells, which take the longest."""
    return [*asked(table), "--quick"]


def in_python(table, **options):
    read = read_input(table, target="label", row_id="name")
    return audit(read.X, read.y, **options)


def test_the_text_is_that_of_the_library(table):
    shown = repr(in_python(table)).replace(" (audit.unusual)", "")
    assert fine(*asked(table)) == f"{shown}\n"
    assert "missing code: 999 in 2 cells of age" in shown
    assert "'?' stands for a missing value in one cell of town" in shown


def test_a_mark_that_is_named_is_a_missing_value(table):
    assert "'?'" not in fine(*quickly(table), "--missing", "?")


@pytest.mark.slow
def test_the_document_is_that_of_the_library_and_so_is_the_file(table, tmp_path):
    path = tmp_path / "audit.json"
    printed = json.loads(fine(*asked(table), "--json", "-o", path))
    assert json.loads(path.read_text()) == printed
    found = in_python(table)
    found.to_json(tmp_path / "python.json")
    assert json.loads((tmp_path / "python.json").read_text()) == printed
    by_kind = {tuple(one["columns"]): one for one in printed["findings"]}
    assert by_kind[("age",)]["rows"] == ["p3", "p50"]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_file_has_one_line_per_finding(table, tmp_path, ending):
    path = tmp_path / f"audit.{ending}"
    done = cellworth(*quickly(table), "-o", path)
    found = in_python(table, quick=True)
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith(f"{len(found)} findings are in ")
    lines = (
        pq.read_table(path).to_pylist()
        if ending == "parquet"
        else list(csv.DictReader(io.StringIO(path.read_text())))
    )
    assert [line["finding"] for line in lines] == [finding.sentence for finding in found]
    assert cellworth(*quickly(table), "-o", path).code == 2
    fine(*quickly(table), "-o", path, "--force")


@pytest.mark.parametrize("ending", ["csv", "html"])
def test_a_file_may_have_no_finding(tmp_path, ending):
    (tmp_path / "t.csv").write_text(
        "\n".join(["a,b", *(f"{i % 9},{i % 7}" for i in range(50)), ""])
    )
    path = tmp_path / f"audit.{ending}"
    done = cellworth("audit", tmp_path / "t.csv", "--quick", "-o", path)
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("0 findings are in ")
    assert path.stat().st_size > 0


def test_a_fixed_file_differs_in_the_cells_that_are_listed(table, tmp_path):
    path = tmp_path / "fixed.csv"
    done = cellworth(*quickly(table), "--fix", path)
    assert done.code == 0
    before, after = (list(csv.reader(file.read_text().splitlines())) for file in (table, path))
    changed = {
        (name, column): (old, new)
        for one, other in zip(before, after, strict=True)
        for name, column, old, new in zip([one[0]] * 5, before[0], one, other, strict=True)
        if old != new
    }
    assert changed == {
        ("p3", "age"): ("999", ""), ("p50", "age"): ("999", ""), ("p8", "town"): ("?", ""),
    }  # fmt: skip
    assert "row p3, age: 999 -> missing" in done.err


def test_a_page_has_the_findings(table, tmp_path):
    path = tmp_path / "audit.html"
    assert fine(*asked(table), "-o", path) == ""
    page = path.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "Audit of people.csv" in page
    assert "999 in 2 cells of age" in page


def test_a_table_needs_no_labels(table):
    document = json.loads(fine("audit", table, "--drop", "label", "--quick", "--json"))
    assert document["n_columns"] == 4
    assert "wrong label" not in {one["kind"] for one in document["findings"]}
    X = read_input(table, drop=["label"], text=TextFormat(missing=["?"])).X
    assert X.names.tolist() == ["name", "age", "town", "debt"]
    assert X.column(2).tolist()[8] is None


def test_many_files_are_one_table_with_and_without_labels(tmp_path):
    (tmp_path / "many").mkdir()
    for part in range(2):
        rows = ROWS[60 * part : 60 * part + 60]
        (tmp_path / "many" / f"{part}.csv").write_text("\n".join([HEAD, *rows, ""]))
    for given in (["--target", "label"], []):
        document = json.loads(fine("audit", tmp_path / "many", *given, "--quick", "--json"))
        assert document["n_rows"] == 120
        assert document["n_columns"] == 5 - bool(given)
        (code,) = [one for one in document["findings"] if one["columns"] == ["age"]]
        assert code["rows"] == [3, 50]


def test_stdin_is_a_table(table):
    done = invoked(main, *quickly("-"), stdin=table.read_text())
    assert (done.code, done.out) == (0, fine(*quickly(table)))


def test_validation_rows_of_the_table_are_found(table, tmp_path):
    (tmp_path / "val.csv").write_text("\n".join([HEAD, *ROWS[:7], "new,33,Bremen,9,no", ""]))
    document = json.loads(fine(*quickly(table), "--val", tmp_path / "val.csv", "--json"))
    (shared,) = [one for one in document["findings"] if one["kind"] == "validation rows in X"]
    assert set(shared["rows"]) >= {f"p{i}" for i in range(7)}
    (tmp_path / "less.csv").write_text("name,age,label\nnew,33,no\n")
    done = cellworth(*asked(table), "--val", tmp_path / "less.csv")
    assert done.code == 2
    assert "X_val lacks the columns 'debt', 'town'" in done.err


def test_what_is_rare_in_a_protected_column_is_not_wrong(tmp_path):
    towns = [TOWNS[i * i % 3] for i in range(300)]
    towns[7] = "Bremenn"
    pq.write_table(pa.table({"town": towns, "debt": list(range(300))}), tmp_path / "t.parquet")
    shown = fine("audit", tmp_path / "t.parquet", "--quick")
    assert "'Bremenn' for 'Bremen'" in shown
    assert "Bremenn" not in fine("audit", tmp_path / "t.parquet", "--protected", "town")


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        (["--protected", "twon"], "did you mean 'town'?"),
        (["--target", "label", "--protected", "label"], "--protected is 'label'"),
        ([f"--drop={name}" for name in HEAD.split(",")], "has no column left"),
    ],
)
def test_a_column_that_is_not_there_is_named_in_one_sentence(table, given, reported):
    done = cellworth("audit", table, *given)
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert reported in done.err
