import numpy as np
import pytest

from cellworth.knn.exact import score_vote


def score(surely, tied, positions, right):
    return score_vote(np.array(surely), np.array(tied), positions, right)


def test_the_class_with_most_votes_wins():
    assert [score([2, 3, 0], [0, 0, 0], 0, right) for right in range(3)] == [0, 1, 0]


def test_rows_that_tie_for_the_last_votes_share_them():
    # Two votes are left for three rows: 1 + 4/3 against 2 + 2/3.
    assert [score([1, 2], [2, 1], 2, right) for right in range(2)] == [0, 1]
    assert [score([2, 2], [2, 1], 2, right) for right in range(2)] == [1, 0]


def test_classes_with_equally_many_votes_share_the_win():
    assert score([2, 2, 1], [0, 0, 0], 0, 0) == 0.5
    assert score([0, 0, 0], [4, 4, 4], 1, 2) == pytest.approx(1 / 3)
    assert score([1, 0], [1, 2], 3, 0) == 0.5


def test_many_tied_rows_and_many_votes_work():
    assert score([0, 0], [10**8, 10**8], 10**4, 0) == 0.5
    assert score([0, 0, 0], [10**8, 10, 10], 10**4, 0) == 1.0
