"""Bits do not change unless ALGORITHM_VERSION does.

After a change of bits that is meant, raise ALGORITHM_VERSION in provenance.py and record:

    python tests/test_algorithm_version.py

Draws of coalitions are compared by digest, everywhere. Figures are compared to the bit where NumPy,
SciPy, Numba and the processor's vector units are those of the record. Elsewhere BLAS, the C library
and the order of vectorized sums may differ in the last digits, and a tight tolerance holds.
"""

import hashlib
import importlib.metadata
import json
import platform
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from threadpoolctl import threadpool_info

from cellworth import KNNValuer, Runtime, ShardedKNNValuer, ShardedTable, value_game
from cellworth.games import TableGame
from cellworth.knn import BinnedRanks
from cellworth.runtime import MaxTasks, MaxUtilities, Serial
from cellworth.sampling import (
    AntitheticPermutations,
    Banzhaf,
    Beta,
    ExhaustiveSampler,
    GaussianProcess,
    LeaveOneOut,
    PermutationSampler,
    QuadratureSampler,
    Shapley,
)
from cellworth.sampling.estimators import choose_estimator
from cellworth.sampling.semivalues import coalition_weights
from cellworth.valuation.provenance import ALGORITHM_VERSION
from cellworth.valuers.out_of_bag import Bags
from experiments.baselines import LeverageSampler, PlainPermutations
from fit_settings import split_settings

# All kernels are compiled for this, where that was not done before.
pytestmark = pytest.mark.timeout(600)

RECORD = Path(__file__).parent / "algorithm_digests.json"
PACKAGES = ("numpy", "scipy", "numba", "scikit-learn")
# Cases are named apart from classes: a new name is no new version.
SEMIVALUES = {
    "Shapley": Shapley(),
    "Banzhaf": Banzhaf(),
    "Beta": Beta(4, 1),
    "leave one out": LeaveOneOut(),
}
SAMPLERS = {
    "exhaustive": ExhaustiveSampler(),
    "leverage": LeverageSampler(30),
    "quadrature": QuadratureSampler(30),
    "permutation": PermutationSampler(4),
}
ESTIMATORS = {
    "antithetic": AntitheticPermutations(),
    "plain": PlainPermutations(),
    "Gaussian process": GaussianProcess(),
}
# The kernel of a Gaussian process is found by an optimizer, which stops near the best one.
TOLERANCES = {"Gaussian process, values": 1e-6}
TOLERANCE = 1e-11


def draws():
    """Arrays of whole numbers and truth values, by case: which coalitions, orders and bags."""
    for (name, sampler), n_players in product(SAMPLERS.items(), (5, 9)):
        drawn = sampler.draw(n_players, Shapley(), np.random.default_rng(n_players))
        yield f"{name}, {n_players} players", [drawn.members]
    drawn = PermutationSampler(3).draw(6, Banzhaf(), np.random.default_rng(0))
    yield "permutation, Banzhaf", [drawn.members]
    for name, estimator in ESTIMATORS.items():
        yield f"{name}, tasks", coalitions_of(estimator, (Shapley(), Shapley()))
    for name, semivalue in SEMIVALUES.items():
        pair = (semivalue, semivalue)
        yield f"{name}, tasks", coalitions_of(choose_estimator(None, pair), pair)
    for n_rows, seed in ((7, 0), (20, 5)):
        bags = Bags(n_rows=n_rows, n_columns=6, n_used=3, n_trees=13, seed=seed)
        found = [bag for task in range(bags.n_tasks) for bag in bags(task)]
        arrays = [part for bag in found for part in map(np.array, bag)]
        yield f"bags of {n_rows} rows", arrays


def coalitions_of(estimator, semivalues):
    sampler = estimator.make_sampler((5, 4), semivalues, seed=3)
    pairs = [pair for task in range(4) for pair in sampler(task)]
    return [np.array(side) for side in zip(*pairs, strict=True)]


def weights():
    """Floats by case: what semivalues and samplers weigh coalitions by."""
    for name, semivalue in SEMIVALUES.items():
        by_size = [semivalue.size_probabilities(n_players) for n_players in (6, 8, 11)]
        yield f"{name}, sizes", [*by_size, coalition_weights(semivalue, 10)]
    for name, sampler in SAMPLERS.items():
        drawn = sampler.draw(6, Shapley(), np.random.default_rng(7))
        yield f"{name}, weights", [drawn.weights[::5], drawn.nothing]


def game():
    sizes = np.add.outer(np.arange(16.0), np.arange(8.0))
    return TableGame(np.sqrt(sizes) + np.random.default_rng(7).random((16, 8)))


def estimates():
    """Values of a small game by every estimator, and of exact runs."""
    quiet = {"runtime": Runtime(Serial(), progress=False)}
    for name, semivalue in SEMIVALUES.items():
        both = {"semivalue": semivalue, **quiet}
        yield f"{name}, exact", value_game(game(), estimator="exact", **both)
        run = {"stop": MaxTasks(6), "random_state": 2}
        yield f"{name}, sampled", value_game(game(), **run, **both)
    for name, estimator in ESTIMATORS.items():
        run = {"estimator": estimator, "stop": MaxUtilities(90), "random_state": 2}
        yield f"{name}, values", value_game(game(), **run, **quiet)


def table(n_rows, seed):
    """Numbers, strings and missing values, with classes."""
    rng = np.random.default_rng(seed)
    numbers = np.round(rng.normal(size=(n_rows, 3)), 2)
    y = np.where(numbers[:, 0] + rng.normal(0, 0.4, n_rows) > 0, "b", "a")
    missing = rng.random(n_rows) < 0.2
    columns = {name: pa.array(numbers[:, j]) for j, name in enumerate("uv")}
    columns["w"] = pa.array(numbers[:, 2], mask=missing)
    columns["town"] = pa.array(rng.choice(["Ulm", "Kiel", "Bonn"], n_rows), mask=missing[::-1])
    return pa.table(columns), y


KNN = {
    "exact ranks": {},
    "balanced": {"scoring": "balanced_neighbor_agreement", "empty": "zero"},
    "labels": {"value_labels": True, "scale": "std"},
    "bins": {"ranking": BinnedRanks(4)},
    "bins, labels": {"ranking": BinnedRanks(4), "value_labels": True, "scale": None},
    "Banzhaf": {"semivalue": Banzhaf()},
    "Beta in bins": {"semivalue": (Beta(4, 1), None), "ranking": BinnedRanks(4)},
    "sampled": {"sampler": PermutationSampler(1), "n_passes": 3},
    "leverage": {"sampler": LeverageSampler(12), "n_passes": 2},
    "cross-validation": {"cv": 3},
}
SHARDED = {
    "sampled": {"sampler": PermutationSampler(1), "n_passes": 3},
    "labels": {"value_labels": True, "empty": "zero"},
}


def neighbors(folder):
    """Values for nearest neighbors: all kernels, in memory and over shards."""
    (X, y), (X_val, y_val) = table(12, 0), table(7, 1)
    given = {"X_val": X_val, "y_val": y_val}
    runtime = Runtime(Serial(), progress=False)
    quiet = {"n_neighbors": 3, "random_state": 0, "runtime": runtime}
    for name, settings in KNN.items():
        of_valuer, of_fit = split_settings(settings)
        data = of_fit if "cv" in settings else given | of_fit
        yield f"knn, {name}", KNNValuer(**quiet | of_valuer).fit(X, y, **data).valuation_
    target = {"y": np.linspace(0, 2, 12) ** 2, "X_val": X_val, "y_val": np.linspace(0, 3, 7)}
    yield "knn, numeric target", KNNValuer(**quiet).fit(X, **target).valuation_
    binned = KNNValuer(ranking=BinnedRanks(4), **quiet)
    yield "knn, numeric target in bins", binned.fit(X, **target).valuation_
    wide = np.random.default_rng(3).normal(size=(12, 22))
    yield "knn, many columns", KNNValuer(**quiet).fit(wide, y, cv=3).valuation_
    some = KNNValuer(stop=MaxTasks(7), **quiet)
    with pytest.warns(UserWarning, match="interrupted"):
        yield "knn, interrupted", some.fit(wide, y, cv=3, n_validation=10).valuation_
    for number in range(3):
        rows = X.append_column("y", pa.array(y)).slice(4 * number, 4)
        pq.write_table(rows, folder / f"{number}.parquet")
    shards = ShardedTable.from_files(folder, target="y")
    for name, settings in SHARDED.items():
        of_valuer, of_fit = split_settings(settings)
        valuer = ShardedKNNValuer(**quiet | {"ranking": BinnedRanks(4)} | of_valuer)
        yield f"knn over shards, {name}", valuer.fit(shards, **given, **of_fit).valuation_


def figures(folder):
    """Lists of floats, by case."""
    for name, arrays in weights():
        yield name, arrays
    for valuations in (estimates(), neighbors(folder)):
        for name, valuation in valuations:
            errors = (valuation.sampling_se, valuation.validation_se)
            known = [valuation.values, *(array for array in errors if array is not None)]
            yield name, [*known, valuation.rows().values, valuation.columns().sampling_se]


def digest(arrays):
    found = hashlib.sha256()
    for array in arrays:
        found.update(repr(array.shape).encode() + array.astype("<i8").tobytes())
    return found.hexdigest()


def flat(arrays):
    numbers = np.concatenate([np.ravel(array) for array in arrays]).astype(np.float64)
    # NaN has many bit patterns.
    return np.where(np.isnan(numbers), np.nan, numbers).tolist()


def machine():
    """All that the last digits of a float may depend on."""
    config = np.show_config(mode="dicts")
    return {
        "machine": platform.machine(),
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
        "vector units": config["SIMD Extensions"].get("found", []),
        "BLAS": sorted({str(found.get("architecture")) for found in threadpool_info()}),
    }


def computed(folder):
    return {
        "draws": {name: digest(arrays) for name, arrays in draws()},
        "figures": {name: flat(arrays) for name, arrays in figures(folder)},
    }


@pytest.fixture(scope="module")
def recorded():
    record = json.loads(RECORD.read_text())
    assert str(ALGORITHM_VERSION) in record, (
        f"no digests for ALGORITHM_VERSION {ALGORITHM_VERSION}; run python {RECORD.parent.name}/"
        f"{Path(__file__).name}"
    )
    return record[str(ALGORITHM_VERSION)]


@pytest.fixture(scope="module")
def now(tmp_path_factory):
    return computed(tmp_path_factory.mktemp("shards"))


def changed(names):
    return (
        f"bits of {', '.join(names)} have changed; undo that, or raise ALGORITHM_VERSION and run "
        f"python tests/{Path(__file__).name}"
    )


@pytest.mark.filterwarnings("ignore::cellworth.DataWarning")
def test_draws_change_only_with_the_algorithm_version(recorded, now):
    assert now["draws"].keys() == recorded["draws"].keys()
    wrong = [name for name, told in now["draws"].items() if told != recorded["draws"][name]]
    assert not wrong, changed(wrong)


@pytest.mark.filterwarnings("ignore::cellworth.DataWarning")
def test_figures_change_only_with_the_algorithm_version(recorded, now):
    assert now["figures"].keys() == recorded["figures"].keys()
    to_the_bit = recorded["machine"] == machine()
    wrong = [
        name
        for name, told in now["figures"].items()
        if not same(told, recorded["figures"][name], 0.0 if to_the_bit else tolerance(name))
    ]
    assert not wrong, changed(wrong)


def tolerance(name):
    return next((loose for part, loose in TOLERANCES.items() if part in name), TOLERANCE)


def same(now, before, tolerance):
    if len(now) != len(before):
        return False
    one, other = np.array(now), np.array(before)
    if tolerance == 0.0:
        return one.tobytes() == other.tobytes()
    scale = np.abs(np.nan_to_num(other)).max()
    return np.allclose(one, other, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def main():
    """Record the bits of a new ALGORITHM_VERSION; those of a recorded one stay as they are."""
    import tempfile
    import warnings

    warnings.simplefilter("ignore")
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    if str(ALGORITHM_VERSION) in record:
        raise SystemExit(f"{RECORD.name} has version {ALGORITHM_VERSION}; raise it first.")
    with tempfile.TemporaryDirectory() as folder:
        found = {"machine": machine(), **computed(Path(folder))}
    # Only the present version can be compared.
    RECORD.write_text(json.dumps({str(ALGORITHM_VERSION): found}) + "\n")


if __name__ == "__main__":
    main()
