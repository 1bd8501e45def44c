"""Policies: how an amount is shared, and which valuations and owners they fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np

from cellworth.data.blocks import LABEL
from cellworth.data.owners import Owners
from cellworth.valuation.valuation import Valuation

Players = Literal["cells", "blocks"]
CheckPolicy = Literal["warn", "refuse", "off"]
_MOST_CARRIED = 1e100
PER_HEAD = (
    "whole blocks are the players here, and such a game pays more per head and less per row: an "
    "owner of twice as many rows gets less than twice as much, and one who comes under two names "
    "gains"
)
Negative = Literal["floor", "carry", "signed"]
_MOST_DIGITS = 24
# Products of integers and units are exact in it, for any precision that the caller has set.
_EXACT = Context(prec=200)
# A sum below this share of its terms is rounding; it cannot be divided by.
_NOTHING = Fraction(1, 10**12)


@dataclass(frozen=True)
class Policy:
    """Rules of a split, agreed on apart from the values.

    Parameters
    ----------
    currency : str, default="EUR"
    unit : str, default="0.01"
        Smallest amount that is paid.
    negative : {"floor", "carry", "signed"}, default="floor"
        An owner with a negative value gets nothing; gets nothing and the shortfall reduces later
        payouts; or pays.
    minimum : str, default="0"
        The least that every owner gets.
    label_owner : str or None, default=None
        The owner of the labels.
    label_share : str or None, default=None
        Agreed share of the amount for labels that were not valued, such as "0.10".
    game : {"cells", "blocks"}, default="cells"
        Whether values of single cells are added up, or blocks of owners were valued.
    gate : {"warn", "refuse", "off"}, default="warn"
        How findings of :func:`~cellworth.payouts.check_owners` are treated.

    Examples
    --------
    >>> from cellworth.payouts import Policy
    >>> policy = Policy(currency="CHF", unit="0.05", negative="carry", minimum="10")
    >>> policy.minimum, policy.currency, policy.game, policy.gate
    ('10', 'CHF', 'cells', 'warn')
    >>> Policy(minimum=10) == Policy(minimum="10")
    True
    """

    currency: str = "EUR"
    unit: str = "0.01"
    negative: Negative = "floor"
    minimum: str = "0"
    label_owner: str | None = None
    label_share: str | None = None
    game: Players = "cells"
    gate: CheckPolicy = "warn"

    def __post_init__(self) -> None:
        check_negative(self.negative)
        for name in ("currency", "label_owner"):
            text = getattr(self, name)
            if text is None and name == "label_owner":
                continue
            if not isinstance(text, str) or not text.strip() or not text.isprintable():
                raise ValueError(f"{name} is {text!r}; give some text on one line.")
        smallest = parse_money(self.unit, "unit", example="0.01")
        if smallest == 0:
            raise ValueError("unit is 0; give the smallest amount that is paid, such as '0.01'.")
        parse_money(self.minimum, "minimum", smallest)
        for name, allowed in (("game", get_args(Players)), ("gate", get_args(CheckPolicy))):
            if getattr(self, name) not in allowed:
                choices = " or ".join(map(repr, allowed))
                raise ValueError(f"{name} is {getattr(self, name)!r}; give {choices}.")
        share = self.label_share
        if share is not None and parse_money(share, "label_share", example="0.10") >= 1:
            raise ValueError(f"label_share is {share!r}; give a share below 1.")
        # Files hold strings: 5, Decimal(5) and "5" are one policy.
        for name in ("unit", "minimum", "label_share"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, str(getattr(self, name)))


def check_carried(
    carried: Mapping[str, float] | None, names: tuple[str, ...], negative: Negative
) -> dict[str, float]:
    """Check and return the shortfalls of an earlier payout."""
    if carried is not None and not isinstance(carried, Mapping):
        raise TypeError(
            f"carried is of type {type(carried).__name__}; give payout.carried of the payout "
            "before."
        )
    brought = dict(carried or {})
    if any(isinstance(v, bool) or not isinstance(v, int | float) for v in brought.values()):
        raise TypeError(
            "carried holds what is no number; give payout.carried of the payout before."
        )
    unknown = [name for name in brought if name not in names]
    if unknown:
        raise ValueError(
            f"carried names {unknown[0]!r}, who owns nothing here; owners are {join_names(names)}."
        )
    wrong = [name for name, value in brought.items() if not -_MOST_CARRIED < value <= 0]
    if wrong:
        raise ValueError(
            f"carried has {brought[wrong[0]]} for {wrong[0]!r}; give payout.carried of the payout "
            "before, whose values are at most 0."
        )
    if brought and negative != "carry":
        raise ValueError(
            f"carried came with negative={negative!r}, which would forget what is still owed; pass "
            "negative='carry'."
        )
    return {name: float(value) for name, value in brought.items()}


def add_label_owner(owners: Owners, policy: Policy, valuation: Valuation) -> Owners:
    """Return the owners, with the policy's owner of the labels."""
    if policy.label_share is not None and _has_labels(valuation):
        raise ValueError(
            "label_share came, but labels were players and have values of their own; leave it out."
        )
    if policy.label_owner is not None:
        owners = owners.assign(policy.label_owner, columns=[LABEL])
    if not _has_labels(valuation):
        held = owners.share_of_labels()
        if held and policy.label_share is None:
            verb = "holds" if len(held) == 1 else "hold"
            raise ValueError(
                f"{join_names(list(held))} {verb} labels, but labels were no players; value them "
                "with fit(..., value_labels=True), or agree on a label_share."
            )
        if policy.label_share is not None and not held:
            raise ValueError(
                f"label_share is {policy.label_share}, but no owner holds the labels; give "
                "label_owner."
            )
    return owners


def _has_labels(valuation: Valuation) -> bool:
    return LABEL in valuation.blocks.columns.ids.tolist()


def has_joint_rows(valuation: Valuation) -> bool:
    """Return whether row groups were players."""
    # For KNNValuer, the value of a row group is the sum of its cells: groups are not players.
    summed = valuation.provenance.method["name"] in ("KNNValuer", "ShardedKNNValuer")
    return valuation.blocks.rows.grouped and not summed


def check_players(valuation: Valuation, policy: Policy) -> None:
    """Check that the valuation is of cells or of blocks, as the policy says."""
    joins = valuation.blocks.columns.grouped or has_joint_rows(valuation)
    if joins and policy.game == "cells":
        raise ValueError(
            f"this valuation is of groups, not of single cells: {PER_HEAD}; value single cells, or "
            "pass game='blocks' if that is what was agreed."
        )
    if not joins and policy.game == "blocks":
        raise ValueError(
            "game is 'blocks', but this valuation is of single cells; leave game out, or value "
            "groups (row_groups, column_groups) along the owners."
        )


def parse_money(
    given: Any, called: str, unit: Decimal | None = None, *, example: str = "100000.00"
) -> Decimal:
    """Return an amount of at least 0 as a Decimal; it must be a multiple of the unit."""
    if isinstance(given, np.integer):
        given = int(given)
    # A float is not exactly what it prints: 0.1 is a little more.
    if isinstance(given, bool | float) or not isinstance(given, str | int | Decimal):
        raise TypeError(f"{called} is {given!r}; give text such as {example!r} or a Decimal.")
    try:
        amount = Decimal(given)
    except InvalidOperation as error:
        raise ValueError(f"{called} is {given!r}, which is no number; give {example!r}.") from error
    if not amount.is_finite() or amount < 0:
        raise ValueError(f"{called} is {given!r}; give an amount of at least 0.")
    # Numbers of a million digits would take long.
    if amount and (_get_exponent(amount) < -_MOST_DIGITS or amount.adjusted() >= _MOST_DIGITS):
        raise ValueError(
            f"{called} is {_shorten(given)}; give a number of at most {_MOST_DIGITS} digits before "
            "and after the point."
        )
    if unit is not None and Fraction(amount) % Fraction(unit):
        raise ValueError(
            f"{called} is {given!r}, which is no multiple of the unit {unit}; round it, or give "
            "another unit."
        )
    return _write_in_full(amount.copy_abs())


def _get_exponent(amount: Decimal) -> int:
    return int(amount.as_tuple().exponent)


def _shorten(given: Any) -> str:
    text = repr(given)
    return text if len(text) <= 40 else f"{text[:40]}..."


def check_negative(negative: Any) -> Negative:
    """Check the policy for negative values."""
    if negative in get_args(Negative):
        policy: Negative = negative
        return policy
    raise ValueError(
        f"negative is {negative!r}; give 'floor' (they get nothing), 'carry' (nothing now, and "
        "the shortfall is set against later payouts) or 'signed' (they pay)."
    )


def compute_weights(values: Sequence[Fraction], negative: Negative) -> list[Fraction]:
    """Return the weights of owners: their values, with negative ones as the policy says."""
    counted = [value if negative == "signed" else max(value, Fraction(0)) for value in values]
    if sum(counted) <= _NOTHING * sum(map(abs, counted)):
        what = "all owners together are" if negative == "signed" else "every owner is"
        raise ValueError(
            f"{what} worth nothing or less, so that there is nothing to share by; look at the "
            "model and at the validation rows first."
        )
    return counted


def compute_quotas(
    amount: Fraction, counted: Sequence[Fraction], minimum: Fraction = Fraction(0)
) -> list[Fraction]:
    """Return shares of an amount in proportion to weights, none below the minimum."""
    n_owners = len(counted)
    if minimum * n_owners > amount:
        raise ValueError(
            f"a minimum of {float(minimum):,.2f} for each of {n_owners} owners is more than the "
            f"amount of {float(amount):,.2f}; give a smaller one."
        )
    if minimum == 0:
        total = sum(counted)
        return [amount * weight / total for weight in counted]
    # Owners below the minimum get the minimum and the others share the rest. This may bring more
    # owners below it, so repeat.
    at_minimum: set[int] = set()
    while True:
        rest = [i for i in range(n_owners) if i not in at_minimum]
        left = amount - minimum * len(at_minimum)
        total = sum(counted[i] for i in rest)
        # The rest is at least the minimum for each remaining owner, so one of them reaches it.
        shares = {i: left * counted[i] / total for i in rest}
        below = {i for i in rest if shares[i] < minimum}
        if not below:
            return [shares.get(i, minimum) for i in range(n_owners)]
        at_minimum |= below


def round_to_units(
    shares: Sequence[Fraction], unit: Decimal, order: Sequence[Any]
) -> list[Decimal]:
    """Round to multiples of the unit with the same sum: largest remainders first.

    Equal remainders go by ``order``, which must not depend on names or positions.
    """
    size = Fraction(unit)
    counts = [share / size for share in shares]
    units = [count.numerator // count.denominator for count in counts]
    left = int(sum(counts)) - sum(units)
    by_remainder = sorted(range(len(counts)), key=lambda i: (units[i] - counts[i], order[i]))
    for i in by_remainder[:left]:
        units[i] += 1
    return [_multiply(count, unit) for count in units]


def _multiply(count: int, unit: Decimal) -> Decimal:
    return _write_in_full(_EXACT.multiply(Decimal(count), unit))


def _write_in_full(amount: Decimal) -> Decimal:
    """Write thousands in full, not as 5E+3."""
    return amount.quantize(Decimal(1), context=_EXACT) if _get_exponent(amount) > 0 else amount


def join_names(names: Sequence[str]) -> str:
    """Join names for a sentence."""
    return " and ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} and {names[-1]}"
