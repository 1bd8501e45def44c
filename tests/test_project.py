"""Files about the project agree with pyproject.toml, and with each other."""

import json
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


def test_a_release_is_published_after_all_tests_and_an_installation_from_the_test_index():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]

    def before(name):
        needs = jobs[name].get("needs", [])
        needs = [needs] if isinstance(needs, str) else needs
        return {*needs, *(one for need in needs for one in before(need))}

    assert before("publish") == {"tests", "nightly", "build", "test-index", "stranger"}
    assert {"publish"} <= before("docs") & before("notes")
    index = jobs["test-index"]["steps"][-1]["with"]["repository-url"]
    assert index.startswith("https://test.pypi.org")
    for name in ("tests", "nightly", "docs"):
        called = yaml.safe_load((ROOT / jobs[name]["uses"]).read_text())
        # YAML 1.1 reads "on" as true.
        assert "workflow_call" in called[True]


def test_the_site_has_all_versions_and_at_its_address_the_newest_release(tmp_path):
    every = tmp_path / "every"
    every.mkdir()

    def publish(version):
        built = tmp_path / "built"
        shutil.rmtree(built, ignore_errors=True)
        built.mkdir()
        (built / "index.html").write_text(version)
        (built / f"only-in-{version}.html").touch()
        script = [sys.executable, ROOT / "docs" / "versions.py", built, every, version]
        subprocess.run(script, check=True)  # noqa: S603 (our own script)
        listed = json.loads((every / "versions.json").read_text())
        return (every / "index.html").read_text(), [one["version"] for one in listed]

    assert publish("dev") == ("dev", ["dev"])
    assert publish("v0.9.0") == ("v0.9.0", ["v0.9.0", "dev"])
    assert not (every / "only-in-dev.html").exists()
    assert publish("v0.10.0") == ("v0.10.0", ["v0.10.0", "v0.9.0", "dev"])
    assert publish("v0.9.1") == ("v0.10.0", ["v0.10.0", "v0.9.1", "v0.9.0", "dev"])
    assert publish("dev") == ("v0.10.0", ["v0.10.0", "v0.9.1", "v0.9.0", "dev"])
    assert (every / "v0.9.1" / "only-in-v0.9.1.html").exists()
    newest, *others = json.loads((every / "versions.json").read_text())
    assert newest["preferred"] is True
    assert not any("preferred" in one for one in others)
    assert newest["url"] == DOCUMENTATION + "v0.10.0/"


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
