"""Looks: the utilities that finished tasks looked at, and the estimate that they make together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from cellworth.counts import Floats
from cellworth.moments import Deviations, Moments, Sums, Tally

# From tasks and utilities to Moments; some take the sums of blocks to observe as well.
Estimate = Callable[..., Moments]

# Of fewer deviations than these the sum of squares is too much a matter of chance.
LEAST_DEVIATIONS = 32

# Numbers that are estimated from at once: all deviations together may be many.
_NUMBERS_AT_ONCE = 2**22


@dataclass(frozen=True, eq=False)
class Looks:
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
    ) -> Looks:
        """Looks of one task."""
        return cls([task], [utilities], 1, estimate, tally, [deviations])

    def merge(self, other: Looks) -> Looks:
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
        return Looks(
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
        return self._estimated(self.utilities[: self.n_tasks])

    def moments_of(self, sums: Sums) -> Moments:
        """What the utilities tell about sums of blocks, where each task observes all blocks."""
        with threadpool_limits(1):
            return self.estimate(
                self.tasks[: self.n_tasks], self.utilities[: self.n_tasks], sums=sums
            )

    def judged_moments(self) -> Iterator[Moments]:
        """Moments with a last axis: the value first, then its deviations, some at a time.

        There are none where a deviation is not known.
        """
        looked_at = self.deviations[: self.n_tasks]
        lengths = {0 if each is None else len(each) for task in looked_at for each in task}
        if 0 in lengths:
            return
        n_looks = sum(map(len, looked_at))
        # Runs with other budgets may have kept fewer groups of rows in the cache that they share.
        n_parts = min(lengths)
        at_once = max(_NUMBERS_AT_ONCE // n_looks, 8)
        for start in range(0, n_parts, at_once):
            some = slice(start, start + at_once)
            yield self._estimated(
                [
                    np.column_stack([utilities, _stacked(task, n_parts, some)])
                    for utilities, task in zip(self.utilities, looked_at, strict=False)
                ]
            )

    def _estimated(self, utilities: list[Floats]) -> Moments:
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


def _stacked(task: Sequence[Deviations | None], n_parts: int, some: slice) -> Floats:
    stacked = [fewer(each, n_parts)[some] for each in task if each is not None]
    return np.array(stacked, dtype=np.float64)
