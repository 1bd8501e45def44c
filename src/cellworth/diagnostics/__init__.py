"""Diagnostics: which cells to check, why rows help or hurt, and what changing cells does."""

from cellworth.diagnostics.anomaly import cell_suspicion
from cellworth.diagnostics.comparison import Comparison, before_and_after
from cellworth.diagnostics.detection import DetectionCurve, detection_curve
from cellworth.diagnostics.explain import Explanation, explain_column, explain_row
from cellworth.diagnostics.removal import RemovalCurve, removal_curve
from cellworth.diagnostics.repair import repair_cells
from cellworth.diagnostics.suspects import suspect_cells

__all__ = [
    "Comparison",
    "DetectionCurve",
    "Explanation",
    "RemovalCurve",
    "before_and_after",
    "cell_suspicion",
    "detection_curve",
    "explain_column",
    "explain_row",
    "removal_curve",
    "repair_cells",
    "suspect_cells",
]
