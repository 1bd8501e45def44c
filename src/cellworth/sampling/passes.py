"""Passes over all validation rows, summed in fixed point so that any order gives the same bits."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats
from cellworth.sampling.moments import Moments, Tally, widening

# Sums of values are small: 64 bits hold up to 8 in these units. Overflow of intermediate sums
# wraps around and does no harm. For a numeric target, the units depend on its range.
UNITS = 2.0**60
LARGEST = 2.0**63 / UNITS
# Bits of a numeric target that is summed in fixed point.
TARGET_BITS = 31


@dataclass(frozen=True, eq=False)
class QueryVariance:
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

    def merge(self, other: QueryVariance) -> QueryVariance:
        """Return the sums over both."""
        return QueryVariance(
            self.n_queries + other.n_queries,
            self.counts + other.counts,
            self.first + other.first,
            self.second + other.second,
        )

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

    def standard_errors(self, moments: Moments, n_queries: int) -> Floats | None:
        """Return the errors due to the choice of queries, without sampling errors.

        ``moments`` are those of passes over n_queries queries. Sampling errors are estimated from
        the differences between passes and subtracted. With few passes this estimate is uncertain,
        so at most three quarters of the variance are subtracted: the error may be too large, but
        is never 0 for that reason. Errors of few queries are widened such that values plus or
        minus 1.96 errors are 95% intervals. The result is None for a single query.
        """
        if self.n_queries.sum() < 2:
            return None
        variance, n_seen = self.variance(moments.values, n_queries)
        if moments.count.max() > 1:
            # Values of queries also differ because each query has its own sampled coalitions.
            between_passes = moments.sum_sq / np.maximum(moments.count - 1, 1)
            variance = np.maximum(variance - between_passes, variance / 4)
        return np.sqrt(variance) * widening(n_seen)


@dataclass(frozen=True, eq=False)
class PassSums:
    """Weighted sums of values over queries; each finished pass is one observation.

    Tasks add their queries to the unfinished pass.
    """

    parts_per_pass: int  # Number of tasks per pass
    parts: int  # Number of tasks in the sums
    n_queries: int  # Number of queries in the sums
    sums: NDArray[Any]  # Sums of query weight times value; integers are in units of 1 / units
    weight: float  # Sum of the query weights
    total: float  # Expected sum of all entries of ``sums``
    utility: float = 0.0  # Weighted sum of the utility of the full table
    # Weighted number of queries that the full table's majority vote predicts correctly; NaN if not
    # known.
    right: float = math.nan
    finished: Moments | None = None  # One observation per finished pass
    finished_queries: int = 0  # Number of queries of a finished pass
    # Means over the queries of a finished pass.
    finished_total: float = math.nan
    finished_utility: float = math.nan
    finished_right: float = math.nan
    query_variance: QueryVariance | None = None  # Variance between queries, from the first pass
    tally: Tally = field(default_factory=Tally)
    owned: PassSums | None = None  # The same for the sums over the owners' cells
    units: float = UNITS

    def merge(self, other: PassSums) -> PassSums:
        """Add the next task; tasks must come in order."""
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
        """Turn a complete pass into an observation."""
        if self.parts < self.parts_per_pass:
            return self
        seen = Moments.of(as_floats(self.sums, self.units) / self.weight)
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
        """Moments of the finished passes, or of the queries so far during the first pass."""
        finished = self.close_pass().finished
        if finished is not None:
            return finished
        return Moments.of(as_floats(self.sums, self.units) / self.weight)

    @property
    def expected_total(self) -> float:
        """Expected sum of the values."""
        return self._mean("total")

    @property
    def baseline(self) -> float:
        """Part of the full table's utility that exists without any rows or columns."""
        ended = self.close_pass()
        if ended.finished is None:
            return (self.utility - self.total) / self.weight
        return ended.finished_utility - ended.finished_total

    @property
    def score(self) -> float:
        """Utility of the full table."""
        return self.expected_total + self.baseline

    @property
    def accuracy(self) -> float:
        """Share of queries that the full table's majority vote predicts correctly; NaN: unknown."""
        return self._mean("right")

    def _mean(self, name: str) -> float:
        """Return a mean over a finished pass, or over the queries so far during the first pass."""
        ended = self.close_pass()
        if ended.finished is None:
            return float(getattr(self, name) / self.weight)
        return float(getattr(ended, f"finished_{name}"))

    @property
    def n_estimated(self) -> int:
        """Number of distinct queries that the values are means over; passes repeat them."""
        ended = self.close_pass()
        return self.n_queries if ended.finished is None else ended.finished_queries

    def validation_se(self) -> Floats | None:
        """Return the errors due to the choice of queries; None if they are not known."""
        if self.query_variance is None:
            return None
        return self.query_variance.standard_errors(self.moments, self.n_estimated)


def as_floats(sums: NDArray[Any], units: float) -> NDArray[np.float64]:
    """Convert fixed-point sums to floats; floats are returned as they are."""
    return sums / units if sums.dtype.kind == "i" else sums
