"""Passes over all validation rows, summed in fixed point so that any order gives the same bits."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats
from cellworth.sampling.moments import Moments, Tally, widening

# Values of a table add up to a few at most; 64 bits hold up to 8, and what overflows on the way
# comes back.
UNITS = 2.0**60
LARGEST = 2.0**63 / UNITS


@dataclass(frozen=True, eq=False)
class QueryVariance:
    """How values differ between queries: sums over some of them, stratum by stratum.

    Queries belong to strata where each stratum has a share of its own in the mean, as every class
    has in balanced scores; elsewhere there is one stratum.

    Parameters
    ----------
    n_queries : array of shape (n_strata,)
        Queries that were looked at one by one.
    counts : array of shape (n_strata,)
        Sum of squared counts, where a query counts 1 in the mean of all.
    first, second : arrays of shape (n_strata, ...)
        Sums of squared count times value, and times squared value.
    """

    n_queries: NDArray[np.int64]
    counts: Floats
    first: Floats
    second: Floats

    def merge(self, other: QueryVariance) -> QueryVariance:
        """Sums over both."""
        return QueryVariance(
            self.n_queries + other.n_queries,
            self.counts + other.counts,
            self.first + other.first,
            self.second + other.second,
        )

    def variance(self, values: Floats, n_queries: int) -> tuple[Floats, NDArray[np.int64]]:
        """Variance of the values, which are means over n_queries, if those were drawn anew.

        Deviations are from the mean of the stratum, with n - 1 for n, as a mean that was estimated
        is nearer to its own queries than the true one. A stratum of one query has no such mean:
        there the deviation is from the values, which is rather too wide.

        Returns
        -------
        variance : array
        n_seen : array
            How many queries would tell a variance as well as these do, which is fewer than there
            are where a small stratum has most of it (Satterthwaite's degrees of freedom, plus 1).
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
        # Rounding must not turn an integer into the one below.
        return variance, np.floor(degrees + 1e-9).astype(np.int64) + 1


@dataclass(frozen=True, eq=False)
class PassSums:
    """Weighted sums of values over queries, part by part; one observation per finished pass.

    Parameters
    ----------
    parts_per_pass : int
    parts : int
        Parts that are in the sums: fewer than a pass has.
    n_queries : int
        Queries that are in the sums.
    sums : array
        Sums over the queries of the unfinished pass, of weight times value; integers are
        counted in units (see :mod:`cellworth.fixed`).
    weight : float
        Sum of their weights.
    total : float
        What the sums should add up to.
    utility : float
        Utility of the whole table, of which the total is the part that cells earn.
    right : float
        Queries for which the majority vote of the whole table is right; NaN where not known.
    finished : Moments or None
        One observation per finished pass.
    finished_queries : int
        Queries of a finished pass.
    finished_total, finished_utility, finished_right : float
        What the values of a finished pass should add up to, the utility of the whole table, and
        how often its vote is right.
    query_variance : QueryVariance or None
        How values differ between queries, from the first pass.
    tally : Tally
    owned : PassSums or None
        The same for sums over the cells of owners, where there are any.
    """

    parts_per_pass: int
    parts: int
    n_queries: int
    sums: NDArray[Any]
    weight: float
    total: float
    utility: float = 0.0
    right: float = math.nan
    finished: Moments | None = None
    finished_queries: int = 0
    finished_total: float = math.nan
    finished_utility: float = math.nan
    finished_right: float = math.nan
    query_variance: QueryVariance | None = None
    tally: Tally = field(default_factory=Tally)
    owned: PassSums | None = None

    def merge(self, other: PassSums) -> PassSums:
        """Fold in the next part; parts must come in the order of tasks."""
        ended = self.close_pass()
        variance = ended.query_variance
        if other.query_variance is not None:
            variance = (
                other.query_variance if variance is None else variance.merge(other.query_variance)
            )
        return replace(
            ended,
            parts=ended.parts + other.parts,
            n_queries=ended.n_queries + other.n_queries,
            sums=ended.sums + other.sums,
            weight=ended.weight + other.weight,
            total=ended.total + other.total,
            utility=ended.utility + other.utility,
            right=ended.right + other.right,
            query_variance=variance,
            tally=ended.tally.merge(other.tally),
            owned=ended.owned and other.owned and ended.owned.merge(other.owned),
        ).close_pass()

    def close_pass(self) -> PassSums:
        """Turn a pass whose last part has come into an observation."""
        if self.parts < self.parts_per_pass:
            return self
        seen = Moments.of(as_floats(self.sums) / self.weight)
        return replace(
            self,
            parts=0,
            n_queries=0,
            sums=np.zeros_like(self.sums),
            weight=0.0,
            total=0.0,
            utility=0.0,
            right=0.0,
            finished=seen if self.finished is None else self.finished.merge(seen),
            finished_queries=self.n_queries,
            finished_total=self.total / self.weight,
            finished_utility=self.utility / self.weight,
            finished_right=self.right / self.weight,
        )

    @property
    def moments(self) -> Moments:
        """Of the finished passes; before the first is finished, of the queries seen so far."""
        ended = self.close_pass()
        return (
            Moments.of(as_floats(self.sums) / self.weight)
            if ended.finished is None
            else ended.finished
        )

    @property
    def expected_total(self) -> float:
        """What the values should add up to."""
        ended = self.close_pass()
        return self.total / self.weight if ended.finished is None else ended.finished_total

    @property
    def baseline(self) -> float:
        """Part of the whole table's utility that is there without rows or columns."""
        ended = self.close_pass()
        if ended.finished is None:
            return (self.utility - self.total) / self.weight
        return ended.finished_utility - ended.finished_total

    @property
    def score(self) -> float:
        """Utility of the whole table."""
        return self.expected_total + self.baseline

    @property
    def accuracy(self) -> float:
        """How often the majority vote of the whole table is right; NaN where not known."""
        ended = self.close_pass()
        return self.right / self.weight if ended.finished is None else ended.finished_right

    @property
    def n_estimated(self) -> int:
        """Queries that the values are means over: those so far, until the first pass is finished.

        Later passes ask the same queries again.
        """
        ended = self.close_pass()
        return self.n_queries if ended.finished is None else ended.finished_queries

    def validation_se(self) -> Floats | None:
        """Errors that come from the choice of queries, without those of sampled coalitions.

        What sampling adds is only known from how passes differ, and of few passes that may come out
        as large as all there is. No more than three quarters of the variance are taken off, so that
        an error is never reported as 0 because of it: rather too wide than none. Errors from few
        queries are widened, so that 1.96 of them to either side make a 95 % interval.
        """
        if self.query_variance is None or self.query_variance.n_queries.sum() < 2:
            return None
        moments = self.moments
        variance, n_seen = self.query_variance.variance(moments.values, self.n_estimated)
        if moments.count.max() > 1:
            # A query's values from one pass differ for both reasons; take off the second.
            between_passes = moments.sum_sq / np.maximum(moments.count - 1, 1)
            variance = np.maximum(variance - between_passes, variance / 4)
        return np.sqrt(variance) * widening(n_seen)


def as_floats(sums: NDArray[Any]) -> NDArray[np.float64]:
    """Sums as floats, be they counted in units or floats already."""
    floats: NDArray[np.float64] = sums / UNITS if sums.dtype.kind == "i" else sums
    return floats
