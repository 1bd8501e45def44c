"""Small versions of the benchmarks: what the docs claim of work and accuracy, at a size for CI."""

import time
import tracemalloc
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB

import compare
import memory
from cellworth import KNNValuer, Runtime, value_game
from cellworth.games import ModelGame, TableGame
from cellworth.knn import BinnedRanks
from cellworth.runtime import DirectoryCheckpoint, MaxUtilities, Processes, Serial, Threads
from cellworth.sampling import (
    AntitheticPermutations,
    GaussianProcess,
)
from enumeration import tabulate
from experiments import overhead, paper, scale
from experiments.baselines import PlainPermutations

DATA = Path(__file__).parents[2] / "shared" / "data"
with_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"the data sets are not in {DATA}")


def measure_until(limit, measure):
    """Measure up to four times, until it is below a limit: other programs disturb some."""
    for _ in range(4):
        found = measure()
        if found < limit:
            break
    return found


@pytest.mark.parametrize("empty", ["zero", "prior"])
def test_the_papers_algorithm_is_written_down_rightly(empty):
    rng = np.random.default_rng(0)
    X, X_val = rng.normal(size=(12, 3)), rng.normal(size=(5, 3))
    y, y_val = np.arange(12) % 2, np.array([0, 1, 0, 1, 1])
    orders = [np.array(order) for order in permutations(range(3))]
    given = {"n_neighbors": 3, "orders": orders}
    if empty == "prior":
        given["nothing"] = paper.values_of_ties(y, y_val, n_neighbors=3)
    by_order = paper.many_permutations(X, y, X_val, y_val, **given)
    # Numbers without ties, so that any order of the sort is right.
    ours = KNNValuer(3, scale=None, empty=empty).fit(X, y, X_val=X_val, y_val=y_val)
    np.testing.assert_allclose(ours.values_, by_order.mean(axis=0), atol=1e-8)
    if empty == "zero":
        one_by_one = [
            paper.one_permutation(X, y, X_val, y_val, n_neighbors=3, order=order)
            for order in orders
        ]
        np.testing.assert_allclose(one_by_one, by_order, atol=1e-12)


@pytest.mark.nightly
@with_data
def test_rank_bins_agree_with_exact_ranking_on_the_census():
    census, _ = scale.compare_all_bins(DATA, n_queries=60)
    assert float(census["Spearman correlation"]) >= 0.995
    assert census["relative RMS error, %"] <= 3
    assert census["lowest 1% in common, %"] >= 99
    assert float(census["difference of totals"]) <= 1e-12
    assert BinnedRanks().nearest == 1000


@pytest.fixture(scope="module")
def wine_game():
    """6 x 5 blocks of wine with naive Bayes, all utilities written out."""
    X, y = load_wine(return_X_y=True)
    X, X_val, y, y_val = train_test_split(X, y, test_size=0.4, stratify=y, random_state=0)
    groups = {"row_groups": np.arange(len(X)) % 6, "column_groups": np.arange(13) % 5}
    return TableGame(tabulate(ModelGame(GaussianNB(), X, y, X_val, y_val, **groups), (6, 5)))


def left_unexplained(game, estimator, budget):
    """Median over seeds of the squared error, as a share of that of equal shares."""
    exact = value_game(game, estimator="exact").values
    given = {"estimator": estimator, "stop": MaxUtilities(budget)}
    runs = [
        value_game(game, random_state=seed, runtime=Runtime(progress=False), **given).values
        for seed in range(5)
    ]
    return np.median([np.mean((each - exact) ** 2) for each in runs]) / np.var(exact)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")  # Some budgets are below one task.
@pytest.mark.parametrize("budget", [50, 800])
def test_a_short_run_is_no_worse_than_equal_shares(wine_game, budget):
    assert left_unexplained(wine_game, None, budget) <= 1 + 1e-12


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_a_gaussian_process_needs_far_fewer_fits_than_permutations(wine_game):
    process = left_unexplained(wine_game, GaussianProcess(), 500)
    assert process < 0.1
    assert process < 0.4 * left_unexplained(wine_game, AntitheticPermutations(), 500)
    assert left_unexplained(wine_game, PlainPermutations(), 500) > 1


@pytest.mark.alone
@pytest.mark.parametrize(
    ("job", "executor", "most"),
    [(overhead.Neighbours, Threads(2), 1.25), (overhead.Fits, Processes(2), 1.5)],
    ids=["threads", "processes"],
)
def test_the_machinery_costs_little_beside_the_work(job, executor, most):
    work = job()
    overhead.spend_on_fit(work, executor)

    def compare():
        # A fraction of the work of the benchmark: what is paid once weighs many times as much.
        return overhead.compare(work, {"ours": executor}, seconds=4.0, rounds=3)["ours"]

    assert measure_until(most, compare) < most


@pytest.mark.alone
@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_large_answers_do_not_pile_up(with_checkpoint, tmp_path):
    checkpoint = DirectoryCheckpoint(tmp_path) if with_checkpoint else None
    # Processes are started and modules loaded before.
    memory.times_the_result(Processes(4), 2_000_000)
    assert memory.times_the_result(Processes(4), 60_000_000, checkpoint) <= 4.0


@pytest.mark.alone
def test_a_fit_in_memory_holds_few_arrays_as_large_as_its_values():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 20))
    y = (X[:, 0] + rng.normal(size=len(X)) > 0).astype(int)
    valuer = KNNValuer(n_passes=1, random_state=0, runtime=Runtime(Serial(), progress=False))
    data = {"X_val": X[:24], "y_val": y[:24]}
    valuer.fit(X[:500], y[:500], **data)  # kernels are compiled
    tracemalloc.start()
    try:
        values = valuer.fit(X, y, **data).valuation_.moments.mean
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The sums of a pass and of a task, four arrays each, with three milestones and the buffers of
    # kernels.
    assert most < 27 * values.nbytes


def sort_nanoseconds():
    """Return the CPU time of sorting, per number: how fast this machine is just now."""
    numbers, times = np.random.default_rng(0).random(1_000_000), []
    for _ in range(5):
        began = time.thread_time()
        np.argsort(numbers, kind="stable")
        times.append(time.thread_time() - began)
    return min(times) / len(numbers) * 1e9


@pytest.mark.alone
def test_shards_are_valued_fast_and_in_little_memory():
    def measure():
        found = scale.measure_shards(200_000, 16, limit=2.0)
        assert found["MB"] < 400
        assert found["residual"] < 1e-10
        # Measured beside a sort, because machines differ in speed by factors of three.
        return found["ns per row and coalition"] / sort_nanoseconds()

    assert measure_until(2, measure) < 2


@pytest.mark.nightly
def test_all_pieces_of_the_speed_comparison_run(capsys):
    assert set(compare.measure(list(compare.PIECES), turns=1)) == set(compare.PIECES)
    assert capsys.readouterr().err == ""
