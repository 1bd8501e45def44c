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
    "the players are whole blocks, so an owner of twice as many rows gets less than twice as much, "
    "and an owner under two names gets more"
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
        What an owner with a negative value gets. "floor": nothing. "carry": nothing, and the
        shortfall reduces later payouts. "signed": the owner pays.
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
        if self.negative not in get_args(Negative):
            raise ValueError(
                "negative must be 'floor' (an owner of negative value gets nothing), 'carry' (the "
                "shortfall also reduces later payouts) or 'signed' (the owner pays), got "
                f"{self.negative!r}."
            )
        for name in ("currency", "label_owner"):
            text = getattr(self, name)
            if text is None and name == "label_owner":
                continue
            if not isinstance(text, str) or not text.strip() or not text.isprintable():
                raise ValueError(f"{name} must be text on one line, got {text!r}.")
        smallest = parse_money(self.unit, "unit", example="0.01")
        if smallest == 0:
            raise ValueError(
                "unit must be above 0, got 0; give the smallest amount paid, such as '0.01'."
            )
        parse_money(self.minimum, "minimum", smallest)
        for name, allowed in (("game", get_args(Players)), ("gate", get_args(CheckPolicy))):
            if getattr(self, name) not in allowed:
                choices = " or ".join(map(repr, allowed))
                raise ValueError(f"{name} must be {choices}, got {getattr(self, name)!r}.")
        share = self.label_share
        if share is not None and parse_money(share, "label_share", example="0.10") >= 1:
            raise ValueError(
                f"label_share must be below 1, got {share!r}; give one such as '0.10'."
            )
        # Files hold strings: 5, Decimal(5) and "5" are one policy.
        for name in ("unit", "minimum", "label_share"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, str(getattr(self, name)))


def check_policy(policy: Any) -> Policy:
    """Return the policy, or the default one for None."""
    if policy is not None and not isinstance(policy, Policy):
        raise TypeError(
            f"policy must be a Policy or None, got {type(policy).__name__}; pass Policy(...)."
        )
    return policy or Policy()


def check_carried(
    carried: Mapping[str, float] | None, names: tuple[str, ...], negative: Negative
) -> dict[str, float]:
    """Check and return the shortfalls of an earlier payout."""
    advice = "pass payout.carried of the previous payout"
    if carried is not None and not isinstance(carried, Mapping):
        raise TypeError(f"carried must be a mapping, got {type(carried).__name__}; {advice}.")
    brought = dict(carried or {})
    for name, value in brought.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"carried must hold numbers, got {value!r} for {name!r}; {advice}.")
        if name not in names:
            raise ValueError(
                f"carried must name owners of this table, got {name!r}; owners are "
                f"{join_names(names)}."
            )
        if not -_MOST_CARRIED < value <= 0:
            raise ValueError(
                f"carried must be finite and at most 0, got {value} for {name!r}; {advice}."
            )
    if brought and negative != "carry":
        raise ValueError(
            f"negative must be 'carry' if shortfalls are carried over, got {negative!r}; pass "
            "Policy(negative='carry'), or the shortfalls would be lost."
        )
    return {name: float(value) for name, value in brought.items()}


def add_label_owner(owners: Owners, policy: Policy, valuation: Valuation) -> Owners:
    """Return the owners, with the policy's owner of the labels."""
    labels_valued = LABEL in valuation.blocks.columns.ids.tolist()
    if policy.label_share is not None and labels_valued:
        raise ValueError(
            f"label_share must be None if labels were valued, got {policy.label_share!r}; leave it "
            "out."
        )
    if policy.label_owner is not None:
        owners = owners.assign(policy.label_owner, columns=[LABEL])
    if not labels_valued:
        held = owners.share_of_labels()
        if held and policy.label_share is None:
            verb = "holds" if len(held) == 1 else "hold"
            raise ValueError(
                f"{join_names(list(held))} {verb} labels, but labels were not valued; value them "
                "with fit(..., value_labels=True), or agree on a label_share."
            )
        if policy.label_share is not None and not held:
            raise ValueError(
                f"label_share is {policy.label_share}, but no owner holds the labels; pass "
                "label_owner."
            )
    return owners


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
            f"this valuation is of groups, not of single cells: {PER_HEAD}. Value single cells, or "
            "pass game='blocks' if that was agreed."
        )
    if not joins and policy.game == "blocks":
        raise ValueError(
            "game is 'blocks', but this valuation is of single cells; leave game out, or value "
            "groups (row_groups, column_groups) along the owners."
        )


def parse_money(
    given: Any, called: str, unit: Decimal | None = None, *, example: str = "100000.00"
) -> Decimal:
    """Return an amount as a Decimal; it must be at least 0 and a multiple of the unit."""
    if isinstance(given, np.integer):
        given = int(given)
    # A float is not exactly what it prints: 0.1 is a little more.
    if isinstance(given, bool | float) or not isinstance(given, str | int | Decimal):
        raise TypeError(
            f"{called} must be a string, an integer or a Decimal, got {given!r}; pass one such as "
            f"{example!r}."
        )
    try:
        amount = Decimal(given)
    except InvalidOperation as error:
        raise ValueError(
            f"{called} must be a number such as {example!r}, got {given!r}."
        ) from error
    if not amount.is_finite() or amount < 0:
        raise ValueError(f"{called} must be an amount of at least 0, got {given!r}.")
    # Arithmetic with a million digits would take too long.
    if amount and (_get_exponent(amount) < -_MOST_DIGITS or amount.adjusted() >= _MOST_DIGITS):
        raise ValueError(
            f"{called} must have at most {_MOST_DIGITS} digits before and after the point, got "
            f"{shorten(repr(given), 40)}."
        )
    if unit is not None and Fraction(amount) % Fraction(unit):
        raise ValueError(
            f"{called} must be a multiple of the unit {unit}, got {given!r}; round it, or pass "
            "another unit."
        )
    return _write_in_full(amount.copy_abs())


def _get_exponent(amount: Decimal) -> int:
    return int(amount.as_tuple().exponent)


def shorten(thing: Any, most: int = 200) -> str:
    """Return the beginning of a long string, or of what prints as one."""
    text = thing if isinstance(thing, str) else repr(thing)
    return text if len(text) <= most else f"{text[:most]}..."


def compute_weights(values: Sequence[Fraction], negative: Negative) -> list[Fraction]:
    """Return the weights of owners: their values; negative ones are 0 unless "signed"."""
    weights = [value if negative == "signed" else max(value, Fraction(0)) for value in values]
    if sum(weights) <= _NOTHING * sum(map(abs, weights)):
        what = "the total" if negative == "signed" else "at least one"
        raise ValueError(
            f"{what} of the owners' values must be above 0 to split an amount; check the model and "
            "the validation rows."
        )
    return weights


def compute_quotas(
    amount: Fraction, weights: Sequence[Fraction], minimum: Fraction = Fraction(0)
) -> list[Fraction]:
    """Return shares of an amount in proportion to weights, none below the minimum."""
    n_owners = len(weights)
    if minimum * n_owners > amount:
        raise ValueError(
            f"minimum must be at most {float(amount / n_owners):,.2f} for {n_owners} owners and an "
            f"amount of {float(amount):,.2f}, got {float(minimum):,.2f}."
        )
    if minimum == 0:
        total = sum(weights)
        return [amount * weight / total for weight in weights]
    # Owners below the minimum get the minimum and the others share the rest. This may bring more
    # owners below it, so repeat.
    at_minimum: set[int] = set()
    while True:
        rest = [i for i in range(n_owners) if i not in at_minimum]
        left = amount - minimum * len(at_minimum)
        total = sum(weights[i] for i in rest)
        # The rest is at least the minimum for each remaining owner, so one of them reaches it.
        shares = {i: left * weights[i] / total for i in rest}
        below = {i for i in rest if shares[i] < minimum}
        if not below:
            return [shares.get(i, minimum) for i in range(n_owners)]
        at_minimum |= below


def round_to_units(
    shares: Sequence[Fraction], unit: Decimal, order: Sequence[Any]
) -> list[Decimal]:
    """Round to multiples of the unit with the same sum; ``order`` decides equal remainders."""
    size = Fraction(unit)
    counts = [share / size for share in shares]
    units = [count.numerator // count.denominator for count in counts]
    left = int(sum(counts)) - sum(units)
    by_remainder = sorted(range(len(counts)), key=lambda i: (units[i] - counts[i], order[i]))
    for i in by_remainder[:left]:
        units[i] += 1
    return [_write_in_full(_EXACT.multiply(Decimal(count), unit)) for count in units]


def _write_in_full(amount: Decimal) -> Decimal:
    """Write 5E+3 as 5000."""
    return amount.quantize(Decimal(1), context=_EXACT) if _get_exponent(amount) > 0 else amount


def join_names(names: Sequence[str]) -> str:
    """Join names for a sentence."""
    return " and ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} and {names[-1]}"
