"""FlattenedValuer: one-dimensional Shapley values of blocks, with absent cells filled in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cellworth.blocks import Blocks
from cellworth.counts import Floats, Mask, Positions
from cellworth.designs import generator
from cellworth.games import ErrorPolicy
from cellworth.games.flattened import FlattenedGame
from cellworth.holdings import Holdings
from cellworth.moments import Moments, Sums, with_margins
from cellworth.runtime import AfterTasks, Runtime, StoppingRule
from cellworth.valuation import Valuation
from cellworth.valuers.base import ModelValuer
from cellworth.valuers.methods import Method, corners, value_blocks
from cellworth.valuers.plans import Plan
from cellworth.valuers.settings import checked_seed, checked_stop

_NAME = "orders of blocks"
_TASKS_BY_DEFAULT = 100
_TASKS_PER_ROUND = 16


class FlattenedValuer(ModelValuer):
    """The paper's baseline: blocks as players of one game, absent cells filled with averages.

    A coalition is any set of blocks. The model learns from all rows; a number that is absent is
    the mean of its column's numbers that are present, a text or category the most frequent one that
    is present (of the whole column where none is). Each task draws one order of all blocks and lets
    them come one after the other: n x m + 1 utilities. Values are means over tasks, and standard
    errors come from the spread between them.

    This is no two-dimensional value. A row cannot be absent: with all its cells filled in, it still
    teaches its label, and no value of a row tells what the row is worth. Kept: linear; values add
    up, to the utility of the table minus that of a table with every cell filled in; symmetric under
    reordering. Broken: dummy (a block may matter although it adds nothing that its row and column
    do not add alone), and the sums of rows and columns are not those of one-dimensional games of
    rows or columns; see ``docs/explanation/baselines.md``.

    Ctrl-C ends a run early: the finished tasks are kept, with a warning.

    Parameters
    ----------
    model : classifier or regressor
        Trained on every filled table; see :class:`ModelGame`.
    scoring : str or callable, default=None
        How it is judged; None means accuracy or R squared.
    stop : StoppingRule, default=None
        When the run is long enough; None means ``AfterTasks(100)``. Join rules with ``|``, ``&``.
    random_state : int or None, default=None
        Seed of the orders; None draws one, which the provenance records.
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

    References
    ----------
    Liu, Just, Chang, Chen and Jia (2023), 2D-Shapley: A Framework for Fragmented Data Valuation,
    ICML.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X, y = [[0.0, 5.0], [1.0, 4.0], [2.0, 5.0], [3.0, 4.0]], [0, 0, 1, 1]
    >>> rule = AfterTasks(10)
    >>> valuer = FlattenedValuer(DecisionTreeClassifier(), stop=rule, random_state=0)
    >>> valuer.fit(X, y, X_val=X, y_val=y).valuation_.total
    0.5
    """

    def __init__(
        self,
        model: Any = None,
        *,
        scoring: Any = None,
        stop: StoppingRule | None = None,
        random_state: Any = None,
        cv: Any = 5,
        n_jobs: int | None = None,
        runtime: Runtime | None = None,
        error: ErrorPolicy = "stand-in",
        n_repeats: int = 1,
    ) -> None:
        """Keep the parameters; they are checked by ``fit``."""
        self.model = model
        self.scoring = scoring
        self.stop = stop
        self.random_state = random_state
        self.cv = cv
        self.n_jobs = n_jobs
        self.runtime = runtime
        self.error = error
        self.n_repeats = n_repeats

    def _game(self, **given: Any) -> FlattenedGame:
        return FlattenedGame(
            self.model, scoring=self.scoring, cv=self.cv, error=self.error,
            n_repeats=self.n_repeats, **given,
        )  # fmt: skip

    def _rule(self) -> StoppingRule:
        return AfterTasks(_TASKS_BY_DEFAULT) if self.stop is None else checked_stop(self.stop)

    def _plan(self, game: Any) -> Plan:
        plan = Plan.of_run(_NAME, game, BlockOrders(game.shape[0], seed=0), self._rule())
        return replace(plan, shape=game.problem.blocks.shape)

    def _value(
        self, game: Any, blocks: Blocks, holdings: Holdings | None = None
    ) -> Valuation | None:
        settings = self._settings()
        rule = self._rule()
        seed = checked_seed(self.random_state, self.runtime)
        cut = game.problem.blocks
        method = Method(
            name=_NAME,
            design=BlockOrders(blocks.shape[0], seed),
            estimate=Arrivals(cut.shape),
            stop=rule,
            seed=seed,
            tasks_per_round=_TASKS_PER_ROUND,
            observes_sums=True,
        )
        # The total of this game of blocks is the utility of all minus that of none.
        ends = corners(game, blocks.shape)
        valuation = value_blocks(game, cut, method, settings=settings, ends=ends, holdings=holdings)
        return None if valuation is None else replace(valuation, empty="none")


@dataclass(frozen=True, eq=False)
class BlockOrder:
    """One order in which all blocks come."""

    order: Positions

    def __iter__(self) -> Iterator[tuple[Mask, Mask]]:
        """Blocks that are there before and after each arrival, with the game's one column."""
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
    """What orders tell: by how much the utility rises when each block comes."""

    shape: tuple[int, int]

    def __call__(
        self,
        tasks: Sequence[BlockOrder],
        utilities: Sequence[Floats],
        sums: Sums = with_margins,
    ) -> Moments:
        """Differences along each order, one observation a task."""
        return Moments.of_all([sums(rises) for rises in map(self._rises, tasks, utilities)])

    def _rises(self, task: BlockOrder, utilities: Floats) -> Floats:
        rises = np.diff(utilities, axis=0)
        blocks = np.empty_like(rises)
        blocks[task.order] = rises
        return blocks.reshape(*self.shape, *rises.shape[1:])
