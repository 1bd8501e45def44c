from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cellworth.knn.exact import chance_of_right_vote


def enumerate_votes(surely, tied, positions, right):
    """Return the mean over all choices of tied rows, and over classes with equally many votes."""
    rows = np.repeat(np.arange(len(tied)), tied)
    chances = []
    for drawn in combinations(rows, positions):
        votes = np.array(surely) + np.bincount(np.array(drawn, int), minlength=len(surely))
        best = votes == votes.max()
        chances.append(best[right] / best.sum())
    return np.mean(chances)


def chance(surely, tied, positions, right):
    counts = (np.array(each, dtype=np.int64) for each in (surely, tied))
    return chance_of_right_vote(*counts, positions, right)


@st.composite
def votes(draw):
    n_classes = draw(st.integers(2, 5))
    surely, tied = (
        draw(st.lists(st.integers(0, 3), min_size=n_classes, max_size=n_classes)) for _ in "ab"
    )
    tied[0] += 1
    return (
        surely,
        tied,
        draw(st.integers(1, min(sum(tied), 5))),
        draw(st.integers(0, n_classes - 1)),
    )


@given(votes())
@settings(max_examples=150, deadline=None)
def test_the_chance_of_a_correct_vote_is_the_mean_over_all_orders_of_tied_rows(given):
    assert chance(*given) == pytest.approx(enumerate_votes(*given), abs=1e-12)


def test_classes_with_equally_many_votes_win_equally_often():
    assert chance([2, 2, 1], [0, 0, 0], 0, 0) == 0.5
    assert chance([0, 0, 0], [4, 4, 4], 1, 2) == pytest.approx(1 / 3)


def test_many_tied_rows_and_many_votes_work():
    assert chance([0, 0], [10**6, 10**6], 2001, 0) == pytest.approx(0.5, abs=1e-9)
    assert chance([0, 0, 0], [10**6, 10, 10], 900, 0) == pytest.approx(1.0)
    assert sum(chance([3, 1, 0], [50, 60, 70], 40, right) for right in range(3)) == pytest.approx(1)
