"""Seeds and weights have their tests with ModelGame; here a stand-in for PyTorch is seeded."""

import sys
import types
from contextlib import contextmanager

import pytest
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from cellworth.games.fitting import draws_from_torch, torch_seed


@pytest.fixture
def torch(monkeypatch):
    """A module called torch whose generator is one number."""
    module = types.ModuleType("torch")
    module.state = 99

    @contextmanager
    def fork_rng():
        before = module.state
        yield
        module.state = before

    module.random = types.SimpleNamespace(fork_rng=fork_rng)
    module.manual_seed = lambda seed: setattr(module, "state", seed)
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


class Net(BaseEstimator):
    """An estimator whose module knows torch."""


def test_a_model_draws_from_torch_where_its_module_knows_torch(torch, monkeypatch):
    assert not draws_from_torch(Net())
    monkeypatch.setattr(sys.modules[__name__], "torch", torch)
    assert draws_from_torch(Net())
    assert draws_from_torch(make_pipeline(Net(), LogisticRegression()))
    assert not draws_from_torch(LogisticRegression())


def test_without_torch_no_model_draws_from_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert not draws_from_torch(Net())


def test_the_generator_is_seeded_and_put_back(torch):
    with torch_seed(3):
        assert torch.state == 3
    assert torch.state == 99
