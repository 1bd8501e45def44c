"""From a game to a Valuation: the run, its identity, and the scores beside the values."""

from __future__ import annotations

import logging
import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast, get_args

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats, Mask
from cellworth.data.blocks import Blocks
from cellworth.data.holdings import Holdings
from cellworth.data.io import describe
from cellworth.data.problem import Problem
from cellworth.games.game import EmptyPolicy, FailedUtility, Game, compute_utility
from cellworth.knn.knn_game import AGREEMENT, BALANCED, query_weights
from cellworth.knn.tasks import TaskSchedule
from cellworth.runtime.engine import Outcome, Planner, run
from cellworth.runtime.executors import Executor
from cellworth.runtime.forecast import Forecast
from cellworth.runtime.progress import Progress, count_tasks
from cellworth.runtime.run_settings import choose_process_executor, count_cores
from cellworth.runtime.stopping import MaxTasks, StoppingRule
from cellworth.sampling.moments import (
    Contribution,
    DetailedUtility,
    Estimate,
    Moments,
    OwnerSums,
    Tally,
    append_pairs,
    limit_threads,
    widening,
)
from cellworth.sampling.passes import PassSums
from cellworth.sampling.samplers import ExhaustiveTasks, TaskSampler, n_utilities
from cellworth.valuation.column_info import ColumnTable
from cellworth.valuation.known_utilities import Utilities
from cellworth.valuation.provenance import (
    Provenance,
    Scores,
    Session,
)
from cellworth.valuation.valuation import Valuation
from cellworth.valuers.exact_values import LeavingOneOut
from cellworth.valuers.identity import find_problem, run_identity
from cellworth.valuers.settings import Settings
from cellworth.valuers.utilities import (
    Known,
    UtilityPlanner,
    look_up,
    pack_coalitions,
    pack_utilities,
    read_log,
)
from cellworth.valuers.utility_log import UtilityLog, estimate_with_errors

# Memory for the deviations of all utilities; beyond it, validation rows are grouped.
MAX_BYTES_OF_DEVIATIONS = 2**28
_BYTES_PER_DEVIATION = 4
# Assumed number of utilities of a run that is limited only by time or errors.
_UTILITIES_WITHOUT_END = 2**20
_ROUNDS = 100
_log = logging.getLogger(__name__)
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Method:
    """How values are computed: which tasks, what each contributes, and when to stop."""

    name: str
    sampler: TaskSampler
    stop: StoppingRule
    # None: nothing is drawn.
    seed: int | None
    tasks_per_round: int
    # If tasks are pairs of coalitions: returns the function from the utilities of all tasks to
    # moments. Otherwise there are a planner, and the pure function of a request for workers.
    make_estimate: Callable[[Corners], Estimate] | None = None
    planned: tuple[Planner, Callable[[Any], Any]] | None = None
    # Returns the text behind the progress bar.
    describe: Callable[[Progress], str] = count_tasks
    # Whether the variance between tasks gives standard errors.
    has_errors: bool = True
    # Whether two runs with different seeds can be averaged.
    merges: bool = True
    # Tasks after which all coalitions are evaluated, so that values are exact.
    exact_after: float = math.inf
    # Whether every task observes all blocks, so that any sum of blocks has its own variance. The
    # estimate then takes the sums to be observed as a third argument.
    observes_sums: bool = False
    # How to ask for more or less, for the first line of a long run.
    advice: str = ""

    @classmethod
    def of_all_tasks(
        cls,
        name: str,
        sampler: ExhaustiveTasks | LeavingOneOut,
        make_estimate: Callable[[Corners], Estimate],
    ) -> Method:
        """Return the method that runs all tasks of a sampler; nothing is drawn."""
        n_tasks = sampler.n_tasks
        return cls(
            name=name,
            sampler=sampler,
            stop=MaxTasks(n_tasks),
            seed=None,
            tasks_per_round=-(-n_tasks // _ROUNDS),
            make_estimate=make_estimate,
            describe=lambda progress: f"{progress.tasks:,} of {n_tasks:,} tasks",
            has_errors=False,
            exact_after=n_tasks,
        )


@dataclass(frozen=True)
class Corners:
    """Utilities of full and empty coalitions, which determine the sum of all values."""

    shape: tuple[int, int]
    # h(N, M), h(N, 0), h(0, M) and h(0, 0), with deviations if the game knows them.
    utilities: tuple[float, ...]
    tally: Tally
    # Seconds that the utility of the whole table took.
    seconds: float

    @property
    def known(self) -> dict[bytes, Known]:
        """The four utilities, by coalition."""
        names = pack_coalitions(_corner_pairs(self.shape))
        return dict(zip(names, map(Known.of, self.utilities), strict=True))

    @property
    def total(self) -> float:
        """h(N, M) - h(N, 0) - h(0, M) + h(0, 0): the sum of Shapley values."""
        full_utility, no_columns, no_rows, nothing = map(float, self.utilities)
        return full_utility - no_columns - no_rows + nothing

    @property
    def totals(self) -> Floats:
        """The total, followed by its deviations if the game knows them."""
        known = [each.deviations for each in self.known.values() if each.deviations is not None]
        if len(known) < len(self.utilities):
            return np.array([self.total])
        full_utility, no_columns, no_rows, nothing = known
        return np.append(self.total, full_utility - no_columns - no_rows + nothing)


def corners(game: Game, shape: tuple[int, int]) -> Corners:
    """Compute the four corners of a game; raise if a model fails on the whole table."""
    pairs = _corner_pairs(shape)
    # One thread, as inside tasks: the bits must not depend on the machine's number of cores.
    with limit_threads():
        began = time.perf_counter()
        full_utility = compute_utility(game, *pairs[0])
        seconds = time.perf_counter() - began
        if isinstance(full_utility, FailedUtility):
            raise ValueError(
                "the model could not be trained and scored on the whole table "
                f"({full_utility.message}); fix the data, or put the steps that it needs into a "
                "Pipeline."
            )
        rest = [compute_utility(game, *pair) for pair in pairs[1:]]
    messages = tuple(each.message for each in rest if isinstance(each, FailedUtility))
    tally = Tally(len(pairs), len(messages), messages, new=1)
    return Corners(shape, (full_utility, *rest), tally, seconds)


def _corner_pairs(shape: tuple[int, int]) -> list[tuple[Mask, Mask]]:
    rows, columns = (np.ones(n, dtype=bool) for n in shape)
    return [(rows, columns), (rows, ~columns), (~rows, columns), (~rows, ~columns)]


def value_blocks(
    game: Game,
    blocks: Blocks,
    method: Method,
    *,
    settings: Settings,
    ends: Corners,
    problem_spec: dict[str, Any],
    holdings: Holdings | None = None,
    columns: ColumnTable | None = None,
) -> Valuation:
    """Run a method on a game and return the Valuation."""
    settings_of_tasks = {
        "method": method.name,
        "sampler": describe(method.sampler),
        "shape": list(blocks.shape),
        "seed": method.seed,
        # It distinguishes games whose settings have no repr, such as a lambda; its last digits may
        # differ between machines.
        "total": f"{ends.total:.9g}",
    }
    identity = run_identity(problem_spec, game, settings_of_tasks)
    planner, work = _make_planner(game, method, ends)
    seconds = min(ends.seconds * _most_utilities(method), method.stop.most_seconds)
    executor = settings.runtime.executor or choose_process_executor(work, seconds, settings.n_jobs)
    forecast, runtime = _forecast(game, problem_spec, method, ends, executor), settings.runtime
    runtime.announce(forecast)
    outcome = run(
        work,
        planner=planner,
        stop=method.stop,
        executor=executor,
        identity=identity,
        title=method.name,
        tasks_per_round=method.tasks_per_round,
        describe=method.describe,
        errors_from=2 if method.has_errors else None,
        checkpoint=settings.checkpoint,
        show_progress=runtime.progress,
        on_round=runtime.on_round,
        forecast=forecast,
    )
    zeros = np.zeros([n + 1 for n in blocks.shape])
    nothing = Contribution(Moments(zeros.astype(np.int64), zeros, zeros))
    # The budget may have ended before the first task.
    added = outcome.contribution or nothing
    exact = outcome.tasks >= method.exact_after
    # Share of each owner in each block, shape (n_owners, n_rows, n_columns).
    shares = None if holdings is None else np.moveaxis(holdings.shares[holdings.codes()], -1, 0)
    samples = method.has_errors and not exact
    moments, errors, owner_errors = estimate_with_errors(added, shares, samples=samples)
    tally = ends.tally.merge(added.tally)
    _warn(outcome, tally)
    how = {"name": method.name, "stop": describe(method.stop), "merges": method.merges}
    how |= {} if settings.valuer is None else {"valuer": settings.valuer}
    session = Session(method.seed, outcome.tasks)
    provenance = Provenance.now(problem_spec, how, session, tally, outcome.seconds)
    problem, policy = find_problem(game), str(getattr(game, "empty", None))
    backend = problem.table.backend if problem else getattr(game, "backend", None)
    utilities = None
    if isinstance(added, UtilityLog):
        known = pack_utilities({**ends.known, **read_log(added)})
        utilities = Utilities(blocks, *known, problem_spec, backend)
    valuation = Valuation(
        blocks,
        moments,
        ends.total,
        policy if policy in (*get_args(EmptyPolicy), "none") else "game",
        "exact" if exact else "interrupted" if outcome.interrupted else "estimated",
        provenance,
        backend,
        errors,
        baseline=float(ends.utilities[0]) - ends.total,
        scores=scores_of_game(game, float(ends.utilities[0])),
        column_info=columns,
        held_out=problem.held_out if problem else None,
        utilities=utilities,
    )
    _warn_if_uninformative(valuation, outcome.tasks)
    detailed = isinstance(ends.utilities[0], DetailedUtility)
    if problem and detailed and outcome.tasks and errors is None:
        warnings.warn(
            "validation errors are not known: the scoring gives no score for some resamples of the "
            "validation rows; give more validation rows, or a scoring name of scikit-learn.",
            stacklevel=2,
        )
    if holdings is None or shares is None:
        return valuation
    owned = _sum_by_owner(valuation, added, method, owner_errors, holdings, shares=shares)
    return replace(valuation, owned=owned)


def _sum_by_owner(
    valuation: Valuation,
    added: Any,
    method: Method,
    validation: Floats | None,
    holdings: Holdings,
    *,
    shares: Floats,
) -> OwnerSums:
    """Return the sums of the owners' blocks, with their own errors."""
    values = append_pairs(np.tensordot(shares, valuation.values, axes=2))
    count = np.full(len(values), max(int(valuation.moments.count.min()), 2), dtype=np.int64)
    observed = method.observes_sums and valuation.status != "exact"
    if observed and isinstance(added, UtilityLog):
        seen = added.moments_of(lambda blocks: append_pairs(np.tensordot(shares, blocks, axes=2)))
        errors = seen.sampling_se
    else:
        # The standard errors of blocks add up to those of their sum at most.
        errors_of_blocks = valuation.sampling_se
        by_owner = np.array([mine[mine > 0] @ errors_of_blocks[mine > 0] for mine in shares])
        # As if they were uncorrelated, because their correlations are not known.
        errors = np.sqrt(append_pairs(by_owner**2)) / widening(count)
    moments = Moments.of_variances(count, values, errors**2)
    return OwnerSums(holdings.names, holdings.keys, moments, validation)


def _make_planner(
    game: Game, method: Method, ends: Corners
) -> tuple[Planner, Callable[[Any], Any]]:
    """Return the planner of a run and the task function of its workers."""
    if method.make_estimate is None:
        return cast(tuple[Planner, Callable[[Any], Any]], method.planned)
    # Deviations of each utility that fit into memory.
    n_kept = min(_most_utilities(method), _UTILITIES_WITHOUT_END)
    most_deviations = int(max(MAX_BYTES_OF_DEVIATIONS // (_BYTES_PER_DEVIATION * n_kept), 1))
    planner = UtilityPlanner(
        method.sampler,
        partial(_check_moments, method.name, ends.shape, method.make_estimate(ends)),
        method.stop,
        seconds=ends.seconds,
        known=ends.known,
    )
    return planner, partial(look_up, game, ends.shape, most_deviations, planner.deadline)


def _check_moments(
    name: str, shape: tuple[int, int], estimate: Estimate, tasks: Any, utilities: Any, **sums: Any
) -> Moments:
    """Return the Moments of an estimate; raise TypeError if they are not those of the blocks."""
    found: Any = estimate(tasks, utilities, **sums)
    wanted = (shape[0] + 1, shape[1] + 1, *utilities[0].shape[1:])
    if not sums and (not isinstance(found, Moments) or found.mean.shape != wanted):
        raise TypeError(
            f"the estimate of {name} must return Moments of shape {wanted}, with the sums of "
            f"blocks in the last row and column, got {np.shape(getattr(found, 'mean', found))}."
        )
    return cast(Moments, found)


def _most_utilities(method: Method) -> float:
    """Return the largest number of utilities that a run may need."""
    stop = method.stop
    return min(stop.most_utilities, stop.most_tasks * method.sampler.utilities_per_task)


def _forecast(
    game: Game, problem_spec: dict[str, Any], method: Method, ends: Corners, executor: Executor
) -> Forecast:
    """Return the size and the expected time of a run."""
    problem, unit = find_problem(game), "utilities"
    if problem is not None:
        n_fits = max(len(problem.folds), 1) * problem_spec.get("n_repeats", 1)
        unit = "fits" if n_fits == 1 else f"utilities of {n_fits} fits each"
    shape = ends.shape if problem is None else problem.blocks.shape
    utilities = _most_utilities(method)
    if math.isfinite(method.exact_after):
        utilities = min(utilities, n_utilities(ends.shape))
    return Forecast(
        method.name,
        shape,
        utilities,
        ends.seconds * utilities,
        count_cores(executor),
        method.stop.most_seconds,
        size=f"{shape[0]:,} x {shape[1]:,} blocks",
        unit=unit,
        advice=method.advice,
    )


def _warn_if_uninformative(valuation: Valuation, n_tasks: int) -> None:
    if n_tasks == 0 or valuation.status == "interrupted":
        return
    if np.isnan(valuation.values).all():
        warnings.warn(
            f"{valuation.provenance.tally.new} utilities are too few for "
            f"{valuation.provenance.method['name']}, and all values are NaN; give a larger budget.",
            stacklevel=2,
        )


def _warn(outcome: Outcome, tally: Tally) -> None:
    if outcome.interrupted:
        warnings.warn(
            f"the run was interrupted after {outcome.tasks} tasks; status is 'interrupted'.",
            stacklevel=2,
        )
    if outcome.contribution is None:
        warnings.warn(
            "the budget ended before the first task was done, so that only the total is known; "
            "give more utilities or seconds, or divide the table into fewer blocks.",
            stacklevel=2,
        )
    if tally.failed:
        warnings.warn(
            f"{tally.failed} of {max(tally.new, tally.failed)} utilities failed and count as "
            "their fallback (a model: as a constant predictor); the first message: "
            f"{tally.messages[0]}",
            stacklevel=2,
        )


def scores_of_queries(
    schedule: TaskSchedule,
    scoring: str,
    *,
    targets: Sequence[Floats],
    class_counts: Sequence[Counts] | None,
    n_tasks: int,
    seen: PassSums,
) -> Scores:
    """Return the scores of the queries of the finished tasks of a nearest-neighbor run.

    By fold, ``targets`` are codes of classes or targets of all queries, and ``class_counts`` are
    the training rows of each class, or None for a numeric target. ``seen`` are the sums of the
    ``n_tasks`` finished tasks.
    """
    all_queries = schedule.queries
    asked = [piece for part in schedule.parts[:n_tasks] for piece in part]
    labels = [targets[fold][queries] for fold, queries in asked]
    figures = {"accuracy": seen.latest.right}
    if class_counts is None:
        figures = _of_squared_error(seen.score, float(np.var(np.concatenate(labels))))
    else:
        weights = [all_queries.weights[fold][queries] for fold, queries in asked]
        figures["majority"] = _majority([class_counts[fold] for fold, _ in asked], labels, weights)
    return Scores(
        scoring,
        None if class_counts is None else len(class_counts[0]),
        sum(map(len, labels)),
        all_queries.n_given,
        len(all_queries.labels),
        **figures,
    )


def scores_of_game(game: Any, score: float) -> Scores | None:
    """Return the scores of a game with a model and validation rows; None for other games."""
    problem, scoring = find_problem(game), getattr(game, "scoring", None)
    if problem is None or not isinstance(scoring, str) or not problem.folds:
        return None
    figures: dict[str, float] = {}
    if problem.classes is not None:
        groups = getattr(getattr(game, "inner", game), "query_groups", None)
        figures["majority"] = _majority_of_folds(
            problem, problem.classes, balanced="balanced" in scoring, groups=groups
        )
        if scoring in ("accuracy", "balanced_accuracy"):
            figures["accuracy"] = score
    elif scoring == "neg_mean_squared_error":
        # All folds have the same weight.
        mean = np.mean(np.concatenate([fold.target for fold in problem.folds]))
        variance = np.mean([np.mean((fold.target - mean) ** 2) for fold in problem.folds])
        figures = _of_squared_error(score, float(variance))
    elif scoring == "r2":
        figures["r2"] = score
    n_rows = sum(len(fold.target) for fold in problem.folds)
    n_classes = None if problem.classes is None else len(problem.classes)
    return Scores(scoring, n_classes, n_rows, n_rows, len(problem.folds), **figures)


def _of_squared_error(score: float, variance: float) -> dict[str, float]:
    """Return R squared and root mean squared error for a negative mean squared error."""
    r2 = 1.0 + score / variance if variance > 0 else math.nan
    return {"r2": r2, "rmse": math.nan if math.isnan(score) else math.sqrt(max(-score, 0.0))}


def _majority(
    class_counts: Sequence[Counts], labels: Sequence[Floats], weights: Sequence[Floats]
) -> float:
    """Return the weighted accuracy of the most frequent class, averaged over ties, by part."""
    right = 0.0
    for counts, asked, count in zip(class_counts, labels, weights, strict=True):
        best = np.flatnonzero(counts == counts.max())
        right += float(count @ np.isin(asked, best)) / len(best)
    return right / float(sum(count.sum() for count in weights))


def _majority_of_folds(
    problem: Problem, classes: NDArray[Any], *, balanced: bool, groups: list[Floats] | None
) -> float:
    """Return the same for a model, whose score is the mean over folds.

    A balanced score gives equal weights to groups of validation rows, or else to classes.
    """
    codes = np.searchsorted(classes, problem.target)
    counts = [np.bincount(codes[fold.may_train], minlength=len(classes)) for fold in problem.folds]
    labels = [np.searchsorted(classes, fold.target).astype(np.float64) for fold in problem.folds]
    how = BALANCED if balanced else AGREEMENT
    return _majority(counts, labels, [query_weights([each], how)[0] for each in groups or labels])
