"""With --json every command prints one document, with the fields that the documentation lists."""

import json
import re
from pathlib import Path

import pytest

from cellworth.cli.commands import main
from cellworth.data.io import jsonable
from shell import fine

_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "command-line.rst"


def listed_fields():
    """The fields of each command in the documentation."""
    entries = re.findall(r"^- ``([a-z-]+)``: (.*(?:\n  .*)*)", _PAGE.read_text(), re.MULTILINE)
    return {name: re.findall("``([a-z_0-9]+)``", text) for name, text in entries}


@pytest.mark.slow
def test_documents_have_the_listed_fields(home, tmp_path):
    at = tmp_path
    runs = {
        "audit": ["audit", home.table, "--target", "label", "--id", "name"],
        "look": ["look", home.table, "--target", "label", "--id", "name", "-o", at / "look.html"],
        "value": ["value", *home.asked, "-o", at / "v", "--checkpoint", at / "run"],
        "forecast": ["value", *home.asked, "--dry-run"],
        "resume": ["resume", at / "run"],
        "info": ["info", home.values],
        "explain": ["explain", home.values, "--row", "p3"],
        "report": ["report", home.values, "-o", at / "report.html"],
        "check": ["check", home.table, "--min-rows", 1],
        "agree": ["agree", home.terms, "-o", at / "deal.toml"],
        "split": ["split", home.values, "--amount", "100.00", "-o", at / "bundle"],
        "verify": ["verify", at / "bundle"],
    }
    listed = listed_fields()
    assert listed.keys() == {*runs, "merge"}
    for name, arguments in runs.items():
        document = json.loads(fine(*arguments, "--json"))
        assert (document.pop("format"), document.pop("version")) == (f"cellworth {name}", 1)
        assert list(document) == listed[name], name
    for folder in (at / "run", at / "bundle"):
        document = json.loads(fine("info", folder, "--json"))
        assert list(document)[2:] == listed["info"]


def test_every_command_that_prints_a_result_prints_documents():
    for name in set(main.commands) - {"warm-up"}:
        assert "--json" in {o for p in main.commands[name].params for o in p.opts}


def test_what_json_does_not_have_becomes_null_or_text():
    assert jsonable({"a": [float("nan"), float("inf"), 1.5]}) == {"a": [None, None, 1.5]}
    assert jsonable(__import__("datetime").date(2020, 1, 2)) == "2020-01-02"
