"""Measure what packages take on disk, with all that they need.

Each is installed by ``pip install --no-compile --target`` into an empty folder, whose blocks are
added up as ``du`` does. "." is this checkout, whose largest parts are in the second table.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.metadata import distributions
from pathlib import Path

from experiments.frame import ROOT, Tables, log

QUICK = {"packages": ("threadpoolctl",)}
PACKAGES = (".", ".[all]", ".[dask]", ".[ray]", "pyDVL==0.10.0", "cleanlab==2.9.0")
_BLOCK = 512
_N_PARTS = 7


def run(packages: tuple[str, ...] = PACKAGES) -> Tables:
    """Return megabytes of each package, and of the parts of the first."""
    found = {each: measure(each) for each in packages}
    parts = found[packages[0]]
    largest = sorted(parts, key=lambda name: -parts[name])[:_N_PARTS]
    return {
        "megabytes": [{"package": each, "MB": round(sum(found[each].values()))} for each in found],
        "parts": [{"package": name, "MB": round(parts[name])} for name in largest],
    }


def measure(package: str) -> dict[str, float]:
    """Install a package into a temporary folder; return the megabytes of each part there."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--target", folder]
        # The packages are those above, or given on the command line.
        subprocess.run([*command, package], cwd=ROOT, check=True, capture_output=True)  # noqa: S603
        sizes = {path: path.lstat().st_blocks * _BLOCK / 2**20 for path in Path(folder).rglob("*")}
        parts = {}
        for part in distributions(path=[folder]):
            files = {Path(folder, file) for file in part.files or ()}
            parts[part.name] = sum(sizes.pop(path) for path in files & sizes.keys())
    log(package, parts)
    # Folders, and files that no part names.
    return parts | {"other": sum(sizes.values())}
