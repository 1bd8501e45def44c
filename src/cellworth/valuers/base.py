"""What all valuers share: the way from a table to a game, and from a game to a Valuation."""

from __future__ import annotations

import json
import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, get_args

import numpy as np
from sklearn.base import BaseEstimator
from threadpoolctl import threadpool_limits

from cellworth.blocks import Blocks, Groups, Mask
from cellworth.caches import Cache
from cellworth.counts import is_whole
from cellworth.designs import Design, FiniteDesign
from cellworth.estimates.looks import Estimate
from cellworth.execution import (
    AfterTasks,
    Executor,
    Journal,
    MemoryJournal,
    Outcome,
    Progress,
    Serial,
    StoppingRule,
    Work,
    describe_errors,
    run,
)
from cellworth.games import EmptyPolicy, Game, ModelGame
from cellworth.games.base import utilities
from cellworth.moments import Addition, Contribution, Moments, Tally
from cellworth.problem import Problem
from cellworth.provenance import (
    Provenance,
    Session,
    code_sha256,
    content_hash,
    described,
    fingerprint,
)
from cellworth.semivalues import Semivalue, Shapley
from cellworth.valuation import Valuation
from cellworth.valuers.bookkeeping import Lookup, UtilityBook, coalition_bytes
from cellworth.valuers.plans import Plan

_ROUNDS = 100


@dataclass(frozen=True)
class Settings:
    """How to value a game, checked: semivalues, where tasks run, what is shown meanwhile."""

    row_semivalue: Semivalue
    column_semivalue: Semivalue
    executor: Executor
    journal: Journal
    progress: bool
    cache: Cache | None

    @classmethod
    def checked(
        cls,
        row_semivalue: Any,
        column_semivalue: Any,
        executor: Any,
        journal: Any,
        progress: bool,
        *,
        cache: Any = None,
    ) -> Settings:
        """Fill in defaults and refuse what does not fit."""
        return cls(
            _checked_semivalue(row_semivalue, "row"),
            _checked_semivalue(column_semivalue, "column"),
            _checked(executor, Serial, Executor, "executor", "Serial(), Threads(2), Processes(2)"),
            _checked(journal, MemoryJournal, Journal, "journal", "MemoryJournal()"),
            progress,
            _checked(cache, lambda: None, Cache, "cache", "MemoryCache(), FileCache(path)"),
        )

    @property
    def semivalues(self) -> tuple[Semivalue, Semivalue]:
        """Of rows and of columns."""
        return self.row_semivalue, self.column_semivalue

    def question(self, game: Game) -> dict[str, Any]:
        """All that decides the true values."""
        return {
            "row_semivalue": described(self.row_semivalue),
            "column_semivalue": described(self.column_semivalue),
            **_described_game(game),
        }


class Valuer(BaseEstimator, ABC):  # type: ignore[misc]
    """Base of all valuers: scikit-learn estimators whose ``fit`` values the blocks of X."""

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        X_val: Any = None,
        y_val: Any = None,
        row_groups: Groups | str = None,
        column_groups: Groups = None,
        groups: Any = None,
    ) -> Self:
        """Value the blocks of a training table.

        Parameters
        ----------
        X : pandas, polars or Arrow table, or array, of shape (n_rows, n_columns)
            Table to learn from; its blocks are valued. Names and row ids are kept.
        y : array-like of shape (n_rows,)
            Labels.
        X_val, y_val : table and labels, default=None
            Rows to be judged on. Without them, each utility is a mean over the folds of ``cv``.
        row_groups : array-like, mapping or str, default=None
            One group per row, ``{group: [row ids]}``, or the name of a column of X that holds the
            groups (it then does not play). None: every row for itself.
        column_groups : array-like or mapping, default=None
            One group per column or ``{group: [column names]}``. None: every column for itself.
        groups : array-like of shape (n_rows,), default=None
            Rows that ``cv`` keeps together, where it is a splitter that asks for groups.

        Returns
        -------
        self
        """
        return self._fit(
            X=X, y=y, X_val=X_val, y_val=y_val, row_groups=row_groups, column_groups=column_groups,
            groups=groups,
        )  # fmt: skip

    def _fit(self, **given: Any) -> Self:
        game = self._game(**given)
        self.valuation_ = self._value(game, game.blocks)
        self.values_ = self.valuation_.values
        self.standard_errors_ = self.valuation_.standard_errors
        self.row_values_ = self.valuation_.rows().values
        self.column_values_ = self.valuation_.columns().values
        self._keep_names(game)
        return self

    @abstractmethod
    def _value(self, game: Game, blocks: Blocks) -> Valuation: ...

    @abstractmethod
    def _game(self, **given: Any) -> Any:
        """Make a game of what ``fit`` was given."""

    def _keep_names(self, game: Any) -> None:
        names = game.problem.table.names
        self.n_features_in_ = len(names)
        if game.problem.table.backend is not None and all(isinstance(n, str) for n in names):
            self.feature_names_in_ = names
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that labels are needed and that gaps and text are the model's call."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        return tags


class ModelValuer(Valuer):
    """Base of valuers that train a model on every coalition."""

    def fit(
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
    ) -> Self:
        """Value the blocks of a training table.

        Parameters
        ----------
        X : pandas, polars or Arrow table, or array, of shape (n_rows, n_columns)
            Table to learn from; its blocks are valued. Names and row ids are kept.
        y : array-like of shape (n_rows,)
            Labels.
        X_val, y_val : table and labels, default=None
            Rows to be judged on. Without them, each utility is a mean over the folds of ``cv``.
        row_groups : array-like, mapping or str, default=None
            One group per row, ``{group: [row ids]}``, or the name of a column of X that holds the
            groups (it then does not play). None: every row for itself.
        column_groups : array-like or mapping, default=None
            One group per column or ``{group: [column names]}``. None: every column for itself.
        groups : array-like of shape (n_rows,), default=None
            Rows that ``cv`` keeps together, where it is a splitter that asks for groups.
        sample_weight : array-like of shape (n_rows,), default=None
            Weight of each training row, for models whose ``fit`` takes it.

        Returns
        -------
        self
        """
        return self._fit(
            X=X, y=y, X_val=X_val, y_val=y_val, row_groups=row_groups, column_groups=column_groups,
            groups=groups, sample_weight=sample_weight,
        )  # fmt: skip

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
        # A model that fails on the whole table would be timed failing.
        corners(game, game.shape)
        return self._plan(game)

    @abstractmethod
    def _plan(self, game: Any) -> Plan: ...

    def _settings(self, row_semivalue: Any = None, column_semivalue: Any = None) -> Settings:
        return Settings.checked(
            row_semivalue,
            column_semivalue,
            self.executor,
            self.journal,
            self.progress,
            cache=self.cache,
        )

    def _game(self, **given: Any) -> Any:
        return ModelGame(
            self.model, scoring=self.scoring, empty=self.empty, cv=self.cv, error=self.error,
            n_repeats=self.n_repeats, **given,
        )  # fmt: skip


@dataclass(frozen=True)
class Method:
    """How values are computed: which tasks, what each adds, and when they suffice.

    Parameters
    ----------
    name : str
        For the provenance and the progress bar.
    design : Design
        Names task number t.
    stop : StoppingRule
        When the run is long enough.
    seed : int or None
        What the design draws its tasks from; None where nothing is drawn.
    tasks_per_round : int
        How often the stopping rule is asked.
    estimate : callable or None
        What the utilities of all tasks tell, where tasks are pairs of coalitions; see
        :class:`cellworth.estimates.looks.Looks`.
    contribution : callable or None
        What a task adds, where it is more than utilities to look at; a pure function of the task.
    describe : callable
        What stands behind the progress bar.
    shrink : bool
        Whether values are drawn towards equal shares as far as noise may explain them.
    merges : bool
        Whether two runs with different seeds can be joined by averaging what they saw.
    errors_from : int
        Observations below which no standard errors are reported.
    """

    name: str
    design: Design
    stop: StoppingRule
    seed: int | None
    tasks_per_round: int
    estimate: Estimate | None = None
    contribution: Callable[[Any], Addition] | None = None
    describe: Callable[[Progress], str] = describe_errors
    shrink: bool = False
    merges: bool = True
    errors_from: int = 2

    @classmethod
    def of_all_tasks(cls, name: str, design: FiniteDesign, estimate: Estimate) -> Method:
        """Look at all that a design has, where nothing is drawn."""
        n_tasks = design.n_tasks
        return cls(
            name=name,
            design=design,
            stop=AfterTasks(n_tasks),
            seed=None,
            tasks_per_round=-(-n_tasks // _ROUNDS),
            estimate=estimate,
            describe=lambda progress: f"{progress.tasks:,} of {n_tasks:,} tasks",
        )


@dataclass(frozen=True)
class Corners:
    """Utilities of everything and of nothing, which fix what all values add up to.

    Parameters
    ----------
    shape : tuple of int
        Row players and column players.
    utilities : tuple of float
        h(N, M), h(N, 0), h(0, M) and h(0, 0).
    tally : Tally
        The four utilities that were looked at.
    seconds : float
        Time that the first of them took.
    """

    shape: tuple[int, int]
    utilities: tuple[float, ...]
    tally: Tally
    seconds: float

    @property
    def known(self) -> dict[bytes, float]:
        """The four utilities, by coalition."""
        names = [coalition_bytes(*pair) for pair in _corner_pairs(self.shape)]
        return dict(zip(names, self.utilities, strict=True))

    @property
    def whole(self) -> float:
        """h(N, M), the utility of the whole table."""
        return self.utilities[0]

    @property
    def total(self) -> float:
        """h(N, M) - h(N, 0) - h(0, M) + h(0, 0): the sum of Shapley values."""
        whole, no_columns, no_rows, nothing = self.utilities
        return whole - no_columns - no_rows + nothing


def corners(game: Game, shape: tuple[int, int]) -> Corners:
    """Look at the four corners of a game; a model that fails on the whole table ends here."""
    pairs = _corner_pairs(shape)
    # One thread, as inside tasks: the bits must not depend on the machine's number of cores.
    with threadpool_limits(1):
        began = time.perf_counter()
        whole, tally = utilities(game, pairs[:1])
        seconds = time.perf_counter() - began
        if tally.failed:
            raise ValueError(
                "the model could not be trained and scored on the whole table "
                f"({tally.messages[0]}); mend the data, or put the steps that it needs into a "
                "Pipeline."
            )
        rest, more = utilities(game, pairs[1:])
    return Corners(shape, (*whole.tolist(), *rest.tolist()), tally.merge(more), seconds)


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
) -> Valuation:
    """Run a method on a game and write down what came out, with its provenance."""
    question = settings.question(game)
    book, work = _book(game, question, method, settings, ends)
    outcome = run(
        work,
        bookkeeper=book,
        stop=method.stop,
        executor=settings.executor,
        journal=settings.journal,
        # The total tells games apart whose settings cannot be spelled out, such as a lambda; its
        # last digits may differ between machines.
        fingerprint=fingerprint(
            question, method.name, blocks.shape, method.seed, f"{ends.total:.9g}"
        ),
        tasks_per_round=method.tasks_per_round,
        title=method.name,
        show_progress=settings.progress,
        seconds_per_task=ends.seconds * method.design.utilities_per_task,
        describe=method.describe,
    )
    added = outcome.contribution or _nothing(blocks.shape)
    tally = ends.tally.merge(added.tally)
    _warn(outcome, tally)
    provenance = Provenance.now(
        question,
        {
            "name": method.name,
            "stop": described(method.stop),
            "merges": method.merges,
            "errors_from": method.errors_from,
        },
        Session(method.seed, outcome.tasks),
        tally,
        outcome.seconds,
    )
    valuation = Valuation(
        blocks,
        added.moments,
        ends.total,
        _empty_policy(game),
        "interrupted" if outcome.interrupted else "estimated",
        provenance,
        _backend(game),
        shrink=method.shrink,
    )
    _warn_of_nothing_told(valuation, outcome.tasks)
    return valuation


def _book(
    game: Game, question: dict[str, Any], method: Method, settings: Settings, ends: Corners
) -> tuple[UtilityBook | None, Callable[[Any], Any]]:
    """Who keeps the books of a run, and what its workers do."""
    if method.estimate is None:
        if method.contribution is None:
            raise ValueError(f"the method {method.name!r} has no estimate and no contribution.")
        return None, Work(method.design, method.contribution)
    name, known = "", ends.known
    if settings.cache is not None:
        name = _cache_name(game, question, ends.shape)
        _refuse_another_game(settings.cache, name, known)
        settings.cache.keep(name, known)
    book = UtilityBook(
        method.design,
        method.estimate,
        method.stop,
        cache=settings.cache,
        game=name,
        seconds=ends.seconds,
        known=known,
    )
    return book, Lookup(game, ends.shape)


def _refuse_another_game(cache: Cache, name: str, known: dict[bytes, float]) -> None:
    """Compare what was just computed with what the cache holds: equal settings can mislead."""
    for coalition, stored in cache.find(name, known).items():
        fresh = known[coalition]
        if not math.isclose(stored, fresh, rel_tol=1e-9, abs_tol=1e-12):
            raise ValueError(
                f"the cache holds {stored:.9g} for a utility that is now {fresh:.9g}: the "
                "model or the scoring has changed in a way that its parameters do not show, or is "
                "random; use a new cache, or set the model's random_state."
            )


def _cache_name(game: Game, question: dict[str, Any], shape: tuple[int, int]) -> str:
    """Name a game for a cache: all that its utilities depend on, the code of its parts included."""
    # Utilities are the same however coalitions are weighed.
    weighing = ("row_semivalue", "column_semivalue")
    described_game = {name: question[name] for name in question if name not in weighing}
    if described_game.get("content", "") is None:
        raise ValueError(
            f"a {type(game).__name__} cannot be told from others of its kind, and so no cache can "
            "keep its utilities; give it a method question() -> dict that names all that decides "
            "them."
        )
    parts = game.parts() if hasattr(game, "parts") else [game]
    return fingerprint(described_game, list(shape), [code_sha256(part) for part in parts])


def _nothing(shape: tuple[int, int]) -> Contribution:
    """What a run adds whose budget ended before its first task."""
    zeros = np.zeros((shape[0] + 1, shape[1] + 1))
    return Contribution(Moments(zeros.astype(np.int64), zeros, zeros))


def _empty_policy(game: Game) -> str:
    policy = getattr(game, "empty", None)
    return policy if isinstance(policy, str) and policy in get_args(EmptyPolicy) else "game"


def _backend(game: Game) -> str | None:
    problem = getattr(game, "problem", None)
    return problem.table.backend if isinstance(problem, Problem) else None


def _warn_of_nothing_told(valuation: Valuation, n_tasks: int) -> None:
    if n_tasks == 0 or valuation.status == "interrupted":
        return
    if np.isnan(valuation.values).all():
        warnings.warn(
            f"{valuation.provenance.tally.new} utilities are too few for "
            f"{valuation.provenance.method['name']}, and all values are NaN; give a larger budget.",
            stacklevel=2,
        )
    elif valuation.shrink and valuation.values.size > 1 and _all_equal(valuation):
        warnings.warn(
            "all differences between blocks are within noise, so that each has an equal share of "
            "the total; give a larger budget before you rank them.",
            stacklevel=2,
        )


def _all_equal(valuation: Valuation) -> bool:
    seen = valuation.moments.values[:-1, :-1]
    return bool(np.ptp(valuation.values) <= 1e-9 * np.ptp(seen) and np.ptp(seen) > 0)


def _warn(outcome: Outcome, tally: Tally) -> None:
    if outcome.interrupted:
        warnings.warn(
            f"the run was broken off after {outcome.tasks} tasks; status is 'interrupted'.",
            stacklevel=2,
        )
    if outcome.contribution is None:
        warnings.warn(
            "the budget ended before the first task was done, so that nothing is known but the "
            "total; give more utilities or seconds (plan() tells what a task takes), or cut the "
            "table into fewer blocks.",
            stacklevel=2,
        )
    if tally.failed:
        warnings.warn(
            f"{tally.failed} of {max(tally.new, tally.failed)} utilities failed and count as "
            "their stand-in (a model: as a constant predictor); the first message: "
            f"{tally.messages[0]}",
            stacklevel=2,
        )


def checked_stop(stop: Any) -> StoppingRule:
    """Refuse what is no stopping rule."""
    if not isinstance(stop, StoppingRule):
        raise TypeError(
            f"stop is {stop!r}; give a rule such as AfterTasks(200) or AfterSeconds(60), "
            "joined with | or &."
        )
    return stop


def checked_seed(random_state: Any, journal: Any) -> int:
    """Turn a random_state into the seed that names every task of the run."""
    if journal is not None and not is_whole(random_state):
        raise ValueError(
            "a journal needs random_state to be a whole number, so that a later session draws the "
            "same tasks."
        )
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if not is_whole(random_state):
        raise TypeError(
            f"random_state is {random_state!r}; give a whole number, None or a RandomState."
        )
    if random_state < 0:
        raise ValueError(f"random_state is {random_state}; give a whole number of at least 0.")
    return int(random_state)


def _checked_semivalue(semivalue: Any, side: str) -> Semivalue:
    if semivalue is None:
        return Shapley()
    if isinstance(semivalue, type) or not isinstance(semivalue, Semivalue):
        raise TypeError(
            f"{side}_semivalue is {semivalue!r}; give Shapley(), Banzhaf(), Beta(a, b) "
            "or LeaveOneOut()."
        )
    return semivalue


def _checked(
    given: Any, default: Callable[[], Any], protocol: type, called: str, examples: str
) -> Any:
    if given is None:
        return default()
    if isinstance(given, type) or not isinstance(given, protocol):
        raise TypeError(f"{called} is {given!r}; give one of {examples}.")
    return given


def _described_game(game: Game) -> dict[str, Any]:
    if hasattr(game, "question"):
        # As it will be read from a file, so that a loaded answer can be compared with a new one.
        question: dict[str, Any] = json.loads(json.dumps(game.question(), default=described))
        return question
    name = f"{type(game).__module__}.{type(game).__qualname__}"
    return {"game": name, "content": content_hash(game)}
