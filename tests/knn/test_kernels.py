"""Compiled kernels: what processes that compile at the same time leave on disk."""

import importlib.util

import numpy as np
import pytest

DOUBLE = """
from cellworth.knn.kernels import kernel


@kernel
def double(array):
    return 2 * array
"""


@pytest.fixture
def load_double(tmp_path):
    """Return what loads a kernel anew, as another process would."""
    path = tmp_path / "doubling.py"
    path.write_text(DOUBLE)

    def load():
        spec = importlib.util.spec_from_file_location("doubling", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.double

    return load


def test_processes_that_compile_for_other_types_at_once_do_not_get_each_others_code(
    load_double, monkeypatch
):
    integers, floats = np.arange(3), np.arange(3.0)
    one, other = load_double(), load_double()
    # Both have read the index before either writes it, and the first writes its code last.
    files = one._cache._cache_file
    late, save = [], files._save_data
    monkeypatch.setattr(files, "_save_data", lambda *given: late.append(given))
    monkeypatch.setattr(other._cache._cache_file, "_load_index", dict)
    one(integers)
    other(floats)
    save(*late[0])
    monkeypatch.undo()
    for array in (floats, integers):
        fresh = load_double()
        np.testing.assert_array_equal(fresh(array), 2 * array)
        assert fresh(array).dtype == array.dtype


def test_a_kernel_is_loaded_from_disk(load_double):
    load_double()(np.arange(3))
    again = load_double()
    again(np.arange(3))
    assert sum(again.stats.cache_hits.values()) == 1
