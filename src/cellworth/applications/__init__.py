"""Applications: what a Valuation tells people to do."""

from cellworth.applications.comparisons import Comparison, before_and_after
from cellworth.applications.detection import DetectionCurve, detection_curve
from cellworth.applications.explain import Explanation, explain_column, explain_row
from cellworth.applications.removal import RemovalCurve, removal_curve
from cellworth.applications.repairs import repair

__all__ = [
    "Comparison",
    "DetectionCurve",
    "Explanation",
    "RemovalCurve",
    "before_and_after",
    "detection_curve",
    "explain_column",
    "explain_row",
    "removal_curve",
    "repair",
]
