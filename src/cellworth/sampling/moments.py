"""Moments: mergeable count, mean and variance per block; tallies of utilities; owners' sums."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, stdtrit
from threadpoolctl import ThreadpoolController

from cellworth.data.arguments import Floats

Counts = NDArray[np.int64]
Deviations = NDArray[np.float32]
# From values of blocks, shape (n_rows, n_columns), to sums over some of them.
Sums = Callable[[Floats], Floats]
_MESSAGES_KEPT = 5
_ENTRIES_AT_ONCE = 2**17
# Half the width of a 95% interval, in standard errors.
WIDTH_95 = 1.959963984540054
# Describes single blocks if validation errors are known for sums only.
SAMPLING_ALONE = "by sampling errors alone, as validation errors of single blocks are not known"


@dataclass(frozen=True, eq=False)
class Moments:
    """Mergeable statistics per entry: count, mean and sum of squared deviations.

    Parameters
    ----------
    count : array of int
        Number of observations of each entry; 0 if there are none.
    mean, sum_sq : arrays of the same shape
        Mean, and sum of squared deviations from it.

    See Also
    --------
    cellworth.valuation.ValueList

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
        # Moments are shared and never change.
        for name in ("count", "mean", "sum_sq"):
            view = getattr(self, name).view()
            view.setflags(write=False)
            object.__setattr__(self, name, view)

    @classmethod
    def of(cls, seen: Floats) -> Moments:
        """Return the Moments of one observation; NaN means that the entry was not observed."""
        known = ~np.isnan(seen)
        return cls(known.astype(np.int64), np.where(known, seen, 0.0), np.zeros(seen.shape))

    @classmethod
    def of_all(cls, observations: Sequence[Floats]) -> Moments:
        """Return the Moments of observations without NaN, all of the same shape."""
        seen = np.asarray(observations)
        mean = seen.mean(axis=0)
        count = np.full(mean.shape, len(seen), dtype=np.int64)
        return cls(count, mean, ((seen - mean) ** 2).sum(axis=0))

    @classmethod
    def of_variances(cls, count: Any, mean: Floats, variances: Floats) -> Moments:
        """Return Moments with these squared standard errors; NaN means not known.

        A single count holds for all entries.
        """
        counts = np.broadcast_to(np.asarray(count, dtype=np.int64), mean.shape)
        return cls(counts, mean, variances * counts * np.maximum(count - 1, 0))

    def merge(self, other: Moments) -> Moments:
        """Return the Moments of both sets of observations (Chan, Golub and LeVeque 1983)."""
        count = np.empty_like(self.count)
        mean, sum_sq = np.empty_like(self.mean), np.empty_like(self.sum_sq)
        # Slices keep intermediate arrays of a large table small.
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
        """Means; NaN without observations."""
        return np.where(self.count > 0, self.mean, np.nan)

    @property
    def sampling_se(self) -> Floats:
        """Standard errors of the means; NaN for fewer than two observations."""
        enough = self.count > 1
        divisor = np.where(enough, self.count * (self.count - 1.0), 1.0)
        return np.where(enough, np.sqrt(self.sum_sq / divisor), np.nan)


# From tasks and utilities to Moments; some also accept ``sums``, the sums of blocks to observe.
Estimate = Callable[..., Moments]
# The sum of squares of fewer deviations is too uncertain.
MIN_DEVIATIONS = 32


def append_margins(blocks: Floats, axis: int = 0) -> Floats:
    """Append the row sums, the column sums and the total of an (n, m) or (n, m, k) array.

    Rows are along ``axis``, and columns along the next one.

    Tasks observe sums of blocks, too: blocks are correlated, so the error of a sum does not follow
    from the errors of its blocks.
    """
    for summed in (axis + 1, axis):
        blocks = np.concatenate([blocks, blocks.sum(axis=summed, keepdims=True)], axis=summed)
    return blocks


class DetailedUtility(float):
    """A utility with its deviations, from which validation errors follow.

    Parameters
    ----------
    utility : float
    deviations : array of shape (n_deviations,)
        All utilities of a game have the same number of deviations. The squared validation error of
        a weighted sum of utilities is the sum of squares of the same weighted sum of deviations.
        If the utility is a mean over n rows, a deviation is a row's score less that mean, divided
        by sqrt(n (n - 1)).

    See Also
    --------
    cellworth.games.Game

    Examples
    --------
    >>> from cellworth.sampling import DetailedUtility
    >>> scores = np.array([1.0, 0.0, 1.0, 1.0])
    >>> utility = DetailedUtility(scores.mean(), (scores - scores.mean()) / 12**0.5)
    >>> print(f"{utility} and its error {np.sqrt((utility.deviations**2).sum()):.2f}")
    0.75 and its error 0.25
    """

    deviations: Deviations

    def __new__(cls, utility: float, deviations: ArrayLike) -> DetailedUtility:
        """Create a float with deviations."""
        detailed = super().__new__(cls, utility)
        detailed.deviations = np.asarray(deviations, dtype=np.float32)
        return detailed

    def __getnewargs__(self) -> tuple[float, Any]:  # type: ignore[override]
        return float(self), self.deviations


def add_up(one: Any, other: Any) -> Any:
    """Return the sum of two numbers or arrays, in the memory of ``other`` if it can hold it."""
    if isinstance(other, np.ndarray) and other.ndim >= np.ndim(one) and other.flags.writeable:
        return np.add(one, other, out=other)
    return one + other


class AdditiveSums:
    """Base of dataclasses whose fields are sums."""

    def merge(self, other: Self) -> Self:
        """Return the sums over both; arrays of ``other`` are used up."""
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        return type(self)(*(add_up(getattr(self, name), getattr(other, name)) for name in names))


@dataclass(frozen=True)
class Tally(AdditiveSums):
    """Counts of utilities: used, failed, new and reused.

    Parameters
    ----------
    utilities : int
        Number of utilities that tasks used, repetitions included.
    failed : int
        Number of distinct utilities whose computation failed.
    messages : tuple of str
        The first few reasons of failure.
    new : int
        Number of distinct utilities with rows and columns. Each takes one model fit.
    reused : int
        How often a utility was known from earlier in the run.
    """

    utilities: int = 0
    failed: int = 0
    messages: tuple[str, ...] = ()
    new: int = 0
    reused: int = 0

    def merge(self, other: Self) -> Self:
        """Add up both; keep the first few distinct messages."""
        both = super().merge(other)
        return replace(both, messages=tuple(dict.fromkeys(both.messages))[:_MESSAGES_KEPT])


# Values of blocks after some of the tasks, the mean of their squared validation errors (NaN if not
# known), and the share of the finished tasks that both include.
LatestErrors = tuple[Moments, float, float]


class Addition(Protocol):
    """Protocol of the results of tasks: they merge and have Moments and a Tally."""

    @property
    def moments(self) -> Moments:
        """Moments of all blocks and sums."""

    @property
    def tally(self) -> Tally:
        """Counts of utilities."""

    def latest_errors(self) -> LatestErrors:
        """Return both errors; where they take long, after an earlier number of tasks.

        That number depends on the number of tasks alone, so that a run ends at the same task on any
        number of workers and after a resume.
        """

    def merge(self, other: Any, /) -> Any:
        """Return the result of both; ``other`` comes later in the order of tasks and is used up."""


@dataclass(frozen=True)
class Contribution:
    """Moments and Tally of one or more tasks."""

    moments: Moments
    tally: Tally = field(default_factory=Tally)

    def merge(self, other: Contribution) -> Contribution:
        """Return the result of both."""
        return Contribution(self.moments.merge(other.moments), self.tally.merge(other.tally))

    def latest_errors(self) -> LatestErrors:
        """Return sampling errors; validation errors are not known."""
        return self.moments, math.nan, 1.0


class Signs(NamedTuple):
    """Numbers of values that are clearly negative, undecided, clearly positive, or unknown.

    A value is undecided if its 95% interval contains zero. Each value is tested by itself: of many
    values that are truly zero, 2.5% are on each side by chance. If validation errors are not known,
    the interval covers sampling errors alone.
    """

    negative: int
    undecided: int
    positive: int
    unknown: int = 0

    @property
    def total(self) -> int:
        """Number of values."""
        return sum(self)

    @classmethod
    def of(cls, values: Floats, errors: Floats) -> Signs:
        """Count values by sign; exact values (errors of 0) are undecided only if they are 0."""
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
        unknown = f"; the value or error of {self._share(self.unknown)} is not known"
        return words + unknown if self.unknown else words

    def _share(self, count: int) -> str:
        return f"{count:,} ({count / max(self.total, 1):.1%})"

    def merge(self, other: Signs) -> Signs:
        """Add up both."""
        return Signs(*(one + two for one, two in zip(self, other, strict=True)))


def student_width(freedom: Any) -> Floats:
    """Return half the width of Student's 95% interval, in standard errors."""
    return np.asarray(stdtrit(freedom, ndtr(WIDTH_95)))


def widening(n_seen: Any) -> Floats:
    """Return the factor by which errors of few observations grow to make 95% intervals.

    Variances of few observations are uncertain themselves. The factor is the quantile of Student's
    distribution divided by 1.96.

    Examples
    --------
    >>> from cellworth.sampling.moments import widening
    >>> widening([2, 4, 10, 100]).round(2)
    array([6.48, 1.62, 1.15, 1.01])
    """
    # The quantile is slow, and most blocks have the same number of observations.
    distinct, positions = np.unique(np.asarray(n_seen), return_inverse=True)
    wider = student_width(np.maximum(distinct - 1, 1)) / WIDTH_95
    return np.asarray(wider[positions].reshape(np.shape(n_seen)))


def combine_errors(standard: Floats | float, validation: Floats | float | None) -> Floats:
    """Return the root of the sum of squares of known errors; NaN if neither is known."""
    if validation is None:
        return np.asarray(standard)
    squares: Floats = np.square(np.nan_to_num(standard)) + np.square(np.nan_to_num(validation))
    return np.where(np.isnan(standard) & np.isnan(validation), np.nan, np.sqrt(squares))


# Sums of pairs of so many owners are observed; of more owners, sums of each with the total.
_MAX_PAIRED = 64
# Part of a variance that may be rounding.
_NEGLIGIBLE = 1e-9


def append_pairs(sums: Floats) -> Floats:
    """Append the sums of pairs of owners, along the last axis; covariances follow from them.

    For more than 64 owners, the sum of each with the total is appended, and the total.
    """
    n_owners = sums.shape[-1]
    if n_owners <= _MAX_PAIRED:
        one, other = np.triu_indices(n_owners, 1)
        return np.concatenate([sums, sums[..., one] + sums[..., other]], axis=-1)
    total = sums.sum(axis=-1, keepdims=True)
    return np.concatenate([sums, sums + total, total], axis=-1)


def draw_errors(errors: Floats, n_owners: int, normals: Floats) -> Floats:
    """Return draws of the errors of owners' sums, from those of sums and pairs of owners.

    ``normals`` are standard normal numbers, of shape (n_draws, n_owners + 1). Only elementwise
    operations are used, so that every processor gets the same draws. For more than 64 owners,
    errors are correlated with that of the total as observed, and their rest adds up to 0.
    """
    squares = errors**2
    variances = squares[:n_owners]
    if n_owners <= _MAX_PAIRED:
        factor = _factorize(_read_covariances(squares, n_owners))
        drawn = np.zeros((len(normals), n_owners))
        for numbers, column in zip(normals.T, factor.T, strict=False):
            drawn += np.multiply.outer(numbers, column)
        return drawn
    with_total = (squares[n_owners:-1] - variances - squares[-1]) / 2
    common = with_total / math.sqrt(squares[-1]) if squares[-1] > 0 else np.zeros(n_owners)
    rest = np.maximum(variances - common**2, 0.0)
    drawn = normals[:, :n_owners] * np.sqrt(rest)
    drawn -= np.multiply.outer(drawn.sum(axis=1), rest / (float(rest.sum()) or 1.0))
    return np.asarray(drawn + np.multiply.outer(normals[:, n_owners], common))


def _read_covariances(squares: Floats, n_owners: int) -> Floats:
    """Return covariances from the variances of sums and of sums of pairs."""
    variances = squares[:n_owners]
    found = np.diag(variances)
    one, other = np.triu_indices(n_owners, 1)
    found[one, other] = (squares[n_owners:] - variances[one] - variances[other]) / 2
    found[other, one] = found[one, other]
    return found


def _factorize(covariances: Floats) -> Floats:
    """Return a lower triangle L with L @ L.T close to the covariances, and the same diagonal.

    Variances of pairs are estimates, so there may be no L that gives all of them.
    """
    factor = np.zeros_like(covariances)
    variances = np.diag(covariances)
    left = variances.copy()
    for position in range(len(factor)):
        if left[position] <= _NEGLIGIBLE * variances[position]:
            continue
        column = covariances[position:, position].copy()
        for earlier in factor[position:, :position].T:
            column -= earlier * earlier[0]
        column /= math.sqrt(left[position])
        # No correlation is beyond 1.
        most = np.sqrt(left[position:])
        factor[position:, position] = np.clip(column, -most, most)
        left = np.maximum(left - factor[:, position] ** 2, 0.0)
    reached = (factor**2).sum(axis=1)
    return np.asarray(factor * np.sqrt(variances / np.where(reached > 0, reached, 1.0))[:, None])


@dataclass(frozen=True, eq=False)
class OwnerSums:
    """Sums over the cells of owners, observed task by task because cells are correlated."""

    names: tuple[str, ...]  # Names of the owners
    keys: tuple[str, ...]  # Hash of each owner's cells
    moments: Moments  # Of the owners, then of the sums of :func:`append_pairs`
    validation: Floats | None  # Validation errors of the same sums

    def merge(self, other: OwnerSums) -> OwnerSums:
        """Merge the sums of two independent runs, which have the same validation errors."""
        return replace(self, moments=self.moments.merge(other.moments))

    def to_plain(self) -> dict[str, Any]:
        """Return lists and numbers for a manifest."""
        figures = {**vars(self.moments), "validation": self.validation}
        return {
            "names": list(self.names),
            "keys": list(self.keys),
            **{name: each if each is None else each.tolist() for name, each in figures.items()},
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> OwnerSums:
        """Read the output of :meth:`to_plain`."""
        figures = (np.array(plain[name], dtype=np.float64) for name in ("mean", "sum_sq"))
        validation = plain["validation"]
        return cls(
            tuple(plain["names"]),
            tuple(plain["keys"]),
            Moments(np.array(plain["count"], dtype=np.int64), *figures),
            None if validation is None else np.array(validation, dtype=np.float64),
        )


def limit_threads(user_api: str | None = None) -> Any:
    """Limit BLAS and OpenMP to one thread, from now on or in a ``with`` block."""
    return _find_libraries(len(sys.modules)).limit(limits=1, user_api=user_api)


@lru_cache(maxsize=1)
def _find_libraries(n_modules: int) -> ThreadpoolController:
    """Search for libraries with threads, which takes milliseconds; they come with modules."""
    return ThreadpoolController()


def pool_deviations(deviations: NDArray[Any], most: float) -> NDArray[Any]:
    """Add up pairs along the last axis until at most ``most`` or ``MIN_DEVIATIONS`` are left.

    More than half of ``MIN_DEVIATIONS`` always remain: fewer do not determine an error.
    """
    *others, n_before = deviations.shape
    while n_before > max(most, MIN_DEVIATIONS):
        odd = np.zeros((*others, n_before % 2), dtype=deviations.dtype)
        n_after = -(-n_before // 2)
        pairs = np.concatenate([deviations, odd], axis=-1).reshape(*others, n_after, 2)
        # Deviations of a pair cancel a little, because all of them add up to 0.
        scale = np.sqrt(n_after / (n_after - 1) * (n_before - 1) / n_before)
        deviations = pairs.sum(axis=-1) * deviations.dtype.type(scale)
        n_before = n_after
    return deviations
