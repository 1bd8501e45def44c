"""Rounds over shards: the same numbers from any sharding, any executor, in any number of goes."""

import numpy as np
import pytest

import toy_shards
from cellworth import Serial, Threads
from toy_shards import Toy

N_ROWS, N_ROUNDS = 1000, 5


@pytest.fixture(scope="module")
def truth():
    return toy_shards.truth(N_ROWS, N_ROUNDS)


@pytest.mark.parametrize("executor", [Serial(), Threads(2)], ids=str)
@pytest.mark.parametrize("n_shards", [1, 4, 7, 16])
def test_any_sharding_gives_what_a_plain_loop_gives(n_shards, executor, truth, tmp_path):
    finished, got = toy_shards.run(Toy(n_shards), N_ROUNDS, executor, tmp_path)
    assert np.array_equal(got, truth)
    assert [told["round"] for told in finished.told] == list(range(N_ROUNDS))
    assert [entry["shard"] for entry in finished.entries] == list(range(n_shards))
    assert not finished.interrupted
