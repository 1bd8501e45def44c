"""Estimates: which coalitions to look at, and what their utilities tell about every block."""

from cellworth.estimates.estimators import (
    CentredGrids,
    Estimator,
    GaussianProcess,
    PlainGrids,
    checked_estimator,
)

__all__ = [
    "CentredGrids",
    "Estimator",
    "GaussianProcess",
    "PlainGrids",
    "checked_estimator",
]
