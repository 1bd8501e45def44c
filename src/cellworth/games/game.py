"""Game: the utility of rows and columns; TableGame is a game given as a table of utilities."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cellworth.data.arguments import Mask
from cellworth.data.blocks import some
from cellworth.data.io import describe
from cellworth.sampling.moments import DetailedUtility, Deviations, Tally
from cellworth.sampling.samplers import AllCoalitions

EmptyPolicy = Literal["prior", "zero"]


@runtime_checkable
class Game(Protocol):
    """Anything with this one method can be valued.

    ``rows`` and ``columns`` are boolean arrays, one entry per player: True for the members of
    the coalition. The answer must depend on these alone.

    A game may also have a method ``problem_spec() -> dict`` that names everything that determines
    its utilities. Runs are resumed and merged only if their specs agree. Without the method, a hash
    of the game's content is used, which changes if the game caches things.

    A game whose utilities are scores on validation rows may have a method ``detailed_value(rows,
    columns)`` that returns the same utilities as :class:`DetailedUtility`: values then have
    validation errors.

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
        """Utility h(S, F) of rows S seen through columns F."""
        ...


class FailedUtility(float):
    """A utility that could not be computed, and the fallback that counts instead.

    It is a float like any other, so that games stay simple; valuers count it and keep the
    message, so that nobody takes it for a measured one.

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
        """Hold the value that stands in, and why."""
        utility = super().__new__(cls, fallback)
        utility.message = message
        utility.deviations = deviations
        return utility

    def __getnewargs__(self) -> tuple[float, str, Any]:  # type: ignore[override]
        """Travel between processes with the message."""
        return float(self), self.message, self.deviations


def described_model(model: Any) -> dict[str, Any]:
    """Name a model and spell out its parameters, for a question."""
    settings = model.get_params(deep=True)
    return {
        "model": f"{type(model).__module__}.{type(model).__qualname__}",
        "model_parameters": {name: describe(settings[name]) for name in sorted(settings)},
    }


def one_line(error: Exception) -> str:
    """Kind and message of an error, for a sentence."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def utilities(game: Game, pairs: Iterable[tuple[Mask, Mask]]) -> tuple[NDArray[np.float64], Tally]:
    """Utilities of pairs of coalitions, and how many of them failed."""
    seen, tally = detailed_utilities(game, pairs)
    return np.array(seen, dtype=np.float64), tally


def detailed_utilities(
    game: Game, pairs: Iterable[tuple[Mask, Mask]]
) -> tuple[tuple[float, ...], Tally]:
    """Utilities of pairs of coalitions, as the game gives them, and how many of them failed."""
    looked_at = list(pairs)
    seen = tuple(checked_utility(game, *pair) for pair in looked_at)
    failures = tuple(each.message for each in seen if isinstance(each, FailedUtility))
    new = sum(rows.any() and columns.any() for rows, columns in looked_at)
    tally = Tally(len(seen), new=int(new)).merge(Tally(failed=len(failures), messages=failures))
    return seen, tally


def checked_utility(game: Game, rows: Mask, columns: Mask) -> float:
    """One utility, which must be a finite number; with its deviations where the game knows them."""
    # A game that writes into its arguments would change what is weighed afterwards.
    rows.setflags(write=False)
    columns.setflags(write=False)
    utility = _number(getattr(game, "detailed_value", game.value)(rows, columns))
    if not math.isfinite(utility):
        raise ValueError(
            f"the game gave {utility} for {rows.sum()} rows ({some(np.flatnonzero(rows))}) and "
            f"{columns.sum()} columns ({some(np.flatnonzero(columns))}); every utility must be "
            "a finite number."
        )
    return utility


def _number(utility: Any) -> float:
    if isinstance(utility, float | int | np.number | np.bool_):
        return utility if isinstance(utility, FailedUtility | DetailedUtility) else float(utility)
    raise TypeError(
        f"the game's value is {utility!r} of type {type(utility).__name__}; "
        "value(rows, columns) must return a number."
    )


def checked_policy(empty: Any) -> EmptyPolicy:
    """Accept what a coalition without rows or without columns can be worth."""
    if empty not in get_args(EmptyPolicy):
        raise ValueError(
            f"empty is {empty!r}; say what no rows or no columns are worth: 'prior' (what can be "
            "told without them) or 'zero'."
        )
    policy: EmptyPolicy = empty
    return policy


class TableGame:
    """A small game given by the table of all its utilities.

    Parameters
    ----------
    table : array of shape (2 ** n_rows, 2 ** n_columns)
        ``table[s, f]`` is the utility of the rows whose bits are set in s, seen through the
        columns whose bits are set in f: ``table[0b101, 0b01]`` belongs to rows 0 and 2 and
        column 0.

    Examples
    --------
    One row, two columns; nothing is earned unless both columns are there.

    >>> from cellworth.games import TableGame
    >>> game = TableGame([[0, 0, 0, 0], [0, 0, 0, 1]])
    >>> game.shape
    (1, 2)
    >>> game.value(np.array([True]), np.array([True, True]))
    1.0
    """

    def __init__(self, table: ArrayLike) -> None:
        """Check and keep the table."""
        self.table = _checked(table)

    @classmethod
    def of(cls, game: Game, shape: tuple[int, int]) -> TableGame:
        """Look at every utility of another game and write it down."""
        design = AllCoalitions(shape)
        parts = [utilities(game, design(task))[0] for task in range(design.n_tasks)]
        return cls(np.concatenate(parts).reshape(1 << shape[0], 1 << shape[1]))

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns that play."""
        return self.table.shape[0].bit_length() - 1, self.table.shape[1].bit_length() - 1

    def problem_spec(self) -> dict[str, Any]:
        """What decides the values of this game."""
        return {"game": "TableGame", "table": hashlib.sha256(self.table.tobytes()).hexdigest()}

    def value(self, rows: Mask, columns: Mask) -> float:
        """Look the utility up."""
        return float(self.table[_read_number(rows), _read_number(columns)])


def _read_number(members: Mask) -> int:
    return int(members @ (1 << np.arange(len(members))))


def _checked(table: Any) -> NDArray[np.float64]:
    try:
        array = np.array(table, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"a TableGame takes a table of numbers ({error}).") from error
    sides = array.shape
    if len(sides) != 2 or any(side < 2 or side & (side - 1) for side in sides):
        raise ValueError(
            f"the table of utilities has shape {sides}; it must be 2^n_rows by 2^n_columns, "
            "with one entry for every pair of coalitions, the empty ones included."
        )
    if not np.isfinite(array).all():
        raise ValueError("the table of utilities holds NaN or inf; every utility must be finite.")
    return array
