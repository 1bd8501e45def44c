"""Payouts: who gets how much, for which cells, and the bundle to replay it.

Examples
--------
>>> from cellworth import KNNValuer, Owners
>>> from cellworth.payouts import OwnerValuer, split_revenue
>>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
>>> X_val = [[0.1, 1.0], [1.1, 5.0], [9.1, 5.0], [8.1, 9.0]]
>>> owners = Owners(X).assign("ann", rows=[0, 1]).assign("bob", rows=[2, 3])
>>> valuer = OwnerValuer(KNNValuer(1)).fit(X, y, X_val=X_val, y_val=y, owners=owners)
>>> print(sum(split_revenue(valuer.valuation_, owners, amount="100.00").amounts))
100.00
"""

from cellworth.payouts.agreement import Agreement
from cellworth.payouts.facts import Fact, list_facts
from cellworth.payouts.owner_players import (
    OwnerValuer,
    SourceComparison,
    compare_sources,
    measure_owner_interactions,
)
from cellworth.payouts.payout import Payout, Statement, split_revenue
from cellworth.payouts.policy import Policy, ValidationDraw
from cellworth.payouts.replay import Verdict, verify_bundle

__all__ = [
    "Agreement",
    "Fact",
    "OwnerValuer",
    "Payout",
    "Policy",
    "SourceComparison",
    "Statement",
    "ValidationDraw",
    "Verdict",
    "compare_sources",
    "list_facts",
    "measure_owner_interactions",
    "split_revenue",
    "verify_bundle",
]
