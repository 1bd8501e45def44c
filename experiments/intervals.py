"""Measure the coverage of 95% intervals of nearest-neighbor values, complete and stopped runs.

    python -m experiments intervals

The ground truth is the values of a fixed training table, validated on a population of 5,000 rows,
on all subsets of its columns. Each repetition draws validation rows from the population and runs to
the end; it is stopped at five random times of its first pass and resumed. In cross-validation every
repetition draws its own table, and the ground truth validates each fold on 3,000 other rows.

An interval is the value +- 1.96 times both errors together. Tasks have five validation rows each
here, so that a run can stop after any of them; real tasks take about a quarter of a second.
"""

import tempfile
import warnings
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from unittest import mock

import numpy as np
import pandas as pd
from sklearn.model_selection import check_cv

from cellworth import KNNValuer, Owners, Runtime
from cellworth.knn import tasks as questions
from cellworth.runtime import MaxTasks, Serial
from cellworth.sampling import ExhaustiveSampler, PermutationSampler
from cellworth.sampling.moments import WIDTH_95, combine_errors
from experiments.frame import Tables, log

QUICK = {"repetitions": 2, "only": "agreement, 60"}
N_POPULATION, N_ROWS, N_NEIGHBORS, N_STOPS, QUERIES_PER_TASK = 5000, 40, 5, 5, 5
WHAT = ("cells", "rows", "columns", "owners", "total")


@dataclass(frozen=True)
class Setting:
    """A table to value, and its settings."""

    name: str
    n_val: int
    numeric: bool = False
    scoring: str | None = None
    sampled: bool = False
    cross_validated: bool = False

    def valuer(self, checkpoint=None, **more):
        """With tasks of one query each."""
        sampler = PermutationSampler(1) if self.sampled else ExhaustiveSampler()
        n_passes = 8 if self.sampled else None
        return KNNValuer(
            N_NEIGHBORS, scoring=self.scoring, sampler=sampler, n_passes=n_passes, scale=None,
            runtime=Runtime(Serial(), checkpoint, progress=False), **more,
        )  # fmt: skip


BALANCED = "balanced_neighbor_agreement"
SETTINGS = (
    Setting("agreement", 60),
    Setting("agreement, sampled columns", 100, sampled=True),
    Setting("agreement, 5 folds", 100, cross_validated=True),
    Setting("balanced agreement", 60, scoring=BALANCED),
    Setting("squared error", 60, numeric=True),
)


@contextmanager
def small_tasks(n_queries):
    """Divide runs into tasks of few queries."""
    n_parts = -(-n_queries // QUERIES_PER_TASK)
    limits = {"_RANKED_PER_TASK": 1, "_MIN_PER_COLUMN": 1, "_MAX_PARTS": n_parts}
    with ExitStack() as stack:
        for name, limit in limits.items():
            stack.enter_context(mock.patch.object(questions, name, limit))
        yield


def population(rng, n_rows, *, numeric):
    """Draw three numbers and a category; about a quarter of the rows are of the rarer class."""
    X = pd.DataFrame(rng.normal(size=(n_rows, 3)), columns=["a", "b", "c"])
    X["d"] = rng.choice(["red", "green", "blue"], n_rows)
    signal = X["a"] + 0.5 * X["b"] + (X["d"] == "red") + rng.normal(size=n_rows)
    return X, signal.to_numpy() if numeric else np.where(signal > 1.2, "yes", "no")


def owners_of(X):
    """Return owners: ann and bob share the first half of the rows, cid has the rest."""
    first = np.arange(len(X)) < len(X) // 2
    return (
        Owners(X)
        .assign("ann", rows=first, columns=["a", "b"])
        .assign("bob", rows=first, columns=["c", "d"])
        .assign("cid", rows=~first)
    )


def figures(valuation):
    """Return values and both errors by name."""
    rows, columns, owners = valuation.rows(), valuation.columns(), valuation.owners()
    lists = dict(zip(WHAT[1:4], (rows, columns, owners), strict=True))
    found = {
        name: (some.values, combine_errors(some.sampling_se, some.validation_se))
        for name, some in lists.items()
    }
    cells = combine_errors(valuation.sampling_se, valuation.validation_se)
    found["cells"] = valuation.values.ravel(), cells.ravel()
    validation = valuation.validation[-1, -1:]
    total = combine_errors(valuation._errors[-1, -1:], validation)
    return found | {"total": (np.array([valuation.total]), total)}


def truth_by_folds(setting, X, y, people):
    """Return sums over folds of the values of other rows, validated on the population."""
    values = np.zeros(X.shape)
    splits = check_cv(5, y, classifier=not setting.numeric).split(X, y)
    for train, validation in splits:
        fitted = setting.valuer().fit(X.iloc[train], y[train], X_val=people[0], y_val=people[1])
        values[train] += len(validation) / len(X) * fitted.values_
    owned = owners_of(X)
    codes = [owned.cells_of(name) for name in owned.names]
    return {
        "cells": values.ravel(), "rows": values.sum(axis=1), "columns": values.sum(axis=0),
        "owners": np.array([values[mine].sum() for mine in codes]),
        "total": np.array([values.sum()]),
    }  # fmt: skip


def runs(setting, rng, table, val):
    """Yield one run that is stopped at random times, and its complete result."""
    X, y = table
    given = {"owners": owners_of(X), **val}
    seed = int(rng.integers(2**31)) if setting.sampled else None
    with tempfile.TemporaryDirectory() as folder:
        valuer = setting.valuer(folder, random_state=seed)
        n_tasks = -(-setting.n_val // QUERIES_PER_TASK)
        for n_done in sorted(rng.integers(1, n_tasks, N_STOPS).tolist()):
            yield valuer.set_params(stop=MaxTasks(n_done)).fit(X, y, **given).valuation_
        yield valuer.set_params(stop=None).fit(X, y, **given).valuation_


def measure_coverage(setting, n_repetitions, seed):
    """Return rows of (queries done, name, share of intervals that cover the truth)."""
    rng = np.random.default_rng(seed)
    n_population = 3000 if setting.cross_validated else N_POPULATION
    people = population(rng, n_population, numeric=setting.numeric)
    X, y = population(rng, N_ROWS, numeric=setting.numeric)
    if not setting.cross_validated:
        exact = Setting("", 0, setting.numeric, setting.scoring).valuer()
        fitted = exact.fit(X, y, X_val=people[0], y_val=people[1], owners=owners_of(X))
        truth = {name: values for name, (values, _) in figures(fitted.valuation_).items()}
    for _ in range(n_repetitions):
        if setting.cross_validated:
            X, y = population(rng, setting.n_val, numeric=setting.numeric)
            truth, val = truth_by_folds(setting, X, y, people), {}
        else:
            sample = rng.integers(0, n_population, setting.n_val)
            val = {"X_val": people[0].iloc[sample], "y_val": people[1][sample]}
        with small_tasks(setting.n_val):
            done = list(runs(setting, rng, (X, y), val))
        for valuation in done:
            n_done = valuation.scores.n_validation_rows
            for name, (values, errors) in figures(valuation).items():
                held = np.abs(values - truth[name]) <= WIDTH_95 * errors
                yield n_done, name, float(held.mean())


def summarize(setting, lines):
    """Return the rows of a setting: complete runs, and stopped ones."""
    lines = pd.DataFrame(lines, columns=["n_done", "what", "held"])
    complete = lines["n_done"] == setting.n_val
    for kind, some in {"complete": complete, "stopped": ~complete}.items():
        held = lines[some].groupby("what")["held"].mean()
        named = {"score": setting.name, "validation rows": setting.n_val, "runs": kind}
        yield named | {name: held.get(name, np.nan) for name in WHAT}


def run(repetitions: int = 200, only: str = "", seed: int = 0) -> Tables:
    """Return coverage by setting; ``only`` are settings whose name has this."""
    warnings.filterwarnings("ignore", message="the run was interrupted")
    found = []
    for setting in SETTINGS:
        if only in f"{setting.name}, {setting.n_val}":
            found += summarize(setting, list(measure_coverage(setting, repetitions, seed)))
            log(setting.name, setting.n_val)
    return {"coverage of 95% intervals": found}
