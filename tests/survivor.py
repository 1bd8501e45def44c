"""Runs that other processes can watch and kill: each start and end of work is a line in a log."""

import hashlib
import json
import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

import ray_clusters
from cellworth import KNNValuer, ModelValuer, Runtime
from cellworth.knn.memory_tasks import QueryTasks
from cellworth.runtime import Dask, MaxTasks, Processes, Ray, Serial, Threads, checkpoint
from cellworth.sampling import PermutationSampler
from cellworth.valuers import knn_valuer

# This file also runs as a program, from any folder.
sys.path.append(str(Path(__file__).parents[1]))
from experiments.baselines import PlainPermutations

N_FOLDS = 4
SECONDS_PER_TASK = 0.1
SECONDS_PER_FIT = 0.002
N_ROW_GROUPS, N_COLUMN_GROUPS = 12, 2


@contextmanager
def logged(log, name):
    """Write down that work begins and ends, in whole lines that any number of processes share."""
    _append(log, f"start {os.getpid()} {name} {time.time()}\n")
    yield
    _append(log, f"end {os.getpid()} {name} {time.time()}\n")


def _append(log, line):
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


class LoggedTasks(QueryTasks):
    """Tasks that tell when they begin, and take long enough to be hit."""

    def contribution(self, task):
        with logged(self.log, task.number):
            time.sleep(self.seconds)
            return super().contribution(task)


class NearestMean(ClassifierMixin, BaseEstimator):
    """A small model that tells when it is trained, and on what."""

    def __init__(self, log="", seconds=SECONDS_PER_FIT):
        self.log = log
        self.seconds = seconds

    def fit(self, X, y):
        with logged(self.log, hashlib.sha256(np.ascontiguousarray(X)).hexdigest()[:16]):
            time.sleep(self.seconds)
            self.classes_ = np.unique(y)
            self.means_ = np.array([X[y == label].mean(axis=0) for label in self.classes_])
        return self

    def predict(self, X):
        distances = ((X[:, None, :] - self.means_) ** 2).sum(axis=2)
        return self.classes_[distances.argmin(axis=1)]


def table(n_rows=60, n_columns=4):
    rng = np.random.default_rng(8)
    X = rng.normal(size=(n_rows, n_columns))
    return X, (X[:, 0] + 0.5 * rng.normal(size=n_rows) > 0).astype(int)


def knn(log, *, stop, seconds=SECONDS_PER_TASK, cv=N_FOLDS, **given):
    """Value the cells of a table; a task is a fold in a sweep."""

    def make_tasks(*parts):
        tasks = LoggedTasks(*parts)
        tasks.log, tasks.seconds = str(log), seconds
        return tasks

    valuer = KNNValuer(3, sampler=PermutationSampler(2), stop=stop, random_state=5, **given)
    with mock.patch.object(knn_valuer, "QueryTasks", make_tasks):
        return valuer.fit(*table(), cv=cv).valuation_


def monte_carlo(log, *, stop, seconds=SECONDS_PER_FIT, **given):
    """Value 12 x 2 blocks of a table; a task is a grid of them."""
    model = NearestMean(str(log), seconds)
    valuer = ModelValuer(model, estimator=PlainPermutations(), stop=stop, random_state=5, **given)
    X, y = table()
    groups = {
        "row_groups": np.arange(len(X)) % N_ROW_GROUPS,
        "column_groups": np.arange(X.shape[1]) % N_COLUMN_GROUPS,
    }
    return valuer.fit(X, y, X_val=X[::2], y_val=y[::2], **groups).valuation_


VALUERS = {"knn": knn, "monte carlo": monte_carlo}


def digest(valuation):
    """One number for all bits of a result."""
    moments = valuation.moments
    arrays = (moments.count, moments.mean, moments.sum_sq)
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


@contextmanager
def cluster(n_workers):
    """A client of a cluster of real processes."""
    # Port 0: any that is free, so that several clusters need not quarrel.
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=n_workers, threads_per_worker=1, dashboard_address=":0", memory_limit=0
        ) as processes,
        Client(processes) as client,
    ):
        yield client


@contextmanager
def executor(name, n_workers):
    """Make an executor by name."""
    if name == "dask":
        with cluster(n_workers) as client:
            yield Dask(client)
    elif name == "ray":
        with ray_clusters.cluster(n_workers):
            yield Ray()
    else:
        yield {
            "serial": lambda _: Serial(),
            "threads": Threads,
            "processes": Processes,
        }[name](n_workers)


def main():
    """Do the run that a line of input asks for, save what it gives and tell how it ended."""
    given = json.loads(sys.stdin.readline())
    folder = Path(given["folder"])
    # On a machine that stands still at times, a slow file would hold up many answers by default.
    checkpoint._SHARE_OF_TIME = 0.5
    with executor(given["executor"], given["n_workers"]) as position:
        valuation = VALUERS[given["valuer"]](
            folder / "log",
            stop=MaxTasks(given["n_tasks"]),
            runtime=Runtime(executor=position, checkpoint=folder / "checkpoint"),
        )
        valuation.save(folder / "valuation")
    ended = {"status": valuation.status, "digest": digest(valuation)}
    (folder / "ended").write_text(json.dumps(ended))
