"""Applications: what a Valuation tells people to do."""

from cellworth.applications.agreements import Agreement
from cellworth.applications.audits import Verdict, verify
from cellworth.applications.comparisons import Comparison, before_and_after
from cellworth.applications.detection import DetectionCurve, detection_curve
from cellworth.applications.explain import Explanation, explain_column, explain_row
from cellworth.applications.gate import Finding, check_owners
from cellworth.applications.payouts import Payout
from cellworth.applications.policies import Policy
from cellworth.applications.removal import RemovalCurve, removal_curve
from cellworth.applications.repairs import repair
from cellworth.applications.splits import split
from cellworth.applications.suspects import suspect_cells
from cellworth.applications.unlikely import cell_suspicion

__all__ = [
    "Agreement",
    "Comparison",
    "DetectionCurve",
    "Explanation",
    "Finding",
    "Payout",
    "Policy",
    "RemovalCurve",
    "Verdict",
    "before_and_after",
    "cell_suspicion",
    "check_owners",
    "detection_curve",
    "explain_column",
    "explain_row",
    "removal_curve",
    "repair",
    "split",
    "suspect_cells",
    "verify",
]
