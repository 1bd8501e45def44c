"""Applications: what a Valuation tells people to do."""

from cellworth.applications.agreements import Agreement
from cellworth.applications.audits import Verdict, verify
from cellworth.applications.gate import Finding, check_owners
from cellworth.applications.payouts import Payout, split
from cellworth.applications.policies import Policy

__all__ = [
    "Agreement",
    "Finding",
    "Payout",
    "Policy",
    "Verdict",
    "check_owners",
    "split",
    "verify",
]
