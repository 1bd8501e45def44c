"""Games: what any coalition of rows and columns is worth."""

from cellworth.games.base import EmptyPolicy, FailedUtility, Game
from cellworth.games.knn import KNNGame
from cellworth.games.model import ErrorPolicy, ModelGame
from cellworth.games.table import TableGame

__all__ = [
    "EmptyPolicy",
    "ErrorPolicy",
    "FailedUtility",
    "Game",
    "KNNGame",
    "ModelGame",
    "TableGame",
]
