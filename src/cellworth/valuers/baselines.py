"""Baselines: random values and one-dimensional Shapley values of cells."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cellworth.data.arguments import (
    Floats,
    Mask,
    Model,
    Positions,
    RandomState,
    Scoring,
)
from cellworth.data.blocks import Blocks
from cellworth.data.holdings import Holdings
from cellworth.data.problem import Problem
from cellworth.games.flattened import FlattenedGame
from cellworth.games.game import EmptyPolicy
from cellworth.games.model import ErrorPolicy
from cellworth.runtime.executors import Runtime
from cellworth.runtime.stopping import MaxTasks, StoppingRule
from cellworth.sampling.moments import Moments, Sums, Tally, append_margins
from cellworth.sampling.samplers import generator
from cellworth.valuation.column_info import ColumnTable
from cellworth.valuation.provenance import Provenance, Session
from cellworth.valuation.valuation import Valuation
from cellworth.valuers.data_checks import describe_columns, guess_types, read_column_cells
from cellworth.valuers.model_valuer import ModelValuer
from cellworth.valuers.run import Method, corners, value_blocks
from cellworth.valuers.settings import check_stop, draw_seed
from cellworth.valuers.valuer import FitData, TableValuer

_FLATTENED = "orders of blocks"
_TASKS_BY_DEFAULT = 100
_TASKS_PER_ROUND = 16


@dataclass(frozen=True, eq=False)
class Unplayed:
    """A table without a game: only its blocks matter."""

    problem: Problem

    @property
    def blocks(self) -> Blocks:
        """Blocks that get a value."""
        return self.problem.blocks


class RandomValuer(TableValuer):
    """Independent random values, uniform between 0 and 1: what every ranking must beat.

    Only the shape and the names of the table are used. Values have no standard errors, because they
    estimate nothing. No axiom of two-dimensional values holds; see
    ``docs/explanation/baselines.md``.

    Parameters
    ----------
    random_state : int, Generator, RandomState or None, default=None
        Seed of the values; None draws one, which the provenance records.

    Attributes
    ----------
    valuation_ : Valuation
    values_, standard_errors_ : arrays of shape (n_row_groups, n_column_groups)
    row_values_, column_values_ : arrays
        Sums of the blocks.

    See Also
    --------
    cellworth.KNNValuer

    Examples
    --------
    >>> from cellworth.valuers import RandomValuer
    >>> valuer = RandomValuer(random_state=0).fit([[0.0, 5.0], [1.0, 4.0]], ["no", "yes"])
    >>> valuer.values_.round(3)
    array([[0.721, 0.027],
           [0.403, 0.821]])
    """

    def __init__(self, *, random_state: RandomState = None) -> None:
        self.random_state = random_state

    def _game(self, data: FitData) -> Unplayed:
        # Validation rows are accepted, so that one loop can fit all valuers, and ignored.
        problem = Problem.from_data(
            data.X, data.y, classification=None, row_groups=data.row_groups,
            column_groups=data.column_groups, with_validation=False,
        )  # fmt: skip
        return Unplayed(problem)

    def _inspect_columns(self, game: Any) -> ColumnTable:
        # Nothing is scored, so there is nothing to warn of.
        table = game.problem.table
        return describe_columns(table, read_column_cells(game.problem), guess_types(table))

    def _value(self, game: Any, blocks: Blocks) -> Valuation:
        seed = draw_seed(self.random_state, None)
        values = generator(seed, 0).random(blocks.shape)
        provenance = Provenance.now(
            self._problem_spec(game), {"name": "random values"}, Session(seed, 1), Tally(), 0.0
        )
        moments, backend = Moments.of(append_margins(values)), game.problem.table.backend
        return Valuation(blocks, moments, math.nan, "none", "estimated", provenance, backend)

    def _problem_spec(self, game: Any) -> dict[str, Any]:
        return {"game": "random values", **game.problem.problem_spec()}


class FlattenedValuer(ModelValuer):
    """The paper's baseline: blocks as players of one game, absent cells filled with averages.

    A coalition is any set of blocks. The model learns from all rows; a number that is absent is
    the mean of its column's numbers that are present, a text or category the most frequent one that
    is present (of the whole column where none is). Each task draws one order of all blocks and lets
    them come one after the other: n x m + 1 utilities. Values are means over tasks, and standard
    errors come from the spread between them.

    These are not two-dimensional values. A row cannot be absent: with all its cells filled in, the
    model still learns from its label. Values are linear and symmetric, and add up to the utility of
    the table minus that of a table with every cell filled in. The dummy axiom does not hold: a
    block may have a value although it adds nothing to its row and column. Sums of rows and columns
    are not those of one-dimensional games; see ``docs/explanation/baselines.md``.

    Ctrl-C ends a run early: the finished tasks are kept, with a warning.

    Parameters
    ----------
    model : classifier or regressor
        Trained on every filled table; see :class:`~cellworth.games.ModelGame`.
    scoring : str or callable, default=None
        scikit-learn scoring; None means accuracy or R squared.
    stop : StoppingRule, default=None
        Rule that ends the run; None means ``MaxTasks(100)``. Combine rules with ``|`` and ``&``.
    random_state : int, Generator, RandomState or None, default=None
        Seed of the orders; None draws one, which the provenance records.
    n_jobs : int, default=None
        Workers of the default executor, -1 for all cores; see :class:`~cellworth.Runtime`.
    runtime : Runtime, default=None
        Where and how the run is executed: executor, checkpoint, progress.
    error : {"fallback", "raise"}, default="fallback"
        What happens if a fit fails: a constant predictor replaces it, or the run ends.
    n_repeats : int, default=1
        Fits per utility, with seeds 0, 1, ...; see
        :meth:`~cellworth.games.ModelGame.with_repeats`.

    Attributes
    ----------
    valuation_ : Valuation
    values_, standard_errors_ : arrays of shape (n_row_groups, n_column_groups)
    row_values_, column_values_ : arrays
        Sums of the blocks.

    See Also
    --------
    cellworth.ModelValuer

    References
    ----------
    Liu, Just, Chang, Chen and Jia (2023), 2D-Shapley: A Framework for Fragmented Data Valuation,
    ICML.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from cellworth.runtime import MaxTasks
    >>> from cellworth.valuers import FlattenedValuer
    >>> X, y = [[0.0, 5.0], [1.0, 4.0], [2.0, 5.0], [3.0, 4.0]], [0, 0, 1, 1]
    >>> rule = MaxTasks(10)
    >>> valuer = FlattenedValuer(DecisionTreeClassifier(), stop=rule, random_state=0)
    >>> valuer.fit(X, y, X_val=X, y_val=y).valuation_.total
    0.5
    """

    empty: EmptyPolicy = "prior"

    def __init__(
        self,
        model: Model | None = None,
        *,
        scoring: Scoring = None,
        stop: StoppingRule | None = None,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        runtime: Runtime | None = None,
        error: ErrorPolicy = "fallback",
        n_repeats: int = 1,
    ) -> None:
        self.model = model
        self.scoring = scoring
        self.stop = stop
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.runtime = runtime
        self.error = error
        self.n_repeats = n_repeats

    def _game(self, data: FitData) -> FlattenedGame:
        return FlattenedGame(super()._game(data))

    def _rule(self) -> StoppingRule:
        return MaxTasks(_TASKS_BY_DEFAULT) if self.stop is None else check_stop(self.stop)

    def _value(self, game: Any, blocks: Blocks, holdings: Holdings | None = None) -> Valuation:
        settings = self._settings()
        rule = self._rule()
        seed = draw_seed(self.random_state, self.runtime)
        cut = game.problem.blocks
        method = Method(
            name=_FLATTENED,
            sampler=BlockOrders(blocks.shape[0], seed),
            make_estimate=lambda _: Arrivals(cut.shape),
            stop=rule,
            seed=seed,
            tasks_per_round=_TASKS_PER_ROUND,
            observes_sums=True,
        )
        # The total of this game of blocks is the utility of all minus that of none.
        ends = corners(game, blocks.shape)
        valuation = value_blocks(game, cut, method, settings=settings, ends=ends, holdings=holdings)
        return replace(valuation, empty="none")


@dataclass(frozen=True, eq=False)
class BlockOrder:
    """One order in which all blocks arrive."""

    order: Positions

    def __iter__(self) -> Iterator[tuple[Mask, Mask]]:
        """Yield the blocks present before and after each arrival, with the game's one column."""
        present = np.zeros(len(self.order), dtype=bool)
        yield present.copy(), np.array([True])
        for block in self.order:
            present[block] = True
            yield present.copy(), np.array([True])


@dataclass(frozen=True)
class BlockOrders:
    """Task t is one uniformly random order of all blocks."""

    n_blocks: int
    seed: int

    @property
    def utilities_per_task(self) -> float:
        """One before the first block, and one after each."""
        return float(self.n_blocks + 1)

    def __call__(self, task: int) -> BlockOrder:
        """Draw the order of a task."""
        return BlockOrder(generator(self.seed, task).permutation(self.n_blocks))


@dataclass(frozen=True)
class Arrivals:
    """Estimates values by the rise of the utility when each block arrives."""

    shape: tuple[int, int]

    def __call__(
        self, tasks: Sequence[BlockOrder], utilities: Sequence[Floats], sums: Sums = append_margins
    ) -> Moments:
        """Return moments of differences along each order, one observation per task."""
        return Moments.of_all([sums(rises) for rises in map(self._rises, tasks, utilities)])

    def _rises(self, task: BlockOrder, utilities: Floats) -> Floats:
        rises = np.diff(utilities, axis=0)
        blocks = np.empty_like(rises)
        blocks[task.order] = rises
        return blocks.reshape(*self.shape, *rises.shape[1:])
