"""MonteCarloValuer: two-dimensional values from random orders of rows and columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cellworth.blocks import Blocks
from cellworth.designs import Design, Grid, Joins, PermutationGrids, SemivalueJoins
from cellworth.execution import AfterTasks, StoppingRule
from cellworth.games import EmptyPolicy, ErrorPolicy, Game
from cellworth.games.base import utilities
from cellworth.moments import Contribution, Moments, with_margins, without_margins
from cellworth.semivalues import Semivalue, Shapley
from cellworth.valuation import Valuation
from cellworth.valuers.base import (
    Method,
    ModelValuer,
    Settings,
    checked_seed,
    checked_stop,
    corners,
    value_blocks,
)

_TASKS_BY_DEFAULT = 100
_TASKS_PER_ROUND = 16


class MonteCarloValuer(ModelValuer):
    """Estimated two-dimensional values, with standard errors, for any number of blocks.

    Each task draws one order of the rows and one of the columns and looks at every pair of their
    prefixes: one utility per block. The second differences of that grid are an unbiased view of
    all values at once.

    With a semivalue other than Shapley on either side, a task draws a coalition of rows and one of
    columns at a size that the semivalues ask for, and everyone outside joins in turn. Such a task
    sees some of the blocks only; sums of rows and columns then come without standard errors.

    Ctrl-C ends a run early: the finished tasks are kept, with a warning.

    Parameters
    ----------
    model : classifier or regressor
        Trained on every coalition; see :class:`ModelGame`.
    scoring : str or callable, default=None
        How it is judged; None means accuracy or R squared.
    empty : {"prior", "zero"}, default="prior"
        What no rows or no columns are worth; see :class:`ModelGame`.
    row_semivalue, column_semivalue : Semivalue, default=None
        How coalitions are weighed by size; None means ``Shapley()``.
    stop : StoppingRule, default=None
        When the run is long enough; None means ``AfterTasks(100)``. Join rules with ``|``, ``&``.
    random_state : int or None, default=None
        Seed of the orders; None draws one, which the provenance records.
    cv : int or splitter, default=5
        Used when ``fit`` gets no validation set.
    executor : Executor, default=None
        Where tasks run: ``Serial()`` (None), ``Threads(n)`` or ``Processes(n)``. The values are
        the same everywhere, bit for bit.
    journal : Journal, default=None
        Where the run is written down, so that another ``fit`` with a larger budget continues it.
    progress : bool, default=True
        Whether runs longer than two seconds show a bar.
    error : {"stand-in", "raise"}, default="stand-in"
        What a failing fit does: count as a constant predictor, or end the run.
    n_repeats : int, default=1
        Fits per utility, with seeds 0, 1, ...; see :class:`ModelGame`.

    Attributes
    ----------
    valuation_ : Valuation
    values_, standard_errors_ : arrays of shape (n_row_groups, n_column_groups)
    row_values_, column_values_ : arrays
        One-dimensional values: sums of the blocks.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X, y = [[0.0, 5.0], [1.0, 4.0], [2.0, 5.0], [3.0, 4.0]], [0, 0, 1, 1]
    >>> valuer = MonteCarloValuer(DecisionTreeClassifier(), stop=AfterTasks(50), random_state=0)
    >>> valuer.fit(X, y, X_val=X, y_val=y).valuation_.shape
    (4, 2)
    """

    def __init__(
        self,
        model: Any = None,
        *,
        scoring: Any = None,
        empty: EmptyPolicy = "prior",
        row_semivalue: Semivalue | None = None,
        column_semivalue: Semivalue | None = None,
        stop: StoppingRule | None = None,
        random_state: Any = None,
        cv: Any = 5,
        executor: Any = None,
        journal: Any = None,
        progress: bool = True,
        error: ErrorPolicy = "stand-in",
        n_repeats: int = 1,
    ) -> None:
        """Keep the parameters; they are checked by ``fit``."""
        self.model = model
        self.scoring = scoring
        self.empty = empty
        self.row_semivalue = row_semivalue
        self.column_semivalue = column_semivalue
        self.stop = stop
        self.random_state = random_state
        self.cv = cv
        self.executor = executor
        self.journal = journal
        self.progress = progress
        self.error = error
        self.n_repeats = n_repeats

    def _value(self, game: Game, blocks: Blocks) -> Valuation:
        settings = Settings.checked(
            self.row_semivalue, self.column_semivalue, self.executor, self.journal, self.progress
        )
        seed = checked_seed(self.random_state, self.journal)
        return monte_carlo_valuation(game, blocks, settings, stop=self.stop, seed=seed)


@dataclass(frozen=True, eq=False)
class GridDifferences:
    """What one grid adds: the second difference of its utilities at every block."""

    game: Game

    def __call__(self, grid: Grid) -> Contribution:
        """Look at the utilities of all pairs of prefixes and difference them."""
        seen, tally = utilities(self.game, grid)
        prefixes = seen.reshape(len(grid.row_order) + 1, len(grid.column_order) + 1)
        blocks = np.empty((len(grid.row_order), len(grid.column_order)))
        blocks[np.ix_(grid.row_order, grid.column_order)] = np.diff(
            np.diff(prefixes, axis=0), axis=1
        )
        return Contribution(Moments.of(with_margins(blocks)), tally)


@dataclass(frozen=True, eq=False)
class JoinDifferences:
    """What a pair of coalitions adds: the second difference for every row and column outside."""

    game: Game

    def __call__(self, joins: Joins) -> Contribution:
        """Look at the utilities with and without each of those who join."""
        seen, tally = utilities(self.game, joins)
        rows, columns = np.flatnonzero(~joins.rows), np.flatnonzero(~joins.columns)
        table = seen.reshape(len(rows) + 1, len(columns) + 1)
        blocks = np.full((len(joins.rows), len(joins.columns)), np.nan)
        blocks[np.ix_(rows, columns)] = table[1:, 1:] - table[1:, :1] - table[:1, 1:] + table[0, 0]
        return Contribution(Moments.of(without_margins(blocks)), tally)


def monte_carlo_valuation(
    game: Game,
    blocks: Blocks,
    settings: Settings,
    *,
    stop: StoppingRule | None,
    seed: int,
) -> Valuation:
    """Estimate the values of a game from random orders."""
    rule = AfterTasks(_TASKS_BY_DEFAULT) if stop is None else checked_stop(stop)
    semivalues = settings.row_semivalue, settings.column_semivalue
    if semivalues == (Shapley(), Shapley()):
        name = "permutation grids"
        design: Design = PermutationGrids(blocks.shape, seed)
        contribution: Callable[[Any], Contribution] = GridDifferences(game)
    else:
        name = "semivalue joins"
        design = SemivalueJoins(blocks.shape, semivalues, seed)
        contribution = JoinDifferences(game)
    method = Method(
        name=name,
        design=design,
        contribution=contribution,
        stop=rule,
        seed=seed,
        tasks_per_round=_TASKS_PER_ROUND,
    )
    ends = corners(game, blocks.shape)
    return value_blocks(game, blocks, method, settings=settings, ends=ends)
