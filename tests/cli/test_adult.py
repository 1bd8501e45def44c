"""A census table from its file to money and back, by commands alone."""

import gzip
import json
from pathlib import Path

import pytest

from shell import started

DATA = Path(__file__).parents[2].parent / "shared" / "data"
OWNERS = """
[[owners]]
name = "registry"
columns = ["age", "race", "sex", "native_country", "marital_status", "relationship", "fnlwgt"]

[[owners]]
name = "school"
columns = ["education", "education_num"]

[[owners]]
name = "employer"
columns = ["workclass", "occupation", "hours_per_week", "capital_gain", "capital_loss"]
"""


def command(folder, *arguments, code=0):
    process = started(*arguments, cwd=folder)
    out, err = process.communicate(timeout=600)
    assert process.returncode == code, err
    assert "Traceback" not in err
    return json.loads(out)


def some_lines(name, n):
    """The header and the first rows of a file."""
    with gzip.open(DATA / name, "rt") as file:
        return "".join(line for _, line in zip(range(n + 1), file, strict=False))


# The recorded session in the documentation goes the same way each time.
@pytest.mark.nightly
@pytest.mark.skipif(not (DATA / "adult_train.csv.gz").exists(), reason="needs shared/data")
def test_adult_from_a_file_to_money_and_back(tmp_path):
    (tmp_path / "owners.toml").write_text(OWNERS)
    (tmp_path / "val.csv").write_text(some_lines("adult_test.csv.gz", 40))
    asked = [DATA / "adult_train.csv.gz", "--target", "income", "--val", "val.csv", "-k", 10,
             "--stop", "passes=2", "--json"]  # fmt: skip
    draft = command(tmp_path, "draft", *asked, "--owners", "owners.toml", "-o", "deal.toml")
    assert draft["owners"] == ["registry", "school", "employer"]
    value = command(tmp_path, "value", *asked, "--agreement", "deal.toml", "-o", "values")
    assert value["shape"] == [32561, 14]
    assert value["total"] == pytest.approx(value["expected_total"])
    report = command(tmp_path, "report", "values", "--no-cells", "-o", "report.html", "--json")
    assert (tmp_path / report["output"]).stat().st_size == report["bytes"]
    payout = command(tmp_path, "split", "values", "--agreement", "deal.toml", "--amount",
                     "100000.00", "-o", "bundle", "--json")  # fmt: skip
    assert [line["owner"] for line in payout["owners"]] == draft["owners"]
    verdict = command(tmp_path, "verify", "bundle", "--digest", payout["digest"],
                      "--values", "values", "--json")  # fmt: skip
    assert verdict["checked"] == ["files", "split", "agreement", "data", "values"]
    check = ["check", "values", "--json", "--min-total"]
    assert command(tmp_path, *check, "-9")["passed"] is True
    assert command(tmp_path, *check, "9", code=1)["passed"] is False
