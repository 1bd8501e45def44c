"""Money: exact shares of an amount, in whole cents that add up."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np

Negative = Literal["floor", "carry", "signed"]

_MOST_DIGITS = 24
# Products of whole numbers and units are exact in it, whatever precision the caller has set.
_EXACT = Context(prec=200)
# A sum that is as small beside its parts is rounding, and nothing to divide by.
_NOTHING = Fraction(1, 10**12)


def checked_money(
    given: Any, called: str, unit: Decimal | None = None, *, example: str = "100000.00"
) -> Decimal:
    """An amount of at least 0, given as text, whole number or Decimal, in whole units."""
    if isinstance(given, np.integer):
        given = int(given)
    # A float is not the amount that it prints: 0.1 is a little more.
    if isinstance(given, bool | float) or not isinstance(given, str | int | Decimal):
        raise TypeError(f"{called} is {given!r}; give text such as {example!r} or a Decimal.")
    try:
        amount = Decimal(given)
    except InvalidOperation as error:
        raise ValueError(f"{called} is {given!r}, which is no number; give {example!r}.") from error
    if not amount.is_finite() or amount < 0:
        raise ValueError(f"{called} is {given!r}; give an amount of at least 0.")
    # Also what is of no use: a number of a million digits takes its time.
    if amount and (_exponent(amount) < -_MOST_DIGITS or amount.adjusted() >= _MOST_DIGITS):
        raise ValueError(
            f"{called} is {_short(given)}; give a number of at most {_MOST_DIGITS} digits before "
            "and after the point."
        )
    if unit is not None and Fraction(amount) % Fraction(unit):
        raise ValueError(
            f"{called} is {given!r}, which is no multiple of the unit {unit}; round it, or give "
            "another unit."
        )
    return _in_full(amount.copy_abs())


def _exponent(amount: Decimal) -> int:
    return int(amount.as_tuple().exponent)


def _short(given: Any) -> str:
    text = repr(given)
    return text if len(text) <= 40 else f"{text[:40]}..."


def checked_negative(negative: Any) -> Negative:
    """One of the three policies for owners whose value is below zero."""
    if negative in get_args(Negative):
        policy: Negative = negative
        return policy
    raise ValueError(
        f"negative is {negative!r}; give 'floor' (they get nothing), 'carry' (nothing now, and "
        "the shortfall is set against later payouts) or 'signed' (they pay)."
    )


def weights(values: Sequence[Fraction], negative: Negative) -> list[Fraction]:
    """What the amount is shared by: values, those below zero as the policy says."""
    counted = [value if negative == "signed" else max(value, Fraction(0)) for value in values]
    if sum(counted) <= _NOTHING * sum(map(abs, counted)):
        what = "all owners together are" if negative == "signed" else "every owner is"
        raise ValueError(
            f"{what} worth nothing or less, so that there is nothing to share by; look at the "
            "model and at the validation rows first."
        )
    return counted


def quotas(
    amount: Fraction, counted: Sequence[Fraction], minimum: Fraction = Fraction(0)
) -> list[Fraction]:
    """Shares of an amount in proportion to weights, none below the minimum."""
    n_owners = len(counted)
    if minimum * n_owners > amount:
        raise ValueError(
            f"a minimum of {float(minimum):,.2f} for each of {n_owners} owners is more than the "
            f"amount of {float(amount):,.2f}; give a smaller one."
        )
    if minimum == 0:
        total = sum(counted)
        return [amount * weight / total for weight in counted]
    # Whoever would get less than the minimum gets it, and the others share what is left; that may
    # bring others below it, so once more.
    at_minimum: set[int] = set()
    while True:
        rest = [i for i in range(n_owners) if i not in at_minimum]
        left = amount - minimum * len(at_minimum)
        total = sum(counted[i] for i in rest)
        # What is left is at least the minimum for each of the rest, so that one of them has it.
        shares = {i: left * counted[i] / total for i in rest}
        below = {i for i in rest if shares[i] < minimum}
        if not below:
            return [shares.get(i, minimum) for i in range(n_owners)]
        at_minimum |= below


def in_units(shares: Sequence[Fraction], unit: Decimal, order: Sequence[Any]) -> list[Decimal]:
    """Round to whole units that add up to the whole: largest remainders first.

    Equal remainders go by ``order``, which must not depend on names or places.
    """
    size = Fraction(unit)
    counts = [share / size for share in shares]
    whole = [count.numerator // count.denominator for count in counts]
    left = int(sum(counts)) - sum(whole)
    by_remainder = sorted(range(len(counts)), key=lambda i: (whole[i] - counts[i], order[i]))
    for i in by_remainder[:left]:
        whole[i] += 1
    return [_times(count, unit) for count in whole]


def _times(count: int, unit: Decimal) -> Decimal:
    return _in_full(_EXACT.multiply(Decimal(count), unit))


def _in_full(amount: Decimal) -> Decimal:
    """Thousands are written in full, not as 5E+3."""
    return amount.quantize(Decimal(1), context=_EXACT) if _exponent(amount) > 0 else amount
