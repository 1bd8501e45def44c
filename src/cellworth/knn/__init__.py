"""Nearest neighbors: values of all rows in closed form, sampled only over columns."""

from cellworth.knn.binned import BinnedRanks
from cellworth.knn.knn_game import KNNGame

__all__ = [
    "BinnedRanks",
    "KNNGame",
]
