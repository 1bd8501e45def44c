"""What a folder or a table that came from anyone may do: nothing but be read."""

import csv
import json
import shutil
import sys

import pandas as pd
import pytest

from cellworth import audit
from shell import cellworth, fine

# Leaves a trace wherever it is imported.
MODEL = """
from pathlib import Path
from sklearn.naive_bayes import GaussianNB

Path("trace").write_text("was here")
make = GaussianNB
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run and its values that name a model beside them, and a bundle."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "naughty.py").write_text(MODEL)
    # Few rows: every command that recomputes values trains the model anew.
    rows = [f"p{i},{20 + i % 3},north,{9 * (i % 2)},{'yes' if i % 2 else 'no'}" for i in range(8)]
    (folder / "people.csv").write_text("\n".join(["name,age,town,debt,label", *rows]))
    entry = '[[owners]]\nname = "{0}"\ncolumns = ["{0}"]\n'
    (folder / "owners.toml").write_text(entry.format("age") + entry.format("debt"))
    terms = """
        table = "people.csv"
        target = "label"
        id = "name"
        drop = ["town"]
        [validation]
        folds = 2
        [method]
        model = "naughty:make"
        stop = {fits = 60}
        [policy]
        game = "cells"
        negative = "signed"
        """
    owners = (folder / "owners.toml").read_text()
    (folder / "terms.toml").write_text(terms + owners)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [entry for entry in sys.path if entry])
        fine("agree", "terms.toml", "-o", "deal.toml")
        agreed = ["--agreement", "deal.toml", "--workers", 1]
        fine("value", "people.csv", *agreed, "-o", "v", "--checkpoint", "run")
        fine("split", "v", "--amount", "10.00", "-o", "bundle")
    (folder / "trace").unlink()
    del sys.modules["naughty"]
    return folder


@pytest.fixture
def handed_over(made, tmp_path, monkeypatch):
    """A copy of what was made, in the present folder."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    yield tmp_path
    sys.modules.pop("naughty", None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "explain v --row p3",
        "explain v --column age",
        "report v",
        "split v --amount 1.00",
        "verify bundle",
        "info v",
        "info run",
    ],
)
def test_a_model_is_not_imported_where_none_is_needed(handed_over, line):
    fine(*line.split())
    assert not (handed_over / "trace").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "folder"), [("resume run", "run"), ("verify bundle --values v", "v")]
)
def test_a_model_that_only_a_folder_names_is_not_run(handed_over, line, folder):
    rejected = cellworth(*line.split())
    assert rejected.code == 2
    assert (
        f"{folder} needs the code of 'naughty:make'; if you trust it, give --model "
        "naughty:make to execute it." in rejected.err
    )
    other = cellworth(*line.split(), "--model", "knn")
    assert other.code == 2
    assert "was made with 'naughty:make'" in other.err
    assert not (handed_over / "trace").exists()
    fine(*line.split(), "--model", "naughty:make")
    assert (handed_over / "trace").exists()


def test_the_present_folder_does_not_replace_a_library(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.delitem(sys.modules, "wave", raising=False)
    (tmp_path / "wave.py").write_text(MODEL)
    done = cellworth("value", *home.asked, "--model", "wave:make", "-o", "v")
    assert done.code == 2
    assert "cannot be imported" in done.err
    assert not (tmp_path / "trace").exists()


COPIES = '[[owners]]\nname = "{}"\ncolumns = ["{}"]\n'


@pytest.fixture
def copies(tmp_path):
    """Values of a table in which one owner's column is a copy of another's."""
    lines = [f"{i % 7},{i % 7},{i * i % 11},{'yes' if i % 7 > 3 else 'no'}" for i in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c,label", *lines, ""]))
    owned = [("ann", "a"), ("ben", "b"), ("cid", "c")]
    terms = 'table = "t.csv"\ntarget = "label"\n[policy]\nnegative = "signed"\n'
    (tmp_path / "terms.toml").write_text(terms + "".join(COPIES.format(*pair) for pair in owned))
    fine("agree", tmp_path / "terms.toml", "-o", tmp_path / "deal.toml")
    fine("value", tmp_path / "t.csv", "--agreement", tmp_path / "deal.toml", "-o", tmp_path / "v")
    return tmp_path / "v"


def test_a_statement_says_nothing_about_others(copies, tmp_path):
    fine("split", copies, "--amount", "10.00", "--statements", tmp_path / "pages")
    page = (tmp_path / "pages" / "3-cid.html").read_text(encoding="utf-8")
    for other in ("ann", "ben"):
        assert f">{other}<" not in page


@pytest.fixture(scope="module")
def wild(tmp_path_factory):
    """Values of a table with cells that spreadsheets and terminals obey."""
    tmp_path = tmp_path_factory.mktemp("wild")
    cells = ["=HYPERLINK(1)", "\x1b[31mred", "\x9b31m", "a\tb", "-5", "@x"]
    rows = [f"=r{i},{cells[i % 6]},{i},{'yes' if i % 2 else 'no'}" for i in range(24)]
    text = "\n".join(["name,wild\x1b[1m,n,label", *rows, ""])
    (tmp_path / "t.csv").write_bytes(text.encode())
    fine("value", tmp_path / "t.csv", "--target", "label", "--id", "name", "-o", tmp_path / "v")
    return tmp_path


def test_files_of_an_audit_hold_no_formulas(tmp_path):
    rows = [f"{20 + n % 7},{'x' if n % 2 else 'y'}" for n in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["=cmd|a,b", *rows, "999,n/a", ""]))
    fine("audit", tmp_path / "t.csv", "-o", tmp_path / "command.csv")
    audit(pd.read_csv(tmp_path / "t.csv", keep_default_na=False)).to_csv(tmp_path / "library.csv")
    for name in ("command.csv", "library.csv"):
        with (tmp_path / name).open(newline="", encoding="utf-8") as file:
            lines = list(csv.reader(file))
        cells = [cell for line in lines for cell in line]
        assert any(cell.startswith("'=cmd|a") for cell in cells)
        assert not any(cell.startswith("=") for cell in cells)


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "audit {}/t.csv --target label --id name --values {}/v",
        "audit {}/t.csv --target label --id name --values {}/v --json",
        "explain {}/v --row =r1",
        "explain {}/v --row =r1 --json",
        "info {}/v",
        "check {}/t.csv --min-rows 1",
        "value {}/t.csv --target label --id name -o {}/w",
        "value {}/t.csv --target nosuch",
    ],
)
def test_a_terminal_gets_no_orders_from_a_table(wild, line):
    done = cellworth(*line.replace("{}", str(wild)).split())
    for text in (done.out, done.err):
        assert not set(text) & {"\x1b", "\x9b", "\t"}
    if "--json" in line:
        assert "wild\x1b[1m" in str(json.loads(done.out)).encode().decode("unicode_escape")
