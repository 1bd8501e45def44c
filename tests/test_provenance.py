import numpy as np
import pytest

from cellworth.provenance import described, fingerprint


class Plain:
    """An object that prints its memory address."""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.array([0.1, 0.2]), np.array([0.1, 0.2 + 1e-15])),
        (np.zeros(5000), np.eye(1, 5000, 2500)[0]),
        (np.zeros(2), np.zeros((1, 2))),
        (np.random.RandomState(0), np.random.RandomState(1)),
        (0.1, 0.1 + 1e-17 + 1e-16),
    ],
    ids=["last digit", "elided middle", "shape", "random state", "float"],
)
def test_settings_that_differ_are_described_differently(one, other):
    assert described(one) != described(other)


@pytest.mark.parametrize(
    "make",
    [lambda: np.arange(3), lambda: np.random.RandomState(0), Plain, lambda: "text"],
    ids=["array", "random state", "object", "text"],
)
def test_equal_settings_are_described_alike_wherever_they_lie_in_memory(make):
    kept = make()
    assert described(kept) == described(make())
    assert "0x" not in described(kept)


def test_a_fingerprint_does_not_depend_on_the_order_of_keys():
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})
