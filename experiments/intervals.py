"""Measure the coverage of 95% intervals of nearest-neighbor values, complete and stopped runs.

The ground truth is the values of a fixed training table, validated on a population of 5,000 rows,
on all subsets of its columns. Each repetition draws validation rows from the population and runs to
the end; it is stopped at five random times of its first pass and resumed.

An interval is the value +- 1.96 times both errors together. Tasks have five validation rows each
here, so that a run can stop after any of them; real tasks take about a quarter of a second.
"""

import tempfile
import warnings
from contextlib import ExitStack, contextmanager
from unittest import mock

import numpy as np
import pandas as pd

from cellworth import KNNValuer, Owners, Runtime
from cellworth.knn import tasks as questions
from cellworth.runtime import MaxTasks, Serial
from cellworth.sampling import ExhaustiveSampler
from cellworth.sampling.moments import WIDTH_95
from experiments.frame import Tables, log
from experiments.model_coverage import figures

QUICK = {"repetitions": 2, "scores": ("agreement",)}
N_POPULATION, N_ROWS, N_VALIDATION, N_NEIGHBORS = 5000, 40, 60, 5
N_STOPS, QUERIES_PER_TASK = 5, 5
SCORES = ("agreement", "balanced agreement", "squared error")


def make_valuer(score, checkpoint=None):
    """Return a valuer of all subsets of columns."""
    balanced = "balanced_neighbor_agreement" if score == "balanced agreement" else None
    return KNNValuer(
        N_NEIGHBORS, scoring=balanced, sampler=ExhaustiveSampler(), scale=None,
        runtime=Runtime(Serial(), checkpoint, progress=False),
    )  # fmt: skip


@contextmanager
def small_tasks():
    """Divide runs into tasks of few queries."""
    n_parts = -(-N_VALIDATION // QUERIES_PER_TASK)
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


def runs(score, rng, table, given):
    """Yield one run that is stopped at random times, and its complete result."""
    with tempfile.TemporaryDirectory() as folder, small_tasks():
        valuer = make_valuer(score, folder)
        n_tasks = -(-N_VALIDATION // QUERIES_PER_TASK)
        for n_done in [*sorted(rng.integers(1, n_tasks, N_STOPS).tolist()), None]:
            stop = MaxTasks(n_done) if n_done else None
            yield valuer.set_params(stop=stop).fit(*table, **given).valuation_


def measure_coverage(score, n_repetitions, seed):
    """Return rows of (queries done, name, share of intervals that cover the truth)."""
    rng = np.random.default_rng(seed)
    numeric = score == "squared error"
    people = population(rng, N_POPULATION, numeric=numeric)
    table = population(rng, N_ROWS, numeric=numeric)
    owners = {"owners": owners_of(table[0])}
    fitted = make_valuer(score).fit(*table, X_val=people[0], y_val=people[1], **owners)
    truth = figures(fitted.valuation_)
    for _ in range(n_repetitions):
        sample = rng.integers(0, N_POPULATION, N_VALIDATION)
        drawn = {"X_val": people[0].iloc[sample], "y_val": people[1][sample]}
        for valuation in runs(score, rng, table, drawn | owners):
            n_done = valuation.scores.n_validation_rows
            for name, (values, errors) in figures(valuation).items():
                held = np.abs(values - truth[name][0]) <= WIDTH_95 * errors
                yield n_done, name, float(held.mean())


def summarize(score, lines):
    """Return the rows of a score: complete runs, and stopped ones."""
    lines = pd.DataFrame(lines, columns=["n_done", "what", "held"])
    complete = lines["n_done"] == N_VALIDATION
    for kind, some in {"complete": complete, "stopped": ~complete}.items():
        held = lines[some].groupby("what")["held"].mean()
        named = {"score": score, "validation rows": N_VALIDATION, "runs": kind}
        parts = ("cells", "rows", "columns", "owners", "total")
        yield named | {part: held["blocks" if part == "cells" else part] for part in parts}


def run(repetitions: int = 200, scores: tuple[str, ...] = SCORES, seed: int = 0) -> Tables:
    """Return coverage by score."""
    warnings.filterwarnings("ignore", message="the run was interrupted")
    found = []
    for score in scores:
        found += summarize(score, list(measure_coverage(score, repetitions, seed)))
        log(score)
    return {"coverage of 95% intervals": found}
