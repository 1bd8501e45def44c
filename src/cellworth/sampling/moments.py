"""Moments: mergeable count, mean and variance per block, and the log of all utilities seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit
from threadpoolctl import threadpool_limits

from cellworth.data.arguments import Floats

Counts = NDArray[np.int64]
Deviations = NDArray[np.float32]
# From values of blocks, shape (n_rows, n_columns), to sums over some of them: margins or Shares.
Sums = Callable[[Floats], Floats]
_MESSAGES_KEPT = 5
_ENTRIES_AT_ONCE = 2**17
# Half the width of a 95 % interval, in standard errors.
WIDTH_95 = 1.959963984540054
# Said of single blocks where errors from the choice of validation rows are known of sums alone.
SAMPLING_ALONE = "by sampling errors alone, as validation errors of single blocks are not known"


@dataclass(frozen=True, eq=False)
class Moments:
    """Count, mean and sum_sq of what was seen, entry by entry.

    Parameters
    ----------
    count : array of integers
        How often each entry was seen; entries never seen have 0.
    mean, sum_sq : arrays of the same shape
        Mean, and sum of squared deviations from it.

    Examples
    --------
    >>> from cellworth.sampling import Moments
    >>> a, b = Moments.of(np.array([1.0])), Moments.of(np.array([3.0]))
    >>> a.merge(b).values, a.merge(b).sampling_se
    (array([2.]), array([1.]))
    """

    count: Counts
    mean: Floats
    sum_sq: Floats

    def __post_init__(self) -> None:
        """Look at the arrays read-only: Moments are shared, never changed."""
        for name in ("count", "mean", "sum_sq"):
            view = getattr(self, name).view()
            view.setflags(write=False)
            object.__setattr__(self, name, view)

    @classmethod
    def of(cls, seen: Floats) -> Moments:
        """Moments of one observation; NaN means that the entry was not seen."""
        known = ~np.isnan(seen)
        return cls(known.astype(np.int64), np.where(known, seen, 0.0), np.zeros(seen.shape))

    @classmethod
    def of_all(cls, observations: Sequence[Floats]) -> Moments:
        """Moments of equally shaped observations in which every entry was seen."""
        seen = np.asarray(observations)
        mean = seen.mean(axis=0)
        count = np.full(mean.shape, len(seen), dtype=np.int64)
        return cls(count, mean, ((seen - mean) ** 2).sum(axis=0))

    @classmethod
    def of_variances(cls, count: Counts, mean: Floats, variances: Floats) -> Moments:
        """Moments whose standard errors are the roots of these; NaN where they are not known."""
        return cls(count, mean, variances * count * np.maximum(count - 1, 0))

    def merge(self, other: Moments) -> Moments:
        """Moments of both sets of observations (Chan, Golub and LeVeque 1983)."""
        count = np.empty_like(self.count)
        mean, sum_sq = np.empty_like(self.mean), np.empty_like(self.sum_sq)
        # Slice by slice: of a large table, what lies between is not all held at once.
        at_once = max(_ENTRIES_AT_ONCE // max(math.prod(count.shape[1:]), 1), 1)
        for start in range(0, len(count), at_once):
            some = slice(start, start + at_once)
            count[some] = self.count[some] + other.count[some]
            share = other.count[some] / np.maximum(count[some], 1)
            difference = other.mean[some] - self.mean[some]
            mean[some] = self.mean[some] + difference * share
            both = self.sum_sq[some] + other.sum_sq[some]
            sum_sq[some] = both + difference * difference * self.count[some] * share
        return Moments(count, mean, sum_sq)

    @property
    def values(self) -> Floats:
        """Means, with NaN where nothing was seen."""
        return np.where(self.count > 0, self.mean, np.nan)

    @property
    def sampling_se(self) -> Floats:
        """Standard errors of the means, with NaN where fewer than two were seen."""
        enough = self.count > 1
        divisor = np.where(enough, self.count * (self.count - 1.0), 1.0)
        return np.where(enough, np.sqrt(self.sum_sq / divisor), np.nan)


# From tasks and utilities to Moments; some take the sums of blocks to observe as well.
Estimate = Callable[..., Moments]
# Of fewer deviations than these the sum of squares is too much a matter of chance.
LEAST_DEVIATIONS = 32
# Numbers that are estimated from at once: all deviations together may be many.
_NUMBERS_AT_ONCE = 2**22


def append_margins(blocks: Floats) -> Floats:
    """Append the row sums, the column sums and the total of an (n, m) or (n, m, k) array.

    Sums of blocks are observed as such, task by task: blocks are correlated, so that the error
    of a sum cannot be had from the errors of its parts.
    """
    with_row_sums = np.concatenate([blocks, blocks.sum(axis=1, keepdims=True)], axis=1)
    return np.concatenate([with_row_sums, with_row_sums.sum(axis=0, keepdims=True)])


@dataclass(frozen=True, eq=False)
class Shares:
    """Sums over blocks, each with a share, as owners hold them.

    Parameters
    ----------
    shares : array of shape (n_sums, n_rows, n_columns)
    """

    shares: Floats

    def __call__(self, blocks: Floats) -> Floats:
        """Add up the blocks of each sum."""
        sums: Floats = np.tensordot(self.shares, blocks, axes=2)
        return sums


def append_unknown_margins(blocks: Floats) -> Floats:
    """Append sums that are not known, for tasks that may see some of the blocks only.

    The few tasks that happen to see a whole row are no fair sample of all tasks.
    """
    margins = [(0, 1), (0, 1), *((0, 0) for _ in blocks.shape[2:])]
    return np.pad(blocks, margins, constant_values=np.nan)


class DetailedUtility(float):
    """A utility, and how far other validation rows would have moved it.

    Parameters
    ----------
    utility : float
    deviations : array of shape (n_deviations,)
        Of the same length for all utilities of a game. The squared validation error of a weighted
        sum of utilities is the sum of squares of the same weighted sum of their deviations. For a
        mean over n rows: each row's score less the mean, divided by the root of n (n - 1).

    Examples
    --------
    >>> from cellworth.sampling import DetailedUtility
    >>> scores = np.array([1.0, 0.0, 1.0, 1.0])
    >>> utility = DetailedUtility(scores.mean(), (scores - scores.mean()) / 12**0.5)
    >>> print(f"{utility} and its error {np.sqrt((utility.deviations**2).sum()):.2f}")
    0.75 and its error 0.25
    """

    deviations: Deviations

    def __new__(cls, utility: float, deviations: Any) -> DetailedUtility:
        """Hold both."""
        detailed = super().__new__(cls, utility)
        detailed.deviations = np.asarray(deviations, dtype=np.float32)
        return detailed

    def __getnewargs__(self) -> tuple[float, Any]:  # type: ignore[override]
        """Travel between processes with the deviations."""
        return float(self), self.deviations


@dataclass(frozen=True)
class Tally:
    """How many utilities were looked at, what they cost, how many failed and the first reasons.

    Parameters
    ----------
    utilities : int
        How often tasks looked at a utility.
    failed : int
        How many of them failed; each is counted once.
    messages : tuple of str
        The first few reasons.
    new : int
        Utilities that the run met for the first time and that have rows and columns: each is the
        work of one fit, whether it was done now or found in a cache.
    reused : int
        How often a utility was known, from earlier in the run or from a cache.
    """

    utilities: int = 0
    failed: int = 0
    messages: tuple[str, ...] = ()
    new: int = 0
    reused: int = 0

    @property
    def hit_rate(self) -> float:
        """Share of looks that needed no computation."""
        return self.reused / self.utilities if self.utilities else 0.0

    def merge(self, other: Tally) -> Tally:
        """Count both; keep the first few distinct messages."""
        messages = tuple(dict.fromkeys(self.messages + other.messages))
        return Tally(
            self.utilities + other.utilities,
            self.failed + other.failed,
            messages[:_MESSAGES_KEPT],
            self.new + other.new,
            self.reused + other.reused,
        )


class Addition(Protocol):
    """What tasks add to a run: anything that merges and knows its Moments and its Tally."""

    @property
    def moments(self) -> Moments:
        """Count, mean and sum_sq per entry, sums of rows and columns included."""
        ...

    @property
    def tally(self) -> Tally:
        """Utilities looked at and failed."""
        ...

    def merge(self, other: Any, /) -> Any:
        """What both added; the other one comes after this one in the order of tasks."""
        ...


@dataclass(frozen=True)
class Contribution:
    """What one task, or any number of tasks, added: Moments and a Tally."""

    moments: Moments
    tally: Tally = field(default_factory=Tally)

    def merge(self, other: Contribution) -> Contribution:
        """What both added."""
        return Contribution(self.moments.merge(other.moments), self.tally.merge(other.tally))


class Signs(NamedTuple):
    """How many values are surely below zero, surely above, undecided, or unknown.

    A value is decided if zero is outside its 95 % interval, value by value: of many values
    that are truly zero, 2.5 % are on each side by chance. Where validation errors are not known,
    as of single cells of a table in shards, the interval is of sampling errors alone.
    """

    negative: int
    undecided: int
    positive: int
    unknown: int = 0

    @property
    def total(self) -> int:
        """All values."""
        return sum(self)

    @classmethod
    def of(cls, values: Floats, errors: Floats) -> Signs:
        """Count them; exact values (errors of 0) are undecided only where they are 0."""
        reach = WIDTH_95 * errors
        negative = int(np.count_nonzero(values + reach < 0))
        positive = int(np.count_nonzero(values - reach > 0))
        unknown = int(np.count_nonzero(np.isnan(values + reach)))
        return cls(negative, values.size - negative - positive - unknown, positive, unknown)

    def __str__(self) -> str:
        words = (
            f"{self._share(self.negative)} of {self.total:,} blocks are clearly worth less than "
            f"nothing, {self._share(self.positive)} clearly more than nothing; "
            f"{self._share(self.undecided)} cannot be distinguished from zero"
        )
        unknown = f"; of {self._share(self.unknown)} value or error is not known"
        return words + unknown if self.unknown else words

    def _share(self, count: int) -> str:
        return f"{count:,} ({count / max(self.total, 1):.1%})"

    def with_others(self, other: Signs) -> Signs:
        """Count these and others together."""
        return Signs(*(one + two for one, two in zip(self, other, strict=True)))


def student_width(freedom: Any) -> Floats:
    """Return half the width of Student's 95% interval, in standard errors."""
    return np.asarray(stdtrit(freedom, ndtr(WIDTH_95)))


def widening(n_seen: Any) -> Floats:
    """How much errors from so few observations grow for 1.96 of them to make a 95 % interval.

    Spreads of few observations are uncertain themselves, as Student found: two passes say little.

    Examples
    --------
    >>> widening([2, 4, 10, 100]).round(2)
    array([6.48, 1.62, 1.15, 1.01])
    """
    # Most blocks were seen equally often, and the quantile takes its time.
    distinct, positions = np.unique(np.asarray(n_seen), return_inverse=True)
    wider = student_width(np.maximum(distinct - 1, 1)) / WIDTH_95
    return np.asarray(wider[positions].reshape(np.shape(n_seen)))


def combine_errors(standard: Floats, validation: Floats | None) -> Floats:
    """Root of the sum of squares of the errors that are known; NaN where neither is."""
    if validation is None:
        return standard
    squares: Floats = np.nan_to_num(standard) ** 2 + np.nan_to_num(validation) ** 2
    return np.where(np.isnan(standard) & np.isnan(validation), np.nan, np.sqrt(squares))


@dataclass(frozen=True, eq=False)
class OwnerSums:
    """Sums over the cells of owners, seen task by task: cells are correlated.

    Parameters
    ----------
    names : tuple of str
        The owners.
    keys : tuple of str
        Hash of what each of them holds.
    moments : Moments of shape (n_owners,)
    validation : array of shape (n_owners,) or None
        Errors that come from the choice of validation rows.
    """

    names: tuple[str, ...]
    keys: tuple[str, ...]
    moments: Moments
    validation: Floats | None

    def merge(self, other: OwnerSums) -> OwnerSums:
        """Sums of two independent runs; both tell the same validation error."""
        return replace(self, moments=self.moments.merge(other.moments))

    def to_plain(self) -> dict[str, Any]:
        """Lists and numbers, for a manifest."""
        return {
            "names": list(self.names),
            "keys": list(self.keys),
            "count": self.moments.count.tolist(),
            "mean": self.moments.mean.tolist(),
            "sum_sq": self.moments.sum_sq.tolist(),
            "validation": None if self.validation is None else self.validation.tolist(),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> OwnerSums:
        """Read what :meth:`to_plain` gave."""
        figures = (np.array(plain[name], dtype=np.float64) for name in ("mean", "sum_sq"))
        validation = plain["validation"]
        return cls(
            tuple(plain["names"]),
            tuple(plain["keys"]),
            Moments(np.array(plain["count"], dtype=np.int64), *figures),
            None if validation is None else np.array(validation, dtype=np.float64),
        )


@dataclass(frozen=True, eq=False)
class UtilityLog:
    """What tasks added, where an estimate needs all of their utilities at once.

    Parameters
    ----------
    tasks : list
        Tasks in order; the list may grow beyond ``n_tasks`` when others are merged.
    utilities : list of arrays
        Utilities of each task's pairs of coalitions.
    n_tasks : int
        How many of these are meant.
    estimate : callable
        From tasks and utilities to Moments.
    tally : Tally
    deviations : list of lists of arrays
        Deviations of each of these utilities, as they would be with other validation rows; None
        where the game does not know them.
    """

    tasks: list[Any]
    utilities: list[Floats]
    n_tasks: int
    estimate: Estimate
    tally: Tally
    deviations: list[list[Deviations | None]]

    @classmethod
    def of(
        cls,
        task: Any,
        utilities: Floats,
        estimate: Estimate,
        tally: Tally,
        deviations: list[Deviations | None],
    ) -> UtilityLog:
        """Looks of one task."""
        return cls([task], [utilities], 1, estimate, tally, [deviations])

    def merge(self, other: UtilityLog) -> UtilityLog:
        """Looks of both."""
        lists = self.tasks, self.utilities, self.deviations
        if len(self.tasks) != self.n_tasks:
            # Someone else has gone on from here.
            lists = tuple(own[: self.n_tasks] for own in lists)  # type: ignore[assignment]
        tasks, utilities, deviations = lists
        # Growing one list keeps a run of many tasks from copying all of them at each.
        tasks.extend(other.tasks[: other.n_tasks])
        utilities.extend(other.utilities[: other.n_tasks])
        deviations.extend(other.deviations[: other.n_tasks])
        return UtilityLog(
            tasks,
            utilities,
            self.n_tasks + other.n_tasks,
            self.estimate,
            self.tally.merge(other.tally),
            deviations,
        )

    @cached_property
    def moments(self) -> Moments:
        """What the utilities tell about every block."""
        return self._estimate(self.utilities[: self.n_tasks])

    def moments_of(self, sums: Sums) -> Moments:
        """What the utilities tell about sums of blocks, where each task observes all blocks."""
        with threadpool_limits(1):
            return self.estimate(
                self.tasks[: self.n_tasks], self.utilities[: self.n_tasks], sums=sums
            )

    def deviation_moments(self) -> Iterator[Moments]:
        """Moments with a last axis: the value first, then its deviations, some at a time.

        There are none where a deviation is not known.
        """
        looked_at = self.deviations[: self.n_tasks]
        lengths = {0 if each is None else len(each) for task in looked_at for each in task}
        if 0 in lengths:
            return
        n_evaluated = sum(map(len, looked_at))
        # Runs with other budgets may have kept fewer groups of rows in the cache that they share.
        n_parts = min(lengths)
        at_once = max(_NUMBERS_AT_ONCE // n_evaluated, 8)
        for start in range(0, n_parts, at_once):
            some = slice(start, start + at_once)
            yield self._estimate(
                [
                    np.column_stack([utilities, _stack(task, n_parts, some)])
                    for utilities, task in zip(self.utilities, looked_at, strict=False)
                ]
            )

    def _estimate(self, utilities: list[Floats]) -> Moments:
        # One thread, as inside tasks: the bits must not depend on the machine's number of cores.
        with threadpool_limits(1):
            return self.estimate(self.tasks[: self.n_tasks], utilities)


def fewer(deviations: NDArray[Any], most: int) -> NDArray[Any]:
    """Join groups of validation rows in pairs until there are at most so many.

    There stay more than ``LEAST_DEVIATIONS`` / 2, however many that are: few tell no error.
    """
    while len(deviations) > max(most, LEAST_DEVIATIONS):
        n_before = len(deviations)
        padded = np.append(deviations, np.zeros(n_before % 2, dtype=deviations.dtype))
        n_after = len(padded) // 2
        # Rows of a group cancel a little, as all deviations together add up to 0.
        scale = np.sqrt(n_after / (n_after - 1) * (n_before - 1) / n_before)
        deviations = padded.reshape(n_after, 2).sum(axis=1) * deviations.dtype.type(scale)
    return deviations


def _stack(task: Sequence[Deviations | None], n_parts: int, some: slice) -> Floats:
    stacked = [fewer(each, n_parts)[some] for each in task if each is not None]
    return np.array(stacked, dtype=np.float64)
