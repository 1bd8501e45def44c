"""Interactions of blocks or owners: whether two of them are complements or substitutes."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats, Mask
from cellworth.data.tables import frame
from cellworth.data.text import format_interval
from cellworth.data.views import View
from cellworth.games.game import Game, compute_utility
from cellworth.sampling.moments import WIDTH_95
from cellworth.sampling.semivalues import Semivalue, Shapley, coalition_weights

Players = Literal["rows", "columns"]
# All coalitions of the players are evaluated, twice.
_MAX_PLAYERS = 12
_LISTED = 20
_MEANING = "Interactions: above 0, two players are complements; below 0, substitutes"


@dataclass(frozen=True, eq=False)
class PairInteractions:
    """Interactions of all pairs of players, from ``measure_interactions``.

    Parameters
    ----------
    names : tuple of str
        The players.
    values : array of shape (n_players, n_players)
        Symmetric; NaN on the diagonal. Above 0, two players are complements: together they add
        more than each alone. Below 0, they are substitutes.
    errors : array of shape (n_players, n_players)
        Standard errors due to the choice of validation rows; NaN if unknown.

    See Also
    --------
    measure_interactions

    Examples
    --------
    >>> from cellworth.findings import measure_interactions
    >>> from cellworth.games import TableGame
    >>> found = measure_interactions(TableGame([[0, 0], [0, 1], [0, 1], [0, 1]]))
    >>> found
    Interactions: above 0, two players are complements; below 0, substitutes
    players  interaction  95% interval
       0, 1      -1.0000     not known
    """

    names: tuple[str, ...]
    values: Floats
    errors: Floats = field(repr=False)

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame with one row per pair, the strongest first; intervals are 95%."""
        first, second = np.array(self._sort_pairs()).T
        values, half = self.values[first, second], WIDTH_95 * self.errors[first, second]
        columns = {
            "first": [self.names[player] for player in first.tolist()],
            "second": [self.names[player] for player in second.tolist()],
            "interaction": values.tolist(),
            "low": (values - half).tolist(),
            "high": (values + half).tolist(),
        }
        return frame(columns, backend)

    def __repr__(self) -> str:
        return self._view().text()

    def _repr_html_(self) -> str:
        """Show the pairs in Jupyter, with bars."""
        return self._view().html()

    def _view(self) -> View:
        pairs = self._sort_pairs()
        shown = pairs[:_LISTED]
        columns = {
            "players": [f"{self.names[i]}, {self.names[j]}" for i, j in shown],
            "interaction": [f"{self.values[pair]:.4f}" for pair in shown],
            "95% interval": [
                format_interval(self.values[pair], WIDTH_95 * self.errors[pair]) for pair in shown
            ],
        }
        left = len(pairs) - len(shown)
        more = (f"and {left} more pairs",) if left else ()
        return View(_MEANING, columns, more, [self.values[pair] for pair in shown])

    def _sort_pairs(self) -> list[tuple[int, int]]:
        pairs = combinations(range(len(self.names)), 2)
        return sorted(pairs, key=lambda pair: -abs(float(self.values[pair])))


def measure_interactions(
    game: Game,
    shape: tuple[int, int] | None = None,
    *,
    players: Players = "rows",
    semivalue: Semivalue | None = None,
) -> PairInteractions:
    """Compute how much more two players add together than one by one.

    The interaction of players i and j is the weighted mean over coalitions S without them of
    v(S+i+j) - v(S+i) - v(S+j) + v(S): the value of i if j is always there, less its value if j is
    never there. With row players, v(S) = h(S, M) - h(S, 0) for all columns M, as in the values of
    rows; with column players, the same with the axes exchanged. All coalitions are evaluated.

    Parameters
    ----------
    game : Game
        A ``KNNGame`` or ``ModelGame`` with row or column groups, or any other game.
    shape : tuple of int, default=None
        Numbers of row players and column players; None means those of the game.
    players : {"rows", "columns"}, default="rows"
        Which players interact; at most 12.
    semivalue : Semivalue, default=None
        Weights of coalitions by size; None means ``Shapley()``, the Shapley interaction index of
        Grabisch and Roubens (1999).

    Returns
    -------
    PairInteractions

    See Also
    --------
    cellworth.payouts.measure_owner_interactions, cellworth.value_game

    References
    ----------
    Grabisch and Roubens (1999), An axiomatic approach to the concept of interaction among players
    in cooperative games, International Journal of Game Theory.

    Examples
    --------
    Two columns of which the label is the exclusive or, and a copy of the second:

    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from cellworth.findings import measure_interactions
    >>> from cellworth.games import ModelGame
    >>> X = [[a, b, b] for a in (0, 1) for b in (0, 1)] * 3
    >>> y = [row[0] ^ row[1] for row in X]
    >>> game = ModelGame(DecisionTreeClassifier(random_state=0), X, y, X, y)
    >>> measure_interactions(game, players="columns").values.round(2)
    array([[  nan,  0.25,  0.25],
           [ 0.25,   nan, -0.25],
           [ 0.25, -0.25,   nan]])
    """
    if players not in get_args(Players):
        raise ValueError(f"players must be 'rows' or 'columns', got {players!r}.")
    shape = shape or getattr(game, "shape", None)
    if shape is None:
        raise ValueError("the game has no shape; give the numbers of row and column players.")
    side = get_args(Players).index(players)
    n_players = shape[side]
    if not 2 <= n_players <= _MAX_PLAYERS:
        raise ValueError(
            f"the game must have 2 to {_MAX_PLAYERS} players on the side of {players}, got "
            f"{n_players}; give row_groups or column_groups."
        )
    numbers = np.arange(1 << n_players)[:, np.newaxis]
    members = (numbers >> np.arange(n_players) & 1).astype(bool)
    utilities, deviations = _evaluate(game, members, side, shape[1 - side])
    weights = _weigh_pairs(members, semivalue or Shapley())
    values, errors = np.full((2, n_players, n_players), np.nan)
    for (i, j), own in weights.items():
        values[i, j] = values[j, i] = float(own @ utilities)
        errors[i, j] = errors[j, i] = float(np.sqrt(np.sum((own @ deviations) ** 2)))
    return PairInteractions(_name_players(game, side, n_players), values, errors)


def _evaluate(game: Game, members: Mask, side: int, n_others: int) -> tuple[Floats, Floats]:
    """Return the utility of each coalition less that without the other side, and deviations."""
    full = []
    for others in (np.ones(n_others, dtype=bool), np.zeros(n_others, dtype=bool)):
        pairs = [(each.copy(), others.copy())[:: 1 - 2 * side] for each in members]
        full.append([compute_utility(game, *pair) for pair in pairs])
    utilities = np.subtract(*np.array(full, dtype=np.float64))
    known = [[getattr(each, "deviations", None) for each in line] for line in full]
    if any(each is None for line in known for each in line):
        return utilities, np.full((len(members), 1), np.nan)
    return utilities, np.subtract(*np.array(known, dtype=np.float64))


def _weigh_pairs(members: Mask, semivalue: Semivalue) -> dict[tuple[int, int], Floats]:
    """Return the weights of all coalitions in the interaction of each pair."""
    n_players = members.shape[1]
    by_size = coalition_weights(semivalue, n_players - 1)
    signs: NDArray[np.int64] = np.where(members, 1, -1)
    return {
        (i, j): signs[:, i]
        * signs[:, j]
        * by_size[members.sum(axis=1) - members[:, i] - members[:, j]]
        for i, j in combinations(range(n_players), 2)
    }


def _name_players(game: Any, side: int, n_players: int) -> tuple[str, ...]:
    blocks = getattr(game, "blocks", None)
    if blocks is None:
        return tuple(map(str, range(n_players)))
    return tuple(map(str, (blocks.rows, blocks.columns)[side].labels.tolist()))
