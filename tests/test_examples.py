"""The examples run as they stand, and leave what they say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# The site's build runs the examples each time; these tests look closer.
ROOT = Path(__file__).parents[1]
NO_SCREEN = os.environ | {"MPLBACKEND": "Agg"}
INSTITUTIONS = ROOT / "examples" / "plot_institutions.py"


def test_from_the_table_to_a_saved_bundle_takes_fewer_than_25_lines():
    code = INSTITUTIONS.read_text()
    steps = code[code.index("# From the table") : code.index("# The payout")].splitlines()
    assert sum(bool(line.strip()) and not line.startswith("#") for line in steps) < 25


@pytest.mark.nightly
def test_four_institutions_share_what_a_table_earns(tmp_path):
    done = subprocess.run(  # noqa: S603 (this interpreter, our own example)
        [sys.executable, INSTITUTIONS],
        cwd=tmp_path, env=NO_SCREEN, capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert lines[0] == "Payout of 100,000.00 EUR to 4 owners; negative: signed"
    assert lines[-1] == "yes: files, split, agreement, data, values agree"
    amounts = [line.split()[-4].replace(",", "") for line in lines[2:6]]
    assert sum(round(float(amount) * 100) for amount in amounts) == 10_000_000


GALLERY = sorted(path for path in ROOT.glob("examples/plot_*.py") if path != INSTITUTIONS)


@pytest.mark.nightly
@pytest.mark.parametrize("example", GALLERY, ids=lambda path: path.stem)
def test_an_example_of_the_gallery_runs_without_warnings(example, tmp_path):
    if "lightgbm" in example.read_text():
        pytest.importorskip("lightgbm")
    done = subprocess.run(  # noqa: S603 (this interpreter, our own example)
        [sys.executable, "-W", "error", example],
        cwd=tmp_path, env=NO_SCREEN, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout
