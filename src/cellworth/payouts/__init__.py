"""Payouts: who gets how much, for which cells, and the audit that replays it."""

from cellworth.payouts.agreement import Agreement
from cellworth.payouts.audit import Verdict, verify_audit
from cellworth.payouts.fraud_checks import Finding, check_owners
from cellworth.payouts.payout import Payout, split_revenue
from cellworth.payouts.policy import Policy

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
