"""One row in place of equal ones: copies are worth nothing."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import betabinom

from cellworth import KNNValuer, Owners
from cellworth.payouts import (
    Agreement,
    Policy,
    check_owners,
    share_copies,
    split_revenue,
    verify_bundle,
)
from cellworth.payouts.copies import _compute_chance

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(60, 3)).round(2), columns=list("abc"))
X["kind"] = RNG.choice(["u", "v"], 60)
y = (X["a"] > 0).astype(int)
X_VAL = pd.DataFrame(RNG.normal(size=(40, 3)).round(2), columns=list("abc"))
X_VAL["kind"] = RNG.choice(["u", "v"], 40)
NAMES = np.repeat(["ann", "bob", "eve"], 20)


def paid(table, labels, names, *, share, gate="refuse"):
    owners = Owners.by_row(table, names)
    if share:
        owners, table, labels = share_copies(owners, table, labels)
    data = {"X_val": X_VAL, "y_val": (X_VAL["a"] > 0).astype(int), "owners": owners}
    valuation = KNNValuer(3, n_passes=1, random_state=0).fit(table, labels, **data).valuation_
    return split_revenue(valuation, owners, amount="1000.00", policy=Policy(gate=gate))


@pytest.mark.parametrize("n_copies", [2, 3, 5])
@pytest.mark.parametrize("rows", [slice(0, 20), slice(3, 7)])
def test_copies_of_own_rows_are_worth_nothing(n_copies, rows):
    table = pd.concat([X, *[X[rows]] * (n_copies - 1)], ignore_index=True)
    labels = pd.concat([y, *[y[rows]] * (n_copies - 1)], ignore_index=True)
    names = np.append(NAMES, ["ann"] * (len(table) - 60))
    honest = paid(X, y, NAMES, share=False)
    assert paid(table, labels, names, share=True).amounts == honest.amounts


def test_copies_of_anothers_rows_get_half_of_them():
    table, labels = pd.concat([X, X[20:40]], ignore_index=True), pd.concat([y, y[20:40]])
    names = np.append(NAMES, ["ann"] * 20)
    shared, rows, _ = share_copies(Owners.by_row(table, names), table, labels)
    assert len(rows) == 60
    assert [one.kind for one in check_owners(shared)] == ["copied rows"]
    with pytest.warns(UserWarning, match="have a twin among those of"):
        payout = paid(table, labels, names, share=True, gate="warn")
    honest = paid(X, y, NAMES, share=False)
    assert payout.values[0] == pytest.approx(honest.values[0] + honest.values[1] / 2)
    assert payout.values[2] == pytest.approx(honest.values[2])


def test_another_label_makes_another_row():
    table, labels = pd.concat([X, X[:5]], ignore_index=True), pd.concat([y, 1 - y[:5]])
    owners = Owners.by_row(table, np.append(NAMES, ["ann"] * 5))
    _, rows, kept = share_copies(owners, table, labels)
    assert len(rows) == len(kept) == 65


def test_owners_of_columns_and_labels_keep_them():
    table, labels = pd.concat([X, X[:20]], ignore_index=True), [*y, *y[:20]]
    owners = Owners(table).assign("ann", columns=["a", "b"]).assign("lab", columns=["(label)"])
    owners = owners.assign("eve", rows=slice(60, 80), columns=["c"])
    owners, _, kept = share_copies(owners, table, labels)
    assert owners.n_cells_of("ann") == 120
    assert owners.n_cells_of("eve") == 20
    assert owners.share_of_labels() == {"lab": 60}
    assert kept.tolist() == list(y)


def test_labels_of_equal_rows_are_shared_too():
    table, labels = pd.concat([X, X[:20]], ignore_index=True), pd.concat([y, y[:20]])
    owners = Owners(table).assign("ann", rows=slice(0, 60), columns=["(label)"])
    owners = owners.assign("bob", rows=slice(60, 80), columns=["(label)"])
    assert share_copies(owners, table, labels)[0].share_of_labels() == {"ann": 60, "bob": 20}


def test_labels_must_be_those_of_the_rows():
    with pytest.raises(ValueError, match="y must have 60 labels"):
        share_copies(Owners(X).assign("ann"), X, y[:5])


def agree(table, labels, names, **policy):
    """Return the agreement, the payout, and the arguments of a replay."""
    delivered = table.assign(source=names)
    valuer = KNNValuer(3, n_passes=1, random_state=0)
    data = {"X_val": X_VAL, "y_val": (X_VAL["a"] > 0).astype(int)}
    owners = Owners.from_column(delivered, "source")
    terms = {"X": table, "y": labels, **data}
    agreement = Agreement.draft(valuer, owners, Policy(**policy), **terms)
    owners, rows, kept = agreement.prepare(delivered, labels)
    valuation = valuer.fit(rows, kept, **data, owners=owners).valuation_
    payout = agreement.split(valuation, delivered, labels, amount="1000.00")
    return payout, {"data": {"X": delivered, "y": labels, **data}, "valuer": valuer}


def repeat(rows, n_copies):
    table = pd.concat([X, *[X[rows]] * (n_copies - 1)], ignore_index=True)
    labels = pd.concat([y, *[y[rows]] * (n_copies - 1)], ignore_index=True)
    return table, labels, np.append(NAMES, ["ann"] * (len(table) - 60))


@pytest.mark.parametrize("rows", [slice(0, 20), slice(3, 7)])
def test_under_an_agreement_copies_change_a_total_by_less_than_one_percent(rows, tmp_path):
    honest, _ = agree(X, y, NAMES)
    payout, replayed = agree(*repeat(rows, 4))
    assert payout.policy.duplicates == "share"
    change = np.abs(payout.values - honest.values) / honest.values
    assert change.max() <= 0.01
    paid_each, _ = agree(*repeat(slice(0, 20), 4), duplicates="pay", gate="off")
    assert paid_each.values[0] > 1.2 * honest.values[0]
    payout.save(tmp_path / "bundle")
    assert verify_bundle(tmp_path / "bundle", **replayed)
    # Other labels make other rows of the same cells.
    replayed["data"]["y"] = 1 - replayed["data"]["y"]
    assert not verify_bundle(tmp_path / "bundle", **replayed)


def test_anothers_rows_are_found_although_equal_rows_share():
    table, labels = pd.concat([X, X[20:40]], ignore_index=True), pd.concat([y, y[20:40]])
    names = np.append(NAMES, ["ann"] * 20)
    with pytest.raises(ValueError, match="have a twin among those of") as caught:
        agree(table, labels.reset_index(drop=True), names)
    assert "would get about" in str(caught.value)


def test_values_of_equal_rows_are_refused_if_they_share():
    table, labels, names = repeat(slice(0, 3), 2)
    owners = Owners.by_row(table, names)
    data = {"X_val": X_VAL, "y_val": (X_VAL["a"] > 0).astype(int)}
    valuation = KNNValuer(3, n_passes=1, random_state=0).fit(table, labels, **data).valuation_
    with pytest.raises(ValueError, match="3 rows equal an earlier one"):
        split_revenue(valuation, owners, amount="1000.00")
    # Who holds columns has no rows to copy.
    columns = Owners(table).assign("ann", columns=["a", "b"]).assign("bob", columns=["c", "kind"])
    policy = Policy(gate="off")
    assert split_revenue(valuation, columns, amount="10.00", policy=policy).held == 0
    with pytest.raises(ValueError, match="duplicates must be 'pay' if blocks are the players"):
        Policy(game="blocks", duplicates="share")


@pytest.mark.parametrize(("n_twins", "n_rows"), [(0, 9), (4, 9), (9, 9), (60, 200)])
def test_the_chance_of_twins_is_the_tail_of_a_beta_binomial_distribution(n_twins, n_rows):
    for n_usual, n_compared in ((0, 30), (4.2, 1000), (15, 20)):
        theirs = betabinom.sf(n_twins - 1, n_rows, n_usual + 0.5, n_compared - n_usual + 0.5)
        ours = _compute_chance(n_twins, n_rows, n_usual, n_compared)
        assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-10)


def test_columns_in_which_people_are_alike_are_no_copies_after_equal_rows_are_merged():
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 4, (400, 8)).astype(float), rng.integers(0, 2, 400)
    owners = Owners(X)
    for name, rows in (("north", slice(0, 200)), ("south", slice(200, 400))):
        owners = owners.assign(f"{name} bank", rows=rows, columns=[f"x{j}" for j in range(3)])
        owners = owners.assign(f"{name} shop", rows=rows, columns=[f"x{j}" for j in range(3, 8)])
    shared, _, _ = share_copies(owners, X, y)
    assert shared.delivered is not None
    assert check_owners(shared) == []
