"""Measure what packages take on disk, with all that they need.

    python -m experiments installed_sizes

Each is installed by ``pip install --no-compile --target`` into an empty folder, whose blocks are
added up as ``du`` does. "." is this checkout.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from experiments.frame import ROOT, Tables, log

QUICK = {"packages": ("threadpoolctl",)}
PACKAGES = (".", ".[all]", "pyDVL==0.10.0", "cleanlab==2.9.0")
_BLOCK = 512


def run(packages: tuple[str, ...] = PACKAGES) -> Tables:
    """Return megabytes of each package."""
    return {"megabytes": [{"package": each, "MB": measure(each)} for each in packages]}


def measure(package: str) -> int:
    """Install a package into a temporary folder and return its megabytes there."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--target", folder]
        # The packages are those above, or given on the command line.
        subprocess.run([*command, package], cwd=ROOT, check=True, capture_output=True)  # noqa: S603
        taken = sum(path.lstat().st_blocks for path in Path(folder).rglob("*")) * _BLOCK
    log(package, taken)
    return round(taken / 2**20)
