import itertools
import math
from math import comb

import numpy as np
import pytest
from scipy.special import beta as beta_function
from scipy.stats import binom

from cellworth import KNNValuer
from cellworth.knn import exact, kernels
from cellworth.knn.exact import RankChances, ShapleyChances, choose_chances
from cellworth.sampling import (
    Banzhaf,
    Beta,
    ExhaustiveSampler,
    LeaveOneOut,
    PermutationSampler,
    Shapley,
)
from cellworth.sampling.semivalues import inside_chances, size_probabilities


class AsCustom:
    """Any semivalue, given by the probabilities of sizes alone."""

    def __init__(self, semivalue):
        self.semivalue = semivalue

    def size_probabilities(self, n_players):
        return self.semivalue.size_probabilities(n_players)


@pytest.mark.parametrize("semivalue", [Shapley(), Banzhaf(), Beta(3, 1.5), LeaveOneOut()], ids=repr)
def test_inside_chances_follow_from_the_sizes(semivalue):
    given, inside = np.meshgrid(np.arange(9), np.arange(5))
    ours = inside_chances(semivalue, 9, given, inside)
    np.testing.assert_allclose(ours, inside_chances(AsCustom(semivalue), 9, given, inside), 1e-10)
    all_others = inside_chances(semivalue, 9, 8, np.arange(9))
    np.testing.assert_allclose(all_others, size_probabilities(semivalue, 9), atol=1e-13)


@pytest.mark.parametrize("n_neighbors", [1, 3, 10])
def test_single_chances_equal_the_published_recursions(n_neighbors):
    ranks = np.arange(1, 31)
    expected = {
        Shapley(): 1 / np.maximum(n_neighbors, ranks),
        Banzhaf(): binom.cdf(n_neighbors - 1, ranks - 1, 0.5) / n_neighbors,
        LeaveOneOut(): (ranks <= n_neighbors) / n_neighbors,
        Beta(2, 3): [
            sum(
                comb(r - 1, k) * beta_function(k + 3, r - 1 - k + 2) / beta_function(3, 2)
                for k in range(min(n_neighbors, r))
            )
            / n_neighbors
            for r in ranks
        ],
    }
    for semivalue, singles in expected.items():
        chances = RankChances.from_semivalue(semivalue, 30, 30, n_neighbors)
        np.testing.assert_allclose(chances.single[1:], singles, atol=1e-13)


def test_single_chances_are_exact_for_many_rows():
    chances = RankChances.from_semivalue(Shapley(), 200_000, 200_000, 5)
    np.testing.assert_allclose(chances.single[5:], 1 / np.arange(5, 200_001), rtol=1e-12)


def test_chances_do_not_depend_on_rows_outside_the_fold():
    for semivalue in (Shapley(), Banzhaf(), Beta(2, 1), LeaveOneOut()):
        fold = RankChances.from_semivalue(semivalue, 50, 30, 4)
        full = RankChances.from_semivalue(semivalue, 30, 30, 4)
        np.testing.assert_allclose(fold.single, full.single, atol=1e-13)
        np.testing.assert_allclose(fold.pair, full.pair, atol=1e-13)


@pytest.mark.parametrize("n_neighbors", [1, 10, 70_000])
def test_sums_of_chances_at_far_ranks_need_no_table(n_neighbors):
    n_rows = 2_000_000
    ranks = np.array([0, 1, 9, 10, 65_536, 65_537, 69_632, 100_000, 1_234_567, n_rows])
    single, running = ShapleyChances(n_neighbors).at(ranks)
    truth = 1.0 / np.maximum(np.arange(1, n_rows + 1), n_neighbors)
    assert np.array_equal(single[1:], truth[ranks[1:] - 1])
    expected = [math.fsum(truth[:rank]) for rank in ranks]
    np.testing.assert_allclose(running, expected, rtol=2e-12, atol=0)


@pytest.mark.parametrize("n_neighbors", [1, 2, 7])
@pytest.mark.parametrize("semivalue", [Shapley(), Banzhaf(), Beta(2, 1)], ids=repr)
def test_differences_of_running_sums_are_sums_over_pairs(semivalue, n_neighbors):
    table = RankChances.from_semivalue(semivalue, 500, 400, n_neighbors)
    ends = np.array([0, 1, 2, 6, 7, 8, 30, 31, 33, 200, 400])
    chances = choose_chances(semivalue, 500, 400, n_neighbors)
    single, running, pair, pairs, fronts = chances.pairs_at(ends)
    np.testing.assert_allclose(single[1:], table.single[ends[1:]], rtol=1e-12)
    np.testing.assert_allclose(running, table.running[ends], rtol=1e-12)
    np.testing.assert_allclose(pair[1:], table.pair[ends[1:]], rtol=1e-11, atol=1e-300)
    for k, (begin, end) in enumerate(itertools.pairwise(ends)):
        ranks = np.arange(begin + 1, end + 1)
        expected = table.pair[ranks].sum(), ((ranks - 1) * table.pair[ranks]).sum()
        found = np.diff(pairs)[k], np.diff(fronts)[k]
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-16)


SAMPLERS = [
    (PermutationSampler(1), Shapley()),
    (PermutationSampler(2), Beta(2, 1)),
    (PermutationSampler(3), Banzhaf()),
    (ExhaustiveSampler(), LeaveOneOut()),
]


@pytest.mark.parametrize("target", ["class", "number"])
@pytest.mark.parametrize(("sampler", "semivalue"), SAMPLERS, ids=repr)
def test_batches_and_matrix_products_give_the_same_values(sampler, semivalue, target, monkeypatch):
    rng = np.random.default_rng(1)
    X = np.round(rng.normal(size=(40, 5)), 1)
    y = X[:, 0] > 0 if target == "class" else X[:, 0] + X[:, 1]
    settings = {"sampler": sampler, "semivalue": (None, semivalue), "n_passes": 2}

    def fit():
        valuer = KNNValuer(3, random_state=0, **settings)
        return valuer.fit(X[:30], y[:30], X_val=X[30:], y_val=y[30:], column_groups=[0, 1, 1, 2, 3])

    whole = fit().valuation_.values
    monkeypatch.setattr(exact, "_KEYS_AT_ONCE", 60)
    monkeypatch.setattr(exact, "_MIN_AT_ONCE", 1)
    np.testing.assert_allclose(fit().valuation_.values, whole, rtol=1e-12, atol=1e-15)
    monkeypatch.setattr(exact, "_MIN_RESULTS_OF_FEW", 0)
    np.testing.assert_allclose(fit().valuation_.values, whole, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("target", ["class", "number"])
def test_values_are_the_same_bits_however_many_distances_have_the_same_code(target, monkeypatch):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(200, 4))
    X[::7] = X[0]
    X[1::5, 1:] = np.round(X[1::5, 1:])
    y = X[:, 0] > 0 if target == "class" else X[:, 0] + X[:, 1]

    def fit():
        valuer = KNNValuer(3, sampler=ExhaustiveSampler())
        return valuer.fit(X[:180], y[:180], X_val=X[180:], y_val=y[180:]).valuation_.values

    short = fit()
    monkeypatch.setattr(exact, "_LEAST_SHARE", 1.0)
    assert np.array_equal(fit(), short)
    monkeypatch.setattr(exact, "_LEAST_SHARE", 2.0**40)
    assert np.array_equal(fit(), short)
    monkeypatch.setattr(exact, "_MAX_ROWS_OF_SHORT_KEYS", 0)
    assert np.array_equal(fit(), short)


def values_in_order(matches, single):
    """Return the values of rows that do not tie, from the nearest to the farthest."""
    ranks = np.arange(1, len(matches) + 1)
    pushed_out = matches * (single[ranks - 1] - single[ranks])
    return matches * single[ranks] - (pushed_out[::-1].cumsum()[::-1] - pushed_out)


FEW_TIES = (1,) * 30 + (2, 1, 3) + (1,) * 40


@pytest.mark.parametrize(
    "sizes", [(1, 2, 1, 1, 3, 1), (2, 2, 1, 1, 1, 1, 3), (3, 1, 1, 1, 2, 2), FEW_TIES]
)
@pytest.mark.parametrize("n_per_code", [1, 2, 100])
def test_tied_rows_have_the_mean_value_over_all_of_their_orders(sizes, n_per_code):
    rng = np.random.default_rng(n_per_code)
    n_rows, n_low = sum(sizes), 8
    matches, rows = rng.integers(0, 2, n_rows), rng.permutation(n_rows)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    distances = np.empty((1, n_rows))
    distances[0, rows] = groups
    chances = RankChances.from_semivalue(Shapley(), n_rows, n_rows, 2)
    codes = groups // n_per_code << (n_low + 1)
    keys = np.sort(codes + 2 * rows + matches)[np.newaxis].astype(np.uint32)
    found, n_ties = np.empty((1, n_rows)), np.empty(1, dtype=np.int64)
    kernels.order_ties(keys, 2**n_low - 1, distances, n_ties)
    assert n_ties == n_rows - len(sizes)
    kernels.class_values(
        keys, 2**n_low - 1, n_ties, chances.single, chances.running, chances.fixed, found
    )
    ties = np.split(np.arange(n_rows), np.cumsum(sizes)[:-1])
    orders = [np.concatenate(order) for order in itertools.product(*map(permute, ties))]
    mean = np.zeros(n_rows)
    for order in orders:
        mean[rows[order]] += values_in_order(matches[order], chances.single) / len(orders)
    np.testing.assert_allclose(found[0], mean, rtol=1e-12, atol=1e-15)


def permute(positions):
    return [list(order) for order in itertools.permutations(positions)]
