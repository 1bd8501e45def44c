"""detection_curve: what a ranking finds, against counting by hand."""

from itertools import permutations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.metrics import auc, average_precision_score, roc_auc_score

from cellworth import KNNValuer, value_game
from cellworth.data import Blocks
from cellworth.diagnostics import detection_curve
from cellworth.diagnostics.curves import Band


class Sum:
    """Every cell is worth what stands in it."""

    def __init__(self, cells):
        self.cells = np.asarray(cells, dtype=float)

    def value(self, rows, columns):
        return float(self.cells[np.ix_(rows, columns)].sum())


SCORES = np.array([[0.9, 0.1], [0.8, 0.7], [0.3, 0.2]])
WRONG = np.array([[True, False], [False, True], [True, False]])


def test_points_are_those_of_looking_at_one_cell_after_the_other():
    curve = detection_curve(SCORES, WRONG)
    np.testing.assert_allclose(curve.inspected * 6, range(7))
    np.testing.assert_allclose(curve.found * 3, [0, 1, 1, 2, 3, 3, 3])
    assert [curve.cells_to_find(n) for n in (1, 2, 3)] == [1, 3, 4]
    assert (curve.n_cells, curve.n_wrong) == (6, 3)


def test_ties_are_the_mean_over_all_their_orders():
    scores, wrong = [[3, 1, 1, 1, 0]], np.array([[True, True, False, False, True]])
    curve = detection_curve(scores, wrong)
    mean = np.mean(
        [np.cumsum(wrong[0][[0, *order, 4]]) for order in permutations((1, 2, 3))], axis=0
    )
    at = np.interp(np.arange(1, 6) / 5, curve.inspected, curve.found) * 3
    np.testing.assert_allclose(at, mean)


@pytest.mark.parametrize("wrong", [[1, 1, 0, 0, 1], [1, 1, 1, 0, 0], [0, 1, 1, 1, 0]])
def test_cells_to_find_among_ties_are_the_mean_over_all_their_orders(wrong):
    scores, wrong = [[3, 1, 1, 1, 0]], np.array(wrong, dtype=bool)
    curve = detection_curve(scores, wrong[None])
    orders = [wrong[[0, *order, 4]] for order in permutations((1, 2, 3))]
    for n in range(1, wrong.sum() + 1):
        mean = np.mean([np.flatnonzero(order)[n - 1] + 1 for order in orders])
        assert curve.cells_to_find(n) == np.ceil(mean)


def test_the_area_is_the_share_of_pairs_in_the_right_order():
    rng = np.random.default_rng(0)
    scores, wrong = rng.integers(6, size=(8, 5)), rng.random((8, 5)) < 0.3
    curve = detection_curve(scores, wrong)
    bad, good = scores[wrong][:, None], scores[~wrong]
    assert curve.area == pytest.approx(np.mean((bad > good) + 0.5 * (bad == good)))
    assert curve.area == pytest.approx(roc_auc_score(wrong.ravel(), scores.ravel()))
    expected = average_precision_score(wrong.ravel(), scores.ravel())
    assert curve.average_precision == pytest.approx(expected)


def test_the_area_follows_from_the_curve():
    rng = np.random.default_rng(1)
    curve = detection_curve(rng.normal(size=(20, 5)), rng.random((20, 5)) < 0.2)
    share = curve.n_wrong / curve.n_cells
    under = auc(curve.inspected, curve.found)
    assert curve.area == pytest.approx((under - share / 2) / (1 - share))


def test_low_values_are_suspicious_and_high_scores_are():
    valuation = value_game(Sum(-SCORES), (3, 2))
    by_value, by_score = detection_curve(valuation, WRONG), detection_curve(SCORES, WRONG)
    np.testing.assert_array_equal(by_value.found, by_score.found)
    other = detection_curve(SCORES, WRONG, order="lowest")
    assert other.area == pytest.approx(1 - by_score.area)
    assert detection_curve(valuation, WRONG, order="highest").area == other.area


def test_cells_of_a_group_take_the_value_of_their_block():
    blocks = Blocks.cut([1, 2, 3], ["a", "b"], row_groups=["x", "y", "x"])
    valuation = value_game(Sum([[0.0, 1.0], [2.0, 3.0]]), blocks)
    curve = detection_curve(valuation, WRONG)
    cells = [[0, 1], [2, 3], [0, 1]]
    assert curve.area == detection_curve(cells, WRONG, order="lowest").area


def test_cells_without_a_score_are_looked_at_last():
    unknown = SCORES.copy()
    unknown[0, 0] = np.nan
    for side, stand_in in (("highest", -1), ("lowest", 2)):
        known = SCORES.copy()
        known[0, 0] = stand_in
        one, other = (detection_curve(s, WRONG, order=side) for s in (unknown, known))
        assert one.area == other.area
        np.testing.assert_array_equal(one.found, other.found)


def test_infinite_scores_rank_like_any_other():
    endless = np.where(SCORES > 0.85, np.inf, SCORES)
    assert detection_curve(endless, WRONG).area == detection_curve(SCORES, WRONG).area


def test_random_orders_stay_within_their_band():
    rng = np.random.default_rng(2)
    wrong = rng.random((20, 10)) < 0.1
    curve = detection_curve(np.arange(200.0).reshape(20, 10), wrong)
    assert isinstance(curve.random_found, Band)
    drawn = np.array([np.cumsum(rng.permutation(wrong.ravel())) for _ in range(400)]) / wrong.sum()
    low, high = curve.random_found.low[1:], curve.random_found.high[1:]
    outside = ((drawn < low - 1e-9) | (drawn > high + 1e-9)).mean()
    assert 0.01 < outside < 0.06
    np.testing.assert_allclose(drawn.mean(axis=0), curve.random_found.mean[1:], atol=0.06)


def test_many_points_have_a_band_each():
    rng = np.random.default_rng(3)
    curve = detection_curve(rng.normal(size=(3000, 10)), rng.random((3000, 10)) < 0.01)
    assert len(curve.inspected) == len(curve.random_found.low) == 30_001
    assert (np.diff(curve.random_found.high) >= 0).all()


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, lambda d: pa.table(d)])
def test_masks_and_scores_come_in_any_library(library):
    named = [{name: array[:, j] for j, name in enumerate("ab")} for array in (SCORES, WRONG)]
    curve = detection_curve(*map(library, named))
    assert curve.area == detection_curve(SCORES, WRONG).area


@pytest.mark.parametrize(
    ("backend", "kind"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame), ("pyarrow", pa.Table)]
)
def test_points_come_as_a_frame(backend, kind):
    frame = detection_curve(SCORES, WRONG).to_frame(backend)
    assert isinstance(frame, kind)
    assert frame.shape == (7, 5)


def test_it_prints_what_was_found():
    text = repr(detection_curve(SCORES, WRONG))
    assert "3 wrong among 6 cells: area 0.778" in text
    assert "cells to inspect until half of them are found: 3" in text


@pytest.mark.parametrize(
    ("ranking", "wrong", "sentence"),
    [
        (
            SCORES,
            WRONG[:2],
            "wrong must have one entry per cell, shape \\(3, 2\\), got shape \\(2, 2\\)",
        ),
        (SCORES, np.zeros((3, 2), dtype=bool), "got False for every cell"),
        (SCORES, np.ones((3, 2), dtype=bool), "got True for every cell"),
        (SCORES[0], WRONG, "ranking must have two dimensions, got shape \\(2,\\)"),
        (np.full((3, 2), np.nan), WRONG, "ranking must have a score for some cell"),
    ],
)
def test_each_mistake_gets_one_sentence(ranking, wrong, sentence):
    with pytest.raises(ValueError, match=sentence):
        detection_curve(ranking, wrong)


def test_what_is_no_ranking_and_no_mask_is_rejected():
    with pytest.raises(TypeError, match="wrong must be True or False for every cell, got int64"):
        detection_curve(SCORES, WRONG.astype(int))
    with pytest.raises(TypeError, match="ranking must be a Valuation or an array of numbers"):
        detection_curve([["a", "b"]], [[True, False]])
    with pytest.raises(ValueError, match="order must be one of 'highest', 'lowest', got 'worst'"):
        detection_curve(SCORES, WRONG, order="worst")
    with pytest.raises(ValueError, match="n must be an integer from 1 to 3"):
        detection_curve(SCORES, WRONG).cells_to_find(4)


def shuffled(table):
    return table[["b", "a"]], table[::-1]


def test_frames_in_another_order_are_rejected():
    X = pd.DataFrame(SCORES, columns=["a", "b"], index=[5, 6, 7])
    wrong = pd.DataFrame(WRONG, columns=["a", "b"], index=[5, 6, 7])
    assert detection_curve(X, wrong).area == detection_curve(SCORES, WRONG).area
    for other in shuffled(wrong):
        with pytest.raises(ValueError, match=r"wrong must have the (columns|row ids) "):
            detection_curve(X, other)


@pytest.mark.parametrize("value_labels", [False, True])
def test_the_mask_of_a_valued_table_leaves_labels_out(value_labels):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(20, 2)), columns=["a", "b"])
    y = rng.integers(2, size=20)
    valuer = KNNValuer(3, random_state=0)
    given = {"X_val": X + 0.1, "y_val": y, "value_labels": value_labels}
    valuation = valuer.fit(X, y, **given).valuation_
    wrong = pd.DataFrame(rng.random((20, 2)) < 0.3, columns=["a", "b"])
    curve = detection_curve(valuation, wrong)
    expected = detection_curve(valuation.values[:, :2], wrong, order="lowest")
    assert curve.area == expected.area
    assert detection_curve(valuation, wrong.to_numpy()).area == expected.area
    for other in shuffled(wrong):
        with pytest.raises(ValueError, match=r"wrong must have the (columns|row ids) "):
            detection_curve(valuation, other)
    whole = rng.random(valuation.shape) < 0.3
    assert detection_curve(valuation, whole).n_cells == whole.size
