"""Drawings: bars on one scale."""

from cellworth.report.page import draw_column_bars


def test_bars_share_a_scale_that_holds_zero_and_all_whiskers():
    columns = [{"value": 3.0, "error": None}, {"value": -1.0, "error": 0.0}]
    first, second = draw_column_bars(columns)
    assert first == {"zero": 250.0, "start": 250.0, "width": 750.0, "low": None, "high": None}
    assert (second["start"], second["width"]) == (0.0, 250.0)
    (alone,) = draw_column_bars([{"value": 1.0, "error": 1.0}])
    assert (alone["low"], alone["high"]) == (0.0, 1000.0)
