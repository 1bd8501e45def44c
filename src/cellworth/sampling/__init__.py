"""Samplers choose the coalitions to evaluate; estimators compute values from utilities.

Examples
--------
>>> from cellworth import value_game
>>> from cellworth.games import TableGame
>>> from cellworth.runtime import MaxTasks
>>> from cellworth.sampling import AntitheticPermutations
>>> game, estimator = TableGame([[0.0, 0.0], [0.0, 3.0]]), AntitheticPermutations()
>>> value_game(game, (1, 1), estimator=estimator, stop=MaxTasks(8), random_state=0).values
array([[3.]])
"""

from cellworth.sampling.column_samplers import (
    ColumnSampler,
    ExhaustiveSampler,
    PermutationSampler,
    QuadratureSampler,
)
from cellworth.sampling.estimators import (
    AntitheticPermutations,
    Estimator,
    GaussianProcess,
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
    "Moments",
    "PermutationSampler",
    "QuadratureSampler",
    "Semivalue",
    "Shapley",
]
