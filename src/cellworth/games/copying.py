"""A fresh copy of a model, also of one that scikit-learn's clone refuses."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from sklearn.base import clone


def fresh(model: Any) -> Any:
    """Copy an estimator without what it has learned.

    CatBoost keeps copies of lists that it is given, which ``clone`` takes for a fault; such a
    model is copied with all that it holds, and forgets it when it is fitted.
    """
    try:
        return clone(model)
    except RuntimeError:
        return deepcopy(model)


def is_estimator(part: Any) -> bool:
    """Tell an estimator from any other parameter, classes of estimators included."""
    return hasattr(part, "get_params") and not isinstance(part, type)
