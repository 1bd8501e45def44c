"""What a run tells: lines in the log with fields, and on stderr where there is no terminal."""

import json
import logging
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import toy_shards
from cellworth.runtime import DirectoryCheckpoint, MaxTasks, Serial, Threads
from cellworth.runtime import progress as reporting
from cellworth.runtime.engine import TaskPlanner, run
from cellworth.runtime.forecast import Forecast
from cellworth.runtime.progress import ProgressReporter
from cellworth.runtime.workers import FuturePool, LostAnswer
from cellworth.sampling import Moments
from cellworth.sampling.moments import Contribution, Tally, append_margins
from toy_shards import Toy

N_SHARDS = 4


def noise(task):
    seen = np.random.default_rng(task).normal(size=(2, 2))
    return Contribution(Moments.of(append_margins(seen)), Tally(1))


def slow(task):
    time.sleep(0.3 if task == 0 else 0.0)
    return noise(task)


def start(n_tasks, work=noise, **settings):
    return run(
        work,
        stop=MaxTasks(n_tasks),
        planner=TaskPlanner(Contribution),
        executor=settings.pop("executor", Serial()),
        identity={"name": "this run"},
        tasks_per_round=8,
        title="values",
        **settings,
    )


@pytest.fixture
def lines(caplog):
    """Records of the log that have an event, as a list of dictionaries."""
    caplog.set_level("INFO", logger="cellworth")
    return lambda: [vars(record) for record in caplog.records if hasattr(record, "event")]


def events(found):
    return [line["event"] for line in found]


def test_a_run_tells_its_start_its_checkpoint_and_its_end(lines, tmp_path):
    outcome = start(20, executor=Threads(2), checkpoint=DirectoryCheckpoint(tmp_path))
    begin, written, end = lines()
    assert events([begin, written, end]) == ["start", "checkpoint", "end"]
    assert begin["title"] == end["title"] == "values"
    assert begin["executor"] == "Threads(n_workers=2)"
    assert begin["stop"] == "MaxTasks(n_tasks=20)"
    assert str(tmp_path) in begin["checkpoint"]
    assert written["tasks"] == 8
    assert (end["tasks"], end["done"]) == (20, 1.0)
    moments = outcome.contribution.moments
    assert end["error"] == reporting.Progress(20, 0.0, outcome.contribution).largest_standard_error
    assert end["error"] >= moments.sampling_se[:-1, :-1].max()


def test_a_resumed_run_tells_how_much_was_found(lines, tmp_path):
    start(8, checkpoint=DirectoryCheckpoint(tmp_path))
    start(32, checkpoint=DirectoryCheckpoint(tmp_path))
    (found,) = [line for line in lines() if line["event"] == "resume"]
    assert (found["tasks"], found["done"]) == (8, 0.25)
    assert found["message"] == "values: resumed after 8 tasks (25%)"


def test_rounds_over_shards_tell_the_same(lines, tmp_path):
    for n_rounds in (2, 4):
        toy_shards.run(Toy(N_SHARDS), n_rounds, Serial(), tmp_path, tmp_path / "run")
    # A slow disk may make it long enough for a line in between.
    told = [line for line in lines() if line["event"] != "progress"]
    assert events(told) == [
        *("start", "checkpoint", "end"),
        *("start", "resume", "checkpoint", "end"),
    ]
    assert [line["done"] for line in told if line["event"] in ("end", "resume")] == [1, 0.25, 1]
    # Two rounds were counted, and are added up again.
    assert told[4]["message"].endswith("resumed after 1 of 4 rounds (25%)")
    assert told[-1]["tasks"] == 2 * 4 * N_SHARDS


def test_a_run_that_fails_says_why(lines):
    def broken(task):
        raise ZeroDivisionError("nothing to divide by")

    with pytest.raises(ZeroDivisionError):
        start(8, broken)
    end = lines()[-1]
    assert end["event"] == "failed"
    assert end["reason"] == "ZeroDivisionError: nothing to divide by"


def test_lines_come_while_the_first_task_takes_long(lines, monkeypatch):
    monkeypatch.setattr(reporting, "_SECONDS_BETWEEN_LINES", 0.05)
    start(8, slow, executor=Threads(1))
    told = [line for line in lines() if line["event"] == "progress"]
    assert len(told) >= 2
    assert (told[0]["done"], told[0]["seconds_left"]) == (0.0, None)
    assert told[1]["seconds"] > told[0]["seconds"] > 0


@pytest.mark.parametrize(("shown", "listens"), [(True, False), (True, True), (False, False)])
def test_without_a_terminal_lines_go_to_the_log_or_to_stderr(shown, listens, capfd, monkeypatch):
    monkeypatch.setattr(reporting, "_SECONDS_BETWEEN_LINES", 0.05)
    logger, handler = logging.getLogger("cellworth"), logging.StreamHandler(sys.stdout)
    if listens:
        monkeypatch.setattr(logger, "level", logging.INFO)
        logger.addHandler(handler)
    logger.manager._clear_cache()
    try:
        start(8, slow, show_progress=shown)
    finally:
        logger.removeHandler(handler)
        monkeypatch.undo()
        logger.manager._clear_cache()
    out, err = capfd.readouterr()
    assert ("values: 0% done after" in out) == listens
    assert ("values: 0% done after" in err) == (shown and not listens)
    assert "|" not in err


def test_a_lost_worker_is_told(lines):
    answers = iter([LostAnswer(None), "found"])
    with ThreadPoolExecutor(1) as threads:
        pool = FuturePool(
            lambda requests: [(number, threads.submit(str, number)) for number in requests],
            lambda request, future: next(answers),
            lambda: 1,
        )
        pool.submit({3: "request"})
        while not (found := pool.wait_for_answers(1.0)):
            pass
    assert found == [(3, "found")]
    (line,) = lines()
    assert (line["event"], line["requests"], line["levelname"]) == ("lost_worker", [3], "WARNING")


def test_the_time_left_follows_from_the_tasks_after_the_first(monkeypatch):
    clock = SimpleNamespace(now=0.0, perf_counter=lambda: clock.now, monotonic=lambda: clock.now)
    monkeypatch.setattr(reporting, "time", clock)
    before, found = reporting.Progress(50, 0.0, None), []
    with ProgressReporter("values", shown=True, n_tasks=100, before=before) as reporter:
        for clock.now in (4.0, 4.3, 6.0, 8.0):
            reporter.advance(10)
            found.append(reporter._snapshot.seconds_left)
    # Two workers begin at 0 and compile; what they did after their first tasks tells the rest.
    assert found == [None, None, pytest.approx(2 * 1.7), pytest.approx(0.5 * 3.7)]


def test_a_long_run_counts_down_from_its_forecast(lines):
    forecast = Forecast("values", (2, 2), 100, 120.0, n_cores=2, size="2 x 2 blocks")
    before = reporting.Progress(25, 0.0, None)
    told = ProgressReporter("values", shown=False, n_tasks=100, before=before, forecast=forecast)
    with told:
        assert 40.0 < told._take_snapshot().seconds_left <= 45.0
    first = lines()[1]
    assert first["event"] == "forecast"
    assert first["message"].endswith("at most 100 utilities, about 1 min on 2 cores")
    short = ProgressReporter(
        "values", shown=False, n_tasks=100, forecast=replace(forecast, core_seconds=2.0)
    )
    assert short._take_snapshot().seconds_left is None


def test_a_checkpoint_keeps_how_far_its_run_is(tmp_path, monkeypatch):
    monkeypatch.setattr(reporting, "_SECONDS_BETWEEN_LINES", 0.02)
    seen = []

    def look(task):
        time.sleep(0.1)
        seen.append(reporting.read_progress(tmp_path))
        return noise(task)

    start(4, look, executor=Threads(1), checkpoint=DirectoryCheckpoint(tmp_path))
    assert {entry["event"] for entry in seen} <= {"start", "progress"}
    assert 0 < max(entry["done"] for entry in seen) < 1
    last = reporting.read_progress(tmp_path)
    assert (last["event"], last["done"], last["count"]) == ("end", 1.0, "4 tasks")


def test_when_a_run_began_is_no_part_of_its_identity(tmp_path):
    start(8, checkpoint=DirectoryCheckpoint(tmp_path))
    manifest = tmp_path / "manifest.json"
    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**content, "created": "2020-01-01T00:00:00+00:00"}))
    assert start(16, checkpoint=DirectoryCheckpoint(tmp_path)).tasks == 16
    assert json.loads(manifest.read_text())["created"].startswith("2020")
