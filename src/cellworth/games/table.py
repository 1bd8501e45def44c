"""TableGame: utilities written out in full, for tests and for teaching."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cellworth.counts import Mask
from cellworth.designs import AllCoalitions
from cellworth.games.base import Game, utilities


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

    def question(self) -> dict[str, Any]:
        """What decides the values of this game."""
        return {"game": "TableGame", "table": hashlib.sha256(self.table.tobytes()).hexdigest()}

    def value(self, rows: Mask, columns: Mask) -> float:
        """Look the utility up."""
        return float(self.table[_number(rows), _number(columns)])


def _number(members: Mask) -> int:
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
