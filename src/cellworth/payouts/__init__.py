"""Payouts: who gets how much, for which cells, and the audit that replays it."""

from cellworth.payouts.agreement import Agreement
from cellworth.payouts.audit import Verdict, verify_audit
from cellworth.payouts.fraud_checks import Finding, check_owners
from cellworth.payouts.payout import Payout
from cellworth.payouts.policy import Policy
from cellworth.payouts.split import split_revenue

__all__ = [
    "Agreement",
    "Finding",
    "Payout",
    "Policy",
    "Verdict",
    "check_owners",
    "split_revenue",
    "verify_audit",
]
