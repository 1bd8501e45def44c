"""ModelValuer: values for any model, exact or estimated; value_game for any game."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Self, cast

from cellworth.data.arguments import CrossValidation, Model, RandomState, Scoring
from cellworth.data.blocks import Blocks, Groups
from cellworth.data.holdings import Holdings
from cellworth.data.owners import Owners, check_owners
from cellworth.data.problem import GroupedFolds
from cellworth.data.tables import TableLike, VectorLike
from cellworth.games.game import EmptyPolicy, Game
from cellworth.games.model import ErrorPolicy, ModelGame
from cellworth.runtime.checkpoint import AnotherRunError
from cellworth.runtime.run_settings import Runtime
from cellworth.runtime.stopping import MaxTasks, MaxUtilities, StoppingRule, TargetPrecision
from cellworth.sampling.estimators import Estimator, GaussianProcess, choose_estimator
from cellworth.sampling.samplers import ExhaustiveTasks, TaskSampler, n_utilities
from cellworth.sampling.semivalues import LeaveOneOut, Semivalue
from cellworth.valuation.column_info import ColumnTable
from cellworth.valuation.known_utilities import Utilities
from cellworth.valuation.valuation import Valuation
from cellworth.valuers.exact_values import (
    LeavingOneOut,
    SampledThenExhaustive,
    estimate_then_weigh,
    leave_one_out_moments,
    weigh_utilities,
)
from cellworth.valuers.run import Method, corners, value_blocks
from cellworth.valuers.settings import Semivalues, Settings, check_stop, draw_seed
from cellworth.valuers.utilities import KnownCoalitions, check_sampler
from cellworth.valuers.valuer import Valuer

# An estimator, or the word that asks for all coalitions.
EstimatorOrExact = Estimator | Literal["exact"] | None
# A round is about this many utilities: after each one, a stopping rule may end the run.
_UTILITIES_PER_ROUND = 2**10
_MAX_TASKS_PER_ROUND = 16
# Limits of a default run. At 5 to 20 ms each, the second takes one to three minutes on two cores.
_UTILITIES_PER_BLOCK = 128
_MAX_BY_DEFAULT = 2**14
# Errors need two tasks.
_MIN_TASKS = 2
# All coalitions are evaluated up to this many utilities: memory grows with each.
_MAX_EXACT_UTILITIES = 2**20
# A budget of utilities ends after ten looks at each; these and all pairs stay well below.
_UTILITIES_BEFORE_ALL = 3
_MAX_WRITTEN_OUT = 2**60
_WEIGHED = "exact values"


class ModelValuer(Valuer):
    """Value the blocks of a table for any model: exactly where affordable, else estimated.

    Values are exact if the budget covers all coalitions: ``stop=MaxUtilities(n)``, or by default
    128 utilities per block and at most 16,384. ``valuation_.status`` and the printed valuation say
    whether they are. With ``estimator="exact"`` all coalitions are evaluated or an error is raised
    before any model is trained. Each further row or column player doubles the work, so about 20
    players in all are feasible; group the rows and columns of a larger table.

    Otherwise values are estimated. The ``estimator`` chooses the coalitions and computes values
    from their utilities. By default, and for budgets of up to 4,000 utilities, it is
    :class:`~cellworth.sampling.GaussianProcess`, whose coalitions are chosen to say most about all
    values. Shapley and Banzhaf values then have standard errors from ten utilities per block on.
    For larger budgets, for rules without a number of utilities and for more than 3,000 blocks, it
    is :class:`~cellworth.sampling.AntitheticPermutations`, without a bias. Banzhaf values then come
    from uniformly random coalitions, so every fit serves every block. Other semivalues always need
    the Gaussian process, and have no standard errors.

    ``semivalue=LeaveOneOut()`` needs (n + 1)(m + 1) utilities only, so that by default it is exact
    for a table of any size. The values are h(N, M) - h(N-i, M) - h(N, M-j) + h(N-i, M-j); a row
    with a near copy has a value of about 0. They do not add up to the utility of the table; see
    ``docs/evidence/baselines.md``.

    Ctrl-C ends a run early: the finished tasks are kept, with a warning. Only with
    ``estimator="exact"`` they are no estimate; a checkpoint keeps them.

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
    estimator : AntitheticPermutations, GaussianProcess or "exact", default=None
        Chooses coalitions and computes values from their utilities. None means the default for the
        semivalues; "exact" means all coalitions.
    stop : StoppingRule, default=None
        Rule that ends the run, such as ``MaxUtilities(10_000)``. Combine rules with ``|`` and
        ``&``. A budget that covers all coalitions gives exact values. None means
        ``TargetPrecision()``: the run ends when the sampling error is below half of the validation
        error, and at the latest after 128 utilities per block or 4,000 in all (more than 3,000
        blocks: 16,384, or two tasks if these are more). With ``estimator="exact"``,
        ``MaxUtilities(n)`` is the largest number of utilities that is accepted, by default 2**20.
    random_state : int, Generator, RandomState or None, default=None
        Seed of the coalitions; None draws one, which the provenance records.
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
        One-dimensional values: sums of the blocks.

    See Also
    --------
    KNNValuer, value_game, cellworth.sampling.GaussianProcess

    Notes
    -----
    ``valuation_`` also has validation errors, of all sums too: how far other validation rows would
    have moved the values. For them, every utility keeps up to 256 numbers, at most 256 MB in all.
    A scorer without a closed form is asked 32 more times for each utility, without new predictions;
    see ``docs/reference/models.md``.

    References
    ----------
    Liu, Just, Chang, Chen and Jia (2023), 2D-Shapley: A Framework for Fragmented Data Valuation,
    ICML.

    Castro, Gómez and Tejada (2009), Polynomial calculation of the Shapley value based on sampling,
    Computers & Operations Research.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from cellworth import ModelValuer
    >>> from cellworth.runtime import MaxUtilities
    >>> X, y = [[0.0, 5.0], [1.0, 4.0], [2.0, 5.0], [3.0, 4.0]], [0, 0, 1, 1]
    >>> valuer = ModelValuer(DecisionTreeClassifier()).fit(X, y, X_val=X, y_val=y)
    >>> valuer.valuation_.status
    'exact'
    >>> valuer.valuation_.columns()
    column   value  validation_se
        x0  0.5000         0.2344
        x1  0.0000         0.2344
    >>> few = MaxUtilities(40)
    >>> valuer = ModelValuer(DecisionTreeClassifier(), stop=few, random_state=0)
    >>> valuer.fit(X, y, X_val=X, y_val=y).valuation_.status
    'estimated'
    """

    def __init__(
        self,
        model: Model | None = None,
        *,
        scoring: Scoring = None,
        empty: EmptyPolicy = "prior",
        semivalue: Semivalues = None,
        estimator: EstimatorOrExact = None,
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

    def fit(
        self,
        X: TableLike,
        y: VectorLike,
        *,
        X_val: TableLike | None = None,
        y_val: VectorLike | None = None,
        cv: CrossValidation = 5,
        groups: VectorLike | None = None,
        row_groups: Groups = None,
        column_groups: Groups = None,
        sample_weight: VectorLike | None = None,
        owners: Owners | None = None,
    ) -> Self:
        """Value the blocks of a training table.

        Parameters
        ----------
        X : pandas, polars or Arrow table, or array, of shape (n_rows, n_columns)
            Table to learn from; its blocks are valued. Names and row ids are kept.
        y : array-like of shape (n_rows,)
            Labels.
        X_val, y_val : table and labels, default=None
            Validation rows. Without them, each utility is a mean over the folds of ``cv``.
        cv : int, splitter or iterable of (train, validation) positions, default=5
            Used without validation rows: each fold serves once as the validation set for the
            remaining rows.
        groups : array-like of shape (n_rows,), default=None
            Rows that ``cv`` keeps together, where it is a splitter that asks for groups.
        row_groups : array-like or mapping, default=None
            One group per row or ``{group: [row ids]}``. None: every row for itself.
        column_groups : array-like or mapping, default=None
            One group per column or ``{group: [column names]}``. None: every column for itself.
        sample_weight : array-like of shape (n_rows,), default=None
            Weight of each training row, for models whose ``fit`` takes it.
        owners : Owners, default=None
            Who holds which blocks. ``valuation_.owners()`` then has the errors of each owner's sum,
            which do not follow from the errors of single blocks.

        Returns
        -------
        self
        """
        self._forget()
        game = self._make_game(
            X, y, X_val=X_val, y_val=y_val, cv=cv, groups=groups, row_groups=row_groups,
            column_groups=column_groups, sample_weight=sample_weight,
        )  # fmt: skip
        holdings = None
        if owners is not None:
            holdings = check_owners(owners).project(game.blocks)
            owners.check_cells(game.problem.table.sha256())
        valuation = value_coalitions(
            game, game.blocks, self._settings(self.semivalue), estimator=self.estimator,
            stop=self.stop, random_state=self.random_state, holdings=holdings,
            columns=self._inspect_columns(game),
        )  # fmt: skip
        return self._keep(game, valuation)

    def _make_game(
        self,
        X: TableLike,
        y: VectorLike,
        *,
        cv: CrossValidation = 5,
        groups: VectorLike | None = None,
        **data: Any,
    ) -> ModelGame:
        # ModelGame says what is wrong without a model.
        return ModelGame(
            cast(Model, self.model), X, y, scoring=self.scoring, empty=self.empty,
            error=self.error, cv=cv if groups is None else GroupedFolds(cv, groups), **data,
        ).with_repeats(self.n_repeats)  # fmt: skip


def value_coalitions(
    game: Game,
    blocks: Blocks,
    settings: Settings,
    *,
    estimator: EstimatorOrExact = None,
    stop: StoppingRule | None = None,
    random_state: RandomState = None,
    holdings: Holdings | None = None,
    columns: ColumnTable | None = None,
) -> Valuation:
    """Value a game exactly where the budget covers all coalitions, and estimate it otherwise."""
    # No model is trained before it is known that the run is possible.
    methods = _choose_methods(blocks, settings, estimator, stop, random_state)
    ends = corners(game, blocks.shape)
    run = partial(
        value_blocks, game, blocks, settings=settings, ends=ends, holdings=holdings,
        problem_spec=settings.problem_spec(game), columns=columns,
    )  # fmt: skip
    others = []
    for method in methods:
        try:
            valuation = run(method)
            break
        except AnotherRunError as error:
            # The checkpoint was begun with another budget, or with another rule.
            others.append(error)
    else:
        # That of the method that agrees longest with the checkpoint.
        raise max(others, key=lambda error: error.difference)
    if method.name == _WEIGHED and valuation is not None and valuation.status == "interrupted":
        # A part of the sum is no estimate of the whole.
        raise KeyboardInterrupt(
            "exact values need all coalitions; the run was interrupted (a checkpoint keeps what "
            "was done)"
        )
    return valuation


def _choose_methods(
    blocks: Blocks,
    settings: Settings,
    estimator: EstimatorOrExact,
    stop: StoppingRule | None,
    random_state: RandomState,
) -> list[Method]:
    """Return how to value blocks; earlier methods are tried first, if a checkpoint suits them."""
    shape, semivalues = blocks.shape, settings.semivalues
    asked_for_all = isinstance(estimator, str) and estimator == "exact"
    left_out = semivalues == (LeaveOneOut(), LeaveOneOut()) and (estimator is None or asked_for_all)
    exact = _leave_one_out(shape) if left_out else _weigh_all(shape, settings)
    n_needed = math.prod(n + 1 for n in shape) if left_out else n_utilities(shape)
    if asked_for_all:
        _check_limit(shape, n_needed, stop)
        return [exact]
    if left_out and stop is None:
        return [exact]
    seed = draw_seed(random_state, settings.runtime)
    first = choose_estimator(estimator, semivalues)
    rule = _make_rule(stop, first.make_sampler(shape, semivalues, seed), shape, n_needed)
    sample = partial(_sample, blocks=blocks, semivalues=semivalues, seed=seed, stop=stop, rule=rule)
    methods = [sample(first)]
    # The default of all other semivalues is a process anyway.
    unlike = not isinstance(first, GaussianProcess)
    if estimator is None and unlike and GaussianProcess.suits(shape):
        # With a larger budget it goes on only where a checkpoint was begun with it.
        few = stop is None or rule.most_utilities <= GaussianProcess.most_utilities
        methods.insert(0 if few else 1, sample(GaussianProcess()))
    if not _covers(rule, n_needed):
        return methods
    if left_out:
        return [replace(exact, stop=rule | exact.stop), *methods]
    return [_sample_first(sample(first), exact, rule, first.most_utilities, shape), *methods]


def _sample(
    estimator: Estimator,
    *,
    blocks: Blocks,
    semivalues: tuple[Semivalue, Semivalue],
    seed: int,
    stop: StoppingRule | None,
    rule: StoppingRule,
) -> Method:
    """Return the method that draws coalitions for an estimator."""
    tasks = check_sampler(estimator.make_sampler(blocks.shape, semivalues, seed))
    wanted = int(_UTILITIES_PER_ROUND / tasks.utilities_per_task)
    return Method(
        name=estimator.name,
        sampler=tasks,
        make_estimate=lambda ends: estimator.estimate(semivalues, ends.totals),
        # It ends where the estimator has as many utilities as it can read.
        stop=rule
        if rule.most_utilities <= estimator.most_utilities
        else rule | MaxUtilities(int(estimator.most_utilities)),
        seed=seed,
        tasks_per_round=min(max(wanted, 1), _MAX_TASKS_PER_ROUND),
        describe=lambda progress: f"{progress.tasks} tasks, {progress.utilities:,} utilities",
        merges=estimator.merges,
        observes_sums=estimator.observes_sums,
        advice=_advise(blocks) if stop is None else "",
    )


def _check_limit(shape: tuple[int, int], n_needed: int, stop: StoppingRule | None) -> None:
    """Raise ValueError if all coalitions are more than the limit."""
    rule = MaxUtilities(_MAX_EXACT_UTILITIES) if stop is None else check_stop(stop)
    if not isinstance(rule, MaxUtilities):
        raise ValueError(
            "estimator='exact' evaluates all coalitions, so that stop must be MaxUtilities(n), "
            f"the largest number that is accepted, got {stop!r}."
        )
    if n_needed > rule.n_utilities:
        # Both sides have fewer coalitions than 2^n, because the empty one costs nothing.
        count = f"{n_needed:,}" if n_needed <= _MAX_WRITTEN_OUT else f"about 2^{sum(shape)}"
        raise ValueError(
            f"exact values of {shape[0]} x {shape[1]} blocks need {count} utilities, and the limit "
            f"is {rule.n_utilities:,}. Cut the table into fewer row_groups or column_groups, leave "
            "out estimator='exact' to estimate values, or raise the limit: stop=MaxUtilities(n)."
        )


def _covers(rule: StoppingRule, n_needed: int) -> bool:
    """Return whether a budget suffices for exact values."""
    # A limit on tasks refers to the tasks of the sampler.
    if math.isfinite(rule.most_tasks) or math.isinf(rule.most_utilities):
        return False
    return n_needed <= min(rule.most_utilities, _MAX_EXACT_UTILITIES)


def _leave_one_out(shape: tuple[int, int]) -> Method:
    """Return the method that leaves out each row and each column once."""
    return Method.of_all_tasks(
        "leave one out", LeavingOneOut(shape), lambda _: leave_one_out_moments
    )


def _weigh_all(shape: tuple[int, int], settings: Settings) -> Method:
    """Return the method that evaluates and weighs all coalitions."""
    return Method.of_all_tasks(
        _WEIGHED,
        ExhaustiveTasks(shape),
        lambda ends: partial(weigh_utilities, settings.semivalues, float(ends.utilities[0])),
    )


def _sample_first(
    sampled: Method,
    exact: Method,
    rule: StoppingRule,
    most_sampled: float,
    shape: tuple[int, int],
) -> Method:
    """Run some sampled tasks first, for runs that end early, then all coalitions."""
    first, estimate, weigh = sampled.sampler, sampled.make_estimate, exact.make_estimate
    assert estimate is not None and weigh is not None  # noqa: S101, PT018 (both ask for utilities)
    n_evaluations = min(_UTILITIES_BEFORE_ALL * n_utilities(shape), most_sampled)
    per_task = max(first.utilities_per_task, len(list(first(0))))
    sampler = SampledThenExhaustive(first, int(n_evaluations / per_task), shape)
    return replace(
        sampled,
        sampler=sampler,
        make_estimate=lambda ends: partial(
            estimate_then_weigh, sampler, estimate(ends), weigh(ends)
        ),
        stop=rule | MaxTasks(sampler.n_tasks),
        exact_after=sampler.n_tasks,
    )


def _make_rule(
    stop: StoppingRule | None,
    tasks: TaskSampler,
    shape: tuple[int, int],
    n_needed: int,
) -> StoppingRule:
    """Return the rule that ends a run; the default depends on the size of the game alone."""
    if stop is not None:
        return check_stop(stop)
    least = math.ceil(_MIN_TASKS * tasks.utilities_per_task)
    most = min(_UTILITIES_PER_BLOCK * math.prod(shape), max(_MAX_BY_DEFAULT, least))
    budget = MaxUtilities(most)
    if _covers(budget, n_needed):
        return budget
    return TargetPrecision() | budget


def _advise(blocks: Blocks) -> str:
    """Return how to ask for more or less than a default run."""
    text = "stop=MaxUtilities(n) sets another limit"
    if _UTILITIES_PER_BLOCK * math.prod(blocks.shape) <= _MAX_BY_DEFAULT:
        return text
    text += ", row_groups= makes fewer blocks with smaller errors"
    return text if blocks.rows.grouped else f"{text}, KNNValuer values single rows in seconds"


def value_game(
    game: Game,
    shape: tuple[int, int] | Blocks | None = None,
    *,
    semivalue: Semivalues = None,
    estimator: EstimatorOrExact = None,
    stop: StoppingRule | None = None,
    random_state: RandomState = None,
    n_jobs: int | None = None,
    runtime: Runtime | None = None,
) -> Valuation:
    """Value every block of a game: exactly where the budget covers all coalitions, else estimated.

    Parameters
    ----------
    game : Game
        Anything with a method ``value(rows, columns)``. ``valuation.utilities`` of an earlier run
        need no new fit: values are exact if all coalitions are known, and otherwise those of a
        Gaussian process that is fitted to the known ones.
    shape : tuple of int or Blocks, default=None
        Numbers of row players and column players, or blocks with names. None means those of the
        game, if it has any.
    semivalue : Semivalue or (Semivalue, Semivalue), default=None
        Weights of coalitions by size; a pair has one for rows and one for columns. None means
        ``Shapley()``.
    estimator, stop : default=None
        As in :class:`~cellworth.ModelValuer`.
    random_state : int, Generator, RandomState or None, default=None
        Seed of the random coalitions.
    n_jobs : int, default=None
        Workers of the default executor, -1 for all cores; see :class:`~cellworth.Runtime`.
    runtime : Runtime, default=None
        Where and how the run is executed.

    Returns
    -------
    Valuation
        Values of all blocks.

    See Also
    --------
    cellworth.games.Game, ModelValuer

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
    if isinstance(game, Utilities) and estimator is None and stop is None:
        n_known = len(game.values)
        is_complete = n_known == ExhaustiveTasks(blocks.shape).n_pairs
        estimator = "exact" if is_complete else KnownCoalitions(game)
        stop = MaxUtilities(n_known) if is_complete else MaxTasks(1)
    return value_coalitions(
        game, blocks, settings, estimator=estimator, stop=stop, random_state=random_state
    )


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
