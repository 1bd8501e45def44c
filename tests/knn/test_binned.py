"""Binned ranks: sums and near rows are exact, shards merge, ties stay in one bin."""

from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
from scipy.stats import spearmanr

from cellworth import KNNValuer
from cellworth.knn import BinnedRanks, KNNGame, binned
from cellworth.knn.algorithms import QueryTasks
from cellworth.knn.binned import Shard, Summary, sample_positions
from cellworth.knn.knn_game import compute_expected_matches
from cellworth.sampling import (
    Banzhaf,
    ExhaustiveSampler,
    LeverageSampler,
    PermutationSampler,
    Shapley,
)
from cellworth.sampling.passes import UNITS
from fit_settings import split_settings


def problem(n_rows=4000, n_queries=30, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows + n_queries, 5))
    X[:, 3] = np.round(X[:, 3])
    X[rng.random(X.shape) < 0.02] = np.nan
    y = np.where(np.nan_to_num(X[:, 0] + X[:, 1]) + rng.normal(size=len(X)) > 0, "yes", "no")
    return X[:n_rows], y[:n_rows], X[n_rows:], y[n_rows:]


def fit(given, **settings):
    X, y, X_val, y_val = given
    of_valuer, of_fit = split_settings(settings)
    valuer = KNNValuer(10, n_passes=1, random_state=0, **of_valuer)
    return valuer.fit(X, y, X_val=X_val, y_val=y_val, **of_fit).valuation_


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [PermutationSampler(1), LeverageSampler(24)], ids=repr)
@pytest.mark.parametrize("semivalue", [Shapley(), Banzhaf()], ids=repr)
def test_values_are_close_to_those_of_exact_ranking(sampler, semivalue):
    settings = {"sampler": sampler, "semivalue": (semivalue, None)}
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


def test_labels_are_valued_with_binned_ranks():
    settings = {"sampler": LeverageSampler(24), "value_labels": True}
    exact, binned = (fit(problem(), ranking=r, **settings) for r in (None, BinnedRanks(200)))
    assert spearmanr(exact.values[:, -1], binned.values[:, -1])[0] > 0.99
    assert abs(binned.efficiency_residual) < 1e-12


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


def test_values_from_binned_ranks_are_not_called_exact():
    assert fit(problem(), ranking=BinnedRanks(100)).status == "estimated"


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
    distances = replace(game.distances, scales=game.distances.fine)
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
    tasks = QueryTasks(
        game=game, sampler=PermutationSampler(1), row_semivalue=Shapley(),
        column_semivalue=Shapley(), with_label=False, ranking=bins, seed=0,
    )  # fmt: skip
    ranker, shard = tasks._ranker(0)
    schedule, task = tasks.schedule, tasks(0)
    (piece,) = task.part.pieces
    prepared = schedule.prepare(piece, task.pass_number, schedule.orders(task), ranker)
    return game, ranker, shard, prepared


def shards(game, parts):
    """Divide rows into shards by position."""
    found = []
    for positions in parts:
        shard = Shard.of(game.distances.rows.take(positions), game.labels[positions], 2)
        found.append(replace(shard, positions=positions[shard.positions]))
    return found


def run_round(ranker, some, prepared):
    """Return fixed-point values of all cells from a round over shards."""
    summaries = [ranker.count(number, shard, prepared) for number, shard in enumerate(some)]
    row_values = ranker.finalize(reduce(Summary.merge, summaries[::-1]))
    n_results = prepared.drawn.weights.shape[1]
    cells = np.zeros((n_results, ranker.n_rows), dtype=np.int64)
    for number, shard in enumerate(some):
        into = np.zeros((n_results, shard.n_rows), dtype=np.int64)
        ranker.accumulate(shard, prepared, row_values.far, row_values.near[number], into=into)
        cells[:, shard.positions] = into
    return cells, row_values


@pytest.mark.parametrize("n_shards", [1, 3, 7, 16])
def test_shards_give_the_same_bits_as_one_table(n_shards):
    game, ranker, shard, prepared = make_round(problem(), BinnedRanks(100, 0.05))
    truth, expected = run_round(ranker, [shard], prepared)
    shuffled = np.random.default_rng(1).permutation(4000)
    some = shards(game, np.array_split(shuffled, n_shards))
    cells, row_values = run_round(ranker, some, prepared)
    assert np.array_equal(cells, truth)
    assert np.array_equal(row_values.sums, expected.sums)
    assert np.array_equal(row_values.utilities, expected.utilities)


def test_sums_over_rows_are_reported_for_every_coalition():
    _, ranker, shard, prepared = make_round(problem(), BinnedRanks(100, 0.05))
    cells, row_values = run_round(ranker, [shard], prepared)
    batch = prepared.batch
    total = batch.weights @ (row_values.of_full_table(batch) - prepared.bases)
    assert cells.sum() / UNITS == pytest.approx(total, abs=1e-13)
    # Shapley values of rows add up to the utility of all rows.
    np.testing.assert_allclose(row_values.sums, row_values.utilities, atol=1e-13)


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
    monkeypatch.setattr(binned, "_LEAST_CAPACITY", 3)
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


def test_binned_ranks_of_numeric_targets_and_wrong_settings_are_errors():
    X = problem(100)[0]
    with pytest.raises(ValueError, match="BinnedRanks needs classes"):
        KNNValuer(ranking=BinnedRanks(10)).fit(X, np.arange(100) / 3)
    with pytest.raises(TypeError, match=r"ranking must be BinnedRanks.* got 'bins'"):
        fit(problem(100), ranking="bins")
    with pytest.raises(ValueError, match="nearest of BinnedRanks must be an integer"):
        BinnedRanks(0)
    for width in (0, "narrow", 2.0):
        with pytest.raises(
            ValueError, match=r"width of BinnedRanks must be .* between 0.001 and 1, got"
        ):
            BinnedRanks(10, width)
