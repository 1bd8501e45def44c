"""How a model is made ready to be fitted: its seeds, PyTorch's generator, weights of rows."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from inspect import Parameter, signature
from typing import Any

import numpy as np

from cellworth.counts import is_whole
from cellworth.games.copying import fresh, is_estimator

_SEED_NAMES = ("random_state", "random_seed", "seed")

# PyTorch has one generator for the whole process: fits that draw from it take turns.
_TORCH_TURN = threading.Lock()


def seeded(model: Any, repeat: int) -> Any:
    """Copy a model and close every seed: open ones become ``repeat``, whole numbers move by it.

    Splitters inside the model count too.
    """
    copy = fresh(model)
    settings = copy.get_params(deep=True)
    for setting in settings.values():
        if hasattr(setting, "split") and hasattr(setting, "random_state"):
            setting.random_state = _seed(setting.random_state, repeat)
    seeds = {
        name: _seed(setting, repeat)
        for name, setting in settings.items()
        if name.split("__")[-1] in _SEED_NAMES
    }
    copy.set_params(**seeds)
    if repeat:
        for estimator in estimators_of(copy):
            _set_hidden_seed(estimator, repeat)
    return copy


def _seed(setting: Any, repeat: int) -> Any:
    if setting is None:
        return repeat
    if is_whole(setting):
        return setting + repeat
    if repeat and isinstance(setting, np.random.RandomState):
        return int(deepcopy(setting).randint(2**31 - 1)) + repeat
    return setting


def _set_hidden_seed(estimator: Any, repeat: int) -> None:
    """Seed an estimator that keeps quiet about parameters left open, as CatBoost does."""
    known = estimator.get_params(deep=False)
    possible = signature(type(estimator)).parameters
    hidden = [name for name in _SEED_NAMES if name in possible]
    if hidden and not any(name in known for name in _SEED_NAMES):
        estimator.set_params(**{hidden[0]: repeat})


def draws_from_torch(model: Any) -> bool:
    """Tell whether a model has PyTorch parts, whose random numbers no parameter seeds."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    parts = [model, *model.get_params(deep=True).values()]
    kinds = [part if isinstance(part, type) else type(part) for part in parts]
    modules = {sys.modules.get(base.__module__) for kind in kinds for base in kind.__mro__}
    # Whoever builds networks has torch among its names, or is a part of it.
    return any(
        module is torch
        or getattr(module, "torch", None) is torch
        or getattr(module, "__name__", "").startswith("torch.")
        for module in modules
    )


@contextmanager
def torch_seed(repeat: int) -> Iterator[None]:
    """Seed PyTorch's generator for a fit or a score, one at a time; put it back afterwards."""
    # The model brought it along: it is loaded here, and in every process that the model is sent to.
    torch: Any = sys.modules["torch"]
    with _TORCH_TURN, torch.random.fork_rng():
        torch.manual_seed(repeat)
        yield


def weight_name(model: Any) -> str | None:
    """Name under which ``fit`` takes the weights of rows; None where it takes none.

    A Pipeline hands them to its last step; a search or a transformed target to the model inside.
    """
    if hasattr(model, "steps"):
        last, estimator = model.steps[-1]
        inside = None if isinstance(estimator, str) else weight_name(estimator)
        return None if inside is None else f"{last}__{inside}"
    settings = model.get_params(deep=False)
    if settings.get("estimators"):
        names = {weight_name(part) for _, part in settings["estimators"] if hasattr(part, "fit")}
        return "sample_weight" if names == {"sample_weight"} else None
    parameters = signature(model.fit).parameters
    if "sample_weight" in parameters:
        return "sample_weight"
    if not any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values()):
        return None
    inside = settings.get("estimator", settings.get("regressor"))
    return weight_name(inside) if hasattr(inside, "fit") else None


def estimators_of(model: Any) -> list[Any]:
    """List a model and all estimators inside it."""
    return [part for part in (model, *model.get_params(deep=True).values()) if is_estimator(part)]
