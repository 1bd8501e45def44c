"""Exact values: weighted sums over all coalitions, and leave-one-out values from a few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from cellworth.data.arguments import Floats
from cellworth.sampling.moments import Estimate, Moments, Sums, append_margins
from cellworth.sampling.samplers import CoalitionPairs, ExhaustiveTasks, TaskSampler
from cellworth.sampling.semivalues import Semivalue, membership_weights


@dataclass(frozen=True, eq=False)
class WeightedUtilities:
    """Weighted sums of the utilities of all pairs of coalitions, for every block.

    All tasks together give psi = W_n' H W_m, with the utilities H and the weights W. Each part is
    multiplied by the number of tasks, so that the mean over all tasks (which Moments hold) is the
    sum. The weights of a block add up to 0, so subtracting ``level`` from every utility only
    reduces rounding errors.
    """

    semivalues: tuple[Semivalue, Semivalue]
    n_tasks: int
    level: float

    def __call__(self, tasks: Sequence[CoalitionPairs], utilities: Sequence[Floats]) -> Moments:
        """Return the weighted utilities of all tasks, in order."""
        added = reduce(Moments.merge, map(self._weigh, tasks, utilities))
        # Parts of the sum differ between tasks, but the sum of all of them is not random.
        marginals = 1 << (tasks[0].rows.shape[1] + tasks[0].columns.shape[1] - 2)
        # Deviations that are not known have no observation.
        count = np.where(added.count > 0, marginals, 0)
        return replace(added, count=count, sum_sq=np.zeros_like(added.sum_sq))

    def _weigh(self, pairs: CoalitionPairs, utilities: Floats) -> Moments:
        sides = pairs.rows, pairs.columns
        row_weights, column_weights = map(membership_weights, self.semivalues, sides)
        weights = row_weights[:, :, None] * column_weights[:, None, :]
        part = np.tensordot(weights, utilities - self.level, axes=(0, 0))
        return Moments.of(append_margins(part * self.n_tasks))


@dataclass(frozen=True)
class SampledThenExhaustive:
    """Run the first tasks of a sampler, then list every pair of coalitions.

    A run that ends early has the estimate of the first tasks; a complete run is exact.
    """

    first: TaskSampler
    n_first: int
    shape: tuple[int, int]

    @property
    def utilities_per_task(self) -> float:
        """As many as in a first task."""
        return self.first.utilities_per_task

    @property
    def pairs(self) -> ExhaustiveTasks:
        """The sampler of the remaining tasks."""
        return ExhaustiveTasks(self.shape)

    @property
    def n_tasks(self) -> int:
        """Number of first tasks plus the tasks that cover every pair."""
        return self.n_first + self.pairs.n_tasks

    def __call__(self, task: int) -> Any:
        """Draw a first task, or list pairs."""
        return self.first(task) if task < self.n_first else self.pairs(task - self.n_first)


@dataclass(frozen=True, eq=False)
class SampledThenWeighted:
    """Estimate from the first tasks; once every pair is evaluated, compute exact values."""

    sampler: SampledThenExhaustive
    first: Estimate
    weighted: Estimate

    def __call__(self, tasks: Sequence[Any], utilities: Sequence[Floats], **sums: Sums) -> Moments:
        """Return the Moments of the tasks so far."""
        n_first = self.sampler.n_first
        if len(tasks) == self.sampler.n_tasks:
            return self.weighted(tasks[n_first:], utilities[n_first:])
        return self.first(tasks[:n_first], utilities[:n_first], **sums)


@dataclass(frozen=True)
class LeavingOneOut:
    """Task 0 has all rows; task t lacks row t - 1."""

    shape: tuple[int, int]

    @property
    def utilities_per_task(self) -> float:
        """One with all columns, and one without each of them."""
        return float(self.shape[1] + 1)

    @property
    def n_tasks(self) -> int:
        """One for all rows, and one without each of them."""
        return self.shape[0] + 1

    def __call__(self, task: int) -> CoalitionPairs:
        """Return the rows of a task with all columns, then without each of them."""
        n_rows, n_columns = self.shape
        rows = np.ones((n_columns + 1, n_rows), dtype=bool)
        if task > 0:
            rows[:, task - 1] = False
        return CoalitionPairs(rows, ~np.eye(n_columns + 1, n_columns, -1, dtype=bool))


def leave_one_out_moments(tasks: Sequence[CoalitionPairs], utilities: Sequence[Floats]) -> Moments:
    """Return the values of the blocks whose row has been left out; others have no observation.

    Each task gives the loss from leaving out each column. The value of block (i, j) is the loss
    with all rows minus the loss without row i.
    """
    n_rows, n_columns = tasks[0].rows.shape[1], tasks[0].columns.shape[1]
    losses = np.full((n_rows + 1, n_columns, *utilities[0].shape[1:]), np.nan)
    for task, seen in enumerate(utilities):
        losses[task] = seen[0] - seen[1:]
    return Moments.of(append_margins(losses[0] - losses[1:]))
