"""With --json every command prints one document, which keeps to its schema."""

import copy
import json

import jsonschema
import pytest

from cellworth.cli.commands import main
from cellworth.cli.schemas import DOCUMENTS, document_schema
from cellworth.data.io import jsonable
from shell import cellworth, fine

# Commands that print no document of their own: scripts and schemas are what they are, and kernels
# are no result.
_OTHERS = {"schema", "completion", "warm-up"}


@pytest.fixture(scope="module")
def documents(home, tmp_path_factory):
    """One document of each kind."""
    at = tmp_path_factory.mktemp("documents")
    run = [*home.asked, "--checkpoint", at / "run", "-q", "--json"]
    made = {
        "audit": fine("audit", home.table, "--target", "label", "--id", "name", "--json"),
        "value": fine("value", *home.asked, "-o", at / "v", "-q", "--json"),
        "partition": fine("value", *run, "--partition", "0/1", "-o", at / "w"),
        "resume": fine("resume", at / "run", "-q", "--json"),
        "merge": fine("merge", at / "run", "--into", at / "whole", "--json"),
        "plan": fine("plan", *home.asked, "--json"),
        "info": fine("info", home.values, "--json"),
        "suspects": fine("suspects", home.values, "-k", 5, "--json"),
        "explain": fine("explain", home.values, "--row", "p3", "--json"),
        "report": fine("report", home.values, "-o", at / "report.html", "--json"),
        "check": fine("check", home.values, "--min-total", "-9", "--json"),
        "compare": fine(
            "compare", *home.asked, "--owners", home.owners, "--base", "bank", "--json"
        ),
        "draft": fine(
            "draft", *home.asked, "--owners", home.owners, "-o", at / "deal.toml", "--json"
        ),
        "split": fine("split", home.values, "--amount", "100.00", "-o", at / "bundle", "--json"),
        "statement": fine(
            "split", home.values, "--amount", "100.00", "--statement", "bank", "--json"
        ),
        "verify": fine("verify", at / "bundle", "--json"),
        "sign": fine("sign", at / "bundle", "--key", at / "key", "--new-key", "--json"),
        "prove": fine("prove", at / "bundle", "-o", at / "proofs", "--json"),
    }
    made["info of a run"] = fine("info", at / "run", "--json")
    made["info of a bundle"] = fine("info", at / "bundle", "--json")
    made["explain of a column"] = fine("explain", home.values, "--column", "age", "--json")
    made["suspects by worth"] = fine("suspects", home.values, "--by", "value", "--json")
    return {name: json.loads(text) for name, text in made.items()}


OTHER_TYPES = ("info of a run", "info of a bundle", "explain of a column", "suspects by worth")
TYPES = [*DOCUMENTS, *OTHER_TYPES]


@pytest.mark.slow
@pytest.mark.parametrize("kind", TYPES)
def test_a_document_keeps_to_its_schema(documents, kind):
    name = kind.split()[0]
    schema = document_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    document = documents[kind]
    assert document["format"] == f"cellworth {name}"
    jsonschema.validate(document, schema)


@pytest.mark.slow
@pytest.mark.parametrize("kind", TYPES)
def test_a_damaged_document_breaks_its_schema(documents, kind):
    schema = document_schema(kind.split()[0])
    for damage in (without_last, with_more, of_another_format):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(damage(documents[kind]), schema)


def without_last(document):
    return dict(list(document.items())[:-1])


def with_more(document):
    return document | {"more": 1}


def of_another_format(document):
    return copy.deepcopy(document) | {"format": "something else"}


def test_every_command_that_prints_a_result_has_a_schema():
    assert set(main.commands) - _OTHERS <= set(DOCUMENTS)
    for name in set(main.commands) - _OTHERS:
        assert "--json" in {o for p in main.commands[name].params for o in p.opts}


def test_schemas_are_printed():
    assert json.loads(fine("schema", "check")) == document_schema("check")
    assert cellworth("schema", "nosuch").code == 2


def test_what_json_does_not_have_becomes_null_or_text():
    assert jsonable({"a": [float("nan"), float("inf"), 1.5]}) == {"a": [None, None, 1.5]}
    assert jsonable(__import__("datetime").date(2020, 1, 2)) == "2020-01-02"
