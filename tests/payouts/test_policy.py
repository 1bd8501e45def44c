"""Exact shares in whole cents: a thousand random payouts, and each policy by its word."""

from dataclasses import asdict
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cellworth.payouts.allocation import OwnerErrors, find_undecided, simulate_quotas
from cellworth.payouts.policy import (
    Policy,
    compute_quotas,
    parse_money,
    round_to_units,
)

CENT = Decimal("0.01")
# Shares are ratios: integers are as good as any values.
values = st.lists(st.integers(-(10**9), 10**9).map(Fraction), min_size=1, max_size=10)
parts_of_one = st.integers(0, 1000).map(lambda n: Fraction(n, 1000))
units = st.sampled_from(["0.01", "1", "0.05", "1000", "0.001"])
thousand = settings(max_examples=1000, derandomize=True, deadline=None)
hundreds = settings(max_examples=300, derandomize=True, deadline=None)


def shared(worth, amount, unit=CENT, negative="floor"):
    shares = compute_quotas(Fraction(amount), worth, negative)
    return shares, round_to_units(shares, unit, range(len(worth)))


@pytest.mark.parametrize("negative", ["floor", "carry", "signed"])
def test_simulated_shares_follow_the_rule_of_exact_ones(negative):
    """Intervals of amounts come from shares in floats, which must be those that are paid."""
    worth = [Fraction(n) for n in (50, 30, 9, -4)]
    exact, _ = shared(worth, 100, negative=negative)
    drawn = np.array([[float(value) for value in worth]])
    policy = Policy(negative=negative)
    simulated = simulate_quotas(policy, 100.0, drawn)
    assert simulated[0] == pytest.approx([float(share) for share in exact], rel=1e-12)


@pytest.mark.slow
@thousand
@given(values, st.integers(0, 10**12), units, st.sampled_from(["floor", "carry", "signed"]))
def test_amounts_add_up_to_the_unit_and_are_never_a_unit_off(worth, n_units, unit, negative):
    unit = Decimal(unit)
    positive = worth if negative == "signed" else [max(value, 0) for value in worth]
    assume(sum(positive) > sum(map(abs, worth)) / 10**6)
    shares, amounts = shared(worth, n_units * unit, unit, negative)
    assert sum(map(Fraction, amounts)) == Fraction(n_units * unit)
    for share, amount in zip(shares, amounts, strict=True):
        assert abs(Fraction(amount) - share) < Fraction(unit)
        assert Fraction(amount) % Fraction(unit) == 0


@pytest.mark.slow
@hundreds
@given(values, st.integers(1, 10**9))
def test_no_owner_of_a_negative_value_gets_anything_with_floor_and_pays_with_signed(worth, cents):
    assume(sum(worth) > 100)
    amount = cents * CENT
    floored, _ = shared(worth, amount, negative="floor")
    signed, _ = shared(worth, amount, negative="signed")
    for value, mine, due in zip(worth, floored, signed, strict=True):
        assert (mine > 0) == (value > 0)
        assert (due > 0) == (value > 0)
        assert (due < 0) == (value < 0)
        assert mine == Fraction(amount) * max(value, 0) / sum(max(v, 0) for v in worth)
        assert due == Fraction(amount) * value / sum(worth)


@pytest.mark.slow
@hundreds
@given(values, parts_of_one, st.integers(1, 10**9))
def test_splitting_an_identity_moves_no_share_of_another_and_at_most_a_cent(worth, part, cents):
    """Signed: any split. Whole cents compete for remainders, so that one cent may move."""
    assume(sum(worth) > 100)
    last = worth[-1]
    parts = [*worth[:-1], last * part, last * (1 - part)]
    before, after = (shared(one, cents * CENT, negative="signed") for one in (worth, parts))
    assert after[0][:-2] == before[0][:-1]
    for one, other in zip(before[1][:-1], after[1][:-2], strict=True):
        assert abs(one - other) <= CENT


@pytest.mark.slow
@hundreds
@given(values, parts_of_one, st.integers(1, 10**9))
def test_with_floor_too_as_long_as_no_part_is_negative(worth, part, cents):
    assume(worth[-1] >= 0 and max(worth) > 0)
    parts = [*worth[:-1], worth[-1] * part, worth[-1] * (1 - part)]
    before, after = (shared(one, cents * CENT, negative="floor") for one in (worth, parts))
    assert after[0][:-2] == before[0][:-1]


def test_with_floor_moving_bad_cells_to_a_second_name_pays():
    before, _ = shared([Fraction(1), Fraction(1)], 100)
    after, _ = shared([Fraction(1), Fraction(2), Fraction(-1)], 100)
    assert before[0] == 50
    assert after[0] == Fraction(100, 3)


def test_largest_remainders_get_the_cents_that_are_left():
    amounts = round_to_units([Fraction(1, 3)] * 3, CENT, "cab")
    assert list(map(str, amounts)) == ["0.33", "0.34", "0.33"]
    amounts = round_to_units([Fraction(5, 1000), Fraction(6, 1000), Fraction(9, 1000)], CENT, "abc")
    assert list(map(str, amounts)) == ["0.00", "0.01", "0.01"]


def test_remainders_of_those_who_pay_count_from_below():
    amounts = round_to_units([Fraction(-1, 3), Fraction(4, 3)], CENT, "ab")
    assert list(map(str, amounts)) == ["-0.33", "1.33"]


def test_large_units_are_written_in_full():
    assert list(map(str, round_to_units([Fraction(5000)], Decimal("1E+3"), "a"))) == ["5000"]
    assert list(map(str, round_to_units([Fraction(5)], Decimal("2.50"), "a"))) == ["5.00"]


def test_the_callers_precision_changes_no_amount():
    with localcontext() as context:
        context.prec = 3
        amounts = round_to_units([Fraction(1234567890, 100), Fraction(1, 100)], CENT, "ab")
        assert parse_money("12345678.91", "amount", CENT) == Decimal("12345678.91")
    assert amounts == [Decimal("12345678.90"), Decimal("0.01")]


def test_huge_amounts_are_exact():
    amount = parse_money("9" * 21 + ".99", "amount", CENT)
    _, amounts = shared([Fraction(1), Fraction(2), Fraction(4)], amount)
    assert sum(map(Fraction, amounts)) == Fraction(amount)


@pytest.mark.parametrize("negative", ["floor", "carry", "signed"])
def test_nothing_cannot_be_shared_by(negative):
    for worth in ([Fraction(0)], [Fraction(-1), Fraction(-2)], [Fraction(0), Fraction(0)]):
        with pytest.raises(
            ValueError, match=r"must be above 0 to split an amount; check the model"
        ):
            compute_quotas(Fraction(1), worth, negative)


def test_a_sum_that_is_rounding_is_nothing():
    worth = [Fraction(1), Fraction(-1) + Fraction(1, 2**52)]
    with pytest.raises(ValueError, match="the total of the owners' values must be above 0"):
        compute_quotas(Fraction(1), worth, "signed")


@pytest.mark.parametrize(
    ("given", "error", "sentence"),
    [
        (0.1, TypeError, "amount must be a string, .*, got 0.1; pass one such as '100000.00'"),
        (True, TypeError, "amount must be .*, got True"),
        (None, TypeError, "amount must be .*, got None"),
        ("much", ValueError, "amount must be a number such as '100000.00', got 'much'"),
        ("", ValueError, "amount must be a number such as .*, got ''"),
        ("NaN", ValueError, "amount must be an amount of at least 0, .*, got 'NaN'"),
        ("sNaN", ValueError, "amount must be an amount of at least 0, .*, got 'sNaN'"),
        ("Infinity", ValueError, "amount must be an amount of at least 0, .*, got 'Infinity'"),
        ("-1", ValueError, "amount must be an amount of at least 0, .*, got '-1'"),
        (
            "0.005",
            ValueError,
            "must be a multiple of the unit 0.01, got .*; round it, or pass another",
        ),
        ("1E+99999999", ValueError, "at most 24 digits before and after the point"),
        ("1E-99999999", ValueError, "at most 24 digits before and after the point"),
        (10**30, ValueError, "at most 24 digits before and after the point"),
    ],
)
def test_what_is_no_amount_gets_one_sentence(given, error, sentence):
    with pytest.raises(error, match=sentence):
        parse_money(given, "amount", CENT)


def test_a_unit_of_any_type_is_one_policy():
    again = Policy(**asdict(Policy(currency="points", unit=Decimal("0.1"))))
    assert again == Policy(currency="points", unit="0.1")
    assert Policy(currency="JPY", unit=1).unit == "1"


@pytest.mark.parametrize("unit", [1.0, 1e-30])
def test_orders_are_undecided_in_any_unit(unit):
    values = unit * np.array([3.0, 1.0, 1.0, 0.5])
    drawn = unit * np.random.default_rng(0).normal(0.0, 0.1, (4000, 4))
    errors = OwnerErrors(np.zeros(4), None, drawn)
    expected = [[1, 0, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1]]
    assert find_undecided(values, errors).astype(int).tolist() == expected
    assert find_undecided(np.zeros(4), OwnerErrors(np.zeros(4), None, np.zeros((1, 4)))).all()
