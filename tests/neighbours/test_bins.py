"""Rank bins: sums stay exact, near rows are exact, shards merge, ties are never cut."""

from functools import reduce

import numpy as np
import pytest
from scipy.stats import spearmanr

from cellworth import Banzhaf, KNNGame, KNNValuer, LeverageSubsets, Permutations, RankBins, Shapley
from cellworth.neighbours.bins import BinnedRows, RankSummary, summarise
from cellworth.neighbours.training import Query
from cellworth.valuers.queries import QueryTasks


def problem(n_rows=4000, n_queries=30, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows + n_queries, 5))
    X[:, 3] = np.round(X[:, 3])
    X[rng.random(X.shape) < 0.02] = np.nan
    y = np.where(np.nan_to_num(X[:, 0] + X[:, 1]) + rng.normal(size=len(X)) > 0, "yes", "no")
    return X[:n_rows], y[:n_rows], X[n_rows:], y[n_rows:]


def fit(given, **settings):
    X, y, X_val, y_val = given
    valuer = KNNValuer(10, sweeps=1, random_state=0, **settings)
    return valuer.fit(X, y, X_val=X_val, y_val=y_val).valuation_


@pytest.mark.parametrize("design", [Permutations(1), LeverageSubsets(24)], ids=repr)
@pytest.mark.parametrize("semivalue", [Shapley(), Banzhaf()], ids=repr)
def test_values_are_close_to_those_of_exact_ranking(design, semivalue):
    settings = {"design": design, "row_semivalue": semivalue}
    exact, binned = (
        fit(problem(), ranking=ranking, **settings) for ranking in (None, RankBins(200, 0.02))
    )
    one, other = exact.values.ravel(), binned.values.ravel()
    assert spearmanr(one, other)[0] > 0.99
    assert np.sqrt(np.mean((one - other) ** 2)) < 0.03 * one.std()
    assert binned.total == pytest.approx(exact.total, abs=1e-12)
    assert exact.provenance.question["ranking"] != binned.provenance.question["ranking"]


@pytest.mark.parametrize("empty", ["prior", "zero"])
def test_sums_stay_exact(empty):
    valuation = fit(problem(), ranking=RankBins(50, 0.5), empty=empty, design=Permutations(2))
    assert abs(valuation.efficiency_residual) < 1e-12


def test_labels_are_valued_with_bins_too():
    settings = {"design": LeverageSubsets(24), "value_labels": True}
    exact, binned = (fit(problem(), ranking=r, **settings) for r in (None, RankBins(200)))
    assert spearmanr(exact.values[:, -1], binned.values[:, -1])[0] > 0.99
    assert abs(binned.efficiency_residual) < 1e-12


@pytest.mark.parametrize(("n_rows", "nearest"), [(5, 1), (8, 1), (100, 80), (500, 300)])
def test_where_most_rows_are_among_the_nearest_they_are_sorted(n_rows, nearest):
    X = problem(n_rows)[0]
    exact, binned = (
        KNNValuer(1, ranking=ranking, cv=2).fit(X, np.arange(n_rows) % 2)
        for ranking in (None, RankBins(nearest))
    )
    assert np.array_equal(exact.values_, binned.values_)


def test_values_from_bins_are_not_called_exact():
    assert fit(problem(), ranking=RankBins(100)).status == "estimated"


def heavy_ties(n_rows=20_000):
    """A third of the rows at the nearest distance: they tie there, beyond the 500 nearest."""
    rng = np.random.default_rng(5)
    X = np.where(rng.random(n_rows) < 0.3, 0.0, rng.gamma(2, size=n_rows))[:, None]
    return X, (X[:, 0] > 0).astype(int), np.full((4, 1), -0.5), np.array([0, 1, 0, 0])


@pytest.mark.parametrize(
    ("given", "n_neighbors", "bins"),
    [(heavy_ties(), 5, RankBins()), (problem(3000), 300, RankBins(10))],
    ids=["ties at the nearest distance", "more neighbours than nearest rows"],
)
def test_sums_are_those_of_exact_ranking(given, n_neighbors, bins):
    X, y, X_val, y_val = given
    exact, binned = (
        KNNValuer(n_neighbors, ranking=ranking, design=Permutations(1), sweeps=1, random_state=0)
        .fit(X, y, X_val=X_val, y_val=y_val)
        .valuation_
        for ranking in (None, bins)
    )
    assert binned.total == pytest.approx(exact.total, abs=1e-12)
    spread = exact.values.std()
    assert np.sqrt(np.mean((exact.values - binned.values) ** 2)) < 0.03 * spread


def test_duplicate_rows_get_equal_values():
    X, y, X_val, y_val = problem(1500)
    doubled = np.vstack([X, X]), np.concatenate([y, y]), X_val, y_val
    values = fit(doubled, ranking=RankBins(100, 0.1), design=Permutations(1)).values
    np.testing.assert_allclose(values[:1500], values[1500:], rtol=0, atol=1e-15)


def ranked(given, bins):
    game = KNNGame(*given, n_neighbors=10)
    tasks = QueryTasks(
        game=game, design=Permutations(1), row_semivalue=Shapley(), column_semivalue=Shapley(),
        with_label=False, ranking=bins, seed=0,
    )  # fmt: skip
    training, ((plan, _),) = tasks._training(0), tasks._drawn(0)
    query = Query.of(game.distances.queries[0], training.rulers, 0, float(game.query_labels[0][0]))
    return training, plan.batches[0][1], query


@pytest.mark.parametrize("n_shards", [1, 3, 7])
def test_summaries_of_shards_merge_into_that_of_the_whole(n_shards):
    bins, order = RankBins(100, 0.05), np.array([3, 0, 4, 1, 2])
    training, steps, query = ranked(problem(), bins)
    edges = BinnedRows(training, 5, bins).edges(query, order, steps)

    def summary(rows):
        places = np.empty((5, len(rows)), dtype=np.uint16)
        shard = training.shard(rows)
        return summarise(shard, query, order=order, steps=steps, edges=edges, places=places)

    truth = summary(np.arange(4000))
    shuffled = np.random.default_rng(1).permutation(4000)
    merged = reduce(RankSummary.merge, map(summary, np.array_split(shuffled, n_shards)))
    assert truth.counts.sum() == 5 * 4000
    assert np.array_equal(merged.counts, truth.counts)
    far, near = merged.values(training)
    true_far, true_near = truth.values(training)
    assert np.array_equal(far, true_far)
    for ours, theirs in zip((*merged.near, *near), (*truth.near, *true_near), strict=True):
        assert np.array_equal(ours, theirs)
    assert merged.matches(training) == truth.matches(training)


def test_room_is_made_for_more_of_the_nearest_than_expected(monkeypatch):
    given = problem()
    values = fit(given, ranking=RankBins(100), design=Permutations(1)).values
    monkeypatch.setattr("cellworth.neighbours.bins._ROOM", 3)
    assert np.array_equal(fit(given, ranking=RankBins(100), design=Permutations(1)).values, values)


def test_bins_are_refused_for_numeric_targets_and_senseless_settings():
    X = problem(100)[0]
    with pytest.raises(ValueError, match="RankBins is for class labels"):
        KNNValuer(ranking=RankBins(10)).fit(X, np.arange(100) / 3)
    with pytest.raises(TypeError, match=r"ranking is 'bins'; give RankBins"):
        fit(problem(100), ranking="bins")
    with pytest.raises(ValueError, match="nearest of RankBins is 0"):
        RankBins(0)
    for width in (0, "narrow", 2.0):
        with pytest.raises(ValueError, match=r"width of RankBins is .* between 0.001 and 1"):
            RankBins(10, width)
