"""KNNValuer against brute force on its own game; what it promises of order, ties and threads."""

import dataclasses
import itertools
import warnings
from typing import get_args

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    ShuffleSplit,
    TimeSeriesSplit,
)

from cellworth import DataWarning, KNNValuer, OutOfBagValuer, Owners, Runtime, load, value_game
from cellworth.knn import BinnedRanks, KNNGame
from cellworth.knn.knn_game import KNNScoring
from cellworth.knn.tasks import WeightedQueries, order_fairly
from cellworth.runtime import (
    MaxTasks,
    Serial,
    TargetPrecision,
    TargetStandardError,
    Threads,
)
from cellworth.sampling import (
    Banzhaf,
    Beta,
    ExhaustiveSampler,
    LeaveOneOut,
    PermutationSampler,
    QuadratureSampler,
    Shapley,
)
from cellworth.valuers.knn_valuer import MAX_SORTED_ROWS, Effort, Size
from enumeration import block_values
from experiments.baselines import LeverageSampler
from matrices import rarely

# Small tables have fewer rows than K, on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:n_neighbors should")

SEMIVALUES = (Shapley(), Banzhaf(), Beta(4, 1), LeaveOneOut())


def utilities(game):
    """Utilities of all coalitions, from the definition."""
    n, m = game.shape
    table = np.empty((1 << n, 1 << m))
    for rows, columns in itertools.product(range(1 << n), range(1 << m)):
        table[rows, columns] = game.value(members(rows, n), members(columns, m))
    return table


def members(number, n_players):
    return ((number >> np.arange(n_players)) & 1).astype(bool)


def mixed_table(rng, n_rows, n_columns):
    """Columns of small whole numbers, text, real numbers and booleans in turn, with gaps."""
    makers = (
        lambda: rng.integers(0, 3, n_rows).astype(float),
        lambda: rng.choice(["a", "b", "c"], n_rows),
        lambda: rng.normal(size=n_rows),
        lambda: rng.random(n_rows) < 0.5,
    )
    columns = {}
    for position in range(n_columns):
        cells = makers[position % 4]().astype(object)
        cells[rng.random(n_rows) < 0.15] = None
        columns[f"c{position}"] = cells
    return pd.DataFrame(columns).infer_objects()


def small_problem(seed, *, n_rows=6, n_columns=3, n_classes=2):
    """A mixed table with ties; n_classes is None for a numeric target."""
    rng = np.random.default_rng(seed)
    X, X_val = mixed_table(rng, n_rows, n_columns), mixed_table(rng, 3, n_columns)
    if n_classes is None:
        return X, rng.normal(size=n_rows), X_val, rng.normal(size=3)
    return X, np.arange(n_rows) % n_classes, X_val, np.array([0, 1, n_classes - 1])


def fit(valuer, problem, **more):
    X, y, X_val, y_val = problem
    return valuer.fit(X, y, X_val=X_val, y_val=y_val, **more).valuation_


# exactness --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("n_neighbors", "n_classes"), [(1, 2), (3, None), (10, 4), (3, 4)])
@pytest.mark.parametrize("semivalue", SEMIVALUES, ids=repr)
def test_values_are_those_of_brute_force(semivalue, n_neighbors, n_classes):
    problem = small_problem(n_neighbors, n_classes=n_classes)
    game = KNNGame(*problem, n_neighbors=n_neighbors)
    truth = block_values(utilities(game), game.shape, semivalue, semivalue)
    valuer = KNNValuer(n_neighbors, semivalue=semivalue)
    valuation = fit(valuer, problem)
    assert valuation.status == "exact"
    np.testing.assert_allclose(valuation.values, truth, atol=1e-12)


@pytest.mark.parametrize("empty", ["prior", "zero"])
@pytest.mark.parametrize("scoring", get_args(KNNScoring))
def test_scorings_and_empty_policies_are_those_of_brute_force(scoring, empty):
    problem = small_problem(7, n_classes=None if scoring == "neg_mean_squared_error" else 4)
    game = KNNGame(*problem, n_neighbors=2, scoring=scoring, empty=empty)
    truth = block_values(utilities(game), game.shape, Beta(1, 3), Shapley())
    valuer = KNNValuer(2, scoring=scoring, empty=empty, semivalue=(Beta(1, 3), None))
    np.testing.assert_allclose(fit(valuer, problem).values, truth, atol=1e-12)


class Loners:
    """A semivalue of the user's own, which the closed forms do not know."""

    def size_probabilities(self, n_players):
        chances = 1.0 / (1.0 + np.arange(n_players)) ** 2
        return chances / chances.sum()


@pytest.mark.parametrize(("semivalue", "n_classes"), [(Banzhaf(), None), (Loners(), 2)])
def test_cross_validation_is_valued_as_by_brute_force(semivalue, n_classes):
    X, y, _, _ = small_problem(5, n_classes=n_classes)
    game = KNNGame(X, y, n_neighbors=2, cv=3)
    truth = value_game(game, semivalue=(semivalue, None), estimator="exact").values
    valuer = KNNValuer(2, semivalue=(semivalue, None)).fit(X, y, cv=3)
    np.testing.assert_allclose(valuer.values_, truth, atol=1e-12)


def test_numeric_targets_are_filled_up_without_the_rows_that_are_judged():
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(6, 2)), rng.normal(size=6) + 9.0

    def utility(rows, columns):
        """Squared error over the folds, with the mean of the rows outside a fold in the gaps."""
        errors = []
        for train, judged in KFold(3).split(X):
            there = np.intersect1d(train, np.flatnonzero(rows))
            for position in judged:
                gaps = (X[there][:, columns] - X[position, columns]) ** 2
                nearest = y[there[np.argsort(gaps.sum(axis=1))[:2]]]
                filled = np.append(nearest, np.full(2 - len(nearest), y[train].mean()))
                errors.append((filled.mean() - y[position]) ** 2)
        return -np.mean(errors)

    game = KNNGame(X, y, n_neighbors=2, cv=3, scale=None)
    table = utilities(game)
    for rows, columns in itertools.product(range(64), (1, 2, 3)):
        expected = utility(members(rows, 6), members(columns, 2))
        assert table[rows, columns] == pytest.approx(expected)
    truth = block_values(table, game.shape, Shapley(), Shapley())
    values = KNNValuer(2, scale=None).fit(X, y, cv=3).values_
    np.testing.assert_allclose(values, truth, atol=1e-12)


def test_column_groups_join_as_a_whole():
    problem, groups = small_problem(2, n_columns=4), ["left", "right", "left", "right"]
    game = KNNGame(*problem, n_neighbors=2, column_groups=groups)
    truth = block_values(utilities(game), game.shape, Shapley(), Shapley())
    valuation = fit(KNNValuer(2), problem, column_groups=groups)
    assert valuation.column_labels.tolist() == ["left", "right"]
    np.testing.assert_allclose(valuation.values, truth, atol=1e-12)


def test_row_groups_are_worth_the_sum_of_their_cells():
    problem, groups = small_problem(2), ["a", "a", "b", "c", "b", "a"]
    singles, grouped = fit(KNNValuer(2), problem), fit(KNNValuer(2), problem, row_groups=groups)
    sums = [singles.values[[g == name for g in groups]].sum(axis=0) for name in "abc"]
    np.testing.assert_allclose(grouped.values, sums, atol=1e-13)


class LabelGame:
    """The label as one more column: without it, rows teach as little as no rows."""

    def __init__(self, game):
        self.game = game
        self.shape = game.shape[0], game.shape[1] + 1

    def value(self, rows, columns):
        everyone = rows if columns[-1] else np.zeros_like(rows)
        return self.game.value(everyone, columns[:-1])


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [ExhaustiveSampler(), LeverageSampler(100)], ids=repr)
@pytest.mark.parametrize(("n_classes", "empty"), [(2, "prior"), (None, "prior"), (4, "zero")])
def test_labels_are_valued_as_one_more_column(n_classes, empty, sampler):
    problem = small_problem(4, n_classes=n_classes)
    game = LabelGame(KNNGame(*problem, n_neighbors=2, empty=empty))
    truth = block_values(utilities(game), game.shape, Shapley(), Shapley())
    valuer = KNNValuer(2, empty=empty, sampler=sampler, n_passes=1)
    valuation = fit(valuer, problem, value_labels=True)
    assert valuation.column_labels.tolist() == ["c0", "c1", "c2", "(label)"]
    np.testing.assert_allclose(valuation.values, truth, atol=1e-12)
    assert abs(valuation.efficiency_residual) < 1e-12


# sums, order, ties, threads ---------------------------------------------------------------------


def larger_problem(seed=0, *, n_rows=60, n_columns=7, n_queries=40):
    rng = np.random.default_rng(seed)
    X, X_val = mixed_table(rng, n_rows, n_columns), mixed_table(rng, n_queries, n_columns)
    return X, rng.choice(["x", "y", "z"], n_rows), X_val, rng.choice(["x", "y", "z"], n_queries)


SAMPLERS = (ExhaustiveSampler(), LeverageSampler(40), QuadratureSampler(40), PermutationSampler(3))


def test_leaving_columns_out_is_exact_for_any_number_of_them():
    valuer = KNNValuer(3, semivalue=(None, LeaveOneOut()), sampler=LeverageSampler())
    found = fit(valuer, larger_problem(n_columns=22))
    assert found.status == "exact"
    assert found.provenance.sessions[0].seed is None
    assert found.provenance.tally.utilities == 40 * 23


def test_a_design_with_as_many_coalitions_as_there_are_is_exact():
    problem = larger_problem(n_columns=4)
    for semivalue in SEMIVALUES:
        valuer = KNNValuer(semivalue=(None, semivalue))
        exact = fit(valuer, problem)
        # Five orders of four columns have 16 prefixes, all coalitions are 15.
        orders = fit(valuer.set_params(sampler=PermutationSampler(5)), problem)
        assert orders.status == exact.status == "exact"
        np.testing.assert_array_equal(orders.values, exact.values)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
@pytest.mark.parametrize("empty", ["prior", "zero"])
def test_values_add_up(sampler, empty):
    valuer = KNNValuer(sampler=sampler, empty=empty, n_passes=3, random_state=0)
    valuation = fit(valuer, larger_problem())
    assert abs(valuation.efficiency_residual) < 1e-12
    assert valuation.total == pytest.approx(valuation.values.sum(), abs=1e-12)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_duplicate_rows_get_equal_values(sampler):
    X, y, X_val, y_val = larger_problem()
    X, y = pd.concat([X, X], ignore_index=True), np.concatenate([y, y])
    values = fit(
        KNNValuer(sampler=sampler, n_passes=2, random_state=0), (X, y, X_val, y_val)
    ).values
    np.testing.assert_allclose(values[:60], values[60:], rtol=0, atol=1e-15)


def cut_small(monkeypatch):
    """Cut a sweep over a small table into several tasks."""
    monkeypatch.setattr("cellworth.knn.tasks._RANKED_PER_TASK", 2000)
    monkeypatch.setattr("cellworth.knn.tasks._MIN_PER_COLUMN", 16)


@pytest.mark.parametrize("n_classes", [3, None])
def test_the_same_run_gives_the_same_bits_everywhere(n_classes, monkeypatch):
    cut_small(monkeypatch)
    X, y, X_val, y_val = larger_problem()
    if n_classes is None:
        y, y_val = np.arange(60) * 0.37 % 1, np.arange(40) * 0.21 % 1
    valuer = KNNValuer(sampler=LeverageSampler(24), n_passes=3, random_state=0)
    bits = set()
    for executor in (Serial(), Threads(1), Threads(2), Threads(3)):
        valuation = fit(valuer.set_params(runtime=Runtime(executor=executor)), (X, y, X_val, y_val))
        bits.add(valuation.moments.mean.tobytes() + valuation.moments.sum_sq.tobytes())
    assert len(bits) == 1
    assert valuation.provenance.sessions[0].tasks > 10


# errors -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampler", [LeverageSampler(60), QuadratureSampler(40), PermutationSampler(2)], ids=repr
)
def test_estimates_agree_with_exact_values_by_their_own_errors(sampler):
    problem = larger_problem(n_columns=8)
    exact = fit(KNNValuer(sampler=ExhaustiveSampler()), problem)
    seen = fit(KNNValuer(sampler=sampler, n_passes=60, random_state=1), problem)
    for mine, truth in ((seen.rows(), exact.rows()), (seen.columns(), exact.columns())):
        z = (mine.values - truth.values) / np.maximum(mine.sampling_se, 1e-12)
        assert np.abs(z).max() < 4.5
    z = ((seen.values - exact.values) / seen.sampling_se).ravel()
    assert np.abs(z).max() < 4.7
    assert 0.85 < z.std() < 1.15


def test_a_rule_on_errors_ends_a_run_between_sweeps():
    problem = larger_problem(n_columns=8)
    loose = KNNValuer(sampler=PermutationSampler(1), stop=TargetStandardError(1e-3), random_state=0)
    valuation = fit(loose, problem)
    n_tasks = valuation.provenance.sessions[0].tasks
    assert np.nanmax(valuation.sampling_se) <= 1e-3
    short = fit(loose.set_params(n_passes=2), problem)
    assert short.provenance.sessions[0].tasks < n_tasks
    assert np.nanmax(short.sampling_se) > 1e-3


# what comes in, what comes out ------------------------------------------------------------------


def test_every_row_is_valued_by_queries_that_it_did_not_train_with():
    X, y, _, _ = larger_problem()
    times = KNNValuer(sampler=ExhaustiveSampler()).fit(X, y, cv=TimeSeriesSplit(3)).valuation_
    # The last fifteen rows never train: nothing was learned from them.
    assert np.all(times.values[45:] == 0.0)
    assert np.all(times.rows().values[:15] != 0.0)


def test_groups_stay_together_in_cross_validation():
    X, y, _, _ = larger_problem()
    X, y = pd.concat([X, X], ignore_index=True), np.concatenate([y, y])
    groups = np.arange(120) % 60
    apart = KNNValuer(1).fit(X, y, groups=groups, cv=GroupKFold(5)).valuation_
    with pytest.warns(DataWarning, match="60 rows repeat an earlier row"):
        copied = KNNValuer(1).fit(X, y, cv=5).valuation_
    assert copied.expected_total > apart.expected_total + 0.1
    with pytest.raises(ValueError, match="groups"):
        KNNValuer().fit(X, y, cv=LeaveOneGroupOut())


def test_polars_and_arrow_tables_give_the_values_of_pandas():
    X, y, X_val, y_val = larger_problem()
    values = fit(KNNValuer(), (X, y, X_val, y_val)).values
    X_polars, X_val_polars = pl.from_pandas(X), pl.from_pandas(X_val)
    other = fit(KNNValuer(), (X_polars, y, X_val_polars, y_val))
    assert np.array_equal(other.values, values)
    assert isinstance(other.to_frame(), pl.DataFrame)
    arrow = fit(KNNValuer(), (X_polars.to_arrow(), y, X_val_polars.to_arrow(), y_val))
    assert np.array_equal(arrow.values, values)


def test_a_broken_off_run_leaves_the_queries_that_were_done(monkeypatch):
    cut_small(monkeypatch)
    valuer = KNNValuer(sampler=PermutationSampler(1), n_passes=4, stop=MaxTasks(2), random_state=0)
    with pytest.warns(UserWarning, match=r"interrupted after \d+ of 40 validation rows"):
        part = fit(valuer, larger_problem())
    assert part.status == "interrupted"
    assert np.isfinite(part.values).all()
    assert abs(part.efficiency_residual) < 1e-12
    assert part.expected_total != fit(KNNValuer(), larger_problem()).expected_total


def test_owners_leave_values_and_errors_as_they_are(monkeypatch):
    cut_small(monkeypatch)
    X, *others = larger_problem()
    owners = Owners(X).assign("ann", columns=["c0", "c1"]).assign("bob", columns="c2")
    valuer = KNNValuer(sampler=PermutationSampler(1), n_passes=2, random_state=0)
    with_owners = fit(valuer, (X, *others), owners=owners)
    alone = fit(valuer, (X, *others))
    assert with_owners.moments.sum_sq.tobytes() == alone.moments.sum_sq.tobytes()
    assert with_owners.validation.tobytes() == alone.validation.tobytes()
    # All cells of a column are his: the error of their sum is the column's.
    bob = with_owners.owners().validation_se[1]
    assert bob == pytest.approx(alone.columns().validation_se[2])


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [3, None])
def test_a_broken_off_run_is_as_sure_as_a_whole_one_of_its_queries(
    n_classes, monkeypatch, tmp_path
):
    cut_small(monkeypatch)
    X, y, X_val, y_val = larger_problem()
    if n_classes is None:
        y, y_val = np.arange(60) * 0.37 % 1, np.arange(40) * 0.21 % 1
    owners = Owners(X).assign("ann", columns=["c0", "c1"]).assign("bob", columns="c2")
    journal = tmp_path / "run"
    valuer = KNNValuer(sampler=ExhaustiveSampler(), runtime=Runtime(checkpoint=journal))
    for n_tasks in (2, 7, 20):
        # The second and third go on where the one before ended.
        with pytest.warns(UserWarning, match="of 40 validation rows") as told:
            part = fit(
                valuer.set_params(stop=MaxTasks(n_tasks)), (X, y, X_val, y_val), owners=owners
            )
        n_done = int(str(told[0].message).split(" of 40")[0].split()[-1])
        labels, scoring = ([y_val], "neg_mean_squared_error")
        if n_classes is not None:
            labels, scoring = ([codes(y_val)], "neighbor_agreement")
        _, done = WeightedQueries.weigh((), labels, scoring).order
        some = X_val.iloc[done[:n_done]], y_val[done[:n_done]]
        whole = fit(KNNValuer(sampler=ExhaustiveSampler()), (X, y, *some), owners=owners)
        np.testing.assert_allclose(part.moments.mean, whole.moments.mean, atol=1e-13)
        np.testing.assert_allclose(part.validation, whole.validation, atol=1e-13)
        np.testing.assert_allclose(
            part.owners().validation_se, whole.owners().validation_se, atol=1e-13
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "scoring",
    [
        "balanced_neighbor_agreement",
        "neg_mean_squared_error",
        *rarely("neighbor_agreement", "neg_brier_score"),
    ],
)
def test_errors_are_as_large_as_values_differ_between_draws_of_validation_rows(
    scoring, monkeypatch
):
    monkeypatch.setattr("cellworth.knn.tasks._RANKED_PER_TASK", 1)
    monkeypatch.setattr("cellworth.knn.tasks._MIN_PER_COLUMN", 1)
    # Widened errors of few rows make intervals right; their squares are larger than the variance.
    monkeypatch.setattr("cellworth.sampling.passes.widening", lambda n_seen: 1.0)
    rng = np.random.default_rng(1)
    people = rng.normal(size=(2000, 3))
    target = people[:, 0] + rng.normal(size=2000)
    if scoring != "neg_mean_squared_error":
        target = (target > 1.0).astype(int)
    X, y = people[:15], target[:15]
    # A whole run, and one that is broken off after a quarter of its validation rows.
    for stop in (None, MaxTasks(15)):
        valuer = KNNValuer(3, scoring=scoring, stop=stop, runtime=Runtime(executor=Serial()))
        drawn = [rng.integers(0, 2000, 60) for _ in range(50)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            runs = [fit(valuer, (X, y, people[some], target[some])) for some in drawn]
        seen, told = (
            np.array([getattr(run, what) for run in runs]) for what in ("_values", "validation")
        )
        # Cells, sums of rows and columns, and the total.
        for part in (np.s_[:, :-1, :-1], np.s_[:, :-1, -1], np.s_[:, -1, :-1], np.s_[:, -1, -1]):
            ratio = np.sqrt((told[part] ** 2).mean(axis=0)) / seen[part].std(axis=0, ddof=1)
            assert 0.8 < ratio.mean() < 1.25


@pytest.mark.parametrize("sizes", [[40], [12, 12, 11], [3, 9, 30, 1]], ids=str)
@pytest.mark.parametrize("n_strata", [1, 3])
def test_every_beginning_of_the_order_of_queries_is_a_fair_sample(sizes, n_strata):
    rng = np.random.default_rng(0)
    strata = [rng.integers(0, n_strata, size) for size in sizes]
    folds, positions = order_fairly(strata)
    own = np.array(
        [strata[fold][position] for fold, position in zip(folds, positions, strict=True)]
    )
    assert sorted(zip(folds.tolist(), positions.tolist(), strict=True)) == [
        (fold, position) for fold, size in enumerate(sizes) for position in range(size)
    ]
    n_queries = len(own)
    for n_done in range(1, n_queries):
        for stratum in range(n_strata):
            share = np.sum(own == stratum) * n_done / n_queries
            assert abs(np.sum(own[:n_done] == stratum) - share) <= 1.0
        for fold, size in enumerate(sizes):
            assert abs(np.sum(folds[:n_done] == fold) - size * n_done / n_queries) <= n_strata + 1


def test_rows_that_no_query_has_valued_yet_are_not_known(monkeypatch):
    cut_small(monkeypatch)
    X, y, _, _ = larger_problem()
    few = ShuffleSplit(30, train_size=6, test_size=2, random_state=0)
    whole = KNNValuer(1).fit(X, y, cv=few).valuation_
    with pytest.warns(UserWarning, match="interrupted"):
        part = KNNValuer(1, stop=MaxTasks(1)).fit(X, y, cv=few).valuation_
    unknown = np.isnan(part.values)
    # Rows that train in none of the folds are worth nothing, whatever is still to come.
    never = np.all([~np.isin(np.arange(60), train) for train, _ in few.split(X)], axis=0)
    assert 0 < unknown.all(axis=1).sum() < 60
    assert np.array_equal(unknown, part.counts == 0)
    assert np.array_equal(unknown, np.isnan(part.validation_se))
    assert np.array_equal(np.isnan(part.rows().values), unknown.any(axis=1))
    assert np.all(part.values[never] == 0.0)
    assert np.isfinite(part.columns().values).all()
    assert np.isfinite(whole.values).all()
    assert "nan" not in repr(part)


def test_the_default_looks_at_all_subsets_where_that_is_quick():
    small = fit(KNNValuer(), larger_problem())
    assert small.status == "exact"
    wide = fit(KNNValuer(n_passes=2, random_state=0), larger_problem(n_columns=21))
    assert wide.provenance.method["sampler"] == "QuadratureSampler(coalitions=504)"
    other = KNNValuer(n_passes=1, random_state=0, semivalue=(None, Beta(2, 1)))
    assert (
        "PermutationSampler"
        in fit(other, larger_problem(n_columns=21)).provenance.method["sampler"]
    )


@pytest.mark.parametrize(
    ("size", "sampler"),
    [
        ((500, 30, 100), QuadratureSampler(24 * 30)),
        ((500, 60, 100), QuadratureSampler(16 * 60)),
        ((1000, 23, 1000), QuadratureSampler(10 * 23)),
        ((3000, 23, 1000), QuadratureSampler(8 * 23)),
        ((500, 200, 100), PermutationSampler(8)),
        ((10_000, 23, 10_000), PermutationSampler(2)),
    ],
)
def test_as_many_coalitions_are_drawn_as_are_quick(size, sampler):
    full = Size(*size, with_label=False, n_targets=0, in_bins=False)
    assert Effort.resolve(KNNValuer(), None, full, Shapley()).sampler == sampler


def test_bins_cost_as_much_for_few_rows_so_fewer_subsets_are_looked_at():
    size = Size(4000, 10, 50, with_label=False, n_targets=0, in_bins=False)
    sampler = {
        in_bins: Effort.resolve(
            KNNValuer(), None, dataclasses.replace(size, in_bins=in_bins), Shapley()
        ).sampler
        for in_bins in (False, True)
    }
    assert sampler[False] == ExhaustiveSampler()
    assert sampler[True] == QuadratureSampler(190)


def test_half_a_pass_knows_both_errors():
    problem = larger_problem(n_columns=21)
    n_tasks = fit(KNNValuer(n_passes=1, random_state=0), problem).provenance.sessions[0].tasks
    found = []
    for seed in (0, 1):
        with pytest.warns(UserWarning, match="interrupted"):
            half = fit(KNNValuer(stop=MaxTasks(n_tasks // 2), random_state=seed), problem)
        assert half.status == "interrupted"
        assert np.isfinite(half.validation_se).all()
        found.append(half)
    apart = (found[0].values - found[1].values) / np.hypot(*(each.sampling_se for each in found))
    assert 0.7 < np.sqrt(np.mean(apart**2)) < 1.1


def test_a_default_run_ends_when_sampling_errors_are_small_beside_validation_errors():
    valuation = fit(KNNValuer(random_state=0), larger_problem(n_columns=21))
    sampling, validation = (
        np.sqrt(np.mean(errors**2)) for errors in (valuation.sampling_se, valuation.validation_se)
    )
    assert 0.05 < sampling / validation < 0.5
    fine = KNNValuer(stop=TargetPrecision(0.1), random_state=0)
    finer = fit(fine, larger_problem(n_columns=21))
    assert np.sqrt(np.mean(finer.sampling_se**2)) < 0.12 * validation


@pytest.mark.parametrize(
    ("size", "n_validation", "n_passes"),
    [
        ((1000, 14, 1000), 1000, 14),
        ((10_000, 14, 10_000), 10_000, 1),
        ((32_561, 14, 32_561), 4757, 1),
        ((300_000, 15, 300_000), 859, 1),
        ((1000, 500, 1000), 947, 1),
        ((10**9, 15, 10**6), 100, 1),
    ],
)
def test_the_effort_follows_from_the_size(size, n_validation, n_passes):
    full = Size(*size, with_label=False, n_targets=0, in_bins=size[0] > MAX_SORTED_ROWS)
    effort = Effort.resolve(KNNValuer(), "auto", full, Shapley())
    assert (effort.n_validation, effort.n_passes) == (n_validation, n_passes)
    everything = Effort.resolve(KNNValuer(), None, full, Shapley())
    assert everything.n_validation == size[2]
    assert isinstance(everything.stop, TargetPrecision)


@pytest.mark.parametrize(
    ("n_rows", "binned"), [(20, []), (40, ["numbers"]), (60, ["classes", "numbers"])]
)
def test_large_tables_are_ranked_in_bins_and_sooner_if_the_target_is_numeric(
    monkeypatch, n_rows, binned
):
    for name, most in {"MAX_SORTED_ROWS": 50, "MAX_SORTED_NUMBERS": 30}.items():
        monkeypatch.setattr(f"cellworth.valuers.knn_valuer.{name}", most)
    numbers = np.random.default_rng(0).normal(size=(n_rows, 3))
    targets = {"classes": (numbers[:, 0] > 0).astype(int), "numbers": numbers.sum(axis=1)}
    specs = {name: KNNValuer().problem_spec(numbers, y) for name, y in targets.items()}
    assert [name for name, spec in specs.items() if spec["ranking"] != "None"] == binned


def test_validation_rows_are_drawn():
    problem = larger_problem(n_columns=7)
    some = fit(KNNValuer(), problem, n_validation=10)
    assert some.scores.scored_on == "10 of 40 validation rows"
    assert some.provenance.problem_spec["n_validation"] == 10
    folds, positions = WeightedQueries.weigh(
        (), [codes(problem[3])], "neighbor_agreement", 10
    ).order
    assert not folds.any()
    X, y, X_val, y_val = problem
    chosen = np.sort(positions)
    same = KNNValuer().fit(X, y, X_val=X_val.iloc[chosen], y_val=y_val[chosen]).valuation_
    np.testing.assert_allclose(some.values, same.values, atol=1e-14)
    np.testing.assert_allclose(some.validation_se, same.validation_se, rtol=1e-9)
    with pytest.raises((TypeError, ValueError), match="n_validation"):
        fit(KNNValuer(), problem, n_validation=0)
    with pytest.raises((TypeError, ValueError), match="n_validation"):
        fit(KNNValuer(), problem, n_validation="some")


def test_classes_with_equal_shares_are_drawn_equally_often():
    labels = [np.repeat([0.0, 1.0, 2.0], [900, 90, 10])]
    queries = WeightedQueries.weigh((), labels, "balanced_neighbor_agreement", 100)
    drawn = labels[0][queries.order[1]]
    assert np.bincount(drawn.astype(int)).tolist() == [45, 45, 10]
    for label in range(3):
        assert queries.weights[0][labels[0] == label].sum() == pytest.approx(1 / 3)
    plain = WeightedQueries.weigh((), labels, "neighbor_agreement", 100)
    assert np.bincount(labels[0][plain.order[1]].astype(int)).tolist() == [90, 9, 1]


def codes(labels):
    return np.unique(labels, return_inverse=True)[1].astype(float)


@pytest.mark.parametrize("columns", [None, [0, 0, 1, 1, 2, 2, 2]])
def test_labels_join_columns_that_have_numbers_for_names(columns, tmp_path):
    X, y, X_val, y_val = larger_problem()
    X.columns = X_val.columns = range(7)
    valuer, given = KNNValuer(sampler=ExhaustiveSampler()), (X, y, X_val, y_val)
    valuation = fit(valuer, given, column_groups=columns, value_labels=True)
    assert valuation.column_labels[-1] == "(label)"
    assert valuation.blocks.columns.grouped == (columns is not None)
    valuation.save(tmp_path)
    assert load(tmp_path).blocks == valuation.blocks


def test_one_query_can_judge():
    X, y, X_val, y_val = larger_problem()
    valuation = fit(KNNValuer(), (X, y, X_val.iloc[:1], y_val[:1]))
    assert abs(valuation.efficiency_residual) < 1e-12
    assert valuation.validation_se is None


def test_independent_runs_merge_with_the_errors_of_the_choice_of_queries():
    problem = larger_problem()
    valuer = KNNValuer(sampler=PermutationSampler(1), n_passes=5)
    one, other = (fit(valuer.set_params(random_state=seed), problem) for seed in (1, 2))
    merged, swapped = one.merge(other), other.merge(one)
    assert merged.counts.max() == 2 * one.counts.max()
    np.testing.assert_allclose(merged.validation, swapped.validation)
    assert (merged.validation >= np.minimum(one.validation, other.validation) - 1e-15).all()


def test_a_column_of_mixed_objects_is_of_one_kind_in_all_folds():
    X = pd.DataFrame({"a": [1, 2, 3, "x", 5, 6, 7, 8], "b": np.arange(8.0)}, dtype=object)
    for cv in (2, 4, 8):
        folds = [(np.delete(np.arange(8), part), part) for part in np.array_split(np.arange(8), cv)]
        assert np.isfinite(KNNValuer(2).fit(X, np.arange(8) % 2, cv=folds).values_).all()


def test_a_fit_that_fails_leaves_no_results_of_an_earlier_one():
    table, y = larger_problem()[:2]
    valuer = KNNValuer(n_passes=1, random_state=0).fit(table, y)
    with pytest.raises(ValueError, match="y must have one entry"):
        valuer.fit(table, y[:-1])
    assert not [name for name in vars(valuer) if name.endswith("_")]
    model = OutOfBagValuer(n_trees=20, random_state=0).fit(table, y)
    with pytest.raises(ValueError, match="y must have one entry"):
        model.fit(table, y[:-1])
    assert not [name for name in vars(model) if name.endswith("_")]


@pytest.mark.parametrize("seed", ["a", 1.5, -1])
def test_a_seed_that_is_none_is_refused_also_where_nothing_is_drawn(seed):
    X = [[0.0], [1.0], [2.0], [3.0]]
    with pytest.raises((TypeError, ValueError), match=r"random_state must be an integer"):
        KNNValuer(1, random_state=seed).fit(X, [0, 0, 1, 1], X_val=X, y_val=[0, 0, 1, 1])
    for good in (None, np.int64(3), np.random.RandomState(0)):
        KNNValuer(1, random_state=good).fit(X, [0, 0, 1, 1], X_val=X, y_val=[0, 0, 1, 1])


@pytest.mark.parametrize("ranking", [None, BinnedRanks()])
def test_validation_rows_that_are_drawn_twice_count_once(ranking):
    rng = np.random.default_rng(0)
    X, X_val = rng.normal(size=(30, 4)), rng.normal(size=(700, 4))
    y, y_val = X[:, 0] + X[:, 1] > 0, X_val[:, 0] + X_val[:, 1] > 0
    data = {"X": X, "y": y, "X_val": X_val, "y_val": y_val}
    exact = KNNValuer(3, sampler=ExhaustiveSampler()).fit(**data).valuation_
    sampled = {"sampler": PermutationSampler(2), "n_passes": 1, "random_state": 0}
    drawn = KNNValuer(3, ranking=ranking, **sampled).fit(**data).valuation_
    assert drawn.score == pytest.approx(exact.score, abs=1e-6)
    assert drawn.total == pytest.approx(exact.total, abs=1e-6)


def test_a_class_may_have_fewer_rows_than_there_are_folds():
    """A warning of scikit-learn would be an error here."""
    X, y = np.arange(12.0)[:, np.newaxis], list("aaaaaabbbbbc")
    assert KNNValuer(1).fit(X, y, cv=3).valuation_.shape == (12, 1)
