"""Stopping rules: when a run has done enough."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from cellworth.data.arguments import check_count
from cellworth.runtime.progress import BlockErrors, Progress

# A budget of utilities also ends after this many lookups for each, known utilities included.
LOOKUPS_PER_UTILITY = 10
# A variance of fewer observations is too uncertain for a standard error.
_MIN_OBSERVATIONS = 10


class StoppingRule(ABC):
    """Computes which share of a run is done; combine rules with ``|`` (any) and ``&`` (all).

    See Also
    --------
    MaxTasks, MaxSeconds, TargetPrecision

    Examples
    --------
    >>> from cellworth.runtime import Progress, StoppingRule
    >>> class UntilLunch(StoppingRule):
    ...     needs_errors = False
    ...     def share_done(self, progress):
    ...         return progress.seconds / 7200
    >>> UntilLunch().share_done(Progress(tasks=10, seconds=1800.0, contribution=None))
    0.25
    """

    # Hard limits: a run never exceeds them, even within a round.
    most_tasks: float = math.inf
    most_utilities: float = math.inf
    most_seconds: float = math.inf
    # Whether it needs the errors of blocks, which take a while to collect from many shards.
    needs_errors: bool = True

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

    Parameters
    ----------
    n_tasks : int
        Tasks of all sessions.

    See Also
    --------
    MaxUtilities, MaxSeconds

    Examples
    --------
    >>> from cellworth.runtime import MaxSeconds, MaxTasks
    >>> MaxTasks(200) | MaxSeconds(60)
    MaxTasks(n_tasks=200) | MaxSeconds(n_seconds=60)
    """

    n_tasks: int
    needs_errors = False

    def __post_init__(self) -> None:
        check_count(self.n_tasks, "n_tasks of MaxTasks")
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

    Parameters
    ----------
    n_utilities : int
        Utilities of all sessions.

    See Also
    --------
    MaxTasks, MaxSeconds

    Examples
    --------
    >>> from cellworth.runtime import MaxSeconds, MaxUtilities
    >>> MaxUtilities(2000) | MaxSeconds(60)
    MaxUtilities(n_utilities=2000) | MaxSeconds(n_seconds=60)
    """

    n_utilities: int
    needs_errors = False

    def __post_init__(self) -> None:
        check_count(self.n_utilities, "n_utilities of MaxUtilities")
        self._set_limit("most_utilities", self.n_utilities)

    def share_done(self, progress: Progress) -> float:
        """Return the share of the utilities that are used."""
        tally = progress.tally
        return max(tally.new, tally.utilities / LOOKUPS_PER_UTILITY) / self.n_utilities


@dataclass(frozen=True)
class MaxSeconds(StoppingRule):
    """Stop after this many seconds of this session, even within a task.

    Parameters
    ----------
    n_seconds : float
        Seconds of this session.

    See Also
    --------
    MaxTasks, TargetPrecision

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
    needs_errors = False

    def __post_init__(self) -> None:
        _check_positive(self.n_seconds, "n_seconds of MaxSeconds")
        self._set_limit("most_seconds", self.n_seconds)

    def share_done(self, progress: Progress) -> float:
        """Return the share of the time that has passed."""
        return progress.seconds / self.n_seconds


@dataclass(frozen=True)
class TargetStandardError(StoppingRule):
    """Stop when the largest standard error of a block is below this.

    Standard errors are used once every block has ten observations.

    Parameters
    ----------
    largest : float
        Largest standard error to reach, in units of the score.

    See Also
    --------
    TargetPrecision

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
        _check_positive(self.largest, "largest of TargetStandardError")

    def share_done(self, progress: Progress) -> float:
        """Return the share of the expected tasks; errors fall with the square root of tasks."""
        errors = progress.errors
        if errors is None:
            return 0.0
        share = (self.largest / errors.largest) ** 2 if errors.largest > 0 else 1.0
        return _limit_by_observations(errors, share)


@dataclass(frozen=True)
class TargetPrecision(StoppingRule):
    """Stop when sampling errors are small beside validation errors: more would tell little.

    The rule compares the sampling error with this share of the validation error, each as the root
    of its mean square over all blocks. With half of the validation error, the total error is at
    most 12% larger than that of a run without end. The rule is never met if validation errors are
    not known; combine it with another, as in ``TargetPrecision(0.2) | MaxSeconds(600)``.

    Parameters
    ----------
    share : float, default=0.5
        Sampling error to reach, as a share of the validation error.

    See Also
    --------
    TargetStandardError

    Examples
    --------
    >>> from cellworth.runtime import MaxSeconds, TargetPrecision
    >>> TargetPrecision(0.2) | MaxSeconds(600)
    TargetPrecision(share=0.2) | MaxSeconds(n_seconds=600)
    """

    share: float = 0.5

    def __post_init__(self) -> None:
        _check_positive(self.share, "share of TargetPrecision")

    def share_done(self, progress: Progress) -> float:
        """Return the share of the expected tasks; sampling variances fall with their number."""
        errors = progress.latest_errors
        if errors is None or math.isnan(errors.validation):
            return 0.0
        noise = errors.mean_square * errors.share
        return _limit_by_observations(
            errors, self.share**2 * max(errors.validation, 0.0) / noise if noise else 1.0
        )


@dataclass(frozen=True, repr=False)
class _JoinedRules(StoppingRule):
    one: StoppingRule
    other: StoppingRule
    stops_with_first: bool

    def __post_init__(self) -> None:
        limit = min if self.stops_with_first else max
        for name in ("most_tasks", "most_utilities", "most_seconds"):
            self._set_limit(name, limit(getattr(self.one, name), getattr(self.other, name)))
        self._set_limit("needs_errors", self.one.needs_errors or self.other.needs_errors)

    def share_done(self, progress: Progress) -> float:
        shares = self.one.share_done(progress), self.other.share_done(progress)
        return max(shares) if self.stops_with_first else min(shares)

    def __repr__(self) -> str:
        if self.stops_with_first:
            return f"{self.one!r} | {self.other!r}"
        return f"({self.one!r}) & ({self.other!r})"


def _limit_by_observations(errors: BlockErrors, share: float) -> float:
    """Limit the share while some block has too few observations."""
    if math.isnan(share):
        return 0.0
    seen = errors.fewest
    return share if seen >= _MIN_OBSERVATIONS else min(share, seen / _MIN_OBSERVATIONS)


def _check_positive(number: float, called: str) -> None:
    is_number = isinstance(number, int | float | np.number) and not isinstance(number, bool)
    if not is_number or not 0 < number < math.inf:
        raise ValueError(f"{called} must be a finite number above 0, got {number!r}.")
