"""Certainty: what findings say is what was measured on held-out tables."""

import csv
import json
from pathlib import Path

import pytest

from cellworth.findings.certainty import MEASURED, read_false_rate
from experiments.audit_precision import MAX_OF_A_TABLE, REVIEWS
from experiments.audit_tables import is_held_out

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "audit_precision.json"
# Fewer findings of a kind tell nothing about the next one.
MIN_REVIEWED = 3
PRECISION = json.loads(RESULTS.read_text())["tables"]["precision"]
KINDS = [line for line in PRECISION if not line["kind"].startswith("all ")]


def test_the_certainties_are_those_of_the_held_out_tables():
    counted = {
        line["kind"]: tuple(int(count) for count in line["held out"].split(" of "))
        for line in KINDS
        if line["held out"]
    }
    enough = {kind: counts for kind, counts in counted.items() if counts[1] >= MIN_REVIEWED}
    assert {kind: MEASURED[kind] for kind in MEASURED if kind != "wrong label"} == enough


@pytest.mark.parametrize("line", KINDS, ids=lambda line: line["kind"])
def test_the_certainty_that_the_page_states_is_the_one_that_findings_print(line):
    rate = read_false_rate(line["kind"])
    assert line["stated"] == (None if rate is None else f"{1 - rate:.0%}")


def test_the_certainty_of_wrong_labels_is_that_of_their_reviews():
    # The recorded run leaves them out, because they take most of its time.
    with REVIEWS.open(encoding="utf-8") as file:
        lines = [line for line in csv.DictReader(file) if line["kind"] == "wrong label"]
    held_out = [line for line in lines if is_held_out(*line["table"].split("/", 1))]
    tables = [line["table"] for line in held_out]
    assert max(map(tables.count, tables)) <= MAX_OF_A_TABLE
    right = sum(line["review"] in ("true", "useful") for line in held_out)
    assert MEASURED["wrong label"] == (right, len(held_out))
