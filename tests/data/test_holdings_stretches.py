import numpy as np
import pytest

from cellworth.data.holdings import Claim, Runs, find_stretches


def masks(n_rows=12, n_masks=40):
    rng = np.random.default_rng(3)
    return [rng.random(n_rows) < share for share in np.linspace(0, 1, n_masks)]


@pytest.mark.parametrize("mask", masks())
def test_stretches_are_where_a_mask_is_true(mask):
    found = find_stretches(np.flatnonzero(mask)[::-1])
    claim = Claim("ann", found, np.ones(1, dtype=bool))
    np.testing.assert_array_equal(claim.holds(np.arange(len(mask))), mask)
    assert (found[1:, 0] > found[:-1, 1]).all()


def test_runs_are_one_code_for_each_row():
    runs = Runs(np.array([2, 3, 7]), np.array([5, 1, 5], dtype=np.int32))
    plain = np.array([5, 5, 1, 5, 5, 5, 5])
    assert len(runs) == 7
    for start in range(8):
        for stop in range(start, 8):
            np.testing.assert_array_equal(runs[start:stop], plain[start:stop])
    np.testing.assert_array_equal(runs[np.array([6, 2, 0])], plain[[6, 2, 0]])
