"""cellworth look: what audit and value say, on one page, with the commands that say it again."""

import html
import json
import re
import shlex
from decimal import Decimal

import numpy as np
import pytest

from cellworth import KNNValuer, Owners, audit, load, look
from cellworth.cli.input_files import read_input
from cellworth.data.table_files import TextFormat
from shell import cellworth, fine

HEAD = "name,age,town,debt,shop,label"
ROWS = [
    f"p{i},{999 if i == 7 else 20 + 3 * i % 40},{'north' if i % 3 else 'south'},"
    f"{(7 * i) % 11 + (i % 2) * 9},{i % 2 + 1},{'yes' if i % 2 else 'no'}"
    for i in range(40)
]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("look") / "people.csv"
    path.write_text("\n".join([HEAD, *ROWS, ""]))
    return path


def asked(table):
    return [table, "--target", "label", "--id", "name"]


def in_python(table):
    read = read_input(
        table, target="label", row_id="name", keys=["shop"], text=TextFormat(as_text=["shop"])
    )
    owners = Owners.from_column(read.delivered, "shop")
    return look(read.X, read.y, owners=owners, on_audit=None)


def test_a_look_is_that_of_the_library(table, tmp_path):
    path = tmp_path / "look.html"
    said = fine("look", *asked(table), "--owners", "shop", "-o", path)
    made = in_python(table)
    shown = repr(made.audit).replace(" (audit.unusual)", "")
    assert said.startswith(f"{shown}\n\n")
    assert "999 in one cell of age" in shown
    assert repr(made.payout) in said
    page = html.unescape(path.read_text(encoding="utf-8"))
    assert "<bdi>A look at people.csv</bdi>" in page
    assert all(f"{amount}</td>" in page for amount in made.payout.amounts)


def test_the_commands_of_the_page_make_its_chapters_again(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ["--owners", "shop", "--protected", "town", "--protected", "debt", "--quick"]
    said = fine("look", *asked(table), *options)
    page = (tmp_path / "look.html").read_text(encoding="utf-8")
    codes = [html.unescape(found) for found in re.findall('-code"[^>]*>(.*?)</pre>', page, re.S)]
    first, second, third = ([shlex.split(line) for line in code.splitlines()] for code in codes)
    assert said.startswith(fine(*first[0][1:]))
    assert first[0][-6:] == [*options[2:], "--drop=shop"]
    for line in second:
        fine(*line[1:])
    read = read_input(table, target="label", row_id="name", keys=["shop"])
    values = KNNValuer(random_state=0).fit(read.X, read.y).valuation_.values
    np.testing.assert_array_equal(load(tmp_path / "values").values, values)
    assert fine(*third[0][1:], "--force") == said


def test_a_document_has_the_findings_the_values_and_the_shares(table, tmp_path):
    path = tmp_path / "look.html"
    found = json.loads(fine("look", *asked(table), "--owners", "shop", "-o", path, "--json"))
    assert found["audit"]["findings"][0]["kind"] == "missing code"
    assert found["values"]["shape"] == [40, 3]
    assert {line["owner"] for line in found["shares"]} == {"1", "2"}
    assert sum(Decimal(line["amount"]) for line in found["shares"]) == 100


def test_findings_are_printed_before_values_are_computed(table, tmp_path, monkeypatch):
    def stop(*_, **__):
        raise ValueError("it stopped here")

    monkeypatch.setattr(KNNValuer, "fit", stop)
    fixed = tmp_path / "fixed.csv"
    done = cellworth("look", *asked(table), "-o", tmp_path / "look.html", "--fix", fixed)
    assert (done.code, done.err.splitlines()[-1]) == (2, "Error: it stopped here")
    assert "999 in one cell of age" in done.out
    assert "999" not in fixed.read_text()


def test_without_a_target_there_are_findings_alone(table, tmp_path):
    path = tmp_path / "look.html"
    said = fine("look", table, "--quick", "-o", path)
    read = read_input(table)
    assert said == repr(audit(read.X, quick=True)).replace(" (audit.unusual)", "") + "\n"
    page = path.read_text(encoding="utf-8")
    assert "missing code" in page
    assert 'id="worth"' not in page


def test_validation_rows_are_those_of_val(table, tmp_path):
    said = fine("look", *asked(table), "--val", table, "--quick", "-o", tmp_path / "look.html")
    assert "40 validation rows" in said


def test_a_page_that_exists_is_replaced_only_by_force(table, tmp_path):
    path = tmp_path / "look.html"
    path.write_text("mine")
    done = cellworth("look", table, "-o", path)
    assert (done.code, done.out) == (2, "")
    assert "give --force" in done.err
    assert path.read_text() == "mine"
    fine("look", table, "--quick", "-o", path, "--force")
    assert path.read_text().startswith("<!doctype html>")
