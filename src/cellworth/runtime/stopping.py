"""Progress of a run: stopping rules, and the progress bar."""

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

# A budget of utilities is used up by this many looks at each, be they known or new.
LOOKS_PER_UTILITY = 10
# Spreads of fewer observations say little about the standard error.
_LEAST_OBSERVATIONS = 10
with warnings.catch_warnings():
    # In a notebook without widgets the bar is text, which needs no word of warning.
    warnings.simplefilter("ignore", TqdmWarning)
    from tqdm.auto import tqdm
_SECONDS_BEFORE_BAR = 2.0
_SECONDS_BETWEEN_LOOKS = 0.2
# Errors of some estimates take seconds; looking at them may take this share of the time.
_SHARE_OF_TIME = 0.02


@dataclass(frozen=True)
class Progress:
    """How far a run has come.

    Parameters
    ----------
    tasks : int
        Tasks finished so far, those of earlier sessions included.
    seconds : float
        Seconds since this session began.
    contribution : Addition or None
        What all finished tasks added; None before the first.

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
        """Progress once one more task has been folded in."""
        before = self.contribution
        folded = contribution if before is None else before.merge(contribution)
        return Progress(self.tasks + 1, seconds, folded)

    @property
    def utilities(self) -> int:
        """Utilities that the run has met."""
        return 0 if self.contribution is None else self.contribution.tally.new

    @property
    def moments(self) -> Moments | None:
        """Count, mean and spread per entry, sums of rows and columns included."""
        return None if self.contribution is None else self.contribution.moments

    @property
    def largest_standard_error(self) -> float:
        """Largest standard error of a block; infinite while any is unknown."""
        if self.moments is None:
            return math.inf
        errors = (self.moments.sampling_se * widening(self.moments.count))[:-1, :-1]
        return math.inf if np.isnan(errors).any() else float(errors.max())


class StoppingRule(ABC):
    """Says how much of the way is done; rules are joined with ``|`` (any) and ``&`` (all)."""

    # A run never goes beyond these, even in the middle of a round.
    most_tasks: float = math.inf
    most_utilities: float = math.inf
    most_seconds: float = math.inf

    @abstractmethod
    def share_done(self, progress: Progress) -> float:
        """How much of the way is done: 0 at the start, 1 or more once the run may stop."""

    def __or__(self, other: StoppingRule) -> StoppingRule:
        """Stop as soon as either rule is met."""
        return _Any(self, other) if isinstance(other, StoppingRule) else NotImplemented

    def __and__(self, other: StoppingRule) -> StoppingRule:
        """Stop once both rules are met."""
        return _All(self, other) if isinstance(other, StoppingRule) else NotImplemented


@dataclass(frozen=True)
class MaxTasks(StoppingRule):
    """Stop after exactly this many tasks, those of resumed sessions included.

    Examples
    --------
    >>> from cellworth.runtime import MaxSeconds, MaxTasks
    >>> MaxTasks(200) | MaxSeconds(60)
    MaxTasks(n_tasks=200) | MaxSeconds(n_seconds=60)
    """

    n_tasks: int

    def __post_init__(self) -> None:
        """Refuse a run without tasks."""
        _require_count("MaxTasks", self.n_tasks, "tasks", "task")

    @property
    def most_tasks(self) -> float:  # type: ignore[override]
        """Tasks that the run never goes beyond."""
        return self.n_tasks

    def share_done(self, progress: Progress) -> float:
        """Tasks done over tasks wanted."""
        return progress.tasks / self.n_tasks


@dataclass(frozen=True)
class MaxUtilities(StoppingRule):
    """Stop before a task that would bring the run beyond this many utilities.

    With a model a utility is a fit (or one for each fold and repeat), and this is the budget in
    fits. A utility counts where the run meets it first, also if a cache spares its cost, so that
    the values do not depend on the cache. Those of no rows or no columns do not count. Where the
    budget covers all coalitions, all are looked at, and the values are exact. A run that meets
    hardly any new coalitions ends after ten times as many looks.

    Examples
    --------
    >>> from cellworth.runtime import MaxSeconds, MaxUtilities
    >>> MaxUtilities(2000) | MaxSeconds(60)
    MaxUtilities(n_utilities=2000) | MaxSeconds(n_seconds=60)
    """

    n_utilities: int

    def __post_init__(self) -> None:
        """Refuse a run without utilities."""
        _require_count("MaxUtilities", self.n_utilities, "utilities", "utility")

    @property
    def most_utilities(self) -> float:  # type: ignore[override]
        """Utilities that the run never goes beyond."""
        return self.n_utilities

    def share_done(self, progress: Progress) -> float:
        """Utilities met over utilities given."""
        if progress.contribution is None:
            return 0.0
        tally = progress.contribution.tally
        return max(tally.new, tally.utilities / LOOKS_PER_UTILITY) / self.n_utilities


@dataclass(frozen=True)
class MaxSeconds(StoppingRule):
    """Stop after this many seconds of this session, in the middle of a task if need be.

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
        """Refuse a run without time."""
        _require_positive("MaxSeconds", self.n_seconds, "seconds")

    @property
    def most_seconds(self) -> float:  # type: ignore[override]
        """Seconds after which no further task is waited for."""
        return self.n_seconds

    def share_done(self, progress: Progress) -> float:
        """Seconds gone over seconds given."""
        return progress.seconds / self.n_seconds


@dataclass(frozen=True)
class TargetStandardError(StoppingRule):
    """Stop when the largest standard error of a block is below this.

    Errors are believed once every block has been seen ten times.

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
        """Refuse an error that no run reaches."""
        _require_positive("TargetStandardError", self.largest, "error")

    def share_done(self, progress: Progress) -> float:
        """Tasks done over tasks expected, since errors fall with the root of the tasks."""
        error = progress.largest_standard_error
        return _credible(progress, (self.largest / error) ** 2 if error > 0 else 1.0)


@dataclass(frozen=True)
class StableRanking(StoppingRule):
    """Stop when another run of the same length would rank the blocks much the same.

    The measure is the correlation to be expected between the values of this run and those of
    an independent one: 1 minus the share of noise (mean squared standard error) in the variance
    across blocks. Comparing a run with its own recent past would flatter it, because the two
    share most of their tasks.

    Blocks with equal values have no ranking, and while there is any noise the rule is
    never met: join it with another, as in ``StableRanking(0.95) | MaxTasks(5000)``.

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
        """Refuse what is not a correlation short of 1."""
        if not isinstance(self.correlation, float) or not 0 < self.correlation < 1:
            raise ValueError(
                f"StableRanking({self.correlation!r}) has no meaning; "
                "give a correlation above 0 and below 1, such as 0.95."
            )

    def share_done(self, progress: Progress) -> float:
        """Tasks done over tasks expected, since noise falls with their number."""
        moments = progress.moments
        if moments is None:
            return 0.0
        noise = float(np.mean(moments.sampling_se[:-1, :-1] ** 2))
        variance = float(np.var(moments.values[:-1, :-1]))
        if noise == 0.0:
            return _credible(progress, 1.0)
        return _credible(progress, (1.0 - self.correlation) * variance / noise)


@dataclass(frozen=True)
class _Any(StoppingRule):
    first: StoppingRule
    second: StoppingRule

    @property
    def most_tasks(self) -> float:  # type: ignore[override]
        return min(self.first.most_tasks, self.second.most_tasks)

    @property
    def most_utilities(self) -> float:  # type: ignore[override]
        return min(self.first.most_utilities, self.second.most_utilities)

    @property
    def most_seconds(self) -> float:  # type: ignore[override]
        return min(self.first.most_seconds, self.second.most_seconds)

    def share_done(self, progress: Progress) -> float:
        return max(self.first.share_done(progress), self.second.share_done(progress))

    def __repr__(self) -> str:
        return f"{self.first!r} | {self.second!r}"


@dataclass(frozen=True)
class _All(StoppingRule):
    first: StoppingRule
    second: StoppingRule

    @property
    def most_tasks(self) -> float:  # type: ignore[override]
        return max(self.first.most_tasks, self.second.most_tasks)

    @property
    def most_utilities(self) -> float:  # type: ignore[override]
        return max(self.first.most_utilities, self.second.most_utilities)

    @property
    def most_seconds(self) -> float:  # type: ignore[override]
        return max(self.first.most_seconds, self.second.most_seconds)

    def share_done(self, progress: Progress) -> float:
        return min(self.first.share_done(progress), self.second.share_done(progress))

    def __repr__(self) -> str:
        return f"({self.first!r}) & ({self.second!r})"


def _credible(progress: Progress, share: float) -> float:
    if progress.moments is None or math.isnan(share):
        return 0.0
    seen = int(progress.moments.count[:-1, :-1].min())
    return share if seen >= _LEAST_OBSERVATIONS else min(share, seen / _LEAST_OBSERVATIONS)


def _require_count(rule: str, number: int, many: str, one: str) -> None:
    if not is_integer(number):
        raise TypeError(f"{rule} takes a whole number of {many}, not {number!r}.")
    if number < 1:
        raise ValueError(f"{rule}({number}) would never start; give at least 1 {one}.")


def _require_positive(rule: str, number: float, what: str) -> None:
    if isinstance(number, bool) or not isinstance(number, int | float | np.number):
        raise TypeError(f"{rule} takes a number of {what}, not {number!r}.")
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{rule}({number}) would never be met; give a finite number above 0.")


def make_progress_bar(title: str, n_steps: int, *, shown: bool) -> Any:
    """A bar for so many like steps, with the time left; it appears once they take long."""
    return tqdm(
        total=n_steps,
        desc=title,
        disable=not shown,
        delay=_SECONDS_BEFORE_BAR,
        bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed}, {remaining} left",
    )


def count_tasks(progress: Progress) -> str:
    """Tasks done so far."""
    return f"{progress.tasks} tasks"


class Bar:
    """A tqdm bar of the share done, with the time left; it appears once a run takes long.

    Parameters
    ----------
    share_done : callable
        From a Progress to how much of the way is done.
    start : Progress
    title : str
    shown : bool
    seconds_per_task : float
        A guess; a bar whose first task will take long is shown at once, and says so.
    describe : callable
        Returns the text behind the bar.
    errors_from : int or None
        Number of tasks from which the bar shows the largest standard error.
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
        """Begin where earlier sessions ended."""
        self._share_done = share_done
        self._describe = describe
        self._errors_from = math.inf if errors_from is None else errors_from
        self._errors, self._limiter = "", RateLimiter(_SHARE_OF_TIME)
        self._latest = start
        slow = seconds_per_task >= _SECONDS_BEFORE_BAR
        self._next_look = time.perf_counter() + _SECONDS_BETWEEN_LOOKS
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
        """Show where a run is, unless it was shown a moment ago."""
        self._latest = progress
        if time.perf_counter() >= self._next_look:
            self._draw()

    def close(self) -> None:
        """Show the end and leave the bar as it is."""
        self._draw()
        self._bar.close()

    def _draw(self) -> None:
        if not self._bar.disable:
            self._look_at_errors()
            self._bar.set_postfix_str(self._describe(self._latest) + self._errors, refresh=False)
            self._bar.update(min(self._share_done(self._latest), 1.0) - self._bar.n)
        self._next_look = time.perf_counter() + _SECONDS_BETWEEN_LOOKS

    def _look_at_errors(self) -> None:
        if self._latest.tasks < self._errors_from or not self._limiter.due:
            return
        with self._limiter.measure():
            error = self._latest.largest_standard_error
        self._errors = f", standard errors up to {error:.2g}" if math.isfinite(error) else ""


class RateLimiter:
    """Says when something may be done again, so that it takes no more than a share of the time."""

    def __init__(self, share_of_time: float) -> None:
        """Begin with something that is due."""
        self._share_of_time = share_of_time
        self._next = 0.0

    @property
    def due(self) -> bool:
        """Whether enough time has gone since it was last done."""
        return time.monotonic() >= self._next

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Do it in here; what it takes decides when it is due again."""
        began = time.monotonic()
        yield
        self._next = began + (time.monotonic() - began) / self._share_of_time
