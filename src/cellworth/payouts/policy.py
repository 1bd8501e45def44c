"""Policies: how an amount is shared, and which valuations and owners they fit."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, Literal, get_args

import narwhals.stable.v2 as nw
import numpy as np

from cellworth.data.arguments import Mask, Positions, is_integer
from cellworth.data.blocks import LABEL
from cellworth.data.owners import Owners, are_players
from cellworth.data.sharded_table import ShardedTable
from cellworth.data.tables import Table, TableLike, VectorLike
from cellworth.valuation.valuation import Valuation

Players = Literal["cells", "blocks", "owners"]
CheckPolicy = Literal["warn", "refuse", "off"]
_MAX_CARRIED = 1e100
PER_HEAD = (
    "the players are whole blocks, so an owner of twice as many rows gets less than twice as much, "
    "and an owner under two names gets more"
)
Negative = Literal["floor", "carry", "signed"]
Undecided = Literal["pay", "equal", "hold"]
Duplicates = Literal["share", "pay"]
_MAX_DIGITS = 24
_MAX_CURRENCY_DIGITS = 18
_HASH_BITS = 64
# Products of integers and units are exact in it, for any precision that the caller has set.
_EXACT = Context(prec=200)
# A sum below this share of its terms is rounding; it cannot be divided by.
_NOTHING = Fraction(1, 10**12)
# ISO 4217: currencies by the number of digits after the point.
_CURRENCIES = {
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    2: (
        "AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BOV BRL BSD BTN BWP "
        "BYN BZD CAD CDF CHE CHF CHW CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD "
        "FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD "
        "KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD "
        "NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP "
        "SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED "
        "VES WST XCD XCG YER ZAR ZMW ZWG"
    ),
    3: "BHD IQD JOD KWD LYD OMR TND",
    4: "CLF UYW",
}
_DIGITS = {code: digits for digits, codes in _CURRENCIES.items() for code in codes.split()}


@dataclass(frozen=True)
class Policy:
    """Rules of a split, agreed on apart from the values.

    Parameters
    ----------
    currency : str, default="EUR"
        A code of ISO 4217, or any other name with ``digits``.
    unit : str, default=""
        Smallest amount that is paid. "" means the smallest of the currency: 0.01 EUR, 1 JPY,
        0.001 KWD.
    negative : {"floor", "carry", "signed"}, default="signed"
        What a party with a negative value gets. "signed": it pays; only then does no owner gain
        from a second name. "floor": nothing. "carry": nothing, and the shortfall reduces later
        payouts.
    minimum : str, default="0"
        The least that every party gets.
    label_owner : str or None, default=None
        The owner of the labels.
    label_share : str or None, default=None
        Agreed share of the amount for labels that were not valued, such as "0.10".
    game : {"cells", "blocks", "owners"}, default="cells"
        Whether values of single cells are added up, or blocks of owners were valued, or owners
        themselves by :class:`~cellworth.payouts.OwnerValuer`.
    gate : {"warn", "refuse", "off"}, default="refuse"
        Whether findings of :func:`~cellworth.payouts.check_owners` stop the payout, are only
        reported, or are not looked for.
    digits : int or None, default=None
        Digits after the point of a currency that is not in ISO 4217.
    undecided : {"pay", "equal", "hold"}, default="pay"
        What errors of the values mean for amounts. "pay": nothing, estimates are paid. "equal":
        parties whose values cannot be distinguished get equal parts. "hold": every owner gets the
        lower end of the 95% interval, and the rest is held back.
    party_of : mapping of str to str, default=None
        Owners who belong to a party, by name: {"ann's shell": "ann"}. Values of a party are added
        up before negative ones are cut off. Any other owner is a party of its own.
    duplicates : {"share", "pay"} or None, default=None
        What equal rows get. "share": they are valued as one row, which their owners share, so that
        copies are worth nothing; see :func:`~cellworth.payouts.share_copies`. "pay": each row is
        valued. None means "share", but "pay" if blocks are the players.

    See Also
    --------
    split_revenue, Agreement

    Examples
    --------
    >>> from cellworth.payouts import Policy
    >>> policy = Policy(currency="CHF", unit="0.05", negative="carry", minimum="10")
    >>> policy.minimum, policy.currency, policy.game, policy.gate
    ('10', 'CHF', 'cells', 'refuse')
    >>> Policy(minimum=10) == Policy(minimum="10")
    True
    >>> Policy(currency="JPY").unit, Policy(currency="points", digits=1).unit
    ('1', '0.1')
    """

    currency: str = "EUR"
    unit: str = ""
    negative: Negative = "signed"
    minimum: str = "0"
    label_owner: str | None = None
    label_share: str | None = None
    game: Players = "cells"
    gate: CheckPolicy = "refuse"
    digits: int | None = None
    undecided: Undecided = "pay"
    party_of: Mapping[str, str] | None = field(default=None, hash=False)
    duplicates: Duplicates | None = None

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
        digits = _find_digits(self.currency, self.digits)
        object.__setattr__(self, "digits", digits)
        cent = Decimal(1).scaleb(-digits)
        if self.unit == "":
            object.__setattr__(self, "unit", f"{cent:f}")
        smallest = parse_money(self.unit, "unit", example="0.01")
        if Fraction(smallest) % Fraction(cent):
            raise ValueError(
                f"unit must have at most {digits} digits after the point in {self.currency}, "
                f"got {self.unit!r}."
            )
        if smallest == 0:
            raise ValueError(
                "unit must be above 0, got 0; give the smallest amount paid, such as '0.01'."
            )
        parse_money(self.minimum, "minimum", smallest)
        if self.duplicates is None:
            object.__setattr__(self, "duplicates", "pay" if self.game == "blocks" else "share")
        self._check_choices()
        share = self.label_share
        if share is not None and parse_money(share, "label_share", example="0.10") >= 1:
            raise ValueError(
                f"label_share must be below 1, got {share!r}; give one such as '0.10'."
            )
        _check_party_of(self.party_of)
        # Files hold strings: 5, Decimal(5) and "5" are one policy.
        for name in ("unit", "minimum", "label_share"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, str(getattr(self, name)))

    def _check_choices(self) -> None:
        for name, allowed in (
            ("game", get_args(Players)),
            ("gate", get_args(CheckPolicy)),
            ("undecided", get_args(Undecided)),
            ("duplicates", get_args(Duplicates)),
        ):
            if getattr(self, name) not in allowed:
                choices = " or ".join(map(repr, allowed))
                raise ValueError(f"{name} must be {choices}, got {getattr(self, name)!r}.")
        if self.duplicates == "share" and self.game == "blocks":
            raise ValueError(
                "duplicates must be 'pay' if blocks are the players, got 'share'; rows of two "
                "blocks cannot be merged."
            )


def _find_digits(currency: str, given: Any) -> int:
    """Return the digits after the point of a currency."""
    known = _DIGITS.get(currency)
    if given is None and known is None:
        raise ValueError(
            f"currency must be a code of ISO 4217 such as 'EUR', got {currency!r}; for any other, "
            "pass digits, the number of digits after the point."
        )
    if given is not None and (not is_integer(given) or not 0 <= given <= _MAX_CURRENCY_DIGITS):
        raise ValueError(
            f"digits must be an integer from 0 to {_MAX_CURRENCY_DIGITS}, got {given!r}."
        )
    if given is not None and known is not None and given != known:
        raise ValueError(f"digits of {currency} must be {known}, got {given}; leave digits out.")
    return int(given) if known is None else known


@dataclass(frozen=True)
class ValidationDraw:
    """Rule that draws the validation rows of a delivered table, row by row.

    A row is drawn if the hash of its id and the seed is below the share. So the rows that are
    delivered decide which ones are drawn; later rows change nothing about earlier ones.

    Parameters
    ----------
    share : float
        Expected share of the rows, above 0 and below 1.
    seed : str
        Any text. Someone who knows it and chooses the ids of rows can choose which are drawn, so
        agree on it after ids are fixed.

    See Also
    --------
    Policy, Agreement

    Examples
    --------
    >>> import pandas as pd
    >>> from cellworth.payouts import ValidationDraw
    >>> draw = ValidationDraw(0.5, "wine")
    >>> X = pd.DataFrame({"age": [31, 42, 25, 51]}, index=["a", "b", "c", "d"])
    >>> data = draw.split(X, ["no", "yes", "no", "yes"])
    >>> sorted([*data["X"].index, *data["X_val"].index])
    ['a', 'b', 'c', 'd']
    >>> draw.select(["a", "b"]).tolist() == draw.select(["a", "b", "c", "d"]).tolist()[:2]
    True
    """

    share: float
    seed: str

    def __post_init__(self) -> None:
        if isinstance(self.share, bool) or not isinstance(self.share, int | float):
            raise TypeError(f"share must be a number such as 0.25, got {self.share!r}.")
        if not 0 < self.share < 1:
            raise ValueError(f"share must be above 0 and below 1, got {self.share!r}.")
        if not isinstance(self.seed, str) or not self.seed:
            raise ValueError(f"seed must be text, got {self.seed!r}; give any text.")

    def select(self, ids: Iterable[Any]) -> Mask:
        """Return which of the rows with these ids are drawn."""
        below = int(self.share * 2**_HASH_BITS)
        key = self.seed.encode()
        hashes = (hmac.digest(key, str(one).encode(), "sha256") for one in ids)
        return np.array(
            [int.from_bytes(one[: _HASH_BITS // 8]) < below for one in hashes], dtype=bool
        )

    def difference(self, data: Mapping[str, Any]) -> str | None:
        """Return how arguments of ``fit`` differ from this rule; None if they do not."""
        if isinstance(data["X"], ShardedTable) or data.get("X_val") is None:
            return "validation rows that a rule draws need X and X_val in memory."
        if self.select(Table.from_data(data["X"], called="X").row_ids).any():
            return "X has rows that the agreed rule draws for validation."
        if not self.select(Table.from_data(data["X_val"], called="X_val").row_ids).all():
            return "X_val has rows that the agreed rule does not draw."
        return None

    def split(self, X: TableLike, y: VectorLike) -> dict[str, Any]:
        """Return X, y, X_val and y_val for ``fit`` from a table with all rows."""
        table = Table.from_data(X, called="X")
        drawn = self.select(table.row_ids)
        for rows, what in ((drawn, "validation"), (~drawn, "training")):
            if not rows.any():
                raise ValueError(
                    f"share must leave rows on both sides, got {self.share}: there are no {what} "
                    f"rows among {len(drawn)}; deliver more rows."
                )
        (train,), (val,) = np.nonzero(~drawn), np.nonzero(drawn)
        sides = [take_rows(table, rows) for rows in (train, val)]
        # Only pandas keeps the ids of rows.
        X, X_val = (side.native if table.backend == "pandas" else side for side in sides)
        return {"X": X, "y": take_labels(y, train), "X_val": X_val, "y_val": take_labels(y, val)}


def take_rows(table: Table, rows: Positions) -> Table:
    """Return some rows of a table with their ids."""
    taken = table.take(rows, np.arange(len(table.names)))
    data = taken if table.backend is None else nw.from_native(taken, eager_only=True)
    return Table(data, table.names, table.row_ids[rows])


def take_labels(y: Any, rows: Positions) -> Any:
    """Return the labels of some rows."""
    series = nw.from_native(y, series_only=True, pass_through=True)
    return series[rows].to_native() if isinstance(series, nw.Series) else np.asarray(y)[rows]


def _check_party_of(party_of: Any) -> None:
    if party_of is None:
        return
    if not isinstance(party_of, Mapping) or not all(
        isinstance(name, str) and name for pair in party_of.items() for name in pair
    ):
        raise ValueError(
            f"party_of must map names of owners to names of parties, got {shorten(party_of)}."
        )


def find_parties(policy: Policy, names: Sequence[str]) -> list[int]:
    """Return the number of each owner's party."""
    party_of = policy.party_of or {}
    unknown = [name for name in party_of if name not in names]
    if unknown:
        raise ValueError(
            f"party_of must name owners of this table, got {unknown[0]!r}; owners are "
            f"{join_names(names)}."
        )
    # A party may have the name of one of its owners.
    codes: dict[str, int] = {}
    return [codes.setdefault(party_of.get(name, name), len(codes)) for name in names]


def check_policy(policy: Any) -> Policy:
    """Return the policy, or the default one for None."""
    if policy is not None and not isinstance(policy, Policy):
        raise TypeError(
            f"policy must be a Policy or None, got {type(policy).__name__}; pass Policy(...)."
        )
    return policy or Policy()


def check_carried(
    carried: Mapping[str, float] | None,
    names: tuple[str, ...],
    negative: Negative,
    *,
    absent_ok: bool = False,
) -> dict[str, float]:
    """Check and return the shortfalls of an earlier payout.

    In a bundle before, owners may be named who have left (``absent_ok``).
    """
    advice = "pass payout.carried of the previous payout"
    if carried is not None and not isinstance(carried, Mapping):
        raise TypeError(f"carried must be a mapping, got {type(carried).__name__}; {advice}.")
    brought = dict(carried or {})
    for name, value in brought.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"carried must hold numbers, got {value!r} for {name!r}; {advice}.")
        if name not in names and not absent_ok:
            raise ValueError(
                f"carried must name owners of this table, got {name!r}; owners are "
                f"{join_names(names)}."
            )
        if not -_MAX_CARRIED < value <= 0:
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
    if are_players(valuation.blocks):
        # Owners of labels were players, too.
        labels_valued = bool(owners.share_of_labels())
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
    """Return whether row groups or owners were players."""
    # For KNNValuer, the value of a row group is the sum of its cells: groups are not players.
    summed = valuation.provenance.method["name"] in ("KNNValuer", "ShardedKNNValuer")
    grouped = valuation.blocks.rows.grouped or are_players(valuation.blocks)
    return grouped and not summed


def check_players(valuation: Valuation, policy: Policy) -> None:
    """Check that the valuation is of cells, of blocks or of owners, as the policy says."""
    if are_players(valuation.blocks) != (policy.game == "owners"):
        wanted = "one of OwnerValuer" if policy.game == "owners" else "no valuation of owners"
        raise ValueError(
            f"the valuation must be {wanted} with game={policy.game!r}, got another; pass "
            "game='owners' if it was agreed that owners are players."
        )
    if policy.game == "owners":
        return
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
    if amount and (_get_exponent(amount) < -_MAX_DIGITS or amount.adjusted() >= _MAX_DIGITS):
        raise ValueError(
            f"{called} must have at most {_MAX_DIGITS} digits before and after the point, got "
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


def add_by_party(values: Sequence[Fraction], codes: Sequence[int]) -> list[Fraction]:
    """Return the sum of each party."""
    sums = [Fraction(0)] * (max(codes) + 1)
    for code, value in zip(codes, values, strict=True):
        sums[code] += value
    return sums


def divide_by_owner(
    quotas: Sequence[Fraction], values: Sequence[Fraction], codes: Sequence[int]
) -> list[Fraction]:
    """Divide what parties get among their owners, in proportion to their values.

    Values of the other sign than the quota count as 0, so that no owner pays if its party does not.
    """
    signs = [1 if quotas[code] >= 0 else -1 for code in codes]
    weights = [max(sign * value, Fraction(0)) for sign, value in zip(signs, values, strict=True)]
    totals, sizes = add_by_party(weights, codes), add_by_party([Fraction(1)] * len(codes), codes)
    return [
        quotas[code] * (weight / totals[code] if totals[code] else 1 / sizes[code])
        for code, weight in zip(codes, weights, strict=True)
    ]


def share_equally(quotas: Sequence[Fraction], groups: Sequence[Sequence[int]]) -> list[Fraction]:
    """Return quotas of which each group shares its own in equal parts."""
    shared = list(quotas)
    for group in groups:
        for position in group:
            shared[position] = sum((quotas[one] for one in group), Fraction(0)) / len(group)
    return shared


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
    return [count_units(count, unit) for count in units]


def count_units(count: int, unit: Decimal) -> Decimal:
    """Return so many units of money."""
    return _write_in_full(_EXACT.multiply(Decimal(count), unit))


def _write_in_full(amount: Decimal) -> Decimal:
    """Write 5E+3 as 5000."""
    return amount.quantize(Decimal(1), context=_EXACT) if _get_exponent(amount) > 0 else amount


def join_names(names: Sequence[str]) -> str:
    """Join names for a sentence."""
    return " and ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} and {names[-1]}"
