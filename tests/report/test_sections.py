"""round_line: figures of a round, small enough to keep."""

import json

import numpy as np
import pytest

from cellworth import Runtime, report, value_game
from cellworth.games import TableGame
from cellworth.runtime import MaxTasks, Progress

GAME = TableGame(np.random.default_rng(3).normal(size=(8, 8)))


@pytest.fixture(scope="module")
def run():
    history = []
    stop = MaxTasks(64)
    valuation = value_game(
        GAME, (3, 3), stop=stop, random_state=0, runtime=Runtime(on_round=history.append)
    )
    return valuation, history


def test_a_line_says_what_the_valuation_says_in_the_end(run):
    valuation, history = run
    line = report.round_line(history[-1])
    squares = history[-1].moments.sampling_se[:-1, :-1] ** 2
    assert line["tasks"] == 64
    assert line["error"] == pytest.approx(np.sqrt(squares.mean()))
    assert line["total"] == pytest.approx(valuation.total)


def test_a_line_can_be_written_as_json_at_any_time(run):
    for progress in [Progress(0, 0.0, None), *run[1]]:
        line = report.round_line(progress)
        assert json.loads(json.dumps(line, allow_nan=False)) == line


def test_nothing_is_known_before_the_first_task():
    line = report.round_line(Progress(0, 0.5, None))
    assert line == {"tasks": 0, "seconds": 0.5, "error": None, "total": None}


def test_other_rounds_are_rejected(run):
    valuation, history = run
    with pytest.raises(TypeError, match=r"collect what round_line returns"):
        report.summarize(valuation, None, rounds=history)
