"""split: from a valuation and its owners to amounts of money."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from decimal import Decimal

from cellworth.owners import Holdings, Owners
from cellworth.payouts.allocation import (
    refuse_no_owners,
    refuse_no_valuation,
    refuse_other_table,
    shared_out,
)
from cellworth.payouts.fraud_checks import NOT_LOOKED_FOR, Finding, found_before_money
from cellworth.payouts.payout import Payout
from cellworth.payouts.policy import (
    Game,
    Gate,
    Negative,
    Policy,
    checked_carried,
    checked_money,
    refuse_other_game,
    with_label_owner,
)
from cellworth.valuation import Valuation


def split(
    valuation: Valuation,
    owners: Owners,
    *,
    amount: str | int | Decimal,
    currency: str = "EUR",
    unit: str | int | Decimal = "0.01",
    negative: Negative = "floor",
    minimum: str | int | Decimal = "0",
    label_owner: str | None = None,
    label_share: str | Decimal | None = None,
    game: Game = "cells",
    gate: Gate = "warn",
    carried: Mapping[str, float] | None = None,
) -> Payout:
    """Split an amount of money among the owners of a table, by what their cells are worth.

    Parameters
    ----------
    valuation : Valuation
        Of single cells; or of owners' blocks, with ``game="blocks"``.
    owners : Owners
        Who holds which cells. Pass them to the ``fit`` of the valuer as well: what an owner's
        cells are worth together then has errors of its own, and not only a bound.
    amount : str, int or Decimal
        Such as "100000.00".
    currency : str, default="EUR"
    unit : str, int or Decimal, default="0.01"
        Smallest amount that is paid.
    negative : {"floor", "carry", "signed"}, default="floor"
        What becomes of owners whose cells are worth less than nothing: they get nothing; or nothing
        now, and ``payout.carried`` says what to pass as ``carried`` next time; or they pay. With
        "signed" nobody gains by appearing under two names; with the others an owner who moves bad
        cells to a second name does.
    minimum : str, int or Decimal, default="0"
        What every owner gets at least.
    label_owner : str, default=None
        Who holds the labels: their values, where labels were players (``value_labels=True``), else
        ``label_share`` of the amount.
    label_share : str or Decimal, default=None
        Agreed share of the amount for the labels, where they were no players.
    game : {"cells", "blocks"}, default="cells"
        "cells" adds up the values of single cells: it does not matter under how many names somebody
        owns them. "blocks" takes a valuation in which whole groups were the players. That game is
        legitimate too, but pays more per head and less per row: measured, owners of 120, 60 and 60
        rows got 40, 30 and 30 %, and the first, coming as two, got 52.
    gate : {"warn", "refuse", "off"}, default="warn"
        Whether copies of rows or columns across owners, and owners worth less than nothing, are
        warned of, refused, or not looked for; see :func:`check_owners`. That copies could not be
        looked for, as in a table in shards, is warned of and noted in the payout, never refused.
    carried : mapping of str to float, default=None
        What an earlier payout carried over; only with ``negative="carry"``.

    Returns
    -------
    Payout

    Examples
    --------
    >>> from cellworth import KNNValuer
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> owners = Owners(X).assign("ann", columns="x0").assign("bob", columns="x1")
    >>> valuation = KNNValuer(1).fit(X, y, X_val=X, y_val=y, owners=owners).valuation_
    >>> split(valuation, owners, amount="100.00")
    Payout of 100.00 EUR to 2 owners; negative: floor
    owner   value      95 % interval   share  amount
      ann  0.3750   0.1453 to 0.6047  75.00%   75.00
      bob  0.1250  -0.1047 to 0.3547  25.00%   25.00
    Ranking undecided (intervals overlap): ann and bob.
    The whole table scores 1 neighbor agreement (K = 1) on 4 validation rows.
    Accuracy: 1 by majority vote, 0.5 by guessing the most frequent class.
    The baseline of the score, 0.5000 (empty='prior'), is not allocated to any owner.
    """
    policy = Policy(
        currency,
        _as_text(unit, "unit"),
        negative,
        _as_text(minimum, "minimum"),
        label_owner,
        None if label_share is None else _as_text(label_share, "label_share"),
        game,
        gate,
    )
    return split_by(policy, valuation, owners, amount=amount, carried=carried)


def _as_text(given: str | int | Decimal, called: str) -> str:
    return given if isinstance(given, str) else str(checked_money(given, called, example="0.10"))


def split_by(
    policy: Policy,
    valuation: Valuation,
    owners: Owners,
    *,
    amount: str | int | Decimal,
    carried: Mapping[str, float] | None = None,
    agreement: str | None = None,
) -> Payout:
    """Split an amount as a policy says."""
    refuse_no_valuation(valuation)
    refuse_no_owners(owners)
    if not owners.names:
        raise ValueError("owners names nobody; give cells to somebody with assign(...).")
    money = checked_money(amount, "amount", Decimal(policy.unit))
    owners = with_label_owner(owners, policy, valuation)
    holdings = owners.on(valuation.blocks)
    refuse_other_table(owners, valuation)
    refuse_other_game(valuation, policy)
    brought = checked_carried(carried, holdings.names, policy.negative)
    shared = shared_out(
        policy, valuation, holdings, owners.share_of_labels(), amount=money, brought=brought
    )
    findings = _passed(policy, owners, valuation, holdings)
    return Payout(shared, money, policy, findings, valuation, owners, brought, agreement)


def _passed(
    policy: Policy, owners: Owners, valuation: Valuation, holdings: Holdings
) -> tuple[Finding, ...]:
    """What the gate finds; with "refuse" nobody is paid if it finds anything.

    What it could not look for is told as well, but is no reason to refuse.
    """
    if policy.gate == "off":
        return ()
    findings = tuple(found_before_money(owners, valuation, holdings))
    found = [finding for finding in findings if finding.kind != NOT_LOOKED_FOR]
    if found and policy.gate == "refuse":
        told = " ".join(finding.sentence for finding in found)
        raise ValueError(
            f"nothing is split: {told} Settle this first, or pass gate='warn' to split all the "
            "same."
        )
    for finding in findings:
        warnings.warn(finding.sentence, UserWarning, stacklevel=4)
    return findings
