"""Passes over all validation rows, summed in fixed point so that any order gives the same bits."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats
from cellworth.sampling.moments import AdditiveSums, LatestErrors, Moments, Tally, add_up, widening

# Sums of values are small: 64 bits hold up to 8 in these units. Overflow of intermediate sums
# wraps around and does no harm. For a numeric target, the units depend on its range.
UNITS = 2.0**60
LARGEST = 2.0**63 / UNITS
# Bits of a numeric target that is summed in fixed point.
TARGET_BITS = 31


@dataclass(frozen=True)
class QueryTotals(AdditiveSums):
    """Weighted sums over queries."""

    weight: float  # Sum of the weights
    total: float  # Expected sum of all values: the utility less the baseline
    utility: float = 0.0  # Utility of the full table
    # Queries that the full table's majority vote predicts correctly; NaN if not known.
    right: float = math.nan


@dataclass(frozen=True, eq=False)
class QueryVariance(AdditiveSums):
    """Sums per stratum of queries, from which the variance between queries follows.

    A query is a validation row. Balanced scores have one stratum per class, each with a fixed
    share in the mean; other scores have a single stratum.
    """

    n_queries: NDArray[np.int64]  # (n_strata,): number of queries in the sums
    # (n_strata,): sum of squared query weights; the mean weight of all queries is 1.
    counts: Floats
    # (n_strata, ...): sums of squared weight times value, and of squared weight times squared
    # value.
    first: Floats
    second: Floats

    def variance(self, values: Floats, n_queries: int) -> tuple[Floats, NDArray[np.int64]]:
        """Compute the variance of values, which are means over n_queries, between draws of queries.

        Deviations are taken from the stratum's mean, with the divisor n - 1. A stratum with a
        single query uses deviations from the values instead, which overestimates the variance.

        Returns
        -------
        variance : array
        n_seen : array
            Effective number of queries: Satterthwaite's degrees of freedom plus 1. It is small if
            a small stratum has most of the variance.
        """
        total, uncertain = np.zeros_like(values), np.zeros_like(values)
        for n_seen, counts, first, second in zip(
            self.n_queries.tolist(), self.counts.tolist(), self.first, self.second, strict=True
        ):
            if n_seen == 0:
                continue
            if n_seen > 1:
                squares = np.maximum(second - first * first / counts, 0.0)
                squares *= n_seen / (n_seen - 1)
            else:
                squares = counts * (first / counts - values) ** 2
            total += squares
            uncertain += squares**2 / max(n_seen - 1, 1)
        n_all = int(self.n_queries.sum())
        variance = total / (n_all * n_queries)
        if np.count_nonzero(self.n_queries) == 1:
            return variance, np.asarray(n_all)
        degrees = np.full(values.shape, n_all - 1.0)
        np.divide(total**2, uncertain, out=degrees, where=uncertain > 0)
        # Guard against degrees that rounding moved just below an integer.
        return variance, np.floor(degrees + 1e-9).astype(np.int64) + 1

    def standard_errors(self, values: Floats, n_queries: int, of_draw: Floats) -> Floats | None:
        """Return the errors due to the choice of queries, without sampling errors.

        Values are means over n_queries queries, and ``of_draw`` is the sampling variance of such a
        mean if each query has one draw of coalitions. It is subtracted, because the values of
        queries also differ by their draws. It is uncertain itself, so at most three quarters of the
        variance are subtracted: the error may be too large, but is never 0 for that reason. Errors
        of few queries are widened such that values plus or minus 1.96 errors are 95% intervals. The
        result is None for a single query.
        """
        if self.n_queries.sum() < 2:
            return None
        variance, n_seen = self.variance(values, n_queries)
        variance = np.maximum(variance - of_draw, variance / 4)
        return np.sqrt(variance) * widening(n_seen)


@dataclass(frozen=True, eq=False)
class DrawVariance(AdditiveSums):
    """Differences between two draws for the same queries, from which sampling errors follow.

    The queries of some parts are drawn twice, and their value is the mean of both draws. Half the
    difference between the draws has the same variance as this mean.
    """

    n_parts: int  # Number of parts whose queries were drawn twice
    squares: Floats  # Sum over these parts of (half the difference between both draws)**2
    # Summed squared weights of the queries drawn twice, and of those drawn once.
    twice: float
    once: float

    @property
    def variance(self) -> Floats:
        """Variance of the sum over all queries; 0 if no query was drawn twice."""
        return self.squares * (1.0 + 2.0 * self._once_per_twice)

    @property
    def of_draw(self) -> float:
        """Variance of the sum if every query was drawn once, in units of ``variance``."""
        return (2.0 + 2.0 * self._once_per_twice) / (1.0 + 2.0 * self._once_per_twice)

    @property
    def _once_per_twice(self) -> float:
        return self.once / self.twice if self.n_parts else 0.0


_NO_QUERIES = QueryTotals(0.0, 0.0, right=0.0)
_NOT_DRAWN_TWICE = DrawVariance(0, np.zeros(()), 0.0, 0.0)


@dataclass(frozen=True, eq=False)
class Passes:
    """Means over the queries of one or more passes."""

    n_passes: int
    n_parts: int  # Number of parts whose queries were drawn twice
    n_queries: int  # Number of queries of one pass
    values: Floats
    variance: Floats  # Sum over passes of the sampling variance
    # Sampling variance of a pass with one draw per query, in units of that of these passes.
    of_draw: float
    weight: float = math.nan  # Sum of the query weights of a pass
    # Its sampling variance, in units of that of a draw with weight 1
    relative_variance: float = math.nan
    total: float = math.nan  # Expected sum of the values
    utility: float = math.nan  # Utility of the full table
    # Share of queries that the full table's majority vote predicts correctly; NaN if not known.
    right: float = math.nan
    # Variance between queries, from the first pass
    query_variance: QueryVariance | None = None
    # Sampling variance of the values; None means that it follows from ``variance``.
    sampling: Floats | None = None

    def merge(self, other: Passes) -> Passes:
        """Add a later pass over the same queries."""
        n_passes = self.n_passes + other.n_passes
        share = other.n_passes / n_passes
        return replace(
            self,
            n_passes=n_passes,
            n_parts=self.n_parts + other.n_parts,
            values=self.values + (other.values - self.values) * share,
            variance=self.variance + other.variance,
        )

    def refine(self, now: Passes) -> Passes:
        """Count the queries of an unfinished pass; its values are changes of the means over them.

        Each of these queries takes the mean over all its passes.
        """
        old = self.n_passes / (self.n_passes + 1.0)
        new_share = now.weight / self.weight * (1.0 - old)
        left = 1.0 - now.relative_variance / self.relative_variance * (1.0 - old**2)
        return replace(
            self,
            n_parts=self.n_parts + now.n_parts,
            values=self.values + now.values * new_share,
            sampling=self.variance / self.n_passes**2 * left + now.variance * new_share**2,
        )

    @property
    def moments(self) -> Moments:
        """Values and sampling errors; a part with two draws counts as an observation."""
        variance = self.variance / self.n_passes**2 if self.sampling is None else self.sampling
        return Moments.of_variances(self.n_parts + 1, self.values, variance)

    def validation_se(self) -> Floats | None:
        """Return the errors due to the choice of queries; None if they are not known."""
        if self.query_variance is None:
            return None
        return self.query_variance.standard_errors(self.values, self.n_queries, self._of_draw)

    def mean_square_validation_se(self, shape: tuple[int, ...] | None = None) -> float:
        """Return the mean of the squared validation errors of blocks; NaN if they are not known.

        ``shape`` is that of the blocks; None means all values but the last line and column, which
        are sums.
        """
        if self.query_variance is None or self.query_variance.n_queries.sum() < 2:
            return math.nan
        variance, _ = self.query_variance.variance(self.values, self.n_queries)
        rows, columns = shape or (size - 1 for size in self.values.shape)
        return float(np.mean((variance - self._of_draw)[:rows, :columns]))

    @property
    def _of_draw(self) -> Floats:
        """Sampling variance of a pass with one draw per query."""
        return self.variance * (self.of_draw / self.n_passes)


@dataclass(frozen=True, eq=False)
class PassSums:
    """Weighted sums of values over the queries of the unfinished pass, and the finished passes."""

    parts_per_pass: int  # Number of tasks per pass
    parts: int  # Number of tasks in the sums
    n_queries: int  # Number of queries in the sums
    sums: NDArray[Any]  # Sums of query weight times value; integers are in units of 1 / units
    totals: QueryTotals
    draws: DrawVariance = _NOT_DRAWN_TWICE
    query_variance: QueryVariance | None = None  # Variance between queries, if it is observed
    finished: Passes | None = None
    # Numbers of parts at which an unfinished pass counts, and means over the queries of so many
    # parts. Later sums take over this array and change it: it is as large as all values together.
    milestones: tuple[int, ...] = ()
    before: Floats | None = None
    # A later pass at its last milestone; its values are changes of the means until then.
    last: Passes | None = None
    tally: Tally = field(default_factory=Tally)
    owned: PassSums | None = None  # The same for the sums over the owners' cells
    units: float = UNITS

    def merge(self, other: PassSums) -> PassSums:
        """Add the next task, whose arrays are used up; tasks must come in order."""
        ended = self.close_pass()
        known = [part.query_variance for part in (ended, other) if part.query_variance is not None]
        return (
            replace(
                ended,
                parts=ended.parts + other.parts,
                n_queries=ended.n_queries + other.n_queries,
                sums=add_up(ended.sums, other.sums),
                totals=ended.totals.merge(other.totals),
                draws=ended.draws.merge(other.draws),
                query_variance=reduce(QueryVariance.merge, known) if known else None,
                tally=ended.tally.merge(other.tally),
                owned=ended.owned and other.owned and ended.owned.merge(other.owned),
            )
            ._note_milestone()
            .close_pass()
        )

    def _note_milestone(self) -> PassSums:
        if self.parts not in self.milestones:
            return self
        now, finished, before = self._means(), self.finished, self.before
        if before is None:
            before = np.zeros((len(self.milestones), *now.values.shape))
        line = before[self.milestones.index(self.parts)]
        if finished is None:
            line[:] = now.values
            return replace(self, before=before)
        change = now.values - line
        line += change / (finished.n_passes + 1)
        return replace(self, last=replace(now, values=change, query_variance=None))

    def close_pass(self) -> PassSums:
        """Add a complete pass to the finished ones."""
        if self.parts < self.parts_per_pass:
            return self
        before, seen = self.finished, self._means()
        return replace(
            self,
            last=None,
            parts=0,
            n_queries=0,
            sums=np.zeros((), dtype=self.sums.dtype),
            totals=_NO_QUERIES,
            draws=_NOT_DRAWN_TWICE,
            query_variance=None,
            finished=seen if before is None else before.merge(seen),
        )

    @cached_property
    def latest(self) -> Passes:
        """The finished passes and the milestone of the next, or the queries of the first pass."""
        closed = self.close_pass()
        if closed.finished is None:
            return self._means()
        return closed.finished.refine(closed.last) if closed.last else closed.finished

    @property
    def moments(self) -> Moments:
        """Moments of the values."""
        return self.latest.moments

    @property
    def baseline(self) -> float:
        """Part of the full table's utility that exists without any rows or columns."""
        return self.latest.utility - self.latest.total

    @property
    def score(self) -> float:
        """Utility of the full table."""
        return self.latest.total + self.baseline

    def latest_errors(self) -> LatestErrors:
        """Return both errors."""
        return self.moments, self.latest.mean_square_validation_se(), 1.0

    def _means(self) -> Passes:
        """Return the means over the queries of the unfinished pass."""
        totals = self.totals
        return Passes(
            n_passes=1,
            n_parts=self.draws.n_parts,
            n_queries=self.n_queries,
            values=as_floats(self.sums, self.units) / totals.weight,
            variance=self.draws.variance / totals.weight**2,
            of_draw=self.draws.of_draw,
            weight=totals.weight,
            relative_variance=self.draws.twice / 2.0 + self.draws.once,
            total=totals.total / totals.weight,
            utility=totals.utility / totals.weight,
            right=totals.right / totals.weight,
            query_variance=self.query_variance,
        )


def as_floats(sums: NDArray[Any], units: float) -> NDArray[np.float64]:
    """Convert fixed-point sums to floats; floats are returned as they are."""
    return sums / units if sums.dtype.kind == "i" else sums
