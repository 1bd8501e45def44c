"""The log of all utilities of a run, and values with validation errors from it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from cellworth.data.arguments import Floats
from cellworth.sampling.moments import (
    MIN_DEVIATIONS,
    Addition,
    Deviations,
    Estimate,
    LatestErrors,
    Moments,
    Sums,
    Tally,
    append_margins,
    append_pairs,
    limit_threads,
    pool_deviations,
)

# Most deviations that are held at once.
_NUMBERS_AT_ONCE = 2**22
# Errors that take long are computed again when there are more tasks by this part of them.
_TASKS_BETWEEN_ERRORS = 4
# Share of squared deviations that the correction for sampling errors never removes.
_MIN_LEFT = 0.25


@dataclass(frozen=True, eq=False)
class UtilityLog:
    """Tasks with their utilities, for estimates that need all utilities at once."""

    # Tasks in order, the utilities of their pairs of coalitions, and the deviations of each utility
    # (see :class:`DetailedUtility`; None if the game has none). The list may grow beyond
    # ``n_tasks`` when others are merged.
    entries: list[tuple[Any, Floats, list[Deviations | None]]]
    n_tasks: int  # Number of tasks that belong to this log
    estimate: Estimate  # Function from tasks and utilities to Moments
    tally: Tally
    # Both errors by their number of tasks, shared by the logs that share the lists.
    latest: dict[int, tuple[Moments, float]] = field(default_factory=dict)

    def merge(self, other: UtilityLog) -> UtilityLog:
        """Return the log of both."""
        entries, latest = self.entries, self.latest
        if len(entries) != self.n_tasks:
            # Another merge has extended the list.
            entries, latest = entries[: self.n_tasks], {}
        # The list grows in place, so that a merge does not copy all earlier tasks.
        entries.extend(other.entries[: other.n_tasks])
        n_tasks, tally = self.n_tasks + other.n_tasks, self.tally.merge(other.tally)
        return UtilityLog(entries, n_tasks, self.estimate, tally, latest)

    @cached_property
    def moments(self) -> Moments:
        """Moments of all blocks and sums."""
        return self._estimate(self.utilities)

    @property
    def utilities(self) -> list[Floats]:
        """Utilities of each task's pairs of coalitions."""
        return [utilities for _, utilities, _ in self.entries[: self.n_tasks]]

    @property
    def deviations(self) -> list[list[Deviations | None]]:
        """Deviations of the utilities of each task."""
        return [deviations for _, _, deviations in self.entries[: self.n_tasks]]

    def latest_errors(self) -> LatestErrors:
        """Return both errors of the first tasks, after the last number that computes them."""
        n_tasks = _last_computed(self.n_tasks)
        if n_tasks not in self.latest:
            first = replace(self, n_tasks=n_tasks)
            self.latest.clear()
            self.latest[n_tasks] = first.moments, first.mean_square_validation_se()
        return *self.latest[n_tasks], n_tasks / self.n_tasks

    def mean_square_validation_se(self) -> float:
        """Return the mean of the squared validation errors of blocks; NaN if they are not known.

        The sampling variance of deviations is subtracted. The mean is as unbiased as that variance,
        except that it is never negative. Few deviations suffice for a mean over blocks.
        """
        squares = [
            (seen.values[..., 1:] ** 2).sum(axis=-1) - _deviation_noise(seen)
            for seen in self.deviation_moments(MIN_DEVIATIONS)
        ]
        # A maximum with NaN is NaN.
        return float(np.maximum(np.mean(sum(squares)[:-1, :-1]), 0.0)) if squares else math.nan

    def moments_of(self, sums: Sums) -> Moments:
        """Return the Moments of sums of blocks, for estimators whose tasks observe all blocks."""
        return self._estimate(self.utilities, sums=sums)

    def deviation_moments(self, most: float = math.inf) -> Iterator[Moments]:
        """Yield Moments with a last axis: the value, then some of its deviations.

        Deviations are pooled until at most ``most`` are left. Nothing is yielded if a deviation is
        not known.
        """
        deviations = self.deviations
        lengths = {0 if each is None else len(each) for task in deviations for each in task}
        if 0 in lengths:
            return
        # A session with another budget may have kept fewer deviations.
        n_deviations = len(pool_deviations(np.zeros(min(lengths)), most))
        at_once = max(_NUMBERS_AT_ONCE // sum(map(len, deviations)), 8)
        for start in range(0, n_deviations, at_once):
            some = slice(start, start + at_once)
            yield self._estimate(
                [
                    np.column_stack([utilities, _stack(task, n_deviations, some)])
                    for utilities, task in zip(self.utilities, deviations, strict=True)
                ]
            )

    def _estimate(self, utilities: list[Floats], **sums: Sums) -> Moments:
        # One thread, as inside tasks: the bits must not depend on the machine's number of cores.
        with limit_threads():
            tasks = [task for task, _, _ in self.entries[: self.n_tasks]]
            return self.estimate(tasks, utilities, **sums)


def _deviation_noise(seen: Moments) -> Floats:
    """Return the sum of the squared sampling errors of deviations, which their squares contain."""
    return np.asarray((seen.sampling_se[..., 1:] ** 2).sum(axis=-1))


def estimate_with_errors(
    added: Addition, shares: Floats | None, *, samples: bool
) -> tuple[Moments, Floats | None, Floats | None]:
    """Estimate values and their deviations from the same utilities, if they are known.

    Values are weighted sums of utilities, and so are their deviations. Deviations also contain the
    sampling error of coalitions, which standard errors report separately. Its share of their
    squares is subtracted, but never more than three quarters of them.

    ``shares`` has the owners' shares in each block, shape (n_owners, n_rows, n_columns), and
    ``samples`` says whether coalitions were sampled.

    Returns
    -------
    moments : Moments of shape (n_rows + 1, n_columns + 1)
    errors : array of the same shape
        Validation errors of blocks and sums; None if they are not known.
    owners : array
        Validation errors of the owners' sums, and of their pairs' (see append_pairs).
    """
    if not isinstance(added, UtilityLog):
        return added.moments, None, None
    moments = None
    squares, noise, owned = np.zeros(()), np.zeros(()), np.zeros(())
    for seen in added.deviation_moments():
        if moments is None:
            moments = Moments(seen.count[..., 0], seen.mean[..., 0], seen.sum_sq[..., 0])
        deviations = append_margins(seen.values[:-1, :-1, 1:])
        squares = squares + (deviations**2).sum(axis=-1)
        if shares is not None:
            # Deviations come first, owners last.
            of_owners = np.tensordot(deviations[:-1, :-1], shares, axes=([0, 1], [1, 2]))
            owned = owned + (append_pairs(of_owners) ** 2).sum(axis=0)
        noise = noise + _deviation_noise(seen)
    if moments is None:
        return added.moments, None, None
    if samples:
        noise = np.nan_to_num(noise)
        squares = np.maximum(squares - noise, _MIN_LEFT * squares)
    if np.isnan(squares[moments.count > 0]).any():
        return moments, None, None
    return moments, np.sqrt(squares), None if shares is None else np.sqrt(owned)


def _stack(task: Sequence[Deviations | None], most: int, some: slice) -> Floats:
    known = [each for each in task if each is not None]
    if len(set(map(len, known))) == 1:
        stacked = pool_deviations(np.array(known), most)[:, some]
    else:
        stacked = np.array([pool_deviations(each, most)[some] for each in known])
    return stacked.astype(np.float64)


def _last_computed(n_tasks: int) -> int:
    """Return the last of 1, 2, ..., 7, 8, 10, 12, 15, 18, 22, ... that is not above ``n_tasks``."""
    last = following = 1
    while following <= n_tasks:
        last = following
        following += max(last // _TASKS_BETWEEN_ERRORS, 1)
    return last
