"""KNNValuer: values for nearest neighbors in closed form."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, Self, cast

import numpy as np

from cellworth.data.arguments import (
    ColumnTypes,
    CrossValidation,
    Floats,
    RandomState,
    Scale,
    check_count,
    check_random_state,
)
from cellworth.data.blocks import Blocks, Groups
from cellworth.data.holdings import Holdings
from cellworth.data.io import describe
from cellworth.data.owners import Owners, check_owners
from cellworth.data.problem import GroupedFolds
from cellworth.data.tables import TableLike, VectorLike
from cellworth.data.text import format_count
from cellworth.findings.fit_checks import DataAdvice
from cellworth.games.game import EmptyPolicy
from cellworth.knn.binned import BinnedRanks
from cellworth.knn.knn_game import KNNGame, KNNScoring, NeighborAgreement
from cellworth.knn.memory_tasks import QueryTasks
from cellworth.knn.tasks import DRAWN_TWICE, TaskSchedule, WeightedQueries, count_queries
from cellworth.runtime.engine import TaskPlanner, answer_task, run
from cellworth.runtime.executors import Executor
from cellworth.runtime.forecast import Forecast
from cellworth.runtime.progress import Progress
from cellworth.runtime.run_settings import Runtime, count_cores
from cellworth.runtime.stopping import MaxTasks, StoppingRule, TargetPrecision
from cellworth.sampling.column_samplers import (
    MAX_COALITIONS_OF_ALL_SUBSETS,
    ColumnSampler,
    ExhaustiveSampler,
    PermutationSampler,
    QuadratureSampler,
)
from cellworth.sampling.moments import Counts, OwnerSums
from cellworth.sampling.passes import PassSums
from cellworth.sampling.semivalues import Semivalue, Shapley
from cellworth.valuation.column_info import ColumnTable
from cellworth.valuation.provenance import Provenance, Session
from cellworth.valuation.valuation import Status, Valuation
from cellworth.valuers.identity import run_identity
from cellworth.valuers.run import scores_of_queries
from cellworth.valuers.settings import Semivalues, Settings, check_flag, check_stop, draw_seed
from cellworth.valuers.valuer import Valuer

# Up to here all subsets of columns are evaluated, which takes about four seconds on one core.
MAX_RANKED_ROWS = 2**28
# To find the bins of a coalition takes as long as to sort so many rows.
_ROWS_OF_BINS = 10_000
# With more rows, bins are at least 1.5 times faster than sorting.
MAX_SORTED_ROWS = 100_000
MAX_SORTED_NUMBERS = 30_000
# Work is training rows x coalitions x validation rows; a default run takes about a minute on two
# cores. A numeric target takes twice as long again, bins half as long. Samplers whose coalitions
# count for all columns take as long again for each hundred columns.
_MAX_WORK = 2**32
_SECONDS_PER_WORK = 17e-9
_WORK_OF_TARGET = 2.0
_WORK_OF_BINS = 0.5
_COLUMNS_ADDED_UP = 100
_MIN_QUERIES = 100
# After a pass with the least, the sampling error is a third of the validation error on most tables
# (experiments/column_samplers.py). More are used while they are as quick as all subsets may be;
# beyond so many in all, the weights of a draw take longer than its ranks.
_MIN_PER_COLUMN, _MAX_PER_COLUMN = 8, 24
_MAX_COALITIONS = 1000
# With more columns, adding up the values of all of them takes longer than more orders.
_MAX_COLUMNS_OF_QUADRATURE = 100
_MAX_PASSES = 100
NValidation = int | Literal["auto"] | None


class NeighborValuer(Valuer):
    """Base of the nearest-neighbor valuers: their parameters, and the way from data to values."""

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        scoring: KNNScoring | NeighborAgreement | None = None,
        sampler: ColumnSampler | None = None,
        ranking: BinnedRanks | None = None,
        scale: Scale = "robust",
        empty: EmptyPolicy = "prior",
        semivalue: Semivalues = None,
        n_passes: int | None = None,
        stop: StoppingRule | None = None,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.scoring = scoring
        self.sampler = sampler
        self.ranking = ranking
        self.scale = scale
        self.empty = empty
        self.semivalue = semivalue
        self.n_passes = n_passes
        self.stop = stop
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.runtime = runtime

    def problem_spec(self, X: Any, y: VectorLike | None = None, **data: Any) -> dict[str, Any]:
        """Describe the problem that ``fit`` with these arguments solves, without solving it.

        The description holds the parameters of the utility and hashes of the data, as
        ``valuation_.provenance.problem_spec`` does. An agreement fixes it beforehand. ``data`` are
        the other arguments of ``fit``. A table in shards is read once.
        """
        return self._prepare(X, y, **data).problem_spec

    @abstractmethod
    def _prepare(self, *data: Any, **named: Any) -> NeighborRun:
        """Return the run of the arguments of ``fit``."""

    def _advice(self, game: Any) -> DataAdvice:
        guessed = self.scoring is None
        return DataAdvice(
            column_types=True,
            named=frozenset(map(str, game.column_types or {})),
            to_classes="scoring='neighbor_agreement'" if guessed else None,
            to_numbers="scoring='neg_mean_squared_error'" if guessed else None,
        )


class KNNValuer(NeighborValuer):
    """Value all cells of a table for a K-nearest-neighbor model, in closed form.

    For each coalition of columns, the values of all rows are exact. Only coalitions of columns are
    sampled; in small tables, all of them are evaluated. Columns are used as they are:
    numbers, strings, categories, dates, missing values. Tied rows are averaged over all their
    orders, so values do not depend on the order of the training rows. A sampled run depends on the
    order of columns and of validation rows: another order gives another draw of equal accuracy.

    Ctrl-C ends a run early: finished work is kept, with a warning. For a table in shards, use
    :class:`~cellworth.ShardedKNNValuer`.

    Parameters
    ----------
    n_neighbors : int, default=5
        Number of nearest rows that vote; :class:`~cellworth.knn.KNNGame` defines the utility.
    scoring : {"neighbor_agreement", "balanced_neighbor_agreement", "neg_brier_score", \
            "neg_mean_squared_error"} or NeighborAgreement, default=None
        Neighbor agreement is the mean share of the K nearest rows that have the right label. The
        Brier score is the squared error of these shares. None means neighbor agreement for classes
        and the squared error for a numeric target. :class:`~cellworth.knn.NeighborAgreement` has
        costs, class weights, soft labels, distance weights and radii.
    sampler : ColumnSampler, default=None
        Coalitions of columns that are evaluated for each validation row: ``ExhaustiveSampler()``,
        ``QuadratureSampler(n)`` or ``PermutationSampler(n)``. None means all subsets if training
        rows x validation rows x subsets are at most 2^28 (about four seconds on one core).
        Otherwise as many coalitions as are as quick, from 8 to 24 per column, are drawn by
        ``QuadratureSampler``, or by ``PermutationSampler`` for more than 100 columns and for
        semivalues other than Shapley.
        If that would take longer than ``stop`` allows by default, there is one pass over as many
        validation rows as it does, with ``PermutationSampler(2)``, which has the least total error.
        A sampler that would draw as many coalitions as exist is replaced by
        ``ExhaustiveSampler()``.
    ranking : BinnedRanks, default=None
        How rows are ranked by distance. None means exact ranks for up to 100,000 rows (30,000 if
        the target is numeric), and ``BinnedRanks()`` for more rows.
    scale : {"robust", "std"} or None, default="robust"
        Divisor of numeric columns: interquartile range, standard deviation, or none.
    empty : {"prior", "zero"}, default="prior"
        Utility without columns: "prior" ranks all rows as ties, "zero" is 0.
    semivalue : Semivalue or (Semivalue, Semivalue), default=None
        Weights of coalitions by size; a pair has one for rows and one for columns. None means
        ``Shapley()``.
    n_passes : int, default=None
        Most passes over the validation rows. In each pass, some hundred validation rows have two
        draws of coalitions, whose differences show the sampling error. None means 1 if all subsets
        are evaluated; otherwise ``stop`` decides.
    stop : StoppingRule, default=None
        Rule that ends the run, such as ``MaxSeconds(600)`` or ``TargetPrecision(0.1)``. With
        ``n_passes``, the first of the two ends it. None means ``TargetPrecision()``, within a
        minute of work on two cores: the run ends when the sampling error is below half of the
        validation error, or one pass is done over as many validation rows as that time allows.
    random_state : int, Generator, RandomState or None, default=None
        Seed of the coalitions; None draws one, which the provenance records.
    n_jobs : int, default=None
        Workers of the default executor, -1 for all cores; see :class:`~cellworth.Runtime`.
    runtime : Runtime, default=None
        Where and how the run is executed: executor, checkpoint, progress.

    Attributes
    ----------
    valuation_ : Valuation
    values_, standard_errors_ : arrays of shape (n_row_groups, n_column_groups)
    row_values_, column_values_ : arrays
        One-dimensional values: sums of the cells.

    See Also
    --------
    ShardedKNNValuer, ModelValuer, explain_row, audit

    Notes
    -----
    The value of a row group is the sum of its cells. The game whose players are whole row groups
    has no closed form; ``value_game(KNNGame(..., row_groups=...))`` plays it. A column group is one
    player: the distances of its columns add up.

    The first fit on a machine compiles the kernels, which takes some seconds; they are cached on
    disk.

    References
    ----------
    Liu, Just, Chang, Chen and Jia (2023), 2D-Shapley: A Framework for Fragmented Data Valuation,
    ICML.

    Jia, Dao, Wang, Hubis, Gürel, Li, Zhang, Spanos and Song (2019), Efficient Task-Specific Data
    Valuation for Nearest Neighbor Algorithms, Proceedings of the VLDB Endowment.

    Wang and Jia (2023), A Note on "Efficient Task-Specific Data Valuation for Nearest Neighbor
    Algorithms", arXiv:2304.04258.

    Examples
    --------
    >>> from cellworth import KNNValuer
    >>> X = [[0.0, "red"], [1.0, "red"], [9.0, "blue"], [8.0, None]]
    >>> valuer = KNNValuer(n_neighbors=1).fit(X, [0, 0, 1, 1], X_val=X, y_val=[0, 0, 1, 1])
    >>> valuer.valuation_.columns()
    column   value  validation_se
        x0  0.3125         0.1015
        x1  0.1875         0.1015
    """

    def fit(
        self,
        X: TableLike,
        y: VectorLike | None = None,
        *,
        X_val: TableLike | None = None,
        y_val: VectorLike | None = None,
        cv: CrossValidation = 5,
        groups: VectorLike | None = None,
        row_groups: Groups = None,
        column_groups: Groups = None,
        column_types: ColumnTypes | None = None,
        value_labels: bool = False,
        owners: Owners | None = None,
        n_validation: NValidation = "auto",
    ) -> Self:
        """Value the cells of a training table.

        Parameters
        ----------
        X : pandas, polars or Arrow table, or array, of shape (n_rows, n_columns)
            Table to learn from; its cells are valued. Names and row ids are kept.
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
        column_types : mapping, default=None
            ``{"postcode": "categorical"}`` where the guess from the type is wrong.
        value_labels : bool, default=False
            Whether the label column plays too. The result then has one more column, ``(label)``,
            where rows with a wrong label stand out; all column names are strings then.
        owners : Owners, default=None
            Who holds which cells. ``valuation_.owners()`` then has the errors of each owner's sum,
            which do not follow from the errors of single cells.
        n_validation : int, "auto" or None, default="auto"
            Number of validation rows that are used, drawn from those of all folds; None means all.
            "auto" draws as many as a default run of about a minute on two cores needs; the number
            depends on the sampler and on the numbers of rows and columns alone.

        Returns
        -------
        self
        """
        self._forget()
        run = self._prepare(
            X, y, X_val=X_val, y_val=y_val, cv=cv, groups=groups, row_groups=row_groups,
            column_groups=column_groups, column_types=column_types, value_labels=value_labels,
            owners=owners, n_validation=n_validation,
        )  # fmt: skip
        return self._keep(run.game, run.value(self._inspect_columns(run.game)))

    def _make_game(
        self,
        X: TableLike,
        y: VectorLike | None,
        *,
        cv: CrossValidation = 5,
        groups: VectorLike | None = None,
        **data: Any,
    ) -> KNNGame:
        return KNNGame(
            X, y, n_neighbors=self.n_neighbors, scoring=self.scoring, scale=self.scale,
            empty=self.empty, cv=cv if groups is None else GroupedFolds(cv, groups), **data,
        )  # fmt: skip

    def _prepare(
        self,
        X: TableLike,
        y: VectorLike | None,
        *,
        value_labels: bool = False,
        owners: Owners | None = None,
        n_validation: NValidation = "auto",
        **data: Any,
    ) -> MemoryRun:
        game = self._make_game(X, y, **data)
        with_label = check_flag(value_labels, "value_labels")
        blocks = game.blocks.with_labels() if with_label else game.blocks
        if not game.fits_bins and self.ranking is not None:
            raise ValueError(
                f"ranking must be None with {self.scoring!r}, got {self.ranking!r}; this score "
                "needs exact ranks."
            )
        is_large = len(game.labels) > (MAX_SORTED_ROWS if game.is_class else MAX_SORTED_NUMBERS)
        ranking = check_ranking(self.ranking, in_bins=game.fits_bins and is_large)
        size = Size(
            len(game.labels), game.shape[1], game.n_queries, with_label, game.n_targets,
            ranking is not None,
        )  # fmt: skip
        holdings = None if owners is None else check_owners(owners).project(blocks)
        settings = self._settings(self.semivalue)
        run = MemoryRun(self, settings, game, blocks, holdings, size, ranking, n_validation)
        if owners is not None:
            owners.check_cells(run.problem_spec["data_sha256"]["X"])
        return run


@dataclass(frozen=True, eq=False)
class NeighborRun(ABC):
    """A run of a nearest-neighbor valuer: what is valued, how much is done, and where."""

    valuer: NeighborValuer
    settings: Settings
    game: Any  # KNNGame or ShardedKNNGame
    blocks: Blocks
    holdings: Holdings | None  # Owners whose sums are observed
    size: Size
    ranking: BinnedRanks | None  # None: all rows are ranked exactly
    n_validation: Any

    @cached_property
    def effort(self) -> Effort:
        """How much the run does."""
        return Effort.resolve(
            self.valuer, self.n_validation, self.size, self.settings.column_semivalue
        )

    @property
    @abstractmethod
    def queries(self) -> WeightedQueries:
        """Validation rows that are used."""

    @cached_property
    def schedule(self) -> TaskSchedule:
        """The tasks, with a seed unless all coalitions are evaluated."""
        effort, valuer, seed = self.effort, self.valuer, None
        if isinstance(effort.sampler, ExhaustiveSampler):
            check_random_state(valuer.random_state)
        else:
            seed = draw_seed(valuer.random_state, valuer.runtime)
        return TaskSchedule(
            self.queries,
            (self.size.n_rows, self.size.n_columns),
            sampler=effort.sampler,
            column_semivalue=self.settings.column_semivalue,
            with_label=self.size.with_label,
            empty=self.game.empty,
            seed=seed,
        )

    @cached_property
    def problem_spec(self) -> dict[str, Any]:
        """Everything that determines the true values."""
        n_used, n_given = self.effort.n_validation, self.effort.n_given
        return self.settings.problem_spec(self.game) | {
            "value_labels": self.size.with_label,
            "ranking": describe(self.ranking),
            # None: no validation rows were drawn, all are used.
            "n_validation": None if n_used == n_given else n_used,
        }

    @property
    def method(self) -> dict[str, Any]:
        """How values are computed."""
        name = type(self.valuer).__name__
        return {"name": name, **self.effort.describe(), "valuer": self.settings.valuer}

    def value(self, columns: ColumnTable) -> Valuation:
        """Run all tasks and return the values; ``columns`` says how columns were read."""
        # numba takes a while to import.
        from cellworth.knn.kernels import announce_compilation

        announce_compilation(self.settings.threads)
        return self._value(columns)

    @abstractmethod
    def _value(self, columns: ColumnTable) -> Valuation: ...

    @abstractmethod
    def _list_scored(self) -> tuple[str, list[Floats], list[Counts] | None]:
        """Return the score, labels or targets of validation rows, and rows of each class."""

    def _describe_tasks(self) -> dict[str, Any]:
        """Return what determines the tasks beside the problem, for the identity of the run."""
        return {
            "method": self.method["name"],
            "sampler": describe(self.effort.sampler),
            "seed": self.schedule.seed,
            "parts_per_pass": len(self.schedule.parts),
            "owners": None if self.holdings is None else list(self.holdings.keys),
        }

    def _summarize(
        self, seen: PassSums, n_tasks: int, seconds: float, *, interrupted: bool
    ) -> dict[str, Any]:
        """Return the fields of the Valuation that do not depend on where its cells are kept."""
        _warn_if_interrupted(n_tasks, self.schedule, interrupted=interrupted)
        session, owned = Session(self.schedule.seed, n_tasks), None
        if self.holdings is not None and seen.owned is not None:
            errors = seen.owned.latest.validation_se()
            owned = OwnerSums(self.holdings.names, self.holdings.keys, seen.owned.moments, errors)
        scoring, targets, class_counts = self._list_scored()
        return {
            "blocks": self.blocks,
            "expected_total": seen.latest.total,
            "empty": self.game.empty,
            "status": self._status(n_tasks, interrupted=interrupted),
            "provenance": Provenance.now(
                self.problem_spec, self.method, session, seen.tally, seconds
            ),
            "baseline": seen.baseline,
            "owned": owned,
            "scores": scores_of_queries(
                self.schedule, scoring, targets=targets, class_counts=class_counts,
                n_tasks=n_tasks, seen=seen,
            ),
        }  # fmt: skip

    def _status(self, n_tasks: int, *, interrupted: bool) -> Status:
        if n_tasks < len(self.schedule.parts):
            # Some validation rows were not used.
            return "interrupted"
        if not self.schedule.draws and self.ranking is None:
            return "exact"
        return "interrupted" if interrupted else "estimated"


class MemoryRun(NeighborRun):
    """A run over a table in memory."""

    @property
    def queries(self) -> WeightedQueries:
        """Validation rows that are used."""
        game = self.game
        return WeightedQueries.weigh(
            game.distances.queries, game.query_labels, game.scoring, self.effort.n_validation,
            groups=game.query_groups,
        )  # fmt: skip

    @cached_property
    def tasks(self) -> QueryTasks:
        """The tasks with all that their computation needs."""
        return QueryTasks(
            self.game, self.schedule, self.settings.row_semivalue, self.ranking, self.holdings
        )

    def _value(self, columns: ColumnTable) -> Valuation:
        tasks, schedule, effort, problem = self.tasks, self.schedule, self.effort, self.game.problem
        runtime = self.settings.runtime
        forecast = effort.forecast(schedule, self.game.shape, self.settings.threads)
        runtime.announce(forecast)
        outcome = run(
            partial(answer_task, tasks, tasks.contribution),
            planner=TaskPlanner(PassSums),
            stop=effort.make_stop(len(schedule.parts)),
            executor=self.settings.threads,
            identity=run_identity(self.problem_spec, self.game, self._describe_tasks()),
            title=type(schedule.sampler).__name__,
            tasks_per_round=len(schedule.parts),
            describe=lambda progress: f"{progress.tasks / len(schedule.parts):.1f} passes",
            share_done=partial(_expect_share_done, schedule, effort),
            errors_from=1 if schedule.draws else None,
            checkpoint=self.settings.checkpoint,
            show_progress=runtime.progress,
            on_round=runtime.on_round,
            forecast=forecast,
        )
        seen = cast(PassSums, outcome.contribution)
        never_valued = tasks.never_valued(outcome.tasks)
        count, errors = seen.moments.count.copy(), seen.latest.validation_se()
        count[:-1][never_valued] = 0
        if errors is not None:
            errors[:-1][never_valued] = np.nan
        return Valuation(
            moments=replace(seen.moments, count=count),
            validation=errors,
            backend=problem.table.backend,
            held_out=problem.held_out,
            column_info=columns,
            **self._summarize(
                seen, outcome.tasks, outcome.seconds, interrupted=outcome.interrupted
            ),
        )

    def _list_scored(self) -> tuple[str, list[Floats], list[Counts] | None]:
        game, folds, classes = self.game, self.game.problem.folds, self.game.problem.classes
        if classes is None:
            return game.score_name, [fold.target for fold in folds], None
        labels = game.labels.astype(np.int64)
        counts = [np.bincount(labels[fold.may_train], minlength=len(classes)) for fold in folds]
        return game.score_name, game.query_labels, counts


@dataclass(frozen=True)
class Size:
    """Size of a problem, which decides how much of it a default run does."""

    n_rows: int
    n_columns: int  # Column players
    n_given: int  # Validation rows
    with_label: bool
    n_targets: int  # Targets whose squared errors count; 0 for votes
    in_bins: bool  # Whether rows are ranked in bins
    most_work: int = _MAX_WORK

    @property
    def n_players(self) -> int:
        """Column players, with the label column if it plays."""
        return self.n_columns + self.with_label


@dataclass(frozen=True)
class Effort:
    """How much a run does: coalitions of columns, validation rows and passes."""

    sampler: ColumnSampler
    n_validation: int  # Validation rows that are used
    n_given: int  # Validation rows that were given
    n_passes: int | None  # Most passes; None if a rule alone ends the run
    stop: StoppingRule | None  # Rule that ends the run earlier
    pass_seconds: float  # Expected time of one core in each pass

    @classmethod
    def resolve(
        cls, valuer: Any, n_validation: Any, size: Size, column_semivalue: Semivalue
    ) -> Effort:
        """Fill in the defaults."""
        wanted = check_n_validation(n_validation)
        n_used = min(size.n_given, wanted) if isinstance(wanted, int) else size.n_given
        sampler = choose_sampler(valuer.sampler, size, n_used, column_semivalue)
        draws = not isinstance(sampler, ExhaustiveSampler)
        n_passes = None if valuer.n_passes is None else check_count(valuer.n_passes, "n_passes")
        n_passes = n_passes if draws else 1
        stop = None if valuer.stop is None else check_stop(valuer.stop)
        per_pass = _work_per_query(size, sampler, column_semivalue)
        if wanted == "auto":
            # The same for any stop and n_passes, so that a run can be resumed with others.
            n_draws = int(size.most_work / per_pass)
            n_used = max(n_draws - DRAWN_TWICE, n_draws // 2) if draws else n_draws
            n_used = min(max(n_used, _MIN_QUERIES), size.n_given)
        if n_passes is None and stop is None:
            stop = TargetPrecision()
            n_passes = _MAX_PASSES
            if wanted == "auto":
                n_draws = _count_draws(sampler, n_used)
                n_passes = min(max(int(size.most_work / (per_pass * n_draws)), 1), _MAX_PASSES)
        seconds = _count_draws(sampler, n_used) * _SECONDS_PER_WORK
        return cls(sampler, n_used, size.n_given, n_passes, stop, per_pass * seconds)

    def describe(self) -> dict[str, Any]:
        """Return what the provenance of a valuation says of it."""
        return {
            "sampler": describe(self.sampler),
            "n_validation": self.n_validation,
            "n_passes": self.n_passes,
            "stop": describe(self.stop),
        }

    def make_stop(self, parts_per_pass: int) -> StoppingRule:
        """Return the rule that ends a run."""
        if self.n_passes is None:
            return check_stop(self.stop)
        limit = MaxTasks(self.n_passes * parts_per_pass)
        return limit if self.stop is None else limit | self.stop

    def forecast(
        self, schedule: TaskSchedule, shape: tuple[int, int], executor: Executor
    ) -> Forecast:
        """Return the size and the expected time of a run."""
        stop, n_queries = self.make_stop(len(schedule.parts)), schedule.queries.n_queries
        per_pass, n_passes = schedule.n_coalitions, stop.most_tasks / len(schedule.parts)
        utilities = min(stop.most_utilities, n_queries * n_passes * per_pass)
        n_expected = utilities / (n_queries * per_pass)
        if stop.needs_errors:
            # Sampling errors are mostly small after the first pass.
            n_expected = min(n_expected, 1.0)
        some = self.n_validation < self.n_given
        used = f"{self.n_validation:,} of {self.n_given:,}" if some else f"{self.n_given:,}"
        advice = "n_validation=None uses all" if some else ""
        if not some and isinstance(self.stop, TargetPrecision):
            advice = "stop=TargetPrecision(0.1) samples more"
        return Forecast(
            type(self.sampler).__name__,
            shape,
            utilities,
            n_expected * self.pass_seconds,
            count_cores(executor),
            stop.most_seconds,
            size=f"{shape[0]:,} x {shape[1]:,} cells, {used} validation rows",
            advice=advice,
        )


def _work_per_query(size: Size, sampler: ColumnSampler, column_semivalue: Semivalue) -> float:
    """Return the work of one draw for a validation row."""
    n_rows = size.n_rows * (1.0 + _WORK_OF_TARGET * size.n_targets)
    n_rows *= _WORK_OF_BINS if size.in_bins else 1.0
    n_coalitions = sampler.n_coalitions(size.n_players, column_semivalue)
    added = 0.0 if isinstance(sampler, PermutationSampler) else size.n_columns / _COLUMNS_ADDED_UP
    return n_rows * (1.0 + added) * n_coalitions


def _count_draws(sampler: ColumnSampler, n_queries: int) -> int:
    """Return the number of draws of a pass: the first validation rows are drawn twice."""
    draws = not isinstance(sampler, ExhaustiveSampler)
    return n_queries + draws * min(n_queries, DRAWN_TWICE)


def _expect_share_done(schedule: TaskSchedule, effort: Effort, progress: Progress) -> float:
    """Return the share of the expected work that is done, for the bar; it may exceed 1."""
    stop, n_parts = effort.stop, len(schedule.parts)
    if not isinstance(stop, TargetPrecision):
        return effort.make_stop(n_parts).share_done(progress)
    n_passes, n_expected = progress.tasks / n_parts, 1.0
    if n_passes >= 1.0:
        met = stop.share_done(progress)
        n_expected = max(n_passes / met if met else math.inf, math.ceil(n_passes))
    if effort.n_passes is not None:
        n_expected = min(n_expected, effort.n_passes)
    return n_passes / n_expected


def choose_sampler(
    sampler: Any, size: Size, n_queries: int, column_semivalue: Semivalue
) -> ColumnSampler:
    """Return the sampler, or the default for a size and so many validation rows."""
    if sampler is None:
        return _default_sampler(size, n_queries, column_semivalue)
    if isinstance(sampler, type) or not isinstance(sampler, ColumnSampler):
        raise TypeError(
            "sampler must be ExhaustiveSampler(), QuadratureSampler() or PermutationSampler(), "
            f"got {sampler!r}."
        )
    return _all_if_enough(sampler, size.n_players, column_semivalue)


def _default_sampler(size: Size, n_queries: int, column_semivalue: Semivalue) -> ColumnSampler:
    n_players = size.n_players
    exist = ExhaustiveSampler().n_coalitions(n_players, column_semivalue)
    n_rows = size.n_rows + _ROWS_OF_BINS * size.in_bins
    # Coalitions without the label column have utility 0: half of them need no ranking.
    most = MAX_RANKED_ROWS << size.with_label
    if exist < MAX_COALITIONS_OF_ALL_SUBSETS and n_rows * n_queries * exist <= most:
        return ExhaustiveSampler()
    sampled: ColumnSampler = PermutationSampler()
    # Otherwise two orders for each of more validation rows have the least total error.
    if size.n_rows * n_queries * n_players * _MIN_PER_COLUMN <= size.most_work:
        quick = most // (n_rows * _count_draws(sampled, n_queries) * n_players)
        limit = min(_MAX_PER_COLUMN, max(_MAX_COALITIONS // n_players, _MIN_PER_COLUMN))
        per_column = min(max(quick, _MIN_PER_COLUMN), limit)
        sampled = PermutationSampler(per_column)
        if isinstance(column_semivalue, Shapley) and n_players <= _MAX_COLUMNS_OF_QUADRATURE:
            sampled = QuadratureSampler(per_column * n_players)
    return _all_if_enough(sampled, n_players, column_semivalue)


def _all_if_enough(
    sampler: ColumnSampler, n_players: int, column_semivalue: Semivalue
) -> ColumnSampler:
    """Return ExhaustiveSampler() if the sampler would draw as many coalitions as exist."""
    exist = ExhaustiveSampler().n_coalitions(n_players, column_semivalue)
    wanted = sampler.n_coalitions(n_players, column_semivalue)
    # For LeaveOneOut, as many coalitions exist as columns, plus one; a sample would miss some.
    return ExhaustiveSampler() if exist <= max(wanted, n_players + 1) else sampler


def check_ranking(ranking: Any, *, in_bins: bool) -> BinnedRanks | None:
    """Return how rows are ranked: in bins or exactly (None); ``in_bins`` is the default."""
    if ranking is None:
        return BinnedRanks() if in_bins else None
    if not isinstance(ranking, BinnedRanks):
        raise TypeError(
            f"ranking must be BinnedRanks(nearest=1000, width=0.02) or None, got {ranking!r}."
        )
    return ranking


def check_n_validation(n_validation: Any) -> int | Literal["auto"] | None:
    """Return the number of validation rows that are wanted: a number, "auto", or None for all."""
    if n_validation is None:
        return None
    if isinstance(n_validation, str) and n_validation == "auto":
        return "auto"
    return check_count(n_validation, "n_validation")


def _warn_if_interrupted(n_done: int, schedule: TaskSchedule, *, interrupted: bool) -> None:
    """Warn if a run ended early, and say how far it came."""
    n_parts = len(schedule.parts)
    if n_done < n_parts:
        n_asked = sum(map(count_queries, schedule.parts[:n_done]))
        warnings.warn(
            f"the run was interrupted after {n_asked} of {schedule.queries.n_queries} validation "
            "rows; values and their total are for these alone.",
            stacklevel=2,
        )
    elif interrupted:
        n_passes = n_done // n_parts
        warnings.warn(
            f"the run was interrupted after {format_count(n_passes, 'pass', 'passes')}; status "
            "is 'interrupted'.",
            stacklevel=2,
        )
