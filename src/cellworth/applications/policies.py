"""Policies: how an amount is shared, and which valuations and owners they fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from cellworth.applications.money import Negative, checked_money, checked_negative
from cellworth.blocks import LABEL
from cellworth.owners import Owners, listed_names
from cellworth.valuation import Valuation

Game = Literal["cells", "blocks"]
Gate = Literal["warn", "refuse", "off"]

_MOST_CARRIED = 1e100

PER_HEAD = (
    "whole blocks are the players here, and such a game pays more per head and less per row: an "
    "owner of twice as many rows gets less than twice as much, and one who comes under two names "
    "gains"
)


@dataclass(frozen=True)
class Policy:
    """How an amount is shared: what was agreed, apart from the values.

    Parameters
    ----------
    currency : str, default="EUR"
    unit : str, default="0.01"
        Smallest amount that is paid.
    negative : {"floor", "carry", "signed"}, default="floor"
        An owner whose cells are worth less than nothing gets nothing; or nothing now, and the
        shortfall is set against later payouts; or pays.
    minimum : str, default="0"
        What every owner gets at least.
    label_owner : str or None, default=None
        Who holds the labels.
    label_share : str or None, default=None
        Agreed share of the amount for labels, such as "0.10", where they are no players.
    game : {"cells", "blocks"}, default="cells"
        Whether values of single cells are added up, or owners' blocks were the players.
    gate : {"warn", "refuse", "off"}, default="warn"
        What happens if something is found that should be looked at before money is paid.

    Examples
    --------
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
    game: Game = "cells"
    gate: Gate = "warn"

    def __post_init__(self) -> None:
        """Refuse what is no policy."""
        checked_negative(self.negative)
        for name in ("currency", "label_owner"):
            text = getattr(self, name)
            if text is None and name == "label_owner":
                continue
            if not isinstance(text, str) or not text.strip() or not text.isprintable():
                raise ValueError(f"{name} is {text!r}; give some text on one line.")
        smallest = checked_money(self.unit, "unit", example="0.01")
        if smallest == 0:
            raise ValueError("unit is 0; give the smallest amount that is paid, such as '0.01'.")
        checked_money(self.minimum, "minimum", smallest)
        for name, allowed in (("game", get_args(Game)), ("gate", get_args(Gate))):
            if getattr(self, name) not in allowed:
                choices = " or ".join(map(repr, allowed))
                raise ValueError(f"{name} is {getattr(self, name)!r}; give {choices}.")
        share = self.label_share
        if share is not None and checked_money(share, "label_share", example="0.10") >= 1:
            raise ValueError(f"label_share is {share!r}; give a share below 1.")
        # A file holds text: 5, Decimal(5) and "5" are one policy.
        for name in ("unit", "minimum", "label_share"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, str(getattr(self, name)))


def checked_carried(
    carried: Mapping[str, float] | None, names: tuple[str, ...], negative: Negative
) -> dict[str, float]:
    """What an earlier payout carried over, as it says itself."""
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
            f"carried names {unknown[0]!r}, who owns nothing here; owners are "
            f"{listed_names(names)}."
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


def with_label_owner(owners: Owners, policy: Policy, valuation: Valuation) -> Owners:
    """Owners, with the one who holds the labels as the policy says."""
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
                f"{listed_names(list(held))} {verb} labels, but labels were no players; value them "
                "with KNNValuer(value_labels=True), or agree on a label_share."
            )
        if policy.label_share is not None and not held:
            raise ValueError(
                f"label_share is {policy.label_share}, but nobody holds the labels; give "
                "label_owner."
            )
    return owners


def _has_labels(valuation: Valuation) -> bool:
    return LABEL in valuation.blocks.columns.ids.tolist()


def rows_join(valuation: Valuation) -> bool:
    """Whether groups of rows were players as a whole."""
    # Row groups of neighbours are worth the sum of their cells: they do not join as a whole.
    summed = valuation.provenance.method["name"] == "KNNValuer"
    return valuation.blocks.rows.grouped and not summed


def refuse_other_game(valuation: Valuation, policy: Policy) -> None:
    """Refuse groups where cells were agreed on, and cells where groups were."""
    joins = valuation.blocks.columns.grouped or rows_join(valuation)
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
