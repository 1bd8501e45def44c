"""Games: the utility of a coalition of rows and columns."""

from cellworth.games.game import EmptyPolicy, FailedUtility, Game, TableGame
from cellworth.games.model import ErrorPolicy, ModelGame

__all__ = [
    "EmptyPolicy",
    "ErrorPolicy",
    "FailedUtility",
    "Game",
    "ModelGame",
    "TableGame",
]
