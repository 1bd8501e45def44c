"""Valuers: fit(X, y) computes the value of every block."""

from cellworth.valuers.knn_valuer import KNNValuer
from cellworth.valuers.model_valuer import ModelValuer, value_game
from cellworth.valuers.out_of_bag import OutOfBagValuer
from cellworth.valuers.sharded_knn_valuer import ShardedKNNValuer

__all__ = [
    "KNNValuer",
    "ModelValuer",
    "OutOfBagValuer",
    "ShardedKNNValuer",
    "value_game",
]
