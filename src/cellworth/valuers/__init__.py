"""Valuers: the public way in, from a table or a game to a Valuation."""

from cellworth.valuers.baselines import LeaveOneOutValuer, RandomValuer
from cellworth.valuers.exact import ExactValuer
from cellworth.valuers.flattened import FlattenedValuer
from cellworth.valuers.game import value_game
from cellworth.valuers.knn import KNNValuer
from cellworth.valuers.monte_carlo import MonteCarloValuer
from cellworth.valuers.out_of_bag import OutOfBagValuer
from cellworth.valuers.plans import Plan, ShardPlan

__all__ = [
    "ExactValuer",
    "FlattenedValuer",
    "KNNValuer",
    "LeaveOneOutValuer",
    "MonteCarloValuer",
    "OutOfBagValuer",
    "Plan",
    "RandomValuer",
    "ShardPlan",
    "value_game",
]
