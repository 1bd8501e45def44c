import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

from cellworth.data.io import describe, hash_json
from cellworth.valuers.identity import code_sha256


class Plain:
    """An object that prints its memory address."""


class Travelling:
    """An object of a class that has not been pickled yet."""


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
    assert describe(one) != describe(other)


@pytest.mark.parametrize(
    "make",
    [lambda: np.arange(3), lambda: np.random.RandomState(0), Plain, lambda: "text"],
    ids=["array", "random state", "object", "text"],
)
def test_equal_settings_are_described_alike_wherever_they_lie_in_memory(make):
    kept = make()
    assert describe(kept) == describe(make())
    assert "0x" not in describe(kept)


def test_a_fingerprint_does_not_depend_on_the_order_of_keys():
    assert hash_json({"a": 1, "b": 2}) == hash_json({"b": 2, "a": 1})
    assert hash_json({"a": 1}) != hash_json({"a": 2})


def test_code_is_the_same_before_and_after_its_object_travels():
    before = code_sha256(Travelling())
    pickle.dumps(Travelling())
    assert code_sha256(Travelling()) == before


SETS = """
from cellworth.valuers.identity import code_sha256

def known(word):
    return word in {"auto", "sqrt", "log2", "none"}

print(code_sha256(known))
"""


@pytest.mark.slow
def test_code_is_the_same_in_every_process():
    # Text has other hashes in each, and so sets have another order.
    seen = {
        subprocess.run(  # noqa: S603 (this interpreter, our own script)
            [sys.executable, "-c", SETS],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in "123"
    }  # fmt: skip
    assert len(seen) == 1
