"""Whether results changed: digests of a battery of small runs, to hold one commit against another.

    python benchmarks/battery.py --record before.json      # on the old commit
    python benchmarks/battery.py --compare before.json     # on the new one; exit code 1 on change
    python benchmarks/battery.py --compare before.json --only 'knn/*'

Each case is split into parts: bits of values, errors, counts and sums, labels, and for reports and
the command line the numbers and the text apart, so that new wording does not look like new numbers.
Names of attributes and keys are in no digest. Compare on one machine: BLAS differs between others.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import importlib
import json
import logging
import os
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from cellworth.cli.commands import main as program

# The public interface, in one place: cases below use these functions and our own words alone.

PACKAGES = [
    "", ".valuers", ".sampling", ".runtime", ".games", ".findings", ".payouts", ".knn", ".data",
    ".valuation",
]  # fmt: skip


class Public:
    """Public names, in whichever package they are exported."""

    def __getattr__(self, name: str) -> Any:
        for package in PACKAGES:
            with suppress(ImportError, AttributeError):
                found = getattr(importlib.import_module(f"cellworth{package}"), name)
                if not package or not isinstance(found, ModuleType):
                    return found
        raise AttributeError(f"no package of cellworth exports {name}")


cw = Public()
sys.path.append(str(Path(__file__).parents[1]))
from experiments.baselines import LeverageSampler, PlainPermutations  # noqa: E402

SAMPLERS = {
    "exhaustive": cw.ExhaustiveSampler(),
    "leverage": LeverageSampler(64),
    "quadrature": cw.QuadratureSampler(64),
    "permutation": cw.PermutationSampler(4),
}
ESTIMATORS = {
    "antithetic": cw.AntitheticPermutations(),
    "plain": PlainPermutations(),
    "gaussian process": cw.GaussianProcess(),
}
SEMIVALUES = {
    "shapley": cw.Shapley(),
    "banzhaf": cw.Banzhaf(),
    "beta": cw.Beta(4, 1),
    "leave one out": cw.LeaveOneOut(),
}
# Settings of our cases that are arguments of fit.
OF_FIT = ("cv", "column_types", "value_labels")
RUNTIME = ("executor", "checkpoint", "progress", "on_round")
# Choices that are words.
bins = cw.BinnedRanks
max_tasks, max_utilities = cw.MaxTasks, cw.MaxUtilities
score_cells = cw.anomaly_scores


def settings_for(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a valuer; it runs serially unless set otherwise."""
    where = {"executor": cw.Serial(), "progress": False}
    given = {}
    for name, setting in settings.items():
        if name in RUNTIME:
            where[name] = setting
        else:
            given[name] = setting
    return given | {"runtime": cw.Runtime(**where)}


def new_valuer(name: str, settings: Mapping[str, Any]) -> Any:
    """Return a valuer that shows no progress and runs serially unless set otherwise."""
    given = settings_for(settings)
    return getattr(cw, name)(**given)


def fit(name: str, data: Mapping[str, Any], **settings: Any) -> Any:
    """Return the valuation of a fit."""
    of_fit = {name: settings.pop(name) for name in OF_FIT if name in settings}
    return new_valuer(name, settings).fit(**data, **of_fit).valuation_


def play(game: Any, **settings: Any) -> Any:
    """Return the valuation of a game."""
    return cw.value_game(game, **settings_for(settings))


def arrays_of(valuation: Any) -> dict[str, Any]:
    """Return the arrays of a valuation by our own names."""
    rows, columns = valuation.rows(), valuation.columns()
    scalars = [
        valuation.total, valuation.total_error, valuation.expected_total, valuation.baseline,
        valuation.score,
    ]  # fmt: skip
    found = {
        "values": [valuation.values],
        "sampling errors": [valuation.sampling_se],
        "validation errors": [valuation.validation_se],
        "counts": [valuation.counts],
        "sums": [
            array
            for part in (rows, columns)
            for array in (part.values, part.sampling_se, part.validation_se)
        ],
        "totals": [np.array(scalars)],
        "labels": [rows.labels["row"], columns.labels["column"], valuation.status],
    }
    if valuation.owned is not None:
        owned = valuation.owners()
        found["owners"] = [owned.values, owned.sampling_se, owned.validation_se]
    return found


def arrays_of_payout(payout: Any) -> dict[str, Any]:
    """Return what a payout says: money as strings, and arrays."""
    return {
        "amounts": [list(payout.owners), [str(amount) for amount in payout.amounts]],
        "values": [payout.values, payout.intervals, payout.shares, payout.unassigned],
        "undecided": [payout.undecided, sorted(payout.carried.items())],
        "text": [list(payout.notes)],
    }


def arrays_of_explanation(entry: Any) -> dict[str, Any]:
    """Return the parts of an explanation."""
    return {
        "values": [entry.value, entry.sampling_se, entry.parts.values],
        "labels": [entry.label, entry.cells],
        "text": [repr(entry)],
    }


def write_table(folder: Path) -> Any:
    """Return the table of Parquet files in a folder."""
    return cw.ShardedTable.from_files(folder, target="y")


def load(folder: Path) -> Any:
    """Return a valuation that was saved."""
    return cw.load(folder)


def split(valuation: Any, owners: Any, *, amount: str, **policy: Any) -> Any:
    """Return a payout under a policy."""
    policy = cw.Policy(**({"game": "cells", "negative": "signed"} | policy))
    return cw.split_revenue(valuation, owners, amount=amount, policy=policy)


verify = cw.verify_bundle


def compare_models(*args: Any, **given: Any) -> dict[str, Any]:
    """Return the scores of a model before and after a repair."""
    found = cw.compare_models(*args, **given)
    numbers = [found.before, found.after, *found.interval, *found.on_all_rows, found.n_changed]
    return {"values": [np.array(numbers)], "text": [repr(found)]}


# Digests.

HEX = re.compile(r"\b[0-9a-f]{16,64}\b")
DATE = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\+00:00|Z| UTC)?")
SECONDS = re.compile(r"\b\d[\d.,]* ?(s|ms|seconds?|min|h)\b")
VERSION = re.compile(r"\b\d+\.\d+\.\d+(\w*)\b")
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")
# What differs between runs, machines or versions and is no result.
VOLATILE = re.compile(
    "second|created|version|path|folder|output|sha256|hash|digest|fingerprint|identity|format|"
    "^table$|^val$|question|problem_spec|seal"
)


def digest(parts: Any) -> str:
    """Return the sha256 of arrays, numbers and strings, with their shapes."""
    found = hashlib.sha256()
    for piece in _pieces(parts):
        found.update(len(piece).to_bytes(8, "little") + piece)
    return found.hexdigest()


def _pieces(thing: Any) -> Iterator[bytes]:
    if isinstance(thing, np.ndarray) and thing.dtype.kind in "biuf":
        plain = thing.astype("<f8")
        plain[np.isnan(plain)] = np.nan
        yield repr(plain.shape).encode()
        yield plain.tobytes()
    elif isinstance(thing, np.ndarray | list | tuple):
        yield repr(len(thing)).encode()
        for one in thing.tolist() if isinstance(thing, np.ndarray) else thing:
            yield from _pieces(one)
    elif isinstance(thing, bool | int | float | np.number | np.bool_):
        yield from _pieces(np.array(thing, dtype=np.float64))
    else:
        yield f"{type(thing).__name__} {thing}".encode()


def leaves(plain: Any) -> tuple[list[str], list[str]]:
    """Return the numbers and the strings of JSON-like data, sorted, without what is volatile."""
    numbers, strings = [], []
    pending = [plain]
    while pending:
        thing = pending.pop()
        if isinstance(thing, Mapping):
            pending += [v for k, v in thing.items() if not VOLATILE.search(str(k))]
        elif isinstance(thing, list | tuple):
            pending += thing
        elif isinstance(thing, str) and not is_number(thing):
            strings.append(stable(thing))
        elif isinstance(thing, np.generic):
            numbers.append(repr(thing.item()))
        else:
            numbers.append(str(thing))
    return sorted(numbers), sorted(strings)


def is_number(text: str) -> bool:
    """Whether a string is an amount of money or another number."""
    return NUMBER.fullmatch(text) is not None


def stable(text: str) -> str:
    """Return text without paths, times, versions and hashes."""
    for pattern, instead in ((HEX, "<hash>"), (DATE, "<date>"), (SECONDS, "<time>")):
        text = pattern.sub(instead, text)
    text = VERSION.sub("<version>", text)
    return re.sub(r"\S*" + re.escape(tempfile.gettempdir()) + r"\S*", "<path>", text)


def of_plain(plain: Any) -> dict[str, Any]:
    """Parts of JSON-like data."""
    numbers, strings = leaves(plain)
    return {"numbers": numbers, "text": strings}


def of_text(text: str) -> dict[str, Any]:
    """Parts of what a program prints for people."""
    text = stable(text)
    return {"numbers": sorted(NUMBER.findall(text)), "text": text}


def of_frame(frame: pd.DataFrame) -> dict[str, Any]:
    """Parts of a data frame."""
    return of_plain([frame[name].tolist() for name in frame.columns])


# Tables.


def _make_mixed(n_rows: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Numbers, strings, categories, dates and missing values, with classes."""
    rng = np.random.default_rng(seed)
    age = np.round(rng.normal(40, 12, n_rows))
    income = rng.normal(size=n_rows) + age / 30
    days = rng.integers(0, 900, n_rows).astype("timedelta64[D]")
    town = rng.choice(["Ulm", "Bonn", "Kiel"], n_rows)
    table = pd.DataFrame(
        {
            "age": np.where(rng.random(n_rows) < 0.1, np.nan, age),
            "income": income,
            "town": pd.Series(np.where(rng.random(n_rows) < 0.1, None, town), dtype=object),
            "since": np.datetime64("2020-01-01") + days,
            "code": rng.integers(0, 4, n_rows),
        }
    )
    classes = np.where(income + 0.3 * (town == "Ulm") + rng.normal(0, 0.5, n_rows) > 1.4, "b", "a")
    return table, classes


def _wide(n_rows: int, n_columns: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n_rows, n_columns)), 2)
    return X, (X[:, 0] + X[:, 1] - X[:, 2] + rng.normal(0, 0.5, n_rows) > 0).astype(int)


X_MIXED, Y_MIXED = _make_mixed(60, 0)
X_MIXED_VAL, Y_MIXED_VAL = _make_mixed(25, 1)
X_WIDE, Y_WIDE = _wide(80, 16, 2)
X_WIDE_VAL, Y_WIDE_VAL = _wide(30, 16, 3)
TARGET = X_WIDE[:, 0] * 2 - X_WIDE[:, 3]
TARGET_VAL = X_WIDE_VAL[:, 0] * 2 - X_WIDE_VAL[:, 3]

MIXED = {"X": X_MIXED, "y": Y_MIXED, "X_val": X_MIXED_VAL, "y_val": Y_MIXED_VAL}
MIXED_CV = {"X": X_MIXED, "y": Y_MIXED}
WIDE = {"X": X_WIDE, "y": Y_WIDE, "X_val": X_WIDE_VAL, "y_val": Y_WIDE_VAL}
NUMERIC = {"X": X_WIDE[:, :6], "y": TARGET, "X_val": X_WIDE_VAL[:, :6], "y_val": TARGET_VAL}
GROUPS = {"row_groups": np.arange(80) % 4, "column_groups": np.arange(16) % 3}
BLOCKS = WIDE | GROUPS
BLOCKS_CV = {"X": X_WIDE, "y": Y_WIDE, **GROUPS}


def tree() -> DecisionTreeClassifier:
    return DecisionTreeClassifier(max_depth=3, random_state=0)


def two_owners(X: Any) -> Any:
    names = [str(name) for name in cw.Owners(X).table.names.tolist()]
    half = len(X) // 2
    owners = cw.Owners(X).assign("bank", columns=names[:2])
    return owners.assign("shop", rows=slice(0, half), columns=names[2:])


# Cases.

Case = Callable[[Path], Mapping[str, Any]]
CASES: dict[str, Case] = {}


def case(name: str, run: Callable[[], Any]) -> None:
    """Add a case that needs no folder and gives a valuation."""
    CASES[name] = lambda _: arrays_of(run())


def in_folder(name: str) -> Callable[[Case], Case]:
    """Add a case that is given an empty folder."""

    def add(function: Case) -> Case:
        CASES[name] = function
        return function

    return add


def knn(data: Mapping[str, Any], **settings: Any) -> Any:
    return fit("KNNValuer", data, **{"random_state": 0} | settings)


for sampler_name, sampler in SAMPLERS.items():
    few = {"X": X_WIDE[:, :7], "X_val": X_WIDE_VAL[:, :7]}
    table = WIDE | few if sampler_name == "exhaustive" else WIDE
    for semivalue_name, semivalue in SEMIVALUES.items():
        if sampler_name in ("leverage", "quadrature") and semivalue_name != "shapley":
            continue
        both = {"semivalue": semivalue}
        case(
            f"knn/{sampler_name}, {semivalue_name}",
            lambda s=sampler, b=both, t=table: knn(t, sampler=s, n_passes=3, **b),
        )
    for ranking in ("exact", "bins"):
        case(
            f"knn/{sampler_name}, {ranking} ranks, labels",
            lambda s=sampler, t=table, r=ranking: knn(
                t,
                sampler=s,
                n_passes=2,
                value_labels=True,
                ranking=bins(8) if r == "bins" else None,
            ),
        )

for scoring in ("neighbor_agreement", "balanced_neighbor_agreement"):
    for empty in ("prior", "zero"):
        for ranking in ("exact", "bins"):
            case(
                f"knn/mixed, {scoring}, {empty}, {ranking}",
                lambda s=scoring, e=empty, r=ranking: knn(
                    MIXED, scoring=s, empty=e, ranking=bins(8) if r == "bins" else None
                ),
            )
    case(f"knn/mixed, {scoring}, cv", lambda s=scoring: knn(MIXED_CV, scoring=s))
for scale in ("robust", "std", None):
    case(f"knn/mixed, scale {scale}", lambda s=scale: knn(MIXED, scale=s, n_neighbors=3))
    case(f"knn/numeric, scale {scale}", lambda s=scale: knn(NUMERIC, scale=s))
for empty in ("prior", "zero"):
    case(f"knn/numeric, {empty}", lambda e=empty: knn(NUMERIC, empty=e))
    case(f"knn/numeric labels, {empty}", lambda e=empty: knn(NUMERIC, empty=e, value_labels=True))
case("knn/numeric cv", lambda: knn({"X": NUMERIC["X"], "y": NUMERIC["y"]}, cv=4))
case("knn/mixed labels", lambda: knn(MIXED, value_labels=True))
case("knn/mixed labels cv", lambda: knn(MIXED_CV, value_labels=True, cv=3))
case("knn/column types", lambda: knn(MIXED, column_types={"code": "categorical"}))
case("knn/groups", lambda: knn(BLOCKS, n_neighbors=1))
case("knn/owners", lambda: knn(WIDE | {"owners": two_owners(X_WIDE)}, n_passes=3))
case("knn/owners in bins", lambda: knn(MIXED | {"owners": two_owners(X_MIXED)}, ranking=bins(8)))
case(
    "knn/tolerance",
    lambda: knn(WIDE, sampler=SAMPLERS["permutation"], stop=cw.TargetStandardError(5e-3)),
)
for seed in (1, 2):
    case(f"knn/defaults, seed {seed}", lambda s=seed: knn(WIDE, random_state=s, n_passes=2))


def exact(data: Mapping[str, Any] = BLOCKS, **settings: Any) -> Any:
    return fit("ModelValuer", data, **{"model": tree(), "estimator": "exact"} | settings)


def monte_carlo(data: Mapping[str, Any] = BLOCKS, **settings: Any) -> Any:
    return fit("ModelValuer", data, **{"model": tree(), "random_state": 3} | settings)


for estimator_name, estimator in ESTIMATORS.items():
    case(
        f"monte carlo/{estimator_name}",
        lambda e=estimator: monte_carlo(estimator=e, stop=max_utilities(120)),
    )
    case(
        f"monte carlo/{estimator_name}, cv",
        lambda e=estimator: monte_carlo(BLOCKS_CV, estimator=e, stop=max_utilities(60), cv=3),
    )
for semivalue_name, semivalue in SEMIVALUES.items():
    case(
        f"monte carlo/{semivalue_name}",
        lambda s=semivalue: monte_carlo(semivalue=s, stop=max_utilities(100)),
    )
    case(
        f"exact/{semivalue_name}",
        lambda s=semivalue: exact(semivalue=s),
    )
case("monte carlo/all coalitions", lambda: monte_carlo(stop=max_utilities(1000)))
case("monte carlo/zero", lambda: monte_carlo(empty="zero", stop=max_utilities(100)))
case(
    "monte carlo/owners",
    lambda: monte_carlo(BLOCKS | {"owners": block_owners()}, stop=max_tasks(8)),
)
case(
    "monte carlo/logistic, balanced accuracy",
    lambda: monte_carlo(
        model=LogisticRegression(max_iter=200), scoring="balanced_accuracy", stop=max_tasks(5)
    ),
)
case(
    "monte carlo/logistic, log loss",
    lambda: monte_carlo(
        model=LogisticRegression(max_iter=200), scoring="neg_log_loss", stop=max_tasks(5)
    ),
)
case(
    "monte carlo/ridge",
    lambda: monte_carlo(
        NUMERIC | {"row_groups": np.arange(80) % 5}, model=Ridge(), stop=max_tasks(4)
    ),
)
case(
    "monte carlo/merged",
    lambda: monte_carlo(stop=max_tasks(5)).merge(monte_carlo(stop=max_tasks(6), random_state=4)),
)
case("exact/cv", lambda: exact(BLOCKS_CV, cv=2))
case(
    "exact/numeric",
    lambda: exact(
        NUMERIC | {"row_groups": np.arange(80) % 3, "column_groups": np.arange(6) % 3},
        model=DecisionTreeRegressor(max_depth=3, random_state=0),
    ),
)
case(
    "leave one out/blocks",
    lambda: fit("ModelValuer", BLOCKS, model=tree(), semivalue=cw.LeaveOneOut()),
)
case(
    "leave one out/logistic",
    lambda: fit(
        "ModelValuer",
        BLOCKS,
        model=LogisticRegression(max_iter=200),
        semivalue=cw.LeaveOneOut(),
    ),
)
case(
    # The name that digests of earlier versions have.
    "out of bag/contrast False",
    lambda: fit("OutOfBagValuer", {"X": X_WIDE, "y": Y_WIDE}, n_trees=60, random_state=0),
)
case(
    "out of bag/mixed",
    lambda: fit("OutOfBagValuer", MIXED_CV, n_trees=60, random_state=0),
)
case(
    "out of bag/numeric, no distance",
    lambda: fit(
        "OutOfBagValuer",
        {"X": NUMERIC["X"], "y": TARGET},
        n_trees=60,
        distance=False,
        random_state=0,
    ),
)


def block_owners() -> Any:
    names = cw.Owners(X_WIDE).table.names.tolist()
    owners = cw.Owners(X_WIDE)
    for group in range(3):
        owners = owners.assign(f"owner {group}", columns=names[group::3])
    return owners


def table_game() -> Any:
    rng = np.random.default_rng(7)
    return cw.TableGame(
        np.sqrt(np.add.outer(np.arange(16.0), np.arange(8.0))) + rng.random((16, 8))
    )


for semivalue_name, semivalue in SEMIVALUES.items():
    both = {"semivalue": semivalue}
    case(f"game/exact, {semivalue_name}", lambda b=both: play(table_game(), estimator="exact", **b))
    for estimator_name, estimator in ESTIMATORS.items():
        if semivalue_name != "shapley" and estimator_name != "gaussian process":
            continue
        case(
            f"game/{estimator_name}, {semivalue_name}",
            lambda b=both, e=estimator: play(
                table_game(), estimator=e, stop=max_utilities(90), random_state=1, **b
            ),
        )
    case(
        f"game/default estimator, {semivalue_name}",
        lambda b=both: play(table_game(), stop=max_tasks(9), random_state=1, **b),
    )
case(
    "game/mixed semivalues",
    lambda: play(
        table_game(),
        stop=max_tasks(9),
        random_state=1,
        semivalue=(SEMIVALUES["banzhaf"], SEMIVALUES["shapley"]),
    ),
)


# Shards.


def write_files(folder: Path, n_files: int = 4) -> Path:
    frame = X_MIXED.assign(y=Y_MIXED)
    target = folder / "table"
    target.mkdir()
    for number, rows in enumerate(np.array_split(np.arange(len(frame)), n_files)):
        part = pa.Table.from_pandas(frame.iloc[rows], preserve_index=False)
        pq.write_table(part, target / f"{number}.parquet", row_group_size=5)
    return target


def value_shards(folder: Path, **settings: Any) -> Any:
    data = {"X": write_table(write_files(folder)), "X_val": X_MIXED_VAL, "y_val": Y_MIXED_VAL}
    with_bins = {"random_state": 0, "ranking": bins(8), "checkpoint": folder / "run"}
    return fit("ShardedKNNValuer", data, **with_bins | settings)


SHARDED = {
    "exact": {},
    "sampled": {"sampler": SAMPLERS["permutation"], "n_passes": 3},
    "quadrature": {"sampler": cw.QuadratureSampler(12), "n_passes": 2},
    "labels, balanced": {"value_labels": True, "scoring": "balanced_neighbor_agreement"},
    "banzhaf, zero": {
        "semivalue": SEMIVALUES["banzhaf"],
        "empty": "zero",
    },
    "default bins": {"ranking": None, "scale": "std"},
}
for shard_name, shard_settings in SHARDED.items():

    @in_folder(f"shards/{shard_name}")
    def _(folder: Path, given: Any = shard_settings) -> Any:
        return arrays_of(value_shards(folder, **given))


@in_folder("shards/loaded")
def _(folder: Path) -> Any:
    value_shards(folder, **SHARDED["sampled"]).save(folder / "saved")
    return arrays_of(load(folder / "saved"))


@in_folder("shards/fitted again")
def _(folder: Path) -> Any:
    data = {"X": write_table(write_files(folder)), "X_val": X_MIXED_VAL, "y_val": Y_MIXED_VAL}
    run = {"random_state": 0, "checkpoint": folder / "run", **SHARDED["sampled"]}
    fit("ShardedKNNValuer", data, **run)
    return arrays_of(fit("ShardedKNNValuer", data, **run))


@in_folder("shards/lists and payout")
def _(folder: Path) -> Any:
    valuation = value_shards(folder, **SHARDED["sampled"])
    owners = cw.Owners(write_table(folder / "table")).assign("bank", columns=["age", "income"])
    owners = owners.assign("shop", columns=["town", "since", "code"])
    payout = split(valuation, owners, amount="1000.00")
    lists = [valuation.lowest(7), valuation.highest(7), valuation.rows().lowest(5)]
    found = {"lists": [part.values for part in lists]}
    return found | arrays_of_payout(payout)


@in_folder("memory/loaded")
def _(folder: Path) -> Any:
    valuation = knn(WIDE | {"owners": two_owners(X_WIDE)}, n_passes=3)
    valuation.save(folder / "saved")
    return arrays_of(load(folder / "saved"))


# Executors. All of them must give the bits of the serial one.

WORK = {
    "knn": lambda run, _: knn(WIDE, sampler=SAMPLERS["permutation"], n_passes=3, **run),
    "knn bins": lambda run, _: knn(MIXED, ranking=bins(8), **run),
    "monte carlo": lambda run, _: monte_carlo(stop=max_tasks(6), **run),
    "exact": lambda run, _: exact(**run),
    "out of bag": lambda run, _: fit("OutOfBagValuer", MIXED_CV, n_trees=30, random_state=0, **run),
    "shards": lambda run, folder: value_shards(folder, **SHARDED["sampled"], **run),
}
_clusters: list[Any] = []


def cluster_executor() -> Any:
    """Return an executor on a cluster of two processes that lives until the end."""
    from distributed import Client, LocalCluster

    if not _clusters:
        cluster = LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=":0",
            memory_limit=0,
            silence_logs=logging.ERROR,
        )
        _clusters.extend([Client(cluster), cluster])
    return cw.Dask(_clusters[0])


EXECUTORS: dict[str, Callable[[], Any]] = {
    "serial": cw.Serial,
    "threads": lambda: cw.Threads(2),
    "processes": lambda: cw.Processes(2),
    "dask": cluster_executor,
}
for work_name, work in WORK.items():
    for executor_name, executor in EXECUTORS.items():
        if (work_name, executor_name) == ("shards", "processes"):
            continue

        @in_folder(f"executors/{work_name}/{executor_name}")
        def _(folder: Path, work: Any = work, executor: Any = executor) -> Any:
            return arrays_of(work({"executor": executor()}, folder))


# Runs in parts. All must give the bits of the run in one.


@in_folder("runs/monte carlo/whole")
def _(folder: Path) -> Any:
    return arrays_of(monte_carlo(stop=max_tasks(9)))


@in_folder("runs/monte carlo/resumed from a folder")
def _(folder: Path) -> Any:
    for n_tasks in (4, 9):
        valuation = monte_carlo(stop=max_tasks(n_tasks), checkpoint=folder / "run")
    return arrays_of(valuation)


@in_folder("runs/knn/whole")
def _(folder: Path) -> Any:
    return arrays_of(knn(WIDE, sampler=SAMPLERS["leverage"], n_passes=3))


# Diagnostics.


def dirty() -> tuple[pd.DataFrame, np.ndarray]:
    X = X_MIXED.copy()
    wrong = np.zeros(X.shape, dtype=bool)
    X.loc[[3, 17], "income"] = [90.0, -70.0]
    X.loc[[8, 40], "town"] = "Qqq"
    wrong[[3, 17], 1] = wrong[[8, 40], 2] = True
    return X, wrong


@in_folder("diagnostics/anomaly scores")
def _(folder: Path) -> Any:
    return {
        "classes": [score_cells(dirty()[0], Y_MIXED)],
        "numbers": [score_cells(X_WIDE[:, :5], TARGET)],
    }


@in_folder("diagnostics/comparison")
def _(folder: Path) -> Any:
    repaired = X_WIDE.copy()
    repaired[:5, 0] = 0.0
    return compare_models(
        tree(), X_WIDE, Y_WIDE, X_repaired=repaired, X_test=X_WIDE_VAL,
        y_test=Y_WIDE_VAL, n_repeats=3, progress=False,
    )  # fmt: skip


@in_folder("diagnostics/explain row")
def _(folder: Path) -> Any:
    return arrays_of_explanation(cw.explain_row(knn(MIXED), 4, X=X_MIXED))


@in_folder("diagnostics/explain column")
def _(folder: Path) -> Any:
    return arrays_of_explanation(cw.explain_column(knn(MIXED), "town"))


# Payouts and reports.

POLICIES = {
    "floor": {"negative": "floor"},
    "carry": {"negative": "carry"},
    "signed": {"negative": "signed"},
    "whole units": {"unit": "1", "currency": "JPY"},
}


def payout_for(policy: Mapping[str, Any], **settings: Any) -> Any:
    owners = two_owners(X_MIXED)
    valuation = knn(MIXED | {"owners": owners}, **settings)
    return split(valuation, owners, amount="1000", **policy)


for policy_name, policy in POLICIES.items():

    @in_folder(f"payouts/{policy_name}")
    def _(folder: Path, policy: Any = policy) -> Any:
        return arrays_of_payout(payout_for(policy))


@in_folder("payouts/statement")
def _(folder: Path) -> Any:
    return of_plain(payout_for({}).statement("shop").to_dict())


# Owners are the players: of columns, of whole rows (exact and sampled), and by models.
def by_rows(n_owners: int) -> Any:
    owners = cw.Owners(X_MIXED)
    for number in range(n_owners):
        owners = owners.assign(f"party {number}", rows=slice(number, None, n_owners))
    return owners


PLAYERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "columns": (lambda: two_owners(X_MIXED), {}),
    "rows": (lambda: by_rows(3), {}),
    "rows, above the baseline": (lambda: by_rows(3), {"score": "above baseline"}),
    "rows, sampled": (lambda: by_rows(13), {"stop": max_tasks(6), "random_state": 0}),
}
for players_name, (make_owners, players_settings) in PLAYERS.items():

    @in_folder(f"payouts/players/{players_name}")
    def _(folder: Path, make: Any = make_owners, settings: Any = players_settings) -> Any:
        owners = make()
        given = settings_for(settings)
        valuer = cw.OwnerValuer(cw.KNNValuer(3), **given).fit(**MIXED, owners=owners)
        payout = split(valuer.valuation_, owners, amount="1000", game="owners", negative="floor")
        return arrays_of(valuer.valuation_) | arrays_of_payout(payout)


@in_folder("payouts/agreement")
def _(folder: Path) -> Any:
    valuer, owners = cw.OwnerValuer(cw.KNNValuer(3), random_state=0), by_rows(3)
    agreement = cw.Agreement.draft(valuer, owners, **MIXED)
    valuation = valuer.fit(**MIXED, owners=owners).valuation_
    return arrays_of_payout(agreement.split(valuation, X_MIXED, amount="1000"))


@in_folder("payouts/bundle")
def _(folder: Path) -> Any:
    payout_for({}).save(folder / "bundle")
    verdict = verify(folder / "bundle", data=MIXED, valuer=new_valuer("KNNValuer", {}))
    return {"values": [bool(verdict)], "text": [repr(verdict)]}


@in_folder("report/cells")
def _(folder: Path) -> Any:
    payout = payout_for({})
    summary = cw.report.summarize(payout.valuation, X_MIXED, Y_MIXED, owners=payout.ownership, k=9)
    return report_parts(summary)


@in_folder("report/sampled")
def _(folder: Path) -> Any:
    return report_parts(cw.report.summarize(knn(WIDE, n_passes=2), X_WIDE, Y_WIDE, k=9))


@in_folder("report/without cells")
def _(folder: Path) -> Any:
    return report_parts(cw.report.summarize(knn(MIXED), X_MIXED, Y_MIXED, cells=False))


@in_folder("report/blocks")
def _(folder: Path) -> Any:
    return report_parts(cw.report.summarize(monte_carlo(stop=max_tasks(4)), None))


def report_parts(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Parts of a report; its packed arrays are numbers."""
    rest = {name: part for name, part in summary.items() if name not in ("heatmap", "provenance")}
    return of_plain(rest) | {"heatmap": leaves(summary["heatmap"])}


# The command line.

LINES = [
    f"p{i},{20 + 3 * i % 40},{'north' if i % 3 else 'south'},{(7 * i) % 11 + (i % 2) * 9},"
    f"{'yes' if i % 2 else 'no'}"
    for i in range(24)
]
OWNERS = """
[[owners]]
name = "bank"
columns = ["age", "debt"]

[[owners]]
name = "shop"
columns = ["town"]
"""
VALUE = ["--target", "label", "--id", "name"]
COMMANDS: dict[str, list[str]] = {
    "value": ["value", "table.csv", *VALUE, "-o", "again"],
    "value val": ["value", "table.csv", *VALUE, "--val", "val.csv", "-k", "3", "-o", "val"],
    "explain row": ["explain", "values", "--row", "p3"],
    "explain column": ["explain", "values", "--column", "age"],
    "check": ["check", "table.csv", "--min-rows", "1"],
    "check fails": ["check", "table.csv", "--min-rows", "9999"],
    "info": ["info", "values"],
}
# Commands on values under an agreement, with the policy of it.
AGREED: dict[str, tuple[str, list[str]]] = {
    "split": ("", ["split", "values", "--amount", "100.00"]),
    "split carry": ('negative = "carry"', ["split", "values", "--amount", "77.77"]),
    "split cells": ('game = "cells"', ["split", "values", "--amount", "100.00"]),
}
TERMS = """
table = "table.csv"
target = "label"
id = "name"

[method]
neighbors = 3
seed = 0
"""


def command(arguments: list[str]) -> tuple[int, str]:
    try:
        runner = CliRunner(mix_stderr=False)
    except TypeError:
        # Click 8.2 keeps the two apart by itself.
        runner = CliRunner()
    result = runner.invoke(program, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def prepare(folder: Path, policy: str | None = None) -> None:
    """Value the table; under an agreement if there is a policy."""
    header = "name,age,town,debt,label"
    (folder / "table.csv").write_text("\n".join([header, *LINES, ""]))
    (folder / "val.csv").write_text("\n".join([header, *LINES[::3], ""]))
    (folder / "owners.toml").write_text(OWNERS)
    os.chdir(folder)
    if policy is None:
        command(["value", "table.csv", *VALUE, "--owners", "owners.toml", "-o", "values"])
        return
    (folder / "terms.toml").write_text(f"{TERMS}\n[policy]\n{policy}\n{OWNERS}")
    command(["agree", "terms.toml", "-o", "deal.toml"])
    command(["value", "table.csv", "--agreement", "deal.toml", "-o", "values"])


UNAGREED = {name: (None, arguments) for name, arguments in COMMANDS.items()}
for command_name, (agreed_policy, arguments) in (UNAGREED | AGREED).items():

    @in_folder(f"cli/{command_name}")
    def _(folder: Path, arguments: list[str] = arguments, policy: Any = agreed_policy) -> Any:
        prepare(folder, policy)
        code, out = command([*arguments, "--json"])
        found = {"exit code": [code], **of_plain(json.loads(out))}
        if arguments[0] == "info":
            return found
        code, out = command([*arguments, *(["--force"] if arguments[0] == "value" else [])])
        return found | {f"printed {name}": part for name, part in of_text(out).items()}


# The program.


def run_case(name: str) -> dict[str, str]:
    """Return the digest of each part of a case, or the error that ended it."""
    start = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            parts = CASES[name](Path(folder))
        # One broken case must not hide the others.
        except Exception as error:
            return {f"{name}: failed": f"{type(error).__name__}: {error}"}
        finally:
            os.chdir(start)
    return {f"{name}: {part}": digest(content) for part, content in parts.items()}


def run_all(only: str) -> tuple[dict[str, str], list[str]]:
    """Return all digests, and what is wrong with them whatever came before."""
    found: dict[str, str] = {}
    for name in CASES:
        if not fnmatch.fnmatch(name, only):
            continue
        began = time.perf_counter()
        found |= run_case(name)
        if (seconds := time.perf_counter() - began) > 3:
            print(f"{seconds:5.1f} s  {name}", file=sys.stderr)
    wrong = [f"{name}: {entry}" for name, entry in found.items() if name.endswith(": failed")]
    return found, wrong + list(unequal(found))


def unequal(found: Mapping[str, str]) -> Iterator[str]:
    """Name the executors and partial runs that do not give the bits of the reference."""
    for name, entry in found.items():
        group, _, rest = name.rpartition("/")
        variant, _, part = rest.partition(": ")
        reference = {"executors": "serial", "runs": "whole"}.get(name.partition("/")[0])
        expected = found.get(f"{group}/{reference}: {part}", entry)
        if reference is not None and entry != expected:
            yield f"{group}: {variant} differs from {reference} in {part}"


def differences(before: Mapping[str, str], now: Mapping[str, str], only: str) -> Iterator[str]:
    """Name every part that changed, went or came."""
    old = {n: d for n, d in before.items() if fnmatch.fnmatch(n.rpartition(": ")[0], only)}
    for name in sorted(old.keys() | now.keys()):
        if name not in now:
            yield f"gone     {name}"
        elif name not in old:
            yield f"new      {name}"
        elif old[name] != now[name]:
            yield f"changed  {name}"


def main() -> int:
    """Record or compare, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the digests")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="list what differs")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="cases, such as 'knn/*'")
    options = parser.parse_args()
    try:
        found, wrong = run_all(options.only)
    finally:
        for part in _clusters:
            part.close()
    if options.record is not None:
        options.record.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    if options.compare is not None:
        before = json.loads(options.compare.read_text())
        wrong += differences(before, found, options.only)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print(f"{len(found)} digests, {len(wrong)} differences")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
