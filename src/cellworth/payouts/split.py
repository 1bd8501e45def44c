"""split_revenue: from a valuation and its owners to amounts of money."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from decimal import Decimal

from cellworth.diagnostics.cells import check_valuation
from cellworth.holdings import Holdings
from cellworth.owners import Owners
from cellworth.payouts.allocation import (
    allocate,
    check_owners_type,
    check_same_table,
)
from cellworth.payouts.fraud_checks import NOT_CHECKED, Finding, run_checks
from cellworth.payouts.payout import Payout
from cellworth.payouts.policy import (
    Policy,
    add_label_owner,
    check_carried,
    check_players,
    parse_money,
)
from cellworth.valuation import Valuation


def split_revenue(
    valuation: Valuation,
    owners: Owners,
    *,
    amount: str | int | Decimal,
    policy: Policy | None = None,
    carried: Mapping[str, float] | None = None,
    agreement: str | None = None,
) -> Payout:
    """Split an amount of money among the owners of a table, in proportion to their values.

    Parameters
    ----------
    valuation : Valuation
        Values of single cells; or of owners' blocks, with ``Policy(game="blocks")``.
    owners : Owners
        Who holds which cells. Pass them to ``fit`` of the valuer as well: the sum of an owner's
        values then has errors of its own, and not only a bound.
    amount : str, int or Decimal
        The amount to split, such as "100000.00".
    policy : Policy, default=None
        Currency, rounding, treatment of negative values and of labels, and the checks to run.
        None means ``Policy()``.
    carried : mapping of str to float, default=None
        ``payout.carried`` of the previous payout; only with ``Policy(negative="carry")``.
    agreement : str, default=None
        Text of the agreement file, which the payout keeps; :meth:`Agreement.split` passes it.

    Returns
    -------
    Payout

    Examples
    --------
    >>> from cellworth import KNNValuer
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> owners = Owners(X).assign("ann", columns="x0").assign("bob", columns="x1")
    >>> valuation = KNNValuer(1).fit(X, y, X_val=X, y_val=y, owners=owners).valuation_
    >>> split_revenue(valuation, owners, amount="100.00")
    Payout of 100.00 EUR to 2 owners; negative: floor
    owner   value      95 % interval   share  amount
      ann  0.3750   0.1453 to 0.6047  75.00%   75.00
      bob  0.1250  -0.1047 to 0.3547  25.00%   25.00
    Ranking undecided (intervals overlap): ann and bob.
    The whole table scores 1 neighbor agreement (K = 1) on 4 validation rows.
    Accuracy: 1 by majority vote, 0.5 by guessing the most frequent class.
    The baseline of the score, 0.5000 (empty='prior'), is not allocated to any owner.
    """
    policy = Policy() if policy is None else policy
    if not isinstance(policy, Policy):
        raise TypeError(
            f"policy must be a Policy or None, got {type(policy).__name__}; pass Policy(...)."
        )
    check_valuation(valuation)
    check_owners_type(owners)
    if not owners.names:
        raise ValueError("owners names nobody; give cells to somebody with assign(...).")
    money = parse_money(amount, "amount", Decimal(policy.unit))
    owners = add_label_owner(owners, policy, valuation)
    holdings = owners.on(valuation.blocks)
    check_same_table(owners, valuation)
    check_players(valuation, policy)
    brought = check_carried(carried, holdings.names, policy.negative)
    shared = allocate(
        policy, valuation, holdings, owners.share_of_labels(), amount=money, brought=brought
    )
    findings = _run_checks(policy, owners, valuation, holdings)
    return Payout(shared, money, policy, findings, valuation, owners, brought, agreement)


def _run_checks(
    policy: Policy, owners: Owners, valuation: Valuation, holdings: Holdings
) -> tuple[Finding, ...]:
    """What the gate finds; with "refuse" nobody is paid if it finds anything.

    What it could not look for is told as well, but is no reason to refuse.
    """
    if policy.gate == "off":
        return ()
    findings = tuple(run_checks(owners, valuation, holdings))
    found = [finding for finding in findings if finding.kind != NOT_CHECKED]
    if found and policy.gate == "refuse":
        told = " ".join(finding.sentence for finding in found)
        raise ValueError(
            f"nothing is split: {told} Settle this first, or pass gate='warn' to split all the "
            "same."
        )
    for finding in findings:
        warnings.warn(finding.sentence, UserWarning, stacklevel=3)
    return findings
