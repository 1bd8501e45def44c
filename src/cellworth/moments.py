"""What finished tasks teach: count, mean and spread per block; two such sums merge into one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cellworth.counts import Floats

Counts = NDArray[np.int64]
Deviations = NDArray[np.float32]
# From values of blocks, shape (n_rows, n_columns), to sums over some of them: margins or Shares.
Sums = Callable[[Floats], Floats]

_MESSAGES_KEPT = 5
_ENTRIES_AT_ONCE = 2**17


@dataclass(frozen=True, eq=False)
class Moments:
    """Count, mean and spread of what was seen, entry by entry.

    Parameters
    ----------
    count : array of whole numbers
        How often each entry was seen; entries never seen have 0.
    mean, spread : arrays of the same shape
        Mean, and sum of squared deviations from it.

    Examples
    --------
    >>> a, b = Moments.of(np.array([1.0])), Moments.of(np.array([3.0]))
    >>> a.merge(b).values, a.merge(b).standard_errors
    (array([2.]), array([1.]))
    """

    count: Counts
    mean: Floats
    spread: Floats

    def __post_init__(self) -> None:
        """Look at the arrays read-only: Moments are shared, never changed."""
        for name in ("count", "mean", "spread"):
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
        mean, spread = np.empty_like(self.mean), np.empty_like(self.spread)
        # Slice by slice: of a large table, what lies between is not all held at once.
        at_once = max(_ENTRIES_AT_ONCE // max(math.prod(count.shape[1:]), 1), 1)
        for start in range(0, len(count), at_once):
            some = slice(start, start + at_once)
            count[some] = self.count[some] + other.count[some]
            share = other.count[some] / np.maximum(count[some], 1)
            gap = other.mean[some] - self.mean[some]
            mean[some] = self.mean[some] + gap * share
            both = self.spread[some] + other.spread[some]
            spread[some] = both + gap * gap * self.count[some] * share
        return Moments(count, mean, spread)

    @property
    def values(self) -> Floats:
        """Means, with NaN where nothing was seen."""
        return np.where(self.count > 0, self.mean, np.nan)

    @property
    def standard_errors(self) -> Floats:
        """Standard errors of the means, with NaN where fewer than two were seen."""
        enough = self.count > 1
        divisor = np.where(enough, self.count * (self.count - 1.0), 1.0)
        return np.where(enough, np.sqrt(self.spread / divisor), np.nan)


def with_margins(blocks: Floats) -> Floats:
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


def without_margins(blocks: Floats) -> Floats:
    """Append sums that are not known, for tasks that may see some of the blocks only.

    The few tasks that happen to see a whole row are no fair sample of all tasks.
    """
    margins = [(0, 1), (0, 1), *((0, 0) for _ in blocks.shape[2:])]
    return np.pad(blocks, margins, constant_values=np.nan)


class JudgedUtility(float):
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
    >>> scores = np.array([1.0, 0.0, 1.0, 1.0])
    >>> utility = JudgedUtility(scores.mean(), (scores - scores.mean()) / 12**0.5)
    >>> print(f"{utility} and its error {np.sqrt((utility.deviations**2).sum()):.2f}")
    0.75 and its error 0.25
    """

    deviations: Deviations

    def __new__(cls, utility: float, deviations: Any) -> JudgedUtility:
        """Hold both."""
        judged = super().__new__(cls, utility)
        judged.deviations = np.asarray(deviations, dtype=np.float32)
        return judged

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
        """Count, mean and spread per entry, sums of rows and columns included."""
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
