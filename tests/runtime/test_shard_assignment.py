"""Shards are spread evenly over workers, and stay where they are."""

from collections import Counter
from itertools import chain

import pytest

from cellworth.runtime.dask_rounds import assign_shards, group_by_worker, split_evenly


def test_workers_get_shards_by_their_threads():
    workers = assign_shards(12, {"a": 1, "b": 1, "c": 2}, {})
    assert Counter(workers.values()) == {"a": 3, "b": 3, "c": 6}


@pytest.mark.parametrize("n_shards", [1, 2, 7, 100])
def test_like_workers_differ_by_one_shard(n_shards):
    counts = Counter(assign_shards(n_shards, {"a": 1, "b": 1, "c": 1}, {}).values())
    assert sum(counts.values()) == n_shards
    assert max(counts.values()) - min(counts[worker] for worker in "abc") <= 1


def test_shards_of_a_worker_that_is_gone_go_to_others_and_the_rest_stays():
    before = assign_shards(9, {"a": 1, "b": 1, "c": 1}, {})
    after = assign_shards(9, {"a": 1, "c": 1, "d": 1}, before)
    assert set(after.values()) == {"a", "c", "d"}
    assert all(after[shard] == worker for shard, worker in before.items() if worker != "b")


def test_a_worker_that_joins_gets_its_share():
    before = assign_shards(8, {"a": 1}, {})
    after = assign_shards(8, {"a": 1, "b": 1}, before)
    assert Counter(after.values()) == {"a": 4, "b": 4}


def test_stations_list_the_shards_of_each_worker():
    assert group_by_worker({0: "a", 1: "b", 2: "a"}) == {"a": [0, 2], "b": [1]}


def test_groups_are_alike_and_lose_nothing():
    groups = split_evenly(list(range(17)), 8)
    assert [len(group) for group in groups] == [5, 6, 6]
    assert list(chain(*groups)) == list(range(17))
