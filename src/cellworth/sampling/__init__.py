"""Which coalitions are evaluated, and what is estimated from their utilities."""

from cellworth.sampling.column_samplers import (
    ColumnSampler,
    ExhaustiveSampler,
    LeverageSampler,
    PermutationSampler,
    QuadratureSampler,
)
from cellworth.sampling.estimators import (
    AntitheticPermutations,
    Estimator,
    GaussianProcess,
    PlainPermutations,
)
from cellworth.sampling.moments import DetailedUtility, Moments
from cellworth.sampling.semivalues import Banzhaf, Beta, LeaveOneOut, Semivalue, Shapley

__all__ = [
    "AntitheticPermutations",
    "Banzhaf",
    "Beta",
    "ColumnSampler",
    "DetailedUtility",
    "Estimator",
    "ExhaustiveSampler",
    "GaussianProcess",
    "LeaveOneOut",
    "LeverageSampler",
    "Moments",
    "PermutationSampler",
    "PlainPermutations",
    "QuadratureSampler",
    "Semivalue",
    "Shapley",
]
