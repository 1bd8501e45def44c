"""Game: the utility of rows and columns; TableGame is a game given as a table of utilities."""

from __future__ import annotations

import hashlib
import math
from typing import Any, Literal, Protocol, cast, get_args, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from cellworth.data.arguments import Floats, Mask
from cellworth.data.io import describe
from cellworth.data.text import preview
from cellworth.sampling.moments import DetailedUtility, Deviations

EmptyPolicy = Literal["prior", "zero"]


@runtime_checkable
class Game(Protocol):
    """Protocol of games: any object with this one method can be valued.

    ``rows`` and ``columns`` are boolean arrays with one entry per player, True for the members of
    the coalition. The result must depend on these alone.

    A game may also have a method ``problem_spec() -> dict`` that names everything that determines
    its utilities. Runs are resumed and merged only if their specs agree. Without the method, a hash
    of the game's content is used, which changes if the game caches things.

    A game whose utilities are scores on validation rows may return them as
    :class:`~cellworth.sampling.DetailedUtility`. Values then have validation errors.

    See Also
    --------
    cellworth.value_game, TableGame

    Examples
    --------
    >>> from cellworth import value_game
    >>> from cellworth.games import Game
    >>> class Trade:
    ...     def value(self, rows, columns):
    ...         return rows.sum() * columns[0] + min(rows.sum(), 1) * columns[1]
    >>> isinstance(Trade(), Game)
    True
    >>> value_game(Trade(), (3, 2)).values.round(3)
    array([[1.   , 0.333],
           [1.   , 0.333],
           [1.   , 0.333]])
    """

    def value(self, rows: Mask, columns: Mask) -> float:
        """Return the utility h(S, F) of rows S and columns F."""


class FailedUtility(float):
    """A utility that could not be computed, and the fallback that counts instead.

    It is a float, so that games stay simple. Valuers count failed utilities and keep their
    messages.

    Parameters
    ----------
    fallback : float
        What counts instead.
    message : str
        Why the utility could not be computed.
    deviations : array, default=None
        As in :class:`~cellworth.sampling.DetailedUtility`.

    See Also
    --------
    ModelGame

    Examples
    --------
    >>> from cellworth.games import FailedUtility
    >>> utility = FailedUtility(0.5, "the model saw one class only")
    >>> utility + 0.25, utility.message
    (0.75, 'the model saw one class only')
    """

    message: str
    deviations: Deviations | None

    def __new__(
        cls, fallback: float, message: str, deviations: Deviations | None = None
    ) -> FailedUtility:
        """Keep the fallback and the message."""
        utility = super().__new__(cls, fallback)
        utility.message = message
        utility.deviations = deviations
        return utility

    def __getnewargs__(self) -> tuple[float, str, Any]:  # type: ignore[override]
        """Return the arguments of the constructor, for pickling."""
        return float(self), self.message, self.deviations


def describe_model(model: Any) -> dict[str, Any]:
    """Return the name and the parameters of a model, for a problem spec."""
    settings = model.get_params(deep=True)
    return {
        "model": f"{type(model).__module__}.{type(model).__qualname__}",
        "model_parameters": {name: describe(settings[name]) for name in sorted(settings)},
    }


def one_line(error: Exception) -> str:
    """Return type and message of an error on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def compute_utility(game: Game, rows: Mask, columns: Mask) -> float:
    """Return one utility, with its deviations if the game knows them; check that it is finite."""
    # A game that writes to its arguments would change later results.
    rows.setflags(write=False)
    columns.setflags(write=False)
    utility = game.value(rows, columns)
    if not isinstance(utility, float | int | np.number | np.bool_):
        raise TypeError(
            f"value(rows, columns) must return a number, got {utility!r} of type "
            f"{type(utility).__name__}."
        )
    if not math.isfinite(utility):
        raise ValueError(
            f"the game returned {utility} for {rows.sum()} rows "
            f"({preview(np.flatnonzero(rows))}) and "
            f"{columns.sum()} columns ({preview(np.flatnonzero(columns))}); every utility must be "
            "a finite number."
        )
    return utility if isinstance(utility, FailedUtility | DetailedUtility) else float(utility)


def check_empty_policy(empty: Any) -> EmptyPolicy:
    """Check the policy for the utility of coalitions without rows or without columns."""
    if empty not in get_args(EmptyPolicy):
        raise ValueError(
            f"empty must be 'prior' (the best prediction without rows or columns) or 'zero', got "
            f"{empty!r}."
        )
    return cast(EmptyPolicy, empty)


class TableGame:
    """A small game given as a table of all its utilities.

    Parameters
    ----------
    table : array of shape (2 ** n_rows, 2 ** n_columns)
        ``table[s, f]`` is the utility of the rows whose bits are set in s and the columns whose
        bits are set in f: ``table[0b101, 0b01]`` belongs to rows 0 and 2 and column 0.

    See Also
    --------
    Game, cellworth.value_game

    Examples
    --------
    One row, two columns; the utility is 0 unless both columns are present.

    >>> from cellworth.games import TableGame
    >>> game = TableGame([[0, 0, 0, 0], [0, 0, 0, 1]])
    >>> game.shape
    (1, 2)
    >>> game.value(np.array([True]), np.array([True, True]))
    1.0
    """

    def __init__(self, table: ArrayLike) -> None:
        try:
            self.table: Floats = np.array(table, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(f"table must be an array of numbers ({error}).") from error
        sides = self.table.shape
        if len(sides) != 2 or any(side < 2 or side & (side - 1) for side in sides):
            raise ValueError(
                "table must have shape (2^n_rows, 2^n_columns), one entry for every pair of "
                f"coalitions including the empty ones, got {sides}."
            )
        if not np.isfinite(self.table).all():
            raise ValueError("table must hold finite utilities, got NaN or inf.")

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of row players and of column players."""
        return self.table.shape[0].bit_length() - 1, self.table.shape[1].bit_length() - 1

    def problem_spec(self) -> dict[str, Any]:
        """Return everything that determines the values of this game."""
        return {"game": "TableGame", "table": hashlib.sha256(self.table.tobytes()).hexdigest()}

    def value(self, rows: Mask, columns: Mask) -> float:
        """Return the utility from the table."""
        return float(self.table[_read_number(rows), _read_number(columns)])


def _read_number(members: Mask) -> int:
    return int.from_bytes(np.packbits(members, bitorder="little").tobytes(), "little")
