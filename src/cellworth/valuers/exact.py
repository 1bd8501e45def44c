"""ExactValuer: two-dimensional values from the utilities of all coalitions."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cellworth.blocks import Blocks, Groups
from cellworth.counts import is_whole
from cellworth.designs import AllCoalitions, CoalitionPairs, generator
from cellworth.execution import AfterTasks
from cellworth.games import EmptyPolicy, ErrorPolicy, Game
from cellworth.games.base import utilities
from cellworth.moments import Contribution, Moments, with_margins
from cellworth.semivalues import Semivalue, membership_weights
from cellworth.valuation import Valuation
from cellworth.valuers.base import Method, ModelValuer, Settings, corners, value_blocks

MOST_UTILITIES = 2**20

_TIMED_UTILITIES = 20
_TIMED_SECONDS = 2.0
_ROUNDS = 100
_YEAR = 31_557_600


@dataclass(frozen=True)
class Plan:
    """What an exact run would cost.

    Parameters
    ----------
    shape : tuple of int
        Row players and column players.
    seconds_per_utility : float
        Mean of a few that were timed.
    limit : int
        Utilities beyond which the run is refused.
    """

    shape: tuple[int, int]
    seconds_per_utility: float
    limit: int

    @property
    def utilities(self) -> int:
        """Utilities to look at: 2 to the power of all players."""
        return 1 << sum(self.shape)

    @property
    def seconds(self) -> float:
        """Estimated time of the whole run on one worker; infinite beyond all measure."""
        try:
            return math.ldexp(self.seconds_per_utility, sum(self.shape))
        except OverflowError:
            return math.inf

    @property
    def allowed(self) -> bool:
        """Whether the run is within the limit."""
        return self.utilities <= self.limit

    def __repr__(self) -> str:
        """Return one readable line."""
        verdict = "within" if self.allowed else "beyond"
        return (
            f"{self.shape[0]} x {self.shape[1]} blocks: {self.count} utilities, {self.duration} on "
            f"one worker ({self.seconds_per_utility * 1e3:.2g} ms each); {verdict} the limit of "
            f"{self.limit:,}"
        )

    @property
    def count(self) -> str:
        """Number of utilities in words that stay short."""
        players = sum(self.shape)
        return f"2^{players} = {self.utilities:,}" if players <= 60 else f"2^{players}"

    @property
    def duration(self) -> str:
        """Estimated time in words."""
        if self.seconds >= 1e10 * _YEAR:
            return "longer than the age of the universe"
        for unit, length in (("years", _YEAR), ("days", 86_400), ("h", 3600), ("min", 60)):
            if self.seconds >= length:
                return f"about {self.seconds / length:.3g} {unit}"
        return f"about {self.seconds:.2g} s"


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
        Used when ``fit`` gets no validation set.
    executor : Executor, default=None
        Where coalitions are looked at: ``Serial()`` (None), ``Threads(n)`` or ``Processes(n)``.
    journal : Journal, default=None
        Where the run is written down, so that another ``fit`` continues it.
    progress : bool, default=True
        Whether runs longer than two seconds show a bar.
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

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X, y = [[0.0, 5.0], [1.0, 4.0], [2.0, 5.0], [3.0, 4.0]], [0, 0, 1, 1]
    >>> valuer = ExactValuer(DecisionTreeClassifier()).fit(X, y, X_val=X, y_val=y)
    >>> valuer.valuation_.columns()
    column   value
        x0  0.5000
        x1  0.0000
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
        executor: Any = None,
        journal: Any = None,
        progress: bool = True,
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
        self.executor = executor
        self.journal = journal
        self.progress = progress
        self.error = error
        self.n_repeats = n_repeats
        self.max_utilities = max_utilities

    def plan(
        self,
        X: Any,
        y: Any,
        *,
        X_val: Any = None,
        y_val: Any = None,
        row_groups: Groups | str = None,
        column_groups: Groups = None,
        groups: Any = None,
        sample_weight: Any = None,
    ) -> Plan:
        """Tell what ``fit`` with these arguments would cost, after timing a few utilities."""
        game = self._game(
            X=X, y=y, X_val=X_val, y_val=y_val, row_groups=row_groups, column_groups=column_groups,
            groups=groups, sample_weight=sample_weight,
        )  # fmt: skip
        corners(game, game.shape)
        return _plan(game, game.shape, self.max_utilities)

    def _value(self, game: Game, blocks: Blocks) -> Valuation:
        settings = Settings.checked(
            self.row_semivalue, self.column_semivalue, self.executor, self.journal, self.progress
        )
        return exact_valuation(game, blocks, settings, max_utilities=self.max_utilities)


@dataclass(frozen=True, eq=False)
class WeightedUtilities:
    """What a task of coalition pairs adds: their utilities, weighed for every block.

    All tasks together give psi = W_n' H W_m. Each part is multiplied by the number of tasks, so
    that the mean over all tasks, which is what Moments hold, is that sum. All weights of a block
    add up to 0: taking the same ``level`` off every utility changes nothing but the rounding.
    """

    game: Game
    row_semivalue: Semivalue
    column_semivalue: Semivalue
    n_tasks: int
    level: float

    def __call__(self, pairs: CoalitionPairs) -> Contribution:
        """Look at the utilities and weigh them."""
        seen, tally = utilities(self.game, pairs)
        row_weights = membership_weights(self.row_semivalue, pairs.rows)
        column_weights = membership_weights(self.column_semivalue, pairs.columns)
        part = row_weights.T @ ((seen - self.level)[:, None] * column_weights)
        return Contribution(Moments.of(with_margins(part * self.n_tasks)), tally)


def exact_valuation(
    game: Game,
    blocks: Blocks,
    settings: Settings,
    *,
    max_utilities: int,
) -> Valuation:
    """Value a game by looking at all its coalitions."""
    design = AllCoalitions(blocks.shape)
    ends = corners(game, blocks.shape)
    _refuse_absurd(game, blocks.shape, max_utilities)
    method = Method(
        name="exact values",
        design=design,
        contribution=WeightedUtilities(
            game, settings.row_semivalue, settings.column_semivalue, design.n_tasks, ends.whole
        ),
        stop=AfterTasks(design.n_tasks),
        seed=None,
        tasks_per_round=-(-design.n_tasks // _ROUNDS),
        describe=lambda progress: f"{progress.tasks:,} of {design.n_tasks:,} tasks",
    )
    valuation = value_blocks(game, blocks, method, settings=settings, ends=ends)
    if valuation.status == "interrupted":
        # A part of the sum is no estimate of the whole.
        raise KeyboardInterrupt("exact values need all coalitions; the run was broken off")
    return replace(valuation, moments=_exact(valuation.moments, blocks.shape), status="exact")


def _exact(moments: Moments, shape: tuple[int, int]) -> Moments:
    """Moments without spread: tasks differ, but their sum is not a matter of chance."""
    marginals = 1 << (sum(shape) - 2)
    return replace(
        moments,
        count=np.full_like(moments.count, marginals),
        spread=np.zeros_like(moments.spread),
    )


def _plan(game: Game, shape: tuple[int, int], limit: int) -> Plan:
    return Plan(shape, _seconds_per_utility(game, shape), limit)


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


def _seconds_per_utility(game: Game, shape: tuple[int, int]) -> float:
    """Mean time of a few random coalitions, as an exact run would meet them."""
    rng = generator(0, 0)
    n_rows, n_columns = shape
    n_timed, began = 0, time.perf_counter()
    while n_timed < _TIMED_UTILITIES and time.perf_counter() - began < _TIMED_SECONDS:
        game.value(rng.random(n_rows) < 0.5, rng.random(n_columns) < 0.5)
        n_timed += 1
    return (time.perf_counter() - began) / n_timed
