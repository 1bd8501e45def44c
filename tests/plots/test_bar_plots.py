from decimal import Decimal
from unittest.mock import Mock

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba

from cellworth import plots
from cellworth.findings.explain import Explanation
from cellworth.payouts.payout import Payout
from cellworth.plots.figure_style import NEGATIVE, POSITIVE
from cellworth.sampling.moments import WIDTH_95
from cellworth.valuation.values import ValueList
from drawing import assert_readable, tick_names, valuation_of

MINUS = "\N{MINUS SIGN}"


def explanation_of(values, *, errors=np.nan, validation=None, error=np.nan, **changed):
    values = np.asarray(values, dtype=float)
    n = len(values)
    parts = ValueList(
        {"column": np.array([f"x{j}" for j in range(n)], dtype=object)},
        values,
        np.broadcast_to(errors, n).astype(float),
        np.ones(n, dtype=int),
        None,
        None if validation is None else np.broadcast_to(validation, n).astype(float),
    )
    given = {"label": 7, "side": "row", "value": values.sum(), "sampling_se": error}
    given |= {"validation_se": None, "cells": None, "parts": parts}
    return Mock(spec=Explanation, **(given | changed))


def bars(ax):
    """Start, end and color of each bar, from the top."""
    patches = sorted(ax.patches, key=lambda patch: patch.get_y())
    return [(p.get_x(), p.get_x() + p.get_width(), p.get_facecolor()) for p in patches]


def beside(ax):
    return [text.get_text() for text in ax.texts]


def whiskers(ax):
    """Ends of all whiskers, by line."""
    ends = {}
    for collection in ax.collections:
        if isinstance(collection, LineCollection):
            for (x0, y0), (x1, y1) in collection.get_segments():
                if y0 == y1:
                    ends[round(y0)] = (x0, x1)
    return ends


VALUES = [0.1, -0.5, 0.3, 0.02]


def test_bars_lead_from_zero_to_the_whole_the_largest_first():
    ax = plots.waterfall(explanation_of(VALUES))
    starts_and_ends = [(0, -0.5), (-0.5, -0.2), (-0.2, -0.1), (-0.1, -0.08), (0, -0.08)]
    np.testing.assert_allclose([bar[:2] for bar in bars(ax)], starts_and_ends, atol=1e-12)
    assert tick_names(ax.yaxis) == ["x1", "x2", "x0", "x3", "row 7"]
    assert_readable(ax)
    signs = [NEGATIVE, POSITIVE, POSITIVE, POSITIVE, NEGATIVE]
    assert [bar[2] for bar in bars(ax)] == [to_rgba(color) for color in signs]
    assert beside(ax) == [f"{MINUS}0.500", "+0.300", "+0.100", "+0.020", f"{MINUS}0.080"]


def test_what_has_no_bar_of_its_own_is_pooled_without_a_whisker():
    values = np.append(np.arange(20.0, 0, -1), -0.5)
    ax = plots.waterfall(explanation_of(values, errors=0.1), max_bars=5)
    assert set(whiskers(ax)) == {0, 1, 2, 3}
    assert tick_names(ax.yaxis) == ["x0", "x1", "x2", "x3", "other 17", "row 7"]
    start, end, _ = bars(ax)[4]
    assert end - start == pytest.approx(values[4:].sum())
    assert bars(ax)[5][1] == pytest.approx(values.sum())


def test_whiskers_are_95_percent_intervals_of_what_is_known():
    given = explanation_of([3.0, 2.0, -1.0], errors=[0.1, np.nan, 0.0], error=0.2)
    seen = whiskers(plots.waterfall(given))
    assert set(seen) == {0, 3}
    assert seen[0] == pytest.approx((3.0 - 0.1 * WIDTH_95, 3.0 + 0.1 * WIDTH_95))
    assert seen[3] == pytest.approx((4.0 - 0.2 * WIDTH_95, 4.0 + 0.2 * WIDTH_95))


def test_unvisited_cells_are_counted_and_left_out():
    ax = plots.waterfall(explanation_of([1.0, np.nan, np.nan], value=np.nan))
    assert tick_names(ax.yaxis) == ["x0", "row 7"]
    assert "2 cells were not sampled" in ax.get_xlabel()
    assert beside(ax) == ["+1.00", "unknown"]


@pytest.mark.parametrize(
    "values",
    [[0.0, 0.0], [-1e-9, -2e-9], np.arange(300.0)],
    ids=["0", "tiny", "many"],
)
def test_odd_explanations_are_drawn(values):
    assert_readable(plots.waterfall(explanation_of(values)))


# Owners -------------------------------------------------------------------------------------


def payout_of(**changed):
    given = {
        "owners": ["North", "South", "Loss"],
        "values": np.array([0.1, 0.3, -0.05]),
        "intervals": np.array([[0.05, 0.2], [0.25, 0.33], [-0.09, -0.01]]),
        "amounts": [Decimal("1250.00"), Decimal("3750.00"), Decimal("-12.50")],
        "shares": [0.25, 0.75, -0.0025],
        "currency": "EUR",
        "undecided": [("South", "North")],
    }
    return Mock(spec=Payout, **(given | changed))


def test_owners_stand_by_falling_value_with_their_intervals_and_amounts():
    ax = plots.owners(payout_of())
    assert tick_names(ax.yaxis) == ["South", "North", "Loss"]
    np.testing.assert_allclose([bar[:2] for bar in bars(ax)], [(0, 0.3), (0, 0.1), (0, -0.05)])
    assert whiskers(ax) == {
        0: pytest.approx((0.25, 0.33)),
        1: pytest.approx((0.05, 0.2)),
        2: pytest.approx((-0.09, -0.01)),
    }
    assert beside(ax) == [
        "3,750.00 EUR (75.0%)",
        "1,250.00 EUR (25.0%)",
        f"{MINUS}12.50 EUR ({MINUS}0.2%)",
    ]
    assert_readable(ax)


def test_the_axis_says_how_many_pairs_of_owners_are_undecided():
    label = plots.owners(payout_of()).get_xlabel()
    assert "the order of 1 of 3 pairs is undecided" in label
    assert "undecided" not in plots.owners(payout_of(undecided=[])).get_xlabel()


def test_intervals_that_are_not_known_are_left_out():
    assert whiskers(plots.owners(payout_of(intervals=np.full((3, 2), np.nan)))) == {}


@pytest.mark.parametrize(
    ("draw", "given", "settings", "message"),
    [
        (plots.waterfall, [3.0], {}, r"must be of type Explanation, got \[3.0\]; give what"),
        (plots.owners, {"a": 3}, {}, "payout must be of type Payout"),
        (plots.bar, [3.0], {}, "listing must be of type ValueList"),
        (plots.waterfall, explanation_of(VALUES), {"max_bars": 0}, r"max_bars .*\b0\b"),
        (plots.waterfall, explanation_of(VALUES), {"ax": "left"}, "ax must be matplotlib axes, or"),
    ],
)
def test_wrong_inputs_get_one_sentence(draw, given, settings, message):
    with pytest.raises((TypeError, ValueError), match=message):
        draw(given, **settings)
    assert pyplot.get_fignums() == []


# Lists of values, and two valuations ----------------------------------------------------------


def test_bar_draws_a_list_with_intervals_from_both_errors():
    listing = valuation_of([[3.0, -1.0, 2.0]], errors=0.3, validation=0.4).highest(3)
    ax = plots.bar(listing)
    assert [end for _, end, _ in bars(ax)] == [3.0, 2.0, -1.0]
    assert tick_names(ax.yaxis) == ["0, x0", "0, x2", "0, x1"]
    error = np.hypot(listing.sampling_se, listing.validation_se)[0]
    assert whiskers(ax)[0] == pytest.approx((3.0 - WIDTH_95 * error, 3.0 + WIDTH_95 * error))
    assert_readable(ax)


def test_bar_shows_the_largest_of_many_and_says_how_many_are_left_out():
    ax = plots.bar(valuation_of(np.diag(np.arange(-10.0, 20.0))).columns(), max_bars=3)
    assert [end for _, end, _ in bars(ax)] == [19.0, 18.0, 17.0]
    assert "27 more are smaller" in ax.get_xlabel()


def test_compare_draws_the_largest_change_on_top():
    before = valuation_of([[1.0, 2.0, 5.0]], columns=["a", "b", "old"])
    after = valuation_of([[1.5, -1.0, 0.5]], columns=["a", "b", "new"])
    ax = plots.compare(before, after, labels=("May", "June"))
    assert tick_names(ax.yaxis) == ["old", "b", "a", "new"]
    assert beside(ax) == ["only May", f"{MINUS}3.00", "+0.50", "only June"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["May", "June"]
    assert_readable(ax)


def test_waterfall_says_what_cells_hold():
    ax = plots.waterfall(explanation_of([0.1, -0.5], cells=(39, None)))
    assert tick_names(ax.yaxis) == ["x1 = missing", "x0 = 39", "row 7"]
