"""Drawings: bars on one scale."""

import sys

import pytest

from cellworth.report import page
from cellworth.report.page import draw_column_bars, draw_score_bar


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


def test_without_jinja2_a_sentence_says_what_to_install(monkeypatch):
    page._make_environment.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"pip install 'cellworth\[report\]'"):
        page._make_environment()
    page._make_environment.cache_clear()
