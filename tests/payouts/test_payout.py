"""Payouts: what a split promises of sums, names, orders, policies, labels and statements."""

import html
import pickle
import re
import time
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_wine

from cellworth import KNNValuer, Owners, Valuation
from cellworth.data.blocks import Blocks
from cellworth.payouts import Payout, Policy, split_revenue
from cellworth.payouts.allocation import sum_owner_values
from cellworth.sampling import Moments
from cellworth.sampling.moments import OwnerSums, Tally, append_margins, append_pairs
from cellworth.valuation.provenance import Provenance, Session
from owned_cells import assign_cells

CENT = Decimal("0.01")
many = settings(max_examples=300, derandomize=True, deadline=None)
hundred = settings(max_examples=100, derandomize=True, deadline=None)


def rules(**given):
    """A policy for sums of cells."""
    return Policy(**({"game": "cells", "negative": "signed"} | given))


def valued(cells, *, errors=None, owners=None, table=None, status="exact", **blocks):
    """A Valuation of given cells, as a valuer would make it.

    If ``owners`` were given to ``fit``, their sums have independent validation errors.
    """
    cells = np.asarray(cells, dtype=float)
    if table is None:
        ids, names = np.arange(cells.shape[0]), [f"x{j}" for j in range(cells.shape[1])]
    else:
        ids, names = table.index, table.columns
    provenance = Provenance.now({}, {"name": "given"}, Session(None, 1), Tally(), 0.0)
    moments = Moments.of(append_margins(cells))
    total = float(cells.sum())
    validation = None if errors is None else append_margins(np.full(cells.shape, errors))
    valuation = Valuation(
        Blocks.cut(ids, names, **blocks), moments, total, "prior", status, provenance,
        validation=validation, baseline=0.25,
    )  # fmt: skip
    if owners is None:
        return valuation
    holdings = owners.project(valuation.blocks)
    variances = append_pairs(np.full(len(holdings.names), float(errors) ** 2))
    seen = OwnerSums(holdings.names, holdings.keys, Moments.of(variances), np.sqrt(variances))
    return replace(valuation, owned=seen)


def owned(whose, shape, names=None, order=None):
    """Owners of a table of distinct rows, from a code for each cell; -1 is no owner."""
    whose = np.asarray(whose).reshape(shape)
    owners = Owners(np.random.default_rng(0).normal(size=shape))
    codes = [code for code in np.unique(whose) if code >= 0]
    for code in codes if order is None else [codes[position] for position in order]:
        name = names[code] if names else f"owner {code}"
        owners = assign_cells(owners, name, whose == code)
    return owners


def amounts_of(payout):
    return dict(zip(payout.owners, payout.amounts, strict=True))


@st.composite
def tables(draw, least=-1000):
    shape = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    n_cells = shape[0] * shape[1]
    cells = draw(st.lists(st.integers(least, 1000), min_size=n_cells, max_size=n_cells))
    whose = draw(st.lists(st.integers(-1, 3), min_size=n_cells, max_size=n_cells))
    assume(max(whose) >= 0)
    return np.array(cells).reshape(shape) / 1024, np.array(whose).reshape(shape)


def sums(cells, whose):
    return {code: Fraction(float(cells[whose == code].sum())) for code in np.unique(whose)}


@pytest.mark.slow
@many
@given(tables(), st.integers(0, 10**9), st.sampled_from(["floor", "carry", "signed"]))
def test_payouts_add_up_to_the_cent_and_follow_their_policy(table, cents, negative):
    cells, whose = table
    worth = {code: value for code, value in sums(cells, whose).items() if code >= 0}
    counted = worth if negative == "signed" else {c: max(v, 0) for c, v in worth.items()}
    assume(sum(counted.values()) > 0)
    payout = split_revenue(
        valued(cells),
        owned(whose, cells.shape),
        amount=cents * CENT,
        policy=rules(negative=negative),
    )
    assert sum(payout.amounts) == cents * CENT
    for code, value in worth.items():
        position = payout.owners.index(f"owner {code}")
        exact = Fraction(cents * CENT) * counted[code] / sum(counted.values())
        assert abs(Fraction(payout.amounts[position]) - exact) < Fraction(CENT)
        assert payout.values[position] == value
        carried = payout.carried.get(f"owner {code}", 0)
        assert carried == (min(value, 0) if negative == "carry" else 0)
    assert payout.unassigned == sums(cells, whose).get(-1, 0)


@pytest.mark.slow
@hundred
@given(tables(), st.randoms(use_true_random=False), st.integers(1, 10**6))
def test_names_orders_of_assignment_and_orders_of_rows_change_no_amount(table, random, cents):
    cells, whose = table
    assume(sum(v for c, v in sums(cells, whose).items() if c >= 0) > 0)
    given_out = {"amount": cents * CENT, "policy": rules(negative="signed")}
    first = split_revenue(valued(cells), owned(whose, cells.shape), **given_out)
    codes = [code for code in np.unique(whose).tolist() if code >= 0]
    order = random.sample(range(len(codes)), len(codes))
    names = ["zoe", "amy", "kim", "bea"]
    second = split_revenue(valued(cells), owned(whose, cells.shape, names, order), **given_out)
    expected = {names[c]: amounts_of(first)[f"owner {c}"] for c in codes}
    assert amounts_of(second) == expected
    # Rows in another order have other hashes, which decide equal remainders.
    rows = random.sample(range(len(cells)), len(cells))
    third = amounts_of(
        split_revenue(valued(cells[rows]), owned(whose[rows], cells.shape), **given_out)
    )
    worth = sums(cells, whose)
    total = sum(worth[c] for c in codes)
    rest = [Fraction(cents) * worth[c] / total % 1 for c in codes]
    if len(set(rest)) == len(rest):
        assert third == amounts_of(first)
    else:
        assert all(abs(third[name] - one) <= CENT for name, one in amounts_of(first).items())


@pytest.mark.slow
@hundred
@given(tables(), st.data(), st.integers(1, 10**6))
def test_an_owner_who_splits_itself_moves_no_share_of_others(table, data, cents):
    """Signed: shares are equal; amounts differ by a cent at most, over which remainders compete."""
    cells, whose = table
    assume(sum(v for c, v in sums(cells, whose).items() if c >= 0) > 0)
    mine = np.argwhere(whose == whose.max())
    moved = data.draw(st.lists(st.booleans(), min_size=len(mine), max_size=len(mine)))
    in_two = whose.copy()
    in_two[tuple(mine[moved].T)] = 9
    given_out = {"amount": cents * CENT, "policy": rules(negative="signed")}
    before = split_revenue(valued(cells), owned(whose, cells.shape), **given_out)
    after = split_revenue(valued(cells), owned(in_two, cells.shape), **given_out)
    others = [f"owner {c}" for c in np.unique(whose) if 0 <= c < whose.max()]
    for name in others:
        positions = before.owners.index(name), after.owners.index(name)
        assert before.values[positions[0]] == after.values[positions[1]]
        assert abs(before.amounts[positions[0]] - after.amounts[positions[1]]) <= CENT
    assert before.values.sum() == pytest.approx(after.values.sum(), abs=1e-12)


def test_sums_of_cells_are_exact_whatever_the_order():
    rng = np.random.default_rng(0)
    cells = rng.normal(size=(50, 7)) * 10.0 ** rng.integers(-12, 3, (50, 7))
    rows = rng.permutation(50)
    one, other = (
        sum_owner_values(v, owned(np.zeros((50, 7)), (50, 7)).project(v.blocks))[0]
        for v in (valued(cells), valued(cells[rows]))
    )
    assert one == other
    assert float(one[0]) == pytest.approx(cells.sum(), rel=1e-12)


TWO = owned([[0, 1]], (1, 2))


def test_an_owner_of_negative_value_pays_and_its_statement_says_so():
    payout = split_revenue(
        valued([[3.0, -1.0]]), TWO, amount="100", policy=rules(negative="signed")
    )
    says = "owner 1 gets -50.00 EUR (95% interval -50.00 to -50.00), -50.00% of 100"
    assert str(payout.statement("owner 1")).startswith(says)
    assert str(payout.statement("owner 0")).startswith("owner 0 gets 150.00 EUR")


def test_a_shortfall_is_carried_until_it_is_made_good():
    periods = [[3.0, -2.0], [3.0, 1.0], [3.0, 1.5]]
    carried, seen = None, []
    for cells in periods:
        payout = split_revenue(
            valued([cells]),
            TWO,
            amount="90",
            carried=carried,
            policy=rules(negative="carry"),
        )
        carried = payout.carried
        seen.append((list(map(str, payout.amounts)), dict(carried)))
    assert seen == [
        (["90.00", "0.00"], {"owner 1": -2.0}),
        (["90.00", "0.00"], {"owner 1": -1.0}),
        (["77.14", "12.86"], {}),
    ]


def test_nothing_and_one_owner_and_all_cells():
    nothing = split_revenue(valued([[9.0, 1.0]]), TWO, amount=0, policy=rules())
    assert list(map(str, nothing.amounts)) == ["0.00", "0.00"]
    assert nothing.shares.tolist() == [0, 0]
    one = Owners(np.zeros((2, 2))).assign("all")
    payout = split_revenue(
        valued([[1.0, 2.0], [3.0, -1.0]]), one, amount=Decimal("0.01"), policy=rules()
    )
    assert (payout.amounts, payout.undecided) == ((CENT,), ())
    assert payout.unassigned == 0
    huge = split_revenue(valued([[2.0, 1.0]]), TWO, amount="9" * 20, policy=rules())
    assert sum(map(Fraction, huge.amounts)) == Fraction("9" * 20)


def test_shared_cells_are_paid_alike():
    assert list(map(int, payout_of_shared().amounts)) == [3, 6]
    shares = payout_of_shared().statement("ann").to_frame("pandas")["share"]
    assert shares.tolist() == [0.5]


def payout_of_shared():
    owners = Owners(np.zeros((1, 2)), overlaps="equal").assign("ann", columns="x0").assign("bob")
    return split_revenue(valued([[6.0, 3.0]]), owners, amount="9", policy=rules())


def test_two_who_share_all_their_cells_get_the_same():
    owners = Owners(np.zeros((1, 2)), overlaps="equal").assign("ann").assign("bob")
    payout = split_revenue(valued([[6.0, 3.0]]), owners, amount="0.03", policy=rules())
    assert sorted(payout.amounts) == [CENT, 2 * CENT]


def test_intervals_join_both_errors_and_undecided_rankings_are_named():
    payout = split_revenue(
        valued([[1.0, 0.9, 0.1]], errors=0.1, owners=owned([[0, 1, 2]], (1, 3))),
        owned([[0, 1, 2]], (1, 3)),
        amount="1",
        policy=rules(),
    )
    half = 1.959963984540054 * 0.1
    assert np.allclose(payout.intervals, [[v - half, v + half] for v in (1.0, 0.9, 0.1)])
    assert payout.undecided == (("owner 0", "owner 1"),)
    assert "Ranking undecided: owner 0 and owner 1." in repr(payout)


@pytest.mark.parametrize(("difference", "undecided"), [(0.27, True), (0.29, False)])
def test_an_order_is_undecided_within_the_error_of_the_difference(difference, undecided):
    # 1.96 * 0.1 * sqrt(2) is 0.277: intervals overlap up to a difference of 0.392.
    cells = valued([[1.0, 1.0 - difference]], errors=0.1, owners=TWO)
    for rule, named in (("pay", lambda p: p.undecided), ("equal", lambda p: p.ties)):
        policy = rules(undecided=rule)
        payout = split_revenue(cells, TWO, amount="1", policy=policy)
        assert named(payout) == ((("owner 0", "owner 1"),) if undecided else ())


def test_errors_of_sums_without_owners_in_fit_are_not_known():
    owners = owned([[0, 0]], (1, 2))
    payout = split_revenue(valued([[1.0, 0.9]], errors=0.1), owners, amount="1", policy=rules())
    assert np.isnan(payout.errors.together).all()
    assert payout.amount_intervals == (None,)
    assert "Intervals are not known. Pass owners to fit" in repr(payout)


def test_an_error_that_is_not_known_decides_nothing():
    payout = split_revenue(
        replace(valued([[1.0, 0.1]]), status="interrupted"), TWO, amount="1", policy=rules()
    )
    assert np.isnan(payout.errors.together).all()
    assert payout.undecided == (("owner 0", "owner 1"),)
    assert "not known" in repr(payout)
    assert "The valuation was interrupted" in repr(payout)
    assert any(note.startswith("The valuation was interrupted") for note in payout.notes)


def test_the_baseline_and_the_value_of_unassigned_cells_are_shown():
    shown = repr(
        split_revenue(valued([[1.0, 0.5]]), owned([[0, -1]], (1, 2)), amount="1", policy=rules())
    )
    assert "What has no owner has a value of 0.5000, which is not paid out." in shown
    assert (
        "0.2500 of the score is the baseline (empty='prior') and is not allocated to any" in shown
    )


def test_many_owners_are_printed_in_few_lines():
    payout = split_revenue(
        valued(np.ones((100, 1)), errors=1.0, owners=owned(np.arange(100), (100, 1))),
        owned(np.arange(100), (100, 1)),
        amount="1",
        policy=rules(),
    )
    assert len(repr(payout).splitlines()) < 30
    assert "... and 80 more, in to_frame()" in repr(payout)
    # The head, the names of columns, 20 owners, and how many more there are.
    assert repr(payout).splitlines()[23:] == list(payout.notes)
    assert "4,930 more pairs" in repr(payout)
    view = html.unescape(payout._repr_html_())
    assert view.count("<tr>") == 21
    assert view.count('aria-hidden="true"') == 20
    assert all(note in view for note in payout.notes)


WINE, LABELS = load_wine(return_X_y=True, as_frame=True)
ORDER = np.random.default_rng(0).permutation(len(WINE))[:60]
WINE, LABELS = WINE.iloc[ORDER, [0, 6, 9, 12]], LABELS.iloc[ORDER]
NAMES = list(WINE)


@pytest.mark.parametrize(
    "make", [lambda table: table, pl.from_pandas, pa.Table.from_pandas, pd.DataFrame.to_numpy]
)
def test_any_table_gives_the_same_payout(make):
    table = make(WINE.reset_index(drop=True))
    names = [f"x{j}" for j in range(4)] if isinstance(table, np.ndarray) else NAMES
    owners = Owners(table).assign("ann", columns=names[:2]).assign("bob", columns=names[2:])
    valuation = KNNValuer(3).fit(table, LABELS.to_numpy(), owners=owners).valuation_
    payout = split_revenue(valuation, owners, amount="1000", policy=rules())
    assert type(payout.to_frame()).__module__.split(".")[0] in ("pandas", "polars", "pyarrow")
    reference = Owners(WINE).assign("ann", columns=NAMES[:2]).assign("bob", columns=NAMES[2:])
    expected = split_revenue(
        KNNValuer(3).fit(WINE, LABELS).valuation_, reference, amount="1000", policy=rules()
    )
    assert payout.amounts == expected.amounts


def test_text_ids_ids_that_occur_twice_and_numbers_as_names_work():
    ids = [f"patient {i % 30}" for i in range(60)]
    table = WINE.set_axis(ids).set_axis([3, 1, 4, 2], axis=1)
    labels = LABELS.set_axis(ids)
    owners = Owners(table).assign("ann", rows=[f"patient {i}" for i in range(10)])
    owners = owners.assign("bob", rows=[f"patient {i}" for i in range(10, 30)], columns=[1, 2])
    valuation = KNNValuer(3).fit(table, labels, owners=owners, value_labels=True).valuation_
    owners = owners.assign("lab", columns="(label)")
    payout = split_revenue(valuation, owners, amount="1000", policy=rules())
    assert payout.owners == ("ann", "bob", "lab")
    assert payout.values[2] == pytest.approx(valuation.columns().values[-1], rel=1e-12)
    frame = payout.statement("ann").to_frame("pandas")
    assert len(frame) == 20 * 4
    assert set(frame["row"]) == {f"patient {i}" for i in range(10)}
    assert payout.statement("lab").to_dict()["labels"] == 60
    assert "its 0 cells and 60 labels" in repr(payout.statement("lab"))
    assert repr(payout.statement("lab")).endswith(", in units of neighbor agreement (K = 3).")


def test_groups_of_rows_that_are_sums_of_cells_split_as_cells_do():
    groups = np.repeat(["a", "b", "c"], 20)
    owners = Owners(WINE).assign("ann", rows=slice(0, 20)).assign("bob", rows=slice(20, None))
    grouped = KNNValuer(3).fit(WINE, LABELS, row_groups=groups).valuation_
    single = KNNValuer(3).fit(WINE, LABELS).valuation_
    one, other = (split_revenue(v, owners, amount="100", policy=rules()) for v in (grouped, single))
    assert one.amounts == other.amounts


def test_a_statement_holds_totals_and_own_cells_and_nothing_else():
    secret = WINE.set_axis([f"bob's patient {i}" if i >= 20 else f"mine {i}" for i in range(60)])
    labels = LABELS.set_axis(secret.index)
    owners = Owners(secret).assign("ann", rows=slice(0, 20)).assign("bob", rows=slice(20, None))
    valuation = KNNValuer(3).fit(secret, labels, owners=owners).valuation_
    payout = split_revenue(valuation, owners, amount="100", policy=rules())
    statement = payout.statement("ann")
    frame = statement.to_frame()
    assert len(frame) == 80
    assert frame["value"].sum() == pytest.approx(statement.value, rel=1e-9)
    for shown in (repr(statement), str(statement.to_dict()), frame.to_csv(), str(vars(statement))):
        assert "bob" not in shown
    assert b"bob" not in pickle.dumps(statement)
    others = set(valuation.values[20:].ravel().tolist()) - set(valuation.values[:20].ravel())
    assert not others & set(frame["value"])
    reported = statement.to_dict()
    assert Decimal(reported["amount"]) == payout.amounts[0] == statement.amount
    assert (reported["cells"], reported["owners"], reported["total_amount"]) == (80, 2, "100")


def test_statements_come_in_any_library():
    statement = payout_of_shared().statement("bob")
    assert isinstance(statement.to_frame("polars"), pl.DataFrame)
    assert isinstance(statement.to_frame("pyarrow"), pa.Table)
    with pytest.raises(KeyError, match="owner must be one of ann and bob, got 'zoe'"):
        payout_of_shared().statement("zoe")


def test_amounts_are_text_in_a_frame_exact_to_the_cent():
    frame = payout_of_shared().to_frame("polars")
    assert frame["amount"].to_list() == ["3.00", "6.00"]
    figures = ["value", "low", "high", "share", "amount", "amount_low", "amount_high"]
    assert frame.columns == ["owner", *figures]


def test_the_interval_of_an_amount_has_the_errors_of_a_ratio():
    """Two independent values: the delta method gives the error of a share."""
    errors = 0.01
    payout = split_revenue(
        valued([[3.0, 1.0]], errors=errors, owners=TWO), TWO, amount="100", policy=rules()
    )
    half = 1.96 * 100 * np.hypot(3.0, 1.0) * errors / 4.0**2
    low, high = map(float, payout.amount_intervals[1])
    assert (low + high) / 2 == pytest.approx(25, abs=0.05 * half)
    assert (high - low) / 2 == pytest.approx(half, rel=0.1)


@pytest.mark.parametrize("negative", ["floor", "carry"])
def test_intervals_of_amounts_end_where_the_policy_does(negative):
    policy = rules(negative=negative)
    cells = valued([[3.0, 0.2]], errors=0.5, owners=TWO)
    payout = split_revenue(cells, TWO, amount="100", policy=policy)
    ends = [(str(low), str(high)) for low, high in payout.amount_intervals]
    assert (ends[0][1], ends[1][0]) == ("100.00", "0.00")
    for (low, high), amount in zip(payout.amount_intervals, payout.amounts, strict=True):
        assert 0 <= low <= amount <= high <= 100


THREE = Owners(np.zeros((1, 3))).assign("a", columns="x0").assign("b", columns="x1")
THREE = THREE.assign("c", columns="x2")


def test_parties_that_cannot_be_told_apart_get_equal_parts():
    policy = rules(undecided="equal")
    # The error of a difference is 0.1 * sqrt(2): 5 and 4.8 are tied, 4.8 and 4.6 only by a chain.
    payout = split_revenue(
        valued([[5.0, 4.8, 4.6]], errors=0.1, owners=THREE), THREE, amount="144", policy=policy
    )
    assert amounts_of(payout) == {"a": 49, "b": 49, "c": 46}
    assert payout.ties == (("a", "b"),)
    assert "Paid in equal parts, because their order is not decided: a and b." in payout.notes
    cells = valued([[5.0, 4.8, 4.6]], errors=0.0, owners=THREE)
    sure = split_revenue(cells, THREE, amount="144", policy=policy)
    assert amounts_of(sure) == {"a": 50, "b": 48, "c": 46}


def test_what_is_not_known_is_held_back_to_the_cent():
    cells, owners = valued([[5.0, 4.8, -0.6]], errors=0.3, owners=THREE), THREE
    estimate = split_revenue(cells, owners, amount="100", policy=rules())
    held = split_revenue(cells, owners, amount="100", policy=rules(undecided="hold"))
    assert held.amounts == tuple(low for low, _ in estimate.amount_intervals)
    assert sum(held.amounts) + held.held == 100
    assert held.held > 0
    assert f"Held back until the values are known better: {held.held:,} EUR." in held.notes
    unknown = valued([[5.0, 4.8, -0.6]], errors=np.nan)
    with pytest.raises(ValueError, match="undecided='hold' needs the errors of the values"):
        split_revenue(unknown, owners, amount="100", policy=rules(undecided="hold"))


def test_values_without_error_give_amounts_without_width():
    payout = split_revenue(
        valued([[2.0, 1.0]], errors=0.0, owners=TWO), TWO, amount="100", policy=rules()
    )
    assert payout.amount_intervals == tuple((amount, amount) for amount in payout.amounts)


def pay(**given):
    policy = {name: given.pop(name) for name in vars(rules()) if name in given}
    return split_revenue(**given, policy=rules(**policy))


GOOD = {"valuation": valued([[2.0, 1.0]]), "owners": TWO, "amount": "1.00"}
WRONG = [
    (
        {"valuation": np.ones((1, 2))},
        "valuation must be a Valuation, got ndarray; pass the valuation_",
    ),
    ({"owners": {"ann": ["x0"]}}, r"owners must be Owners, got dict; pass Owners\(X\)"),
    ({"owners": Owners(np.zeros((1, 2)))}, "owners must have an owner; assign cells"),
    (
        {"owners": owned([[0, 1, 1]], (1, 3))},
        "the columns of the valuation .*, got 'x0', 'x1', 'x2'",
    ),
    ({"amount": 1.0}, "amount must be a string, an integer or a Decimal, got 1.0; pass"),
    ({"amount": "-1"}, "amount must be an amount of at least 0, .*, got '-1'"),
    ({"amount": "0.001"}, "amount must be a multiple of the unit 0.01, got '0.001'"),
    ({"currency": ""}, "currency must be text on one line, got ''"),
    ({"currency": None}, "currency must be text on one line, got None"),
    ({"unit": 0.01}, "unit must be a string, an integer or a Decimal, got 0.01"),
    ({"unit": "0"}, "unit must be above 0, got 0; give the smallest amount paid, such as '0.01'"),
    ({"negative": "ignore"}, "negative must be 'floor' or 'carry' or 'signed', got 'ignore'"),
    (
        {"game": "owners"},
        "the values are of cells, but the policy says game='owners'; value the owners",
    ),
    (
        {"owners": TWO.assign("lab", columns="(label)")},
        "labels are held by lab, but were not valued; value them with",
    ),
    ({"game": "rows"}, "game must be 'owners' or 'cells', got 'rows'"),
    (
        {"carried": [1]},
        "carried must be a mapping, got list; pass payout.carried of the previous payout",
    ),
    (
        {"carried": {"owner 0": 1.0}},
        "carried must be finite numbers up to 0, got 1.0 for 'owner 0'; pass payout.carried",
    ),
    (
        {"carried": {"owner 0": "much"}},
        "carried must be finite numbers up to 0, got 'much' for 'owner 0'; pass payout.carried",
    ),
    ({"carried": {"owner 0": float("nan")}}, "carried must be finite numbers up to 0, got nan"),
    ({"carried": {"owner 0": float("-inf")}}, "carried must be finite numbers up to 0, got -inf"),
    (
        {"carried": {"owner 0": -1.0}},
        "negative must be 'carry' if shortfalls are carried over, got 'signed'",
    ),
    ({"valuation": valued([[np.nan, 1.0]])}, "1 blocks or more were never visited"),
    ({"valuation": valued([[np.inf, 1.0]])}, "values must be finite to split an amount"),
    ({"valuation": valued([[-1.0, 0.0]])}, "the total of the owners' values must be above 0"),
]


@pytest.mark.parametrize(("changed", "sentence"), WRONG)
def test_a_mistake_gets_one_sentence(changed, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        pay(**(GOOD | changed))


def test_an_amount_is_an_integer_of_any_type_and_shown_in_full():
    assert pay(**(GOOD | {"amount": np.int64(100)})).amount == 100
    assert str(pay(**(GOOD | {"amount": "1e5"}))).startswith("Payout of 100,000 EUR")


def test_a_payout_is_saved_in_a_folder_alone():
    with pytest.raises(TypeError, match="folder must be a path, got None; give text"):
        pay(**GOOD).save(None)


@pytest.mark.alone
@pytest.mark.parametrize(("n_rows", "n_columns"), [(10_000, 20), (32_561, 14)])
def test_a_hundred_owners_are_paid_in_seconds(n_rows, n_columns):
    cells = np.random.default_rng(0).normal(1.0, 1.0, (n_rows, n_columns))
    owners = Owners(np.random.default_rng(1).normal(size=(n_rows, n_columns)))
    begin = time.process_time()
    for owner in range(100):
        owners = owners.assign(f"owner {owner}", rows=slice(owner, None, 100))
    payout = split_revenue(
        valued(cells), owners, amount="1000000.00", policy=rules(negative="signed")
    )
    took = time.process_time() - begin
    assert isinstance(payout, Payout)
    assert sum(payout.amounts) == 1_000_000
    assert took < 20


def test_every_row_that_equals_a_validation_row_is_named():
    X, y = np.arange(60.0).reshape(30, 2), np.arange(30) % 2
    owners = Owners(X).assign("ann", rows=slice(0, 15)).assign("bob", rows=slice(15, None))
    valuation = KNNValuer(1).fit(X, y, X_val=X, y_val=y).valuation_
    listed = re.escape(f"(ids {', '.join(map(str, range(30)))}), so that they would score")
    with pytest.raises(ValueError, match=f"{listed} themselves; remove them"):
        split_revenue(valuation, owners, amount="1", policy=rules())
