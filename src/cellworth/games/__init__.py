"""Games: the utility of a coalition of rows and columns.

Examples
--------
>>> from cellworth import value_game
>>> from cellworth.games import TableGame
>>> value_game(TableGame([[0.0, 0.0], [0.0, 3.0]]), (1, 1)).values
array([[3.]])
"""

from cellworth.games.game import EmptyPolicy, FailedUtility, Game, TableGame
from cellworth.games.model import ErrorPolicy, ModelGame

__all__ = ["EmptyPolicy", "ErrorPolicy", "FailedUtility", "Game", "ModelGame", "TableGame"]
