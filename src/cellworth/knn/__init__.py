"""Nearest neighbors: values of all rows in closed form, sampled only over columns.

Examples
--------
>>> from cellworth.knn import KNNGame
>>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
>>> KNNGame(X, y, X_val=X, y_val=y, n_neighbors=1).shape
(4, 2)
"""

from cellworth.knn.binned import BinnedRanks
from cellworth.knn.knn_game import KNNGame, NeighborAgreement

__all__ = ["BinnedRanks", "KNNGame", "NeighborAgreement"]
