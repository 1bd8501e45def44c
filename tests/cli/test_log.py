"""The log of the command line: text or JSON lines on stderr, and progress without a terminal."""

import json
import logging

import pytest

from cellworth.knn import kernels
from cellworth.runtime import progress
from shell import TABLE, cellworth


@pytest.fixture
def value(tmp_path, monkeypatch):
    """Value a table of a few lines, with more options; what was printed."""
    # Whether kernels are compiled depends on the tests before.
    monkeypatch.setattr(kernels._listener, "_announced", True)
    (tmp_path / "t.csv").write_text(TABLE.replace("p0,20", "p0,2O"))
    asked = [tmp_path / "t.csv", "--target", "label", "--id", "name"]
    return lambda *more: cellworth(*more, "value", *asked, "-o", tmp_path / "values", "--force")


def test_json_lines_tell_the_whole_run(value):
    done = value("--log-format", "json")
    lines = [json.loads(line) for line in done.err.splitlines()]
    assert [line["event"] for line in lines] == ["warning", "start", "end", "note"]
    assert [line["level"] for line in lines] == ["warning", "info", "info", "info"]
    warning, start, end, note = lines
    assert "numbers stored as text" in warning["message"]
    assert start["executor"].startswith("Threads(")
    assert end["done"] == 1.0
    assert note["message"].endswith("values.")
    assert all(line["time"].endswith("+00:00") for line in lines)


def test_an_error_is_a_json_line_too(tmp_path):
    done = cellworth("--log-format", "json", "value", tmp_path / "no.csv", "--target", "label")
    (line,) = map(json.loads, done.err.splitlines())
    assert (done.code, line["exit_code"], line["event"]) == (2, 2, "error")
    assert "no.csv" in line["message"]


def test_the_log_is_as_before_after_a_command(value):
    value("--log-format", "json")
    logger = logging.getLogger("cellworth")
    assert logger.level == logging.NOTSET
    assert all(isinstance(handler, logging.NullHandler) for handler in logger.handlers)


def test_the_environment_may_choose_the_format(value, monkeypatch):
    monkeypatch.setenv("CELLWORTH_LOG_FORMAT", "json")
    assert json.loads(value().err.splitlines()[-1])["event"] == "note"


@pytest.mark.parametrize(("options", "shown"), [([], True), (["--log-format", "json"], False)])
def test_without_a_terminal_progress_is_a_line(value, monkeypatch, options, shown):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0005)
    err = value(*options).err
    assert ("\nExhaustiveSampler: 0% done after" in err) == shown
    assert ('"event": "progress"' in err) != shown
    assert "|" not in err
