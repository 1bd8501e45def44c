"""Trials: what a run over queries would cost, from a few queries that are valued for it."""

from __future__ import annotations

import math
import time
from dataclasses import replace

from threadpoolctl import threadpool_limits

from cellworth.runtime import StoppingRule
from cellworth.valuers.plans import Plan
from cellworth.valuers.queries import QueryTasks

_TRIAL_SECONDS = 0.5


def plan_of_sweeps(tasks: QueryTasks, sweeps: int | None, stop: StoppingRule | None) -> Plan:
    """Plan a run of some sweeps, or until a rule is met; some queries are valued for it."""
    n_coalitions = tasks.questions.n_coalitions
    per_sweep = tasks.questions.judges.n_queries * n_coalitions
    most = math.inf if stop is None else min(
        stop.most_utilities, stop.most_tasks * per_sweep / len(tasks.questions.parts)
    )  # fmt: skip
    return Plan(
        type(tasks.questions.design).__name__,
        tasks.game.shape,
        min(most, math.inf if sweeps is None else sweeps * per_sweep),
        per_sweep / len(tasks.questions.parts),
        seconds_per_query(tasks) / n_coalitions,
        math.inf if stop is None else stop.most_seconds,
    )


def seconds_per_query(tasks: QueryTasks) -> float:
    """Time of one query, from ever more of them, until that takes half a second."""
    # The last part is watched for errors only if all are.
    task = tasks(len(tasks.questions.parts) - 1)
    most = task.part.n_queries
    n_queries, seconds = 1, 0.0
    with threadpool_limits(1):
        # The first compiles, sorts columns and draws coalitions, once for all.
        tasks.contribution(replace(task, part=task.part.first(1)))
        while True:
            trial = replace(task, part=task.part.first(n_queries))
            began = time.perf_counter()
            tasks.contribution(trial)
            seconds = time.perf_counter() - began
            if n_queries >= most or seconds > _TRIAL_SECONDS:
                return seconds / min(n_queries, most)
            n_queries *= 4
