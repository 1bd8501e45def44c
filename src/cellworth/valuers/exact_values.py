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


def weigh_utilities(
    semivalues: tuple[Semivalue, Semivalue],
    level: float,
    tasks: Sequence[CoalitionPairs],
    utilities: Sequence[Floats],
) -> Moments:
    """Return weighted sums of the utilities of all pairs of coalitions, for every block.

    All tasks together give psi = W_n' H W_m, with the utilities H and the weights W. The weights
    of a block add up to 0, so subtracting ``level`` from every utility only reduces rounding
    errors.
    """
    n_rows, n_columns = tasks[0].rows.shape[1], tasks[0].columns.shape[1]
    # Each part is multiplied by the number of tasks: the mean over all of them is the sum.
    n_tasks = ExhaustiveTasks((n_rows, n_columns)).n_tasks
    parts = []
    for pairs, seen in zip(tasks, utilities, strict=True):
        row_weights, column_weights = map(
            membership_weights, semivalues, (pairs.rows, pairs.columns)
        )
        weights = row_weights[:, :, None] * column_weights[:, None, :]
        part = np.tensordot(weights, seen - level, axes=(0, 0))
        parts.append(Moments.of(append_margins(part * n_tasks)))
    added = reduce(Moments.merge, parts)
    # Deviations that are not known have no observation.
    count = np.where(added.count > 0, 1 << (n_rows + n_columns - 2), 0)
    # Parts of the sum differ between tasks, but the sum of all of them is not random.
    return replace(added, count=count, sum_sq=np.zeros_like(added.sum_sq))


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
    def n_tasks(self) -> int:
        """Number of first tasks plus the tasks that cover every pair."""
        return self.n_first + ExhaustiveTasks(self.shape).n_tasks

    def __call__(self, task: int) -> Any:
        """Draw a first task, or list pairs."""
        if task < self.n_first:
            return self.first(task)
        return ExhaustiveTasks(self.shape)(task - self.n_first)


def estimate_then_weigh(
    sampler: SampledThenExhaustive,
    estimate: Estimate,
    weigh: Estimate,
    tasks: Sequence[Any],
    utilities: Sequence[Floats],
    **sums: Sums,
) -> Moments:
    """Estimate from the first tasks; once every pair is evaluated, compute exact values."""
    n_first = sampler.n_first
    if len(tasks) == sampler.n_tasks:
        return weigh(tasks[n_first:], utilities[n_first:])
    return estimate(tasks[:n_first], utilities[:n_first], **sums)


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
