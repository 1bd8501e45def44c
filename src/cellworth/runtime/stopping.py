"""When a run stops: progress, stopping rules, and the progress bar."""

from __future__ import annotations

import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from tqdm import TqdmWarning

from cellworth.data.arguments import is_integer
from cellworth.sampling.moments import Addition, Moments, widening

# A budget of utilities also ends after this many lookups for each, known utilities included.
LOOKUPS_PER_UTILITY = 10
# A variance of fewer observations is too uncertain for a standard error.
_LEAST_OBSERVATIONS = 10
with warnings.catch_warnings():
    # In a notebook without widgets tqdm warns that it falls back to text.
    warnings.simplefilter("ignore", TqdmWarning)
    from tqdm.auto import tqdm
_SECONDS_BEFORE_BAR = 2.0
_SECONDS_BETWEEN_UPDATES = 0.2
# Some standard errors take seconds to compute; the bar spends at most this share of the time.
_SHARE_OF_TIME = 0.02


@dataclass(frozen=True)
class Progress:
    """The state of a run between two tasks.

    Parameters
    ----------
    tasks : int
        Finished tasks, earlier sessions included.
    seconds : float
        Seconds since this session began.
    contribution : Addition or None
        Folded contributions of all finished tasks; None before the first.

    Examples
    --------
    >>> from cellworth import Runtime, value_game
    >>> from cellworth.games import TableGame
    >>> from cellworth.runtime import MaxTasks
    >>> game = TableGame(np.arange(64.0).reshape(8, 8) ** 2)
    >>> history, rule = [], MaxTasks(64)
    >>> runtime = Runtime(on_round=history.append)
    >>> valuation = value_game(game, (3, 3), stop=rule, random_state=0, runtime=runtime)
    >>> [progress.tasks for progress in history]
    [16, 32, 48, 64]
    >>> [round(rule.share_done(progress), 2) for progress in history]
    [0.25, 0.5, 0.75, 1.0]
    """

    tasks: int
    seconds: float
    contribution: Addition | None

    def after(self, contribution: Addition, seconds: float) -> Progress:
        """Return the progress after one more task is folded."""
        before = self.contribution
        folded = contribution if before is None else before.merge(contribution)
        return Progress(self.tasks + 1, seconds, folded)

    @property
    def utilities(self) -> int:
        """Number of distinct utilities that the run has evaluated."""
        return 0 if self.contribution is None else self.contribution.tally.new

    @property
    def moments(self) -> Moments | None:
        """Moments per block, including the sums of rows and columns."""
        return None if self.contribution is None else self.contribution.moments

    @property
    def largest_standard_error(self) -> float:
        """Largest standard error of a block; infinite while any is unknown."""
        if self.moments is None:
            return math.inf
        errors = (self.moments.sampling_se * widening(self.moments.count))[:-1, :-1]
        return math.inf if np.isnan(errors).any() else float(errors.max())


class StoppingRule(ABC):
    """Computes which share of a run is done; combine rules with ``|`` (any) and ``&`` (all)."""

    # Hard limits: a run never exceeds them, even within a round.
    most_tasks: float = math.inf
    most_utilities: float = math.inf
    most_seconds: float = math.inf

    @abstractmethod
    def share_done(self, progress: Progress) -> float:
        """Return the share that is done: 0 at the start, 1 or more once the run may stop."""

    def __or__(self, other: StoppingRule) -> StoppingRule:
        """Stop as soon as either rule is met."""
        return (
            _JoinedRules(self, other, True) if isinstance(other, StoppingRule) else NotImplemented
        )

    def __and__(self, other: StoppingRule) -> StoppingRule:
        """Stop once both rules are met."""
        return (
            _JoinedRules(self, other, False) if isinstance(other, StoppingRule) else NotImplemented
        )

    def _set_limit(self, name: str, limit: float) -> None:
        object.__setattr__(self, name, limit)


@dataclass(frozen=True)
class MaxTasks(StoppingRule):
    """Stop after exactly this many tasks, earlier sessions included.

    Examples
    --------
    >>> from cellworth.runtime import MaxSeconds, MaxTasks
    >>> MaxTasks(200) | MaxSeconds(60)
    MaxTasks(n_tasks=200) | MaxSeconds(n_seconds=60)
    """

    n_tasks: int

    def __post_init__(self) -> None:
        _check_count("MaxTasks", self.n_tasks, "tasks", "task")
        self._set_limit("most_tasks", self.n_tasks)

    def share_done(self, progress: Progress) -> float:
        """Return the share of the tasks that are done."""
        return progress.tasks / self.n_tasks


@dataclass(frozen=True)
class MaxUtilities(StoppingRule):
    """Stop before a task that would exceed this many utilities.

    For a model, a utility is one fit (or one for each fold and repeat), so this is a budget of
    fits. The first use of a utility in a run counts, even if a cache has it, so that the values do
    not depend on the cache. Utilities of no rows or no columns do not count. If the budget covers
    all coalitions, all are evaluated, and the values are exact. A run that hardly finds any new
    coalitions ends after ten times as many lookups.

    Examples
    --------
    >>> from cellworth.runtime import MaxSeconds, MaxUtilities
    >>> MaxUtilities(2000) | MaxSeconds(60)
    MaxUtilities(n_utilities=2000) | MaxSeconds(n_seconds=60)
    """

    n_utilities: int

    def __post_init__(self) -> None:
        _check_count("MaxUtilities", self.n_utilities, "utilities", "utility")
        self._set_limit("most_utilities", self.n_utilities)

    def share_done(self, progress: Progress) -> float:
        """Return the share of the utilities that are used."""
        if progress.contribution is None:
            return 0.0
        tally = progress.contribution.tally
        return max(tally.new, tally.utilities / LOOKUPS_PER_UTILITY) / self.n_utilities


@dataclass(frozen=True)
class MaxSeconds(StoppingRule):
    """Stop after this many seconds of this session, even within a task.

    Examples
    --------
    >>> from cellworth.runtime import MaxSeconds, Progress, TargetStandardError
    >>> rule = MaxSeconds(60)
    >>> rule.share_done(Progress(tasks=10, seconds=15.0, contribution=None))
    0.25
    >>> rule | TargetStandardError(0.001)
    MaxSeconds(n_seconds=60) | TargetStandardError(largest=0.001)
    """

    n_seconds: float

    def __post_init__(self) -> None:
        _check_positive("MaxSeconds", self.n_seconds, "seconds")
        self._set_limit("most_seconds", self.n_seconds)

    def share_done(self, progress: Progress) -> float:
        """Return the share of the time that has passed."""
        return progress.seconds / self.n_seconds


@dataclass(frozen=True)
class TargetStandardError(StoppingRule):
    """Stop when the largest standard error of a block is below this.

    Standard errors are used once every block has ten observations.

    Examples
    --------
    >>> from cellworth import Runtime, value_game
    >>> from cellworth.games import TableGame
    >>> from cellworth.runtime import MaxTasks, TargetStandardError
    >>> game = TableGame(np.arange(64.0).reshape(8, 8) ** 2)
    >>> rule = TargetStandardError(20.0) | MaxTasks(500)
    >>> valuation = value_game(game, (3, 3), stop=rule, random_state=0)
    >>> bool(valuation.sampling_se.max() < 20)
    True
    """

    largest: float

    def __post_init__(self) -> None:
        _check_positive("TargetStandardError", self.largest, "error")

    def share_done(self, progress: Progress) -> float:
        """Return the share of the expected tasks; errors fall with the square root of tasks."""
        error = progress.largest_standard_error
        return _limit_by_observations(progress, (self.largest / error) ** 2 if error > 0 else 1.0)


@dataclass(frozen=True)
class StableRanking(StoppingRule):
    """Stop when another run of the same length would rank the blocks almost equally.

    The rule estimates the correlation between the values of this run and those of an independent
    run: 1 minus the share of noise (mean squared standard error) in the variance across blocks. It
    does not compare the run with its own recent past, because both share most of their tasks.

    If all blocks have equal values, there is no ranking and noise keeps the rule from being met.
    Combine it with another rule, as in ``StableRanking(0.95) | MaxTasks(5000)``.

    Examples
    --------
    >>> from cellworth import Runtime, value_game
    >>> from cellworth.games import TableGame
    >>> from cellworth.runtime import MaxTasks, StableRanking
    >>> game = TableGame(np.arange(64.0).reshape(8, 8) ** 2)
    >>> rule = StableRanking(0.99) | MaxTasks(500)
    >>> one, other = (value_game(game, (3, 3), stop=rule, random_state=seed) for seed in (0, 1))
    >>> bool(np.corrcoef(one.values.ravel(), other.values.ravel())[0, 1] > 0.99)
    True
    """

    correlation: float = 0.95

    def __post_init__(self) -> None:
        if not isinstance(self.correlation, float) or not 0 < self.correlation < 1:
            raise ValueError(
                f"correlation of StableRanking must be above 0 and below 1, got "
                f"{self.correlation!r}; give a number such as 0.95."
            )

    def share_done(self, progress: Progress) -> float:
        """Return the share of the expected tasks; noise falls with the number of tasks."""
        moments = progress.moments
        if moments is None:
            return 0.0
        noise = float(np.mean(moments.sampling_se[:-1, :-1] ** 2))
        variance = float(np.var(moments.values[:-1, :-1]))
        if noise == 0.0:
            return _limit_by_observations(progress, 1.0)
        return _limit_by_observations(progress, (1.0 - self.correlation) * variance / noise)


@dataclass(frozen=True, repr=False)
class _JoinedRules(StoppingRule):
    one: StoppingRule
    other: StoppingRule
    stops_with_first: bool

    def __post_init__(self) -> None:
        limit = min if self.stops_with_first else max
        for name in ("most_tasks", "most_utilities", "most_seconds"):
            self._set_limit(name, limit(getattr(self.one, name), getattr(self.other, name)))

    def share_done(self, progress: Progress) -> float:
        shares = self.one.share_done(progress), self.other.share_done(progress)
        return max(shares) if self.stops_with_first else min(shares)

    def __repr__(self) -> str:
        if self.stops_with_first:
            return f"{self.one!r} | {self.other!r}"
        return f"({self.one!r}) & ({self.other!r})"


def _limit_by_observations(progress: Progress, share: float) -> float:
    """Limit the share while some block has too few observations."""
    if progress.moments is None or math.isnan(share):
        return 0.0
    seen = int(progress.moments.count[:-1, :-1].min())
    return share if seen >= _LEAST_OBSERVATIONS else min(share, seen / _LEAST_OBSERVATIONS)


def _check_count(rule: str, number: int, many: str, one: str) -> None:
    if not is_integer(number):
        raise TypeError(
            f"{rule} must be an integer number of {many}, got {number!r}; give at least 1 {one}."
        )
    if number < 1:
        raise ValueError(
            f"{rule} must be at least 1 {one}, got {number}; the run would never start."
        )


def _check_positive(rule: str, number: float, what: str) -> None:
    if isinstance(number, bool) or not isinstance(number, int | float | np.number):
        raise TypeError(f"{rule} must be a number of {what}, got {number!r}.")
    if not (math.isfinite(number) and number > 0):
        raise ValueError(
            f"{rule} must be a finite number above 0, got {number}; it would never be met."
        )


def make_progress_bar(title: str, n_steps: int, *, shown: bool) -> Any:
    """Return a bar of equal steps with the time left; it appears after two seconds."""
    return tqdm(
        total=n_steps,
        desc=title,
        disable=not shown,
        delay=_SECONDS_BEFORE_BAR,
        bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed}, {remaining} left",
    )


def count_tasks(progress: Progress) -> str:
    """Return the number of finished tasks as text."""
    return f"{progress.tasks} tasks"


class Bar:
    """A progress bar (tqdm) with the time left; it appears after two seconds.

    If the first task will take longer (``seconds_per_task``), it appears at once and says so.
    ``describe`` returns the text behind the bar. From ``errors_from`` tasks on, the bar also shows
    the largest standard error.
    """

    def __init__(
        self,
        share_done: Callable[[Progress], float],
        start: Progress,
        *,
        title: str,
        shown: bool,
        seconds_per_task: float = 0.0,
        describe: Callable[[Progress], str] = count_tasks,
        errors_from: int | None = None,
    ) -> None:
        self._share_done, self._describe = share_done, describe
        self._errors_from = math.inf if errors_from is None else errors_from
        self._errors, self._limiter = "", RateLimiter(_SHARE_OF_TIME)
        self._latest = start
        slow = seconds_per_task >= _SECONDS_BEFORE_BAR
        self._next_update = time.perf_counter() + _SECONDS_BETWEEN_UPDATES
        self._bar = tqdm(
            total=1.0,
            initial=min(share_done(start), 1.0),
            desc=title,
            disable=not shown,
            delay=0.0 if slow else _SECONDS_BEFORE_BAR,
            postfix=f"a task takes about {seconds_per_task:.0f} s" if slow else None,
            smoothing=0.0,
            bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed}, {remaining} left{postfix}",
        )

    def show(self, progress: Progress) -> None:
        """Show the progress, unless the bar was updated a moment ago."""
        self._latest = progress
        if time.perf_counter() >= self._next_update:
            self._draw()

    def close(self) -> None:
        """Show the last progress and close the bar."""
        self._draw()
        self._bar.close()

    def _draw(self) -> None:
        if not self._bar.disable:
            self._update_errors()
            self._bar.set_postfix_str(self._describe(self._latest) + self._errors, refresh=False)
            self._bar.update(min(self._share_done(self._latest), 1.0) - self._bar.n)
        self._next_update = time.perf_counter() + _SECONDS_BETWEEN_UPDATES

    def _update_errors(self) -> None:
        if self._latest.tasks < self._errors_from or not self._limiter.due:
            return
        with self._limiter.measure():
            error = self._latest.largest_standard_error
        self._errors = f", standard errors up to {error:.2g}" if math.isfinite(error) else ""


class RateLimiter:
    """Limits an action to a share of the time."""

    def __init__(self, share_of_time: float) -> None:
        self._share_of_time = share_of_time
        self._next = 0.0

    @property
    def due(self) -> bool:
        """Whether enough time has passed since the last action."""
        return time.monotonic() >= self._next

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Measure the action in this context; its duration decides when it is due again."""
        began = time.monotonic()
        yield
        self._next = began + (time.monotonic() - began) / self._share_of_time
