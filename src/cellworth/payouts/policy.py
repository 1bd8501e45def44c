"""Policies: how an amount is shared, and which valuations and owners they fit."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, Literal, get_args

import narwhals.stable.v2 as nw
import numpy as np

from cellworth.data.arguments import Mask, Positions
from cellworth.data.blocks import LABEL
from cellworth.data.owners import Owners, are_players
from cellworth.data.sharded_table import ShardedTable, as_table
from cellworth.data.tables import Table, TableLike, VectorLike
from cellworth.data.text import shorten
from cellworth.valuation.valuation import Valuation

Players = Literal["owners", "cells"]
_MAX_CARRIED = 1e100
Negative = Literal["floor", "carry", "signed"]
Undecided = Literal["pay", "equal", "hold"]
_MAX_DIGITS = 24
_HASH_BITS = 64
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
        Any name.
    unit : str, default="0.01"
        Smallest amount that is paid, such as "1" for Japanese yen.
    negative : {"floor", "carry", "signed"}, default="floor"
        What an owner with a negative value gets. "floor": nothing. "carry": nothing, and the
        shortfall reduces later payouts. "signed": it pays.
    game : {"owners", "cells"}, default="owners"
        Whether owners were valued as players by :class:`~cellworth.payouts.OwnerValuer`, or values
        of single cells are added up, by which handing in rows several times pays.
    undecided : {"pay", "equal", "hold"}, default="pay"
        What errors of the values mean for amounts. "pay": nothing, estimates are paid. "equal":
        owners whose values cannot be distinguished get equal parts. "hold": every owner gets the
        lower end of the 95% interval, and the rest is held back.

    See Also
    --------
    split_revenue, Agreement

    Examples
    --------
    >>> from cellworth.payouts import Policy
    >>> policy = Policy(currency="CHF", unit="0.05", negative="carry")
    >>> policy.currency, policy.game, policy.undecided
    ('CHF', 'owners', 'pay')
    """

    currency: str = "EUR"
    unit: str = "0.01"
    negative: Negative = "floor"
    game: Players = "owners"
    undecided: Undecided = "pay"

    def __post_init__(self) -> None:
        choices = {"negative": Negative, "game": Players, "undecided": Undecided}
        for name, kind in choices.items():
            if getattr(self, name) not in get_args(kind):
                listed = " or ".join(map(repr, get_args(kind)))
                raise ValueError(f"{name} must be {listed}, got {getattr(self, name)!r}.")
        currency = self.currency
        if not isinstance(currency, str) or not currency.strip() or not currency.isprintable():
            raise ValueError(f"currency must be text on one line, got {currency!r}.")
        smallest = parse_money(self.unit, "unit", example="0.01")
        if smallest == 0:
            raise ValueError(
                "unit must be above 0, got 0; give the smallest amount paid, such as '0.01'."
            )
        # Files hold strings: 5, Decimal(5) and "5" are one policy.
        object.__setattr__(self, "unit", str(smallest))


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

    def difference(self, X: TableLike | ShardedTable, X_val: TableLike | None) -> str | None:
        """Return how training and validation rows differ from this rule; None if they do not."""
        if self.select(as_table(X).row_ids).any():
            return "X has rows that the agreed rule draws for validation"
        if X_val is not None and not self.select(as_table(X_val).row_ids).all():
            return "X_val has rows that the agreed rule does not draw"
        return None

    def split(self, X: TableLike, y: VectorLike) -> dict[str, Any]:
        """Return X, y, X_val and y_val for ``fit`` from a table with all rows."""
        table = Table.from_data(X, called="X")
        train, val = self.divide(table.row_ids)
        sides = [table.keep(rows) for rows in (train, val)]
        # Only pandas keeps the ids of rows.
        X, X_val = (side.native if table.backend == "pandas" else side for side in sides)
        return {"X": X, "y": take_labels(y, train), "X_val": X_val, "y_val": take_labels(y, val)}

    def divide(self, ids: Iterable[Any]) -> tuple[Positions, Positions]:
        """Return the positions of training and of validation rows with these ids."""
        drawn = self.select(ids)
        for rows, what in ((drawn, "validation"), (~drawn, "training")):
            if not rows.any():
                raise ValueError(
                    f"share must leave rows on both sides, got {self.share}: there are no {what} "
                    f"rows among {len(drawn)}; deliver more rows."
                )
        return np.flatnonzero(~drawn), np.flatnonzero(drawn)


def take_labels(y: Any, rows: Positions) -> Any:
    """Return the labels of some rows."""
    series = nw.from_native(y, series_only=True, pass_through=True)
    return series[rows].to_native() if isinstance(series, nw.Series) else np.asarray(y)[rows]


def describe_shared(empty: str) -> str:
    """Say what part of the score owners share, and what follows."""
    if empty == "zero":
        return (
            "All of the score is shared: amounts depend little on chance and on padding, and "
            "parties of like data get nearly equal amounts."
        )
    return (
        "Only what exceeds the baseline is shared: amounts tell parties apart more, and depend "
        "more on chance and on padding."
    )


def check_policy(policy: Any) -> Policy:
    """Return the policy, or the default one for None."""
    if policy is not None and not isinstance(policy, Policy):
        raise TypeError(
            f"policy must be a Policy or None, got {type(policy).__name__}; pass Policy(...)."
        )
    return policy or Policy()


def check_carried(carried: Mapping[str, float] | None, negative: Negative) -> dict[str, float]:
    """Check and return the shortfalls of an earlier payout, also of owners who have left."""
    advice = "pass payout.carried of the previous payout"
    if carried is not None and not isinstance(carried, Mapping):
        raise TypeError(f"carried must be a mapping, got {type(carried).__name__}; {advice}.")
    brought = dict(carried or {})
    for name, value in brought.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not -_MAX_CARRIED < value <= 0:
            raise ValueError(
                f"carried must be finite numbers up to 0, got {value!r} for {name!r}; {advice}."
            )
    if brought and negative != "carry":
        raise ValueError(
            f"negative must be 'carry' if shortfalls are carried over, got {negative!r}; pass "
            "Policy(negative='carry'), or the shortfalls would be lost."
        )
    return {name: float(value) for name, value in brought.items()}


def check_labels_valued(owners: Owners, valuation: Valuation) -> None:
    """Raise ValueError if an owner holds labels that were not valued, which would earn nothing."""
    held = owners.share_of_labels()
    # If owners were players, so were those of labels.
    if not held or are_players(valuation.blocks):
        return
    if LABEL not in valuation.blocks.columns.ids.tolist():
        raise ValueError(
            f"labels are held by {join_names(list(held))}, but were not valued; value them with "
            "fit(..., value_labels=True), or with owners as players."
        )


def check_players(valuation: Valuation, policy: Policy) -> None:
    """Check that the valuation is of cells or of owners, as the policy says."""
    if are_players(valuation.blocks) != (policy.game == "owners"):
        of, advice = "cells", "value the owners with OwnerValuer"
        if policy.game == "cells":
            of, advice = "owners", "value the cells"
        raise ValueError(
            f"the values are of {of}, but the policy says game={policy.game!r}; {advice}, or pass "
            f"Policy(game={of!r}) if that was agreed."
        )
    # For KNNValuer, the value of a row group is the sum of its cells: groups are not players.
    summed = valuation.provenance.method["name"] in ("KNNValuer", "ShardedKNNValuer")
    joint_rows = valuation.blocks.rows.grouped and not summed
    if policy.game == "cells" and (valuation.blocks.columns.grouped or joint_rows):
        raise ValueError(
            "this valuation is of groups, not of single cells, so that an owner of twice as many "
            "rows would get less than twice as much; value single cells, or owners as players "
            "with OwnerValuer."
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
    # Arithmetic with a million digits would take too long.
    if (
        not amount.is_finite()
        or amount < 0
        or (amount and max(-_get_exponent(amount), amount.adjusted() + 1) > _MAX_DIGITS)
    ):
        raise ValueError(
            f"{called} must be an amount of at least 0, with at most {_MAX_DIGITS} digits before "
            f"and after the point, got {shorten(repr(given), 40)}."
        )
    if unit is not None and Fraction(amount) % Fraction(unit):
        raise ValueError(
            f"{called} must be a multiple of the unit {unit}, got {given!r}; round it, or pass "
            "another unit."
        )
    return _write_in_full(amount.copy_abs())


def _get_exponent(amount: Decimal) -> int:
    return int(amount.as_tuple().exponent)


def share_equally(quotas: Sequence[Fraction], groups: Sequence[Sequence[int]]) -> list[Fraction]:
    """Return quotas of which each group shares its own in equal parts."""
    shared = list(quotas)
    for group in groups:
        for position in group:
            shared[position] = sum((quotas[one] for one in group), Fraction(0)) / len(group)
    return shared


def compute_quotas(
    amount: Fraction, values: Sequence[Fraction], negative: Negative
) -> list[Fraction]:
    """Return shares of an amount in proportion to values; below 0, these count only if "signed"."""
    weights = [value if negative == "signed" else max(value, Fraction(0)) for value in values]
    total = sum(weights)
    if total <= _NOTHING * sum(map(abs, weights)):
        what = "the total" if negative == "signed" else "at least one"
        raise ValueError(
            f"{what} of the owners' values must be above 0 to split an amount; check the model and "
            "the validation rows."
        )
    return [amount * weight / total for weight in weights]


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
