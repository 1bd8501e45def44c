"""FlattenedGame: every cell is a player, as in one-dimensional Shapley values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats, Mask, Positions
from cellworth.data.blocks import Blocks, is_missing
from cellworth.data.problem import Problem
from cellworth.data.tables import Table
from cellworth.games.model import FoldScore, ModelGame


@dataclass(frozen=True, eq=False)
class NumericFill:
    """A column that is filled with the mean."""

    cells: Floats

    @property
    def known(self) -> Mask:
        """Which cells are not missing."""
        return ~np.isnan(self.cells)

    def of_array(self, column: NDArray[Any], present: Mask, may_tell: Mask) -> Floats:
        """Fill the column of an array."""
        return self._fill(present, may_tell)

    def of_series(self, column: nw.Series[Any], present: Mask, may_tell: Mask) -> nw.Series[Any]:
        """Fill the column of a data frame; integers become floats, like their mean."""
        return nw.new_series(
            column.name, self._fill(present, may_tell), nw.Float64(), backend=column.implementation
        )

    def _fill(self, present: Mask, may_tell: Mask) -> Floats:
        known = _who_tell(may_tell & ~np.isnan(self.cells), present)
        mean = float(self.cells[known].mean()) if known.any() else np.nan
        return np.where(present, self.cells, mean)


@dataclass(frozen=True, eq=False)
class CategoricalFill:
    """A column that is filled with its most frequent cell; ties go to the first by name.

    Parameters
    ----------
    codes : array of shape (n_rows,)
        Category of each cell; -1 if missing.
    """

    codes: Positions

    @property
    def known(self) -> Mask:
        """Which cells are not missing."""
        return self.codes >= 0

    def of_array(self, column: NDArray[Any], present: Mask, may_tell: Mask) -> NDArray[Any]:
        """Fill the column of an array."""
        return column[self._source_positions(present, may_tell)]

    def of_series(self, column: nw.Series[Any], present: Mask, may_tell: Mask) -> nw.Series[Any]:
        """Fill the column of a data frame; it keeps its type."""
        return column[self._source_positions(present, may_tell)]

    def _source_positions(self, present: Mask, may_tell: Mask) -> Positions:
        """Return the position in the column that each cell is taken from."""
        own = np.arange(len(self.codes))
        known = _who_tell(may_tell & (self.codes >= 0), present)
        if not known.any():
            return own
        most_frequent = np.argmax(np.bincount(self.codes[known]))
        source = np.flatnonzero(self.codes == most_frequent)[0]
        return np.where(present, own, source)


@dataclass(frozen=True, eq=False)
class TableFiller:
    """A table whose cells can be filled in, column by column.

    Parameters
    ----------
    table : Table
    columns : list of Numbers or Choices
    """

    table: Table
    columns: list[NumericFill | CategoricalFill]

    @classmethod
    def from_table(cls, table: Table) -> TableFiller:
        """Read every column as numbers or as categories."""
        return cls(table, [_readable(table.column(position)) for position in range(table.shape[1])])

    @cached_property
    def known(self) -> Mask:
        """Which cells are not missing, shape (n_rows, n_columns)."""
        return np.column_stack([column.known for column in self.columns])

    def fill(self, present: Mask, may_tell: Mask, *, columns: Positions | None = None) -> Table:
        """Fill cells that are not present, from the rows that ``may_tell`` marks.

        ``columns`` are the columns to fill; None means all.
        """
        data = self.table.data
        filled = range(len(self.columns)) if columns is None else columns.tolist()
        if isinstance(data, np.ndarray):
            array = data.astype(np.float64) if data.dtype.kind in "iuf" else data.copy()
            for position in filled:
                array[:, position] = self.columns[position].of_array(
                    array[:, position], present[:, position], may_tell
                )
            return replace(self.table, data=array)
        series = [
            self.columns[position].of_series(data[:, position], present[:, position], may_tell)
            for position in filled
        ]
        return replace(self.table, data=data.with_columns(*series))


class FlattenedGame:
    """Game of single blocks: the model is trained on all rows, with absent cells filled.

    This is the one-dimensional game that the 2D-Shapley paper compares with. An absent number is
    replaced by the mean of the numbers present in its column, an absent string or category by the
    most frequent one present. If no cell of a column is present, all its cells determine the fill,
    and the column is constant. Missing values of the user's table are left to the model.

    As a :class:`~cellworth.games.Game`, its row players are the blocks (row by row of the table).
    There is a single column player, without which the utility is 0.

    Parameters
    ----------
    game : ModelGame
        Model, table and validation rows. Without a validation set, the fills of a fold come from
        its training rows. A filled table is never empty, so ``empty`` does not matter.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X, y = [[0.0], [1.0]], [0, 1]
    >>> from cellworth.games.flattened import FlattenedGame
    >>> game = FlattenedGame(ModelGame(DecisionTreeClassifier(), X, y, X_val=X, y_val=y))
    >>> game.value(np.array([True, True]), np.array([True]))
    1.0
    >>> game.value(np.array([True, False]), np.array([True]))
    0.5
    """

    def __init__(self, game: ModelGame) -> None:
        if game.has_labels:
            raise ValueError("the game of single blocks has no labels as players; leave them out.")
        self._model_game = game
        self.problem: Problem = game.problem
        self.scoring: str = game.scoring
        self.blocks: Blocks = Blocks.from_shape((int(np.prod(self.problem.blocks.shape)), 1))

    @property
    def shape(self) -> tuple[int, int]:
        """Number of blocks, and 1."""
        return self.blocks.shape

    def problem_spec(self) -> dict[str, Any]:
        """Return everything that determines the values of this game."""
        problem_spec = self._model_game.problem_spec() | {"game": "FlattenedGame"}
        # Filled tables are never empty.
        del problem_spec["empty"]
        return problem_spec

    def parts(self) -> list[Any]:
        """Return the objects whose code determines the utilities."""
        return [self, *self._model_game.parts()]

    def value(self, rows: Mask, columns: Mask) -> float:
        """Return the score of the model trained on the filled table, mean over the folds."""
        return self._value(rows, columns, detailed=False)

    def detailed_value(self, rows: Mask, columns: Mask) -> float:
        """Return the same score with its deviations over validation rows."""
        return self._value(rows, columns, detailed=True)

    def _value(self, rows: Mask, columns: Mask, *, detailed: bool) -> float:
        folds = range(len(self.problem.folds))
        if not columns.any():
            return self._model_game.no_utility(detailed=detailed)
        present = self._cells(rows)
        return self._model_game.mean_utility(
            [self._fold_score(fold, present, detailed) for fold in folds]
        )

    def _cells(self, members: Mask) -> Mask:
        blocks = self.problem.blocks
        present = members.reshape(blocks.shape)
        return present[np.ix_(blocks.rows.codes, blocks.columns.codes)]

    def _fold_score(self, number: int, present: Mask, detailed: bool) -> FoldScore:
        # The same game on another table: it handles failed fits.
        table = self._fillings.fill(present, self.problem.folds[number].may_train)
        everything = (np.ones(n, dtype=bool) for n in self.problem.blocks.shape)
        return self._model_game.on(table).fold_score(number, *everything, detailed=detailed)

    @cached_property
    def _fillings(self) -> TableFiller:
        return TableFiller.from_table(self.problem.table)


def _who_tell(known: Mask, present: Mask) -> Mask:
    """Return the cells that determine the fill: those present, or all known ones if none is."""
    return known & present if (known & present).any() else known


def _readable(cells: NDArray[Any]) -> NumericFill | CategoricalFill:
    listed = cells.tolist()
    if cells.dtype.kind in "iuf":
        return NumericFill(cells.astype(np.float64))
    if cells.dtype.kind == "O" and all(_is_number(cell) or is_missing(cell) for cell in listed):
        return NumericFill(
            np.array([np.nan if is_missing(cell) else float(cell) for cell in listed])
        )
    missing = np.array([is_missing(cell) for cell in listed])
    names = np.array([str(cell) for cell in listed], dtype=object)
    codes = np.full(len(listed), -1)
    codes[~missing] = np.unique(names[~missing], return_inverse=True)[1]
    return CategoricalFill(codes)


def _is_number(cell: Any) -> bool:
    return isinstance(cell, int | float | np.number) and not isinstance(cell, bool)
