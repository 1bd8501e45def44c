"""Payouts: who gets how much, for which cells, and the audit that replays it.

Examples
--------
>>> from cellworth import KNNValuer, Owners
>>> from cellworth.payouts import split_revenue
>>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
>>> valuation = KNNValuer(1, random_state=0).fit(X, y, X_val=X, y_val=y).valuation_
>>> owners = Owners(X).assign("ann", rows=[0, 1]).assign("bob", rows=[2, 3])
>>> print(sum(split_revenue(valuation, owners, amount="100.00").amounts))
100.00
"""

from cellworth.payouts.agreement import Agreement
from cellworth.payouts.audit import Verdict, verify_audit
from cellworth.payouts.fraud_checks import Finding, check_owners
from cellworth.payouts.payout import Payout, Statement, split_revenue
from cellworth.payouts.policy import Policy

__all__ = [
    "Agreement",
    "Finding",
    "Payout",
    "Policy",
    "Statement",
    "Verdict",
    "check_owners",
    "split_revenue",
    "verify_audit",
]
