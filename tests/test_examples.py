"""The examples run as they stand, without warnings."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NO_SCREEN = os.environ | {"MPLBACKEND": "Agg"}


@pytest.mark.nightly
@pytest.mark.parametrize(
    "example", sorted(ROOT.glob("examples/plot_*.py")), ids=lambda path: path.stem
)
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
