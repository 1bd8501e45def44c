"""What owners' cells are worth together, with errors that single cells cannot tell."""

import numpy as np
import pytest
from sklearn.datasets import load_wine

from cellworth import KNNValuer, Owners, Runtime, load
from cellworth.payouts import Policy, split_revenue
from cellworth.payouts.allocation import simulate_quotas
from cellworth.runtime import Processes, Serial
from cellworth.sampling import PermutationSampler
from cellworth.sampling.moments import append_pairs, draw_errors, widening
from fit_settings import split_settings

X, y = load_wine(return_X_y=True, as_frame=True)
X = X.iloc[::2, :6].reset_index(drop=True)
y = y.iloc[::2].reset_index(drop=True)
NAMES = list(X.columns)
OWNERS = (
    Owners(X)
    .assign("ann", rows=slice(0, 40), columns=NAMES[:3])
    .assign("bob", rows=slice(40, None), columns=NAMES[:3])
    .assign("eve", columns=NAMES[3:5])
)


CELLS = Policy(game="cells")


def fitted(owners=OWNERS, **settings):
    of_valuer, of_fit = split_settings(settings)
    return KNNValuer(3, **of_valuer).fit(X, y, owners=owners, **of_fit).valuation_


def test_the_value_of_an_owner_is_the_sum_of_its_cells():
    valuation = fitted()
    cells = valuation.values
    expected = [cells[:40, :3].sum(), cells[40:, :3].sum(), cells[:, 3:5].sum()]
    assert np.allclose(valuation.owners().values, expected, rtol=1e-12)
    assert valuation.owners().labels["owner"].tolist() == ["ann", "bob", "eve"]


def test_owners_of_whole_columns_have_the_errors_of_these_columns():
    owners = Owners(X).assign("first", columns=NAMES[0]).assign("rest", columns=NAMES[1:])
    valuation = fitted(owners, sampler=PermutationSampler(2), n_passes=5, random_state=0)
    columns, seen = valuation.columns(), valuation.owners()
    assert seen.sampling_se[0] == pytest.approx(columns.sampling_se[0], rel=1e-9)
    assert seen.validation_se[0] == pytest.approx(columns.validation_se[0], rel=1e-6)


@pytest.mark.slow
def test_the_validation_error_of_an_owner_is_that_of_a_mean_over_queries():
    train, val = (X.iloc[::2], y[::2]), (X.iloc[1::2], y[1::2])
    half = len(val[1])
    owners = Owners(train[0]).assign("ann", rows=slice(0, 20), columns=NAMES[:4])
    reported = (
        KNNValuer(3).fit(*train, X_val=val[0], y_val=val[1], owners=owners).valuation_.owners()
    )
    each = [
        KNNValuer(3).fit(*train, X_val=val[0].iloc[[q]], y_val=val[1].iloc[[q]]).values_
        for q in range(half)
    ]
    sums = np.array([values[:20, :4].sum() for values in each])
    expected = sums.std(ddof=1) / np.sqrt(half) * widening(half)
    assert reported.validation_se[0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
def test_sums_are_the_same_bits_on_processes_and_after_a_resume(tmp_path):
    settings = {"sampler": PermutationSampler(2), "random_state": 0}
    once = fitted(**settings, n_passes=3, runtime=Runtime(executor=Serial())).owners()
    elsewhere = fitted(**settings, n_passes=3, runtime=Runtime(executor=Processes(2))).owners()
    checkpoint = tmp_path / "run"
    fitted(**settings, n_passes=1, runtime=Runtime(checkpoint=checkpoint))
    resumed = fitted(**settings, n_passes=3, runtime=Runtime(checkpoint=checkpoint)).owners()
    for other in (elsewhere, resumed):
        assert np.array_equal(other.values, once.values)
        assert np.array_equal(other.sampling_se, once.sampling_se)


def test_a_checkpoint_with_other_owners_is_another_run(tmp_path):
    checkpoint = tmp_path / "run"
    fitted(
        sampler=PermutationSampler(2),
        n_passes=1,
        random_state=0,
        runtime=Runtime(checkpoint=checkpoint),
    )
    with pytest.raises(ValueError, match="owners"):
        fitted(
            Owners(X).assign("ann", columns=NAMES[0]),
            sampler=PermutationSampler(2), n_passes=1, random_state=0,
            runtime=Runtime(checkpoint=checkpoint),
        )  # fmt: skip


def test_sums_are_saved_and_merged(tmp_path):
    runs = [fitted(sampler=PermutationSampler(2), n_passes=2, random_state=s) for s in (0, 1)]
    runs[0].save(tmp_path / "one")
    again = load(tmp_path / "one")
    assert np.array_equal(again.owners().values, runs[0].owners().values)
    assert again.baseline == runs[0].baseline
    both = runs[0].merge(runs[1])
    assert np.allclose(
        both.owners().values, (runs[0].owners().values + runs[1].owners().values) / 2
    )
    assert both.owners().counts.tolist() == [2 * runs[0].owners().counts.max()] * 3


def test_owners_of_all_cells_have_amounts_that_vary_against_each_other():
    """The errors of pairs in a run are those of an owner who holds both parts."""
    valuation = fitted()
    both = OWNERS.names[:2]
    together = (
        Owners(X).assign(" and ".join(both), columns=NAMES[:3]).assign("eve", columns=NAMES[3:5])
    )
    expected = fitted(together).owners().validation_se[0]
    assert valuation.owned.validation[3] == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "negative",
    ["signed", "floor"],
)
def test_intervals_of_amounts_cover_the_amounts_of_all_validation_rows(negative):
    """Owners' values are means over validation rows, of which 100 are drawn 200 times."""
    policy, rng = Policy(negative=negative), np.random.default_rng(0)
    mean = np.array([0.5, 0.3, 0.1, -0.05])
    truth = simulate_quotas(policy, 100.0, mean[np.newaxis])[0]
    mixing = rng.normal(size=(4, 4)) * 0.5
    normals = rng.standard_normal((400, 5))
    wider, inside = widening(100), []
    for _ in range(200):
        rows = mean + rng.normal(size=(100, 4)) @ mixing
        errors = append_pairs(rows).std(axis=0, ddof=1) / 10 * wider
        drawn = rows.mean(axis=0) + draw_errors(errors, 4, normals)
        simulated = simulate_quotas(policy, 100.0, drawn)
        low, high = np.quantile(simulated, [0.025, 0.975], axis=0)
        inside.append((low <= truth + 1e-9) & (truth <= high + 1e-9))
    # Owners at an end that the policy sets are covered more often.
    free = truth > 0 if negative == "floor" else slice(None)
    assert 0.92 < np.mean(inside, axis=0)[free].mean() < 0.98


def test_labels_that_play_can_be_owned():
    owners = OWNERS.assign("mia", columns=["(label)"])
    valuation = fitted(owners, value_labels=True)
    assert valuation.owners().values[3] == pytest.approx(valuation.columns().values[-1], rel=1e-12)


def test_cells_that_are_claimed_twice_are_shared_alike():
    owners = Owners(X, overlaps="equal").assign("ann", columns=NAMES[0])
    owners = owners.assign("bob", columns=NAMES[:2])
    valuation = fitted(owners)
    columns = valuation.columns().values
    assert np.allclose(valuation.owners().values, [columns[0] / 2, columns[0] / 2 + columns[1]])


def test_the_score_is_the_total_plus_the_baseline():
    valuation = fitted()
    held_out = KNNValuer(3).fit(X, y, X_val=X, y_val=y).valuation_
    shares = np.mean([np.mean(y == label) for label in y])
    assert held_out.baseline == pytest.approx(shares, abs=1e-12)
    assert 0 < valuation.baseline < valuation.baseline + valuation.total < 1


def test_owners_that_are_none_are_rejected():
    with pytest.raises(TypeError, match=r"owners must be Owners, got dict; pass Owners\(X\)"):
        KNNValuer().fit(X, y, owners={"ann": [0]})
    with pytest.raises(ValueError, match="this valuation has no owners; pass owners="):
        KNNValuer(3).fit(X, y).valuation_.owners()


def test_without_owners_in_fit_a_split_has_no_intervals():
    watched = split_revenue(fitted(), OWNERS, amount="1", policy=CELLS)
    blind = split_revenue(KNNValuer(3).fit(X, y).valuation_, OWNERS, amount="1", policy=CELLS)
    assert blind.amounts == watched.amounts
    assert not np.isnan(watched.errors.together).any()
    assert np.isnan(blind.errors.together).all()
    assert "Intervals are not known" in repr(blind)


@pytest.mark.slow
def test_few_passes_do_not_hide_the_validation_error():
    data = {"X": X[::2], "y": y[::2], "X_val": X[1::2], "y_val": y[1::2]}
    owners = Owners(X[::2]).assign("ann", columns=NAMES[0]).assign("bob", columns=NAMES[1:])
    exact = KNNValuer(3).fit(**data, owners=owners).valuation_.owners().validation_se
    for seed in range(20):
        valuer = KNNValuer(3, sampler=PermutationSampler(1), n_passes=2, random_state=seed)
        reported = valuer.fit(**data, owners=owners).valuation_.owners().validation_se
        assert (reported > 0.4 * exact).all()


def test_amounts_vary_by_the_sampling_errors_of_owners_of_columns():
    data = {"X": X[::2], "y": y[::2], "X_val": X[1::2], "y_val": y[1::2]}
    owners = Owners(X[::2]).assign("ann", columns=NAMES[0]).assign("bob", columns=NAMES[1:])
    valuer = KNNValuer(3, sampler=PermutationSampler(1), n_passes=4, random_state=0)
    valuation = valuer.fit(**data, owners=owners).valuation_
    payout = split_revenue(valuation, owners, amount="1", policy=CELLS)
    assert payout.errors.sampling == pytest.approx(valuation.owners().sampling_se)
    assert payout.errors.sampling.min() > 0
