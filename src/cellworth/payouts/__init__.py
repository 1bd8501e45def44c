"""Payouts: who gets how much, for which cells, and the bundle to replay it.

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
from cellworth.payouts.allocation import IntervalPlan
from cellworth.payouts.chain import verify_chain, verify_proof, write_proofs
from cellworth.payouts.copies import share_copies
from cellworth.payouts.fraud_checks import OwnerFinding, check_owners
from cellworth.payouts.owner_players import (
    OwnerValuer,
    SourceComparison,
    compare_sources,
    measure_owner_interactions,
)
from cellworth.payouts.payout import Payout, Statement, split_revenue
from cellworth.payouts.policy import Policy, ValidationDraw
from cellworth.payouts.replay import Verdict, verify_bundle
from cellworth.payouts.signatures import generate_key, sign, verify_signatures

__all__ = [
    "Agreement",
    "IntervalPlan",
    "OwnerFinding",
    "OwnerValuer",
    "Payout",
    "Policy",
    "SourceComparison",
    "Statement",
    "ValidationDraw",
    "Verdict",
    "check_owners",
    "compare_sources",
    "generate_key",
    "measure_owner_interactions",
    "share_copies",
    "sign",
    "split_revenue",
    "verify_bundle",
    "verify_chain",
    "verify_proof",
    "verify_signatures",
    "write_proofs",
]
