"""MonteCarloValuer: two-dimensional values estimated from some of the coalitions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from cellworth.blocks import Blocks
from cellworth.counts import Floats
from cellworth.designs import ThenAll, n_utilities
from cellworth.estimates import Estimator, checked_estimator
from cellworth.estimates.looks import Estimate
from cellworth.games import EmptyPolicy, ErrorPolicy, Game
from cellworth.holdings import Holdings
from cellworth.moments import Moments, Sums
from cellworth.runtime import AfterTasks, AfterUtilities, Progress, Runtime, StoppingRule
from cellworth.runtime.checkpoint import AnotherRunError
from cellworth.semivalues import LeaveOneOut, Semivalue
from cellworth.valuation import Valuation
from cellworth.valuers.base import ModelValuer
from cellworth.valuers.exact import MOST_UTILITIES, WeightedUtilities
from cellworth.valuers.methods import Corners, Method, corners, value_blocks
from cellworth.valuers.plans import Plan
from cellworth.valuers.settings import Settings, checked_seed, checked_stop

_TASKS_PER_ROUND = 16
_UTILITIES_PER_BLOCK = 50
_MOST_PLAYERS_OF_ALL = MOST_UTILITIES.bit_length() - 1
# A budget of utilities ends after ten looks at each; these and all pairs stay well below.
_LOOKS_BEFORE_ALL = 3


class MonteCarloValuer(ModelValuer):
    """Estimated two-dimensional values, with standard errors, for any number of blocks.

    The ``estimator`` says which coalitions are evaluated and how values are read from them.
    Without one, :class:`CentredGrids` estimates Shapley values; :class:`GaussianProcess` needs
    several times fewer fits where a few thousand suffice. Banzhaf values on both sides are read
    from uniformly random coalitions, so that every fit serves every block. For other semivalues a
    task draws a coalition of rows and one of columns at a size that the semivalues ask for, and
    everyone outside joins in turn; sums of rows and columns then come without standard errors.

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
    estimator : CentredGrids, PlainGrids or GaussianProcess, default=None
        Which coalitions to look at; None means what suits the semivalues.
    stop : StoppingRule, default=None
        When the run is long enough; None means ``AfterUtilities`` of 50 for each block. Join rules
        with ``|``, ``&``. A budget of utilities that covers all coalitions gives exact values.
    random_state : int or None, default=None
        Seed of the coalitions; None draws one, which the provenance records.
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
        One-dimensional values: sums of the blocks.

    References
    ----------
    Liu, Just, Chang, Chen and Jia (2023), 2D-Shapley: A Framework for Fragmented Data Valuation,
    ICML.

    Castro, Gómez and Tejada (2009), Polynomial calculation of the Shapley value based on sampling,
    Computers & Operations Research.

    Notes
    -----
    ``valuation_`` also has validation errors, of all sums too: how far other validation rows would
    have moved the values. For them, every utility keeps up to 256 numbers, at most 256 MB in all.
    A scorer without a closed form is asked 32 more times for each utility, without new predictions;
    see ``docs/explanation/models.md``.

    Examples
    --------
    >>> from cellworth import AfterUtilities
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X, y = [[0.0, 5.0], [1.0, 4.0], [2.0, 5.0], [3.0, 4.0]], [0, 0, 1, 1]
    >>> valuer = MonteCarloValuer(DecisionTreeClassifier(), stop=AfterUtilities(40), random_state=0)
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
        estimator: Estimator | None = None,
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
        self.empty = empty
        self.row_semivalue = row_semivalue
        self.column_semivalue = column_semivalue
        self.estimator = estimator
        self.stop = stop
        self.random_state = random_state
        self.cv = cv
        self.n_jobs = n_jobs
        self.runtime = runtime
        self.error = error
        self.n_repeats = n_repeats

    def _plan(self, game: Any) -> Plan:
        settings = self._settings(self.row_semivalue, self.column_semivalue)
        estimator = checked_estimator(self.estimator, settings.semivalues)
        tasks = estimator.design(game.shape, settings.semivalues, seed=0)
        rule = _rule(self.stop, game.shape)
        plan = Plan.of_run(estimator.name, game, tasks, _within(estimator, rule))
        if not _covers_all(rule, game.shape, settings):
            return plan
        return replace(plan, design=f"{plan.design}, then all", utilities=n_utilities(game.shape))

    def _value(
        self, game: Game, blocks: Blocks, holdings: Holdings | None = None
    ) -> Valuation | None:
        settings = self._settings(self.row_semivalue, self.column_semivalue)
        seed = checked_seed(self.random_state, self.runtime)
        return monte_carlo_valuation(
            game, blocks, settings, estimator=self.estimator, stop=self.stop, seed=seed,
            holdings=holdings,
        )  # fmt: skip


def monte_carlo_valuation(
    game: Game,
    blocks: Blocks,
    settings: Settings,
    *,
    estimator: Estimator | None,
    stop: StoppingRule | None,
    seed: int,
    holdings: Holdings | None = None,
) -> Valuation | None:
    """Estimate the values of a game from some of its coalitions, or from all within the budget."""
    estimator = checked_estimator(estimator, settings.semivalues)
    rule = _rule(stop, blocks.shape)
    tasks = estimator.design(blocks.shape, settings.semivalues, seed)
    ends = corners(game, blocks.shape)
    method = Method(
        name=estimator.name,
        design=tasks,
        estimate=estimator.estimate(settings.semivalues, ends.totals),
        stop=_within(estimator, rule),
        seed=seed,
        tasks_per_round=_TASKS_PER_ROUND,
        describe=_describe,
        shrink=estimator.shrink,
        merges=estimator.merges,
        errors_from=estimator.errors_from,
        observes_sums=estimator.observes_sums,
    )
    run = partial(value_blocks, game, blocks, settings=settings, ends=ends, holdings=holdings)
    if not _covers_all(rule, blocks.shape, settings):
        return run(method)
    try:
        return run(_until_all(method, estimator, rule, settings, ends))
    except AnotherRunError:
        # The checkpoint was begun with a smaller budget, or with another rule.
        return run(method)


def _covers_all(rule: StoppingRule, shape: tuple[int, int], settings: Settings) -> bool:
    """Whether a budget suffices for all coalitions."""
    # Who counts tasks means those of the design.
    if math.isfinite(rule.most_tasks) or sum(shape) > _MOST_PLAYERS_OF_ALL:
        return False
    # Leaving one out needs far fewer than all.
    if LeaveOneOut() in settings.semivalues:
        return False
    return n_utilities(shape) <= rule.most_utilities < math.inf


def _until_all(
    method: Method, estimator: Estimator, rule: StoppingRule, settings: Settings, ends: Corners
) -> Method:
    """Go on to all coalitions after the first tasks of a method, which serve a run cut short."""
    first = method.design
    looks = min(_LOOKS_BEFORE_ALL * n_utilities(ends.shape), estimator.most_utilities)
    looks_per_task = max(first.utilities_per_task, len(list(first(0))))
    design = ThenAll(first, int(looks / looks_per_task), ends.shape)
    weighted = WeightedUtilities(*settings.semivalues, design.pairs.n_tasks, ends.whole)
    assert method.estimate is not None  # noqa: S101 (every estimator has one)
    return replace(
        method,
        design=design,
        estimate=_UntilAll(design, method.estimate, weighted),
        stop=rule | AfterTasks(design.n_tasks),
        exact_after=design.n_tasks,
    )


@dataclass(frozen=True, eq=False)
class _UntilAll:
    """What the first tasks tell, and once every pair has been looked at, the exact values."""

    design: ThenAll
    first: Estimate
    weighted: WeightedUtilities

    def __call__(self, tasks: Sequence[Any], utilities: Sequence[Floats], **sums: Sums) -> Moments:
        n_first = self.design.n_first
        if len(tasks) == self.design.n_tasks:
            return self.weighted(tasks[n_first:], utilities[n_first:])
        return self.first(tasks[:n_first], utilities[:n_first], **sums)


def _rule(stop: StoppingRule | None, shape: tuple[int, int]) -> StoppingRule:
    usual = AfterUtilities(_UTILITIES_PER_BLOCK * math.prod(shape))
    return usual if stop is None else checked_stop(stop)


def _within(estimator: Estimator, rule: StoppingRule) -> StoppingRule:
    """End where the estimator has as many utilities as it can read."""
    if rule.most_utilities > estimator.most_utilities:
        return rule | AfterUtilities(int(estimator.most_utilities))
    return rule


def _describe(progress: Progress) -> str:
    return f"{progress.tasks} tasks, {progress.utilities:,} utilities"
