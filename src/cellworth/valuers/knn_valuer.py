"""KNNValuer: values for nearest neighbors in closed form."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np

from cellworth.data.arguments import (
    ColumnTypes,
    CrossValidation,
    Floats,
    Mask,
    RandomState,
    Scale,
    Scoring,
    check_count,
    check_random_state,
)
from cellworth.data.blocks import LABEL, Axis, Blocks, Groups, label_array
from cellworth.data.holdings import Holdings
from cellworth.data.io import describe
from cellworth.data.owners import Owners
from cellworth.data.tables import TableLike, VectorLike
from cellworth.games.game import EmptyPolicy, Game
from cellworth.knn.algorithms import QueryTasks
from cellworth.knn.binned import BinnedRanks
from cellworth.knn.knn_game import KNNGame, KNNScoring
from cellworth.knn.tasks import TaskSchedule
from cellworth.runtime.engine import Outcome, TaskPlanner, Work
from cellworth.runtime.executors import Runtime, choose_thread_executor
from cellworth.runtime.stopping import MaxTasks, Progress, StoppingRule
from cellworth.sampling.column_samplers import (
    MOST_COALITIONS_OF_ALL_SUBSETS,
    ColumnSampler,
    ExhaustiveSampler,
    LeverageSampler,
    PermutationSampler,
)
from cellworth.sampling.moments import Moments, OwnerSums
from cellworth.sampling.passes import PassSums
from cellworth.sampling.semivalues import Semivalue, Shapley
from cellworth.valuation.provenance import Provenance, Scores, Session
from cellworth.valuation.valuation import Status, Valuation
from cellworth.valuers.data_checks import DataAdvice
from cellworth.valuers.plan import Plan, plan_of_passes
from cellworth.valuers.run import run_identity, scores_of_game, scores_of_queries
from cellworth.valuers.settings import Semivalues, Settings, check_stop, draw_seed
from cellworth.valuers.valuer import FitData, TableValuer, check_holdings

# Up to here all subsets of columns are evaluated, which takes about half a minute on one core.
MOST_RANKED_ROWS = 2**31
MOST_SORTED_ROWS = 100_000
_DEFAULT_PASSES = 10


class KNNValuer(TableValuer):
    """Value all cells of a table for a K-nearest-neighbor model, in closed form.

    For each coalition of columns, the values of all rows are exact. Only coalitions of columns are
    sampled; with up to about 12 columns, all of them are evaluated. Columns are used as they are:
    numbers, strings, categories, dates, missing values. Tied rows are averaged over all their
    orders, so values do not depend on the order of the training rows. A sampled run depends on the
    order of columns and of validation rows: another order gives another draw of equal accuracy.

    Ctrl-C ends a run early: finished work is kept, with a warning. For a table in shards, use
    :class:`~cellworth.ShardedKNNValuer`.

    Parameters
    ----------
    n_neighbors : int, default=5
        Number of nearest rows that vote; :class:`~cellworth.knn.KNNGame` defines the utility.
    scoring : {"neighbor_agreement", "balanced_neighbor_agreement", "neg_mean_squared_error"}, \
            default=None
        Neighbor agreement is the mean share of the K nearest rows that have the right label. None
        means neighbor agreement for classes and the squared error for a numeric target.
    sampler : ColumnSampler, default=None
        Coalitions of columns that are evaluated for each validation row: ``ExhaustiveSampler()``,
        ``LeverageSampler(n)``, ``QuadratureSampler(n)`` or ``PermutationSampler(n)``. None means
        all subsets if training rows x validation rows x subsets are at most 2^31 (about half a
        minute on one core). Otherwise it means ``LeverageSampler()``, or ``PermutationSampler()``
        if the semivalue of columns is not Shapley. A sampler that would draw as many coalitions as
        exist is replaced by ``ExhaustiveSampler()``.
    ranking : BinnedRanks, default=None
        How rows are ranked by distance. None means exact ranks for up to 100,000 rows, and
        ``BinnedRanks()`` for more rows.
    scale : {"robust", "std"} or None, default="robust"
        Divisor of numeric columns: interquartile range, standard deviation, or none.
    empty : {"prior", "zero"}, default="prior"
        Utility without columns: "prior" ranks all rows as ties, "zero" is 0.
    semivalue : Semivalue or (Semivalue, Semivalue), default=None
        Weights of coalitions by size; a pair has one for rows and one for columns. None means
        ``Shapley()``.
    n_passes : int, default=None
        Passes over all validation rows, each with new coalitions. Sampling errors come from the
        differences between passes, so they need two. None means 1 if all subsets are evaluated;
        otherwise ``stop`` decides, and without ``stop`` it means 10.
    stop : StoppingRule, default=None
        Rule that ends the run, such as ``TargetStandardError(1e-4)``. With ``n_passes``, the first
        of the two ends it.
    random_state : int, Generator, RandomState or None, default=None
        Seed of the coalitions; None draws one, which the provenance records.
    n_jobs : int, default=None
        Workers of the default executor, -1 for all cores; see :class:`~cellworth.Runtime`.
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

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        scoring: KNNScoring | None = None,
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

    def fit(
        self,
        X: TableLike,
        y: VectorLike | None = None,
        *,
        X_val: TableLike | None = None,
        y_val: VectorLike | None = None,
        cv: CrossValidation = 5,
        groups: VectorLike | None = None,
        row_groups: Groups | str = None,
        column_groups: Groups = None,
        column_types: ColumnTypes | None = None,
        value_labels: bool = False,
        owners: Owners | None = None,
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
        row_groups : array-like, mapping or str, default=None
            One group per row, ``{group: [row ids]}``, or the name of a column of X that holds the
            groups (it then does not play). None: every row for itself.
        column_groups : array-like or mapping, default=None
            One group per column or ``{group: [column names]}``. None: every column for itself.
        column_types : mapping, default=None
            ``{"postcode": "categorical"}`` where the guess from the type is wrong, or a function of
            two cells that returns their squared distance.
        value_labels : bool, default=False
            Whether the label column plays too. The result then has one more column, ``(label)``,
            where rows with a wrong label stand out; all column names are strings then.
        owners : Owners, default=None
            Who holds which cells. ``valuation_.owners()`` then has the errors of each owner's sum,
            which do not follow from the errors of single cells.

        Returns
        -------
        self
        """
        self._forget()
        game = self._game(
            FitData(X, y, X_val, y_val, cv, groups, row_groups, column_groups, None, column_types)
        )
        blocks = _blocks(game, value_labels)
        holdings = None if owners is None else check_holdings(owners, game.problem, blocks)
        self._keep_columns(game)
        return self._keep(game, self._value(game, blocks, holdings))

    def problem_spec(
        self,
        X: TableLike,
        y: VectorLike | None = None,
        *,
        X_val: TableLike | None = None,
        y_val: VectorLike | None = None,
        cv: CrossValidation = 5,
        groups: VectorLike | None = None,
        row_groups: Groups | str = None,
        column_groups: Groups = None,
        column_types: ColumnTypes | None = None,
        value_labels: bool = False,
    ) -> dict[str, Any]:
        """Describe the problem that ``fit`` with these arguments solves, without solving it.

        The description holds the parameters of the utility and hashes of the data, as
        ``valuation_.provenance.problem_spec`` does. An agreement fixes it beforehand.
        """
        game = self._game(
            FitData(X, y, X_val, y_val, cv, groups, row_groups, column_groups, None, column_types)
        )
        return self._problem_spec(game, check_flag(value_labels, "value_labels"))

    def plan(
        self,
        X: TableLike,
        y: VectorLike | None = None,
        *,
        X_val: TableLike | None = None,
        y_val: VectorLike | None = None,
        cv: CrossValidation = 5,
        groups: VectorLike | None = None,
        row_groups: Groups | str = None,
        column_groups: Groups = None,
        column_types: ColumnTypes | None = None,
        value_labels: bool = False,
    ) -> Plan:
        """Estimate what ``fit`` with these arguments would cost, by valuing a few validation rows.

        A utility is one validation row with one coalition of columns.
        """
        game = self._game(
            FitData(X, y, X_val, y_val, cv, groups, row_groups, column_groups, None, column_types)
        )
        settings = self._settings(self.semivalue)
        tasks = self._tasks(game, settings, check_flag(value_labels, "value_labels"))
        rule = None if self.stop is None else check_stop(self.stop)
        once, limited = not tasks.schedule.draws, rule is not None
        n_passes = check_n_passes(self.n_passes, once=once, limited=limited)
        plan = plan_of_passes(tasks, n_passes, rule)
        scores = scores_of_game(game, math.nan)
        return replace(plan, scores=scores, columns=self._inspect_columns(game))

    def _advice(self, game: Any) -> DataAdvice:
        return make_knn_advice(self.scoring, game.column_types)

    def _game(self, data: FitData) -> KNNGame:
        return KNNGame(
            data.X, data.y, data.X_val, data.y_val, n_neighbors=self.n_neighbors,
            scoring=self.scoring, scale=self.scale, column_types=data.column_types,
            cv=data.folds(), row_groups=data.row_groups, column_groups=data.column_groups,
            empty=self.empty,
        )  # fmt: skip

    def _value(
        self, game: Game, blocks: Blocks, holdings: Holdings | None = None
    ) -> Valuation | None:
        assert isinstance(game, KNNGame)  # noqa: S101 (that is what _game returns)
        settings = self._settings(self.semivalue)
        with_label = blocks.shape != game.shape
        tasks = self._tasks(game, settings, with_label, holdings)
        n_passes = check_n_passes(
            self.n_passes, once=not tasks.schedule.draws, limited=self.stop is not None
        )
        problem_spec = self._problem_spec(game, with_label)
        method = {
            "name": "KNNValuer",
            "sampler": describe(tasks.schedule.sampler),
            "n_passes": n_passes,
            "stop": describe(self.stop),
        }
        settings_of_tasks = {
            "method": method["name"],
            "sampler": method["sampler"],
            "seed": tasks.schedule.seed,
            "parts_per_pass": len(tasks.schedule.parts),
            "owners": list(tasks.holdings.keys) if tasks.holdings else None,
        }
        work = Work(tasks, tasks.contribution)
        executor = settings.runtime.executor or choose_thread_executor(self.n_jobs)
        # numba takes a while to import.
        from cellworth.knn.kernels import announce_compilation

        announce_compilation(executor)
        outcome = settings.run(
            work,
            planner=TaskPlanner(PassSums),
            stop=make_stop(n_passes, len(tasks.schedule.parts), self.stop),
            executor=executor,
            identity=run_identity(problem_spec, game, settings_of_tasks),
            title=type(tasks.schedule.sampler).__name__,
            tasks_per_round=len(tasks.schedule.parts),
            describe=_Describe(len(tasks.schedule.parts)),
            # Errors come from differences between passes, so they need two.
            errors_from=2 * len(tasks.schedule.parts),
        )
        return None if outcome is None else _valuation(blocks, tasks, outcome, problem_spec, method)

    def _problem_spec(self, game: Any, with_label: bool = False) -> dict[str, Any]:
        return super()._problem_spec(game) | {
            "value_labels": with_label,
            "ranking": describe(self._ranking(game)),
        }

    def _ranking(self, game: Any) -> BinnedRanks | None:
        return check_ranking(self.ranking, len(game.labels))

    def _tasks(
        self,
        game: KNNGame,
        settings: Settings,
        with_label: bool,
        holdings: Holdings | None = None,
    ) -> QueryTasks:
        size = len(game.labels), game.shape[1], game.n_queries
        sampler = choose_sampler(self.sampler, size, settings.column_semivalue, with_label)
        return QueryTasks(
            game=game,
            sampler=sampler,
            row_semivalue=settings.row_semivalue,
            column_semivalue=settings.column_semivalue,
            with_label=with_label,
            ranking=self._ranking(game),
            seed=choose_seed(self.random_state, self.runtime, sampler),
            holdings=holdings,
        )


def _blocks(game: KNNGame, value_labels: bool) -> Blocks:
    """Return the blocks of the table, with the labels as a column if they are valued."""
    if not check_flag(value_labels, "value_labels"):
        return game.blocks
    return Blocks(game.blocks.rows, add_label_column(game.blocks.columns))


def _valuation(
    blocks: Blocks,
    tasks: QueryTasks,
    outcome: Outcome,
    problem_spec: dict[str, Any],
    method: dict[str, Any],
) -> Valuation:
    """Return the valuation of a finished run."""
    seen = cast(PassSums, outcome.contribution)
    warn_if_interrupted(outcome.tasks, tasks.schedule, interrupted=outcome.interrupted)
    session = Session(tasks.schedule.seed, outcome.tasks)
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
        owned=sum_by_owner(seen, tasks.holdings),
        scores=_scores(tasks, outcome.tasks, seen),
    )


def _scores(tasks: QueryTasks, n_tasks: int, seen: PassSums) -> Scores:
    game, counts = tasks.game, None
    targets = [fold.target for fold in game.problem.folds]
    if game.problem.classes is not None:
        targets = game.query_labels
        labels, n_classes = game.labels.astype(np.int64), len(game.problem.classes)
        counts = [
            np.bincount(labels[fold.may_train], minlength=n_classes) for fold in game.problem.folds
        ]
    return scores_of_queries(
        tasks.schedule, game.scoring, targets=targets, class_counts=counts, n_tasks=n_tasks,
        seen=seen,
    )  # fmt: skip


def _without_rows(moments: Moments, rows: Mask) -> Moments:
    """Return moments without observations of some rows."""
    count = moments.count.copy()
    count[:-1][rows] = 0
    return replace(moments, count=count)


def _errors_without_rows(errors: Floats | None, rows: Mask) -> Floats | None:
    if errors is not None:
        errors[:-1][rows] = np.nan
    return errors


def sum_by_owner(seen: PassSums, holdings: Holdings | None) -> OwnerSums | None:
    """Return the sums of owners that a run observed."""
    if holdings is None or seen.owned is None:
        return None
    owned = seen.owned
    return OwnerSums(holdings.names, holdings.keys, owned.moments, owned.validation_se())


@dataclass(frozen=True)
class _Describe:
    """Text beside the progress bar."""

    parts_per_pass: int

    def __call__(self, progress: Progress) -> str:
        return f"{progress.tasks / self.parts_per_pass:.1f} passes"


def _status(outcome: Outcome, tasks: QueryTasks) -> Status:
    if outcome.tasks < len(tasks.schedule.parts):
        # Some validation rows were not used.
        return "interrupted"
    if not tasks.schedule.draws and tasks.ranking is None:
        return "exact"
    return "interrupted" if outcome.interrupted else "estimated"


def make_stop(n_passes: int | None, parts_per_pass: int, rule: Any) -> StoppingRule:
    """Return the rule that ends a run after some passes, or earlier by another rule."""
    if n_passes is None:
        return check_stop(rule)
    limit = MaxTasks(n_passes * parts_per_pass)
    return limit if rule is None else limit | check_stop(rule)


def make_knn_advice(scoring: Scoring, column_types: ColumnTypes | None) -> DataAdvice:
    """Return how a user fixes the data that a nearest-neighbor valuer warns of."""
    guessed = scoring is None
    return DataAdvice(
        column_types=True,
        named=frozenset(map(str, column_types or {})),
        to_classes="scoring='neighbor_agreement'" if guessed else None,
        to_numbers="scoring='neg_mean_squared_error'" if guessed else None,
    )


def choose_seed(
    random_state: RandomState, runtime: Runtime | None, sampler: ColumnSampler
) -> int | None:
    """Return the seed of the sampled coalitions; None if all coalitions are evaluated."""
    if isinstance(sampler, ExhaustiveSampler):
        check_random_state(random_state)
        return None
    return draw_seed(random_state, runtime)


def check_flag(flag: Any, called: str) -> bool:
    """Return a parameter that must be True or False."""
    if not isinstance(flag, bool | np.bool_):
        raise TypeError(f"{called} must be True or False, got {flag!r}.")
    return bool(flag)


def choose_sampler(
    sampler: Any, size: tuple[int, int, int], column_semivalue: Semivalue, with_label: bool
) -> ColumnSampler:
    """Return the sampler, or the default for so many rows, column players and validation rows."""
    if sampler is None:
        return _default_sampler(size, column_semivalue, with_label)
    if isinstance(sampler, type) or not isinstance(sampler, ColumnSampler):
        raise TypeError(
            "sampler must be ExhaustiveSampler(), LeverageSampler(), QuadratureSampler() or "
            f"PermutationSampler(), got {sampler!r}."
        )
    return _all_if_enough(sampler, size[1] + with_label, column_semivalue)


def _default_sampler(
    size: tuple[int, int, int], column_semivalue: Semivalue, with_label: bool
) -> ColumnSampler:
    n_rows, n_columns, n_queries = size
    n_players = n_columns + with_label
    exist = ExhaustiveSampler().n_coalitions(n_players, column_semivalue)
    # Coalitions without the label column have utility 0: half of them need no ranking.
    if (
        exist < MOST_COALITIONS_OF_ALL_SUBSETS
        and n_rows * n_queries * exist <= MOST_RANKED_ROWS << with_label
    ):
        return ExhaustiveSampler()
    sampled = LeverageSampler() if isinstance(column_semivalue, Shapley) else PermutationSampler()
    return _all_if_enough(sampled, n_players, column_semivalue)


def _all_if_enough(
    sampler: ColumnSampler, n_players: int, column_semivalue: Semivalue
) -> ColumnSampler:
    """Return ExhaustiveSampler() if the sampler would draw as many coalitions as exist."""
    exist = ExhaustiveSampler().n_coalitions(n_players, column_semivalue)
    wanted = sampler.n_coalitions(n_players, column_semivalue)
    # For LeaveOneOut, as many coalitions exist as columns, plus one; a sample would miss some.
    return ExhaustiveSampler() if exist <= max(wanted, n_players + 1) else sampler


def check_ranking(ranking: Any, n_rows: float) -> BinnedRanks | None:
    """Return how rows are ranked: in bins, or exactly (None)."""
    if ranking is None:
        return BinnedRanks() if n_rows > MOST_SORTED_ROWS else None
    if not isinstance(ranking, BinnedRanks):
        raise TypeError(
            f"ranking must be BinnedRanks(nearest=1000, width=0.02) or None, got {ranking!r}."
        )
    return ranking


def check_n_passes(n_passes: Any, *, once: bool, limited: bool) -> int | None:
    """Return the number of passes; None where a rule alone ends the run."""
    if n_passes is None:
        return 1 if once else None if limited else _DEFAULT_PASSES
    count = check_count(n_passes, "n_passes")
    return 1 if once else count


def add_label_column(columns: Axis) -> Axis:
    """Return the columns with the labels as one more; all names become strings."""
    names, ids = ([*map(str, side.tolist()), LABEL] for side in (columns.labels, columns.ids))
    if len(set(names)) < len(names) or len(set(ids)) < len(ids):
        raise ValueError(f"X has a column called {LABEL!r}, the name of the labels; rename it.")
    if not columns.grouped:
        return Axis.from_ids(names, what="column")
    return Axis(
        label_array(names, what="column"),
        label_array(ids, what="column"),
        np.append(columns.codes, len(columns.labels)),
    )


def warn_if_interrupted(n_done: int, schedule: TaskSchedule, *, interrupted: bool) -> None:
    """Warn if a run ended early, and say how far it came."""
    n_parts = len(schedule.parts)
    if n_done < n_parts:
        n_asked = sum(part.n_queries for part in schedule.parts[:n_done])
        warnings.warn(
            f"the run was interrupted after {n_asked} of {schedule.queries.n_queries} validation "
            "rows; values and their total are for these alone.",
            stacklevel=2,
        )
    elif interrupted:
        n_passes = n_done // n_parts
        warnings.warn(
            f"the run was interrupted after {n_passes} pass{'es' if n_passes > 1 else ''}; status "
            "is 'interrupted'.",
            stacklevel=2,
        )
