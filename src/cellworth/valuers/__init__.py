"""Valuers: the public way in, from a table or a game to a Valuation."""

from cellworth.valuers.exact import ExactValuer, Plan
from cellworth.valuers.game import value_game
from cellworth.valuers.knn import KNNValuer
from cellworth.valuers.monte_carlo import MonteCarloValuer

__all__ = ["ExactValuer", "KNNValuer", "MonteCarloValuer", "Plan", "value_game"]
