"""MonteCarloValuer and ExactValuer: values for any model; value_game for any game."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, cast

import numpy as np

from cellworth.data.arguments import (
    Floats,
    Mask,
    Model,
    RandomState,
    Scoring,
    is_integer,
)
from cellworth.data.blocks import Blocks
from cellworth.data.holdings import Holdings
from cellworth.games.game import EmptyPolicy, Game
from cellworth.games.model import ErrorPolicy
from cellworth.runtime.checkpoint import AnotherRunError
from cellworth.runtime.executors import Runtime
from cellworth.runtime.stopping import (
    MaxTasks,
    MaxUtilities,
    Progress,
    StoppingRule,
    TargetPrecision,
)
from cellworth.sampling.estimators import Estimator, choose_estimator
from cellworth.sampling.moments import Estimate, Moments, Sums, append_margins
from cellworth.sampling.samplers import (
    CoalitionPairs,
    ExhaustiveTasks,
    SampledThenExhaustive,
    TaskSampler,
    generator,
    n_utilities,
)
from cellworth.sampling.semivalues import LeaveOneOut, Semivalue, membership_weights
from cellworth.valuation.valuation import Valuation
from cellworth.valuers.plan import Plan, seconds_per_utility
from cellworth.valuers.run import Corners, Method, corners, value_blocks
from cellworth.valuers.settings import Semivalues, Settings, check_stop, draw_seed
from cellworth.valuers.valuer import ModelValuer

# A round is about this many utilities: after each one, a stopping rule may end the run.
_UTILITIES_PER_ROUND = 2**10
_MAX_TASKS_PER_ROUND = 16
# Limits of a default run. At 5 to 20 ms each, the second takes one to three minutes on two cores.
_UTILITIES_PER_BLOCK = 128
_MAX_BY_DEFAULT = 2**14
# Errors need two tasks.
_MIN_TASKS = 2
MAX_UTILITIES = 2**20
_MAX_PLAYERS_OF_ALL = MAX_UTILITIES.bit_length() - 1
# A budget of utilities ends after ten looks at each; these and all pairs stay well below.
_UTILITIES_BEFORE_ALL = 3
_NAME = "exact values"


class MonteCarloValuer(ModelValuer):
    """Estimate two-dimensional values, with standard errors, for any number of blocks.

    The ``estimator`` chooses the coalitions and computes values from their utilities. For Shapley
    values the default is :class:`~cellworth.sampling.AntitheticPermutations`;
    :class:`~cellworth.sampling.GaussianProcess` needs several times fewer fits where a few thousand
    suffice. Banzhaf values come from uniformly random coalitions, so every fit serves every block.
    For other semivalues, a task draws a coalition of rows and one of columns, of sizes that follow
    the semivalues, and adds each absent player in turn; sums of rows and columns then have no
    sampling errors.

    Ctrl-C ends a run early: the finished tasks are kept, with a warning.

    Parameters
    ----------
    model : classifier or regressor
        Trained on every coalition; see :class:`~cellworth.games.ModelGame`.
    scoring : str or callable, default=None
        scikit-learn scoring; None means accuracy or R squared.
    empty : {"prior", "zero"}, default="prior"
        Utility without rows or without columns; see :class:`~cellworth.games.ModelGame`.
    semivalue : Semivalue or (Semivalue, Semivalue), default=None
        Weights of coalitions by size; a pair has one for rows and one for columns. None means
        ``Shapley()``.
    estimator : AntitheticPermutations, PlainPermutations or GaussianProcess, default=None
        Chooses coalitions and computes values from their utilities. None means the default for the
        semivalues.
    stop : StoppingRule, default=None
        Rule that ends the run, such as ``MaxUtilities(10_000)``. Combine rules with ``|`` and
        ``&``. A budget that covers all coalitions gives exact values. None means
        ``TargetPrecision()``: the run ends when the sampling error is below half of the validation
        error, and at the latest after 128 utilities per block or 16,384 in all (or two tasks, if
        these are more).
    random_state : int, Generator, RandomState or None, default=None
        Seed of the coalitions; None draws one, which the provenance records.
    n_jobs : int, default=None
        Workers of the default executor, -1 for all cores; see :class:`~cellworth.Runtime`.
    runtime : Runtime, default=None
        Where and how the run is executed: executor, checkpoint, partition, cache, progress.
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
        One-dimensional values: sums of the blocks.

    See Also
    --------
    ExactValuer, KNNValuer, cellworth.sampling.GaussianProcess

    Notes
    -----
    ``valuation_`` also has validation errors, of all sums too: how far other validation rows would
    have moved the values. For them, every utility keeps up to 256 numbers, at most 256 MB in all.
    A scorer without a closed form is asked 32 more times for each utility, without new predictions;
    see ``docs/explanation/models.md``.

    References
    ----------
    Liu, Just, Chang, Chen and Jia (2023), 2D-Shapley: A Framework for Fragmented Data Valuation,
    ICML.

    Castro, Gómez and Tejada (2009), Polynomial calculation of the Shapley value based on sampling,
    Computers & Operations Research.

    Examples
    --------
    >>> from cellworth import MonteCarloValuer
    >>> from cellworth.runtime import MaxUtilities
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X, y = [[0.0, 5.0], [1.0, 4.0], [2.0, 5.0], [3.0, 4.0]], [0, 0, 1, 1]
    >>> valuer = MonteCarloValuer(DecisionTreeClassifier(), stop=MaxUtilities(40), random_state=0)
    >>> valuer.fit(X, y, X_val=X, y_val=y).valuation_.shape
    (4, 2)
    """

    def __init__(
        self,
        model: Model | None = None,
        *,
        scoring: Scoring = None,
        empty: EmptyPolicy = "prior",
        semivalue: Semivalues = None,
        estimator: Estimator | None = None,
        stop: StoppingRule | None = None,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        runtime: Runtime | None = None,
        error: ErrorPolicy = "fallback",
        n_repeats: int = 1,
    ) -> None:
        self.model = model
        self.scoring = scoring
        self.empty: EmptyPolicy = empty
        self.semivalue = semivalue
        self.estimator = estimator
        self.stop = stop
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.runtime = runtime
        self.error = error
        self.n_repeats = n_repeats

    def _plan(self, game: Any) -> Plan:
        settings = self._settings(self.semivalue)
        estimator = choose_estimator(self.estimator, settings.semivalues)
        tasks = estimator.make_sampler(game.shape, settings.semivalues, seed=0)
        rule = _rule(self.stop, estimator, tasks, game.shape, settings)
        plan = Plan.of_run(estimator.name, game, tasks, _within(estimator, rule))
        if not _covers_all(rule, game.shape, settings):
            return plan
        return replace(plan, sampler=f"{plan.sampler}, then all", utilities=n_utilities(game.shape))

    def _value(
        self, game: Game, blocks: Blocks, holdings: Holdings | None = None
    ) -> Valuation | None:
        settings = self._settings(self.semivalue)
        seed = draw_seed(self.random_state, self.runtime)
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
    estimator = choose_estimator(estimator, settings.semivalues)
    tasks = estimator.make_sampler(blocks.shape, settings.semivalues, seed)
    rule = _rule(stop, estimator, tasks, blocks.shape, settings)
    ends = corners(game, blocks.shape)
    method = Method(
        name=estimator.name,
        sampler=tasks,
        estimate=estimator.estimate(settings.semivalues, ends.totals),
        stop=_within(estimator, rule),
        seed=seed,
        tasks_per_round=_tasks_per_round(tasks),
        describe=_describe,
        shrink=estimator.shrink,
        merges=estimator.merges,
        errors_from=estimator.errors_from,
        observes_sums=estimator.observes_sums,
        advice=_advise(blocks) if stop is None else "",
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
    """Return whether a budget suffices for all coalitions."""
    # A limit on tasks refers to the tasks of the sampler.
    if math.isfinite(rule.most_tasks) or sum(shape) > _MAX_PLAYERS_OF_ALL:
        return False
    # LeaveOneOut needs far fewer coalitions than all.
    if LeaveOneOut() in settings.semivalues:
        return False
    return n_utilities(shape) <= rule.most_utilities < math.inf


def _until_all(
    method: Method, estimator: Estimator, rule: StoppingRule, settings: Settings, ends: Corners
) -> Method:
    """Run some sampled tasks first, for runs that end early, then all coalitions."""
    first = method.sampler
    n_evaluations = min(_UTILITIES_BEFORE_ALL * n_utilities(ends.shape), estimator.most_utilities)
    per_task = max(first.utilities_per_task, len(list(first(0))))
    sampler = SampledThenExhaustive(first, int(n_evaluations / per_task), ends.shape)
    weighted = WeightedUtilities(*settings.semivalues, sampler.pairs.n_tasks, ends.full_utility)
    assert method.estimate is not None  # noqa: S101 (every estimator has one)
    return replace(
        method,
        sampler=sampler,
        estimate=_UntilAll(sampler, method.estimate, weighted),
        stop=rule | MaxTasks(sampler.n_tasks),
        exact_after=sampler.n_tasks,
    )


@dataclass(frozen=True, eq=False)
class WeightedUtilities:
    """Weighted sums of the utilities of all pairs of coalitions, for every block.

    All tasks together give psi = W_n' H W_m, with the utilities H and the weights W. Each part is
    multiplied by the number of tasks, so that the mean over all tasks (which Moments hold) is the
    sum. The weights of a block add up to 0, so subtracting ``level`` from every utility only
    reduces rounding errors.
    """

    row_semivalue: Semivalue
    column_semivalue: Semivalue
    n_tasks: int
    level: float

    def __call__(self, tasks: Sequence[CoalitionPairs], utilities: Sequence[Floats]) -> Moments:
        """Return the weighted utilities of all tasks, in order."""
        return reduce(Moments.merge, map(self._weigh, tasks, utilities))

    def _weigh(self, pairs: CoalitionPairs, utilities: Floats) -> Moments:
        row_weights = membership_weights(self.row_semivalue, pairs.rows)
        column_weights = membership_weights(self.column_semivalue, pairs.columns)
        weights = row_weights[:, :, None] * column_weights[:, None, :]
        part = np.tensordot(weights, utilities - self.level, axes=(0, 0))
        return Moments.of(append_margins(part * self.n_tasks))


@dataclass(frozen=True, eq=False)
class _UntilAll:
    """What the first tasks tell, and once every pair has been looked at, the exact values."""

    sampler: SampledThenExhaustive
    first: Estimate
    weighted: WeightedUtilities

    def __call__(self, tasks: Sequence[Any], utilities: Sequence[Floats], **sums: Sums) -> Moments:
        n_first = self.sampler.n_first
        if len(tasks) == self.sampler.n_tasks:
            return self.weighted(tasks[n_first:], utilities[n_first:])
        return self.first(tasks[:n_first], utilities[:n_first], **sums)


def _rule(
    stop: StoppingRule | None,
    estimator: Estimator,
    tasks: TaskSampler,
    shape: tuple[int, int],
    settings: Settings,
) -> StoppingRule:
    """Return the rule that ends a run; the default depends on the size of the game alone."""
    if stop is not None:
        return check_stop(stop)
    least = math.ceil(_MIN_TASKS * tasks.utilities_per_task)
    most = min(_UTILITIES_PER_BLOCK * math.prod(shape), max(_MAX_BY_DEFAULT, least))
    budget = MaxUtilities(most)
    if _covers_all(budget, shape, settings):
        return budget
    precise: StoppingRule = TargetPrecision()
    if estimator.errors_from > _MIN_TASKS:
        # Values without errors would not show that they are precise.
        precise &= MaxTasks(estimator.errors_from)
    return precise | budget


def _advise(blocks: Blocks) -> str:
    """Return how to ask for more or less than a default run."""
    text = "stop=MaxUtilities(n) sets another limit"
    if _UTILITIES_PER_BLOCK * math.prod(blocks.shape) <= _MAX_BY_DEFAULT:
        return text
    text += ", row_groups= makes fewer blocks with smaller errors"
    return text if blocks.rows.grouped else f"{text}, KNNValuer values single rows in seconds"


def _tasks_per_round(tasks: TaskSampler) -> int:
    wanted = int(_UTILITIES_PER_ROUND / tasks.utilities_per_task)
    return min(max(wanted, 1), _MAX_TASKS_PER_ROUND)


def _within(estimator: Estimator, rule: StoppingRule) -> StoppingRule:
    """End where the estimator has as many utilities as it can read."""
    if rule.most_utilities > estimator.most_utilities:
        return rule | MaxUtilities(int(estimator.most_utilities))
    return rule


def _describe(progress: Progress) -> str:
    return f"{progress.tasks} tasks, {progress.utilities:,} utilities"


class ExactValuer(ModelValuer):
    """Compute exact two-dimensional values from all coalitions of rows and columns.

    Each further row or column player doubles the work, so about 20 players in all are feasible.
    Group the rows and columns of a larger table, or use :class:`~cellworth.MonteCarloValuer`.

    Parameters
    ----------
    model : classifier or regressor
        Trained on every coalition; see :class:`~cellworth.games.ModelGame`.
    scoring : str or callable, default=None
        scikit-learn scoring; None means accuracy or R squared.
    empty : {"prior", "zero"}, default="prior"
        Utility without rows or without columns; see :class:`~cellworth.games.ModelGame`.
    semivalue : Semivalue or (Semivalue, Semivalue), default=None
        Weights of coalitions by size; a pair has one for rows and one for columns. None means
        ``Shapley()``.
    n_jobs : int, default=None
        Workers of the default executor, -1 for all cores; see :class:`~cellworth.Runtime`.
    runtime : Runtime, default=None
        Where and how the run is executed: executor, checkpoint, partition, cache, progress.
    error : {"fallback", "raise"}, default="fallback"
        What happens if a fit fails: a constant predictor replaces it, or the run ends.
    n_repeats : int, default=1
        Fits per utility, with seeds 0, 1, ...; see
        :meth:`~cellworth.games.ModelGame.with_repeats`.
    max_utilities : int, default=2**20
        A run that needs more utilities raises ValueError.

    Attributes
    ----------
    valuation_ : Valuation
    values_, standard_errors_ : arrays of shape (n_row_groups, n_column_groups)
    row_values_, column_values_ : arrays
        One-dimensional values: sums of the blocks.

    See Also
    --------
    MonteCarloValuer, value_game

    Notes
    -----
    ``valuation_`` also has validation errors, of all sums too: how far other validation rows would
    have moved the values. For them, every utility keeps up to 256 numbers, at most 256 MB in all.
    A scorer without a closed form is asked 32 more times for each utility, without new predictions;
    see ``docs/explanation/models.md``.

    References
    ----------
    Liu, Just, Chang, Chen and Jia (2023), 2D-Shapley: A Framework for Fragmented Data Valuation,
    ICML.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from cellworth import ExactValuer
    >>> X, y = [[0.0, 5.0], [1.0, 4.0], [2.0, 5.0], [3.0, 4.0]], [0, 0, 1, 1]
    >>> valuer = ExactValuer(DecisionTreeClassifier()).fit(X, y, X_val=X, y_val=y)
    >>> valuer.valuation_.columns()
    column   value  validation_se
        x0  0.5000         0.2344
        x1  0.0000         0.2344
    """

    def __init__(
        self,
        model: Model | None = None,
        *,
        scoring: Scoring = None,
        empty: EmptyPolicy = "prior",
        semivalue: Semivalues = None,
        n_jobs: int | None = None,
        runtime: Runtime | None = None,
        error: ErrorPolicy = "fallback",
        n_repeats: int = 1,
        max_utilities: int = MAX_UTILITIES,
    ) -> None:
        self.model = model
        self.scoring = scoring
        self.empty: EmptyPolicy = empty
        self.semivalue = semivalue
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
        settings = self._settings(self.semivalue)
        return exact_valuation(
            game, blocks, settings, max_utilities=self.max_utilities, holdings=holdings
        )


def exact_valuation(
    game: Game,
    blocks: Blocks,
    settings: Settings,
    *,
    max_utilities: int,
    holdings: Holdings | None = None,
) -> Valuation | None:
    """Value a game by looking at all its coalitions."""
    sampler = ExhaustiveTasks(blocks.shape)
    ends = corners(game, blocks.shape)
    _check_plausible(game, blocks.shape, max_utilities)
    estimate = WeightedUtilities(
        settings.row_semivalue, settings.column_semivalue, sampler.n_tasks, ends.full_utility
    )
    method = replace(Method.of_all_tasks(_NAME, sampler, estimate), exact_after=sampler.n_tasks)
    valuation = value_blocks(game, blocks, method, settings=settings, ends=ends, holdings=holdings)
    if valuation is not None and valuation.status == "interrupted":
        # A part of the sum is no estimate of the whole.
        raise KeyboardInterrupt(
            "exact values need all coalitions; the run was interrupted (a checkpoint keeps what "
            "was done)"
        )
    return valuation


def _plan(game: Game, shape: tuple[int, int], limit: int) -> Plan:
    sampler = ExhaustiveTasks(shape)
    return Plan(
        _NAME,
        shape,
        sampler.n_pairs,
        sampler.utilities_per_task,
        seconds_per_utility(game, _random_pairs(shape)),
        limit=limit,
    )


def _check_plausible(game: Game, shape: tuple[int, int], limit: int) -> None:
    if not is_integer(limit):
        raise TypeError(f"max_utilities is {limit!r}; give an integer.")
    if 1 << sum(shape) > limit:
        plan = _plan(game, shape, limit)
        raise ValueError(
            f"exact values of {shape[0]} x {shape[1]} blocks need {plan.count} utilities, "
            f"{plan.duration}; the limit is {plan.limit:,}. Cut the table into fewer row_groups or "
            "column_groups, estimate with MonteCarloValuer (a game: value_game(..., "
            "stop=MaxUtilities(5000))), or raise max_utilities."
        )


def _random_pairs(shape: tuple[int, int]) -> Iterator[tuple[Mask, Mask]]:
    """Return random coalitions, which take as long as those of an exact run."""
    rng = generator(0, 0)
    while True:
        yield rng.random(shape[0]) < 0.5, rng.random(shape[1]) < 0.5


def value_game(
    game: Game,
    shape: tuple[int, int] | Blocks | None = None,
    *,
    semivalue: Semivalues = None,
    estimator: Estimator | None = None,
    stop: StoppingRule | None = None,
    random_state: RandomState = None,
    n_jobs: int | None = None,
    runtime: Runtime | None = None,
    max_utilities: int = MAX_UTILITIES,
) -> Valuation:
    """Value every block of a game: exactly, or by Monte Carlo if an estimator or a rule is given.

    Parameters
    ----------
    game : Game
        Anything with a method ``value(rows, columns)``.
    shape : tuple of int or Blocks, default=None
        Numbers of row players and column players, or blocks with names. None means those of the
        game, if it has any.
    semivalue : Semivalue or (Semivalue, Semivalue), default=None
        Weights of coalitions by size; a pair has one for rows and one for columns. None means
        ``Shapley()``.
    estimator, stop : default=None
        As in :class:`~cellworth.MonteCarloValuer`. Without either, values are exact.
    random_state : int, Generator, RandomState or None, default=None
        Seed of the random coalitions.
    n_jobs : int, default=None
        Workers of the default executor, -1 for all cores; see :class:`~cellworth.Runtime`.
    runtime : Runtime, default=None
        Where and how the run is executed, without a partition.
    max_utilities : int, default=2**20
        An exact run that needs more utilities raises ValueError.

    Returns
    -------
    Valuation
        Values of all blocks.

    See Also
    --------
    cellworth.games.Game, ExactValuer, MonteCarloValuer

    References
    ----------
    Liu, Just, Chang, Chen and Jia (2023), 2D-Shapley: A Framework for Fragmented Data Valuation,
    ICML.

    Examples
    --------
    A game in which every row adds 1 to what every column earns:

    >>> from cellworth import value_game
    >>> class Counting:
    ...     def value(self, rows, columns):
    ...         return rows.sum() * columns.sum()
    >>> value_game(Counting(), (3, 2)).values
    array([[1., 1.],
           [1., 1.],
           [1., 1.]])
    """
    if isinstance(game, type) or not isinstance(game, Game):
        raise TypeError(
            f"game is {game!r}; give an object with a method value(rows, columns) -> float."
        )
    blocks = _blocks(game, shape)
    settings = Settings.of(semivalue, n_jobs=n_jobs, runtime=runtime)
    if settings.runtime.partition is not None:
        raise ValueError("partition is for valuers; value_game returns all values.")
    if stop is None and estimator is None:
        valued = exact_valuation(game, blocks, settings, max_utilities=max_utilities)
    else:
        seed = draw_seed(random_state, runtime)
        valued = monte_carlo_valuation(
            game, blocks, settings, estimator=estimator, stop=stop, seed=seed
        )
    # Only partitions have none.
    return cast(Valuation, valued)


def _blocks(game: Game, shape: tuple[int, int] | Blocks | None) -> Blocks:
    if isinstance(shape, Blocks):
        given = shape
    else:
        size: Any = getattr(game, "shape", None) if shape is None else shape
        given = Blocks.from_shape(size)
    own = tuple(getattr(game, "shape", given.shape))
    if own != given.shape:
        raise ValueError(f"shape is {given.shape}, but the game has {own}; give that shape.")
    named = getattr(game, "blocks", None)
    return given if isinstance(shape, Blocks) or named is None else named
