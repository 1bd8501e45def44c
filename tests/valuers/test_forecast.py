"""What a run will do and how long it takes, said before its first task."""

import math
import re

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.naive_bayes import GaussianNB

from cellworth import (
    KNNValuer,
    ModelValuer,
    Runtime,
    ShardedKNNValuer,
    ShardedTable,
)
from cellworth.knn import BinnedRanks
from cellworth.runtime import (
    MaxSeconds,
    MaxTasks,
    MaxUtilities,
    Serial,
    TargetStandardError,
    Threads,
)
from cellworth.sampling import GaussianProcess, PermutationSampler
from experiments import mixture
from experiments.baselines import LeverageSampler
from matrices import rarely

X, Y = load_iris(return_X_y=True)
DATA = {"X": X, "y": Y, "X_val": X, "y_val": Y, "row_groups": np.arange(150) % 6}


class EndedError(Exception):
    pass


def forecast(valuer, *data, **more):
    """Return the forecast of a run that ends there."""
    found = []

    def end(forecast):
        found.append(forecast)
        raise EndedError

    with pytest.raises(EndedError):
        valuer.set_params(runtime=Runtime(Serial(), on_start=end)).fit(*data, **more)
    assert not hasattr(valuer, "valuation_")
    return found[0]


def table(n_rows, n_columns):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, n_columns))
    return X, (X[:, 0] > 0).astype(int)


def test_all_coalitions_are_counted_as_the_run_counts_them():
    X, y = table(40, 4)
    found = forecast(KNNValuer(3), X, y)
    tally = KNNValuer(3).fit(X, y).valuation_.provenance.tally
    assert found.utilities == tally.utilities == 40 * 15
    assert (found.sampler, found.shape) == ("ExhaustiveSampler", (40, 4))
    assert str(found).startswith("40 x 4 cells, 40 validation rows, at most 600 utilities, about ")


def test_passes_multiply_utilities_and_time():
    X, y = table(60, 6)
    asked = {"sampler": LeverageSampler(20), "random_state": 0}
    one, three = (forecast(KNNValuer(3, n_passes=n, **asked), X, y) for n in (1, 3))
    tally = KNNValuer(3, n_passes=3, **asked).fit(X, y).valuation_.provenance.tally
    # A draw may hold a coalition more than was asked for.
    assert three.utilities == pytest.approx(tally.utilities, rel=0.1)
    assert three.seconds == pytest.approx(3 * one.seconds)


def test_a_rule_limits_the_time_of_nearest_neighbors():
    X, y = table(60, 6)
    by_rule = {"sampler": LeverageSampler(20), "random_state": 0}
    one = forecast(KNNValuer(3, n_passes=1, **by_rule), X, y)
    timed = forecast(KNNValuer(3, stop=MaxSeconds(7), **by_rule), X, y)
    assert (timed.utilities, timed.seconds) == (math.inf, 7)
    half = forecast(KNNValuer(3, stop=MaxUtilities(int(one.utilities) // 2), **by_rule), X, y)
    assert half.seconds == pytest.approx(one.seconds / 2)
    # A rule on errors is mostly met after one pass.
    precise = forecast(KNNValuer(3, stop=TargetStandardError(0.1), **by_rule), X, y)
    assert precise.seconds == one.seconds


@pytest.mark.parametrize(
    ("valuer", "sampler", "utilities"),
    [
        (
            ModelValuer(GaussianNB(), stop=MaxUtilities(63 * 15 - 1)),
            "gaussian process", 63 * 15 - 1,
        ),
        # 128 utilities for each of 24 blocks cover all coalitions.
        (ModelValuer(GaussianNB()), "antithetic permutations", 63 * 15),
        (
            ModelValuer(GaussianNB(), estimator=GaussianProcess(), stop=MaxUtilities(10**6)),
            "gaussian process", 63 * 15,
        ),
        (ModelValuer(GaussianNB(), stop=MaxTasks(10)), "antithetic permutations", 700),
        (ModelValuer(GaussianNB(), estimator="exact"), "exact values", 63 * 15),
    ],
)  # fmt: skip
def test_a_model_is_fitted_at_most_so_often(valuer, sampler, utilities):
    found = forecast(valuer, **DATA)
    assert (found.sampler, found.shape) == (sampler, (6, 4))
    assert found.utilities == utilities
    assert 1e-5 * utilities < found.core_seconds < utilities


def test_a_deadline_is_the_time_and_without_an_end_there_is_none():
    timed = forecast(ModelValuer(GaussianNB(), stop=MaxSeconds(90)), **DATA)
    assert str(timed) == "6 x 4 blocks, any number of fits, about 1.5 min on one core"
    endless = forecast(ModelValuer(GaussianNB(), stop=TargetStandardError(0.1)), **DATA)
    assert str(endless).endswith("any number of fits, until its stopping rule is met")
    assert timed.is_long
    assert not endless.is_long


@pytest.mark.slow
@pytest.mark.parametrize("n_passes", [2, *rarely(1)])
def test_rounds_over_shards_need_so_much_disk(tmp_path, monkeypatch, n_passes):
    monkeypatch.setattr(mixture, "CHUNK", 20_000)
    folder = mixture.write(tmp_path / "rows", 4000, 8, rows_per_group=250)
    X_val, y_val = mixture.queries(48)
    rows = ShardedTable.from_files(folder, target="label", shards=8)
    found = []
    runtime = Runtime(Threads(2), checkpoint=tmp_path / "run", on_start=found.append)
    ShardedKNNValuer(
        sampler=PermutationSampler(1), ranking=BinnedRanks(100), n_passes=n_passes, random_state=0,
        runtime=runtime,
    ).fit(rows, X_val=X_val, y_val=y_val)  # fmt: skip
    size = sum(path.stat().st_size for path in (tmp_path / "run").rglob("*") if path.is_file())
    expected = float(re.search(r"8 shards, .* per worker, ([\d.]+) MB of disk", found[0].size)[1])
    assert size / 1e6 == pytest.approx(expected, rel=0.2)
