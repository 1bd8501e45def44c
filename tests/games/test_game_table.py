import pickle

import numpy as np

from cellworth.games import FailedUtility, TableGame


def test_bits_of_the_index_name_the_members():
    game = TableGame(np.arange(32.0).reshape(8, 4))
    assert game.shape == (3, 2)
    assert game.value(np.array([True, False, True]), np.array([False, True])) == 0b101 * 4 + 0b10


def test_a_failed_utility_is_a_number_with_a_reason_that_travels():
    utility = pickle.loads(pickle.dumps(FailedUtility(0.25, "why")))  # noqa: S301 (our own bytes)
    assert utility + 1 == 1.25
    assert utility.message == "why"
