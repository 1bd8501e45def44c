"""Valuers: fit(X, y) computes the value of every block."""

from cellworth.valuers.baselines import FlattenedValuer, LeaveOneOutValuer, RandomValuer
from cellworth.valuers.data_checks import DataWarning
from cellworth.valuers.knn_valuer import KNNValuer
from cellworth.valuers.model_valuers import ExactValuer, MonteCarloValuer, value_game
from cellworth.valuers.out_of_bag import OutOfBagValuer
from cellworth.valuers.plan import Plan, ShardPlan
from cellworth.valuers.sharded_knn_valuer import ShardedKNNValuer

__all__ = [
    "DataWarning",
    "ExactValuer",
    "FlattenedValuer",
    "KNNValuer",
    "LeaveOneOutValuer",
    "MonteCarloValuer",
    "OutOfBagValuer",
    "Plan",
    "RandomValuer",
    "ShardPlan",
    "ShardedKNNValuer",
    "value_game",
]
