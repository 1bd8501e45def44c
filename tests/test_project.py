"""Files about the project agree with pyproject.toml, and with each other."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import lint

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SOURCE, DOCUMENTATION = PROJECT["urls"]["Source"], PROJECT["urls"]["Documentation"]
FOLDERS = ("docs", "examples", "src", ".github", "conda")
SUFFIXES = {".md", ".rst", ".py", ".yml", ".yaml", ".cff", ".j2", ".toml", ""}


def texts():
    """Every text file of the project that may hold an address."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    for path in sorted([*ROOT.iterdir(), *found]):
        if path.is_file() and path.suffix in SUFFIXES and "_build" not in path.parts:
            yield path, path.read_text(encoding="utf-8")


def test_all_files_name_the_addresses_of_pyproject():
    address = re.compile(r"https://(?:github\.com/[\w.-]+|[\w-]+\.github\.io)/cellworth\b")
    known = {SOURCE, DOCUMENTATION.rstrip("/")}
    found = {(path.name, link) for path, text in texts() for link in address.findall(text)}
    assert {link for _, link in found} == known
    assert {name for name, _ in found} >= {"pyproject.toml", "README.md", "CITATION.cff"}


def test_addresses_of_files_and_pages_lead_to_what_is_there():
    found = {
        (path, link.rstrip(".,"))
        for path, text in texts()
        for start in (SOURCE, DOCUMENTATION)
        for link in re.findall(re.escape(start) + r"[^\s\"'`)>]*", text)
    }
    assert [said for path, link in found for said in lint.check_link(path, link)] == []


def test_the_citation_has_the_version_and_the_addresses():
    cited = dict(
        line.split(": ", 1)
        for line in (ROOT / "CITATION.cff").read_text().splitlines()
        if re.match(r"[\w-]+: ", line)
    )
    assert cited["version"] == PROJECT["version"]
    assert cited["repository-code"] == SOURCE
    assert cited["url"] == DOCUMENTATION
    assert cited["license"] == PROJECT["license"]


def test_the_conda_recipe_needs_what_the_wheel_needs():
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())
    assert recipe["context"]["version"] == PROJECT["version"]
    assert PROJECT["requires-python"] == f">={recipe['context']['python_min']}"
    python, *others = recipe["requirements"]["run"]
    assert python.startswith("python ")
    assert [other.replace(" ", "") for other in others] == PROJECT["dependencies"]
    command = [f"{name} = {path}" for name, path in PROJECT["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == command


def test_every_supported_python_is_tested_on_three_systems():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())["jobs"]
    matrix = jobs["quick"]["strategy"]["matrix"]
    stated = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert set(stated) <= set(matrix["python"])
    assert {system.split("-")[0] for system in matrix["system"]} == {"ubuntu", "macos", "windows"}


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_action_stops_at_a_table_with_missing_codes_and_says_why(tmp_path):
    rows = [f"{0.01 * row:.2f},{'no' if row < 40 else 'yes'}" for row in range(80)]
    rows[3], rows[50], rows[70] = ("999,no", "999,yes", "999,yes")
    table = tmp_path / "a table.csv"
    table.write_text("\n".join(["size,sold", *rows]) + "\n")
    steps = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
    summary, output = tmp_path / "summary", tmp_path / "output"
    path = str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"]
    inputs = {
        "TABLE": str(table),
        "TARGET": "",
        "REFERENCE": "",
        "OPTIONS": "--max\nmissing code=0%\n--quick\n",
        "GITHUB_STEP_SUMMARY": str(summary),
        "GITHUB_OUTPUT": str(output),
    }
    done = subprocess.run(  # noqa: S603 (our own script)
        ["bash", "-eo", "pipefail", "-c", steps[-1]["run"]],  # noqa: S607 (the one of the runner)
        env={**os.environ, "PATH": path, "TMPDIR": str(tmp_path), **inputs},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "missing code" in summary.read_text()
    assert Path(output.read_text().strip().removeprefix("verdict=")).is_file()


def test_each_promise_of_security_names_tests_that_there_are():
    promises = (ROOT / "SECURITY.md").read_text(encoding="utf-8").split("## What it does not")[0]
    sections = promises.split("\n- **")[1:]
    assert len(sections) == 8
    for section in sections:
        named = re.findall(r"`(tests/\S+\.py)::(test_\w+)`", section)
        assert named, section
        for file, name in named:
            assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")
