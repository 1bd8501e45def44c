"""ExactValuer: two-dimensional values from the utilities of all coalitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from cellworth.blocks import Blocks
from cellworth.counts import Floats, Mask, is_whole
from cellworth.designs import AllCoalitions, CoalitionPairs, generator
from cellworth.games import EmptyPolicy, ErrorPolicy, Game
from cellworth.holdings import Holdings
from cellworth.moments import Moments, with_margins
from cellworth.runtime import Runtime
from cellworth.semivalues import Semivalue, membership_weights
from cellworth.valuation import Valuation
from cellworth.valuers.base import ModelValuer
from cellworth.valuers.methods import Method, corners, value_blocks
from cellworth.valuers.plans import Plan, seconds_per_utility
from cellworth.valuers.settings import Settings

MOST_UTILITIES = 2**20

_NAME = "exact values"


class ExactValuer(ModelValuer):
    """Exact two-dimensional values: every coalition of rows with every coalition of columns.

    The work doubles with every further row or column player. It suits up to about 20 players in
    all; group the rows and columns of a table, or estimate with :class:`MonteCarloValuer`.

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
    max_utilities : int, default=2**20
        Refuse to start beyond this.

    Attributes
    ----------
    valuation_ : Valuation
    values_, standard_errors_ : arrays of shape (n_row_groups, n_column_groups)
    row_values_, column_values_ : arrays
        One-dimensional values: sums of the blocks.

    References
    ----------
    Liu, Just, Chang, Chen and Jia (2023), 2D-Shapley: A Framework for Fragmented Data Valuation,
    ICML.

    Notes
    -----
    ``valuation_`` also has validation errors, of all sums too: how far other validation rows would
    have moved the values. For them, every utility keeps up to 256 numbers, at most 256 MB in all.
    A scorer without a closed form is asked 32 more times for each utility, without new predictions;
    see ``docs/explanation/models.md``.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X, y = [[0.0, 5.0], [1.0, 4.0], [2.0, 5.0], [3.0, 4.0]], [0, 0, 1, 1]
    >>> valuer = ExactValuer(DecisionTreeClassifier()).fit(X, y, X_val=X, y_val=y)
    >>> valuer.valuation_.columns()
    column   value  validation error
        x0  0.5000            0.2344
        x1  0.0000            0.2344
    """

    def __init__(
        self,
        model: Any = None,
        *,
        scoring: Any = None,
        empty: EmptyPolicy = "prior",
        row_semivalue: Semivalue | None = None,
        column_semivalue: Semivalue | None = None,
        cv: Any = 5,
        n_jobs: int | None = None,
        runtime: Runtime | None = None,
        error: ErrorPolicy = "stand-in",
        n_repeats: int = 1,
        max_utilities: int = MOST_UTILITIES,
    ) -> None:
        """Keep the parameters; they are checked by ``fit``."""
        self.model = model
        self.scoring = scoring
        self.empty = empty
        self.row_semivalue = row_semivalue
        self.column_semivalue = column_semivalue
        self.cv = cv
        self.n_jobs = n_jobs
        self.runtime = runtime
        self.error = error
        self.n_repeats = n_repeats
        self.max_utilities = max_utilities

    def _plan(self, game: Any) -> Plan:
        return _plan(game, game.shape, self.max_utilities)

    def _value(
        self, game: Game, blocks: Blocks, holdings: Holdings | None = None
    ) -> Valuation | None:
        settings = self._settings(self.row_semivalue, self.column_semivalue)
        return exact_valuation(
            game, blocks, settings, max_utilities=self.max_utilities, holdings=holdings
        )


@dataclass(frozen=True, eq=False)
class WeightedUtilities:
    """What all pairs of coalitions tell: their utilities, weighed for every block.

    All tasks together give psi = W_n' H W_m. Each part is multiplied by the number of tasks, so
    that the mean over all tasks, which is what Moments hold, is that sum. All weights of a block
    add up to 0: taking the same ``level`` off every utility changes nothing but the rounding.
    """

    row_semivalue: Semivalue
    column_semivalue: Semivalue
    n_tasks: int
    level: float

    def __call__(self, tasks: Sequence[CoalitionPairs], utilities: Sequence[Floats]) -> Moments:
        """Weigh the utilities of all tasks, one after the other."""
        return reduce(Moments.merge, map(self._weighed, tasks, utilities))

    def _weighed(self, pairs: CoalitionPairs, utilities: Floats) -> Moments:
        row_weights = membership_weights(self.row_semivalue, pairs.rows)
        column_weights = membership_weights(self.column_semivalue, pairs.columns)
        weights = row_weights[:, :, None] * column_weights[:, None, :]
        part = np.tensordot(weights, utilities - self.level, axes=(0, 0))
        return Moments.of(with_margins(part * self.n_tasks))


def exact_valuation(
    game: Game,
    blocks: Blocks,
    settings: Settings,
    *,
    max_utilities: int,
    holdings: Holdings | None = None,
) -> Valuation | None:
    """Value a game by looking at all its coalitions."""
    design = AllCoalitions(blocks.shape)
    ends = corners(game, blocks.shape)
    _refuse_absurd(game, blocks.shape, max_utilities)
    estimate = WeightedUtilities(
        settings.row_semivalue, settings.column_semivalue, design.n_tasks, ends.whole
    )
    method = replace(Method.of_all_tasks(_NAME, design, estimate), exact_after=design.n_tasks)
    valuation = value_blocks(game, blocks, method, settings=settings, ends=ends, holdings=holdings)
    if valuation is not None and valuation.status == "interrupted":
        # A part of the sum is no estimate of the whole.
        raise KeyboardInterrupt(
            "exact values need all coalitions; the run was broken off (a checkpoint keeps what was "
            "done)"
        )
    return valuation


def _plan(game: Game, shape: tuple[int, int], limit: int) -> Plan:
    design = AllCoalitions(shape)
    return Plan(
        _NAME,
        shape,
        design.n_pairs,
        design.utilities_per_task,
        seconds_per_utility(game, _random_pairs(shape)),
        limit=limit,
    )


def _refuse_absurd(game: Game, shape: tuple[int, int], limit: int) -> None:
    if not is_whole(limit):
        raise TypeError(f"max_utilities is {limit!r}; give a whole number.")
    if 1 << sum(shape) > limit:
        plan = _plan(game, shape, limit)
        raise ValueError(
            f"exact values of {shape[0]} x {shape[1]} blocks need {plan.count} utilities, "
            f"{plan.duration}; the limit is {plan.limit:,}. Cut the table into fewer row_groups or "
            "column_groups, estimate with MonteCarloValuer, or raise max_utilities."
        )


def _random_pairs(shape: tuple[int, int]) -> Iterator[tuple[Mask, Mask]]:
    """Coalitions as an exact run would meet them."""
    rng = generator(0, 0)
    while True:
        yield rng.random(shape[0]) < 0.5, rng.random(shape[1]) < 0.5
