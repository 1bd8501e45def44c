"""Localities are spread evenly over workers, and stay where they are."""

from collections import Counter

import pytest

from cellworth.runtime.workers import Assignment


def assigned(assignment, n, n_threads):
    return {locality: assignment.find(locality, n_threads) for locality in range(n)}


def test_workers_get_localities_by_their_threads():
    workers = assigned(Assignment(), 12, {"a": 1, "b": 1, "c": 2})
    assert Counter(workers.values()) == {"a": 3, "b": 3, "c": 6}


@pytest.mark.parametrize("n", [1, 2, 7, 100])
def test_like_workers_differ_by_one_and_take_turns(n):
    workers = assigned(Assignment(), n, {"a": 1, "b": 1, "c": 1})
    assert [workers[locality] for locality in range(n)] == [*("abc" * n)][:n]


def test_localities_of_a_worker_that_is_gone_go_to_others_and_the_rest_stays():
    assignment = Assignment()
    before = assigned(assignment, 9, {"a": 1, "b": 1, "c": 1})
    after = assigned(assignment, 9, {"a": 1, "c": 1, "d": 1})
    assert set(after.values()) == {"a", "c", "d"}
    assert all(after[each] == worker for each, worker in before.items() if worker != "b")


def test_a_worker_that_joins_gets_its_share():
    assignment = Assignment()
    before = assigned(assignment, 8, {"a": 1})
    after = assigned(assignment, 8, {"a": 1, "b": 1})
    assert Counter(after.values()) == {"a": 4, "b": 4}
    assert set(before.values()) == {"a"}


def test_without_workers_there_is_one_name():
    assignment = Assignment()
    assert assigned(assignment, 3, {}) == dict.fromkeys(range(3), "")
    assert set(assigned(assignment, 3, {"a": 1}).values()) == {"a"}
