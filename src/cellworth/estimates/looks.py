"""Looks: the utilities that finished tasks looked at, and the estimate that they make together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from cellworth.moments import Moments, Tally

Floats = NDArray[np.float64]
Estimate = Callable[[Sequence[Any], Sequence[Floats]], Moments]


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
    """

    tasks: list[Any]
    utilities: list[Floats]
    n_tasks: int
    estimate: Estimate
    tally: Tally

    @classmethod
    def of(cls, task: Any, utilities: Floats, estimate: Estimate, tally: Tally) -> Looks:
        """Looks of one task."""
        return cls([task], [utilities], 1, estimate, tally)

    def merge(self, other: Looks) -> Looks:
        """Looks of both."""
        tasks, utilities = self.tasks, self.utilities
        if len(tasks) != self.n_tasks:
            # Someone else has gone on from here.
            tasks, utilities = tasks[: self.n_tasks], utilities[: self.n_tasks]
        # Growing one list keeps a run of many tasks from copying all of them at each.
        tasks.extend(other.tasks[: other.n_tasks])
        utilities.extend(other.utilities[: other.n_tasks])
        return Looks(
            tasks,
            utilities,
            self.n_tasks + other.n_tasks,
            self.estimate,
            self.tally.merge(other.tally),
        )

    @cached_property
    def moments(self) -> Moments:
        """What the utilities tell about every block."""
        # One thread, as inside tasks: the bits must not depend on the machine's number of cores.
        with threadpool_limits(1):
            return self.estimate(self.tasks[: self.n_tasks], self.utilities[: self.n_tasks])
