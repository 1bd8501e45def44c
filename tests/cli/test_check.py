"""cellworth check: a table against limits and a reference, and the verdict in every format."""

import json
import re
from xml.etree import ElementTree as ET

import numpy as np
import pyarrow.parquet as pq
import pytest

from shell import cellworth, fine

TOWNS = ("Aachen", "Bremen", "Cottbus")


def write(path, *, seed, n_rows=300, broken=0, town=None):
    """Write people whose debt depends on their age; ``broken`` of them have another town."""
    rng = np.random.default_rng(seed)
    lines = ["name,age,town,debt,label"]
    for row in range(n_rows):
        age = int(rng.integers(20, 65))
        place = town if row < broken else TOWNS[rng.integers(3)]
        debt = round(age * 3 + rng.normal() * 4, 1)
        label = "yes" if debt + rng.normal() * 20 > 120 else "no"
        lines.append(f"p{seed}-{row},{age},{place},{debt},{label}")
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "old.csv", seed=1)
    write(tmp_path / "new.csv", seed=2)
    write(tmp_path / "bad.csv", seed=3, broken=30, town="n/a")
    return tmp_path


def against(folder, name, *more):
    given = ["--target", "label", "--id", "name", "--reference", folder / "old.csv"]
    return cellworth("check", folder / name, *given, *more)


@pytest.mark.slow
def test_what_differs_from_the_reference_fails_and_is_named(folder):
    done = against(folder, "bad.csv", "--json")
    document = json.loads(done.out)
    assert (done.code, document["passed"]) == (1, False)
    check = document["checks"][0]
    assert {one["name"] for one in document["checks"]} == {"reference"}
    assert check["found"] < check["limit"] == 0.01
    assert check["sentence"] == (
        "new content: 'n/a' in 30 cells of town is in none of 300 reference rows."
    )


@pytest.mark.slow
def test_text_in_a_column_of_numbers_is_found_and_no_error(folder):
    text = (folder / "new.csv").read_text()
    (folder / "text.csv").write_text(re.sub(r"(p2-\d*0),\d+,", r"\1,unknown,", text))
    done = against(folder, "text.csv")
    assert done.code == 1
    assert "age is missing in 10.00% of rows; in the reference, in 0.00%." in done.out


@pytest.mark.slow
def test_other_columns_fail_with_a_verdict(folder):
    text = (folder / "new.csv").read_text()
    (folder / "renamed.csv").write_text(text.replace("age", "years", 1))
    verdict = folder / "schema.xml"
    done = against(folder, "renamed.csv", "-o", verdict)
    assert done.code == 1
    assert "FAIL  schema: The column age of the reference is missing." in done.out
    assert "FAIL  schema: The reference has no column years." in done.out
    assert "schema" in verdict.read_text()


def test_too_few_rows_fail(folder):
    short = cellworth("check", folder / "new.csv", "--quick", "--min-rows", 301)
    assert (short.code, short.out.splitlines()[0]) == (1, "FAIL  300 rows, at least 301 required")
    assert cellworth("check", folder / "new.csv", "--quick", "--min-rows", 300).code == 0


def test_limits_on_kinds_of_findings(folder):
    asked = ["check", folder / "bad.csv", "--target", "label", "--drop", "name", "--quick"]
    kept = cellworth(*asked, "--max", "missing mark=10%")
    assert (kept.code, kept.out) == (
        0, "ok    missing mark: 10.00% of rows; at most 10.00% allowed\nPassed: one check.\n",
    )  # fmt: skip
    broken = cellworth(*asked, "--max", "missing mark=9.9%", "--max", "any=100%")
    assert broken.code == 1
    first, second, third, last = broken.out.splitlines()
    assert first == "FAIL  missing mark: 10.00% of rows; at most 9.90% allowed"
    assert second == ("      missing mark: 'n/a' stands for a missing value in 30 cells of town.")
    assert third.startswith("ok    any finding: ")
    assert last == "Failed: 1 of 2 checks."


def test_a_number_of_findings_is_a_limit_up_to_itself(folder):
    asked = ["check", folder / "bad.csv", "--drop", "name", "--quick", "--max-findings"]
    assert cellworth(*asked, 1).code == 0
    done = cellworth(*asked, 0)
    assert done.code == 1
    assert done.out.startswith("FAIL  one finding, at most 0 allowed\n")


@pytest.mark.slow
def test_pipelines_get_their_formats(folder):
    town = "<b>|@you"
    write(folder / "bad.csv", seed=3, broken=30, town=town)
    files = [folder / f"check.{ending}" for ending in ("json", "xml", "md")]
    given = [word for path in files for word in ("-o", path)]
    done = against(folder, "bad.csv", *given, "--max", "any=100%", "--quick")
    assert done.code == 1
    printed = json.loads(against(folder, "bad.csv", "--max", "any=100%", "--quick", "--json").out)
    assert json.loads(files[0].read_text()) == printed
    sentence = printed["checks"][0]["sentence"]
    assert town in sentence

    suite = ET.fromstring(files[1].read_text()).find("testsuite")  # noqa: S314 (our own)
    failures = [case.find("failure") for case in suite]
    failed = [not one["passed"] for one in printed["checks"]]
    assert suite.attrib["failures"] == str(sum(failed))
    assert [failure is not None for failure in failures] == failed
    assert failures[0].attrib["message"] == sentence

    page = files[2].read_text()
    assert "**FAIL**" in page
    assert not any(mark in page for mark in ("<b>", "@you"))
    assert page.count("\n| ok |") == 1
    assert against(folder, "bad.csv", *given).code == 2


@pytest.mark.slow
def test_a_table_that_passes_becomes_the_next_reference(folder):
    keep = folder / "next.parquet"
    assert against(folder, "bad.csv", "--keep", keep).code == 1
    assert not keep.exists()
    assert against(folder, "new.csv", "--keep", keep).code == 0
    kept = pq.read_table(keep)
    assert kept.column_names == ["age", "town", "debt", "label"]
    assert kept.num_rows == 300
    asked = ["--target", "label", "--id", "name", "--reference", keep]
    assert cellworth("check", folder / "bad.csv", *asked).code == 1
    fine("check", write(folder / "later.csv", seed=5), *asked)


@pytest.mark.slow
def test_an_audit_lists_differences_first(folder):
    asked = ["--target", "label", "--id", "name", "--reference", folder / "old.csv", "--quick"]
    document = json.loads(fine("audit", folder / "bad.csv", *asked, "--json"))
    kinds = [one["kind"] for one in document["findings"]]
    assert kinds[0] == "new content"
    assert kinds[-1] == "missing mark"
