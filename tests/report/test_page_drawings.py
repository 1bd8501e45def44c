"""Drawings: bars on one scale, errors on two logarithmic ones."""

import sys

import numpy as np
import pytest

from cellworth import Runtime, report, value_game
from cellworth.games import TableGame
from cellworth.report import page
from cellworth.report.page import draw_column_bars, draw_error_curve, draw_score_bar
from cellworth.runtime import MaxTasks


def test_bars_share_a_scale_that_holds_zero_and_all_whiskers():
    columns = [{"value": 3.0, "error": None}, {"value": -1.0, "error": 0.0}]
    first, second = draw_column_bars(columns)
    assert first == {"zero": 250.0, "start": 250.0, "width": 750.0, "low": None, "high": None}
    assert (second["start"], second["width"]) == (0.0, 250.0)
    (alone,) = draw_column_bars([{"value": 1.0, "error": 1.0}])
    assert (alone["low"], alone["high"]) == (0.0, 1000.0)


def test_a_column_without_value_has_no_bar():
    known, unknown = draw_column_bars(
        [{"value": 2.0, "error": None}, {"value": None, "error": None}]
    )
    assert (known["width"], unknown["width"]) == (1000.0, 0.0)


def test_a_score_is_cut_only_where_its_parts_add_up_to_it():
    assert draw_score_bar({"score": 0.8, "baseline": 0.2}) == {"baseline": 250.0, "width": 1000.0}
    assert draw_score_bar({"score": 0.8, "baseline": None}) is None
    assert draw_score_bar({"score": -0.5, "baseline": -1.0}) is None


def test_errors_that_fall_with_the_square_root_are_a_straight_line():
    rounds = [{"tasks": 10**k, "error": 10 ** (-k / 2)} for k in range(3)]
    curve = draw_error_curve([{"tasks": 0, "error": None}, *rounds])
    assert curve["points"] == [(0.0, 0.0), (500.0, 150.0), (1000.0, 300.0)]
    assert curve["last"] == {"tasks": 100, "error": 0.1}


def test_fewer_than_two_errors_are_no_curve():
    assert draw_error_curve([{"tasks": 5, "error": 0.1}]) is None


def test_a_run_with_rounds_shows_how_it_converged():
    rounds = []
    valuation = value_game(
        TableGame(np.random.default_rng(0).normal(size=(8, 8))),
        (3, 3),
        stop=MaxTasks(256),
        random_state=0,
        runtime=Runtime(on_round=lambda progress: rounds.append(report.round_line(progress))),
    )
    page = report.render(report.summarize(valuation, None, rounds=rounds))
    assert page.count("<circle") == len(rounds) >= 2
    assert "was not recorded" not in page


def test_without_jinja2_a_sentence_says_what_to_install(monkeypatch):
    page._make_environment.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"pip install 'cellworth\[report\]'"):
        page._make_environment()
    page._make_environment.cache_clear()
