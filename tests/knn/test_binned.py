"""Binned ranks: sums and near rows are exact, shards merge, ties stay in one bin."""

from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
from scipy.stats import spearmanr

from cellworth import KNNValuer
from cellworth.knn import BinnedRanks, KNNGame, binned, binned_kernels, memory_tasks
from cellworth.knn.binned import Shard, Summary, sample_positions
from cellworth.knn.exact import choose_chances
from cellworth.knn.knn_game import compute_expected_error, compute_expected_matches
from cellworth.knn.memory_tasks import QueryTasks
from cellworth.knn.tasks import TaskSchedule, WeightedQueries
from cellworth.sampling import Banzhaf, Beta, ExhaustiveSampler, PermutationSampler, Shapley
from cellworth.sampling.passes import UNITS
from enumeration import line_values
from experiments.baselines import LeverageSampler
from fit_settings import split_settings


def problem(n_rows=4000, n_queries=30, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows + n_queries, 5))
    X[:, 3] = np.round(X[:, 3])
    X[rng.random(X.shape) < 0.02] = np.nan
    y = np.where(np.nan_to_num(X[:, 0] + X[:, 1]) + rng.normal(size=len(X)) > 0, "yes", "no")
    return X[:n_rows], y[:n_rows], X[n_rows:], y[n_rows:]


def numeric(n_rows=4000, seed=0, *, spread=1.0):
    """The same table with a numeric target far from 0."""
    X, _, X_val, _ = problem(n_rows, seed=seed)
    rng = np.random.default_rng(seed)
    y, y_val = (np.nan_to_num(x[:, 0] + x[:, 1]) + rng.normal(size=len(x)) for x in (X, X_val))
    return X, spread * (100 + y), X_val, spread * (100 + y_val)


def fit(given, **settings):
    X, y, X_val, y_val = given
    of_valuer, of_fit = split_settings(settings)
    valuer = KNNValuer(10, n_passes=1, random_state=0, **of_valuer)
    return valuer.fit(X, y, X_val=X_val, y_val=y_val, **of_fit).valuation_


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"sampler": PermutationSampler(1)},
        {"sampler": LeverageSampler(24), "value_labels": True},
        {"sampler": PermutationSampler(1), "semivalue": (Banzhaf(), None)},
    ],
    ids=str,
)
def test_values_are_close_to_those_of_exact_ranking(settings):
    exact, binned = (
        fit(problem(), ranking=ranking, **settings) for ranking in (None, BinnedRanks(200, 0.02))
    )
    one, other = exact.values.ravel(), binned.values.ravel()
    assert spearmanr(one, other)[0] > 0.99
    assert np.sqrt(np.mean((one - other) ** 2)) < 0.03 * one.std()
    assert binned.total == pytest.approx(exact.total, abs=1e-12)
    assert exact.provenance.problem_spec["ranking"] != binned.provenance.problem_spec["ranking"]


@pytest.mark.parametrize("empty", ["prior", "zero"])
def test_sums_stay_exact(empty):
    valuation = fit(
        problem(), ranking=BinnedRanks(50, 0.5), empty=empty, sampler=PermutationSampler(2)
    )
    assert abs(valuation.efficiency_residual) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize(("n_rows", "nearest"), [(5, 1), (8, 1), (100, 80), (500, 300)])
def test_if_most_rows_are_among_the_nearest_all_are_ranked_exactly(n_rows, nearest):
    X = problem(n_rows)[0]
    exact, binned = (
        KNNValuer(1, ranking=ranking).fit(X, np.arange(n_rows) % 2, cv=2)
        for ranking in (None, BinnedRanks(nearest))
    )
    # Fixed-point units are finer than this tolerance.
    np.testing.assert_allclose(binned.values_, exact.values_, rtol=0, atol=1e-15)


KEPT = {
    "one order": {"sampler": PermutationSampler(1)},
    "labels": {"sampler": PermutationSampler(1), "value_labels": True},
    "zero": {"sampler": PermutationSampler(2), "empty": "zero"},
    "Banzhaf": {"sampler": PermutationSampler(2), "semivalue": Banzhaf()},
    "groups": {"sampler": PermutationSampler(1), "column_groups": [0, 1, 1, 2, 0]},
}


@pytest.mark.parametrize("settings", KEPT.values(), ids=KEPT)
def test_what_is_kept_of_rows_changes_no_bit(settings, monkeypatch):
    X, y, X_val, y_val = problem(2000)
    y[::7] = "odd"
    given = X, y, np.vstack([X_val, X[:3]]), np.append(y_val, ["odd", "yes", "no"])
    kept = fit(given, ranking=BinnedRanks(50), **settings)
    for most in (20_000, 0):
        monkeypatch.setattr(memory_tasks, "_MAX_KEPT", most)
        other = fit(given, ranking=BinnedRanks(50), **settings)
        for name in ("values", "validation_se", "total"):
            assert np.array_equal(getattr(kept, name), getattr(other, name)), name


def heavy_ties(n_rows=20_000):
    """Return data in which a third of the rows tie at the smallest distance."""
    rng = np.random.default_rng(5)
    X = np.where(rng.random(n_rows) < 0.3, 0.0, rng.gamma(2, size=n_rows))[:, None]
    return X, (X[:, 0] > 0).astype(int), np.full((4, 1), -0.5), np.array([0, 1, 0, 0])


@pytest.mark.parametrize(
    ("given", "n_neighbors", "bins"),
    [(heavy_ties(), 5, BinnedRanks()), (problem(3000), 300, BinnedRanks(10))],
    ids=["ties at the nearest distance", "more neighbours than nearest rows"],
)
def test_sums_equal_those_of_exact_ranking(given, n_neighbors, bins):
    X, y, X_val, y_val = given
    exact, binned = (
        KNNValuer(
            n_neighbors, ranking=ranking, sampler=PermutationSampler(1), n_passes=1, random_state=0
        )
        .fit(X, y, X_val=X_val, y_val=y_val)
        .valuation_
        for ranking in (None, bins)
    )
    assert binned.total == pytest.approx(exact.total, abs=1e-12)
    scale = exact.values.std()
    assert np.sqrt(np.mean((exact.values - binned.values) ** 2)) < 0.03 * scale


def column_sums(game):
    """Return column sums by definition: Shapley values of columns with all rows."""
    distances = game.distances
    coalitions = ExhaustiveSampler().draw(3, Shapley(), np.random.default_rng(0))
    sums = np.zeros(3)
    for query, (label, count) in enumerate(
        zip(game.query_labels[0], game.query_weights[0], strict=True)
    ):
        measured, match = distances.measure(0, query), game.labels == label
        for members, weights in zip(coalitions.members, coalitions.weights, strict=True):
            found = compute_expected_matches(measured[members].sum(axis=0), match, game.n_neighbors)
            sums += weights * count * found / game.n_neighbors
        sums += coalitions.nothing * count * match.mean()
    return sums


@pytest.mark.parametrize("factor", [1, 1000, 1e6])
@pytest.mark.parametrize("tail", [1.0, 3.0])
def test_sums_of_columns_are_exact_however_far_a_query_is(factor, tail):
    rng = np.random.default_rng(0)
    X = np.exp(tail * rng.normal(size=(6000, 3)))
    y = (X[:, 0] > 1).astype(int)
    X_val = np.exp(tail * rng.normal(size=(6, 3))) * [1, factor, 1]
    given = X, y, X_val, (X_val[:, 0] > 1).astype(int)
    valuation = fit(given, ranking=BinnedRanks(200), sampler=ExhaustiveSampler())
    expected = column_sums(KNNGame(*given, n_neighbors=10))
    np.testing.assert_allclose(valuation.columns().values, expected, atol=1e-12)


def test_duplicate_rows_get_equal_values():
    X, y, X_val, y_val = problem(1500)
    doubled = np.vstack([X, X]), np.concatenate([y, y]), X_val, y_val
    values = fit(doubled, ranking=BinnedRanks(100, 0.1), sampler=PermutationSampler(1)).values
    np.testing.assert_allclose(values[:1500], values[1500:], rtol=0, atol=1e-15)


def make_round(given, bins):
    """Return a ranker, the rows of a table as one shard, and a round of five queries."""
    game = KNNGame(*given, n_neighbors=10)
    queries = WeightedQueries.weigh(game.distances.queries, game.query_labels, game.scoring)
    schedule = TaskSchedule(
        queries, (len(game.labels), game.shape[1]), sampler=PermutationSampler(1),
        column_semivalue=Shapley(), with_label=False, empty=game.empty, seed=0,
    )  # fmt: skip
    ranker, shard = QueryTasks(game, schedule, Shapley(), bins)._ranker(0)
    task = schedule(0)
    (piece,) = task.part
    prepared = schedule.prepare(piece, task, schedule.orders(task), ranker)
    return game, ranker, shard, prepared


def shards(game, parts):
    """Divide rows into shards by position."""
    found = []
    for positions in parts:
        shard = Shard.by_class(game.distances.rows.take(positions), game.labels[positions], 2)
        found.append(replace(shard, positions=positions[shard.positions]))
    return found


def run_round(ranker, some, prepared):
    """Return fixed-point values of all cells from a round over shards, sums and utilities."""
    summaries = [ranker.count(number, shard, prepared) for number, shard in enumerate(some)]
    summary = reduce(Summary.merge, summaries[::-1])
    far, near, sums, utilities = ranker.finalize(prepared.batch, summary)
    n_results = prepared.drawn.weights.shape[1]
    cells = np.zeros((n_results, ranker.n_rows), dtype=np.int64)
    for number, shard in enumerate(some):
        into = np.zeros((n_results, shard.n_rows), dtype=np.int64)
        ranker.accumulate(shard, prepared, far, near[number], into=into)
        cells[:, shard.positions] = into
    return cells, sums, utilities


@pytest.mark.parametrize("n_shards", [1, 3, 7, 16])
def test_shards_give_the_same_bits_as_one_table(n_shards):
    game, ranker, shard, prepared = make_round(problem(), BinnedRanks(100, 0.05))
    truth, sums, utilities = run_round(ranker, [shard], prepared)
    shuffled = np.random.default_rng(1).permutation(4000)
    some = shards(game, np.array_split(shuffled, n_shards))
    found = run_round(ranker, some, prepared)
    for ours, expected in zip(found, (truth, sums, utilities), strict=True):
        assert np.array_equal(ours, expected)
    total = prepared.batch.weights @ (prepared.batch.of_full_table(utilities) - prepared.bases)
    assert truth.sum() / UNITS == pytest.approx(total, abs=1e-13)
    # Shapley values of rows add up to the utility of all rows.
    np.testing.assert_allclose(sums, utilities, atol=1e-13)


def test_float32_numbers_give_the_same_bits():
    X, y, X_val, y_val = problem()
    given = X.astype(np.float32).astype(float), y, X_val, y_val
    _, ranker, shard, prepared = make_round(given, BinnedRanks(100, 0.05))
    rows = shard.rows._replace(numbers=shard.rows.numbers.astype(np.float32))
    single = run_round(ranker, [replace(shard, rows=rows)], prepared)[0]
    assert np.array_equal(single, run_round(ranker, [shard], prepared)[0])


def test_the_capacity_for_nearest_rows_grows_if_necessary(monkeypatch):
    given = problem()
    values = fit(given, ranking=BinnedRanks(100), sampler=PermutationSampler(1)).values
    monkeypatch.setattr(binned, "_CAPACITY", 0)
    monkeypatch.setattr(binned, "_MIN_CAPACITY", 3)
    assert np.array_equal(
        fit(given, ranking=BinnedRanks(100), sampler=PermutationSampler(1)).values, values
    )


def test_weights_that_fixed_point_cannot_represent_are_an_error():
    _, ranker, shard, prepared = make_round(problem(), BinnedRanks(100, 0.05))
    counts = np.full(len(prepared.batch.weights), 100.0)
    prepared = replace(prepared, batch=prepared.batch._replace(weights=counts))
    with pytest.raises(ValueError, match="must be below 4 votes for binned ranks, got 10"):
        run_round(ranker, [shard], prepared)


@pytest.mark.parametrize("n_rows", [1, 1024, 5000, 1_000_000, 50_000_000])
def test_the_sample_covers_the_table_and_depends_on_its_length_alone(n_rows):
    positions = sample_positions(n_rows)
    assert np.array_equal(positions, sample_positions(n_rows))
    assert (np.diff(positions) > 0).all()
    assert positions[0] >= 0
    assert positions[-1] < n_rows
    assert len(positions) >= min(n_rows, max(1024, n_rows // 1100))


@pytest.mark.parametrize("n_neighbors", [1, 3, 20])
@pytest.mark.parametrize("semivalue", [Shapley(), Banzhaf(), Beta(4, 1)], ids=repr)
@pytest.mark.parametrize(
    "groups",
    [[0, 1, 1, 2, 5, 5, 5], [0, 0, 0, 0, 0, 5, 6], [5] * 7, [0, 5, 5, 6, 6, 6, 6]],
    ids=str,
)
def test_targets_in_bins_are_valued_as_by_enumeration(groups, semivalue, n_neighbors):
    """Distances below 5 are those of nearest rows, and others those of bins."""
    distances, rng = np.array(groups), np.random.default_rng(sum(groups))
    targets, asked = rng.integers(-9, 9, 7).astype(float), 2.5
    utilities = [
        -compute_expected_error(distances[rows], targets[rows], asked, n_neighbors)
        if rows.any()
        else -(asked**2)
        for rows in (np.arange(128)[:, None] >> np.arange(7) & 1).astype(bool)
    ]
    truth = line_values(utilities, 7, semivalue)
    chances = choose_chances(semivalue, 7, 7, n_neighbors)
    is_near, bins = distances < 5, np.arange(5, 7)
    sums = np.zeros((2, 4), dtype=np.int64)
    for distance, target in zip(distances, targets, strict=True):
        if distance >= 5:
            sums[distance - 5] += np.array([1, target, 0, target**2], dtype=np.int64)
    near, near_targets = distances[is_near], targets[is_near]
    begins = np.array([is_near.sum(), (distances < 6).sum(), 7])
    far, values = np.empty((2, 3)), np.empty(len(near))
    binned_kernels.value_target_bins(
        sums, near, near_targets, (asked, n_neighbors), chances.pairs_at(np.arange(8)),
        chances.pairs_at(begins), far, values,
    )  # fmt: skip
    powers = targets[:, None] ** np.arange(3)
    found = [values, *(powers[distances == bins[b]] @ far[b] for b in range(2))]
    np.testing.assert_allclose(np.concatenate(found), truth, atol=1e-11)
    error = binned_kernels.nearest_error(sums, near, near_targets, asked, n_neighbors)
    assert -error == pytest.approx(utilities[-1], abs=1e-11)


NUMERIC = [
    {},
    {"sampler": LeverageSampler(24), "value_labels": True},
    {"empty": "zero"},
    {"empty": "zero", "value_labels": True},
    {"semivalue": (Banzhaf(), None)},
]


@pytest.mark.parametrize("settings", NUMERIC, ids=str)
def test_a_numeric_target_has_the_values_of_exact_ranks_if_all_rows_are_near(settings):
    settings = {"sampler": PermutationSampler(1)} | settings
    exact, binned = (fit(numeric(300), ranking=r, **settings) for r in (None, BinnedRanks()))
    largest = np.abs(exact.values).max()
    np.testing.assert_allclose(binned.values, exact.values, rtol=0, atol=1e-9 * largest)
    for name in ("total", "expected_total", "baseline"):
        assert getattr(binned, name) == pytest.approx(getattr(exact, name), rel=1e-11)
    assert binned.scores.r2 == pytest.approx(exact.scores.r2, rel=1e-12)
    assert np.isnan(binned.scores.accuracy)
    np.testing.assert_allclose(
        binned.columns().validation_se, exact.columns().validation_se, rtol=1e-8
    )


@pytest.mark.parametrize(
    ("settings", "spread"), [(NUMERIC[0], 1e30), (NUMERIC[1], 1.0), (NUMERIC[4], 1e-30)], ids=str
)
def test_a_numeric_target_in_bins_is_close_to_exact_ranks(settings, spread):
    settings = {"sampler": PermutationSampler(1)} | settings
    exact, binned = (
        fit(numeric(spread=spread), ranking=r, **settings) for r in (None, BinnedRanks(200))
    )
    one, other = exact.values.ravel() / spread**2, binned.values.ravel() / spread**2
    assert spearmanr(one, other)[0] > 0.9999
    assert np.sqrt(np.mean((one - other) ** 2)) < 0.003 * one.std()
    assert binned.expected_total == pytest.approx(exact.expected_total, rel=1e-11)
    if "semivalue" not in settings:
        assert abs(binned.efficiency_residual) < 1e-10 * abs(binned.total)


def test_shards_of_a_numeric_target_give_the_same_bits_as_one_table():
    given = numeric(2000)
    # Ties among the nearest rows as well.
    given = np.round(given[0], 1), *given[1:]
    _, ranker, shard, prepared = make_round(given, BinnedRanks(100, 0.05))
    truth, sums, utilities = run_round(ranker, [shard], prepared)
    for n_shards in (3, 7):
        parts = np.array_split(np.random.default_rng(n_shards).permutation(2000), n_shards)
        some = [
            replace(shard, rows=shard.rows.take(part), starts=np.array([0, len(part)]),
                    positions=part, targets=shard.targets[part])
            for part in parts
        ]  # fmt: skip
        found = run_round(ranker, some, prepared)
        for ours, expected in zip(found, (truth, sums, utilities), strict=True):
            assert np.array_equal(ours, expected)
    # Shapley values of rows add up to the utility of all rows, less that of none.
    none = -np.repeat(prepared.batch.labels**2, np.diff(prepared.batch.pair_starts))
    np.testing.assert_allclose(sums, utilities - none, atol=1e-11)


def test_wrong_settings_of_binned_ranks_are_errors():
    with pytest.raises(TypeError, match=r"ranking must be BinnedRanks.* got 'bins'"):
        fit(problem(100), ranking="bins")
    with pytest.raises(ValueError, match="nearest of BinnedRanks must be an integer"):
        BinnedRanks(0)
    for width in (0, "narrow", 2.0):
        with pytest.raises(
            ValueError, match=r"width of BinnedRanks must be .* between 0.001 and 1, got"
        ):
            BinnedRanks(10, width)
