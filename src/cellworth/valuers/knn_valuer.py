"""KNNValuer: values for nearest neighbors in closed form."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

import numpy as np

from cellworth.data.arguments import Distance, Floats, Kind, Mask, Scale, check_count
from cellworth.data.blocks import LABEL, Axis, Blocks, Groups, label_array
from cellworth.data.holdings import Holdings
from cellworth.data.io import describe, local_path
from cellworth.data.owners import Owners
from cellworth.data.sharded_table import ShardedTable
from cellworth.games.game import EmptyPolicy, Game, checked_policy
from cellworth.knn.algorithms import QueryTasks
from cellworth.knn.binned import BinnedRanks
from cellworth.knn.knn_game import KNNGame, KNNScoring, ShardedKNNGame, some_rows
from cellworth.knn.shard_layout import check_validation_rows
from cellworth.knn.tasks import Judges, Questions
from cellworth.runtime.engine import Outcome, TaskPlanner, Work
from cellworth.runtime.executors import (
    Executor,
    Runtime,
    Serial,
    check_runtime,
    choose_thread_executor,
)
from cellworth.runtime.rounds import get_shard_runner
from cellworth.runtime.stopping import MaxTasks, Progress, StoppingRule
from cellworth.sampling.column_samplers import (
    MOST_COALITIONS_OF_ALL_SUBSETS,
    ColumnSampler,
    ExhaustiveSampler,
    LeverageSampler,
    PermutationSampler,
)
from cellworth.sampling.moments import Moments, OwnerSums
from cellworth.sampling.passes import Sweeps
from cellworth.sampling.semivalues import Semivalue, Shapley
from cellworth.valuation.provenance import Provenance, Scores, Session
from cellworth.valuation.valuation import Status, Valuation
from cellworth.valuers.data_checks import (
    Ways,
    cells_of,
    dates_warning,
    leak_warnings,
    target_warning,
    text_warning,
    warn,
)
from cellworth.valuers.plan import Plan, ShardPlan, first_rows, plan_of_shards, plan_of_sweeps
from cellworth.valuers.run import run_identity, scores_of_game, scores_of_queries
from cellworth.valuers.settings import Settings, check_same_seed, checked_seed, checked_stop
from cellworth.valuers.sharded_knn_valuer import ShardedRun, warn_if_broken_off
from cellworth.valuers.valuer import Valuer

# All subsets are looked at where that takes about half a minute on one core.
MOST_RANKED_ROWS = 2**31
MOST_SORTED_ROWS = 100_000
_SWEEPS = 10
_QUANTITIES_IN_SHARDS = "a table in memory and scoring='neg_mean_squared_error'"
# What sharded tables do without, and what to do.
_INSTEAD = {
    "y": "its labels are the column called target",
    "row_groups": "add up the values of rows, strip by strip",
    "groups": "it is judged by X_val and y_val",
    "owners": "give them to split",
    "partition": "its shards are worked on by all workers of the executor",
    "stop": "give n_passes",
    "on_round": "leave it out",
}


class _InShards(NamedTuple):
    """What ``fit`` was given with a table in shards; what is refused there, too."""

    table: ShardedTable
    X_val: Any
    y_val: Any
    column_groups: Groups
    refused: Mapping[str, Any]


class KNNValuer(Valuer):
    """Values of all cells to a K-nearest-neighbour model, on raw columns, from closed forms.

    Rows are valued exactly, for every coalition of columns that is looked at; only columns are
    sampled, and up to about 12 columns not even these. Players are the raw columns of the table:
    numbers, text, categories, dates and gaps as they are. Ties share their places, so that values
    do not depend on the order of training rows, and where all subsets of columns are looked at, on
    no order at all. Where columns are sampled, coalitions are drawn by position: another order of
    columns or of validation rows gives another draw of the same accuracy.

    Ctrl-C ends a run early: what is done is kept, with a warning.

    A :class:`ShardedTable` is valued shard by shard and never held; values then stay in files. It
    needs class labels and a validation set.

    Parameters
    ----------
    n_neighbors : int, default=5
        The K nearest rows that vote; see :class:`KNNGame` for the utility.
    scoring : {"neighbor_agreement", "balanced_neighbor_agreement", "neg_mean_squared_error"}, \
            default=None
        Neighbor agreement is the mean share of the K nearest rows that have the right label; None
        means that for classes, and the squared error for a numeric target.
    sampler : ColumnSampler, default=None
        Coalitions of columns that each query is ranked on: ``ExhaustiveSampler()``,
        ``LeverageSampler(n)``, ``QuadratureSampler(n)`` or ``PermutationSampler(n)``. None means
        all subsets where rows times queries times subsets are at most 2^31 (about half a minute
        on one core), and else ``LeverageSampler()`` (``PermutationSampler()`` for columns other
        than Shapley).
        A sampler with as many coalitions as there are is replaced by all of them, which are exact;
        leaving one column out takes but one more than there are columns.
    ranking : BinnedRanks, default=None
        How rows are ranked by distance. None means exactly for up to 100,000 rows, and beyond
        with ``BinnedRanks()`` where labels are classes. A ShardedTable is always ranked in bins.
    scale : {"robust", "std"} or None, default="robust"
        What numeric columns are divided by: interquartile range, standard deviation, nothing.
    kinds : mapping, default=None
        ``{"postcode": "categorical"}`` where the guess from the type is wrong, or a function of two
        cells that returns their squared distance.
    value_labels : bool, default=False
        Whether the label column plays too. The result then has one more column, ``(label)``, and
        rows whose label is wrong show it there; all column names are text then.
    empty : {"prior", "zero"}, default="prior"
        With no columns all rows tie, or the utility is 0.
    row_semivalue, column_semivalue : Semivalue, default=None
        How coalitions are weighed by size; None means ``Shapley()``.
    n_passes : int, default=None
        Passes over all queries, each with coalitions of its own; their spread gives the standard
        errors, which one sweep alone does not tell. None means 1 where all subsets are looked at,
        else as many as ``stop`` lets pass, and 10 where there is no such rule either.
    stop : StoppingRule, default=None
        When the run is long enough, such as ``TargetStandardError(1e-4)``. With ``n_passes``,
        whichever comes first ends the run.
    random_state : int or None, default=None
        Seed of the coalitions; None draws one, which the provenance records.
    cv : int or splitter, default=5
        Used when ``fit`` gets no validation set: each fold serves once as the validation set for
        the remaining rows.
    n_jobs : int, default=None
        Number of workers of the default executor, -1 for all cores; None as in :class:`Runtime`.
    runtime : Runtime, default=None
        Where and how the run is executed: executor, checkpoint, partition, cache, progress.

    Attributes
    ----------
    valuation_ : Valuation
    values_, standard_errors_ : arrays of shape (n_row_groups, n_column_groups)
    row_values_, column_values_ : arrays
        One-dimensional values: sums of the cells.

    Notes
    -----
    ``row_groups`` are worth the sum of their cells. The game in which whole groups join or stay
    away has no closed form; ``value_game(KNNGame(..., row_groups=...))`` plays it.
    ``column_groups`` join as a whole: distances add up.

    The first fit on a machine compiles the kernels, which takes some seconds; the result is kept on
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
    >>> X = [[0.0, "red"], [1.0, "red"], [9.0, "blue"], [8.0, None]]
    >>> valuer = KNNValuer(n_neighbors=1).fit(X, [0, 0, 1, 1], X_val=X, y_val=[0, 0, 1, 1])
    >>> valuer.valuation_.columns()
    column   value  validation_se
        x0  0.3125         0.1015
        x1  0.1875         0.1015
    """

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        scoring: KNNScoring | None = None,
        sampler: ColumnSampler | None = None,
        ranking: BinnedRanks | None = None,
        scale: Scale = "robust",
        kinds: Mapping[Any, Kind | Distance] | None = None,
        value_labels: bool = False,
        empty: EmptyPolicy = "prior",
        row_semivalue: Semivalue | None = None,
        column_semivalue: Semivalue | None = None,
        n_passes: int | None = None,
        stop: StoppingRule | None = None,
        random_state: Any = None,
        cv: Any = 5,
        n_jobs: int | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        """Keep the parameters; they are checked by ``fit``."""
        self.n_neighbors = n_neighbors
        self.scoring = scoring
        self.sampler = sampler
        self.ranking = ranking
        self.scale = scale
        self.kinds = kinds
        self.value_labels = value_labels
        self.empty = empty
        self.row_semivalue = row_semivalue
        self.column_semivalue = column_semivalue
        self.n_passes = n_passes
        self.stop = stop
        self.random_state = random_state
        self.cv = cv
        self.n_jobs = n_jobs
        self.runtime = runtime

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
        row_groups: Groups | str = None,
        column_groups: Groups = None,
        groups: Any = None,
        owners: Owners | None = None,
    ) -> Self:
        """Value the cells of a training table.

        Parameters
        ----------
        X : pandas, polars or Arrow table, array, or ShardedTable, of shape (n_rows, n_columns)
            Table to learn from; its cells are valued. Names and row ids are kept.
        y : array-like of shape (n_rows,)
            Labels. A ShardedTable has its own.
        X_val, y_val : table and labels, default=None
            Rows to be judged on. Without them, each utility is a mean over the folds of ``cv``.
        row_groups : array-like, mapping or str, default=None
            One group per row, ``{group: [row ids]}``, or the name of a column of X that holds the
            groups (it then does not play). None: every row for itself.
        column_groups : array-like or mapping, default=None
            One group per column or ``{group: [column names]}``. None: every column for itself.
        groups : array-like of shape (n_rows,), default=None
            Rows that ``cv`` keeps together, where it is a splitter that asks for groups.
        owners : Owners, default=None
            Who holds which cells. What each owner's cells are worth together then gets errors of
            its own (``valuation_.owners()``), which those of single cells cannot tell.

        Returns
        -------
        self
        """
        self._forget()
        if owners is not None and not isinstance(owners, Owners):
            raise TypeError(
                f"owners is of type {type(owners).__name__}; give Owners(X).assign(...)."
            )
        if isinstance(X, ShardedTable):
            refused = {"y": y, "row_groups": row_groups, "groups": groups, "owners": owners}
            return self._fit_sharded(_InShards(X, X_val, y_val, column_groups, refused))
        game = self._game(
            X=X, y=y, X_val=X_val, y_val=y_val, row_groups=row_groups, column_groups=column_groups,
            groups=groups,
        )  # fmt: skip
        self.columns_ = self._looked_at(game)
        return self._keep(game, self._value(game, game.blocks, owners))

    @property
    def _where(self) -> Runtime:
        return check_runtime(self.runtime, self.n_jobs)

    def _ways(self) -> Ways:
        guessed = self.scoring is None
        return Ways(
            kinds=True,
            named=frozenset(map(str, self.kinds or {})),
            to_classes="scoring='neighbor_agreement'" if guessed else None,
            to_numbers="scoring='neg_mean_squared_error'" if guessed else None,
        )

    def problem_spec(self, X: Any, y: Any = None, **given: Any) -> dict[str, Any]:
        """Say what ``fit`` with these arguments would answer, without doing it.

        Of a ShardedTable, all shards are read once for it.
        """
        if not isinstance(X, ShardedTable):
            return super().problem_spec(X, y, **given)
        known = {name: given.pop(name, None) for name in ("X_val", "y_val", "column_groups")}
        run, _ = self._sharded_run(_InShards(X, **known, refused={"y": y, **given}))
        return self._problem_spec(run.game)

    def _fit_sharded(self, given: _InShards) -> Self:
        run, columns = self._sharded_run(given)
        design = describe(run.questions.design)
        method = {
            "name": "KNNValuer",
            "design": design,
            "sweeps": run.sweeps,
            "stop": describe(None),
            "valuer": self.describe(),
        }
        problem_spec = self._problem_spec(run.game)
        self.columns_ = run.game.column_info
        self._warn_of_shards(run.game)
        # Values stay in files; they are read when values_ and the like are asked for.
        self.valuation_ = run.value(
            columns, problem_spec, method, show_progress=self._where.progress
        )
        self.n_features_in_ = len(given.table.names)
        self.feature_names_in_ = given.table.names
        return self

    def _warn_of_shards(self, game: ShardedKNNGame) -> None:
        """Warn as of a table in memory, but for what all rows would be needed for."""
        ways = replace(self._ways(), to_numbers=_QUANTITIES_IN_SHARDS)
        if self.scoring is None:
            labels, counts = np.array(game.layout.classes), np.array(game.layout.class_counts)
            warn(target_warning(labels, counts, are_classes=True, ways=ways))
        warn(text_warning(game.column_info, ways))
        warn(dates_warning(game.column_info, ways))
        problem = some_rows(game.table)
        for told in leak_warnings(problem, cells_of(problem)):
            warn(told)

    def _sharded_run(self, given: _InShards) -> tuple[ShardedRun, Axis]:
        folder = _checked_folder(self._where.checkpoint)
        settings, executor = self._checked_for_shards(given)
        game = self._sharded_game(given, executor, show_progress=settings.runtime.progress)
        questions, sweeps = self._asked_of(game, n_rows=game.shape[0], settings=settings)
        columns = _with_label(game.columns) if questions.with_label else game.columns
        run = ShardedRun(
            game, questions, settings.row_semivalue, self._bins(), sweeps, executor, folder
        )
        return run, columns

    def _sharded_game(
        self, given: _InShards, executor: Executor, *, show_progress: bool
    ) -> ShardedKNNGame:
        return ShardedKNNGame.of(
            given.table, given.X_val, given.y_val, n_neighbors=self.n_neighbors,
            scoring=self.scoring, scale=self.scale, kinds=self.kinds, empty=self.empty,
            column_groups=given.column_groups, executor=executor, show_progress=show_progress,
        )  # fmt: skip

    def _asked_of(
        self, game: ShardedKNNGame, *, n_rows: int, settings: Settings
    ) -> tuple[Questions, int]:
        """Questions about a table of ``n_rows`` rows, and how many sweeps."""
        judges = Judges.of((game.queries.columns,), game.query_labels, game.scoring)
        questions = self._questions(judges, (n_rows, len(game.columns)), settings)
        return questions, _checked_sweeps(
            self.n_passes, once=not questions.draws, limited=False
        ) or 1

    def _questions(self, judges: Judges, shape: tuple[int, int], settings: Settings) -> Questions:
        with_label = _checked_flag(self.value_labels, "value_labels")
        design, seed = self._drawn((*shape, judges.n_queries), settings, with_label)
        return Questions(
            judges,
            shape,
            design=design,
            column_semivalue=settings.column_semivalue,
            with_label=with_label,
            empty=checked_policy(self.empty),
            seed=seed,
        )

    def _drawn(
        self, size: tuple[int, int, int], settings: Settings, with_label: bool
    ) -> tuple[ColumnSampler, int | None]:
        """Design for so many rows, column players and queries, and its seed."""
        design = _checked_design(self.sampler, size, settings.column_semivalue, with_label)
        check_same_seed(self.random_state)
        # Where nothing is drawn there is no seed, and a checkpoint needs none.
        draws = not isinstance(design, ExhaustiveSampler)
        return design, checked_seed(self.random_state, self.runtime) if draws else None

    def _bins(self) -> BinnedRanks:
        return _checked_ranking(self.ranking, is_class=True, n_rows=math.inf) or BinnedRanks()

    def _checked_for_shards(self, given: _InShards) -> tuple[Settings, Executor]:
        """Refuse what can be refused before the table is read."""
        where = self._where
        own = {"partition": where.partition, "stop": self.stop, "on_round": where.on_round}
        for name, thing in {**given.refused, **own}.items():
            if thing is not None:
                raise ValueError(
                    f"{name} is not for sharded tables; {_INSTEAD.get(name, 'leave it out')}."
                )
        check_validation_rows(given.X_val, given.y_val)
        settings = self._settings(self.row_semivalue, self.column_semivalue)
        executor = settings.runtime.executor or choose_thread_executor(self.n_jobs)
        get_shard_runner(executor)
        given.table.check_files_unchanged()
        return settings, executor

    def plan(
        self,
        X: Any,
        y: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
        row_groups: Groups | str = None,
        column_groups: Groups = None,
        groups: Any = None,
    ) -> Plan | ShardPlan:
        """Tell what ``fit`` with these arguments would cost, after valuing a few queries.

        A utility is here one query that is ranked on one coalition of columns. For a ShardedTable
        the plan tells core-hours, bytes between workers, memory and disk, from some of its rows.
        """
        if isinstance(X, ShardedTable):
            refused = {"y": y, "row_groups": row_groups, "groups": groups}
            return self._shard_plan(_InShards(X, X_val, y_val, column_groups, refused))
        game = self._game(
            X=X, y=y, X_val=X_val, y_val=y_val, row_groups=row_groups, column_groups=column_groups,
            groups=groups,
        )  # fmt: skip
        settings = self._settings(self.row_semivalue, self.column_semivalue)
        tasks = self._tasks(game, settings)
        rule = None if self.stop is None else checked_stop(self.stop)
        once, limited = not tasks.questions.draws, rule is not None
        sweeps = _checked_sweeps(self.n_passes, once=once, limited=limited)
        plan = plan_of_sweeps(tasks, sweeps, rule)
        scores = scores_of_game(game, math.nan)
        return replace(plan, scores=scores, columns=self._looked_at(game))

    def _shard_plan(self, given: _InShards) -> ShardPlan:
        settings, executor = self._checked_for_shards(given)
        table = given.table
        some = given._replace(table=first_rows(table))
        return plan_of_shards(
            table,
            partial(self._sharded_game, some, Serial(), show_progress=False),
            partial(self._asked_of, n_rows=table.shape[0], settings=settings),
            bins=self._bins(),
            semivalue=settings.row_semivalue,
            executor=executor,
        )

    def _game(self, **given: Any) -> KNNGame:
        return KNNGame(
            n_neighbors=self.n_neighbors, scoring=self.scoring, scale=self.scale, kinds=self.kinds,
            empty=self.empty, cv=self.cv, **given,
        )  # fmt: skip

    def _value(self, game: Game, blocks: Blocks, owners: Owners | None = None) -> Valuation | None:
        assert isinstance(game, KNNGame)  # noqa: S101 (that is what _game returns)
        settings = self._settings(self.row_semivalue, self.column_semivalue)
        if _checked_flag(self.value_labels, "value_labels"):
            blocks = Blocks(blocks.rows, _with_label(blocks.columns))
        holdings = None if owners is None else owners.on(blocks)
        if owners is not None:
            owners.check_cells(game.problem.table.sha256())
        tasks = self._tasks(game, settings, holdings)
        sweeps = _checked_sweeps(
            self.n_passes, once=not tasks.questions.draws, limited=self.stop is not None
        )
        problem_spec = self._problem_spec(game)
        method = {
            "name": "KNNValuer",
            "design": describe(tasks.questions.design),
            "sweeps": sweeps,
            "stop": describe(self.stop),
        }
        work = Work(tasks, tasks.contribution)
        outcome = settings.run(
            work,
            planner=TaskPlanner(Sweeps),
            stop=_stop(sweeps, len(tasks.questions.parts), self.stop),
            executor=settings.runtime.executor or choose_thread_executor(self.n_jobs),
            identity=run_identity(
                problem_spec,
                game,
                method=method["name"],
                design=method["design"],
                seed=tasks.questions.seed,
                parts_per_sweep=len(tasks.questions.parts),
                owners=list(tasks.holdings.keys) if tasks.holdings else None,
            ),
            title=type(tasks.questions.design).__name__,
            tasks_per_round=len(tasks.questions.parts),
            describe=_Describe(len(tasks.questions.parts)),
            # Two sweeps differ; parts of one do not tell.
            errors_from=2 * len(tasks.questions.parts),
        )
        return None if outcome is None else _valuation(blocks, tasks, outcome, problem_spec, method)

    def _problem_spec(self, game: Any) -> dict[str, Any]:
        return super()._problem_spec(game) | {
            "value_labels": _checked_flag(self.value_labels, "value_labels"),
            "ranking": describe(self._ranking(game)),
        }

    def _ranking(self, game: Any) -> BinnedRanks | None:
        if isinstance(game, ShardedKNNGame):
            return self._bins()
        return _checked_ranking(self.ranking, is_class=game.is_class, n_rows=len(game.labels))

    def _tasks(
        self, game: KNNGame, settings: Settings, holdings: Holdings | None = None
    ) -> QueryTasks:
        with_label = bool(self.value_labels)
        size = len(game.labels), game.shape[1], game.n_queries
        design, seed = self._drawn(size, settings, with_label)
        return QueryTasks(
            game=game,
            design=design,
            row_semivalue=settings.row_semivalue,
            column_semivalue=settings.column_semivalue,
            with_label=with_label,
            ranking=self._ranking(game),
            seed=seed,
            holdings=holdings,
        )


def _valuation(
    blocks: Blocks,
    tasks: QueryTasks,
    outcome: Outcome,
    problem_spec: dict[str, Any],
    method: dict[str, Any],
) -> Valuation:
    """Write down what came out of a run over queries."""
    seen = cast(Sweeps, outcome.contribution)
    warn_if_broken_off(outcome.tasks, tasks.questions, interrupted=outcome.interrupted)
    session = Session(tasks.questions.seed, outcome.tasks)
    never_valued = tasks.never_valued(outcome.tasks)
    return Valuation(
        blocks,
        _without_rows(seen.moments, never_valued),
        seen.expected_total,
        tasks.game.empty,
        _status(outcome, tasks),
        Provenance.now(problem_spec, method, session, seen.tally, outcome.seconds),
        tasks.game.problem.table.backend,
        _errors_without_rows(seen.validation_se(), never_valued),
        baseline=seen.baseline,
        owned=_owned(seen, tasks),
        scores=_scores(tasks, outcome.tasks, seen),
    )


def _scores(tasks: QueryTasks, n_tasks: int, seen: Sweeps) -> Scores:
    game, counts = tasks.game, None
    targets = [fold.target for fold in game.problem.folds]
    if game.problem.classes is not None:
        targets = game.query_labels
        labels, n_classes = game.labels.astype(np.int64), len(game.problem.classes)
        counts = [
            np.bincount(labels[fold.may_train], minlength=n_classes) for fold in game.problem.folds
        ]
    return scores_of_queries(
        tasks.questions, game.scoring, targets=targets, class_counts=counts, n_tasks=n_tasks,
        seen=seen,
    )  # fmt: skip


def _without_rows(moments: Moments, rows: Mask) -> Moments:
    """Moments in which nothing is known of some rows."""
    count = moments.count.copy()
    count[:-1][rows] = 0
    return replace(moments, count=count)


def _errors_without_rows(errors: Floats | None, rows: Mask) -> Floats | None:
    if errors is not None:
        errors[:-1][rows] = np.nan
    return errors


def _owned(seen: Sweeps, tasks: QueryTasks) -> OwnerSums | None:
    if tasks.holdings is None or seen.owned is None:
        return None
    return OwnerSums(
        tasks.holdings.names,
        tasks.holdings.keys,
        seen.owned.moments,
        seen.owned.validation_se(),
    )


@dataclass(frozen=True)
class _Describe:
    """What stands behind the progress bar."""

    parts_per_sweep: int

    def __call__(self, progress: Progress) -> str:
        return f"{progress.tasks / self.parts_per_sweep:.1f} sweeps"


def _status(outcome: Outcome, tasks: QueryTasks) -> Status:
    if outcome.tasks < len(tasks.questions.parts):
        # Some queries were never asked, whatever ended the run.
        return "interrupted"
    if not tasks.questions.draws and tasks.ranking is None:
        return "exact"
    return "interrupted" if outcome.interrupted else "estimated"


def _stop(sweeps: int | None, parts_per_sweep: int, rule: Any) -> StoppingRule:
    if sweeps is None:
        return checked_stop(rule)
    limit = MaxTasks(sweeps * parts_per_sweep)
    return limit if rule is None else limit | checked_stop(rule)


def _checked_flag(flag: Any, called: str) -> bool:
    if not isinstance(flag, bool | np.bool_):
        raise TypeError(f"{called} is {flag!r}; give True or False.")
    return bool(flag)


def _checked_design(
    design: Any, size: tuple[int, int, int], column_semivalue: Semivalue, with_label: bool
) -> ColumnSampler:
    """Fill in the default for so many rows, column players and queries."""
    if design is None:
        return _default_design(size, column_semivalue, with_label)
    if isinstance(design, type) or not isinstance(design, ColumnSampler):
        raise TypeError(
            f"sampler is {design!r}; give ExhaustiveSampler(), LeverageSampler(), "
            "QuadratureSampler() or PermutationSampler()."
        )
    return _all_if_enough(design, size[1] + with_label, column_semivalue)


def _default_design(
    size: tuple[int, int, int], column_semivalue: Semivalue, with_label: bool
) -> ColumnSampler:
    n_rows, n_columns, n_queries = size
    n_players = n_columns + with_label
    exist = ExhaustiveSampler().n_coalitions(n_players, column_semivalue)
    # Without labels nothing can be told: half of the coalitions need no ranking.
    if (
        exist < MOST_COALITIONS_OF_ALL_SUBSETS
        and n_rows * n_queries * exist <= MOST_RANKED_ROWS << with_label
    ):
        return ExhaustiveSampler()
    sampled = LeverageSampler() if isinstance(column_semivalue, Shapley) else PermutationSampler()
    return _all_if_enough(sampled, n_players, column_semivalue)


def _all_if_enough(
    design: ColumnSampler, n_players: int, column_semivalue: Semivalue
) -> ColumnSampler:
    """Look at all coalitions that count where the design would look at as many."""
    exist = ExhaustiveSampler().n_coalitions(n_players, column_semivalue)
    wanted = design.n_coalitions(n_players, column_semivalue)
    # Leaving one column out takes one more than there are; a sample of these would miss some.
    return ExhaustiveSampler() if exist <= max(wanted, n_players + 1) else design


def _checked_ranking(ranking: Any, *, is_class: bool, n_rows: float) -> BinnedRanks | None:
    if ranking is None:
        return BinnedRanks() if is_class and n_rows > MOST_SORTED_ROWS else None
    if not isinstance(ranking, BinnedRanks):
        raise TypeError(
            f"ranking is {ranking!r}; give BinnedRanks(nearest=1000, width=0.02) or None."
        )
    if not is_class:
        raise ValueError("BinnedRanks is for class labels, but y is numeric; leave ranking out.")
    return ranking


def _checked_folder(checkpoint: Any) -> Path | None:
    if checkpoint is None:
        return None
    if not isinstance(checkpoint, str | os.PathLike):
        raise TypeError(
            f"checkpoint is {checkpoint!r}; for a sharded table give the path of a folder."
        )
    # Workers elsewhere may have another working directory.
    folder = local_path(checkpoint, "checkpoint").absolute()
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"checkpoint is the file {folder}; give a folder, or one to be made.")
    return folder


def _checked_sweeps(sweeps: Any, *, once: bool, limited: bool) -> int | None:
    """Return how many sweeps to make; None where a rule alone ends the run."""
    if sweeps is None:
        return 1 if once else None if limited else _SWEEPS
    count = check_count(sweeps, "n_passes")
    return 1 if once else count


def _with_label(columns: Axis) -> Axis:
    """Columns with the labels as one more; all names are text then."""
    names, ids = ([*map(str, side.tolist()), LABEL] for side in (columns.labels, columns.ids))
    if len(set(names)) < len(names) or len(set(ids)) < len(ids):
        raise ValueError(f"X has a column called {LABEL!r}, the name of the labels; rename it.")
    if not columns.grouped:
        return Axis.of_singles(names, what="column")
    return Axis(
        label_array(names, what="column"),
        label_array(ids, what="column"),
        np.append(columns.codes, len(columns.labels)),
    )
