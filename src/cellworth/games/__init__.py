"""Games: the utility of a coalition of rows and columns.

Examples
--------
>>> from cellworth import value_game
>>> from cellworth.games import TableGame
>>> value_game(TableGame([[0.0, 0.0], [0.0, 3.0]]), (1, 1)).values
array([[3.]])
"""

from cellworth.games.game import FailedUtility, Game, TableGame
from cellworth.games.model import ModelGame

__all__ = ["FailedUtility", "Game", "ModelGame", "TableGame"]
