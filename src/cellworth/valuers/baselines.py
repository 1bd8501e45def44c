"""LeaveOneOutValuer and RandomValuer: what a ranking of blocks should be compared with."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cellworth.blocks import Blocks
from cellworth.column_info import ColumnTable
from cellworth.counts import Floats, Mask
from cellworth.designs import generator
from cellworth.games import EmptyPolicy, ErrorPolicy, Game
from cellworth.holdings import Holdings
from cellworth.inputs import cells_of, column_table, guessed
from cellworth.moments import Moments, Tally, with_margins
from cellworth.problem import Problem
from cellworth.provenance import Provenance, Session
from cellworth.runtime import AfterTasks, Runtime
from cellworth.semivalues import LeaveOneOut
from cellworth.valuation import Valuation
from cellworth.valuers.base import ModelValuer, Valuer
from cellworth.valuers.methods import Method, corners, value_blocks
from cellworth.valuers.plans import Plan
from cellworth.valuers.settings import Settings, checked_seed

_NAME = "leave one out"


class LeaveOneOutValuer(ModelValuer):
    """What a block adds to all others: h(N, M) - h(N-i, M) - h(N, M-j) + h(N-i, M-j), exactly.

    (n + 1)(m + 1) utilities are looked at, one task for each row that is left out. The values are
    those of ``ExactValuer`` with ``LeaveOneOut()`` for rows and columns, at a price that large
    tables can bear. They look at a single coalition: a row that has a near copy is worth about
    nothing.

    Kept: linear, dummy, symmetric. Broken: values do not add up to the utility of the table, nor do
    rows or columns to one-dimensional values; see ``docs/explanation/baselines.md``.

    Ctrl-C ends a run early: rows that were left out by then have their values, the rest is NaN.

    Parameters
    ----------
    model : classifier or regressor
        Trained on every coalition; see :class:`ModelGame`.
    scoring : str or callable, default=None
        How it is judged; None means accuracy or R squared.
    empty : {"prior", "zero"}, default="prior"
        What no rows or no columns are worth; see :class:`ModelGame`.
    cv : int or splitter, default=5
        Used when ``fit`` gets no validation set: each fold serves once as the validation set for
        the remaining rows.
    n_jobs : int, default=None
        Number of workers of the default executor, -1 for all cores; None as in :class:`Runtime`.
    runtime : Runtime, default=None
        Where and how the run is executed: executor, checkpoint, partition, cache, progress.
    error : {"stand-in", "raise"}, default="stand-in"
        What a failing fit does: count as a constant predictor, or end the run.
    n_repeats : int, default=1
        Fits per utility, with seeds 0, 1, ...; see :class:`ModelGame`.

    Attributes
    ----------
    valuation_ : Valuation
    values_, standard_errors_ : arrays of shape (n_row_groups, n_column_groups)
    row_values_, column_values_ : arrays
        Sums of the blocks.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X, y = [[0.0, 5.0], [1.0, 4.0], [2.0, 5.0], [3.0, 4.0]], [0, 0, 1, 1]
    >>> valuer = LeaveOneOutValuer(DecisionTreeClassifier()).fit(X, y, X_val=X, y_val=y)
    >>> valuer.valuation_.status
    'exact'
    """

    def __init__(
        self,
        model: Any = None,
        *,
        scoring: Any = None,
        empty: EmptyPolicy = "prior",
        cv: Any = 5,
        n_jobs: int | None = None,
        runtime: Runtime | None = None,
        error: ErrorPolicy = "stand-in",
        n_repeats: int = 1,
    ) -> None:
        """Keep the parameters; they are checked by ``fit``."""
        self.model = model
        self.scoring = scoring
        self.empty = empty
        self.cv = cv
        self.n_jobs = n_jobs
        self.runtime = runtime
        self.error = error
        self.n_repeats = n_repeats

    def _plan(self, game: Any) -> Plan:
        design = LeavingOneOut(game.shape)
        return Plan.of_run(_NAME, game, design, AfterTasks(design.n_tasks))

    def _value(
        self, game: Game, blocks: Blocks, holdings: Holdings | None = None
    ) -> Valuation | None:
        settings = self._settings(LeaveOneOut(), LeaveOneOut())
        return leave_one_out_valuation(game, blocks, settings, holdings)

    def _question(self, game: Any) -> dict[str, Any]:
        return self._settings(LeaveOneOut(), LeaveOneOut()).question(game)


@dataclass(frozen=True, eq=False)
class LeftOut:
    """All rows, or all but one, through all columns and through all but one."""

    task: int
    rows: Mask
    n_columns: int

    def __iter__(self) -> Iterator[tuple[Mask, Mask]]:
        """Pairs of coalitions, the one with all columns first."""
        yield self.rows, np.ones(self.n_columns, dtype=bool)
        for column in range(self.n_columns):
            columns = np.ones(self.n_columns, dtype=bool)
            columns[column] = False
            yield self.rows, columns


@dataclass(frozen=True)
class LeavingOneOut:
    """Task 0 has all rows; task t lacks row t - 1."""

    shape: tuple[int, int]

    @property
    def utilities_per_task(self) -> float:
        """One with all columns, and one without each of them."""
        return float(self.shape[1] + 1)

    @property
    def n_tasks(self) -> int:
        """One for all rows, and one without each of them."""
        return self.shape[0] + 1

    def __call__(self, task: int) -> LeftOut:
        """Name the row that a task leaves out."""
        rows = np.ones(self.shape[0], dtype=bool)
        if task > 0:
            rows[task - 1] = False
        return LeftOut(task, rows, self.shape[1])


def leave_one_out_moments(tasks: Sequence[LeftOut], utilities: Sequence[Floats]) -> Moments:
    """Values of the blocks whose row has been left out; the others were not seen.

    What a column's absence costs is told by each task; what block (i, j) adds is the cost with all
    rows less that without row i.
    """
    n_rows, n_columns = len(tasks[0].rows), tasks[0].n_columns
    losses = np.full((n_rows + 1, n_columns, *utilities[0].shape[1:]), np.nan)
    for left_out, seen in zip(tasks, utilities, strict=True):
        losses[left_out.task] = seen[0] - seen[1:]
    return Moments.of(with_margins(losses[0] - losses[1:]))


def leave_one_out_valuation(
    game: Game, blocks: Blocks, settings: Settings, holdings: Holdings | None = None
) -> Valuation | None:
    """Value a game by leaving out each row and each column once."""
    design = LeavingOneOut(blocks.shape)
    method = Method.of_all_tasks(_NAME, design, leave_one_out_moments)
    ends = corners(game, blocks.shape)
    valuation = value_blocks(game, blocks, method, settings=settings, ends=ends, holdings=holdings)
    if valuation is None or valuation.status == "interrupted":
        return valuation
    return replace(valuation, status="exact")


class RandomValuer(Valuer):
    """Independent random values, uniform between 0 and 1: what every ranking must beat.

    The table is looked at for its shape and names alone. Values have no standard errors: there is
    nothing that they estimate. All promises of two-dimensional values are broken, from linearity to
    sums; see ``docs/explanation/baselines.md``.

    Parameters
    ----------
    random_state : int or None, default=None
        Seed of the values; None draws one, which the provenance records.

    Attributes
    ----------
    valuation_ : Valuation
    values_, standard_errors_ : arrays of shape (n_row_groups, n_column_groups)
    row_values_, column_values_ : arrays
        Sums of the blocks.

    Examples
    --------
    >>> valuer = RandomValuer(random_state=0).fit([[0.0, 5.0], [1.0, 4.0]], ["no", "yes"])
    >>> valuer.values_.round(3)
    array([[0.721, 0.027],
           [0.403, 0.821]])
    """

    def __init__(self, *, random_state: Any = None) -> None:
        """Keep the parameters; they are checked by ``fit``."""
        self.random_state = random_state

    def _game(self, **given: Any) -> Unplayed:
        # Validation rows may come along, so that one loop can fit all valuers; they cannot matter.
        asked: dict[str, Any] = {
            name: given.get(name) for name in ("X", "y", "row_groups", "column_groups")
        }
        return Unplayed(Problem.of(**asked, classification=None, with_validation=False))

    def _looked_at(self, game: Any) -> ColumnTable:
        # Nothing is judged, so there is nothing to warn of.
        table = game.problem.table
        return column_table(table, cells_of(game.problem), guessed(table))

    def _value(self, game: Any, blocks: Blocks) -> Valuation | None:
        seed = checked_seed(self.random_state, None)
        values = generator(seed, 0).random(blocks.shape)
        problem = game.problem
        question = self._question(game)
        method = {"name": "random values"}
        return Valuation(
            blocks,
            Moments.of(with_margins(values)),
            math.nan,
            "none",
            "estimated",
            Provenance.now(question, method, Session(seed, 1), Tally(), 0.0),
            problem.table.backend,
        )

    def _question(self, game: Any) -> dict[str, Any]:
        return {"game": "random values", **game.problem.question()}


@dataclass(frozen=True, eq=False)
class Unplayed:
    """A table whose blocks are named, and of which nothing else is asked."""

    problem: Problem

    @property
    def blocks(self) -> Blocks:
        """What gets a value."""
        return self.problem.blocks
